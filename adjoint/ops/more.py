"""Functions built from others: quantiles, short-time transforms, finite differences, copies of
views."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.dtypes import cpp_type, fitting, scalar_type
from adjoint.base.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError
from adjoint.core.autocast import in_float32
from adjoint.core.modes import warn, warn_as_pytorch
from adjoint.core.tensor import Tensor
from adjoint.ops.api_common import (
    box,
    dtype_of,
    exactly,
    finish_same,
    floating,
    in_rows,
    many_dims,
    need_float,
    need_kernel,
    numel,
    one_dim,
    raw,
    result,
    undifferentiated,
    value,
)
from adjoint.ops.api_shape import contiguous_copy, movedim
from adjoint.ops.arrange import strided_places, windows_op
from adjoint.ops.fourier import FFT
from adjoint.ops.gather import gather_op
from adjoint.ops.index import index_put_op, slice_put_op, unindex_op
from adjoint.ops.pointwise import (
    TWO_BOOLEANS,
    add,
    cast,
    ceil,
    clamp_min,
    div,
    floor,
    isnan,
    lerp_op,
    logical_not,
    lt,
    mul,
    round_op,
    sub,
    where_op,
)
from adjoint.ops.public import FUNCTIONS, METHODS, planned, public, typed
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import (
    cat_op,
    expand_op,
    mT,
    narrow_op,
    pad_zero_op,
    permute_op,
    reshape,
    squeeze_op,
    unsafe_split_op,
    unsqueeze_op,
)
from adjoint.ops.sort import sort_op


@public()
@typed
def sum_to_size(input: Any, *size: Any) -> Any:
    """Summed down to a shape that broadcasts to the operand's."""
    want = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    if not want:
        return FUNCTIONS["sum"](input)
    have = tuple(input.shape)
    lead = len(have) - len(want)
    dims = (*range(lead), *(i + lead for i, n in enumerate(want) if n == 1 and have[i + lead] != 1))
    if lead < 0 or any(n not in (1, m) for n, m in zip(want, have[lead:], strict=True)):
        raise ShapeError(f"size {{{list(want)}}} is not expandable to size {{{list(have)}}}.")
    return reshape(sum_op(input, dim=dims, keepdim=False), want) if dims else input


@public()
def positive(input: Any) -> Any:
    """The operand itself."""
    need_kernel("The `+` operator, on a bool tensor is not supported.", "b", input)
    return input


