"""The harness of JAX's tests (`from jax._src import test_util as jtu`): a test case that compares
trees of arrays by their dtypes, random arguments, samples of parameters.

Nothing is compiled here: `_CompileAndCheck` compares a function's output with its output under
`jit`, and what counts traces or compilations skips the test and says so.
"""
from __future__ import annotations

import contextlib
import functools
import math
import textwrap
import unittest
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from adjoint.base.errors import missing as _missing
from adjoint.jax import dtypes as _dtypes
from adjoint.jax import test_util as _public
from adjoint.jax._api import jit
from adjoint.jax._array import as_array
from adjoint.jax._dtypes import canonical
from adjoint.jax._src import cases as _cases
from adjoint.jax._src import samplers as _samplers
from adjoint.jax._src.cases import flags, with_config
from adjoint.jax._util import promote_dtypes, promote_dtypes_inexact, unzip2
from adjoint.jax.tree_util import tree_flatten, tree_leaves, tree_map, tree_unflatten

F = Callable[..., Any]
JIT_IMPLEMENTATION = (jit, lambda x, *args, **kwargs: x)
_TOLERANCE = {"bfloat16": 1e-2, "float16": 1e-3, "float32": 1e-6, "float64": 1e-15,
              "complex64": 1e-6, "complex128": 1e-15}
default_gradient_tolerance = {np.dtype(t): v for t, v in (
    ("float16", 1e-2), ("float32", 2e-3), ("float64", 1e-5), ("complex64", 1e-3),
    ("complex128", 1e-5))}


# ------------------------------------------------------------------ dtypes
class _Dtypes:
    """Lists of dtypes for parameters: `jtu.dtypes.floating`; 64-bit ones where they are on."""

    def supported(self, dtypes: Sequence[Any]) -> list[Any]:
        """Those that arrays can have."""
        return [t for t in dtypes if canonical(np.dtype(t)) == np.dtype(t)]

    def __getattr__(self, name: str) -> list[Any]:
        wide = self.supported
        bf16 = [np.dtype(_dtypes.bfloat16).type]
        floating, ints = wide([np.float32, np.float64]), wide([np.int32, np.int64])
        unsigned, cplx = wide([np.uint32, np.uint64]), wide([np.complex64, np.complex128])
        all_floating = [*bf16, np.float16, *floating]
        all_ints = [np.int8, np.int16, *ints]
        all_unsigned = [np.uint8, np.uint16, *unsigned]
        lists: dict[str, list[Any]] = {
            "floating": floating, "integer": ints, "unsigned": unsigned, "complex": cplx,
            "boolean": [np.bool_], "inexact": floating + cplx, "custom_floats": bf16,
            "numeric": floating + ints + unsigned + cplx, "all_floating": all_floating,
            "all_integer": all_ints, "all_unsigned": all_unsigned,
            "all_inexact": all_floating + cplx,
            "all": all_floating + all_ints + all_unsigned + cplx + [np.bool_]}
        if name not in lists:
            raise AttributeError(name)
        return lists[name]


dtypes = _Dtypes()


def supported_dtypes() -> set[Any]:
    """The scalar types of all dtypes that arrays can have."""
    return set(dtypes.all)


def dtype_str(dtype: Any) -> str:
    """The name of a dtype."""
    return np.dtype(dtype).name


def num_float_bits(dtype: Any) -> int:
    """Bits of a real number of the dtype."""
    return int(_dtypes.finfo(_dtypes.canonicalize_dtype(dtype)).bits)


def _dtype_of(x: Any) -> Any:
    if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic):
        return as_array(x).dtype
    return x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype


def to_default_dtype(x: Any) -> Any:
    """A NumPy array in the dtype that stands for it here."""
    value = np.asarray(x)
    return value.astype(canonical(value.dtype))


