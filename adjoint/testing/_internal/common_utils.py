"""`TestCase`, `run_tests`, `parametrize` and what goes with them, for a CPU."""
from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import io
import os
import platform
import random
import sys
import tempfile
import time
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
from adjoint.distributed.transport import free_port
from adjoint.ops.create import from_numpy
from adjoint.ops.sparse_tensor import SparseTensor
from adjoint.testing._internal import matrices as _matrices
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
TEST_WITH_SLOW_GRADCHECK = TEST_SKIP_FAST = TEST_WITH_MTIA = TEST_HPU = TEST_CUDA_GRAPH = False
TEST_FAIRSEQ = TEST_DILL = TEST_LIBROSA = TEST_Z3 = False
TEST_OPT_EINSUM = False
MI300_ARCH: tuple[str, ...] = ()
TEST_WITH_SLOW = os.environ.get("PYTORCH_TEST_WITH_SLOW") == "1"
GRADCHECK_NONDET_TOL = 0.0
torch_to_numpy_dtype_dict = {getattr(dt, n): getattr(dt, n).dtype.type for n in (
    "bool_ uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64"
    " complex128").split()}
numpy_to_torch_dtype_dict = {v: k for k, v in torch_to_numpy_dtype_dict.items()}
for _name in vars(_matrices):
    if _name.startswith(("random_", "make_")):
        globals()[_name] = getattr(_matrices, _name)
numpy_to_torch_dtype = numpy_to_torch_dtype_dict.__getitem__
_NUMBERS = (int, float, complex)
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
        those of the class if they are larger; anything else by `==`. `msg`, a text or a function
        of the text, goes with what is said of the first pair that differs."""
        if (atol is None) != (rtol is None):
            raise ValueError("assertEqual: atol and rtol must both be given, or neither; got "
                             f"atol={atol} and rtol={rtol}")
        kwargs = {"atol": atol, "rtol": rtol, "equal_nan": equal_nan, "check_dtype": exact_dtype,
                  "check_device": exact_device, "check_stride": exact_stride,
                  "check_layout": exact_layout}
        try:
            self._compare(x, y, (), kwargs)
        except AssertionError as error:
            said = str(error)
            raise self.failureException(
                msg(said) if callable(msg) else f"{said}\n{msg}" if msg else said) from None

    def _compare(self, x: Any, y: Any, path: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """One pair, at that place of two trees; the error names the place."""
        if isinstance(x, (dict, list, tuple)) and isinstance(y, (dict, list, tuple)):
            for key, a, b in self._members(x, y):
                self._compare(a, b, (*path, key), kwargs)
            return
        try:
            self._compare_leaves(x, y, kwargs)
        except AssertionError as error:
            where = "".join(f"[{key!r}]" for key in path)
            at = f"\n\nThe failure occurred for item {where}" if path else ""
            raise AssertionError(f"{error}{at}") from None

    def _compare_leaves(self, x: Any, y: Any, kwargs: dict[str, Any]) -> None:
        if not isinstance(x, _COMPARED) or not isinstance(y, (*_COMPARED, list)):
            if isinstance(x, list) and isinstance(y, _COMPARED):
                self._compare_leaves(y, x, kwargs)
            else:
                super().assertEqual(x, y)
            return
        if isinstance(x, _NUMBERS) and isinstance(y, _NUMBERS):
            kwargs = {**kwargs, "check_dtype": False}
        x, y = _comparable(x, y)
        if kwargs["atol"] is None and (self.precision or self.rel_tol):
            kwargs = {**kwargs, "atol": self.precision, "rtol": max(self.rel_tol, 1.3e-6)}
        assert_close(x, y, **kwargs)

    def _members(self, x: Any, y: Any) -> list[tuple[Any, Any, Any]]:
        """What two containers hold, by key or index."""
        if isinstance(x, dict) and isinstance(y, dict):
            super().assertEqual(set(x), set(y))
            return [(k, x[k], y[k]) for k in x]
        super().assertEqual(len(x), len(y))
        return list(zip(range(len(x)), x, y, strict=True))

    def assertEqualBroadcasting(self, x: Any, y: Any, *args: Any, **kwargs: Any) -> None:
        """`x` equals `y`, which is broadcast to its shape."""
        other = y if isinstance(y, Tensor) else x.new_tensor(y)
        self.assertEqual(x, other.expand_as(x), *args, exact_dtype=False, **kwargs)

    def assertObjectIn(self, obj: Any, iterable: Any) -> None:
        """One of `iterable` is that very object."""
        self.assertTrue(any(obj is other for other in iterable), f"{obj!r} is none of them")

    def compare_with_numpy(self, torch_fn: Any, np_fn: Any, tensor_like: Any, device: Any = None,
                           dtype: Any = None, **kwargs: Any) -> None:
        """A function of a tensor gives what NumPy's gives of its array."""
        given = tensor_like if isinstance(tensor_like, Tensor) else from_numpy(
            np.array(tensor_like, None if dtype is None else dtype.dtype))
        kwargs.setdefault("exact_dtype", False)
        self.assertEqual(torch_fn(given), from_numpy(np.asarray(np_fn(given.numpy()))), **kwargs)

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

    def assertExpectedRaisesInline(self, exc_type: type[BaseException], callable: Any,
                                   expect: str, *args: Any, skip: int = 0, **kwargs: Any) -> None:
        """A call raises that, with that text."""
        with self.assertRaises(exc_type) as caught:
            callable(*args, **kwargs)
        super().assertEqual(str(caught.exception), expect)

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


