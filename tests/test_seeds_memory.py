"""The figures of memory that are often quoted, with the right numbers (F64-F66, F68, F69)."""
from __future__ import annotations

from typing import Any

import pytest

import adjoint as ad
from adjoint.memory.architectures import custom
from adjoint.memory.calculator import Options, estimate, evaluate, parameters
from adjoint.memory.devices import DEVICES
from adjoint.memory.parallel import layer_bytes
from adjoint.memory.sources import claims

N, S, D, H = 4, 2048, 768, 12


def kept(attention: str) -> dict[str, float]:
    """Value -> elements that a block of the figure keeps."""
    found = estimate(custom(layers=1, width=D, heads=H), Options(S, N, "fp32", attention=attention))
    return {line.name: line.nbytes / 4 for line in found.block}


@pytest.mark.row("F64")
def test_shapes_and_bytes_of_a_block() -> None:
    """The walk x_in, x_norm, qkv, q k v, scores, weights, out, proj, ffn: run on tensors without
    storage, each with its shape, and every byte that stays for backward."""
    shapes: dict[str, tuple[int, ...]] = {}
    saved: dict[str, int] = {}
    hd = D // H
    with ad.device("meta"):
        block = ad.nn.ModuleDict({
            "norm1": ad.nn.LayerNorm(D), "qkv": ad.nn.Linear(D, 3 * D),
            "proj": ad.nn.Linear(D, D), "norm2": ad.nn.LayerNorm(D),
            "up": ad.nn.Linear(D, 4 * D), "down": ad.nn.Linear(4 * D, D)})
        x = ad.empty(N, S, D)

    def keep(name: str, t: Any) -> Any:
        shapes[name] = tuple(t.shape)
        mine = {id(p.array) for p in block.parameters()}
        node = t.grad_fn
        saved[name] = sum(s.nbytes for s in node.saved_tensors
                          if s is not None and id(s.array) not in mine)
        return t
    x_norm = keep("x_norm", block["norm1"](x))
    qkv = keep("qkv", block["qkv"](x_norm))
    q, k, v = (t.reshape(N, S, H, hd).transpose(1, 2) for t in qkv.chunk(3, -1))
    assert q.shape == k.shape == v.shape == (N, H, S, hd)
    scores = keep("scores", q @ k.transpose(-2, -1))
    weights = keep("weights", ad.softmax(scores / hd ** 0.5, -1))
    out = keep("out", weights @ v)
    proj = keep("proj", block["proj"](out.transpose(1, 2).reshape(N, S, D)))
    residual = keep("residual", x + proj)
    up = keep("up", block["up"](block["norm2"](residual)))
    gelu = keep("gelu", ad.nn.functional.gelu(up))
    keep("down", block["down"](gelu))

    assert shapes == {
        "x_norm": (N, S, D), "qkv": (N, S, 3 * D), "scores": (N, H, S, S),
        "weights": (N, H, S, S), "out": (N, H, S, hd), "proj": (N, S, D), "residual": (N, S, D),
        "up": (N, S, 4 * D), "gelu": (N, S, 4 * D), "down": (N, S, D)}
    nsd, nhss = 4 * N * S * D, 4 * N * H * S * S
    assert saved["x_norm"] in (nsd, nsd + 2 * 4 * N * S)      # x, and mean and rstd where shown
    assert saved["qkv"] == saved["up"] == nsd                 # their input
    assert saved["scores"] == 2 * nsd                         # q and k
    assert saved["weights"] == nhss                           # its own output
    assert saved["out"] == nhss + nsd                         # the weights and v
    assert saved["proj"] == nsd
    assert saved["residual"] == 0
    assert saved["gelu"] == saved["down"] == 4 * nsd


