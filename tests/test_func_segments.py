"""Scans in segments: every order of gradient, what steps close over, and memory (F54, F70, F81)."""
from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import func as af
from adjoint.base.errors import AutogradError

RNG = np.random.default_rng(5)
X, W, XS = RNG.normal(size=4), RNG.normal(size=4), RNG.normal(size=(7, 4))
SEGMENTS = pytest.mark.parametrize("segments", ["sqrt", 1, 3])


def both(run: Callable[[Any], Any], segments: Any) -> None:
    """`run(segments)` gives numbers that do not depend on the segments."""
    got, want = run(segments), run(None)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g.detach().numpy(), w.detach().numpy(), rtol=1e-12, atol=1e-13)


def total(x: Any, xs: Any, w: Any, segments: Any) -> Any:
    """A scan whose steps use a carry, rows, and two tensors of outside, one made of the other."""
    made = (w * 0.5).tanh()

    def step(c: Any, row: Any) -> tuple[Any, Any]:
        c = (c * made + row).sin() * w
        return c, c * row
    c, ys = af.scan(step, x, xs, segments=segments)
    return (c * c).sum() + (ys * ys).sum() + made.sum()


@SEGMENTS
@pytest.mark.parametrize("order", [1, 2, 3])
def test_reverse_over_reverse(segments: Any, order: int) -> None:
    """F54: by functions, with respect to the carry, the rows and what is closed over."""
    def run(cut: Any) -> Any:
        def f(*p: Any) -> Any:
            return total(*p, cut)
        for _ in range(order - 1):
            def f(*p: Any, f: Any = f) -> Any:
                return sum((g * g).sum() for g in af.grad(f, argnums=(0, 1, 2))(*p))
        return af.grad(f, argnums=(0, 1, 2))(*map(ad.tensor, (X, XS, W)))
    both(run, segments)


@SEGMENTS
def test_create_graph_and_backward(segments: Any) -> None:
    """F54: PyTorch's calls: a graph twice, `.grad` of leaves, a pull of several cotangents."""
    def run(cut: Any) -> Any:
        p = [ad.tensor(v, requires_grad=True) for v in (X, XS, W)]
        g = ad.autograd.grad(total(*p, cut), p, create_graph=True)
        h = ad.autograd.grad(sum((a * a).sum() for a in g), p, create_graph=True)
        sum((a * a).sum() for a in h).backward()
        rows = ad.autograd.grad(total(*p, cut), p[2], is_grads_batched=True,
                                grad_outputs=ad.tensor([1.0, 2.0], dtype=ad.float64))
        return [*g, *h, *[q.grad for q in p], *rows]
    both(run, segments)


@SEGMENTS
def test_among_other_transforms(segments: Any) -> None:
    """F54: Jacobians, maps of pulls, tangents, and duals by a context."""
    def run(cut: Any) -> Any:
        x, xs, w = map(ad.tensor, (X, XS, W))

        def ys(x: Any, w: Any) -> Any:
            return af.scan(lambda c, row: ((c * w + row).sin(), c * row), x, xs, segments=cut)[1]

        def g(w: Any) -> Any:
            return af.grad(lambda w: total(x, xs, w, cut))(w)
        out = [*af.jacrev(ys, argnums=(0, 1))(x, w), *af.jacfwd(ys, argnums=(0, 1))(x, w),
               af.hessian(lambda w: total(x, xs, w, cut))(w), af.jacrev(g)(w),
               af.vmap(af.grad(lambda w: (g(w) * w).sum()))(ad.tensor(XS)),
               af.jvp(g, (w,), (w,))[1]]
        with ad.autograd.forward_ad.dual_level():
            dual = ad.autograd.forward_ad.make_dual(w, x)
            found = total(x, xs, dual, cut)
            out.append(ad.autograd.forward_ad.unpack_dual(found).tangent)
        return out
    both(run, segments)


def test_scan_within_a_scan() -> None:
    """F54: segments of segments, and gradients within steps."""
    def run(cut: Any) -> Any:
        def inner(c: Any, row: Any) -> tuple[Any, Any]:
            slope = af.grad(lambda v: (v.sin() * row).sum())(c)
            last, _ = af.scan(lambda a, _: (a * 0.9 + slope, None), c, length=4, segments=cut)
            return last, None

        def f(x: Any, xs: Any) -> Any:
            return (af.scan(inner, x, xs, segments=cut)[0] ** 2).sum()
        x, xs = ad.tensor(X), ad.tensor(XS)
        return [*af.grad(f, argnums=(0, 1))(x, xs),
                af.grad(lambda x: (af.grad(f)(x, xs) ** 2).sum())(x)]
    both(run, "sqrt")


