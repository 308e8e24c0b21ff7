"""`instantiate_device_type_tests`, decorators by device and dtype; the one device is the cpu."""
from __future__ import annotations

import functools
import unittest
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from adjoint.base.errors import ArgumentError, missing
from adjoint.testing._internal.common_utils import _unneeded
from adjoint.testing._internal.parametrization import Case, add_axis, cases_of, test_of

tol = namedtuple("tol", ["atol", "rtol"])


def instantiate_device_type_tests(generic_test_class: Any, scope: dict[str, Any],
                                  except_for: Any = None, only_for: Any = None,
                                  include_lazy: bool = False, allow_mps: bool = False,
                                  allow_xpu: bool = False) -> None:
    """Put into `scope`, for the class `TestX` of tests that take a device, the class `TestXCPU`."""
    scope.pop(generic_test_class.__name__, None)
    given = {only_for} if isinstance(only_for, str) else only_for
    refused = {except_for} if isinstance(except_for, str) else except_for or ()
    if given is not None and "cpu" not in given or "cpu" in refused:
        return
    name = generic_test_class.__name__ + "CPU"
    made = type(name, (generic_test_class,), {"device_type": "cpu", "__module__":
                                              generic_test_class.__module__})
    for test, fn in list(vars(generic_test_class).items()):
        if not test.startswith("test") or not callable(fn):
            continue
        setattr(made, test, None)           # the generic one is no test of this class
        for case in cases_of(fn, made):
            full = "_".join(filter(None, (test, case.name)))
            full += "_cpu" + (f"_{case.kwargs['dtype'].name}" if "dtype" in case.kwargs else "")
            asked = getattr(fn, "wants_devices", 0)
            device = {"devices": ["cpu"]} if asked else {"device": "cpu"}
            setattr(made, full, _within(fn, test_of(fn, full, case, **device), case))
    scope[name] = made


def _within(fn: Any, test: Any, case: Case) -> Any:
    """`test` with the tolerances that a decorator gave for its dtype."""
    found = getattr(fn, "tolerances", {}).get(case.kwargs.get("dtype"))
    if found is None:
        return test

    @functools.wraps(test)
    def run(self: Any) -> Any:
        before = self.precision, self.rel_tol
        self.precision, self.rel_tol = found
        try:
            return test(self)
        finally:
            self.precision, self.rel_tol = before
    del run.__wrapped__  # as in test_of
    return run


def dtypes(*given: Any, device_type: str = "all") -> Callable[[Any], Any]:
    """One test per dtype, which it takes as `dtype`; tuples of dtypes become one argument."""
    return lambda fn: add_axis(fn, lambda cls: [Case("", {"dtype": d}) for d in given])


class _IfCpu:
    def __init__(self, *given: Any) -> None:
        self.given = given

    def __call__(self, fn: Any) -> Any:
        fn.axes = [lambda cls: [Case("", {"dtype": d}) for d in self.given]]
        return fn


dtypesIfCPU = _IfCpu


def ops(op_list: Iterable[Any], *, dtypes: Any = None, allowed_dtypes: Any = None,
        skip_if_dynamo: bool = True) -> Callable[[Any], Any]:
    """One test per operation (a row with `name` and `supported_dtypes`) and dtype."""
    rows = list(op_list)

    def axis(cls: Any) -> list[Case]:
        found = []
        for row in rows:
            wanted = dtypes if isinstance(dtypes, (list, tuple)) else row.supported_dtypes("cpu")
            for d in wanted:
                if allowed_dtypes is None or d in allowed_dtypes:
                    found.append(Case(row.name.replace(".", "_"), {"op": row, "dtype": d}))
        return found
    return lambda fn: add_axis(fn, axis)


def toleranceOverride(d: Mapping[Any, Any]) -> Callable[[Any], Any]:
    """Tolerances of `assertEqual` by dtype: `{float32: tol(atol=1e-2, rtol=0)}`."""
    def note(fn: Any) -> Any:
        fn.tolerances = dict(d)
        return fn
    return note


def precisionOverride(d: Mapping[Any, float]) -> Callable[[Any], Any]:
    """Absolute tolerances of `assertEqual` by dtype."""
    return toleranceOverride({k: tol(v, 0.0) for k, v in d.items()})


def deviceCountAtLeast(num_required_devices: int) -> Callable[[Any], Any]:
    """The test takes a list of devices; there is one."""
    if not isinstance(num_required_devices, int):
        raise ArgumentError("deviceCountAtLeast: expected a number, got "
                            f"{num_required_devices!r}")

    def note(fn: Any) -> Any:
        fn.wants_devices = num_required_devices
        return fn if num_required_devices <= 1 else unittest.skip(
            f"needs {num_required_devices} devices, there is one")(fn)
    return note


def skipCPUIf(dep: Any, reason: str) -> Callable[[Any], Any]:
    """Skipped here if `dep`."""
    return unittest.skipIf(bool(dep), reason)


def _elsewhere(fn: Any) -> Any:
    return unittest.skip("only for another device")(fn)


onlyCUDA = onlyMPS = onlyXPU = onlyHPU = onlyAccelerator = onlyPRIVATEUSE1 = _elsewhere
for _name in ("onlyCPU onlyNativeDeviceTypes skipMeta skipMPS skipXLA skipXPU skipHPU skipLazy"
              " skipCUDAIfRocm skipCUDAIfNoMagma skipCUDAIfNoCusolver skipCUDAIfNoCudnn"
              " skipCPUIfNoLapack skipCPUIfNoFFT expectedFailureMeta expectedFailureMPS"
              " expectedFailureXLA expectedFailureCUDA disablecuDNN disableMkldnn").split():
    globals()[_name] = _unneeded
for _name in ("dtypesIfCUDA dtypesIfMPS dtypesIfXPU dtypesIfHPU dtypesIfPRIVATEUSE1 skipCUDAIf"
              " skipMPSIf skipXPUIf skipLazyIf skipCUDAVersionIn largeTensorTest"
              " skipCUDAIfVersionLessThan").split():
    globals()[_name] = lambda *args, **kwargs: lambda fn: fn
__getattr__ = missing("adjoint.testing._internal.common_device_type")
