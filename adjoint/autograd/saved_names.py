"""PyTorch's names of what nodes keep, where our records have others: `_saved_<name>`.

`NAMES`: of a node, theirs=ours. `MADE`: what PyTorch keeps and here follows from attributes or
edges. Loaded by the first question for such a name.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from adjoint.autograd.nodes import REDUCTIONS
from adjoint.core.bind import tensor_of
from adjoint.core.tensor import Size, Tensor, wrap

NAMES: dict[str, dict[str, str]] = {
    node: dict(pair.split("=") for pair in pairs.split()) for node, pairs in {
        "MmBackward0": "mat2=b", "BmmBackward0": "mat2=b", "MvBackward0": "vec=v",
        "DotBackward0": "tensor=b", "VdotBackward0": "other=b",
        "WhereBackward0": "condition=c",
        "ClampBackward0": "min=low max=high", "ClampBackward1": "min=low max=high",
        "HardtanhBackward0": "min_val=low max_val=high", "LerpBackward1": "weight=w",
        "AddcmulBackward0": "tensor1=a tensor2=b", "AddcdivBackward0": "tensor1=a tensor2=b",
        "AddmmBackward0": "mat1=a mat2=b", "BaddbmmBackward0": "batch1=a batch2=b",
        "RepeatBackward0": "repeats=reps", "UnfoldBackward0": "dimension=dim",
        "SplitWithSizesBackward0": "split_sizes=sizes", "SqueezeBackward1": "dim=dims",
        "LinalgVectorNormBackward0": "ord=p", "AsStridedBackward0": "storage_offset=offset",
        "PreluKernelBackward0": "weight=w", "EmbeddingBackward0": "indices=index",
        "MseLossBackward0": "target=y", "SmoothL1LossBackward0": "target=y",
        "HuberLossBackward0": "target=y", "BinaryCrossEntropyBackward0": "target=y",
        "BinaryCrossEntropyWithLogitsBackward0": "target=y", "SoftMarginLossBackward0": "target=y",
        "MaxPool2DWithIndicesBackward0": "result1=indices kernel_size=kernel",
        "AdaptiveMaxPool2DBackward0": "result1=indices", "AvgPool2DBackward0": "kernel_size=kernel",
        "NativeBatchNormBackward0": "input=x result1=mean",
        "NativeLayerNormBackward0": "input=x result1=mean result2=rstd",
        "NativeGroupNormBackward0": "input=x result1=mean result2=rstd group=groups",
        "ConvolutionBackward0": "input=x weight=w",
        "ScaledDotProductFlashAttentionForCpuBackward0":
            "query=q key=k value=v output=out logsumexp=lse attn_mask=mask is_causal=causal "
            "dropout_p=dropout",
        "LinalgInvExBackward0": "inverse=out", "LinalgCholeskyExBackward0": "L=out",
        "LinalgDetBackward0": "A=a", "LinalgSlogdetBackward0": "A=a",
        "LinalgSolveExBackward0": "A=a", "LinalgQrBackward0": "Q=q R=r",
        "LinalgSvdBackward0": "U=u S=s Vh=vh", "LinalgLuBackward0": "P=p L=l U=u",
        "LinalgEighBackward0": "eigenvalues=w eigenvectors=v",
        "LinalgEigBackward0": "eigenvalues=w eigenvectors=v",
        "LinalgSolveTriangularBackward0": "unitriangular=unit",
        "SpecialXlog1PyBackward0": "other=y", "SpecialZetaBackward0": "self=s other=q",
    }.items()}


def _given(value: Any) -> Callable[[Any], Any]:
    return lambda node: value


def _reduction(node: Any) -> int:
    return REDUCTIONS[node.attrs.get("reduction", "none")]


def _last_slice(part: str) -> Callable[[Any], Any]:
    """Of the axis that was sliced last; PyTorch has a node for each, this library one for all."""
    def read(node: Any) -> Any:
        attrs = node.attrs
        if "length" in attrs:
            return {"dim": attrs["dim"], "start": attrs["start"], "step": 1,
                    "end": attrs["start"] + attrs["length"]}[part]
        at = [i for i in attrs["index"] if isinstance(i, slice)]
        found = max((k for k, s in enumerate(at) if s != slice(None)), default=0)
        s = at[found]
        return {"dim": found, "start": s.start or 0, "step": s.step or 1, "end": s.stop}[part]
    return read


def _indices(node: Any) -> tuple[Any, ...]:
    """A tuple with the index arrays at their axes, None for an axis that is taken whole."""
    dims = node.attrs["dims"]
    value = tensor_of(dict(zip(node.plan.names, node.saved, strict=True))["index"], node)
    several = value if isinstance(value, tuple) else (value,)
    if len(several) != len(dims):
        raise KeyError
    found = {d: v if isinstance(v, Tensor) else wrap(v) for d, v in zip(
        dims, several, strict=True)}
    return tuple([found.get(d) for d in range(max(dims) + 1)])


def _pads(node: Any) -> list[int]:
    """From the last axis on, as far as there are any."""
    pads = list(node.attrs["pads"])
    while len(pads) > 1 and tuple(pads[0]) == (0, 0):
        del pads[0]
    return [n for pair in reversed(pads) for n in pair]


def _exponent(node: Any) -> Any:
    if node.op.name == "square":
        return 2
    value = tensor_of(dict(zip(node.plan.names, node.saved, strict=True))["b"], node)
    return value if isinstance(value, Tensor) else value.item()


_LOSS: dict[str, Callable[[Any], Any]] = {"reduction": _reduction}
_WEIGHED = {**_LOSS, "weight": _given(None)}
_ONE: dict[str, Callable[[Any], Any]] = {"alpha": lambda node: node.attrs.get("alpha", 1)}
_NUMEL: dict[str, Callable[[Any], Any]] = {
    "self_sym_numel": lambda node: math.prod(node.edges[0].shape)}
_DIM: dict[str, Callable[[Any], Any]] = {"dim": lambda node: node.attrs["dims"][0]}
_FFT: dict[str, Callable[[Any], Any]] = {
    "normalization": lambda node: (("backward", "ortho", "forward").index(node.attrs["norm"])
                                   if not node.attrs.get("inverse", False)
                                   else ("forward", "ortho", "backward").index(node.attrs["norm"])),
    "forward": lambda node: not node.attrs["inverse"]}



def _sizes(operand: int, *axes: int | None) -> Callable[[Any], Any]:
    """The shape of an operand, or the product of its extents from axis to axis."""
    return lambda node: (math.prod(node.edges[operand].shape[slice(*axes)]) if axes
                         else Size(node.edges[operand].shape))


_RESIZED: dict[str, Callable[[Any], Any]] = {"output_size": lambda node: tuple(node.shape[2:])}
_ALIGNED = {**_RESIZED, "align_corners": lambda node: bool(node.attrs["align"])}
_SOURCE: dict[str, Callable[[Any], Any]] = {"source_dim": lambda node: len(node.shape)}



def _scale(axis: int) -> Callable[[Any], Any]:
    return lambda node: node.attrs["axes"][axis][2]


_SCALES: dict[int, dict[str, Callable[[Any], Any]]] = {
    n: {name: _scale(i) for i, name in enumerate(names)}
    for n, names in ((1, ["scales"]), (2, ["scales_h", "scales_w"]),
                     (3, ["scales_d", "scales_h", "scales_w"]))}

MADE: dict[str, dict[str, Callable[[Any], Any]]] = {
    "SliceBackward0": {p: _last_slice(p) for p in ("dim", "start", "end", "step")},
    **dict.fromkeys(("SplitBackward0", "UnsafeSplitBackward0"),
                    {"split_size": lambda node: node.attrs["sizes"][0]}),
    "ConstantPadNdBackward0": {"pad": _pads},
    "ClampBackward0": {"min": _given(None), "max": _given(None)},
    "GatherBackward0": {"sparse_grad": _given(False)},
    "LinalgLuBackward0": {"pivot": _given(True)}, "LinalgSvdBackward0": {
        "S_sym_argsize_minus_1": lambda node: min(node.edges[0].shape[-2:])},
    "ScatterReduceBackward0": {"include_self": lambda node: node.attrs["include"],
                               "reduce": lambda node: node.op.name.removeprefix("scatter_")},
    "AddBackward0": _ONE, "SubBackward0": _ONE, "IndexAddBackward0": {
        **_ONE, **_DIM, **_SOURCE},
    "AddmmBackward0": {
        "mat1_sym_sizes": lambda node: Size(node.edges[node.op.name == "addmm"].shape),
        "mat2_sym_sizes": lambda node: Size(node.edges[2].shape if node.op.name == "addmm"
                                            else node.edges[1].shape[::-1]),
        "alpha": lambda node: node.attrs.get("alpha", 1),
        "beta": lambda node: node.attrs.get("beta", 1),
        "mat2": lambda node: tensor_of(node.saved[node.plan.names.index("weight")], node).t(),
        "mat1": lambda node: tensor_of(node.saved[node.plan.names.index("x")], node)
        if "x" in node.plan.names else None},
    "PowBackward0": {"exponent": _exponent},
    "GeluBackward0": {"approximate": lambda node: "tanh" if "tanh" in node.op.name else "none"},
    "ClampBackward1": {"min": lambda node: node.attrs.get("low"),
                       "max": lambda node: node.attrs.get("high")},
    "LogitBackward0": {"eps": _given(None)},
    "MeanBackward0": _NUMEL, "MeanBackward1": _NUMEL,
    "MseLossBackward0": _LOSS, "SmoothL1LossBackward0": _LOSS, "HuberLossBackward0": _LOSS,
    "SoftMarginLossBackward0": _LOSS, "NllLossBackward0": _LOSS,
    "BinaryCrossEntropyBackward0": _WEIGHED,
    "BinaryCrossEntropyWithLogitsBackward0": {**_WEIGHED, "pos_weight": _given(None)},
    "NativeLayerNormBackward0": {
        "normalized_shape": lambda node: node.edges[0].shape[-node.attrs["ndim"]:]},
    "ConvolutionBackward0": {
        "padding": lambda node: tuple([low for low, _ in node.attrs["padding"]]),
        "transposed": lambda node: node.op.name != "convolution",
        "output_padding": lambda node: (0,) * len(node.attrs["stride"])},
    "IndexBackward0": {"indices": _indices}, "IndexPutBackward0": {"indices": _indices},
    "IndexSelectBackward0": _DIM, "IndexFillBackward0": _DIM,
    "IndexCopyBackward0": {**_DIM, **_SOURCE},
    "LinalgSolveExBackward0": {"left": _given(True)},
    "LinalgSolveTriangularBackward0": {"left": _given(True)},
    "LinalgCholeskyExBackward0": {"upper": _given(False)},
    "LinalgQrBackward0": {"mode": _given("reduced")},
    "NativeGroupNormBackward0": {
        "N": _sizes(0, 0, 1), "C": _sizes(0, 1, 2), "HxW": _sizes(0, 2, None)},
    "NativeBatchNormBackward0": {"training": lambda node: "mean" in node.plan.names},
    "EmbeddingBackward0": {"weight_sym_argsize_0": _sizes(0, 0, 1)},
    **{f"Upsample{kind}{d}DBackward0": {**_RESIZED, **_SCALES[d]}
       for kind in ("Nearest", "NearestExact") for d in (1, 2, 3)},
    **{f"Upsample{kind}Backward0": {**_ALIGNED, **_SCALES[int(kind.rstrip("Aa")[-2])]} for kind in (
        "Linear1D", "Bilinear2D", "Bicubic2D", "Trilinear3D", "Bilinear2DAa", "Bicubic2DAa")},
    "FftC2CBackward0": _FFT, "FftR2CBackward0": {**_FFT, "onesided": _given(True)},
    "FftC2RBackward0": _FFT,
}
