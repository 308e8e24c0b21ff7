"""Transforms side by side: Hessian, Jacobians, HVP, per-sample and mixture gradients; what a level
costs per op; what a jvp and an HVP cost next to a forward and a gradient.

./run bench transforms                    torch.func, JAX with and without jit, HIPS autograd
./run bench transforms --only persample   one row; --clock cpu where others use the machine
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import _peers
import numpy as np

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
LAYERS = (256, 256, 128, 10)  # 100 234 parameters
MIXTURES = {"gmm d10 K25 n1000": (10, 25, 1000), "gmm d64 K50 n2500": (64, 50, 2500)}
TARGETS = {"torch": 0.8, "autograd": 0.5}
Step = Callable[[], Any]


def data(seed: int = 0) -> dict[str, Any]:
    """Operands of every row, as NumPy arrays in single precision."""
    r = np.random.default_rng(seed)
    sizes = list(zip(LAYERS[:-1], LAYERS[1:], strict=True))
    weights = [r.normal(size=s) / math.sqrt(s[0]) for s in sizes] + [
        np.zeros(s[1]) for s in sizes]
    arrays = {
        "a": r.normal(size=(100, 100)) / 10, "x": r.normal(size=100), "weights": weights,
        "tangents": [r.normal(size=w.shape) for w in weights], "inputs": r.normal(size=(64, 256)),
        "labels": np.eye(10)[r.integers(0, 10, 64)],
    }
    return {k: [w.astype(np.float32) for w in v] if isinstance(v, list) else v.astype(np.float32)
            for k, v in arrays.items()}


def mixture_data(d: int, k: int, n: int) -> tuple[Any, ...]:
    """Parameters and points, double precision."""
    r = np.random.default_rng(0)
    return (r.normal(size=k), r.normal(size=(k, d)),
            0.3 * r.normal(size=(k, d + d * (d - 1) // 2)), r.normal(size=(n, d)))


def loss(n: Any, p: Any, x: Any, y: Any) -> Any:
    """Cross entropy of a tanh network; p: three weights, then three biases."""
    half = len(LAYERS) - 1
    for i in range(half):
        x = x @ p[i] + p[half + i]
        if i < half - 1:
            x = n.tanh(x)
    return (n.lse(x, -1) - (x * y).sum(-1)).mean()


def mixture(n: Any, d: int, lower: Callable[[Any], Any], p: Any, x: Any) -> Any:
    """The log-likelihood of ADBench's mixture, up to constants."""
    weights, means, factors = p
    diagonal = factors[:, :d]
    centred = x[:, None, :] - means[None]
    scaled = n.exp(diagonal)[None] * centred + n.einsum(
        "kij,nkj->nki", lower(factors[:, d:]), centred)
    inner = weights + diagonal.sum(1) - 0.5 * (scaled**2).sum(2)
    prior = 0.5 * ((n.exp(diagonal) ** 2).sum() + (factors[:, d:] ** 2).sum())
    return n.lse(inner, 1).sum() - x.shape[0] * n.lse(weights, 0) + prior


def rows(n: Any) -> dict[str, Step]:
    """The rows that a peer can run, by name."""
    v = {k: [n.t(w) for w in a] if isinstance(a, list) else n.t(a) for k, a in data().items()}
    a, x, p, s = v["a"], v["x"], v["weights"], v["tangents"]
    xs, ys = v["inputs"], v["labels"]

    def scalar(z: Any, c: Any = a) -> Any:
        return (n.tanh(c @ z) ** 2).sum() + (z * z * z).sum()

    def vector(z: Any, c: Any) -> Any:
        return n.tanh(c @ z)

    def whole(q: Any, b: Any, c: Any) -> Any:
        return loss(n, q, b, c)
    out = {"hessian 100": n.jit("hessian", lambda z, c: n.f.hessian(lambda w: scalar(w, c))(z),
                                x, a),
           "jacrev 100x100": n.jit("jacrev", lambda z, c: n.f.jacrev(lambda w: vector(w, c))(z),
                                   x, a),
           "jacfwd 100x100": n.jit("jacfwd", lambda z, c: n.f.jacfwd(lambda w: vector(w, c))(z),
                                   x, a),
           "hvp 1e5": n.jit("jvp", lambda q, t, b, c: n.f.jvp(
               n.f.grad(lambda w: whole(w, b, c)), (q,), (t,))[1], p, s, xs, ys),
           "persample 64": n.jit("vmap", lambda q, b, c: n.f.vmap(
               n.f.grad(whole), (None, 0, 0))(q, b, c), p, xs, ys)}
    return {k: f for k, f in out.items() if f is not None}


