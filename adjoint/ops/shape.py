"""Records of ops that move no values: views, joins, repeats."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, inverse
from adjoint.base.dtypes import scalar_type
from adjoint.base.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError
from adjoint.core.bind import bind, function_of
from adjoint.core.op import Op, op, register
from adjoint.core.tensor import Tensor
from adjoint.ops.device import as_first, channels_last_of, copied, following, in_format, relaid

Shape = tuple[int, ...]


def normalize_dim(dim: int, ndim: int, name: str = "dim") -> int:
    """A dim in [-ndim, ndim) as one in [0, ndim)."""
    n = max(ndim, 1)
    if not -n <= dim < n:
        raise IndexOutOfRange(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}],"
                              f" but got {dim}) ({name} of a {ndim}-d tensor)")
    return dim % n


def integer(a: Any, what: str = "argument 'dim'") -> int:
    """What stands for an int among sizes or dims; TypeError for other numbers."""
    try:
        return int(a.__index__())
    except (AttributeError, TypeError):
        raise DTypeError(f"{what} must be tuple of ints, not {type(a).__name__}") from None


def integers(a: Any) -> tuple[int, ...]:
    """One int, or what stands for it (a tensor without axes), as a tuple of one; several."""
    try:
        return (a.__index__(),)
    except (AttributeError, TypeError):
        return tuple(a)


def normalize_dims(dims: Any, ndim: int) -> Shape:
    """None: all dims; an int or several: sorted as given, in [0, ndim), none twice."""
    if dims is None:
        return tuple(range(ndim))
    if not isinstance(dims, (tuple, list, range)):
        if isinstance(dims, bool):
            raise DTypeError("argument 'dim' must be tuple of ints, not bool")
        dims = (dims if type(dims) is int else integer(dims),)
    out = tuple([normalize_dim(d if type(d) is int else integer(d), ndim) for d in dims])
    if len(set(out)) != len(out):
        raise ArgumentError(f"dim {[d for d in out if out.count(d) > 1][0]} appears multiple times "
                            f"in the list of dims {tuple(dims)}")
    return out if ndim else ()


def unexpandable(have: Sequence[int], target: Sequence[int], dim: int) -> ShapeError:
    """The refusal of an expansion whose axis `dim` of the target does not fit."""
    lead = len(target) - len(have)
    return ShapeError(f"The expanded size of the tensor ({target[dim]}) must match the existing "
                      f"size ({have[dim - lead]}) at non-singleton dimension {dim}.  Target sizes: "
                      f"{list(target)}.  Tensor sizes: {list(have)}")


def refuse_expansion(have: Sequence[int], target: Sequence[int], whose: Any = None) -> None:
    """Raise ShapeError where a shape, of `whose`, does not expand to another; axes are looked at
    from the last one on, as in PyTorch."""
    lead = len(target) - len(have)
    if lead < 0:
        kind = "" if whose is None else scalar_type(getattr(whose, "array", whose).dtype)
        of = f"torch.{kind}Tensor{{{list(have)}}}"
        raise ShapeError(f"expand({of}, size={list(target)}): the number of sizes "
                         f"provided ({len(target)}) must be greater or equal to the number of "
                         f"dimensions in the tensor ({len(have)})")
    for dim in range(len(target) - 1, lead - 1, -1):
        if have[dim - lead] not in (1, target[dim]):
            raise unexpandable(have, target, dim)


def infer_size(shape: Sequence[int], size: int, have: Sequence[int]) -> Shape:
    """`shape` with its -1 filled in for `size` elements."""
    shape = tuple(int(s) for s in shape)
    holes = [i for i, s in enumerate(shape) if s == -1]
    if len(holes) > 1:
        raise ShapeError(f"only one dimension can be inferred, got shape {list(shape)}")
    if any(s < -1 for s in shape):
        at = next(i for i, s in enumerate(shape) if s < -1)
        raise ShapeError(f"invalid shape dimension {shape[at]} at index {at} of shape "
                         f"{list(shape)}")
    if holes:
        known = math.prod(s for s in shape if s != -1)
        if known == 0:
            if size:
                raise ShapeError(f"shape '{list(shape)}' is invalid for input of size {size}: its "
                                 "sizes multiply to 0")
            raise ShapeError(f"cannot reshape tensor of 0 elements into shape {list(shape)} "
                             "because the unspecified dimension size -1 can be any value and is "
                             "ambiguous")
        if size % known == 0:
            return tuple(size // known if s == -1 else s for s in shape)
    elif math.prod(shape) == size:
        return shape
    raise ShapeError(f"shape '{list(shape)}' is invalid for input of size {size} (the operand is "
                     f"{list(have)}: {' * '.join(map(str, have)) or 1} = {size})")


# ------------------------------------------------------------------ reshape
def _batch_reshape(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    return bind(op_, args, {"shape": (args[0].shape[0], *attrs["shape"])})


reshape_op: Any = op(
    "view", show="{x}", impl=lambda x, /, *, shape: x.reshape(shape),
    infer=lambda x, *, shape: Aval(infer_size(shape, x.size, x.shape), x.dtype),
    vjp={"x": lambda ct, x_aval: reshape_op(ct, shape=x_aval.shape)}, jvp={"x": None},
    batch=_batch_reshape, view=True, node="ViewBackward0")


def reshape(x: Any, shape: Sequence[int]) -> Any:
    """`x` in another shape of as many elements; a view where the strides allow it."""
    have = tuple(x.shape)
    return reshape_op(x, shape=infer_size(shape, math.prod(have), have))


def _unsqueezed(x: Aval, dim: int) -> Shape:
    return (*x.shape[:dim], 1, *x.shape[dim:])


def _squeezed(x: Any, dims: Shape) -> Any:
    # np.squeeze gives x itself where nothing falls away, and a view must be an array of its own
    return np.squeeze(x, axis=dims) if dims else x[...]


unsqueeze_op: Any = op(
    "unsqueeze", show="{x}", impl=lambda x, /, *, dim: x[_slicer(dim, None)],
    infer=lambda x, *, dim: Aval(_unsqueezed(x, dim), x.dtype),
    vjp={"x": lambda ct, *, dim: squeeze_op(ct, dims=(dim,))}, jvp={"x": None},
    batch=lambda op_, args, b, attrs: op_.call(args[0], dim=attrs["dim"] + 1), view=True)
squeeze_op: Any = op(
    "squeeze", show="{x}", impl=lambda x, /, *, dims: _squeezed(x, dims),
    infer=lambda x, *, dims: Aval(tuple(n for i, n in enumerate(x.shape) if i not in dims),
                                  x.dtype),
    vjp={"x": lambda ct, x_aval: reshape_op(ct, shape=x_aval.shape)}, jvp={"x": None},
    batch=lambda op_, args, b, attrs: op_.call(args[0], dims=tuple(d + 1 for d in attrs["dims"])),
    view=True, node="SqueezeBackward1")


# ------------------------------------------------------------------ permutations
def _batch_permute(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    return bind(op_, args, {"dims": (0, *(d + 1 for d in attrs["dims"]))})


permute_op: Any = op(
    "permute", impl=lambda x, /, *, dims: x.transpose(dims),
    infer=lambda x, *, dims: Aval(tuple(x.shape[d] for d in dims), x.dtype),
    vjp={"x": lambda ct, *, dims: permute_op(ct, dims=inverse(dims))}, jvp={"x": None},
    batch=_batch_permute, view=True)


def _swapped(x: Aval, a: int, b: int) -> Shape:
    s = list(x.shape)
    s[a], s[b] = s[b], s[a]
    return tuple(s)


transpose_op: Any = op(
    "transpose", show="{x}ᵀ", impl=lambda x, /, *, dim0, dim1: x.swapaxes(dim0, dim1),
    infer=lambda x, *, dim0, dim1: Aval(_swapped(x, dim0, dim1), x.dtype),
    vjp={"x": lambda ct, *, dim0, dim1: transpose_op(ct, dim0=dim0, dim1=dim1)},
    jvp={"x": None}, view=True,
    batch=lambda op_, args, b, attrs: op_.call(args[0], dim0=attrs["dim0"] + 1,
                                               dim1=attrs["dim1"] + 1))
t_op: Any = op("t", show="{x}ᵀ", impl=lambda x, /: x.T,
          infer=lambda x: Aval(x.shape[::-1], x.dtype),
          vjp={"x": lambda ct: t_op(ct)}, jvp={"x": None}, view=True, node="TBackward0",
          batch=lambda op_, args, b, attrs: transpose_op(args[0], dim0=1, dim1=2)
          if len(args[0].shape) == 3 else args[0])


def mT(x: Any) -> Any:
    """`x` with its last two axes swapped."""
    n = len(x.shape)
    return transpose_op(x, dim0=n - 2, dim1=n - 1)


# ------------------------------------------------------------------ expand, flip, roll
def _expand_infer(x: Aval, *, shape: Shape) -> Aval:
    lead = len(shape) - x.ndim
    if lead < 0 or any(n not in (1, m) for n, m in zip(x.shape, shape[max(lead, 0):],
                                                       strict=False)):
        raise ShapeError(f"The expanded size of the tensor {list(shape)} must match the existing "
                         f"size {list(x.shape)} at every axis that is not 1")
    return Aval(shape, x.dtype)


def _batch_expand(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    (x,), shape = args, attrs["shape"]
    own = x.shape[1:]
    x = reshape(x, (x.shape[0], *(1,) * (len(shape) - len(own)), *own))
    return bind(op_, (x,), {"shape": (x.shape[0], *shape)})


def expanded(x: Any, /, *, shape: Shape) -> Any:
    """A view, writable like its operand: PyTorch lets expanded tensors be written to. A number has
    memory of its own first."""
    x = np.asarray(x)
    if x.flags.c_contiguous and x.dtype.kind == "f":
        lead = len(shape) - x.ndim
        if shape[lead:] == x.shape:          # new axes in front alone: no step in memory
            return np.ndarray(shape, x.dtype, x, 0, (0,) * lead + x.strides)
        if lead >= 0 and all([n in (1, m) for n, m in zip(x.shape, shape[lead:], strict=True)]):
            steps = [0 if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True)]
            return np.ndarray(shape, x.dtype, x, 0, (*(0,) * lead, *steps))
    out = np.broadcast_to(x, shape)
    if x.flags.writeable:
        out.flags.writeable = True
    return out


expand_op: Any = op(
    "expand", show="{x}", impl=expanded, infer=_expand_infer,
    vjp={"x": lambda ct: ct}, jvp={"x": None}, batch=_batch_expand, view=True,
    why={})                                        # broadcasting is undone by the engine
flip_op: Any = op(
    "flip", impl=as_first(lambda x, /, *, dims: np.flip(x, dims).copy()),
    infer=lambda x, *, dims: x,
    vjp={"x": lambda ct, *, dims: flip_op(ct, dims=dims)}, jvp={"x": None},
    batch=lambda op_, args, b, attrs: op_.call(args[0], dims=tuple(d + 1 for d in attrs["dims"])))


def _rolled(x: Any, shifts: Shape, dims: Shape) -> Any:
    """Two parts of one axis change places; for several axes NumPy copies once."""
    x = np.ascontiguousarray(x)
    if len(dims) != 1 or not x.shape[dims[0]]:
        return np.roll(x, shifts, dims)
    before: tuple[Any, ...] = (slice(None),) * dims[0]
    cut = -shifts[0] % x.shape[dims[0]]
    parts = x[(*before, slice(cut, None))], x[(*before, slice(None, cut))]
    return np.concatenate(parts, dims[0])


roll_op: Any = op(
    "roll", impl=following(0)(lambda x, /, *, shifts, dims: _rolled(x, shifts, dims)),
    infer=lambda x, *, shifts, dims: x,
    vjp={"x": lambda ct, *, shifts, dims: roll_op(ct, shifts=tuple(-s for s in shifts),
                                                  dims=dims)},
    jvp={"x": None},
    batch=lambda op_, args, b, attrs: op_.call(args[0], shifts=attrs["shifts"],
                                               dims=tuple(d + 1 for d in attrs["dims"])))
clone_op: Any = op("clone", show="{x}", impl=lambda x, /: copied(x), infer=lambda x: x,
              vjp={"x": lambda ct: ct}, jvp={"x": None}, elementwise=True,
              batch=lambda op_, args, b, attrs: op_.call(args[0]))
relaid_op: Any = op(
    "relaid", show="{x}", impl=lambda x, /, *, axes: relaid(x, axes), infer=lambda x, *, axes: x,
    vjp={"x": lambda ct: ct}, jvp={"x": None}, node="CloneBackward0",
    batch=lambda op_, args, b, attrs: op_.call(args[0], axes=(
        0, *[d + 1 for d in attrs["axes"]])),
    domain=lambda: [((np.random.default_rng(0).normal(size=(2, 3, 2)),), {"axes": (0, 2, 1)})])
name_op: Any = op(
    "checkpoint_name", impl=lambda x, /, *, name: x.view(), infer=lambda x, *, name: x,
    vjp={"x": lambda ct: ct}, jvp={"x": None}, view=True, node="AliasBackward0",
    batch=lambda op_, args, b, attrs: op_.call(args[0], **attrs))
identity_op: Any = op("alias", show="{x}", impl=lambda x, /: x.view(), infer=lambda x: x,
                 vjp={"x": lambda ct: ct}, jvp={"x": None}, view=True,
                 batch=lambda op_, args, b, attrs: op_.call(args[0]))


# ------------------------------------------------------------------ joining and splitting
def _cat_infer(*xs: Aval, dim: int) -> Aval:
    first = xs[0]
    for i, x in enumerate(xs):
        same = x.ndim == first.ndim and all(
            n == m for j, (n, m) in enumerate(zip(x.shape, first.shape, strict=True)) if j != dim)
        if x.ndim != first.ndim:
            raise ShapeError(f"cat: Tensors must have same number of dimensions: got {first.ndim} "
                             f"and {x.ndim} (tensor 0 is {list(first.shape)}, tensor {i} is "
                             f"{list(x.shape)})")
        if not same:
            raise ShapeError(
                f"cat: Sizes of tensors must match except in dimension {dim}: tensor 0 is "
                f"{list(first.shape)}, tensor {i} is {list(x.shape)}")
    shape = list(first.shape)
    shape[dim] = sum(x.shape[dim] for x in xs)
    return Aval(tuple(shape), np.result_type(*(x.dtype for x in xs)))


def _cat_vjp(ct: Any, avals: Sequence[Aval], *, dim: int) -> tuple[Any, ...]:
    out, start = [], 0
    for a in avals:
        out.append(narrow_op(ct, dim=dim, start=start, length=a.shape[dim]))
        start += a.shape[dim]
    return tuple(out)


def lift_all(args: Sequence[Any], batched: Sequence[bool]) -> list[Any]:
    """Every operand with a batch axis in front: those without one are expanded."""
    size = next(a.shape[0] for a, b in zip(args, batched, strict=True) if b)
    return [a if b else expand_op(unsqueeze_op(a, dim=0), shape=(size, *a.shape))
            for a, b in zip(args, batched, strict=True)]


def _batch_cat(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    return bind(op_, lift_all(args, batched), {"dim": attrs["dim"] + 1})


def _cat_impl(*xs: Any, dim: int) -> Any:
    out = np.concatenate(xs, axis=dim)
    if not xs[0].flags.c_contiguous:
        form = channels_last_of(xs[0])
        if form is not None and all([channels_last_of(x) is form for x in xs]):
            return in_format(out, form)
    return out if out.flags.c_contiguous else np.ascontiguousarray(out)


cat_op: Any = op(
    "cat", impl=_cat_impl,
    infer=_cat_infer, vjp={"*": _cat_vjp}, jvp={"*": None}, batch=_batch_cat)


def _stack_infer(*xs: Aval, dim: int) -> Aval:
    for i, x in enumerate(xs):
        if x.shape != xs[0].shape:
            raise ShapeError(f"stack expects each tensor to be equal size, but got "
                             f"{list(xs[0].shape)} at entry 0 and {list(x.shape)} at entry {i}")
    s = xs[0].shape
    return Aval((*s[:dim], len(xs), *s[dim:]), np.result_type(*(x.dtype for x in xs)))


def _stack_impl(*xs: Any, dim: int) -> Any:
    shape, kind = xs[0].shape, np.result_type(*{x.dtype for x in xs})
    made = (*shape[:dim], len(xs), *shape[dim:])
    if dim == len(shape):
        at = _slicer(dim, None)
        return np.concatenate([x[at] for x in xs], dim, out=np.empty(made, kind))
    if not xs[0].flags.c_contiguous and channels_last_of(xs[0]) is not None:
        return _cat_impl(*xs, dim=dim).reshape(made)
    out = np.empty(made, kind)
    np.concatenate(xs, dim, out=out.reshape(*shape[:dim], len(xs) * shape[dim], *shape[dim + 1:]))
    return out


stack_op: Any = op(
    "stack", impl=_stack_impl, infer=_stack_infer,
    vjp={"*": lambda ct, avals, *, dim: tuple(select_op(ct, dim=dim, index=i)
                                              for i in range(len(avals)))},
    jvp={"*": None}, batch=_batch_cat)


def _slicer(dim: int, what: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * dim, what)


def _resized(x: Aval, dim: int, n: int) -> Aval:
    return Aval((*x.shape[:dim], n, *x.shape[dim + 1:]), x.dtype)


def _batch_dim(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    return op_.call(args[0], **{**attrs, "dim": attrs["dim"] + 1})


narrow_op: Any = op(
    "narrow", impl=lambda x, /, *, dim, start, length: x[_slicer(dim, slice(start,
                                                                          start + length))],
    infer=lambda x, *, dim, start, length: _resized(x, dim, length),
    vjp={"x": lambda ct, x_aval, *, dim, start, length: pad_zero(
        ct, dim, start, x_aval.shape[dim] - start - length)},
    jvp={"x": None}, view=True, node="SliceBackward0",
    batch=_batch_dim)
select_op: Any = op(
    "select", impl=lambda x, /, *, dim, index: x[(*_slicer(dim, index), ...)],
    infer=lambda x, *, dim, index: Aval((*x.shape[:dim], *x.shape[dim + 1:]), x.dtype),
    vjp={"x": lambda ct, x_aval, *, dim, index: among_zeros_op(
        ct, dim=dim, index=index % x_aval.shape[dim], size=x_aval.shape[dim])},
    jvp={"x": None}, view=True,
    batch=_batch_dim)


def _among_zeros_impl(x: Any, /, *, dim: int, index: int, size: int) -> Any:
    out = np.zeros((*x.shape[:dim], size, *x.shape[dim:]), x.dtype)
    out[(*_slicer(dim, index), ...)] = x
    return out


among_zeros_op: Any = op(
    "select_backward", impl=_among_zeros_impl,
    infer=lambda x, *, dim, index, size: Aval((*x.shape[:dim], size, *x.shape[dim:]), x.dtype),
    vjp={"x": lambda ct, *, dim, index: select_op(ct, dim=dim, index=index)}, jvp={"x": None},
    batch=_batch_dim, node="SelectBackwardBackward0")


@following(0)
def _pad_zero_impl(x: Any, /, *, pads: Any) -> Any:
    out = np.zeros([n + a + b for n, (a, b) in zip(x.shape, pads, strict=True)], x.dtype)
    out[tuple([slice(a, a + n) for n, (a, _) in zip(x.shape, pads, strict=True)])] = x
    return out


pad_zero_op: Any = op(
    "constant_pad_zero", impl=_pad_zero_impl,
    infer=lambda x, *, pads: Aval(tuple(n + a + b for n, (a, b) in zip(x.shape, pads,
                                                                      strict=True)), x.dtype),
    vjp={"x": lambda ct, x_aval, *, pads: unpad(ct, pads, x_aval.shape)}, jvp={"x": None},
    batch=lambda op_, args, b, attrs: op_.call(args[0], pads=((0, 0), *attrs["pads"])),
    node="ConstantPadNdBackward0")


def pad_zero(x: Any, dim: int, before: int, after: int) -> Any:
    """Zeros before and after along one axis."""
    pads = [(0, 0)] * len(x.shape)
    pads[dim] = (before, after)
    return pad_zero_op(x, pads=tuple(pads))


def unpad(ct: Any, pads: Sequence[tuple[int, int]], shape: Shape) -> Any:
    """The inner block that `pads` surrounds."""
    for dim, (before, after) in enumerate(pads):
        if before or after:
            ct = narrow_op(ct, dim=dim, start=before, length=shape[dim])
    return ct


def _split_impl(x: Any, /, *, sizes: Shape, dim: int) -> tuple[Any, ...]:
    ends = list(accumulate(sizes, initial=0))
    if not dim:
        return tuple([x[a:b] for a, b in pairwise(ends)])
    before = (slice(None),) * dim
    return tuple([x[(*before, slice(a, b))] for a, b in pairwise(ends)])


def _unbind_impl(x: Any, /, *, dim: int) -> tuple[Any, ...]:
    if x.ndim == 1:                     # (whose rows NumPy gives as scalars)
        return tuple([x[i, ...] for i in range(x.shape[0])])
    return tuple(np.moveaxis(x, dim, 0) if dim else x)


def _split_vjp(cts: Any, x_aval: Aval, *, sizes: Shape, dim: int) -> Any:
    parts = [np.zeros(_resized(x_aval, dim, n).shape, x_aval.dtype) if c is None else c
             for c, n in zip(cts, sizes, strict=True)]
    return cat_op(*parts, dim=dim)


def batch_shift_dim(op_: Op, args: Any, batched: Any, attrs: Mapping[str, Any]) -> Any:
    """Batch rule of unary ops whose only positional attribute is `dim`."""
    return bind(op_, args, {**attrs, "dim": attrs["dim"] + 1})


class SplitOp(Op):
    """An op with as many outputs as its `sizes` (or its axis) say."""

    variadic_out = True


def _declare_split(name: str, **fields: Any) -> Any:
    record = SplitOp(name, **fields)
    return register(record, function_of(record))


def _declare_sized(name: str, impl: Any, view: bool) -> Any:
    return _declare_split(
        name, impl=impl, infer=lambda x, *, sizes, dim: tuple(_resized(x, dim, n) for n in sizes),
        vjp={"x": _split_vjp}, jvp={"x": None}, batch=batch_shift_dim, view=view)


split_op: Any = _declare_sized("split", _split_impl, True)
split_with_sizes_op: Any = _declare_sized("split_with_sizes", _split_impl, True)
unsafe_split_op: Any = _declare_sized("unsafe_split", _split_impl, False)
unbind_op: Any = _declare_split(
    "unbind", impl=_unbind_impl,
    infer=lambda x, *, dim: (Aval((*x.shape[:dim], *x.shape[dim + 1:]), x.dtype),) * x.shape[dim],
    vjp={"x": lambda cts, x_aval, *, dim: stack_op(
        *[np.zeros((*x_aval.shape[:dim], *x_aval.shape[dim + 1:]), x_aval.dtype)
          if c is None else c for c in cts], dim=dim)},
    jvp={"x": None}, batch=batch_shift_dim, view=True)
def _repeated(x: Any, /, *, reps: Shape) -> Any:
    """All repetitions in one pass; NumPy's copies once per axis."""
    own = (1,) * (len(reps) - x.ndim) + x.shape
    out = np.empty([v for pair in zip(reps, own, strict=True) for v in pair], x.dtype)
    out[...] = x.reshape([v for n in own for v in (1, n)])
    return out.reshape([n * r for n, r in zip(own, reps, strict=True)])


