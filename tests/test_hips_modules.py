"""HIPS autograd's modules on our engine against HIPS autograd, and by differences (F54)."""
from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import adjoint.hips.numpy as anp
from adjoint import hips
from adjoint.hips.box import Box
from adjoint.hips.extend import (
    JVPNode,
    VJPNode,
    def_linear,
    defjvp,
    defjvp_argnum,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    primitive,
    register_notrace,
    vspace,
)
from adjoint.hips.misc import flatten
from adjoint.hips.scipy.integrate import odeint
from adjoint.hips.test_util import check_equivalent, check_grads, check_jvp, check_vjp, combo_check

HERE = Path(__file__).parent
R = np.random.default_rng(0)


def _positive(n: int) -> np.ndarray:
    a = R.normal(size=(n, n))
    return np.asarray(a @ a.T + n * np.eye(n))


POINTS: dict[str, Any] = {
    "S": 0.4, "T": 0.7, "V": R.uniform(0.2, 0.9, 3), "M": R.uniform(0.2, 0.9, (3, 4)),
    "R": R.uniform(0.2, 0.9, 4), "K": R.uniform(0.2, 0.9, (3, 1)),
    "B": R.uniform(0.2, 0.9, (3, 4, 2)), "F": R.uniform(0.2, 0.9, 3).astype(np.float32),
    "C": R.uniform(0.2, 0.9, 3) + 1j * R.uniform(0.2, 0.9, 3), "P": _positive(3),
    "P4": _positive(4), "A": R.normal(size=(2, 3, 4, 4)), "W": R.normal(size=(3, 2, 2, 2))}
LINES = [line.split(" | ") for line in
         (HERE / "hips_expressions.txt").read_text("utf-8").splitlines()]


def modules(base: str) -> SimpleNamespace:
    """The names that expressions use."""
    names = {"np": "numpy", "sp": "scipy.special", "la": "scipy.linalg", "sg": "scipy.signal",
             "fp": "misc.fixed_points", "mvn": "scipy.stats.multivariate_normal",
             **{n: f"scipy.stats.{n}" for n in "norm t beta gamma chi2 dirichlet poisson".split()}}
    found = {k: importlib.import_module(f"{base}.{v}") for k, v in names.items()}
    return SimpleNamespace(names=found, top=importlib.import_module(base))


OURS = modules("adjoint.hips")


def weights(x: Any, start: float) -> Any:
    """Fixed numbers in the shape and dtype of a value."""
    kind = np.asarray(x).dtype
    return np.sin(np.arange(np.size(x)) + start).reshape(np.shape(x)).astype(kind)[()]


def derivatives(text: str, m: SimpleNamespace, args: tuple[Any, ...]) -> dict[str, Any]:
    """Value, pull, gradient of the pull, and push of an expression; None where it has none."""
    names = [f"x{i}" for i in range(len(args))]
    f = eval(f"lambda {', '.join(names)}: {text}", dict(m.names))  # noqa: S307 (our own text)
    nums, y = tuple(range(len(args))), f(*args)

    def pull(*at: Any) -> Any:
        return m.top.make_vjp(f, nums)(*at)[0](weights(y, 1.0))

    def second(*at: Any) -> Any:
        return sum(m.names["np"].sum(m.names["np"].real(g * np.asarray(weights(a, 2.0)).real))
                   for g, a in zip(pull(*at), args, strict=True))
    runs = {"vjp": lambda: pull(*args), "second": lambda: m.top.grad(second, nums)(*args),
            "jvp": lambda: m.top.make_jvp(f, nums)(*args)(tuple(
                weights(a, 3.0) for a in args))[1]}
    found: dict[str, Any] = {"value": y}
    for name, run in runs.items():
        try:
            found[name] = run()
        except Exception:             # theirs has no rule there, or a wrong one
            if m is OURS:
                raise
    return found


