"""Adjoint: automatic differentiation for Python, with PyTorch's names and JAX's transforms.

    >>> import adjoint as ad
    >>> x = ad.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
"""
from __future__ import annotations

import builtins as _builtins
import gc as _gc
import importlib as _importlib
import math as _math
import sys as _sys
import warnings as _warnings
from typing import Any as _Any

# Nothing that is loaded here is garbage: to look for some on the way is a seventh of the time.
_collects = _gc.isenabled()
_gc.disable()
try:
    from adjoint import autograd as autograd
    from adjoint import ops as ops
    from adjoint import protocols as _protocols
    from adjoint import tensor as _surface
    from adjoint.autograd.anomaly import (
        is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled,
    )
    from adjoint.autograd.anomaly import is_anomaly_enabled as is_anomaly_enabled
    from adjoint.autograd.anomaly import set_detect_anomaly as _set_detect_anomaly
    from adjoint.autograd.modes import enable_grad as enable_grad
    from adjoint.autograd.modes import inference_mode as inference_mode
    from adjoint.autograd.modes import is_grad_enabled as is_grad_enabled
    from adjoint.autograd.modes import is_inference_mode_enabled as is_inference_mode_enabled
    from adjoint.autograd.modes import no_grad as no_grad
    from adjoint.autograd.modes import set_grad_enabled as set_grad_enabled
    from adjoint.base import dtypes as _dtypes
    from adjoint.base.dtypes import DType as dtype
    from adjoint.base.dtypes import finfo as finfo
    from adjoint.base.dtypes import iinfo as iinfo
    from adjoint.base.errors import MissingName as _MissingName
    from adjoint.core import intercept as _intercept
    from adjoint.core.tensor import Parameter as Parameter
    from adjoint.core.tensor import Size as Size
    from adjoint.core.tensor import Tensor as Tensor
    from adjoint.ops import device as _devices
    from adjoint.ops import public as _public
    from adjoint.ops.device import device as device
    from adjoint.ops.device import get_default_device as get_default_device
    from adjoint.ops.device import layout as layout
    from adjoint.ops.device import memory_format as memory_format
    from adjoint.ops.device import set_default_device as set_default_device
    from adjoint.ops.generator import Generator as Generator
    from adjoint.ops.generator import default_generator as default_generator
    from adjoint.ops.generator import fork_rng as fork_rng
    from adjoint.printing import set_printoptions as set_printoptions
    from adjoint.version import __version__ as __version__

    ops.accelerate.install()
    _surface.attach_registry()
    _protocols.attach()
finally:
    if _collects:
        if not _gc.get_freeze_count():      # what is new is old from now on, without a walk
            _gc.freeze()
            _gc.unfreeze()
        _gc.enable()

# NumPy warns where IEEE arithmetic overflows or divides by zero; users of a framework look at
# the values instead. Only warnings raised from this package's own frames are silenced.
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"adjoint(\.|$)")

float64 = double = _dtypes.float64
float32 = float = _dtypes.float32
float16 = half = _dtypes.float16
bfloat16 = _dtypes.bfloat16
complex64 = cfloat = _dtypes.complex64
complex128 = cdouble = _dtypes.complex128
int64 = long = _dtypes.int64
int32 = int = _dtypes.int32
int16 = short = _dtypes.int16
int8, uint8 = _dtypes.int8, _dtypes.uint8
uint16, uint32, uint64 = _dtypes.uint16, _dtypes.uint32, _dtypes.uint64
bool = _dtypes.bool_
inf, nan, pi, e = _math.inf, _math.nan, _math.pi, _math.e
newaxis = None
set_anomaly_enabled = _set_detect_anomaly
strided, sparse_coo, sparse_csr = _devices.strided, _devices.sparse_coo, _devices.sparse_csr
sparse_csc, sparse_bsr, sparse_bsc = _devices.sparse_csc, _devices.sparse_bsr, _devices.sparse_bsc
contiguous_format, preserve_format = _devices.contiguous_format, _devices.preserve_format
channels_last, channels_last_3d = _devices.channels_last, _devices.channels_last_3d
legacy_contiguous_format = contiguous_format
jagged = _devices.jagged


def get_default_dtype() -> dtype:
    """The dtype given to Python floats: float32 unless `set_default_dtype` changed it."""
    return _dtypes.of_numpy(_dtypes.default_dtype())


