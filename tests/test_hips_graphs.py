"""Graphs of nodes, spaces and rules as programs written for HIPS autograd use them (F54)."""
from __future__ import annotations

import copy
import warnings
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import adjoint.hips.numpy as anp
from adjoint import hips
from adjoint.base import tree
from adjoint.hips import box, builtins, core, extend, tracer
from adjoint.hips.misc import flatten, tracers
from adjoint.hips.numpy import numpy_jvps, numpy_vjps, numpy_vspaces
from adjoint.hips.numpy.numpy_wrapper import wrap_namespace
from adjoint.hips.scipy import special
from adjoint.hips.util import quick_grad_check

Pair = namedtuple("Pair", "a b")


class Step(tracer.Node):
    """Keeps what it is told."""

    seen: list[Any] = []

    def __init__(self, value: Any, fun: Any, args: Any, kwargs: Any, nums: Any,
                 parents: Any) -> None:
        Step.seen.append((fun.__name__, len(args), nums))
        self.text = f"{fun.__name__}({', '.join(p.text for p in parents)})"

    def initialize_root(self, *args: Any, **kwargs: Any) -> None:
        self.text = "x"


def text_of(f: Any, x: Any) -> str:
    return str(tracer.trace(Step.new_root(), f, x)[1].text)


class TestNodes:
    """What a program's own nodes see."""

    def test_calls_and_parents(self) -> None:
        x = np.array([1.0, 2.0])
        assert text_of(lambda v: anp.sum(anp.sin(v) * v), x) == "sum(multiply(sin(x), x))"
        assert text_of(lambda v: 2 / (1 - v) ** 2, 3.0) == "divide(power(subtract(x)))"
        assert text_of(lambda v: v[0] + v.T.reshape(-1)[1], x).count("__getitem__") == 2
        assert text_of(lambda v: anp.concatenate([v, v * 2]), x) == "concatenate(x, multiply(x))"
        assert text_of(lambda v: special.gammaln(v), 3.0) == "gammaln(x)"
        assert text_of(lambda v: v.astype(float).real, x) == "real(_astype(x))"
        assert text_of(hips.grad(lambda v: v ** 3), 3.0).startswith("grad_of_")
        Step.seen.clear()
        text_of(lambda v: anp.where(v > 1, v, 0.0), x)
        assert Step.seen == [("where", 3, (1,))]

    def test_values(self) -> None:
        value, node = tracer.trace(Step.new_root(), lambda v: anp.exp(v) * 0 + v.sum(), np.ones(3))
        assert value.tolist() == [3.0, 3.0, 3.0] and isinstance(node, Step)
        with pytest.warns(UserWarning, match="independent of input"):
            assert tracer.trace(Step.new_root(), lambda v: 2.0, 1.0) == (2.0, None)

    def test_containers(self) -> None:
        assert text_of(lambda p: p[0] * p[1]["a"], (2.0, {"a": 3.0})) == (
            "multiply(container_take(x), container_take(container_take(x)))")
        value, _ = tracer.trace(Step.new_root(), lambda p: ([1.0, *p] + [3.0])[2] + p[-1], [2., 5.])
        assert value == 10.0
        value, _ = tracer.trace(Step.new_root(), lambda p: (p + (3.0,), p[0]), (2.0,))
        assert core.getval(value[0]) == (2.0, 3.0)
        value, _ = tracer.trace(Step.new_root(), lambda d: sum(
            (d[k] for k in d), start=d.get("a") * len(d.items())), {"a": 1.0, "b": 2.0})
        assert value == 5.0

    def test_inside_of_a_gradient(self) -> None:
        def f(z: Any) -> Any:
            return tracer.trace(Step.new_root(), lambda x: z * x * x, 3.0)[0]
        assert hips.grad(f)(2.0) == 9.0

    def test_one_trace_in_another(self) -> None:
        def f(x: Any) -> Any:
            return x * tracer.trace(Step.new_root(), lambda y: x * y, 2.0)[0]
        assert text_of(f, 3.0) == "multiply(x, multiply(x))"

    def test_what_is_not_recorded_is_an_error(self) -> None:
        with pytest.raises(NotImplementedError, match="do not record"):
            tracer.trace(Step.new_root(), lambda x: hips.grad(lambda y: y * x)(1.0), 2.0)

    def test_boxes(self) -> None:
        root = core.VJPNode.new_root()
        b = tracer.new_box(np.ones((2, 3)), 0, root)
        assert (b.shape, b.ndim, b.size, b.dtype, len(b)) == ((2, 3), 2, 6, np.float64, 2)
        assert tracer.isbox(b) and b._node is root and b._trace == (b * 2)._trace == 0
        assert tracer.getval(tracer.new_box(b, 1, root)).tolist() == np.ones((2, 3)).tolist()
        other = tracer.new_box(2.0, 1, root)
        found, top, kind = tracer.find_top_boxed_args([1.0, b, other])
        assert (found, top, kind) == ([(2, other)], 1, core.VJPNode)
        assert tracer.find_top_boxed_args([1.0])[0] == []
        for bad in ("a", 3, None):
            with pytest.raises(TypeError, match="Can't differentiate"):
                tracer.new_box(bad, 0, root)
        with pytest.raises(AssertionError, match="must define"):
            tracer.Node.new_root()

    def test_numbers_of_traces(self) -> None:
        stack = tracer.TraceStack()
        with stack.new_trace() as a, stack.new_trace() as b:
            assert (a, b, stack.top) == (0, 1, 1)
        assert stack.top == -1


