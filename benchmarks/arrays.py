"""Operations on arrays of real size, of every kind of number, beside PyTorch.

    ./run bench arrays                     every row
    ./run bench arrays --only where,int    the rows whose name contains one of these
    ./run bench arrays --strict            a ratio above the target is the exit status

Milliseconds of processor time on one thread, minima over the turns of the peers, with malloc told
to keep its pages. No gradient is wanted: what the backward of these does are other rows, or
`layers`. `same` is the largest difference between the peers' results, element by element.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import _peers
import numpy as np
from layers import TUNED, measure

TARGET = 1.3
ROWS, COLUMNS = 2048, 1024

Run = Callable[[ModuleType, dict[str, Any]], Any]  # module, operands -> what is measured


def drawn() -> dict[str, Any]:
    """The operands, by name, as NumPy arrays (bfloat16 and float16 are made of `x`, `y`)."""
    rng = np.random.default_rng(0)
    shape = (ROWS, COLUMNS)
    x, y = (rng.standard_normal(shape, np.float32) for _ in range(2))
    return {
        "x": x, "y": y, "row": y[0].copy(), "column": y[:, :1].copy(), "d": x.astype(np.float64),
        "p": rng.random(shape, np.float32) * 10 + 0.5,
        "i": rng.integers(-99, 100, shape), "j": rng.integers(1, 100, shape),
        "i32": rng.integers(-99, 100, shape).astype(np.int32),
        "u8": rng.integers(0, 256, shape).astype(np.uint8),
        "m": x > 0, "n": y > 0.5, "few": x > 3.5,
        "picks": rng.integers(0, COLUMNS, shape), "lines": rng.integers(0, ROWS, ROWS),
        "short": x[:, :64].copy(), "image": x.reshape(8, 16, 128, 128),
    }


def pointwise() -> dict[str, Run]:
    """One element of the result from one of each operand."""
    return {
        "gt": lambda m, a: a["x"] > a["y"],
        "gt number": lambda m, a: a["x"] > 0.5,
        "eq int": lambda m, a: a["i"] == a["j"],
        "eq int32": lambda m, a: a["i32"] == a["i32"],
        "and bool": lambda m, a: a["m"] & a["n"],
        "not bool": lambda m, a: ~a["m"],
        "isnan": lambda m, a: m.isnan(a["x"]),
        "isfinite": lambda m, a: m.isfinite(a["x"]),
        "where": lambda m, a: m.where(a["m"], a["x"], a["y"]),
        "where number": lambda m, a: m.where(a["m"], a["x"], 0.0),
        "where int": lambda m, a: m.where(a["m"], a["i"], a["j"]),
        "masked_fill": lambda m, a: a["x"].masked_fill(a["m"], -1e9),
        "masked_fill_": lambda m, a: a["x"].clone().masked_fill_(a["m"], 0.5),
        "clamp": lambda m, a: a["x"].clamp(-1, 1),
        "maximum": lambda m, a: m.maximum(a["x"], a["y"]),
        "add int": lambda m, a: a["i"] + a["j"],
        "mul int32": lambda m, a: a["i32"] * a["i32"],
        "add int number": lambda m, a: a["i"] + 3,
        "floor_divide int": lambda m, a: a["i"] // a["j"],
        "remainder int": lambda m, a: a["i"] % a["j"],
        "abs int": lambda m, a: abs(a["i"]),
        "floor_divide": lambda m, a: a["x"] // a["p"],
        "floor_divide number": lambda m, a: a["p"] // 3.0,
        "remainder": lambda m, a: a["x"] % a["p"],
        "remainder number": lambda m, a: a["p"] % 1.0,
        "fmod": lambda m, a: m.fmod(a["x"], a["p"]),
        "pow number": lambda m, a: a["p"] ** 1.7,
        "pow 2": lambda m, a: a["x"] ** 2,
        "pow": lambda m, a: a["p"] ** a["x"],
        "round": lambda m, a: m.round(a["x"]),
        "sign": lambda m, a: m.sign(a["x"]),
        "exp": lambda m, a: m.exp(a["x"]),
        "log": lambda m, a: m.log(a["p"]),
        "sin": lambda m, a: m.sin(a["x"]),
        "tanh": lambda m, a: m.tanh(a["x"]),
        "erf": lambda m, a: m.erf(a["x"]),
        "atan2": lambda m, a: m.atan2(a["x"], a["y"]),
        "lerp": lambda m, a: m.lerp(a["x"], a["y"], 0.3),
        "addcmul": lambda m, a: m.addcmul(a["x"], a["y"], a["p"], value=0.5),
        "add row": lambda m, a: a["x"] + a["row"],
        "mul column": lambda m, a: a["x"] * a["column"],
        "add transposed": lambda m, a: a["x"][:, :1024] + a["x"][:1024].T.repeat(2, 1),
        "exp float64": lambda m, a: m.exp(a["d"]),
        "add bf16": lambda m, a: a["bx"] + a["by"],
        "mul fp16": lambda m, a: a["hx"] * a["hy"],
        "exp bf16": lambda m, a: m.exp(a["bx"]),
        "gelu bf16": lambda m, a: m.nn.functional.gelu(a["bx"]),
        "chain bf16": lambda m, a: (a["bx"] * a["by"] + a["bx"]).tanh(),
        "add bf16 float": lambda m, a: a["bx"] + a["y"],
        "gt bf16": lambda m, a: a["bx"] > a["by"],
        "to bf16": lambda m, a: a["x"].bfloat16(),
        "to fp16": lambda m, a: a["x"].half(),
        "to float of bf16": lambda m, a: a["bx"].float(),
        "to float of int": lambda m, a: a["i"].float(),
        "to int of float": lambda m, a: a["p"].long(),
        "to float of bool": lambda m, a: a["m"].float(),
        "to float of uint8": lambda m, a: a["u8"].float(),
        "to float64": lambda m, a: a["x"].double(),
    }


def reductions() -> dict[str, Run]:
    """Several elements to one."""
    return {
        "sum int": lambda m, a: a["i"].sum(),
        "sum int 1": lambda m, a: a["i"].sum(1),
        "sum bool": lambda m, a: a["m"].sum(),
        "sum bool 0": lambda m, a: a["m"].sum(0),
        "count_nonzero": lambda m, a: m.count_nonzero(a["x"]),
        "mean bool float": lambda m, a: a["m"].float().mean(),
        "sum 0": lambda m, a: a["x"].sum(0),
        "sum 1": lambda m, a: a["x"].sum(1),
        "sum bf16 1": lambda m, a: a["bx"].sum(1),
        "mean fp16": lambda m, a: a["hx"].mean(),
        "var 1": lambda m, a: a["x"].var(1),
        "std 0": lambda m, a: a["x"].std(0),
        "norm": lambda m, a: a["x"].norm(),
        "norm 1": lambda m, a: a["x"].norm(dim=1),
        "max": lambda m, a: a["x"].max(),
        "max 1": lambda m, a: a["x"].max(1)[0],
        "amax 0": lambda m, a: a["x"].amax(0),
        "max int": lambda m, a: a["i"].max(),
        "argmax 1": lambda m, a: a["x"].argmax(1),
        "argmax 0": lambda m, a: a["x"].argmax(0),
        "argmax bf16": lambda m, a: a["bx"].argmax(1),
        "any": lambda m, a: a["few"].any(),
        "any 1": lambda m, a: a["few"].any(1),
        "all 0": lambda m, a: a["m"].all(0),
        "logsumexp 0": lambda m, a: m.logsumexp(a["x"], 0),
        "prod 1": lambda m, a: a["x"].prod(1),
        "cumsum 1": lambda m, a: a["x"].cumsum(1),
        "cumsum 0": lambda m, a: a["x"].cumsum(0),
        "cumsum int": lambda m, a: a["i"].cumsum(1),
        "cummax 1": lambda m, a: a["x"].cummax(1)[0],
        "cumprod 1": lambda m, a: a["x"].cumprod(1),
        "softmax bf16": lambda m, a: a["bx"].softmax(1),
        "softmax 0": lambda m, a: a["x"].softmax(0),
        "layer_norm bf16": lambda m, a: m.nn.functional.layer_norm(a["bx"], (COLUMNS,)),
        "allclose": lambda m, a: m.allclose(a["x"], a["x"]),
        "equal": lambda m, a: m.equal(a["x"], a["x"]),
        "bincount": lambda m, a: m.bincount(a["picks"].reshape(-1)),
    }


def movements() -> dict[str, Run]:
    """Elements that change places."""
    return {
        "sort 1": lambda m, a: a["x"].sort(1)[0],
        "argsort 1": lambda m, a: a["x"].argsort(1),
        "sort int": lambda m, a: a["i"].sort(1)[0],
        "sort short": lambda m, a: a["short"].sort(1)[0],
        "topk 10": lambda m, a: a["x"].topk(10, 1)[0],
        "median 1": lambda m, a: a["x"].median(1)[0],
        "kthvalue 1": lambda m, a: a["x"].kthvalue(100, 1)[0],
        "unique": lambda m, a: m.unique(a["i"]),
        "searchsorted": lambda m, a: m.searchsorted(a["row"].sort()[0], a["x"]),
        "gather 1": lambda m, a: a["x"].gather(1, a["picks"]),
        "take_along_dim 0": lambda m, a: m.take_along_dim(a["x"], a["picks"], 0),
        "index_select 0": lambda m, a: a["x"].index_select(0, a["lines"]),
        "index_select 1": lambda m, a: a["x"].index_select(1, a["picks"][0]),
        "index rows": lambda m, a: a["x"][a["lines"]],
        "masked_select": lambda m, a: a["x"][a["m"]],
        "nonzero": lambda m, a: a["m"].nonzero(),
        "scatter_add 1": lambda m, a: m.zeros(ROWS, COLUMNS).scatter_add(1, a["picks"], a["x"]),
        "scatter 1": lambda m, a: m.zeros(ROWS, COLUMNS).scatter(1, a["picks"], 1.0),
        "index_add 0": lambda m, a: m.zeros(ROWS, COLUMNS).index_add(0, a["lines"], a["x"]),
        "one_hot": lambda m, a: m.nn.functional.one_hot(a["picks"][:, 0], COLUMNS),
        "cat 0": lambda m, a: m.cat([a["x"], a["y"]], 0),
        "cat 1": lambda m, a: m.cat([a["x"], a["y"]], 1),
        "stack 2": lambda m, a: m.stack([a["x"], a["y"]], 2),
        "pad": lambda m, a: m.nn.functional.pad(a["image"], (1, 1, 1, 1)),
        "roll": lambda m, a: a["x"].roll(7, 1),
        "flip 1": lambda m, a: a["x"].flip(1),
        "transpose": lambda m, a: a["x"].t().contiguous(),
        "transpose bf16": lambda m, a: a["bx"].t().contiguous(),
        "permute": lambda m, a: a["image"].permute(0, 2, 3, 1).contiguous(),
        "permute back": lambda m, a: a["image"].reshape(8, 128, 128, 16).permute(
            0, 3, 1, 2).contiguous(),
        "repeat": lambda m, a: a["short"].repeat(1, 16),
        "repeat_interleave": lambda m, a: a["short"].repeat_interleave(16, 1),
        "tril": lambda m, a: a["x"].tril(),
        "clone": lambda m, a: a["x"].clone(),
        "full": lambda m, a: m.full((ROWS, COLUMNS), 0.5),
        "zeros_like": lambda m, a: m.zeros_like(a["x"]),
        "arange": lambda m, a: m.arange(ROWS * COLUMNS),
    }


def operands(m: ModuleType) -> dict[str, Any]:
    """The same numbers in a peer."""
    made = {name: m.tensor(array) for name, array in drawn().items()}
    for name in ("x", "y"):
        made["b" + name], made["h" + name] = made[name].bfloat16(), made[name].half()
    return made


def compared(result: Any) -> Any:
    """A result as numbers of one dtype."""
    return np.asarray(result.double().numpy() if hasattr(result, "double") else result, float)


def difference(found: list[Any]) -> float:
    """The largest difference from the first peer's result."""
    first = found[0]
    return max(float(np.max(np.abs(np.nan_to_num(f) - np.nan_to_num(first)), initial=0.0))
               if f.shape == first.shape else float("inf") for f in found)


def main() -> int:
    """Print the table, the largest ratio first."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="parts of names, with commas between them")
    parser.add_argument("--strict", action="store_true")
    args = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in TUNED.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **TUNED})
    print(_peers.about())
    peers = _peers.load()
    given = {}
    for name, m in peers.items():
        m.set_num_threads(1)
        given[name] = operands(m)
    rows = []
    for name, run in {**pointwise(), **reductions(), **movements()}.items():
        if not any(part in name for part in args.only.split(",")):
            continue
        steps = {peer: lambda m=m, a=given[peer], run=run: run(m, a) for peer, m in peers.items()}
        off = difference([compared(step()) for step in steps.values()])
        gc.collect()
        ms = measure(steps, args.rounds)
        rows.append((ms["adjoint"] / ms["torch"] if "torch" in ms else 0.0, name, ms, off))
        print(end=".", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for ratio, name, ms, off in sorted(rows, reverse=True):
        told = "  ".join(f"{peer} {t:8.3f} ms" for peer, t in ms.items())
        print(f"{name:22s} {told}  {ratio:5.2f}x  same {off:.0e}")
    return int(args.strict and any(ratio > TARGET for ratio, *_ in rows))


if __name__ == "__main__":
    sys.exit(main())
