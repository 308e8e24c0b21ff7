"""Collectives: every rank of a group calls the same function with tensors of the same shapes.

Reductions are combined in the order of the ranks (small tensors) or around a ring (large ones), and
all ranks get the same bits. `async_op=True` returns a Work that is already done.
"""
from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.tensor import Tensor, bump
from adjoint.distributed.group import ProcessGroup, place_of, the

Array = np.ndarray[Any, Any]
SMALL = 1 << 16      # bytes up to which everybody sends everything to everybody


class ReduceOp:
    """How values of several ranks become one."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = (
        "sum", "avg", "product", "min", "max", "band", "bor", "bxor")
    RedOpType = str                     # what these are


_COMBINE: dict[str, Callable[..., Any]] = {
    "sum": np.add, "avg": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}


class Work:
    """A collective that was started with `async_op=True`; it is done when it is returned."""

    def __init__(self, tensors: Sequence[Tensor] = ()) -> None:
        self._tensors = list(tensors)

    def wait(self, timeout: Any = None) -> bool:
        """True."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True

    is_success = is_completed

    def result(self) -> list[Tensor]:
        """The tensors that were written."""
        return self._tensors


def _array(t: Any, what: str) -> Array:
    if not isinstance(t, Tensor) or not isinstance(t.array, np.ndarray):
        raise DTypeError(f"{what}: expected a tensor with data, got {type(t).__name__}")
    return np.ascontiguousarray(t.array)


def _store(t: Tensor, value: Array, what: str) -> None:
    if tuple(value.shape) != tuple(t.array.shape):
        value = value.reshape(t.array.shape)
    np.copyto(t.array, value)
    bump(t, what)


def _done(tensors: Sequence[Tensor], async_op: bool) -> Work | None:
    return Work(tensors) if async_op else None


def _combiner(op: str, dtype: Any) -> Callable[..., Any]:
    if op not in _COMBINE:
        raise ArgumentError(f"reduce op {op!r} is not one of {', '.join(_COMBINE)}")
    if op.startswith("b") and dtype.kind == "f":
        raise DTypeError(f"Cannot use ReduceOp.{op.upper()} with non-integral dtype ({dtype})")
    if dtype.kind == "c" and op in ("min", "max", "product", "band", "bor", "bxor"):
        raise ArgumentError(f"all_reduce does not support ReduceOp.{op.upper()} on complex tensors")
    if dtype.kind in "iub" and op == "avg":
        raise DTypeError(f"result type Float can't be cast to the desired output type: the mean of "
                         f"integers ({dtype}) is none")
    return _COMBINE[op]


# ---------------------------------------------------------------------- on arrays
def reduce_all(g: ProcessGroup, array: Array, op: str, what: str = "all_reduce") -> Array:
    """The combined array, on every rank."""
    combine = _combiner(op, array.dtype)
    n = g.size()
    if n == 1:
        total = array.copy()
    elif array.nbytes * n <= SMALL or n == 2:
        parts = gather_all(g, array, what)
        total = parts[0].copy()
        for part in parts[1:]:
            combine(total, part, out=total)
    else:
        total = _ring(g, array, combine, what)
    if op == "avg":
        total = (total / n).astype(array.dtype)
    return total


