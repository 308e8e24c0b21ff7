"""Vector mathematics: error in units in the last place, special values, independence of width."""
from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.kernels import bessel, codegen, llvm, mathlib, special
from adjoint.kernels.ir import Code, Value, vec
from adjoint.testing import ulp
from adjoint.testing.ulp import REFERENCE

pytestmark = pytest.mark.skipif(not llvm.available(), reason="needs llvmlite")

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e-45, -1e-45,
                    1e-39, -1e-39, 3e38, -3e38, 88.8, -103.9, -88.0, 2.0, 3.0, -2.0, -3.0, 1e6,
                    -1e6, 123456.7], np.float32)


@functools.cache
def compiled(name: str, base: str, lanes: int, arity: int = 1) -> Callable[..., Any]:
    """A function of arrays that applies one library function in a vector loop."""
    code = Code()
    f = code.function("k", [("ptr", "y"), *(("ptr", f"x{i}") for i in range(arity)),
                            ("i64", "n")])
    y, *xs, n = f.args
    ty = vec(lanes, base)

    def body(i: Value, mask: Value | None, _: list[Value]) -> list[Value]:
        values = [f.load(f.at(x, base, i), ty, mask=mask) for x in xs]
        f.store(mathlib.apply(f, name, *values), f.at(y, base, i), mask=mask)
        return []
    f.vector_loop(f.i64(0), n, lanes, [], body)
    f.ret()
    address = llvm.compile_ir(code.text(), name=f"test {name}").address("k")
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + arity), ctypes.c_int64)(address)

    def run(*arrays: Any) -> Any:
        arrays = tuple(np.ascontiguousarray(a) for a in arrays)
        out = np.empty_like(arrays[0])
        call(out.ctypes.data, *(a.ctypes.data for a in arrays), out.size)
        return out
    return run


def ulp_error(got: Any, want: Any) -> float:
    """The largest error in units in the last place; inf where nan, inf or sign of zero differ."""
    dtype = got.dtype.type
    with np.errstate(all="ignore"):
        return _ulp_error(got, want, dtype)


def _ulp_error(got: Any, want: Any, dtype: Any) -> float:
    rounded = want.astype(dtype)
    finite = np.isfinite(rounded) & np.isfinite(got)
    unit = np.spacing(np.maximum(abs(np.where(finite, rounded, 1)), np.finfo(dtype).tiny))
    error = abs(got.astype(np.longdouble) - want) / unit.astype(np.longdouble)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    return float(np.max(np.where(finite, error, np.where(same, 0, np.inf))))


def reference(name: str, x: Any) -> Any:
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64 if name == "erf" else np.longdouble)
        return REFERENCE[name](wide)


@pytest.mark.parametrize("name", REFERENCE)
def test_float32_error_over_all_magnitudes(name: str) -> None:
    x = np.arange(0, 2**32, 15013, dtype=np.uint32).view(np.float32)
    x = np.concatenate([x, np.linspace(-12, 12, 40001, dtype=np.float32)])
    bound = mathlib.ULP[name][0]
    assert ulp_error(compiled(name, "float", 16)(x), reference(name, x)) <= bound


@pytest.mark.parametrize("name", REFERENCE)
def test_float32_error_over_a_dense_sample(name: str) -> None:
    """A million bit patterns of all exponents against the float64 functions, and those against
    extended precision."""
    assert ulp.sweep(name, step=4099).error <= mathlib.ULP[name][0]
    assert ulp.check_reference(name, 20_000) <= mathlib.ULP[name][1]


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCE)
def test_float32_error_over_every_input(name: str) -> None:
    assert ulp.sweep(name).error <= mathlib.ULP[name][0]


