"""Where JAX keeps its modules (`jax._src`), for programs and tests that import them from there.

A name that ends in one of `PLACES` is a part: it has what the public module has, and the parts
below it. Names that are inside JAX alone, and the modules of `INNER`, can be imported so that a
program which asks for one of them in one place runs in the others; using one says what it is.
`test_util` is the harness of JAX's tests, and `lax_reference` and `internal_test_util`
are executed from an installed JAX (`adjoint.testing.wheel`).

    from jax._src.lax import lax  ─> Part("lax.lax")  ─> names of adjoint.jax.lax
"""
from __future__ import annotations

import contextlib
import importlib
import sys
from types import ModuleType
from typing import Any

from adjoint.base.errors import Absent, NotSupported

PLACES = {
    "abstract_arrays": "core", "ad_checkpoint": "ad_checkpoint", "ad_util": "interpreters.ad",
    "api": "", "api_util": "api_util", "array": "", "basearray": "", "callback": "_callback",
    "checkify": "experimental.checkify", "config": "_config", "core": "core",
    "custom_batching": "custom_batching", "custom_derivatives": "custom_derivatives",
    "custom_partitioning": "experimental.custom_partitioning", "debugging": "debug",
    "distributed": "distributed", "dlpack": "dlpack", "dtypes": "dtypes", "errors": "errors",
    "export": "export", "ffi": "ffi", "flatten_util": "flatten_util", "hijax": "experimental.hijax",
    "image": "image", "image.scale": "image", "interpreters": "interpreters",
    "interpreters.ad": "interpreters.ad", "interpreters.batching": "interpreters.batching",
    "interpreters.mlir": "interpreters.mlir",
    "interpreters.partial_eval": "interpreters.partial_eval",
    "interpreters.pxla": "interpreters.pxla", "interpreters.xla": "interpreters.xla", "lax": "lax",
    "lax.control_flow": "lax", "lax.control_flow.for_loop": "lax", "lax.convolution": "lax",
    "lax.fft": "lax", "lax.lax": "lax", "lax.linalg": "lax.linalg", "lax.other": "lax",
    "lax.parallel": "lax", "lax.slicing": "lax", "lax.special": "lax",
    "lax.windowed_reductions": "lax", "layout": "experimental.layout", "lib": "_lib",
    "lax.control_flow.common": "lax", "lax.control_flow.conditionals": "lax",
    "lax.control_flow.loops": "lax", "lax.control_flow.solves": "lax", "lax.utils": "lax",
    "linear_util": "extend.linear_util", "mesh": "sharding", "monitoring": "monitoring",
    "mesh_utils": "experimental.mesh_utils", "named_sharding": "sharding", "nn": "nn",
    "nn.functions": "nn",
    "nn.initializers": "nn.initializers", "numpy": "numpy", "numpy.fft": "numpy.fft",
    "numpy.indexing": "numpy", "numpy.lax_numpy": "numpy", "numpy.linalg": "numpy.linalg",
    "numpy.reductions": "numpy", "numpy.ufuncs": "numpy", "numpy.util": "_util",
    "numpy.vectorize": "numpy", **{f"numpy.{n}": "numpy" for n in (
        "array_constructors", "array_creation", "array_methods", "einsum", "index_tricks",
        "polynomial", "setops", "sorting", "tensor_contractions", "ufunc_api",
        "window_functions")}, "ops": "ops", "ops.scatter": "ops", "ops.special": "nn",
    "partition_spec": "sharding", "pjit": "", "prng": "random", "profiler": "profiler",
    "public_test_util": "test_util", "random": "random", "random.prng": "random",
    "random.core": "random", "random.random": "random", "random.threefry2x32": "random",
    "ref": "ref", "scipy": "scipy", "scipy.cluster": "scipy.cluster",
    "scipy.cluster.vq": "scipy.cluster.vq", "scipy.fft": "scipy.fft",
    "scipy.integrate": "scipy.integrate", "scipy.linalg": "scipy.linalg",
    "scipy.ndimage": "scipy.ndimage", "scipy.optimize": "scipy.optimize",
    "scipy.optimize.minimize": "scipy.optimize", "scipy.sparse": "scipy.sparse",
    "scipy.sparse.linalg": "scipy.sparse.linalg", "scipy.signal": "scipy.signal",
    "scipy.special": "scipy.special", "scipy.stats": "scipy.stats",
    "shard_map": "experimental.shard_map", "sharding": "sharding", "sharding_impls": "sharding",
    "source_info_util": "extend.source_info_util", "stages": "stages",
    "test_loader": "_src.test_util", "tree": "tree", "tree_util": "tree_util", "typing": "typing",
    "traceback_util": "_inside", "util": "_util", "xla_bridge": "_lib",
    "dispatch": "_inside"}
