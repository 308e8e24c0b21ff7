"""What checkpoints cost and save: a GPT step and a chain of 1000 layers, against no checkpoint.

    ./run bench checkpoint                  all three parts
    ./run bench checkpoint --part chain

Processor time, turns A B A B, least against least. `selective` runs attention again and keeps the
rest; `full` keeps the input of each block; `products` keeps what matrix products give. The chain
has room for so many arrays of 1000, the last of them being the default.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

import _peers
import numpy as np

TARGETS = {"full": 1.33, "selective": 1.06, "4 sqrt(n)": 1.35}
Step = Callable[[], Any]


def timed(steps: dict[str, Step], rounds: int) -> dict[str, tuple[float, int]]:
    """(least processor seconds, peak bytes over the start) of each step."""
    from adjoint.kernels import alloc

    found: dict[str, tuple[float, int]] = {}
    for turn in range(rounds + 1):
        for name, step in steps.items():
            before = alloc.live()
            alloc.reset_peak()
            start = time.process_time()
            step()
            seconds, peak = time.process_time() - start, alloc.stats().peak - before
            if turn:
                found[name] = (min(seconds, found.get(name, (1e9, 0))[0]), peak)
    return found


def table(found: dict[str, tuple[float, int]], unit: float, what: str) -> bool:
    """Print times relative to the first entry; True if every target is met."""
    base, met = next(iter(found.values()))[0], True
    for name, (seconds, peak) in found.items():
        target = TARGETS.get(name)
        met &= target is None or seconds / base <= target
        print(f"  {name:10} {_peers.verdict(seconds / base, target):32} peak {peak / unit:8.1f} "
              f"{what}", flush=True)
    return met


def gpt(args: argparse.Namespace) -> bool:
    """The step of a GPT, its blocks checkpointed in three ways."""
    import adjoint as ad
    from adjoint.models.gpt import GPT, GPTConfig
    from adjoint.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    ad.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=256, context=256, layers=args.layers, heads=4, dim=256))
    rng = np.random.default_rng(0)
    x, y = (ad.tensor(rng.integers(0, 256, (args.batch, 256))) for _ in range(2))
    plain = [(b.forward, b.attention.forward) for b in model.blocks]
    keep = functools.partial(create_selective_checkpoint_contexts, ["matmul", "linear"])
    attend = ad.nn.functional.scaled_dot_product_attention

    def selective_attention(self: Any, h: Any) -> Any:
        b, t, d = h.shape
        parts = self.qkv(h).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)

        def core(parts: Any) -> Any:
            out = attend(parts[0], parts[1], parts[2], is_causal=True)
            return out.transpose(1, 2).reshape(b, t, d)
        return self.proj(checkpoint(core, parts, use_reentrant=False))

    def step(how: str) -> None:
        for block, (forward, attention) in zip(model.blocks, plain, strict=True):
            block.forward, block.attention.forward = forward, attention
            if how == "selective":
                block.attention.forward = functools.partial(selective_attention, block.attention)
            elif how != "none":
                options = {"context_fn": keep} if how == "products" else {}
                block.forward = functools.partial(checkpoint, forward, use_reentrant=False,
                                                  **options)
        model.zero_grad()
        model.loss(x, y).backward()

    print("GPT step:")
    names = ("none", "selective", "products", "full")
    return table(timed({n: functools.partial(step, n) for n in names}, args.rounds), 1e6, "MB")


def chain(args: argparse.Namespace) -> bool:
    """1000 layers of a matrix product and a tanh."""
    import adjoint as ad
    from adjoint.utils.checkpoint import checkpoint_chain

    rng = np.random.default_rng(0)
    d = args.width
    w = ad.tensor((rng.standard_normal((d, d)) / d**0.5).astype(np.float32), requires_grad=True)
    x = ad.tensor(rng.standard_normal((d, d)).astype(np.float32), requires_grad=True)
    fns = [lambda t: (t @ w).tanh() for _ in range(1000)]

    kinds: dict[str, dict[str, Any]] = {
        "2 sqrt(n)": {"slots": 62}, "3 sqrt(n)": {"slots": 93}, "4 sqrt(n)": {},
        "log": {"segments": "log"}}

    def step(how: str) -> None:
        w.grad = x.grad = None
        y = functools.reduce(lambda v, f: f(v), fns, x) if how == "none" else checkpoint_chain(
            fns, x, **kinds[how])
        y.sum().backward()

    print(f"chain of 1000 layers on ({d}, {d}):")
    found: dict[str, tuple[float, int]] = {}
    for names, rounds in ((("none", "2 sqrt(n)", "3 sqrt(n)", "4 sqrt(n)"), args.rounds),
                          (("log",), 1)):
        found |= timed({n: functools.partial(step, n) for n in names}, rounds)
    return table(found, x.array.nbytes, "arrays")


def main() -> int:
    """Exit status 1 if a target is missed and --strict was given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in (("layers", 6), ("batch", 16), ("width", 384), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--part", choices=["gpt", "chain"])
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    args = parser.parse_args()
    from adjoint.kernels import alloc

    alloc.install()
    print(_peers.about())
    parts = {"gpt": gpt, "chain": chain}
    met = [part(args) for name, part in parts.items() if args.part in (None, name)]
    return int(args.strict and not all(met))


if __name__ == "__main__":
    raise SystemExit(main())
