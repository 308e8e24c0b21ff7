"""`adjoint.jax` by itself: what holds without JAX at hand (F54, F60)."""
from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import adjoint.jax as jax
import adjoint.jax.numpy as jnp
from adjoint.base.errors import NotSupported
from adjoint.jax import lax, random
from adjoint.jax.scipy.sparse.linalg import cg
from adjoint.jax.test_util import check_grads


def test_arrays_are_immutable_and_hash_to_nothing() -> None:
    x = jnp.arange(3.0)
    with pytest.raises(TypeError, match="JAX arrays are immutable"):
        x[0] = 1.0
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(x)[0] = 1.0
    assert isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
    assert jax.grad(lambda v: 1.0 * isinstance(v, jax.core.Tracer) * v)(2.0) == 1.0


def test_copies_and_text() -> None:
    x = jnp.array([1.5, 2.0])
    back = pickle.loads(pickle.dumps(x))  # noqa: S301  # our own bytes
    assert back.dtype == x.dtype and back.tolist() == x.tolist() and copy.deepcopy(x) is x
    assert repr(x) == "Array([1.5, 2. ], dtype=float32)" and f"{x[0]:.2f}" == "1.50"
    assert repr(jnp.asarray(2.0)) == "Array(2., dtype=float32, weak_type=True)"


def test_known_bits() -> None:
    """Threefry's test vectors (Salmon et al. 2011, the known-answer file of Random123)."""
    from adjoint.ops.threefry import _hash
    with np.errstate(over="ignore"):
        zero = [int(v) for v in _hash(*[np.uint32(0)] * 4)]
        ones = [int(v) for v in _hash(*[np.uint32(0xFFFFFFFF)] * 4)]
    assert zero == [0x6B200159, 0x99BA4EFE] and ones == [0x1CB996FC, 0xBB002BE7]


def test_draws_are_distributed_as_they_say() -> None:
    """Means within 5 standard errors of n = 20000 draws."""
    k, n = random.key(3), 20000
    for draw, mean, sd in ((random.gamma(k, 2.5, (n,)), 2.5, 2.5 ** 0.5),
                           (random.beta(k, 2.0, 3.0, (n,)), 0.4, 0.2),
                           (random.poisson(k, 3.0, (n,)), 3.0, 3 ** 0.5),
                           (random.t(k, 9.0, (n,)), 0.0, (9 / 7) ** 0.5),
                           (random.binomial(k, 10, 0.3, (n,)), 3.0, 2.1 ** 0.5)):
        assert abs(float(draw.mean()) - mean) < 5 * sd / n ** 0.5


def test_gamma_variates_have_a_slope() -> None:
    """E x = a, so the slopes have mean 1 (5 standard errors, n = 4000; sd below 1)."""
    slope = jax.grad(lambda a: random.gamma(random.key(0), a, (4000,)).mean())(2.0)
    assert abs(float(slope) - 1) < 5 / 4000 ** 0.5


@pytest.mark.parametrize("f,n", [
    (lambda x: jnp.sin(x) * x.at[0].set(2.0).at[1].add(x[2]), 3),
    (lambda x: lax.scan(lambda c, v: (c * v, jnp.exp(c)), 1.0, x)[1], 3),
    (lambda x: jnp.linalg.cholesky(jnp.outer(x, x) + 3 * jnp.eye(3)), 3),
    (lambda x: lax.conv(x.reshape(1, 1, 4, 4), x[:4].reshape(1, 1, 2, 2), (1, 1), "SAME"), 16),
    (lambda x: lax.reduce_window(x.reshape(4, 4), 0.0, lax.add, (2, 2), (1, 1), "VALID"), 16),
    (lambda x: lax.while_loop(lambda v: v.sum() < 9, lambda v: v * v + 1, x), 3),
    (lambda x: jax.nn.logsumexp(x) + jax.nn.gelu(x), 3)])
def test_derivatives_are_slopes(f: Any, n: int) -> None:
    """Both modes, to second order, in double precision (F10, F11)."""
    with jax.enable_x64():
        check_grads(f, (jnp.linspace(0.3, 1.1, n),), order=2, rtol=1e-4, atol=1e-4)


def test_a_solve_has_the_derivative_of_its_solution() -> None:
    """In the right side and in the matrix, by both modes (F55)."""
    with jax.enable_x64():
        check_grads(lambda x: cg(jnp.outer(x, x) + 3 * jnp.eye(3), x, tol=1e-12)[0],
                    (jnp.linspace(0.3, 1.1, 3),), order=1, rtol=1e-5, atol=1e-6)


