"""Errors, random numbers and names of the transforms (F10-F16, F54, F60)."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import func as af
from adjoint.base.errors import ArgumentError, AutogradError, DTypeError, StructureError

V = np.array([0.3, -0.7, 1.2])
M = np.random.default_rng(0).normal(size=(4, 3))


def t(x: Any) -> Any:
    """A double tensor."""
    return ad.tensor(np.asarray(x))


@pytest.mark.parametrize("kind,said,call", [
    (AutogradError, r"The shape is \[3\]", lambda: af.grad(lambda x: x)(t(V))),
    (DTypeError, "got adjoint.int64", lambda: af.grad(lambda x: x.sum())(ad.tensor([1, 2]))),
    (DTypeError, "got int", lambda: af.grad(lambda x: x * 1.0)(3)),
    (DTypeError, "complex value", lambda: af.grad(lambda x: x * 1j)(t(1.0))),
    (DTypeError, "complex arguments", lambda: af.grad(lambda x: x, holomorphic=True)(t(1.0))),
    (DTypeError, "complex outputs", lambda: af.jacrev(lambda x: x.abs(), holomorphic=True)(
        t([1j]))),
    (ArgumentError, "Got argnum=3, but only 1 positional inputs", lambda: af.grad(
        lambda x: x, argnums=3)(t(1.0))),
    (ArgumentError, r"\(output, aux\)", lambda: af.grad(lambda x: x, has_aux=True)(t(1.0))),
    (DTypeError, "float64, its tangent", lambda: af.jvp(
        lambda x: x, (t(V),), (ad.tensor(V, dtype=ad.float32),))),
    (ArgumentError, r"size \[3\] while .* of size \[4, 3\]", lambda: af.jvp(
        lambda x: x, (t(V),), (t(M),))),
    (ArgumentError, "same structure", lambda: af.linearize(lambda x: x, t(V))[1](t(V), t(V))),
    (ArgumentError, "4 for input 0, 3 for input 1", lambda: af.vmap(lambda x, y: x * y)(
        t(M), t(V))),
    (ArgumentError, "5 for axis_size", lambda: af.vmap(lambda x: x, axis_size=5)(t(M))),
    (ArgumentError, "None", lambda: af.vmap(lambda x: x, in_dims=None)(t(M))),
    (ArgumentError, "got: <class 'float'>", lambda: af.vmap(lambda x: x, in_dims=0.5)(t(M))),
    (ArgumentError, "Got in_dim=a for an input but in_dim must be", lambda: af.vmap(
        lambda x, y: x, in_dims=(0, "a"))(t(M), t(M))),
    (StructureError, "cotangents: {'b': \\*}, primal output: {'a': \\*}", lambda: af.vjp(
        lambda x: {"a": x}, t(V))[1]({"b": t(V)})),
    (ArgumentError, "one value per example", lambda: af.vmap(lambda x: x, out_dims=None)(t(M))),
    (ArgumentError, "chunk_size=2", lambda: af.vmap(lambda x: af.psum(x, "i"), axis_name="i",
                                                    chunk_size=2)(t(M))),
    (ArgumentError, r"only \['i'\]", lambda: af.vmap(lambda x: af.psum(x, "j"), axis_name="i")(
        t(M))),
    (TypeError, "in_axis", lambda: af.vmap(lambda x: x, in_axis=0)),
    (AutogradError, "nonzero", lambda: af.vmap(ad.nonzero)(t(M))),
    (AutogradError, "boolean mask", lambda: af.vmap(lambda x: x[x > 0])(t(M))),
    (AutogradError, "random operation", lambda: af.vmap(ad.nn.functional.dropout)(t(M))),
    (AutogradError, "random operation", lambda: af.vmap(lambda r: af.vmap(
        lambda x: x + ad.rand(()), randomness="same")(r))(t(M))),
    (ArgumentError, "no argument 'z'", lambda: af.grad_named(lambda x: x, "z")),
    (ArgumentError, "argnum is 2", lambda: af.deriv(lambda x: x, 2)(t(1.0))),
    (ArgumentError, "only be given by keyword", lambda: _keyword_only(t(1.0), k=2.0)),
    (ArgumentError, "no branches", lambda: af.switch(0, [])),
])
def test_errors(kind: Any, said: str, call: Any) -> None:
    """What a wrong call says."""
    with pytest.raises(kind, match=said):
        call()


@af.custom_jvp
def _keyword_only(x: Any, *, k: float) -> Any:
    return x * k


_keyword_only.defjvp(lambda p, s: (p[0], s[0]))

DRAWS = {
    "rand": lambda x: ad.rand(3), "randn_like": ad.randn_like,
    "randperm": lambda x: ad.randperm(50), "randint": lambda x: ad.randint(0, 1000, (3,)),
    "normal": lambda x: ad.normal(x, 1.0),
    "dropout": lambda x: ad.nn.functional.dropout(ad.ones(50), 0.5),
    "alpha_dropout": lambda x: ad.nn.functional.alpha_dropout(ad.ones(50), 0.5, True),
    "rrelu": lambda x: ad.nn.functional.rrelu(-ad.ones(50), training=True),
    "gumbel_softmax": lambda x: ad.nn.functional.gumbel_softmax(ad.zeros(9)),
    "bernoulli": lambda x: ad.bernoulli(ad.full((50,), 0.5)),
    "multinomial": lambda x: ad.multinomial(ad.ones(50), 20),
    "replacement": lambda x: ad.multinomial(ad.ones(50), 20, replacement=True),
    "poisson": lambda x: ad.poisson(ad.full((20,), 30.0)),
    "uniform_": lambda x: ad.empty(3).uniform_(), "exponential_": lambda x: ad.empty(3)
    .exponential_(), "random_": lambda x: ad.empty(9).random_(0, 1000),
}


@pytest.mark.parametrize("name", DRAWS)
def test_randomness_modes(name: str) -> None:
    """F60: "different" draws per example, at every level; "same" once for all."""
    def run(mode: str) -> Any:
        ad.manual_seed(0)
        inner = af.vmap(lambda x: DRAWS[name](x) + 0 * x.sum(), randomness=mode)
        return af.vmap(inner, randomness="different")(ad.ones(2, 4, 3)).numpy().reshape(2, 4, -1)
    different, same = run("different"), run("same")
    assert len(np.unique(different.reshape(8, -1), axis=0)) == 8
    np.testing.assert_allclose(same, np.repeat(same[:, :1], 4, axis=1))
    if name != "normal":                       # its mean is mapped, so no two draws are equal
        assert len(np.unique(same[:, 0], axis=0)) == 2


@pytest.mark.parametrize("chunk", [None, 1, 2, 4])
def test_parts_of_a_map_share_the_same_draws(chunk: int | None) -> None:
    """F60: "same" is the same for all examples, also where they run in several parts; "different"
    goes on drawing from part to part."""
    def draw(v: Any) -> Any:
        return v + ad.rand((), dtype=ad.float64)
    ad.manual_seed(3)
    once = ad.rand(4, dtype=ad.float64).numpy()
    ad.manual_seed(3)
    same = af.vmap(draw, randomness="same", chunk_size=chunk)(t(np.zeros(4))).numpy()
    np.testing.assert_array_equal(same, np.full(4, once[0]))
    ad.manual_seed(3)
    own = af.vmap(draw, randomness="different", chunk_size=chunk)(t(np.zeros(4))).numpy()
    np.testing.assert_array_equal(own, once)

    def noisy(p: Any) -> Any:              # one mask for every column, of both leaves
        return ad.nn.functional.dropout(p["a"] + p["b"])
    ad.manual_seed(0)
    columns = af.jacfwd(noisy, randomness="same", chunk_size=chunk)({"a": t(M), "b": t(M)})
    mask = columns["a"].numpy().reshape(M.size, M.size)
    assert set(np.unique(np.diag(mask))) == {0.0, 2.0}
    np.testing.assert_array_equal(mask, np.diag(np.diag(mask)))
    np.testing.assert_array_equal(columns["b"].numpy().reshape(M.size, M.size), mask)


@pytest.mark.parametrize("name", ["vmap", "jacfwd", "jacrev", "jacobian"])
def test_a_part_has_some_examples(name: str) -> None:
    """The size of a part is refused where it is given, before anything runs."""
    for size in (0, -2):
        with pytest.raises(ValueError, match=f"{name}: `?chunk_size`? should be .* {size}"):
            getattr(af, name)(ad.sin, chunk_size=size)


def test_copies_keep_their_derivative() -> None:
    """deepcopy of a value inside of a transform is a value of that transform; of one that has
    escaped it raises as every use does."""
    import copy
    held = []

    def h(v: Any) -> Any:
        held.append(v)
        w = copy.deepcopy([v, v])
        assert w[0] is w[1] is not v
        w[0].mul_(3.0)
        return w[1] + v
    x = t(V)
    assert ad.allclose(af.vmap(h)(x), 4 * x)
    assert ad.allclose(af.jvp(h, (x,), (x * x,))[1], 4 * x * x)
    for kind, v in zip(("vmap", "jvp"), held, strict=True):
        with pytest.raises(TypeError, match=f"{kind} called at .*test_func_names"):
            copy.deepcopy(v)


def test_formatted_values() -> None:
    """A format is a use of the value: fine where there is one, named where there are several."""
    seen = []
    af.jvp(lambda v: (seen.append(f"{v.sum():.2f}"), v)[1], (t(V),), (t(V),))
    assert seen == [f"{V.sum():.2f}"]
    af.vmap(lambda v: (seen.append(f"{v.sum()}"), v)[1])(t(M))       # for print, without a format
    assert seen[1].startswith("BatchTensor")
    with pytest.raises(TypeError, match=r"(?s)calling .item\(\) .* at .*test_func_names"):
        af.vmap(lambda v: v * len(f"{v.sum():.2f}"))(t(M))


@pytest.mark.parametrize("name", ["bernoulli", "multinomial", "replacement", "poisson"])
def test_draws_of_mapped_probabilities(name: str) -> None:
    """Every example's own distribution is drawn from, and nothing else."""
    ad.manual_seed(1)
    sure = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    draw = {"bernoulli": ad.bernoulli, "multinomial": lambda p: ad.multinomial(p, 1),
            "replacement": lambda p: ad.multinomial(p, 5, replacement=True),
            "poisson": lambda p: ad.poisson(p * 1e6)}[name]
    got = af.vmap(draw, randomness="different")(t(sure)).numpy()
    if name == "bernoulli":
        assert (got == sure).all()
    elif name == "poisson":
        assert ((got > 9e5) == (sure == 1)).all() and (got[sure == 0] == 0).all()
    else:
        assert (got == np.array([[1], [2]])).all()


