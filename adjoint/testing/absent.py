"""What PyTorch's testing files read of parts of PyTorch that are not here, and the answers.

The files ask, as they load, after devices, compilers, quantized types and PyTorch's private
modules. The answers are those of a build for a CPU without any of it; what would do something
raises. Used by `adjoint.testing.wheel` only, in processes where this package stands for PyTorch.
"""
from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

import adjoint.base.dtypes as dt
from adjoint import compiler
from adjoint.autograd.jacobians import numerical_jacobian
from adjoint.base import tree
from adjoint.base.errors import Absent, NotSupported
from adjoint.core import intercept
from adjoint.core.tensor import Tensor
from adjoint.ops import aten
from adjoint.ops.create import from_numpy


class AbsentDType(dt.DType):
    """A dtype of PyTorch that tensors cannot have here: it has a name, and equals itself."""

    __slots__ = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """Raises: no array has it."""
        raise NotSupported(f"dtype {self.name}: there are no tensors of it here")

    def __reduce__(self) -> tuple[Any, ...]:
        return (ABSENT_DTYPES.__getitem__, (self.name,))


_LARGEST = {"float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0, "float8_e5m2": 57344.0,
            "float8_e5m2fnuz": 57344.0}  # of eight bits; source: Micikevicius et al. 2022, table 1


class LimitsOf(dt.finfo):
    """`finfo` that also knows the largest number of the absent dtypes of eight bits."""

    def __init__(self, dtype: Any = None) -> None:
        if isinstance(dtype, AbsentDType):
            self.bits, self.max, self.dtype = 8, _LARGEST[dtype.name], dtype.name
            self.min = -self.max
        else:
            super().__init__(dtype)


def _no(*args: Any, **kwargs: Any) -> bool:
    return False


def _python_type(dtype: dt.DType) -> type:
    if dtype.is_complex or dtype.is_floating_point:
        return complex if dtype.is_complex else float
    return bool if dtype == dt.bool_ else int


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


