"""Cotangents that are summed for an added row in the pass that computes them."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import memory
from adjoint.kernels import activations, alloc, choose, codegen, columns, llvm, threads
from adjoint.kernels.expr import diff, trace, var

pytestmark = pytest.mark.skipif(not llvm.available(), reason="needs llvmlite")
SHAPES = [(64, 64), (1000, 48), (8, 33, 160), (4100, 1040), (70000, 16), (103, 512), (5, 7, 2064)]


def draw(shape: Any, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def rule_of(name: str) -> columns.Columns:
    slope = diff(trace(activations._TABLE[name]), "x")
    return columns.Columns(name + "_backward", ["ct", "x"], var("ct") * slope)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["silu", "gelu_tanh"])
def test_the_bits_are_those_of_two_passes(monkeypatch: pytest.MonkeyPatch, shape: Any, dtype: Any,
                                          name: str) -> None:
    """Around the cache or not, on one thread or three, in the cotangent's memory or not."""
    alloc.install()
    ct, x = draw(shape, dtype), draw(shape, dtype, 1)
    backward, add = activations.kernel(name + "_backward"), choose.lookup("sum")
    assert backward is not None and add is not None
    want = backward(ct, x)
    total = add(want, axis=tuple(range(len(shape) - 1)))
    before = threads.get_num_threads()
    try:
        for around in (False, True):
            monkeypatch.setattr(codegen, "streams", lambda nbytes, around=around: around)
            rule = rule_of(name)
            for count in (1, 3):
                threads.set_num_threads(count)
                made, row = rule(ct, x)
                assert made.tobytes() == want.tobytes() and row.tobytes() == total.tobytes()
                own = ct.copy()
                made, row = rule(own, x, over=True)
                assert made is own and own.tobytes() == want.tobytes()
                assert row.dtype == total.dtype and row.tobytes() == total.tobytes()
    finally:
        threads.set_num_threads(before)