class TestModesByNodes:
    """`VJPNode` and `JVPNode` against the engine."""

    @pytest.mark.parametrize("f", [
        lambda x: anp.sum(anp.sin(x) * x), lambda x: x[0] * anp.exp(x[1]) / x.sum(),
        lambda x: anp.linalg.norm(anp.outer(x, x)) + anp.stack([x, x * 2]).prod(),
        lambda x: special.logsumexp(x) + anp.dot(x, x)])
    def test_both_modes(self, f: Any) -> None:
        x, v = np.array([0.3, 1.2, 0.7]), np.array([1.0, -2.0, 0.5])
        value, end = core.trace(core.VJPNode.new_root(), f, x)
        slope = core.backward_pass(1.0, end)
        np.testing.assert_allclose(slope, hips.grad(f)(x), rtol=1e-12)
        assert value == f(x)
        _, end = core.trace(core.JVPNode.new_root(v), f, x)
        np.testing.assert_allclose(end.g, slope @ v, rtol=1e-12)

    def test_rules_of_primitives(self) -> None:
        @extend.primitive
        def scaled(x: Any, k: Any) -> Any:
            return x * k
        with pytest.raises(NotImplementedError, match="VJP of scaled"):
            core.trace(core.VJPNode.new_root(), lambda x: scaled(x, 2.0), 3.0)
        extend.defvjp(scaled, lambda ans, x, k: lambda g: g * k * 10, None)
        _, end = core.trace(core.VJPNode.new_root(), lambda x: scaled(x, 2.0), 3.0)
        assert core.backward_pass(1.0, end) == 20.0
        assert core.primitive_vjps[scaled]((0,), 6.0, (3.0, 2.0), {})(1.0) == [20.0]

    def test_sums_of_cotangents(self) -> None:
        sparse = extend.SparseObject(extend.vspace(np.ones(2)), lambda A: A + 1)
        assert core.sum_outgrads([1.0, 2.0]) == 3.0 and core.sum_outgrads([None]) is None
        kept = np.ones(2)
        assert core.sum_outgrads([kept, sparse, sparse]).tolist() == [3.0, 3.0]
        assert kept.tolist() == [1.0, 1.0]
        assert core.sum_outgrads([sparse, kept]).tolist() == [2.0, 2.0]

    def test_rules_as_functions(self) -> None:
        assert core.translate_vjp(None, np.sin, 0)(1.0, np.ones(2))(3.0).tolist() == [0.0, 0.0]
        assert core.translate_jvp("same", np.add, 0)(1.0, 2.0, 3.0, 4.0) == 5.0
        assert core.translate_jvp(None, np.sin, 0)(1.0, np.ones(2)).tolist() == [0.0, 0.0]
        for f, word in ((core.translate_vjp, "VJP"), (core.translate_jvp, "JVP")):
            assert f(max, np.sin, 0) is max
            with pytest.raises(Exception, match=f"Bad {word} 'bad' for 'sin'"):
                f("bad", np.sin, 0)

    def test_rules_as_they_once_were_given(self) -> None:
        f = core.primitive_with_deprecation_warnings(lambda x, y: x * y)
        with pytest.warns(UserWarning, match="defvjp method is deprecated"):
            f.defvjp(lambda g, ans, vs, gvs, x, y: g * y * vs.size)
        with pytest.warns(UserWarning, match="defgrad"):
            f.defgrad(lambda ans, x, y: lambda g: g * x, argnum=1)
        assert hips.grad(f, (0, 1))(2.0, 3.0) == (3.0, 2.0)
        with pytest.warns(UserWarning, match="defvjp_is_zero"):
            f.defvjp_is_zero(argnums=(1,))
        assert hips.grad(f, 1)(2.0, 3.0) == 0.0


