"""NumPy's protocols and DLPack on tensors: `np.exp(t)` is `ad.exp(t)`, gradients included."""
from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import result_type
from adjoint.base.errors import (
    ArgumentError,
    AssertedError,
    DTypeError,
    ExportError,
    NotSupported,
    ShapeError,
)
from adjoint.core.bind import plain_number
from adjoint.core.modes import GRAD, state, warn, warn_as_pytorch, warn_once
from adjoint.core.tensor import Tensor, expose, share_cell, wrap
from adjoint.ops.public import FUNCTIONS, METHODS, planned, public, write_out

UFUNCS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "floor_divide": "floor_divide", "negative": "neg", "power": "pow", "float_power": "float_power",
    "remainder": "remainder", "mod": "remainder", "fmod": "fmod", "absolute": "abs", "fabs": "abs",
    "sign": "sign", "conjugate": "conj", "exp": "exp", "exp2": "exp2", "expm1": "expm1",
    "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p", "sqrt": "sqrt",
    "square": "square", "reciprocal": "reciprocal", "sin": "sin", "cos": "cos", "tan": "tan",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "hypot": "hypot",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "deg2rad": "deg2rad", "rad2deg": "rad2deg", "maximum": "maximum",
    "minimum": "minimum", "fmax": "fmax", "fmin": "fmin", "floor": "floor", "ceil": "ceil",
    "trunc": "trunc", "rint": "round", "matmul": "matmul", "logaddexp": "logaddexp",
    "logaddexp2": "logaddexp2", "copysign": "copysign", "greater": "gt", "greater_equal": "ge",
    "less": "lt", "less_equal": "le", "equal": "eq", "not_equal": "ne",
    "logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor",
    "logical_not": "logical_not", "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor", "invert": "bitwise_not", "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift", "isnan": "isnan", "isinf": "isinf",
    "isfinite": "isfinite", "signbit": "signbit", "gcd": "gcd", "lcm": "lcm",
    "heaviside": "heaviside", "positive": "positive", "degrees": "rad2deg", "radians": "deg2rad",
}
# Functions of tensors alone: NumPy's take numbers too.
_TENSORS = {"atan2", "hypot", "maximum", "minimum", "fmax", "fmin", "logaddexp", "logaddexp2",
            "heaviside", "logical_and", "logical_or", "logical_xor"}
_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "amax", "minimum": "amin"}


def _divmod(a: Any, b: Any) -> Any:
    return FUNCTIONS["floor_divide"](a, b), FUNCTIONS["remainder"](a, b)


def sign_or_nan(x: Any) -> Any:
    """The sign as NumPy, JAX and the array standard have it: nan of nan, where PyTorch has 0."""
    signs = FUNCTIONS["sign"](x)
    return FUNCTIONS["where"](FUNCTIONS["isnan"](x), math.nan, signs) \
        if x.is_floating_point() else signs


# functions of two operands whose first may be a number
_NUMBER_FIRST = {"add", "sub", "mul", "div", "pow", "floor_divide", "remainder", "bitwise_and",
                 "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"}
_COMPOSED: dict[str, Callable[..., Any]] = {
    "cbrt": lambda x: FUNCTIONS["sign"](x) * FUNCTIONS["pow"](FUNCTIONS["abs"](x), 1 / 3),
    "modf": lambda x: (FUNCTIONS["frac"](x), FUNCTIONS["trunc"](x)), "divmod": _divmod,
    "vecdot": lambda a, b: (FUNCTIONS["conj"](a) * b).sum(-1),
    "matvec": lambda a, v: (a * v[..., None, :]).sum(-1),
    "vecmat": lambda v, a: (FUNCTIONS["conj"](v)[..., :, None] * a).sum(-2),
}


def _lift(x: Any) -> Any:
    """Arrays among the operands become tensors, NumPy scalars numbers; numbers stay."""
    if isinstance(x, np.ndarray):
        return wrap(np.asarray(x))
    return plain_number(x) if isinstance(x, np.generic) else x


def _as_tensors(xs: list[Any]) -> list[Any]:
    """Numbers as 0-d tensors of the dtype that they leave the others in."""
    if all([isinstance(x, Tensor) for x in xs]):
        return xs
    dtype = result_type([x.array if type(x) is Tensor else np.empty(0, x.dtype.dtype)
                         if isinstance(x, Tensor) else x for x in xs])
    return [x if isinstance(x, Tensor) else wrap(np.asarray(x, dtype)) for x in xs]