def _copied(name: str, view: Any) -> None:
    """Declare `<view>_copy`: the values of a view in memory of their own."""
    def f(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        found = view(*args, **kwargs)
        if isinstance(found, tuple):
            return finish_same(out, tuple(map(contiguous_copy, found)))
        return finish_same(out, contiguous_copy(found))
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"`{name.removesuffix('_copy')}`, copied."
    public(name, method=False)(f)


for _view in ("expand", "diagonal", "permute", "transpose", "t", "squeeze", "unsqueeze", "select",
              "split", "unbind", "as_strided", "view_as_real", "view_as_complex",
              "split_with_sizes"):
    _copied(_view + "_copy", FUNCTIONS[_view])
_copied("unfold_copy", METHODS["unfold"])
_copied("alias_copy", lambda input: input)
_copied("view_copy", lambda input, size: reshape(input, tuple(size)))


def _unsafe(name: str, split: Any) -> None:
    """Declare a splitting whose results are no views, and may be written to."""
    def f(input: Any, size: Any, dim: int = 0) -> Any:
        sizes = tuple([part.shape[dim] for part in split(input, size, dim)])
        return unsafe_split_op(input, sizes=sizes, dim=one_dim(input, dim))
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"`{split.__name__}`, whose results may be written to, unseen by autograd."
    public(name)(f)


for _split in ("chunk", "split", "split_with_sizes"):
    _unsafe("unsafe_" + _split, FUNCTIONS[_split])


@public(method=False)
def slice_copy(input: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """The elements from `start` to `end` of one dimension, every `step`-th, copied."""
    return contiguous_copy(
        input[(*(slice(None),) * one_dim(input, dim), slice(start, end, step))])


# ------------------------------------------------------------------ choice
_where_out = exactly("Expected out type to be {want} but got {have}")


@public(method=False)
@planned
def where(condition: Any, input: Any = None, other: Any = None, *, out: Any = None) -> Any:
    """`input` where `condition` holds, else `other`; alone: the indices where it holds.

    The branch that is not taken gets a gradient of exactly 0 from `where` itself.
    """
    if input is None or other is None:
        if input is not other:
            raise DTypeError("where() received an invalid combination of arguments: one of two")
        return condition.nonzero(as_tuple=True)
    kind = condition.dtype.dtype.kind if isinstance(condition, Tensor) else "b"
    if kind not in "bu":
        raise DTypeError(f"where expected condition to be a boolean tensor, but got a tensor with "
                         f"dtype {condition.dtype}")
    if kind == "u":
        warn_as_pytorch("where received a uint8 condition tensor. This behavior is deprecated and "
                        "will be removed in a future version of PyTorch. Use a boolean condition "
                        "instead.")
    if type(input) is int or type(other) is int:
        input, other = _whole(input, other), _whole(other, input)
    return _where_out(out, where_op(condition, input, other), condition, input, other)


def _whole(x: Any, beside: Any) -> Any:
    """A Python integer beside a tensor of integers, which has to hold it."""
    return fitting(x, dtype_of(beside)) if type(x) is int and hasattr(
        beside, "shape") and dtype_of(beside).kind in "iu" else x


@public(name="where", function=False, quick=True)
def where_method(self: Any, condition: Any, other: Any) -> Any:
    """This tensor where `condition` holds, else `other`."""
    return where(condition, self, other)


# ------------------------------------------------------------------ quantiles
def _quantiles(name: str, input: Any, q: Any, dim: Any, keepdim: bool, how: str, ignore: bool
               ) -> Any:
    """Quantiles of rows in order: between two neighbours, found by rank, so that the gradient
    reaches both and, where q is a tensor, the rank."""
    said = "quantile() input tensor must be either float or double dtype"
    need_float(name, input, said)
    need_kernel(said, "h", input)
    if how not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise ArgumentError("quantile() interpolation must be one of linear, lower, higher, "
                            f"midpoint or nearest, but got {how}")
    if isinstance(q, Tensor) and dtype_of(q) != dtype_of(input):
        raise DTypeError("quantile() q tensor must be same dtype as the input tensor: got "
                         f"{q.dtype} and {input.dtype}")
    asked: Any = q if isinstance(q, Tensor) else np.asarray(q, dtype_of(input))
    if len(asked.shape) > 1:
        raise ShapeError(f"{name}() q must be a scalar or 1D tensor, got {list(asked.shape)}")
    plain = raw(asked)
    if isinstance(plain, np.ndarray) and plain.size and (plain.min() < 0 or plain.max() > 1):
        said = "values must all" if plain.ndim else "must"
        raise ArgumentError(f"quantile() q {said} be in the range [0, 1] but got {plain}")
    rank = len(input.shape)
    whole = dim is None or not rank
    d = 0 if whole else one_dim(input, dim)
    x = reshape(input, (numel(input), 1)) if whole else input
    if not x.shape[d]:
        raise ShapeError(f"{name}() input tensor must be non-empty")
    rows = reshape(x, (1, numel(input))) if whole else movedim(x, d, -1)
    last = len(rows.shape) - 1
    n = rows.shape[last]
    ordered = sort_op(rows, dim=last, descending=False)[0]      # nan comes last
    bad = isnan(ordered)
    count = sum_op(cast(bad if ignore else logical_not(bad), dtype=dtype_of(input)), dim=(last,),
                   keepdim=True)
    if ignore:
        top = clamp_min(sub(float(n - 1), count), low=0.0)      # the last number of each row
        place = mul(top, reshape(asked, (1,) * last + (-1,)))
    else:
        place = mul(reshape(asked, (1,) * last + (-1,)), float(n - 1))
        place = where_op(lt(count, float(n)), float(n - 1), place)
    if how in ("lower", "higher", "nearest"):
        place = {"lower": floor, "higher": ceil, "nearest": round_op}[how](place)
    low = floor(place)
    weight = sub(place, low) if how != "midpoint" else 0.5
    lead = (*rows.shape[:-1], place.shape[-1])
    at = [expand_op(cast(i, dtype=np.dtype(np.int64)), shape=lead) for i in (low, ceil(place))]
    below, above = (gather_op(ordered, i, dim=last) for i in at)
    found = below if how in ("lower", "higher", "nearest") else lerp_op(below, above, weight)
    wide = (1,) * rank if whole else tuple(1 if i == d else n for i, n in enumerate(input.shape))
    kept = wide if keepdim else () if whole else tuple(
        n for i, n in enumerate(input.shape) if i != d)
    if not len(asked.shape):
        return reshape(found, kept)
    return reshape(movedim(found, -1, 0), (asked.shape[0], *kept))


_quantile_out, _nanquantile_out = (
    exactly(f"{name}() out tensor must be same dtype as the input tensor")
    for name in ("quantile", "nanquantile"))


@public()
@in_float32
@typed
def quantile(input: Any, q: Any, dim: Any = None, keepdim: bool = False, *,
             interpolation: str = "linear", out: Any = None) -> Any:
    """The q-th quantiles, interpolated between neighbours in order; nan if any is nan.

    >>> import adjoint as ad
    >>> ad.quantile(ad.tensor([0.0, 1.0, 2.0]), 0.25)
    tensor(0.5000)
    """
    found = _quantiles("quantile", input, q, dim, keepdim, interpolation, False)
    return _quantile_out(out, found if out is None else in_rows(found))


@public()
@in_float32
@typed
def nanquantile(input: Any, q: Any, dim: Any = None, keepdim: bool = False, *,
                interpolation: str = "linear", out: Any = None) -> Any:
    """`quantile` of what is not nan, row by row."""
    found = _quantiles("nanquantile", input, q, dim, keepdim, interpolation, True)
    return _nanquantile_out(out, found if out is None else in_rows(found))


# ------------------------------------------------------------------ differences
def _one_gradient(x: Any, d: int, step: Any, edge_order: int) -> Any:
    """Second-order differences along one axis; `step` is a number or the coordinates."""
    n = x.shape[d]

    def cut(t: Any, a: int, k: int) -> Any:
        return narrow_op(t, dim=d, start=a, length=k)
    h: Any
    if isinstance(step, np.ndarray) and step.ndim:
        kind = dtype_of(floating(x))
        h = np.diff(step.astype(kind)).reshape((-1, *(1,) * (len(x.shape) - d - 1)))
        left, right = h[:-1], h[1:]
        a = -right / (left * (left + right))
        b = (right - left) / (left * right)
        c = left / (right * (left + right))
        first, last = h[:1], h[-1:]
    else:
        h = float(step)
        first = last = h
    if isinstance(h, float):
        inner = div(sub(cut(x, 2, n - 2), cut(x, 0, n - 2)), 2 * h)
    else:
        inner = add(add(mul(cut(x, 0, n - 2), a), mul(cut(x, 1, n - 2), b)),
                    mul(cut(x, 2, n - 2), c))
    if edge_order == 1:
        low = div(sub(cut(x, 1, 1), cut(x, 0, 1)), first)
        high = div(sub(cut(x, n - 1, 1), cut(x, n - 2, 1)), last)
    else:
        p, q = (h[:1], h[1:2]) if isinstance(h, np.ndarray) else (h, h)
        low = add(add(mul(cut(x, 0, 1), -(2 * p + q) / (p * (p + q))),
                      mul(cut(x, 1, 1), (p + q) / (p * q))),
                  mul(cut(x, 2, 1), -p / (q * (p + q))))
        p, q = (h[-2:-1], h[-1:]) if isinstance(h, np.ndarray) else (h, h)
        high = add(add(mul(cut(x, n - 3, 1), q / (p * (p + q))),
                       mul(cut(x, n - 2, 1), -(p + q) / (p * q))),
                   mul(cut(x, n - 1, 1), (2 * q + p) / (q * (p + q))))
    return cat_op(low, inner, high, dim=d)


@public(method=False)
@typed
def gradient(input: Any, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> Any:
    """Finite differences of samples along axes: central inside, one-sided at the edges."""
    need_kernel(TWO_BOOLEANS, "b", input)
    need_kernel("torch.gradient does not support uint8 input.", "u", input)
    dims = many_dims(input, dim)
    spacing = 1 if spacing is None else spacing
    if isinstance(spacing, (list, tuple)):
        for s in (x for x in spacing if isinstance(x, Tensor) and x.device != input.device):
            raise DTypeError("torch.gradient expected each tensor to be on the same device, but "
                             f"got devices {input.device} and {s.device}!")
        steps = [np.asarray(raw(s)) if hasattr(s, "shape") else s for s in spacing]
    else:
        steps = [spacing] * len(dims)
    if len(steps) != len(dims):
        rule = (f", or a list of length {len(dims)}, one for each axis," if dim is None else
                f" or it's spacing and dim arguments to have the same length, {len(dims)},")
        raise ArgumentError(f"torch.gradient expected spacing to be unspecified, a scalar{rule} but"
                            f" got a list of length {len(steps)}")
    if edge_order not in (1, 2):
        raise ArgumentError("torch.gradient only supports edge_order=1 and edge_order=2. Got "
                            f"{edge_order}")
    for d in dims:
        if input.shape[d] < edge_order + 1:
            raise ShapeError("torch.gradient expected each dimension size to be at least "
                             "edge_order+1")
    return tuple(_one_gradient(input, d, s, edge_order) for d, s in zip(dims, steps, strict=True))


# ------------------------------------------------------------------ short-time transforms
def _window(window: Any, win_length: int, n_fft: int, dtype: Any) -> Any:
    w = np.ones(win_length, dtype) if window is None else window
    before = (n_fft - win_length) // 2
    if win_length == n_fft:
        return w
    return pad_zero_op(w, pads=((before, n_fft - win_length - before),))


_NO_WINDOW = ("A window was not provided. A rectangular window will be applied,which is known to "
              "cause spectral leakage; give hann_window(n_fft), or ones(n_fft) to have it so.")


def _check_frames(x: Any, n_fft: int, hop: int, width: int, window: Any) -> None:
    """Refuse frames and windows that do not fit the signal, in PyTorch's words."""
    length = x.shape[-1]
    if not 0 < n_fft <= length:
        wrong = f"expected 0 < n_fft < {length}, but got n_fft={n_fft}"
    elif hop < 1:
        wrong = f"expected hop_length > 0, but got hop_length={hop}"
    elif not 0 < width <= n_fft:
        wrong = f"expected 0 < win_length <= n_fft, but got win_length={width}"
    elif window is not None and tuple(window.shape) != (width,):
        wrong = (f"expected a 1D window tensor of size equal to win_length={width}, but got window "
                 f"with size {list(window.shape)}")
    else:
        return
    own = "None" if window is None else (
        f"torch.{scalar_type(dtype_of(window))}Tensor{{{list(window.shape)}}}")
    raise ArgumentError(
        f"stft(torch.{scalar_type(dtype_of(x))}Tensor{list(x.shape)}, n_fft={n_fft}, hop_length="
        f"{hop}, win_length={width}, window={own}) : {wrong}")


@public()
@in_float32
@typed
def stft(input: Any, n_fft: int, hop_length: Any = None, win_length: Any = None, window: Any = None,
         center: bool = True, pad_mode: str = "reflect", normalized: bool = False,
         onesided: Any = None, return_complex: Any = None, align_to_window: Any = None) -> Any:
    """Short-time Fourier transform of (L,) or (B, L): complex (..., frequencies, frames)."""
    need_kernel("stft: expected a tensor of floating point or complex values, got {}", "iu", input)
    need_kernel("reflection_pad1d", "b", input)
    if window is None:
        warn(_NO_WINDOW)
    real = dtype_of(input).kind != "c" and (window is None or dtype_of(window).kind != "c")
    if real and return_complex is None:
        raise ArgumentError("stft requires the return_complex parameter be given for real inputs: "
                        "return_complex=True, and view_as_real(answer) where pairs are wanted")
    from adjoint.ops.vision import pad
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    single = len(input.shape) == 1
    x = unsqueeze_op(input, dim=0) if single else input
    if center:
        x = pad(unsqueeze_op(x, dim=1), (n_fft // 2, n_fft // 2), pad_mode)
        x = squeeze_op(x, dims=(1,))
    _check_frames(squeeze_op(x, dims=(0,)) if single else x, n_fft, hop, width, window)
    frames = windows_op(x, dim=len(x.shape) - 1, size=n_fft, step=hop)
    frames = mul(frames, _window(window, width, n_fft, dtype_of(x)))
    one = real if onesided is None else onesided
    f = FFT["rfft"] if one else FFT["fft"]
    out = mT(f(frames, norm="ortho" if normalized else None))
    out = squeeze_op(out, dims=(0,)) if single else out
    if not return_complex and real:
        warn("stft with return_complex=False is deprecated: take view_as_real of the complex "
             "answer where pairs are wanted")
    if return_complex is False:
        return FUNCTIONS["view_as_real"](out)
    return out


@public()
@typed
def istft(input: Any, n_fft: int, hop_length: Any = None, win_length: Any = None,
          window: Any = None, center: bool = True, normalized: bool = False, onesided: Any = None,
          length: Any = None, return_complex: bool = False) -> Any:
    """The signal of least squared error whose `stft` is the input (D. Griffin, J. Lim, 1984)."""
    if dtype_of(input).kind != "c":
        raise DTypeError("istft requires a complex-valued input tensor matching the output from "
                         f"stft with return_complex=True. Got {dtype_of(input)}")
    if window is None:
        warn("A window was not provided. A rectangular window will be applied.Please provide the "
             "same window used by stft to make the inversion lossless, or window=ones(n_fft).")
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    single = len(input.shape) == 2
    x = unsqueeze_op(input, dim=0) if single else input
    one = x.shape[1] != n_fft if onesided is None else onesided
    norm = "ortho" if normalized else None
    spectra = mT(x)
    if not one and not return_complex:              # a real signal: half of the frequencies do
        spectra = narrow_op(spectra, dim=2, start=0, length=n_fft // 2 + 1)
        one = True
    frames = FFT["irfft"](spectra, n_fft, norm=norm) if one else FFT["ifft"](spectra, norm=norm)
    real = np.dtype(f"f{dtype_of(x).itemsize // 2}")
    w = _window(window, width, n_fft, real)
    count = frames.shape[1]
    total = n_fft + hop * (count - 1)
    at = np.arange(count)[:, None] * hop + np.arange(n_fft)
    signal = unindex_op(mul(frames, w), at, shape=(x.shape[0], total), dims=(1,))
    square = mul(w, w)
    weight = unindex_op(mul(square, np.ones((count, n_fft), real)), at, shape=(total,), dims=(0,))
    start = n_fft // 2 if center else 0
    stop = total - (n_fft // 2 if center else 0) if length is None else start + length
    keep = min(stop, total) - start
    signal = narrow_op(signal, dim=1, start=start, length=keep)
    weight = narrow_op(weight, dim=0, start=start, length=keep)
    if np.abs(np.asarray(raw(weight))).min(initial=1.0) < 1e-11:
        raise ArgumentError("istft: window overlap add min: 1 (the squared windows sum to 0 "
                            "somewhere inside of the signal)")
    out = div(signal, weight)
    if stop > total:
        out = pad_zero_op(out, pads=((0, 0), (0, stop - total)))
    return squeeze_op(out, dims=(0,)) if single else out


# ------------------------------------------------------------------ histograms
_counts_out = exactly("torch.histogram: input tensor and hist tensor should have the same dtype, "
                      "but got input {cwant} and hist {chave}")


def _check_bins(bins: int) -> None:
    if bins <= 0:
        raise ArgumentError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")


def _check_edges(x: Any, edges: Any, span: Any, weight: Any) -> None:
    """Refuse bins, a range or weights that make no histogram of `x`."""
    if isinstance(edges, int):
        _check_bins(edges)
        if span is not None and span[0] > span[1]:
            raise ArgumentError("torch.histogramdd: min should not exceed max, but got min "
                                f"{span[0]:g} max {span[1]:g} for dimension 0")
    elif edges.ndim != 1:
        raise ShapeError("torch.histogramdd: bins tensor should have one dimension, but got "
                         f"{edges.ndim} dimensions in the bins tensor for dimension 0")
    elif edges.dtype != x.dtype:
        raise ArgumentError("torch.histogramdd: input tensor and bins tensors should have the same "
                         f"dtype, but got input with dtype {cpp_type(x.dtype)} and bins for "
                         f"dimension 0 with dtype {cpp_type(edges.dtype)}")
    if weight is not None and numel(weight) != x.size:
        raise ShapeError("torch.histogramdd: if weight tensor is provided it should have the same "
                         f"shape as the input tensor: got {list(weight.shape)} for "
                         f"{list(x.shape)}")


@public()
@typed
def histc(input: Any, bins: int = 100, min: float = 0, max: float = 0, *, out: Any = None) -> Any:
    """Counts of elements in `bins` equal bins from min to max (the data's where they are equal)."""
    need_kernel("histogram_cpu", "biuc", input)
    _check_bins(bins)
    x = value(input, "histc").reshape(-1)
    low, high = (x.min(), x.max()) if min == max and x.size else (min, max)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ArgumentError(f"torch.histc: range of [{low:g}, {high:g}] is not finite")
    if low > high:
        raise ArgumentError(f"torch.histc: max must be larger than min, got {low} and {high}")
    if low == high:
        low, high = low - 1, high + 1
    counts = np.histogram(x[(x >= low) & (x <= high)], bins, (float(low), float(high)))[0]
    return _counts_out(out, box(input, counts.astype(x.dtype)))


@public()
@typed
def histogram(input: Any, bins: Any = 100, *, range: Any = None, weight: Any = None,
              density: bool = False, out: Any = None) -> Any:
    """(counts, edges) of a histogram."""
    if isinstance(bins, int):
        need_kernel("histogramdd", "h", input)
    need_kernel("histogram_cpu", "biuc", input)
    x = value(input, "histogram")
    edges = bins if isinstance(bins, int) else np.asarray(raw(bins))
    _check_edges(x, edges, range, weight)
    counts, at = np.histogram(x.reshape(-1), edges, range, density=density,
                              weights=None if weight is None else raw(weight).reshape(-1))
    found = undifferentiated("histogram", box(input, counts.astype(x.dtype)), input, weight)
    return _counts_out(out, HistogramResult(found, box(input, at.astype(x.dtype))))


HistogramResult = result("histogram", "hist bin_edges")


# ------------------------------------------------------------------ slices put in place
def _need_slice(src: Any, have: tuple[int, ...]) -> None:
    if tuple(src.shape) != have:
        raise ShapeError("expected src to have a size equal to the slice of self. src size = "
                         f"{list(src.shape)}, slice size = {list(have)}")


@public()
@typed
def select_scatter(input: Any, src: Any, dim: int, index: int) -> Any:
    """A copy of `input` with `src` in the place of one slice along dim."""
    d = one_dim(input, dim)
    n, shape = input.shape[d], tuple(input.shape)
    if not -n <= index < n:
        raise IndexOutOfRange(f"select(): index {index} out of range for tensor of size "
                              f"{list(shape)} at dimension {d}")
    _need_slice(src, (*shape[:d], *shape[d + 1:]))
    return slice_put_op(input, src, index=(*(slice(None),) * d, index % n))


@public()
@typed
def slice_scatter(input: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None,
                  step: int = 1, *, out: Any = None) -> Any:
    """A copy of `input` with `src` in the place of a range along dim."""
    d = one_dim(input, dim)
    cut = slice(*slice(start, end, step).indices(input.shape[d]))
    shape = tuple(input.shape)
    _need_slice(src, (*shape[:d], len(range(*cut.indices(shape[d]))), *shape[d + 1:]))
    return finish_same(out, slice_put_op(input, src, index=(*(slice(None),) * d, cut)))


@public()
@typed
def as_strided_scatter(input: Any, src: Any, size: Any, stride: Any,
                       storage_offset: Any = None) -> Any:
    """A copy of `input` with `src` written to a strided view of it."""
    from adjoint.ops.api_arrange import in_memory_order
    at = strided_places(tuple(size), tuple(stride), int(storage_offset or 0))
    if at.size and at.max() >= math.prod(input.shape):
        width, offset = dtype_of(input).itemsize, int(storage_offset or 0)
        raise ShapeError(f"as_strided_scatter: sizes {list(size)}, strides {list(stride)}, storage "
                         f"offset {offset}, and itemsize {width} requiring a storage size of "
                         f"{(at.max() + 1) * width} are out of bounds for storage of size "
                         f"{math.prod(input.shape) * width}")
    whole, order = in_memory_order(input)
    flat = reshape(whole, (math.prod(input.shape),))
    made = reshape(index_put_op(flat, at, src, dims=(0,), accumulate=False), tuple(whole.shape))
    return made if whole is input else permute_op(made, dims=tuple(np.argsort(order).tolist()))


__all__ = ["gradient", "istft", "stft"]