def mixture_row(n: Any, d: int, k: int, count: int) -> Step:
    """Value and gradient of a mixture."""
    *p, x = [n.t(v) for v in mixture_data(d, k, count)]
    return n.value_and_grad(lambda q: mixture(n, d, n.lower(d, k), q, x), p)


def eager(name: str, m: Any, functions: Any) -> Any:
    """Adjoint or PyTorch."""
    def lower(d: int, k: int) -> Callable[[Any], Any]:
        i, j = (m.tensor(v) for v in np.tril_indices(d, -1))
        each = m.arange(k)[:, None]
        return lambda o: m.zeros((k, d, d), dtype=m.float64).index_put((each, i[None], j[None]), o)

    def both(f: Any, p: Any) -> Step:
        leaves = [v.clone().requires_grad_() for v in p]
        return lambda: m.autograd.grad(f(leaves), leaves)
    return SimpleNamespace(name=name, f=functions, tanh=m.tanh, exp=m.exp, einsum=m.einsum,
                           lse=m.logsumexp, t=m.tensor, jit=lambda _, f, *args: lambda: f(*args),
                           lower=lower,
                           value_and_grad=both)


def jax_peer(jit: bool) -> Any:
    """JAX, op by op or compiled."""
    import jax
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy

    def lower(d: int, k: int) -> Callable[[Any], Any]:
        i, j = np.tril_indices(d, -1)
        return lambda o: jnp.zeros((k, d, d)).at[:, i, j].set(o)

    def timed(_: str, f: Any, *args: Any) -> Step:
        g = jax.jit(f) if jit else f
        return lambda: jax.block_until_ready(g(*args))

    def both(f: Any, p: Any) -> Step:
        g = jax.jit(jax.value_and_grad(f)) if jit else jax.value_and_grad(f)
        return lambda: jax.block_until_ready(g(p)[1])
    return SimpleNamespace(name="jax jit" if jit else "jax", f=jax, tanh=jnp.tanh, exp=jnp.exp,
                           einsum=jnp.einsum, lse=jax.nn.logsumexp, t=jnp.asarray, jit=timed,
                           lower=lower, value_and_grad=both)