def test_keys_batch_as_a_loop() -> None:
    """Every op of keys under vmap is the op of each key."""
    keys = random.split(random.key(1), 3)
    for f in (lambda k: random.bits(k, (2,)), lambda k: random.key_data(random.fold_in(k, 5)),
              lambda k: random.gamma(k, 2.0, (2,)), lambda k: random.normal(k, (2,))):
        want = np.stack([np.asarray(f(k)) for k in keys])
        assert np.array_equal(np.asarray(jax.vmap(f)(keys)), want)


def test_what_has_no_program_says_so() -> None:
    with pytest.raises(NotSupported, match="make_jaxpr"):
        jax.jit(jnp.sin).lower(1.0).as_text()
    assert jax.jit(jnp.sin).lower(1.0).compile()(0.0) == 0.0


def test_shapes_without_values() -> None:
    """Functions run on storage-less tensors, control flow included."""
    s = jax.ShapeDtypeStruct((3, 4), jnp.float32)
    out = jax.eval_shape(lambda x: {"a": x @ x.T, "b": jax.grad(lambda v: (v ** 2).sum())(x)}, s)
    assert out["a"].shape == (3, 3) and out["b"].shape == (3, 4)


def test_debug_print_under_vmap(capsys: Any) -> None:
    def f(x: Any) -> Any:
        jax.debug.print("x = {x}", x=x)
        return x
    jax.vmap(f)(jnp.arange(2))
    jax.eval_shape(f, 1.0)
    assert capsys.readouterr().out == "x = 0\nx = 1\n"


def test_importing_the_package_does_not_load_it() -> None:
    code = "import sys, adjoint; assert not [m for m in sys.modules if m.startswith('adjoint.jax')]"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_taylor_series_along_a_curve() -> None:
    """sin(z^3) by Faa di Bruno's formula, to third order (F13)."""
    from adjoint.jax.experimental.jet import jet
    with jax.enable_x64():
        z = 0.5
        h = z ** 3, 3 * z ** 2, 6 * z, 6.0
        _, (f1, f2, f3) = jet(jnp.sin, (h[0],), (h[1:],))
        s, c = np.sin(h[0]), np.cos(h[0])
        np.testing.assert_allclose(f1, c * h[1], rtol=1e-14)
        np.testing.assert_allclose(f2, -s * h[1] ** 2 + c * h[2], rtol=1e-14)
        np.testing.assert_allclose(f3, -c * h[1] ** 3 - 3 * s * h[1] * h[2] + c * h[3], rtol=1e-14)
        grad = jax.grad(lambda x: jet(jnp.exp, (x,), ((1.0, 0.0),))[1][1])(0.3)
        np.testing.assert_allclose(grad, np.exp(0.3), rtol=1e-14)
    with pytest.raises(ValueError, match="inconsistent lengths"):
        jet(jnp.sin, (1.0, 2.0), ((1.0,), (1.0, 2.0)))


def test_a_rule_for_vmap() -> None:
    """It is used under vmap at any depth, and both derivatives are those of it (F12)."""
    @jax.custom_batching.custom_vmap
    def f(x: Any, y: Any) -> Any:
        return jnp.sin(x) * y

    @f.def_vmap
    def rule(size: int, in_batched: Any, x: Any, y: Any) -> Any:
        assert in_batched == [True, False]
        return jnp.cos(x) * y * size, True
    x = jnp.linspace(0.1, 0.9, 4)
    np.testing.assert_allclose(f(x, 2.0), np.sin(x) * 2, rtol=1e-6)
    mapped = jax.vmap(f, in_axes=(0, None))
    np.testing.assert_allclose(mapped(x, 2.0), np.cos(x) * 8, rtol=1e-6)
    slope = jax.jvp(lambda v: mapped(v, 2.0), (x,), (jnp.ones(4),))[1]
    np.testing.assert_allclose(slope, -np.sin(x) * 8, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda v: mapped(v, 2.0).sum())(x), slope, rtol=1e-6)
    inside = jax.vmap(lambda v: jax.jvp(lambda u: f(u, 2.0), (v,), (1.0,))[1])(x)
    np.testing.assert_allclose(inside, slope, rtol=1e-6)
    each = jax.vmap(jax.custom_batching.sequential_vmap(lambda v: jnp.exp(v)))(x)
    np.testing.assert_allclose(each, np.exp(x), rtol=1e-6)


