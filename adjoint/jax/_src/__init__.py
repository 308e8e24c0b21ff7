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
    "ad_checkpoint": "ad_checkpoint", "api": "", "api_util": "api_util", "array": "",
    "basearray": "", "config": "_config", "core": "core", "custom_batching": "custom_batching",
    "custom_derivatives": "custom_derivatives", "debugging": "debug", "dtypes": "dtypes",
    "errors": "errors", "flatten_util": "flatten_util", "image": "image", "image.scale": "image",
    "lax": "lax", "lax.lax": "lax", "lax.control_flow": "lax", "lax.control_flow.for_loop": "lax",
    "lax.convolution": "lax", "lax.fft": "lax", "lax.linalg": "lax.linalg", "lax.other": "lax",
    "lax.parallel": "lax", "lax.slicing": "lax", "lax.special": "lax",
    "lax.windowed_reductions": "lax", "lib": "_lib", "nn": "nn", "nn.functions": "nn",
    "nn.initializers": "nn.initializers", "numpy": "numpy", "numpy.fft": "numpy.fft",
    "numpy.indexing": "numpy", "numpy.lax_numpy": "numpy", "numpy.linalg": "numpy.linalg",
    "numpy.reductions": "numpy", "numpy.ufuncs": "numpy", "numpy.util": "_util",
    "numpy.vectorize": "numpy", "ops": "ops", "ops.scatter": "ops", "ops.special": "nn",
    "pjit": "", "prng": "random", "public_test_util": "test_util", "random": "random",
    "random.prng": "random", "random.random": "random", "scipy": "scipy",
    "scipy.linalg": "scipy.linalg", "scipy.optimize": "scipy.optimize",
    "scipy.signal": "scipy.signal", "scipy.special": "scipy.special", "scipy.stats": "scipy.stats",
    "sharding": "sharding", "stages": "stages", "test_loader": "_src.test_util", "tree": "tree",
    "tree_util": "tree_util", "typing": "typing", "util": "_util", "xla_bridge": "_lib"}


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
