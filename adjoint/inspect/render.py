"""An explanation as text, Markdown, JSON, HTML, and on a terminal."""
from __future__ import annotations

import html as _html
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from adjoint.base.text import format_bytes
from adjoint.inspect.formulas import END, MARK, plain

ORANGE = "#c2560a"


def bar(name: str) -> str:
    """The adjoint of `name`: x̄1 for a letter and digits, grad(name) for others.

    >>> bar("x1"), bar("layer.weight")
    ('x̄1', 'grad(layer.weight)')
    """
    if re.fullmatch(r"[A-Za-z]\d*", name):
        return name[0] + "\u0304" + name[1:]
    return f"grad({name})"


def _shape(shape: Any) -> str:
    return "×".join(map(str, shape)) if shape else "scalar"


def _place(where: str) -> str:
    """``file.py:12`` of a full place."""
    found = re.match(r"(.*?):(\d+)", where)
    return f"{os.path.basename(found[1])}:{found[2]}" if found else where


def _saved_line(s: Any) -> str:
    own = s.shared and f"held by {s.shared}" or format_bytes(s.nbytes)
    return f"{s.name} ({_shape(s.shape)} {s.dtype}, {own})" + (f": {s.why}" if s.why else "")


def share_text(m: Any, s: Any, root: str, mark: str) -> tuple[str, str]:
    """(symbols, numbers) of one cotangent."""
    symbols = f"d{root}/d{s.target} {'=' if s.first else '+='} {plain(s.formula, mark)}"
    if not s.value:
        return symbols, ""
    if s.first:
        return symbols, f"{bar(s.target)} = {s.value}"
    return symbols, f"{bar(s.target)} += {s.value}  ->  {s.total}"


def lines(e: Any, mark: str = "[{}]") -> list[tuple[str, str]]:
    """(kind, text) of every line of the walk; kind: head, step, saved, move, share, note."""
    out = [("head", f"forward: {len(e.steps)} ops, {format_bytes(e.nbytes)} kept for backward")]
    for s in e.steps:
        value = f" = {s.value}" if s.value else ""
        out.append(("step", f"{s.index:3}  {s.out} = {plain(s.formula, '{}')}{value}"))
        out.append(("place", f"     {s.node}  {_shape(s.shape)} {s.dtype}  {_place(s.where)}"
                    + (f"  {s.source}" if s.source else "")))
        for saved in s.saved:
            out.append(("saved", f"     saves {_saved_line(saved)}"))
        if not s.saved:
            out.append(("saved", "     saves nothing"))
    out.append(("head", f"backward: d{e.root}/d{e.root} = 1"
                + (f", {bar(e.root)} = {e.moves[0].value}" if e.moves and e.moves[0].value
                   else "")))
    for m in e.moves:
        out.append(("step", f"{m.index:3}  {m.node}  from {m.source}  {_place(m.where)}"))
        for share in m.shares:
            symbols, numbers = share_text(m, share, e.root, mark)
            out.append(("share", f"     {symbols}"))
            if numbers:
                out.append(("number", f"       {numbers}"))
    out.append(("head", f"gradients arrive in: {', '.join(e.leaves)}"))
    if e.note:
        out.append(("note", f"note: {e.note}"))
    return out


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def text(e: Any, width: int = 100) -> str:
    """Plain text; saved terms stand in brackets."""
    head = f"{e.root} = {plain(e.steps[-1].formula, '{}')}" + (f" = {e.root_value}")
    return "\n".join([_clip(head, width), *(_clip(t, width) for _, t in lines(e))])