def with_jax_dtype_defaults(func: F, use_defaults: Any = True) -> F:
    """A function of NumPy whose outputs are in the dtypes that stand for theirs here."""
    @functools.wraps(func)
    def run(*args: Any, **kwargs: Any) -> Any:
        found = func(*args, **kwargs)
        if isinstance(use_defaults, bool):
            return tree_map(to_default_dtype, found) if use_defaults else found
        return tree_map(lambda x, d: to_default_dtype(x) if d else x, found, use_defaults)
    return run


def promote_like_jnp(fun: F, inexact: bool = False) -> F:
    """A function of NumPy whose arguments are promoted as `jax.numpy` does it."""
    def run(*args: Any, **kwargs: Any) -> Any:
        flat = [np.asarray(x) for x in (promote_dtypes_inexact if inexact else promote_dtypes)(
            *args)]
        return fun(*flat, **kwargs)
    return run


# ------------------------------------------------------------------ tolerances
def tolerance(dtype: Any, tol: Any = None) -> float:
    """The tolerance for a dtype: a number, an entry of a dict of dtypes, or the default."""
    if isinstance(tol, (int, float)):
        return tol
    name = "bool" if np.dtype(dtype) == _dtypes.float0 else np.dtype(dtype).name
    given = {np.dtype(k).name: v for k, v in (tol or {}).items()}
    narrow = canonical(np.dtype(dtype)).name if name != "bool" else name
    return float(given.get(name, given.get(narrow, _TOLERANCE.get(narrow, 0))))


def join_tolerance(tol1: Any, tol2: Any) -> Any:
    """The larger one per dtype."""
    if isinstance(tol1, (int, float)) and isinstance(tol2, (int, float)):
        return max(tol1, tol2)
    kinds = {np.dtype(t) for t in (*_TOLERANCE_TYPES, *(tol1 if isinstance(tol1, dict) else ()),
                                   *(tol2 if isinstance(tol2, dict) else ()))}
    return {k: max(tolerance(k, tol1), tolerance(k, tol2)) for k in kinds}


_TOLERANCE_TYPES = (np.float16, np.float32, np.float64, np.complex64, np.complex128)


# ------------------------------------------------------------------ contexts
@contextlib.contextmanager
def ignore_warning(**kw: Any) -> Iterator[None]:
    """A context without the warnings that `warnings.filterwarnings("ignore", **kw)` names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", **kw)
        yield


@contextlib.contextmanager
def capture_stdout() -> Iterator[Callable[[], str]]:
    """A context that gives a function: what was printed."""
    import io
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        yield text.getvalue


def check_raises(thunk: F, err_type: Any, msg: str) -> None:
    """AssertionError unless the call raises this type with a text that starts so."""
    try:
        thunk()
    except err_type as error:
        assert str(error).startswith(msg), (str(error), msg)
    else:
        raise AssertionError(f"{err_type} was not raised")


def complex_plane_sample(dtype: Any, size_re: int = 10, size_im: int | None = None) -> np.ndarray:
    """Points over the complex plane, (3 + 2 size_im) x (3 + 2 size_re): the product of two rows of
    real numbers, each -inf, from the greatest to the least magnitude, 0, and back."""
    info = np.finfo(dtype)

    def row(n: int) -> np.ndarray:
        ends = math.log2(float(info.tiny)), math.log2(float(info.max)) * (1 - 1e-9)
        up = np.array([info.tiny, *(2.0 ** np.linspace(*ends, n)[1:-1]), info.max][:n] if n > 1
                      else [1.0] * n, info.dtype)
        return np.concatenate([[-np.inf], -up[::-1], [0], up, [np.inf]]).astype(info.dtype)
    re, im = row(size_re), row(size_re if size_im is None else size_im)
    out = np.empty((im.size, re.size), dtype)
    out.real, out.imag = re[None], im[:, None]
    return out


def check_eq(xs: Any, ys: Any, err_msg: str = "") -> None:
    """AssertionError unless the leaves are equal."""
    tree_map(lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y), err_msg),
             xs, ys)


def check_close(xs: Any, ys: Any, atol: Any = None, rtol: Any = None, err_msg: str = "") -> None:
    """AssertionError unless the leaves are close, in their dtypes' tolerances."""
    tree_map(lambda x, y: _close(np.asarray(x), np.asarray(y), atol, rtol, err_msg), xs, ys)