class TestSparse:
    """Cotangents that are added, not written out."""

    def test_the_cotangent_of_a_part(self) -> None:
        @extend.primitive
        def pick(x: Any, i: Any) -> Any:
            return x[i]
        extend.defvjp(pick, lambda ans, x, i: lambda g: numpy_vjps.untake(g, i, extend.vspace(x)),
                      None)
        at = np.array([0, 0, 2])

        def f(x: Any) -> Any:
            return anp.sum(pick(x, at) ** 3)
        x = np.array([1.0, 2.0, 3.0])
        assert hips.grad(f)(x).tolist() == [6.0, 0.0, 27.0]
        assert hips.jacobian(hips.grad(f))(x).diagonal().tolist() == [12.0, 0.0, 18.0]

    def test_of_a_container(self) -> None:
        space = extend.vspace([1.0, 2.0])
        found = core.sum_outgrads([builtins.container_untake(3.0, 1, space)] * 2)
        assert found == [0.0, 6.0]
        space = extend.vspace({"a": 1.0, "b": 2.0})
        assert core.sum_outgrads([builtins.container_untake(3.0, "b", space)])["b"] == 3.0


class TestSpaces:
    """Spaces by type of value."""

    def test_kinds(self) -> None:
        for value, kind in (([1.0], builtins.ListVSpace), ((1.0,), builtins.TupleVSpace),
                            ({"a": 1.0}, builtins.DictVSpace),
                            (Pair(1.0, 2.0), builtins.NamedTupleVSpace),
                            (1.0, numpy_vspaces.ArrayVSpace),
                            (1j, numpy_vspaces.ComplexArrayVSpace)):
            assert type(extend.vspace(value)) is kind
        space: Any = extend.vspace({"a": [1.0, np.ones(2)]})
        assert space.shape["a"].shape[1].shape == (2,) and space.shape["a"].seq_type is list
        assert extend.vspace([]).zeros() == [] and extend.vspace([]).size == 0
        assert extend.vspace([1.0]) != extend.vspace((1.0,))
        for bad in (None, "a", [1]):
            with pytest.raises(TypeError, match="vector space"):
                extend.vspace(bad)

    def test_a_type_of_the_programs_own(self) -> None:
        class Money:
            def __init__(self, amount: float) -> None:
                self.amount = amount

        class MoneyBox(extend.Box):
            __slots__ = ()

            @property
            def amount(self) -> Any:
                return amount_of(self)

        class MoneySpace(extend.VSpace):
            def __init__(self, value: Any) -> None:
                self.size = 1

            def zeros(self) -> Any:
                return Money(0.0)

            def _add(self, x: Any, y: Any) -> Any:
                return Money(x.amount + y.amount)

        @extend.primitive
        def amount_of(m: Any) -> Any:
            return m.amount
        MoneyBox.register(Money)
        MoneySpace.register(Money)
        extend.defvjp(amount_of, lambda ans, m: lambda g: Money(g))
        slope = hips.grad(lambda m: m.amount * anp.sin(m.amount))(Money(2.0))
        assert type(slope) is Money
        assert slope.amount == pytest.approx(np.sin(2.0) + 2 * np.cos(2.0), rel=1e-12)
        with pytest.warns(UserWarning, match="independent of input"):
            assert hips.grad(lambda m: 1.0)(Money(2.0)).amount == 0.0
        assert extend.vspace(Money(1.0)) == extend.vspace(Money(2.0))