repeat_op: Any = op(
    "repeat", impl=_repeated,
    infer=lambda x, *, reps: Aval(tuple(
        n * r for n, r in zip((1,) * (len(reps) - x.ndim) + x.shape, reps, strict=True)), x.dtype),
    vjp={"x": lambda ct, x_aval, *, reps: _repeat_vjp(ct, x_aval, reps)}, jvp={"x": None},
    batch=lambda op_, args, b, attrs: op_.call(
        reshape(args[0], (args[0].shape[0], *(1,) * (len(attrs["reps"]) + 1
                                                     - len(args[0].shape)),
                          *args[0].shape[1:])), reps=(1, *attrs["reps"])))


def _repeat_vjp(ct: Any, x: Aval, reps: Shape) -> Any:
    from adjoint.ops.reduce import sum_op
    own = (1,) * (len(reps) - x.ndim) + x.shape
    folded = reshape(ct, tuple(v for pair in zip(reps, own, strict=True) for v in pair))
    return reshape(sum_op(folded, dim=tuple(range(0, 2 * len(reps), 2)), keepdim=False), x.shape)


def batch_loop(op_: Op, args: Sequence[Any], batched: Sequence[bool],
               attrs: Mapping[str, Any]) -> Any:
    """The batch rule of last resort: run the op per example and stack."""
    size = next(a.shape[0] for a, b in zip(args, batched, strict=True) if b)
    rows = [bind(op_, [select_op(a, dim=0, index=i) if b else a
                       for a, b in zip(args, batched, strict=True)], attrs) for i in range(size)]
    if op_.multi:
        return tuple(stack_op(*column, dim=0) for column in zip(*rows, strict=True))
    return stack_op(*rows, dim=0)


def ndim(x: Any) -> int:
    """Number of axes of a tensor or array."""
    return len(x.array.shape if type(x) is Tensor else x.shape)