def _array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    name = UFUNCS.get(ufunc.__name__)
    out = kwargs.pop("out", None)
    kwargs = {k: v for k, v in kwargs.items() if v is not None}
    if method == "__call__" and name is not None and name in FUNCTIONS and not kwargs:
        given = [_lift(x) for x in inputs]
        lifts = name in _TENSORS or not isinstance(given[0], Tensor) and name not in _NUMBER_FIRST
        run = sign_or_nan if name == "sign" else FUNCTIONS[name]
        result = run(*(_as_tensors(given) if lifts else given))
        if out is None:
            return result
        target = out[0] if isinstance(out, tuple) else out
        if isinstance(target, Tensor):
            return write_out(target, result)
        np.copyto(target, result.detach().numpy())
        return target
    if method == "__call__" and ufunc.__name__ in _COMPOSED and out is None:
        return _COMPOSED[ufunc.__name__](*[_lift(x) for x in inputs])
    if method == "reduce" and ufunc.__name__ in _REDUCTIONS and out is None:
        axis = kwargs.get("axis", 0)
        dims = tuple(range(inputs[0].ndim)) if axis is None else axis
        f = FUNCTIONS[_REDUCTIONS[ufunc.__name__]]
        return f(inputs[0], dims, keepdim=bool(kwargs.get("keepdims", False)))
    return _without_gradient(f"np.{ufunc.__name__}.{method}", inputs, lambda arrays: getattr(
        ufunc, method)(*arrays, **kwargs))


def _without_gradient(name: str, inputs: Any, run: Callable[[Any], Any]) -> Any:
    """NumPy's own function on the values, refused where a derivative would be lost."""
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    if any(t.level for t in tensors) or (state() & GRAD and any(t._rg for t in tensors)):
        raise NotSupported(f"{name} has no derivative here: call .detach() on its operands, or use "
                           "the function of this package if it has one")
    result = run([x.numpy() if isinstance(x, Tensor) else x for x in inputs])
    return wrap(np.asarray(result)) if isinstance(result, (np.ndarray, np.generic)) else result


