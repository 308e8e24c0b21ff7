"""`jax.lax`'s and the transforms' arguments beside JAX: places, dtypes, donated arrays (F54)."""
from __future__ import annotations

import helpers_jax as helpers
import numpy as np
import pytest

from adjoint import jax as aj
from adjoint.jax import numpy as anp

jax = pytest.importorskip("jax")
pytest.importorskip("scipy")
OURS, THEIRS = helpers.library("adjoint.jax"), helpers.library("jax")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.row("F54")]
NAMES = {"R": "lax.GatherDimensionNumbers((1,), (0,), (0,))",
         "G2": "lax.GatherDimensionNumbers((), (1,), (1,), (0,), (0,))",
         "G3": "lax.GatherDimensionNumbers((2,), (), (1,), (0,), (1,))",
         "W": "lax.ScatterDimensionNumbers((1,), (0,), (0,))",
         "W2": "lax.ScatterDimensionNumbers((), (1,), (1,), (0,), (0,))",
         "Q": "jax.random.normal(K, (2, 5, 4, 3))", "Q2": "jax.random.normal(K, (2, 5, 2, 3))",
         "A": "jax.nn.dot_product_attention", "M": "jnp.array([2, 5])", "O": "jnp.array([3, 4])",
         "J": "jnp.array([[0], [2], [3]])"}

VALUES = """
lax.broadcast_in_dim(X, (4, 3), (1, 0))
lax.broadcast_in_dim(T, (4, 5, 2, 3), (2, 3, 0))
lax.gather(X, J, G2, (1, 1))
lax.gather(X, jnp.array([[[0], [2], [3]], [[1], [1], [1]]]), G3, (1, 1))
jax.grad(lambda x: jnp.sum(jnp.sin(lax.gather(x, J, G2, (1, 1)))))(X)
lax.scatter_add(X, J, V[:3], W2)
jax.grad(lambda x, u: jnp.sum(jnp.sin(lax.scatter_add(x, J, u, W2))), (0, 1))(X, V[:3])
jax.vmap(lambda x, u: lax.scatter_mul(x, J, u, W2))(jnp.stack([X, X]), jnp.stack([V[:3], V[1:]]))
[abs(v) for v in lax.linalg.qr(X, full_matrices=False, pivoting=True)]
[abs(v) for v in lax.linalg.qr(X.T, pivoting=True)]
lax.linalg.qr(jnp.stack([X, Y]), full_matrices=False, pivoting=True)[2]
lax.random_gamma_grad(V, V)
lax.dot_general(X, X, (((1,), (1,)), ((), ())), preferred_element_type='float16')
lax.scan(lambda c, x: (c + x, c), 0.0, V)
lax.scan(lambda c, x: ((c[0] + x, c[1] + 1), c), (0.0, 0), V)
lax.scan(lambda c, x: (c + x, c), 0, V)
lax.while_loop(lambda c: c < 3, lambda c: c + V[1], 0.0)
lax.fori_loop(0, 3, lambda i, c: (c[0] + V[1], c[0] * 1.0), (0.0, 0.0))
lax.fori_loop(0, 3, lambda i, c: (c[0] + V[1], c[0] * 1.0), (0, 0))
jax.jacrev(lambda x: x * 1.5, allow_int=True)(N2)
A(Q2, Q2 + 1, Q2, local_window_size=(1, 0))
A(Q2, Q2 + 1, Q2, local_window_size=1)
A(Q, Q2 + 1, Q2, local_window_size=(2, 1), is_causal=True)
A(Q2, Q2 + 1, Q2, key_value_seq_lengths=M)
A(Q2, Q2 + 1, Q2, query_seq_lengths=M)
A(Q2, Q2 + 1, Q2, None, Q2[:, :1, :1, :1] < 9, query_seq_lengths=M, key_value_seq_lengths=O)
A(Q2, Q2 + 1, Q2, query_seq_lengths=M, key_value_seq_lengths=O, is_causal=True)
A(Q2, Q2 + 1, Q2, key_value_seq_lengths=O, return_residual=True)
A(Q2[0], Q2[0] + 1, Q2[0], local_window_size=1, return_residual=True)
jax.grad(lambda q: jnp.sum(jnp.sin(A(q, Q2, q, query_seq_lengths=M, local_window_size=1))))(Q2)
jax.experimental.jet.jet(lambda x: (x, {'a': x ** 2}), (V,), ([V, V],))
""".strip().splitlines()

