"""jax.lax's ragged products and local convolutions, jax.image's resampling, and small names."""
import dataclasses

import numpy as np
import pytest

import adjoint.jax as jax
import adjoint.jax.numpy as jnp
from adjoint.jax import image, lax, tree_util

_R = np.random.RandomState(0)


def test_rows_in_groups_meet_the_matrix_of_their_group():
    x, w = _R.randn(6, 3), _R.randn(2, 3, 4)
    with jax.enable_x64(True):
        for sizes in ([2, 4], [1, 3], [0, 6]):
            a, b = sizes
            want = np.concatenate([x[:a] @ w[0], x[a:a + b] @ w[1], np.zeros((6 - a - b, 4))])
            np.testing.assert_allclose(lax.ragged_dot(x, w, jnp.array(sizes)), want, atol=1e-12)
        g = jax.grad(lambda v: lax.ragged_dot(x, v, jnp.array([2, 3])).sum())(jnp.asarray(w))
        np.testing.assert_allclose(g[0, :, 0], x[:2].sum(0), atol=1e-12)
        np.testing.assert_allclose(g[1, :, 0], x[2:5].sum(0), atol=1e-12)
        numbers = lax.RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), [1], [])
        y = _R.randn(6, 4)
        found = lax.ragged_dot_general(x.T, y, jnp.array([2, 4]), numbers)
        np.testing.assert_allclose(found, [x[:2].T @ y[:2], x[2:].T @ y[2:]], atol=1e-12)
    with pytest.raises(TypeError, match="expected rhs group dimension size to be 3, got 2"):
        lax.ragged_dot(x, w, jnp.array([2, 2, 2]))
    with pytest.raises(TypeError, match="subtype of np.integer"):
        lax.ragged_dot(x, w, jnp.array([2.0, 4.0]))


def test_a_kernel_for_each_place():
    x, w = _R.randn(1, 2, 5, 4), _R.randn(3, 8, 4, 3)
    with jax.enable_x64(True):
        found = lax.conv_general_dilated_local(x, w, (1, 1), "VALID", (2, 2))
        want = np.zeros((1, 3, 4, 3))
        for i in range(4):
            for j in range(3):
                want[0, :, i, j] = w[:, :, i, j] @ x[0, :, i:i + 2, j:j + 2].ravel()
        np.testing.assert_allclose(found, want, atol=1e-12)
        moved = lax.conv_general_dilated_local(
            x, w.transpose(2, 3, 1, 0), (1, 1), "VALID", (2, 2),
            dimension_numbers=("NCHW", "HWIO", "NHWC"))
        np.testing.assert_allclose(moved, want.transpose(0, 2, 3, 1), atol=1e-12)
        one = lax.conv_general_dilated_local(x, np.broadcast_to(w[:, :, :1, :1], w.shape),
                                             (1, 1), "VALID", (2, 2))
        np.testing.assert_allclose(one, lax.conv(x, w[:, :, 0, 0].reshape(3, 2, 2, 2), (1, 1),
                                                 "VALID"), atol=1e-12)


def test_an_image_is_scaled_and_moved():
    im = jnp.arange(12.0).reshape(3, 4)
    same = image.scale_and_translate(im, (3, 4), (0, 1), jnp.ones(2), jnp.zeros(2), "cubic")
    np.testing.assert_allclose(same, im, atol=1e-5)
    moved = image.scale_and_translate(im, (3, 4), (-1,), jnp.ones(1), jnp.ones(1), "linear")
    np.testing.assert_allclose(moved[:, 1:], im[:, :-1], atol=1e-6)
    np.testing.assert_array_equal(moved[:, 0], np.zeros(3))
    g = jax.grad(lambda t: image.scale_and_translate(im, (3, 4), (1,), jnp.ones(1), t,
                                                     "linear")[0, 2])(jnp.full(1, 0.25))
    np.testing.assert_allclose(g, [-1.0], atol=1e-6)          # (one less per pixel)
    np.testing.assert_allclose(image.resize(im, (3, 2), "area"), [[0.5, 2.5], [4.5, 6.5],
                                                                  [8.5, 10.5]], atol=1e-6)
    with pytest.raises(ValueError, match="Nearest neighbor resampling"):
        image.scale_and_translate(im, (3, 4), (0,), jnp.ones(1), jnp.ones(1), "nearest")
    assert image.ResizeMethod.from_string("bilinear") is image.ResizeMethod.LINEAR


