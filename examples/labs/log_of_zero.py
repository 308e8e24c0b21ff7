"""AD014: log(0) times 0 is not a number.

    adjoint doctor examples/labs/log_of_zero.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad


def main(healthy: bool) -> None:
    """Entropy of probabilities some of which are 0."""
    ad.manual_seed(0)
    w = ad.randn(6, requires_grad=True)
    optimizer = ad.optim.SGD([w], lr=0.1)
    for _ in range(3):
        p = ad.relu(w) / ad.relu(w).sum()
        logs = (p + 1e-12 if healthy else p).log()  # AD014
        loss = (p * logs).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
