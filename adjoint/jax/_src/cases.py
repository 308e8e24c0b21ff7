"""How tests of JAX are multiplied and chosen: samples of parameters, devices, flags."""
from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import sys
import unittest
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from adjoint.jax._dtypes import FLAGS
from adjoint.jax.version import __version_info__

F = Callable[..., Any]
NUM_CASES = int(os.environ.get("JAX_NUM_GENERATED_CASES", "10"))


def parameterized() -> Any:
    """`absl.testing.parameterized`; ImportError that says what to install."""
    try:
        from absl.testing import parameterized as found
    except ImportError:
        raise ImportError("jax._src.test_util needs absl, as JAX's tests do: pip install absl-py"
                          ) from None
    return found


def bases() -> tuple[type, type]:
    """(test case, loader): absl's; unittest's where it is missing, for tests without parameters."""
    try:
        from absl.testing import absltest
    except ImportError:
        return unittest.TestCase, unittest.TestLoader
    return parameterized().TestCase, absltest.TestLoader


def sanitize_test_name(s: str) -> str:
    """A name that `-k` can choose."""
    return re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_.]", "_", s)) if s else s


# ------------------------------------------------------------------ samples
def sample_product_testcases(*args: Sequence[dict[str, Any]], **kw: Sequence[Any]
                             ) -> list[dict[str, Any]]:
    """At most NUM_CASES of the product of all choices, drawn with a constant seed.

    args  lists of dicts: one of each is chosen, whole
    kw    lists of values
    """
    lists = [list(a) for a in args] + [[{k: v} for v in list(vs)] for k, vs in kw.items()]
    sizes = [len(x) for x in lists]
    total = int(np.prod([float(n) for n in sizes])) if sizes else 1
    if total <= NUM_CASES:
        picks: Iterable[Any] = itertools.product(*map(range, sizes))
    else:
        rng = np.random.RandomState(zlib.adler32("".join(sorted(kw)).encode()))
        seen: dict[tuple[int, ...], None] = {}
        while len(seen) < NUM_CASES:
            seen[tuple(int(rng.randint(n)) for n in sizes)] = None
        picks = seen
    return [{k: v for x, i in zip(lists, pick, strict=True) for k, v in x[i].items()}
            for pick in picks]


def sample_product(*args: Sequence[dict[str, Any]], **kw: Sequence[Any]) -> Callable[[F], Any]:
    """A decorator of tests: `sample_product_testcases` as parameters."""
    cases = sample_product_testcases(*args, **kw)

    def run(test: F) -> Any:
        return parameterized().parameters(*cases)(test)
    return run


def parameterized_filterable(*, kwargs: Sequence[dict[str, Any]], testcase_name: Any = None,
                             one_containing: str | None = None) -> Callable[[F], Any]:
    """A decorator of tests: one per dict, under names that `-k` can choose.

    one_containing  of the cases, the first with this in its name, and the test keeps its own name
    """
    cases = []
    for given in kwargs:
        name = given.get("testcase_name")
        if testcase_name is not None:
            name = testcase_name(given)
        elif name is None:
            name = "_".join(f"{k}_{v}" for k, v in given.items())
        cases.append({**given, "testcase_name": sanitize_test_name(str(name))})

    def run(test: F) -> Any:
        if one_containing is None:
            return parameterized().named_parameters(*cases)(test)
        chosen = dict(next(c for c in cases if one_containing in c["testcase_name"]))
        chosen.pop("testcase_name")
        return parameterized().parameters(chosen)(test)
    return run


def cases_from_list(cases: Iterable[Any]) -> list[Any]:
    """At most NUM_CASES of the cases."""
    rows = list(cases)
    if len(rows) <= NUM_CASES:
        return rows
    at = np.random.RandomState(42).choice(len(rows), NUM_CASES, replace=False)
    return [rows[i] for i in sorted(at)]