def test_operands_that_the_kernel_leaves_alone() -> None:
    rule, ct, x = rule_of("silu"), draw((64, 64)), draw((64, 64), seed=1)
    assert rule(ct, x) is not NotImplemented
    for a, b in [(ct.T, x.T), (ct, x[:1]), (ct[:, :60], x[:, :60]), (draw((64, 50)),) * 2,
                 (draw(4096), draw(4096)), (draw((1, 4096)), draw((1, 4096))),
                 (ct.astype(np.float16), x.astype(np.float16)), (ct.astype(np.float64), x),
                 (ct, 2.0)]:
        assert rule(a, b) is NotImplemented
    ct.flags.writeable = False
    assert rule(ct, x, over=True) is NotImplemented and rule(ct, x) is not NotImplemented


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The rules that were run this way."""
    names: list[str] = []
    run = columns.Columns.__call__

    def noted(self: columns.Columns, *operands: Any, over: bool = False) -> Any:
        found = run(self, *operands, over=over)
        if found is not NotImplemented:
            names.append(self.name)
        return found

    monkeypatch.setattr(columns.Columns, "__call__", noted)
    yield names


def leaves(dtype: Any = np.float32, shape: Any = (512, 256)) -> tuple[ad.Tensor, ad.Tensor]:
    return (ad.tensor(draw(shape, dtype), requires_grad=True),
            ad.tensor(draw(shape[-1:], dtype, 1), requires_grad=True))


def bits(*tensors: Any) -> list[bytes]:
    return [t.numpy().tobytes() for t in tensors]


@pytest.mark.parametrize("f", [F.silu, F.gelu, ad.tanh, ad.exp, ad.square])
@pytest.mark.parametrize("z", [lambda x, b: x + b, lambda x, b: b + x,
                               lambda x, b: ad.sin(x) + b, lambda x, b: x + ad.sin(b)],
                         ids=["x + b", "b + x", "sin(x) + b", "x + sin(b)"])
@pytest.mark.parametrize("shape", [(512, 256), (4, 192, 256)], ids=str)
def test_gradients_of_an_added_row(used: list[str], f: Any, z: Any, shape: Any) -> None:
    """The bits are those of a walk that somebody watches, which makes them one by one."""
    def run() -> list[bytes]:
        x, b = leaves(shape=shape)
        f(z(x, b)).backward(ad.tensor(draw(shape, seed=2)))
        return bits(x.grad, b.grad)

    got = run()
    assert len(used) == 1
    with memory.track():
        assert run() == got
    assert len(used) == 1


def test_a_chain_of_rows_hands_its_memory_on(used: list[str]) -> None:
    def run() -> list[bytes]:
        x, b = leaves()
        c = ad.tensor(draw((256,), seed=3), requires_grad=True)
        (F.silu(F.gelu(x + b) + c) * 2.0).backward(ad.tensor(draw((512, 256), seed=2)))
        return bits(x.grad, b.grad, c.grad)

    got = run()
    assert used == ["silu_backward", "gelu_backward"]
    with memory.track():
        assert run() == got


def _hook(x: Any, b: Any, z: Any) -> None:
    z.register_hook(lambda g: g * 2)


def _node_hook(x: Any, b: Any, z: Any) -> None:
    z.grad_fn.register_prehook(lambda g: (g[0] * 2,))


def _retain(x: Any, b: Any, z: Any) -> None:
    z.retain_grad()


@pytest.mark.parametrize("look", [_hook, _node_hook, _retain])
def test_a_sum_that_somebody_looks_at_is_made(used: list[str],
                                              look: Callable[[Any, Any, Any], None]) -> None:
    x, b = leaves()
    z = x + b
    look(x, b, z)
    y = ad.exp(z)
    y.backward(ad.ones(512, 256))
    factor = 1 if look is _retain else 2
    assert used == []
    np.testing.assert_allclose(x.grad.numpy(), factor * np.exp(z.detach().numpy()), rtol=1e-5)
    if look is _retain:
        assert z.grad.numpy().tobytes() == x.grad.numpy().tobytes()


def test_a_sum_with_two_readers_waits_for_both(used: list[str]) -> None:
    x, b = leaves()
    z = x + b
    (ad.exp(z) * F.silu(z)).sum().backward()
    e, s = np.exp(z.detach().numpy()), 1 / (1 + np.exp(-z.detach().numpy()))
    z = z.detach().numpy()
    want = e * z * s + e * (s + z * s * (1 - s))
    assert used == []
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(b.grad.numpy(), want.sum(0, dtype=np.float64), rtol=1e-4)


def test_rows_without_a_gradient_and_other_shapes(used: list[str]) -> None:
    x, b = leaves()
    F.silu(x + b.detach()).sum().backward()
    F.silu(x.detach() + b).sum().backward()
    F.silu(x + ad.ones(512, 1, requires_grad=True)).sum().backward()
    F.silu(x + ad.ones(512, 256, requires_grad=True)).sum().backward()
    F.silu(x + b.double()).sum().backward()
    assert used == []


def test_hooks_of_leaves_captured_leaves_and_graphs_of_gradients(used: list[str]) -> None:
    x, b = leaves()
    ct = ad.tensor(draw((512, 256), seed=2))
    seen = []
    b.register_hook(lambda g: seen.append(g.detach().numpy().copy()))
    F.silu(x + b).backward(ct)
    assert used == ["silu_backward"] and seen[0].tobytes() == b.grad.numpy().tobytes()
    want = bits(x.grad, b.grad)
    assert bits(*ad.autograd.grad(F.silu(x + b), (x, b), ct)) == want
    assert bits(*ad.autograd.grad(F.silu(x + b), (b,), ct)) == want[1:]
    made = ad.autograd.grad(F.silu(x + b), (x, b), ct, create_graph=True)
    assert bits(*[m.detach() for m in made]) == want
    y = F.silu(x + b)
    y.backward(ct, retain_graph=True)
    y.backward(ct)
    np.testing.assert_allclose(b.grad.numpy(), 3 * np.frombuffer(want[1], np.float32), rtol=1e-6)


@pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
def test_the_sums_take_no_memory_of_the_users() -> None:
    def peak(f: Callable[[Any], Any]) -> int:
        x, b = leaves(shape=(2048, 512))
        y, ct = f(x + b), ad.tensor(draw((2048, 512), seed=2))
        alloc.reset_peak()
        before = alloc.live_and_peak()[0]
        y.backward(ct)
        return alloc.live_and_peak()[1] - before

    peak(F.silu)
    assert peak(F.silu) <= 2048 * 512 * 4 + (64 << 10)
