"""The gallery: one page about the tape, made from recorded runs, and a stepper for each of them."""
from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from adjoint.core.tensor import Tensor
from adjoint.inspect import gallery_text as said
from adjoint.inspect.cards import TOKEN
from adjoint.inspect.formulas import END, MARK
from adjoint.inspect.gallery_examples import Run, run_all
from adjoint.inspect.page import assemble, asset
from adjoint.inspect.pictures import draw
from adjoint.inspect.practice import problems
from adjoint.inspect.walk import Walk
from adjoint.inspect.walk_text import fields, size
from adjoint.io.atomic import write_bytes

_TITLE = "Gallery: what a tape does"


class Markup(str):
    """A string that is markup already."""

    __slots__ = ()


def tag(name: str, *inside: Any, **attributes: Any) -> str:
    """Markup with its texts escaped: strings are text, `Markup` stays as it is."""
    given = "".join(f' {k.rstrip("_").replace("_", "-")}="{html.escape(str(v))}"'
                    for k, v in attributes.items() if v is not None)
    return Markup(f"<{name}{given}>{''.join(text(x) for x in inside)}</{name}>")


def text(x: Any) -> str:
    """`x` as markup."""
    if isinstance(x, Markup):
        return x
    return "".join(map(text, x)) if isinstance(x, (list, tuple)) else html.escape(str(x))


def table(rows: Iterable[Iterable[Any]], head: bool = True) -> str:
    """A table; the first row names the columns."""
    made = []
    for k, row in enumerate(rows):
        cell = "th" if head and not k else "td"
        made.append(tag("tr", *[tag(cell, c) for c in row]))
    return tag("div", tag("table", *made), class_="scroll")


def formula(t: str, walk: Walk, event: Any) -> str:
    """A formula of a card: operands by their names, saved terms marked."""
    card = walk.cards[event.card]
    names = {o: walk.name(i) if isinstance(i, int) else str(i)
             for o, i in zip(card.operands, event.inputs, strict=False)}
    names["out"] = walk.name(event.outputs[0])
    t = re.sub(f"{TOKEN}([^{TOKEN}]+){TOKEN}", lambda m: names.get(m[1], m[1]), t)
    pieces = []
    for piece in re.split(f"({MARK}.*?{END})", t):
        name = piece.strip(MARK + END)
        pieces.append(tag("mark", names.get(name, name)) if piece.startswith(MARK) else text(piece))
    return Markup("".join(pieces))