class OrAbsent(Absent):
    """The names of a module; those that it has not are absent."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name, None)
        return super().__getattr__(name) if found is None else found


class Unmade:
    """A kind of object that is not here."""


def kind(name: str) -> type:
    """A class that nothing is an instance of: making one raises."""
    return type(name, (Unmade,), {"__init__": lambda self, *args, **kwargs: Absent(name)()})


class Promotion(enum.Enum):
    """How the dtypes of a pointwise operation follow from those of its operands."""

    DEFAULT = (0,)
    NO_OPMATH = (1,)
    INT_TO_FLOAT = (2,)
    ALWAYS_BOOL = (3,)
    COMPLEX_TO_FLOAT = (4,)
    BOOL_TO_LONG = (5,)


def elementwise_dtypes(*operands: Any, type_promotion_kind: Promotion) -> tuple[Any, Any]:
    """(dtype in which it is computed, dtype of the result) of a pointwise operation."""
    raw = [x.array if isinstance(x, Tensor) else x for x in operands]
    found = dt.of_numpy(dt.result_type(raw))
    wide = dt.float32 if found.name in ("float16", "bfloat16") else found
    if type_promotion_kind is Promotion.INT_TO_FLOAT and not dt.is_inexact(found.dtype):
        found = wide = dt.of_numpy(dt.default_dtype())
    if type_promotion_kind is Promotion.COMPLEX_TO_FLOAT and found.is_complex:
        return wide, found.to_real()
    if type_promotion_kind is Promotion.ALWAYS_BOOL:
        return wide, dt.bool_
    if type_promotion_kind is Promotion.BOOL_TO_LONG and found == dt.bool_:
        return dt.int64, dt.int64
    return (found if type_promotion_kind is Promotion.NO_OPMATH else wide), found


class FunctionState(enum.Enum):
    """Who is asked about a call of a public function (`core.intercept`)."""

    ENABLED = 0
    SUBCLASSES_DISABLED = 1
    ALL_DISABLED = 2


def _pop_mode() -> Any:
    *rest, last = intercept.MODES.get()
    intercept.MODES.set(tuple(rest))
    return last


class _Settings(SimpleNamespace):
    """Settings of a compiler that is not here: they can be set, for a while too."""

    @contextmanager
    def patch(self, **changes: Any) -> Iterator[None]:
        """The settings as given within the context."""
        before = dict(vars(self))
        vars(self).update(changes)
        try:
            yield
        finally:
            vars(self).clear()
            vars(self).update(before)


def _iter_tensors(tree_: Any, only_requiring_grad: bool = False) -> Iterator[Tensor]:
    """The tensors of nested lists, tuples and dicts, in order."""
    for leaf in tree.tree_leaves(tree_):
        if isinstance(leaf, Tensor) and (leaf.requires_grad or not only_requiring_grad):
            yield leaf


def _jacobians(fn: Any, inputs: Any, outputs: Any = None, target: Any = None, eps: float = 1e-3,
               is_forward_ad: bool = False) -> list[tuple[Tensor, ...]]:
    """Per tensor of `target` (the inputs), the Jacobian of each output by central differences,
    shape (elements of the tensor, elements of the output)."""
    given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    places = range(len(list(_iter_tensors(outputs if outputs is not None else fn(*given)))))
    return [tuple(from_numpy(j) for j in numerical_jacobian(fn, given, t, eps, places))
            for t in _iter_tensors(given if target is None else target, True)]


def _input_mask(input: Tensor, *args: Any, mask: Any = None, **kwargs: Any) -> Tensor:
    """`mask` in the shape of `input`; all True where there is none."""
    return from_numpy(np.broadcast_to(
        True if mask is None else mask.array, tuple(input.shape)).copy())


def _output_mask(op: Any, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Which elements of a masked operation's result have a value: those of a reduction with
    anything to reduce; of an operation that keeps the shape, those of the operand."""
    name = op if isinstance(op, str) else op.__name__
    given = _input_mask(input, **{k: v for k, v in kwargs.items() if k == "mask"})
    if name in ("softmax", "log_softmax", "softmin", "normalize", "cumsum", "cumprod"):
        return given
    dim = args[1 if name == "norm" else 0] if len(args) > (name == "norm") else kwargs.get("dim")
    axes = tuple(dim) if isinstance(dim, (tuple, list)) else dim
    return from_numpy(np.asarray(given.array.any(
        None if axes == () else axes, keepdims=bool(kwargs.get("keepdim")))))


_PROMOTION = SimpleNamespace(elementwise_dtypes=elementwise_dtypes,
                             ELEMENTWISE_TYPE_PROMOTION_KIND=Promotion)
_DTYPES = ("float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
           " float4_e2m1fn_x2 complex32 qint8 quint8 qint32 quint4x2 quint2x4").split()
ABSENT_DTYPES = {name: AbsentDType(name, np.uint8) for name in _DTYPES}
_SCHEMES = "per_tensor_affine per_channel_affine per_tensor_symmetric per_channel_symmetric".split()
_CLASSES = ("ScriptDict", "ScriptList", "ScriptFunction", "ScriptMethod", "ScriptModule")

REPLACED = {"finfo", "aten"}  # names that a module has, and that are to know more

def _switches(*names: str) -> dict[str, Any]:
    """`set_NAME` and `get_NAME` for each name: remembered, and without another effect."""
    state = dict.fromkeys(names, False)
    return {**{f"set_{n}": partial(state.__setitem__, n) for n in names},
            **{f"get_{n}": partial(state.__getitem__, n) for n in names}}


