"""Boxes: what a differentiated function gets in the place of an array.

A box holds a tensor and behaves as NumPy's array does: its operators, attributes and methods are
NumPy's functions on the tensor. What no derivative flows through is a plain array, so that code
under no transform, or past it, sees NumPy alone.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

import numpy as np

from adjoint import numpy as anp
from adjoint.autograd.forward import ForwardTensor
from adjoint.base.dtypes import is_inexact
from adjoint.base.tree import flatten, tree_map, unflatten
from adjoint.core.tensor import Tensor, wrap
from adjoint.numpy._index import forward_slices
from adjoint.numpy._table import as_tensor
from adjoint.ops.public import FUNCTIONS
from adjoint.protocols import UFUNCS

F = Callable[..., Any]


class _Depth(threading.local):
    """How many functions are being traced in this thread."""

    value = 0


DEPTH = _Depth()


@contextmanager
def tracing() -> Iterator[None]:
    """While a function runs on boxes. Outside of it nothing is a box."""
    DEPTH.value += 1
    try:
        yield
    finally:
        DEPTH.value -= 1


class Box:
    """An array under a transform. `_value` is the plain array of it."""

    __slots__ = ("tensor", "weak")
    __array_ufunc__: Any = None       # NumPy's arrays leave `array * box` to the box
    type_mappings: dict[type, type] = {}      # of types, the class of their boxes in a graph
    types: set[type] = set()

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.weak = False             # a Python number, which takes the dtype of what it meets

    @property
    def _value(self) -> Any:
        found = plain(self.tensor)
        return found.item() if self.weak else found

    @classmethod
    def register(cls, value_type: type) -> None:
        """Values of that type are differentiated in boxes of this class (`hips.graph`)."""
        Box.types.add(cls)
        Box.type_mappings[value_type] = Box.type_mappings[cls] = cls

    def __bool__(self) -> bool:
        return bool(self._value)

    def __len__(self) -> int:
        return len(self._value)

    def __copy__(self) -> Box:
        return self

    def __deepcopy__(self, memo: Any) -> Box:
        return self                   # boxes are not written to, and a derivative flows on

    def __str__(self) -> str:
        return f"Autograd {type(self).__name__} with value {self._value}"

    __repr__ = __str__
    __hash__ = object.__hash__


def plain(t: Any) -> Any:
    """The values of a tensor at any level as an array; a scalar where it has no axes."""
    while isinstance(t, ForwardTensor):
        t = t.value
    return t.array[()] if t.array.ndim == 0 else t.array


def isbox(x: Any) -> bool:
    """True for what stands for an array under a transform."""
    return isinstance(x, Box)


def getval(x: Any) -> Any:
    """The plain value; trees of boxes are taken apart."""
    if isinstance(x, Box):
        return getval(x._value)
    return tree_map(lambda v: getval(v._value) if isinstance(v, Box) else v, x)


def lower(x: Any) -> Any:
    """Boxes in a tree as their tensors."""
    if isinstance(x, Box):
        return x.tensor
    if isinstance(x, (list, tuple, dict)):
        return tree_map(lambda v: v.tensor if isinstance(v, Box) else v, x)
    return x


def raised(x: Any) -> Any:
    """Tensors in a tree as boxes; as arrays where no derivative flows through them."""
    if isinstance(x, Tensor):
        flows = DEPTH.value and (x._rg or x.level) and is_inexact(x.array.dtype)
        return ArrayBox(x) if flows else plain(x)
    if isinstance(x, (list, tuple, dict)):
        return tree_map(raised, x)
    return x


def boxed_like(tensors: Any, values: Any) -> Any:
    """Tensors in a tree as the boxes of these values: those of Python numbers are weak."""
    leaves, spec = flatten(tensors)
    boxes = list(map(raised, leaves))
    for box, v in zip(boxes, flatten(values)[0], strict=True):
        if isinstance(box, Box):
            box.weak = v.weak if isinstance(v, Box) else type(v) in (float, complex)
    return unflatten(boxes, spec)


def holds_box(x: Any) -> bool:
    """True if there is a box among the leaves."""
    if isinstance(x, (list, tuple)):
        return any(map(holds_box, x))
    return isinstance(x, Box) or (isinstance(x, dict) and any(map(holds_box, x.values())))


# what records calls in graphs of nodes; empty until the first box of such a graph is made
RECORD: list[F] = []
UNRECORDED: Any = object()
OVERRIDES: dict[F, F] = {}        # functions that a program gave rules of its own, by `defvjp`


def recorded(fun: F) -> F:
    """A function whose calls are nodes of graphs (`hips.graph`)."""
    @wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = RECORD[0](call, args, kwargs) if RECORD else UNRECORDED
        return fun(*args, **kwargs) if found is UNRECORDED else found
    return call


def _written(out: Any, found: Any) -> Any:
    """What a call with `out=` gives: its result in the dtype of `out`, which holds the values."""
    (target,) = out if isinstance(out, tuple) else (out,)
    if not isinstance(target, np.ndarray):
        raise TypeError(f"return arrays must be of ArrayType, got {type(target).__name__}")
    np.copyto(target, getval(found), casting="same_kind")
    same = not isinstance(found, ArrayBox) or found.dtype == target.dtype
    return found if same else found.astype(target.dtype)


def on_arrays(theirs: F, ours: F | None = None, whole: F | None = None) -> F:
    """A function of arrays and boxes: `theirs` on arrays, `ours` on the tensors of boxes (default:
    theirs, where tensors answer NumPy's protocols).

    whole  the function that this one is a part of, in whose name graphs record its calls
    """
    run = ours or theirs

    def own(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        found = raised(run(*map(lower, args), **{k: lower(v) for k, v in kwargs.items()}))
        return found if out is None else _written(out, found)

    @wraps(theirs, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if any(map(holds_box, args)) or (kwargs and holds_box(kwargs)):
            if RECORD:
                found = RECORD[0](whole or call, args, kwargs)
                if found is not UNRECORDED:
                    return found
            if OVERRIDES and (whole or call) in OVERRIDES:
                return OVERRIDES[whole or call](*args, **kwargs)
            return own(*args, **kwargs)
        return theirs(*args, **kwargs)
    vars(whole or call)["own"] = own
    return call


def counterparts(theirs: Any, ours: Any) -> Callable[[str], Any]:
    """The `__getattr__` of a module of NumPy's: its functions by `on_arrays`, with those of `ours`
    of the same names; all else as it is."""
    @cache
    def find(name: str) -> Any:
        found = getattr(theirs, name)
        plain = isinstance(found, type) or not callable(found)
        return found if plain else on_arrays(found, getattr(ours, name))
    return find


def _of_ties(larger: str) -> F:
    """`fmax` and `fmin` by `maximum` and `minimum`, which share a gradient where both are equal."""
    best = _extreme(larger)

    def run(a: Any, b: Any) -> Any:
        a, b = as_tensor(a), as_tensor(b)
        where, nan = FUNCTIONS["where"], FUNCTIONS["isnan"]
        return where(nan(a), b, where(nan(b), a, best(a, b)))
    return run


def _extreme(larger: str) -> F:
    """`maximum` and `minimum`, of complex numbers by their real parts, then the imaginary ones."""
    plain, where, sign = FUNCTIONS[larger], FUNCTIONS["where"], FUNCTIONS["sign"]

    def run(a: Any, b: Any) -> Any:
        if not a.is_complex():
            return plain(a, b)
        gap = (a - b).detach()
        ahead = where(gap.real == 0, sign(gap.imag), sign(gap.real))
        share = (1 + (ahead if larger == "maximum" else -ahead)) / 2      # ties share a gradient
        return where(share == 0, b, where(share == 1, a, a * share + b * (1 - share)))
    return run


_SHARED = {"maximum": _extreme("maximum"), "minimum": _extreme("minimum"),
           "fmax": _of_ties("maximum"), "fmin": _of_ties("minimum")}


def _clip(a: Any, a_min: Any = None, a_max: Any = None, **kwargs: Any) -> Any:
    """`numpy.clip`; no derivative flows through an entry that is at a bound."""
    y = anp.ours["clip"](a, a_min, a_max, **kwargs)
    if not isinstance(a, Tensor):
        return y
    for bound in (a_min, a_max):
        if bound is not None:
            end = bound if isinstance(bound, Tensor) else wrap(np.asarray(bound, y.array.dtype))
            y = FUNCTIONS["where"](FUNCTIONS["eq"](y, end), end, y)
    return y


def _imag(val: Any) -> Any:
    """`numpy.imag`; of a real value zeros that hang on it, so that no operator warns of them."""
    x = as_tensor(val)
    if x.is_complex():
        return anp.ours["imag"](x)
    return FUNCTIONS["where"](wrap(np.zeros(x.shape, bool)), x, wrap(np.zeros((), x.array.dtype)))


def _flat(theirs: F) -> F:
    """A function of steps, or of truth values, on the plain values of tensors: no derivative flows
    through it, and programs count and index with what it gives (`int(np.floor(x))`)."""
    def value(x: Any) -> Any:
        return plain(x) if isinstance(x, Tensor) else x
    return lambda *args, **kwargs: theirs(*tree_map(value, args), **tree_map(value, kwargs))


# the functions on tensors, by NumPy's names
OWN: dict[str, F] = {**anp.ours, "clip": _clip, "imag": _imag,
                     **{n: _flat(getattr(np, n)) for n in ("round", "around", "fix")}}


# whose counterparts take no numbers
_OF_TENSORS = frozenset("maximum minimum arctan2 atan2 logaddexp logaddexp2 hypot logical_and "
                        "logical_or logical_xor copysign nextafter heaviside gcd lcm fmod".split())


# steps and truth values: no derivative flows through them
_FLAT = frozenset("floor ceil trunc rint sign isfinite isinf isnan signbit equal not_equal greater "
                  "greater_equal less less_equal logical_and logical_or logical_xor logical_not "
                  "floor_divide".split())


def arithmetic(ufunc: Any) -> F:
    """A ufunc of arrays and boxes. The result has the dtype that NumPy gives it."""
    if ufunc.__name__ in _FLAT:
        return on_arrays(ufunc, _flat(ufunc))
    name = UFUNCS.get(ufunc.__name__)
    ours = _SHARED.get(ufunc.__name__) or (FUNCTIONS.get(name) if name else None)
    if ours is None:
        return on_arrays(ufunc)

    @wraps(ufunc, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        found: list[Any] = []
        kinds: set[Any] = set()
        weak: list[int] = []
        boxed = False
        if len(args) > ufunc.nin:
            args, kwargs = args[:ufunc.nin], {**kwargs, "out": args[ufunc.nin:]}
        for a in args:
            if type(a) is ArrayBox:
                boxed = True
                is_weak, a = a.weak, a.tensor
                kinds.add(a.array.dtype.type(1).item() if is_weak else a.array.dtype)
            elif isinstance(a, (np.ndarray, np.generic, list, tuple)) and not holds_box(a):
                a = np.asarray(a)
                kinds.add(a.dtype)
            elif not isinstance(a, (int, float, complex)):
                break
            elif ufunc.__name__ in _OF_TENSORS:
                a = np.asarray(a)
                weak.append(len(found))
            found.append(a)
        if not boxed or kwargs or len(found) != len(args) or call in OVERRIDES:
            return general(*args, **kwargs)
        for i in weak:                     # a number takes the dtype of what it meets
            found[i] = found[i].astype(np.result_type(*kinds, found[i].item()))
            kinds.add(found[i].dtype)
        if len(kinds) > 1:
            want = np.result_type(*kinds)
            found = [a if isinstance(a, (int, float, complex)) else _cast(a, want) for a in found]
        return raised(ours(*[wrap(a) if isinstance(a, np.ndarray) else a for a in found]))
    general = on_arrays(ufunc, lambda *args, **kwargs: ufunc(*[
        anp.array(a) if isinstance(a, (list, tuple)) else a for a in args], **kwargs), call)
    return call


def _cast(x: Any, dtype: Any) -> Any:
    if isinstance(x, Tensor):
        return x if x.array.dtype == dtype else x.to(dtype)
    return np.asarray(x, dtype)


def as_leaf(x: Any) -> Any:
    """A differentiable argument: floats and arrays of numbers as tensors; TypeError for the rest.
    An array of whole numbers or truth values is one of the floats that they are."""
    if isinstance(x, Box):
        return x.tensor
    if isinstance(x, np.ndarray) and x.dtype.kind in "iub":
        x = x.astype(np.float64)
    kind = np.asarray(x).dtype if isinstance(
        x, (float, complex, np.ndarray, np.generic)) else None
    if kind is None or not is_inexact(kind):
        name = x.dtype.type if isinstance(x, np.ndarray) else type(x)
        raise TypeError(f"Can't differentiate w.r.t. type {name}: floats, complex numbers, arrays "
                        "of them, and lists, tuples and dicts of those can be")
    return wrap(np.asarray(x))


def leaves_of(x: Any) -> Any:
    """An argument with tensors at its leaves."""
    found, spec = flatten(as_leaf(x) if x is None else x)
    return unflatten([as_leaf(v) for v in found], spec)


# ------------------------------------------------------------------ arrays
_of_ufunc = cache(arithmetic)


class ArrayBox(Box):
    """NumPy's array interface on a box."""

    __slots__ = ()
    __array_priority__ = 100.0        # for types of other packages that ask before they multiply

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or "out" in kwargs:
            return NotImplemented
        return _of_ufunc(ufunc)(*inputs, **kwargs)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def dtype(self) -> Any:
        return self.tensor.array.dtype

    @property
    def T(self) -> Any:
        return transpose(self)

    @property
    def real(self) -> Any:
        return raised(self.tensor.real)

    @property
    def imag(self) -> Any:
        return raised(_imag(self.tensor))

    def __getitem__(self, at: Any) -> Any:
        t, at = forward_slices(self.tensor, getval(at))
        return raised(t[at])

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self))])

    def astype(self, dtype: Any, **_: Any) -> Any:
        """In another dtype; a derivative flows between floating ones."""
        t, kind = self.tensor, np.dtype(dtype)
        return raised((t.real if kind.kind == "f" and t.is_complex() else t).to(kind))

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        """`numpy.reshape`, the shape as a tuple or as numbers."""
        return on_arrays(np.reshape)(self, shape[0] if len(shape) == 1 else shape, **kwargs)

    def transpose(self, *axes: Any) -> Any:
        """`numpy.transpose`, the axes as a tuple or as numbers."""
        return transpose(self, axes[0] if len(axes) == 1 else axes or None)

    def flatten(self, order: Any = "C") -> Any:
        """One axis, the elements in that order."""
        return self.reshape(-1, order=order)

    def copy(self, *_: Any) -> ArrayBox:
        """Itself: boxes are not written to."""
        return self

    def tolist(self) -> Any:
        """A nested list of boxes; without axes the box itself."""
        return [x.tolist() for x in self] if self.ndim else self