@pytest.mark.filterwarnings("ignore:Output seems independent")      # theirs, where zero is right
@pytest.mark.filterwarnings("ignore:r_ is slow")
@pytest.mark.parametrize("points,text", LINES)
def test_as_in_hips_autograd(points: str, text: str) -> None:
    """Values, both modes and second order, in HIPS autograd's dtypes."""
    pytest.importorskip("autograd")
    pytest.importorskip("scipy")
    args = tuple(POINTS[p] for p in points.split())
    ours = derivatives(text, OURS, args)
    for name, want in derivatives(text, modules("autograd"), args).items():
        if name == "second" and "mvn" in text:
            continue           # theirs takes the cov argument to be symmetric there
        pairs = zip(*[v if isinstance(v, tuple) else (v,) for v in (ours[name], want)],
                    strict=True)
        for got, w in pairs:
            single = np.asarray(w).dtype in (np.float32, np.complex64) or "F" in points
            np.testing.assert_allclose(got, w, rtol=1e-5 if single else 1e-7, atol=1e-9,
                                       err_msg=name)
            assert np.asarray(got).dtype == np.asarray(w).dtype, name
            assert not isinstance(got, Box)


PROGRAM = (HERE / "hips_program.txt").read_text("utf-8")


def test_a_program_runs_unmodified(tmp_path: Path) -> None:
    """`adjoint run --as-autograd` prints what the program prints with HIPS autograd."""
    pytest.importorskip("autograd")
    pytest.importorskip("scipy")
    (tmp_path / "program.py").write_text(PROGRAM)
    outs = []
    for command in (["program.py"], ["-m", "adjoint", "run", "--as-autograd", "program.py"]):
        done = subprocess.run([sys.executable, "-W", "ignore", *command], cwd=tmp_path, check=False,
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        outs.append([line.split() for line in done.stdout.splitlines()])
    assert [line[0] for line in outs[0]] == [line[0] for line in outs[1]]
    for theirs, ours in zip(*outs, strict=True):
        if theirs[0] == "module":
            assert theirs[1] == "autograd.numpy" and ours[1] == "adjoint.hips.numpy"
            continue
        want = np.array(theirs[1:], float)
        np.testing.assert_allclose(np.array(ours[1:], float), want, rtol=1e-8,
                                   atol=1e-8 * np.abs(want).max(), err_msg=theirs[0])


@primitive
def softmax_log(x: Any) -> Any:
    assert isinstance(x, np.ndarray)
    return np.log(np.sum(np.exp(x)))


class TestPrimitives:
    """Rules of one's own, to any order and in both modes."""

    def test_without_a_rule(self) -> None:
        with pytest.raises(NotImplementedError, match="VJP of softmax_log"):
            hips.grad(softmax_log)(np.ones(2))
        with pytest.raises(NotImplementedError, match="JVP of softmax_log"):
            hips.make_jvp(softmax_log)(np.ones(2))(np.ones(2))

    def test_vjp_alone_gives_both_modes_to_third_order(self) -> None:
        f = primitive(lambda x: np.log(np.sum(np.exp(x))))
        defvjp(f, lambda ans, x: lambda g: g * anp.exp(x - ans))
        check_grads(f, order=3)(R.normal(size=3))
        check_grads(lambda x: f(x * 2) * x[0])(R.normal(size=3))

    def test_jvp_and_same_and_none(self) -> None:
        f = primitive(lambda x, y, n: x * y ** n)
        defvjp(f, lambda ans, x, y, n: lambda g: g * y ** n,
               lambda ans, x, y, n: lambda g: g * n * x * y ** (n - 1), None)
        defjvp(f, "same", lambda g, ans, x, y, n: g * n * x * y ** (n - 1), None)
        check_grads(f, (0, 1))(2.0, 3.0, 2.0)
        assert hips.grad(f, 2)(2.0, 3.0, 2.0) == 0.0

    def test_rules_by_argnum(self) -> None:
        f, g, h = (primitive(lambda x, y: x * y) for _ in range(3))
        defvjp_argnum(f, lambda i, ans, args, kwargs: lambda g: g * args[1 - i])
        defjvp_argnum(f, lambda i, g, ans, args, kwargs: g * args[1 - i])
        defvjp_argnums(g, lambda nums, ans, args, kwargs: lambda ct: [
            ct * args[1 - i] for i in nums])
        def_linear(h)
        for one in (f, g):
            check_grads(one, (0, 1))(2.0, 3.0)
        assert hips.make_jvp(h)(2.0, 3.0)(1.0) == (6.0, 3.0)

    def test_containers_and_several_outputs(self) -> None:
        f = primitive(lambda d: (d["a"] * 2, np.sum(d["b"])))
        defvjp(f, lambda ans, d: lambda g: {"a": 2 * g[0], "b": g[1] * np.ones(3)})
        check_grads(lambda d: f(d)[0] * f(d)[1], modes=["rev"])({"a": 1.0, "b": np.ones(3)})

    def test_complex_rules_follow_hips(self) -> None:
        f = primitive(lambda z: z ** 2)
        defvjp(f, lambda ans, z: lambda g: g * 2 * z)
        check_grads(f, order=1)(1.0 + 2j)
        assert hips.holomorphic_grad(f)(1.0 + 2j) == pytest.approx(2 + 4j)


    def test_no_derivative_in_a_mode(self) -> None:
        f = primitive(lambda x: x // 1)
        register_notrace(VJPNode, f)
        register_notrace(JVPNode, f)
        assert hips.grad(lambda x: x * f(x))(2.5) == 2.0
        assert hips.make_jvp(lambda x: x * f(x))(2.5)(1.0) == (5.0, 2.0)
        with pytest.raises(ValueError, match="is not a class of nodes"):
            register_notrace(int, f)


class TestOperators:
    """What goes in and what comes out."""

    def test_equal_operands_share_the_gradient(self) -> None:
        x, y = np.array([1.0, 2.0, np.nan]), np.array([1.0, 3.0, 4.0])
        for f, mine in ((anp.fmax, [0.5, 0.0, 0.0]), (anp.fmin, [0.5, 1.0, 0.0])):
            assert hips.elementwise_grad(f)(x, y).tolist() == mine
            assert hips.elementwise_grad(f, 1)(x, y).tolist() == [1 - m for m in mine]

    def test_truth_values_and_places_do_not_move(self) -> None:
        for f in (anp.isfinite, anp.argsort, lambda x: x > 1):
            with pytest.warns(UserWarning, match="seems independent of input"):
                assert hips.elementwise_grad(f)(np.ones(2)).tolist() == [0.0, 0.0]
        with pytest.warns(UserWarning, match="seems independent of input"):
            found = hips.jacobian(lambda x: anp.argmax(x, axis=0))(np.ones((2, 2)))
        assert found.shape == (2, 2, 2)

    def test_keywords_where_no_derivative_flows(self) -> None:
        x = np.array([0.5, -1.5])
        slope = hips.elementwise_grad(lambda v: v * anp.floor(v, dtype="f8")
                                      * anp.greater(v, 0, dtype="?"))(x)
        assert slope.tolist() == [0.0, 0.0]
        assert hips.grad(lambda v: anp.sum(v * anp.sign(v, out=np.zeros(2))))(x).tolist() == [1, -1]

    @pytest.mark.parametrize("f", [
        anp.dot, anp.inner, anp.vdot, lambda a, b: anp.tensordot(a, b, 1), anp.convolve,
        lambda a, b: anp.einsum("i,i->i", a, b), lambda a, b: anp.linalg.solve(np.diag(a), b)])
    def test_operands_of_two_dtypes(self, f: Any) -> None:
        z, r = np.array([1 + 2j, 3 - 1j]), np.array([0.5, 2.0])
        for a, b in ((z, r), (r, z), (r.astype(np.float32), r), (np.arange(1, 3), r)):
            y = f(a, b)
            pull, value = hips.make_vjp(f, 1)(a, b)
            assert np.asarray(value).dtype == np.asarray(y).dtype
            np.testing.assert_allclose(value, y, rtol=1e-6)
            slope = pull(np.ones_like(y))
            step = 1e-6
            for i in range(2):
                moved = b.astype(complex)
                moved[i] += step
                low = b.astype(complex)
                low[i] -= step
                rise = np.sum(f(a, moved) - f(a, low)) / (2 * step)
                assert slope[i] == pytest.approx(rise if b.dtype.kind == "c" else rise.real,
                                                 abs=1e-5)

    def test_triangles_of_a_vector(self) -> None:
        v = np.array([1.0, 2.0])
        assert hips.jacobian(anp.tril)(v)[1].tolist() == [[1.0, 0.0], [0.0, 1.0]]
        assert hips.elementwise_grad(anp.triu)(v).tolist() == [1.0, 2.0]

    def test_holomorphic_grad_of_a_real_point(self) -> None:
        with pytest.warns(UserWarning, match="Input to holomorphic_grad is not complex"):
            assert hips.holomorphic_grad(lambda z: z ** 2)(1.5) == 3.0

    def test_results_are_arrays(self) -> None:
        inner = hips.grad(lambda x: x * hips.grad(lambda y: x * y * y)(2.0))
        found = inner(0.3)
        assert type(found) is np.float64 and found == pytest.approx(2.4)
        out = hips.grad(lambda p: p["a"] * p["b"][0])({"a": 2.0, "b": [3.0]})
        assert out == {"a": 3.0, "b": [2.0]}

    def test_no_confusion_of_levels(self) -> None:
        def f(x: Any) -> Any:
            return x * hips.deriv(lambda y: x + y)(1.0)
        assert hips.deriv(f)(2.0) == hips.grad(f)(2.0) == 1.0

    @pytest.mark.parametrize("x", [3, "a", np.array(["a"]), [1.0, 2]])
    def test_only_floats_are_differentiated(self, x: Any) -> None:
        with pytest.raises(TypeError, match="Can't differentiate"):
            hips.grad(lambda v: anp.sum(v))(x)

    @pytest.mark.parametrize("x", [np.arange(3), np.array([True, False]), np.array(2)])
    def test_arrays_of_whole_numbers_stand_for_floats(self, x: Any) -> None:
        def f(v: Any) -> Any:
            return anp.sum(anp.sin(v) * v)
        want = np.cos(1.0 * x) * x + np.sin(x * 1.0)
        for found in (hips.grad(f)(x), hips.elementwise_grad(lambda v: anp.sin(v) * v)(x)):
            np.testing.assert_allclose(found, want)
            assert found.dtype == np.float64
        assert hips.make_jvp(f)(x)(np.ones(x.shape))[1] == pytest.approx(want.sum())

    def test_scalar_outputs(self) -> None:
        for f in (lambda x: x * np.ones(2), lambda x: x * 1j):
            with pytest.raises(TypeError, match="real scalar"):
                hips.grad(f)(1.0)
        with pytest.raises(TypeError, match="vector space"), pytest.warns(UserWarning):
            hips.grad(lambda x: "a")(1.0)

    def test_a_lost_derivative_raises(self) -> None:
        """A function of NumPy's without a rule, in both modes."""
        for run in (hips.grad(lambda x: anp.i0(x)), lambda x: hips.make_jvp(anp.i0)(x)(1.0)):
            with pytest.raises(NotImplementedError, match="i0"):
                run(1.0)

    def test_lists_are_operands(self) -> None:
        check_grads(lambda x: [1.0, 2.0] * x + anp.multiply([x[0], 3.0], x))(np.array([1.0, 2.0]))

    def test_boxes_see_through(self) -> None:
        def f(x: Any) -> Any:
            assert hips.isinstance(x, np.ndarray) and hips.type(x) is np.ndarray
            assert isinstance(x > 0, np.ndarray) and x.size == 3 and len(x) == 3
            assert x.dtype == np.float64 and "value" in repr(x)
            return anp.sum(np.ones(3) * x[::-1][[0, 1]][0])
        np.testing.assert_array_equal(hips.grad(f)(np.ones(3)), [0, 0, 3])

    @pytest.mark.parametrize("at", ["::-1", "2::-2", "::-1, 0", "..., ::-1", "None, ::-1", "3:0:-1",
                                    "0:3:-1", "[0, 1], ::-1", "-1:-3:-1"])
    def test_slices_that_walk_down(self, at: str) -> None:
        x = R.normal(size=(4, 3))
        want = eval(f"x[{at}]")  # noqa: S307 (our own text)
        got = []

        def f(x: Any) -> Any:
            got.append(eval(f"x[{at}]"))  # noqa: S307 (our own text)
            return anp.sum(got[-1] ** 2)
        np.testing.assert_allclose(np.sort(hips.grad(f)(x)[hips.grad(f)(x) != 0]),
                                   np.sort(2 * want.ravel()))
        np.testing.assert_array_equal(got[0].shape, want.shape)

    def test_zero_to_the_zero(self) -> None:
        """x ** 0 is constant: every derivative is zero, at zero as well."""
        check_grads(lambda x: x ** 0.0, order=2)(np.array([0.0, -1.0, 2.0]))


class TestCheckGrads:
    """The checks find wrong rules."""

    def test_a_wrong_rule_is_found(self) -> None:
        f = primitive(lambda x: x ** 2)
        defvjp(f, lambda ans, x: lambda g: g * x)
        defjvp(f, lambda g, ans, x: g * 3 * x)
        for check in (check_vjp, check_jvp):
            with pytest.raises(AssertionError):
                check(f, 2.0)
        with pytest.raises(AssertionError):
            check_equivalent(np.ones(2), np.ones(3))

    def test_combinations(self) -> None:
        seen = []

        def f(x: Any, y: Any, k: int = 0) -> Any:
            seen.append((np.shape(x), k))
            return x * y * k
        combo_check(f, (0, 1), order=1)([1.0, np.ones(2)], [2.0], k=[1, 2])
        assert {((), 1), ((), 2), ((2,), 1), ((2,), 2)} == set(seen)

    def test_spaces(self) -> None:
        space = vspace({"a": np.ones((2, 3)), "b": (1.0, 1j)})
        assert space.size == 9 and space.iscomplex
        assert len(list(space.standard_basis())) == 9
        assert space == vspace(space.randn()) and space != vspace(1.0)
        x = space.ones()
        assert space.inner_prod(x, x) == 9.0       # 1 + 1j is one of two
        with pytest.raises(TypeError, match="vector space"):
            vspace(1)


class TestModules:
    """Trees as vectors, optimizers, ODEs, and names."""

    def test_flatten(self) -> None:
        value = (R.normal(size=4), [R.normal(size=(3, 4)), 2.5], (), {"b": 1.0, "a": [R.normal()]})
        vector, back = flatten(value)
        np.testing.assert_array_equal(flatten(back(vector))[0], vector)
        assert vector[-1] == 1.0 and back(vector)[2] == ()
        check_grads(lambda x: flatten({"a": x[0], "b": [x[1]]})[0] ** 2)(
            [1.0, np.ones(3)])
        assert flatten(1 + 1j)[1](np.array([2j])) == 2j

    def test_odeint_to_second_order(self) -> None:
        pytest.importorskip("scipy")
        def solve(y0: Any, t: Any, a: Any) -> Any:
            return odeint(lambda y, t, a, b: anp.sin(y * a) - np.cos(1.0) * t * b, y0, t,
                          (a, 0.3), rtol=1e-11, atol=1e-11)
        check_grads(solve, (0, 1, 2), modes=["rev"], order=1)(
            R.normal(size=2), np.linspace(0, 1, 4), R.normal(size=2))

        def end(a: Any) -> Any:         # exp(-2 a), whose derivatives are known
            return odeint(lambda y, t, a: -a * y, np.ones(1), np.array([0.0, 2.0]), (a,),
                          rtol=1e-11, atol=1e-11)[1, 0]
        np.testing.assert_allclose([hips.grad(end)(0.7), hips.grad(hips.grad(end))(0.7)],
                                   [-2 * np.exp(-1.4), 4 * np.exp(-1.4)], rtol=1e-7)

    @pytest.mark.parametrize("shape", [{}, {"axes": (0, 1)}, {"s": (2, 7), "axes": (1, 2)}])
    @pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "rfft2"])
    def test_transforms_of_several_axes(self, name: str, shape: dict[str, Any]) -> None:
        x = R.normal(size=(2, 4, 6)) + (0 if name[0] == "r" else 1j * R.normal(size=(2, 4, 6)))
        check_grads(lambda v: getattr(anp.fft, name)(v, **shape))(x)

    def test_a_size_one_output_has_a_gradient(self) -> None:
        check_grads(hips.grad(lambda x: anp.sum(anp.sin(x), keepdims=True)))(R.normal(size=(2, 2)))

    def test_every_name_of_numpy(self) -> None:
        assert set(dir(np)) <= set(dir(anp))
        assert anp.float64 is np.float64 and anp.pi == np.pi and anp.sum([1.0, 2.0]) == 3.0
        assert type(anp.sum(np.ones(3))) is np.float64

    def test_names_of_autograd(self) -> None:
        """The modules have the functions that theirs give to users."""
        theirs = pytest.importorskip("autograd")
        assert {n for n in vars(theirs) if callable(getattr(theirs, n))} <= set(dir(hips))
        for name in ("extend", "test_util", "differential_operators", "misc.optimizers", "tracer"):
            module = importlib.import_module(f"adjoint.hips.{name}")
            for public in module.__all__:
                assert hasattr(module, public), public


