"""What each op keeps for backward, ours and PyTorch's, in bytes.

    ./run bench saved_bytes

Ours is what the nodes hold, PyTorch's is what its saved-tensor hooks see. Memory that is kept twice
counts once. The second column names the operands that require a gradient; what only the gradient
of another one needs should not be kept. More than PyTorch is marked.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import _peers
import numpy as np

N, D = 64, 128  # rows and columns; every case is float32
NUMBER = 8  # bytes of a Python number kept as an array
Case = Callable[[Any], Any]

# (op, operands that require grad, function of a namespace of operands)
CASES: list[tuple[str, str, Case]] = [
    ("x + y", "xy", lambda o: o.x + o.y),
    ("x - y", "xy", lambda o: o.x - o.y),
    ("x * y", "xy", lambda o: o.x * o.y),
    ("x * y", "x", lambda o: o.x * o.y),
    ("x / y", "xy", lambda o: o.x / o.y),
    ("x / y", "x", lambda o: o.x / o.y),
    ("x * 2", "x", lambda o: o.x * 2),
    ("x ** 3", "x", lambda o: o.x**3),
    ("exp", "x", lambda o: o.m.exp(o.x)),
    ("log", "x", lambda o: o.m.log(o.p)),
    ("sqrt", "x", lambda o: o.m.sqrt(o.p)),
    ("sin", "x", lambda o: o.m.sin(o.x)),
    ("tanh", "x", lambda o: o.m.tanh(o.x)),
    ("sigmoid", "x", lambda o: o.m.sigmoid(o.x)),
    ("relu", "x", lambda o: o.F.relu(o.x)),
    ("gelu", "x", lambda o: o.F.gelu(o.x)),
    ("silu", "x", lambda o: o.F.silu(o.x)),
    ("softplus", "x", lambda o: o.F.softplus(o.x)),
    ("abs", "x", lambda o: o.m.abs(o.x)),
    ("clamp", "x", lambda o: o.m.clamp(o.x, -1, 1)),
    ("where", "xy", lambda o: o.m.where(o.mask, o.x, o.y)),
    ("maximum", "xy", lambda o: o.m.maximum(o.x, o.y)),
    ("sum", "x", lambda o: o.x.sum()),
    ("mean", "x", lambda o: o.x.mean(1)),
    ("amax", "x", lambda o: o.x.amax(1)),
    ("max(dim)", "x", lambda o: o.x.max(1).values),
    ("var", "x", lambda o: o.x.var(1)),
    ("norm", "x", lambda o: o.x.norm()),
    ("logsumexp", "x", lambda o: o.m.logsumexp(o.x, 1)),
    ("cumsum", "x", lambda o: o.x.cumsum(1)),
    ("sort", "x", lambda o: o.x.sort(1).values),
    ("reshape", "x", lambda o: o.x.reshape(D, N)),
    ("transpose", "x", lambda o: o.x.t()),
    ("cat", "xy", lambda o: o.m.cat([o.x, o.y])),
    ("x[rows]", "x", lambda o: o.x[o.rows]),
    ("gather", "x", lambda o: o.m.gather(o.x, 1, o.columns)),
    ("matmul", "xw", lambda o: o.x @ o.w),
    ("matmul", "x", lambda o: o.x @ o.w),
    ("matmul", "w", lambda o: o.x @ o.w),
    ("linear", "xwb", lambda o: o.F.linear(o.x, o.w, o.b)),
    ("linear", "x", lambda o: o.F.linear(o.x, o.w, o.b)),
    ("linear", "b", lambda o: o.F.linear(o.x, o.w, o.b)),
    ("softmax", "x", lambda o: o.F.softmax(o.x, dim=1)),
    ("log_softmax", "x", lambda o: o.F.log_softmax(o.x, dim=1)),
    ("cross_entropy", "x", lambda o: o.F.cross_entropy(o.x, o.classes)),
    ("mse_loss", "xy", lambda o: o.F.mse_loss(o.x, o.y)),
    ("l1_loss", "xy", lambda o: o.F.l1_loss(o.x, o.y)),
    ("layer_norm", "xgb", lambda o: o.F.layer_norm(o.x, (D,), o.g, o.b)),
    ("layer_norm", "x", lambda o: o.F.layer_norm(o.x, (D,))),
    ("embedding", "w", lambda o: o.F.embedding(o.classes, o.w)),
    ("dropout", "x", lambda o: o.F.dropout(o.x, 0.5)),
    ("attention", "qkv", lambda o: o.F.scaled_dot_product_attention(o.q, o.k, o.v)),
    ("gelu(linear)", "xwb", lambda o: o.F.gelu(o.F.linear(o.x, o.w, o.b))),
    ("relu(linear)", "xwb", lambda o: o.F.relu(o.F.linear(o.x, o.w, o.b))),
]


def operands(m: ModuleType, wanted: str) -> SimpleNamespace:
    """Everything a case may use, the same numbers for each peer."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    arrays = {"x": normal(N, D), "y": normal(N, D), "w": normal(D, D)}
    arrays |= {"b": normal(D), "g": normal(D)}
    arrays |= {name: normal(2, 4, 32, 16) for name in "qkv"}
    made = {name: m.tensor(a, requires_grad=name in wanted) for name, a in arrays.items()}
    made["p"] = m.tensor(np.abs(arrays["x"]) + 1, requires_grad="x" in wanted)
    made["mask"] = m.tensor(arrays["x"] > 0)
    made["rows"] = m.tensor(rng.integers(0, N, 32))
    made["columns"] = m.tensor(rng.integers(0, D, (N, 8)))
    made["classes"] = m.tensor(rng.integers(0, D, N))
    functional = importlib.import_module(m.__name__ + ".nn.functional")
    return SimpleNamespace(m=m, F=functional, **made)