@pytest.mark.row("F64", "F65")
def test_the_calculator_walks_the_same_values() -> None:
    """The figure's bars: norm N S D, q k v 3 N S D, scores N H S S, inner layer 4 N S D."""
    values = kept("dense")
    assert values["norm 1: input"] == N * S * D == 6_291_456
    heads = [values[f"attention: {n}"] for n in "qkv"]
    assert sum(heads) == 3 * N * S * D == 18_874_368
    assert values["softmax: probabilities"] == N * H * S * S == 201_326_592
    assert values["gelu: input"] == 4 * N * S * D == 25_165_824
    assert not any("softmax" in name for name in kept("flash"))


@pytest.mark.row("F66")
def test_the_34_s_b_h_estimator() -> None:
    """34 are bytes already (arXiv 2205.05198, equation 1): 80 layers at 8192 tokens of width 8192
    are 182.5 GB and not the 365 GB of 34 elements of two bytes; dense attention adds 5 a s / h."""
    s, b, h, a, layers = 8192, 1, 8192, 64, 80
    assert layers * layer_bytes(s, b, h, a, dense=False) == 34 * s * b * h * layers
    assert evaluate("34*s*b*h*L / 1e9", dict(s=s, b=b, h=h, L=layers)) == pytest.approx(182.536,
                                                                                      abs=5e-4)
    assert layer_bytes(s, b, h, a) / (s * b * h) == 34 + 5 * a * s / h == 354
    assert layer_bytes(2048, 8, 768, 12) / (2048 * 8 * 768) == 194
    known = {c.claim: c for c in claims()}
    right = known["Llama-70B, 8K, b=1: 365 GB of activations"]
    assert right.verdict == "wrong" and right.value == 34 * s * h * layers
    assert "182.5 GB" in right.right
    state = next(c for c in claims() if "total ~785" in c.claim)
    assert state.value == 16 * parameters(estimate("llama-3.1-70b", Options(s, b)).architecture)


@pytest.mark.row("F68")
def test_the_activation_calculator() -> None:
    """12 layers, s 2048, d 768, batch 8: 3.02 GB by the rule of 20, 5.13 GB counted with tiled
    attention, 29.3 GB with dense attention: the rule leaves the heads out."""
    sizes = {"N": 8, "S": 2048, "D": 768, "L": 12}
    assert evaluate("N*S*D*L*20", sizes) == 3_019_898_880
    tiled = 12 * layer_bytes(2048, 8, 768, 12, dense=False)
    dense = 12 * layer_bytes(2048, 8, 768, 12)
    assert tiled == 5_133_828_096
    assert dense == pytest.approx(29.3e9, rel=1e-3)
    said = next(c for c in claims() if "exercise 5" in c.claim)
    assert all(f"{x / 1e9:.{n}f} GB" in said.right for x, n in
               [(3_019_898_880, 2), (tiled, 2), (dense, 1)])


@pytest.mark.row("F69")
def test_the_hundred_layers() -> None:
    """Batch 32, 2048 tokens, width 4096, fp32: 268,435,456 elements, 1.07 GB a layer, 107 GB for
    one tensor a layer, more than an H100 holds; and a block keeps far more than one tensor."""
    sizes = {"b": 32, "s": 2048, "h": 4096, "L": 100}
    assert evaluate("b*s*h", sizes) == 268_435_456
    assert evaluate("4*b*s*h", sizes) == 1_073_741_824
    whole = evaluate("4*b*s*h*L", sizes)
    assert whole == 107_374_182_400
    memory = {name: DEVICES[name].memory for name in ("A100-80GB", "H100-80GB", "H200-141GB")}
    assert memory == {"A100-80GB": 80e9, "H100-80GB": 80e9, "H200-141GB": 141e9}
    assert memory["H100-80GB"] < whole < memory["H200-141GB"]
    assert 100 * layer_bytes(2048, 32, 4096, 32, dense=False) == pytest.approx(913e9, rel=1e-3)
    assert 100 * layer_bytes(2048, 32, 4096, 32) == pytest.approx(3.06e12, rel=2e-3)
    said = next(c for c in claims() if "100 layers" in c.claim)
    assert said.value == whole and "268,435,456 elements, 1.07 GB, 107 GB" in said.right
