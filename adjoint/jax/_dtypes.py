"""JAX's element types: the x64 flag, weak types and the promotion lattice.

Source: JAX documentation, "Type promotion semantics". Two types join at their least upper bound in
the lattice; a Python number is of a weak type, which is below every type of its category.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from adjoint.base.dtypes import bfloat16 as _bfloat16
from adjoint.base.dtypes import is_bfloat16, is_inexact
from adjoint.base.errors import NotSupported

Pair = tuple[np.dtype[Any], bool]          # (dtype, is it weak)


_WORDS = {"jax_numpy_rank_promotion": ("allow", "warn", "raise"),
          "jax_numpy_dtype_promotion": ("standard", "strict"),
          "jax_legacy_prng_key": ("allow", "warn", "error"),
          "jax_default_prng_impl": ("threefry2x32", "rbg", "unsafe_rbg")}


class Config:
    """The flags that `jax.config.update` sets.

    watched  is there one that functions of operands look at?
    """

    watched = False

    def __init__(self) -> None:
        self.values: dict[str, Any] = {
            "jax_enable_x64": False, "jax_debug_nans": False, "jax_debug_infs": False,
            "jax_disable_jit": False, "jax_platform_name": "cpu", "jax_platforms": "cpu",
            "jax_numpy_rank_promotion": "allow", "jax_numpy_dtype_promotion": "standard",
            "jax_default_matmul_precision": None, "jax_default_prng_impl": "threefry2x32",
            "jax_threefry_partitionable": True, "jax_check_tracer_leaks": False,
            "jax_log_compiles": False, "jax_traceback_filtering": "auto", "jax_default_device":
            None, "jax_compilation_cache_dir": None, "jax_enable_checks": False,
            "jax_enable_compilation_cache": True, "jax_enable_custom_prng": False,
            "jax_legacy_prng_key": "allow", "jax_debug_key_reuse": False,
            "jax_explain_cache_misses": False, "jax_no_tracing": False, "jax_no_execution": False,
            "jax_softmax_custom_jvp": True, "jax_transfer_guard": None,
            "jax_transfer_guard_host_to_device": None, "jax_transfer_guard_device_to_host": None,
            "jax_transfer_guard_device_to_device": None, "jax_disable_bwd_checks": False,
            "jax_use_shardy_partitioner": True, "jax_random_seed_offset": 0,
            "jax_num_cpu_devices": -1, "jax_mutable_array_checks": True,
            "jax_high_dynamic_range_gumbel": False, "jax_use_direct_linearize": True,
            "jax_pprint_use_color": True, "jax_include_full_tracebacks_in_locations": True,
            "jax_dynamic_shapes": False, "jax_array_garbage_collection_guard": "allow",
            "jax_captured_constants_warn_bytes": 2 * 10**9, "jax_thread_guard": False,
            "jax_log_checkpoint_residuals": False, "jax_check_static_indices": False,
            "jax_allow_f16_reductions": False}

    def update(self, name: str, value: Any) -> None:
        """Set a flag; AttributeError for a name that is none."""
        if name not in self.values:
            raise AttributeError(f"Unrecognized config option: {name}")
        words = _WORDS.get(name)
        if words and not (value in words or getattr(value, "value", None) in words):
            raise ValueError(f"new enum value must be in {list(words)}, got {value} of type "
                             f"{type(value)}.")
        self.values[name] = value
        self.watched = bool(self.values["jax_debug_nans"] or self.values["jax_debug_infs"]
                            or self.values["jax_numpy_rank_promotion"] != "allow")
        canonical.cache_clear()
        lattice.cache_clear()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.values:
            raise AttributeError(f"Unrecognized config option: {name}")
        return self.values[name]

    @property
    def x64_enabled(self) -> bool:
        """Are there 64-bit types?"""
        return bool(self.values["jax_enable_x64"])

    def read(self, name: str) -> Any:
        """The value of a flag."""
        return self.values[name]

    def parse_flags_with_absl(self) -> None:
        """Nothing: flags are set by `update`, not by a command line."""

    config_with_absl = parse_flags_with_absl


config = Config()


class Flag:
    """One flag: `jax.enable_x64.value`, and `with jax.enable_x64(True):`."""

    def __init__(self, name: str, entered: Any = True) -> None:
        self.name, self.entered = name, entered

    @property
    def value(self) -> Any:
        """What it is set to."""
        return config.values[self.name]

    @contextlib.contextmanager
    def __call__(self, *given: Any, **named: Any) -> Iterator[None]:
        """A context in which it is set."""
        word = "disable" if self.name == "jax_disable_jit" else "new_val"
        if len(given) + len(named) > 1 or named.keys() - {word}:
            raise TypeError(f"{self.name.removeprefix('jax_')}() takes one argument, {word}; got "
                            f"{[*given, *named]}")
        value, = (*given, *named.values()) or (self.entered,)
        before = self.value
        config.update(self.name, value)
        try:
            yield
        finally:
            config.update(self.name, before)

    def __repr__(self) -> str:
        return f"<flag {self.name} = {self.value!r}>"


FLAGS = {name.removeprefix("jax_"): Flag(name) for name in config.values}
_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}


@cache
def canonical(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that stands for this one: 32 bits where 64 are switched off."""
    if config.values["jax_enable_x64"]:
        return dtype
    return np.dtype(_NARROW.get(dtype.name, dtype.name)) if dtype.name in _NARROW else dtype