def slowTestIf(condition: Any) -> Callable[[Any], Any]:
    """`slowTest` where the condition holds."""
    return slowTest if condition else lambda fn: fn


def skipIfNotRegistered(op_name: str, message: str) -> Callable[[Any], Any]:
    """Skipped: operators of that registry are not here."""
    return unittest.skip(message)


slowTest = skipIf(not TEST_WITH_SLOW, "slow: set PYTORCH_TEST_WITH_SLOW=1")
skipIfNoSciPy = skipIf(not TEST_SCIPY, "SciPy is not installed")
skipIfWindows = skipIf(IS_WINDOWS, "not on Windows")
for _name in ("skipIfNoLapack skipIfRocm skipIfTorchDynamo skipIfTorchInductor skipIfCrossRef"
              " skipIfMPS skipIfMps skipIfXpu skipIfHpu skipIfSlowGradcheckEnv serialTest"
              " skipIfCompiledWithoutNumpy xfailIfTorchDynamo markDynamoStrictTest"
              " unMarkDynamoStrictTest skipIfFreeThreaded skipIfLegacyJitExecutor runOnRocm"
              " gcIfJetson skipIfOnGHA setLinalgBackendsToDefaultFinally"
              " recover_orig_fp32_precision").split():
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


def wrapDeterministicFlagAPITest(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn`, behind which deterministic algorithms are as they were."""
    @functools.wraps(fn)
    def kept(*args: Any, **kwargs: Any) -> Any:
        with DeterministicGuard(settings.are_deterministic_algorithms_enabled()):
            return fn(*args, **kwargs)
    return kept


def decorateIf(decorator: Callable[[Any], Any], predicate_fn: Callable[[dict[str, Any]], bool]
               ) -> Callable[[Any], Any]:
    """`decorator` for those cases of a parametrized test whose arguments satisfy a predicate."""
    def note(fn: Any) -> Any:
        fn.conditional = [*getattr(fn, "conditional", ()), (decorator, predicate_fn)]
        return fn
    return note


def retry(ExceptionToCheck: Any, tries: int = 3, delay: float = 3,
          skip_after_retries: bool = False) -> Callable[[Any], Any]:
    """Call a function again, at most `tries` times, while it raises that."""
    def decorate(fn: Any) -> Any:
        @functools.wraps(fn)
        def again(*args: Any, **kwargs: Any) -> Any:
            for _ in range(tries - 1):
                try:
                    return fn(*args, **kwargs)
                except ExceptionToCheck:
                    time.sleep(delay)
            try:
                return fn(*args, **kwargs)
            except ExceptionToCheck as error:
                if skip_after_retries:
                    raise unittest.SkipTest(f"failed {tries} times: {error}") from error
                raise
        return again
    return decorate


def is_iterable(obj: Any) -> bool:
    """True for what can be iterated over."""
    try:
        iter(obj)
    except TypeError:
        return False
    return True


def is_iterable_of_tensors(iterable: Any, include_empty: bool = False) -> bool:
    """True for a container, not a tensor, of tensors alone; of none: `include_empty`."""
    if isinstance(iterable, Tensor) or not is_iterable(iterable):
        return False
    held = list(iterable)
    return all(isinstance(t, Tensor) for t in held) if held else include_empty


def first_sample(self: Any, samples: Any) -> Any:
    """The first of them; the test is skipped where there are none."""
    found = next(iter(samples), None)
    if found is None:
        self.skipTest("there are no samples")
    return found


def dtype_name(dtype: Any) -> str:
    """`float32` of torch.float32."""
    return str(dtype).split(".")[-1]


def to_gpu(obj: Any, type_map: Any = None) -> Any:
    """Raises: there is none."""
    raise unittest.SkipTest("there is no GPU")


@contextlib.contextmanager
def set_warn_always_context(new_val: bool) -> Iterator[None]:
    """Warnings that come once come always within the context, or as before."""
    before = settings.is_warn_always_enabled()
    settings.set_warn_always(new_val)
    try:
        yield
    finally:
        settings.set_warn_always(before)


@contextlib.contextmanager
def disable_gc() -> Iterator[None]:
    """No cycles are collected within the context."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def find_free_port() -> int:
    """A port of this machine that nobody listens on."""
    return free_port("localhost")


def load_tests(loader: Any, tests: Any, pattern: Any) -> Any:
    """unittest's protocol: the tests as they are."""
    return tests


class NoTest:
    """In the place of TestCase: a class of no tests."""


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
