"""What a node computes and what its backward computes, as text, read off its record.

The backward of an op is its rule; to write it down, the rule is run on symbols: tensors of a
transform level whose only content is their text. What is printed therefore cannot drift from what
the engine runs. Names of residuals stand between MARK and END until a renderer colours them.
"""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, aval_of
from adjoint.base.errors import AutogradError
from adjoint.core.op import Op, Plan
from adjoint.core.tensor import Freed, Node, Tensor
from adjoint.core.trace import LevelTensor, Trace, make
from adjoint.kernels import expr as ex

MARK, END = "\x01", "\x02"
CT = "ct"
UNKNOWN = "\x03"     # an operand of which nothing is known: a constant, or absent
ABSENT = ("None", UNKNOWN)
LONG = 100      # characters from which the reason's own formula is the better text

class SymbolTensor(LevelTensor):
    """A tensor that is a text, a shape and a dtype."""

    __slots__ = ()


class Spelling(Trace):
    """Runs rules on symbols."""

    name = "the spelling of a rule"

    def symbol(self, text: str, aval: Aval) -> Any:
        """A tensor that prints as `text`."""
        return make(SymbolTensor, self, text=text, shape_=aval.shape, dtype_=aval.dtype)

    def aval(self, t: Any) -> tuple[tuple[int, ...], Any]:
        return t.shape_, t.dtype_

    def process(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        avals = [None if a is None else aval_of(a.array if isinstance(a, Tensor) else a)
                 for a in args]
        made = op.infer(*avals, **attrs)
        many = op.multi
        outs = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        outs = outs[: len(op.outs)] if not op.variadic_out else outs
        text = spell(op, [text_of(a) for a in args], attrs)
        found = [self.symbol(f"{text}[{i}]" if len(outs) > 1 else text, a)
                 for i, a in enumerate(outs)]
        return tuple(found) if many else found[0]

    def strip(self, t: Any) -> Any:
        return self.symbol(t.text, Aval(t.shape_, t.dtype_))

    detach = strip

    def custom(self, cls: Any, args: tuple[Any, ...]) -> Any:
        raise AutogradError(f"{cls.__name__} has no formula")


def text_of(a: Any) -> str:
    """An operand as text: a symbol's, a number, or what kind of constant it is."""
    if isinstance(a, SymbolTensor):
        return str(a.__dict__["text"])
    array = a.array if isinstance(a, Tensor) and not a.level else a
    if isinstance(array, (bool, int, float, complex)):
        return f"{array:.6g}" if isinstance(array, float) else str(array)
    if isinstance(array, np.ndarray):
        if array.size == 1:
            return text_of(array.item())
        if not any(array.strides) and array.size:
            return "0" if not array.flat[0] else text_of(array.flat[0].item())
        return "const"
    return "None" if a is None else "const"


_DERIVATIVE = re.compile(r"d[\w.\[\]]+/d[\w.\[\]]+")
NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")
_TWICE = re.compile(rf"(?<![\w·)\]@])(\(?)([\w.{MARK}{END}]+) \+ \2(?![\w·({MARK}])")


def _atomic(text: str) -> bool:
    """True if `text` needs no parentheses as an operand."""
    bare = text.replace(MARK, "").replace(END, "")
    if bare == "_" or _DERIVATIVE.fullmatch(bare):
        return True
    depth = 0
    for i, c in enumerate(bare):
        depth += c in "([|" and not (c == "|" and depth)
        depth -= c in ")]"
        if depth == 0 and (c in " +·/" or c == "-" and i == 0):
            return False
    return True


def grouped(text: str) -> str:
    """`text`, in parentheses where it is a sum, a product or the like."""
    return text if _atomic(text) else f"({text})"


def spell(op: Op, texts: Sequence[str], attrs: Mapping[str, Any]) -> str:
    """The result of `op` on operands that print as `texts`."""
    if op.scalar is not None:
        env = {ex.var(n): _leaf(_known(t)) for n, t in zip(op.operands, texts, strict=True)}
        env.update({ex.var(k): ex.as_expr(v) for k, v in attrs.items()
                    if isinstance(v, (bool, int, float, complex))})
        return pretty(ex.substitute(op.scalar, env))
    if op.show:
        return _written(op.show, dict(zip(op.operands, texts, strict=True)))
    shown = [t for t in texts if t not in ABSENT]
    shown += [f"{k}={_brief(v)}" for k, v in attrs.items()
              if isinstance(v, (bool, int, float, str, tuple)) and len(_brief(v)) < 20]
    return f"{op.name}({', '.join(shown)})"


def _known(text: str) -> str:
    return "const" if text == UNKNOWN else text


def _written(show: str, texts: Mapping[str, str]) -> str:
    """A record's form, filled in; optional parts whose operand is absent are left out."""
    def part(found: re.Match[str]) -> str:
        absent = any(texts[n] in ABSENT for n in re.findall(r"{(\w+)}", found[1]))
        return "" if absent else found[1]
    form = re.sub(r"\[(.*?)\]", part, show)
    return form.format(**{n: grouped(_known(t)) for n, t in texts.items()})


def _leaf(text: str) -> ex.Expr:
    """An operand in an expression; a number stays one, so that products with 1 fold."""
    if NUMBER.fullmatch(text):
        return ex.as_expr(float(text))
    return ex.var(grouped(text))


def pretty(e: ex.Expr) -> str:
    """An expression as people write it."""
    text = ex.formula(e).replace(" * ", "·")
    return _TWICE.sub(lambda m: m[0] if m[2] == "_" else f"{m[1]}2·{m[2]}", text)


def _brief(v: Any) -> str:
    return f"{v:.4g}" if isinstance(v, float) else str(v)


@dataclass
class Card:
    """One node in symbols. Residual names stand between MARK and END.

    forward   the value, for example ``a·b``
    backward  operand -> its cotangent, written with `ct`
    saved     residual -> why it is kept
    """

    op: str
    forward: str
    backward: dict[str, str] = field(default_factory=dict)
    saved: dict[str, str] = field(default_factory=dict)


def marked(name: str) -> str:
    """`name` as that of a saved term."""
    return f"{MARK}{name}{END}"


def operand_names(node: Any) -> tuple[str, ...]:
    """Names of a node's operands, as in its record."""
    op = getattr(node.plan, "op", None)
    n = len(node.edges)
    if op is None:
        return tuple(f"input{i}" for i in range(n)) if n > 1 else ("input",)[:n]
    if op.variadic:
        return tuple(f"x{i}" for i in range(n))
    return tuple(op.operands)


def card_of(node: Any, names: Mapping[str, str] | None = None, ct: str = CT) -> Card:
    """The card of a recorded node; `names` gives operands and residuals other names, `ct` the text
    of the cotangent.

    >>> import adjoint as ad
    >>> y = ad.ones(2, requires_grad=True).tanh()
    >>> plain(card_of(y.grad_fn).backward["x"])
    'ct·(1 - ([out]·[out]))'
    """
    names = dict(names or {})
    plan: Plan | None = node.plan
    if plan is None or getattr(plan, "op", None) is None:
        return Card(node.name(), f"{node.name().removesuffix('Backward')}"
                    f"({', '.join(operand_names(node))})")
    op = plan.op
    operands = operand_names(node)
    shown = [names.get(o, o) for o in operands]
    card = Card(op.name, spell(op, shown, node.attrs))
    kept = plan.kept
    for n in kept:
        card.saved[n] = reason(op, n)
    wanted = [o for i, o in enumerate(operands) if node.edges[i] is not None]
    try:
        texts = _spelled(node, {n: marked(names.get(n, n)) for n in kept}, ct)
    except Exception:       # a rule that needs values; the reasons still tell the formula
        texts = {}
    for o in wanted:
        text, said = texts.get(o), _from_why(op, o)
        if text is not None and said and (len(text) > LONG or "_backward" in text):
            text = None
        card.backward[o] = text or said or f"{op.name}_vjp({ct})"
    return card


def reason(op: Op, residual: str) -> str:
    """Why `op` keeps that residual, in words or as the slope that reads it."""
    said = op.why.get(residual)
    if said:
        return said
    if op.scalar is not None:
        slopes = op.rules[2]          # type: ignore[attr-defined]  # a pointwise record
        readers = [f"d{o} = ct·{grouped(pretty(s))}"
                   for o, s in slopes.items() if residual in ex.variables(s)]
        return "; ".join(readers)
    return "read by the rule"


def _from_why(op: Op, operand: str) -> str:
    """The formula of an operand's cotangent where a reason states it: ``d<operand> = ...``."""
    for text in op.why.values():
        found = re.search(rf"d{re.escape(operand)} = (.+?)(?: and |; |$)", text, re.IGNORECASE)
        if found:
            return found.group(1)
    return ""


def _spelled(node: Any, texts: Mapping[str, str], ct: str) -> dict[str, str]:
    """Operand -> text of its cotangent, by running the rules on symbols."""
    if type(node.saved) is Freed:
        return _spelled_slopes(node.plan.op, texts, ct, node)
    plan = node.plan
    with Spelling() as trace:
        vals = [_symbol(trace, texts.get(n, n), s)
                for n, s in zip(plan.names, node.saved or (), strict=True)]
        if node.ports:
            many = node.ports > 1
            given: Any = [trace.symbol(f"{ct}[{i}]" if many else ct, Aval(s, d)) for i, (s, d) in
                          enumerate(zip(node.shape, node.dtype, strict=True))]
        else:
            dtype = node.dtype if node.dtype is not None else plan.dtype
            given = trace.symbol(ct, Aval(node.shape, dtype))
        results = plan.run(given, vals, node.attrs, len(node.edges))
        return {o: text_of(r) for o, r in zip(operand_names(node), results, strict=True)
                if r is not None}


def _spelled_slopes(op: Op, texts: Mapping[str, str], ct: str, node: Any) -> dict[str, str]:
    """The same for a pointwise op whose residuals are gone: from its slopes."""
    if op.scalar is None:
        return {}
    found = {}
    for o, slope in op.rules[2].items():     # type: ignore[attr-defined]  # a pointwise record
        env = {ex.var(n): ex.var(texts.get(n, n)) for n in ex.variables(slope)}
        found[o] = pretty(_leaf(ct) * ex.substitute(slope, env))
    return found


def _symbol(trace: Spelling, text: str, saved: Any) -> Any:
    if saved is None or isinstance(saved, Aval):
        return saved
    if type(saved) is tuple:
        return tuple(_symbol(trace, f"{text}{i}", s) for i, s in enumerate(saved))
    array = getattr(saved, "array", saved)
    if getattr(array, "size", 0) == 1 and isinstance(saved, np.ndarray):
        return trace.symbol(text_of(array), aval_of(array))
    return trace.symbol(text, aval_of(array))


def plain(text: str, mark: str = "[{}]") -> str:
    """`text` with saved terms wrapped by `mark`."""
    left, right = mark.split("{}")
    return text.replace(MARK, left).replace(END, right)


__all__ = ["CT", "END", "MARK", "Card", "Node", "card_of", "grouped", "marked", "operand_names",
           "plain", "reason", "spell"]
