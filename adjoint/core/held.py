"""Whether an array is held once, so that its memory may be given to another value."""
from __future__ import annotations

import sys
from typing import Any

refs = sys.getrefcount


def _alone() -> int:
    """What the count of references is for an object that one local variable holds."""
    held = object()
    return refs(held)


ALONE = _alone()


def owns(array: Any) -> bool:
    """Whether nobody else shows the memory of an array (or storage-less array) that is itself
    held once.

    >>> import numpy as np
    >>> a = np.zeros(6)
    >>> owns(a), owns(a.reshape(2, 3)), owns(np.zeros(6).reshape(2, 3))
    (True, False, True)
    """
    base = array.base
    return base is None or (type(base) is type(array) and base.base is None
                            and base.size == array.size and refs(base) <= ALONE + 1)