# module below `torch` -> name -> what it gives; a name that the module has already is left alone
ANSWERS: dict[str, dict[str, Any]] = {
    "": {**ABSENT_DTYPES, "_disable_dynamo": lambda f=None, recursive=True: f or (lambda g: g),
         "chalf": ABSENT_DTYPES["complex32"], "finfo": LimitsOf,
         **{name: Absent(name) for name in (*_SCHEMES, "_mkldnn")}},
    "__future__": _switches("swap_module_params_on_conversion",
                            "overwrite_module_params_on_conversion"),
    "_C": {**{name: kind(name) for name in _CLASSES},
           "_get_cpu_capability": lambda: "DEFAULT",
           "_get_privateuse1_backend_name": lambda: "privateuseone",
           "_jit_set_profiling_executor": _no, "_get_graph_executor_optimize": _no,
           "_jit_set_num_profiled_runs": _nothing,
           "_DisableFuncTorch": nullcontext,
           "has_lapack": True, "has_spectral": True, "has_mkl": False,
           "_TorchFunctionState": FunctionState,
           "_get_torch_function_state": lambda: FunctionState(intercept.silence()),
           "_set_torch_function_state": lambda state: intercept.silence(state.value),
           "_len_torch_function_stack": lambda: len(intercept.MODES.get()),
           "_pop_torch_function_stack": _pop_mode},
    "_dynamo": {"reset": compiler.reset, "optimize": lambda *args, **kwargs: compiler.disable(),
                "config": _Settings(suppress_errors=False, compiled_autograd=False)},
    "_inductor": {"config": _Settings(size_asserts=True, fallback_random=False, cpp_wrapper=False)},
    "_C._profiler": {"gather_traceback": _nothing,
                     "symbolize_tracebacks": lambda traces: [[] for _ in traces]},
    "_higher_order_ops.cond": {"cond_op": Absent("PyTorch's cond operator")},
    "_export.wrappers": {"mark_subclass_constructor_exportable_experimental": lambda f: f},
    "_utils": {"_is_privateuse1_backend_available": _no},
    "_utils_internal": {"IS_FBSOURCE": False, "get_writable_path": lambda path: path},
    "_logging.scribe": {"open_source_signpost": _nothing},
    "_inductor.exc": {"CppCompileError": RuntimeError, "InvalidCxxCompiler": NotSupported},
    "_inductor.codecache": {"CppCodeCache": Absent("PyTorch's compiler")},
    "_inductor.utils": {"GPU_TYPES": ["cuda", "mps", "xpu", "mtia"]},
    "_native.dsl_registry": {"dsl_registry": SimpleNamespace(
        is_dsl_available=_no, list_available_dsls=list, list_all_dsls=list)},
    "_prims_common": {"dtype_to_type": _python_type},
    "_refs.nn.functional": {}, "_refs.special": {}, "_refs.linalg": {},
    "_prims": {"utils": _PROMOTION},
    **{f"ao.nn.{part}": {"modules": SimpleNamespace(__all__=[], __name__=f"torch.ao.nn.{part}")}
       for part in ("qat", "quantizable")},
    "ao.nn.quantized": {"MaxPool2d": kind("MaxPool2d"),
                        "modules": SimpleNamespace(__all__=[], __name__="torch.ao.nn.quantized")},
    "autograd.gradcheck": {"_iter_tensors": _iter_tensors, "_get_numerical_jacobian": _jacobians},
    "backends.python_native": {"all_dsls": [], "available_dsls": []},
    "cpu": {"get_capabilities": dict, "_is_avx2_supported": _no},
    "cuda.jiterator": {name: lambda *args, **kwargs: Absent("cuda.jiterator") for name in
                       ("_create_jit_fn", "_create_multi_output_jit_fn")},
    "ops": {"aten": OrAbsent(aten), "mkldnn": Absent("ops.mkldnn"), "prims": Absent("ops.prims")},
    "distributed.tensor": {"DTensor": kind("DTensor")},
    "masked": {"_input_mask": _input_mask, "_output_mask": _output_mask},
    "nn": {name: kind(name) for name in ("LinearCrossEntropyLoss", "LinearCrossEntropyOptions")},
    "onnx": {"register_custom_op_symbolic": Absent("ONNX"),
             "unregister_custom_op_symbolic": Absent("ONNX")},
    "overrides": {"enable_reentrant_dispatch": nullcontext},
    "types": {"_TensorOrTensors": Tensor | Sequence[Tensor]},
    "utils.deterministic": {"fill_uninitialized_memory": True},
    "utils.cpp_extension": {"ROCM_HOME": None, "CUDA_HOME": None},
    "utils._foreach_utils": {"_get_foreach_kernels_supported_devices": list},
    "utils._mode_utils": {"no_dispatch": nullcontext},
}