def test_dropout_gradient_uses_the_examples_own_mask() -> None:
    """The gradient of mapped dropout is zero where that example's value was dropped."""
    ad.manual_seed(0)
    value, g = af.vmap(lambda x: af.vjp(ad.nn.functional.dropout, x)[0], randomness="different")(
        t(np.ones((4, 20)))), None
    ad.manual_seed(0)
    g = af.vmap(af.grad(lambda x: ad.nn.functional.dropout(x).sum()), randomness="different")(
        t(np.ones((4, 20))))
    assert set(np.unique(g.numpy())) == {0.0, 2.0}
    np.testing.assert_array_equal(g.numpy(), value.numpy())


class TestCollectives:
    """psum and its family, wherever the gradient is taken."""

    def test_forward_mode(self) -> None:
        x, s = t(M), t(np.cos(M))
        got = af.jvp(af.vmap(lambda r: r * af.psum(r, "i"), axis_name="i"), (x,), (s,))[1]
        want = s * x.sum(0) + x * s.sum(0)
        assert ad.allclose(got, want)
        inside = af.vmap(lambda r, q: af.jvp(lambda z: z * af.psum(z, "i"), (r,), (q,))[1],
                         axis_name="i")(x, s)
        assert ad.allclose(inside, want)

    @pytest.mark.parametrize("name", ["psum", "pmean", "pmax", "pmin", "all_gather"])
    def test_gradient_outside(self, name: str) -> None:
        """grad of a vmap with collectives inside = grad of the batched function by hand."""
        def whole(m: Any) -> Any:
            return {"psum": lambda: m.sum(0), "pmean": lambda: m.mean(0), "pmax": lambda: m.amax(0),
                    "pmin": lambda: m.amin(0), "all_gather": lambda: (m * m).sum(0)}[name]()

        def one(r: Any) -> Any:
            c = getattr(af, name)(r, "i")
            return r * ((c * c).sum(0) if name == "all_gather" else c)
        got = af.grad(lambda m: (af.vmap(one, axis_name="i")(m) ** 2).sum())(t(M))
        assert ad.allclose(got, af.grad(lambda m: ((m * whole(m)) ** 2).sum())(t(M)))

    @pytest.mark.parametrize("name", ["psum", "pmean", "pmax", "all_gather"])
    def test_gradient_inside_sums_over_examples(self, name: str) -> None:
        """grad inside of the vmap = grad outside of the summed outputs, second order too."""
        def one(r: Any) -> Any:
            return (getattr(af, name)(r * r, "i") * r).sum()
        inside = af.vmap(af.grad(one), axis_name="i")(t(M))
        outside = af.grad(lambda m: af.vmap(one, axis_name="i")(m).sum())(t(M))
        assert ad.allclose(inside, outside)

        def again(m: Any) -> Any:
            return (af.vmap(af.grad(one), axis_name="i")(m) ** 2).sum()
        step = 1e-6 * np.cos(M)
        measured = (again(t(M + step)) - again(t(M - step))) / 2e-6
        assert ad.allclose((af.grad(again)(t(M)) * np.cos(M)).sum(), measured, rtol=1e-6)