ERRORS = """
lax.conv_general_dilated(IM, KE, (1, 1), 'SAME', lhs_dilation=(2, 1))
lax.conv_general_dilated(IM, KE, (1, 1), 'SAME', preferred_element_type='float16')
lax.conv_dimension_numbers((1, 2, 3), (3, 4, 5), ('NWC', 'WIO', 'NXX'))
lax.dot_general(T, T, (((2,), (2,)), ((0,), (1,))))
lax.dot_general(I, I, (((1,), (1,)), ((), ())), preferred_element_type='int8')
lax.dot_general(X, X, (((2,), (1,)), ((), ())))
lax.dot_general(X, X, (((1, 1), (1, 1)), ((), ())))
lax.batch_matmul(T, X)
lax.gather(X, jnp.array([[0.5]]), R, (1, 4))
lax.gather(X, jnp.array([[0]]), R, (1, 5))
lax.gather(X, jnp.array([[0]]), R._replace(start_index_map=(7,)), (1, 4))
lax.scatter_add(X, jnp.array([[0], [2]]), X, W)
lax.scatter_add(X, jnp.array([[0], [2], [1]]), I, W)
lax.reduce_window(IM, 0., lax.add, (1, 1, 2, 0), (1, 1, 2, 1), 'SAME')
lax.reduce(X, 0, lax.add, (5,))
lax.cumsum(X, axis=-1)
lax.cumsum(B, axis=0)
lax.scan(lambda c, x: c, 1.0, V)
jax.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c + 1, 0, unroll=2))(3)
lax.switch(1.0, [jnp.sin, jnp.cos, jnp.tan], 0.5)
lax.select_n(N2 > 1, V, V + 1, V + 2)
lax.select_n(V, V, V)
lax.convert_element_type(1.0, None)
lax.broadcast_shapes((2, 1), (3,), (4,))
lax.expand_dims(V, (0, 0))
lax.reshape(T, (-1,))
lax.rev(T, (0, 0))
lax.pad(X, 0.0, ((1, 2, -1), (-1, 0, 0)))
lax.dynamic_slice(X, (1.0, 1), (2, 2))
lax.dynamic_update_slice(X, jnp.ones((4, 2)), (2, 3))
lax.fft(V, 'foo', (4,))
lax.axis_index('foo')
jax.vmap(lambda x: (x, x), out_axes=(0, None))(V)
jax.named_scope(3)
A(Q2, Q2[..., :2], Q2)
A(Q2[:, :, :1], Q2, Q2)
A(Q2, Q2, Q2, implementation='foo')
A(Q2, Q2, Q2, mask=jnp.ones((5, 5)))
""".strip().splitlines()


@pytest.mark.parametrize("text", VALUES)
def test_values(text: str) -> None:
    got, want = (_run(text, m) for m in (OURS, THEIRS))
    helpers.same(got, want)


@pytest.mark.parametrize("text", ERRORS)
def test_errors(text: str) -> None:
    """The builtin class of JAX's error, and the beginning of its words."""
    given = [{k: helpers.run(v, m) for k, v in NAMES.items()} for m in (OURS, THEIRS)]
    ours, theirs = (helpers.SimpleNamespace(names={**m.names, **g}, top=m.top)
                    for m, g in zip((OURS, THEIRS), given, strict=True))
    got, want = helpers.refusals(text, ours, theirs)
    assert got[:30] == want[:30]


def _run(text: str, m: helpers.SimpleNamespace) -> object:
    return helpers.run(text, m, **{k: helpers.run(v, m) for k, v in NAMES.items()})


@pytest.mark.parametrize("name", ["adjoint.jax", "jax"])
def test_donated_arrays(name: str) -> None:
    """They are deleted where an output has their size, told of where none has, and stay under
    transforms that still need them."""
    m = {"adjoint.jax": OURS, "jax": THEIRS}[name]
    n, jit = m.names["jnp"], m.top.jit
    x, y, z = n.arange(3.0), n.ones((2, 2)), n.arange(3.0)
    with pytest.warns(UserWarning, match="Some donated buffers were not usable"):
        jit(lambda x, y, z: x + z + y.sum(), donate_argnums=(0, 1))(x, y, z)
    assert [a.is_deleted() for a in (x, y, z)] == [True, False, False]
    with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=float32\[3\]"):
        np.asarray(x)
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        x + 1
    named = n.arange(3.0)
    jit(lambda a, b: a + b, donate_argnames="b")(z, b=named)
    assert named.is_deleted() and not z.is_deleted()


def test_what_a_transform_follows_is_not_deleted() -> None:
    x = anp.arange(3.0)
    run = aj.jit(lambda v: v * 2, donate_argnums=0)
    assert np.array_equal(aj.grad(lambda v: run(v).sum())(x), [2, 2, 2])
    assert np.array_equal(aj.vmap(run)(x), [0, 2, 4]) and not x.is_deleted()


