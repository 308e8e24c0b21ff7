"""Functions of `nn.functional` under their names and signatures at the top level."""
from __future__ import annotations

import math
from typing import Any

from adjoint.base.errors import ShapeError
from adjoint.core.tensor import Tensor
from adjoint.ops import (
    activation,
    batch_norm,
    dropout,
    embedding,
    group_norm,
    loss,
    network,
    norm,
    vision,
)
from adjoint.ops.api_common import dtype_of, finish, many_dims, need_rank
from adjoint.ops.moments import norm_op
from adjoint.ops.pointwise import add, rsqrt
from adjoint.ops.pool import POOLS
from adjoint.ops.public import FUNCTIONS, public, typed

REDUCTIONS = ("none", "mean", "sum")


def _name(reduction: Any) -> str:
    """Reductions are numbers at the top level: 0 none, 1 mean, 2 sum."""
    return REDUCTIONS[reduction] if isinstance(reduction, int) else reduction


for _f in (activation.celu_, activation.selu_, activation.rrelu_, activation.threshold_):
    public(_f.__name__, method=False)(_f)
public("affine_grid_generator", method=False)(vision.affine_grid)
for _f in (loss.cosine_similarity, loss.pairwise_distance, network.pdist, network.bilinear,
           dropout.alpha_dropout, dropout.feature_alpha_dropout, group_norm.rms_norm):
    public(_f.__name__, method=False)(_f)


@public("layer_norm", method=False)
def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None,
               eps: float = 1e-5, cudnn_enable: bool = True) -> Any:
    """`nn.functional.layer_norm`."""
    return norm.layer_norm(input, normalized_shape, weight, bias, eps)


@public("group_norm", method=False)
def top_group_norm(input: Any, num_groups: int, weight: Any = None,
                   bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True) -> Any:
    """`nn.functional.group_norm`."""
    return group_norm.group_norm(input, num_groups, weight, bias, eps)


@public("batch_norm", method=False)
def top_batch_norm(input: Any, weight: Any | None, bias: Any | None,
                   running_mean: Any | None, running_var: Any | None,
                   training: bool, momentum: float, eps: float, cudnn_enabled: bool) -> Any:
    """`nn.functional.batch_norm` with the arguments in another order."""
    return batch_norm.batch_norm(input, running_mean, running_var, weight, bias, training, momentum,
                                 eps)


@public("instance_norm", method=False)
@typed
def instance_norm(input: Any, weight: Any | None, bias: Any | None,
                  running_mean: Any | None, running_var: Any | None,
                  use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool) -> Any:
    """`nn.functional.instance_norm` with the arguments in another order."""
    return group_norm.instance_norm(input, running_mean, running_var, weight, bias,
                                    use_input_stats, momentum, eps)


@public("embedding", method=False)
def top_embedding(weight: Any, indices: Any, padding_idx: int = -1,
                  scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    """`nn.functional.embedding` with the table first."""
    pad = None if padding_idx < 0 else padding_idx
    return embedding.embedding(indices, weight, pad, None, 2.0, scale_grad_by_freq, sparse)


def _ctc_loss(*args: Any, **kwargs: Any) -> Any:
    from adjoint.ops.ctc import ctc_loss  # loads when it is first used
    return ctc_loss(*args, **kwargs)


def _losses() -> None:
    def declare(name: str, f: Any) -> None:
        def run(*args: Any, **kwargs: Any) -> Any:
            kwargs["reduction"] = _name(kwargs.get("reduction", 0))
            return f(*args, **kwargs)
        run.__name__ = run.__qualname__ = name
        run.__doc__ = f"`nn.functional.{name}`; reductions may be numbers, 0 (the default), 1, 2."
        public(name, method=False)(run)
    for name in ("binary_cross_entropy_with_logits", "cosine_embedding_loss",
                 "hinge_embedding_loss", "kl_div", "margin_ranking_loss", "poisson_nll_loss",
                 "triplet_margin_loss"):
        declare(name, getattr(loss, name))
    declare("ctc_loss", _ctc_loss)


_losses()


@public("grid_sampler", method=False)
def grid_sampler(input: Any, grid: Any, interpolation_mode: int, padding_mode: int,
                 align_corners: bool) -> Any:
    """`nn.functional.grid_sample` with modes as numbers."""
    return vision.grid_sample(input, grid, ("bilinear", "nearest", "bicubic")[interpolation_mode],
                              ("zeros", "border", "reflection")[padding_mode], align_corners)


for _dims in (2, 3):
    def _sampler(input: Any, grid: Any, interpolation_mode: int, padding_mode: int,
                 align_corners: bool, _rank: int = _dims + 2) -> Any:
        need_rank(f"grid_sampler_{_rank - 2}d", (input, _rank))
        return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)
    _sampler.__name__ = _sampler.__qualname__ = f"grid_sampler_{_dims}d"
    _sampler.__doc__ = f"`grid_sampler` of images of {_dims} axes."
    public(_sampler.__name__, method=False)(_sampler)


