"""The text of `adjoint train`: reading it, dividing it, drawing batches from it."""
from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adjoint.cli.train_options import BadInput

_SKIPPED = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__",
            "node_modules"}
_VALIDATION = 10  # every tenth document, or the last tenth of a single text


class Corpus(NamedTuple):
    """Bytes to train and to validate on, where they are from, and their fingerprint."""

    train: np.ndarray
    validation: np.ndarray
    source: str
    digest: str


def _standard_library(budget: int) -> tuple[list[bytes], str]:
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(p for p in root.rglob("*.py")
                   if not _SKIPPED.intersection(p.relative_to(root).parts))
    return _read(files, budget), "the source of Python's standard library"


def _folder(root: Path, budget: int) -> tuple[list[bytes], str]:
    def walk() -> Iterator[Path]:
        for folder, names, files in os.walk(root):
            names[:] = sorted(n for n in names if n not in _SKIPPED and not n.startswith("."))
            yield from (Path(folder) / f for f in sorted(files) if not f.startswith("."))
    documents = _read(walk(), budget)
    if not documents:
        raise BadInput(f"--text {root}: the folder holds no text")
    return documents, f"{len(documents)} files in {root}"


def _read(files: Iterator[Path] | list[Path], budget: int) -> list[bytes]:
    """The files in order, up to `budget` bytes; binary, empty and unreadable ones are left out."""
    documents: list[bytes] = []
    for path in files:
        if budget <= 0:
            break
        try:
            if not path.is_file():
                continue
            with open(path, "rb") as file:
                data = file.read(budget)
        except OSError:
            continue
        if data and b"\0" not in data[:8192]:
            documents.append(data)
            budget -= len(data)
    return documents


def _documents(text: str, budget: int) -> tuple[list[bytes], str]:
    if not text:
        return _standard_library(budget)
    path = Path(text)
    if path.is_dir():
        return _folder(path, budget)
    try:
        with open(path, "rb") as file:
            data = file.read(budget)
    except OSError as error:
        raise BadInput(f"--text {text}: {error.strerror or error}") from None
    if not data:
        raise BadInput(f"--text {text}: the file is empty")
    return [data], text


def load_corpus(text: str, max_mb: float, context: int) -> Corpus:
    """Read, divide and check the text; `BadInput` if it is missing or too short.

    Whole documents are held out where there are at least twenty, so that validation text was
    never seen; otherwise the end of the text is.
    """
    documents, source = _documents(text, max(1, int(max_mb * 1e6)))
    if len(documents) >= 2 * _VALIDATION:
        held = [d for i, d in enumerate(documents) if i % _VALIDATION == _VALIDATION - 1]
        rest = [d for i, d in enumerate(documents) if i % _VALIDATION != _VALIDATION - 1]
        train, validation = b"\n".join(rest), b"\n".join(held)
    else:
        whole = b"\n".join(documents)
        cut = len(whole) - max(len(whole) // _VALIDATION, min(context + 1, len(whole) // 2))
        train, validation = whole[:cut], whole[cut:]
    if min(len(train), len(validation)) <= context:
        size = sum(map(len, documents))
        raise BadInput(f"{source}: {size} bytes are too short for a context of {context}: "
                       f"at least {2 * (context + 1)} are needed (half to train, half to "
                       f"validate); give more text or a smaller --context")
    digest = hashlib.sha256(train + b"\0" + validation).hexdigest()
    return Corpus(np.frombuffer(train, np.uint8), np.frombuffer(validation, np.uint8),
                  source, digest)


def windows(data: np.ndarray, starts: np.ndarray, context: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets (len(starts), context) int64: the text from each start, and one on."""
    rows = data[starts[:, None] + np.arange(context + 1)].astype(np.int64)
    return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])


def batch_at(data: np.ndarray, step: int, seed: int, batch: int, context: int
             ) -> tuple[np.ndarray, np.ndarray]:
    """The batch of training step `step`: a function of seed and step alone.

    So the position in the data is the step number, and a resumed run needs no more.
    """
    draw = np.random.Generator(np.random.Philox(key=(seed << 64) | step))
    return windows(data, draw.integers(0, len(data) - context, batch), context)


def validation_batches(data: np.ndarray, batch: int, context: int, limit: int = 128
                       ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Windows evenly spread over `data`, always the same ones, at most `limit`."""
    count = max(1, min(limit, (len(data) - 1) // context))
    starts = np.linspace(0, len(data) - context - 1, count).astype(np.int64)
    for i in range(0, count, batch):
        yield windows(data, starts[i:i + batch], context)