def _ring(g: ProcessGroup, array: Array, combine: Callable[..., Any], what: str) -> Array:
    """Reduce-scatter, then all-gather, each around the ring: 2(n-1)/n of the array is sent by each
    rank (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009)."""
    n, me = g.size(), g.rank()
    flat = array.reshape(-1).copy()
    cuts = [flat.size * i // n for i in range(n + 1)]
    pieces = [flat[cuts[i]:cuts[i + 1]] for i in range(n)]
    right, left = g.ranks[(me + 1) % n], g.ranks[(me - 1) % n]
    for step in range(n - 1):
        out, into = pieces[(me - step) % n], pieces[(me - step - 1) % n]
        got = np.empty_like(into)
        g.transport.exchange({right: out}, {left: got}, what=what)
        combine(got, into, out=into)
    for step in range(n - 1):
        out, into = pieces[(me + 1 - step) % n], pieces[(me - step) % n]
        got = np.empty_like(into)
        g.transport.exchange({right: out}, {left: got}, what=what)
        into[...] = got
    return flat.reshape(array.shape)


def gather_all(g: ProcessGroup, array: Array, what: str = "all_gather") -> list[Array]:
    """Everybody's array, in order, on every rank."""
    parts = [array if r == g.transport.rank else np.empty_like(array) for r in g.ranks]
    others = [r for r in g.ranks if r != g.transport.rank]
    g.transport.exchange({r: array for r in others},
                         {r: parts[g.ranks.index(r)] for r in others}, what=what)
    return parts


def spread(g: ProcessGroup, array: Array, source: int, what: str = "broadcast") -> Array:
    """The array of place `source`, on every rank, along a binomial tree."""
    n, me = g.size(), (g.rank() - source) % g.size()
    value = array if me == 0 else np.empty_like(array)
    reach = 1
    while reach < n:
        if me < reach and me + reach < n:
            g.transport.exchange({g.ranks[(me + reach + source) % n]: value}, {}, what=what)
        elif reach <= me < 2 * reach:
            g.transport.exchange({}, {g.ranks[(me - reach + source) % n]: value}, what=what)
        reach *= 2
    return value


# ---------------------------------------------------------------------- on tensors
def all_reduce(tensor: Tensor, op: str = ReduceOp.SUM, group: ProcessGroup | None = None,
               async_op: bool = False) -> Work | None:
    """Combine `tensor` over the ranks, in place, on all of them."""
    g = the(group)
    with g.lock:
        _store(tensor, reduce_all(g, _array(tensor, "all_reduce"), op), "all_reduce")
    return _done([tensor], async_op)


def reduce(tensor: Tensor, dst: int | None = None, op: str = ReduceOp.SUM,
           group: ProcessGroup | None = None, async_op: bool = False,
           group_dst: int | None = None) -> Work | None:
    """Combine `tensor` over the ranks, in place, on rank `dst` (place `group_dst`) only."""
    g = the(group)
    dst = place_of(g, dst, group_dst, "reduce")
    with g.lock:
        total = reduce_all(g, _array(tensor, "reduce"), op, "reduce")
        if g.transport.rank == dst:
            _store(tensor, total, "reduce")
    return _done([tensor], async_op)


def broadcast(tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None,
              async_op: bool = False, group_src: int | None = None) -> Work | None:
    """The tensor of rank `src` (place `group_src`), in place, on all ranks."""
    g = the(group)
    src = place_of(g, src, group_src, "broadcast")
    with g.lock:
        value = spread(g, _array(tensor, "broadcast"), g.place(src, "broadcast"))
        if g.transport.rank != src:
            _store(tensor, value, "broadcast")
    return _done([tensor], async_op)


def _count(name: str, tensors: Sequence[Any], g: ProcessGroup) -> None:
    if len(tensors) != g.size():
        raise ShapeError(f"{name}: a list of {g.size()} tensors is needed, one for each rank, got "
                         f"{len(tensors)}")


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: ProcessGroup | None = None,
               async_op: bool = False) -> Work | None:
    """Everybody's `tensor`, written into `tensor_list`."""
    g = the(group)
    _count("all_gather", tensor_list, g)
    with g.lock:
        for t, part in zip(tensor_list, gather_all(g, _array(tensor, "all_gather")), strict=True):
            _store(t, part, "all_gather")
    return _done(tensor_list, async_op)


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor,
                           group: ProcessGroup | None = None, async_op: bool = False
                           ) -> Work | None:
    """The same, concatenated (or stacked) along the first axis of one tensor."""
    g = the(group)
    array = _array(input_tensor, "all_gather_into_tensor")
    if output_tensor.numel() != array.size * g.size():
        raise ShapeError(f"all_gather_into_tensor: the output has {output_tensor.numel()} elements,"
                         f" {array.size} x {g.size()} ranks are needed")
    with g.lock:
        joined = np.concatenate([p.reshape(-1) for p in gather_all(g, array)])
        _store(output_tensor, joined, "all_gather_into_tensor")
    return _done([output_tensor], async_op)


