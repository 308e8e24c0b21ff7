"""Transforms and their nesting against `torch.func`, loops and closed forms (F10-F16, F54)."""
from __future__ import annotations

import gc
import itertools
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import func as af
from adjoint.autograd import forward_ad as fw
from adjoint.base.errors import AutogradError, TransformError
from adjoint.utils.checkpoint import checkpoint

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning",
                                        "ignore:Attempted to insert a get_attr:UserWarning")
RNG = np.random.default_rng(7)
V = RNG.normal(size=3)
T = RNG.normal(size=3)
M = RNG.normal(size=(4, 3))
W = RNG.normal(size=(3, 3))
B = RNG.normal(size=(2, 4, 3))


def arrays(x: Any) -> list[np.ndarray]:
    """The leaves of a result of either library, as NumPy arrays."""
    if isinstance(x, (tuple, list)):
        return [a for y in x for a in arrays(y)]
    if isinstance(x, dict):
        return [a for y in x.values() for a in arrays(y)]
    return [np.asarray(x.detach().numpy())]


def close(got: Any, want: Any, rtol: float = 1e-9, atol: float = 1e-10) -> None:
    """Two trees hold the same numbers."""
    a, b = arrays(got), arrays(want)
    assert len(a) == len(b)
    for p, q in zip(a, b, strict=True):
        assert p.shape == q.shape, (p.shape, q.shape)
        np.testing.assert_allclose(p, q, rtol=rtol, atol=atol)


def test_pull_is_differentiable_in_its_cotangent() -> None:
    """The pull of vjp is a function like any other, also of a linear function."""
    for h, slope in ((lambda a: a * 2.0, 2.0), (lambda a: a ** 2, 4.0)):
        _, pull = af.vjp(h, ad.tensor(2.0))
        assert af.grad(lambda c, p=pull: p(c)[0] * c)(ad.tensor(3.0)).item() == 6 * slope


def both(program: Callable[..., Any], *xs: np.ndarray) -> None:
    """`program(functions, module, *tensors)` gives the same with us and with PyTorch."""
    ours = program(af, ad, *[ad.tensor(x) for x in xs])
    theirs = program(torch.func, torch, *[torch.tensor(x) for x in xs])
    close(ours, theirs)


def f(m: Any, x: Any) -> Any:
    """A scalar function with cross terms."""
    return (m.sin(x) * x).sum() * m.exp(-(x * x).sum())


def g(m: Any, x: Any) -> Any:
    """A vector function with cross terms."""
    return m.tanh(x) * x.sum() + m.cos(x * x)


