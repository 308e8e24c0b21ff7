"""`instantiate_device_type_tests`, decorators by device and dtype; the one device is the cpu."""
from __future__ import annotations

import enum
import functools
import unittest
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from adjoint.base.errors import ArgumentError, missing
from adjoint.testing._internal.common_dtype import get_all_dtypes
from adjoint.testing._internal.common_utils import _unneeded
from adjoint.testing._internal.parametrization import Case, add_axis, cases_of, test_of

tol = namedtuple("tol", ["atol", "rtol"])
PYTORCH_TESTING_DEVICE_ONLY_FOR_KEY = "PYTORCH_TESTING_DEVICE_ONLY_FOR"
PYTORCH_TESTING_DEVICE_EXCEPT_FOR_KEY = "PYTORCH_TESTING_DEVICE_EXCEPT_FOR"


class OpDTypes(enum.Enum):
    """Which dtypes of an operation `ops` makes tests for."""

    supported = 0
    unsupported = 1
    supported_backward = 2
    unsupported_backward = 3
    any_one = 4
    none = 5
    any_common_cpu_cuda_one = 6


class DeviceTypeTestBase:
    """What the tests of one device know of it."""

    device_type = "generic"

    @classmethod
    def get_primary_device(cls) -> str:
        """The device that tests are given."""
        return cls.device_type

    @classmethod
    def get_all_devices(cls) -> list[str]:
        """All devices of the type: one."""
        return [cls.device_type]


class CPUTestBase(DeviceTypeTestBase):
    """The cpu."""

    device_type = "cpu"


device_type_test_bases = [CPUTestBase]


def get_device_type_test_bases() -> list[type[DeviceTypeTestBase]]:
    """The bases of the devices that are here."""
    return list(device_type_test_bases)


def filter_desired_device_types(device_type_test_bases: Any, except_for: Any = None,
                                only_for: Any = None) -> list[Any]:
    """Those bases whose device is in `only_for` and not in `except_for`."""
    return [base for base in device_type_test_bases
            if base.device_type not in _names(except_for)
            and (only_for is None or base.device_type in _names(only_for))]


def _names(given: Any) -> Any:
    return {given} if isinstance(given, str) else given or ()


def instantiate_device_type_tests(generic_test_class: Any, scope: dict[str, Any],
                                  except_for: Any = None, only_for: Any = None,
                                  include_lazy: bool = False, allow_mps: bool = False,
                                  allow_xpu: bool = False) -> None:
    """Put into `scope`, for the class `TestX` of tests that take a device, the class `TestXCPU`."""
    scope.pop(generic_test_class.__name__, None)
    if not filter_desired_device_types(device_type_test_bases, except_for, only_for):
        return
    name = generic_test_class.__name__ + "CPU"
    made = type(name, (generic_test_class, CPUTestBase), {
        "device_type": "cpu", "__module__": generic_test_class.__module__})
    for test, fn in list(vars(generic_test_class).items()):
        if not test.startswith("test") or not callable(fn):
            continue
        setattr(made, test, None)           # the generic one is no test of this class
        for case in cases_of(fn, made):
            full = "_".join(filter(None, (test, case.name)))
            kinds = case.kwargs.get("dtypes") or [case.kwargs[k] for k in ("dtype",)
                                                  if k in case.kwargs]
            full = "_".join([full, "cpu", *(d.name for d in kinds)])
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
    """One test per dtype, which it takes as `dtype`; of tuples of dtypes, as `dtypes`."""
    return lambda fn: add_axis(fn, lambda cls: _by_dtype(given))


def _by_dtype(given: Iterable[Any]) -> list[Case]:
    return [Case("", {"dtypes" if isinstance(d, tuple) else "dtype": d}) for d in given]


class _IfCpu:
    def __init__(self, *given: Any) -> None:
        self.given = given

    def __call__(self, fn: Any) -> Any:
        others = [a for a in getattr(fn, "axes", ()) if "dtype" not in repr(a(None)[:1])]
        fn.axes = [lambda cls: _by_dtype(self.given), *others]
        return fn


dtypesIfCPU = _IfCpu


