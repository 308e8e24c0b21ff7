"""Padding, sampling and rearranging of images; all of it linear in the image."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.dtypes import is_of, of_numpy
from adjoint.base.errors import ArgumentError, DTypeError, NotSupported, ShapeError
from adjoint.core.autocast import in_float32, widened
from adjoint.core.modes import warn
from adjoint.core.op import op
from adjoint.core.tensor import Size
from adjoint.kernels.conv_numpy import per_dim
from adjoint.ops.api_common import (
    dtype_of,
    need,
    need_kernel,
)
from adjoint.ops.api_shape import c_clone, in_format_of
from adjoint.ops.device import following
from adjoint.ops.gather import gather_op
from adjoint.ops.index import index_op, index_select_op, unindex_op
from adjoint.ops.linalg import matmul_op
from adjoint.ops.pointwise import (
    add,
    cast,
    eq,
    floor,
    ge,
    hardtanh_op,
    le,
    logical_and,
    mul,
    round_op,
    sub,
    where_op,
)
from adjoint.ops.public import known_as, planned, public, typed
from adjoint.ops.ranges import spaced
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import (
    expand_op,
    narrow_op,
    permute_op,
    reshape,
    transpose_op,
    unpad,
    unsqueeze_op,
)

Shape = tuple[int, ...]



def _padded(x: Any, /, *, pads: Any, value: Any) -> Any:
    out = np.full([n + a + b for n, (a, b) in zip(x.shape, pads, strict=True)], value, x.dtype)
    out[tuple([slice(a, a + n) for n, (a, _) in zip(x.shape, pads, strict=True)])] = x
    return out


constant_pad_op: Any = op(
    "constant_pad", impl=following(0)(_padded),
    infer=lambda x, *, pads, value: Aval(tuple(n + a + b for n, (a, b) in zip(
        x.shape, pads, strict=True)), x.dtype),
    vjp={"x": lambda ct, x_aval, *, pads: unpad(ct, pads, x_aval.shape)},
    jvp={"x": lambda t, *, pads: constant_pad_op(t, pads=pads, value=0)},
    batch=lambda op_, args, b, attrs: op_.call(args[0], pads=((0, 0), *attrs["pads"]),
                                               value=attrs["value"]),
    node="ConstantPadNdBackward0")


def _pairs(name: str, pad: Sequence[int], rank: int) -> list[tuple[int, int]]:
    pad = [int(p) for p in pad]
    if len(pad) % 2:
        raise ArgumentError("Padding length must be divisible by 2")
    if len(pad) // 2 > rank:
        raise ShapeError(f"{name}: Padding length should be less than or equal to two times the "
                         f"input dimension but got padding length {len(pad)} and input of "
                         f"dimension {rank}")
    pairs = [(0, 0)] * rank
    for i in range(len(pad) // 2):
        pairs[rank - 1 - i] = (pad[2 * i], pad[2 * i + 1])
    return pairs


@public("pad", method=False, function=False)
@planned
@typed
def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """Pads the last axes by (left, right, top, bottom, ...); negative amounts crop.

    mode: "constant" (`value`, 0 by default), "reflect", "replicate", "circular".

    >>> import adjoint as ad
    >>> ad.nn.functional.pad(ad.ones(2), (1, 2))
    tensor([0., 1., 1., 0., 0.])
    """
    need("pad", input)
    rank = len(input.shape)
    pairs = _pairs("pad", pad, rank)
    if mode != "constant" and value is not None and value != 0:
        raise ArgumentError(f"Padding mode {mode!r} doesn't take in value argument")
    if mode == "constant":
        return _constant(input, pairs, 0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    _check_padding(input, pairs, len(pad) // 2, mode)
    x = input if mode == "circular" else widened(input)[0]
    if mode == "circular" and any(min(p) < 0 for p in pairs):
        x = _constant(x, [(min(a, 0), min(b, 0)) for a, b in pairs], 0)
        pairs = [(max(a, 0), max(b, 0)) for a, b in pairs]
    for d, (a, b) in enumerate(pairs):
        if a or b:
            x = index_select_op(x, _pad_positions(x.shape[d], a, b, mode, d), dims=(d,))
    x = x if mode == "circular" else in_format_of(x, input)
    return c_clone(x) if x is input else x          # (a result of its own where nothing is added)


def _check_padding(x: Any, pairs: list[tuple[int, int]], axes: int, mode: str) -> None:
    """Refuse inputs of other numbers of axes, or too small, for padding by an image's own rows."""
    shape, rank = tuple(x.shape), len(x.shape)
    if not 1 <= axes <= 3 or rank not in (axes + 1, axes + 2):
        raise NotImplementedError(
            f"Padding size {2 * axes} is not supported for {rank}D input tensor.\nSupported "
            "combinations for non-constant padding:\n"
            "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
            "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
            "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)")
    if mode == "circular":
        return
    need_kernel(f"{mode.rstrip('e')}ion_pad{axes}d", "b", x)
    if 0 in shape[rank - axes - 1:]:
        raise ShapeError(f"Expected {axes + 1}D or {axes + 2}D (batch mode) tensor with possibly 0 "
                         "batch size and other non-zero dimensions for input, but got: "
                         f"{list(shape)}")
    sizes = [n + a + b for n, (a, b) in zip(shape, pairs, strict=True)][-axes:]
    if min(sizes) < 1:
        was, now = (" ".join(f"{c}: {n}" for c, n in zip("DHW"[-axes:], found, strict=True))
                    for found in (shape[-axes:], sizes))
        raise ShapeError(f"input ({was}) is too small. Calculated output {now}")


