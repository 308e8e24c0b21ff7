"""What functions do to nested tensors of layout jagged: one rule per family.

A rule gets the public function and its arguments and calls the function on the values. Axes after
the first are those of the values, counted one less; the first is the batch, and the ragged one has
all parts end to end.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import ArgumentError, IndexOutOfRange, NotSupported, ShapeError
from adjoint.core.tensor import Tensor, wrap
from adjoint.holders import CONVERTS, LIKE, POINTWISE, WRITES, Rule, held, rules
from adjoint.nested.tensor import NestedInt, NestedTensor, axis, extent_of, jagged_of, spelled_out
from adjoint.ops.public import FUNCTIONS as F
from adjoint.ops.public import METHODS as M

RULES: dict[str, Rule] = {}
NestedTensor.RULES = RULES


def _name(f: Any) -> str:
    name: str = f.__name__
    return name.strip("_")


def _no_axis(f: Any, dim: int, t: NestedTensor) -> None:
    """Refuses the batch and the ragged axis."""
    if dim in (0, t._ragged_idx):
        where = "ragged dim" if dim else "dim=0"
        raise ShapeError(f"{_name(f)}(): not supported for NestedTensor on {where}")


# ------------------------------------------------------------------ elements
def _nested(args: Any) -> NestedTensor:
    """The operand that says where the parts are: the one of the most axes."""
    found = [a for a in args if isinstance(a, NestedTensor)]
    return max(found, key=lambda t: t.dim())


def _clash(f: Any, a: Any, b: Any) -> ShapeError:
    shapes = [tuple(x._size) if isinstance(x, NestedTensor) else x.shape for x in (a, b)]
    return ShapeError(f"cannot call binary pointwise function {_name(f)}.Tensor with inputs of "
                      f"shapes {shapes[0]} and {shapes[1]}")


def aligned(f: Any, a: Any, like: NestedTensor) -> Any:
    """An operand as one that fits the values of `like`."""
    if isinstance(a, NestedTensor):
        same = (a._ragged_idx == like._ragged_idx and a.dim() == like.dim()
                and a._size[a._ragged_idx] == like._size[like._ragged_idx])
        if not same and a is not like:
            raise _clash(f, like, a)
        return a._held
    if not isinstance(a, Tensor) or a.array.size == 1 and a.dim() <= like.dim():
        return a.reshape(a.shape[1:]) if isinstance(a, Tensor) and a.dim() == like.dim() else a
    if isinstance(a, Tensor) and a.dim() > like.dim():
        raise NotSupported("NYI: broadcasting NT with T with larger dim")
    shape = (*(1,) * (like.dim() - a.dim()), *a.shape)
    a, ragged, batch = a.reshape(shape), like._ragged_idx, like.array.shape[0]
    if shape[0] not in (1, batch):
        raise _clash(f, like, a)
    longest = like._max_seqlen
    if shape[ragged] not in (1, longest):
        raise ShapeError(f"The expanded size of the tensor ({longest}) must match the existing "
                         f"size ({shape[ragged]}) at non-singleton dimension {ragged}.  Tensor "
                         f"sizes: {list(shape)}, against {tuple(like._size)}")
    if shape[0] == 1 and shape[ragged] == 1:
        return a.squeeze(0)
    return _rows_of(a, like)


def _rows_of(dense: Any, like: NestedTensor) -> Any:
    """(batch, ..., places, ...) as values end to end, those of the places that `like` has."""
    part, place, at = like.rows()
    ragged = like._ragged_idx
    moved = dense.movedim(ragged, 1)
    first = wrap(part if dense.shape[0] > 1 else np.zeros_like(part))
    then = wrap(place if dense.shape[ragged] > 1 else np.zeros_like(place))
    rows = moved[first, then]
    if like._lengths is not None:            # values with holes: as long as those
        full = rows.new_zeros((like._held.shape[ragged - 1], *rows.shape[1:]))
        rows = full.index_put((wrap(at),), rows)
    return rows.movedim(0, ragged - 1)


@rules(RULES, *POINTWISE, *(n for n in LIKE))
def pointwise(f: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of elements."""
    like = _nested((*args, *kwargs.values()))
    found = f(*(aligned(f, a, like) for a in args),
              **{k: aligned(f, v, like) for k, v in kwargs.items()})
    if isinstance(found, tuple):
        return type(found)(*(like._with(x) for x in found)) if hasattr(found, "_fields") else tuple(
            like._with(x) for x in found)
    return found if found is NotImplemented else like._with(found)