def gather(tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int | None = None,
           group: ProcessGroup | None = None, async_op: bool = False,
           group_dst: int | None = None) -> Work | None:
    """Everybody's `tensor`, written into `gather_list` on rank `dst` (0)."""
    g = the(group)
    dst = place_of(g, dst, group_dst, "gather", 0)
    array = _array(tensor, "gather")
    with g.lock:
        if g.transport.rank != dst:
            g.transport.exchange({dst: array}, {}, what="gather")
            return _done([], async_op)
        if gather_list is None:
            raise ArgumentError("gather: rank dst needs a gather_list")
        _count("gather", gather_list, g)
        parts = {r: np.empty_like(array) for r in g.ranks if r != dst}
        g.transport.exchange({}, parts, what="gather")
        for t, r in zip(gather_list, g.ranks, strict=True):
            _store(t, parts.get(r, array), "gather")
    return _done(gather_list, async_op)


def scatter(tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int | None = None,
            group: ProcessGroup | None = None, async_op: bool = False,
            group_src: int | None = None) -> Work | None:
    """One tensor of the list of rank `src` (0) for each rank, written into `tensor`."""
    g = the(group)
    src = place_of(g, src, group_src, "scatter", 0)
    with g.lock:
        if g.transport.rank == src:
            if scatter_list is None:
                raise ArgumentError("scatter: rank src needs a scatter_list")
            _count("scatter", scatter_list, g)
            arrays = {r: _array(t, "scatter") for r, t in zip(g.ranks, scatter_list, strict=True)}
            g.transport.exchange({r: a for r, a in arrays.items() if r != src}, {}, what="scatter")
            _store(tensor, arrays[src], "scatter")
        else:
            got = np.empty_like(_array(tensor, "scatter"))
            g.transport.exchange({}, {src: got}, what="scatter")
            _store(tensor, got, "scatter")
    return _done([tensor], async_op)


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: str = ReduceOp.SUM,
                   group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """Combine the i-th tensors of all lists and write the result into `output` on rank i."""
    g = the(group)
    _count("reduce_scatter", input_list, g)
    stacked = np.stack([_array(t, "reduce_scatter") for t in input_list])
    with g.lock:
        _store(output, reduce_all(g, stacked, op, "reduce_scatter")[g.rank()], "reduce_scatter")
    return _done([output], async_op)


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: str = ReduceOp.SUM,
                          group: ProcessGroup | None = None, async_op: bool = False
                          ) -> Work | None:
    """The same with the inputs as parts of one tensor."""
    g = the(group)
    array = _array(input, "reduce_scatter_tensor").reshape(g.size(), -1)
    with g.lock:
        total = reduce_all(g, array, op, "reduce_scatter_tensor")[g.rank()]
        _store(output, total, "reduce_scatter_tensor")
    return _done([output], async_op)


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor],
               group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """Rank i's j-th input becomes rank j's i-th output."""
    g = the(group)
    _count("all_to_all", output_tensor_list, g)
    _count("all_to_all", input_tensor_list, g)
    me = g.rank()
    out = [_array(t, "all_to_all") for t in input_tensor_list]
    into = [np.empty_like(_array(t, "all_to_all")) for t in output_tensor_list]
    into[me] = out[me]
    with g.lock:
        g.transport.exchange({r: out[i] for i, r in enumerate(g.ranks) if i != me},
                             {r: into[i] for i, r in enumerate(g.ranks) if i != me},
                             what="all_to_all")
        for t, value in zip(output_tensor_list, into, strict=True):
            _store(t, value, "all_to_all")
    return _done(output_tensor_list, async_op)