def set_default_dtype(d: _Any) -> None:
    """Give Python floats (and factory functions) the floating dtype `d` from now on."""
    _dtypes.set_default(d)


def promote_types(type1: _Any, type2: _Any) -> dtype:
    """The dtype of an op on tensors of the two dtypes.

    >>> promote_types(int64, float16)
    adjoint.float16
    """
    return _dtypes.of_numpy(_dtypes.promote_dtypes(_dtypes.to_numpy(type1),
                                                   _dtypes.to_numpy(type2)))


def result_type(tensor1: _Any, tensor2: _Any) -> dtype:
    """The dtype of an op on two operands (tensors or numbers)."""
    raw = [x.array if isinstance(x, Tensor) else x for x in (tensor1, tensor2)]
    return _dtypes.of_numpy(_dtypes.result_type(raw))


def can_cast(from_: _Any, to: _Any) -> _builtins.bool:
    """True if a result of dtype `from_` may be stored in a tensor of dtype `to`."""
    return _dtypes.category(_dtypes.to_numpy(from_)) <= _dtypes.category(_dtypes.to_numpy(to))


_public.settle(__name__)
globals().update(_public.FUNCTIONS)

_LAZY = ("nn", "optim", "utils", "func", "memory", "io", "amp", "fft", "linalg", "special",
         "distributions", "inspect", "testing", "cli", "interop", "random", "cuda", "backends",
         "compiler", "models", "profiler", "sparse", "distributed", "multiprocessing", "jit",
         "numpy", "accelerator", "serialization", "types", "hub", "onnx", "version", "masked",
         "signal", "cpu", "mps", "mtia", "xpu", "storage", "vision", "overrides", "_C", "_VF",
         "_dynamo", "_inductor", "_higher_order_ops", "library", "fx", "quasirandom", "futures",
         "__config__", "__future__", "return_types", "nested", "_utils", "_jit_internal", "_ops",
         "_subclasses", "_functorch", "monitor")
# Names of modules that load when first used; more of the same: `Tensor.explain`.
_SETTINGS = (
    "are_deterministic_algorithms_enabled", "get_deterministic_debug_mode", "get_device_module",
    "get_float32_matmul_precision",
    "is_deterministic_algorithms_warn_only_enabled", "is_warn_always_enabled",
    "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal",
    "set_warn_always", "use_deterministic_algorithms")
_LEGACY = ("FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "IntTensor",
           "ShortTensor", "CharTensor", "ByteTensor", "BoolTensor", "ComplexFloatTensor",
           "ComplexDoubleTensor", "set_default_tensor_type", "typename")
_NATIVE = ("convolution", "embedding_bag", "embedding_renorm_", "native_dropout",
           "dropout_", "feature_dropout", "feature_dropout_", "alpha_dropout_",
           "feature_alpha_dropout_", "detach_")
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell",
              "rnn_relu_cell")
_SYMBOLIC = ("sym_constrain_range", "sym_constrain_range_for_size", "sym_float", "sym_fresh_size",
             "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum")
_SWITCHES = ("autocast_decrement_nesting", "autocast_increment_nesting", "clear_autocast_cache",
             "set_autocast_cache_enabled", "set_autocast_dtype", "set_autocast_enabled",
             *(f"{do}_autocast_{of}_{what}" for do, what in (
                 ("get", "dtype"), ("set", "dtype"), ("is", "enabled"), ("set", "enabled"))
               for of in ("cpu", "gpu", "xla", "ipu") if (of, what) != ("gpu", "enabled")))
_STORAGES = ("Storage", "FloatStorage", "DoubleStorage", "HalfStorage", "BFloat16Storage",
             "LongStorage", "IntStorage", "ShortStorage", "CharStorage", "ByteStorage",
             "BoolStorage", "ComplexFloatStorage", "ComplexDoubleStorage")
_FAKE = ("fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine",
         "fused_moving_avg_obs_fake_quant")
_SEGMENTS = ("segment_reduce", "_segment_reduce", "hash_tensor", "_convert_indices_from_coo_to_csr",
             "_convert_indices_from_csr_to_coo")