transpose = on_arrays(np.transpose)
_METHODS = ("all any argmax argmin argpartition argsort clip conj conjugate cumprod cumsum "
            "diagonal dot mean nonzero prod ptp ravel repeat round searchsorted sort "
            "squeeze std sum swapaxes take trace var").split()
_BINARY = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide",
           "floordiv": "floor_divide", "mod": "mod", "pow": "power", "matmul": "matmul"}
_COMPARE = {"eq": "equal", "ne": "not_equal", "gt": "greater", "ge": "greater_equal", "lt": "less",
            "le": "less_equal"}


def _fill() -> None:
    for name in _METHODS:
        method = on_arrays(getattr(np, name), OWN.get(name))
        method.__doc__ = f"`numpy.{name}`."
        setattr(ArrayBox, name, method)
    for name, ufunc in {**_BINARY, **_COMPARE}.items():
        run = arithmetic(getattr(np, ufunc))
        setattr(ArrayBox, f"__{name}__", lambda a, b, _f=run: _f(a, b))
        if name in _BINARY:
            setattr(ArrayBox, f"__r{name}__", lambda a, b, _f=run: _f(b, a))
    for name, ufunc in (("neg", "negative"), ("abs", "absolute"), ("pos", "positive")):
        unary = arithmetic(getattr(np, ufunc))
        setattr(ArrayBox, f"__{name}__", lambda a, _f=unary: _f(a))


_fill()
__all__ = ["ArrayBox", "Box", "getval", "isbox"]
