"""Public modules of JAX that are about what is not here: other devices, programs of functions.

They can be imported, and so can their names; a call raises `NotSupported` in the words below.
"""
from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from adjoint.base.errors import Absent
from adjoint.base.errors import missing as _missing

_PROGRAM = ("functions run as they are written here; jax.make_jaxpr gives the program of one, and "
            "jax.core.eval_jaxpr runs it, but nothing inside traces by programs")
_DEVICES = "there is one device here, the CPU of this process"
_BINARY = "nothing is compiled or exported here: functions run as they are written"
_SPARSE = ("there are no sparse arrays under JAX's names; adjoint.sparse has those of PyTorch's, "
           "and jax.scipy.sparse.linalg takes a matrix as a function")
_OTHER = "it is not written"

# module -> (why it is absent, its names); `name:there` is what that module has, `*_p` is every name
# with that end (those of JAX's primitives).
MODULES: dict[str, tuple[str, str]] = {
    "api_util": (_PROGRAM, "argnums_partial debug_info:_partial.debug_info "
                 "donation_vector flatten_axes:_flat.flatten_axes flatten_fun:_partial.flatten_fun "
                 "flatten_fun_nokwargs:_partial.flatten_fun_nokwargs "
                 "rebase_donate_argnums safe_map:_util.safe_map "
                 "shaped_abstractify:core.get_aval"),
    "distributed": (_DEVICES, "initialize is_initialized shutdown"),
    "dlpack": (_DEVICES, "from_dlpack:numpy.from_dlpack is_supported_dtype"),
    "export": (_BINARY, "DisabledSafetyCheck Exported SymbolicScope default_export_platform "
               "deserialize export is_symbolic_dim symbolic_args_specs symbolic_shape "
               "maximum_supported_calling_convention_version "
               "minimum_supported_calling_convention_version register_namedtuple_serialization "
               "register_pytree_node_serialization"),
    "extend": (_PROGRAM, ""),
    "extend.backend": (_DEVICES, "backends clear_backends get_backend:_lib.get_backend "
                       "get_default_device register_backend_factory"),
    "extend.core": (_PROGRAM, "ClosedJaxpr:_jaxpr.ClosedJaxpr Jaxpr:_jaxpr.Jaxpr "
                    "JaxprEqn:_jaxpr.JaxprEqn Literal:_jaxpr.Literal Var:_jaxpr.Var "
                    "Effect:_inside.Effect Primitive:_primitive.Primitive Token TraceTag "
                    "AbstractToken CallPrimitive DebugInfo DropVar Effects "
                    "InconclusiveDimensionOperation JaxprTypeError array_types call_impl "
                    "check_jaxpr concrete_or_error find_top_trace gensym jaxprs_in_params "
                    "new_jaxpr_eqn no_effects primal_dtype_to_tangent_dtype set_current_trace "
                    "subjaxprs take_current_trace "
                    "jaxpr_as_fun:_jaxpr.jaxpr_as_fun "
                    "get_opaque_trace_state:_inside.get_opaque_trace_state "
                    "valid_jaxtype:_inside.valid_jaxtype "
                    "mapped_aval:_interpret.mapped_aval unmapped_aval:_interpret.unmapped_aval"),
    "extend.core.primitives": (_PROGRAM, "*_p"),
    "extend.ifrt_programs": (_BINARY, "ifrt_programs"),
    "extend.linear_util": (_PROGRAM, "StoreException WrappedFun:_partial.WrappedFun cache "
                           "merge_linear_aux transformation:_partial.transformation "
                           "transformation2 transformation_with_aux "
                           "transformation_with_aux2 wrap_init:_partial.wrap_init"),
    "extend.mlir": (_BINARY, "dialects ir passmanager hlo_to_stablehlo"),
    "extend.random": (_OTHER, "define_prng_impl random_seed rbg_prng_impl seed_with_impl "
                      "threefry2x32_p threefry_2x32 threefry_prng_impl unsafe_rbg_prng_impl"),
    "extend.sharding": (_DEVICES, "GSPMDSharding"),
    "extend.source_info_util": (_PROGRAM, "NameStack SourceInfo current current_name_stack "
                                "extend_name_stack new_name_stack new_source_info "
                                "register_exclusion:_inside.register_exclusion "
                                "reset_name_stack set_name_stack summarize "
                                "transform_name_stack user_context"),
    "experimental.array_serialization": (_DEVICES, "serialization"),
    "experimental.buffer_callback": (_BINARY, "Buffer ExecutionContext ExecutionStage "
                                     "buffer_callback"),
    "experimental.colocated_python": (_DEVICES, "colocated_cpu_devices colocated_python "
                                      "colocated_python_class"),
    "experimental.compilation_cache": (_BINARY, ""),
    "experimental.compilation_cache.compilation_cache": (_BINARY, "reset_cache set_cache_dir"),
    "experimental.compute_on": (_DEVICES, "compute_on compute_on2"),
    "experimental.custom_partitioning": (_DEVICES, "ArrayMapping BATCHING CompoundFactor "
                                         "SdyShardingRule custom_partitioning"),
    "experimental.fused": (_PROGRAM, "fused"),
    "experimental.key_reuse": (_PROGRAM, ""),
    "experimental.layout": (_DEVICES, "Format Layout with_layout_constraint"),
    "experimental.mesh_utils": (_DEVICES, "create_device_mesh create_hybrid_device_mesh"),
    "experimental.multihost_utils": (_DEVICES, "assert_equal broadcast_one_to_all "
                                     "global_array_to_host_local_array process_allgather "
                                     "host_local_array_to_global_array sync_global_devices"),
    "experimental.pallas": (_BINARY, "pallas_call BlockSpec GridSpec program_id num_programs load "
                            "store cdiv when debug_print"),
    "experimental.pjit": (_DEVICES, "pjit:jit"),
    "experimental.rnn": (_OTHER, "get_num_params_in_lstm init_lstm_weight lstm lstm_ref "
                         "swap_lstm_gates unpack_lstm_weights"),
    "experimental.roofline": (_PROGRAM, "RooflineResult RooflineShape register_roofline "
                              "register_standard_roofline roofline roofline_and_grad"),
    "experimental.scheduling_groups": (_BINARY, "scheduling_group xla_metadata_call"),
    "experimental.serialize_executable": (_BINARY, "deserialize_and_load serialize"),
    "experimental.shard_alike": (_DEVICES, "shard_alike"),
    "experimental.shard_map": (_DEVICES, "shard_map"),
    "experimental.source_mapper": (_PROGRAM, "generate_sourcemaps all_passes"),
    "experimental.sparse": (_SPARSE, "BCOO BCSR COO CSC CSR CuSparseEfficiencyWarning JAXSparse "
                            "SparseEfficiencyError SparseEfficiencyWarning SparseTracer "
                            "bcoo_broadcast_in_dim bcoo_concatenate bcoo_dot_general "
                            "bcoo_dot_general_sampled bcoo_dynamic_slice bcoo_extract "
                            "bcoo_fromdense bcoo_gather bcoo_multiply_dense bcoo_multiply_sparse "
                            "bcoo_reduce_sum bcoo_reshape bcoo_rev bcoo_slice bcoo_sort_indices "
                            "bcoo_squeeze bcoo_sum_duplicates bcoo_todense bcoo_transpose "
                            "bcoo_update_layout bcsr_broadcast_in_dim bcsr_concatenate "
                            "bcsr_dot_general bcsr_extract bcsr_fromdense bcsr_sum_duplicates "
                            "bcsr_todense coo_fromdense coo_matmat coo_matvec coo_todense "
                            "csr_fromdense csr_matmat csr_matvec csr_todense empty eye grad jacfwd "
                            "jacobian jacrev linalg random_bcoo sparsify todense value_and_grad"),
    "experimental.sparse.linalg": (_SPARSE, "lobpcg_standard spsolve"),
    "experimental.topologies": (_DEVICES, "TopologyDescription get_attached_topology "
                                "get_topology_desc make_mesh"),
    "experimental.transfer": (_DEVICES, "TransferServer start_transfer_server"),
    "experimental.xla_metadata": (_BINARY, "set_xla_metadata"),
    "extend.xla": (_BINARY, "PipelineStage clear_hlo_module_transformation "
                   "register_hlo_module_transformation"),
    "ffi": (_BINARY, "build_ffi_lowering_function ffi_call ffi_lowering include_dir pycapsule "
            "register_ffi_target register_ffi_target_as_batch_partitionable register_ffi_type"),
    "interpreters": (_PROGRAM, ""),
    "interpreters.ad": (_PROGRAM, "JVPTrace JVPTracer UndefinedPrimal:_primitive.UndefinedPrimal "
                        "Zero:_primitive.Zero add_jaxvals:_interpret.add_jaxvals add_jaxvals_p "
                        "add_tangents:_interpret.add_tangents defbilinear:_interpret.defbilinear "
                        "defjvp:_interpret.defjvp defjvp2:_interpret.defjvp2 "
                        "deflinear:_interpret.deflinear deflinear2:_interpret.deflinear2 "
                        "get_primitive_transpose:_interpret.get_primitive_transpose "
                        "instantiate_zeros:_primitive.instantiate_zeros "
                        "is_undefined_primal:_interpret.is_undefined_primal jvp linearize "
                        "primitive_jvps:_interpret.primitive_jvps "
                        "primitive_transposes:_interpret.primitive_transposes "
                        "zeros_like_aval:_interpret.zeros_like_aval"),
    "interpreters.batching": (_PROGRAM, ""
                              "axis_primitive_batchers:_interpret.axis_primitive_batchers "
                              "bdim_at_front:_interpret.bdim_at_front "
                              "broadcast:_interpret.broadcast "
                              "defbroadcasting:_interpret.defbroadcasting "
                              "defreducer:_interpret.defreducer "
                              "defvectorized:_interpret.defvectorized "
                              "fancy_primitive_batchers:_interpret.fancy_primitive_batchers "
                              "primitive_batchers:_interpret.primitive_batchers "
                              "register_vmappable unregister_vmappable "
                              "moveaxis:_interpret.moveaxis not_mapped:_interpret.not_mapped"),
    "interpreters.mlir": (_BINARY, "LoweringRule LoweringRuleContext ModuleContext "
                          "aval_to_ir_type aval_to_ir_types core_call_lowering dtype_to_ir_type "
                          "emit_python_callback ir ir_constant lower_fun:_interpret.lower_fun "
                          "lower_jaxpr_to_module make_ir_context module_to_bytecode "
                          "module_to_string register_constant_handler "
                          "register_lowering:_interpret.register_lowering"),
    "interpreters.partial_eval": (_PROGRAM, "DynamicJaxprTracer JaxprTracer Val "
                                  "PartialVal:_partial.PartialVal "
                                  "custom_partial_eval_rules dce_jaxpr dce_jaxpr_call_rule "
                                  "dce_jaxpr_closed_call_rule dce_jaxpr_consts dce_rules "
                                  "partial_eval_jaxpr_custom_rules trace_to_jaxpr_dynamic "
                                  "trace_to_jaxpr_nounits:_partial.trace_to_jaxpr_nounits"),
    "interpreters.pxla": (_BINARY, "create_compile_options"),
    "interpreters.xla": (_BINARY, "Backend apply_primitive:_interpret.apply_primitive "
                         "canonicalize_dtype_handlers"),
    "lib": (_BINARY, "xla_bridge xla_client xla_extension"),
    "profiler": ("adjoint.profiler has PyTorch's", "ProfileData ProfileOptions StepTraceAnnotation "
                 "TraceAnnotation annotate_function device_memory_profile "
                 "save_device_memory_profile start_server start_trace stop_server stop_trace "
                 "trace"),
}
# names that modules with other contents lack, by the module
NAMES: dict[str, tuple[str, str]] = {
    "": (_DEVICES, "make_array_from_process_local_data make_array_from_single_device_arrays "
         "reshard set_mesh shard_map smap"),
    "ad_checkpoint": (_PROGRAM, "saved_residuals"),
    "core": (_PROGRAM, "AbstractValue:_array.ShapeDtypeStruct Atom "
             "ClosedJaxpr:_jaxpr.ClosedJaxpr Jaxpr:_jaxpr.Jaxpr "
             "JaxprEqn:_jaxpr.JaxprEqn Literal:_jaxpr.Literal ParamDict Var:_jaxpr.Var "
             "Primitive:_primitive.Primitive Trace:_inside.Trace Value eval_context "
             "eval_jaxpr:_jaxpr.eval_jaxpr jaxpr_as_fun:_jaxpr.jaxpr_as_fun "
             "get_opaque_trace_state:_inside.get_opaque_trace_state "
             "trace_state_clean:_inside.trace_state_clean "
             "valid_jaxtype:_inside.valid_jaxtype"),
    "custom_derivatives": (_PROGRAM, "custom_jvp_call_p "
                           "custom_vjp_call_p custom_vjp_primal_tree_values"),
    "debug": (_DEVICES, "visualize_array_sharding visualize_sharding"),
    "lax": (_PROGRAM, "*_p"),
    "lax.linalg": (_PROGRAM, "*_p"),
    "sharding": (_DEVICES, "AbstractDevice ManualAxisType auto_axes explicit_axes "
                 "get_mesh reshard set_mesh use_abstract_mesh"),
    "stages": (_BINARY, "CompilerOptions"),
}
_HERE = __name__.rpartition(".")[0]


