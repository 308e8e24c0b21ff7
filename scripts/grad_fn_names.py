"""What `grad_fn` prints here and in PyTorch, over a walk through the public functions.

`scripts/grad_fn_names.txt` has a line per expression; `python scripts/grad_fn_names.py` fills in
both names (it needs PyTorch), and docs/compat.md lists those that differ.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
TABLE = ROOT / "scripts" / "grad_fn_names.txt"


def operands(t: Any) -> dict[str, Any]:
    """What the expressions name, made by the library `t`."""
    def rand(*shape: int) -> Any:
        return t.rand(*shape).requires_grad_()
    return {
        "torch": t, "F": t.nn.functional, "x": rand(2, 3, 8, 8), "y1": rand(2, 3, 8),
        "x3": rand(1, 2, 6, 6, 6), "m": rand(4, 5), "v": rand(5), "b3": rand(2, 4, 4),
        "sq": (t.rand(4, 4) + 4 * t.eye(4)).requires_grad_(),
        "tgt": t.tensor([0, 1, 2, 3]), "tm": t.rand(4, 5), "pm": t.ones(4, 5),
        "idx": t.tensor([0, 2]), "mask": t.tensor([True, False, True, False]),
        "z": t.randn(4, dtype=t.complex64).requires_grad_(),
    }


def names(t: Any, expressions: list[str]) -> dict[str, str]:
    """Expression -> the name of the node that made its value; "none" where there is no node."""
    space = operands(t)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = {e: eval(e, space).grad_fn for e in expressions}  # noqa: S307  # our own table
    return {e: "none" if n is None else type(n).__name__ for e, n in nodes.items()}


def rows() -> list[tuple[str, str, str]]:
    """(expression, PyTorch's name, ours) of each line."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    split = [line.rsplit("|", 2) for line in lines if line and not line.startswith("#")]
    return [(a.strip(), b.strip(), c.strip()) for a, b, c in split]


def main() -> None:
    """Fill in the table."""
    expressions = [e for e, _, _ in rows()]
    theirs = names(importlib.import_module("torch"), expressions)
    ours = names(importlib.import_module("adjoint"), expressions)
    head = TABLE.read_text(encoding="utf-8").splitlines()[:2]
    lines = [f"{e} | {theirs[e]} | {ours[e]}" for e in expressions]
    TABLE.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