def _constant(x: Any, pairs: list[tuple[int, int]], value: Any) -> Any:
    for d, (a, b) in enumerate(pairs):
        low, high = max(-a, 0), max(-b, 0)
        if low or high:
            if x.shape[d] < low + high:
                raise ShapeError("narrow(): length must be non-negative. pad: cannot crop "
                                 f"{low + high} elements from axis {d} of size {x.shape[d]}")
            x = narrow_op(x, dim=d, start=low, length=x.shape[d] - low - high)
    return constant_pad_op(x, pads=tuple((max(a, 0), max(b, 0)) for a, b in pairs), value=value)


def _pad_positions(n: int, a: int, b: int, mode: str, d: int) -> Any:
    at = np.arange(-a, n + b)
    if mode == "replicate":
        return np.clip(at, 0, n - 1)
    if mode == "circular":
        if a > n or b > n:
            raise ShapeError("Padding value causes wrapping around more than once: padding "
                             f"({a}, {b}) on axis {d} of size {n}")
        return at % n
    if a >= n or b >= n:
        raise ShapeError(f"Argument #4: Padding size should be less than the corresponding input "
                         f"dimension, but got: padding ({a}, {b}) at dimension {d} of size {n}")
    at = np.abs(at)
    return np.where(at >= n, 2 * (n - 1) - at, at)


def _corners(name: str, align_corners: bool | None) -> bool:
    if align_corners is None:
        warn("Default grid_sample and affine_grid behavior has changed to align_corners=False "
             f"since 1.3.0. Please specify align_corners=True if the old behavior is desired "
             f"({name}).")
    return bool(align_corners)


# ------------------------------------------------------------------ reading at positions
@known_as("AffineGridGeneratorBackward0")
@typed
def affine_grid(theta: Any, size: Any, align_corners: Any = None) -> Any:
    """Positions (N, H, W, 2) or (N, D, H, W, 3) of an affine map theta (N, 2, 3) or (N, 3, 4).

    Positions run from -1 to 1; x is the first of the last axis.
    """
    need("affine_grid", theta)
    align_corners = _corners("affine_grid", align_corners)
    size, kind = tuple(int(s) for s in size), dtype_of(theta)
    if not is_of(kind, "f"):
        raise ArgumentError(f"Expected theta to have floating point type, but got {of_numpy(kind)}")
    if len(size) not in (4, 5):
        raise NotSupported("affine_grid only supports 4D and 5D sizes, for 2D and 3D affine "
                           f"transforms, respectively. Got size {size}.")
    space = size[2:]
    rows = len(space)
    if len(theta.shape) != 3 or tuple(theta.shape[1:]) != (rows, rows + 1):
        raise ArgumentError(f"Expected a batch of {rows}D affine matrices of shape Nx{rows}x"
                            f"{rows + 1} for size {size}. Got {Size(theta.shape)}.")
    if min(size) <= 0:
        raise ArgumentError(f"Expected non-zero, positive output size. Got {size}")
    if theta.shape[0] != size[0]:
        raise ShapeError(f"affine_grid: theta holds {theta.shape[0]} matrices for a batch of "
                         f"{size[0]} (size {size})")
    axes = []
    for n in space:
        line = spaced(-1, 1, n, kind) if n > 1 else np.zeros(1, kind)
        axes.append(line if align_corners or n <= 1 else line * kind.type(n - 1) / kind.type(n))
    mesh = np.meshgrid(*axes, indexing="ij")
    base = np.stack([*reversed(mesh), np.ones(space, kind)], -1).reshape(-1, len(space) + 1)
    out = matmul_op(base[None], transpose_op(theta, dim0=1, dim1=2))
    return reshape(out, (size[0], *space, len(space)))


