"""The workloads of `adjoint bench`, each written once against a PyTorch-like module.

`CASES[name](m)` builds a workload with the module `m` (this package or a peer) and returns a
`Case`: a step to time (forward and backward, float32) and what it has to do at least. `JAX[name]()`
is the same for JAX, compiled.
"""
from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """A step; arithmetic operations and bytes of memory traffic that it needs at least; the value
    that has to agree among peers."""

    step: Callable[[], Any]
    flop: float = 0.0
    nbytes: float = 0.0
    check: Callable[[], float] = float


CASES: dict[str, Callable[[Any], Case]] = {}
JAX: dict[str, Callable[[], Case]] = {}
ROWS, COLUMNS = 4096, 1024
FULL, ROW = (ROWS, COLUMNS), (COLUMNS,)
MEGA = 4.0 * ROWS * COLUMNS


def draw(*shape: int, seed: int = 0) -> Any:
    """Standard normal float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _case(name: str) -> Callable[[Callable[[Any], Case]], Callable[[Any], Case]]:
    def enter(f: Callable[[Any], Case]) -> Callable[[Any], Case]:
        CASES[name] = f
        return f
    return enter


def _pulled(f: Callable[..., Any], xs: Sequence[Any], g: Any, flop: float, nbytes: float) -> Case:
    """Forward, and backward of the cotangent `g` (None: of a scalar)."""
    def step() -> None:
        for x in xs:
            x.grad = None
        y = f(*xs)
        y.backward() if g is None else y.backward(g)
    return Case(step, flop, nbytes, lambda: float(abs(xs[0].grad.numpy()).astype(float).mean()))


def _enter(name: str, shapes: Sequence[tuple[int, ...]], out: tuple[int, ...], nbytes: float,
           f: Callable[..., Any], jax: Callable[..., Any] | None = None, flop: float = 0.0) -> None:
    """A workload from functions of (module, functional, operands) and of (jax, operands)."""
    def build(m: Any) -> Case:
        xs = [m.tensor(draw(*s, seed=i), requires_grad=True) for i, s in enumerate(shapes)]
        functional = importlib.import_module(m.__name__ + ".nn.functional")
        g = m.tensor(draw(*out, seed=99)) if out else None
        return _pulled(lambda *a: f(m, functional, *a), xs, g, flop, nbytes)

    def build_jax() -> Case:
        j = importlib.import_module("jax")
        xs = [j.numpy.asarray(draw(*s, seed=i)) for i, s in enumerate(shapes)]
        g = j.numpy.asarray(draw(*out, seed=99)) if out else j.numpy.float32(1)
        last: list[Any] = []

        def both(g: Any, *xs: Any) -> Any:
            assert jax is not None
            y, pull = j.vjp(lambda *a: jax(j, *a), *xs)
            return y, pull(g)
        run = j.jit(both)

        def step() -> None:
            last[:] = [j.block_until_ready(run(g, *xs))]
        return Case(step, flop, nbytes, lambda: float(j.numpy.abs(last[0][1][0]).mean()))
    CASES[name] = build
    if jax is not None:
        JAX[name] = build_jax


def _jax_norm(j: Any, s: Any, w: Any, c: Any) -> Any:
    return (s - s.mean(-1, keepdims=True)) * j.lax.rsqrt(s.var(-1, keepdims=True) + 1e-5) * w + c


_enter("gelu + bias", [FULL, ROW], FULL, 5 * MEGA,
       lambda m, F, x, b: F.gelu(x + b, approximate="tanh"),
       lambda j, x, b: j.nn.gelu(x + b, approximate=True))
_enter("silu + bias", [FULL, ROW], FULL, 5 * MEGA, lambda m, F, x, b: F.silu(x + b),
       lambda j, x, b: j.nn.silu(x + b))
_enter("layer norm", [FULL, ROW, ROW], FULL, 5 * MEGA,
       lambda m, F, x, w, c: F.layer_norm(x, ROW, w, c), _jax_norm)
_enter("LN(res + dropout(gelu))", [FULL, ROW, FULL, ROW, ROW], FULL, 8 * MEGA,
       lambda m, F, x, b, r, w, c: F.layer_norm(
           r + F.dropout(F.gelu(x + b, approximate="tanh"), 0.1), ROW, w, c))
_enter("LN(res + gelu)", [FULL, ROW, FULL, ROW, ROW], FULL, 8 * MEGA,
       lambda m, F, x, b, r, w, c: F.layer_norm(r + F.gelu(x + b, approximate="tanh"), ROW, w, c),
       lambda j, x, b, r, w, c: _jax_norm(j, r + j.nn.gelu(x + b, approximate=True), w, c))
_enter("six adds and muls", [FULL, FULL], FULL, 8 * MEGA,
       lambda m, F, x, y: ((x * y + x) * y - x) * 0.5 + y * y,
       lambda j, x, y: ((x * y + x) * y - x) * 0.5 + y * y)
_enter("softmax 4096x4096", [(4096, 4096)], (4096, 4096), 20.0 * 4096**2,
       lambda m, F, x: F.softmax(x, dim=-1), lambda j, x: j.nn.softmax(x, -1))
for _n in (256, 512, 1024):
    _enter(f"matmul {_n}", [(_n, _n), (_n, _n)], (_n, _n), 0.0, lambda m, F, a, b: a @ b,
           lambda j, a, b: a @ b, 6.0 * _n**3)
_enter("batched matmul 96x256x64", [(96, 256, 64), (96, 64, 256)], (96, 256, 256), 0.0,
       lambda m, F, a, b: a @ b, lambda j, a, b: a @ b, 6.0 * 96 * 256 * 64 * 256)
_enter("causal attention 1024", [(4, 8, 1024, 64)] * 3, (4, 8, 1024, 64), 0.0,
       lambda m, F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
       flop=7.0 * 32 * 1024**2 * 64)
_enter("conv 64->64 3x3", [(8, 64, 56, 56), (64, 64, 3, 3)], (8, 64, 56, 56), 0.0,
       lambda m, F, x, w: F.conv2d(x, w, padding=1), flop=6.0 * 8 * 56 * 56 * 64 * 64 * 9)


@_case("small op, chain of 1000")
def small(m: Any) -> Case:
    """What one op costs: mul and add in turn on 8 numbers."""
    x = m.tensor(draw(8), requires_grad=True)
    y = m.tensor(draw(8, seed=1) * 0.01)

    def chain(x: Any) -> Any:
        for _ in range(500):
            x = x * 1.001 + y
        return x.sum()
    return _pulled(chain, [x], None, 0.0, 0.0)


@_case("cross-entropy 2048x50304")
def cross_entropy(m: Any) -> Case:
    """Logits to loss and back."""
    functional = importlib.import_module(m.__name__ + ".nn.functional")
    x = m.tensor(draw(2048, 50304), requires_grad=True)
    target = m.tensor(np.random.default_rng(5).integers(0, 50304, 2048))
    return _pulled(lambda x: functional.cross_entropy(x, target), [x], None, 0.0,
                   12.0 * 2048 * 50304)


def _training(m: Any, net: Any, make: Callable[[Any], Any], loss: Callable[[], Any],
              flop: float) -> Case:
    optimizer = make(net.parameters())
    first = next(iter(net.parameters()))

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    return Case(step, flop, 0.0, lambda: float(first.grad.abs().mean()))


def _mlp(m: Any, make: Callable[[Any], Any]) -> Case:
    m.manual_seed(0)
    nn = importlib.import_module(m.__name__ + ".nn")
    net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                        nn.Linear(128, 10))
    with m.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(m.tensor(draw(*p.shape, seed=i) * 0.05))
    x = m.tensor(draw(256, 784, seed=20))
    target = m.tensor(np.arange(256) % 10)
    flop = 6.0 * 256 * (784 * 256 + 256 * 128 + 1280)
    return _training(m, net, make, lambda: nn.functional.cross_entropy(net(x), target), flop)


@_case("MLP step, SGD")
def mlp_sgd(m: Any) -> Case:
    """784-256-128-10, batch 256."""
    optim = importlib.import_module(m.__name__ + ".optim")
    return _mlp(m, lambda ps: optim.SGD(ps, lr=1e-4, momentum=0.9))


@_case("MLP step, AdamW")
def mlp_adamw(m: Any) -> Case:
    """The same with AdamW."""
    optim = importlib.import_module(m.__name__ + ".optim")
    return _mlp(m, lambda ps: optim.AdamW(ps, lr=1e-5))


def _lstm(m: Any, layer: bool) -> Case:
    nn = importlib.import_module(m.__name__ + ".nn")
    steps, batch, width = 100, 32, 128
    x = m.tensor(draw(steps, batch, width))
    w = [m.tensor(draw(*s, seed=i) * 0.08, requires_grad=True)
         for i, s in enumerate([(4 * width, width), (4 * width, width), (4 * width,)])]
    net = nn.LSTM(width, width)
    with m.no_grad():
        for p, v in zip(net.parameters(), (*w, w[2]), strict=True):
            p.copy_(v if p.ndim > 1 else m.zeros(4 * width))

    def loop(wi: Any, wh: Any, b: Any) -> Any:
        h, c, out = m.zeros(batch, width), m.zeros(batch, width), []
        for t in range(steps):
            gates = nn.functional.linear(x[t], wi, b * 0) + nn.functional.linear(h, wh)
            i, f, g, o = gates.chunk(4, 1)
            c = m.sigmoid(f) * c + m.sigmoid(i) * m.tanh(g)
            h = m.sigmoid(o) * m.tanh(c)
            out.append(h)
        return m.stack(out).pow(2).mean()
    flop = 12.0 * steps * batch * width * 4 * width
    if layer:
        return _pulled(lambda *_: net(x)[0].pow(2).mean(), list(net.parameters()), None, flop, 0.0)
    return _pulled(loop, w, None, flop, 0.0)


@_case("nn.LSTM, 100 steps")
def lstm_layer(m: Any) -> Case:
    """Width 128, batch 32."""
    return _lstm(m, True)


@_case("LSTM as a Python loop")
def lstm_loop(m: Any) -> Case:
    """The same, written out."""
    return _lstm(m, False)