def test_a_ufunc_folds() -> None:
    """`frompyfunc`'s folds are those of NumPy's multiply."""
    f, x = jnp.frompyfunc(lambda a, b: a * b, 2, 1, identity=1), np.arange(1.0, 7).reshape(2, 3)
    for ours, theirs in ((f.reduce(x), np.multiply.reduce(x)),
                         (f.reduce(x, axis=None), np.multiply.reduce(x, axis=None)),
                         (f.reduce(x, 1, keepdims=True), np.multiply.reduce(x, 1, keepdims=True)),
                         (f.accumulate(x, 1), np.multiply.accumulate(x, 1)),
                         (f.outer(x[0], x), np.multiply.outer(x[0], x)),
                         (f.reduceat(x[0], [0, 2]), np.multiply.reduceat(x[0], [0, 2]))):
        np.testing.assert_array_equal(ours, theirs)
    assert f.at(jnp.ones(3), jnp.array([0, 0, 2]), 3.0, inplace=False).tolist() == [9, 1, 3]
    assert f.reduce(jnp.zeros((0, 2))).tolist() == [1, 1]


@pytest.mark.parametrize("call,text", [
    (lambda: lax.floor(jnp.arange(3)), "floor does not accept dtype int32. Accepted dtypes are "
                                       "subtypes of floating."),
    (lambda: lax.add(jnp.ones(3, bool), jnp.ones(3, bool)), "add does not accept dtype bool at "
                                                            "position 0."),
    (lambda: lax.bitwise_not(jnp.ones(3)), "not does not accept dtype float32."),
    (lambda: lax.add(jnp.ones(3), jnp.ones((2, 3))), "add: arrays must have the same number of "
                                                     "dimensions"),
    (lambda: lax.pad(jnp.ones(3), 0, ((1, 1, 0),)), "pad operand and padding_value must be same "
                                                    "dtype"),
    (lambda: lax.clamp(0.0, jnp.ones(3), jnp.ones(2)), "clamp requires max.shape == operand.shape"),
    (lambda: lax.rev(jnp.ones(3), (1,)), "rev dimensions must all be less than operand ndim"),
    (lambda: lax.integer_pow(jnp.arange(3), -2), "Integers cannot be raised to negative powers"),
    (lambda: lax.concatenate([jnp.ones(3)] * 2, 1), "concatenate dimension out of bounds")])
def test_lax_refuses(call: Any, text: str) -> None:
    """Dtypes, ranks and axes that JAX's primitives do not take."""
    with pytest.raises(TypeError) as found:
        call()
    assert str(found.value).startswith(text)


def test_lax_folds_bits() -> None:
    x = np.array([[12, 10], [7, 9]], np.int32)
    for fold, ufunc in ((lax.reduce_and, np.bitwise_and), (lax.reduce_or, np.bitwise_or),
                        (lax.reduce_xor, np.bitwise_xor)):
        np.testing.assert_array_equal(fold(jnp.asarray(x), (0,)), ufunc.reduce(x))
    wide = lax.mulhi(jnp.array([2**30, -7], "int32"), jnp.array([12, 2**29], "int32"))
    assert wide.tolist() == [2**30 * 12 >> 32, -7 * 2**29 >> 32]
    sums = lax.dot_general(jnp.full((1, 3), 100, "int8"), jnp.full((3, 1), 100, "int8"),
                           (((1,), (0,)), ((), ())), preferred_element_type="int32")
    assert sums.tolist() == [[30000]]


def test_cosine_transforms_and_coordinates() -> None:
    """By the sums of the definition, and a plane read between its entries (F10)."""
    from adjoint.jax.scipy import fft, ndimage
    with jax.enable_x64():
        x = np.linspace(-1, 2, 5) ** 3
        k, j = np.arange(5)[:, None], np.arange(5)[None]
        want = 2 * (np.cos(np.pi * k * (2 * j + 1) / 10) * x).sum(1)
        np.testing.assert_allclose(fft.dct(x), want, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(fft.idct(fft.dct(x, norm="ortho"), norm="ortho"), x, rtol=1e-12)
        plane = jnp.asarray(3.0 * np.arange(4)[:, None] + 5.0 * np.arange(5)[None])
        at = jnp.array([0.3, 1.7]), jnp.array([3.2, 0.4])
        np.testing.assert_allclose(ndimage.map_coordinates(plane, at, 1), 3 * at[0] + 5 * at[1],
                                   rtol=1e-12)
        check_grads(lambda p, a: ndimage.map_coordinates(fft.dctn(p), [a, a], 1),
                    (plane, jnp.array([0.3, 1.6])), order=2, rtol=1e-5, atol=1e-5)


def test_complex_numbers_are_equal_or_not():
    c = jnp.array([1 + 1j, 2, 3j])
    assert (c == c[::-1]).tolist() == [False, True, False]
    assert (c != 2).tolist() == jnp.not_equal(c, 2).tolist() == [True, False, True]
    assert bool(jnp.asarray(-2 + 0j) == 0) is False