class ScalarType:
    """`jnp.float32` and its like: names a dtype, and makes an array of a value."""

    make: Any = None                       # set by the module of arrays

    def __init__(self, name: str) -> None:
        self.__name__ = name

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype."""
        if self.__name__ in SMALL:
            return _of_ml_dtypes(self.__name__)
        return _bfloat16.dtype if self.__name__ == "bfloat16" else np.dtype(self.__name__)

    def __call__(self, x: Any) -> Any:
        return ScalarType.make(x, self.dtype)

    def __eq__(self, other: Any) -> bool:
        return self is other or (not isinstance(other, ScalarType) and other is not None
                                 and self.dtype == other)

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        return f"<class 'jax.numpy.{self.__name__}'>"


SCALARS = {name: ScalarType(name) for name in (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
    "complex64 complex128").split()}


# of eight bits and fewer: they have names and limits here, arrays of them are not there
SMALL = {name: ScalarType(name) for name in (
    "float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 "
    "float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn float6_e2m3fn float6_e3m2fn int1 int2 int4 "
    "uint1 uint2 uint4").split()}


def _of_ml_dtypes(name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        raise NotSupported(f"{name} needs ml_dtypes: pip install 'adjoint[amp]'") from None
    return np.dtype(getattr(ml_dtypes, name))


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """NumPy's dtype of any spelling, in 32 bits where 64 are switched off."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        dtype = SCALARS[dtype]
    if isinstance(dtype, ScalarType):
        dtype = dtype.dtype
    return canonical(np.dtype(dtype))


# ------------------------------------------------------------------ promotion
_WEAK = ("int", "float", "complex")        # weak types, by the name of Python's
_ABOVE = {
    "bool": "int", "int": "uint8 int8", "uint8": "int16 uint16", "uint16": "int32 uint32",
    "uint32": "int64 uint64", "uint64": "float", "int8": "int16", "int16": "int32",
    "int32": "int64", "int64": "float", "float": "bfloat16 float16 complex",
    "bfloat16": "float32", "float16": "float32", "float32": "float64 complex64",
    "float64": "complex128", "complex": "complex64", "complex64": "complex128",
    "complex128": ""}


@cache
def _upward(name: str) -> frozenset[str]:
    return frozenset({name}).union(*map(_upward, _ABOVE.get(name, "").split()))


