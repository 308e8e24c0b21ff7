"""What functions do to masked tensors: one rule per family."""
from __future__ import annotations

from typing import Any

import adjoint.masked as reductions
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.holders import CONVERTS, Rule, rules
from adjoint.masked.maskedtensor.binary import BINARY_NAMES, INPLACE_BINARY_NAMES
from adjoint.masked.maskedtensor.core import (
    DispatchFailed,
    MaskedTensor,
    _tensors_match,
    made,
    masks_equal,
)
from adjoint.masked.maskedtensor.reductions import REDUCE_NAMES
from adjoint.masked.maskedtensor.unary import INPLACE_UNARY_NAMES, UNARY_NAMES
from adjoint.ops.public import FUNCTIONS as F
from adjoint.ops.sparse_tensor import SparseTensor

RULES: dict[str, Rule] = {}
MaskedTensor.RULES = RULES


def _name(f: Any) -> str:
    name: str = f.__name__
    return name.strip("_")


def _on(f: Any, data: Any, *others: Any, **kwargs: Any) -> Any:
    """A function of elements on data of any layout: of sparse data, on the stored values."""
    if not isinstance(data, SparseTensor):
        return f(data, *others, **kwargs)
    whole = data.coalesce()
    given = [o.coalesce().values() if isinstance(o, SparseTensor) else o for o in others]
    found = f(whole.values(), *given, **kwargs)
    return found if found is NotImplemented else whole._with(found)


# ------------------------------------------------------------------ elements
@rules(RULES, *UNARY_NAMES, *CONVERTS, "to", "type", "clone", "contiguous", "dropout", "alias",
       "ones_like", "zeros_like", "empty_like", "full_like", "rand_like", "randn_like",
       "__neg__", "__pos__", "__abs__", "__invert__")
def unary(f: Any, input: MaskedTensor, *args: Any, **kwargs: Any) -> Any:
    """The function of the data, with the same mask."""
    if any(isinstance(a, MaskedTensor) for a in args):
        return binary(f, input, *args, **kwargs)
    if _name(f) == "round" and kwargs:
        raise ArgumentError("MaskedTensor unary ops require that len(kwargs) == 0. If you need "
                            "support for this, please open an issue on Github.")
    found = _on(f, input._held, *args, **kwargs)
    return found if isinstance(found, str) else made(found, input._mask)


@rules(RULES, *INPLACE_UNARY_NAMES)
def unary_(f: Any, input: MaskedTensor, *args: Any, **kwargs: Any) -> Any:
    """The same, in place."""
    _on(f, input._held, *args, **kwargs)
    return input


