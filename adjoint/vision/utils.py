"""Grids of images, and image files."""
from __future__ import annotations

import math
import os
import struct
import zlib
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, NotSupported, ShapeError
from adjoint.core.tensor import Tensor, wrap


def make_grid(tensor: Any, nrow: int = 8, padding: int = 2, normalize: bool = False,
              value_range: tuple[float, float] | None = None, scale_each: bool = False,
              pad_value: float = 0.0) -> Tensor:
    """Images (N, C, H, W), or a list of (C, H, W), as one image, `nrow` to a row.

    normalize    shift and scale to [0, 1], from `value_range` or the least and greatest value
    scale_each   each image by its own range

    >>> import adjoint as ad
    >>> make_grid(ad.ones(4, 1, 2, 2), nrow=2, padding=1).shape
    adjoint.Size([3, 7, 7])
    """
    parts = list(tensor) if isinstance(tensor, (list, tuple)) else None
    array = np.stack([t.detach().array for t in parts]) if parts is not None else \
        tensor.detach().array
    if array.ndim not in (2, 3, 4):
        raise ShapeError(f"make_grid: expected (N, C, H, W), (C, H, W) or (H, W), got "
                         f"{list(array.shape)}")
    array = array.reshape((1,) * (4 - array.ndim) + array.shape) if array.ndim < 4 else array
    if array.shape[1] == 1:
        array = np.repeat(array, 3, 1)
    array = np.array(array, array.dtype if array.dtype.kind == "f" else np.float32)
    if normalize:
        for group in (array if scale_each else [array]):
            low, high = value_range or (float(group.min()), float(group.max()))
            group[...] = (np.clip(group, low, high) - low) / max(high - low, 1e-5)
    n, c, h, w = array.shape
    if n == 1:
        return wrap(array[0])
    columns = min(nrow, n)
    rows = math.ceil(n / columns)
    out = np.full((c, rows * (h + padding) + padding, columns * (w + padding) + padding),
                  pad_value, array.dtype)
    for k in range(n):
        y, x = k // columns * (h + padding) + padding, k % columns * (w + padding) + padding
        out[:, y:y + h, x:x + w] = array[k]
    return wrap(out)


def save_image(tensor: Any, fp: Any, format: str | None = None, **grid: Any) -> None:
    """Write a tensor (or a grid of tensors, see `make_grid`) with values in [0, 1] to a file.

    PNG needs nothing; other formats need Pillow.
    """
    array = make_grid(tensor, **grid).array
    pixels = np.moveaxis(np.clip(array * 255 + 0.5, 0, 255).astype(np.uint8), 0, -1)
    kind = (format or os.path.splitext(str(fp))[1].lstrip(".") or "png").lower()
    if kind == "png":
        data = png(pixels)
        if hasattr(fp, "write"):
            fp.write(data)
        else:
            with open(fp, "wb") as file:
                file.write(data)
        return
    try:
        from PIL import Image
    except ImportError:
        raise NotSupported(f"save_image: writing {kind!r} needs Pillow (pip install pillow); "
                           "PNG does not") from None
    Image.fromarray(pixels).save(fp, format=format)


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    """The PNG file of a (height, width, 3) or (height, width) uint8 array.

    Source of the format: W3C, "Portable Network Graphics (PNG) Specification".
    """
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)):
        raise ArgumentError(f"png: expected uint8 (H, W) or (H, W, 3), got {pixels.dtype} "
                            f"{list(pixels.shape)}")
    height, width = pixels.shape[:2]

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    rows = pixels.reshape(height, -1)
    raw = np.concatenate([np.zeros((height, 1), np.uint8), rows], 1).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 6))
            + chunk(b"IEND", b""))