def _kind(dtype: np.dtype[Any]) -> str:
    return {"b": "bool", "i": "int", "u": "int", "c": "complex"}.get(dtype.kind, "float")


def default_dtype(kind: str) -> np.dtype[Any]:
    """The dtype of Python's `int`, `float` or `complex`."""
    return canonical(np.dtype({"int": "int64", "float": "float64", "complex": "complex128",
                               "bool": "bool"}[kind]))


class TypePromotionError(ValueError):
    """Operands of dtypes that have no common one."""


@cache
def lattice(pairs: frozenset[Pair]) -> Pair:
    """The least upper bound of (dtype, weak) pairs; TypePromotionError where there is none, which
    is so with `jax_numpy_dtype_promotion="strict"` alone."""
    if len(pairs) == 1:
        return next(iter(pairs))
    if len({d for d, _ in pairs}) == 1 and all(w for _, w in pairs):
        return next(iter(pairs))
    names = [_kind(d) if weak and d.kind != "b" else d.name for d, weak in pairs]
    strict = config.values["jax_numpy_dtype_promotion"] == "strict"
    common = frozenset.intersection(*[
        frozenset({n}) if strict and n not in _WEAK else _upward(n) for n in names])
    if not common:
        kinds = ", ".join(sorted(repr(f"<class '{n}'>" if n in _WEAK else n) for n in set(names)))
        if not SMALL.keys().isdisjoint(names):
            raise TypePromotionError(
                f"Input dtypes ({kinds}) have no available implicit dtype promotion path. To avoid "
                "unintended promotion, dtypes of eight bits and fewer are not promoted: cast with "
                ".astype")
        raise TypePromotionError(
            f"Input dtypes ({kinds}) have no available implicit dtype promotion path when "
            "jax_numpy_dtype_promotion=strict. Try explicitly casting inputs to the desired output "
            "type, or set jax_numpy_dtype_promotion=standard.")
    best = next(n for n in common if common <= _upward(n))
    if best in _WEAK:
        return default_dtype(best), True
    return canonical(np.dtype(SCALARS[best].dtype)), False


def inexact(pair: Pair) -> Pair:
    """The pair itself; float32 for integers of up to 32 bits and truth values, float64 for those
    of 64, where 64 bits are on."""
    dtype, weak = pair
    if is_inexact(dtype):
        return pair
    return canonical(np.dtype(np.float64 if dtype.itemsize > 4 else np.float32)), weak


# ------------------------------------------------------------------ categories (jnp.issubdtype)
def issubdtype(arg1: Any, arg2: Any) -> bool:
    """`numpy.issubdtype`, which knows bfloat16, PRNG keys and the names of scalar types."""
    a, b = arg1, arg2
    if a is None or (not isinstance(a, (str, type, ScalarType)) and not hasattr(a, "kind")
                     and not hasattr(a, "dtype")):
        a = np.dtype(a)
    name = getattr(a, "name", "")
    if name.startswith("key<"):
        return getattr(b, "__name__", "") in ("prng_key", "extended", "generic")
    if getattr(b, "__name__", "") in ("prng_key", "extended"):
        return False
    low = a if isinstance(a, type) and issubclass(a, np.generic) else (
        SCALARS["bfloat16"].dtype if a == "bfloat16" else
        a.dtype if isinstance(a, ScalarType) else np.dtype(a))
    high = b.dtype if isinstance(b, ScalarType) else b
    if isinstance(low, np.dtype) and low.name in SMALL:
        whole = "int" in low.name
        sign = np.unsignedinteger if low.name[0] == "u" else np.signedinteger
        return high == low or high in (np.number, np.generic) or high in (
            (np.integer, sign) if whole else (np.floating, np.inexact))
    if isinstance(low, np.dtype) and is_bfloat16(low):
        return high == low or high in (np.floating, np.inexact, np.number, np.generic)
    return bool(np.issubdtype(low, high))