def hooked(m: ModuleType, given: SimpleNamespace, case: Case) -> list[Any]:
    """PyTorch: the tensors that its saved-tensor hooks see."""
    seen = []

    def pack(tensor: Any) -> Any:
        seen.append(tensor)
        return tensor

    with m.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        case(given)
    return seen


def walked(given: SimpleNamespace, case: Case) -> list[Any]:
    """Ours: what the nodes say they hold, masks and indices included."""
    found, todo, done = [], [case(given).grad_fn], set()
    while todo:
        node = todo.pop()
        if node is not None and id(node) not in done:
            done.add(id(node))
            found += list(getattr(node, "saved_tensors", ()))
            todo += [before for before, _ in node.next_functions]
    return found


def kept(name: str, m: ModuleType, wanted: str, case: Case) -> int | None:
    """Bytes of distinct memory that backward holds; None if the peer has no such op."""
    given = operands(m, wanted)
    try:
        tensors = hooked(m, given, case) if name == "torch" else walked(given, case)
    except (AttributeError, NotImplementedError):
        return None
    sizes = {(t.detach().data_ptr(), t.numel() * t.element_size()) for t in tensors}
    return sum(size for _, size in sizes)


def main() -> int:
    """Exit status 1 if an op keeps more than PyTorch and --strict was given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--strict", action="store_true", help="fail if an op keeps more")
    args = parser.parse_args()
    print(_peers.about())
    peers = _peers.load()
    more, totals = [], {name: 0 for name in peers}
    print(f"{'op':14} {'wants grad':10} {'adjoint':>9} {'PyTorch':>9}")
    for name, wanted, case in CASES:
        found = {peer: kept(peer, m, wanted, case) for peer, m in peers.items()}
        ours, theirs = found["adjoint"], found.get("torch")
        note = ""
        if ours is not None and theirs is not None:
            # The 2 of x * 2 is 4 bytes of ours; PyTorch's hooks do not see numbers.
            excess = ours - theirs
            note = "less" if excess < 0 else "MORE" if excess > NUMBER else ""
            totals["adjoint"] += ours
            totals["torch"] += theirs
            if excess > NUMBER:
                more.append(name)
        shown = ["-" if v is None else f"{v:,}" for v in (ours, theirs)]
        print(f"{name:14} {','.join(wanted):10} {shown[0]:>9} {shown[1]:>9}  {note}".rstrip())
    print("total of the ops that both have:", {k: f"{v:,} bytes" for k, v in totals.items()})
    return int(args.strict and bool(more))


if __name__ == "__main__":
    raise SystemExit(main())
