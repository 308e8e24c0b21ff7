"""`TestCase`, `run_tests`, `parametrize` and what goes with them, for a CPU."""
from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import os
import platform
import random
import sys
import tempfile
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import adjoint.base.dtypes as dt
from adjoint import random as _random
from adjoint import settings
from adjoint.autograd.gradcheck import gradcheck as gradcheck
from adjoint.autograd.gradcheck import gradgradcheck as gradgradcheck
from adjoint.base.errors import missing
from adjoint.core.tensor import Tensor
from adjoint.ops.create import from_numpy
from adjoint.ops.sparse_tensor import SparseTensor
from adjoint.testing._internal.parametrization import (
    instantiate_parametrized_tests as instantiate_parametrized_tests,
)
from adjoint.testing._internal.parametrization import parametrize as parametrize
from adjoint.testing._internal.parametrization import subtest as subtest
from adjoint.testing.close import assert_close
from adjoint.testing.close import make_tensor as make_tensor

SEED = 1234
IS_WINDOWS, IS_LINUX = sys.platform == "win32", sys.platform == "linux"
IS_MACOS, IS_CI = sys.platform == "darwin", bool(os.environ.get("CI"))
IS_ARM64 = platform.machine() in ("arm64", "aarch64")
IS_X86, IS_PPC = platform.machine() in ("x86_64", "i386"), platform.machine() == "ppc64le"
IS_FBCODE = IS_SANDCASTLE = IS_JETSON = IS_S390X = False
TEST_NUMPY, TEST_SCIPY = True, importlib.util.find_spec("scipy") is not None
TEST_CUDA = TEST_MPS = TEST_XPU = TEST_MULTIGPU = TEST_ACCELERATOR = TEST_MKL = TEST_ONEDNN = False
TEST_WITH_ROCM = TEST_WITH_ASAN = TEST_WITH_TSAN = TEST_WITH_UBSAN = TEST_WITH_CROSSREF = False
TEST_WITH_TORCHDYNAMO = TEST_WITH_TORCHINDUCTOR = TEST_WITH_AOT_EAGER = TEST_NUMBA = False
TEST_WITH_SLOW_GRADCHECK = TEST_SKIP_FAST = False
TEST_WITH_SLOW = os.environ.get("PYTORCH_TEST_WITH_SLOW") == "1"
GRADCHECK_NONDET_TOL = 0.0
torch_to_numpy_dtype_dict = {getattr(dt, n): getattr(dt, n).dtype.type for n in (
    "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64"
    " complex128").split()}
numpy_to_torch_dtype_dict = {v: k for k, v in torch_to_numpy_dtype_dict.items()}
_COMPARED = (Tensor, SparseTensor, np.ndarray, np.generic, int, float, complex)


class TestCase(unittest.TestCase):
    """unittest's, with `assertEqual` for tensors; every test starts from the same seed."""

    precision = 0.0
    rel_tol = 0.0
    maxDiff = None

    def setUp(self) -> None:
        """Seed the generators."""
        set_rng_seed(SEED)

    def assertEqual(self, x: Any, y: Any, msg: Any = None, *,
                    atol: float | None = None, rtol: float | None = None, equal_nan: bool = True,
                    exact_dtype: bool = True, exact_device: bool = False,
                    exact_layout: bool = False, exact_stride: bool = False,
                    exact_is_coalesced: bool = False) -> None:
        """Tensors, arrays, numbers and trees of them within the tolerances of their dtypes, or
        those of the class if they are larger; anything else by `==`."""
        if isinstance(x, (dict, list, tuple)) and isinstance(y, (dict, list, tuple)):
            kwargs: Any = {"atol": atol, "rtol": rtol, "equal_nan": equal_nan,
                           "exact_dtype": exact_dtype, "exact_device": exact_device,
                           "exact_layout": exact_layout, "exact_stride": exact_stride}
            for a, b in self._members(x, y, msg):
                self.assertEqual(a, b, msg, **kwargs)
            return
        if not isinstance(x, _COMPARED) or not isinstance(y, (*_COMPARED, list)):
            super().assertEqual(x, y, msg)
            return
        x, y = _comparable(x, y)
        if atol is None and rtol is None and (self.precision or self.rel_tol):
            atol, rtol = self.precision, max(self.rel_tol, 1.3e-6)
        assert_close(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=exact_dtype,
                     check_device=exact_device, check_stride=exact_stride,
                     check_layout=exact_layout, msg=None if msg is None else str(msg))

    def _members(self, x: Any, y: Any, msg: Any) -> list[tuple[Any, Any]]:
        """Pairs of what two containers hold."""
        if isinstance(x, dict) and isinstance(y, dict):
            super().assertEqual(set(x), set(y), msg)
            return [(x[k], y[k]) for k in x]
        super().assertEqual(len(x), len(y), msg)
        return list(zip(x, y, strict=True))

    def assertNotEqual(self, first: Any, second: Any, msg: Any = None, *,
                       atol: float | None = None, rtol: float | None = None,
                       **kwargs: Any) -> None:
        """`assertEqual` fails."""
        with self.assertRaises(AssertionError, msg=msg):
            self.assertEqual(first, second, atol=atol, rtol=rtol, **kwargs)

    def assertEqualIgnoreType(self, *args: Any, **kwargs: Any) -> None:
        """`assertEqual` that does not compare dtypes."""
        self.assertEqual(*args, exact_dtype=False, **kwargs)

    def assertExpectedInline(self, actual: Any, expect: str,
                             skip: int = 0) -> None:
        """The text of `actual` is `expect`."""
        super().assertEqual(str(actual), expect)

    def assertNotWarn(self, callable: Callable[..., Any], msg: str = "") -> None:
        """A call warns of nothing."""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            callable()
        self.assertTrue(not told, msg or f"warned: {[str(w.message) for w in told]}")

    @contextlib.contextmanager
    def assertWarnsOnceRegex(self, category: type[Warning],
                             regex: str = "") -> Iterator[None]:
        """Within the context there is such a warning."""
        with self.assertWarnsRegex(category, regex):
            yield

    def assertLeaksNoCudaTensors(self, name: Any = None) -> Any:
        """A context: there are no such tensors."""
        return contextlib.nullcontext()


