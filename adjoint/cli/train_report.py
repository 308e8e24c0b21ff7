"""report.html: loss, gradient norms, memory, time, graph and the doctor's findings in one file."""
from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from adjoint.inspect.pictures import draw
from adjoint.utils.plot import line_chart

_STYLE = """
:root{color-scheme:light dark;--fg:#1c2330;--bg:#fff;--soft:#f4f6f9;--line:#d9dee6;
--accent:#d9730d;--paper:#fff}
@media(prefers-color-scheme:dark){:root{--fg:#e4e8ef;--bg:#14181f;--soft:#1d232d;--line:#364051;
--paper:#12181e}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:76rem;padding:1.5rem;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0 0 .25rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}
.facts{display:flex;flex-wrap:wrap;gap:.5rem 2rem;margin:0;padding:.75rem 1rem;
background:var(--soft);border-radius:.5rem}
.facts div{display:flex;flex-direction:column}.facts dt{font-size:.8rem;opacity:.75}
.facts dd{margin:0;font-weight:600}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr));gap:1rem}
img{max-width:100%;height:auto}
.grid img{width:100%;border-radius:.5rem;border:1px solid var(--line)}
.scroll{overflow:auto;max-height:40rem;border:1px solid var(--line);border-radius:.5rem;
background:var(--paper);text-align:center}.scroll img{max-width:max(100%,24rem)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
td,th{text-align:left;padding:.35rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
td:first-child{overflow-wrap:anywhere;min-width:7rem}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
code{font:.85em ui-monospace,monospace;overflow-wrap:anywhere}
.finding{border-left:4px solid var(--accent);background:var(--soft);padding:.6rem 1rem;
margin:.75rem 0;border-radius:0 .5rem .5rem 0}
"""


def page(title: str, facts: Sequence[tuple[str, str]], sections: Iterable[tuple[str, str]]) -> str:
    """A whole page: `facts` are shown on top, `sections` are (heading, trusted HTML)."""
    top = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts)
    body = "".join(f"<section><h2>{escape(h)}</h2>{html}</section>" for h, html in sections)
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
            f'<h1>{escape(title)}</h1><dl class="facts">{top}</dl>{body}</body></html>\n')


def picture(svg: str, text: str) -> str:
    """An SVG as an image of its own: its styles reach nothing else, and nothing in it runs."""
    data = base64.b64encode(svg.encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(text)}">'


def charts(run: Any) -> str:
    """Loss, gradient norm and memory over the steps."""
    monitor = run.monitor
    made = []

    def add(title: str, x: str, y: str, **series: Any) -> None:
        made.append(picture(line_chart(series, title, x, y), title))

    add("Loss", "step", "nats per byte", training=[(s, v) for s, v, _ in run.losses],
        validation=[(s, v) for s, v in run.validations])
    add("Gradient norm before clipping", "step", "log10",
        norm=[(s, math.log10(n)) for s, _, n in run.losses if n > 0])
    if monitor.memory:
        add("Memory of the process", "step", "MB",
            resident=[(s, b / 1e6) for s, b in monitor.memory])
    if monitor.profile is not None and monitor.profile.memory_timeline():
        add("Memory within one step", "milliseconds", "MB", arrays=[
            (t / 1e3, b / 1e6) for t, b in monitor.profile.memory_timeline()])
    return f'<div class="grid">{"".join(made)}</div>'


def findings(found: Sequence[Any], spikes: Sequence[tuple[int, float, float]]) -> str:
    """The doctor's findings in full and the spikes of the gradient norm."""
    out = []
    for f in found:
        out.append(f'<div class="finding"><strong>{escape(f.code)} {escape(f.title)}</strong><br>'
                   f"<code>{escape(f.where)}</code> <code>{escape(f.source)}</code><br>"
                   f"{escape(f.evidence)}<br>Fix: {escape(f.fix)}</div>")
    for step, norm, usual in spikes[:20]:
        out.append(f'<div class="finding">Step {step}: gradient norm {norm:.4g}, the median '
                   f"before it {usual:.4g}</div>")
    if len(spikes) > 20:
        out.append(f"<p>and {len(spikes) - 20} more spikes.</p>")
    return "".join(out) or "<p>No findings, and no spike of the gradient norm.</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; all columns but the first and the last are numbers where there are over three."""
    def line(cells: Sequence[str], tag: str) -> str:
        numbers = len(cells) > 3
        return "<tr>" + "".join(
            f'<{tag}{" class=n" if numbers and i else ""}>{escape(c)}</{tag}>'
            for i, c in enumerate(cells)) + "</tr>"
    return (f'<div class="wide"><table>{line(head, "th")}'
            f'{"".join(line(r, "td") for r in rows)}</table></div>')


def symptoms(rows: Iterable[dict[str, str]]) -> str:
    """The table symptom, measured, look at."""
    return table(("symptom", "measured", "look at"),
                 [(r["symptom"], r["seen"], f"{r['causes']}; {r['command']}") for r in rows])


def costs(prof: Any) -> str:
    """The twelve costliest ops of one step."""
    every = prof.key_averages()
    total = every.self_cpu_time_total or 1.0
    rows = sorted(every, key=lambda a: -a.self_cpu_time_total)[:12]
    return table(("op", "share", "ms", "calls", "GFLOP/s", "GB/s"), [
        (a.key, f"{a.self_cpu_time_total / total:.1%}", f"{a.self_cpu_time_total / 1e3:.2f}",
         str(a.count), f"{a.gflops_per_second:.1f}" if a.flops else "-",
         f"{a.gbytes_per_second:.1f}" if a.nbytes else "-") for a in rows])


def graph(loss: Any, model: Any) -> str:
    """The picture of the loss's graph, modules collapsed."""
    svg = draw(loss, depth=2, names={"model": model}).svg()
    return f'<div class="scroll">{picture(svg, "graph of the loss, modules collapsed")}</div>'


def report(run: Any, facts: Sequence[tuple[str, str]]) -> str:
    """The report of a training run."""
    monitor = run.monitor
    sections = [("Curves", charts(run)),
                ("Findings", findings(monitor.findings(), monitor.spikes)),
                ("Symptoms", symptoms(monitor.doctor.symptoms.rows()))]
    if monitor.profile is not None:
        sections.append(("Time of one step", costs(monitor.profile)))
    sections.append(("Graph of the loss", graph(run.small_loss(), run.model)))
    return page(f"Training run {run.folder.name}", facts, sections)
