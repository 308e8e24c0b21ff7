"""The harness that JAX's tests are written with, and the flags they set (F54, F60)."""
from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint.jax as jax
import adjoint.jax.numpy as jnp
from adjoint.jax.dtypes import TypePromotionError

pytest.importorskip("absl")
from adjoint.jax._src import test_util as jtu  # noqa: E402  # (needs absl)

PROGRAM = '''
from absl.testing import absltest
import numpy as np
import jax
import jax.numpy as jnp
from jax._src import config, core, dtypes, test_util as jtu
from jax._src.lax import lax as lax_internal
from jax._src.util import safe_zip
import jax._src.numpy.util
jax.config.parse_flags_with_absl()

class Tests(jtu.JaxTestCase):
    @jtu.sample_product([dict(shape=s) for s in [(), (3,), (2, 3)]], name=["sin", "cos"],
                        dtype=jtu.dtypes.floating)
    def testAgainstNumpy(self, shape, name, dtype):
        rng = jtu.rand_default(self.rng())
        args_maker = lambda: [rng(shape, dtype)]
        self._CheckAgainstNumpy(getattr(np, name), getattr(jnp, name), args_maker)
        self._CompileAndCheck(getattr(jnp, name), args_maker)

    def testFlags(self):
        with self.assertRaises(dtypes.TypePromotionError):
            jnp.ones(3) + jnp.ones(3, "int32")
        with config.numpy_rank_promotion("allow"):
            self.assertEqual((jnp.ones(3) + jnp.ones((2, 3))).shape, (2, 3))
        self.assertIs(lax_internal.add, jax.lax.add)

    @jtu.run_on_devices("gpu")
    def testElsewhere(self):
        raise ValueError("this is no GPU")

    def testWrong(self):
        self.assertAllClose(jnp.ones(2), np.ones(2, np.float32) * 1.1)

if __name__ == "__main__":
    absltest.main(testLoader=jtu.JaxTestLoader())
'''


def test_a_file_of_tests_runs(tmp_path: Path) -> None:
    """Eight pass, one is not for this device, and a wrong one fails."""
    (tmp_path / "tests.py").write_text(PROGRAM)
    root = str(Path(__file__).parent.parent)
    code = "import sys; from adjoint.cli import run; sys.exit(run.run(['--as-jax', *sys.argv[1:]]))"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "tests.py")], text=True,
                          capture_output=True, cwd=tmp_path, check=False,
                          env={**os.environ, "PYTHONPATH": root})
    assert "Ran 9 tests" in done.stderr and "FAILED (failures=1, skipped=1)" in done.stderr, (
        done.stderr)
    assert "Not equal to tolerance" in done.stderr


INSIDE = '''
import unittest
import jax
from jax._src import core, deprecations, effects, literals, test_util as jtu, traceback_util
from jax._src.interpreters import partial_eval as pe
from jax._src.lax.lax import _operand_of_a_private_function
from jax._src.lib import xla_client as xc
import jax._src.numpy.einsum
import jax._src.state.types

class Own(core.OneOfTheirs):
    def method(self): return 1

class Tests(jtu.JaxTestCase):
    def testThere(self):
        self.assertIs(jax._src.numpy.einsum.einsum, jax.numpy.einsum)
        self.assertEqual(jtu.default_tolerance()[jax.numpy.dtype("float32")], 1e-6)
        self.assertGreaterEqual(jtu.numpy_version(), (2, 0))
        self.assertTrue(jtu.tree_all({"a": True, "b": [True]}))

    def testInside(self):
        pe.trace_to_jaxpr_of_some_kind(1)

    def testDerived(self):
        Own()

    @jtu.with_explicit_mesh((2,), ("x",))
    def testMesh(self, mesh):
        raise ValueError("there is no mesh")

unittest.main()
'''


