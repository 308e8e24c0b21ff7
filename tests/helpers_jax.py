"""Programs that run on JAX and on `adjoint.jax`: the values they read, and how results compare."""
from __future__ import annotations

import importlib
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adjoint.jax import version

R = np.random.default_rng(0)
VALUES: dict[str, np.ndarray] = {
    "X": R.uniform(0.2, 0.9, (3, 4)), "Y": R.uniform(0.2, 0.9, (3, 4)),
    "Z": R.uniform(0.2, 0.9, (3, 4)), "V": R.uniform(0.2, 0.9, 4), "T": R.normal(size=(2, 3, 4)),
    "P4": R.normal(size=(4, 2)), "IM": R.normal(size=(2, 3, 6, 5)), "KE": R.normal(
        size=(4, 3, 3, 2))}
A = R.normal(size=(3, 3))
VALUES["P"] = A @ A.T + 3 * np.eye(3)
PARTS = ("numpy", "lax", "random", "nn", "tree_util", "ops", "image", "flatten_util", "scipy",
         "scipy.special", "scipy.stats", "scipy.linalg", "scipy.signal", "scipy.optimize",
         "scipy.sparse.linalg", "scipy.fft", "scipy.ndimage", "scipy.cluster.vq", "test_util",
         "example_libraries.optimizers", "example_libraries.stax", "ad_checkpoint",
         "custom_derivatives", "nn.initializers", "experimental.jet")


def library(base: str) -> SimpleNamespace:
    """`jax` or `adjoint.jax` with the names that expressions use."""
    top = importlib.import_module(base)
    for part in PARTS:
        importlib.import_module(f"{base}.{part}")
    n = top.numpy
    names = {"jax": top, "jnp": n, "lax": top.lax, "np": np, "K": top.random.PRNGKey(42),
             "I": n.array([[1, 2, 3, 0], [5, 1, 2, 7], [0, 4, 4, 1]]), "S": 1.5,
             "B": n.array([[True, False, True, True], [False] * 4, [True, True, False, False]]),
             "N": 3, "N2": n.array([2, 0, 3, 2]), "U": n.arange(4, dtype="uint32") + 1,
             "G": n.arange(4, dtype="int8") + 1,
             **{k: n.asarray(v.astype(np.float32)) for k, v in VALUES.items()}}
    names["C"] = names["V"] + 1j * names["V"][::-1]
    names["H"] = names["X"].astype("float16")
    return SimpleNamespace(names=names, top=top)


def run(text: str, m: SimpleNamespace, **given: Any) -> Any:
    """The value of an expression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(text, {**m.names, **given})  # noqa: S307 (our own text)


def same_release() -> bool:
    """Whether the installed JAX is of the release that `adjoint.jax` follows to the letter: texts
    and weak types change from one to the next."""
    theirs = str(importlib.import_module("jax").__version__)
    return theirs.split(".")[:2] == version.__version__.split(".")[:2]


def needs_same_release() -> None:
    """Skip where the installed JAX words things as another release does."""
    if not same_release():
        pytest.skip(f"texts are those of JAX {version.__version__}, another release is installed")


def refusals(text: str, ours: SimpleNamespace, theirs: SimpleNamespace) -> tuple[str, str]:
    """What both say to an expression that JAX refuses; ours is of the builtin class of JAX's.
    Beside another release of JAX: that both refuse, and no more."""
    with pytest.raises(Exception) as want:           # noqa: B017  (whichever JAX raises)
        run(text, theirs)
    with pytest.raises(Exception) as got:            # noqa: B017  (its class is asked below)
        run(text, ours)
    needs_same_release()
    kind = next(c for c in want.type.__mro__ if c.__module__ == "builtins")
    assert isinstance(got.value, kind), (got.value, want.value)
    return str(got.value), str(want.value)


def leaves(x: Any) -> list[Any]:
    """The leaves of a result."""
    if isinstance(x, dict):
        return [v for k in sorted(x) for v in leaves(x[k])]
    return [v for p in x for v in leaves(p)] if isinstance(x, (tuple, list)) else [x]


def total(x: Any, m: SimpleNamespace) -> Any:
    """A real number of all floating outputs, each element with a weight of its own."""
    n, out = m.names["jnp"], 0.0
    for y in leaves(x):
        if hasattr(y, "dtype") and np.dtype(y.dtype).kind in "fc":
            w = np.cos(np.arange(np.size(y)) + 0.3).reshape(np.shape(y)).astype(np.float32)
            out = out + n.sum(w * (y.real + 2 * y.imag if np.dtype(y.dtype).kind == "c" else y))
    return out


def derivatives(text: str, m: SimpleNamespace) -> dict[str, Any]:
    """Gradient, push and second derivative of an expression in X, V and P; None where it fails."""
    names = [n for n in ("X", "V", "P") if n in text]

    def f(*at: Any) -> Any:
        return total(run(text, m, **dict(zip(names, at, strict=True))), m)
    at = tuple(m.names[n] for n in names)
    ones = tuple(m.names["jnp"].sin(a * 7 + 1) for a in at)
    nums = tuple(range(len(at)))

    def slope(*p: Any) -> Any:
        return sum(m.names["jnp"].vdot(g, t) for g, t in zip(
            m.top.grad(f, nums)(*p), ones, strict=True))
    found: dict[str, Any] = {}
    for name, go in (("grad", lambda: m.top.grad(f, nums)(*at)),
                     ("jvp", lambda: m.top.jvp(f, at, ones)[1]),
                     ("second", lambda: m.top.grad(slope, nums)(*at)),
                     ("push of grad", lambda: m.top.jvp(m.top.grad(f, nums), at, ones)[1])):
        try:
            found[name] = go()
        except Exception as error:      # what one library refuses is compared by name
            found[name] = error
    return found


def mapped(text: str, m: SimpleNamespace) -> Any:
    """The expression under vmap, over X and V."""
    names = [n for n in ("X", "V") if n in text]

    def f(*at: Any) -> Any:
        return [y for y in leaves(run(text, m, **dict(zip(names, at, strict=True))))
                if hasattr(y, "dtype")]
    n = m.names["jnp"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return m.top.vmap(f)(*[n.stack([m.names[k], m.names[k][::-1] * 0.9]) for k in names])


def same(got: Any, want: Any, rtol: float = 2e-4, atol: float = 2e-5, dtypes: bool = True) -> None:
    """AssertionError unless results agree in structure, shape, dtype, weakness and value."""
    a, b = leaves(got), leaves(want)
    assert len(a) == len(b), (got, want)
    for x, y in zip(a, b, strict=True):
        if isinstance(y, (str, bool, type(None))):
            assert x == y, (x, y)
            continue
        assert np.shape(x) == np.shape(y), (np.shape(x), np.shape(y))
        if hasattr(y, "dtype"):
            if dtypes:
                assert x.dtype == y.dtype, (x.dtype, y.dtype)
                weak = getattr(x, "weak_type", False), getattr(y, "weak_type", False)
                if same_release():
                    assert bool(weak[0]) == bool(weak[1]), f"weak_type {weak}"
            if not hasattr(y, "__array__"):
                continue
            half = np.dtype(y.dtype) == np.float16
            np.testing.assert_allclose(
                np.asarray(x).astype(np.complex128 if np.dtype(y.dtype).kind == "c" else
                                     np.float64), np.asarray(y), rtol=2e-2 if half else rtol,
                atol=2e-3 if half else atol)
        else:
            np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)
