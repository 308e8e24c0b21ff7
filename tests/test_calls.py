"""Ops in machine code (`kernels/calls.py`) do what the templates of `core/callers.py` do."""

from __future__ import annotations

import gc
import sys
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
from helpers_kernels import leaks_nothing

import adjoint as ad
from adjoint.base.aval import Aval
from adjoint.core import callers
from adjoint.core.op import OPS
from adjoint.core.tensor import AccumulateGrad, Kept, OutRef
from adjoint.kernels import alloc, choose, codegen, direct
from adjoint.ops import pointwise as p

pytestmark = pytest.mark.skipif(direct.machine() is None, reason="no generated code here")


def ready(op: Any) -> bool:
    """Build what the op runs on; True if machine code is part of it."""
    own = op.own
    if own is None:
        return False
    with np.errstate(all="ignore"):
        own.run(np.dtype(np.float32), *[np.ones(2, np.float32)] * len(op.operands))
        own.function(*[ad.ones(2)] * len(op.operands))          # makes it
    return own.machine is not None


NAMES = [n for n, op in OPS.items() if op.own is not None]


def described(value: Any) -> Any:
    """A residual or an edge, comparable between two calls."""
    if type(value) is OutRef:
        return ("out", value.index, value.version, value.array.tolist())
    if type(value) is Kept:
        return ("kept", id(value.tensor), value.version)
    if isinstance(value, np.ndarray):
        return ("array", value.tolist())
    return repr(value) if isinstance(value, (Aval, tuple)) else ("same", id(value))


def node_of(t: Any) -> list[Any]:
    """What a node holds, without its number."""
    n = t._edge
    if n is None:
        return []
    slots = [described(getattr(n, s, None)) for s in ("plan", "e0", "e1", "s0", "s1")]
    return [type(n), *slots, n.shape, n.dtype, n.code, n.where().split(":")[0]]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_as_the_template(name: str) -> None:
    """Values, flags and every field of the node, for each pattern of wanted operands."""
    op = OPS[name]
    if not ready(op):
        pytest.skip("computed by functions that are no ufunc loops")
    count = len(op.operands)
    rng = np.random.default_rng(len(name))
    with np.errstate(all="ignore"):
        for dtype in (np.float32, np.float64):
            for shape in ((), (1,), (5,), (2, 3)):
                for needs in range(1 << count):
                    args = [ad.from_numpy(np.asarray(rng.uniform(0.1, 0.9, shape), dtype)).clone()
                            .requires_grad_(bool(needs >> i & 1)) for i in range(count)]
                    pair(op, args)
                    if count == 2:
                        pair(op, [args[0], 0.5])
                        pair(op, [3, args[1]])


def through(own: Any, *args: Any) -> Any:
    """In the place of the op's function: its caller's line is the one to be noted."""
    return own.machine(*args)


def pair(op: Any, args: list[Any]) -> None:
    """One call both ways."""
    own = op.own
    want = own.python(*args)
    for _ in range(2):                       # the second time every number has its array
        got = through(own, *args)
        if got is not None:
            break
        assert any(type(a) is float or type(a) is int for a in args) or own.plans32 is not None
    if got is None:                          # a layout of residuals that the template fills in
        assert any(type(a) in (int, float) for a in args) or want._edge is not None
        return
    assert type(got) is ad.Tensor and type(got.array) is np.ndarray
    assert got.array.dtype == want.array.dtype and got.array.shape == want.array.shape
    assert np.array_equal(got.array, want.array, equal_nan=True)
    assert got._rg is want._rg and (got._cell is None) == (want._cell is None)
    assert node_of(got) == node_of(want)
    if got._edge is not None:
        assert got._edge.seq > want._edge.seq
        if type(got._edge.s0) is OutRef:
            assert got._edge.s0.cell is got._cell and got._edge.s0.array is got.array


def test_most_ops_have_it() -> None:
    """The mechanism covers the family, not a few of it."""
    assert sum(ready(OPS[n]) for n in NAMES) > 55


