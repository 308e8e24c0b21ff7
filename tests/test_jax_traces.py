"""`jit`, loops and branches hide values from Python, as JAX's tracers do; what arrays say of
their memory (F54)."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adjoint import jax

jnp, lax, errors = jax.numpy, jax.lax, jax.errors
pytestmark = pytest.mark.row("F54")
X = jnp.arange(3.0) + 1


def refused(call: Callable[[Any], Any], error: type[Exception], text: str, x: Any = X) -> None:
    """A call under `jit` raises; `disable_jit` lets it run, and so do plain arrays."""
    with pytest.raises(error, match=text):
        jax.jit(call)(x)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda x: 1.0 if x[0] > 0 else 2.0, errors.TracerBoolConversionError, "Attempted boolean"),
    (lambda x: int(x[0]), errors.ConcretizationTypeError, "Abstract tracer value encountered"),
    (lambda x: [1, 2, 3][x[0].astype(int)], errors.TracerIntegerConversionError, "__index__"),
    (lambda x: np.sin(x), errors.TracerArrayConversionError, "numpy.ndarray conversion"),
    (lambda x: x[x > 1], errors.NonConcreteBooleanIndexError, r"must be concrete; got bool\[3\]"),
    (lambda x: jnp.nonzero(x), errors.ConcretizationTypeError, "size argument of jnp.nonzero"),
    (lambda x: jnp.unique(x), errors.ConcretizationTypeError, r"jnp.unique\(\)"),
    (lambda x: jnp.bincount(x.astype(int)), errors.ConcretizationTypeError, "static `length`"),
    (lambda x: jnp.repeat(x, x.astype(int)), errors.ConcretizationTypeError, "total_repeat"),
    (lambda x: jnp.arange(x[0]), errors.ConcretizationTypeError, "argument 'stop'"),
    (lambda x: jnp.reshape(x, (x[0].astype(int),)), TypeError, "Shapes must be 1D"),
    (lambda x: x[:x[0].astype(int)], IndexError, "Slice entries must be static integers"),
    (lambda x: jnp.sum(x, axis=x[0].astype(int)), errors.ConcretizationTypeError, "axis argument"),
    (lambda x: x.tolist(), errors.ConcretizationTypeError, "tolist"),
    (lambda x: x.devices(), errors.ConcretizationTypeError, r"devices\(\) method"),
    (lambda x: x.sharding, AttributeError, "'sharding' attribute is not available"),
    (lambda x: jax.jit(lambda n: 1, static_argnums=0)(x), ValueError, "Non-hashable static")])
def test_what_jit_refuses(call: Any, error: Any, text: str) -> None:
    refused(call, error, text)


def test_loops_and_branches_hide_values_and_disable_jit_shows_them() -> None:
    def sign(x: Any) -> Any:
        return x if x > 0 else -x
    calls: list[Callable[[], Any]] = [
        lambda: lax.scan(lambda c, x: (sign(c), x), 1.0, X), lambda: lax.map(sign, X),
        lambda: lax.while_loop(lambda c: bool(c < 3), lambda c: c + 1, 0),
        lambda: lax.fori_loop(0, 3, lambda i, c: c + [1, 2, 3][i], 0),
        lambda: lax.cond(True, sign, lambda x: x, 1.0), lambda: jax.checkpoint(sign)(1.0),
        lambda: jax.linear_transpose(sign, 1.0)(1.0), lambda: jax.jit(sign)(1.0)]
    for call in calls:
        with pytest.raises(TypeError, match="traced array with shape"):
            call()
    with jax.disable_jit():
        assert lax.fori_loop(0, 3, lambda i, c: c + [1, 2, 3][i], 0) == 6
        assert jax.jit(sign)(-2.0) == 2
    assert jax.grad(sign)(-2.0) == -1                       # (a derivative alone shows them)


def test_under_jit() -> None:
    """What is made inside is hidden, what is closed over is not; sizes make masks static."""
    seen: list[Any] = []
    closed = X[0] > 0

    def f(x: Any) -> Any:
        seen.extend([repr(jnp.zeros(2)), repr(x), bool(closed)])
        assert isinstance(x, jax.core.Tracer)
        return jnp.nonzero(x > 1, size=3, fill_value=9)[0], jax.random.permutation(
            jax.random.key(0), 3), x[jnp.argmax(x)], jnp.digitize(x, jnp.array([3.0, 1.0]))
    where, order, top, bins = jax.jit(f)(X)
    assert seen == ["JitTracer(float32[2])", "JitTracer(float32[3])", True]
    np.testing.assert_array_equal(where, [1, 2, 9])
    np.testing.assert_array_equal(order, jax.random.permutation(jax.random.key(0), 3))
    np.testing.assert_array_equal(bins, jnp.digitize(X, jnp.array([3.0, 1.0])))
    assert float(top) == 3 and not isinstance(top, jax.core.Tracer)
    assert jax.grad(jax.jit(lambda x: jax.checkpoint(lambda y: (x * y).sum())(x)))(X)[2] == 6


def test_a_value_that_escapes() -> None:
    kept: list[Any] = []
    jax.jit(lambda x: kept.append(x * 2))(X)
    with pytest.raises(errors.UnexpectedTracerError, match="Encountered an unexpected tracer"):
        kept[0] + 1
    with pytest.raises(errors.TracerBoolConversionError):
        jax.jit(lambda x: kept.append(x[0]))(X)
        bool(kept[1])


def test_callbacks_see_values() -> None:
    seen: list[float] = []

    def f(x: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(float(v)), x[0])
        return jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct((3,), X.dtype),
                                 x)
    np.testing.assert_array_equal(jax.jit(f)(X), X * 2)
    assert seen == [1.0]


def test_memory() -> None:
    a = jnp.arange(6.0).reshape(2, 3)
    shard, = a.addressable_shards
    assert (shard.index, shard.replica_id, shard.device) == ((slice(None),) * 2, 0,
                                                            jax.devices()[0])
    assert a.on_device_size_in_bytes() == 24 and a.platform() == "cpu" and not a.committed
    np.testing.assert_array_equal(np.from_dlpack(a), np.asarray(a))
    b = a + 1
    b.delete()
    assert b.is_deleted() and b.shape == (2, 3)
    with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=float32\[2,3\]"):
        b + 1


def test_values_that_do_not_fit() -> None:
    for call in (lambda: jnp.array(-1, dtype="uint8"), lambda: jnp.array([300], dtype="uint8"),
                 lambda: jnp.array([2 ** 40])):
        with pytest.raises(OverflowError):
            call()
    assert jnp.array([2 ** 33], dtype="float32")[0] == 2.0 ** 33
    assert jnp.arange(6.0).view("int8").shape == (24,)
    assert jnp.arange(4, dtype="int16").view("int32").shape == (2,)
    with pytest.raises(IndexError, match="boolean index did not match"):
        jnp.ones((2, 3))[jnp.array([True, False, True])]
    with pytest.raises(ValueError, match="Unknown gather mode"):
        jnp.ones(3).at[0].set(1, mode="foo")


def test_types_of_pairs() -> None:
    """Weak types and dtypes that JAX gives two operands."""
    assert (jnp.array([True]) == 3).weak_type and jnp.hypot(3, 4).weak_type
    assert not jnp.hypot(3.0, jnp.array([4], "int8")).weak_type
    assert jnp.gcd(4, 6).weak_type and jnp.convolve(jnp.arange(3), jnp.ones(2, int)
                                                    ).dtype == jnp.float32
    assert jax.scipy.special.beta(jnp.float16(2), jnp.int8(1)).dtype == jnp.float16
    z = jnp.arctan2(1 + 2j, 0.5 - 1j)
    assert abs(z - (1.908167 + 0.379087j)) < 1e-5
    for call, error in ((lambda: jnp.gcd(1.5, 2), ValueError), (lambda: jnp.sign(True), TypeError),
                        (lambda: jnp.argmax(jnp.array([1j])), TypeError),
                        (lambda: jnp.median(jnp.array([1j])), ValueError),
                        (lambda: jnp.power(2, -1), TypeError),
                        (lambda: jax.scipy.special.ndtr(jnp.int8(1)), TypeError),
                        (lambda: jax.scipy.special.erf(1j), TypeError)):
        with pytest.raises(error):
            call()


@pytest.mark.parametrize(("call", "error"), [
    (lambda a: jnp.expand_dims(a, 5), ValueError), (lambda a: jnp.flip(a, 3), ValueError),
    (lambda a: jnp.moveaxis(a, 0, 5), ValueError), (lambda a: jnp.diagonal(a[0]), ValueError),
    (lambda a: jnp.reshape(a, (-1, -1)), TypeError), (lambda a: jnp.zeros((2, -1)), TypeError),
    (lambda a: jnp.tensordot(a, a, 1), TypeError), (lambda a: jnp.einsum("ij,jk", a), ValueError),
    (lambda a: jnp.meshgrid(a), ValueError), (lambda a: jnp.clip(1j, 0, 1), ValueError),
    (lambda a: jnp.sum(a, axis=1.5), TypeError), (lambda a: jnp.arange(2j), ValueError),
    (lambda a: jnp.bincount(a.astype(int)), ValueError), (lambda a: jnp.ix_(a), ValueError),
    (lambda a: jnp.convolve(a[0], a[0], mode="foo"), ValueError),
    (lambda a: jnp.var(a, ddof=1, correction=1), ValueError)])
def test_arguments_that_jax_refuses(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(jnp.ones((3, 4)))


def test_open_grids_and_negative_ratios() -> None:
    rows, columns = jnp.ix_(jnp.array([2, 0]), jnp.array([1, 3, 2]))
    assert rows.shape == (2, 1) and columns.tolist() == [[1, 3, 2]]
    np.testing.assert_allclose(jnp.geomspace(-1, -100, 3), [-1, -10, -100], rtol=1e-6)
    assert jnp.mean(jnp.arange(4), dtype=int).dtype == jnp.int32
