"""Functions of NumPy arrays among the ops: called once per example under vmap."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.autograd.modes import is_grad_enabled
from adjoint.base.aval import Aval, MetaArray
from adjoint.core.bind import bind
from adjoint.core.op import Op
from adjoint.core.tensor import wrap
from adjoint.jax._array import ShapeDtypeStruct, inside, make, moves
from adjoint.ops.shape import batch_loop, expand_op, unsqueeze_op

METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all",
           "legacy_vectorized")


def _mapped(op_: Op, args: Sequence[Any], batched: Sequence[bool], attrs: Mapping[str, Any]) -> Any:
    """Under vmap: once per example, or once with the examples' axis in front."""
    method = attrs["method"]
    if method is None:
        raise NotImplementedError(
            "vmap is only supported for the pure_callback primitive when vmap_method is one of "
            "'sequential', 'sequential_unrolled', 'expand_dims', 'broadcast_all', or "
            "'legacy_vectorized'. Got vmap_method=None.")
    if method in METHODS[:2]:
        return batch_loop(op_, args, batched, attrs)
    n = next(a.shape[0] for a, b in zip(args, batched, strict=True) if b)
    if method != "legacy_vectorized":
        lead = 1 if method == "expand_dims" else n
        args = [a if b else expand_op(unsqueeze_op(a, dim=0), shape=(lead, *a.shape))
                for a, b in zip(args, batched, strict=True)]
    return bind(op_, tuple(args), {**attrs, "shape": (n, *attrs["shape"])})


def _impl(*arrays: Any, run: Any, place: int, shape: Any, dtype: Any, method: Any) -> Any:
    value = np.asarray(run(place, arrays))
    if value.shape != tuple(shape):
        raise RuntimeError(f"pure_callback: the callback returned an array of shape {value.shape}, "
                           f"{tuple(shape)} was announced")
    return value.astype(dtype)


_host = Op("host_call", _impl,
           lambda *avals, run, place, shape, dtype, method: Aval(shape, dtype), batch=_mapped)


def followed(tensors: Sequence[Any]) -> bool:
    """Is a derivative taken of one of them?"""
    return is_grad_enabled() and any(map(moves, tensors))


class _Runs:
    """A function's runs, each of which serves every output once."""

    def __init__(self, run: Callable[..., Any], count: int) -> None:
        self.run, self.count = run, count
        self.open: list[tuple[list[Any], Any, set[int]]] = []

    def part(self, place: int, arrays: Any) -> Any:
        """An output of the run on these arrays; effects happen once per run."""
        for entry in self.open:
            if place not in entry[2] and all([np.array_equal(a, b) for a, b in zip(
                    entry[0], arrays, strict=True)]):
                break
        else:
            entry = [np.array(a) for a in arrays], self.run(*arrays), set()
            self.open.append(entry)
        entry[2].add(place)
        if len(entry[2]) == self.count:
            self.open = [e for e in self.open if e is not entry]
        return np.array(entry[1][place])


def host_call(run: Callable[..., Any], tensors: Sequence[Any], wanted: Sequence[Any],
              method: Any = "sequential") -> list[Any]:
    """The tensors that `run(*arrays)` gives as arrays. Called once for all of its outputs.

    method  what `vmap` does, by the names of `pure_callback`
    """
    kinds = [ShapeDtypeStruct(w.shape, w.dtype) for w in wanted]
    if followed(tensors):
        raise ValueError("Pure callbacks do not support JVP. Please use `jax.custom_jvp` to use "
                         "callbacks while taking gradients.")
    if not tensors:
        return [wrap(np.asarray(v)) for v in run()]
    part = _Runs(run, len(kinds)).part
    return [bind(_host, tuple(tensors), {"run": part, "place": k, "shape": kind.shape,
                                         "dtype": kind.dtype, "method": method})
            for k, kind in enumerate(kinds)]


def computed(run: Callable[..., Any], *tensors: Any) -> list[Any]:
    """The tensors that `run(*arrays)`, a tuple of arrays, gives, without a derivative.

    Their shapes and dtypes must follow from those of the operands: where these have no values, or
    one for each example of a vmap, `run` is tried on ones first.
    """
    ts = [t.detach() for t in tensors]
    if not any(t.level or isinstance(t.array, MetaArray) for t in ts):
        return [wrap(np.asarray(v)) for v in run(*[inside(make(t)) for t in ts])]
    tried = run(*[np.ones(tuple(t.shape), t.array.dtype) for t in ts])
    kinds = [make(wrap(np.asarray(v))) for v in tried]
    return host_call(lambda *xs: [np.asarray(v).astype(k.dtype) for v, k in zip(
        run(*xs), kinds, strict=True)], ts, kinds)


__all__ = ["METHODS", "computed", "followed", "host_call"]