def test_templates_take_operands_alone() -> None:
    """What they close over is no argument: `x.exp(2)` is refused by Python, in its own words."""
    for own in (OPS["exp"].own, OPS["mul"].own):
        for f in (own.function, own.python):
            with pytest.raises(TypeError, match="positional argument"):
                f(*[ad.ones(2)] * (len(own.op.operands) + 1))


def test_what_the_template_has_to_do() -> None:
    """None, not a guess, for every other kind of operand or state."""
    assert ready(OPS["mul"])
    mul = partial(through, OPS["mul"].own)

    class Mine(ad.Tensor):
        pass
    mine = ad.ones(4)
    mine.__class__ = Mine
    weight = ad.nn.Parameter(ad.full((4,), 3.0))
    product = mul(weight, ad.ones(4, requires_grad=True))
    assert type(product) is ad.Tensor and product._edge.s1.tensor is weight
    product.sum().backward()
    assert weight.grad.tolist() == [1.0] * 4
    x, y = ad.ones(4, requires_grad=True), ad.ones(4)
    assert mul(x, y) is not None
    big = ad.ones(9000)
    other: list[tuple[Any, ...]] = [
        (x, True), (x, 1j), (x, "a"), (x, None), (x, np.ones(4, np.float32)), (2.0, 3.0),
        (x, ad.ones(4, dtype=ad.float64)), (x, ad.ones(4, dtype=ad.int32)), (x, ad.ones(2, 1)),
        (mine, y), (big, big), (ad.ones(4, 4).t(), ad.ones(4, 4).t()),
        (ad.ones(0), ad.ones(0)), (x,), (x, y, y), (), (x, ad.ones(4, dtype=ad.float16)),
        (x, 0.123456789), (x, ad.ones(4, device="meta"))]
    assert [mul(*args) for args in other] == [None] * len(other)
    with ad.inference_mode():
        fresh = mul(x, y)
        assert fresh.is_inference() and not fresh.requires_grad and fresh._edge is None
    packed: list[Any] = []
    with ad.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        assert len(mul(x, y)._edge.saved) == len(packed) == 1      # (the hooks are told)
    with ad.memory.budget("1GB"):                     # it has a say before an op computes
        assert mul(x, y) is None
    shared = ad.ones(4, requires_grad=True)
    alias = shared.detach()                                  # the storage has a version now
    assert mul(shared, shared)._edge.s0.version == 0 == (shared * shared)._edge.s0.version
    with ad.no_grad():
        alias.add_(1.0)
    assert mul(shared, shared)._edge.s0.version == 1 == (shared * shared)._edge.s0.version
    outside = alias.numpy()                                  # writes to it have no version
    assert mul(shared, shared) is None and (shared * shared)._edge.s0.mark is not None
    del outside
    with ad.inference_mode():
        frozen = ad.ones(4)
    assert mul(shared.detach().clone().requires_grad_(), frozen) is None
    with ad.no_grad():
        assert mul(shared, shared)._rg is False


def test_shared_storage_is_kept_with_its_version() -> None:
    """Residuals that others see: `Kept`, as by the template, and checked in backward."""
    for name in ("mul", "div", "sub", "sin", "tanh", "pow", "maximum"):
        op = OPS[name]
        if ready(op):
            views = [ad.rand(6, requires_grad=True).sigmoid()[1:5] for _ in op.operands]
            pair(op, views)
            assert op.own.machine(*views) is not None
    shared = ad.ones(4, requires_grad=True)
    alias = shared.detach()
    alias.add_(1)
    y = through(OPS["mul"].own, shared, ad.ones(4, requires_grad=True))
    y.sum().backward(retain_graph=True)
    alias.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("name", NAMES)
