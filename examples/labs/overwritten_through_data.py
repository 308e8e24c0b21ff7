"""AD005: a value that backward needs is written to through .data.

    adjoint doctor examples/labs/overwritten_through_data.py

With --healthy: the same program without the mistake.
"""

from __future__ import annotations

import sys

import adjoint as ad


def main(healthy: bool) -> None:
    """exp() keeps its output; the write through .data changes it behind its back."""
    ad.manual_seed(0)
    w = ad.randn(5, requires_grad=True)
    y = w.exp()
    shown = y.clone() if healthy else y
    shown.data.mul_(0.5)  # AD005
    (y * y).sum().backward()


if __name__ == "__main__":
    main("--healthy" in sys.argv)