def write_gallery(folder: str | Path) -> list[Path]:
    """Write `index.html` and a page for each example into `folder`; returns the paths.

    Every number on them comes from runs that are made now, a few milliseconds each.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    runs = run_all()
    written = [run.walk.save(target / f"{name}.html") for name, run in runs.items()]
    index = target / "index.html"
    write_bytes(index, gallery(runs).encode("utf-8"))
    return [index, *written]


def gallery(runs: dict[str, Run] | None = None) -> str:
    """The page as HTML."""
    runs = runs or run_all()
    parts = [
        ("models", "Two pictures of it", _models(runs["relu_of_linear"])),
        ("walks", "Walk through it", _walks(runs)),
        ("anatomy", "What is in a tensor", _anatomy(runs["relu_of_linear"])),
        ("formulas", "What each formula keeps", _formulas(runs)),
        ("adjoints", "The adjoints, step by step", _adjoints(runs)),
        ("pictures", "Pictures", _pictures(runs)),
        ("questions", "Questions", _questions()),
        ("practice", "Practice", _practice()),
        ("answers", "Asked often", _answers()),
        ("rules", "Rules to take along", _rules()),
        ("symbols", "Symbols", _symbols()),
        ("history", "History and reading", _history()),
    ]
    links = [tag("a", title, href=f"#{key}") for key, title, _ in parts]
    body = tag("nav", *links, aria_label="Sections") + "".join(
        tag("section", tag("h2", title, id=f"h-{key}"), *inside, id=key,
            aria_labelledby=f"h-{key}") for key, title, inside in parts)
    data = {"quiz": [q._asdict() for q in (*said.CONCEPTS, said.MEMORY)],
            "practice": [{"key": p.key, "answer": p.answer, "tolerance": p.tolerance,
                          "why": p.why, "parts": p.parts} for p in problems().values()]}
    return assemble("gallery.html", _TITLE, asset("gallery.css"), asset("gallery.js"), data, body)


# ---------------------------------------------------------------- sections
def _models(run: Run) -> list[str]:
    walk = run.walk
    begin = next(e.index for e in walk if e.kind == "begin")
    filled = sum(bool(t.grad) and t.grad[0][0] <= begin for t in walk.tensors)
    cards = [tag("div", tag("h3", name), tag("p", what), class_=kind)
             for (name, what), kind in zip(said.MODELS, ("wrong", "right"), strict=True)]
    return [tag("div", *cards, class_="cards two"), tag(
        "p", "The recorded run of y = relu(x @ W + b) shows it: when forward had ended, ",
        tag("b", f"{sum(e.kind == 'node' for e in walk.events[:begin])} rules had run"),
        f", {filled} of {len(walk.tensors)} tensors had a gradient, and the tape held ",
        tag("b", size(walk.events[begin].saved)), " of values. If gradients were made in forward, "
        "these values would not have to be kept.")]


def _walks(runs: dict[str, Run]) -> list[str]:
    items = []
    for name, run in runs.items():
        e = run.example
        most = f"saved at most {size(max(x.saved for x in run.walk))}"
        if any(s.name.endswith("(packed)") for n in run.walk.nodes for s in n.saved):
            most = "the nodes keep nothing: what they need is packed away by hooks"
        items.append(tag("article", tag("h3", tag("a", e.title, href=f"{name}.html")),
                         tag("p", e.look),
                         tag("p", f"{len(run.walk)} events, {most}", class_="soft"),
                         tag("details", tag("summary", "The program"), tag("pre", e.source))))
    return [tag("p", "Each was run when this page was made. Arrow keys step; press q for a quiz "
                "on the next gradient."), tag("div", *items, class_="cards three")]


def _anatomy(run: Run) -> list[str]:
    walk = run.walk
    y = walk.named("W")
    begin = next(e.index for e in walk if e.kind == "begin")
    z = walk.named("y")
    moments = (("y after forward", z, begin), ("y after backward", z, len(walk) - 1),
               ("W after forward", y, begin), ("W after backward", y, len(walk) - 1))
    rows: list[list[Any]] = [["field", "meaning", *(m[0] for m in moments)]]
    states = [fields(walk, t, at) for _, t, at in moments]
    for name, meaning in said.ANATOMY:
        rows.append([tag("code", f".{name}"), meaning, *(tag("code", s[name]) for s in states)])
    return [table(rows)]


def _formulas(runs: dict[str, Run]) -> list[str]:
    wanted = (("relu_of_linear", "mm"), ("relu_of_linear", "add"), ("relu_of_linear", "relu"),
              ("fan_out", "mul"), ("softmax", "softmax"), ("softmax", "cross_entropy"),
              ("layer_norm", "layer_norm"), ("chain_rule", "sigmoid"))
    cards = []
    for example, op in wanted:
        walk = runs[example].walk
        event = next(e for e in walk if e.kind == "op" and e.text == op)
        card = walk.cards[event.card]
        out = walk.name(event.outputs[0])
        lines = [tag("p", f"{out} = ", formula(card.forward, walk, event), class_="f")]
        for operand, t in card.backward.items():
            token = f"{TOKEN}{operand}{TOKEN}"
            lines.append(tag("p", "dL/d", formula(token, walk, event), " = ",
                             formula(t, walk, event), class_="f"))
        kept = walk.nodes[event.node].saved
        names = [walk.name(s.tensor) if s.tensor >= 0 else s.name for s in kept]
        total = size(sum({s.storage: s.nbytes for s in kept}.values()))
        lines.append(tag("p", f"keeps {', '.join(names)} ({total})" if kept else "keeps nothing",
                         class_="soft"))
        cards.append(tag("div", tag("h3", op), *lines))
    return [tag("p", "Written down by running each rule on symbols. ct is the gradient that "
                "arrives; ", tag("mark", "marked"), " terms were saved by forward."),
            tag("div", *cards, class_="cards three")]


def _adjoints(runs: dict[str, Run]) -> list[str]:
    fan, hand, forward = runs["fan_out"], runs["chain_rule"], runs["forward_mode"].scope
    rows: list[list[Any]] = [["step", "what happens"]]
    rows += [[str(e.index + 1), fan.walk.describe(e.index) + _values(e)]
             for e in fan.walk if e.kind in ("node", "grad")]
    s = hand.scope
    four = [("dL/dy = 2y", "y"), ("dL/dh = 2y · W2", "h"), ("dL/da = 2y W2 ⊙ σ'(a)", "a"),
            ("dL/dx = (2y W2 ⊙ σ'(a)) · W1", "x")]
    return [
        tag("h3", "f = (x1 + x2) * x1 at (3, 4), backward"), table(rows),
        tag("h3", "the same forward: one pass for each input"),
        table([["tangent of", "value of f", "tangent of f"],
               ["x1", f"{forward['value'].item():g}", f"{forward['along_x1'].item():g}"],
               ["x2", f"{forward['value'].item():g}", f"{forward['along_x2'].item():g}"]]),
        tag("h3", "L = (W2 · σ(W1 · x))², by hand and by the tape"),
        table([["by hand", "the tape has"],
               *([tag("code", line), tag("code", _short(s[name].grad))] for line, name in four)])]


def _values(event: Any) -> str:
    if not event.cts:
        return ""
    arrive, leave = ([v.brief() for v in side if v is not None] for side in event.cts)
    return f":  {', '.join(arrive)} → {', '.join(leave)}"


def _short(t: Any) -> str:
    values = t.detach().numpy().reshape(-1)
    return ", ".join(f"{v:.4g}" for v in values)


def _picture(svg: str, alt: str) -> str:
    """An SVG as an image: it can run nothing and load nothing."""
    data = base64.b64encode(svg.encode()).decode()
    return tag("figure", Markup(f'<img alt="{html.escape(alt)}" '
                                f'src="data:image/svg+xml;base64,{data}">'),
               tag("figcaption", alt))


def _pictures(runs: dict[str, Run]) -> list[str]:
    fan, net = _drawn(runs["fan_out"], "f"), _drawn(
        runs["two_layers"], "loss", "x", "W1", "b1", "W2", "b2", "target")
    block = 2048 * 4 * 768
    parts = [("norm: N·S·D", block), ("q, k, v: 3·N·S·D", 3 * block),
             ("attention weights: N·H·S²", 4 * 12 * 2048 * 2048), ("MLP: 4·N·S·D", 4 * block)]
    deep, short = runs["deep"].walk, runs["checkpoint"].walk
    kept = [("everything kept", at_the_loss(deep)),
            ("checkpointed: inputs of layers", at_the_loss(short))]
    return [
        _picture(net.svg(), "A network of two layers: forward grey, the gradients' way in colour"),
        tag("h3", "The graph of (x1 + x2) * x1"), tag("pre", fan.ascii()),
        tag("h3", "Elements a block keeps, S = 2048, N = 4, D = 768, H = 12"),
        bars(parts, lambda n: f"{n / 1e6:,.1f} M"),
        tag("h3", "Alive at the loss beside parameters, six layers, recorded"), bars(kept, size),
        tag("p", f"Both end with the same gradients. The checkpointed one ran "
            f"{_tanhs(short)} tanh where the other ran {_tanhs(deep)}.")]


def _tanhs(walk: Walk) -> int:
    return sum(e.kind == "op" and e.text == "tanh" for e in walk)


def _drawn(run: Run, result: str, *inputs: str) -> Any:
    """The picture of an example's result, with the example's own names. With `inputs`, that of a
    function of them, which also shows what wants no gradient."""
    first, body = (part.splitlines() for part in run.example.source.split("\n\n")[1:3])
    forward = [line for line in body if ".backward()" not in line]
    scope: dict[str, Any] = {**run.scope}
    given = {k: v for k, v in scope.items() if isinstance(v, Tensor)}
    if not inputs:
        exec("\n".join([*first, *forward]), scope)
        return draw(scope[result], names={k: v for k, v in scope.items() if isinstance(v, Tensor)})
    lines = [f"def network({', '.join(inputs)}):", *(f"    {line}" for line in forward),
             f"    return {result}"]
    exec("\n".join(lines), scope)
    return draw(scope["network"], *(given[k] for k in inputs), names={k: given[k] for k in inputs})


def at_the_loss(walk: Walk) -> int:
    """Bytes alive when backward begins, parameters left out."""
    begin = next(e for e in walk if e.kind == "begin")
    return begin.live - sum(s.nbytes for s in walk.storages
                            if s.parameter and s.born < begin.index)


def bars(rows: list[tuple[str, int]], unit: Any) -> str:
    """Horizontal bars with their numbers; the longest fills the width."""
    most = max(n for _, n in rows)
    lines = [tag("div", tag("span", name), tag("meter", unit(n), value=f"{n / most:.4f}", min="0",
                                               max="1"), tag("b", unit(n)), class_="bar")
             for name, n in rows]
    return tag("div", *lines, class_="bars")


def _questions() -> list[str]:
    boxes = [tag("div", tag("h3", q.question), tag("div", class_="choices"),
                 tag("p", role="status", aria_live="polite"), class_="quiz", data_key=q.key)
             for q in (*said.CONCEPTS, said.MEMORY)]
    total = len(boxes)
    score = tag("p", "Score ", tag("b", f"0 / {total}", id="score"), ". Kept in this browser. ",
                tag("button", "Start again", id="again", type="button"))
    return [score, *boxes]


def _practice() -> list[str]:
    boxes = []
    for p in problems().values():
        inputs = [tag("label", f"{part} ", tag("input", type="text", inputmode="decimal",
                                               autocomplete="off")) for part in p.parts]
        boxes.append(tag("form", tag("h3", f"{p.key}. {p.question}"), *inputs,
                         tag("button", "Check"), tag("p", role="status", aria_live="polite"),
                         class_="practice", data_key=p.key))
    boxes.append(tag("div", tag("h3", "p7. Write an engine of your own in 200 lines"), tag(
        "p", "A class Tensor(data) with + * @ relu() mean() backward() data grad. Have it checked: "
        "gradients against differences, a value used twice, a perceptron that learns:"),
        tag("pre", "adjoint step --check-engine my_engine.py"), class_="practice"))
    return boxes


def _answers() -> list[str]:
    def box(a: said.Answer) -> str:
        level = tag("small", a.level) if a.level else ""
        return tag("details", tag("summary", a.question, " ", level), tag("p", a.answer))
    return [tag("h3", "In interviews"), *map(box, said.INTERVIEW), tag("h3", "By users"),
            *map(box, said.FAQ)]


def _rules() -> list[str]:
    return [tag("h3", "By hand or by a tape"), table(said.COMPARISON),
            *(tag("div", tag("h3", name), tag("ul", *[tag("li", line) for line in lines]))
              for name, lines in said.TAKEAWAYS)]


SYMBOLS = (
    ("symbol", "meaning"), ("f", "a differentiable function"), ("x", "its input"),
    ("y", "its output"), ("L", "the loss, one number"), ("vᵢ", "the value of step i"),
    ("v̄ᵢ = ∂L/∂vᵢ", "its adjoint: the cotangent that arrives there"),
    ("v̇ᵢ", "its tangent, in forward mode"), ("J_f", "the Jacobian of f"),
    ("∇L", "the gradient: the adjoints of the leaves"))


def _symbols() -> list[str]:
    return [table(SYMBOLS)]


def _history() -> list[str]:
    return [table((("year", "step"), *said.HISTORY)), tag("h3", "Read on"), tag(
        "ul", *[tag("li", tag("a", name, href=link, rel="noreferrer"), f": {what}")
                for name, what, link in said.READING])]


__all__ = ["at_the_loss", "gallery", "write_gallery"]