NESTINGS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "grad of vmap": (lambda F, m, x: F.grad(
        lambda y: (F.vmap(lambda r: f(m, r))(y) ** 2).sum())(x), (M,)),
    "vmap of grad": (lambda F, m, x: F.vmap(F.grad(lambda r: f(m, r)))(x), (M,)),
    "vmap of grad, shared argument": (lambda F, m, w, x: F.vmap(
        F.grad(lambda w, r: f(m, w @ r)), in_dims=(None, 0))(w, x), (W, M)),
    "vmap of grad, both arguments": (lambda F, m, w, x: F.vmap(
        F.grad(lambda w, r: f(m, w @ r), argnums=(0, 1)), in_dims=(None, 0))(w, x), (W, M)),
    "jvp of grad": (lambda F, m, x, t: F.jvp(F.grad(lambda r: f(m, r)), (x,), (t,)), (V, T)),
    "grad of jvp": (lambda F, m, x, t: F.grad(
        lambda y: F.jvp(lambda r: g(m, r), (y,), (t,))[1].sum())(x), (V, T)),
    "grad of jvp in the tangent": (lambda F, m, x, t: F.grad(
        lambda s: (F.jvp(lambda r: g(m, r), (x,), (s,))[1] ** 2).sum())(t), (V, T)),
    "grad of grad": (lambda F, m, x: F.grad(
        lambda y: (F.grad(lambda r: f(m, r))(y) ** 2).sum())(x), (V,)),
    "third derivative": (lambda F, m, x: F.grad(F.grad(F.grad(
        lambda y: m.sin(y) * y * y)))(x.sum()), (V,)),
    "jvp of jvp": (lambda F, m, x, t: F.jvp(lambda y: F.jvp(
        lambda r: g(m, r), (y,), (t,))[1], (x,), (t,)), (V, T)),
    "vmap of vmap": (lambda F, m, x: F.vmap(F.vmap(lambda r: f(m, r)))(x), (B,)),
    "vmap of vmap of grad": (lambda F, m, x: F.vmap(F.vmap(F.grad(lambda r: f(m, r))))(x), (B,)),
    "grad of vmap of grad": (lambda F, m, x: F.grad(lambda y: (F.vmap(
        F.grad(lambda r: f(m, r)))(y) ** 2).sum())(x), (M,)),
    "vmap of jvp of grad": (lambda F, m, x, t: F.vmap(lambda r, s: F.jvp(
        F.grad(lambda q: f(m, q)), (r,), (s,)))(x, m.cos(x)), (M, T)),
    "vmap of jvp, shared primal": (lambda F, m, x, t: F.vmap(
        lambda s: F.jvp(lambda r: g(m, r), (x,), (s,))[1])(t), (V, M)),
    "jvp of vmap": (lambda F, m, x: F.jvp(F.vmap(lambda r: g(m, r)), (x,), (m.cos(x),)), (M,)),
    "vjp of jvp of vmap": (lambda F, m, x: F.vjp(lambda y: F.jvp(
        F.vmap(lambda r: g(m, r)), (y,), (m.cos(y),))[1], x)[1](m.sin(x)), (M,)),
    "jacrev": (lambda F, m, x: F.jacrev(lambda r: g(m, r))(x), (V,)),
    "jacfwd": (lambda F, m, x: F.jacfwd(lambda r: g(m, r))(x), (V,)),
    "jacrev of jacfwd": (lambda F, m, x: F.jacrev(F.jacfwd(lambda r: g(m, r)))(x), (V,)),
    "jacfwd of jacrev": (lambda F, m, x: F.jacfwd(F.jacrev(lambda r: g(m, r)))(x), (V,)),
    "jacrev of jacrev": (lambda F, m, x: F.jacrev(F.jacrev(lambda r: g(m, r)))(x), (V,)),
    "jacfwd of jacfwd": (lambda F, m, x: F.jacfwd(F.jacfwd(lambda r: g(m, r)))(x), (V,)),
    "hessian": (lambda F, m, x: F.hessian(lambda r: f(m, r))(x), (V,)),
    "vmap of hessian": (lambda F, m, x: F.vmap(F.hessian(lambda r: f(m, r)))(x), (M,)),
    "grad of hessian": (lambda F, m, x: F.grad(
        lambda y: (F.hessian(lambda r: f(m, r))(y) ** 2).sum())(x), (V,)),
    "vmap with out_dims": (lambda F, m, x: F.vmap(lambda r: r * r, in_dims=1, out_dims=1)(x), (M,)),
    "linearize": (lambda F, m, x, t: F.linearize(lambda r: g(m, r), x)[1](t), (V, T)),
}


@pytest.mark.parametrize("name", NESTINGS)
def test_nesting(name: str) -> None:
    """F10-F13, F54: every stack of transforms gives PyTorch's numbers."""
    program, xs = NESTINGS[name]
    both(program, *xs)


@pytest.mark.parametrize("dims", [(None, 0), (0, None)])
def test_results_carry_no_tape(dims: tuple[Any, Any]) -> None:
    """Where nothing outside requires grad, neither does a gradient: loops over it stay flat."""
    h = af.grad(lambda w, x: ((w @ x) ** 2).sum())
    given = (ad.tensor(W), ad.tensor(M)) if dims[0] is None else (ad.tensor(B[:, :, :]),
                                                                  ad.tensor(V))
    assert not af.vmap(h, in_dims=dims)(*given).requires_grad


