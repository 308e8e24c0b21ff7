"""Texts on terminals: folded to their width; in pipes they stay as they are."""
from __future__ import annotations

import io
import os

import pytest

from adjoint.base.text import fold, say


@pytest.mark.parametrize("width", [40, 60, 80])
def test_lines_fold_below_their_last_column(width: int) -> None:
    text = "\n".join([
        "AD009  dead ReLU units",
        "  seen: 32 of 32 units (100%) gave 0 for all 192 samples of 6 calls of the whole program",
        "  fix:  lower the learning rate, look at the bias's value, or use leaky_relu",
        "memory grows         107.0 MB resident, more than at the third step, by 12.5 MB of it"])
    folded = fold(text, width).split("\n")
    assert max(map(len, folded)) <= width and folded[0] == "AD009  dead ReLU units"
    assert " ".join(" ".join(folded).split()) == " ".join(text.split())
    last = folded.index(next(line for line in folded if line.startswith("memory")))
    assert len(folded) > last + 1 and all(
        line.startswith(" " * 21) and line[21] != " " for line in folded[last + 1:])


def test_a_long_word_stays_whole() -> None:
    path = "/a/very/long/path/" + "x" * 50
    assert path in fold(f"  in {path} of the program", 40).split("\n")[-2]
    assert fold("x" * 90, 40) == "x" * 90


def test_a_pipe_gets_the_lines_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    long = "word " * 30 + "end"
    pipe, terminal = io.StringIO(), Terminal()
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((50, 24)))
    say(long, pipe)
    say(long, terminal)
    assert pipe.getvalue() == long + "\n"
    assert max(map(len, terminal.getvalue().split("\n"))) <= 50
