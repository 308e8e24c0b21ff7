"""What PyTorch refuses is refused here, by an error of the same class and by its words.

Each line of `torch_refusals.txt` is a small program over `torch`, `T` (torch.tensor), `F`, `nn`
and `np`, and behind the bar the words with which the refusal begins, as PyTorch prints them. Where
PyTorch is installed the lines are asked of it, too.
"""
from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad

LINES = [line.split(" | ") for line in
         Path(__file__).with_name("torch_refusals.txt").read_text("utf-8").splitlines()]


def refusal(t: Any, program: str) -> BaseException:
    """The error of a program of one library."""
    *acts, last = program.split("; ")
    names = {"torch": t, "T": t.tensor, "F": t.nn.functional, "nn": t.nn, "np": np}
    with warnings.catch_warnings(), pytest.raises(Exception) as caught:    # noqa: B017, PT011
        warnings.simplefilter("ignore")
        exec("\n".join(acts), names)
        exec(last, names)
    return caught.value


def builtin(error: BaseException) -> list[type]:
    """Classes of Python that catch an error."""
    return [c for c in type(error).__mro__
            if c.__module__ == "builtins" and c not in (object, BaseException, Exception)]


@pytest.mark.parametrize(("program", "kind", "words"), LINES, ids=[line[0] for line in LINES])
def test_is_refused_by_these_words(program: str, kind: str, words: str) -> None:
    error = refusal(ad, program)
    assert words in " ".join(str(error).split())
    assert kind in [c.__name__ for c in builtin(error)]


@pytest.mark.parametrize(("program", "kind", "words"), LINES, ids=[line[0] for line in LINES])
def test_pytorch_says_them(program: str, kind: str, words: str) -> None:
    error = refusal(pytest.importorskip("torch"), program)
    assert words in " ".join(str(error).split())
    assert type(error).__name__ == kind


def test_what_was_refused_though_pytorch_has_it() -> None:
    assert ad.block_diag().shape == ad.block_diag(ad.tensor([])).shape == (1, 0)
    assert ad.asarray(bytearray(b"\1\0\2\0"), dtype=ad.int16).tolist() == [1, 2]
    assert ad.zeros(3).broadcast_to(2, 3).shape == ad.broadcast_to(ad.zeros(3), (2, 3)).shape


def test_buffers_are_shared_or_copied_as_asked() -> None:
    held = bytearray(4)
    shared, copied = (ad.asarray(held, dtype=ad.uint8, copy=c) for c in (None, True))
    held[0] = 7
    assert shared.tolist() == [7, 0, 0, 0] and copied.tolist() == [0, 0, 0, 0]