def test_names_of_operators() -> None:
    """A derivative says what it is the derivative of."""
    from adjoint import hips
    from adjoint.hips.misc import const_graph
    from adjoint.hips.numpy.numpy_vspaces import ArrayVSpace
    from adjoint.hips.wrap_util import get_name

    def square(x: Any) -> Any:
        """x * x"""
        return x * x
    slope = hips.grad(square)
    assert get_name(slope) == "grad_of_square_wrt_argnum_0" and "x * x" in (slope.__doc__ or "")
    assert hips.grad(const_graph(lambda y, x: y * x * x, 2.0))(3.0) == 12.0
    assert isinstance(hips.extend.vspace(np.ones(3)), ArrayVSpace) and get_name(3) == (
        "[unknown name]")


@pytest.mark.parametrize("name", ["maximum", "minimum", "arctan2", "logaddexp", "logaddexp2",
                                  "hypot", "copysign"])
@pytest.mark.parametrize("number", [0, 0.5, True, np.float32(0.5)])
def test_numbers_beside_boxes(name: str, number: Any) -> None:
    """A number on either side of an array that a derivative is taken of, as in
    `np.maximum(0, x)`: the value and the dtype are NumPy's, the slope is that of differences."""
    f, theirs = getattr(anp, name), getattr(np, name)
    for x in (R.uniform(0.6, 0.9, (2, 3)), R.uniform(0.6, 0.9, 3).astype(np.float32)):
        for run, want in ((lambda v: f(number, v), theirs(number, x)),
                          (lambda v: f(v, number), theirs(x, number))):
            value = []
            got = hips.grad(lambda v: (value.append(run(v)), anp.sum(value[0]))[1])(x)  # noqa: B023
            np.testing.assert_allclose(value[0]._value, want, 1e-6)
            assert value[0]._value.dtype == want.dtype and got.dtype == x.dtype
            if x.dtype == np.float64 and number is not True:
                step = 1e-6
                slope = (run(x + step) - run(x - step)) / (2 * step)
                np.testing.assert_allclose(got, slope, atol=1e-6)