def _close(a: Any, b: Any, atol: Any, rtol: Any, err_msg: str) -> None:
    if a.dtype == b.dtype == _dtypes.float0:
        np.testing.assert_array_equal(a.shape, b.shape, err_msg)
        return
    limits = [max(tolerance(a.dtype, t), tolerance(b.dtype, t)) for t in (atol, rtol)]

    def wide(x: Any) -> Any:
        return x.astype(np.float32) if x.dtype.name in ("bfloat16", "float16") else x
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(wide(a), wide(b), atol=limits[0], rtol=limits[1],
                                   err_msg=err_msg)


# ------------------------------------------------------------------ the test case
class JaxTestCase(_cases.bases()[0]):  # type: ignore[misc]  # a class found when it runs
    """A test case with a generator of its own seed, and strict flags: operands of other dtypes and
    ranks raise unless a test asks for them."""

    _default_thread_local_config: dict[str, Any] = {
        "jax_enable_checks": True, "jax_numpy_dtype_promotion": "strict",
        "jax_numpy_rank_promotion": "raise", "jax_traceback_filtering": "off",
        "jax_legacy_prng_key": "error"}

    def setUp(self) -> None:
        """Set the flags and the seed."""
        super().setUp()
        self.enterContext(flags(**self._default_thread_local_config))
        self._rng = np.random.RandomState(zlib.adler32(self._testMethodName.encode()))

    if not hasattr(unittest.TestCase, "enterContext"):      # Python 3.10
        def enterContext(self, cm: Any) -> Any:
            """Enter a context until the test ends."""
            found = cm.__enter__()
            self.addCleanup(cm.__exit__, None, None, None)
            return found

    def rng(self) -> np.random.RandomState:
        """The generator of this test."""
        return self._rng

    def assertDtypesMatch(self, actual: Any, desired: Any, *, canonicalize_dtypes: bool = True
                          ) -> None:
        """Equal dtypes, 64 bits counting as 32 where they are off."""
        a, b = _dtype_of(actual), _dtype_of(desired)
        if canonicalize_dtypes and not any(getattr(d, "name", "").startswith("key<")
                                           for d in (a, b)):
            a, b = (d if d == _dtypes.float0 else canonical(d) for d in (a, b))
        self.assertEqual(a, b)

    def assertArraysEqual(self, actual: Any, desired: Any, *, check_dtypes: bool = True,
                          err_msg: str = "", allow_object_dtype: bool = False,
                          verbose: bool = True) -> None:
        """Equal arrays, NaN being equal to NaN."""
        if check_dtypes:
            self.assertDtypesMatch(actual, desired)
        if not allow_object_dtype and object in {getattr(x, "dtype", None)
                                                 for x in (actual, desired)}:
            raise TypeError("assertArraysEqual may be poorly behaved when np.asarray casts to "
                            "dtype=object")
        a, b = _plain(actual), _plain(desired)
        np.testing.assert_array_equal(a, b, err_msg=err_msg, verbose=verbose)

    def assertArraysAllClose(self, actual: Any, desired: Any, *, check_dtypes: bool = True,
                             atol: Any = None, rtol: Any = None, err_msg: str = "") -> None:
        """Arrays of one shape, close in their dtypes' tolerances."""
        a, b = _plain(actual), _plain(desired)
        self.assertEqual(a.shape, b.shape, err_msg)
        _close(a, b, atol, rtol, err_msg)
        if check_dtypes:
            self.assertDtypesMatch(actual, desired)

    def assertAllClose(self, actual: Any, desired: Any, *, check_dtypes: bool = True,
                       atol: Any = None, rtol: Any = None, canonicalize_dtypes: bool = True,
                       err_msg: str = "") -> None:
        """Trees of one structure with close arrays."""
        rest: dict[str, Any] = dict(check_dtypes=check_dtypes, atol=atol, rtol=rtol,
                                    canonicalize_dtypes=canonicalize_dtypes, err_msg=err_msg)
        if isinstance(actual, dict):
            self.assertIsInstance(desired, dict)
            self.assertEqual(set(actual), set(desired))
            for k in actual:
                self.assertAllClose(actual[k], desired[k], **rest)
        elif isinstance(actual, (str, type(None))) or isinstance(desired, (str, type(None))):
            self.assertEqual(actual, desired)
        elif _is_sequence(actual) and _is_sequence(desired):
            self.assertEqual(len(actual), len(desired))
            for a, b in zip(actual, desired, strict=True):
                self.assertAllClose(a, b, **rest)
        else:
            if check_dtypes:
                self.assertDtypesMatch(actual, desired, canonicalize_dtypes=canonicalize_dtypes)
            self.assertArraysAllClose(actual, desired, check_dtypes=False, atol=atol, rtol=rtol,
                                      err_msg=err_msg)

    def assertMultiLineStrippedEqual(self, expected: str, what: str) -> None:
        """Equal texts, but for indents and outer blanks."""
        def lines(text: str) -> str:
            return "\n".join(x.strip() for x in textwrap.dedent(text).strip().splitlines())
        self.assertMultiLineEqual(lines(expected), lines(what))

    @contextlib.contextmanager
    def assertNoWarnings(self) -> Iterator[None]:
        """A context in which a warning is an error."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield

    def assertCacheMisses(self, func: Callable[[], Any], **_: Any) -> None:
        """Skips: there are no caches of compiled functions."""
        func()
        _cases.uncounted()

    def _CompileAndCheck(self, fun: F, args_maker: F, *, check_dtypes: bool = True,
                         tol: Any = None, rtol: Any = None, atol: Any = None,
                         check_cache_misses: bool = True) -> None:
        """A function's output is its output under `jit`, and repeats."""
        args = args_maker()
        want = fun(*args)
        for _ in range(2):
            self.assertAllClose(want, jit(fun)(*args), check_dtypes=check_dtypes,
                                atol=tol if atol is None else atol,
                                rtol=tol if rtol is None else rtol)

    def _CheckAgainstNumpy(self, numpy_reference_op: F, lax_op: F, args_maker: F,
                           check_dtypes: bool = True, tol: Any = None, atol: Any = None,
                           rtol: Any = None, canonicalize_dtypes: bool = True) -> None:
        """A function's output is that of NumPy's."""
        args = args_maker()
        found = lax_op(*args)
        self.assertAllClose(numpy_reference_op(*args), found, check_dtypes=check_dtypes,
                            atol=tol if atol is None else atol, rtol=tol if rtol is None else rtol,
                            canonicalize_dtypes=canonicalize_dtypes)