class TestTracers:
    """Functions with one graph, and whole graphs."""

    def test_the_function_runs_once(self) -> None:
        runs: list[int] = []

        def f(x: Any, y: Any) -> Any:
            runs.append(1)
            return anp.sum(anp.sin(x) * y) + anp.concatenate([x, x])[3]
        x, z = np.array([0.5, 1.0]), np.array([0.1, -2.0])
        g = tracers.const_graph(f, y=3.0)
        assert [g(x), g(z)] == [f(x, 3.0), f(z, 3.0)]
        assert len(runs) == 3
        np.testing.assert_allclose(hips.grad(g)(z), hips.grad(lambda v: f(v, 3.0))(z), rtol=1e-12)

    def test_two_arguments_and_a_gradient_inside(self) -> None:
        g = tracers.const_graph(lambda x, y: hips.grad(lambda t: t ** 2 * x)(y) * x)
        assert [g(2.0, 3.0), g(4.0, 5.0)] == [24.0, 160.0]

    def test_the_whole_graph(self) -> None:
        end = tracers.full_graph(lambda x, y: anp.sin(x) * y, 2.0, 3.0)
        fun, args, kwargs, parents = end.recipe
        assert fun.__name__ == "multiply" and args == (np.sin(2.0), 3.0) and kwargs == {}
        assert [i for i, _ in parents] == [0, 1] and parents[0][1].value == np.sin(2.0)
        names = [n.recipe[0].__name__ for n in tracers.toposort(
            end, lambda n: [p for _, p in n.recipe[3]])]
        assert sorted(names) == ["<lambda>", "container_take", "container_take", "multiply", "sin"]


