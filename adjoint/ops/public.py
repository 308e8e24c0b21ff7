"""Registry of the public functions: what becomes `ad.<name>` and `Tensor.<name>`.

A public function has PyTorch's signature and calls op records. `@public` enters it; `tensor.py`
and the package namespace read the registry, so that a name is written once.
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from adjoint.base.dtypes import category, scalar_type
from adjoint.base.errors import ArgumentError, AutogradError, DTypeError, NotSupported
from adjoint.core.inplace import check_writable, refuse_inner, refuse_overlap
from adjoint.core.modes import (
    GRAD,
    MISTAKES,
    WATCH,
    about_to_write,
    blame,
    state,
    warn,
    watchers,
)
from adjoint.core.node import WideNode
from adjoint.core.tensor import INFERENCE_CELL, Tensor, bump, named, next_sequence

_VARARGS = 4        # co_flags of the code object (inspect.CO_*)
_NONE: Mapping[str, str] = {}
F = TypeVar("F", bound=Callable[..., Any])


class Names(dict[str, Callable[..., Any]]):
    """Public name -> function. A name is entered once; `replace` says that another is meant.

    >>> names = Names("ad.")
    >>> names["twice"] = lambda x: x + x
    >>> names["twice"] = lambda x: 2 * x
    Traceback (most recent call last):
        ...
    adjoint.base.errors.ArgumentError: ad.twice is registered already, by adjoint.ops.public...
    """

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix
        self.entered: Callable[[str, Any], None] | None = None    # told of what comes late

    def __setitem__(self, name: str, f: Callable[..., Any]) -> None:
        before = self.get(name)
        if before is not None:
            raise ArgumentError(
                f"{self.prefix}{name} is registered already, by {_whose(before)}; {_whose(f)} may "
                "take another name, or say that it replaces it: @public(..., replace=True)")
        super().__setitem__(name, f)
        if self.entered is not None:
            self.entered(name, f)

    def replace(self, name: str, f: Callable[..., Any]) -> None:
        """Enter `f` where another function stands."""
        if name not in self:
            raise ArgumentError(f"{self.prefix}{name} is not registered: there is nothing that "
                                f"{_whose(f)} could replace; leave replace=True out")
        super().__setitem__(name, f)


_homes: dict[Callable[..., Any], str] = {}      # where they were written, see `settle`


def _whose(f: Callable[..., Any]) -> str:
    module = _homes.get(f) or getattr(f, "__module__", type(f).__module__)
    return f"{module}.{getattr(f, '__qualname__', type(f).__qualname__)}"


FUNCTIONS = Names("ad.")
METHODS = Names("Tensor.")
# Tensor classes whose matrix products are functions of their own: sparse ones.
SPARSE: dict[type, Callable[[Any, Any], Any]] = {}


# dict of plans -> what looks a call up in it, in machine code; None until there is any
replayer: Callable[[dict[Any, Any]], Any] | None = None


class Plans:
    """A function and its plans: key -> (ops, results, what makes the answer of several, objects
    whose addresses are in the key); None: a call that cannot be replayed, 0: one seen once."""

    __slots__ = ("function", "table", "machine")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.table: dict[bytes, Any] = {}
        self.machine: Callable[[Any, Any], Any] = self._first

    def _first(self, args: Any, kwargs: Any) -> None:
        """In the place of the machine code until there is any."""
        if replayer is not None:
            self.machine = replayer(self.table) or (lambda args, kwargs: None)

    def learn(self, key: bytes, args: Any, kwargs: Any) -> Any:
        """Run the function, and note what it does."""
        from adjoint.core.plans import Watch  # few calls get here, and most programs none
        seen = Watch((*args, *kwargs.values()))
        held = watchers.push(watchers.observers, seen)
        try:
            result = self.function(*args, **kwargs)
        finally:
            watchers.pop(held)
        self.table[key] = seen.plan(result)
        return result


def _written(f: Callable[..., Any]) -> Any:
    """The function that wrappers stand around."""
    while hasattr(f, "__wrapped__"):
        f = f.__wrapped__
    return f


def _names(f: Callable[..., Any]) -> tuple[str, ...]:
    """The names of its parameters, but for those of the `*` kinds."""
    code = getattr(_written(f), "__code__", None)
    return () if code is None else code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]


def _defaults(f: Callable[..., Any]) -> dict[str, Any]:
    """The values that the parameters of a function have where they are not given, read off its
    code: `inspect.signature` for all public functions takes as long as a fifth of the import."""
    f = _written(f)
    values: tuple[Any, ...] = f.__defaults__ or ()
    n = f.__code__.co_argcount
    return {**dict(zip(f.__code__.co_varnames[n - len(values):n], values, strict=True)),
            **(f.__kwdefaults__ or {})}


def typed(f: F, theirs: Mapping[str, str] = _NONE) -> F:
    """`f`, which refuses keywords of a wrong type, and looks for them among the other arguments
    where it fails (`blame`). It costs a twentieth of a microsecond, which tells for what small ops
    go through. `theirs`: other names of keywords, see `other_names`.

    >>> import adjoint as ad
    >>> ad.unique(ad.ones(2), sorted="yes")
    Traceback (most recent call last):
    adjoint.base.errors.DTypeError: unique(): argument 'sorted' must be bool, not str
    """
    kinds: dict[str, type] = {}

    def check(kwargs: dict[str, Any]) -> dict[str, Any]:
        if not kinds:
            kinds.update((n, type(v)) for n, v in _defaults(f).items())
        if not theirs.keys().isdisjoint(kwargs):
            ours = {theirs.get(k, k): v for k, v in kwargs.items()}
            kwargs = kwargs if len(ours) < len(kwargs) else ours        # (Python refuses those)
        for name, value in kwargs.items():
            kind = kinds.get(name)
            if (kind is bool or kind is str) and type(value) is not kind:
                blame(f, (), {name: value})
        return kwargs

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            kwargs = check(kwargs)
            if theirs and _SPREAD in kwargs:
                args = (*args, *kwargs.pop(_SPREAD))
        try:
            return f(*args, **kwargs) if kwargs else f(*args)
        except MISTAKES:
            blame(f, args, kwargs)
            raise
    call.bare = call, f  # type: ignore[attr-defined]  # a function has attributes
    return call  # type: ignore[return-value]  # same signature


def planned(f: F) -> F:
    """`f`, whose calls are replayed; see above for which functions may be.

    >>> import adjoint as ad
    >>> x = ad.arange(6)
    >>> [x.reshape(2, -1).shape for _ in range(3)][2]
    adjoint.Size([2, 3])
    """
    own = Plans(f)

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        made = own.machine(args, kwargs)
        try:
            if made is None:
                return own.function(*args, **kwargs)
            if type(made) is bytes:
                return own.learn(made, args, kwargs)
        except MISTAKES:
            blame(f, args, kwargs)
            raise
        return made
    call.plans = own  # type: ignore[attr-defined]  # a function has attributes
    return call  # type: ignore[return-value]  # same signature


# Names that PyTorch's functions take beside the ones in our signatures: NumPy's, and older ones.
_THEIRS = {"axis": "dim", "keepdims": "keepdim", "axis0": "dim0", "axis1": "dim1",
           "split_size": "split_size_or_sections", "obj": "data"}
_FIRST = ("input", "A", "x", "self")     # what the first operand is called here
_INPUT = ("input", "a", "x", "x1")       # what PyTorch takes for its `input`
_SPREAD = "*"                    # the values are positional arguments: zeros(size=(2, 3))


def other_names(f: F, operands: bool = True) -> F:
    """`f`, which then takes PyTorch's other keywords too: `axis=` for `dim=`, `keepdims=`,
    `size=(2, 3)` for sizes one by one, and for `operands` `x=`, `x1=`, `x2=`; `f` itself where it
    has none of them.

    >>> import adjoint as ad
    >>> ad.ones(size=(2, 3)).sum(axis=0, keepdims=True)
    tensor([[2., 2., 2.]])
    """
    own = getattr(f, "plans", None)
    if own is not None:                 # one frame for both: names matter where there is no plan
        own.function = other_names(own.function, operands)
        return f
    code = getattr(_written(f), "__code__", None)
    if code is None:
        return f
    names = _names(f)
    theirs = {k: o for k, o in _THEIRS.items() if o in names and k not in names}
    if operands and names and names[0] in _FIRST:
        theirs |= {k: names[0] for k in _INPUT if k not in names}
    if operands and "other" in names and "x2" not in names:
        theirs["x2"] = "other"
    if code.co_flags & _VARARGS and code.co_varnames[len(names)] == "size":
        theirs["size"] = _SPREAD
    whole, bare = getattr(f, "bare", (None, f))         # (wrappers of `f` have its attributes)
    return typed(bare if whole is f else f, theirs) if theirs else f


def operands(name: str, given: tuple[Any, Any], named: dict[str, Any]) -> tuple[Any, Any]:
    """(input, other) of a quick function of two operands, some of them by their other names."""
    ours = {"x2": 1, **dict.fromkeys(_INPUT, 0)}
    pair = list(given)
    for key, value in named.items():
        if key not in ours or pair[ours[key]] is not None:
            raise TypeError(f"{name}() got an unexpected keyword argument {key!r}")
        pair[ours[key]] = value
    return pair[0], pair[1]


def public(name: str = "", *, method: bool | str = True, function: bool = True,
           aliases: tuple[str, ...] = (), replace: bool = False, quick: bool = False
           ) -> Callable[[F], F]:
    """Enter a function as `ad.<name>` (if `function`) and `Tensor.<name>` (if `method`).

    A name that is taken is refused, unless `replace` says that the other function is to go. What
    is entered looks for a mistaken argument where it fails (`typed`), unless it is `quick`.
    """
    def enter(f: F) -> F:
        own = name or f.__name__.rstrip("_")
        named = other_names(f, operands=function and not quick)
        if named is f and not (quick or hasattr(f, "plans") or hasattr(f, "__wrapped__")
                               or hasattr(f, "op")):
            named = typed(f)
        for n in (own, *aliases):
            as_method = method if isinstance(method, str) else n
            for table, key in ((FUNCTIONS, n if function else ""),
                               (METHODS, as_method if method else "")):
                if key and replace:
                    table.replace(key, named)
                elif key:
                    table[key] = named
        return f
    return enter


def said(t: Tensor, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Leave what was asked for beside the operands on the node: PyTorch's has it as `_saved_*`."""
    node = getattr(t._edge, "node", t._edge)
    if isinstance(node, WideNode):
        node.said = (f, *({k: x for k, x in named if not hasattr(x, "shape")} for named in (
            enumerate(args), kwargs.items())))


