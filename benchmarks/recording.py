"""What `ad.record()` adds to a step of a GPT and to one of tiny ops, and what its page weighs.

    ./run bench recording                6 layers, width 384, context 256, batch 12
    ./run bench recording --layers 2     smaller; --rounds, --strict

Steps with and without recording take turns in one process; the ratio of the medians of processor
time is what counts. Each recorded step is a walk of its own, as a user would record one step.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import fields
from typing import Any

import _peers
import gpt_step

TARGET = 1.30


def seconds(step: Any) -> float:
    """Processor time of this process for one step, all threads."""
    begin = time.process_time()
    step()
    return time.process_time() - begin


def tiny(ad: Any) -> Any:
    """A step of some seventy operations on at most 64 numbers: nearly all of it is overhead."""
    ad.manual_seed(0)
    layers = [m for _ in range(8) for m in (ad.nn.Linear(8, 8), ad.nn.Tanh())]
    model = ad.nn.Sequential(*layers)
    optimizer = ad.optim.Adam(model.parameters(), lr=1e-3)
    x, y = ad.randn(4, 8), ad.randn(4, 8)

    def step() -> None:
        optimizer.zero_grad()
        h = model(x)
        for _ in range(10):
            h = (h * 1.01 + x) * 0.5 - y * 0.1
        ((h - y) ** 2).mean().backward()
        optimizer.step()

    return step


def compare(ad: Any, name: str, step: Any, rounds: int) -> tuple[float, Any]:
    """The ratio of the medians of recorded and plain steps, and the last walk."""
    walks: list[Any] = []

    def recorded() -> None:
        walks.clear()
        with ad.record() as walk:
            step()
        walks.append(walk)

    for warm in (step, recorded, step, recorded):
        warm()
    plain: list[float] = []
    with_record: list[float] = []
    for _ in range(rounds):
        plain.append(seconds(step))
        with_record.append(seconds(recorded))
    base, more = statistics.median(plain), statistics.median(with_record)
    events = len(walks[0])
    print(f"{name:5} plain {base * 1e3:8.2f} ms of processor time, recorded {more * 1e3:8.2f} ms, "
          f"{events} events, {(more - base) / events * 1e6:.0f} us an event")
    return more / base, walks[0]


def main() -> int:
    """Exit status 1 if the target is missed and --strict was given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for entry in fields(gpt_step.Size):
        parser.add_argument(f"--{entry.name}", type=int, default=entry.default)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--strict", action="store_true", help="fail if the target is missed")
    args = parser.parse_args()
    size = gpt_step.Size(*(getattr(args, entry.name) for entry in fields(gpt_step.Size)))
    ad = _peers.load(("adjoint",))["adjoint"]
    print(_peers.about())
    small, _ = compare(ad, "tiny", tiny(ad), 20 * args.rounds)
    print(f"ratio          {_peers.verdict(small, None)}")
    ratio, walk = compare(ad, "GPT", gpt_step.build(ad, size), args.rounds)
    print(f"ratio          {_peers.verdict(ratio, TARGET)}")
    begin = time.process_time()
    html = walk.html()
    writing = time.process_time() - begin
    print(f"page           {len(html.encode()) / 1e6:.2f} MB in {writing * 1e3:.0f} ms")
    return int(args.strict and ratio > TARGET)


if __name__ == "__main__":
    raise SystemExit(main())
