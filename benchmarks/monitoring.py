"""What the monitoring of `adjoint train` costs: its training step with and without it.

    ./run bench monitoring               200 steps of the default model; --steps, --layers, --dim

Two runs from one seed take turns, a step each; CPU seconds of all steps together, the first ten
left out (compilation; the doctor's first steps are in them, so a second figure counts them too).
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _peers

from adjoint.cli.train_loop import Run
from adjoint.cli.train_options import TrainConfig
from adjoint.cli.train_text import load_corpus

TARGET = 1.05


class Blind:
    """A monitor that sees nothing."""

    @contextlib.contextmanager
    def watch(self, *roots: Any) -> Iterator[None]:
        """Around a step, whatever was there before it."""
        yield

    def seen(self, step: int, norm: float) -> None:
        """A step is over."""

    def validated(self, step: int, loss: float) -> None:
        """The held-out text was evaluated."""


def main() -> int:
    """Exit status 1 if the target is missed and --strict was given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--strict", action="store_true", help="fail if the target is missed")
    args = parser.parse_args()
    config = TrainConfig(steps=args.steps, layers=args.layers, dim=args.dim, max_mb=0.5)
    corpus = load_corpus(config.text, config.max_mb, config.context)
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[str, Any] = {n: Run(config, corpus, Path(folder)) for n in ("with", "without")}
        runs["without"].monitor = Blind()
        times: dict[str, list[float]] = {n: [] for n in runs}
        for _ in range(args.steps):
            for name, run in runs.items():
                begin = time.process_time()
                run.train_step()
                times[name].append(time.process_time() - begin)
    assert runs["with"].losses == runs["without"].losses, "watching changed the numbers"
    late = [sum(times[n][10:]) for n in ("with", "without")]
    every = [sum(times[n]) for n in ("with", "without")]
    print(_peers.about())
    print(f"steps 11 to {args.steps}: {late[0]:.2f} s with, {late[1]:.2f} s without: "
          f"{_peers.verdict(late[0] / late[1], TARGET)}")
    print(f"all {args.steps} steps:    {every[0]:.2f} s with, {every[1]:.2f} s without: "
          f"{_peers.verdict(every[0] / every[1], None)}")
    return int(args.strict and late[0] / late[1] > TARGET)


if __name__ == "__main__":
    raise SystemExit(main())
