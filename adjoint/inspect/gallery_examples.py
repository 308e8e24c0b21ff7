"""The examples of the gallery: short programs, run and recorded when the gallery is made."""
from __future__ import annotations

import importlib
import linecache
from dataclasses import dataclass, field
from typing import Any

from adjoint.inspect.record import record
from adjoint.inspect.walk import Walk


@dataclass(frozen=True)
class Example:
    """A program of a few lines. `rows` are the features it shows; `look` says what to watch."""

    name: str
    title: str
    rows: tuple[str, ...]
    look: str
    source: str


@dataclass
class Run:
    """An example that has been run: its walk, and the variables it left."""

    example: Example
    walk: Walk
    scope: dict[str, Any] = field(default_factory=dict)


EXAMPLES = (
    Example("relu_of_linear", "y = relu(x @ W + b)", ("F5", "F104"),
            "The addition saves nothing. Every .grad is None until its own event.", """\
import adjoint as ad

x = ad.tensor([[1.0, 2.0], [3.0, -4.0]])
W = ad.tensor([[1.0, -1.0], [0.5, 2.0]], requires_grad=True)
b = ad.tensor([0.1, 0.2], requires_grad=True)

z1 = x @ W
z2 = z1 + b
y = z2.relu()
loss = y.sum()
loss.backward()
"""),
    Example("fan_out", "f = (x1 + x2) * x1", ("F8", "F9"),
            "x1 is used twice: 7 and 3 arrive and are added up to 10 before .grad is written.", """\
import adjoint as ad

x1 = ad.tensor(3.0, requires_grad=True)
x2 = ad.tensor(4.0, requires_grad=True)

a = x1 + x2
f = a * x1
f.backward()
"""),
    Example("forward_mode", "The same f in forward mode", ("F10",),
            "One pass for each input, tangents beside the values, and nothing is saved.", """\
import adjoint as ad

def f(x1, x2):
    a = x1 + x2
    return a * x1

x1, x2 = ad.tensor(3.0), ad.tensor(4.0)
one, zero = ad.tensor(1.0), ad.tensor(0.0)
value, along_x1 = ad.func.jvp(f, (x1, x2), (one, zero))
value, along_x2 = ad.func.jvp(f, (x1, x2), (zero, one))
"""),
    Example("two_layers", "A network of two layers", ("F29",),
            "Ten named values; the gradient runs through the same boxes the other way.", """\
import adjoint as ad

ad.manual_seed(0)
x, target = ad.randn(3), ad.randn(2)
W1 = ad.randn(4, 3, requires_grad=True)
b1 = ad.zeros(4, requires_grad=True)
W2 = ad.randn(2, 4, requires_grad=True)
b2 = ad.zeros(2, requires_grad=True)

z = W1 @ x + b1
h = ad.relu(z)
y = W2 @ h + b2
loss = ((y - target) ** 2).mean()
loss.backward()
"""),
    Example("chain_rule", "L = (W2 · σ(W1 · x))²", ("F30",),
            "Four lines by hand, the same four numbers by the tape.", """\
import adjoint as ad

x = ad.tensor(0.5, requires_grad=True)
W1 = ad.tensor([1.0, -2.0])
W2 = ad.tensor([3.0, 1.0])

a = W1 * x
h = ad.sigmoid(a)
y = (W2 * h).sum()
L = y ** 2
for t in (a, h, y):
    t.retain_grad()
L.backward()
"""),
    Example("softmax", "Softmax alone, and softmax with cross-entropy", ("F35", "F36"),
            "The sum of a softmax is 1 whatever x is, so its gradient is 0; with cross-entropy "
            "the gradient is p - t.", """\
import adjoint as ad

F = ad.nn.functional
x = ad.tensor([1.0, 2.0, 3.0], requires_grad=True)
p = x.softmax(dim=0)
p.sum().backward()

z = ad.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
loss = F.cross_entropy(z, ad.tensor([2]))
loss.backward()
"""),
    Example("layer_norm", "Layer norm", ("F39",),
            "Mean and 1/std of each row are saved beside x: eight bytes a row.", """\
import adjoint as ad

F = ad.nn.functional
x = ad.tensor([[1.0, 2.0, 4.0], [0.0, -1.0, 1.0]], requires_grad=True)
weight = ad.tensor([1.0, 2.0, 0.5], requires_grad=True)
bias = ad.zeros(3, requires_grad=True)

y = F.layer_norm(x, (3,), weight, bias)
(y * y).sum().backward()
"""),
    Example("accumulate", "Two backward passes, one zero_grad", ("F17", "F8"),
            ".grad is added to, not replaced: 3, then 6; after zero_grad it is None again.", """\
import adjoint as ad

x = ad.ones(2, requires_grad=True)
optimizer = ad.optim.SGD([x], lr=0.1)

(3 * x).sum().backward()
(3 * x).sum().backward()
optimizer.step()
optimizer.zero_grad()
(3 * x).sum().backward()
"""),
    Example("transformer_block", "A transformer block", ("F64",),
            "Open the module boxes; the (heads, s, s) weights are what attention keeps.", """\
import adjoint as ad
from adjoint import nn

class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        n, s, d = x.shape
        split = self.qkv(self.norm1(x)).split(d, dim=2)
        q, k, v = (p.view(n, s, self.heads, d // self.heads).transpose(1, 2) for p in split)
        scores = q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5
        weights = scores.softmax(dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(n, s, d)
        x = x + self.out(mixed)
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

ad.manual_seed(0)
block = Block(8, 2)
x = ad.randn(1, 6, 8)
loss = block(x).pow(2).mean()
loss.backward()
"""),
    Example("deep", "Six layers, everything kept", ("F70", "F113"),
            "What is saved grows with every layer and is freed layer by layer.", """\
import adjoint as ad

ad.manual_seed(0)
layers = [ad.randn(16, 16, requires_grad=True) for _ in range(6)]
x = ad.randn(8, 16)
h = x
for w in layers:
    h = ad.sin(ad.tanh(h @ w))
loss = h.sum()
loss.backward()
"""),
    Example("checkpoint", "Six layers, checkpointed", ("F70", "F113"),
            "Only the blocks' inputs stay; in backward each block runs forward again.", """\
import adjoint as ad
from adjoint.utils.checkpoint import checkpoint

def layer(h, w):
    return ad.sin(ad.tanh(h @ w))

ad.manual_seed(0)
layers = [ad.randn(16, 16, requires_grad=True) for _ in range(6)]
x = ad.randn(8, 16)
h = x
for w in layers:
    h = checkpoint(layer, h, w, use_reentrant=False)
loss = h.sum()
loss.backward()
"""),
)


def run_example(example: Example) -> Run:
    """Run an example under recording. Its lines are known to tracebacks and to the page."""
    name = f"{example.name}.py"
    linecache.cache[name] = (len(example.source), None,
                             example.source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": "__main__"}
    with record(example.title) as walk:
        exec(compile(example.source, name, "exec"), scope)
    return Run(example, walk, scope)


def run_all() -> dict[str, Run]:
    """Every example, by name; the state of the random numbers is left as it was."""
    random = importlib.import_module("adjoint.ops.generator")
    with random.fork_rng():
        return {e.name: run_example(e) for e in EXAMPLES}


__all__ = ["EXAMPLES", "Example", "Run", "run_all", "run_example"]