@pytest.mark.parametrize("f", [
    lambda x: anp.sum(x, axis=5), lambda x: anp.mean(x, axis=(0, 2)),
    lambda x: anp.max(x, axis=-3), lambda x: anp.var(x, axis=2), lambda x: anp.prod(x, axis=3)])
def test_axes_that_are_not_there(f: Any) -> None:
    """NumPy's AxisError under a derivative too; it was taken modulo the number of axes."""
    with pytest.raises(np.exceptions.AxisError, match="is out of bounds for array of dimension 2"):
        hips.grad(lambda x: anp.sum(f(x)))(np.ones((2, 3)))
    assert hips.grad(lambda x: anp.sum(x, axis=0))(2.0) == 1.0


def test_holomorphic_gradient_of_a_sum() -> None:
    """HIPS autograd, README: it takes complex functions to their derivative; of any output."""
    z = np.array([1 + 2j, -0.5j, 0.3])
    np.testing.assert_allclose(hips.holomorphic_grad(lambda v: anp.sum(v ** 3))(z), 3 * z ** 2)
    np.testing.assert_allclose(hips.holomorphic_grad(lambda v: v ** 3)(z), 3 * z ** 2)


def test_make_diagonal() -> None:
    x = R.normal(size=(2, 3))
    found = anp.make_diagonal(x, axis1=-1, axis2=-2)
    np.testing.assert_array_equal(found, np.stack([np.diag(row) for row in x]))
    check_grads(lambda v: anp.make_diagonal(v, axis1=-1, axis2=-2), modes=["rev"])(x)
    with pytest.raises(NotImplementedError, match="only supports offset=0"):
        anp.make_diagonal(x)