def _unnormalize(g: Any, n: int, align: bool) -> Any:
    if align:
        return mul(add(g, 1.0), (n - 1) / 2)
    return sub(mul(add(g, 1.0), n / 2), 0.5)


def _reflect(x: Any, low: float, high: float) -> Any:
    """Positions reflected at low and high until they lie between."""
    from adjoint.ops.pointwise import abs_op, fmod
    span = high - low
    if span <= 0:
        return mul(x, 0.0)
    away = abs_op(sub(x, low))
    extra = fmod(away, span)
    flips = floor(mul(away, 1 / span))
    odd = eq(fmod(flips, 2.0), 1.0)
    return where_op(odd, sub(high, extra), add(extra, low))


def _place(x: Any, n: int, padding: str, align: bool) -> Any:
    """Positions moved inside, nan to 0; the borders themselves pass no gradient on."""
    if padding == "zeros":
        return x
    if padding == "reflection":
        x = _reflect(x, 0.0, n - 1.0) if align else _reflect(x, -0.5, n - 0.5)
    return hardtanh_op(where_op(eq(x, x), x, 0.0), low=0.0, high=n - 1.0)    # nan: the first


def _read(x: Any, corners: list[Any], space: Shape) -> Any:
    """x[n, c, corner] (0 outside), for integer-valued positions (N, P) per axis."""
    inside: Any = None
    flat: Any = None
    for at, n in zip(corners, space, strict=True):
        at = at.detach()                 # places have no gradient: what follows is not recorded
        here = logical_and(ge(at, 0.0), le(at, n - 1.0))
        inside = here if inside is None else logical_and(inside, here)
        safe = cast(where_op(here, at, 0.0), dtype=np.dtype(np.int64))
        flat = safe if flat is None else add(mul(flat, n), safe)     # floats have no such integers
    index = flat
    n, c = x.shape[:2]
    p = index.shape[1]
    planes = reshape(x, (n, c, math.prod(space)))
    found = gather_op(planes, expand_op(unsqueeze_op(index, dim=1), shape=(n, c, p)), dim=2)
    return where_op(unsqueeze_op(inside, dim=1), found, 0.0)


def _check_samples(input: Any, grid: Any, mode: str, padding_mode: str) -> None:
    """Refuse arguments of `grid_sample` that do not fit."""
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ArgumentError("nn.functional.grid_sample(): expected mode to be 'bilinear', "
                            f"'nearest' or 'bicubic', but got: '{mode}'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ArgumentError(f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', "
                            f"'border', or 'reflection', but got: '{padding_mode}'")
    dims = len(input.shape) - 2
    sizes = f"{list(input.shape)} and {list(grid.shape)}"
    if grid.shape[:1] != input.shape[:1]:
        raise ShapeError("grid_sampler(): expected grid and input to have same batch size, but got "
                         f"input with sizes {list(input.shape)} and grid with sizes "
                         f"{list(grid.shape)}")
    if dims not in (2, 3) or len(grid.shape) != dims + 2:
        raise ShapeError("grid_sampler(): expected 4D or 5D input and grid with same number of "
                         f"dimensions, input (N, C, H, W) and grid (N, H', W', 2), or one axis "
                         f"more of each, but got input and grid with sizes {sizes}")
    if grid.shape[-1] != dims:
        raise ShapeError(f"grid_sampler(): expected grid to have size {dims} in last dimension, "
                         f"but got grid with sizes {list(grid.shape)} (input {list(input.shape)})")
    empty = [d for d in range(2, dims + 2) if not input.shape[d]]
    if empty:
        raise ShapeError("grid_sampler(): expected input to have non-empty spatial dimensions, but "
                         f"input has sizes {list(input.shape)} with dimension {empty[0]} being "
                         "empty")
    if mode == "bicubic" and dims == 3:
        raise ArgumentError("grid_sampler(): bicubic interpolation only supports 4D input")
    if dtype_of(input) != dtype_of(grid):
        raise DTypeError("grid_sampler(): expected input and grid to have same dtype, but input "
                         f"has {of_numpy(dtype_of(input))} and grid has {of_numpy(dtype_of(grid))}")


