"""The memory estimator as one web page that works offline from a single file.

The page carries the architectures as data: the same expressions that `calculator` evaluates are
evaluated there by a small parser of its own, so both give the same bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from adjoint.memory.architectures import Architecture, Saved, architecture, dense, names
from adjoint.memory.calculator import ELEMENT_BYTES, OPTIMIZERS, Options, parameters
from adjoint.memory.devices import DEVICES

_PLACEHOLDER = "/*DATA*/ null"


def _row(row: Saved) -> dict[str, Any]:
    """The fields that the page reads."""
    row_data = asdict(row)
    return {k: v for k, v in row_data.items() if k not in ("group", "lean")}


def _architecture(arch: Architecture) -> dict[str, Any]:
    return {
        "title": arch.title,
        "kind": arch.kind,
        "symbols": arch.symbols,
        "parts": [asdict(p) for p in arch.parts],
        "flash": [_row(r) for r in arch.block],
        "dense": [_row(r) for r in dense(arch.block, arch.dropout)],
        "rest": [_row(r) for r in arch.rest],
        "seq": arch.seq,
        "parameters": parameters(arch),
    }


def page(name: str = "llama-3.1-70b", options: Options | None = None, on: str = "H100-80GB") -> str:
    """The page as HTML, opened on one architecture, its options and a device.

    >>> "<script src" in page()
    False
    """
    options = options or Options(architecture(name).seq)
    p = options.parallel
    data = {
        "architectures": {n: _architecture(architecture(n)) for n in names()},
        "devices": {d.name: d.memory for d in DEVICES.values()},
        "optimizers": OPTIMIZERS,
        "widths": ELEMENT_BYTES,
        "start": {
            "arch": architecture(name).name, "seq": options.seq, "batch": options.batch,
            "dtype": options.dtype, "optimizer": options.optimizer, "master": options.master,
            "attention": options.attention, "recompute": options.recompute, "device": on,
            "tensor": p.tensor, "pipeline": p.pipeline, "data": p.data, "zero": p.zero,
            "sequence": p.sequence, "microbatches": p.microbatches,
        },
    }
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    template = files("adjoint.memory").joinpath("page.html").read_text(encoding="utf-8")
    return template.replace(_PLACEHOLDER, text)


def write_page(path: str | Path, name: str, options: Options, on: str) -> None:
    """Write the page to a file."""
    Path(path).write_text(page(name, options, on), encoding="utf-8")