def test_numpys_own_ufuncs_take_boxes() -> None:
    x = np.array([0.5, 1.5, 2.5])
    np.testing.assert_allclose(hips.grad(lambda v: anp.sum(np.sin(v)))(x), np.cos(x))
    np.testing.assert_allclose(hips.grad(hips.grad(np.exp))(1.0), np.e)
    np.testing.assert_allclose(hips.grad(lambda v: anp.sum(np.multiply(x, v) / v))(x), 0 * x)
    np.testing.assert_allclose(hips.grad(lambda v: anp.sum(np.maximum(v, 1.0)))(x), [0, 1, 1])
    np.testing.assert_array_equal(hips.grad(lambda v: anp.sum(anp.where(x > v, v, 2 * v)))(x),
                                  [2, 2, 2])
    with pytest.raises(TypeError):
        hips.grad(lambda v: anp.sum(np.add(x, v, out=x)))(x)


def test_the_largest_of_complex_numbers_and_their_order() -> None:
    z = np.array([1 + 2j, 1 + 1j, -3j])
    for f, place in ((anp.max, 0), (anp.min, 2), (anp.amax, 0)):
        g = hips.grad(lambda v, f=f: anp.real(f(v)))(z)
        np.testing.assert_array_equal(g, np.eye(3)[place])
        assert f(z) == z[place]
    g = hips.grad(lambda v: anp.real(anp.sum(anp.sort(v) * np.arange(3))))(z)
    np.testing.assert_array_equal(g, [2, 1, 0])
    two = np.array([[1j, 1j], [2, 3]])
    g = hips.grad(lambda v: anp.real(anp.sum(anp.max(v, axis=1, keepdims=True))))(two)
    np.testing.assert_array_equal(g, [[0.5, 0.5], [0, 1]])