@in_float32
def grid_sample(input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: Any = None) -> Any:
    """Reads (N, C, H, W) or (N, C, D, H, W) at positions grid (N, ..., 2 or 3) in [-1, 1].

    mode: bilinear, nearest or bicubic (4-d only); padding_mode: zeros, border or reflection.
    """
    need("grid_sample", input, grid)
    need_kernel("grid_sampler_2d_cpu_kernel_impl", "biuc" if len(input.shape) == 4 else "biu",
                input)
    _check_samples(input, grid, mode, padding_mode)
    align = bool(_corners("grid_sample", align_corners))
    return _SAMPLED[len(input.shape)](input, grid, mode, padding_mode, align)


_FEW = 16384        # results up to which the calls cost more than the passes


def _sampled(input: Any, grid: Any, mode: str, padding_mode: str, align: bool) -> Any:
    dims, space = len(input.shape) - 2, tuple(input.shape[2:])
    n, c = input.shape[:2]
    out_space = tuple(grid.shape[1:-1])
    flat = reshape(grid, (n, math.prod(out_space), dims))
    at = [_unnormalize(reshape(narrow_op(flat, dim=2, start=dims - 1 - i, length=1),
                               (n, math.prod(out_space))),
                       s, align) for i, s in enumerate(space)]
    if mode == "bicubic":
        out = _sample_cubic(input, at, space, padding_mode, align)
    else:
        at = [_place(a, s, padding_mode, align) for a, s in zip(at, space, strict=True)]
        if mode == "nearest":
            out = _read(input, [round_op(a) for a in at], space)
            if getattr(grid, "_rg", False):         # its gradient is zeros, not none
                none = where_op(np.zeros((), bool), narrow_op(flat, dim=2, start=0, length=1), 0.0)
                out = add(out, reshape(none, (n, 1, math.prod(out_space))))
        else:
            out = _sample_linear(input, at, space)
    return reshape(out, (n, c, *out_space))


_SAMPLED = {d + 2: known_as(f"GridSampler{d}DBackward0")(_sampled) for d in (2, 3)}