def test_random_steps_are_drawn_once() -> None:
    """F81: a segment that runs again draws what it drew, and what follows draws on."""
    def run(cut: Any) -> Any:
        ad.manual_seed(3)

        def f(x: Any) -> Any:
            c, _ = af.scan(lambda c, _: ((c * ad.rand(4, dtype=ad.float64)).sin(), None), x,
                           length=6, segments=cut)
            return (c * c).sum()
        x = ad.tensor(X)
        out = [af.grad(f)(x), ad.rand(3)]
        return [*out, af.grad(lambda x: (af.grad(f)(x) ** 2).sum())(x), ad.rand(3)]
    both(run, "sqrt")


def test_results_that_do_not_move() -> None:
    """F54: integers, constants and operands among what steps return."""
    w = ad.tensor(W, requires_grad=True)
    (c, n, k), ys = af.scan(lambda s, row: ((s[0] * w + row, s[1] + 1, s[2]), (s[1], w)),
                            (ad.tensor(X), ad.tensor(0), w), ad.tensor(XS), segments=2)
    assert n.item() == 7 and not n.requires_grad and ys[0].tolist() == list(range(7))
    assert k.requires_grad and ys[1].requires_grad and not ys[0].requires_grad
    (c.sum() + k.sum() + ys[1].sum()).backward()
    plain = ad.tensor(W, requires_grad=True)
    c, k = ad.tensor(X), plain
    for row in ad.tensor(XS):
        c = c * plain + row
    (c.sum() + k.sum() + 7 * plain.sum()).backward()
    np.testing.assert_allclose(w.grad.numpy(), plain.grad.numpy(), rtol=1e-13)


def test_a_step_that_changes_is_refused() -> None:
    """F81: the message says which shapes came out."""
    sizes = iter([2, 3])
    x = ad.tensor(1.0, requires_grad=True)
    _, ys = af.scan(lambda c, _: (c, c.expand(next(sizes))), x, length=1, segments=1)
    with pytest.raises(AutogradError, match=r"\(3,\).*\(2,\).*branches on changing state"):
        ys.sum().backward()


def test_a_step_that_writes_to_its_carry_is_refused() -> None:
    """F70: by backward; run again it would begin with what it has written."""
    w = ad.tensor(W, requires_grad=True)
    c, _ = af.scan(lambda c, _: (c * w, c.add_(1.0)), ad.tensor(X), length=1, segments=1)
    with pytest.raises(AutogradError, match="modified by an inplace operation: a step wrote"):
        c.sum().backward()


def test_what_was_freed_is_named() -> None:
    """F18: a second backward, as everywhere."""
    x = ad.tensor(X, requires_grad=True)
    out = af.scan(lambda c, _: (c.sin(), None), x, length=4, segments=2)[0].sum()
    out.backward(retain_graph=True)
    out.backward()
    with pytest.raises(AutogradError, match="second time"):
        out.backward()


WIDE = ad.tensor(RNG.normal(size=16384))
STACKS: dict[str, Callable[[Any], Any]] = {
    "gradient": lambda f: af.grad(f)(WIDE),
    "gradient of a gradient": lambda f: af.grad(lambda x: (af.grad(f)(x) ** 2).sum())(WIDE),
    "third": lambda f: af.grad(lambda x: (af.grad(lambda x: (af.grad(f)(x) ** 2).sum())(x)
                                          ** 2).sum())(WIDE),
    "tangent of a gradient": lambda f: af.jvp(af.grad(f), (WIDE,), (WIDE,))[1],
}


@pytest.mark.parametrize("name", STACKS)
def test_memory_grows_as_the_root_of_the_steps(name: str) -> None:
    """F70: four times the steps take about twice the arrays, not four times."""
    def peak(steps: int) -> float:
        def f(x: Any) -> Any:
            c, _ = af.scan(lambda c, _: (c.sin() * 1.01, None), x, length=steps, segments="sqrt")
            return (c * c).sum()
        tracemalloc.start()
        STACKS[name](f)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used / WIDE.array.nbytes
    peak(400)                        # what is compiled on the way is no value of a step
    assert peak(400) < 2.6 * peak(100) < 2.6 * 160


def test_the_graph_holds_a_node_per_segment() -> None:
    """F70: not one per step and op."""
    x = ad.tensor(np.ones(1000), requires_grad=True)
    out = af.scan(lambda c, _: (c.sin() * 1.01, None), x, length=100, segments="sqrt")[0].sum()
    nodes, stack = set(), [out.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            stack += [n for n, _ in node.next_functions]
    assert sum(type(n).__name__ == "SegmentBackward" for n in nodes) == 10
    assert len(nodes) < 20