@rules(RULES, *WRITES, "masked_fill_", "copy_", "index_put_", "requires_grad_")
def write(f: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of elements, in place."""
    if not isinstance(input, NestedTensor):
        raise _clash(f, input, _nested((*args, *kwargs.values())))
    if _name(f) == "copy" and args:
        if not isinstance(args[0], NestedTensor):
            raise ArgumentError("copy_(): expected src to be a jagged layout NestedTensor")
        if args[0]._size != input._size and _lengths(args[0]) != _lengths(input):
            raise ShapeError("copy_(): expected compatible input and src shapes, but got: "
                             f"{input._size} and {args[0]._size}")
        f(input._held, args[0]._held, *args[1:], **kwargs)
        return input
    f(input._held, *(aligned(f, a, input) for a in args),
      **{k: aligned(f, v, input) for k, v in kwargs.items()})
    return input


def _lengths(t: NestedTensor) -> Any:
    return t.starts_and_lengths()[1].tolist(), t._ragged_idx


@rules(RULES, *CONVERTS, "to", "type", "type_as", "contiguous", "pin_memory", "alias")
def convert(f: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Another dtype, or other memory."""
    if not isinstance(input, NestedTensor):
        return f(input, *map(held, args), **kwargs)
    if _name(f) == "contiguous" and input._lengths is not None:
        return jagged_of(input.parts(), input._ragged_idx)
    found = f(input._held, *map(held, args), **kwargs)
    if isinstance(found, str):
        return found
    return input if found is input._held else input._with(found)


@rules(RULES, "new_empty", "new_zeros", "new_ones", "new_full", "new_tensor")
def fresh(f: Any, input: NestedTensor, *args: Any, **kwargs: Any) -> Any:
    """A dense tensor of the same dtype; its shape cannot be ragged."""
    size = args[0] if args else kwargs.get("size", ())
    if _name(f) != "new_tensor" and tuple(size if isinstance(size, (tuple, list)) else (size,)):
        raise NotSupported("new_empty() not supported for NJT with shape != ()")
    return f(input._held, *args, **kwargs)


# ------------------------------------------------------------------ dense and back
def padded(t: NestedTensor, value: Any, longest: int | None = None) -> Any:
    """(batch, ..., longest, ...) with `value` after the end of each part."""
    ragged = t._ragged_idx
    part, place, at = t.rows()
    values = t._held.movedim(ragged - 1, 0)
    if t._lengths is not None:
        values = values[wrap(at)]
    longest = t._max_seqlen if longest is None else longest
    if longest < t._max_seqlen:
        keep = np.flatnonzero(place < longest)
        part, place, values = part[keep], place[keep], values[wrap(keep)]
    base = F["full"]((t.array.shape[0], longest, *values.shape[1:]), value, dtype=t.dtype)
    return base.index_put((wrap(part), wrap(place)), values).movedim(1, ragged)


@rules(RULES, "to_padded_tensor")
def to_padded_tensor(f: Any, input: NestedTensor, padding: float, output_size: Any = None) -> Any:
    """The parts in one dense tensor."""
    if input._lengths is not None:
        raise NotSupported("to_padded_tensor(): not supported for nested tensors with holes")
    made = padded(input, padding, None if output_size is None else output_size[input._ragged_idx])
    for d, n in enumerate(output_size or ()):
        if n > made.shape[d]:
            filler = made.new_full((*made.shape[:d], n - made.shape[d], *made.shape[d + 1:]),
                                   padding)
            made = F["cat"]([made, filler], d)
    return made


@rules(RULES, "unbind")
def unbind(f: Any, input: NestedTensor, dim: int = 0) -> Any:
    """Views of the parts."""
    if axis(dim, input.dim()):
        raise ShapeError("unbind(): only supported for NestedTensor on dim=0")
    return tuple(input.parts())


# ------------------------------------------------------------------ reductions
def _lowest(kind: Any) -> Any:
    return -math.inf if is_inexact(kind) else False if kind.kind == "b" else np.iinfo(kind).min


def _highest(kind: Any) -> Any:
    return math.inf if is_inexact(kind) else True if kind.kind == "b" else np.iinfo(kind).max


_NEUTRAL: dict[str, Any] = {
    "sum": lambda kind: 0, "mean": lambda kind: 0, "prod": lambda kind: 1,
    "amax": _lowest, "max": _lowest, "argmax": _lowest, "amin": _highest, "min": _highest,
    "argmin": _highest, "any": lambda kind: False, "all": lambda kind: True}


def _wrapped(t: NestedTensor, found: Any, ragged: int) -> Any:
    if isinstance(found, tuple):
        return type(found)(*(t._with(x, ragged) for x in found))
    return t._with(found, ragged)


@rules(RULES, *_NEUTRAL)
def reduce(f: Any, input: Any, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    """A reduction: of all elements, of parts each, of all parts together, or within places."""
    if isinstance(dim, Tensor):
        return pointwise(f, input, dim, **kwargs)
    name, ragged = _name(f), input._ragged_idx
    dim = kwargs.pop("axis", dim)
    if dim is None or isinstance(dim, (tuple, list)) and not dim:
        return f(contiguous(input)._held, **kwargs)
    many = isinstance(dim, (tuple, list))
    dims = {axis(d, input.dim()) for d in (dim if many else (dim,))}
    if 0 in dims and ragged not in dims:
        raise ShapeError(f"{name}(): reducing along the batch dimension but not the ragged "
                         "dimension is not supported for nested tensors")
    inner: Any = sorted(d - 1 for d in dims if d)
    if ragged not in dims:
        found = f(input._held, inner if many else inner[0], keepdim=keepdim, **kwargs)
        return _wrapped(input, found, ragged if keepdim else ragged - sum(
            d < ragged for d in dims))
    if 0 in dims:
        found = f(contiguous(input)._held, inner, keepdim=keepdim, **kwargs)
        return found.unsqueeze(0) if keepdim else found
    if len(dims) > 1:
        raise ShapeError(f"{name}(): reducing along a ragged and non-batch dimension is not "
                         "supported for nested tensors")
    if input._lengths is not None:
        raise NotSupported(f"{name}(): reducing across the ragged dimension is not supported for "
                           "non-contiguous nested tensors with holes")
    full = padded(input, _NEUTRAL[name](input._held.array.dtype))
    if name != "mean":
        return f(full, [ragged] if many else ragged, keepdim=keepdim, **kwargs)
    total = F["sum"](full, ragged, True, **kwargs)
    counts = wrap(input.starts_and_lengths()[1].astype(total.array.dtype))
    found = total / counts.reshape(-1, *(1,) * (input.dim() - 1))
    return found if keepdim else found.squeeze(ragged)


def contiguous(t: NestedTensor) -> NestedTensor:
    """Without holes."""
    return t if t._lengths is None else jagged_of(t.parts(), t._ragged_idx)


@rules(RULES, "softmax", "log_softmax", "softmin")
def softmax(f: Any, input: NestedTensor, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Along an axis of each part."""
    if dim is None:
        raise ArgumentError(f"{_name(f)}(): dim must be given for nested tensors")
    dim = axis(dim, input.dim())
    if not dim:
        raise ShapeError(f"{_name(f)}(): not supported when reducing across the batch dimension "
                         "for NestedTensor")
    if dim != input._ragged_idx:
        return input._with(f(input._held, dim - 1, *args, **kwargs))
    if _name(f) != "softmax":
        raise ShapeError(f"{_name(f)}(): not supported when reducing along the ragged dimension "
                         "for NestedTensor")
    if input._lengths is not None:
        raise NotSupported("softmax(): not supported where dim is the ragged dim for nested "
                           "tensors with holes")
    return input._with(_rows_of(f(padded(input, -math.inf), dim, *args, **kwargs), input))


# ------------------------------------------------------------------ layers
def _trailing(f: Any, t: NestedTensor, count: int = 1) -> None:
    if t._ragged_idx >= t.dim() - count:
        raise ArgumentError(f"{_name(f)}(): the last {count} axes of a nested tensor "
                            f"{tuple(t._size)} must not be ragged: transpose it first")


@rules(RULES, "layer_norm", "rms_norm")
def norm(f: Any, input: NestedTensor, normalized_shape: Any, *args: Any, **kwargs: Any) -> Any:
    """Over the last axes."""
    _trailing(f, input, len(normalized_shape))
    return input._with(f(input._held, normalized_shape, *args, **kwargs))


@rules(RULES, "linear")
def linear(f: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    """Over the last axis."""
    if not isinstance(input, NestedTensor):
        raise NotSupported("linear(): the weight of a linear layer cannot be nested")
    _trailing(f, input)
    return input._with(f(input._held, weight, bias))


@rules(RULES, "embedding")
def embedding(f: Any, input: NestedTensor, weight: Any, *args: Any, **kwargs: Any) -> Any:
    """Rows of the weight."""
    return input._with(f(input._held, weight, *args, **kwargs))


@rules(RULES, "matmul", "bmm", "mm", "__matmul__", "__rmatmul__")
def matmul(f: Any, a: Any, b: Any) -> Any:
    """Products of matrices, part by part."""
    if f.__name__ == "__rmatmul__":
        a, b, f = b, a, F["matmul"]
    shapes = [tuple(x._size) if isinstance(x, NestedTensor) else x.shape for x in (a, b)]
    ra, rb = (x._ragged_idx - x.dim() if isinstance(x, NestedTensor) else 0 for x in (a, b))
    if not rb and ra < -1:
        if b.dim() <= 2:
            return a._with(F["matmul"](a._held, b))
        if b.dim() == a.dim():
            if b.shape[0] not in (1, a.array.shape[0]):
                raise ShapeError(f"The size of tensor a ({a.array.shape[0]}) must match the size "
                                 f"of tensor b ({b.shape[0]}) at non-singleton dimension 0")
            return a._with(_rows_of(F["matmul"](padded(a, 0), b), a))
    if ra == -1 and rb == -2 and a._size[-1] == b._size[-2]:
        return F["matmul"](padded(a, 0), padded(b, 0))
    raise ShapeError(f"matmul(): not supported between inputs of shapes {shapes[0]} and "
                     f"{shapes[1]}")


@rules(RULES, "scaled_dot_product_attention")
def attention(f: Any, query: Any, key: Any, value: Any, attn_mask: Any = None,
              dropout_p: float = 0.0, is_causal: bool = False, **kwargs: Any) -> Any:
    """Within each part."""
    nested = [isinstance(x, NestedTensor) for x in (query, key, value)]
    if not all(nested):
        raise ArgumentError("Expected query, key, and value to be nested tensors, but got "
                            f"query.is_nested: {nested[0]}, key.is_nested: {nested[1]}, and "
                            f"value.is_nested: {nested[2]} instead.")
    if attn_mask is not None:
        raise ArgumentError("Masks are not yet supported!")
    if len({x.dtype for x in (query, key, value)}) > 1:
        raise ArgumentError("Expected query, key, and value to have the same dtype, but got "
                            f"query.dtype: {query.dtype}, key.dtype: {key.dtype}, and value.dtype: "
                            f"{value.dtype} instead.")
    parts = [f(q, k, v, None, dropout_p, is_causal, **kwargs) for q, k, v in zip(
        query.parts(), key.parts(), value.parts(), strict=True)]
    like = query if query._lengths is None else jagged_of(query.parts(), query._ragged_idx)
    return like._with(F["cat"](parts, query._ragged_idx - 1))


# ------------------------------------------------------------------ shape
@rules(RULES, "transpose", "swapaxes", "swapdims", "transpose_copy")
def transpose(f: Any, input: NestedTensor, dim0: int, dim1: int) -> Any:
    """Two axes of the parts exchanged."""
    a, b = (axis(d, input.dim()) for d in (dim0, dim1))
    if a == b:
        return input
    if not a or not b:
        raise ArgumentError("Transpose is not supported on the batch dimension for jagged NT")
    ragged = {a: b, b: a}.get(input._ragged_idx, input._ragged_idx)
    return input._with(F["transpose"](input._held, a - 1, b - 1), ragged)


RULES["mT"] = lambda f, input: transpose(f, input, -2, -1)
RULES["T"] = lambda f, input: permute(f, input, *range(input.dim())[::-1])


@rules(RULES, "permute")
def permute(f: Any, input: NestedTensor, *dims: Any) -> Any:
    """The axes of the parts in another order."""
    given = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    order = [axis(d, input.dim()) for d in given]
    if sorted(order) != list(range(input.dim())):
        raise ShapeError(f"permute(): number of dimensions in the tensor input does not match the "
                         f"length of the desired ordering of dimensions, got {tuple(given)} for "
                         f"{tuple(input._size)}")
    if order[0]:
        raise ArgumentError("Permute is not supported on the batch dimension for jagged NT")
    return input._with(input._held.permute([d - 1 for d in order[1:]]),
                       order.index(input._ragged_idx))


def _cannot_view(f: Any, t: NestedTensor, shape: Any) -> ShapeError:
    return ShapeError(f"view(): cannot view shape {tuple(t._size)} as {list(shape)}")


@rules(RULES, "view", "reshape", "view_as", "reshape_as")
def view(f: Any, input: NestedTensor, *shape: Any) -> Any:
    """Other extents before and after the ragged axis, which has its symbol or -1."""
    if not isinstance(input, NestedTensor):
        raise ShapeError(f"{_name(f)}(): a dense tensor has no ragged axis")
    if len(shape) == 1 and type(shape[0]).__name__ == "DType":
        return input._with(f(input._held, *shape))
    given = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else (
        shape[0]._size if isinstance(shape[0], NestedTensor) else shape)
    batch, ragged, symbol = input.array.shape[0], input._ragged_idx, input._size[input._ragged_idx]
    symbols = [d for d, n in enumerate(given) if isinstance(n, NestedInt)]
    at = symbols[0] if symbols else ragged
    if (len(given) < 2 or given[0] not in (batch, -1) or at >= len(given)
            or len(symbols) > 1 or given[at] not in (symbol, -1)):
        raise _cannot_view(f, input, given)
    before, after = input._held.shape[:ragged - 1], input._held.shape[ragged:]
    made: list[Any] = []
    for new, old in ((given[1:at], before), (given[at + 1:], after)):
        total, known = math.prod(old), math.prod(n for n in new if n != -1)
        if list(new).count(-1) > 1 or (total != known if -1 not in new else
                                       not known or total % known):
            raise _cannot_view(f, input, given)
        made.append([total // known if n == -1 else n for n in new])
    inner = (*made[0], input._held.shape[ragged - 1], *made[1])
    return input._with(M["reshape" if "reshape" in f.__name__ else "view"](input._held, inner), at)


@rules(RULES, "flatten")
def flatten(f: Any, input: NestedTensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Axes beside the ragged one as one."""
    a, b = (axis(d, input.dim()) for d in (start_dim, end_dim))
    if a == b:
        return input
    if not a:
        _no_axis(f, 0, input)
    if a <= input._ragged_idx <= b:
        _no_axis(f, input._ragged_idx, input)
    return input._with(f(input._held, a - 1, b - 1),
                       input._ragged_idx - (b - a if b < input._ragged_idx else 0))


@rules(RULES, "unflatten")
def unflatten(f: Any, input: NestedTensor, dim: int, sizes: Any) -> Any:
    """An axis beside the ragged one as several."""
    d = axis(dim, input.dim())
    _no_axis(f, d, input)
    return input._with(f(input._held, d - 1, sizes),
                       input._ragged_idx + (len(sizes) - 1 if d < input._ragged_idx else 0))


@rules(RULES, "unsqueeze")
def unsqueeze(f: Any, input: NestedTensor, dim: int) -> Any:
    """An axis of extent 1 more."""
    d = axis(dim, input.dim() + 1)
    if not d:
        _no_axis(f, 0, input)
    return input._with(f(input._held, d - 1), input._ragged_idx + (d <= input._ragged_idx))


@rules(RULES, "squeeze")
def squeeze(f: Any, input: NestedTensor, dim: Any = None) -> Any:
    """Without an axis of extent 1."""
    if dim is None:
        raise NotSupported("aten.squeeze.default of a nested tensor: name the axis")
    dims = {axis(d, input.dim()) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))}
    for d in dims:
        _no_axis(f, d, input)
    gone = [d for d in dims if input._held.shape[d - 1] == 1]
    return input._with(f(input._held, [d - 1 for d in gone]) if gone else input._held,
                       input._ragged_idx - sum(d < input._ragged_idx for d in gone))


@rules(RULES, "expand", "expand_as")
def expand(f: Any, input: Any, *sizes: Any) -> Any:
    """Axes of extent 1 repeated."""
    given = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    if isinstance(given[0], NestedTensor):
        given = given[0]._size
    if not isinstance(input, NestedTensor):
        raise NotSupported("expand(): a dense tensor is not expanded to a nested shape; functions "
                           "of elements broadcast it")
    ragged = input._ragged_idx
    fits = len(given) == input.dim() and given[0] in (-1, input.array.shape[0]) and (
        given[ragged] in (-1, input._size[ragged]))
    if not fits:
        raise ShapeError(f"expand(): cannot expand shape {tuple(input._size)} -> {tuple(given)}")
    return input._with(M["expand"](input._held, tuple(
        -1 if isinstance(n, NestedInt) else n for n in given[1:])))


@rules(RULES, "select", "narrow", "slice", "split", "split_with_sizes", "unsafe_split", "diff")
def along(f: Any, input: NestedTensor, *args: Any, **kwargs: Any) -> Any:
    """Part of an axis beside the ragged one; with `select` of the first axis, a part."""
    last = _name(f) in ("split", "split_with_sizes", "unsafe_split", "diff")
    if last:
        first, args = args[:1], args[1:]
    dim = args[0] if args else kwargs.pop("dim", -1 if _name(f) == "diff" else 0)
    args = args[1:]
    d = axis(dim, input.dim())
    if not d and _name(f) == "select":
        return _part(input, *args, *kwargs.values())
    _no_axis(f, d, input)
    found = (f(input._held, *first, dim=d - 1, **kwargs) if last
             else f(input._held, d - 1, *args, **kwargs))
    if isinstance(found, (tuple, list)):
        return tuple(input._with(x) for x in found)
    return input._with(found, input._ragged_idx - (
        _name(f) == "select" and d < input._ragged_idx))


@rules(RULES, "chunk", "unsafe_chunk")
def chunk(f: Any, input: NestedTensor, chunks: int, dim: int = 0) -> Any:
    """Groups of parts, or pieces of an axis beside the ragged one."""
    d = axis(dim, input.dim())
    if d:
        _no_axis(f, d, input)
        return tuple(input._with(x) for x in f(input._held, chunks, d - 1))
    if input._lengths is not None:
        raise NotSupported("chunk(): not supported for nested tensors with holes")
    batch, at = input.array.shape[0], input._offsets.array
    step, ragged = -(-batch // chunks) or 1, input._ragged_idx
    made = []
    for low in range(0, batch, step):
        bounds = at[low:min(low + step, batch) + 1]
        piece = F["narrow"](input._held, ragged - 1, int(bounds[0]), int(bounds[-1] - bounds[0]))
        made.append(NestedTensor(piece, wrap(bounds - bounds[0]), _ragged_idx=ragged))
    return tuple(made)


@rules(RULES, "cat", "concat", "concatenate", "stack")
def join(f: Any, tensors: Any, dim: int = 0, **kwargs: Any) -> Any:
    """Along an axis beside the ragged one."""
    like = _nested(tensors)
    more = _name(f) == "stack"
    d = axis(dim, like.dim() + more)
    if not d or not more:
        _no_axis(f, d, like)
    inner = [aligned(f, t, like) for t in tensors]
    return like._with(f(inner, d - 1, **kwargs), like._ragged_idx + (
        more and d <= like._ragged_idx))


def _part(t: NestedTensor, index: Any) -> Any:
    i, n = int(index), t.array.shape[0]
    if not -n <= i < n:
        raise IndexOutOfRange(f"index {i} is out of range for a nested tensor of {n} parts: tuple "
                              "index out of range")
    starts, lengths = t.starts_and_lengths()
    return F["narrow"](t._held, t._ragged_idx - 1, int(starts[i]), int(lengths[i]))


@rules(RULES, "__getitem__")
def getitem(f: Any, input: NestedTensor, index: Any) -> Any:
    """A part, or a place of an axis beside the ragged one."""
    items = spelled_out(index, input.dim())
    for item in items:
        if isinstance(item, (list, np.ndarray)) or isinstance(item, Tensor) and item.dim():
            raise NotSupported("aten.index.Tensor of a nested tensor: index its values()")
    found, dim = input, 0
    for k, item in enumerate(items):
        if item is Ellipsis:
            dim += 1
        elif item is None:
            found, dim = M["unsqueeze"](found, dim), dim + 1
        elif isinstance(item, slice):
            if dim in (0, found._ragged_idx):
                where = "ragged dim" if dim else "dim=0"
                raise ShapeError(f"slice(): not supported for NestedTensor on {where}")
            found = found._with(found._held[(slice(None),) * (dim - 1) + (item,)])
            dim += 1
        elif not dim:
            rest = tuple(items[k + 1:])
            part = _part(found, item)
            return part[rest] if rest else part
        else:
            found = M["select"](found, dim, int(item))
    return found


@rules(RULES, "is_same_size")
def is_same_size(f: Any, input: Any, other: Any) -> bool:
    """Whether the shapes are the same, ragged extents included."""
    return isinstance(input, NestedTensor) and isinstance(other, NestedTensor) and (
        input._size == other._size)


__all__ = ["RULES", "extent_of", "padded"]