def _operands(f: Any, a: Any, b: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """The data of both, and their mask."""
    if kwargs:
        raise ArgumentError(f"{_name(f)}(): len(kwargs) must equal 0 for masked tensors")
    masked = [x for x in (a, b) if isinstance(x, MaskedTensor)]
    if len(masked) == 2:
        if a.layout != b.layout:
            _tensors_match(a._mask, b._mask)        # says which layouts
        if not masks_equal(a._mask, b._mask):
            raise ArgumentError("Input masks must match. If you need support for this, please open "
                                f"an issue on Github. (shapes {list(a.shape)} and "
                                f"{list(b.shape)}; take to_tensor(value) of one of them)")
    data = [x._held if isinstance(x, MaskedTensor) else x for x in (a, b)]
    mask = masked[0]._mask
    for x in (a, b):
        if isinstance(x, Tensor) and not isinstance(x, MaskedTensor) and x.layout != mask.layout:
            raise ArgumentError(f"{_name(f)}(): operands of layouts {x.layout} and {mask.layout}")
    return (*data, mask)


@rules(RULES, *BINARY_NAMES, "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__",
       "__truediv__", "__rtruediv__", "__rdiv__", "__floordiv__", "__rfloordiv__", "__mod__",
       "__rmod__", "__pow__", "__rpow__", "__and__", "__or__", "__xor__", "__eq__", "__ne__",
       "__lt__", "__le__", "__gt__", "__ge__", "__lshift__", "__rshift__", "rsub")
def binary(f: Any, a: Any, b: Any, *rest: Any, **kwargs: Any) -> Any:
    """The function of the data, where the masks are the same."""
    x, y, mask = _operands(f, a, b, kwargs)
    found = _on(f, x, y) if not isinstance(y, SparseTensor) or isinstance(x, SparseTensor) else (
        NotImplemented)
    if found is NotImplemented:
        return found
    if tuple(found.array.shape) != tuple(mask.array.shape):
        mask = F["broadcast_to"](mask, found.shape)
    return made(found, mask)


@rules(RULES, *INPLACE_BINARY_NAMES, "__iadd__", "__isub__", "__imul__", "__itruediv__",
       "__ifloordiv__", "__imod__", "__ipow__")
def binary_(f: Any, input: Any, other: Any, **kwargs: Any) -> Any:
    """The same, in place."""
    x, y, _ = _operands(f, input, other, kwargs)
    if not isinstance(input, MaskedTensor):
        raise DispatchFailed(f"{_name(f)}(): a dense tensor cannot take up a masked one in place")
    _on(f, x, y)
    return input


@rules(RULES, "where")
def where(f: Any, condition: Any, input: Any = None, other: Any = None) -> Any:
    """Data and mask, each from where the condition says."""
    if isinstance(condition, MaskedTensor) or input is None:
        raise DispatchFailed("where(): the condition must be a tensor without a mask, with two "
                             "operands to choose from")
    data, masks = [], []
    for x in (input, other):
        masked = isinstance(x, MaskedTensor)
        data.append(x._held if masked else x)
        masks.append(x._mask if masked else F["ones_like"](condition))
    return made(f(condition, *data), f(condition, *masks))


@rules(RULES, "copy_")
def copy_(f: Any, input: MaskedTensor, src: Any, non_blocking: bool = False) -> Any:
    """Write the data; the mask stays."""
    f(input._held, src._held if isinstance(src, MaskedTensor) else src)
    return input


@rules(RULES, "softmax")
def softmax(f: Any, input: MaskedTensor, dim: int, *args: Any, **kwargs: Any) -> Any:
    """Of the elements that have a value."""
    return made(reductions.softmax(input._held, dim, dtype=kwargs.get("dtype"), mask=input._mask),
                input._mask)


# ------------------------------------------------------------------ elements moved
@rules(RULES, "select", "transpose", "t", "split", "split_with_sizes", "expand", "expand_as",
       "view", "view_as", "reshape", "reshape_as", "unsqueeze", "squeeze", "narrow", "chunk",
       "flatten", "ravel", "unflatten", "swapaxes", "swapdims", "mT", "adjoint", "T", "mH", "H",
       "tensor_split", "hsplit", "vsplit", "dsplit", "broadcast_to", "unfold", "permute",
       "movedim", "moveaxis", "unbind", "diagonal", "__iter__", "__getitem__", "flip", "tile",
       "repeat", "repeat_interleave", "index_select", "gather", "take_along_dim", "roll", "rot90")
def moved(f: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """The function of the data and of the mask."""
    if not isinstance(input, MaskedTensor):
        given = [a._held if isinstance(a, MaskedTensor) else a for a in args]
        return f(input, *given, **kwargs)            # in the shape of a masked tensor
    if any(isinstance(a, MaskedTensor) for a in args):
        if _name(f) not in ("view_as", "reshape_as", "expand_as"):
            raise ArgumentError(f"{_name(f)}(): an index cannot be masked")
        args = tuple(a._held if isinstance(a, MaskedTensor) else a for a in args)
    name = _name(f)
    if name in ("T", "mT", "mH", "H"):
        return made(getattr(input._held, name), getattr(input._mask, name))
    data, mask = f(input._held, *args, **kwargs), f(input._mask, *args, **kwargs)
    if isinstance(data, (tuple, list)):
        return tuple(made(d, m) for d, m in zip(data, mask, strict=True))
    return (made(d, m) for d, m in zip(data, mask, strict=True)) if name == "iter" else made(
        data, mask)


@rules(RULES, "cat", "concat", "concatenate", "stack", "vstack", "hstack", "dstack", "row_stack",
       "column_stack")
def joined(f: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """Data and masks joined."""
    if not all(isinstance(t, MaskedTensor) for t in tensors):
        raise TypeError(f"{_name(f)}(): mask must have dtype bool: a tensor without a mask among "
                        "masked ones; as_masked_tensor(t, ones) has a value everywhere")
    return made(f([t._held for t in tensors], *args, **kwargs),
                f([t._mask for t in tensors], *args, **kwargs))


# ------------------------------------------------------------------ reductions
@rules(RULES, *(n for n in REDUCE_NAMES if n != "norm"))
def reduce(f: Any, input: MaskedTensor, dim: Any = None, keepdim: bool = False,
           **kwargs: Any) -> Any:
    """Of the elements that have a value; a result of none has none."""
    name, t = _name(f), input.to_dense()
    data, mask = t._held, t._mask
    if name == "all":
        chosen = F["where"](mask, data.bool(), F["ones_like"](mask))
        found = chosen.all() if dim is None else chosen.all(dim, keepdim)
    else:
        if name in ("var", "std"):
            kwargs.setdefault("unbiased", bool(kwargs.pop("correction", 1)))
        found = getattr(reductions, name)(data, dim, keepdim=keepdim, mask=mask, **kwargs)
    return made(found, _any(mask, dim, keepdim))


def _any(mask: Any, dim: Any, keepdim: bool) -> Any:
    """The mask of a reduction."""
    dims = tuple(range(mask.dim())) if dim is None or dim == () else dim
    return mask.any(dims, keepdim) if mask.dim() else mask


@rules(RULES, "norm")
def norm(f: Any, input: MaskedTensor, p: Any = 2.0, dim: Any = None, keepdim: bool = False,
         out: Any = None, dtype: Any = None) -> Any:
    """The vector norm of the elements that have a value."""
    t, order = input.to_dense(), 2.0 if p in (None, "fro") else p
    found = reductions.norm(t._held, order, dim, keepdim=keepdim, dtype=dtype, mask=t._mask)
    return made(found, _any(t._mask, dim, keepdim))


@rules(RULES, "__float__", "__int__", "__bool__", "__index__")
def number(f: Any, input: MaskedTensor) -> Any:
    """The one element."""
    return f(input._held)


@rules(RULES, "is_same_size")
def is_same_size(f: Any, input: Any, other: Any) -> bool:
    """Whether the shapes are the same."""
    return tuple(input.array.shape) == tuple(other.array.shape)


__all__ = ["RULES"]
