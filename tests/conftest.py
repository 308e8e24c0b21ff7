"""What every test gets: a fixed seed, and a check that it leaves no global setting behind."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from importlib import import_module

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# Examples are drawn anew on each local run; where CI is set they are the same every time, so that a
# change is judged by what it changed. No deadline: a shared machine stalls now and then.
settings.register_profile("local", deadline=None, max_examples=50)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=50,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "local"))


def pytest_configure() -> None:
    """Every test runs the machine code that a long program would."""
    import_module("adjoint.base.tier").at_once()


def set_aside() -> None:
    """What is there now is left out of later searches of Python's collector: thousands of tests and
    what other tests left make each of them last seconds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def short_collections() -> None:
    set_aside()


@pytest.fixture(scope="module")
def whole_heap(short_collections: None) -> Iterator[None]:
    """For tests of who holds an object: the collector knows of all."""
    gc.unfreeze()
    yield
    set_aside()


@pytest.fixture(autouse=True)
def same_start() -> Iterator[None]:
    """Seeds are fixed; grad mode and default dtype are as found, or the test fails."""
    ad = import_module("adjoint")
    ad.manual_seed(0)
    before = ad.is_grad_enabled(), ad.get_default_dtype()
    yield
    after = ad.is_grad_enabled(), ad.get_default_dtype()
    if after != before:
        ad.set_grad_enabled(before[0])
        ad.set_default_dtype(before[1])
    assert after == before, "the test left grad mode or default dtype changed"


@pytest.fixture
def rng() -> np.random.Generator:
    """A NumPy generator with a fixed seed."""
    return np.random.default_rng(0)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Python's collector runs at times that depend on all else in the process: bytes are counted
    without it."""
    import_module("adjoint.kernels.alloc").install()
    gc.collect()
    gc.disable()
    yield
    gc.enable()