def hips_peer() -> Any:
    """HIPS autograd: no vmap, and forward mode only where asked for."""
    import autograd
    import autograd.numpy as anp

    def lse(z: Any, axis: int) -> Any:
        top = anp.max(z, axis, keepdims=True)
        return anp.log(anp.sum(anp.exp(z - top), axis)) + anp.squeeze(top, axis)

    def lower(d: int, k: int) -> Callable[[Any], Any]:
        at, mask = np.zeros((d, d), int), np.zeros((d, d))
        at[np.tril_indices(d, -1)] = np.arange(d * (d - 1) // 2)
        mask[np.tril_indices(d, -1)] = 1
        return lambda o: anp.reshape(o[:, at.ravel()], (k, d, d)) * mask
    f = SimpleNamespace(
        hessian=autograd.hessian, jacrev=autograd.jacobian, jacfwd=None, vmap=None,
        grad=autograd.grad, jvp=lambda g, p, t: (None, autograd.make_jvp(g)(*p)(*t)[1]))
    return SimpleNamespace(
        name="autograd", f=f, tanh=anp.tanh, exp=anp.exp, einsum=anp.einsum, lse=lse,
        t=lambda v: v,
        jit=lambda name, g, *args: (lambda: g(*args)) if name in ("hessian", "jacrev") else None,
        lower=lower, value_and_grad=lambda g, p: lambda: autograd.value_and_grad(g)(p)[1])


def peers() -> list[Any]:
    """The libraries that are installed; adjoint first."""
    import adjoint
    found = [eager("adjoint", adjoint, adjoint.func)]
    if importlib.util.find_spec("torch"):
        import torch
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
        found.append(eager("torch", torch, torch.func))
    if importlib.util.find_spec("jax"):
        found += [jax_peer(False), jax_peer(True)]
    if importlib.util.find_spec("autograd"):
        found.append(hips_peer())
    return found


def arrays_of(x: Any) -> list[Any]:
    """The leaves of a result as arrays."""
    if isinstance(x, (tuple, list)):
        return [b for v in x for b in arrays_of(v)]
    return [np.asarray(x.detach().numpy() if hasattr(x, "detach") else x)]


def compare(name: str, steps: dict[str, Step], rounds: int, clock: Callable[[], float]) -> bool:
    """One row: agreement, then medians; True where the targets are met."""
    want = arrays_of(steps["adjoint"]())
    for peer, step in steps.items():
        for got, ours in zip(arrays_of(step()), want, strict=True):
            np.testing.assert_allclose(got, ours, rtol=2e-3, atol=2e-4, err_msg=peer)

    def timed(step: Step) -> Callable[[], _peers.Phases]:
        def run() -> _peers.Phases:
            begin = clock()
            step()
            return {"all": clock() - begin}
        return run
    found = _peers.interleave({k: timed(s) for k, s in steps.items()}, rounds)
    ours = found["adjoint"]["all"]
    met, text = True, f"{name:18} adjoint {ours * 1e3:8.2f} ms"
    for peer in steps:
        if peer != "adjoint":
            ratio = ours / found[peer]["all"]
            target = TARGETS.get(peer) if peer != "autograd" or name in MIXTURES else None
            met &= target is None or ratio <= target
            text += f" | {peer} {_peers.verdict(ratio, target)}"
    print(text, flush=True)
    return met


def own_ratios(rounds: int, clock: Callable[[], float]) -> bool:
    """HVP over gradient, jvp over forward, and microseconds that a level adds to a small op."""
    import adjoint as ad
    f = ad.func
    v = {k: [ad.tensor(w) for w in a] if isinstance(a, list) else ad.tensor(a)
         for k, a in data().items()}
    n = SimpleNamespace(tanh=ad.tanh, lse=ad.logsumexp)
    p, s = v["weights"], v["tangents"]
    x, y = ad.randn(4096, 256), ad.tensor(np.eye(10, dtype=np.float32)[np.arange(4096) % 10])

    def whole(q: Any) -> Any:
        return loss(n, q, x, y)
    small, other = ad.ones(8), ad.full((8,), 0.99)

    def chain(z: Any) -> Any:
        for _ in range(500):
            z = z * other
            z = z + other
        return z
    steps = {
        "forward": lambda: whole(p), "gradient": lambda: f.grad(whole)(p),
        "jvp": lambda: f.jvp(whole, (p,), (s,)),
        "hvp": lambda: f.jvp(f.grad(whole), (p,), (s,)),
        "chain": lambda: chain(small), "jvp of chain": lambda: f.jvp(chain, (small,), (small,)),
        "vmap of chain": lambda: f.vmap(chain)(small[None]),
        "vmap of vmap of chain": lambda: f.vmap(f.vmap(chain))(small[None, None]),
        "ops on tangents": lambda: (chain(small), chain(small)),
    }

    def timed(step: Step) -> Callable[[], _peers.Phases]:
        def run() -> _peers.Phases:
            begin = clock()
            step()
            return {"all": clock() - begin}
        return run
    t = {k: r["all"] for k, r in _peers.interleave(
        {k: timed(g) for k, g in steps.items()}, rounds).items()}
    level = {"jvp": (t["jvp of chain"] - t["ops on tangents"]) * 1e3,
             "vmap": (t["vmap of chain"] - t["chain"]) * 1e3,
             "second vmap": (t["vmap of vmap of chain"] - t["vmap of chain"]) * 1e3}
    checks = [("hvp / gradient", t["hvp"] / t["gradient"], 4.0, "x"),
              ("jvp / forward", t["jvp"] / t["forward"], 2.5, "x"),
              *[(f"{k}, per op", us, 3.0, " us") for k, us in level.items()]]
    for name, value, target, unit in checks:
        verdict = "met" if value <= target else "MISSED"
        print(f"{name:18} {value:.2f}{unit} (target {target:g}{unit}: {verdict})")
    return all(value <= target for _, value, target, _ in checks)


def main() -> int:
    """Exit status 1 if a target is missed and --strict was given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each peer")
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    args = parser.parse_args()
    clock = CLOCKS[args.clock]
    print(_peers.about(), f"{args.clock} time; adjoint's time over the peer's", sep="; ")
    found = peers()
    table = {n.name: rows(n) for n in found}
    met = True
    for name in table["adjoint"]:
        if args.only in name:
            met &= compare(name, {peer: r[name] for peer, r in table.items() if name in r},
                           args.rounds, clock)
    for name, sizes in MIXTURES.items():
        if args.only in name:
            steps = {n.name: mixture_row(n, *sizes) for n in found}
            met &= compare(name, steps, max(3, args.rounds // 3), clock)
    if args.only in "own":
        met &= own_ratios(args.rounds, clock)
    return int(args.strict and not met)


if __name__ == "__main__":
    raise SystemExit(main())
