"""`jax.scipy.signal`: trends, spectra and short-time Fourier transforms."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from adjoint.jax import numpy as _jnp
from adjoint.jax._array import as_array, joined, make
from adjoint.jax._util import canonicalize_axis

_n: Any = _jnp


def _basis(length: int, cuts: list[int], kind: str, dtype: Any) -> list[tuple[slice, np.ndarray]]:
    """Orthonormal columns that span the trends of each piece."""
    out = []
    for start, stop in zip(cuts[:-1], cuts[1:], strict=True):
        n = stop - start
        columns = [np.ones(n)] + ([np.arange(1, n + 1) / n] if kind == "linear" else [])
        out.append((slice(start, stop), np.linalg.qr(np.stack(columns, 1))[0].astype(dtype)))
    return out


def detrend(data: Any, axis: int = -1, type: str = "linear", bp: Any = 0,
            overwrite_data: Any = None) -> Any:
    """The data without their mean (type "constant") or lines, one per piece between the places
    `bp`."""
    if overwrite_data is not None:
        raise NotImplementedError("overwrite_data argument not implemented.")
    if type not in ("constant", "linear"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    (t,), _ = joined("detrend", (data,), floating=True)
    x = make(t)
    if type == "constant":
        return x - _n.mean(x, axis, keepdims=True)
    x = _n.moveaxis(x, axis, -1)
    length = x.shape[-1]
    cuts = sorted({0, length, *np.atleast_1d(np.asarray(bp)).tolist()})
    if cuts[0] < 0 or cuts[-1] > length:
        raise ValueError("Breakpoints must be non-negative and less than length of data along "
                         "given axis.")
    real = np.empty(0, x.dtype).real.dtype
    parts = [x[..., at] - (x[..., at] @ q) @ q.T
             for at, q in _basis(length, cuts, type, real)]
    return _n.moveaxis(_n.concatenate(parts, -1), -1, axis)


# ------------------------------------------------------------------ windows and segments
def _window(window: Any, nperseg: int | None, length: int) -> tuple[Any, int]:
    """The window's values and their number."""
    if isinstance(window, (str, tuple)):
        from scipy.signal import get_window
        size = min(256 if nperseg is None else nperseg, length)
        return np.asarray(get_window(window, size)), size
    win = as_array(window)
    if win.ndim != 1:
        raise ValueError("window must be 1-D")
    if length < win.shape[0]:
        raise ValueError("window is longer than input signal")
    if nperseg not in (None, win.shape[0]):
        raise ValueError("value specified for nperseg is different from length of window")
    return win, win.shape[0]


def _steps(nperseg: int, noverlap: int | None, nfft: int | None) -> tuple[int, int]:
    """(overlap, length of the transform)."""
    size = nperseg if nfft is None else int(nfft)
    if size < nperseg:
        raise ValueError("nfft must be greater than or equal to nperseg.")
    over = nperseg // 2 if noverlap is None else int(noverlap)
    if over >= nperseg:
        raise ValueError("noverlap must be less than nperseg.")
    return over, size


def _extended(x: Any, boundary: Any, pad: int) -> Any:
    """The signal with its ends continued by `pad` values."""
    if boundary is None or pad == 0:
        return x
    first, last = x[..., :1], x[..., -1:]
    low, high = x[..., pad:0:-1], x[..., -2:-pad - 2:-1]
    if boundary == "zeros":
        low = high = _n.zeros((*x.shape[:-1], pad), x.dtype)
    elif boundary == "constant":
        low = _n.broadcast_to(first, (*x.shape[:-1], pad))
        high = _n.broadcast_to(last, (*x.shape[:-1], pad))
    elif boundary == "odd":
        low, high = 2 * first - low, 2 * last - high
    return _n.concatenate([low, x, high], -1)


def _segments(x: Any, nperseg: int, step: int) -> Any:
    starts = np.arange(0, x.shape[-1] - nperseg + 1, step)
    return x[..., starts[:, None] + np.arange(nperseg)]