def test_shapes_without_values_are_equal_with_their_weakness() -> None:
    made = [aj.ShapeDtypeStruct((2,), "float32", weak_type=w) for w in (True, False, True)]
    assert made[0] == made[2] and made[0] != made[1]


def test_rules_whose_outputs_do_not_fit() -> None:
    """Both errors name the rule and what it gave; they were errors of `zip`."""
    f = aj.custom_jvp(lambda x: x)
    f.defjvp(lambda p, t: ((p[0], p[0]), (t[0], t[0])))
    with pytest.raises(TypeError, match=r"own container \(pytree\) structure"):
        aj.jvp(f, (1.0,), (1.0,))
    g = aj.custom_vjp(lambda d: d["w"] * 2)
    g.defvjp(lambda d: (d["w"] * 2, None), lambda _, ct: ({"w": anp.ones(3)},))
    with pytest.raises(ValueError, match=r"output\[0\]\['w'\] the bwd rule .* float32\[3\]"):
        aj.grad(g)({"w": 1.0})


@pytest.mark.parametrize("name", ["adjoint.jax", "jax"])
def test_words_of_convolutions_are_looked_at(name: str) -> None:
    m = {"adjoint.jax": OURS, "jax": THEIRS}[name]
    lax, n = m.top.lax, m.names["jnp"]
    x, w = n.arange(10.0).reshape(1, 5, 2), n.arange(12.0).reshape(3, 2, 2)
    for low, high in ((0, 0), (1, 0), (1, 2)):
        given = lax.conv_transpose(x, w, (2,), [(low, high)], use_consistent_padding=True)
        assert np.array_equal(given, lax.conv_transpose(x, w, (2,), [(2 - low, 2 - high)]))
    same = [lax.conv_transpose(x, w, (2,), "SAME", use_consistent_padding=c) for c in (False, True)]
    assert np.array_equal(*same)
    half = n.ones((1, 1, 3), "float16")
    assert lax.conv_general_dilated_patches(
        half, (2,), (1,), "VALID", preferred_element_type=np.float32).dtype == np.float32
    for f in (lax.conv_transpose, lax.conv_general_dilated, lax.conv_general_dilated_patches):
        with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
            f(x, w, (1,), "SAME", nonsense=1)


@pytest.mark.parametrize("name", ["adjoint.jax", "jax"])
def test_leaves_may_be_chosen_by_their_paths(name: str) -> None:
    tu = {"adjoint.jax": OURS, "jax": THEIRS}[name].top.tree_util
    tree, seen = {"a": [1, (2, None)], "b": ((3,), 4)}, []

    def chosen(path: object, x: object) -> bool:
        seen.append((tu.keystr(path), x))
        return tu.keystr(path) in ("['a'][1]", "['b'][0]")
    found, structure = tu.tree_flatten_with_path(tree, is_leaf=chosen, is_leaf_takes_path=True)
    assert [(tu.keystr(p), x) for p, x in found] == [
        ("['a'][0]", 1), ("['a'][1]", (2, None)), ("['b'][0]", (3,)), ("['b'][1]", 4)]
    assert tu.tree_unflatten(structure, "wxyz") == {"a": ["w", "x"], "b": ("y", "z")}
    assert [p for p, _ in seen] == ["", "['a']", "['a'][0]", "['a'][1]", "['b']", "['b'][0]",
                                    "['b'][1]"]
    mapped = tu.tree_map_with_path(lambda p, x: len(p), tree, is_leaf=chosen,
                                   is_leaf_takes_path=True)
    assert mapped == {"a": [2, 2], "b": (2, 2)}
    assert len(tu.tree_leaves_with_path(tree, lambda x: x == (3,))) == 4


@pytest.mark.parametrize("name", ["adjoint.jax", "jax"])
def test_lu_solve_knows_three_ways(name: str) -> None:
    m = {"adjoint.jax": OURS, "jax": THEIRS}[name]
    import importlib
    linalg = importlib.import_module(f"{name}.scipy.linalg")
    a = m.names["jnp"].array([[3.0, 1.0], [2.0, 4.0]])
    factors, b = linalg.lu_factor(a), np.ones(2, np.float32)
    for trans, matrix in ((0, a), (1, a.T), (2, a.T)):
        assert np.allclose(matrix @ linalg.lu_solve(factors, b, trans), b)
    for trans in (7, "T"):
        with pytest.raises(ValueError, match=f"'trans' value must be 0, 1, or 2, got {trans}"):
            linalg.lu_solve(factors, b, trans)