@pytest.mark.parametrize("method", ["linear", "cubic", "lanczos3", "lanczos5", "cubic-pytorch",
                                    "area"])
@pytest.mark.parametrize("antialias", [True, False])
def test_resampling_is_jaxs(method, antialias):
    theirs = pytest.importorskip("jax")
    im = _R.randn(5, 6).astype(np.float32)
    scale, shift = np.array([1.5, 0.6], np.float32), np.array([0.3, -0.2], np.float32)
    given = im, (2, 9), (0, 1), scale, shift, method, antialias
    np.testing.assert_allclose(image.scale_and_translate(*given),
                               theirs.image.scale_and_translate(*given), atol=2e-5)


def test_pytorchs_cubic_is_pytorchs():
    torch = pytest.importorskip("torch")
    im = _R.randn(5, 6).astype(np.float32)
    want = torch.nn.functional.interpolate(torch.tensor(im)[None, None], (8, 3), mode="bicubic")
    np.testing.assert_allclose(image.resize(im, (8, 3), "cubic-pytorch", antialias=False),
                               want[0, 0], atol=1e-5)


def test_small_names():
    assert lax.composite(lambda x, *, s: x * s, "my.scale")(2.0, s=3.0) == 6.0
    assert lax.platform_dependent(2.0, cpu=lambda x: x + 1, default=lambda x: x) == 3.0
    assert lax.reduce_window_shape_tuple((5, 6), (2, 2), (1, 2), ((0, 0), (1, 1))) == (4, 4)
    path, _ = jnp.einsum_path("ij,jk,kl->il", jnp.ones((2, 30)), jnp.ones((30, 2)),
                              jnp.ones((2, 5)))
    assert [tuple(p) for p in path] == [(0, 1), (0, 1)]
    with pytest.raises(NotImplementedError, match=r"jnp.fromfile\(\) is not implemented"):
        jnp.fromfile("x")
    assert tree_util.flatten_one_level({"b": 1, "a": [2]}) == (([2], 1), ("a", "b"))
    assert tree_util.flatten_one_level(None) == ((), None)
    with pytest.raises(ValueError, match="can't tree-flatten type"):
        tree_util.flatten_one_level(3)

    @tree_util.register_dataclass
    @dataclasses.dataclass
    class Model:
        weight: float
        name: str = jax.tree.static(default="net")
    assert jax.tree.leaves(Model(1.0)) == [1.0]
    assert jax.tree.structure(Model(1.0)) != jax.tree.structure(Model(1.0, "other"))


def test_a_linear_function_with_a_transpose_of_its_own():
    from adjoint.jax.custom_derivatives import linear_call

    def f(x, d):
        return x + linear_call(lambda r, v: v / r, lambda r, ct: 7.0 * ct / r, d, x)
    assert float(f(9.0, 3.0)) == 12.0
    np.testing.assert_allclose(jax.grad(f)(9.0, 3.0), 1 + 7 / 3, rtol=1e-6)   # (the one given)
    with pytest.raises(NotImplementedError, match="residual_args"):
        jax.grad(f, 1)(9.0, 3.0)


def test_forward_and_backward_as_two_functions():
    fwd, bwd = jax.fwd_and_bwd(lambda x, y: (x * y, x), argnums=(0, 1), has_aux=True)
    out, residuals, aux = fwd(2.0, 3.0)
    assert (float(out), float(aux)) == (6.0, 2.0)
    assert [float(ct) for ct in bwd(residuals, 1.0)] == [3.0, 2.0]
    assert [float(ct) for ct in bwd(residuals, 2.0)] == [6.0, 4.0]
    fwd, bwd = jax.fwd_and_bwd(lambda x, y: x * y, argnums=1)
    assert float(bwd(fwd(2.0, 3.0)[1], 1.0)) == 2.0


def test_flags_are_contexts():
    with jax.transfer_guard_host_to_device("log"), jax.no_tracing(False):
        assert jax.config.jax_transfer_guard_host_to_device == "log"
    assert jax.config.jax_transfer_guard_host_to_device is None
