"""JAX's names on this package's engine: arrays are immutable, functions are transformed.

`import adjoint.jax as jax`, or `adjoint run --as-jax program.py`, which serves these modules as
`jax` to a program written for it. Functions run as they are written, each time: `jit` compiles
nothing. `make_jaxpr` records the program of a function on request; lowering to text raises.

>>> import adjoint.jax as jax
>>> import adjoint.jax.numpy as jnp
>>> jax.grad(lambda w: jnp.sum(jnp.tanh(w) ** 2))(jnp.array([0.0, 1.0]))
Array([0.       , 0.6397...], dtype=float32)
"""
from adjoint.func import checkpoint_policies
from adjoint.func.reverse import FLOAT0 as float0
from adjoint.jax import (
    core,
    custom_batching,
    custom_derivatives,
    debug,
    dtypes,
    errors,
    experimental,
    flatten_util,
    image,
    lax,
    monitoring,
    nn,
    numpy,
    ops,
    random,
    ref,
    scipy,
    sharding,
    stages,
    test_util,
    tree,
    tree_util,
    typing,
    version,
)
from adjoint.jax._absent import lacking as _lacking
from adjoint.jax._api import (
    check_tracer_leaks,
    checking_leaks,
    checkpoint,
    clear_caches,
    debug_infs,
    debug_key_reuse,
    debug_nans,
    default_device,
    default_matmul_precision,
    default_prng_impl,
    disable_jit,
    effects_barrier,
    enable_checks,
    enable_custom_prng,
    enable_x64,
    ensure_compile_time_eval,
    eval_shape,
    explain_cache_misses,
    jit,
    legacy_prng_key,
    live_arrays,
    log_compiles,
    make_jaxpr,
    named_call,
    named_scope,
    numpy_dtype_promotion,
    numpy_rank_promotion,
    pure_callback,
    softmax_custom_jvp,
    threefry_partitionable,
    transfer_guard,
    typeof,
)
from adjoint.jax._array import METHODS as _METHODS
from adjoint.jax._array import Array, ShapeDtypeStruct
from adjoint.jax._devices import (
    Device,
    block_until_ready,
    default_backend,
    device_count,
    device_get,
    device_put,
    devices,
    host_count,
    host_id,
    local_device_count,
    local_devices,
    pmap,
    process_count,
    process_index,
    process_indices,
)
from adjoint.jax._dtypes import FLAGS as _FLAGS
from adjoint.jax._dtypes import config
from adjoint.jax._rules import closure_convert, custom_gradient, custom_jvp, custom_vjp
from adjoint.jax._transforms import (
    fwd_and_bwd,
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linear_transpose,
    linearize,
    value_and_grad,
    vjp,
)
from adjoint.jax._vmap import vmap
from adjoint.jax.ref import Ref, empty_ref, free_ref, freeze, new_ref
from adjoint.jax.sharding import NamedSharding, make_array_from_callback, make_mesh
from adjoint.jax.sharding import PartitionSpec as P

remat = checkpoint
for _flag in ("allow_f16_reductions array_garbage_collection_guard no_execution no_tracing "
              "thread_guard transfer_guard_device_to_device transfer_guard_device_to_host "
              "transfer_guard_host_to_device").split():
    globals()[_flag] = _FLAGS[_flag]
_METHODS["device"] = lambda x: devices()[0]
_METHODS["sharding"] = lambda x: sharding.SingleDeviceSharding()
__version__, __version_info__ = version.__version__, version.__version_info__

__all__ = [
    "Array", "Device", "NamedSharding", "P", "Ref", "ShapeDtypeStruct", "block_until_ready",
    "check_tracer_leaks", "checking_leaks", "checkpoint", "checkpoint_policies", "clear_caches",
    "closure_convert", "config", "core", "custom_batching", "custom_derivatives",
    "custom_gradient", "custom_jvp", "custom_vjp", "debug", "debug_infs", "debug_key_reuse",
    "debug_nans", "default_backend", "default_device", "default_matmul_precision",
    "default_prng_impl", "device_count", "device_get", "device_put", "devices", "disable_jit",
    "dtypes", "effects_barrier", "empty_ref", "enable_checks", "enable_custom_prng", "enable_x64",
    "ensure_compile_time_eval", "errors", "eval_shape", "experimental", "explain_cache_misses",
    "flatten_util", "float0", "free_ref", "freeze", "fwd_and_bwd", "grad", "hessian", "host_count",
    "host_id", "image", "jacfwd", "jacobian", "jacrev", "jit", "jvp", "lax", "legacy_prng_key",
    "linear_transpose", "linearize", "live_arrays", "local_device_count", "local_devices",
    "log_compiles", "make_array_from_callback", "make_jaxpr", "make_mesh", "monitoring",
    "named_call", "named_scope", "new_ref", "nn", "numpy", "numpy_dtype_promotion",
    "numpy_rank_promotion", "ops", "pmap", "process_count", "process_index", "process_indices",
    "pure_callback", "random", "ref", "remat", "scipy", "sharding", "softmax_custom_jvp", "stages",
    "test_util", "threefry_partitionable", "transfer_guard", "tree", "tree_util", "typeof",
    "typing", "value_and_grad", "version", "vjp", "vmap"]
__getattr__ = _lacking("")