def test_the_sweep_sees_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A float32 function that is off by a few units, or wrong at infinity, is found."""
    right = mathlib.apply

    def off(f: Any, name: str, x: Value) -> Value:
        y = right(f, name, x)
        return y * 1.000001 if "float" in x.ty else y

    def flat(f: Any, name: str, x: Value) -> Value:
        y = right(f, name, x)
        return f.select(x.compare("ogt", 1e38), f.const(x.ty, 1.0), y) if "float" in x.ty else y
    for broken, least in ((off, 4.0), (flat, float("inf"))):
        monkeypatch.setattr(mathlib, "apply", broken)
        monkeypatch.setattr(ulp, "_kernel", lambda name, broken=broken: codegen.build(
            "ulp.broken", (broken.__name__,), functools.partial(ulp._emit, name), arrays=2,
            integers=2))
        assert ulp.sweep("exp", step=40009).error >= least


def test_documented_errors_are_true() -> None:
    """docs/ulp.md: bounds are those asserted, no sampled error exceeds the documented worst."""
    page = (Path(__file__).resolve().parents[1] / "docs" / "ulp.md").read_text(encoding="utf-8")
    rows = [[c.strip(" `") for c in line.split("|")[1:-1]] for line in page.splitlines()
            if line.startswith("| `")]
    assert [r[0] for r in rows] == list(REFERENCE)
    for name, _, worst, _, bound, wide, wide_bound in rows:
        assert (float(bound), float(wide_bound)) == mathlib.ULP[name]
        assert float(worst) <= float(bound) and float(wide) <= float(wide_bound)
        assert ulp.sweep(name, step=257 * 257).error <= float(worst) + 5e-4


@pytest.mark.parametrize("name", [n for n in REFERENCE if n != "erf"])
def test_float64_error(name: str) -> None:
    rng = np.random.default_rng(1)
    bits = rng.integers(-2**63, 2**63 - 1, 60000).view(np.float64)
    x = np.concatenate([bits, rng.standard_normal(60000) * np.exp(3 * rng.standard_normal(60000)),
                        [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 709.8, -745.1]])
    with np.errstate(all="ignore"):
        assert ulp_error(compiled(name, "double", 8)(x), reference(name, x)
                         ) <= mathlib.ULP[name][1]


def test_float64_erf_error() -> None:
    mpmath = pytest.importorskip("mpmath")
    x = np.concatenate([np.linspace(-7, 7, 1501), np.logspace(-300, 0, 100)])
    want = np.array([float(mpmath.erf(v)) for v in x])
    assert ulp_error(compiled("erf", "double", 8)(x), want) <= mathlib.ULP["erf"][1]


@pytest.mark.parametrize("name", REFERENCE)
def test_special_values_are_those_of_numpy(name: str) -> None:
    with np.errstate(all="ignore"):
        for base, dtype in (("float", np.float32), ("double", np.float64)):
            x = SPECIAL.astype(dtype)
            got, wide = compiled(name, base, 8)(x), reference(name, x)
            with np.errstate(all="ignore"):
                want = wide.astype(dtype)
            assert np.array_equal(np.isnan(got), np.isnan(want))
            assert np.array_equal(np.isinf(got), np.isinf(want))
            zero = (want == 0) & (x == 0)
            assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sin", "erf", "sigmoid", "expm1"])
def test_results_do_not_depend_on_the_width(name: str) -> None:
    x = np.random.default_rng(2).standard_normal(4001).astype(np.float32) * 30
    wide, narrow, odd = (compiled(name, "float", n)(x) for n in (16, 8, 4))
    assert np.array_equal(wide.view(np.int32), narrow.view(np.int32))
    assert np.array_equal(wide.view(np.int32), odd.view(np.int32))


def test_pow_float32_with_all_special_pairs() -> None:
    edge = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2, -2, 3, -3, 0.5, -0.5, 1e-45,
                     -1e-45, 3e38, -3e38], np.float32)
    a, b = (m.ravel() for m in np.meshgrid(edge, edge))
    with np.errstate(all="ignore"):
        want = np.power(a.astype(np.float64), b.astype(np.float64)).astype(np.float32)
        got = compiled("pow", "float", 16, 2)(a, b)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    known = ~np.isnan(want)
    assert np.array_equal(got[known], want[known])
    assert np.array_equal(np.signbit(got[known]), np.signbit(want[known]))


def test_pow_error() -> None:
    rng = np.random.default_rng(3)
    a = np.exp(4 * rng.standard_normal(100000)).astype(np.float32)
    b = (rng.standard_normal(100000) * 20).astype(np.float32)
    with np.errstate(all="ignore"):
        want = np.power(a.astype(np.longdouble), b.astype(np.longdouble))
        assert ulp_error(compiled("pow", "float", 16, 2)(a, b), want) <= mathlib.ULP["pow"][0]
        a64, b64 = a[:5000].astype(np.float64), b[:5000].astype(np.float64)
        want = np.power(a64.astype(np.longdouble), b64.astype(np.longdouble))
        assert ulp_error(compiled("pow", "double", 8, 2)(a64, b64), want) <= mathlib.ULP["pow"][1]


def test_huge_arguments_of_sin_go_to_the_c_library() -> None:
    x = np.array([1e5, 1e10, 1e20, 3e38, -3e38, 2.0], np.float32)
    got = compiled("sin", "float", 16)(x)
    assert ulp_error(got, np.sin(x.astype(np.longdouble))) <= mathlib.ULP["sin"][0]


def test_unknown_function_is_a_key_error() -> None:
    f = Code().function("f", [("float", "x")])
    with pytest.raises(KeyError):
        mathlib.apply(f, "no_such_function", f.args[0])
    assert {"exp", "tanh", "erf", "pow", "atan2"} <= mathlib.names()


EDGES = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2, -3, 0.5, 1e-45, -1e-45, 3e38, -3e38, 5.5]


@pytest.mark.parametrize(("base", "dtype", "lanes"), [("float", np.float32, 16),
                                                     ("double", np.float64, 8)])
def test_fmod_is_exact(base: str, dtype: Any, lanes: int) -> None:
    """Also where the rounded quotient is a whole number above the true one, or needs more bits
    than it has."""
    rng = np.random.default_rng(4)
    b = rng.standard_normal(20000).astype(dtype)
    whole = (rng.integers(1, 4000, b.size) * b).astype(dtype)
    near = np.nextafter(whole, dtype(0))
    patterns = rng.integers(-2**63, 2**63 - 1, b.size).view(dtype)[:b.size]
    a, c = (m.ravel() for m in np.meshgrid(*[np.array(EDGES).astype(dtype)] * 2))
    f = compiled("fmod", base, lanes, 2)
    for x, y in ((whole, b), (near, b), (b * dtype(1e9), b[::-1]), (patterns, patterns[::-1]),
                 (a, c)):
        with np.errstate(all="ignore"):
            want = np.fmod(x, y)
        got = f(x, y)
        assert np.array_equal(got, want, equal_nan=True)
        real = ~np.isnan(want)
        assert np.array_equal(np.signbit(got[real]), np.signbit(want[real]))


@pytest.mark.parametrize(("name", "f", "bound"), [("atan2", np.arctan2, 1.6),
                                                 ("hypot", np.hypot, 0.6)])
def test_functions_of_a_pair(name: str, f: Any, bound: float) -> None:
    rng = np.random.default_rng(5)
    a = rng.standard_normal(40000) * np.exp(5 * rng.standard_normal(40000))
    edges = (m.ravel() for m in np.meshgrid(*[np.array(EDGES)] * 2))
    for x, y in ((a, rng.standard_normal(a.size)), edges):
        x, y = x.astype(np.float32), y.astype(np.float32)
        want, got = f(x.astype(np.longdouble), y.astype(np.longdouble)), compiled(
            name, "float", 16, 2)(x, y)
        assert ulp_error(got, want) <= bound
        real = ~np.isnan(want)
        assert np.array_equal(np.signbit(got[real]), np.signbit(want[real]))


def test_hypot_of_float64() -> None:
    rng = np.random.default_rng(6)
    edges = [*EDGES, 5e-324, 1e-310, 1e-160, 1e160, 1.7e308, 2.0**500, 2.0**-500]
    pairs = [m.ravel() for m in np.meshgrid(*[np.array(edges)] * 2)]
    wide = [np.exp2(rng.uniform(-1070, 1020, 20000)) for _ in range(2)]
    for x, y in (pairs, wide, [wide[0], wide[0] * rng.random(20000)]):
        with np.errstate(all="ignore"):
            want = np.hypot(x.astype(np.longdouble), y.astype(np.longdouble))
            got = compiled("hypot", "double", 8, 2)(x, y)
        assert ulp_error(got, want) <= 1.1


@pytest.mark.parametrize(("base", "dtype", "lanes"), [("float", np.float32, 16),
                                                     ("double", np.float64, 8)])
def test_nextafter_is_numpys(base: str, dtype: Any, lanes: int) -> None:
    rng = np.random.default_rng(7)
    limits = np.finfo(dtype)
    edges = np.array([*EDGES, limits.max, limits.min, limits.tiny, limits.smallest_subnormal],
                     dtype)
    pairs = [m.ravel() for m in np.meshgrid(edges, edges)]
    patterns = rng.integers(-2**63, 2**63 - 1, 4096).view(dtype)
    for x, y in (pairs, (patterns, patterns[::-1].copy())):
        with np.errstate(all="ignore"):
            want, got = np.nextafter(x, y), compiled("nextafter", base, lanes, 2)(x, y)
        real = ~np.isnan(want)
        assert np.array_equal(np.isnan(got), ~real)
        assert got[real].tobytes() == want[real].tobytes()


def test_erfc_error() -> None:
    mpmath = pytest.importorskip("mpmath")
    x = np.concatenate([np.linspace(-5, 11, 1201), [0.0, -0.0, np.inf, -np.inf, 1e-30, 1e30]])
    x = x.astype(np.float32)
    want = np.array([float(mpmath.erfc(float(v))) for v in x]).astype(np.longdouble)
    assert ulp_error(compiled("erfc", "float", 16)(x), want) <= 0.6


def test_erfc_error_in_float64() -> None:
    mpmath = pytest.importorskip("mpmath")
    x = np.concatenate([np.linspace(-7, 27.2, 3001), np.linspace(0.46, 0.48, 99), [0.0, 1e-30]])
    got = compiled("erfc", "double", 8)(x)
    with mpmath.workdps(40):
        off = [float(abs(mpmath.mpf(a) - mpmath.erfc(b))) / np.spacing(a)
               for a, b in zip(got.tolist(), x.tolist(), strict=True)]
    assert max(off) <= 4.5
    edges = compiled("erfc", "double", 8)(np.array([np.inf, -np.inf, -1e300, 40.0, np.nan]))
    assert edges.tolist()[:4] == [0.0, 2.0, 2.0, 0.0] and np.isnan(edges[4])


RARE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "erfc": (special.erfc, lambda u: np.concatenate([8 * u - 4, 28 * u])),
    "lgamma": (special.lgamma, lambda u: np.concatenate([20 * u - 5, np.exp(40 * u - 20), -u])),
    "digamma": (special.digamma, lambda u: np.concatenate([20 * u - 5, np.exp(40 * u - 20), -u])),
    "erfinv": (special.erfinv, lambda u: np.concatenate([2 * u - 1, np.exp(-60 * u)])),
    "ndtri": (special.ndtri, lambda u: np.concatenate([u, np.exp(-80 * u)])),
    "ndtr": (special.ndtr, lambda u: np.concatenate([8 * u - 4, -36 * u])),
    "log_ndtr": (special.log_ndtr, lambda u: np.concatenate([8 * u - 4, -np.exp(20 * u)])),
    "trigamma": (special.trigamma, lambda u: np.concatenate([20 * u - 5, np.exp(40 * u - 20)])),
    **{name: (getattr(bessel, name), lambda u: np.concatenate([60 * u - 30, 700 * u]))
       for name in ("i0", "i1", "i0e", "i1e")},
}


@pytest.mark.parametrize("name", RARE)
def test_functions_that_c_lacks(name: str) -> None:
    """Against the NumPy forms, which the tests of operations hold to stated values."""
    reference, draw = RARE[name]
    assert frozenset(RARE) | {"hypot", "nextafter", "log2", "log10"} == mathlib.RARE  # C has these
    x = np.concatenate([draw(np.random.default_rng(6).random(20000)), np.array(EDGES)])
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float32).astype(np.float64))
        got = compiled(name, "float", 16)(x.astype(np.float32))
        assert ulp_error(got, want.astype(np.longdouble)) <= 0.6
        want, got = reference(x), compiled(name, "double", 8)(x)
    finite = np.isfinite(want)
    assert np.array_equal(got[~finite], want[~finite], equal_nan=True)
    near = abs(got[finite] - want[finite]) <= 2e-14 * np.maximum(1, abs(want[finite]))
    assert near.all()
    zero = want == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("name", ["lgamma", "digamma", "trigamma", "erfinv", "ndtr", "i0", "i1",
                                  "i0e", "i1e"])
def test_functions_that_c_lacks_are_near_the_true_ones(name: str) -> None:
    mpmath = pytest.importorskip("mpmath")
    x = RARE[name][1](np.random.default_rng(7).random(300))
    true = {"lgamma": lambda v: mpmath.loggamma(v).real, "ndtr": mpmath.ncdf,
            "trigamma": lambda v: mpmath.psi(1, v), "i0": lambda v: mpmath.besseli(0, v),
            "i1": lambda v: mpmath.besseli(1, v),
            "i0e": lambda v: mpmath.besseli(0, v) * mpmath.exp(-abs(v)),
            "i1e": lambda v: mpmath.besseli(1, v) * mpmath.exp(-abs(v))}
    with mpmath.workdps(40):
        want = np.array([float(true.get(name, getattr(mpmath, name, None))(float(v))) for v in x])
    got = compiled(name, "double", 8)(x)
    assert (abs(got - want) <= 2e-14 * np.maximum(1, abs(want))).all()
    if name == "ndtr":
        assert (abs(got - want) <= 1e-12 * want).all()


def test_log_gamma_is_zero_at_one_and_two() -> None:
    for value in (compiled("lgamma", "double", 8)(np.array([1.0, 2.0])),
                  special.lgamma(np.array([1.0, 2.0]))):
        assert value.tolist() == [0.0, 0.0]


def test_log_gamma_of_the_smallest_numbers_is_minus_their_logarithm() -> None:
    x = np.array([5e-324, -5e-324, 1e-310, -3e-308, 1e-300, 1e-280, -1e-280])
    for value in (compiled("lgamma", "double", 8)(np.resize(x, 64))[:7], special.lgamma(x)):
        np.testing.assert_allclose(value, -np.log(abs(x)), rtol=1e-15)


def test_digamma_and_its_slope_of_large_arrays_leave_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """polygamma(1, x), and the backward of digamma, run in the generated kernel."""
    x = ad.linspace(-3.3, 30.0, 8192, dtype=ad.float64, requires_grad=True)
    want = special.trigamma(x.detach().numpy())

    def left(*_: Any) -> None:
        raise AssertionError("computed by NumPy")
    monkeypatch.setattr(special, "_polygamma64", left)
    np.testing.assert_allclose(ad.polygamma(1, x.detach()).numpy(), want, rtol=1e-12)
    ad.digamma(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int16, np.int8, np.uint8])
def test_remainders_of_many_integers_by_one_number(dtype: Any, monkeypatch: pytest.MonkeyPatch
                                                   ) -> None:
    """They are made of quotients, which NumPy computes several at a time; the ends included."""
    ends = np.iinfo(dtype)
    x = np.random.default_rng(8).integers(ends.min, ends.max, 8192, dtype=dtype, endpoint=True)
    x[:2] = ends.min, ends.max
    real, asked = np.floor_divide, []
    monkeypatch.setattr(np, "floor_divide", lambda *a: asked.append(a) or real(*a))
    for number in {7, 1, 100, ends.max, *([-7, -1, ends.min] if ends.min else [])}:
        got = ad.remainder(ad.tensor(x), number).numpy()
        assert got.dtype == dtype
        assert got.tolist() == [v % int(number) for v in x.tolist()]
    assert len(asked) == (7 if ends.min else 4)
