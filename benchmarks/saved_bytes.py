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
    ("embedding", "w", lambda o: o.F.embedding(o.classes, o.w)),
    ("dropout", "x", lambda o: o.F.dropout(o.x, 0.5)),
    ("attention", "qkv", lambda o: o.F.scaled_dot_product_attention(o.q, o.k, o.value)),
    ("gelu(linear)", "xwb", lambda o: o.F.gelu(o.F.linear(o.x, o.w, o.b))),
    ("relu(linear)", "xwb", lambda o: o.F.relu(o.F.linear(o.x, o.w, o.b))),
]

ACTIVATIONS = (
    "relu relu6 elu selu celu leaky_relu gelu silu mish softplus softsign tanhshrink hardtanh"
    " hardswish hardsigmoid hardshrink softshrink logsigmoid sigmoid tanh glu"
)
CASES += [(n, "x", lambda o, n=n: getattr(o.F, n)(o.x)) for n in ACTIVATIONS.split()]
CASES += [
    ("gelu(tanh)", "x", lambda o: o.F.gelu(o.x, approximate="tanh")),
    ("threshold", "x", lambda o: o.F.threshold(o.x, 0.1, 20.0)),
    ("rrelu", "x", lambda o: o.F.rrelu(o.x, training=True)),
    ("prelu", "xb", lambda o: o.F.prelu(o.x, o.b)),
    ("softmin", "x", lambda o: o.F.softmin(o.x, 1)),
    ("normalize", "x", lambda o: o.F.normalize(o.x)),
]
PAIRS = "mse_loss l1_loss smooth_l1_loss huber_loss"
CASES += [
    (n, wanted, lambda o, n=n: getattr(o.F, n)(o.x, o.y))
    for n in PAIRS.split()
    for wanted in ("xy", "x")
]
CASES += [
    ("cross_entropy", "x", lambda o: o.F.cross_entropy(o.x, o.classes)),
    ("cross_entropy, soft", "x", lambda o: o.F.cross_entropy(o.x, o.u)),
    ("nll_loss", "x", lambda o: o.F.nll_loss(o.x, o.classes)),
    ("kl_div", "x", lambda o: o.F.kl_div(o.x, o.u, reduction="sum")),
    ("kl_div(log_target)", "x", lambda o: o.F.kl_div(o.x, o.y, None, None, "sum", True)),
    ("binary_cross_entropy", "u", lambda o: o.F.binary_cross_entropy(o.u, o.v)),
    ("bce_with_logits", "x", lambda o: o.F.binary_cross_entropy_with_logits(o.x, o.u)),
    (
        "bce, pos_weight",
        "x",
        lambda o: o.F.binary_cross_entropy_with_logits(o.x, o.u, pos_weight=o.b),
    ),
    ("poisson_nll_loss", "x", lambda o: o.F.poisson_nll_loss(o.x, o.u)),
    ("gaussian_nll_loss", "xu", lambda o: o.F.gaussian_nll_loss(o.x, o.y, o.u)),
    ("soft_margin_loss", "x", lambda o: o.F.soft_margin_loss(o.x, o.signs)),
    ("hinge_embedding_loss", "x", lambda o: o.F.hinge_embedding_loss(o.x, o.signs)),
    ("margin_ranking_loss", "xy", lambda o: o.F.margin_ranking_loss(o.x, o.y, o.signs)),
    ("cosine_embedding_loss", "xy", lambda o: o.F.cosine_embedding_loss(o.x, o.y, o.signs[:, 0])),
    ("triplet_margin_loss", "xyz", lambda o: o.F.triplet_margin_loss(o.x, o.y, o.z)),
    ("multi_margin_loss", "x", lambda o: o.F.multi_margin_loss(o.x, o.classes)),
    ("multilabel_margin_loss", "x", lambda o: o.F.multilabel_margin_loss(o.x, o.labels)),
    ("multilabel_soft_margin_loss", "x", lambda o: o.F.multilabel_soft_margin_loss(o.x, o.u)),
    ("layer_norm", "xgb", lambda o: o.F.layer_norm(o.x, (D,), o.g, o.b)),
    ("layer_norm", "gb", lambda o: o.F.layer_norm(o.x, (D,), o.g, o.b)),
    ("layer_norm", "x", lambda o: o.F.layer_norm(o.x, (D,))),
    ("rms_norm", "xg", lambda o: o.F.rms_norm(o.x, (D,), o.g)),
    ("batch_norm", "xgb", lambda o: o.F.batch_norm(o.x, None, None, o.g, o.b, True)),
    ("batch_norm, eval", "xgb", lambda o: o.F.batch_norm(o.x, o.mean, o.var, o.g, o.b)),
    ("instance_norm", "i", lambda o: o.F.instance_norm(o.i)),
    ("group_norm", "i", lambda o: o.F.group_norm(o.i, 2)),
    ("local_response_norm", "i", lambda o: o.F.local_response_norm(o.i, 3)),
    ("ctc_loss", "s", lambda o: o.F.ctc_loss(o.s, o.spelt, (32, 30), (5, 4))),
]
MODES = "nearest nearest-exact bilinear bicubic area"
CASES += [
    (f"interpolate, {n}", "i", lambda o, n=n: o.F.interpolate(o.i, (24, 7), mode=n))
    for n in MODES.split()
]


def operands(m: ModuleType, wanted: str) -> SimpleNamespace:
    """Everything a case may use, the same numbers for each peer."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    arrays = {"x": normal(N, D), "y": normal(N, D), "w": normal(D, D)}
    arrays |= {"b": normal(D), "g": normal(D), "z": normal(N, D), "i": normal(4, 8, 16, 16)}
    arrays |= {name: rng.uniform(0.1, 0.9, (N, D)).astype(np.float32) for name in "uv"}
    arrays |= {name: normal(2, 4, 32, 16) for name in ("q", "k", "value")}
    arrays["s"] = normal(32, 2, 12) - 3  # log probabilities: steps, examples, classes
    made = {name: m.tensor(a, requires_grad=name[0] in wanted) for name, a in arrays.items()}
    made["p"] = m.tensor(np.abs(arrays["x"]) + 1, requires_grad="x" in wanted)
    made["mask"] = m.tensor(arrays["x"] > 0)
    made["rows"] = m.tensor(rng.integers(0, N, 32))
    made["columns"] = m.tensor(rng.integers(0, D, (N, 8)))
    made["classes"] = m.tensor(rng.integers(0, D, N))
    made["labels"] = m.tensor(rng.integers(-1, D, (N, D)))
    made["spelt"] = m.tensor(rng.integers(1, 12, (2, 5)))
    made["signs"] = m.tensor(np.sign(arrays["y"]))
    made["mean"], made["var"] = m.tensor(np.zeros(D, np.float32)), m.tensor(np.ones(D, np.float32))
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
    print(f"{'op':27} {'wants grad':10} {'adjoint':>9} {'PyTorch':>9}")
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
        print(f"{name:27} {','.join(wanted):10} {shown[0]:>9} {shown[1]:>9}  {note}".rstrip())
    print("total of the ops that both have:", {k: f"{v:,} bytes" for k, v in totals.items()})
    return int(args.strict and bool(more))


if __name__ == "__main__":
    raise SystemExit(main())
