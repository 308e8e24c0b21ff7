"""`torch._subclasses`: what libraries ask about tensors
that stand for others while a program is compiled. None is made here."""
from __future__ import annotations

from typing import Any

__path__: list[str] = []               # a package, so that `_subclasses.fake_tensor` is found


class FakeTensor:
    """The class of tensors of a compiler. Nothing is an instance: tensors without storage have
    the device "meta"."""


def is_fake(x: Any) -> bool:
    """False: no tensor stands for another."""
    return isinstance(x, FakeTensor)
