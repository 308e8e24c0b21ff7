"""Programs as in PyTorch's own test files, run with both libraries: what they print is the same.

`torch_pipes.txt` (data pipes) and `torch_suites.txt` (layers, hooks, tracing, sparse tensors and
the small modules) hold programs, set apart by empty lines. `t` is the library, `mod(name)` a module
of it, `E(f, ...)` calls `f` and prints the error: ours must be of PyTorch's class too, and its text
must hold PyTorch's first sentence (F15, F42, F75).
"""
from __future__ import annotations

import contextlib
import importlib
import io
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")
FILES = ("torch_pipes.txt", "torch_suites.txt")
PROGRAMS = [(name, text) for name in FILES
            for text in Path(__file__).with_name(name).read_text().strip().split("\n\n")]
ERROR = "error "


def plain(text: str) -> str:
    """Letters and digits: quotes, line breaks and full stops are each library's own."""
    return " ".join(re.findall(r"\w+", text.lower().replace("adjoint.", "torch.")))


def run(t: Any, program: str) -> list[str]:
    """The lines that a program prints, and its warnings."""
    def E(f: Any, *args: Any, **kwargs: Any) -> None:
        try:
            print("fine", f(*args, **kwargs))
        except Exception as error:
            kinds = ",".join(kind.__name__ for kind in type(error).__mro__)
            print(f"{ERROR}{kinds} {plain(str(error))}")

    space = {"t": t, "nn": t.nn, "F": t.nn.functional, "np": np, "E": E, "__name__": "__main__",
             "mod": lambda name: importlib.import_module(f"{t.__name__}.{name}")}
    printed = io.StringIO()
    t.manual_seed(0)
    with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        exec(compile(program, "program", "exec"), space)
    text = printed.getvalue().replace("adjoint.", "torch.")
    return [*text.splitlines(),
            *(f"warns {w.category.__name__} {plain(str(w.message))[:40]}" for w in told
              if w.category is not ResourceWarning)]


def agrees(theirs: str, ours: str) -> bool:
    """The same line; or an error of theirs that ours is too, with its first words."""
    if not theirs.startswith(ERROR):
        return theirs == ours
    kinds, _, text = theirs.removeprefix(ERROR).partition(" ")
    own, _, said = ours.removeprefix(ERROR).partition(" ")
    return (ours.startswith(ERROR) and kinds.split(",")[0] in own.split(",")
            and text[:150] in said)


@pytest.mark.parametrize("program", [text for _, text in PROGRAMS], ids=[
    f"{name.removesuffix('.txt')}-{i}" for i, (name, _) in enumerate(PROGRAMS)])
def test_prints_the_same(program: str) -> None:
    theirs, ours = run(torch, program), run(ad, program)
    assert theirs, "the program prints nothing"
    assert len(theirs) == len(ours) and all(map(agrees, theirs, ours)), "\n".join(
        f"{a}\n    {b}" for a, b in zip(theirs, ours, strict=False) if not agrees(a, b))
