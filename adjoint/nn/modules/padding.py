"""Padding layers: constant, zero, reflection, replication and circular, in 1 to 3 axes.

``padding`` is one number for all sides, or (left, right), (left, right, top, bottom), (left,
right, top, bottom, front, back); negative numbers crop. The input is (N, C, *) or (C, *).
"""
from __future__ import annotations

from collections.abc import Sequence

import adjoint.nn.functional as F
from adjoint.core.tensor import Tensor
from adjoint.nn.modules._check import IntOrInts, ints, rank
from adjoint.nn.modules.module import Module

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d",
    "ConstantPad3d", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d",
    "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d",
    "ZeroPad3d",
]


class _ConstantPadNd(Module):
    _axes = 0

    def __init__(self, padding: IntOrInts, value: float) -> None:
        super().__init__()
        self.value = value
        self.padding: Sequence[int] = ints(padding, 2 * self._axes, type(self).__name__, "padding")

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _PadNd(Module):
    _axes = 0
    _mode = ""

    def __init__(self, padding: IntOrInts) -> None:
        super().__init__()
        self.padding: Sequence[int] = ints(padding, 2 * self._axes, type(self).__name__, "padding")

    def forward(self, input: Tensor) -> Tensor:
        n = self._axes
        rank(self, input, (n + 1, n + 2), f"(C, *) or (N, C, *) with {n} axes after C")
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPadNd):
    """Pads the last axis with ``value``.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ConstantPad1d(1, 3.5)(ad.zeros(1, 1, 4)).shape)
    (1, 1, 6)
    """

    _axes = 1


class ZeroPad1d(ConstantPad1d):
    """Pads the last axis with zeros.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ZeroPad1d(1)(ad.zeros(1, 1, 4)).shape)
    (1, 1, 6)
    """

    def __init__(self, padding: IntOrInts) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad2d(_ConstantPadNd):
    """Pads the last two axes with ``value``.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ConstantPad2d(1, 3.5)(ad.zeros(1, 1, 4, 4)).shape)
    (1, 1, 6, 6)
    """

    _axes = 2


class ZeroPad2d(ConstantPad2d):
    """Pads the last two axes with zeros.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ZeroPad2d(1)(ad.zeros(1, 1, 4, 4)).shape)
    (1, 1, 6, 6)
    """

    def __init__(self, padding: IntOrInts) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad3d(_ConstantPadNd):
    """Pads the last three axes with ``value``.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ConstantPad3d(1, 3.5)(ad.zeros(1, 1, 4, 4, 4)).shape)
    (1, 1, 6, 6, 6)
    """

    _axes = 3


class ZeroPad3d(ConstantPad3d):
    """Pads the last three axes with zeros.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ZeroPad3d(1)(ad.zeros(1, 1, 4, 4, 4)).shape)
    (1, 1, 6, 6, 6)
    """

    def __init__(self, padding: IntOrInts) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ReflectionPad1d(_PadNd):
    """Pads the last axis with mirrored at the border, which is not repeated; less than the axis
    is long.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ReflectionPad1d(1)(ad.zeros(1, 1, 4)).shape)
    (1, 1, 6)
    """

    _axes = 1
    _mode = "reflect"


class ReflectionPad2d(_PadNd):
    """Pads the last two axes with mirrored at the border, which is not repeated; less than the
    axis is long.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ReflectionPad2d(1)(ad.zeros(1, 1, 4, 4)).shape)
    (1, 1, 6, 6)
    """

    _axes = 2
    _mode = "reflect"


class ReflectionPad3d(_PadNd):
    """Pads the last three axes with mirrored at the border, which is not repeated; less than the
    axis is long.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ReflectionPad3d(1)(ad.zeros(1, 1, 4, 4, 4)).shape)
    (1, 1, 6, 6, 6)
    """

    _axes = 3
    _mode = "reflect"


class ReplicationPad1d(_PadNd):
    """Pads the last axis with copies of the border.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ReplicationPad1d(1)(ad.zeros(1, 1, 4)).shape)
    (1, 1, 6)
    """

    _axes = 1
    _mode = "replicate"


class ReplicationPad2d(_PadNd):
    """Pads the last two axes with copies of the border.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ReplicationPad2d(1)(ad.zeros(1, 1, 4, 4)).shape)
    (1, 1, 6, 6)
    """

    _axes = 2
    _mode = "replicate"


class ReplicationPad3d(_PadNd):
    """Pads the last three axes with copies of the border.

    >>> import adjoint as ad
    >>> tuple(ad.nn.ReplicationPad3d(1)(ad.zeros(1, 1, 4, 4, 4)).shape)
    (1, 1, 6, 6, 6)
    """

    _axes = 3
    _mode = "replicate"


class CircularPad1d(_PadNd):
    """Pads the last axis with values of the other side, as if the axis were a ring.

    >>> import adjoint as ad
    >>> tuple(ad.nn.CircularPad1d(1)(ad.zeros(1, 1, 4)).shape)
    (1, 1, 6)
    """

    _axes = 1
    _mode = "circular"


class CircularPad2d(_PadNd):
    """Pads the last two axes with values of the other side, as if the axis were a ring.

    >>> import adjoint as ad
    >>> tuple(ad.nn.CircularPad2d(1)(ad.zeros(1, 1, 4, 4)).shape)
    (1, 1, 6, 6)
    """

    _axes = 2
    _mode = "circular"


class CircularPad3d(_PadNd):
    """Pads the last three axes with values of the other side, as if the axis were a ring.

    >>> import adjoint as ad
    >>> tuple(ad.nn.CircularPad3d(1)(ad.zeros(1, 1, 4, 4, 4)).shape)
    (1, 1, 6, 6, 6)
    """

    _axes = 3
    _mode = "circular"