def _sample_linear(x: Any, at: list[Any], space: Shape) -> Any:
    low = [floor(a) for a in at]
    part = [unsqueeze_op(sub(a, b), dim=1) for a, b in zip(at, low, strict=True)]
    low = [unsqueeze_op(b, dim=1) for b in low]
    (n, c), p = x.shape[:2], at[0].shape[1]
    corners = np.array(list(np.ndindex(*(2,) * len(space))), dtype_of(x))[..., None]
    every = len(corners) if n * c * p <= _FEW else 1        # how many corners are read at once
    total: Any = None
    for some in np.split(corners, len(corners) // every):
        weight: Any = None
        for i, share in enumerate(part):                    # the part, or 1 less it
            share = add(mul(share, 2 * some[:, i] - 1), 1 - some[:, i])
            weight = share if weight is None else mul(weight, share)
        places = [reshape(add(b, some[:, i]), (n, every * p)) for i, b in enumerate(low)]
        term = mul(_read(x, places, space), reshape(weight, (n, 1, every * p)))
        if every > 1:
            term = sum_op(reshape(term, (n, c, every, p)), dim=(2,), keepdim=False)
        total = term if total is None else add(total, term)
    return total


def _cubic_weights(t: Any) -> list[Any]:
    a = -0.75

    def near(u: Any) -> Any:
        return add(mul(mul(sub(mul(u, a + 2), a + 3), u), u), 1.0)

    def far(u: Any) -> Any:
        return sub(mul(add(mul(sub(mul(u, a), 5 * a), u), 8 * a), u), 4 * a)
    return [far(add(t, 1.0)), near(t), near(sub(1.0, t)), far(sub(2.0, t))]


def _sample_cubic(x: Any, at: list[Any], space: Shape, padding: str, align: bool) -> Any:
    low = [floor(a) for a in at]
    weights = [_cubic_weights(sub(a, b)) for a, b in zip(at, low, strict=True)]
    total: Any = None
    for i in range(4):
        for j in range(4):
            places = [_place(add(b, float(k - 1)), n, padding, align)
                      for b, k, n in zip(low, (i, j), space, strict=True)]
            weight = unsqueeze_op(mul(weights[0][i], weights[1][j]), dim=1)
            term = mul(_read(x, [round_op(p) for p in places], space), weight)
            total = term if total is None else add(total, term)
    return total


# ------------------------------------------------------------------ rearranging
def _planes(name: str, x: Any) -> None:
    need(name, x)
    if len(x.shape) < 3:
        raise ShapeError(f"{name} expects input to have at least 3 dimensions (..., C, H, W), but "
                         f"got input of shape {list(x.shape)}")


@public("pixel_shuffle", method=False)
@known_as("PixelShuffleBackward0")
@planned
@typed
def pixel_shuffle(input: Any, upscale_factor: int) -> Any:
    """(..., C·r², H, W) -> (..., C, H·r, W·r)."""
    r = upscale_factor
    _planes("pixel_shuffle", input)
    *lead, c, h, w = input.shape
    if r < 1:
        raise ShapeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    if c % (r * r):
        raise ShapeError("pixel_shuffle expects its input's 'channel' dimension to be divisible by "
                         f"the square of upscale_factor, but input.size(-3)={c} is not divisible by"
                         f" {r * r}")
    if r == 1:
        return c_clone(input)
    k = len(lead)
    x = reshape(input, (*lead, c // (r * r), r, r, h, w))
    x = permute_op(x, dims=(*range(k), k, k + 3, k + 1, k + 4, k + 2))
    return reshape(x, (*lead, c // (r * r), h * r, w * r))


@public("pixel_unshuffle", method=False)
@known_as("PixelUnshuffleBackward0")
@planned
@typed
def pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    """(..., C, H·r, W·r) -> (..., C·r², H, W)."""
    r = downscale_factor
    _planes("pixel_unshuffle", input)
    *lead, c, h, w = input.shape
    if r < 1:
        raise ShapeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    for what, at, n in (("height", -2, h), ("width", -1, w)):
        if n % r:
            raise ShapeError(f"pixel_unshuffle expects {what} to be divisible by downscale_factor, "
                             f"but input.size({at})={n} is not divisible by {r}")
    if r == 1:
        return c_clone(input)
    k = len(lead)
    x = reshape(input, (*lead, c, h // r, r, w // r, r))
    x = permute_op(x, dims=(*range(k), k, k + 2, k + 4, k + 1, k + 3))
    return reshape(x, (*lead, c * r * r, h // r, w // r))


@public("channel_shuffle", method=False)
@known_as("ChannelShuffleBackward0")
@planned
@typed
def channel_shuffle(input: Any, groups: int) -> Any:
    """Channels of (N, C, ...) dealt out: group by group becomes one of each group."""
    _planes("channel_shuffle", input)
    n, c, *rest = input.shape
    if groups <= 0:
        raise ArgumentError("Number of groups to divide channels in must be positive. Value of "
                            f"groups:{groups}")
    if c % groups:
        raise ShapeError(f"Number of channels must be divisible by groups. Got {c} channels and "
                         f"{groups} groups.")
    x = transpose_op(reshape(input, (n, groups, c // groups, *rest)), dim0=1, dim1=2)
    return in_format_of(reshape(x, tuple(input.shape)), input)


def _patches(space: Shape, kernel: Shape, dilation: Shape, padding: Shape,
             stride: Shape) -> tuple[Any, Shape]:
    """(positions in the padded plane of every kernel element and patch, padded extent)."""
    padded = tuple(n + 2 * p for n, p in zip(space, padding, strict=True))
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(
        padded, dilation, kernel, stride, strict=True)]
    if min(counts) < 1:
        raise ShapeError(f"Given input with spatial size {space}, kernel_size={kernel}, dilation="
                         f"{dilation}, padding={padding}, calculated shape of the array of sliding "
                         f"blocks as {tuple(max(n, 0) for n in counts)}, but its components must "
                         "be at least one.")
    rows = np.arange(kernel[0])[:, None] * dilation[0] + np.arange(counts[0]) * stride[0]
    cols = np.arange(kernel[1])[:, None] * dilation[1] + np.arange(counts[1]) * stride[1]
    at = rows[:, None, :, None] * padded[1] + cols[None, :, None, :]
    return at.reshape(math.prod(kernel), math.prod(counts)), padded


def _blocks(kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> tuple[Shape, ...]:
    """The four settings as pairs, in the order they came in."""
    given = {"kernel": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
    pairs = {name: per_dim(value, 2) for name, value in given.items()}
    for name, pair in pairs.items():
        if len(pair) != 2:
            raise ArgumentError(f"It is expected {name}{'_size' * (name == 'kernel')} equals to 2, "
                                f"but got size {len(pair)}")
        short = "pad" if name == "padding" else name
        what = "kernel size" if name == "kernel" else name
        if min(pair) < (name != "padding"):
            rule = "non-negative" if name == "padding" else "greater than zero"
            raise ArgumentError(f"{what} should be {rule}, but got {short}_height: {pair[0]} "
                                f"{short}_width: {pair[1]}")
    return tuple(pairs.values())


@known_as("Im2ColBackward0")
@planned
@typed
def unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
           stride: Any = 1) -> Any:
    """Patches of (N, C, H, W) as columns: (N, C·kh·kw, L).

    >>> import adjoint as ad
    >>> ad.nn.functional.unfold(ad.ones(1, 2, 3, 3), 2).shape
    adjoint.Size([1, 8, 4])
    """
    need("unfold", input)
    need_kernel("im2col_out_cpu", "iu", input)
    single = len(input.shape) == 3
    x = unsqueeze_op(input, dim=0) if single else input
    if len(x.shape) != 4 or not all(x.shape[1:]):
        raise ShapeError("unfold: Expected 3D or 4D (batch mode) tensor with possibly 0 batch size "
                         f"and other non-zero dimensions for input, but got: {list(input.shape)}")
    k, d, p, s = _blocks(kernel_size, dilation, padding, stride)
    at, padded = _patches(tuple(x.shape[2:]), k, d, p, s)
    n, c = x.shape[:2]
    x = _constant(x, [(0, 0), (0, 0), (p[0], p[0]), (p[1], p[1])], 0)
    out = index_op(reshape(x, (n, c, math.prod(padded))), at, dims=(2,))
    out = reshape(out, (n, c * at.shape[0], at.shape[1]))
    return reshape(out, tuple(out.shape[1:])) if single else out


@known_as("Col2ImBackward0")
@planned
@typed
def fold(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
         stride: Any = 1) -> Any:
    """The adjoint of `unfold`: columns (N, C·kh·kw, L) added up to (N, C, H, W)."""
    need("fold", input)
    single = len(input.shape) == 2
    if len(input.shape) not in (2, 3):
        raise ShapeError("fold: Expected 2D or 3D (batch mode) tensor for input with possibly 0 "
                         "batch size and non-zero dimensions for input, but got: "
                         f"{list(input.shape)}; (C·kh·kw, L) or (N, C·kh·kw, L) is meant")
    x = unsqueeze_op(input, dim=0) if single else input
    k, d, p, s = _blocks(kernel_size, dilation, padding, stride)
    if len(per_dim(output_size, 2)) != 2:
        raise ArgumentError("It is expected output_size equals to 2, but got size "
                            f"{len(output_size)}")
    h, w = per_dim(output_size, 2)
    at, padded = _patches((h, w), k, d, p, s)
    n, columns, length = x.shape
    taps = math.prod(k)
    if columns % taps:
        raise ShapeError(f"fold: Expected size of input's dimension 1 to be divisible by the "
                         f"product of kernel_size, but got input.size(1)={columns} and "
                         f"kernel_size={k}")
    if length != at.shape[1]:
        raise ShapeError(f"fold: Given output_size={(h, w)}, kernel_size={k}, dilation={d}, "
                         f"padding={p}, stride={s}, expected size of input's dimension 2 to match "
                         f"the calculated number of sliding blocks {at.shape[1]}, but got {length}")
    c = columns // taps
    cols = reshape(x, (n, c, taps, length))
    out = unindex_op(cols, at, shape=(n, c, math.prod(padded)), dims=(2,))
    out = reshape(out, (n, c, *padded))
    out = narrow_op(narrow_op(out, dim=2, start=p[0], length=h), dim=3, start=p[1], length=w)
    return reshape(out, tuple(out.shape[1:])) if single else out
