"""Calls of public functions replayed by machine code (`core/plans.py`) do what the functions do."""

from __future__ import annotations

import functools
import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_kernels import leaks_nothing

import adjoint as ad
from adjoint.base import tier
from adjoint.kernels import direct, plans_ir
from adjoint.nn import functional as F
from adjoint.ops import public
from adjoint.ops.public import Plans

pytestmark = pytest.mark.skipif(direct.machine() is None, reason="no generated code here")
tier.at_once()
assert (ad.ones(2, 2) @ ad.ones(2, 2)).shape == (2, 2)      # loads it
RNG = np.random.default_rng(0)


def leaf(*shape: int, dtype: Any = np.float32) -> Any:
    return ad.tensor(RNG.standard_normal(shape).astype(dtype), requires_grad=True)


X, Y, V, W, B = leaf(4, 6), leaf(4, 6), leaf(6), leaf(5, 6), leaf(5)
CUBE, IMAGE, TAPS, TABLE = leaf(2, 3, 4), leaf(2, 2, 5, 5), leaf(3, 2, 3, 3), leaf(6, 2)
IDS, LABELS, MASK = ad.tensor([1, -1, 0]), ad.tensor([1, 0, 5, 2]), X.detach() > 0
PLACES = ad.tensor([[0, 5], [1, 4], [2, 3], [3, 3]])
CALLS: dict[str, Callable[[], Any]] = {
    "reshape": lambda: X.reshape(-1, 8), "reshape of a tuple": lambda: X.reshape((8, -1)),
    "reshape of a Size": lambda: X.reshape(ad.Size([24])),
    "reshape by name": lambda: ad.reshape(X, shape=(6, 4)), "view": lambda: X.view(2, 12),
    "flatten": lambda: CUBE.flatten(1), "transpose": lambda: CUBE.transpose(-1, 0),
    "permute": lambda: CUBE.permute(2, 0, 1), "T": lambda: X.T, "mT": lambda: CUBE.mT,
    "unsqueeze": lambda: X.unsqueeze(-1), "squeeze": lambda: X[:1].squeeze(0),
    "expand": lambda: V.expand(3, -1), "expand ones": lambda: X[:, :1].expand(4, 3),
    "index": lambda: X[2], "slice": lambda: X[:, 1:5:2], "ellipsis": lambda: CUBE[..., 0],
    "None": lambda: X[:, None], "mixed": lambda: CUBE[1, :, 1:], "negative": lambda: X[-1],
    "ids": lambda: X[IDS], "columns": lambda: X[:, IDS], "split": lambda: X.split(4, 1),
    "chunk": lambda: X.chunk(3, 1), "unbind": lambda: X.unbind(1),
    "narrow": lambda: X.narrow(0, 1, 2), "cat": lambda: ad.cat([X, Y], -1),
    "cat twice": lambda: ad.cat([X, X]), "stack": lambda: ad.stack((X, Y), 1),
    "sum": lambda: X.sum(), "sum of an axis": lambda: X.sum(1), "axes": lambda: CUBE.sum((0, 2)),
    "axis": lambda: X.sum(axis=0, keepdims=True), "mean": lambda: X.mean(-1, True),
    "var": lambda: X.var(0), "max": lambda: X.max(), "max of an axis": lambda: X.max(1),
    "argmax": lambda: X.argmax(1), "cumsum": lambda: X.cumsum(0),
    "logsumexp": lambda: X.logsumexp(1), "softmax": lambda: X.softmax(0),
    "log_softmax": lambda: F.log_softmax(X, dim=-1), "norm": lambda: ad.linalg.norm(X),
    "vector_norm": lambda: ad.linalg.vector_norm(X, dim=1),
    "vector_norm by name": lambda: ad.linalg.vector_norm(x=X, ord=1, dim=0, keepdim=True),
    "matrix_norm": lambda: ad.linalg.matrix_norm(CUBE, 1),
    "vecdot": lambda: ad.linalg.vecdot(X, Y, dim=0),
    "matmul": lambda: X @ Y.T, "mm": lambda: ad.mm(X, Y.detach().T), "mv": lambda: ad.mv(X, V),
    "bmm": lambda: ad.bmm(CUBE, CUBE.mT), "dot": lambda: ad.dot(V, V),
    "addmm": lambda: ad.addmm(V, X, ad.ones(6, 6), beta=2, alpha=0.5),
    "einsum": lambda: ad.einsum("ij,kj->ik", X, Y), "linear": lambda: F.linear(X, W, B),
    "linear alone": lambda: F.linear(X, W), "layer_norm": lambda: F.layer_norm(X, (6,), V, V),
    "cross_entropy": lambda: F.cross_entropy(X, LABELS, label_smoothing=0.1),
    "mse": lambda: F.mse_loss(X, Y, reduction="sum"), "conv": lambda: F.conv2d(IMAGE, TAPS),
    "max_pool": lambda: F.max_pool2d(IMAGE, 2), "gather": lambda: X.gather(1, PLACES),
    "index_select": lambda: X.index_select(1, ad.tensor([0, 0, 3])),
    "embedding": lambda: F.embedding(LABELS, TABLE),
    "where": lambda: ad.where(MASK, X, 0.5), "masked_fill": lambda: X.masked_fill(MASK, -1.0),
    "clamp": lambda: X.clamp(-0.5, 0.5), "clamp min": lambda: X.clamp(min=0.0),
    "nothing to do": lambda: V.flatten(), "double": lambda: X.double().sum(0),
    "attention": lambda: F.scaled_dot_product_attention(CUBE, CUBE, CUBE, is_causal=True)}