def _comparable(x: Any, y: Any) -> tuple[Any, Any]:
    """An array as a tensor; a list or a number beside a tensor as one of its dtype."""
    x, y = (from_numpy(np.array(v)) if isinstance(v, (np.ndarray, np.generic)) else v
            for v in (x, y))
    for a, b, swap in ((x, y, False), (y, x, True)):
        if isinstance(a, Tensor) and isinstance(b, (int, float, complex, list)) and not (
                isinstance(b, list) and any(isinstance(v, Tensor) for v in b)):
            made = np.array(b)
            plain = a.detach().cpu()
            found = from_numpy(made.astype(plain.dtype.dtype) if np.array_equal(
                made.astype(plain.dtype.dtype), made, equal_nan=made.dtype.kind in "fc") or
                made.dtype.kind in "fc" else made)
            return (found, plain) if swap else (plain, found)
    return x, y


def run_tests(argv: Any = None) -> None:
    """unittest's main, over the file that calls."""
    unittest.main(argv=argv)


def set_rng_seed(seed: int | None = None) -> None:
    """Seed adjoint's, NumPy's and Python's generators."""
    seed = SEED if seed is None else seed
    _random.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


@contextlib.contextmanager
def freeze_rng_state(*args: Any, **kwargs: Any) -> Iterator[None]:
    """What is drawn within leaves the generator as it was."""
    kept = _random.get_rng_state()
    try:
        yield
    finally:
        _random.set_rng_state(kept)


@contextlib.contextmanager
def set_default_dtype(dtype: Any) -> Iterator[None]:
    """The default dtype within the context."""
    before = dt.default_dtype()
    dt.set_default(dtype)
    try:
        yield
    finally:
        dt.set_default(before)


class DeterministicGuard(contextlib.ContextDecorator):
    """Deterministic algorithms as given within the context."""

    def __init__(self, deterministic: bool, *, warn_only: bool = False,
                 fill_uninitialized_memory: bool = True) -> None:
        self.deterministic, self.warn_only = deterministic, warn_only

    def __enter__(self) -> None:
        self.before = settings.get_deterministic_debug_mode()
        settings.use_deterministic_algorithms(self.deterministic, warn_only=self.warn_only)

    def __exit__(self, *exc: Any) -> None:
        settings.set_deterministic_debug_mode(self.before)


def skipIf(condition: Any, reason: str) -> Callable[[Any], Any]:
    """unittest's skipIf."""
    return unittest.skipIf(bool(condition), reason)


def _unneeded(*args: Any, **kwargs: Any) -> Any:
    """A decorator for what is not here: the function as it is, with or without arguments."""
    return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else lambda fn: fn


slowTest = skipIf(not TEST_WITH_SLOW, "slow: set PYTORCH_TEST_WITH_SLOW=1")
skipIfNoSciPy = skipIf(not TEST_SCIPY, "SciPy is not installed")
skipIfWindows = skipIf(IS_WINDOWS, "not on Windows")
for _name in ("skipIfNoLapack skipIfRocm skipIfTorchDynamo skipIfTorchInductor skipIfCrossRef"
              " skipIfMPS skipIfMps skipIfXpu skipIfHpu skipIfSlowGradcheckEnv serialTest"
              " skipIfCompiledWithoutNumpy xfailIfTorchDynamo markDynamoStrictTest"
              " unMarkDynamoStrictTest skipIfFreeThreaded skipIfLegacyJitExecutor").split():
    globals()[_name] = _unneeded


def suppress_warnings(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` without its warnings."""
    @functools.wraps(fn)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fn(*args, **kwargs)
    return quiet


@contextlib.contextmanager
def TemporaryFileName(*args: Any, **kwargs: Any) -> Iterator[str]:
    """The name of a file that is removed afterwards."""
    handle, name = tempfile.mkstemp(*args, **kwargs)
    os.close(handle)
    try:
        yield name
    finally:
        os.unlink(name)


TemporaryDirectoryName = tempfile.TemporaryDirectory


class BytesIOContext(io.BytesIO):
    """A BytesIO that stays open behind its context."""

    def __exit__(self, *exc: Any) -> None:
        """Leave it open."""


def noncontiguous_like(t: Tensor) -> Tensor:
    """The values of `t` with gaps between them in memory."""
    if t.numel() <= 1:
        return t
    array = t.detach().numpy()
    wide = np.zeros((*array.shape[:-1], array.shape[-1] * 2), array.dtype)
    wide[..., ::2] = array
    made = from_numpy(wide)[..., ::2]
    return made.detach().requires_grad_(t.requires_grad)


__getattr__ = missing("adjoint.testing._internal.common_utils")
