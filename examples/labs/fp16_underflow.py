"""AD013: float16 gradients below 6e-8 become 0 without loss scaling.

    adjoint doctor examples/labs/fp16_underflow.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad


def main(healthy: bool) -> None:
    """A small loss in float16; the healthy twin scales it by 2**16 and unscales the gradients."""
    ad.manual_seed(0)
    w = ad.nn.Parameter(ad.randn(64, 64))
    optimizer = ad.optim.SGD([w], lr=0.1)
    scale = 2.0**16 if healthy else 1.0
    for _ in range(4):
        x = ad.randn(16, 64).half() * 0.01
        y = x @ w.half()  # AD013
        loss = (y.float() ** 2).mean() * 1e-3
        optimizer.zero_grad()
        (loss * scale).backward()
        w.grad /= scale
        optimizer.step()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