def test_large_operands_run_by_plans(name: str) -> None:
    """Layouts that the op has met, contiguous or not: the template's values, bits and nodes."""
    op = OPS[name]
    if not ready(op) or not codegen.can_lower([op.expression]):
        pytest.skip("computed by functions that are no ufunc loops, or not by generated code")
    own = op.own
    count = len(op.operands)
    rng = np.random.default_rng(len(name))
    hits = wanted = 0
    with np.errstate(all="ignore"):
        for dtype in (np.float32, np.float64):
            whole = [ad.from_numpy(rng.uniform(0.1, 0.9, (130, 260)).astype(dtype)).clone()
                     .requires_grad_(True) for _ in range(count)]
            for cut in (slice(0, 250), slice(7, 260, 2), slice(0, 1)):
                args = [t[:, cut] for t in whole]
                if args[0].array.size < own.limit:
                    continue                             # NumPy's business, as strided views are
                pair(op, args)
                with ad.no_grad():
                    hits += own.machine(*args) is not None
                wanted += 1
                if count == 2:
                    pair(op, [args[0], args[1][:1]])
                    pair(op, [args[0], 0.5])
    assert hits == wanted and (wanted == 4 or own.limit == choose._NOTHING)


def test_values_of_transforms_go_the_other_way() -> None:
    """`grad`, `vmap` and `jvp` see ops as before."""
    x = ad.ones(4)
    assert ad.func.grad(lambda t: (t * t).sum())(x).tolist() == [2.0] * 4
    assert ad.func.vmap(lambda t: t * 2.0)(x).tolist() == [2.0] * 4


def test_the_line_of_the_user() -> None:
    """The nearest frame outside of the package: directly, through functions of the package, in
    code without a file, and with more code objects than the table holds."""
    x = ad.ones(3, requires_grad=True)
    here = sys._getframe().f_lineno
    y = x * x
    assert y.grad_fn.where() == f"{__file__}:{here + 1} in test_the_line_of_the_user"
    z = ad.exp(ad.mul(x, y))
    assert z.grad_fn.where() == f"{__file__}:{here + 3} in test_the_line_of_the_user"
    scope = {"x": x, "ad": ad}
    for i in range(600):
        exec(compile(f"def f{i}():\n\n  return ad.mul(x, x)\ny = f{i}()", f"<made {i}>", "exec"),
             scope)
        assert scope["y"].grad_fn.where() == f"<made {i}>:3 in f{i}"
    y = x * x
    assert y.grad_fn.where().startswith(__file__)


def test_edges_and_leaves() -> None:
    """One accumulator per leaf; edges of computed tensors are their nodes."""
    x, y = ad.ones(3, requires_grad=True), ad.ones(3, requires_grad=True)
    a, b = x * y, y * x
    assert type(a._edge.e0) is AccumulateGrad and a._edge.e0 is b._edge.e1 is x._edge
    c = a + b
    assert c._edge.e0 is a._edge and c._edge.e1 is b._edge
    c.sum().backward()
    assert x.grad.tolist() == [2.0] * 3 == y.grad.tolist()


def test_nothing_leaks() -> None:
    """Tensors, nodes, shared objects and bytes after many calls, with and without a graph."""
    x, s = ad.ones(8, requires_grad=True), ad.tensor(2.0, requires_grad=True)

    def work() -> None:
        for _ in range(500):
            y = x * x + 2.0
            y = ad.tanh(y) * y
            y = p.exp(s) * s
            with ad.no_grad():
                y = x * x
    work()
    shared = [None, True, False, ad.Tensor, OPS["mul"].node_type, 0, 1, x, x._edge,
              work.__code__, OPS["mul"].own.plans32[3]]
    leaks_nothing(work, shared, 60)


@pytest.mark.skipif(not alloc.available(), reason="needs the allocator's limit")
def test_memory_refused() -> None:
    """MemoryError, and nothing is left behind."""
    x = ad.ones(8192, dtype=ad.float64, requires_grad=True)
    x * x
    alloc.install()
    gc.collect()
    live = alloc.live_and_peak()[0]
    previous = alloc.set_limit(live + 16)
    try:
        for _ in range(5):
            with pytest.raises(MemoryError):
                x * x
    finally:
        alloc.set_limit(previous)
    gc.collect()
    assert alloc.live_and_peak()[0] == live
    assert (x * x).sum().item() == 8192.0