@public("native_channel_shuffle", method=False)
def native_channel_shuffle(input: Any, groups: int) -> Any:
    """`nn.functional.channel_shuffle`."""
    return vision.channel_shuffle(input, groups)


@public("native_group_norm", method=False)
@typed
def native_group_norm(input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int,
                      eps: float) -> Any:
    """(`nn.functional.group_norm`, means (N, group), 1 / deviations (N, group)) of N·C·HxW numbers
    as (N, C, ...)."""
    if tuple(input.shape[:2]) != (N, C) or math.prod(input.shape[2:]) != HxW:
        raise ShapeError(f"native_group_norm: N={N}, C={C}, HxW={HxW} say nothing of the input "
                         f"{list(input.shape)}")
    out = group_norm.group_norm(input, group, weight, bias, eps)
    rows = FUNCTIONS["reshape"](input, (N, group, C // group * HxW))
    var, mean = FUNCTIONS["var_mean"](rows, -1, correction=0)
    return out, mean, rsqrt(add(var, eps))


@public("native_batch_norm", method=False)
def native_batch_norm(input: Any, weight: Any | None, bias: Any | None,
                      running_mean: Any | None, running_var: Any | None,
                      training: bool, momentum: float, eps: float) -> Any:
    """(`nn.functional.batch_norm`, the batch's means, 1 / deviations); empty ones in evaluation."""
    out = batch_norm.batch_norm(input, running_mean, running_var, weight, bias, training, momentum,
                                eps)
    if not training:
        empty = FUNCTIONS["zeros"](0, dtype=dtype_of(input))
        return out, empty, empty
    axes = [0, *range(2, len(input.shape))]
    held = input.detach() if isinstance(input, Tensor) else input
    var, mean = FUNCTIONS["var_mean"](held, axes, correction=0)
    return out, mean, rsqrt(add(var, eps))


@public("frobenius_norm", method=False)
def frobenius_norm(input: Any, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The 2-norm of all elements over axes."""
    return finish(out, norm_op(input, p=2.0, dim=many_dims(input, dim), keepdim=keepdim))


@public("nuclear_norm", method=False)
@typed
def nuclear_norm(input: Any, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The sum of singular values."""
    from adjoint.ops.api_decompose import matrix_norm
    return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, out=out)


@public("norm_except_dim", method=False)
@typed
def norm_except_dim(v: Any, pow: int = 2, dim: int = 0) -> Any:
    """The norm over all axes but one, which stay as size 1."""
    rank = len(v.shape)
    dims = tuple(range(rank)) if dim == -1 else tuple(d for d in range(rank) if d != dim % rank)
    return norm_op(v, p=float(pow), dim=dims, keepdim=dim != -1)


def _paired(pool: Any) -> Any:
    """A pool that returns indices too."""
    def run(*args: Any, **kwargs: Any) -> Any:
        return pool(*args, **{**kwargs, "return_indices": True})
    return run


def with_indices() -> dict[str, Any]:
    """The pools that return indices, under their own names."""
    made = {}
    for d in (1, 2, 3):
        for kind in ("max_pool", "adaptive_max_pool"):
            run = _paired(POOLS[f"{kind}{d}d"])
            run.__name__ = run.__qualname__ = f"{kind}{d}d_with_indices"
            run.__doc__ = f"`{kind}{d}d` with the indices of the maxima."
            made[run.__name__] = run
    return made


INDEXED = with_indices()
public("adaptive_max_pool1d", method=False, replace=True)(      # at the top level: the pair
    INDEXED["adaptive_max_pool1d_with_indices"])
public("max_pool1d_with_indices", method=False)(INDEXED["max_pool1d_with_indices"])


@public(method=False)
def constant_pad_nd(input: Any, pad: Any, value: Any = 0) -> Any:
    """`nn.functional.pad` with a constant."""
    from adjoint.ops.vision import pad as pad_
    return pad_(input, pad, "constant", value)


@public(method=False, quick=True)
def native_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any,
                      eps: float) -> Any:
    """(layer norm, mean, 1/std)."""
    from adjoint.ops.norm import layer_norm
    from adjoint.ops.pointwise import rsqrt
    from adjoint.ops.reduce import mean_op
    out = layer_norm(input, normalized_shape, weight, bias, eps)
    rank = len(input.shape)
    dims = tuple(range(rank - len(normalized_shape), rank))
    mean = mean_op(input, dim=dims, keepdim=True)
    from adjoint.ops.moments import var_op
    rstd = rsqrt(add(var_op(input, dim=dims, correction=0, keepdim=True), eps))
    from adjoint.ops.cross_entropy import stopped
    return out, stopped(mean), stopped(rstd)


__all__ = ["INDEXED"]
