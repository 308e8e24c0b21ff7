"""Functions of the top level that lie under those of `nn.functional`, with their arguments."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import I64
from adjoint.base.errors import ArgumentError, DTypeError, ShapeError
from adjoint.core.tensor import wrap
from adjoint.ops import dropout as drop
from adjoint.ops import network
from adjoint.ops.api_common import dtype_of, need, raw
from adjoint.ops.embedding import renorm_rows
from adjoint.ops.pointwise import mul, ne
from adjoint.ops.public import FUNCTIONS, METHODS, public, typed


# ------------------------------------------------------------------ convolutions
@public("convolution", method=False)
def convolution(input: Any, weight: Any, bias: Any, stride: Sequence[int], padding: Sequence[int],
                dilation: Sequence[int], transposed: bool, output_padding: Sequence[int],
                groups: int) -> Any:
    """`conv1d` to `conv3d` and their transposes, by the number of the input's axes.

    >>> import adjoint as ad
    >>> x, w = ad.ones(1, 1, 4), ad.ones(1, 1, 3)
    >>> ad.convolution(x, w, None, [1], [0], [1], False, [0], 1)
    tensor([[[3., 3.]]])
    """
    need("convolution", input, weight)
    dims = len(weight.shape) - 2
    if dims not in (1, 2, 3):
        raise ShapeError(f"convolution: weight{list(weight.shape)} should have 3 to 5 axes")
    if transposed:
        return FUNCTIONS[f"conv_transpose{dims}d"](input, weight, bias, stride, padding,
                                                   output_padding, groups, dilation)
    return FUNCTIONS[f"conv{dims}d"](input, weight, bias, stride, padding, dilation, groups)


# ------------------------------------------------------------------ embeddings
_MODES = ("sum", "mean", "max")


@public("embedding_bag", method=False)
@typed
def embedding_bag(weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False,
                  mode: int = 0, sparse: bool = False, per_sample_weights: Any = None,
                  include_last_offset: bool = False, padding_idx: Any = None) -> Any:
    """(`nn.functional.embedding_bag`, the bag of each index, rows per bag, and for mode 2 the
    index that each maximum came from). Modes: 0 sum, 1 mean, 2 max. Sums count nothing; those
    of float32 without `padding_idx` do not say which bag an index belongs to.

    >>> import adjoint as ad
    >>> table, i = ad.tensor([[1.0], [3.0]]), ad.tensor([0, 1, 1])
    >>> ad.embedding_bag(table, i, ad.tensor([0, 2]), mode=1)[:3]
    (tensor([[2.],
            [3.]]), tensor([0, 0, 1]), tensor([2, 1]))
    """
    need("embedding_bag", weight, indices, offsets)
    if mode not in (0, 1, 2):
        raise ArgumentError(f"`mode` must be sum, mean, or max: 0, 1 or 2, got {mode}")
    if per_sample_weights is not None and mode:
        raise ArgumentError("embedding_bag: per_sample_weights only supported with mode='sum', "
                            f"got mode {mode}")
    out = network.embedding_bag(indices, weight, offsets, None, 2, scale_grad_by_freq, _MODES[mode],
                                sparse, per_sample_weights, include_last_offset, padding_idx)
    if network.without_values(raw(indices), offsets):
        shapes = (indices.shape, out.shape[:1], out.shape if mode == 2 else (0,))
        return out, *(wrap(MetaArray(tuple(s), I64)) for s in shapes)
    flat = np.asarray(raw(indices)).reshape(-1)
    bag, bags = network._bags(flat, offsets, include_last_offset)
    kept = flat != (len(raw(weight)) + padding_idx if padding_idx < 0 else padding_idx) \
        if padding_idx is not None else np.ones(flat.shape, bool)
    wrapped = FUNCTIONS["from_numpy"]
    counts = np.bincount(bag[kept], minlength=bags)
    if not mode:
        none = np.zeros(bags, np.int64)
        wide = dtype_of(weight) == np.float64
        which = bag if wide or padding_idx is not None else np.zeros(0, np.int64)
        return out, wrapped(which), wrapped(none), wrapped(none.copy())
    if mode == 1:
        return out, wrapped(bag), wrapped(counts), wrapped(counts.copy())
    return out, wrapped(bag), wrapped(counts), wrapped(
        _sources(raw(weight), flat[kept], bag[kept], bags))


def _sources(table: Any, index: Any, bag: Any, bags: int) -> Any:
    """The row that each maximum of a bag came from; 0 for an empty bag."""
    found = np.zeros((bags, table.shape[1]), np.int64)
    for b in range(bags):
        rows = index[bag == b]
        if len(rows):
            found[b] = rows[table[rows].argmax(axis=0)]
    return found


@public("embedding_renorm_", method=False)
def embedding_renorm_(input: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
    """Scale the rows of a table that `indices` name down to a norm of at most `max_norm`."""
    need("embedding_renorm_", input, indices)
    if dtype_of(indices).kind not in "iu":
        raise DTypeError("Expected tensor for argument #2 'indices' to have one of the following "
                         f"scalar types: Long, Int; but got {dtype_of(indices)}")
    renorm_rows(input, raw(indices), float(max_norm), float(norm_type))
    return input


# ------------------------------------------------------------------ dropout
@public("native_dropout", method=False)
def native_dropout(input: Any, p: float, train: bool | None) -> Any:
    """(`input` with elements dropped and the others scaled by 1/(1-p), which were kept)."""
    need("native_dropout", input)
    ones = FUNCTIONS["ones_like"](input, dtype=np.dtype(np.uint8))
    if train is None or train:
        made, ones = drop.with_mask(input, p, ones)
    else:
        made = mul(input, 1.0)
    return made, ne(ones, 0)


@public("feature_dropout", method=False)
def feature_dropout(input: Any, p: float, train: bool) -> Any:
    """Zeros whole channels (N, C, ...) with probability p and scales the others by 1/(1-p)."""
    need("feature_dropout", input)
    if len(input.shape) < 2:
        raise ShapeError("Feature dropout requires at least 2 dimensions in the input, got "
                         f"{list(input.shape)}")
    shape = tuple(input.shape)
    ones = np.ones((*shape[:2], *(1,) * (len(shape) - 2)), dtype_of(input))
    return mul(input, drop.dropout(FUNCTIONS["from_numpy"](ones), p, train))


def _written(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
    def run(input: Any, p: float, train: bool) -> Any:
        need(name, input)
        return METHODS["copy_"](input, f(input, p, train)) if train else input
    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"`{name[:-1]}`, in place."
    return public(name, method=False)(run)


dropout_ = _written("dropout_", drop.dropout)
feature_dropout_ = _written("feature_dropout_", feature_dropout)
alpha_dropout_ = _written("alpha_dropout_", drop.alpha_dropout)
feature_alpha_dropout_ = _written("feature_alpha_dropout_", drop.feature_alpha_dropout)


@public("detach_", method=False)
def detach_(input: Any) -> Any:
    """`Tensor.detach_`."""
    return input.detach_()
