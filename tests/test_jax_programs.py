"""Programs in the style of JAX's documents, run on JAX and on `adjoint.jax` (F10-F16, F54)."""
from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helpers_jax as helpers
import numpy as np
import pytest

pytest.importorskip("jax")
OURS, THEIRS = helpers.library("adjoint.jax").top, helpers.library("jax").top
PROGRAMS: dict[str, Callable[[Any], Any]] = {}
ROUGH = ("control_flow", "complex_numbers")       # weak types differ: values alone
partial = functools.partial
pytestmark = pytest.mark.filterwarnings("ignore")


def program(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Enter a program that runs on either library."""
    PROGRAMS[f.__name__] = f
    return f


@program
def logistic_regression(jax: Any) -> Any:
    jnp = jax.numpy
    k1, k2 = jax.random.split(jax.random.key(0))
    x, w = jax.random.normal(k1, (6, 3)), jax.random.normal(k2, (3,))
    y = jnp.array([True, False] * 3)

    def loss(w: Any, b: Any) -> Any:
        p = 0.5 * (jnp.tanh((x @ w + b) / 2) + 1)
        return -jnp.sum(jnp.log(p * y + (1 - p) * (1 - y)))
    wide = jax.config.jax_enable_x64       # (second derivatives of XLA's single tanh are rough)
    return (jax.value_and_grad(loss, (0, 1))(w, 0.5), jax.hessian(loss)(w, 0.5) if wide else 0,
            jax.jit(jax.grad(lambda d: loss(d["w"], d["b"])))({"w": w, "b": 0.1}))


@program
def jacobians(jax: Any) -> Any:
    jnp = jax.numpy

    def f(p: Any) -> Any:
        return {"s": jnp.sin(p["a"]) * p["b"], "t": (p["a"].sum(), p["b"] ** 2)}
    p = {"b": jnp.arange(3.0), "a": jnp.ones(3)}
    x = jnp.arange(3.0)
    return (jax.jacfwd(f)(p), jax.jacrev(f)(p), jax.jacrev(jnp.outer, (0, 1))(x, x),
            jax.jvp(jax.grad(lambda v: jnp.sum(v ** 3)), (x,), (x,)),
            jax.vmap(jax.vjp(jnp.sin, x)[1])(jnp.eye(3)))


@program
def complex_numbers(jax: Any) -> Any:
    jnp, z = jax.numpy, 3.0 + 4.0j
    return (jax.grad(lambda z: jnp.abs(z))(z), jax.grad(jnp.sin, holomorphic=True)(z),
            jax.jvp(lambda z: jnp.conj(z) * 2, (z,), (1j,)),
            jax.vjp(lambda z: z * z * 1j, z)[1](jnp.ones((), "complex"))[0] * 1,
            jax.grad(lambda x: jnp.real(jnp.exp(1j * x)))(2.0),
            jax.grad(lambda x: jnp.sum(jnp.abs(jnp.fft.fft(x)) ** 2))(jnp.arange(4.0)))


@program
def forward_rule(jax: Any) -> Any:
    jnp = jax.numpy

    @jax.custom_jvp
    def log1pexp(x: Any) -> Any:
        return jnp.log(1.0 + jnp.exp(x))

    @log1pexp.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return log1pexp(x), (1 - 1 / (1 + jnp.exp(x))) * t

    @partial(jax.custom_jvp, nondiff_argnums=(0,))
    def app(f: Any, x: Any) -> Any:
        return f(x)
    app.defjvp(lambda f, ps, ts: (f(ps[0]), 2.0 * ts[0]))
    g = jax.grad(log1pexp)
    return (g(100.0), jax.jit(log1pexp)(3.0), jax.vmap(g)(jnp.arange(3.0)), jax.grad(g)(1.0),
            app(lambda x: x ** 3, 3.0), jax.grad(app, 1)(lambda x: x ** 3, 3.0))


@program
def reverse_rule(jax: Any) -> Any:
    jnp = jax.numpy

    @jax.custom_vjp
    def clip(lo: Any, hi: Any, x: Any) -> Any:
        return x
    clip.defvjp(lambda lo, hi, x: (x, (lo, hi)),
                lambda res, g: (None, None, jnp.clip(g, res[0], res[1])))

    @jax.custom_vjp
    def tree(p: Any) -> Any:
        return {"out": jnp.sin(p["x"]) * p["y"]}
    tree.defvjp(lambda p: (tree(p), p), lambda p, ct: ({"x": ct["out"] * p["y"],
                                                        "y": ct["out"] * 7.0},))
    g = jax.grad(lambda p: tree(p)["out"])
    rows = {"x": jnp.arange(2.0), "y": jnp.ones(2)}
    return (jax.vmap(jax.grad(lambda x: jnp.sin(clip(-0.75, 0.75, x))))(jnp.linspace(0, 10, 5)),
            g({"x": 1.0, "y": 2.0}), jax.vmap(g)(rows),
            jax.grad(lambda x: jax.grad(lambda v: tree({"x": v, "y": v})["out"])(x))(1.0))


@program
def fixed_point(jax: Any) -> Any:
    jnp, lax = jax.numpy, jax.lax

    @partial(jax.custom_vjp, nondiff_argnums=(0,))
    def solve(f: Any, a: Any, guess: Any) -> Any:
        return lax.while_loop(lambda c: jnp.abs(c[0] - c[1]) > 1e-6, lambda c: (c[1], f(a, c[1])),
                              (guess, f(a, guess)))[1]

    def forward(f: Any, a: Any, guess: Any) -> Any:
        x = solve(f, a, guess)
        return x, (a, x)

    def backward(f: Any, res: Any, ct: Any) -> Any:
        a, x = res

        def step(packed: Any, u: Any) -> Any:
            a, x, ct = packed
            return ct + jax.vjp(lambda x: f(a, x), x)[1](u)[0]
        u = solve(step, (a, x, ct), ct)
        return jax.vjp(lambda a: f(a, x), a)[1](u)[0], jnp.zeros_like(x)
    solve.defvjp(forward, backward)

    def root(a: Any) -> Any:
        return solve(lambda a, x: 0.5 * (x + a / x), a, a)
    return root(2.0), jax.grad(root)(2.0), jax.grad(jax.grad(root))(2.0)


@program
def control_flow(jax: Any) -> Any:
    jnp, lax = jax.numpy, jax.lax

    def loop(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2.0), (0, x))

    def walk(c: Any, x: Any) -> Any:
        return c * 0.5 + jnp.sin(x), c

    def scanned(v: Any) -> Any:
        return lax.scan(walk, 0.0, v)[1].sum()
    v = jnp.arange(1.0, 4.0)
    return (loop(1.0), jax.jvp(lambda x: loop(x)[1], (1.0,), (1.0,)), lax.fori_loop(
        0, 10, lambda i, x: x + jnp.arange(10)[i], 0), jax.grad(scanned)(v),
        jax.hessian(scanned)(v),
        jax.vmap(lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x))(jnp.array([-1.0, 1.0])),
        jax.vmap(lambda i: lax.switch(i, [lambda: 1.0, lambda: 2.0]))(jnp.array([0, 5])),
        jax.vmap(lambda x: lax.psum(x, "i") + lax.axis_index("i"), axis_name="i")(v),
        jax.vmap(lambda n: lax.fori_loop(0, n, lambda i, x: x * 2, 1.0))(jnp.array([1, 3])),
        lax.custom_root(lambda x: x ** 2 - 2.0, 1.0, lambda f, x: jnp.sqrt(2.0) + 0 * x,
                        lambda g, y: y / g(1.0)))


@program
def trees(jax: Any) -> Any:
    t = jax.tree_util
    value = {"b": [1, (2, None)], "a": {"c": 3}}
    leaves, treedef = t.tree_flatten(value)
    return (leaves, str(treedef), treedef.num_leaves, t.tree_map(lambda x: x * 2, value),
            t.tree_unflatten(treedef, [7, 8, 9]), t.tree_reduce(lambda a, b: a + b, value),
            [t.keystr(p) for p, _ in t.tree_leaves_with_path(value)],
            t.tree_transpose(t.tree_structure([0, 0]), t.tree_structure({"a": 0}),
                             [{"a": 1}, {"a": 2}]), jax.flatten_util.ravel_pytree(value)[0],
            t.tree_leaves([None, 1], is_leaf=lambda x: x is None), treedef == t.tree_structure(
                value), t.all_leaves([1, 2]),
            jax.tree.map(lambda x, y: (x, y), [1, 2], [3, (4, 5)]))


@program
def a_network(jax: Any) -> Any:
    stax, opts, jnp = (jax.example_libraries.stax, jax.example_libraries.optimizers, jax.numpy)
    init, apply = stax.serial(stax.Conv(4, (3, 3), padding="SAME"), stax.Relu,
                              stax.MaxPool((2, 2)), stax.BatchNorm(), stax.Flatten, stax.Dense(5),
                              stax.LogSoftmax)
    params = init(jax.random.PRNGKey(1), (-1, 8, 8, 1))[1]
    x = jax.random.normal(jax.random.PRNGKey(2), (3, 8, 8, 1))

    def loss(p: Any) -> Any:
        return -jnp.mean(apply(p, x)[:, 0])
    found = []
    for opt in (opts.sgd(0.1), opts.momentum(0.1, 0.9), opts.adam(1e-2), opts.adagrad(0.1),
                opts.rmsprop(0.01), opts.nesterov(0.1, 0.9), opts.adamax(0.01), opts.sm3(0.1)):
        state = opt.init_fn(params)
        for i in range(2):
            state = opt.update_fn(i, jax.grad(loss)(opt.params_fn(state)), state)
        found.append(loss(opt.params_fn(state)))
    return (found, opts.exponential_decay(0.1, 10, 0.5)(5), opts.l2_norm([jnp.ones(3)]),
            opts.piecewise_constant([3, 5], [1.0, 2.0, 3.0])(4))


@program
def keys(jax: Any) -> Any:
    r, k = jax.random, jax.random.key(0)
    return (r.key_data(r.split(k, 3)), jax.vmap(lambda k: r.uniform(k, (2,)))(r.split(k, 3)),
            jax.lax.scan(lambda k, _: (r.split(k)[0], r.uniform(k)), k, None, length=3)[1],
            jax.vmap(lambda i: r.fold_in(r.PRNGKey(3), i))(jax.numpy.arange(3)),
            r.randint(k, (4,), 0, 10), str(k.dtype), k.shape, jax.eval_shape(
                lambda k: r.normal(k, (3,)), k).shape,
            jax.vmap(r.permutation, (0, None))(r.split(k, 2), 5))


@program
def the_rest(jax: Any) -> Any:
    jnp = jax.numpy
    f = jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))
    return (f(1.0), jax.grad(f)(1.0), jax.linearize(jnp.sin, 2.0)[1](1.0),
            jax.linear_transpose(lambda x: 3 * x, 1.0)(2.0),
            jax.pure_callback(np.sin, jax.ShapeDtypeStruct((2,), np.float32), jnp.arange(2.0)),
            jax.grad(lambda x: jax.lax.stop_gradient(x) * x)(3.0),
            jnp.vectorize(jnp.dot, signature="(n),(n)->()")(jnp.ones((2, 3)), jnp.arange(3.0)),
            jax.value_and_grad(lambda x: (x ** 2, {"y": x * 2}), has_aux=True)(2.0),
            jax.jit(lambda x, n: x * n, static_argnums=1)(2.0, 3))


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    """The same values, dtypes and structures (F54)."""
    helpers.same(PROGRAMS[name](OURS), PROGRAMS[name](THEIRS), dtypes=name not in ROUGH)


@pytest.mark.parametrize("name", ["logistic_regression", "complex_numbers", "control_flow", "keys"])
def test_program_in_double_precision(name: str) -> None:
    """With jax_enable_x64 (F54)."""
    for top in (OURS, THEIRS):
        top.config.update("jax_enable_x64", True)
    try:
        helpers.same(PROGRAMS[name](OURS), PROGRAMS[name](THEIRS), 1e-7, 1e-9,
                     dtypes=name not in ROUGH)
    finally:
        for top in (OURS, THEIRS):
            top.config.update("jax_enable_x64", False)


ERRORS = {
    "grad of a vector": lambda j: j.grad(j.numpy.sin)(j.numpy.arange(3.0)),
    "grad of an integer": lambda j: j.grad(j.numpy.sin)(3),
    "integer output": lambda j: j.grad(lambda x: 3)(3.0),
    "complex output": lambda j: j.grad(lambda x: x * 1j)(3.0),
    "argnums": lambda j: j.grad(lambda x: x, argnums=2)(3.0),
    "jvp dtypes": lambda j: j.jvp(j.numpy.sin, (1.0,), (1,)),
    "jvp shapes": lambda j: j.jvp(j.numpy.sin, (j.numpy.ones(3),), (1.0,)),
    "jvp trees": lambda j: j.jvp(j.numpy.sin, (1.0, 2.0), (1.0,)),
    "vjp shapes": lambda j: j.vjp(j.numpy.sin, j.numpy.ones(3))[1](1.0),
    "vmap sizes": lambda j: j.vmap(j.numpy.add)(j.numpy.ones(3), j.numpy.ones(4)),
    "vmap rank": lambda j: j.vmap(j.numpy.sin)(1.0),
    "vmap of nothing": lambda j: j.vmap(j.numpy.sin, in_axes=None)(1.0),
    "a branch": lambda j: j.vmap(lambda x: x if x > 0 else -x)(j.numpy.ones(3)),
    "float of a tracer": lambda j: j.grad(lambda x: float(x))(1.0),
    "numpy of a tracer": lambda j: j.grad(lambda x: np.sin(x))(1.0),
    "a list": lambda j: j.numpy.sin([1.0]),
    "shapes": lambda j: j.numpy.add(j.numpy.ones(3), j.numpy.ones(4)),
    "product": lambda j: j.numpy.dot(j.numpy.ones(3), j.numpy.ones(4)),
    "assignment": lambda j: j.numpy.ones(3).__setitem__(0, 1),
    "too many indices": lambda j: j.numpy.ones(3)[0, 0],
    "float index": lambda j: j.numpy.ones(3)[1.0],
    "truth of many": lambda j: bool(j.numpy.ones(3)),
    "reshape": lambda j: j.numpy.reshape(j.numpy.ones(3), (2, 2)),
    "lax dtypes": lambda j: j.lax.add(j.numpy.ones(3), 1),
    "scan without length": lambda j: j.lax.scan(lambda c, x: (c, x), 0.0, None),
    "scan carry": lambda j: j.lax.scan(lambda c, x: (c[:1], x), j.numpy.ones(2), j.numpy.ones(2)),
    "cond trees": lambda j: j.lax.cond(True, lambda x: x, lambda x: (x, x), 1.0),
    "custom_vjp without a rule": lambda j: j.custom_vjp(lambda x: x)(1.0),
    "static list": lambda j: j.jit(lambda x, y: x, static_argnums=1)(1.0, [1]),
    "leaves": lambda j: j.tree_util.tree_unflatten(j.tree_util.tree_structure([1, 2]), [1]),
    "a key": lambda j: j.random.normal(3, ()),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    """The same kind of error, with the same first words (F54)."""
    with pytest.raises(Exception) as want:  # noqa: PT011  # whatever JAX raises is the oracle
        ERRORS[name](THEIRS)
    with pytest.raises(Exception) as got:   # noqa: PT011  # compared below
        ERRORS[name](OURS)
    kind = want.type.__name__
    assert kind in [c.__name__ for c in got.type.__mro__], (got.type, want.type)
    first = str(want.value).split("\n")[0].split()[:4]
    assert str(got.value).split()[:len(first)] == first, (str(got.value), str(want.value))


SCRIPT = """
import sys
import jax
import jax.numpy as jnp
from jax import grad, lax, random, vmap
from jax.example_libraries import stax
from jax.scipy.stats import norm
print("module", jnp.__name__)
print("grad", float(grad(lambda x: norm.logpdf(x))(0.5)))
print("vmap", *vmap(grad(jnp.tanh))(jnp.arange(3.0)).tolist())
print("random", *random.uniform(random.key(int(sys.argv[1])), (3,)).tolist())
"""


def test_a_program_runs_unmodified(tmp_path: Path) -> None:
    """`adjoint run --as-jax` prints what the program prints with JAX."""
    (tmp_path / "program.py").write_text(SCRIPT)
    outs = []
    for command in (["program.py"], ["-m", "adjoint", "run", "--as-jax", "program.py"]):
        done = subprocess.run([sys.executable, "-W", "ignore", *command, "7"], cwd=tmp_path,
                              check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        outs.append([line.split() for line in done.stdout.splitlines()])
    assert outs[1][0][1] == "adjoint.jax.numpy"
    for theirs, ours in zip(outs[0][1:], outs[1][1:], strict=True):
        assert theirs[0] == ours[0]
        np.testing.assert_allclose(np.array(ours[1:], float), np.array(theirs[1:], float),
                                   rtol=1e-5)
