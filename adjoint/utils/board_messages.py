"""What TensorBoard's plugins put into the values of a summary: its public .proto files, by hand."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError
from adjoint.utils.events_file import (
    bytes_field,
    double_field,
    int_field,
    tensor,
    varint,
)

_LISTS = {      # NumPy's dtype: the number of TensorFlow's, the field of the values, how they lie
    "float32": (1, 5, "<f4"), "float64": (2, 6, "<f8"), "int32": (3, 7, ""), "uint8": (4, 16, ""),
    "int16": (5, 7, ""), "int8": (6, 7, ""), "complex64": (8, 9, "<c8"), "int64": (9, 10, ""),
    "bool": (10, 11, ""), "complex128": (18, 12, "<c16"), "float16": (19, 13, ""),
    "bfloat16": (14, 13, ""),
}


def _values(array: Any) -> tuple[int, bytes]:
    name = str(array.dtype)
    if name not in _LISTS:
        raise ArgumentError(f"add_tensor: TensorBoard has no {name}")
    dtype, field, packed = _LISTS[name]
    if packed:
        data = np.ascontiguousarray(array).astype(packed).tobytes()
    else:
        whole = array.view(np.uint16) if field == 13 else array
        data = b"".join(varint(int(n)) for n in whole.reshape(-1))
    return dtype, bytes_field(field, data)


def any_tensor(tag: str, plugin: str, content: bytes, array: Any) -> bytes:
    """A summary value: the numbers of an array, for a plugin that shows them."""
    dtype, values = _values(array)
    return tensor(tag, plugin, content, dtype, array.shape, values)


def curve(tag: str, rows: Any) -> bytes:
    """A summary value of precision and recall: six rows, a column for each threshold."""
    return any_tensor(tag, "pr_curves", int_field(2, min(rows.shape[1], 127)),
                      np.asarray(rows, np.float32))


def curve_rows(labels: Any, predictions: Any, thresholds: int, weights: Any) -> Any:
    """True and false positives, true and false negatives, precision and recall where what is at
    least 0, 1/(n-1), ..., 1 counts as found."""
    weights = np.broadcast_to(1.0 if weights is None else weights, labels.shape)
    at = np.floor(predictions * (thresholds - 1)).astype(np.int64)
    right = labels.astype(np.float64)
    found = [np.bincount(at, part * weights, minlength=thresholds)[::-1].cumsum()[::-1]
             for part in (right, 1.0 - right)]
    tp, fp = found
    fn, tn = tp[0] - tp, fp[0] - fp
    return np.stack([tp, fp, tn, fn, tp / np.maximum(1e-7, tp + fp),
                     tp / np.maximum(1e-7, tp + fn)])


def mesh(tag: str, kind: int, content: int, config: Any, array: Any) -> bytes:
    """A summary value: one part of a mesh (1 vertices, 2 faces, 3 colours); `content` has a bit
    for each part that there is."""
    shape = b"".join(varint(n) for n in array.shape)
    name = ("VERTEX", "FACE", "COLOR")[kind - 1]
    body = (bytes_field(2, tag) + int_field(3, kind)
            + bytes_field(5, json.dumps(config or {}, sort_keys=True)) + bytes_field(6, shape)
            + int_field(7, content))
    return any_tensor(f"{tag}_{name}", "mesh", body, np.asarray(array, np.float32))


def layout(categories: Mapping[str, Mapping[str, Sequence[Any]]]) -> bytes:
    """A summary value: which scalars the Custom Scalars page shows in one chart."""
    body = b""
    for title, charts in categories.items():
        category = bytes_field(1, title)
        for name, (kind, tags) in charts.items():
            chart = bytes_field(1, name)
            if kind == "Margin":
                if len(tags) != 3:
                    raise ArgumentError(f"chart {name!r}: Expected 3 tags, got {len(tags)}: a "
                                        "margin chart has a value, a lower and an upper bound")
                series = b"".join(bytes_field(i, tag) for i, tag in enumerate(tags, 1))
                chart += bytes_field(3, bytes_field(1, series))
            else:
                chart += bytes_field(2, b"".join(bytes_field(1, tag) for tag in tags))
            category += bytes_field(2, chart)
        body += bytes_field(2, category)
    return tensor("custom_scalars__config__", "custom_scalars", b"", 7, (), bytes_field(8, body))


def _setting(name: str, value: Any) -> tuple[int, bytes]:
    """TensorBoard's kind of a setting (1 text, 3 number) and its value."""
    if isinstance(value, str):
        return 1, bytes_field(3, value)
    if isinstance(value, (int, float)) or hasattr(value, "item"):
        return 3, double_field(2, float(value))
    raise ArgumentError(f"add_hparams: value should be one of int, float, str, bool, or "
                        f"torch.Tensor; {name!r} is a {type(value).__name__}")


def settings(hparams: Mapping[str, Any], metrics: Mapping[str, Any],
             discrete: Mapping[str, Sequence[Any]]) -> tuple[bytes, bytes, bytes]:
    """Three summary values: which settings and results there are, this run's settings, its end."""
    for name, choices in discrete.items():
        if name not in hparams or not all(isinstance(x, type(hparams[name])) for x in choices):
            raise TypeError(f"parameter: hparam_domain_discrete[{name}] should be a list of same "
                            f"type as hparam_dict[{name}].")
    infos, start = b"", b""
    for name, value in hparams.items():
        kind, encoded = _setting(name, value)
        info = bytes_field(1, name) + int_field(4, kind)
        if name in discrete:
            info += bytes_field(5, b"".join(bytes_field(1, _setting(name, x)[1])
                                            for x in discrete[name]))
        infos += bytes_field(4, info)
        start += bytes_field(1, bytes_field(1, name) + bytes_field(2, encoded))
    for name in metrics:
        infos += bytes_field(5, bytes_field(1, bytes_field(2, name)))

    def part(tag: str, content: bytes) -> bytes:
        data = bytes_field(1, "hparams") + bytes_field(2, content)
        return bytes_field(1, f"_hparams_/{tag}") + bytes_field(9, bytes_field(1, data))
    return (part("experiment", bytes_field(2, infos)),
            part("session_start_info", bytes_field(3, start)),
            part("session_end_info", bytes_field(4, int_field(1, 1))))