def test_trees_leave_no_garbage() -> None:
    """Arguments and results are freed by their reference counts, not by the cyclic collector."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            af.tree_map(lambda a: a, {"a": [1, 2]})
            af.jvp(lambda r: r * r, (ad.tensor(V),), (ad.tensor(T),))
        assert gc.collect() == 0
    finally:
        gc.enable()


class TestPrograms:
    """What may stand inside of the function."""

    def test_checkpoint(self) -> None:
        """grad, vmap of grad, and second order through a recomputed region."""
        x = ad.tensor(V)

        def kept(r: Any) -> Any:
            return checkpoint(lambda q: f(ad, q), r, use_reentrant=False)
        close(af.grad(kept)(x), af.grad(lambda r: f(ad, r))(x))
        close(af.vmap(af.grad(kept))(ad.tensor(M)), af.vmap(af.grad(lambda r: f(ad, r)))(
            ad.tensor(M)))
        close(af.grad(lambda y: (af.grad(kept)(y) ** 2).sum())(x),
              af.grad(lambda y: (af.grad(lambda r: f(ad, r))(y) ** 2).sum())(x))

    def test_in_place_code(self) -> None:
        """Writes to intermediates, by method and by index."""
        def body(F: Any, m: Any, x: Any) -> Any:
            def h(r: Any) -> Any:
                y = m.sin(r)
                y.mul_(r)
                y[1] = y[0] * 2
                y[0:1] += r[2]
                return (y * y).sum()
            return F.grad(h)(x)
        both(body, V)

    @pytest.mark.parametrize("stack", ["vmap of grad", "jvp", "jvp of grad"])
    def test_in_place_under(self, stack: str) -> None:
        def h(m: Any, r: Any) -> Any:
            y = r * 1.0
            y.mul_(r)
            y[1] = y[0] * 2
            return (y * y * y).sum()
        if stack == "vmap of grad":
            both(lambda F, m, x: F.vmap(F.grad(lambda r: h(m, r)))(x), M)
        elif stack == "jvp":
            both(lambda F, m, x, t: F.jvp(lambda r: h(m, r), (x,), (t,)), V, T)
        else:
            both(lambda F, m, x, t: F.jvp(F.grad(lambda r: h(m, r)), (x,), (t,)), V, T)

    def test_views_alias(self) -> None:
        """A write through a view is seen by its base."""
        def body(F: Any, m: Any, x: Any) -> Any:
            def h(r: Any) -> Any:
                y = m.cos(r)
                v = y.view(-1)[1:]
                v.mul_(3.0)
                return (y * r).sum()
            return F.grad(h)(x), F.jvp(h, (x,), (x,))
        both(body, V)

    def test_python_control_flow(self) -> None:
        """F14: grad and jvp follow the branch that was taken."""
        def h(x: Any) -> Any:
            return x * x if x > 0 else -x
        assert af.grad(h)(ad.tensor(3.0)).item() == 6.0
        assert af.grad(h)(ad.tensor(-3.0)).item() == -1.0
        assert af.jvp(h, (ad.tensor(3.0),), (ad.tensor(1.0),))[1].item() == 6.0


class Cube(ad.autograd.Function):
    """All three rules, with setup_context."""

    calls: list[Any] = []

    @staticmethod
    def forward(x: Any) -> Any:
        return x ** 3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x ** 2 * ct

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x ** 2 * t


class MappedCube(Cube):
    """With a vmap rule of its own."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any) -> Any:
        MappedCube.calls.append((info.batch_size, in_dims))
        return Cube.apply(x), in_dims[0]


class TestFunction:
    """autograd.Function inside of transforms."""

    @pytest.mark.parametrize("kind", [Cube, MappedCube])
    def test_orders(self, kind: Any) -> None:
        x, t = ad.tensor(V), ad.tensor(T)

        def h(r: Any) -> Any:
            return kind.apply(r).sum()
        close(af.grad(h)(x), ad.tensor(3 * V ** 2))
        close(af.jvp(h, (x,), (t,))[1], ad.tensor((3 * V ** 2 * T).sum()))
        close(af.vmap(af.grad(h))(ad.tensor(M)), ad.tensor(3 * M ** 2))
        close(af.grad(lambda y: af.grad(h)(y).sum())(x), ad.tensor(6 * V))
        close(af.grad(lambda y: af.jvp(kind.apply, (y,), (t,))[1].sum())(x),
              ad.tensor(6 * V * T))

    def test_forward_over_reverse(self) -> None:
        value, push = af.jvp(af.grad(lambda r: Cube.apply(r).sum()), (ad.tensor(V),),
                             (ad.tensor(T),))
        close(value, ad.tensor(3 * V ** 2))
        close(push, ad.tensor(6 * V * T))

    def test_vmap_staticmethod(self) -> None:
        MappedCube.calls.clear()
        close(af.vmap(MappedCube.apply, in_dims=1)(ad.tensor(M)), ad.tensor((M ** 3).T))
        assert MappedCube.calls == [(3, (0,))]


