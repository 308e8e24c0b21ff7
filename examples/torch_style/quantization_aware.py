"""Quantization-aware training: weights and activations are rounded to a few bits in the forward
pass, gradients pass straight through (B. Jacob et al., 2018)."""
import argparse

import numpy as np

import adjoint as torch
import adjoint.nn as nn
import adjoint.nn.functional as F
import adjoint.nn.utils.parametrize as parametrize
import adjoint.optim as optim
from adjoint.autograd import Function


class FakeQuantize(Function):
    """Rounding to `bits` in steps of `scale`; the gradient is cut off outside of the range."""

    @staticmethod
    def forward(ctx, x, scale, bits):
        low, high = -2 ** (bits - 1), 2 ** (bits - 1) - 1
        q = torch.round(x / scale)
        ctx.save_for_backward((q >= low) & (q <= high))
        return q.clamp(low, high) * scale

    @staticmethod
    def backward(ctx, grad_output):
        (inside,) = ctx.saved_tensors
        return grad_output * inside, None, None


class QuantizedWeight(nn.Module):
    """A parametrization: the weight as it will be on the device, one scale per row."""

    def __init__(self, bits):
        super().__init__()
        self.bits = bits

    def forward(self, weight):
        scale = weight.detach().abs().amax(dim=1, keepdim=True) / (2 ** (self.bits - 1) - 1)
        return FakeQuantize.apply(weight, scale.clamp(min=1e-8), self.bits)


class Observer(nn.Module):
    """Rounds activations by a moving average of their range, which is a buffer."""

    def __init__(self, bits, momentum=0.1):
        super().__init__()
        self.bits, self.momentum = bits, momentum
        self.register_buffer("range", torch.zeros(()))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                top = x.abs().max()
                self.range.copy_(top if self.seen == 0 else self.range.lerp(top, self.momentum))
                self.seen += 1
        return FakeQuantize.apply(x, self.range / (2 ** (self.bits - 1) - 1), self.bits)

    def extra_repr(self):
        return f"bits={self.bits}"


class Net(nn.Module):
    def __init__(self, bits):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 32), nn.Linear(32, 32)
        self.out = nn.Linear(32, 4)
        self.quant1, self.quant2 = Observer(bits), Observer(bits)
        for layer in (self.fc1, self.fc2, self.out):
            parametrize.register_parametrization(layer, "weight", QuantizedWeight(bits))

    def forward(self, x):
        x = self.quant1(F.relu6(self.fc1(x)))
        x = self.quant2(F.relu6(self.fc2(x)))
        return self.out(x)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--init", help="start from the weights in this file")
    parser.add_argument("--write-init", help="write the starting weights to this file")
    args = parser.parse_args(argv)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    points = rng.standard_normal((512, 8))
    labels = (points @ rng.standard_normal((8, 4)) + np.sin(2 * points[:, :4])).argmax(1)
    x, y = torch.tensor(points, dtype=torch.get_default_dtype()), torch.from_numpy(labels)
    model = Net(args.bits)
    if args.write_init:
        torch.save(model.state_dict(), args.write_init)
    if args.init:
        model.load_state_dict(torch.load(args.init), strict=True)
    optimizer = optim.RMSprop(model.parameters(), lr=2e-3)
    losses = []
    for step in range(args.steps):
        batch = slice(64 * (step % 6), 64 * (step % 6) + 64)
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 30 == 0:
            print(f"step {step}: loss {losses[-1]:.4f}")
    model.eval()
    for layer in (model.fc1, model.fc2, model.out):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    with torch.no_grad():
        right = (model(x[384:]).argmax(1) == y[384:]).double().mean().item()
        levels = max(len(torch.unique(row)) for row in model.fc2.weight)
    print(f"accuracy {right:.3f} with at most {levels} values in a row of weights")
    assert levels <= 2 ** args.bits
    return losses


if __name__ == "__main__":
    main()