def markdown(e: Any) -> str:
    """Two tables in Markdown; saved terms are bold."""
    def cell(x: str) -> str:
        return x.replace("|", "\\|")
    out = [f"### {e.root} = {e.root_value}", "",
           "| # | value | formula | node | saves | bytes | line |",
           "| --: | --- | --- | --- | --- | --: | --- |"]
    for s in e.steps:
        kept = "; ".join(_saved_line(x) for x in s.saved) or "nothing"
        out.append(f"| {s.index} | {cell(s.out)} | {cell(plain(s.formula, '{}'))} | {s.node} | "
                   f"{cell(kept)} | {s.nbytes} | {cell(_place(s.where))} |")
    out += ["", "| # | node | cotangent | number |", "| --: | --- | --- | --- |"]
    for m in e.moves:
        for share in m.shares:
            symbols, numbers = share_text(m, share, e.root, "**{}**")
            out.append(f"| {m.index} | {m.node} | {cell(symbols)} | {cell(numbers)} |")
    if e.note:
        out += ["", e.note]
    return "\n".join(out) + "\n"


def as_json(e: Any) -> str:
    """The explanation as JSON; saved terms are marked as in the text."""
    def clean(x: Any) -> Any:
        if isinstance(x, dict):
            return {k: clean(v) for k, v in x.items()}
        if isinstance(x, list):
            return [clean(v) for v in x]
        return plain(x) if isinstance(x, str) else x
    found = clean(asdict(e))
    found["nbytes"] = e.nbytes
    return json.dumps(found, ensure_ascii=False, indent=1)


def _escaped(x: str) -> str:
    return _html.escape(x).replace(MARK, f'<b style="color:{ORANGE}">').replace(END, "</b>")


def html(e: Any) -> str:
    """Tables for notebooks; nothing of the user's text is interpreted."""
    rows = "".join(
        f"<tr><td>{s.index}</td><td><code>{_escaped(s.out)} = {_escaped(s.formula)}</code></td>"
        f"<td>{_escaped(s.node)}</td><td>{_escaped(_shape(s.shape))}</td>"
        f"<td>{_escaped('; '.join(_saved_line(x) for x in s.saved) or 'nothing')}</td>"
        f"<td>{_escaped(_place(s.where))}</td></tr>" for s in e.steps)
    moves = ""
    for m in e.moves:
        for share in m.shares:
            symbols, numbers = share_text(m, share, e.root, MARK + "{}" + END)
            moves += (f"<tr><td>{m.index}</td><td>{_escaped(m.node)}</td>"
                      f"<td><code>{_escaped(symbols)}</code></td>"
                      f"<td><code>{_escaped(numbers)}</code></td></tr>")
    return (f"<div><p><b>{_escaped(e.root)}</b> = <code>{_escaped(e.root_value)}</code>; "
            f"{format_bytes(e.nbytes)} kept for backward</p>"
            + _table(("#", "forward", "node", "shape", "saves", "line"), rows)
            + _table(("#", "node", "cotangent", "number"), moves)
            + f"<p>{_escaped(e.note)}</p></div>")


_CELLS = "text-align:left;vertical-align:top;padding:.2em .8em .2em 0"


def _table(heads: Sequence[str], rows: str) -> str:
    """A table that scrolls in itself where the page is narrow or the table long. Notebooks have
    styles of their own, so the cells carry theirs."""
    top = "".join(f"<th>{h}</th>" for h in heads)
    styled = f"<tr>{top}</tr>{rows}"
    for tag in ("th", "td"):
        styled = styled.replace(f"<{tag}>", f'<{tag} style="{_CELLS}">')
    return ('<div style="overflow:auto;max-height:44em;margin:.5em 0">'
            f'<table style="border-collapse:collapse;min-width:34em">{styled}</table></div>')


_STYLES = {"head": "bold", "step": "bold cyan", "place": "dim", "saved": "dark_orange",
           "number": "green", "note": "italic", "share": ""}


def show(e: Any) -> None:
    """Print: colours on a terminal where `rich` is installed, else plain text."""
    if not sys.stdout.isatty() or importlib.util.find_spec("rich") is None:
        print(text(e))
        return
    from rich.console import Console
    from rich.text import Text
    console = Console()
    style_of: Callable[[str], str] = _STYLES.__getitem__
    for kind, line in lines(e, MARK + "{}" + END):
        made = Text(style=style_of(kind))
        for i, part in enumerate(re.split(f"{MARK}|{END}", line)):
            made.append(part, style="dark_orange" if i % 2 else None)
        console.print(made, soft_wrap=True)
