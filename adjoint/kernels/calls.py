"""Ops on small tensors in machine code, from the operands to the node of the graph.

`caller(record)` returns a builtin for one op: given exact plain tensors (or a tensor and a number)
it computes with the op's `direct` program, makes the tensor and its node, and returns None where
the operands are not of that kind: the op's Python function then does the same steps, which are
described there (`core/callers.py`). What the objects look like comes from the caller: this
module knows no tensors.
"""
from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from adjoint.kernels import (
    bind_ir,
    builtin,
    calls_ir,
    direct,
    launch,
    llvm,
    plans_ir,
    writes_ir,
)

Slots = Mapping[str, tuple[Any, str]]       # name in the generated code -> (an instance, slot)
World = Callable[[], tuple[Mapping[str, Any], Slots]]       # the objects that code shares, slots


class Record(NamedTuple):
    """What differs between ops. `dtypes` has for float32 and float64: the dtype, a function that
    `direct` made, the one for large arrays, the dict of number -> 0-d array, and for each pattern
    of wanted operands the plan, None where nothing is recorded, with its layout; `whole` is such a
    function for int64, or None, and the dict for it."""

    node_type: type
    dtypes: Sequence[tuple[np.dtype[Any], Any, Any, dict[Any, Any], Sequence[tuple[Any, int]]]]
    whole: Any
    numbers: dict[Any, Any]


def _slot_offset(thing: Any, name: str) -> int | None:
    """Where a slot lies in an instance; None where that is not certain."""
    owner = next((c for c in type(thing).__mro__ if name in vars(c)), object)
    descriptor = vars(owner).get(name)
    if type(descriptor).__name__ != "member_descriptor":
        return None
    member = builtin.words_of(descriptor, 6)[5]           # the PyMemberDef, after five fields
    offset = ctypes.c_ssize_t.from_address(member + 16).value
    mark = object()
    setattr(thing, name, mark)
    if not 0 < offset < type(thing).__basicsize__ or ctypes.c_uint64.from_address(
            id(thing) + offset).value != id(mark):
        return None
    return offset


_held: list[Any] = []            # shared objects, for as long as the process lives


@llvm.generating
def link(name: str, text: Callable[[Mapping[str, int]], str], env: Sequence[str],
         objects: Mapping[str, Any], slots: Slots, **links: int) -> llvm.Module | None:
    """The module that `text` generates, ready to run; None where it cannot be had, or where an
    object does not look as expected. `objects` are those that the code shares, by the names in
    `env`; the instances in `slots` show where their slots lie, and are of no use afterwards;
    `links` are the addresses of functions of other modules that the code calls."""
    here, known = direct.machine(), builtin.offsets()
    if here is None or known is None:
        return None
    offsets = dict(known)
    for field, (thing, slot) in slots.items():
        offset = _slot_offset(thing, slot)
        if offset is None:
            return None
        offsets[field] = offset
        if "." in field:                         # "entry.key": a slot of another kind of thing
            offsets["head." + field.split(".")[0]] = builtin.head_of(thing)
    node = slots["plan"][0]
    offsets |= {"size": type(node).__basicsize__, "head": builtin.head_of(node)}
    module = llvm.compile_spec((name, repr(sorted(offsets.items()))), lambda: text(offsets),
                               name=name, links=links)
    address = ctypes.CFUNCTYPE(ctypes.c_void_p)(module.address("env_address"))()
    large = launch.machine()
    addresses = {"compute": here.attempt, "new": here.new,
                 "planned": 0 if large is None else large.attempt}
    words = (ctypes.c_uint64 * len(env)).from_address(int(address or 0))
    shared = {"array_type": np.ndarray, "off": 0, "on": 1, "true": True, "false": False,
              "float": float, "int": int, "none": None, "tuple": tuple, "no_attributes": {},
              **{name: sys.intern(name) for name in ("touched", "exposed", "version", "zero")},
              **objects}
    for i, key in enumerate(env):
        words[i] = addresses[key] if key in addresses else id(shared[key])
    _held.append(shared)
    return module


@functools.cache
def _ops(world: World, arity: int) -> llvm.Module | None:
    """The module of ops of so many operands."""
    objects, slots = world()
    return link(f"op{arity}", functools.partial(calls_ir.text, arity), calls_ir.ENV, objects, slots)


