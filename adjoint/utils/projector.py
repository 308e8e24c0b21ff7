"""The files of TensorBoard's projector: points, their labels and pictures."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from adjoint.base.errors import ArgumentError, ShapeError


def _rows(rows: Any) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def _sprite(pictures: Any, png: Callable[[Any], bytes]) -> bytes:
    """The pictures (N, C, H, W) in a square, row by row."""
    n, channels, height, width = pictures.shape
    side = int(np.ceil(np.sqrt(n)))
    if side * max(height, width) > 8192:
        raise ShapeError(f"add_embedding: {side} x {side} pictures of {height} x {width} make more "
                         "than the 8192 pixels a side that TensorBoard shows")
    tiles = np.zeros((side * side, channels, height, width), np.uint8)
    tiles[:n] = pictures
    tiles = tiles.reshape(side, side, channels, height, width).transpose(0, 3, 1, 4, 2)
    return png(tiles.reshape(side * height, side * width, channels))


def write_embedding(folder: str, step: str, tag: str, mat: Any, labels: Any, header: Any,
                    pictures: Any, png: Callable[[Any], bytes]) -> None:
    """Write the files of one set of points below `folder`, and its entry in the list."""
    if mat.ndim != 2:
        raise ShapeError(f"add_embedding: mat of shape {list(mat.shape)}; mat should be 2D, where "
                         "mat.size(0) is the number of data points")
    for what, given in (("labels", labels), ("images", pictures)):
        if given is not None and len(given) != len(mat):
            raise ArgumentError(f"add_embedding: #{what} should equal with #data points, got "
                                f"{len(given)} for {len(mat)}")
    at = f"{step}/{quote(tag, safe='')}"
    place = Path(folder) / at
    if place.exists():
        print("warning: Embedding dir exists, did you set global_step for add_embedding()?")
    place.mkdir(parents=True, exist_ok=True)
    lines = [f'  tensor_name: "{tag}:{step}"']
    if labels is not None:
        rows = [header, *labels] if header else [[x] for x in labels]
        (place / "metadata.tsv").write_text(_rows(rows), encoding="utf-8")
        lines.append(f'  metadata_path: "{at}/metadata.tsv"')
    if pictures is not None:
        (place / "sprite.png").write_bytes(_sprite(pictures, png))
        height, width = pictures.shape[2:]
        lines += ["  sprite {", f'    image_path: "{at}/sprite.png"',
                  f"    single_image_dim: {width}", f"    single_image_dim: {height}", "  }"]
    (place / "tensors.tsv").write_text(_rows(mat.tolist()), encoding="utf-8")
    lines.append(f'  tensor_path: "{at}/tensors.tsv"')
    with open(Path(folder) / "projector_config.pbtxt", "a", encoding="utf-8") as config:
        config.write("\n".join(["embeddings {", *lines, "}", ""]))
