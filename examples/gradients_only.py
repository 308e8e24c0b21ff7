"""Is activation memory the price of gradients, or of computing them?

If the gradients of every parameter were handed to us, a training step would need no activations at
all: parameters, gradients and optimizer state are the whole of it. What the forward pass keeps, it
keeps for the backward pass alone. This program runs both steps and prints what each one held.

    python examples/gradients_only.py
"""

from __future__ import annotations

import adjoint as ad
from adjoint import nn
from adjoint.memory import Report, track

WIDTH, DEPTH, BATCH = 64, 16, 4096


def model() -> nn.Sequential:
    """Linear layers and GELUs: few parameters, many activations."""
    layers: list[nn.Module] = []
    for _ in range(DEPTH):
        layers += [nn.Linear(WIDTH, WIDTH), nn.GELU()]
    return nn.Sequential(*layers)


def with_backward() -> Report:
    """A step that computes its gradients."""
    net, x = model(), ad.randn(BATCH, WIDTH)
    optimizer = ad.optim.Adam(net.parameters())
    with track(net, optimizer, x) as t:
        net(x).square().mean().backward()
        optimizer.step()
    return t.report


def with_given_gradients() -> Report:
    """The same step on gradients that somebody else computed."""
    net, x = model(), ad.randn(BATCH, WIDTH)
    optimizer = ad.optim.Adam(net.parameters())
    with track(net, optimizer, x) as t:
        with ad.no_grad():
            net(x)                       # a forward that nothing is kept of
        for p in net.parameters():
            p.grad = ad.zeros_like(p)
        optimizer.step()
    return t.report


def main() -> None:
    """Print both tables and the difference."""
    computed, given = with_backward(), with_given_gradients()
    print("gradients computed:\n" + computed.table())
    print("\ngradients given:\n" + given.table())
    print(f"\nresiduals kept for backward: {computed.saved:,} bytes, and {given.saved:,} bytes")


if __name__ == "__main__":
    main()
