"""A line chart as an SVG file and a line of blocks for terminals, with nothing but strings."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 20, 44, 52
_COLOURS = ("#1f6fb2", "#d9730d", "#2a8f5a", "#8a4fbf", "#b23a48", "#4f6d7a")
Points = Sequence[tuple[float, float]]


def ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) that cover [low, high].

    >>> ticks(0, 10)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    if not low < high:
        pad = abs(low) * 0.05 or 0.5
        low, high = low - pad, high + pad
    raw = (high - low) / max(1, count - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((m * power for m in (1, 2, 5) if m * power >= raw * 0.999), 10 * power)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _label(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e9 else f"{value:g}"


def _thin(points: list[tuple[float, float]], limit: int = 1500) -> list[tuple[float, float]]:
    """At most `limit` points: means of equally many neighbours."""
    size = -(-len(points) // limit)
    if size <= 1:
        return points
    groups = [points[i:i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups]


class _Scale:
    """Maps a data interval to a pixel interval."""

    def __init__(self, values: Sequence[float], start: float, stop: float) -> None:
        self.ticks = ticks(min(values, default=0.0), max(values, default=1.0))
        low, high = self.ticks[0], self.ticks[-1]
        self._low, self._factor, self._start = low, (stop - start) / (high - low), start

    def __call__(self, value: float) -> float:
        return self._start + (value - self._low) * self._factor


def _grid(x: _Scale, y: _Scale) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    out: list[str] = []
    for t in y.ticks:
        at = y(t)
        out.append(f'<line x1="{_LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}" class="g"/>'
                   f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{_label(t)}</text>')
    for t in x.ticks:
        at = x(t)
        out.append(f'<line x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{bottom}" class="g"/>'
                   f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{_label(t)}</text>')
    return out


def line_chart(series: Mapping[str, Points], title: str = "", x_label: str = "",
               y_label: str = "") -> str:
    """An SVG picture with one line per entry; points that are not finite are left out.

    >>> picture = line_chart({"loss": [(0, 2.0), (1, 1.0)]}, title="a < b")
    >>> picture.startswith("<svg"), "polyline" in picture, "a &lt; b" in picture
    (True, True, True)
    """
    clean = {name: _thin([(float(x), float(y)) for x, y in points
                          if math.isfinite(x) and math.isfinite(y)])
             for name, points in series.items()}
    every = [p for points in clean.values() for p in points]
    x = _Scale([p[0] for p in every], _LEFT, _WIDTH - _RIGHT)
    y = _Scale([p[1] for p in every], _HEIGHT - _BOTTOM, _TOP)
    body = _grid(x, y)
    for i, (name, points) in enumerate(clean.items()):
        colour = _COLOURS[i % len(_COLOURS)]
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" '
                    f'stroke-width="1.8" stroke-linejoin="round"/>')
        if len(points) < 40:
            body += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="2.6" fill="{colour}"/>'
                     for a, b in points]
        at = _LEFT + 10 + 130 * i
        body.append(f'<rect x="{at}" y="28" width="14" height="4" fill="{colour}"/>'
                    f'<text x="{at + 20}" y="35">{escape(name)}</text>')
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    body.append(f'<text x="{_LEFT}" y="18" class="t">{escape(title)}</text>'
                f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 10}" '
                f'text-anchor="middle">{escape(x_label)}</text>'
                f'<text transform="translate(16 {middle}) rotate(-90)" '
                f'text-anchor="middle">{escape(y_label)}</text>')
    style = ("text{font:12px system-ui,sans-serif;fill:#333}.t{font-weight:600;font-size:14px}"
             ".g{stroke:#e3e3e3}.p{fill:#fff}@media(prefers-color-scheme:dark){"
             "text{fill:#d8dee7}.g{stroke:#2f3a47}.p{fill:#12181e}}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'width="{_WIDTH}" height="{_HEIGHT}" role="img"><title>{escape(title)}</title>'
            f'<style>{style}</style><rect width="100%" height="100%" class="p" fill="#fff"/>'
            f'{"".join(body)}</svg>\n')


def sparkline(values: Sequence[float], width: int = 60, log: bool = False) -> str:
    """Numbers as a line of blocks, the largest of each group; "!" where one is not finite.

    `log` shows magnitudes, for gradient norms.

    >>> sparkline([1, 2, 3, 4, 8, 4, 2])
    '▁▂▃▄█▄▂'
    >>> sparkline([1.0, 10.0, float("nan"), 1000.0], log=True)
    '▁▃!█'
    """
    size = max(1, -(-len(values) // max(1, width)))
    groups = [values[i:i + size] for i in range(0, len(values), size)]
    points = [max(g) if all(map(math.isfinite, g)) else math.nan for g in groups]
    if log:
        points = [math.log10(v) if v > 0 else -300.0 if v == 0 else v for v in points]
        floor = min((v for v in points if v > -300), default=0.0)
        points = [max(v, floor) if math.isfinite(v) else v for v in points]
    finite = [v for v in points if math.isfinite(v)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    span = high - low or 1.0
    return "".join("▁▂▃▄▅▆▇█"[min(7, int((v - low) / span * 8))] if math.isfinite(v) else "!"
                   for v in points)