# modules that are about how JAX is made
INNER = """
    blocked_sampler buffer_callback cache_key clusters compilation_cache
    compilation_cache_interface compiler compute_on custom_api_util
    custom_partitioning_sharding_rule debugger deprecations earray effects
    environment_info error_check extend frozen_dict hardware_utils hashable_array indexing
    interpreters.remat jaxpr_util lax.ann lax.eval_jaxpr lax.scaled_dot lazy_loader lib.mlir
    lib.mlir.dialects lib.triton literals logging_config lru_cache numpy.array_api_metadata
    numpy.error numpy.hijax numpy.scalar_types op_shardings path pickle_util pmap pretty_printer
    random.philox2x32 random.philox4x32 random.rbg random.stateful_rng random.threefry4x32
    scipy.optimize._lbfgs scipy.optimize.bfgs scipy.optimize.line_search shard_alike sourcemap
    state state.discharge state.indexing state.primitives state.types state.utils
    test_warning_util third_party third_party.scipy xla_metadata xla_metadata_lib
    xla_transform""".split()
_WHY = "it is inside JAX, and has no counterpart here"


class _Unmade:
    """What a class that a program derives from one of JAX's own becomes; it has no instances."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        raise NotSupported(f"{cls.__name__} derives from a class of jax._src: {_WHY}")


class Inner(Absent):
    """A name of `jax._src` alone. A class may derive from it: programs define these beside what
    they do without."""

    def __init__(self, name: str, why: str = _WHY) -> None:
        super().__init__(name, why)

    def __getattr__(self, name: str) -> Inner:
        if name.startswith("__"):
            raise AttributeError(name)
        return Inner(f"{self.__name__}.{name}", self._why)

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (_Unmade,)


class Part(ModuleType):
    """A module of `jax._src`: the names of a public one, where there is one, and the parts below
    it."""

    def __init__(self, path: str, public: str | None) -> None:
        super().__init__(f"{__name__}.{path}", f"`jax._src.{path}`: names of {public}.")
        self._path, self._public = path, public
        if any(p.startswith(path + ".") for p in (*PLACES, *INNER)):
            self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        below = sys.modules.get(f"{__name__}.{self._path}.{name}")
        if below is not None:
            return below
        if self._public is not None:
            with contextlib.suppress(AttributeError):
                return getattr(importlib.import_module(self._public), name)
        if self._path == "config":            # its names are flags: one that is none is a mistake
            raise AttributeError(f"Unrecognized config option: {name}")
        return Inner(f"jax._src.{self._path}.{name}")

    def __dir__(self) -> list[str]:
        return dir(importlib.import_module(self._public)) if self._public else []


for _path, _public in PLACES.items():
    sys.modules[f"{__name__}.{_path}"] = Part(_path, f"adjoint.jax.{_public}".rstrip("."))
for _path in INNER:
    sys.modules[f"{__name__}.{_path}"] = Part(_path, None)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    for package in (__name__, "jax._src"):        # (the second where this package is `jax`)
        if package == __name__ or sys.modules.get("jax._src") is sys.modules[__name__]:
            with contextlib.suppress(ModuleNotFoundError):
                return importlib.import_module(f"{package}.{name}")
    raise AttributeError(f"jax._src has no {name!r} here: see docs/jax.md") from None