def known_as(node: str | Callable[..., str]) -> Callable[[F], F]:
    """A function, the last node of whose result (of the first of several) prints as `node`, or as
    that says of the arguments: in PyTorch it is one op, here several, or one that others share."""
    def around(f: F) -> F:
        inner = f if hasattr(f, "__wrapped__") else typed(f)

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            since = next_sequence()
            made = inner(*args, **kwargs)
            first = made[0] if isinstance(made, tuple) and made else made
            if type(first) is Tensor and first._rg and not state() & WATCH:
                named(first, node if isinstance(node, str) else node(*args, **kwargs), since)
                said(first, f, args, kwargs)
            return made
        return call  # type: ignore[return-value]  # same signature
    return around


def known_by(node: str, other: str = "other") -> Callable[[F], F]:
    """`known_as`, where PyTorch's node tells a number (0) as second operand from a tensor (1)."""
    def told(*args: Any, **kwargs: Any) -> str:
        second = args[1] if len(args) > 1 else kwargs.get(other)
        return f"{node}Backward{int(hasattr(second, 'shape'))}"
    return known_as(told)


def settle(package: str) -> None:
    """Let functions that their modules do not have under their names, made by templates or with
    wrappers around them, say that they are the package's or its tensors', where pickle finds them.
    """
    for table, prefix in ((FUNCTIONS, ""), (METHODS, "Tensor.")):
        for name, f in table.items():
            home = sys.modules.get(getattr(f, "__module__", package))
            if home is None or home.__name__ == package:
                continue
            if vars(home).get(f.__name__) is not f:
                _homes[f] = home.__name__
                f.__module__, f.__qualname__ = package, prefix + name