def test_garbage_collection_sees_the_graph() -> None:
    """A cycle through a node is found, and tensors may be referred to weakly."""
    import weakref
    x = ad.ones(3, requires_grad=True)
    y = x * x
    y.keep = y._edge.metadata.setdefault("y", y)
    ref, node = weakref.ref(y), weakref.ref(y._edge)
    del y
    assert gc.collect() > 0
    assert ref() is None and node() is None


def test_threads_and_the_table_of_code() -> None:
    """Nodes of many threads carry their own lines."""
    wrong: list[str] = []

    def work(k: int) -> None:
        scope: dict[str, Any] = {"ad": ad, "x": ad.ones(4, requires_grad=True)}
        for i in range(150):
            exec(compile("\n" * (i % 7) + "y = x * x", f"<t{k}.{i}>", "exec"), scope)
            if scope["y"].grad_fn.where() != f"<t{k}.{i}>:{i % 7 + 1} in <module>":
                wrong.append(scope["y"].grad_fn.where())
    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_zero_and_minus_zero_are_two_numbers() -> None:
    x = ad.tensor([-0.0, 1.0])
    for _ in range(3):
        assert np.signbit((x + 0.0).array).tolist() == [False, False]
        assert np.signbit((x + -0.0).array).tolist() == [True, False]
        assert np.signbit((x * -0.0).array).tolist() == [False, True]
        assert np.signbit((x * 0).array).tolist() == [True, False]
    assert callers.SCALARS32["zero"].tobytes() == b"\0" * 4
    assert np.signbit(callers.SCALARS64[-0.0]) and not np.signbit(callers.SCALARS64[0.0])


WHOLE = [n for n, op in OPS.items() if op.own is not None and op.source[2] != "float"
         and n in ("add", "sub", "mul", "neg", "maximum", "minimum", "lt", "le", "gt", "ge", "eq",
                   "ne", "remainder", "floor_divide")]


def test_all_that_is_the_same_for_whole_numbers_has_it() -> None:
    assert len(WHOLE) == 14
    assert all(choose.whole(OPS[n]) for n in WHOLE)
    assert not choose.whole(OPS["exp"]) and not choose.whole(OPS["pow"])


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers(name: str) -> None:
    """int64 beside int64 or beside Python's ints: the bits of NumPy's loops, which go round."""
    own = OPS[name].own
    assert ready(own.op)
    rng, ends = np.random.default_rng(3), [2**63 - 1, -2**63, 7, -7, 1]
    for shape in ((), (5,), (2, 5)):
        a = ad.tensor(rng.choice(ends, shape)) if shape else ad.tensor(-7)
        row = ad.tensor(np.array([3, -3, 2**62, 1, -2]))
        for other in [()] if len(own.op.operands) == 1 else [(row,), (3,), (-2**63,), (1,)]:
            for args in ((a, *other), (*other, a)):
                with np.errstate(all="ignore"):
                    want, got = own.python(*args), own.machine(*args)
                assert got.dtype == want.dtype and got.tolist() == want.tolist()
                assert got._edge is None and not got.requires_grad and got._cell is None


def test_floats_beside_whole_numbers_are_floats() -> None:
    """2.0 and 2 are one key of a dict, and are two numbers."""
    i = ad.arange(4)
    assert ready(OPS["mul"]) and (i * 2).tolist() == [0, 2, 4, 6]
    assert OPS["mul"].own.machine(i, 2).tolist() == [0, 2, 4, 6]
    assert OPS["mul"].own.machine(i, 2.0) is None is OPS["mul"].own.machine(i, True)
    assert (i * 2.0).dtype == ad.float32 and (i * 2**63).dtype == ad.int64
    assert OPS["mul"].own.machine(i, ad.arange(4, dtype=ad.int32)) is None
    i += 1
    assert i.tolist() == [1, 2, 3, 4] and i._version == 1