@functools.cache
def _nodes(world: World) -> llvm.Module | None:
    """The module of what makes, follows and frees nodes."""
    objects, slots = world()
    module = link("nodes", calls_ir.nodes_text, calls_ir.ENV, objects, slots)
    if module is not None:
        node = slots["e0"][0]
        builtin.follow(objects["node"], module.address("follow"), node,
                       [getattr(node, n) for n in calls_ir.LINKS])
    return module


def caller(world: World, record: Record) -> Callable[..., Any] | None:
    """The builtin of one op; None where an operand's program or the generated code is missing."""
    if any(direct.program_of(f) is None for _, f, _, _, _ in record.dtypes):
        return None
    arity = 1 if len(record.dtypes[0][4]) == 2 else 2
    module, nodes = _ops(world, arity), _nodes(world)
    if module is None or nodes is None:
        return None
    words = [id(record.node_type), builtin.allocator(
        record.node_type, nodes.address("node_alloc"), nodes.address("node_free"))]
    for dtype, f, large, numbers, plans in record.dtypes:
        table = launch.table_of(large)
        words += [id(dtype), id(f.__self__), 0 if table is None else id(table), id(numbers)]
        for plan, layout in plans:
            words += [0 if plan is None else id(plan), layout]
        words += [0, 0] * (4 - len(plans))
    if record.whole is not None:
        words += [id(direct.WORD), id(record.whole.__self__), 0, id(record.numbers)]
    words += [0] * (calls_ir.DTYPES + calls_ir.DTYPE_WORDS * 3 - len(words))
    own = (struct.pack(f"{len(words)}Q", *words), record, vars(record.node_type)["op"])
    return builtin.make("op", module.address(f"op{arity}"), own)


@functools.cache
def _writes(world: World) -> llvm.Module | None:
    """The module of in-place ops."""
    objects, slots = world()
    names = {"_base": "_base", "what": "what", "code_name": "code", "lasti_name": "lasti"}
    return link("writes", writes_ir.text, writes_ir.ENV, {
        **{key: sys.intern(name) for key, name in names.items()}, **objects}, slots)


def writer(world: World, op: Callable[..., Any]) -> Callable[..., Any] | None:
    """The builtin of an op's in-place form, `write(target, other, what)`, beside the one that
    `caller` made; None where nothing can be generated."""
    module, own = _writes(world), getattr(op, "__self__", None)
    if module is None or type(own) is not tuple:
        return None
    arity = 1 if len(own[1].dtypes[0][4]) == 2 else 2
    return builtin.make("write", module.address(f"write{arity}"), own)


def toucher(world: World) -> Callable[..., Any] | None:
    """`touch(target, what)`, which counts a write; None where nothing can be generated."""
    module = _writes(world)
    return None if module is None else builtin.make("touch", module.address("touch"), ())


@functools.cache
def _general(world: World) -> llvm.Module | None:
    """The module of what handles any op."""
    words = "run prepare facts in out aval avals ports _base _kids _steps _creation no_grad multi"
    names = {n: sys.intern(n) for n in words.split()}
    objects, slots = world()
    return link("bind", bind_ir.text, bind_ir.ENV, {
        **names, "shape_name": "shape", "none_type": type(None), "bool": bool,
        "asarray": np.asarray, "exception": Exception, "memory_error": MemoryError,
        "minus_one": -1, **objects}, slots)


@functools.cache
def _plans(world: World) -> llvm.Module | None:
    """The module of what replays public functions."""
    general = _general(world)
    if general is None:
        return None
    names = {n: sys.intern(n) for n in ("start", "stop", "step", "call")}
    objects, slots = world()
    return link("planned", plans_ir.text, plans_ir.ENV, {
        **names, "none_type": type(None), "bool": bool, "list": list, "str": str, "slice": slice,
        "ellipsis_type": type(Ellipsis), **objects}, slots, bind=general.address("bind"))


def binder(world: World) -> Callable[..., Any] | None:
    """`bind(op, operands, attributes)`, a tensor or None; None where nothing can be generated."""
    module = _general(world)
    return None if module is None else builtin.make("bind", module.address("bind"), ())


def replayer(world: World, plans: dict[Any, Any]) -> Callable[..., Any] | None:
    """`planned(positional, keywords)` over the plans of one function (`plans_ir`); None where
    nothing can be generated."""
    module = _plans(world)
    return None if module is None else builtin.make("planned", module.address("planned"), plans)