def _detrended(x: Any, how: Any) -> Any:
    if not how:
        return x
    return how(x) if callable(how) else detrend(x, type=how)


def _spectra(x: Any, y: Any, fs: Any, window: Any, nperseg: int | None, noverlap: int | None,
             nfft: int | None, detrending: Any, onesided: bool, scaling: str, axis: int,
             boundary: Any, padded: bool, power: bool) -> tuple[Any, Any, Any]:
    """(frequencies, times, spectra of the segments along the last axis)."""
    kinds = ["even", "odd", "constant", "zeros", None]
    if boundary not in kinds:
        raise ValueError(f"Unknown boundary option '{boundary}', must be one of: {kinds}")
    if nperseg is not None and (nperseg := operator.index(nperseg)) < 1:
        raise ValueError("nperseg must be a positive integer")
    same = y is None
    ts, _ = joined("csd", (x,) if same else (x, y), floating=True)
    pair = [make(t) for t in ts]
    axis = canonicalize_axis(axis, pair[0].ndim)
    if not same and pair[0].ndim != pair[1].ndim:
        raise ValueError(f"two-arguments must have the same rank ({pair[0].ndim} vs "
                         f"{pair[1].ndim}).")
    pair = [_n.moveaxis(v, axis, -1) for v in pair]
    if any(v.size == 0 for v in pair):
        raise ValueError("an input has no elements: a spectrum needs some")
    length = max(v.shape[-1] for v in pair)
    pair = [_padded(v, length - v.shape[-1]) for v in pair]
    win, nperseg = _window(window, nperseg, length)
    noverlap, nfft = _steps(nperseg, noverlap, nfft)
    real = np.empty(0, pair[0].dtype).real.dtype
    win = _n.asarray(win, real)
    pair = [_extended(v, boundary, nperseg // 2) for v in pair]
    step = nperseg - noverlap
    if padded:
        pair = [_padded(v, (-(v.shape[-1] - nperseg) % step) % nperseg) for v in pair]
    if scaling not in ("density", "spectrum"):
        raise ValueError(f"Unknown scaling: {scaling}")
    scale = 1 / (fs * (win * win).sum()) if scaling == "density" else 1 / win.sum() ** 2
    onesided = onesided and pair[0].dtype.kind != "c"
    run = _n.fft.rfft if onesided else _n.fft.fft
    found = [run(_detrended(_segments(v, nperseg, step), detrending) * win, nfft) for v in pair]
    out = found[0]
    if power:
        out = _n.real(_n.conj(out) * out) if same else _n.conj(out) * found[1]
    out = out * (scale if power else _n.sqrt(scale))
    if onesided and power:
        twice = np.full(out.shape[-1], 2.0, real)
        twice[[0] if nfft % 2 else [0, -1]] = 1.0
        out = out * twice
    freqs = (_n.fft.rfftfreq if onesided else _n.fft.fftfreq)(nfft, 1 / fs, dtype=real)
    times = _n.arange(nperseg / 2, pair[0].shape[-1] - nperseg / 2 + 1, step, dtype=real) / fs
    times = times - (nperseg / 2) / fs if boundary is not None else times
    return freqs, times, _n.moveaxis(_n.moveaxis(out, -1, -2), -2, axis)


def _padded(x: Any, more: int) -> Any:
    return _n.concatenate([x, _n.zeros((*x.shape[:-1], more), x.dtype)], -1) if more else x


def stft(x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int = 256,
         noverlap: int | None = None, nfft: int | None = None, detrend: Any = False,
         return_onesided: bool = True, boundary: Any = "zeros", padded: bool = True,
         axis: int = -1) -> tuple[Any, Any, Any]:
    """(frequencies, times, spectra of windowed segments); the times are the last axis."""
    return _spectra(x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided,
                    "spectrum", axis, boundary, padded, False)


def csd(x: Any, y: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None,
        noverlap: int | None = None, nfft: int | None = None, detrend: Any = "constant",
        return_onesided: bool = True, scaling: str = "density", axis: int = -1,
        average: str = "mean") -> tuple[Any, Any]:
    """(frequencies, cross spectral density): the segments' averaged, by Welch's method."""
    freqs, _, p = _spectra(x, y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided,
                           scaling, axis, None, False, True)
    if average not in ("median", "mean"):
        raise ValueError(f'average must be "median" or "mean", got {average}')
    if average == "mean":
        return freqs, p.mean(-1)
    even = 2.0 * np.arange(1, (p.shape[-1] - 1) // 2 + 1)
    bias = 1 + float((1 / (even + 1) - 1 / even).sum())
    if p.dtype.kind == "c":
        return freqs, (_n.median(p.real, -1) + 1j * _n.median(p.imag, -1)) / bias
    return freqs, _n.median(p, -1) / bias


def welch(x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None,
          noverlap: int | None = None, nfft: int | None = None, detrend: Any = "constant",
          return_onesided: bool = True, scaling: str = "density", axis: int = -1,
          average: str = "mean") -> tuple[Any, Any]:
    """(frequencies, power spectral density) by Welch's method."""
    return csd(x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling,
               axis, average)


def istft(Zxx: Any, fs: Any = 1.0, window: Any = "hann", nperseg: int | None = None,
          noverlap: int | None = None, nfft: int | None = None, input_onesided: bool = True,
          boundary: bool = True, time_axis: int = -1, freq_axis: int = -2) -> tuple[Any, Any]:
    """(times, signal) from the spectra of windowed segments, added where they overlap."""
    z = as_array(Zxx, "istft")
    if z.ndim < 2:
        raise ValueError("Input stft must be at least 2d!")
    time_axis, freq_axis = (canonicalize_axis(a, z.ndim) for a in (time_axis, freq_axis))
    if time_axis == freq_axis:
        raise ValueError("Must specify differing time and frequency axes!")
    z = z.astype(np.result_type(z.dtype, np.complex64))
    count, steps = z.shape[freq_axis], z.shape[time_axis]
    usual = 2 * (count - 1) if input_onesided else count
    if nperseg is None and not isinstance(window, (str, tuple)):
        nperseg = as_array(window).shape[0]
    nperseg = usual if nperseg is None else operator.index(nperseg)
    if nperseg < 1:
        raise ValueError("nperseg must be a positive integer")
    if nfft is None:
        nfft = nperseg if input_onesided and nperseg == usual + 1 else usual
    if nfft < nperseg:
        raise ValueError(f"FFT length ({nfft}) must be longer than nperseg ({nperseg}).")
    noverlap, nfft = _steps(nperseg, noverlap, nfft)
    win, _ = _window(window, nperseg, nperseg)
    win = _n.asarray(win, np.empty(0, z.dtype).real.dtype)
    step = nperseg - noverlap
    parts = _n.moveaxis(z, (freq_axis, time_axis), (-1, -2))
    parts = (_n.fft.irfft if input_onesided else _n.fft.ifft)(parts, nfft)[..., :nperseg]
    at = np.arange(steps)[:, None] * step + np.arange(nperseg)
    total = nperseg + (steps - 1) * step
    x = _n.zeros((*parts.shape[:-2], total), parts.dtype).at[..., at].add(parts * win * win.sum())
    norm = _n.zeros(total, win.dtype).at[at].add(win * win)
    if boundary:
        cut = slice(nperseg // 2, total - nperseg // 2)
        x, norm = x[..., cut], norm[cut]
    x = x / _n.where(norm > 1e-10, norm, 1.0)
    if x.ndim > 1 and time_axis != z.ndim - 1:
        x = _n.moveaxis(x, -1, time_axis - (freq_axis < time_axis))
    return _n.arange(x.shape[0], dtype=win.dtype) / fs, x


__all__ = ["csd", "detrend", "istft", "stft", "welch"]
