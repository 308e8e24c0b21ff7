"""Formula cards of a recording: one per kind of node, shared by all nodes of that kind.

Operands stand in a card as tokens, which the page replaces by the names they have at an event.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adjoint.core.tensor import Freed, Tensor
from adjoint.inspect import formulas

TOKEN = "ʘ"     # a letter, so that formulas treat a token as a name


@dataclass
class Card:
    """`forward` and `backward` (operand -> cotangent) as text, saved terms between MARK and END;
    `saved`: residual -> why."""

    operands: tuple[str, ...]
    forward: str
    backward: dict[str, str] = field(default_factory=dict)
    saved: dict[str, str] = field(default_factory=dict)


_known: dict[Any, Card | None] = {}
MANY = 4096     # kinds of nodes that are remembered between recordings


def card(key: Any, op: Any, node: Any, attrs: Mapping[str, Any]) -> Card | None:
    """The card of a node, or of an operation that recorded none; `key` is its `key_of`."""
    if key in _known:
        return _known[key]
    made = _made(op, node, attrs)
    if key is not None and len(_known) < MANY:
        _known[key] = made
    return made


def _made(op: Any, node: Any, attrs: Mapping[str, Any]) -> Card | None:
    try:
        if node is not None and type(node.saved) is not Freed:
            operands = tuple(formulas.operand_names(node))
            made = formulas.card_of(node, {o: f"{TOKEN}{o}{TOKEN}" for o in operands})
            backward = {o: _named(t, operands, made.saved) for o, t in made.backward.items()}
            return Card(operands, made.forward, backward, made.saved)
        if op is None or op.variadic:
            return None
        operands = tuple(op.operands)
        return Card(operands, formulas.spell(op, [f"{TOKEN}{o}{TOKEN}" for o in operands], attrs))
    except Exception:       # a formula is a comfort: no recording ends because one is missing
        return None


def _named(said: str, operands: tuple[str, ...], saved: Mapping[str, str]) -> str:
    """A formula that is a sentence of the record: its words that name residuals and operands,
    marked as those of spelled rules are."""
    if TOKEN in said or formulas.MARK in said:
        return said

    def one(m: re.Match[str]) -> str:
        word = m[0]
        name = f"{TOKEN}{word}{TOKEN}" if word in operands else word
        return formulas.marked(name) if word in saved and word not in _FUNCTIONS else name
    return _WORD.sub(one, said)


_WORD = re.compile(r"\b[A-Za-z_]\w*\b(?!\u0302)")    # (x with a hat is another value than x)
_FUNCTIONS = ("mean", "sum", "exp", "log")


def key_of(op: Any, node: Any, args: Any, said: str) -> Any:
    """What cards of equal nodes have in common; None where that cannot be told. `said` are the
    `attributes`."""
    if op is None:
        return None if node is None else type(node)
    needs = getattr(node.plan, "needs", 0) if node is not None else -1
    kinds = tuple([(a.array.ndim, a.array.size == 1, a.array.dtype.kind)
                   if isinstance(a, Tensor) and not a.level else constant(a) for a in args])
    return op, needs, kinds, node.dtype if node is not None else None, said


def attributes(attrs: Mapping[str, Any]) -> str:
    """The settings of an operation in a few words; large ones by their type."""
    return ", ".join(f"{k}={constant(v)}" for k, v in attrs.items() if v is not None)


def constant(a: Any) -> str:
    """A number or other constant as text."""
    if isinstance(a, float):
        return f"{a:.6g}"
    if a is None or isinstance(a, (bool, int, complex, str)):
        return str(a)[:40]
    if isinstance(a, np.dtype):
        return a.name
    if isinstance(a, (np.ndarray, np.generic)):
        return f"{a.item():.6g}" if a.size == 1 and a.dtype.kind in "fiu" else (
            f"array{list(a.shape)}")
    if isinstance(a, (tuple, list)) and len(a) <= 8:
        inside = ", ".join(constant(v) for v in a)
        return f"({inside})" if isinstance(a, tuple) else f"[{inside}]"
    return type(a).__name__


__all__ = ["Card", "attributes", "card", "constant", "key_of"]