def _row(path: str, why: str, names: str) -> Any:
    """How a name of a row is found, and the names; `MissingName` for others."""
    there = {name: place for name, _, place in (n.partition(":") for n in names.split())}
    other, public = _missing(f"{_HERE}.{path}".rstrip(".")), f"jax.{path}".rstrip(".")

    def found(name: str) -> Any:
        if name not in there and not (name.endswith("_p") and "*_p" in there):
            return other(name)
        if name.endswith("_p") and "*_p" in there:
            from adjoint.jax._primitive import known
            made = known(name)
            if made is not None:
                return made
        place, _, own = there.get(name, "").rpartition(".")
        if not own:
            return Absent(f"{public}.{name}", why)
        return getattr(importlib.import_module(f"{_HERE}.{place}".rstrip(".")), own)
    return found, sorted(there.keys() - {"*_p"})


def lacking(module: str) -> Any:
    """The `__getattr__` of a module here: its row of `NAMES`, and `MissingName` for the rest."""
    return _row(module, *NAMES[module])[0]


class Module(ModuleType):
    """A module of `MODULES`; its names are made when they are read."""

    def __init__(self, path: str) -> None:
        why, names = MODULES[path]
        super().__init__(f"{_HERE}.{path}", f"`jax.{path}`. Not here: {why}.")
        self._found, self._names = _row(path, why, names)
        if "." not in path or any(m.startswith(path + ".") for m in MODULES):
            self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{self.__name__}.{name}") or self._found(name)

    def __dir__(self) -> list[str]:
        return [*self._names, "__doc__", "__name__"]


for _path in MODULES:
    sys.modules[f"{_HERE}.{_path}"] = Module(_path)
    if "." not in _path:
        setattr(sys.modules[_HERE], _path, sys.modules[f"{_HERE}.{_path}"])