class TestConfusion:
    """Perturbation confusion, and values that outlive their transform."""

    def test_nested_forward(self) -> None:
        """d/dx x * (d/dy (x + y)) = 1 at every x (Siskind and Pearlmutter 2005)."""
        def d(h: Any) -> Any:
            return lambda x: af.jvp(h, (x,), (ad.ones_like(x),))[1]
        x = ad.tensor(1.0)
        assert d(lambda x: x * d(lambda y: x + y)(ad.tensor(1.0)))(x).item() == 1.0

    @pytest.mark.parametrize("outer,inner", list(itertools.product(["grad", "jvp"], repeat=2)))
    def test_every_pair(self, outer: str, inner: str) -> None:
        def d(h: Any, mode: str) -> Any:
            if mode == "grad":
                return af.grad(h)
            return lambda x: af.jvp(h, (x,), (ad.ones_like(x),))[1]
        got = d(lambda x: x * d(lambda y: x * y * y, inner)(ad.tensor(3.0)), outer)(
            ad.tensor(2.0))
        assert got.item() == 24.0                       # d/dx x * 6x

    def test_unrelated_tapes(self) -> None:
        """grad does not write .grad of tensors outside, and an outer tape goes on through it."""
        w = ad.tensor(2.0, requires_grad=True)
        out = af.grad(lambda x: w * x * x)(ad.tensor(3.0))
        assert w.grad is None
        out.backward()
        assert w.grad.item() == 6.0

    @pytest.mark.parametrize("kind", ["vmap", "jvp"])
    def test_escaped(self, kind: str) -> None:
        """F54: the message names the transform and the line it was called at."""
        held = []

        def h(x: Any) -> Any:
            held.append(x)
            return x * 2.0
        if kind == "vmap":
            af.vmap(h)(ad.tensor(V))
        else:
            af.jvp(h, (ad.tensor(V),), (ad.tensor(T),))
        with pytest.raises(AutogradError,
                           match=rf"{kind} called at .*test_func_transforms"):
            held[0] + 1.0


    @pytest.mark.parametrize("d", [af.grad, af.value_and_grad, af.jacrev])
    def test_escaped_from_reverse_mode(self, d: Any) -> None:
        """F54: a backward that reaches variables of calls that have ended, and nothing else."""
        held: list[Any] = []

        def h(x: Any) -> Any:
            held.append((x, x * 2.0, x * w))
            return (x * x).sum()
        w = ad.tensor(V, requires_grad=True)
        for _ in range(2):
            d(h)(ad.tensor(V))
        x, linear, mixed = held[0]
        for t in (linear.sum(), (x * 3.0).sum(), (linear + held[1][1]).sum()):
            with pytest.raises(TransformError, match=r"called at .*test_func_transforms.py:\d+ in"):
                t.backward()
        assert x.grad is None
        mixed.sum().backward()                          # w is the caller's: x was a constant to it
        np.testing.assert_array_equal(w.grad, V)

    def test_results_may_hold_variables_of_calls_that_have_ended(self) -> None:
        """F54: d/dw of 2 w x leads to x too, which nobody asks for."""
        w = ad.tensor(2.0, requires_grad=True)
        af.grad(lambda x: w * x * x)(ad.tensor(3.0)).backward()
        assert w.grad.item() == 6.0
        outer = af.grad(lambda v: af.grad(lambda x: v * x * x)(ad.tensor(3.0)))
        assert outer(ad.tensor(2.0)).item() == 6.0


Pair = namedtuple("Pair", ["a", "b"])