def test_order_of_a_graph() -> None:
    """Each node comes once, after all that it is a parent of."""
    from adjoint.hips.util import toposort
    graph = {5: [4, 2, 2], 4: [1, 3], 3: [1, 0], 2: [3], 1: [0], 0: []}
    found = list(toposort(5, graph.__getitem__))
    assert sorted(found) == sorted(graph) and found[0] == 5
    assert all(found.index(p) > found.index(n) for n in graph for p in graph[n])


@pytest.mark.parametrize("argnum", [3, -2, (0, 3)])
def test_a_position_without_argument_is_an_index_error(argnum: object) -> None:
    from adjoint.hips import grad
    with pytest.raises(IndexError, match="tuple index out of range: argnum is"):
        grad(lambda x: x, argnum)(1.0)


def test_values_that_do_not_hang_on_the_argument() -> None:
    """A truth value, a shape or a word is the value; its gradient is zero, and grad refuses it."""
    x = np.array([0.5, 1.5, 2.5])
    with pytest.warns(UserWarning, match="independent"):
        pull, value = hips.make_vjp(lambda v: anp.allclose(v, v))(x)
    assert value is True or value == np.True_
    np.testing.assert_array_equal(pull(1.0), 0 * x)
    with pytest.warns(UserWarning, match="independent"), pytest.raises(
            TypeError, match="Can't find vector space for value True"):
        hips.grad(lambda v: anp.isscalar(v) or True)(1.0)