class TestRules:
    """Rules of functions that have some, and what rules are written with."""

    def test_rules_of_the_programs_own_for_a_function_of_numpy(
            self, monkeypatch: pytest.MonkeyPatch) -> None:
        for f in (anp.i0, anp.sinh):               # what is given here is taken back after it
            monkeypatch.setitem(box.OVERRIDES, f, None)
            monkeypatch.delitem(box.OVERRIDES, f)
        with pytest.raises(NotImplementedError):
            hips.grad(anp.i0)(1.0)
        extend.defvjp(anp.i0, lambda ans, x: lambda g: g * special.i1(x))
        assert hips.grad(anp.i0)(1.0) == pytest.approx(special.i1(1.0), rel=1e-12)
        before = hips.grad(anp.sinh)(1.0)
        extend.defjvp(anp.sinh, lambda g, ans, x: g * 100.0)
        assert hips.grad(anp.sinh)(1.0) == pytest.approx(before)
        assert hips.make_jvp(anp.sinh)(1.0)(1.0)[1] == 100.0

    def test_tools(self) -> None:
        meta, A = anp.metadata, np.arange(6.0).reshape(2, 3)
        assert meta(A) == ((2, 3), 2, np.dtype("f8"), False)
        assert numpy_vjps.unbroadcast(np.ones((4, 2, 3)), meta(np.ones((2, 1)))).tolist() == [
            [12.0], [12.0]]
        assert numpy_vjps.unbroadcast(np.ones((2, 4)), meta(np.ones(2)), -1).tolist() == [4.0, 4.0]
        assert numpy_vjps.unbroadcast(np.ones(2) * 1j, meta(np.ones(2))).tolist() == [0.0, 0.0]
        assert numpy_vjps.unbroadcast_f(np.ones(3), lambda g: g)(A).tolist() == [3.0, 5.0, 7.0]
        assert numpy_vjps.match_complex(1.0, 2 + 1j) == 2.0
        assert numpy_vjps.match_complex(1j, 2.0) == 2.0 + 0j
        assert numpy_vjps.balanced_eq(np.ones(2), 1.0, np.array([1.0, 2.0])).tolist() == [0.5, 1.0]
        assert numpy_vjps.replace_zero(np.array([0.0, 2.0]), 7.0).tolist() == [7.0, 2.0]
        g, n = numpy_vjps.repeat_to_match_shape(np.ones(2), (2, 3), np.dtype("f8"), 1, False)
        assert g.shape == (2, 3) and n == 3
        assert numpy_vjps.repeat_to_match_shape(2.0, (), None, None, False) == (2.0, 1)
        assert numpy_jvps.broadcast(np.ones(3), A).shape == (2, 3)
        assert numpy_vjps.grad_transpose(A.T, A)(A.T).tolist() == A.tolist()
        assert numpy_vjps.grad_np_sum(A.sum(), A)(2.0).tolist() == np.full((2, 3), 2.0).tolist()
        assert numpy_vjps.dot_vjp_1(A @ A.T, A, A.T)(np.eye(2)).tolist() == A.T.tolist()
        found = numpy_vjps.dot_adjoint_0(np.ones((3, 2)), np.eye(2), meta(A), meta(A.T))
        assert found.tolist() == np.ones((2, 3)).tolist()
        with pytest.raises(AttributeError, match="grad_nothing"):
            numpy_vjps.grad_nothing  # noqa: B018 - the name is looked up

    def test_a_module_with_functions_as_primitives(self) -> None:
        import math
        found: dict[str, Any] = {}
        wrap_namespace(vars(math), found)
        extend.defvjp(found["tan"], lambda ans, x: lambda g: g * (1 + ans ** 2))
        assert hips.grad(found["tan"])(0.5) == pytest.approx(1 + np.tan(0.5) ** 2)
        assert found["e"] == math.e

    def test_a_quick_check(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.warns(UserWarning, match="deprecated"):
            quick_grad_check(lambda x: anp.sum(x ** 3), np.ones(3), rs=np.random.RandomState(0))
        assert "gradient along" in capsys.readouterr().out
        wrong = extend.primitive(lambda x: x ** 2)
        extend.defvjp(wrong, lambda ans, x: lambda g: g)
        with warnings.catch_warnings(), pytest.raises(AssertionError, match="by differences"):
            warnings.simplefilter("ignore")
            quick_grad_check(wrong, 3.0, verbose=False)

    def test_complex_ones(self) -> None:
        assert hips.deriv(lambda z: z * z)(1j) == 2j * (1 + 1j)


def test_special_functions_of_lists() -> None:
    assert special.gammaln([1.0, 2.0]).tolist() == [0.0, 0.0]
    slope = hips.grad(lambda x: anp.sum(special.psi([x, 2 * x])))(1.5)
    assert slope == pytest.approx(special.polygamma(1, 1.5) + 2 * special.polygamma(1, 3.0))


class TestContainers:
    """Derivatives in containers, and the edges of single functions, as HIPS autograd has them."""

    @pytest.mark.parametrize("x", [[0.4, 1.5], (0.4, 1.5), {"a": 0.4, "b": 1.5}, [0.4 + 0.3j, 1.5],
                                   [(0.4, {"q": 1.5})]])
    def test_numbers_are_arrays_without_axes(self, x: Any) -> None:
        def f(p: Any) -> Any:
            return anp.real(anp.prod(anp.sin(flatten(p)[0])))

        def kinds(m: Any, name: str) -> list[Any]:
            found = m.make_hvp(f)(x)[1] if name == "hvp" else getattr(m, name)(f)(x)
            return [(type(v), v.dtype, v.shape) for v in tree.flatten(found)[0]]
        for name in ("grad", "elementwise_grad", "hvp"):
            assert {(t, s) for t, _, s in kinds(hips, name)} == {(np.ndarray, ())}, name
        pair = hips.grad(lambda a, p: a * f(p), (0, 1))(2.0, x)
        assert type(pair[0]) is np.ndarray and type(hips.grad(anp.sin)(0.4)) is np.float64

    def test_sums_of_spaces_are_written_in_place(self) -> None:
        space = core.vspace([1.0, np.ones(2)])
        total = space.zeros()
        kept = total[1]
        found = space.mut_add(total, [2.0, np.ones(2)])
        assert found[1] is kept and kept.tolist() == [1.0, 1.0] and found[0].tolist() == 2.0
        assert isinstance(space.mut_add(None, [2.0, np.ones(2)])[0], np.ndarray)
        assert core.vspace([1j]).inner_prod([2j], [2j]) == 4.0
        assert core.vspace([1j]).covector([2j]) == [-2j]

    def test_copies_carry_the_derivative(self) -> None:
        assert hips.grad(lambda x: copy.deepcopy(x) ** 2)(2.0) == 4.0
        assert hips.grad(lambda x: copy.copy([x])[0] ** 2)(2.0) == 4.0

    def test_nothing_flows_at_the_bounds_of_clip(self) -> None:
        x = np.array([0.3, 0.5, 0.7])
        for f in (lambda v: anp.clip(v, 0.3, 0.7), lambda v: v.clip(0.3, 0.7)):
            assert hips.elementwise_grad(f)(x).tolist() == [0.0, 1.0, 0.0]
            assert hips.make_jvp(f)(x)(np.ones(3))[1].tolist() == [0.0, 1.0, 0.0]

    def test_means_along_no_axis(self) -> None:
        x = np.array([[1.0, 2.0], [3.0, 5.0]])
        for f, want in ((anp.mean, 1.0), (anp.var, 0.0), (anp.std, 0.0)):
            y, t = hips.make_jvp(lambda v, _f=f: _f(v, axis=()))(x)(np.ones((2, 2)))
            np.testing.assert_array_equal(y, f(x, axis=()))
            assert t.tolist() == [[want] * 2] * 2
        assert hips.make_jvp(lambda v: anp.var(v, dtype=np.float32))(x)(x)[0].dtype == np.float32
        for f in (anp.sort, anp.cumsum):
            with pytest.raises(np.exceptions.AxisError, match="axis 5 is out of bounds"):
                hips.grad(lambda v, _f=f: anp.sum(_f(v, axis=5)))(x)

    def test_what_has_no_jacobian(self) -> None:
        with pytest.raises(TypeError, match="the argument must be one array, got ListVSpace"):
            hips.jacobian(lambda p: p[0] * p[1])([1.0, 2.0])
        with pytest.raises(TypeError, match="w.r.t. type <class 'NoneType'>"):
            hips.grad(lambda p: 1.0)(None)


@pytest.mark.parametrize("order", [None, "C", "A", "K", "c", "F", "f"])
def test_orders_of_ravel_under_derivatives(order: Any) -> None:
    """As NumPy's, also where a derivative is taken: None, "A" and "K" go by rows."""
    x = np.arange(6.0).reshape(2, 3)
    weights = np.arange(6.0)
    plain = "C" if order is None else order.upper()
    want = np.ravel(weights.reshape((2, 3), order="F") if plain == "F" else weights.reshape(2, 3))
    got = hips.grad(lambda v: anp.sum(anp.ravel(v, order) * weights))(x)
    np.testing.assert_array_equal(np.ravel(got), want)
    push = hips.make_jvp(lambda v: anp.reshape(v, (3, 2), order=order))(x)(x)[1]
    np.testing.assert_array_equal(push, x.reshape((3, 2), order="F" if plain == "F" else "C"))


def test_orders_that_numpy_does_not_know_are_refused() -> None:
    with pytest.raises(ValueError, match="order must be one of"):
        hips.grad(lambda v: anp.sum(anp.ravel(v, "x")))(np.ones((2, 2)))


def test_fmin_and_fmax_of_a_number_and_an_array() -> None:
    x = np.array([0.0, 2.0, 5.0, np.nan])
    assert hips.grad(lambda v: anp.sum(anp.fmin(2, v)))(x).tolist() == [1.0, 0.5, 0.0, 0.0]
    assert hips.grad(lambda v: anp.sum(anp.fmax(v, 2.0)))(x).tolist() == [0.0, 0.5, 1.0, 0.0]