_VARIATES = ("_standard_gamma", "_standard_gamma_grad", "_sample_dirichlet", "_dirichlet_grad")
_CHECKS = ("", "_index", "_is_size", "_not_implemented", "_tensor_all", "_tensor_all_with", "_type",
           "_value", "_with")
_LAZY_NAMES = {**{f"_check{kind}": "checks" for kind in _CHECKS},
              **dict.fromkeys(_SETTINGS, "settings"), **dict.fromkeys(_LEGACY, "legacy"),
              "save": "io", "load": "io", "compile": "compiler", "vmap": "func",
              **dict.fromkeys(_NATIVE, "ops.native"), **dict.fromkeys(_FAKE, "ops.fake_quantize"),
              **dict.fromkeys(_RECURRENT, "nn.recurrent"),
              "svd_lowrank": "ops.lowrank", "pca_lowrank": "ops.lowrank",
              **dict.fromkeys(_SEGMENTS, "ops.segments"),
              **dict.fromkeys(_VARIATES, "ops.random_gamma"),
               "poisson": "ops.random_counts", "binomial": "ops.random_counts",
              "ScriptModule": "nn.modules.script", "Future": "futures", "Tag": "library",
              **dict.fromkeys(("Stream", "Event", "OutOfMemoryError", "AcceleratorError"), "cuda"),
              **dict.fromkeys(("SymInt", "SymFloat", "SymBool"), "compiler"),
              "UntypedStorage": "storage", "TypedStorage": "storage",
              **dict.fromkeys(_STORAGES, "storage"), **dict.fromkeys(_SWITCHES, "amp.switches"),
              **dict.fromkeys(_SYMBOLIC, "symbolic"),
              **dict.fromkeys(("cond", "while_loop"), "_higher_order_ops"),
              "fuse": "func", "explain": "inspect", "draw": "inspect",
              "doctor": "inspect.doctor", "why_zero": "inspect.gradients",
              "why_none": "inspect.gradients", "grad_report": "inspect.gradients",
              "record": "inspect",
              **dict.fromkeys(("GradScaler", "autocast", "is_autocast_enabled",
                               "get_autocast_dtype", "is_autocast_cache_enabled"), "amp"),
              **dict.fromkeys(("DisableTorchFunction", "DisableTorchFunctionSubclass"),
                              "overrides")}


def _explain(self: Tensor, gradient: _Any = None, **options: _Any) -> _Any:
    """The walk through this tensor's graph; see `adjoint.explain`."""
    return __getattr__("explain")(self, gradient, **options)


setattr(Tensor, "explain", _explain)  # noqa: B010  # the class lies layers below


def _make_wrapper(cls: type, size: _Any, **options: _Any) -> _Any:
    """See `adjoint.core.dispatch.make_wrapper`."""
    return _importlib.import_module("adjoint.core.dispatch").make_wrapper(cls, size, **options)


def _base_of_subclasses() -> _Any:
    """The first class of a program that derives from Tensor: the functions begin to ask."""
    return _importlib.import_module("adjoint.overrides").base_of_subclasses()


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        try:
            return _importlib.import_module(f"adjoint.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"adjoint.{name}":
                raise
    if name in _LAZY_NAMES:
        return getattr(_importlib.import_module(f"adjoint.{_LAZY_NAMES[name]}"), name)
    if name == "functional":                 # a module there, of functions that are all here
        return _sys.modules[__name__]
    if name == "_tensor_str":
        return _importlib.import_module("adjoint.printing")
    if name.startswith("_foreach_"):
        found = getattr(_importlib.import_module("adjoint.ops.foreach"), name, None)
        if found is not None:
            return found
    if name.endswith("_") and not name.startswith("_") and name in _public.METHODS:
        return _public.METHODS[name]         # in-place forms: relu_(x) is x.relu_()
    raise _MissingName("module 'adjoint'", name, __dir__)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_NAMES})


setattr(type(Tensor), "subclassed", staticmethod(_base_of_subclasses))  # noqa: B010  # as above
setattr(Tensor, "_make_subclass", staticmethod(_intercept.make_subclass))  # noqa: B010  # as above
setattr(Tensor, "_make_wrapper_subclass", staticmethod(_make_wrapper))  # noqa: B010  # as above
if _intercept.defines(_sys._getframe()):
    _importlib.import_module("adjoint.overrides")
__all__ = sorted({n for n in globals() if not n.startswith("_")} - {"annotations"})
