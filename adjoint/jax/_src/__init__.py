"""Where JAX keeps its modules (`jax._src`), for programs and tests that import them from there.

A name that ends in one of `PLACES` is a part: it has what the public module has, and the parts
below it. `test_util` is the harness of JAX's tests, and `lax_reference` and `internal_test_util`
are executed from an installed JAX (`adjoint.testing.wheel`).

    from jax._src.lax import lax  ─> Part("lax.lax")  ─> names of adjoint.jax.lax
"""
from __future__ import annotations

import contextlib
import importlib
import sys
from types import ModuleType
from typing import Any

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
    "linear_util": "extend.linear_util", "mesh": "sharding", "monitoring": "monitoring",
    "named_sharding": "sharding", "nn": "nn", "nn.functions": "nn",
    "nn.initializers": "nn.initializers", "numpy": "numpy", "numpy.fft": "numpy.fft",
    "numpy.indexing": "numpy", "numpy.lax_numpy": "numpy", "numpy.linalg": "numpy.linalg",
    "numpy.reductions": "numpy", "numpy.ufuncs": "numpy", "numpy.util": "_util",
    "numpy.vectorize": "numpy", "ops": "ops", "ops.scatter": "ops", "ops.special": "nn",
    "partition_spec": "sharding", "pjit": "", "prng": "random", "profiler": "profiler",
    "public_test_util": "test_util", "random": "random", "random.prng": "random",
    "random.random": "random", "scipy": "scipy", "scipy.cluster": "scipy.cluster",
    "scipy.cluster.vq": "scipy.cluster.vq", "scipy.linalg": "scipy.linalg",
    "scipy.optimize": "scipy.optimize", "scipy.signal": "scipy.signal",
    "scipy.special": "scipy.special", "scipy.stats": "scipy.stats",
    "shard_map": "experimental.shard_map", "sharding": "sharding", "sharding_impls": "sharding",
    "source_info_util": "extend.source_info_util", "stages": "stages",
    "test_loader": "_src.test_util", "tree": "tree", "tree_util": "tree_util", "typing": "typing",
    "util": "_util", "xla_bridge": "_lib"}


class Part(ModuleType):
    """A module of `jax._src`: the names of a public one, and the parts below it."""

    def __init__(self, path: str, public: str) -> None:
        super().__init__(f"{__name__}.{path}", f"`jax._src.{path}`: names of {public}.")
        self._path, self._public = path, public
        if any(p.startswith(path + ".") for p in PLACES):
            self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        below = sys.modules.get(f"{__name__}.{self._path}.{name}")
        return below or getattr(importlib.import_module(self._public), name)

    def __dir__(self) -> list[str]:
        return dir(importlib.import_module(self._public))


for _path, _public in PLACES.items():
    sys.modules[f"{__name__}.{_path}"] = Part(_path, f"adjoint.jax.{_public}".rstrip("."))


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    for package in (__name__, "jax._src"):        # (the second where this package is `jax`)
        if package == __name__ or sys.modules.get("jax._src") is sys.modules[__name__]:
            with contextlib.suppress(ModuleNotFoundError):
                return importlib.import_module(f"{package}.{name}")
    raise AttributeError(f"jax._src has no {name!r} here: see docs/jax.md") from None