def test_orders_of_special_functions_have_no_gradient() -> None:
    import adjoint.hips.scipy.special as special
    x, n = np.array([0.3, 0.6, 0.8]), np.array([1, 2, 3])
    for f in (special.iv, special.ive, special.jn, special.yn):
        np.testing.assert_array_equal(hips.make_vjp(f, 0)(1.0 * n, x)[0](x), 0 * x)
    import scipy.special
    np.testing.assert_allclose(special.polygamma(n, x), scipy.special.polygamma(n, x))
    slope = hips.make_vjp(special.polygamma, 1)(n, x)[0](np.ones(3))
    np.testing.assert_allclose(slope, scipy.special.polygamma(n + 1, x))


def test_complex_numbers_in_numpys_order_and_rounded() -> None:
    """The larger of two, where equal ones share the gradient, as HIPS has it of NumPy."""
    z = np.array([1 + 2j, 1 + 1j, -3j])
    w = np.array([1 + 1j, 1 + 1j, 2.0])
    pull = hips.make_vjp(anp.maximum, 0)(z, w)[0]
    np.testing.assert_array_equal(pull(z * 2), [2 + 4j, 1 + 1j, 0])
    np.testing.assert_array_equal(hips.make_vjp(anp.fmin, 1)(z, w)[0](w), [1 + 1j, (1 + 1j) / 2, 0])
    for f in (anp.around, anp.rint, anp.sign):
        with warnings.catch_warnings(action="ignore"):        # (a step is independent)
            pull, value = hips.make_vjp(f)(1.3 * z)
        np.testing.assert_allclose(value, getattr(np, f.__name__)(1.3 * z))
        np.testing.assert_array_equal(pull(z), 0 * z)


