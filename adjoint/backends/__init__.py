"""Switches of back-ends that are not here: they can be set, and change nothing."""
from __future__ import annotations

from typing import Any


class _Switches:
    """A namespace whose attributes may be set freely; what is not set is False."""

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return False

    def is_available(self) -> bool:
        """False: the back-end is not part of this package."""
        return False

    def is_built(self) -> bool:
        """False."""
        return False


cudnn = _Switches(benchmark=False, deterministic=False, enabled=False, allow_tf32=False)
cuda = _Switches(matmul=_Switches(allow_tf32=False))
mps = _Switches()
mkldnn = _Switches(enabled=False)
mkl = _Switches()
openmp = _Switches()
xnnpack = _Switches()