def _is_sequence(x: Any) -> bool:
    return isinstance(x, (tuple, list))


def _plain(x: Any) -> np.ndarray:
    """Values as NumPy's; those of a key are its words."""
    if getattr(getattr(x, "dtype", None), "name", "").startswith("key<"):
        from adjoint.jax.random import key_data
        x = key_data(x)
    return np.asarray(x, None if not isinstance(x, (int, float, complex)) else _dtype_of(x))


class CudaArchSpecificTest:
    """What tests of one kind of GPU derive from."""

    def skip_unless_sm90a(self) -> None:
        """Skips: there is no GPU."""
        _cases.elsewhere()

    skip_unless_sm100a = skip_unless_sm90a


def default_tolerance() -> dict[Any, float]:
    """The relative tolerance of comparisons, by the dtype."""
    whole = {np.dtype(t): 0.0 for t in ("bool", "int8", "int16", "int32", "int64", "uint8",
                                        "uint16", "uint32", "uint64")}
    floats = {np.dtype(_dtypes.bfloat16): _TOLERANCE["bfloat16"]} | {
        np.dtype(k): v for k, v in _TOLERANCE.items() if k != "bfloat16"}
    return {np.dtype(_dtypes.float0): 0.0, **whole, **floats}


def rand_like(rng: Any, x: Any) -> Any:
    """Normal draws in the shape and dtype of an array."""
    return _samplers.rand_default(rng)(np.shape(x), _dtype_of(x))