def _array_function(self: Tensor, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    from adjoint.numpy import by_function
    ours = by_function(func)
    if ours is not None:
        return ours(*args, **kwargs)
    flat = [x for a in args for x in (a if isinstance(a, (list, tuple)) else (a,))]
    return _without_gradient(f"np.{func.__name__}", flat, lambda _: func(
        *[_down(a) for a in args], **{k: _down(v) for k, v in kwargs.items()}))


def _down(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.detach().numpy()
    if isinstance(x, (list, tuple)):
        return type(x)(_down(v) for v in x)
    return x


# ------------------------------------------------------------------ DLPack
def _dlpack(self: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
            copy: bool | None = None) -> Any:
    if self._rg:
        raise ExportError("Can't export tensors that require gradient, use tensor.detach()")
    if type(self.array) is MetaArray:
        raise ExportError("Cannot pack tensors on meta: they have no data")
    if stream is not None:
        raise AssertedError(f"stream should be None on cpu. Got {stream!r}")
    expose(self)
    array = self.array.copy() if copy else self.array
    try:
        return array.__dlpack__(max_version=max_version)
    except TypeError:
        return array.__dlpack__()


def _dlpack_device(self: Tensor) -> tuple[int, int]:
    return (1, 0)


class _Capsule:
    """The array in a DLPack capsule."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class _Writable:
    """The memory of an array that NumPy takes for read-only; it keeps the array alive."""

    def __init__(self, array: Any) -> None:
        face = dict(array.__array_interface__)
        face["data"] = face["data"][0], False
        self.__array_interface__, self.array = face, array


@public(method=False)
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of any array that speaks DLPack (NumPy, PyTorch, JAX, CuPy's host
    arrays), or of a capsule of `utils.dlpack.to_dlpack`, which can be taken once; writes on either
    side are seen by both."""
    if type(ext_tensor).__name__ == "PyCapsule":
        ext_tensor = _Capsule(ext_tensor)
    if not hasattr(ext_tensor, "__dlpack__"):
        raise TypeError(f"from_dlpack: {type(ext_tensor).__name__} has no __dlpack__ method")
    array = np.from_dlpack(ext_tensor)
    if isinstance(ext_tensor, _Capsule) and not array.flags.writeable:
        array = np.asarray(_Writable(array))      # (these capsules cannot say what is read-only)
    if copy:
        return wrap(array.copy())
    t = wrap(array)
    share_cell(t)
    expose(t)
    return t


def _array_namespace(self: Tensor, *, api_version: str | None = None) -> Any:
    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
        raise ArgumentError(f"array API version {api_version!r} is not supported; 2025.12 is")
    return importlib.import_module("adjoint.interop.array_api")


def _to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """The array API's name of `to(device)`."""
    return self.to(device)


def _storage(typed: bool) -> Any:
    def f(self: Tensor) -> Any:
        module = importlib.import_module("adjoint.storage")
        if typed:
            warn_as_pytorch("TypedStorage is deprecated. It will be removed in the future and "
                            "UntypedStorage will be the only storage class. This should only matter"
                            " to you if you are using storages directly.", once=True)
        return module.TypedStorage(self) if typed else module.UntypedStorage(self)
    f.__doc__ = "The memory that this tensor and its views share."
    return f


def attach() -> None:
    """Put the protocols and the operators that come from the registry on Tensor."""
    for name, f in (("__array_ufunc__", _array_ufunc), ("__array_function__", _array_function),
                    ("__dlpack__", _dlpack), ("__dlpack_device__", _dlpack_device),
                    ("__array_namespace__", _array_namespace), ("to_device", _to_device),
                    ("storage", _storage(True)),
                    ("untyped_storage", _storage(False))):
        setattr(Tensor, name, f)
    matmul = METHODS.get("matmul")
    if matmul is not None:
        operand = (Tensor, np.ndarray)

        def forward(self: Any, other: Any) -> Any:
            return matmul(self, _lift(other)) if isinstance(other, operand) else NotImplemented

        def backward(self: Any, other: Any) -> Any:
            return matmul(_lift(other), self) if isinstance(other, operand) else NotImplemented

        for name, operator in (("__matmul__", forward), ("__rmatmul__", backward)):
            setattr(Tensor, name, operator)


# ------------------------------------------------------------------ Python's numbers
def _real(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if type(value) is complex:
            if value.imag:
                name = "int64_t" if kind is int else "double"
                raise DTypeError(f"value cannot be converted to type {name} without "
                                 f"overflow: {value} has an imaginary part")
            value = value.real
        return kind(value)
    return convert


def _scalar(name: str, convert: Callable[[Any], Any]) -> None:
    kind: Any = Tensor
    told = name != "__int__"            # (a whole number has no gradient that could be missed)

    def method(self: Tensor) -> Any:
        size = self.numel()
        if size != 1:
            raise ShapeError("only one element tensors can be converted to Python scalars, this "
                             f"one has {size} (shape {list(self.shape)}); reduce it first")
        if told and self._rg and state() & GRAD:
            warn_once("Converting a tensor with requires_grad=True to a scalar may lead to "
                      "unexpected behavior.\nConsider using tensor.detach() first.")
        return convert(kind.item(self))
    method.__name__ = name
    setattr(Tensor, name, method)


for _name, _convert in (("__float__", _real(float)), ("__int__", _real(int)),
                        ("__complex__", complex)):
    _scalar(_name, _convert)


# ------------------------------------------------------------------ axes turned around
def _transposed(self: Tensor) -> Tensor:
    """All axes reversed."""
    n = len(self.shape)
    if n == 0:
        warn("Tensor.T is deprecated on 0-D tensors. This function is the identity in these cases.")
    elif n != 2:
        warn("The use of `x.T` on tensors of dimension other than 2 to reverse their shape is "
             "deprecated; use `x.mT` for batches of matrices, or `x.permute(...)` of all dims.")
    return METHODS["permute"](self, tuple(reversed(range(len(self.shape)))))


def _swapped(name: str, batches: bool) -> Callable[[Tensor], Tensor]:
    """A property that swaps the last two axes, of matrices alone or of their batches too."""
    def swap(self: Tensor) -> Tensor:
        n = len(self.shape)
        if n == 1 or n > 2 and not batches:
            kinds = "matrices or batches of matrices" if batches else "matrices (2-D tensors)"
            more = " For batches of matrices, consider using tensor.mH" if n > 2 else ""
            raise ShapeError(f"tensor.{name} is only supported on {kinds}. Got {n}-D tensor.{more}")
        if not n:
            warn(f"Tensor.{name} is deprecated on 0-D tensors. This function is the identity in "
                 "these cases.")
        return METHODS["transpose"](self, -2, -1) if n else self.view(())
    swap.__doc__ = "The last two axes swapped."
    return swap


def _conjugate(swap: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def adjoint(self: Tensor) -> Tensor:
        out: Tensor = METHODS["conj"](swap(self))
        return out
    adjoint.__doc__ = "The conjugate of the last two axes swapped."
    return adjoint


for _name, _prop in (("T", planned(_transposed)), ("mT", planned(_swapped("mT", True))),
                     ("H", _conjugate(_swapped("H", False))),
                     ("mH", _conjugate(_swapped("mH", True)))):
    setattr(Tensor, _name, property(_prop, doc=_prop.__doc__))


__all__ = ["attach", "from_dlpack"]
