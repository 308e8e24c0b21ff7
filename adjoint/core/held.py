"""Whether an array is held once, so that its memory may be given to another value."""
from __future__ import annotations

import sys
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.core.rehearsal import call

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


def own(ct: Any, held: int) -> Any:
    """`ct` itself where nobody else can see its buffer, else a copy: `.grad` never aliases a
    saved or user-held array. `held` is how many references the callers hold."""
    if type(ct) is MetaArray:
        if ct.base is None and ct.contiguous and refs(ct) <= held + 1:
            return ct
        return call(np.array, ct, order="C", otherwise=lambda: MetaArray(ct.shape, ct.dtype))
    if type(ct) is not np.ndarray:
        return np.asarray(ct)
    return ct if refs(ct) <= held + 1 and sole(ct) else np.array(ct, order="C")


def sole(ct: Any) -> bool:
    """Whether an array has memory of its own, that may be written to and has no gaps."""
    flags = ct.flags
    return bool(ct.base is None and flags.owndata and flags.writeable and flags.c_contiguous)