class TestHips:
    """F54: HIPS autograd's names against HIPS autograd."""

    @pytest.fixture
    def hips(self) -> Any:
        return pytest.importorskip("autograd")

    def test_names(self, hips: Any) -> None:
        import autograd.numpy as anp

        def f(np_: Any) -> Any:
            return lambda x, y: (np_.sin(x) * y * y).sum()
        x, y, v = V, V + 1.0, np.cos(V)
        ours, theirs = f(ad), f(anp)
        pairs = [
            (af.elementwise_grad(lambda a: ad.tanh(a) ** 2)(t(x)),
             hips.elementwise_grad(lambda a: anp.tanh(a) ** 2)(x)),
            (af.deriv(lambda a: ad.tanh(a) ** 2)(t(x)), hips.deriv(lambda a: anp.tanh(a) ** 2)(x)),
            (af.grad_named(ours, "y")(t(x), t(y)), hips.grad(theirs, 1)(x, y)),
            (af.multigrad_dict(ours)(t(x), y=t(y))["y"], hips.grad(theirs, 1)(x, y)),
            (af.hessian_vector_product(ours, 1)(t(x), t(y), t(v)),
             hips.hessian_vector_product(theirs, 1)(x, y, v)),
            (af.make_hvp(ours, 1)(t(x), t(y))[0](t(v)), hips.make_hvp(theirs, 1)(x, y)[0](v)),
            (af.make_vjp(ours)(t(x), t(y))[0](t(2.0)), hips.make_vjp(theirs)(x, y)[0](2.0)),
            (af.make_jvp(ours, 1)(t(x), t(y))(t(v))[1], hips.make_jvp(theirs, 1)(x, y)(v)[1]),
            (af.make_ggnvp(lambda a: ad.sin(a) * a)(t(x))(t(v)),
             hips.make_ggnvp(lambda a: anp.sin(a) * a)(x)(v)),
            (af.vector_jacobian_product(lambda a: ad.sin(a) * a[0])(t(x), t(v)),
             hips.vector_jacobian_product(lambda a: anp.sin(a) * a[0])(x, v)),
            (af.grad_and_aux(lambda a: ((a * a).sum(), a))(t(x))[0],
             hips.grad_and_aux(lambda a: ((a * a).sum(), a))(x)[0]),
            (af.holomorphic_grad(lambda z: z ** 3)(t(1 + 2j)),
             hips.holomorphic_grad(lambda z: z ** 3)(1 + 2j)),
            (af.grad(lambda p: p["a"] * p["b"][0])({"a": 2.0, "b": [3.0]})["b"][0],
             hips.grad(lambda p: p["a"] * p["b"][0])({"a": 2.0, "b": [3.0]})["b"][0]),
        ]
        for got, want in pairs:
            np.testing.assert_allclose(np.asarray(got.detach()), want, rtol=1e-6)