@dataclass
class Point:
    """A dataclass as a tree."""

    x: Any
    y: Any


class Box:
    """A registered node."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside


af.register_pytree_node(Box, lambda b: ((b.inside,), None), lambda _, c: Box(c[0]))


class TestTrees:
    """Containers everywhere."""

    def test_grad_keeps_the_structure(self) -> None:
        a, b = ad.tensor(V), ad.tensor(T)
        tree = {"p": Pair(a, [b, None]), "q": Point(a, b), "r": Box(a)}

        def h(t: Any) -> Any:
            return (t["p"].a * t["p"].b[0]).sum() + (t["q"].x * t["q"].y ** 2).sum() + (
                t["r"].inside ** 2).sum()
        got = af.grad(h)(tree)
        assert type(got["p"]) is Pair and got["p"].b[1] is None
        assert type(got["q"]) is Point and type(got["r"]) is Box
        close(got["p"].a, b)
        close(got["q"].y, ad.tensor(2 * V * T))
        close(got["r"].inside, ad.tensor(2 * V))

    def test_vmap_in_dims_tree(self) -> None:
        def h(t: Any, s: Any) -> Any:
            return {"out": t["w"] @ s, "n": (t["b"] * s).sum()}
        got = af.vmap(h, in_dims=({"w": None, "b": 0}, 0))(
            {"w": ad.tensor(W), "b": ad.tensor(M)}, ad.tensor(M))
        close(got["out"], ad.tensor(M @ W.T))
        close(got["n"], ad.tensor((M * M).sum(1)))

    def test_jvp_and_vjp(self) -> None:
        x, t = {"a": ad.tensor(V)}, {"a": ad.tensor(T)}
        out, push = af.jvp(lambda d: Point(d["a"] ** 2, d["a"].sum()), (x,), (t,))
        close(push.x, ad.tensor(2 * V * T))
        value, pull = af.vjp(lambda d: Pair(d["a"] ** 2, d["a"].sum()), x)
        (ct,) = pull(Pair(ad.tensor(T), ad.tensor(np.float64(2.0))))
        close(ct["a"], ad.tensor(2 * V * T + 2.0))

    def test_has_aux(self) -> None:
        x = ad.tensor(V)
        grads, aux = af.grad(lambda r: ((r * r).sum(), {"double": r * 2}), has_aux=True)(x)
        close(grads, ad.tensor(2 * V))
        close(aux["double"], ad.tensor(2 * V))
        assert not aux["double"].requires_grad
        (value, aux), grads = af.value_and_grad(lambda r: ((r * r).sum(), 3), has_aux=True)(x)
        assert aux == 3
        _, pull, aux = af.vjp(lambda r: (r * r, r), x, has_aux=True)
        close(pull(x)[0], ad.tensor(2 * V * V))
        _, push, aux = af.jvp(lambda r: (r * r, r + 1), (x,), (x,), has_aux=True)
        close(aux, ad.tensor(V + 1))
        jac, aux = af.jacrev(lambda r: (r * r, r), has_aux=True)(x)
        close(jac, ad.tensor(np.diag(2 * V)))
        jac, aux = af.jacfwd(lambda r: (r * r, r), has_aux=True)(x)
        close(aux, x)


class TestVmap:
    """What vmap says no to, and its options."""

    def test_data_dependent_branch(self) -> None:
        """F16: the message names the line of the branch."""
        def h(x: Any) -> Any:
            if x > 0:
                return x
            return -x
        with pytest.raises(RuntimeError, match="data-dependent control flow") as e:
            af.vmap(h)(ad.tensor(V))
        line = h.__code__.co_firstlineno + 1
        assert f"test_func_transforms.py:{line}" in str(e.value)

    @pytest.mark.parametrize("dims,xs,text", [
        ((0, 0), (M, B), "same size"),
        ((None, None), (M, M), "None"),
        ((3, 0), (M, M), "in_dim=3"),
        ((0, 0, 0), (M, M), "in_dims"),
    ])
    def test_errors(self, dims: Any, xs: Any, text: str) -> None:
        with pytest.raises(ValueError, match=text):
            af.vmap(lambda a, b: a, in_dims=dims)(*[ad.tensor(x) for x in xs])

    @pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
    def test_chunk_size(self, size: int) -> None:
        h = af.grad(lambda r: f(ad, r))
        close(af.vmap(h, chunk_size=size)(ad.tensor(M)), af.vmap(h)(ad.tensor(M)))

    def test_collectives(self) -> None:
        x = ad.tensor(M)
        close(af.vmap(lambda r: r / af.psum(r, "i"), axis_name="i")(x), ad.tensor(M / M.sum(0)))
        close(af.vmap(lambda r: r - af.pmean(r, "i"), axis_name="i")(x),
              ad.tensor(M - M.mean(0)))
        close(af.vmap(lambda r: r - af.pmax(r, "i"), axis_name="i")(x), ad.tensor(M - M.max(0)))
        with pytest.raises(ValueError, match="axis_name"):
            af.vmap(lambda r: af.psum(r, "j"), axis_name="i")(x)
        grads = af.grad(lambda y: (af.vmap(
            lambda r: (r / af.psum(r, "i")) ** 2, axis_name="i")(y)).sum())(x)
        t = torch.tensor(M, requires_grad=True)
        ((t / t.sum(0)) ** 2).sum().backward()
        close(grads, t.grad)

    def test_randomness(self) -> None:
        x = ad.zeros(5)
        with pytest.raises(RuntimeError):
            af.vmap(lambda r: r + ad.rand(()))(x)
        different = af.vmap(lambda r: r + ad.rand(()), randomness="different")(x).tolist()
        same = af.vmap(lambda r: r + ad.rand(()), randomness="same")(x).tolist()
        assert len(set(different)) == 5 and len(set(same)) == 1


class TestJacobian:
    """Choosing the mode, chunks, several arguments."""

    def test_choice(self) -> None:
        """F11: reverse where inputs are many, forward where outputs are."""
        _, wide = af.jacobian(lambda x: x.sum(), explain=True)(ad.ones(5))
        _, tall = af.jacobian(lambda x: x * ad.ones(5), explain=True)(ad.ones(1))
        assert (wide.mode, tall.mode) == ("reverse", "forward")

    @pytest.mark.parametrize("chunk", [1, 2, 5])
    def test_chunks(self, chunk: int) -> None:
        x = ad.tensor(V)
        want = af.jacrev(lambda r: g(ad, r))(x)
        for mode in (af.jacrev, af.jacfwd):
            close(mode(lambda r: g(ad, r), chunk_size=chunk)(x), want)

    def test_argnums(self) -> None:
        def body(F: Any, m: Any, w: Any, x: Any) -> Any:
            def h(w: Any, x: Any) -> Any:
                return m.tanh(w @ x)
            return (F.jacrev(h, argnums=(0, 1))(w, x), F.jacfwd(h, argnums=(0, 1))(w, x),
                    F.hessian(lambda w, x: h(w, x).sum(), argnums=(0, 1))(w, x))
        both(body, W, V)

    def test_products(self) -> None:
        x, t = ad.tensor(V), ad.tensor(T)
        H = af.hessian(lambda r: f(ad, r))(x)
        value, (push,) = af.hvp(lambda r: f(ad, r), (x,), (t,))
        close(push, H @ t)
        close(af.vhp(lambda r: f(ad, r), (x,), (t,))[1], (t @ H,))


class TestForwardContext:
    """`forward_ad`: dual tensors."""

    def test_values(self) -> None:
        with fw.dual_level():
            x = fw.make_dual(ad.tensor(V), ad.tensor(T))
            primal, tangent = fw.unpack_dual(g(ad, x))
        want = af.jvp(lambda r: g(ad, r), (ad.tensor(V),), (ad.tensor(T),))
        close((primal, tangent), want)

    def test_no_tangent(self) -> None:
        with fw.dual_level():
            assert fw.unpack_dual(ad.tensor(V)).tangent is None

    def test_outside(self) -> None:
        with pytest.raises(RuntimeError, match="no level"):
            fw.make_dual(ad.tensor(V), ad.tensor(T))
        with pytest.raises(RuntimeError, match="none is active"):
            fw.exit_dual_level()

    def test_over_a_tape(self) -> None:
        """Forward over reverse with `.backward`-style code inside a level."""
        with fw.dual_level():
            x = fw.make_dual(ad.tensor(V), ad.tensor(T))
            push = fw.unpack_dual(af.grad(lambda r: f(ad, r))(x)).tangent
        close(push, af.hvp(lambda r: f(ad, r), (ad.tensor(V),), (ad.tensor(T),))[1][0])


def test_a_leaf_that_is_output_and_used() -> None:
    """The cotangent of an output that is itself a variable adds to those of its uses, whatever
    order the walk finds them in."""
    held = []                                  # other objects at other addresses each time
    for k in range(40):
        x, y = ad.tensor([1.0, 2.0], requires_grad=True), ad.tensor([3.0, 4.0], requires_grad=True)
        roots = [x * y, y, y * 2.0, x]
        held.append([object() for _ in range(k)] + roots)
        ad.autograd.backward(roots, [ad.ones(2)] * 4)
        assert y.grad.tolist() == [4.0, 5.0] and x.grad.tolist() == [4.0, 5.0]


class TestFoundByRandomPrograms:
    """Stacks that were once wrong, in the fewest lines."""

    def test_checkpoint_inside_of_forward_mode(self) -> None:
        """Its residuals belong to a jvp that is over when the gradient is taken."""
        def kept(r: Any) -> Any:
            return checkpoint(lambda q: f(ad, q), r, use_reentrant=False)

        def slope(h: Any) -> Any:
            return af.grad(lambda y: af.jvp(h, (y,), (ad.tensor(T),))[1])(ad.tensor(V))
        close(slope(kept), slope(lambda r: f(ad, r)))
        close(af.grad(lambda m: (af.vmap(kept)(m) ** 2).sum())(ad.tensor(M)),
              af.grad(lambda m: (af.vmap(lambda r: f(ad, r))(m) ** 2).sum())(ad.tensor(M)))

    def test_checkpoint_around_a_custom_rule_in_forward_mode(self) -> None:
        """Hooks get no values of a transform."""
        def region(y: Any) -> Any:
            return af.jvp(lambda z: Cube.apply(z) * z, (y,), (ad.tensor(T),))[1].sum()
        got = af.grad(lambda y: checkpoint(region, y, use_reentrant=False))(ad.tensor(V))
        close(got, ad.tensor(12 * V ** 2 * T))

    def test_a_constant_that_is_written_to_under_a_rule(self) -> None:
        """What a lower tape saved of the constant is its old value."""
        def h(x: Any) -> Any:
            y = ad.tensor(W) + 0.0
            y.mul_(x)
            return y.sum()
        g = af.custom_jvp(h)
        g.defjvp(lambda p, t: af.jvp(h, p, t))
        close(af.jacrev(g)(ad.tensor(V)), ad.tensor(W.sum(0)))

    def test_a_saved_constant_that_is_written_to_raises(self) -> None:
        """As outside of transforms: the write and the node are named."""
        def h(x: Any) -> Any:
            y = ad.tensor(W[0]) * 1.0
            w = ad.tensor(V, requires_grad=True)
            z = (w * y).sum()
            y.mul_(x)
            return ad.autograd.grad(z, w)[0]
        with pytest.raises(AutogradError, match="modified by an inplace operation"):
            af.jvp(h, (ad.tensor(V),), (ad.tensor(T),))

    def test_recomputation_asked_for_inside_of_a_vmap(self) -> None:
        """A region that ran outside of the vmap is run again outside of it."""
        def steps(y: Any) -> Any:
            return af.scan(lambda c, _: (c * 0.9, c.sin()), y, length=4, segments="sqrt")[1]

        def plain(y: Any) -> Any:
            return af.scan(lambda c, _: (c * 0.9, c.sin()), y, length=4)[1]

        def total(h: Any) -> Any:
            inner = af.jacrev(h)
            return af.grad(lambda y: (af.scan(lambda c, _: (c * 0.8, inner(c)), y, length=2,
                                              segments="sqrt")[1] ** 2).sum())(ad.tensor(V))
        close(total(steps), total(plain))
