"""What functions do to nested tensors of layout strided: functions of elements go to the buffer,
others to each part."""
from __future__ import annotations

import itertools
import math
from typing import Any

from adjoint.base.errors import ArgumentError, DTypeError, IndexOutOfRange, NotSupported, ShapeError
from adjoint.core.tensor import Tensor
from adjoint.holders import CONVERTS, Rule, held, rules
from adjoint.nested.tensor import StridedNested, axis, in_order, spelled_out, strided_of
from adjoint.ops.public import FUNCTIONS as F
from adjoint.ops.public import METHODS as M

RULES: dict[str, Rule] = {}
StridedNested.RULES = RULES
_COMPARES = ("eq", "ge", "gt", "greater", "greater_equal")
# What PyTorch has of functions of elements in this layout.
_POINTWISE = """abs absolute add alpha_dropout clone conj conj_physical cos detach div divide
dropout eq feature_alpha_dropout ge gelu greater greater_equal gt isinf isnan isneginf isposinf
isreal logical_not masked_fill mul multiply neg negative positive relu sgn silu sin softsign sqrt
sub subtract tanh tanhshrink true_divide __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__
__truediv__ __neg__ __pos__ __abs__ __eq__ __ge__ __gt__""".split()
_WRITES = """abs_ absolute_ add_ fill_ logical_not_ mul_ multiply_ neg_ negative_ normal_ relu_ sgn_
tanh_ zero_ __iadd__ __imul__""".split()


def _name(f: Any) -> str:
    name: str = f.__name__
    return name.strip("_")


# ------------------------------------------------------------------ elements
def _operands(f: Any, args: Any) -> tuple[StridedNested, list[Any]]:
    """The operand that says where the parts are, and all of them as tensors of such parts."""
    like = next(a for a in args if isinstance(a, StridedNested))
    made = []
    for i, a in enumerate(args):
        if isinstance(a, StridedNested):
            if i and _name(f) in _COMPARES:
                raise ShapeError(f"{_name(f)} does not support nested tensor as other value.")
            if a.sizes != like.sizes:
                raise ShapeError(f"{_name(f)} does not support broadcasting when given a "
                                 f"NestedTensor: parts of {a.sizes} and {like.sizes}")
            a = a if (a.steps, a.starts) == (like.steps, like.starts) else (
                like._with(strided_of(a.parts())._held) if like.is_contiguous() else None)
            if a is None:
                return _operands(f, [contiguous(x) if isinstance(x, StridedNested) else x
                                     for x in args])
        elif isinstance(a, Tensor) and a.dim():
            which = ("self", "other") if args[0] is like else ("other", "self")
            raise ShapeError(f"Expected both self and other to be nested, but got a nested "
                             f"{which[0]} and non-nested {which[1]} (operand {i}): "
                             "the layout jagged broadcasts")
        made.append(held(a))
    return like, made


