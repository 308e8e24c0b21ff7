"""What `ad.record()` adds to a training step of a GPT, and what its page weighs.

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
    step = gpt_step.build(ad, size)
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
    for _ in range(args.rounds):
        plain.append(seconds(step))
        with_record.append(seconds(recorded))
    base, more = statistics.median(plain), statistics.median(with_record)
    begin = time.process_time()
    html = walks[0].html()
    writing = time.process_time() - begin
    print(_peers.about())
    print(f"plain step     {base * 1e3:8.1f} ms of processor time")
    print(f"recorded step  {more * 1e3:8.1f} ms, {len(walks[0])} events, "
          f"{(more - base) / len(walks[0]) * 1e6:.0f} us an event")
    print(f"ratio          {_peers.verdict(more / base, TARGET)}")
    print(f"page           {len(html.encode()) / 1e6:.2f} MB in {writing * 1e3:.0f} ms")
    return int(args.strict and more / base > TARGET)


if __name__ == "__main__":
    raise SystemExit(main())