def named_cases_from_sampler(sampler: Callable[[Callable[[Sequence[Any]], list[Any]]],
                                               Iterable[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Cases that a generator makes with the chooser it is given, of different names."""
    rng, seen = np.random.RandomState(42), dict[str, dict[str, Any]]()

    def choose(xs: Sequence[Any], size: int = 1) -> list[Any]:
        rows = list(xs)
        return [rows[i] for i in rng.randint(len(rows), size=size)]
    for _ in range(5 * NUM_CASES):
        for case in itertools.islice(iter(sampler(choose)), 1):
            seen.setdefault(case.get("testcase_name", str(case)), case)
        if len(seen) >= NUM_CASES:
            break
    return list(seen.values())


# ------------------------------------------------------------------ devices
def device_under_test() -> str:
    """The kind of device that tests run on: "cpu"."""
    return "cpu"


def test_device_matches(device_types: Iterable[str]) -> bool:
    """Is the CPU among them?"""
    return "cpu" in ([device_types] if isinstance(device_types, str) else list(device_types))


test_device_matches.__test__ = False                        # type: ignore[attr-defined]  # pytest


def _unless(skip: bool, reason: str) -> Callable[[F], F]:
    def run(test: F) -> F:
        @functools.wraps(test)
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            if skip:
                self.skipTest(reason)
            return test(self, *args, **kwargs)
        return wrapped
    return run


def run_on_devices(*enabled_devices: str, skip_reason: str | None = None) -> Callable[[F], F]:
    """A decorator of tests that only some devices can run."""
    return _unless(not test_device_matches(enabled_devices),
                   skip_reason or "Test not supported on CPU.")


def skip_on_devices(*disabled_devices: str, skip_reason: str | None = None) -> Callable[[F], F]:
    """A decorator of tests that some devices cannot run."""
    return _unless(test_device_matches(disabled_devices),
                   skip_reason or "Test not supported on CPU.")


def skip_on_flag(flag_name: str, skip_value: Any) -> Callable[[F], F]:
    """A decorator of tests that do not run with a flag set so."""
    def run(test: F) -> F:
        @functools.wraps(test)
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            if FLAGS[flag_name.removeprefix("jax_")].value == skip_value:
                self.skipTest(f"not with {flag_name}={skip_value}")
            return test(self, *args, **kwargs)
        return wrapped
    return run


def no(*_: Any, **__: Any) -> bool:
    """False: it is asked of other devices and builds."""
    return False


# ------------------------------------------------------------------ flags
@contextlib.contextmanager
def flags(**given: Any) -> Iterator[None]:
    """A context in which flags of `jax.config` are set; those that are not here change nothing."""
    with contextlib.ExitStack() as stack:
        for name, value in given.items():
            flag = FLAGS.get(name.removeprefix("jax_"))
            if flag is not None:
                stack.enter_context(flag(value))
        yield


def with_config(**given: Any) -> Callable[[Any], Any]:
    """A decorator of test classes: their tests run with these flags."""
    def run(cls: Any) -> Any:
        cls._default_thread_local_config = {**cls._default_thread_local_config, **given}
        return cls
    return run


@contextlib.contextmanager
def strict_promotion_if_dtypes_match(dtypes: Iterable[Any]) -> Iterator[None]:
    """A context of strict promotion if all dtypes are one, else of the standard one."""
    same = len({np.dtype(d) for d in dtypes}) < 2
    with flags(jax_numpy_dtype_promotion="strict" if same else "standard"):
        yield


def uncounted(*_: Any, **__: Any) -> Any:
    """SkipTest: what would be counted here (traces, compilations, transfers) does not happen."""
    raise unittest.SkipTest("jit compiles nothing here, so there are no traces, compilations or "
                            "transfers to count")


# ------------------------------------------------------------------ versions, environment, meshes
def parse_version(v: str) -> tuple[int, ...]:
    """A version as numbers: "1.2.3" is (1, 2, 3)."""
    return tuple(int(x) for x in v.split("+")[0].split(".")[:3] if x.isdigit())


def numpy_version() -> tuple[int, ...]:
    """NumPy's version as numbers."""
    return parse_version(np.__version__)


def jaxlib_version() -> tuple[int, ...]:
    """The version that programs are told, as numbers."""
    return __version_info__


def is_running_under_pytest() -> bool:
    """Is pytest what runs the tests?"""
    return "pytest" in sys.modules


def runtime_environment() -> str | None:
    """What runs the tests: "pytest" or None."""
    return "pytest" if is_running_under_pytest() else None


@contextlib.contextmanager
def set_env(**given: str | None) -> Iterator[None]:
    """A context in which variables of the environment are set; None takes one away."""
    before = {k: os.environ.get(k) for k in given}

    def put(values: dict[str, str | None]) -> None:
        for k, v in values.items():
            if v is None:
                os.environ.pop(k, None)
            else:
                os.environ[k] = v
    put(given)
    try:
        yield
    finally:
        put(before)


def pattern_search(patterns: str | Sequence[str], string: str) -> str | None:
    """The first of the patterns that is found in a text."""
    given = [patterns] if isinstance(patterns, str) else list(patterns)
    return next((p for p in given if re.search(p, string)), None)


def device_kind_match(device_patterns: str | Sequence[str]) -> str | None:
    """The first of the patterns that the device's kind has."""
    return pattern_search(device_patterns, "cpu")


def check_raises_regexp(thunk: F, err_type: type[BaseException], pattern: str) -> None:
    """AssertionError unless a call raises an exception with such a message."""
    try:
        thunk()
    except err_type as error:
        assert re.match(pattern, str(error)), f"{error} does not match {pattern!r}"
        return
    raise AssertionError(f"nothing raised {err_type.__name__}")


def elsewhere(*_: Any, **__: Any) -> Any:
    """SkipTest: more devices than one, or a mesh of them, are asked for."""
    raise unittest.SkipTest("there is one device here, the CPU of this process")


def on_meshes(*_: Any, **__: Any) -> Callable[[Any], Any]:
    """A decorator of tests that get a mesh of devices, which there are not here."""
    return _unless(True, "there is one device here, the CPU of this process")


def pytest_mark_if_available(marker: str) -> Callable[[Any], Any]:
    """`pytest.mark.<marker>` where pytest runs, or nothing."""
    pytest = sys.modules.get("pytest")
    return getattr(pytest.mark, marker) if pytest else lambda test: test


__all__ = ["NUM_CASES", "cases_from_list", "check_raises_regexp", "device_kind_match",
           "device_under_test", "elsewhere", "flags", "is_running_under_pytest", "jaxlib_version",
           "numpy_version", "on_meshes", "parse_version", "pattern_search", "runtime_environment",
           "set_env", "named_cases_from_sampler", "no", "parameterized", "parameterized_filterable",
           "pytest_mark_if_available", "run_on_devices", "sample_product",
           "sample_product_testcases", "sanitize_test_name", "skip_on_devices", "skip_on_flag",
           "strict_promotion_if_dtypes_match", "test_device_matches", "uncounted", "with_config"]