def tree_all(tree: Any, *, is_leaf: Any = None) -> bool:
    """Are all leaves true?"""
    return all(tree_leaves(tree, is_leaf=is_leaf))


class BufferDonationTestCase(JaxTestCase):
    """Tests of donated arguments: they stay valid here, which skips what says otherwise."""

    def assertDeleted(self, x: Any) -> None:
        """Skips: arguments are donated in name only."""
        self.skipTest("arguments are donated in name only")

    def assertNotDeleted(self, x: Any) -> None:
        """It is valid."""
        self.assertFalse(x.is_deleted())


def _undecorated(*args: Any, **kwargs: Any) -> Any:
    """A decorator, or a maker of one, that leaves a test as it is."""
    return args[0] if args and callable(args[0]) else lambda x: x


def _gathered() -> dict[str, Any]:
    """The names of the parts, of other devices (False), and of what is not counted (a skip)."""
    names = {n: getattr(part, n) for part in (_cases, _samplers) for n in part.__all__}
    names |= {n: getattr(_public, n) for n in ("check_grads", "check_jvp", "check_vjp")}
    names |= dict.fromkeys(("thread_unsafe_test", "thread_unsafe_test_class", "skip_under_pytest",
                            "ignore_thread_leaks"), _undecorated)
    names |= {"JaxTestLoader": _cases.bases()[1], "with_global_config": with_config,
              "global_config_context": flags, "thread_local_config_context": flags}
    names |= dict.fromkeys((
        "is_device_tpu is_device_cuda is_device_rocm is_device_tpu_at_least is_cloud_tpu "
        "is_cloud_tpu_at_least is_cuda_compute_capability_at_least is_asan is_msan is_tsan "
        "is_cuda_compute_capability_equal is_sanitized is_gil_disabled is_test_rbe "
        "is_cuda_version_at_least device_supports_buffer_donation").split(), _cases.no)
    names |= dict.fromkeys(("create_mesh", "with_mesh", "request_cpu_devices", "event_listener",
                            "register_event_duration_listener"), _cases.elsewhere)
    names |= dict.fromkeys(("with_explicit_mesh", "with_mesh_from_kwargs"), _cases.on_meshes)
    names |= {"is_optimized_build": lambda: True, "cuda_versions": None,
              "is_sequence": _is_sequence, "ToleranceDict": dict, "unzip2": unzip2,
              "pjrt_c_api_version_at_least": _cases.no, "stablehlo_version_at_least": _cases.no,
              "tree_flatten": tree_flatten, "tree_unflatten": tree_unflatten}
    return names | dict.fromkeys((
        "iter_eqns fwd_bwd_jaxprs assert_dot_precision assert_dot_preferred_element_type "
        "count_compilation_after_persistent_cache_miss "
        "count_events count_device_put count_device_put_fast_path_hit count_primitive_compiles "
        "count_jit_and_pmap_lowerings count_jit_compilation_cache_miss collect_lowered_jaxprs "
        "count_jit_tracing_cache_miss count_pjit_cpp_cache_miss count_aot_jit_cpp_cache_miss "
        "count_internal_device_puts count_jax_array_shard_arg_calls "
        "assert_num_jit_and_pmap_compilations count_subjaxpr_to_hlo_conversion").split(),
        _cases.uncounted)


globals().update(_gathered())
__getattr__ = _missing("adjoint.jax._src.test_util")
