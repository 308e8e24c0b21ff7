"""The numbers of the five source texts, checked: each claim with what the arithmetic gives.

Every right number is computed here from the calculator, not stored; `adjoint memory --sources`
prints the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from adjoint.autograd.gradcheck import gradcheck
from adjoint.autograd.modes import no_grad
from adjoint.core.tensor import wrap
from adjoint.memory.architectures import architecture, custom
from adjoint.memory.calculator import Options, estimate, parameters
from adjoint.memory.devices import device
from adjoint.memory.parallel import Parallel, layer_bytes, recompute_flops, states
from adjoint.ops.api_reduce import sum_
from adjoint.ops.pointwise import add, mul
from adjoint.ops.public import METHODS

GB = 1e9
_TORCH_BLOCK = 100.03       # bytes per s b h that PyTorch saves for the sources' block, measured


@dataclass(frozen=True)
class Claim:
    """What a source says, whether it holds, the right statement, and its main number."""

    source: str
    claim: str
    verdict: str
    right: str
    value: float


def _gb(nbytes: float) -> str:
    return f"{nbytes / GB:,.1f} GB"


def _llama_70b() -> Iterator[Claim]:
    s, b, h, layers = 8192, 1, 8192, 80
    layer = layer_bytes(s, b, h, 64, dense=False)
    yield Claim(
        "S2", "bytes/layer = 34 s b h (bytes/elem)", "wrong (x2)",
        f"34 is already bytes for 16-bit values: {layer / (s * b * h):g} s b h", 34.0,
    )
    formula = layers * layer
    walk = estimate("llama-3.1-70b", Options(s, b))
    low = layers * (walk.routes["walk"] - s * b * 28672 * 2)
    rope = layers * s * b * (8192 + 1024) * 2
    yield Claim(
        "S2", "Llama-70B, 8K, b=1: 365 GB of activations", "wrong",
        f"{_gb(formula)} ({formula / 2**30:,.0f} GiB) by the formula of a GPT block (365 GB: s b = "
        f"{2 * s * b:,}); its own block "
        f"(SwiGLU, GQA) {_gb(low)} to {_gb(layers * walk.routes['walk'] + rope)}, by whether "
        "silu(gate) and rotated copies are kept", formula,
    )
    yield Claim(
        "S2", "the 34 absorbs SwiGLU", "wrong",
        "34 counts GELU of 4h; SwiGLU of 3.5h keeps "
        f"{4 * 3.5 * 2:g} B per s b h in its MLP where GELU keeps {2 * 4 * 2:g}", 28.0,
    )
    n = parameters(walk.architecture)
    weights = n * 2.0
    yield Claim(
        "S2", "activations are 2-3x the weights", "wrong (x2)", f"{formula / weights:.1f}x",
        formula / weights,
    )
    parts = states(n, Parallel(), weight=2, gradient=2, moments=8, master=4)
    yield Claim(
        "S2", "weights 140, AdamW adds 280, total ~785 GB", "wrong",
        f"weights {_gb(parts.weights)}, gradients {_gb(parts.gradients)}, moments "
        f"{_gb(parts.optimizer)}, 32-bit weights {_gb(parts.master)}: {_gb(parts.total)} before "
        f"activations ({parts.total / n:g} B per parameter)", parts.total,
    )
    node = device("8xH100-80GB").total_memory
    yield Claim(
        "S2", "fits 8xH100 (640 GB) with checkpointing", "wrong",
        f"{_gb(parts.total)} > {_gb(node)} with no activations at all", parts.total - node,
    )


def _llama_7b() -> Iterator[Claim]:
    s, b, h, a, layers = 8192, 1, 4096, 32, 32
    n = parameters(architecture("llama-2-7b"))
    flash = layers * layer_bytes(s, b, h, a, dense=False)
    full_dense = layers * layer_bytes(s, b, h, a, dense=True)
    full = layers * layer_bytes(s, b, h, a, recompute="full")
    live = layer_bytes(s, b, h, a, dense=False)
    yield Claim(
        "S2", "7B at 8K: activations exceed weights 5-10x", "sloppy",
        f"b=1: tiled {_gb(flash)} / {_gb(2 * n)} = {flash / (2 * n):.1f}x; dense {_gb(full_dense)} "
        f"= {full_dense / (2 * n):.0f}x", flash / (2 * n),
    )
    yield Claim(
        "S2", "7B: none 39, full 4, selective 6 GB", "inconsistent",
        f"none {_gb(flash)} (dense {_gb(full_dense)}); full {_gb(full)} + {_gb(live)} for one live "
        f"layer = {_gb(full + live)}; selective keeps 34 s b h: {_gb(flash)}", full + live,
    )
    least = states(n, Parallel(), weight=2, gradient=2, moments=8, master=0).total
    yield Claim(
        "S2", "7B totals 28 and 30 GB", "wrong",
        f"bf16 weights and gradients {_gb(4 * n)}, with 32-bit moments at least {_gb(least)}",
        least,
    )
    yield Claim(
        "S2", "selective has the memory of full for 5% instead of 33%", "wrong",
        f"full 2 s b h, selective 34 s b h ({34 / 2:g}x); extra work of a forward pass "
        f"{recompute_flops(2048, 12288, of='forward'):.1%} (GPT-3), "
        f"{recompute_flops(2048, 20480, of='forward'):.1%} (MT-NLG), of a step a third of that; "
        f"full {recompute_flops(2048, 12288, 'full'):.0%}", 34 / 2,
    )
    shares = [(5 * a * 2048 / h) for a, h in ((96, 12288), (128, 20480))]
    saved = [x / (34 + x) for x in shares]
    yield Claim(
        "S2", "selective: 3-5x lower", "right for dense attention",
        f"5as/h = {shares[0]:g} (GPT-3) and {shares[1]:g} (MT-NLG): {saved[0]:.0%} and "
        f"{saved[1]:.0%} saved, {1 / (1 - saved[0]):.1f}x and {1 / (1 - saved[1]):.1f}x",
        1 / (1 - saved[0]),
    )


def _exercises() -> Iterator[Claim]:
    s, h, a, b, layers = 2048, 768, 12, 8, 12
    rule = b * s * h * layers * 20
    flash = layers * layer_bytes(s, b, h, a, dense=False)
    dense = layers * layer_bytes(s, b, h, a, dense=True)
    yield Claim(
        "S1", "exercise 5: N S D layers 20 = 3 GB", "arithmetic right, physics wrong",
        f"{rule / GB:.2f} GB if 20 are bytes, {2 * rule / GB:.2f} GB if 16-bit values; counted: "
        f"{flash / GB:.2f} GB tiled, {dense / GB:.1f} GB dense ({34 + 5 * a * s / h:g} s b h L)",
        flash,
    )
    n, seq, d, heads = 4, 2048, 768, 12
    sizes = [n * seq * d, 3 * n * seq * d, n * heads * seq * seq, 4 * n * seq * d]
    yield Claim(
        "S1", "figure: norm NSD, QKV 3NSD, scores NHSS, FFN 4NSD", "right",
        ", ".join(f"{x / 1e6:.1f}M" for x in sizes) + " elements", float(sizes[2]),
    )
    b, s, h, layers = 32, 2048, 4096, 100
    elements = b * s * h
    tiled = layers * layer_bytes(s, b, h, 32, dense=False)
    dense = layers * layer_bytes(s, b, h, 32, dense=True)
    yield Claim(
        "S4", "100 layers: 2.7e8 elements, 1 GB a layer, 100 GB", "arithmetic right, undercounts",
        f"{elements:,} elements, {4 * elements / GB:.2f} GB, {400 * elements / GB:.0f} GB for one "
        f"tensor a layer; a 16-bit block keeps 34 s b h: {tiled / GB:.0f} GB tiled, "
        f"{dense / 1e12:.2f} TB dense (a=32)", 400.0 * elements,
    )
    memory = [device(x).memory / GB for x in ("A100-40GB", "A100-80GB", "H100", "H200")]
    yield Claim(
        "S4", "H100 80, A100 80, H200 141 GB", "right",
        "A100 {:g} and {:g}, H100 {:g}, H200 {:g} GB".format(*memory), memory[3],
    )


def _s3_models() -> Iterator[Claim]:
    vocab, s, b, h = 50000, 512, 32, 512
    model = custom(layers=24, width=h, heads=8, vocabulary=vocab)
    options = Options(s, b, "fp32", attention="dense")
    walk = estimate(model, options).routes["walk"]
    torch, logits = _TORCH_BLOCK * s * b * h, 4.0 * s * b * vocab
    mid = custom(layers=24, width=1024, heads=16)
    wide = 24 * layer_bytes(512, 32, 1024, 16, dense=True)
    yield Claim(
        "S3", "24 layers, s 512, b 32: 30-40 GB", "sloppy: depends on the width",
        f"d=512 in fp32: {walk / (s * b * h):.2f} B per s b h counted value by value (PyTorch: "
        f"{_TORCH_BLOCK} measured), {_gb(24 * walk)} (PyTorch: {_gb(24 * torch)}) + logits "
        f"{_gb(logits)}; h={mid.symbols['h']} in 16 bit, dense: {_gb(wide)}", 24 * walk,
    )
    block_input = 12 * 4.0 * s * b * h
    yield Claim(
        "S3", "12 layers, d 512: 24 GB -> 8 GB", "wrong",
        f"{_gb(12 * walk)} (PyTorch: {_gb(12 * torch)}) + logits {_gb(logits)} (+ as much for "
        "their gradient) -> inputs "
        f"{_gb(block_input)} + one block {_gb(walk)} + logits {_gb(logits)}",
        12 * walk + logits,
    )
    cuts = [1 - after / before for before, after in ((40, 12), (24, 8))]
    yield Claim(
        "S3", "checkpointing: 40 -> 12 GB, 24 -> 8 GB, 60% less", "inconsistent",
        f"{cuts[0]:.0%} and {cuts[1]:.0%} less; counted, with logits and their gradient: "
        f"{1 - (block_input + walk + 2 * logits) / (12 * walk + 2 * logits):.0%}", cuts[0],
    )
    yield Claim(
        "S3", "embedding and projection are cheap to store", "wrong",
        f"the logits ({vocab} wide) are the largest tensor: {_gb(logits)} against "
        f"{_gb(4.0 * s * b * h * 4)} for the widest one of a block", logits,
    )
    one = states(1e9, Parallel(), weight=2, gradient=2, moments=8, master=4)
    yield Claim(
        "S0", "1B model: params 2, grads 2, optimizer 4 GB", "sloppy",
        f"Adam in 32 bit: moments {_gb(one.optimizer)}, master weights {_gb(one.master)}; "
        f"{_gb(one.total)} in all before activations", one.total,
    )


def _costs() -> Iterator[Claim]:
    years = 1e12 * 0.3 / (365.25 * 86400)
    age = 4.35e17
    yield Claim(
        "S4", "1e12 forward passes exceed the age of the universe", "wrong by 1e6",
        f"1e12 * 0.3 s = {years:,.0f} years; the universe: {age / (365.25 * 86400):.2g} years",
        years,
    )
    yield Claim(
        "S1", "a training step = 1.3x an inference step", "wrong",
        f"forward : backward = 1 : 2, so {1 + 2}x a forward pass, {1 + 2 + 1}x with full "
        f"checkpointing = {(1 + 2 + 1) / (1 + 2):.2f}x of the step without", 4 / 3,
    )
    yield Claim(
        "S1", "backward costs roughly what forward does", "wrong",
        "two products of matrices for each of forward: 2x", 2.0,
    )
    yield Claim(
        "S1", "checkpointing: 33% more time", "right as a rule",
        f"a forward pass more: 1 / (1 + 2) = {1 / 3:.0%} where it is all run again", 1 / 3,
    )
    width = 4096
    yield Claim(
        "S4", "K-FAC and Shampoo get their efficiency from HVPs", "wrong",
        f"from two factors, {width} x {width} each for a layer of {width} x {width} where the "
        f"Hessian block has {float(width)**4:.1e} elements; HVPs are Hessian-free, Newton-CG, "
        "Sophia and AdaHessian", 2.0 * width**2,
    )
    yield Claim(
        "S3", "100s of ms latency per second at 1000 requests/s", "meaningless unit",
        f"latency is a time: one worker has {1e3 / 1000:g} ms a request", 1.0,
    )
    default, no_grad, inference = 1 / (1 - 0.256), 1.823, 1.607
    yield Claim(
        "S3", "inference_mode is 10-34% faster than no_grad", "wrong baseline",
        f"its own times: no_grad {no_grad} s, inference {inference} s: "
        f"{1 - inference / no_grad:.1%} (both are 'vs default', "
        f"{no_grad * default:.2f} s)", 1 - inference / no_grad,
    )
    yield Claim(
        "S1", "16-bit underflow at 6e-8, loss scale 2^16", "right",
        f"smallest subnormal 2^-24 = {float(np.finfo(np.float16).smallest_subnormal):.3g}, "
        f"smallest normal {float(np.finfo(np.float16).smallest_normal):.2g}, 2^16 = {2**16}",
        float(np.finfo(np.float16).smallest_subnormal),
    )
    top = float(np.log(np.finfo(np.float32).max))
    yield Claim(
        "S3", "exp overflows at logits above 88", "right",
        f"log(largest float32) = {top:.2f}", top,
    )


def _no_zero_grad(rate: float, steps: int = 60) -> float:
    """Largest gradient seen when w -> w^2 / 2 is trained and gradients are never cleared."""
    w, grad, largest = 1.0, 0.0, 0.0
    for _ in range(steps):
        grad += w
        w -= rate * grad
        largest = max(largest, abs(grad))
    return largest


def _training() -> Iterator[Claim]:
    grads = np.cumsum(np.full(5, 3.0))
    yield Claim(
        "S3", "forgotten zero_grad: exponential growth", "wrong in general",
        f"repeated backward grows linearly: {', '.join(f'{g:g}' for g in grads)}; as SGD it is "
        f"momentum 1, bounded while rate * curvature < 4: largest gradient "
        f"{_no_zero_grad(3.9):.1f} at 3.9, {_no_zero_grad(4.1):.1e} at 4.1", float(grads[-1]),
    )
    yield Claim(
        "S3", "retain_graph in a loop: exponential growth", "wrong",
        f"linear: k steps hold k graphs ({', '.join(str(20 * k) for k in (1, 2, 3))} MiB at 20 MiB "
        "a step)", 20.0,
    )
    yield Claim(
        "S3", "stored losses keep the graph: growth to out-of-memory", "half wrong",
        f"only where no backward ran: 40 steps of 20 MiB hold {40 * 20} MiB; after backward the "
        "saved values are gone", 800.0,
    )
    values = {"x1", "x2", "a = x1 + x2", "f = a * x1"}
    yield Claim(
        "S4", "f = (x1 + x2) x1 has five nodes", "wrong",
        f"{len(values)} values: {', '.join(sorted(values))}", float(len(values)),
    )
    out, inner = 3, 4
    shape = np.einsum("oi,j->oij", np.eye(out), np.ones(inner)).shape
    yield Claim(
        "S1", "dy/dW is a 4-tensor of shape (out, out, in)", "wrong",
        f"rank {len(shape)}: {shape} for out={out}, in={inner}", float(len(shape)),
    )


def _told(run: Callable[[], object]) -> str:
    """What `run` is told, in a sentence."""
    try:
        run()
    except Exception as error:  # what is raised is what is shown
        first = re.split(r"; called with|[.] |[.]?\n|[.]$| \(", str(error))[0]
        return f"raises {type(error).__name__}: {first}"
    return "raises nothing"


def _programs() -> Iterator[Claim]:
    """Claims about what lines of code do: they are run."""
    x, error = wrap(np.array([1.0, 2.0]), True), cast(Any, RuntimeError())
    with no_grad():
        y = mul(x, x)
    yield Claim("S3", "training under no_grad: nothing happens, silently", "wrong",
                f"backward() {_told(sum_(y).backward)}", 0.0)
    yield Claim("S3", ".numpy() of a tracked tensor detaches silently", "wrong",
                f"it {_told(mul(x, x).numpy)}", 0.0)
    yield Claim("S3", "x += 1 of a leaf is tracked", "wrong",
                f"it {_told(lambda: x.add_(1.0))}", 0.0)
    yield Claim("S3", 'print(f"{e[:80]}") of an error', "bug",
                f"it {_told(lambda: error[:80])}: str(e)[:80]", 0.0)
    total = sum_(mul(x, x))
    total.backward()
    grad: Any = x.grad
    yield Claim("S3", "x.grad.sum() prints grad_fn=<SumBackward1>", "wrong",
                f"its grad_fn is {sum_(grad).grad_fn}: gradients are plain tensors", 0.0)
    yield Claim("S3", "tensor(1.23, requires_grad=True) has a grad_fn", "wrong",
                f"it is a leaf: grad_fn is {wrap(np.array(1.23), True).grad_fn}", 0.0)
    yield Claim("S1", "one backward over a sum of losses meets freed nodes", "muddled",
                f"it {_told(lambda: add(sum_(mul(x, x)), sum_(mul(x, x))).backward())}; a graph "
                f"that was gone through twice {_told(total.backward)}", 0.0)
    single = wrap(np.array([0.3, 0.7], np.float32), True)
    yield Claim("S3", "gradcheck(model, inputs) of float32", "fails",
                f"it {_told(lambda: gradcheck(lambda t: mul(t, mul(t, t)), (single,)))}; of "
                f"float64 it is {gradcheck(lambda t: mul(t, mul(t, t)), (x,))}", 0.0)
    yield Claim("S1", "softmax(x) without an axis", "wrong",
                f"it {_told(lambda: METHODS['softmax'](x))}", 0.0)
    yield Claim("S1", "use_reentrant=False came with PyTorch 2.0", "wrong",
                "with 1.11 (pytorch#69508); it is no default yet (pytorch#160534)", 1.11)
    yield Claim("S1", "torch.cuda.amp.GradScaler", "deprecated name",
                'torch.amp.GradScaler("cuda")', 0.0)


_CHECKS: tuple[Callable[[], Iterator[Claim]], ...] = (
    _llama_70b, _llama_7b, _exercises, _s3_models, _costs, _training, _programs,
)


def claims() -> list[Claim]:
    """All checked claims, with the numbers computed now.

    >>> [round(c.value / 1e9, 1) for c in claims() if "365" in c.claim]
    [182.5]
    """
    return [claim for check in _CHECKS for claim in check()]