def test_what_is_inside_jax_stops_where_it_is_used(tmp_path: Path) -> None:
    """A file that imports what only JAX has runs; the tests that use it say what it is."""
    (tmp_path / "tests.py").write_text(INSIDE)
    root = str(Path(__file__).parent.parent)
    done = subprocess.run([sys.executable, "-m", "adjoint", "run", "--as-jax",
                           str(tmp_path / "tests.py")], text=True, capture_output=True,
                          cwd=tmp_path, check=False, env={**os.environ, "PYTHONPATH": root})
    assert "Ran 4 tests" in done.stderr and "FAILED (errors=2, skipped=1)" in done.stderr, (
        done.stderr)
    assert done.stderr.count("it is inside JAX, and has no counterpart here") >= 1
    assert "Own derives from a class of jax._src" in done.stderr


def test_strict_promotion() -> None:
    """JAX documentation, "Type promotion semantics": a weak type becomes any of its category, and
    no other type becomes another."""
    x, i = jnp.ones(3), jnp.ones(3, "int8")
    with jax.numpy_dtype_promotion("strict"):
        assert (x + 1).dtype == np.float32 and (i + 1).dtype == np.int8
        for f in (lambda: x + i, lambda: i * 1.0, lambda: x + 1j, lambda: (i > 0) + 1,
                  lambda: jnp.concatenate([x, i]), lambda: i + jnp.ones(3, "int32")):
            with pytest.raises(TypePromotionError, match="Input dtypes .* have no available "
                                                         "implicit dtype promotion path"):
                f()
    assert (x + i).dtype == np.float32


def test_ranks() -> None:
    with jax.numpy_rank_promotion("raise"):
        assert (jnp.ones((2, 3)) + 1.0).shape == (2, 3)
        with pytest.raises(ValueError, match=r"for add on shapes \(3,\) \(2, 3\)"):
            jnp.ones(3) + jnp.ones((2, 3))
    with jax.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="rank promotion"):
        jnp.ones(3) * jnp.ones((2, 3))


def test_nans_and_infinities() -> None:
    with jax.debug_nans(True):
        with pytest.raises(FloatingPointError, match=r"invalid value \(nan\) encountered in log"):
            jnp.log(-jnp.ones(3))
        assert jnp.log(jnp.zeros(1))[0] == -np.inf
    with jax.debug_infs(True), pytest.raises(FloatingPointError, match="inf"):
        jnp.log(jnp.zeros(1))


def test_flags_are_values_and_contexts() -> None:
    from adjoint.jax._src import config
    assert not jax.enable_x64.value
    with jax.enable_x64(True):
        assert config.enable_x64.value and jnp.ones(1).dtype == np.float64
        assert jtu.dtypes.floating == [np.float32, np.float64]
    assert jtu.dtypes.floating == [np.float32] and jnp.ones(1).dtype == np.float32


@pytest.mark.parametrize("name", [n for n in jtu._samplers.__all__ if n.startswith("rand_")
                                  and n != "rand_indices_unique_along_axis"])
def test_samplers(name: str) -> None:
    """Each gives the shape and dtype it is asked for, repeats by its seed."""
    for dtype in (np.float32, np.int8, np.complex64, np.uint16):
        for shape in ((), (4,), (2, 3)):
            more: Any = {"high": 9} if name == "rand_int" else {}
            x, y = (getattr(jtu, name)(np.random.RandomState(1), **more)(shape, dtype)
                    for _ in range(2))
            assert x.shape == shape and x.dtype == dtype
            np.testing.assert_array_equal(x, y)
    assert isinstance(jtu.rand_default(np.random.RandomState(0))(jtu.PYTHON_SCALAR_SHAPE, float),
                      float)


def test_comparisons() -> None:
    """What is equal, and what is not: values beyond the dtype's tolerance, dtypes, shapes."""
    case = jtu.JaxTestCase()
    one = np.ones(3, np.float32)
    case.assertAllClose({"a": (one, None)}, {"a": [one + np.float32(1e-7), None]})
    case.assertAllClose(1.0, one[0])
    for a, b in ((one, one + 1e-5), (one, one.astype(np.float16)), (one, one[:, None]),
                 ((one,), (one, one)), ({"a": one}, {"b": one})):
        with pytest.raises(AssertionError):
            case.assertAllClose(a, b)
    with pytest.raises(AssertionError):
        case.assertArraysEqual(one, one + np.float32(2e-7))
    with pytest.raises(unittest.SkipTest, match="compiles nothing"):
        jtu.count_jit_tracing_cache_miss()
