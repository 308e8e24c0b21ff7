"""What `memory.track` costs: a GPT step with it and without, interleaved, in CPU time.

    ./run bench ledger

Off, nothing is installed in the path of an op: the state bit that sends ops to the watched path is
clear, which dispatch reads anyway.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import adjoint as ad
from adjoint.core.tensor import wrap
from adjoint.models.gpt import GPT, GPTConfig

SIZES = {
    "small (2 layers, d 64, context 64, batch 4)": (GPTConfig(256, 64, 2, 2, 64), 4),
    "medium (4 layers, d 128, context 128, batch 8)": (GPTConfig(256, 128, 4, 4, 128), 8),
    "large (6 layers, d 384, context 256, batch 12)": (GPTConfig(65, 256, 6, 6, 384), 12),
}


def measure(config: GPTConfig, batch: int, rounds: int) -> tuple[float, float]:
    """Median CPU seconds of a step: without and with the ledger."""
    model = GPT(config)
    optimizer = ad.optim.AdamW(model.parameters(), lr=1e-4)
    draw = np.random.default_rng(0)
    tokens = wrap(draw.integers(0, config.vocabulary, (batch, config.context)))

    def step() -> float:
        begin = time.process_time()
        optimizer.zero_grad()
        model.loss(tokens, tokens).backward()
        optimizer.step()
        return time.process_time() - begin

    begin = time.perf_counter()
    for _ in range(60):                  # until its small operations run in machine code
        step()
        if time.perf_counter() - begin > 3:
            break
    plain, tracked = [], []
    for _ in range(rounds):
        step()                           # (what comes right after a block finds cold caches)
        plain.append(step())
        with ad.memory.track(model, optimizer, tokens):
            step()
            tracked.append(step())
    return statistics.median(plain), statistics.median(tracked)


def main() -> None:
    """Print one line per size."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    for name, (config, batch) in SIZES.items():
        plain, tracked = measure(config, batch, rounds)
        print(f"{name:50} {1e3 * plain:8.1f} ms  with the ledger {1e3 * tracked:8.1f} ms  "
              f"+{100 * (tracked / plain - 1):.1f}%", flush=True)


if __name__ == "__main__":
    main()