def parts(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def told(result: Any) -> list[Any]:
    """Everything of a result that a program can see, and the gradients it leads to."""
    out: list[Any] = [type(result), getattr(type(result), "_fields", None)]
    wanted = [t for t in parts(result) if t.requires_grad]
    for t in parts(result):
        out += [t.shape, t.dtype, t.stride(), t.detach().numpy().tobytes(), t.requires_grad,
                t.is_leaf, type(t.grad_fn).__name__, t._base is None, len(t._steps), t._creation,
                t.output_nr]
    if wanted:
        found = ad.autograd.grad([(t * 1.5).sum() for t in wanted],
                                 [X, Y, V, W, B, CUBE, IMAGE, TAPS, TABLE], allow_unused=True)
        out += [None if g is None else g.numpy().tobytes() for g in found]
    return out


def replays(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The answers that come from plans from now on."""
    made: list[Any] = []
    first = Plans._first

    def machine(self: Plans, args: Any, kwargs: Any) -> Any:
        first(self, args, kwargs)
        code = self.machine

        def seen(args: Any, kwargs: Any) -> Any:
            answer = code(args, kwargs)
            if answer is not None and type(answer) is not bytes:
                made.append(answer)
            return answer
        self.machine = seen
        return seen(args, kwargs)
    monkeypatch.setattr(Plans, "_first", machine)
    return made


@functools.cache
def planned_functions() -> list[Plans]:
    gc.unfreeze()                      # (they are older than this test)
    found = [p for p in gc.get_objects() if type(p) is Plans]
    gc.freeze()
    return found


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    """No function has a plan; the list of what plans answer."""
    made = replays(monkeypatch)
    every = planned_functions()
    for own in every:
        own.table.clear()
        own.machine = own._first
    yield made
    for own in every:
        own.table.clear()
        own.machine = (public.replayer or (lambda table: None))(own.table)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wants", [True, False])
def test_replayed_calls_are_the_same(name: str, wants: bool, fresh: list[Any]) -> None:
    """Values, types, views, nodes and gradients, the first three times and after."""
    call = CALLS[name]
    results = []
    for _ in range(5):
        with ad.set_grad_enabled(wants):
            results.append(call())
    first, *others = [told(r) for r in results]
    assert others == [first] * 4
    assert fresh, "the call is not replayed"


def test_public_names_lead_to_the_plans() -> None:
    """Not to functions that were entered under them before they were planned."""
    every = {id(own.function) for own in planned_functions()}
    for name in ("vector_norm", "norm", "matrix_norm", "vecdot"):
        assert id(getattr(ad.linalg, name).plans.function) in every


def test_arguments_that_are_equal_but_not_the_same(fresh: list[Any]) -> None:
    """1, 1.0 and True; 0.0 and -0.0; one operand twice and two operands."""
    x = ad.tensor([[1.0, -2.0], [3.0, 4.0]])
    y = ad.tensor([[0.0, 1.0], [1.0, 0.0]])
    for _ in range(4):
        assert x.sum(1).tolist() == [-1.0, 7.0]
        with pytest.raises((TypeError, RuntimeError)):
            x.sum(1.0)
        assert np.signbit(ad.where(x > 9, x, -0.0).numpy()).all()
        assert not np.signbit(ad.where(x > 9, x, 0.0).numpy()).any()
        assert ad.mm(x, x).tolist() == [[-5.0, -10.0], [15.0, 10.0]]
        assert ad.mm(x, y).tolist() == [[-2.0, 1.0], [4.0, 3.0]]
        assert ad.mm(y, x).tolist() == [[3.0, 4.0], [1.0, -2.0]]
        assert x.reshape(4).shape == (4,) and x.t().reshape(4).tolist() == [1.0, 3.0, -2.0, 4.0]
    assert fresh


def test_layouts_decide_about_views(fresh: list[Any]) -> None:
    x = ad.arange(6.0).reshape(2, 3)
    for _ in range(4):
        assert x.view(6).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            x.t().contiguous().t().view(6)


def test_operands_that_are_not_plain_go_to_the_function(fresh: list[Any]) -> None:
    """Values of transforms, storage-less and sparse tensors, subclasses, autocast, watchers."""
    x = ad.ones(2, 3)
    for _ in range(4):
        assert x.sum(0).shape == (3,)
    count = len(fresh)
    assert count
    assert ad.func.vmap(lambda v: v.sum(0))(x).tolist() == [3.0, 3.0]
    assert ad.func.grad(lambda v: v.sum())(x).tolist() == [[1.0] * 3] * 2
    assert ad.ones(2, 3, device="meta").sum(0).shape == (3,)
    with ad.autocast("cpu", dtype=ad.bfloat16):
        assert (x @ x.t()).dtype is ad.bfloat16
    y = ad.ones(2, 3, requires_grad=True)
    with ad.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert y.softmax(0).requires_grad
    assert len(fresh) == count


def test_what_cannot_be_repeated_is_not(fresh: list[Any]) -> None:
    """`out=`, warnings, random numbers, sizes that are tensors, defaults that change."""
    x, out = ad.ones(2, 3), ad.zeros(3)
    q = ad.rand(1, 2, 8, 4)
    dropped = []
    for i in range(4):
        assert ad.sum(x * (i + 1), 0, out=out) is out and out.tolist() == [2.0 * (i + 1)] * 3
        with pytest.warns(UserWarning, match="target size"):
            F.mse_loss(x, ad.ones(3))
        dropped.append(F.scaled_dot_product_attention(q, q, q, dropout_p=0.5).tolist())
        assert x.narrow(1, ad.tensor(i % 3), 1).shape == (2, 1)
        assert x[ad.tensor(i % 2)].shape == (3,)
        rows = ad.tensor([[0.5, 3.0], [4.0, 0.0]])
        F.embedding(ad.tensor([1]), rows, max_norm=1.0)
        assert rows[1].tolist() == [1.0, 0.0] or abs(rows[1, 0].item() - 1) < 1e-5
    assert all(a != b for i, a in enumerate(dropped) for b in dropped[:i])
    before = ad.get_default_dtype()
    whole = ad.tensor([[1, 2], [3, 4]])
    try:
        for dtype in (ad.float32, ad.float64) * 2:
            ad.set_default_dtype(dtype)
            assert whole.exp().dtype is dtype and whole.clamp(0.5, 2.5).dtype is dtype
    finally:
        ad.set_default_dtype(before)


def test_errors_are_those_of_the_function(fresh: list[Any]) -> None:
    x, table = ad.ones(2, 3), ad.ones(4, 2)
    for i in range(4):
        with pytest.raises(IndexError, match="Dimension out of range"):
            x.sum(2)
        with pytest.raises(RuntimeError, match="invalid for input of size 6"):
            x.reshape(4)
        assert F.embedding(ad.tensor([i]), table).shape == (1, 2)
    with pytest.raises(IndexError):
        F.embedding(ad.tensor([4]), table)
    for _ in range(4):
        assert x[ad.tensor([1, -2])].shape == (2, 3)
    with pytest.raises(IndexError, match="index 2 is out of bounds for dimension 0 with size 2"):
        x[ad.tensor([2, 0])]
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises((TypeError, ValueError, RecursionError)):
        ad.cat(loop)
    with pytest.raises(IndexError, match="1208925819614629174706176"):
        x.sum(1 << 80)


def test_plans_are_few(fresh: list[Any]) -> None:
    """A loop over many indices neither learns each nor keeps them all."""
    x = ad.arange(5000.0)
    for i in range(3000):
        assert x[i].item() == float(i)
    table = next(p.table for p in planned_functions() if p.function.__name__ == "getitem")
    assert len(table) <= plans_ir.PLANS and not fresh


def test_values_are_dropped_where_the_function_drops_them() -> None:
    """Results in between live as long as in the function, not until the end."""
    alive: list[int] = []
    seen: list[weakref.ref[Any]] = []

    @public.planned
    def thrice(x: Any) -> Any:
        y = ad.exp(x)
        y = watched(y)
        y = watched(y)
        return watched(y)

    from adjoint.core.op import OPS, op

    def impl(x: Any, /) -> Any:
        alive.append(sum(r() is not None for r in seen))
        out = x + 1
        seen.append(weakref.ref(out))
        return out
    watched = op("a_watched_step", impl=impl, infer=lambda x: x, vjp={"x": lambda ct: ct})
    del OPS["a_watched_step"]            # the registry is the package's: other tests look at it
    counts = []
    for _ in range(5):
        alive.clear()
        seen.clear()
        thrice(ad.ones(3))
        counts.append(list(alive))
    assert counts == [[0, 1, 1]] * 5


def test_modes_are_asked_first(fresh: list[Any]) -> None:
    x = ad.ones(2, 3)
    for _ in range(4):
        x.sum(0)
    from adjoint.overrides import TorchFunctionMode

    class Count(TorchFunctionMode):
        names: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None
                               ) -> Any:
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))
    with Count() as mode:
        x.sum(0)
    assert mode.names == ["sum"]


def test_nothing_leaks() -> None:
    x, w = ad.ones(3, 4, requires_grad=True), ad.ones(4, 4, requires_grad=True)

    def work() -> None:
        for _ in range(200):
            y = ad.einsum("ij,jk->ik", x, w)[:, 1:].reshape(-1, 9)
            parts = ad.cat([y, y.view(9)[None]], 0).split(1, 0)
            values, _ = parts[0].max(1)
            loss = F.layer_norm(parts[1], (9,)).sum() + values.sum()
            loss.backward()
            x.grad = w.grad = None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    x.sum(5)
                except IndexError:
                    pass
    work()
    leaks_nothing(work, [x, w, X, None, ad.Tensor], 60)
