"""vmap: a function of one example, run on many at once."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, IndexOutOfRange
from adjoint.base.tree import broadcast_prefix, flatten, split, unflatten
from adjoint.core.inplace import lend, settle
from adjoint.core.modes import as_pytorch
from adjoint.core.tensor import Tensor, wrap
from adjoint.core.trace import mapping, runners, settlers
from adjoint.func.batch import Batch, BatchTensor
from adjoint.ops.create import tensor
from adjoint.ops.generator import rewind
from adjoint.ops.shape import cat_op, expand_op, permute_op, unsqueeze_op

_WHOLE = (int, np.integer)


def move_axis(x: Any, source: int, target: int) -> Any:
    """`x` with one axis moved (a view)."""
    n = len(x.shape)
    if not -n <= target < n:
        raise IndexOutOfRange(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}],"
                              f" but got {target}): where out_dims wants the mapped axis of an "
                              f"output {list(x.shape)}")
    source, target = source % n, target % n
    if source == target:
        return x
    dims = [d for d in range(n) if d != source]
    dims.insert(target, source)
    return permute_op(x, dims=tuple(dims))


def _name(f: Any) -> str:
    return getattr(f, "__name__", None) or repr(f)


def _sizes(leaves: Sequence[Any], dims: Sequence[Any], given: int | None, what: str) -> int:
    sizes: dict[int, int] = {}
    for i, (x, d) in enumerate(zip(leaves, dims, strict=True)):
        if d is None:
            continue
        if not isinstance(d, _WHOLE):
            raise ArgumentError(f"{what}: Got in_dim={d} for an input but in_dim must be either an "
                                "integer dimension or None.")
        if not isinstance(x, (Tensor, np.ndarray)):
            raise ArgumentError(f"{what}: Got in_dim={d} for an input but the input is of type "
                                f"{type(x)}: input {i} can't be mapped, as only tensors can. We "
                                "cannot vmap over non-Tensor arguments, please use None as the "
                                "respective in_dim")
        if not -len(x.shape) <= d < len(x.shape):
            n = len(x.shape)
            raise ArgumentError(f"{what}: Got in_dim={d} for some input, but that input is a "
                                f"Tensor of dimensionality {n} so expected in_dim to satisfy "
                                f"-{n} <= in_dim < {n} (input {i}, shape {list(x.shape)})")
        sizes[i] = int(x.shape[d])
    if not sizes:
        if given is not None:
            return given
        if not leaves:
            raise ArgumentError(f"{what.replace(', ...', '')}: got no inputs: something must be "
                                "mapped, or axis_size given")
        raise ArgumentError(f"{what}: expected `in_dims` to be int or a (potentially nested) tuple "
                            "matching the structure of inputs, got: <class 'NoneType'> for all of "
                            "them: at least one input must be mapped, or axis_size given")
    if given is not None:
        sizes[-1] = given
    if len(set(sizes.values())) > 1:
        raise ArgumentError("vmap: Expected all tensors to have the same size in the mapped "
                            f"dimension, got sizes {[*sizes.values()]} for the mapped dimension: "
                            + ", ".join(
                                f"{n} for " + (f"input {i}" if i >= 0 else "axis_size")
                                for i, n in sizes.items()))
    return next(iter(sizes.values()))


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0,
         randomness: str = "error", *, chunk_size: int | None = None,
         axis_name: Any = None, axis_size: int | None = None, **jax: Any) -> Callable[..., Any]:
    """`func` of one example -> a function of a batch, without a loop.

    in_dims     which axis of each argument is mapped (a tree prefix); None: shared by all
    out_dims    where the axis goes in each output (a tree prefix); None: the output is the same for
                all examples, and is returned once
    randomness  "error", "different" (a draw per example) or "same"
    chunk_size  examples per pass: bounds the memory
    axis_name   name of the mapped axis for psum, pmean, pmax, all_gather, axis_index
    axis_size   number of examples, where no argument is mapped

    What is passed by keyword is shared by all examples, as in PyTorch. JAX's keywords `in_axes` and
    `out_axes` may be used for in_dims and out_dims; with one of them tensors that are passed by
    keyword are mapped along their first axis, as in JAX.

    >>> import adjoint as ad
    >>> ad.func.vmap(lambda a, b: (a * b).sum())(ad.ones(3, 2), ad.ones(3, 2))
    tensor([2., 2., 2.])
    """
    in_dims, out_dims = _jax_names(jax, in_dims, out_dims)
    _check_options(func, out_dims, randomness, chunk_size)

    @wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = flatten(args)
        what = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
        if isinstance(in_dims, list) or not isinstance(in_dims, _WHOLE) and split(in_dims) is None:
            raise ArgumentError(f"{what}: expected `in_dims` to be int or a (potentially nested) "
                                f"tuple matching the structure of inputs, got: {type(in_dims)}.")
        dims = broadcast_prefix(in_dims, spec, what, "in_dims", "inputs")
        named, named_spec = flatten(kwargs)
        named = [_tensor(k) for k in named]
        along = [bool(jax) and isinstance(k, Tensor) for k in named]
        size = _sizes(leaves + named, dims + [0 if m else None for m in along],
                      axis_size, what)
        front = [x if d is None else move_axis(_tensor(x), d, 0)
                 for x, d in zip(leaves, dims, strict=True)]
        mask = [d is not None for d in dims]

        def run(chunk: Sequence[Any], extra: Sequence[Any], n: int) -> tuple[list[Any], Any]:
            return _run(func, [*chunk, *extra], mask + along, (spec, named_spec), n, randomness,
                        axis_name, len(mask))

        if chunk_size is None or chunk_size >= size:
            outs, out_spec = run(front, named, size)
        elif axis_name is not None:
            raise ArgumentError(f"vmap: chunk_size={chunk_size} would run the {size} examples of "
                                f"axis {axis_name!r} in parts, and its collectives see only one "
                                "part; leave out chunk_size or axis_name")
        else:
            outs, out_spec = _chunked(run, front, mask, named, along, size, chunk_size, randomness)
        places = broadcast_prefix(out_dims, out_spec, f"vmap({_name(func)}, ..., out_dims="
                                  f"{out_dims})(<inputs>)", "out_dims", "outputs")
        found = unflatten([_place(o, p, size, func)
                           for o, p in zip(outs, places, strict=True)], out_spec)
        if as_pytorch[0] and isinstance(out_dims, int) and None in flatten(found, _absent)[0]:
            raise _no_tensor(func, None)
        return found
    return mapped


def _check_options(func: Any, out_dims: Any, randomness: str, chunk_size: int | None) -> None:
    if isinstance(out_dims, (str, float)):
        raise ArgumentError(f"vmap({_name(func)}, ..., out_dims={out_dims}): `out_dims` must be an "
                            "int, None or a python collection of ints representing where in the "
                            "outputs the vmapped dimension should appear.")
    if randomness not in ("error", "different", "same"):
        raise ArgumentError("Only allowed values for randomness are 'error', 'different', or "
                            f"'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ArgumentError("vmap: chunk_size should be None or greater than 0. (got "
                            f"{chunk_size})")


def _jax_names(given: dict[str, Any], in_dims: Any, out_dims: Any) -> tuple[Any, Any]:
    """in_dims and out_dims after JAX's keywords for them."""
    unknown = set(given) - {"in_axes", "out_axes"}
    if unknown:
        raise TypeError(f"vmap() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    axes_in = given.get("in_axes", in_dims)
    return (tuple(axes_in) if isinstance(axes_in, list) and "in_axes" in given else axes_in,
            given.get("out_axes", out_dims))


class _Shared:
    """An output that does not depend on the example."""

    def __init__(self, value: Any, given: Any = None) -> None:
        self.value, self.given = value, given   # as a tensor; the number or array that it was


def _no_tensor(func: Any, found: Any) -> ArgumentError:
    name = _name(func)
    return ArgumentError(f"vmap({name}, ...): `{name}` must only return Tensors, got type "
                         f"{type(found)}. Did you mean to set out_dims= to None for output?")


def _absent(x: Any) -> bool:
    return x is None


def _place(o: Any, dim: Any, size: int, func: Any) -> Any:
    """An output with the mapped axis where out_dims wants it."""
    if not isinstance(o, _Shared):
        if dim is None:
            raise ArgumentError("vmap: the function can not return a BatchedTensor when out_dim is "
                                "None: this output has one value per example")
        return move_axis(o, 0, dim)
    if dim is None:
        return o.given if as_pytorch[0] and o.given is not None else o.value
    if not isinstance(o.value, Tensor) or as_pytorch[0] and o.given is not None:
        raise _no_tensor(func, o.value if o.given is None else o.given)
    return move_axis(expand_op(unsqueeze_op(o.value, dim=0), shape=(size, *o.value.shape)), 0, dim)


def _tensor(x: Any) -> Any:
    return wrap(x) if isinstance(x, np.ndarray) else x


def _chunked(run: Callable[..., Any], front: Sequence[Any], mask: Sequence[bool],
             named: Sequence[Any], along: Sequence[bool], size: int, step: int, randomness: str
             ) -> tuple[list[Any], Any]:
    pieces: list[list[Any]] = []
    out_spec: Any = None
    begin = rewind(randomness)
    for start in range(0, size, step):
        begin()
        end = min(start + step, size)
        part = [x[start:end] if m else x for x, m in zip(front, mask, strict=True)]
        extra = [k[start:end] if m else k for k, m in zip(named, along, strict=True)]
        outs, out_spec = run(part, extra, end - start)
        pieces.append(outs)
    return [column[0] if isinstance(column[0], _Shared) else cat_op(*column, dim=0)
            for column in zip(*pieces, strict=True)], out_spec


def _run(func: Callable[..., Any], front: Sequence[Any], mask: Sequence[bool], specs: Any,
         size: int, randomness: str, axis_name: Any, n: int) -> tuple[list[Any], Any]:
    """The results for one chunk; the first `n` of `front` come by position."""
    with Batch(size, randomness, axis_name) as trace:
        trace.outer = mapping.get()
        outer = mapping.set(trace)
        trace.shared = [x for x, m in zip(front, mask, strict=True) if not m]
        try:
            lent = [lend(trace.lift(x), x) if m else x for x, m in zip(front, mask, strict=True)]
            args, kwargs = unflatten(lent[:n], specs[0]), unflatten(lent[n:], specs[1])
            leaves, out_spec = flatten(func(*args, **kwargs))
            settle(trace)
        finally:
            mapping.reset(outer)
            trace.shared = ()
        return [_out(trace, o) for o in leaves], out_spec


runners.add(_run.__code__)
settlers.add(settle.__code__)


def _out(trace: Any, o: Any) -> Any:
    if isinstance(o, BatchTensor) and o.trace is trace:
        return o.value
    if isinstance(o, (int, float, complex, np.ndarray)):
        return _Shared(tensor(o), o)
    return _Shared(o)
