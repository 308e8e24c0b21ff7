"""Complex numbers as pairs and back, and their parts: views, so that a write reaches the whole."""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.aval import Aval, aval_of
from adjoint.base.errors import DTypeError, ShapeError
from adjoint.core.op import Op, op
from adjoint.ops.family import is_complex
from adjoint.ops.public import public
from adjoint.ops.shape import select_op


def _pairs(x: Any, /) -> Any:
    _pairs_aval(aval_of(x))
    return x[..., None].view(np.dtype(f"f{x.dtype.itemsize // 2}"))


def _pairs_aval(x: Aval) -> Aval:
    if x.dtype.kind != "c":
        raise DTypeError(f"view_as_real is only supported for complex tensors, got {x.dtype}; "
                         "a real tensor x is torch.stack([x, torch.zeros_like(x)], -1)")
    return Aval((*x.shape, 2), np.dtype(f"f{x.dtype.itemsize // 2}"))


def _joined(x: Any, /) -> Any:
    _joined_aval(aval_of(x))
    if x.strides[-1] != x.itemsize:
        x = np.ascontiguousarray(x)
    return x.view(np.dtype(f"c{x.dtype.itemsize * 2}"))[..., 0]


def _joined_aval(x: Aval) -> Aval:
    if x.dtype.kind != "f" or x.dtype.itemsize < 4:
        raise DTypeError("view_as_complex is only supported for half, float and double tensors (of "
                         f"which half has no complex dtype here), got {x.dtype}")
    if not x.ndim or x.shape[-1] != 2:
        raise ShapeError("Tensor must have a last dimension of size 2: view_as_complex reads pairs "
                         f"(real, imaginary), got shape {list(x.shape)}")
    return Aval(x.shape[:-1], np.dtype(f"c{x.dtype.itemsize * 2}"))


def _same(op_: Op, args: Any, batched: Any, attrs: Any) -> Any:
    return op_.call(*args)


def _complex_domain() -> list[Any]:
    a = np.random.default_rng(0).standard_normal((2, 3, 2))
    return [((a[..., 0] + 1j * a[..., 1],), {}), ((np.array(1 - 2j),), {})]


def _pairs_domain() -> list[Any]:
    return [((np.random.default_rng(0).standard_normal((3, 2)),), {})]


view_as_real_op: Any = op(
    "view_as_real", impl=_pairs, infer=_pairs_aval, vjp={"x": lambda ct: view_as_complex_op(ct)},
    jvp={"x": None}, batch=_same, view=True, domain=_complex_domain)
view_as_complex_op: Any = op(
    "view_as_complex", impl=_joined, infer=_joined_aval,
    vjp={"x": lambda ct: view_as_real_op(ct)}, jvp={"x": None}, batch=_same, view=True,
    domain=_pairs_domain)


@public()
def view_as_real(input: Any) -> Any:
    """Complex (...) as real (..., 2): a view.

    >>> import adjoint as ad
    >>> ad.view_as_real(ad.tensor([1 + 2j]))
    tensor([[1., 2.]])
    """
    return view_as_real_op(input)


@public()
def view_as_complex(input: Any) -> Any:
    """Real (..., 2) as complex (...): a view.

    >>> import adjoint as ad
    >>> ad.view_as_complex(ad.tensor([[1.0, 2.0]]))
    tensor([1.+2.j])
    """
    return view_as_complex_op(input)


@public(method=False)
def real(input: Any) -> Any:
    """The real part: a view of a complex tensor, a real tensor itself."""
    return _part(input, 0) if is_complex(input) else input


@public(method=False)
def imag(input: Any) -> Any:
    """The imaginary part of a complex tensor: a view.

    >>> import adjoint as ad
    >>> z = ad.tensor([1 + 2j])
    >>> z.imag.mul_(10), z
    (tensor([20.]), tensor([1.+20.j]))
    """
    if not is_complex(input):
        raise DTypeError("imag is not implemented for tensors with non-complex dtypes.")
    return _part(input, 1)


def _part(input: Any, index: int) -> Any:
    return select_op(view_as_real_op(input), dim=len(input.shape), index=index)
