"""Where PyTorch's modules are served from, where the path here is another than there.

`torch.a.b` is `adjoint.a.b` without being listed. Listed are paths whose contents lie elsewhere:
files inside PyTorch's packages that programs import from although the package exports the names.
"""
from __future__ import annotations

RENAMED = {
    "functorch": "adjoint._functorch.functional",
    **{f"torch._functorch.{name}": "adjoint._functorch.functional" for name in (
        "apis", "batch_norm_replacement", "eager_transforms", "functional_call",
        "make_functional", "vmap")},
    "torch._vmap_internals": "adjoint._functorch.functional",
    "torch.functional": "adjoint",
    "torch.nn.modules._functions": "adjoint.nn.functional",
    "torch.cuda.amp.autocast_mode": "adjoint.cuda.amp",
    "torch.cuda.amp.grad_scaler": "adjoint.cuda.amp",
    "torch.cuda.random": "adjoint.cuda",
    "torch.cuda.memory": "adjoint.cuda",
    "torch.profiler.profiler": "adjoint.profiler",
    "torch.distributed.distributed_c10d": "adjoint.distributed",
    "torch.distributed.constants": "adjoint.distributed",
    "torch.distributed._tensor": "adjoint.distributed.tensor",
    "torch.distributed.tensor.placement_types": "adjoint.distributed.tensor",
    "torch.distributed.elastic": "adjoint.distributed.elastic",
    "torch.distributed.elastic.multiprocessing": "adjoint.distributed.elastic",
    "torch.distributed.elastic.multiprocessing.errors": "adjoint.distributed.elastic",
    "torch._tensor": "adjoint.tensor",
    "torch._tensor_str": "adjoint.printing",
    "torch._subclasses.fake_tensor": "adjoint._subclasses",
    "torch.fx.subgraph_rewriter": "adjoint.fx.rewriter",
    "torch.fx.proxy": "adjoint.fx.tracer",
    "torch.fx._symbolic_trace": "adjoint.fx.tracer",
    "torch.fx._compatibility": "adjoint.fx.tracer",
    "torch.fx.experimental": "adjoint.fx",
    "torch.fx.experimental.proxy_tensor": "adjoint.fx.proxy_tensor",
    "torch.distributions.exp_family": "adjoint.distributions.distribution",
    "torch.autograd.profiler_util": "adjoint.profiler.events",
    "torch.jit.annotations": "typing",
    **{f"torch.utils.data.datapipes.iter.{name}": "adjoint.utils.data.datapipes.iter.files"
       for name in ("filelister", "fileopener", "routeddecoder", "streamreader")},
    **{f"torch.utils.data.datapipes.map.{name}": "adjoint.utils.data.datapipes.map"
       for name in ("callable", "combinatorics", "combining", "grouping", "utils")},
    "torch.utils.data._utils.collate": "adjoint.utils.data.collate",
    "torch.utils.data._utils.worker": "adjoint.utils.data.worker",
    "torch.utils.tensorboard.writer": "adjoint.utils.tensorboard",
    **{f"torch.{name}.test_case": "torch.testing._internal.common_utils"
       for name in ("_dynamo", "_inductor")},
    "torch._dynamo._trace_wrapped_higher_order_op": "adjoint._dynamo",
    **{f"torch._higher_order_ops.{name}": "adjoint._higher_order_ops" for name in (
        "associative_scan", "cond", "map", "scan", "while_loop")},
    **{f"torch.utils.{name}": "adjoint.utils._small" for name in (
        "_dtype_abbrs", "_exposed_in", "_functools", "_import_utils", "_ordered_set", "_stats",
        "_thunk", "_triton", "_typing_utils", "cpp_backtrace", "data.backward_compatibility",
        "file_baton")},
    "torchvision.datasets.folder": "adjoint.vision.folders",
    "torchvision.datasets.vision": "adjoint.vision.folders",
    "torchvision.datasets.mnist": "adjoint.vision.datasets",
    "torchvision.datasets.cifar": "adjoint.vision.datasets",
    **{f"torchvision.ops.{name}": "adjoint.vision.ops" for name in (
        "boxes", "deform_conv", "focal_loss", "giou_loss", "misc", "roi_align",
        "stochastic_depth")},
    **{f"torch.utils.data._utils.{name}": "adjoint.utils.data._utils"
       for name in ("fetch", "pin_memory", "signal_handling")},
    "torchvision.models.alexnet": "adjoint.vision.models",
    "torchvision.models.vgg": "adjoint.vision.models",
    "torchvision.transforms.transforms": "adjoint.vision.transforms",
    "torchvision.transforms.v2.functional": "adjoint.vision.transforms.functional",
}

# Parts that are not here (for machines of many devices, compilers, quantized tensors),
# with all that is in them. Programs import names from there to ask what they have
# (`isinstance(model, FullyShardedDataParallel)`): each is a class that nothing here is an instance
# of, and making one, or calling it as the function that it may be, raises.
ABSENT = ("ao", "classes", "export", "package", "quantization")   # attributes of `torch`
KINDS = (*(f"torch.distributed.{name}" for name in (
    "_composable", "_functional_collectives", "_shard", "_tensor.experimental",
    *(f"algorithms.{part}" for part in (
        "_checkpoint", "_comm_hooks", "_optimizer_overlap", "_quantization", "join",
        "model_averaging", *(f"ddp_comm_hooks.{kind}" for kind in (
            "ddp_zero_hook", "mixed_precision_hooks", "optimizer_overlap_hooks",
            "post_localSGD_hook", "powerSGD_hook", "quantization_hooks")))),
    "autograd", "checkpoint", "fsdp", "launcher", "nn", "pipelining",
    "tensor._utils", "tensor.experimental", "tensor.parallel")),
    *(f"torch.{name}" for name in (
        *ABSENT, "_guards", "cuda.profiler", "fx.experimental.symbolic_shapes",
        "nn.intrinsic", "nn.qat", "nn.quantizable", "nn.quantized", "utils.bundled_inputs",
        "utils.mobile_optimizer")))