@rules(RULES, *_POINTWISE)
def pointwise(f: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of elements, on the buffer."""
    like, operands = _operands(f, args)
    found = f(*operands, **kwargs)
    return found if found is NotImplemented else like._with(found)


@rules(RULES, *_WRITES)
def write(f: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """The same, in place."""
    like, operands = _operands(f, (input, *args))
    f(*operands, **kwargs)
    return input


@rules(RULES, "copy_")
def copy_(f: Any, input: StridedNested, src: Any, non_blocking: bool = False) -> Any:
    """Write the parts of another nested tensor."""
    if not isinstance(src, StridedNested):
        raise ShapeError("copy_ only supports Nested Tensor as source, got a dense tensor")
    if src.sizes != input.sizes:
        raise ShapeError("copy_ only supports tensors that are the same size for Nested "
                         "implementations")
    for mine, theirs in zip(input.parts(), src.parts(), strict=True):
        mine.copy_(theirs)
    return input


@rules(RULES, *CONVERTS, "to", "type", "alias", "zeros_like", "ones_like", "empty_like", "apply_")
def convert(f: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Another dtype, other memory, or other values in the same shape."""
    found = f(input._held, *map(held, args), **kwargs)
    if isinstance(found, str):
        return found
    return input if found is input._held else input._with(found)


@rules(RULES, "new_tensor")
def new_tensor(f: Any, input: StridedNested, data: Any, **kwargs: Any) -> Any:
    """A dense tensor of the same dtype."""
    return f(input._held, data, **kwargs)


@rules(RULES, "contiguous")
def _contiguous(f: Any, input: StridedNested, memory_format: Any = None) -> Any:
    """The parts end to end, each in C order."""
    return contiguous(input)


def contiguous(t: StridedNested) -> StridedNested:
    """The parts end to end, each in C order."""
    return t if t.is_contiguous() else strided_of(t.parts(), t.rank, t._held)


# ------------------------------------------------------------------ parts
def each(f: Any, t: StridedNested, *args: Any, **kwargs: Any) -> StridedNested:
    """A function on each part."""
    return strided_of([f(p, *args, **kwargs) for p in t.parts()], t.rank, t._held)


def _inner(f: Any, t: StridedNested, dim: int, what: str) -> int:
    at = axis(dim, t.rank)
    if not at:
        raise ShapeError(what)
    return at - 1


@rules(RULES, "unbind")
def unbind(f: Any, input: StridedNested, dim: int = 0) -> Any:
    """Views of the parts."""
    if axis(dim, input.rank):
        raise ShapeError("NestedTensor can only be unbound along dimension 0 got dimension "
                         f"{dim} instead.")
    return tuple(input.parts())


def _part(t: StridedNested, index: Any) -> Any:
    i, n = int(index), len(t.sizes)
    if not -n <= i < n:
        raise IndexOutOfRange(f"index {i} is out of bounds for dimension 0 with size {n}")
    i %= n
    return StridedNested(t._held, t.sizes[i:i + 1], t.steps[i:i + 1], t.starts[i:i + 1]).parts()[0]


@rules(RULES, "select")
def select(f: Any, input: StridedNested, dim: int, index: int) -> Any:
    """A part, or one place of an axis of every part."""
    at = axis(dim, input.rank)
    if not at:
        return _part(input, index)
    for size in input.sizes:
        if not -size[at - 1] <= index < size[at - 1]:
            raise IndexOutOfRange(f"select(): index {index} out of range for a part of size "
                                  f"{list(size)} at dimension {at - 1}")
    made = []
    for size, step, start in zip(input.sizes, input.steps, input.starts, strict=True):
        made.append((size[:at - 1] + size[at:], step[:at - 1] + step[at:],
                     start + (index % size[at - 1]) * step[at - 1]))
    sizes, steps, starts = zip(*made, strict=True)
    return StridedNested(input._held, sizes, steps, starts, input.rank - 1)


@rules(RULES, "__getitem__")
def getitem(f: Any, input: StridedNested, index: Any) -> Any:
    """A part, or one place of an axis of every part."""
    items = spelled_out(index, input.rank)
    found, dim = input, 0
    for k, item in enumerate(items):
        if item is Ellipsis:
            dim += 1
        elif item is None:
            found, dim = M["unsqueeze"](found, dim), dim + 1
        elif isinstance(item, (slice, list)) or isinstance(item, Tensor) and item.dim():
            StridedNested._refused(f, "slice.Tensor")
        elif not dim:
            part = _part(found, item)
            return part[tuple(items[k + 1:])] if items[k + 1:] else part
        else:
            found = M["select"](found, dim, int(item))
    return found


@rules(RULES, "narrow")
def narrow(f: Any, input: StridedNested, dim: int, start: int, length: int) -> Any:
    """Some of the parts."""
    at, n = axis(dim, input.rank), len(input.sizes)
    if at:
        raise ShapeError(f"narrow(): only dim=0 supported for nested tensors, but got: {dim}")
    if not 0 <= start <= start + length <= n:
        raise ShapeError(f"narrow(): start ({start}) + length ({length}) exceeds the number of "
                         f"parts ({n})")
    chosen = slice(start, start + length)
    return strided_of(input.parts()[chosen], input.rank, input._held)


@rules(RULES, "chunk", "split", "split_with_sizes")
def pieces(f: Any, input: StridedNested, count: Any, dim: int = 0) -> Any:
    """Pieces of the last axis: views."""
    name = _name(f)
    if name == "split" and isinstance(count, int):
        StridedNested._refused(f, "split.Tensor")
    if axis(dim, input.rank) != input.rank - 1 or input.rank == 1:
        raise ShapeError(f"{name.split('_')[0].capitalize()} for nested tensors is currently only "
                         "supported for the last dimension.")
    wide = input.size(-1)
    if name == "chunk":
        if count < 1 or wide % count:
            raise ShapeError(f"Chunk for nested tensors is only supported for nested tensors with "
                             f"trailing dimension divisible by chunks, got: {wide} % {count} = "
                             f"{wide % max(count, 1)}")
        count = [wide // count] * count
    if sum(count) != wide:
        raise ShapeError(f"split_with_sizes expects split_sizes to sum exactly to {wide} (input "
                         f"tensor's size at dimension -1), but got split_sizes={list(count)}")
    made, first = [], 0
    for n in count:
        made.append(StridedNested(input._held, [(*s[:-1], n) for s in input.sizes], input.steps, [
            at + first * step[-1] for at, step in zip(input.starts, input.steps, strict=True)],
            input.rank))
        first += n
    return tuple(made)


@rules(RULES, "to_padded_tensor")
def to_padded_tensor(f: Any, input: StridedNested, padding: float, output_size: Any = None) -> Any:
    """The parts in one dense tensor."""
    if not input.sizes:
        return input._held.reshape(0)
    extents = [len(input.sizes), *(max(n) for n in zip(*input.sizes, strict=True))]
    if output_size is not None:
        if len(output_size) != len(extents) or any(
                n < m for n, m in zip(output_size, extents, strict=True)):
            raise ShapeError("Value in output_size is less than NestedTensor padded size. "
                             f"Truncation is not supported: {list(output_size)} for {extents}")
        extents = list(output_size)
    made = []
    for p in input.parts():
        ends = [(0, big - n) for n, big in zip(p.shape, extents[1:], strict=True)]
        made.append(F["constant_pad_nd"](p, list(itertools.chain(*reversed(ends))), padding)
                    if ends else p)
    dense = F["stack"](made)
    extra = extents[0] - len(made)
    return dense if not extra else F["cat"]([dense, dense.new_full((extra, *extents[1:]), padding)])


# ------------------------------------------------------------------ layers
@rules(RULES, "softmax")
def softmax(f: Any, input: StridedNested, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Along an axis of each part."""
    at = axis(dim, input.rank)
    if not at:
        raise ShapeError("Cannot apply softmax across nested dimension 0")
    return each(f, input, at - 1, *args, **kwargs)


@rules(RULES, "sum")
def total(f: Any, input: StridedNested, dim: Any = None, keepdim: bool = False,
          **kwargs: Any) -> Any:
    """Along the last axis, which is kept."""
    if dim is None:
        StridedNested._refused(f, "sum")
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    if len(dims) != 1:
        raise ShapeError("NestedTensor only allows reduction of a single dimension for now.")
    at = axis(dims[0], input.rank)
    if at != input.rank - 1:
        raise ShapeError("NestedTensor can only be reduced across the last dimension for now got "
                         f"dimension {at} instead.")
    if not keepdim:
        raise ShapeError("NestedTensor always requires keepdim=True for now.")
    return each(f, input, -1, True, **kwargs)


@rules(RULES, "all", "any")
def logical(f: Any, input: StridedNested, dim: Any = None, keepdim: bool = False) -> Any:
    """Of every element."""
    if dim is not None:
        raise DTypeError(f"{_name(f)} only supports bool tensor for result of a nested tensor "
                         "without dim")
    if _name(f) == "any":
        StridedNested._refused(f, "any")
    return f(contiguous(input)._held)


@rules(RULES, "linear")
def linear(f: Any, input: StridedNested, weight: Any, bias: Any = None) -> Any:
    """Over the last axis."""
    if input.rank != 3:
        raise ShapeError("Linear requires nested_tensor.dim == 3 and dense_matrix.dim == 2. Nested "
                         f"tensor dim: {input.rank}. Dense tensor dim: {weight.dim()}")
    wide = input.size(-1)
    if wide != weight.shape[-1]:
        raise ShapeError("Shape mismatch for NestedTensor Linear: Expected input's (a nested "
                         "tensor) 'last_dim' to equal 'weight.size(1), but got: last_dim = "
                         f"{wide}, and weight.size(1) = {weight.shape[-1]}")
    return _by_rows(f, input, weight.shape[0], weight, bias)


def _by_rows(f: Any, input: StridedNested, wide: int, *args: Any, **kwargs: Any) -> StridedNested:
    """A function of the last axis, on all rows of all parts at once."""
    t = contiguous(input)
    rows = f(t._held.reshape(-1, input.size(-1)), *args, **kwargs)
    return StridedNested(rows.reshape(-1), [(*s[:-1], wide) for s in t.sizes], rank=t.rank)


@rules(RULES, "layer_norm")
def layer_norm(f: Any, input: StridedNested, normalized_shape: Any, weight: Any = None,
               bias: Any = None, eps: float = 1e-5) -> Any:
    """Over the last axes, which are the same in all parts."""
    if weight is None or bias is None:
        raise ArgumentError("NestedTensor layer_norm requires weight and bias")
    last = tuple(normalized_shape)
    if any(s[-len(last):] != last for s in input.sizes):
        raise ShapeError("normalized_shape extends into irregular dimensions for the nested "
                         f"tensor: {last}")
    return each(f, input, last, weight, bias, eps)


@rules(RULES, "embedding")
def embedding(f: Any, input: StridedNested, weight: Any, *args: Any, **kwargs: Any) -> Any:
    """Rows of the weight."""
    t = contiguous(input)
    rows = f(t._held, weight, *args, **kwargs)
    return StridedNested(rows.reshape(-1), [(*s, weight.shape[1]) for s in t.sizes],
                         rank=t.rank + 1)


@rules(RULES, "bmm", "matmul", "__matmul__")
def matmul(f: Any, a: Any, b: Any) -> Any:
    """Products of matrices, part by part."""
    name = "bmm" if _name(f) == "bmm" else "matmul"
    nested = [isinstance(x, StridedNested) for x in (a, b)]
    if name == "matmul" and not all(nested):
        said = ["nested" if n else "non-nested" for n in nested]
        raise ShapeError(f"Expected both to be nested, but got a {said[0]} self and {said[1]} "
                         "other")
    if name == "bmm":
        for i, x in enumerate((a, b)):
            if x.dim() != 3:
                raise ShapeError(f"batch{i + 1} must be a 3D tensor")
    if a.size(0) != b.size(0):
        raise ShapeError(f"Expected size for the 1st dimension of batch2 tensor to be: "
                         f"{a.size(0)} but got: {b.size(0)}.")
    made = []
    for i, (x, y) in enumerate(zip(*(t.parts() if isinstance(t, StridedNested) else t.unbind()
                                     for t in (a, b)), strict=True)):
        if x.dim() < 2 or y.dim() < 2:
            raise ShapeError("matmul: For nested tensors, only inputs with >= 3 dims are currently "
                             f"supported. 1st input has rank: {a.dim()}")
        if x.shape[-1] != y.shape[-2]:
            raise ShapeError(f"{i}-th nested matrices in batch cannot be multiplied "
                             f"({x.shape[-2]}x{x.shape[-1]} and {y.shape[-2]}x{y.shape[-1]})")
        if x.shape[:-2] != y.shape[:-2]:
            raise ShapeError("matmul: For nested tensors, batch dimensions must have the same "
                             f"sizes, in part {i} they are {list(x.shape)} and {list(y.shape)}")
        made.append(F["matmul"](x, y))
    return strided_of(made, a.dim())


@rules(RULES, "scaled_dot_product_attention")
def attention(f: Any, query: Any, key: Any, value: Any, attn_mask: Any = None,
              dropout_p: float = 0.0, is_causal: bool = False, **kwargs: Any) -> Any:
    """Within each part."""
    if attn_mask is not None:
        raise NotSupported("scaled_dot_product_attention: Nested tensors for query / key / value "
                           "are not supported with an attn_mask")
    if not all(isinstance(x, StridedNested) for x in (query, key, value)):
        raise ShapeError("scaled_dot_product_attention: Expected query, key, and value to all be "
                         "nested or all dense")
    made = [f(q, k, v, None, dropout_p, is_causal, **kwargs) for q, k, v in zip(
        query.parts(), key.parts(), value.parts(), strict=True)]
    return strided_of(made, query.rank)


# ------------------------------------------------------------------ shape
@rules(RULES, "transpose", "swapaxes", "swapdims")
def transpose(f: Any, input: StridedNested, dim0: int, dim1: int) -> Any:
    """Two axes of the parts exchanged: a view."""
    a, b = (axis(d, input.rank) for d in (dim0, dim1))
    if a == b:
        return input
    if not a or not b:
        raise ShapeError("Nested tensor dimension 0 cannot be transposed")

    def turned(numbers: Any) -> tuple[int, ...]:
        made = list(numbers)
        made[a - 1], made[b - 1] = made[b - 1], made[a - 1]
        return tuple(made)
    return StridedNested(input._held, [turned(s) for s in input.sizes],
                         [turned(s) for s in input.steps], input.starts, input.rank)


RULES["mT"] = lambda f, input: transpose(f, input, -2, -1)


@rules(RULES, "unsqueeze", "squeeze")
def one(f: Any, input: StridedNested, dim: Any = None) -> Any:
    """An axis of extent 1 more, or less: a view."""
    name = _name(f)
    if dim is None:
        raise ShapeError("For nested tensors, squeeze without the dim argument is not supported at "
                         "the moment")
    if isinstance(dim, (tuple, list)):
        raise NotSupported("squeeze(): the axes of a nested tensor are squeezed one at a time")
    at = axis(dim, input.rank + (name == "unsqueeze"))
    if not at:
        raise ShapeError(f"{name}(): For nested tensors, {name[:-1]}ing dimension 0 is not "
                         "supported at the moment: act on unbind()")
    if name == "unsqueeze":
        sizes = [(*s[:at - 1], 1, *s[at - 1:]) for s in input.sizes]
        steps = [(*p[:at - 1], s[at - 1] * p[at - 1] if at - 1 < len(s) else 1, *p[at - 1:])
                 for s, p in zip(input.sizes, input.steps, strict=True)]
        return StridedNested(input._held, sizes, steps, input.starts, input.rank + 1)
    if any(s[at - 1] != 1 for s in input.sizes):
        return input
    return StridedNested(input._held, [s[:at - 1] + s[at:] for s in input.sizes],
                         [s[:at - 1] + s[at:] for s in input.steps], input.starts, input.rank - 1)


def _new_sizes(f: Any, t: StridedNested, shape: Any) -> list[tuple[int, ...]]:
    """The sizes of the parts for `view` and `reshape`: -1 is an extent that the part had there, or
    one that is worked out."""
    name = _name(f).removesuffix("_as")
    if len(shape) < 2 or shape[0] != len(t.sizes):
        raise ShapeError(f"{name}: For now nested {name} cannot change or infer the implicit batch "
                         "dimension")
    made = []
    for old in t.sizes:
        new = [old[i] if n == -1 and i < len(old) else n for i, n in enumerate(shape[1:])]
        total = math.prod(old)
        if new.count(-1) == 1:
            known = math.prod(n for n in new if n != -1)
            new = [total // known if n == -1 and known else n for n in new]
        if math.prod(new) != total or -1 in new:
            raise ShapeError(f"shape '{list(shape)}' is invalid for input of size {total}")
        made.append(tuple(new))
    return made


@rules(RULES, "view", "reshape", "reshape_as")
def view(f: Any, input: StridedNested, *shape: Any) -> Any:
    """The same elements in other shapes, the number of parts unchanged."""
    if isinstance(shape[0], StridedNested):
        given: Any = shape[0]
        sizes = given.sizes
        if [math.prod(s) for s in sizes] != [math.prod(s) for s in input.sizes]:
            raise ShapeError("reshape_as: parts differ in their numbers of elements")
        rank = given.rank
    else:
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        sizes, rank = _new_sizes(f, input, tuple(given)), len(given)
    t = contiguous(input)
    if t is not input and _name(f) == "view":
        raise ShapeError("view size is not compatible with input tensor's size and stride (at least"
                         " one dimension spans across two contiguous subspaces). Use .reshape(...) "
                         "instead.")
    return StridedNested(t._held, sizes, rank=rank)


@rules(RULES, "cat", "concat", "concatenate")
def cat(f: Any, tensors: Any, dim: int = 0) -> Any:
    """More parts, or longer ones."""
    if not all(isinstance(t, StridedNested) for t in tensors):
        raise ShapeError("cat: expected each tensor in given list to be nested.")
    at = axis(dim, tensors[0].rank)
    parts = [t.parts() for t in tensors]
    if not at:
        return strided_of([p for many in parts for p in many], tensors[0].rank)
    if len({len(p) for p in parts}) > 1:
        raise ShapeError(f"cat: nested tensors of {[len(p) for p in parts]} parts")
    return strided_of([f(list(many), at - 1) for many in zip(*parts, strict=True)],
                      tensors[0].rank)


@rules(RULES, "is_same_size")
def is_same_size(f: Any, input: Any, other: Any) -> bool:
    """Whether all parts have the same shapes."""
    return isinstance(input, StridedNested) and isinstance(other, StridedNested) and (
        input.sizes == other.sizes)


__all__ = ["RULES", "contiguous", "in_order"]
