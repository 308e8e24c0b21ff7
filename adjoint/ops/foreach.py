"""Functions of lists of tensors: `_foreach_add(xs, ys)` is `[x + y for x, y in zip(xs, ys)]`.

PyTorch's optimizers and the trainers written beside them say their updates so. Each function is
made when its name is first asked for, from the op of that name, by one rule: what is a list is
taken element by element, what is a number or a 0-d tensor goes to all. Without an underscore at
the end the results are a tuple and carry gradients; with one the tensors are written in place and
come back as a list.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.core.inplace import check_fit
from adjoint.core.tensor import Tensor
from adjoint.ops import create
from adjoint.ops.api_decompose import vector_norm
from adjoint.ops.public import FUNCTIONS, METHODS

PREFIX = "_foreach_"
UNARY = ("abs acos asin atan ceil clone cos cosh erf erfc exp expm1 floor frac lgamma log log10 "
         "log1p log2 max neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc "
         "zero").split()
BINARY = "add clamp_max clamp_min copy div maximum minimum mm mul norm pow powsum sub".split()
TERNARY = "lerp addcdiv addcmul".split()
OPERANDS = {**dict.fromkeys(UNARY, 1), **dict.fromkeys(BINARY, 2), **dict.fromkeys(TERNARY, 3)}
ONLY_IN_PLACE, ONLY_NEW = ("zero", "copy"), ("clone", "max", "mm", "norm", "powsum")
# The last operand's names in PyTorch's signatures; what stands behind it is `alpha` or `value`.
LAST = ("other", "scalar", "scalars", "tensor", "exponent", "weight", "weights", "ord", "src",
        "mat2")
ALL = {"tensor1": 1, "tensor2": 2}  # operands in the middle
SCALED = {"addcdiv": "value", "addcmul": "value", "add": "alpha", "sub": "alpha"}


def _limit(name: str) -> Callable[..., Any]:
    """maximum or minimum with a number too, which becomes a tensor."""
    def limit(x: Tensor, other: Any) -> Any:
        other = other if isinstance(other, Tensor) else create.tensor(other)
        return FUNCTIONS[name](x, other)
    return limit


def _norm(x: Tensor, ord: Any = 2, *, dtype: Any = None) -> Any:
    return vector_norm(x, ord, dtype=dtype)


def _powsum(x: Tensor, ord: Any = 2, *, dtype: Any = None) -> Any:
    return FUNCTIONS["sum"](FUNCTIONS["pow"](FUNCTIONS["abs"](x), ord), dtype=dtype)


OTHERS: dict[str, Callable[..., Any]] = {
    "maximum": _limit("maximum"), "minimum": _limit("minimum"), "norm": _norm, "powsum": _powsum}


def names() -> list[str]:
    """Every function of the family.

    >>> "_foreach_lerp_" in names(), "_foreach_zero" in names()
    (True, False)
    """
    return sorted([PREFIX + n for n in OPERANDS if n not in ONLY_IN_PLACE]
                  + [PREFIX + n + "_" for n in OPERANDS if n not in ONLY_NEW])


def _each(name: str, count: int, x: Any) -> Sequence[Any]:
    """The operand of each of `count` calls."""
    if isinstance(x, Tensor):
        if x.ndim == 1 and len(x) == count:
            return x.unbind()
        if x.ndim:
            raise ArgumentError(f"{name}: scalar tensor expected to be 0 dim but it has {x.ndim} "
                                f"dimensions and {x.numel()} elements; pass a list for one tensor "
                                "each")
    if not isinstance(x, list | tuple):
        return (x,) * count
    if len(x) != count:
        if not any(isinstance(t, Tensor) for t in x):
            raise ArgumentError(f"{name}: Tensor list must have same number of elements as scalar "
                                f"list: got {count} and {len(x)} numbers")
        raise ArgumentError(f"{name}: Tensor lists must have the same number of tensors, got "
                            f"{count} and {len(x)} tensors")
    return x


def _arguments(name: str, base: str, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The operands in order; `kwargs` keeps what the op itself takes by keyword."""
    operands, scale = OPERANDS[base], SCALED.get(base)
    if "self" in kwargs:
        args.insert(0, kwargs.pop("self"))
    for key in [k for k in kwargs if k in ALL or k in LAST and k != scale]:
        if scale == "value" and key == "scalars":
            kwargs["value"] = kwargs.pop(key)
        else:
            args.append(kwargs.pop(key))
    if len(args) == operands + 1 and scale:
        kwargs[scale] = args.pop()
    if not args or len(args) > operands:
        raise ArgumentError(f"{name}: takes {operands} operands, got {len(args)}")
    return args


def function(name: str) -> Callable[..., Any]:
    """The function of that name.

    Raises `ArgumentError` for a list that is empty or not as long as the first.

    >>> import adjoint as ad
    >>> xs = [ad.ones(2), ad.zeros(1)]
    >>> function("_foreach_add")(xs, xs, alpha=2)
    (tensor([3., 3.]), tensor([0.]))
    >>> function("_foreach_mul_")(xs, [2.0, 3.0])[0] is xs[0]
    True
    """
    written = name.endswith("_")
    base = name.removeprefix(PREFIX).removesuffix("_")
    call = OTHERS.get(base) or FUNCTIONS.get(base) or METHODS[base + "_"]

    def copied(x: Tensor, *rest: Any, **options: Any) -> Any:
        made = call(x, *rest, **options)
        check_fit(x.array, made.array, name)
        return x.copy_(made)
    write = METHODS.get(base + "_") or copied

    def foreach(*args: Any, **kwargs: Any) -> Any:
        given = _arguments(name, base, list(args), kwargs)
        lists = [x for x in given if isinstance(x, list | tuple)]
        if not lists:
            raise ArgumentError(f"{name}: needs a list or tuple of tensors, got "
                                f"{type(given[0]).__name__}")
        if not lists[0]:
            raise ArgumentError(f"{name}: Tensor list must have at least one tensor.")
        count = len(lists[0])
        rows = zip(*(_each(name, count, x) for x in given), strict=True)
        options = ({k: v[i] for k, v in each.items()} for each in
                   [{k: _each(name, count, v) for k, v in kwargs.items()}] for i in range(count))
        apply = write if written else call
        made = [apply(*row, **o) for row, o in zip(rows, options, strict=True)]
        return made if written else tuple(made)

    foreach.__name__ = foreach.__qualname__ = name
    return foreach


def __getattr__(name: str) -> Any:
    if name in names():
        made = globals()[name] = function(name)
        return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