def assign(out: Tensor, result: Any) -> Tensor:
    """Store `result` in `out` (the `out=` argument): resized where the shape differs."""
    if out._rg and state() & GRAD or (isinstance(result, Tensor) and result._rg
                                      and state() & GRAD):
        raise AutogradError("functions with out=... arguments don't support automatic "
                            "differentiation, but one of the arguments requires grad.")
    if out.level or isinstance(result, Tensor) and result.level:
        raise NotSupported("out=... is for plain tensors: inside of a vmap or jvp use the returned "
                           "value, or out.copy_(value) where `out` is an argument")
    if out._cell is INFERENCE_CELL:
        check_writable(out, (), state())
    array = result.array if isinstance(result, Tensor) else np.asarray(result)
    if category(array.dtype) > category(out.array.dtype):
        raise DTypeError(f"result type {scalar_type(array.dtype)} can't be cast to the desired "
                         f"output type {scalar_type(out.array.dtype)}")
    if out.array.shape != array.shape:
        if out.array.size:
            warn("An output with one or more elements was resized since it had shape "
                 f"{list(out.array.shape)}, which does not match the required output shape "
                 f"{list(array.shape)}. This behavior is deprecated; give an `out` of that shape, "
                 "or an empty one: out.resize_(0).")
        out.array = np.empty_like(array, out.array.dtype)       # (its axes lie as the result's)
    else:
        refuse_inner(out, recording=False)
        about_to_write(out)
    np.copyto(out.array, array, casting="unsafe")
    bump(out, "out=")
    return out


def write_out(out: Any, result: Any, *read: Any) -> Any:
    """Honour `out=`: resize `out` where needed, copy, return it (as PyTorch does). `read` are the
    operands that lie element by element beside it: it may be one of them, not overlap one."""
    if isinstance(result, tuple):
        if not isinstance(out, (tuple, list)) or len(out) != len(result):
            raise DTypeError(f"argument 'out' must be tuple of Tensors, not {type(out).__name__}")
        return type(result)(write_out(o, r) for o, r in zip(out, result, strict=True))
    if not isinstance(out, Tensor):
        raise DTypeError(f"argument 'out' must be Tensor, not {type(out).__name__}")
    if read and out._cell is not None and out.shape == result.shape:
        refuse_overlap(out, *read)
    return assign(out, result)
