"""Objects between ranks, pickled, and several sends and receipts at once.

Objects are for groups whose processes trust each other: unpickling runs what a pickle says.
"""
from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.distributed.collectives import (
    Work,
    _array,
    _count,
    _peer,
    _store,
    gather_all,
    irecv,
    isend,
)
from adjoint.distributed.group import ProcessGroup, place_of, the


def _give(g: ProcessGroup, objects: Mapping[int, Any], what: str) -> None:
    """Send an object to each of some ranks: its size, then its pickle."""
    data = {r: np.frombuffer(pickle.dumps(o), np.uint8) for r, o in objects.items()}
    g.transport.exchange({r: np.array([d.size], np.int64) for r, d in data.items()}, {}, what=what)
    g.transport.exchange(data, {}, what=what)


def _take(g: ProcessGroup, ranks: Iterable[int], what: str) -> dict[int, Any]:
    """The objects that `_give` sends."""
    sizes = {r: np.zeros(1, np.int64) for r in ranks}
    g.transport.exchange({}, sizes, what=what)
    data = {r: np.empty(int(s[0]), np.uint8) for r, s in sizes.items()}
    g.transport.exchange({}, data, what=what)
    return {r: pickle.loads(d.tobytes()) for r, d in data.items()}


def gather_object(obj: Any, object_gather_list: list[Any] | None = None,
                  dst: int | None = None, group: ProcessGroup | None = None,
                  group_dst: int | None = None) -> None:
    """Everybody's object, pickled, in the list of rank `dst` (0)."""
    g = the(group)
    dst = place_of(g, dst, group_dst, "gather_object", 0)
    if (g.transport.rank == dst) != (object_gather_list is not None):
        raise ArgumentError(
            "Argument ``gather_list`` must be specified on destination rank." if
            object_gather_list is None else
            "Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    with g.lock:
        if object_gather_list is None:
            _give(g, {dst: obj}, "gather_object")
            return
        _count("gather_object", object_gather_list, g)
        others = _take(g, [r for r in g.ranks if r != dst], "gather_object")
        own = pickle.loads(pickle.dumps(obj))
        object_gather_list[:] = [others[r] if r != dst else own for r in g.ranks]


def scatter_object_list(scatter_object_output_list: list[Any],
                        scatter_object_input_list: Sequence[Any] | None = None,
                        src: int | None = None, group: ProcessGroup | None = None,
                        group_src: int | None = None) -> None:
    """One object of the list of rank `src` (0) for each rank, pickled: the first of its output
    list."""
    g = the(group)
    src = place_of(g, src, group_src, "scatter_object_list", 0)
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ArgumentError("Expected argument scatter_object_output_list to be a list of size at "
                            "least 1.")
    with g.lock:
        if g.transport.rank != src:
            scatter_object_output_list[0] = _take(g, [src], "scatter_object_list")[src]
            return
        if scatter_object_input_list is None:
            raise ArgumentError("scatter_object_list: rank src needs a scatter_object_input_list")
        _count("scatter_object_list", scatter_object_input_list, g)
        parts = dict(zip(g.ranks, scatter_object_input_list, strict=True))
        own = pickle.loads(pickle.dumps(parts.pop(src)))
        _give(g, parts, "scatter_object_list")
        scatter_object_output_list[0] = own


def send_object_list(object_list: Sequence[Any], dst: int | None = None,
                     group: ProcessGroup | None = None, device: Any = None,
                     group_dst: int | None = None, use_batch: bool = False) -> None:
    """Send objects, pickled, to one rank, which calls `recv_object_list`."""
    g = the(group)
    peer = _peer(g, dst, group_dst, "send")
    _give(g, {peer: list(object_list)}, "send_object_list")


def recv_object_list(object_list: list[Any], src: int | None = None,
                     group: ProcessGroup | None = None, device: Any = None,
                     group_src: int | None = None, use_batch: bool = False) -> int:
    """Fill the list with as many objects of rank `src`, which calls `send_object_list`; returns
    that rank."""
    g = the(group)
    peer = _peer(g, src, group_src, "recv")
    got = _take(g, [peer], "recv_object_list")[peer]
    if len(got) != len(object_list):
        raise ArgumentError(f"recv_object_list: rank {peer} sent {len(got)} objects, the list has "
                            f"{len(object_list)}")
    object_list[:] = got
    return peer


class P2POp:
    """One `isend` or `irecv` for `batch_isend_irecv`."""

    def __init__(self, op: Callable[..., Any], tensor: Tensor, peer: int,
                 group: ProcessGroup | None = None, tag: int = 0) -> None:
        if op not in (isend, irecv):
            raise ArgumentError("Invalid ``op``. Expected ``op`` to be of type "
                                "``torch.distributed.isend`` or ``torch.distributed.irecv``.")
        self.op, self.tensor, self.peer, self.group, self.tag = op, tensor, peer, group, tag


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """All sends and receipts at once, so that ranks which send to each other do not wait for each
    other whatever the order of the list. Between two ranks, those with one tag meet in order."""
    if not p2p_op_list or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ArgumentError("Invalid ``p2p_op_list``. Each op is expected to to be of type "
                            "``torch.distributed.P2POp``.")
    g = the(p2p_op_list[0].group)
    rounds: dict[tuple[int, int], dict[tuple[bool, int], P2POp]] = {}
    counts: dict[tuple[int, bool, int], int] = {}
    for op in p2p_op_list:
        g.place(op.peer, "batch_isend_irecv")
        where = (op.tag, op.op is isend, op.peer)
        counts[where] = counts.get(where, -1) + 1
        rounds.setdefault((op.tag, counts[where]), {})[where[1:]] = op
    with g.lock:
        for (tag, _), ops in sorted(rounds.items(), key=lambda item: item[0]):
            sends = {p: _array(op.tensor, "isend") for (out, p), op in ops.items() if out}
            into = {p: np.empty_like(_array(op.tensor, "irecv"))
                    for (out, p), op in ops.items() if not out}
            g.transport.exchange(sends, into, tag, "batch_isend_irecv")
            for p, got in into.items():
                _store(ops[False, p].tensor, got, "irecv")
    return [Work([op.tensor]) for op in p2p_op_list]


@contextmanager
def _within(g: ProcessGroup, timeout: timedelta | None) -> Iterator[None]:
    """Another limit of waiting, where the transport has one."""
    before = getattr(g.transport, "timeout", None)
    if timeout is None or before is None:
        yield
        return
    vars(g.transport)["timeout"] = timeout.total_seconds()
    try:
        yield
    finally:
        vars(g.transport)["timeout"] = before


def monitored_barrier(group: ProcessGroup | None = None, timeout: timedelta | None = None,
                      wait_all_ranks: bool = False) -> None:
    """`barrier`, which waits for `timeout` at most: the error names the ranks that did not come."""
    g = the(group)
    if timeout is not None and not isinstance(timeout, timedelta):
        raise TypeError("Expected timeout argument to be of type datetime.timedelta, got "
                        f"{timeout}")
    with g.lock, _within(g, timeout):
        gather_all(g, np.zeros(1, np.uint8), "monitored_barrier")


__all__ = ["P2POp", "batch_isend_irecv", "gather_object", "monitored_barrier", "recv_object_list",
           "scatter_object_list", "send_object_list"]
