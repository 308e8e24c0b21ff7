"""Layers and losses at sizes of ordinary training programs: forward and backward, beside PyTorch.

    ./run bench layers                    every row
    ./run bench layers --only conv,norm   the rows whose name contains one of these
    ./run bench layers --strict           a ratio above the target is the exit status

Milliseconds of processor time on one thread, minima over the turns of the peers, with malloc told
to keep its pages (the script starts itself again for that); the operand wants a gradient as an
activation of a network does, and the parameters too. `same` is the largest difference of outcomes
(the mean magnitudes of result and gradients) between the peers; dropout draws other numbers.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import _peers
import numpy as np

TARGET = 1.3
SECONDS = 0.02  # a turn of one peer
TUNED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": "2000000000",
         "MALLOC_TOP_PAD_": str(64 << 20), "OMP_NUM_THREADS": "1"}

Build = Callable[[ModuleType], Any]  # module -> what is called on the operands
Case = tuple[Build, tuple[tuple[int, ...], ...]]  # and the shapes of the operands


def layers() -> dict[str, Case]:
    """Layers of one operand."""
    image, small, line = (16, 32, 32, 32), (4, 16, 16, 16), (16, 32, 256)
    cube, tokens, grid = (2, 8, 16, 16, 16), (16, 64, 128), (8, 64, 28, 28)
    cases: dict[str, tuple[Build, tuple[int, ...]]] = {
        "conv1d 32-32 k3": (lambda n: n.Conv1d(32, 32, 3, padding=1), line),
        "conv1d dilated": (lambda n: n.Conv1d(32, 32, 3, padding=4, dilation=4), line),
        "conv2d 3-32 k3": (lambda n: n.Conv2d(3, 32, 3, padding=1), (16, 3, 32, 32)),
        "conv2d small": (lambda n: n.Conv2d(16, 16, 3, padding=1), small),
        "conv2d small, batch 1": (lambda n: n.Conv2d(8, 16, 3, padding=1), (1, 8, 16, 16)),
        "conv2d stride 2": (lambda n: n.Conv2d(32, 64, 3, 2, 1), image),
        "conv2d 1x1": (lambda n: n.Conv2d(64, 64, 1), grid),
        "conv2d 1x1 to 3": (lambda n: n.Conv2d(64, 3, 1), grid),
        "conv2d depthwise": (lambda n: n.Conv2d(64, 64, 3, padding=1, groups=64), grid),
        "conv2d depthwise, stride 2": (lambda n: n.Conv2d(64, 64, 3, 2, 1, groups=64), grid),
        "conv2d groups": (lambda n: n.Conv2d(64, 64, 3, padding=1, groups=4), grid),
        "conv3d": (lambda n: n.Conv3d(8, 16, 3, padding=1), cube),
        "conv_transpose1d": (lambda n: n.ConvTranspose1d(32, 16, 4, 2, 1), (8, 32, 64)),
        "conv_transpose2d": (lambda n: n.ConvTranspose2d(32, 16, 4, 2, 1), (4, 32, 8, 8)),
        "conv_transpose2d k2": (lambda n: n.ConvTranspose2d(32, 16, 2, 2), (4, 32, 16, 16)),
        "max_pool1d": (lambda n: n.MaxPool1d(2), line),
        "max_pool2d": (lambda n: n.MaxPool2d(2), image),
        "max_pool2d k3 s2 p1": (lambda n: n.MaxPool2d(3, 2, 1), image),
        "max_pool3d": (lambda n: n.MaxPool3d(2), cube),
        "avg_pool1d": (lambda n: n.AvgPool1d(2), line),
        "avg_pool2d": (lambda n: n.AvgPool2d(2), image),
        "avg_pool2d k3 s1 p1": (lambda n: n.AvgPool2d(3, 1, 1), image),
        "avg_pool3d": (lambda n: n.AvgPool3d(2), cube),
        "adaptive_avg_pool2d 1": (lambda n: n.AdaptiveAvgPool2d(1), grid),
        "adaptive_avg_pool2d 7": (lambda n: n.AdaptiveAvgPool2d(7), grid),
        "adaptive_max_pool2d 7": (lambda n: n.AdaptiveMaxPool2d(7), grid),
        "lp_pool2d": (lambda n: n.LPPool2d(2, 2), image),
        "batch_norm1d": (lambda n: n.BatchNorm1d(128), (256, 128)),
        "batch_norm2d": (lambda n: n.BatchNorm2d(32), image),
        "batch_norm2d small": (lambda n: n.BatchNorm2d(16), small),
        "batch_norm2d eval": (lambda n: n.BatchNorm2d(32).eval(), image),
        "batch_norm3d": (lambda n: n.BatchNorm3d(8), cube),
        "instance_norm2d": (lambda n: n.InstanceNorm2d(32, affine=True), image),
        "group_norm": (lambda n: n.GroupNorm(8, 32), image),
        "group_norm small": (lambda n: n.GroupNorm(4, 16), small),
        "layer_norm": (lambda n: n.LayerNorm(128), tokens),
        "rms_norm": (lambda n: n.RMSNorm(128), tokens),
        "local_response_norm": (lambda n: n.LocalResponseNorm(5), image),
        "linear": (lambda n: n.Linear(128, 256), tokens),
        "prelu": (lambda n: n.PReLU(32), image),
        "gelu": (lambda n: n.GELU(), tokens),
        "glu": (lambda n: n.GLU(), tokens),
        "softmax": (lambda n: n.Softmax(-1), (16, 8, 64, 64)),
        "softmax over channels": (lambda n: n.Softmax(1), (8, 21, 64, 64)),
        "log_softmax": (lambda n: n.LogSoftmax(-1), (512, 1000)),
        "dropout": (lambda n: n.Dropout(0.1), tokens),
        "dropout2d": (lambda n: n.Dropout2d(0.1), image),
        "upsample nearest": (lambda n: n.Upsample(scale_factor=2), grid),
        "upsample bilinear": (lambda n: n.Upsample(scale_factor=2, mode="bilinear"), grid),
        "pixel_shuffle": (lambda n: n.PixelShuffle(2), grid),
        "pixel_unshuffle": (lambda n: n.PixelUnshuffle(2), grid),
        "unfold": (lambda n: n.Unfold(3, padding=1), small),
        "fold": (lambda n: n.Fold((16, 16), 3, padding=1), (4, 144, 256)),
        "reflection_pad2d": (lambda n: n.ReflectionPad2d(1), image),
        "zero_pad2d": (lambda n: n.ZeroPad2d(1), image),
        "lstm": (lambda n: n.LSTM(64, 64), (32, 16, 64)),
        "gru": (lambda n: n.GRU(64, 64), (32, 16, 64)),
        "multihead_attention": (lambda n: SelfAttention(n), tokens),
        "transformer_encoder": (lambda n: n.TransformerEncoderLayer(
            128, 4, 256, dropout=0.0, batch_first=True), tokens),
    }
    return {name: (lambda m, b=build: b(m.nn), (shape,)) for name, (build, shape) in cases.items()}


class SelfAttention:
    """`nn.MultiheadAttention` of a sequence with itself."""

    def __init__(self, nn: Any) -> None:
        self.inner = nn.MultiheadAttention(128, 4, batch_first=True)
        self.parameters = self.inner.parameters

    def __call__(self, x: Any) -> Any:
        return self.inner(x, x, x, need_weights=False)[0]


def losses() -> dict[str, Case]:
    """Losses, targets drawn once; and tables of embeddings, whose operand is the table."""
    def against(name: str, draw: Callable[[Any], Any], **options: Any) -> Build:
        def build(m: ModuleType) -> Any:
            target = m.tensor(draw(np.random.default_rng(1)))
            loss = getattr(m.nn, name)(**options)
            return lambda x: loss(x, target)
        return build

    def table(**options: Any) -> Build:
        def build(m: ModuleType) -> Any:
            ids = m.tensor(np.random.default_rng(1).integers(0, 1000, (64, 32)))
            f = m.nn.functional
            return lambda w: f.embedding_bag(ids, w, **options) if options else f.embedding(ids, w)
        return build

    def classes(n: int, *shape: int) -> Callable[[Any], Any]:
        return lambda rng: rng.integers(0, n, shape)

    def reals(*shape: int) -> Callable[[Any], Any]:
        return lambda rng: rng.random(shape, np.float32)

    def signs(*shape: int) -> Callable[[Any], Any]:
        return lambda rng: np.sign(rng.random(shape, np.float32) - 0.5)

    flat, maps = (256, 1000), (8, 21, 64, 64)
    places = (8, 64, 64)
    return {
        "cross_entropy": (against("CrossEntropyLoss", classes(1000, 256)), (flat,)),
        "cross_entropy on maps": (against("CrossEntropyLoss", classes(21, *places)), (maps,)),
        "cross_entropy smooth": (against("CrossEntropyLoss", classes(1000, 256),
                                         label_smoothing=0.1), (flat,)),
        "cross_entropy of probabilities": (against("CrossEntropyLoss", reals(*flat)), (flat,)),
        "nll_loss": (against("NLLLoss", classes(1000, 256)), (flat,)),
        "nll_loss on maps": (against("NLLLoss", classes(21, *places)), (maps,)),
        "mse": (against("MSELoss", reals(*flat)), (flat,)),
        "l1": (against("L1Loss", reals(*flat)), (flat,)),
        "smooth_l1": (against("SmoothL1Loss", reals(*flat)), (flat,)),
        "huber": (against("HuberLoss", reals(*flat)), (flat,)),
        "bce_with_logits": (against("BCEWithLogitsLoss", reals(*flat)), (flat,)),
        "kl_div": (against("KLDivLoss", reals(*flat), reduction="batchmean"), (flat,)),
        "poisson_nll": (against("PoissonNLLLoss", reals(*flat)), (flat,)),
        "soft_margin": (against("SoftMarginLoss", signs(*flat)), (flat,)),
        "hinge_embedding": (against("HingeEmbeddingLoss", signs(*flat)), (flat,)),
        "multi_margin": (against("MultiMarginLoss", classes(100, 256)), ((256, 100),)),
        "multilabel_soft_margin": (against("MultiLabelSoftMarginLoss", reals(*flat)), (flat,)),
        "triplet": (lambda m: m.nn.TripletMarginLoss(), ((256, 128),) * 3),
        "cosine_embedding": (lambda m: lambda a, b: m.nn.CosineEmbeddingLoss()(
            a, b, m.ones(256)), ((256, 128),) * 2),
        "embedding": (table(), ((1000, 128),)),
        "embedding_bag mean": (table(mode="mean"), ((1000, 128),)),
        "embedding_bag sum": (table(mode="sum"), ((1000, 128),)),
    }


def step_of(m: ModuleType, case: Case) -> Callable[[], tuple[float, ...]]:
    """Forward and backward of a case; the same numbers in every peer."""
    rng = np.random.default_rng(0)
    build, shapes = case
    call = build(m)
    leaves = []
    if hasattr(call, "parameters"):
        with m.no_grad():
            for p in call.parameters():
                drawn = rng.standard_normal(tuple(p.shape)) / max(1, p[0].numel()) ** 0.5
                p.copy_(m.tensor(drawn.astype(np.float32)))
                leaves.append(p)
    draws = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    leaves += [m.tensor(d, requires_grad=True) for d in draws]
    given = leaves[len(leaves) - len(shapes):]
    out = call(*given)
    first = out[0] if isinstance(out, tuple) else out
    ct = m.tensor(rng.standard_normal(tuple(first.shape)).astype(np.float32))

    def step() -> tuple[Any, list[Any]]:
        for leaf in leaves:
            leaf.grad = None
        out = call(*given)
        first = out[0] if isinstance(out, tuple) else out
        first.backward(ct)
        return first, leaves
    return step


def outcome(first: Any, leaves: list[Any]) -> Any:
    """What the peers have to agree on."""
    return np.array([float(t.abs().mean()) for t in [first.detach(), *[x.grad for x in leaves]]])


def measure(steps: dict[str, Any], rounds: int) -> dict[str, float]:
    """Least processor time of a step, in milliseconds; the peers in turns."""
    best = {}
    repeats = {}
    for name, step in steps.items():
        step()
        begin = time.perf_counter()
        step()
        repeats[name] = max(1, int(SECONDS / max(1e-6, time.perf_counter() - begin)))
        best[name] = float("inf")
    for _ in range(rounds):
        for name, step in steps.items():
            begin = time.thread_time()
            for _ in range(repeats[name]):
                step()
            best[name] = min(best[name], (time.thread_time() - begin) / repeats[name] * 1e3)
    return best


def main() -> int:
    """Print the table, the largest ratio first."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="parts of names, with commas between them")
    parser.add_argument("--strict", action="store_true")
    args = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in TUNED.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **TUNED})
    print(_peers.about())
    peers = _peers.load()
    for m in peers.values():
        m.set_num_threads(1)
    rows = []
    for name, case in {**layers(), **losses()}.items():
        if not any(part in name for part in args.only.split(",")):
            continue
        steps = {peer: step_of(m, case) for peer, m in peers.items()}
        found = [outcome(*step()) for step in steps.values()]
        off = max(float(np.max(abs(f - found[0]) / (abs(found[0]) + 1e-6))) for f in found)
        gc.collect()
        gc.freeze()
        ms = measure(steps, args.rounds)
        gc.unfreeze()
        ratio = ms["adjoint"] / ms["torch"] if "torch" in ms else None
        rows.append((ratio or 0.0, name, ms, off))
        print(end=".", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for ratio, name, ms, off in sorted(rows, reverse=True):
        told = "  ".join(f"{peer} {t:8.3f} ms" for peer, t in ms.items())
        print(f"{name:30s} {told}  {ratio:5.2f}x  same {off:.0e}")
    return int(args.strict and any(ratio > TARGET for ratio, *_ in rows))


if __name__ == "__main__":
    sys.exit(main())
