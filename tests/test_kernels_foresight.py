"""An addition that computes the function that comes next: one pass less, the same bits, and never
a value of what was written to since."""
from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.core import callers, foresight
from adjoint.core.op import OPS
from adjoint.kernels import alloc, llvm, loops

F = ad.nn.functional
pytestmark = pytest.mark.skipif(not llvm.available(), reason="needs llvmlite")
SHAPE = (512, 600)
Step = Callable[[Any, Any], Any]


def raw(seed: int, shape: tuple[int, ...] = SHAPE, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def leaf(seed: int, shape: tuple[int, ...] = SHAPE, dtype: Any = np.float32) -> Any:
    return ad.tensor(raw(seed, shape, dtype), requires_grad=True)


@pytest.fixture(autouse=True)
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the large pointwise kernels that have run."""
    found: list[str] = []
    real = loops.Pointwise.__call__

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        found.append(self.name)
        return real(self, *args, **options)
    monkeypatch.setattr(loops.Pointwise, "__call__", counted)
    monkeypatch.setattr(foresight, "_lines", {})
    foresight.drop()
    yield found
    foresight.drop()


def learned(step: Step, x: Any, b: Any) -> Any:
    """What the third call gives, the first that may look ahead."""
    step(x, b)
    step(x, b)
    return step(x, b)


def ahead() -> Any:
    """What has been put aside."""
    return foresight._here.last.ahead


def test_a_sum_and_its_activation_are_one_pass(passes: list[str]) -> None:
    x, b, ct = leaf(1), leaf(2, SHAPE[-1:]), ad.tensor(raw(3))

    def step() -> Any:
        x.grad = b.grad = None
        passes.clear()
        y = F.silu(x + b)
        y.backward(ct)
        return [t.numpy() for t in (y.detach(), x.grad, b.grad)], list(passes)
    apart = [step(), step()]
    assert [names[:2] for _, names in apart] == [["add", "silu"]] * 2
    for values, names in (step(), step()):
        assert names[0] == "add_silu" and "silu" not in names
        assert all(map(np.array_equal, values, apart[0][0]))


UNARY = sorted(name for name, op in OPS.items() if getattr(op, "own", None) is not None
               and len(op.operands) == 1)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_are_those_of_two_kernels(name: str, dtype: Any, passes: list[str]) -> None:
    function, special = OPS[name].own.function, np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
    x = raw(1, SHAPE, dtype) * 3
    x.flat[:5] = special
    row = raw(2, SHAPE[-1:], dtype)
    row[:5] = 0
    for b in (row, raw(3, SHAPE, dtype)):
        big, other = ad.tensor(x, requires_grad=True), ad.tensor(b)
        apart = function((big + other).clone())
        got = learned(lambda x, b: function(x + b), big, other)     # noqa: B023
        kind = np.uint8 if got.dtype == ad.bool else f"u{got.detach().numpy().itemsize}"
        assert np.array_equal(got.detach().numpy().view(kind), apart.detach().numpy().view(kind))


def test_most_functions_are_foreseen(passes: list[str]) -> None:
    x, b = leaf(1), leaf(2, SHAPE[-1:])
    for name in ("relu", "silu", "gelu_tanh", "gelu", "tanh", "sigmoid", "mish", "exp"):
        foresight._lines.clear()
        learned(lambda x, b: OPS[name].own.function(x + b), x, b)    # noqa: B023
        assert passes[-1] == f"add_{name}"


def overwrite_raw(z: Any) -> None:
    z.detach().numpy()[:] = 1.0


def under_no_grad(write: Callable[[Any], Any]) -> Callable[[Any], None]:
    def run(z: Any) -> None:
        with ad.no_grad():
            write(z)
    return run


WRITES: dict[str, Callable[[Any], Any]] = {
    "numpy": overwrite_raw,
    "numpy of itself": lambda z: z.numpy(force=True).fill(1.0),
    "in place": under_no_grad(lambda z: z.fill_(1.0)),
    "item": under_no_grad(lambda z: z.__setitem__(slice(None), 1.0)),
    "a view": under_no_grad(lambda z: z[:].copy_(ad.ones(SHAPE))),
    "out": under_no_grad(lambda z: ad.mul(ad.ones(SHAPE), 1.0, out=z)),
    ".data": lambda z: z.data.fill_(1.0),
    "other data": lambda z: setattr(z, "data", ad.ones(SHAPE)),
    "dlpack": lambda z: np.from_dlpack(z.detach()).fill(1.0),
    "storage": lambda z: z.untyped_storage().copy_(ad.ones(SHAPE).untyped_storage()),
    "address": lambda z: (np.ctypeslib.as_array(
        (np.ctypeslib.ctypes.c_float * z.numel()).from_address(z.data_ptr())).fill(1.0)),
    "address of the storage": lambda z: (np.ctypeslib.as_array(
        (np.ctypeslib.ctypes.c_float * z.numel()).from_address(
            z.untyped_storage().data_ptr())).fill(1.0)),
    "parameter": under_no_grad(lambda z: ad.nn.Parameter(z).fill_(1.0)),
    "set_": under_no_grad(lambda z: z.set_(ad.ones(SHAPE))),
}


@pytest.mark.parametrize("way", WRITES)
def test_a_result_that_was_written_to_is_computed(way: str) -> None:
    x, b, write = leaf(1), leaf(2, SHAPE[-1:]), False

    def step(x: Any, b: Any) -> Any:
        z = x + b
        if write:
            WRITES[way](z)
        return F.silu(z)
    learned(step, x, b)
    write = True
    assert float(step(x, b).detach().double().sum()) == pytest.approx(
        float(F.silu(ad.ones(())).double()) * x.numel(), rel=1e-6)
    assert ahead() is None


def step_silu(x: Any, b: Any) -> Any:
    return F.silu(x + b)


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "autocast", "small", "strided",
                                  "16 bits"])
def test_where_nothing_is_foreseen(mode: str, passes: list[str]) -> None:
    x, b = leaf(1), leaf(2, SHAPE[-1:])
    contexts: dict[str, Any] = {
        "no_grad": ad.no_grad, "inference_mode": ad.inference_mode,
        "autocast": lambda: ad.autocast("cpu", dtype=ad.bfloat16)}
    if mode == "small":
        x = leaf(1, (400, *SHAPE[-1:]))
    elif mode == "strided":
        x, b = leaf(1, SHAPE[::-1]).t(), leaf(2, SHAPE[-1:])
    elif mode == "16 bits":
        x, b = x.detach().bfloat16().requires_grad_(), b.detach().bfloat16()
    for _ in range(3):
        if mode in contexts:
            with contexts[mode]():
                step_silu(x, b)
        else:
            step_silu(x, b)
    assert not any("add_" in name for name in passes) and ahead() is None


def test_a_line_that_errs_adds_as_before(passes: list[str]) -> None:
    x, b = leaf(1), leaf(2, SHAPE[-1:])
    follow = F.silu

    def step(x: Any, b: Any) -> Any:
        return follow(x + b)
    for _ in range(foresight._MISSES):
        follow = F.silu
        learned(step, x, b)
        assert passes[-1] == "add_silu"
        follow = F.relu
        assert np.array_equal(step(x, b).detach().numpy(), np.maximum((x + b).detach().numpy(), 0))
    follow = F.silu
    passes.clear()
    learned(step, x, b)
    assert passes == ["add", "silu"] * 3


@pytest.mark.skipif(not alloc.available(), reason="needs the allocator's counters")
def test_what_is_put_aside_goes_with_the_sum() -> None:
    x, b = leaf(1), leaf(2, SHAPE[-1:])
    alloc.ensure()

    def add() -> Any:
        return x + b
    for _ in range(2):
        F.silu(add())
    gc.collect()
    before = alloc.live()
    z = add()
    size = z.nbytes
    assert ahead() is not None and alloc.live() - before >= 2 * size
    del z
    assert ahead() is None and alloc.live() - before < size
    for _ in range(2):
        F.silu(add())
    z = add()
    assert ahead() is not None
    z.mul(2.0).sum().backward()                 # a large backward needs the memory
    assert ahead() is None


@pytest.mark.skipif(not alloc.available(), reason="needs the allocator's counters")
def test_no_more_memory_at_the_peak(passes: list[str]) -> None:
    x, b, ct = leaf(1), leaf(2, SHAPE[-1:]), ad.tensor(raw(3))
    alloc.ensure()

    def held() -> Any:
        return F.silu(x + b)

    def passing() -> Any:
        return F.silu(x * 2.0 + b)              # the product is gone when silu comes
    for step, names in ((held, "add_silu"), (passing, "silu")):
        peaks: list[int] = []
        whole: list[int] = []
        for _ in range(5):
            x.grad = b.grad = None
            gc.collect()
            alloc.reset_peak()
            before = alloc.live()
            passes.clear()
            y = step()
            peaks.append(alloc.live_and_peak()[1] - before)
            forward = passes[-1]
            y.backward(ct)
            del y
            whole.append(alloc.live_and_peak()[1] - before)
        assert forward == names
        assert max(p - found[1] for found in (peaks, whole) for p in found[2:]) < x.nbytes // 2


def test_predicted_bytes_are_those_that_are_measured() -> None:
    x, b = leaf(1), leaf(2, SHAPE[-1:])

    def step() -> None:
        x.grad = b.grad = None
        F.gelu(x + b).sum().backward()
    for _ in range(4):
        step()
    predicted = ad.memory.predict(step)
    with ad.memory.track() as measured:
        step()
    assert predicted.peak == measured.peak


def test_threads_do_not_take_each_others_results() -> None:
    x, b = leaf(1), leaf(2, SHAPE[-1:])
    want = learned(step_silu, x, b).detach().numpy()
    wrong: list[int] = []

    def work(k: int) -> None:
        mine = leaf(10 + k)
        alone = F.silu((mine + b).clone()).detach().numpy()
        for _ in range(10):
            if not np.array_equal(step_silu(mine, b).detach().numpy(), alone):
                wrong.append(k)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and np.array_equal(step_silu(x, b).detach().numpy(), want)
    z = x + b
    assert x.numel() >= callers.FAR
    thread = threading.Thread(target=lambda: wrong.append(int(F.silu(z).shape[0])))
    thread.start()
    thread.join()
    assert wrong == [SHAPE[0]] and np.array_equal(F.silu(z).detach().numpy(), want)


def test_hooks_modes_and_higher_orders_see_the_same() -> None:
    x, b = leaf(1), leaf(2, SHAPE[-1:])
    learned(step_silu, x, b)
    kept: list[tuple[int, ...]] = []

    def pack(t: Any) -> Any:
        kept.append(tuple(t.shape))
        return t
    with (ad.autograd.graph.saved_tensors_hooks(pack, lambda t: t),
          pytest.warns(UserWarning, match="Anomaly"), ad.autograd.detect_anomaly()):
        y = step_silu(x, b)
    assert kept == [SHAPE] and y.grad_fn.name() == "SiluBackward0"
    assert y.grad_fn.next_functions[0][0].name() == "AddBackward0"
    first, = ad.autograd.grad(step_silu(x, b).sum(), x, create_graph=True)
    second, = ad.autograd.grad(first.sum(), x)
    z = (x + b).detach().clone().requires_grad_()
    slope, = ad.autograd.grad(F.silu(z).sum(), z, create_graph=True)
    curve, = ad.autograd.grad(slope.sum(), z)
    assert np.array_equal(first.detach().numpy(), slope.detach().numpy())
    assert np.array_equal(second.numpy(), curve.numpy())


def test_transforms_see_the_same() -> None:
    x, b, t = leaf(1), leaf(2, SHAPE[-1:]), ad.tensor(raw(3))
    apart = F.silu((x + b).clone()).detach().numpy()
    z = (x + b).detach().clone().requires_grad_()
    slope, = ad.autograd.grad(F.silu(z).sum(), z)
    for _ in range(4):
        by_rows = ad.func.vmap(step_silu, in_dims=(0, None))(x, b)
        value, tangent = ad.func.jvp(lambda x: step_silu(x, b), (x,), (t,))
        grad = ad.func.grad(lambda x: step_silu(x, b).sum())(x)
        assert np.array_equal(by_rows.detach().numpy(), apart)
        assert np.array_equal(value.detach().numpy(), apart)
        assert np.array_equal(grad.detach().numpy(), slope.numpy())
        assert np.array_equal(tangent.detach().numpy(), (slope * t).numpy())