def test_jacobian_says_why_for_any_argument() -> None:
    """F11: the choice counts the elements of the arguments asked for."""
    f = lambda a, b: a.sum() * b  # noqa: E731
    for argnums, mode in ((0, "reverse: "), (1, "forward"), ((0, 1), "reverse")):
        _, why = af.jacobian(f, argnums, explain=True)(t(M), t(V))
        assert why.mode == mode.strip(": ") and why.outputs == 3
        assert why.inputs == {0: 12, 1: 3, (0, 1): 15}[argnums]


def kernels_run(monkeypatch: pytest.MonkeyPatch, call: Any) -> dict[str, int]:
    """How many times each op ran on raw arrays."""
    from adjoint.core import bind as dispatch
    counts: dict[str, int] = {}
    compute = dispatch.compute

    def counted(op: Any, *args: Any, **kwargs: Any) -> Any:
        counts[op.name] = counts.get(op.name, 0) + 1
        return compute(op, *args, **kwargs)
    with monkeypatch.context() as patch:
        patch.setattr(dispatch, "compute", counted)
        patch.setattr(dispatch, "machine", None)        # it computes without asking
        call()
    return counts


def test_a_thousand_products_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """vmap of matrix-vector products runs one batched product, with the matrix shared or mapped,
    and so does its gradient; nothing runs per example."""
    a, many, x = ad.randn(5, 4), ad.randn(1000, 5, 4), ad.randn(1000, 4)
    for w, dim in ((a, None), (many, 0)):
        run = af.vmap(lambda m, v: m @ v, in_dims=(dim, 0))
        counts = kernels_run(monkeypatch, lambda run=run, w=w: run(w, x))
        products = {n: c for n, c in counts.items() if n in ("mm", "mv", "bmm", "matmul")}
        assert sum(products.values()) == 1 and sum(counts.values()) <= 6, counts
        per_sample = af.vmap(af.grad(lambda m, v: ((m @ v) ** 2).sum()), in_dims=(dim, 0))
        counts = kernels_run(monkeypatch, lambda f=per_sample, w=w: f(w, x))
        assert sum(counts.values()) < 40, counts
    rows = af.vmap(lambda m, v: v @ m, in_dims=(None, 0))
    w = ad.randn(4, 5)
    assert kernels_run(monkeypatch, lambda: rows(w, x)) == {"mm": 1}


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss", "embedding", "index_put", "views"])
def test_no_rule_loops_over_examples(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Per-sample gradients of what training code is made of: work per op, not per example."""
    functional = ad.nn.functional
    n, c = 200, 7
    x, y = ad.randn(n, c), ad.arange(n) % c
    table, at = ad.randn(11, 3), (ad.arange(n * 2) % 11).reshape(n, 2)

    def viewed(v: Any) -> Any:
        w = v * 1.0
        w.view(-1)[1:3].mul_(2.0)
        return (w * w).sum()
    programs: dict[str, Any] = {
        "cross_entropy": (af.grad(functional.cross_entropy), (x, y), (0, 0)),
        "nll_loss": (af.grad(lambda v, t: functional.nll_loss(ad.log_softmax(v, 0), t)), (x, y),
                     (0, 0)),
        "embedding": (af.grad(lambda w, i: (functional.embedding(i, w) ** 2).sum()), (table, at),
                      (None, 0)),
        "index_put": (af.grad(lambda v, i: (ad.zeros(c).index_put((i,), v[:2]) ** 2).sum()),
                      (x, at % c), (0, 0)),
        "views": (af.grad(viewed), (x,), (0,)),
    }
    f, args, dims = programs[name]
    counts = kernels_run(monkeypatch, lambda: af.vmap(f, in_dims=dims)(*args))
    assert max(counts.values()) < 20, counts
    got = af.vmap(f, in_dims=dims)(*args)
    for i in (0, 3, n - 1):
        want = f(*[a if d is None else a[i] for a, d in zip(args, dims, strict=True)])
        np.testing.assert_allclose(got[i].numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


def test_scaled_gradients_are_mapped() -> None:
    """The share of every example, with x mapped, the share mapped, or both."""
    from adjoint.ops.embedding import scale_gradient
    x, s = t(M), t(np.abs(M) + 1.0)
    for dims in ((0, 0), (None, 0), (0, None)):
        given = [v if d == 0 else v[0] for v, d in zip((x, s), dims, strict=True)]
        got = af.vmap(af.grad(lambda v, w: (scale_gradient(v, w) ** 2).sum()), in_dims=dims)(*given)
        assert ad.allclose(got, (2 * given[0] * given[1]).expand(4, 3))


def test_forward_mode_keeps_no_activations() -> None:
    """F10: the peak of a jvp does not grow with depth; that of a recorded forward does."""
    import gc
    import tracemalloc
    x, s = ad.randn(100_000), ad.randn(100_000)

    def chain(steps: int) -> Any:
        def f(v: Any) -> Any:
            for _ in range(steps):
                v = (v * v + 1.0).tanh()
            return v
        return f

    def peak(call: Any) -> int:
        gc.collect()
        tracemalloc.start()
        call()
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found
    short, long = (peak(lambda n=n: af.jvp(chain(n), (x,), (s,))) for n in (4, 64))
    assert long < 1.2 * short
    kept = [peak(lambda n=n: af.vjp(chain(n), x)) for n in (4, 64)]
    assert kept[1] > 8 * kept[0]


@pytest.mark.parametrize("outer", ["vmap", "jvp"])
def test_a_view_of_a_shared_variable_is_recorded_once(monkeypatch: pytest.MonkeyPatch,
                                                      outer: str) -> None:
    """What is made of a gradient's own variable is on its tape alone, not on one below as well."""
    from adjoint.core import bind as dispatch
    seen: list[str] = []
    record = dispatch.record

    def counted(op: Any, *args: Any) -> Any:
        seen.append(op.name)
        return record(op, *args)
    monkeypatch.setattr(dispatch, "record", counted)
    w, x = ad.randn(3, 5), ad.randn(7, 3)

    def f(m: Any, v: Any) -> Any:
        return ((m.T @ v) ** 2).sum()
    if outer == "vmap":
        got = af.vmap(af.grad(f), in_dims=(None, 0))(w, x)
        want = [2 * ad.outer(v, w.T @ v) for v in x]
    else:
        got = [af.jvp(lambda v: af.grad(f)(w, v), (v,), (v,))[1] for v in x]
        want = [4 * ad.outer(v, w.T @ v) for v in x]
    assert set(seen) <= {"t", "transpose", "permute", "identity", "alias"}, seen
    for a, b in zip(got, want, strict=True):
        assert ad.allclose(a, b, atol=1e-5)
    inside = ad.tensor(2.0, requires_grad=True)    # an outer tape still sees what it needs
    out = af.vmap(af.grad(lambda m, v: f(m * inside, v)), in_dims=(None, 0))(w, x).sum()
    (g,) = ad.autograd.grad(out, inside)
    assert ad.allclose(g, 2 * out / inside, rtol=1e-4)