def test_masked_spread_filled_arrays_and_rolls() -> None:
    x = np.array([0.3, 0.6, 0.8])
    mask = np.array([True, False, True])
    assert float(hips.make_vjp(anp.var)(x, where=mask)[1]) == pytest.approx(np.var(x, where=mask))
    check_grads(lambda v: anp.std(v, where=mask), modes=["rev", "fwd"])(x)
    check_grads(lambda v: anp.full_like(x, v), modes=["rev", "fwd"])(0.5)
    np.testing.assert_array_equal(hips.make_vjp(anp.roll)(x, np.array([1, 2]))[0](x), x)


def test_counts_that_are_not_whole_have_no_probability() -> None:
    import adjoint.hips.scipy.stats.poisson as poisson
    mu, k = np.array([0.3, 0.6, 0.8]), np.array([1.0, 2.0, 0.5])
    assert poisson.pmf(k, mu)[2] == 0.0 and poisson.logpmf(k, mu)[2] == -np.inf
    g = hips.grad(lambda m: anp.sum(poisson.pmf(k, m)))(mu)
    assert g[2] == 0.0 and (g[:2] != 0).all()


@pytest.mark.parametrize("name", ["gamma", "rgamma", "psi", "digamma"])
def test_gamma_functions_of_complex_numbers(name: str) -> None:
    """Values, and the derivatives that HIPS autograd has: not those of digamma."""
    autograd = pytest.importorskip("autograd")
    theirs = importlib.import_module("autograd.scipy.special")
    ours, top, z = OURS.names["sp"], OURS.top, POINTS["C"]
    np.testing.assert_allclose(getattr(ours, name)(z), getattr(theirs, name)(z), rtol=1e-12)
    def slope(m: Any, f: Any) -> Any:
        return m.holomorphic_grad(lambda x: m.numpy.sum(f(x)))(z)
    numpy = importlib.import_module("autograd.numpy")
    theirs_top = SimpleNamespace(holomorphic_grad=autograd.holomorphic_grad, numpy=numpy)
    ours_top = SimpleNamespace(holomorphic_grad=top.holomorphic_grad, numpy=OURS.names["np"])
    if name in ("gamma", "rgamma"):
        want = slope(theirs_top, getattr(theirs, name))
        np.testing.assert_allclose(slope(ours_top, getattr(ours, name)), want, rtol=1e-12)
    else:
        for m, f in ((theirs_top, theirs), (ours_top, ours)):
            with pytest.raises(TypeError):
                slope(m, getattr(f, name))