def all_to_all_single(output: Tensor, input: Tensor,
                      output_split_sizes: Sequence[int] | None = None,
                      input_split_sizes: Sequence[int] | None = None,
                      group: ProcessGroup | None = None, async_op: bool = False) -> Work | None:
    """Send part j of `input`, cut along its first axis, to rank j, and lay what the others sent one
    below the other into `output`. Without sizes the parts are equal."""
    g = the(group)
    parts = []
    for name, t, lengths in (("output", output, output_split_sizes),
                             ("input", input, input_split_sizes)):
        if not lengths and t.shape[0] % g.size():
            raise ShapeError(f"all_to_all_single: {name}{list(t.shape)} cannot be cut into "
                             f"{g.size()} equal parts along its first axis; give "
                             f"{name}_split_sizes")
        if lengths and (len(lengths) != g.size() or sum(lengths) != t.shape[0]):
            raise ShapeError(f"all_to_all_single: {name}_split_sizes {list(lengths)} must be "
                             f"{g.size()} numbers with the sum {t.shape[0]}")
        whole = t.detach()
        parts.append(list(whole.split(list(lengths) if lengths else t.shape[0] // g.size() or 1)))
    return all_to_all(parts[0], parts[1], group, async_op)


def barrier(group: ProcessGroup | None = None, async_op: bool = False, device_ids: Any = None
            ) -> Work | None:
    """Return when all ranks have called it."""
    g = the(group)
    with g.lock:
        gather_all(g, np.zeros(1, np.uint8), "barrier")
    return _done([], async_op)


def _peer(g: ProcessGroup, rank: int | None, place: int | None, what: str) -> int:
    """The rank to send to or receive from."""
    peer = place_of(g, rank, place, what)
    if peer == g.transport.rank:
        side = "destination" if what.endswith("send") else "source"
        raise ArgumentError(f"Invalid {side} rank: {side} rank should not be the same as the rank "
                            "of the current process.")
    return peer


def send(tensor: Tensor, dst: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
         group_dst: int | None = None) -> None:
    """Send to one rank, which calls `recv`."""
    g = the(group)
    peer = _peer(g, dst, group_dst, "send")
    g.transport.exchange({peer: _array(tensor, "send")}, {}, tag, "send")


def recv(tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
         group_src: int | None = None) -> int:
    """Fill `tensor` from one rank, which calls `send`; returns that rank."""
    g = the(group)
    peer, got = _peer(g, src, group_src, "recv"), np.empty_like(_array(tensor, "recv"))
    g.transport.exchange({}, {peer: got}, tag, "recv")
    _store(tensor, got, "recv")
    return peer


def isend(tensor: Tensor, dst: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
          group_dst: int | None = None) -> Work:
    """`send`, with a Work."""
    send(tensor, dst, group, tag, group_dst)
    return Work([tensor])


def irecv(tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0,
          group_src: int | None = None) -> Work:
    """`recv`, with a Work."""
    recv(tensor, src, group, tag, group_src)
    return Work([tensor])


# ---------------------------------------------------------------------- on objects
def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """Everybody's object. Objects are pickled: only for groups whose processes trust each other."""
    g = the(group)
    _count("all_gather_object", object_list, g)
    data = np.frombuffer(pickle.dumps(obj), np.uint8)
    with g.lock:
        sizes = [int(s[0]) for s in gather_all(g, np.array([data.size], np.int64))]
        padded = np.zeros(max(sizes), np.uint8)
        padded[:data.size] = data
        parts = gather_all(g, padded, "all_gather_object")
    object_list[:] = [pickle.loads(p[:n].tobytes()) for p, n in zip(parts, sizes, strict=True)]


def broadcast_object_list(object_list: list[Any], src: int | None = None,
                          group: ProcessGroup | None = None, device: Any = None,
                          group_src: int | None = None) -> None:
    """The objects of rank `src` (0), pickled, on all ranks."""
    g = the(group)
    src = place_of(g, src, group_src, "broadcast_object_list", 0)
    place = g.place(src, "broadcast_object_list")
    mine = pickle.dumps(list(object_list)) if g.transport.rank == src else b""
    with g.lock:
        size = int(spread(g, np.array([len(mine)], np.int64), place)[0])
        data = np.frombuffer(mine, np.uint8) if mine else np.empty(size, np.uint8)
        object_list[:] = pickle.loads(spread(g, data, place).tobytes())


def average(tensors: Sequence[Tensor], group: ProcessGroup | None = None) -> None:
    """Replace each tensor by its mean over the ranks; one transfer for all of a dtype."""
    g = the(group)
    by_dtype: dict[Any, list[Tensor]] = {}
    for t in tensors:
        by_dtype.setdefault(t.array.dtype, []).append(t)
    with g.lock:
        for some in by_dtype.values():
            flat = np.concatenate([np.ascontiguousarray(t.array).reshape(-1) for t in some])
            total, at = reduce_all(g, flat, ReduceOp.AVG), 0
            for t in some:
                _store(t, total[at:at + t.array.size], "all_reduce")
                at += t.array.size


__all__ = ["ReduceOp", "Work", "all_gather", "all_gather_into_tensor", "all_gather_object",
           "all_reduce", "all_to_all", "average", "barrier", "broadcast", "broadcast_object_list",
           "gather", "irecv", "isend", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor",
           "scatter", "send"]