def _dtypes_of(row: Any, wanted: Any) -> Any:
    """The dtypes that a row is tested in."""
    if isinstance(wanted, (list, tuple)):
        return wanted
    every = tuple(get_all_dtypes())
    backward = getattr(row, "supported_backward_dtypes", row.supported_dtypes)
    if wanted is OpDTypes.none:
        return (None,)
    if wanted in (OpDTypes.unsupported, OpDTypes.unsupported_backward):
        known = row.supported_dtypes if wanted is OpDTypes.unsupported else backward
        return [d for d in every if d not in known("cpu")]
    if wanted is OpDTypes.supported_backward:
        return backward("cpu")
    found = row.supported_dtypes("cpu")
    single = wanted in (OpDTypes.any_one, OpDTypes.any_common_cpu_cuda_one)
    return [d for d in every if d in found][:1] if single else found


def ops(op_list: Iterable[Any], *, dtypes: Any = OpDTypes.supported, allowed_dtypes: Any = None,
        skip_if_dynamo: bool = True) -> Callable[[Any], Any]:
    """One test per operation (a row with `name` and `supported_dtypes`) and dtype; `dtypes` is an
    `OpDTypes` or a list."""
    rows = list(op_list)

    def axis(cls: Any) -> list[Case]:
        found = []
        for row in rows:
            name = row.name.replace(".", "_")
            for d in _dtypes_of(row, dtypes):
                if d is None:
                    found.append(Case(name, {"op": row}))
                elif allowed_dtypes is None or d in allowed_dtypes:
                    found.append(Case(name, {"op": row, "dtype": d}))
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


def skipIf(dep: Any, reason: str = "") -> Callable[[Any], Any]:
    """Skipped if `dep`."""
    return unittest.skipIf(bool(dep), reason)


def onlyOn(device_type: Any) -> Callable[[Any], Any]:
    """Skipped unless the cpu is among those devices."""
    return unittest.skipIf("cpu" not in _names(device_type), f"only for {device_type}")


def onlyNativeDeviceTypesAnd(devices: Any = None) -> Callable[[Any], Any]:
    """For the cpu as for others."""
    return lambda fn: fn


def get_all_device_types() -> list[str]:
    """The types of devices that are here."""
    return ["cpu"]


def _elsewhere(fn: Any) -> Any:
    return unittest.skip("only for another device")(fn)


def has_cusolver() -> bool:
    """False: there is no CUDA."""
    return False


has_hipsolver = has_cusolver
onlyCUDA = onlyMPS = onlyXPU = onlyHPU = onlyAccelerator = onlyPRIVATEUSE1 = _elsewhere
onlyCUDAAndPRIVATEUSE1 = _elsewhere
for _name in ("onlyCPU onlyNativeDeviceTypes skipMeta skipMPS skipXLA skipXPU skipHPU skipLazy"
              " skipCUDAIfRocm skipCUDAIfNoMagma skipCUDAIfNoCusolver skipCUDAIfNoCudnn"
              " skipCPUIfNoLapack skipCPUIfNoFFT expectedFailureMeta expectedFailureMPS"
              " expectedFailureXLA expectedFailureCUDA expectedFailureXPU expectedFailureHPU"
              " disablecuDNN disableMkldnn skipCPUIfNoMkl skipCPUIfNoMkldnn skipPRIVATEUSE1"
              " skipCUDAIfNotRocm skipCUDAIfNoMagmaAndNoCusolver skipCUDAIfNoCusparseGeneric"
              " skipCUDAIfMiopen").split():
    globals()[_name] = _unneeded
for _name in ("dtypesIfCUDA dtypesIfMPS dtypesIfXPU dtypesIfHPU dtypesIfPRIVATEUSE1 skipCUDAIf"
              " skipMPSIf skipXPUIf skipLazyIf skipCUDAVersionIn largeTensorTest"
              " skipCUDAIfVersionLessThan skipGPUIf skipXLAIf skipMetaIf skipHPUIf"
              " skipPRIVATEUSE1If skipCUDAIfRocmVersionLessThan"
              " skipCUDAIfCudnnVersionLessThan").split():
    globals()[_name] = lambda *args, **kwargs: lambda fn: fn
__getattr__ = missing("adjoint.testing._internal.common_device_type")
