"""What tensors and nodes do in themselves, asked of both libraries (F2, F15, F23).

`torch_internals.txt` holds programs over `torch`, each under a line `## name`. Both libraries run
each of them, and what it prints is the same: values, warnings, classes of errors, and the words of
PyTorch's errors, which ours begin with.
"""
from __future__ import annotations

import contextlib
import io
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import adjoint as ad

torch = pytest.importorskip("torch")

TEXT = Path(__file__).with_name("torch_internals.txt").read_text(encoding="utf-8")
PROGRAMS = {name.strip(): body for name, body in (
    part.split("\n", 1) for part in ("\n" + TEXT).split("\n## ")[1:])}


def told(f: Any, *args: Any, **kwargs: Any) -> None:
    """Print what a call gives, or its error: its built-in classes and its first line."""
    try:
        print(repr(f(*args, **kwargs)))
    except Exception as error:
        kinds = [c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins"]
        print("! " + " ".join(kinds), "|", str(error).split("\n")[0])


def run(library: Any, name: str) -> list[str]:
    """The lines that the program prints, and the warnings."""
    out = io.StringIO()
    library.manual_seed(0)
    with contextlib.redirect_stdout(out), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        exec(compile(PROGRAMS[name], name, "exec"), {  # noqa: S102  # our own programs
            "torch": library, "P": told, "F": library.nn.functional, "__name__": "program"})
    lines = out.getvalue().replace("adjoint.", "torch.").splitlines()
    seen = [w for w in seen if "jit.script" not in str(w.message)]     # PyTorch's of itself
    lines += [f"warns {w.category.__name__}: {str(w.message).splitlines()[0][:60]}" for w in seen]
    return [re.sub(r"0x[0-9a-f]+", "0x", line) for line in lines]


def alike(theirs: str, ours: str) -> bool:
    """The same line; of errors, PyTorch's class is one of ours and its words begin ours."""
    if not theirs.startswith("! "):
        return theirs == ours
    kinds, _, words = theirs.partition(" | ")
    own, _, said = ours.partition(" | ")
    return kinds.split()[1] in own.split() and said.startswith(words.rstrip(". "))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_the_same(name: str) -> None:
    theirs, ours = run(torch, name), run(ad, name)
    assert len(theirs) == len(ours), (theirs, ours)
    different = [(a, b) for a, b in zip(theirs, ours, strict=True) if not alike(a, b)]
    assert not different, different
