"""The memory calculator: counts, formulas, walks, devices, page (F62-F69, F80, F129)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adjoint.base.errors import ArgumentError
from adjoint.cli import memory as command
from adjoint.kernels import alloc
from adjoint.memory import calculator
from adjoint.memory.architectures import architecture, custom, names
from adjoint.memory.calculator import Options, estimate, evaluate
from adjoint.memory.devices import DEVICES, compute_seconds, device, offload
from adjoint.memory.page import page
from adjoint.memory.parallel import Parallel, layer_bytes, states
from adjoint.memory.sources import claims

ROUNDED = {"gpt3-175b": 1e5, "mt-nlg-530b": 5e7}


@pytest.mark.parametrize("name", names())
def test_parameter_counts_are_the_published_ones(name: str) -> None:
    """Exact, or to the digits that the paper prints (GPT-3: 174,600M; MT-NLG: 529.6B)."""
    arch = architecture(name)
    assert abs(calculator.parameters(arch) - arch.published) <= ROUNDED.get(name, 0) * 100


@pytest.mark.parametrize("written, meant", [
    ("resnet50", "resnet-50"), ("resnet_50", "resnet-50"), ("ViT-B/16", "vit-b-16"),
    ("vit_b_16", "vit-b-16"), ("llama2-7b", "llama-2-7b"), ("gpt-2", "gpt2"),
    ("GPT3", "gpt3-175b")])
def test_names_without_their_dashes(written: str, meant: str) -> None:
    """The names that other libraries give; no two of ours become one."""
    assert architecture(written).name == meant
    bare = {"".join(c for c in n if c.isalnum()) for n in names()}
    assert len(bare) == len(names())


def test_parameter_counts_against_torch_modules() -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(768, 12, 3072)
    block = sum(p.numel() for p in layer.parameters())
    arch = architecture("gpt2")
    counted = sum(
        evaluate(p.count, arch.symbols) for p in arch.parts if p.per_layer
    )
    assert counted == block


# ------------------------------------------------------------------ Korthikanti's formulas


def test_published_layer_formulas() -> None:
    """Table 2 of arXiv 2205.05198, each row written out."""
    s, b, h, a, t = 2048, 4, 6144, 64, 8
    sbh, scores = s * b * h, 5 * a * s / h
    assert layer_bytes(s, b, h, a) == sbh * (34 + scores)
    assert layer_bytes(s, b, h, a, t) == sbh * (10 + 24 / t + scores / t)
    assert layer_bytes(s, b, h, a, t, sequence=True) == sbh / t * (34 + scores)
    assert layer_bytes(s, b, h, a, t, recompute="selective") == sbh * (10 + 24 / t)
    both = layer_bytes(s, b, h, a, t, sequence=True, recompute="selective")
    assert both == sbh * 34 / t
    assert layer_bytes(s, b, h, a, t, recompute="full") == 2 * sbh


@pytest.mark.parametrize("attention", ["flash", "dense"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize(
    "split", [Parallel(), Parallel(tensor=8), Parallel(tensor=8, sequence=True)]
)
def test_walk_of_a_gpt_block_is_the_formula(
    attention: str, recompute: str, split: Parallel
) -> None:
    """For GPT-3's block in 16 bit the walk gives the published bytes but for its statistics, and
    for the masks of dropout: a bit for each element, a byte in the formula."""
    options = Options(2048, 2, attention=attention, recompute=recompute, parallel=split)
    found = estimate("gpt3-175b", options)
    formula = found.routes["formula"]
    if recompute == "full":
        share = 8 if split.sequence else 1
        assert found.routes["walk"] == formula / share
        return
    groups = {d.group for d in found.differences}
    dense = attention == "dense" and recompute == "none"
    assert groups == {"statistics", "dropout"} | ({"scores"} if dense else set())
    statistics = next(d.walk for d in found.differences if d.group == "statistics")
    s, b, h, a = 2048, 2, 12288, 96
    masks = 2 * s * b * h / (8 if split.sequence else 1) + dense * a * s * s * b / split.tensor
    assert found.routes["walk"] - statistics + masks * 7 / 8 == pytest.approx(formula, rel=1e-12)
    assert 0 < statistics < 0.01 * formula


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt2", "vit-b-16", "bert-large"])
@pytest.mark.parametrize("attention", ["flash", "dense"])
def test_differences_explain_the_whole_difference(name: str, attention: str) -> None:
    found = estimate(name, Options(512, 2, "fp32", attention=attention))
    explained = sum(d.walk - d.formula for d in found.differences)
    assert explained == pytest.approx(found.routes["walk"] - found.routes["formula"], rel=1e-12)
    assert all(d.why for d in found.differences)


def test_growth_laws() -> None:
    """F63: linear in batch and depth, linear in s when tiled, quadratic in s when dense."""

    def blocks(layers: int, s: int, b: int, attention: str) -> float:
        arch = custom(layers=layers, width=512, heads=8)
        found = estimate(arch, Options(s, b, attention=attention))
        return next(x.nbytes for x in found.lines if x.name == "blocks")

    base = blocks(4, 256, 2, "flash")
    assert blocks(8, 256, 2, "flash") == blocks(4, 512, 2, "flash") == 2 * base
    assert blocks(4, 256, 4, "flash") == 2 * base
    second = [blocks(4, s, 2, "dense") for s in (256, 512, 768)]
    curvature = second[2] - 2 * second[1] + second[0]
    assert curvature == 4 * 2 * 8 * 2 * 256**2 * 2


# ------------------------------------------------------------------ PyTorch as the oracle


def _kept_bytes(torch: Any, block: Callable[[Any], Any], x: Any, parameters: list[Any]) -> int:
    """Bytes of distinct storages, parameters left out, that backward of `block(x)` holds."""
    fixed = {p.untyped_storage().data_ptr() for p in parameters}
    kept: dict[int, Any] = {}

    def pack(t: Any) -> Any:
        storage = t.untyped_storage()
        if storage.data_ptr() not in fixed:
            kept[storage.data_ptr()] = storage
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = block(x)
    assert out.requires_grad
    return sum(s.nbytes() for s in kept.values())


def _heads(t: Any, n: int) -> Any:
    return t.view(t.shape[0], t.shape[1], n, -1).transpose(1, 2)


def test_walk_equals_what_torch_keeps_for_a_gpt_block() -> None:
    """F62: not one byte of difference (tiled attention, no dropout, float32)."""
    torch = pytest.importorskip("torch")
    f, nn = torch.nn.functional, torch.nn
    b, s, h, a = 2, 64, 64, 4
    n1, n2 = nn.LayerNorm(h), nn.LayerNorm(h)
    q, k, v, o = (nn.Linear(h, h) for _ in range(4))
    up, down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

    def block(x: Any) -> Any:
        y = n1(x)
        z = f.scaled_dot_product_attention(*(_heads(m(y), a) for m in (q, k, v)))
        x = x + o(z.transpose(1, 2).reshape(b, s, h))
        return x + down(f.gelu(up(n2(x))))

    modules = [n1, n2, q, k, v, o, up, down]
    weights = [p for m in modules for p in m.parameters()]
    x = torch.randn(b, s, h, requires_grad=True)
    arch = custom(layers=1, width=h, heads=a)
    walk = estimate(arch, Options(s, b, "fp32")).routes["walk"]
    assert _kept_bytes(torch, block, x, weights) == walk


def test_walk_equals_what_torch_keeps_for_a_llama_block() -> None:
    """F62: RMS norms, SwiGLU."""
    torch = pytest.importorskip("torch")
    f, nn = torch.nn.functional, torch.nn
    b, s, h, a, inner = 2, 64, 64, 4, 176

    class Norm(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """Keeps x and rstd, as a norm's rule needs (torch's own also keeps the normalised x)."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
            ctx.save_for_backward(x, rstd)
            return x * rstd

        @staticmethod
        def backward(ctx: Any, ct: Any) -> Any:
            raise NotImplementedError

    q, k, v, o = (nn.Linear(h, h, bias=False) for _ in range(4))
    gate, up = (nn.Linear(h, inner, bias=False) for _ in range(2))
    down = nn.Linear(inner, h, bias=False)

    def block(x: Any) -> Any:
        y = Norm.apply(x)
        z = f.scaled_dot_product_attention(*(_heads(m(y), a) for m in (q, k, v)))
        x = x + o(z.transpose(1, 2).reshape(b, s, h))
        y = Norm.apply(x)
        return x + down(f.silu(gate(y)) * up(y))

    weights = [p for m in (q, k, v, o, gate, up, down) for p in m.parameters()]
    x = torch.randn(b, s, h, requires_grad=True)
    arch = custom(layers=1, width=h, heads=a, inner=inner, glu=True, rms=True)
    walk = estimate(arch, Options(s, b, "fp32")).routes["walk"]
    assert _kept_bytes(torch, block, x, weights) == walk


def test_lean_walk_is_within_the_target() -> None:
    """Issue 5.7: the sources' block (d=512, 8 heads, fp32) at no more than 52 bytes per s.b.h."""
    arch = custom(layers=1, width=512, heads=8)
    found = estimate(arch, Options(512, 32, "fp32"))
    assert found.routes["lean"] / (512 * 32 * 512) <= 52


# ------------------------------------------------------------------ model state, parallelism


def test_model_state_of_70b() -> None:
    n = 70_553_706_496
    parts = estimate("llama-3.1-70b", Options(8192)).states
    assert (parts.weights, parts.gradients) == (2 * n, 2 * n)
    assert (parts.optimizer, parts.master) == (8 * n, 4 * n)
    plain = estimate("llama-3.1-70b", Options(8192, dtype="fp32")).states
    assert plain.master == 0 and plain.total == 16 * n


@pytest.mark.parametrize(
    ("zero", "per_parameter"), [(0, 16), (1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 2)]
)
def test_zero_stages(zero: int, per_parameter: float) -> None:
    split = Parallel(data=8, zero=zero)
    total = states(1e9, split, weight=2, gradient=2, moments=8, master=4).total
    assert total == per_parameter * 1e9


def test_tensor_and_pipeline_split_all_weights_once() -> None:
    on = estimate("llama-3.1-70b", Options(8192, parallel=Parallel(tensor=8, pipeline=4)))
    h, inner, vocabulary, layers = 8192, 28672, 128256, 80 // 4
    matrices = 2 * h * h + 2 * h * 1024 + 3 * h * inner
    last_stage = layers * (matrices / 8 + 2 * h) + vocabulary * h / 8 + h
    assert on.rank_parameters == last_stage


def test_pipeline_holds_as_many_microbatches_as_stages() -> None:
    def blocks(parallel: Parallel) -> float:
        found = estimate("gpt3-175b", Options(2048, 1, parallel=parallel))
        return next(x.nbytes for x in found.lines if x.name == "blocks")

    whole = blocks(Parallel())
    assert blocks(Parallel(pipeline=8, microbatches=32)) == whole
    assert blocks(Parallel(pipeline=8, microbatches=2)) == whole / 4


def test_full_recompute_adds_one_live_block() -> None:
    none = estimate("gpt2", Options(1024, 8))
    full = estimate("gpt2", Options(1024, 8, recompute="full"))
    parts = {x.name: x.nbytes for x in full.lines}
    assert parts["recomputed block"] == none.routes["walk"]
    assert parts["blocks"] == 12 * 1024 * 8 * 768 * 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Options(0), "seq=0"),
        (lambda: Options(8, dtype="int8"), "dtype='int8'; one of fp32"),
        (lambda: Options(8, recompute="some"), "none, selective, full"),
        (lambda: Parallel(sequence=True), "set tensor > 1"),
        (lambda: Parallel(zero=4), "the stages are 0, 1, 2 and 3"),
        (lambda: estimate("gpt2", Options(8, parallel=Parallel(pipeline=5))), "12 layers do not"),
        (lambda: estimate("gpt2", Options(8, parallel=Parallel(tensor=5))), "12 heads"),
        (lambda: architecture("gpt5"), "the names are gpt2"),
        (lambda: device("abacus"), "the names are V100"),
    ],
)
def test_errors_say_what_to_change(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        make()


def test_largest_batch_is_the_last_that_fits() -> None:
    options, on = Options(1024), device("RTX-4090")
    batch = calculator.largest_batch("gpt2", options, on)
    assert estimate("gpt2", replace(options, batch=batch)).fits(on)
    assert not estimate("gpt2", replace(options, batch=batch + 1)).fits(on)
    assert calculator.largest_batch("llama-3.1-70b", options, on) == 0


def test_traced_route_is_shown_when_given() -> None:
    calculator.set_tracer(lambda arch, options: [("x", 10.0), ("y", 5.0)])
    try:
        assert estimate("gpt2", Options(64)).routes["traced"] == 15.0
    finally:
        calculator.set_tracer(None)
    assert "traced" not in estimate("gpt2", Options(64)).routes


# ------------------------------------------------------------------ devices


def test_device_memory_and_counts() -> None:
    """F129."""
    want = {"A100-40GB": 40, "A100-80GB": 80, "H100-80GB": 80, "H200-141GB": 141}
    assert {n: DEVICES[n].memory / 1e9 for n in want} == want
    assert device("8 x h100-80gb").total_memory == 640e9


def test_offload_time_and_what_hides() -> None:
    on = device("A100-80GB")
    t = offload(31.5e9, on, forward_seconds=1.0, backward_seconds=2.0)
    assert (t.seconds_out, t.hidden) == (1.0, True)
    slow = offload(31.5e9, on, to="disk", forward_seconds=1.0, backward_seconds=2.0)
    assert slow.exposed == pytest.approx(2 * 6.3 - 3.0)
    assert compute_seconds(312e12, on) == 1.0


# ------------------------------------------------------------------ expressions


@pytest.mark.parametrize(
    ("text", "value"),
    [("2+3*4", 14), ("-2**2", -4), ("2^3^2", 512), ("7//2 % 2", 1),
     ("(s+1)/2", 4.5), ("1e3", 1000)],
)
def test_expressions(text: str, value: float) -> None:
    assert evaluate(text, {"s": 8}) == value


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "s.real", "[1]", "s if s else 1", "lambda: 1", "2**9999", "1/0", "q",
     "2+"],
)
def test_expressions_refuse_everything_else(text: str) -> None:
    with pytest.raises(ArgumentError, match="evaluate:"):
        evaluate(text, {"s": 8})


# ------------------------------------------------------------------ sources, command, page


@pytest.mark.parametrize(
    ("part", "number"),
    [
        ("365 GB", 182_536_110_080), ("total ~785", 16 * 70_553_706_496),
        ("2-3x the weights", 1.2936),
        ("none 39", 3_288_334_336), ("exercise 5", 5_133_828_096), ("figure", 201_326_592),
        ("100 layers", 107_374_182_400), ("age of the universe", 9506.4),
        ("1.3x an inference", 4 / 3),
        ("inference_mode", 0.1185), ("roughly what forward", 2), ("33% more time", 1 / 3),
        ("K-FAC", 2 * 4096**2), ("60% less", 0.7), ("five nodes", 4), ("4-tensor", 3),
        ("exp overflows", 88.7228),
    ],
)
def test_sources_right_numbers(part: str, number: float) -> None:
    """FEATURES 1i."""
    found = [c for c in claims() if part in c.claim]
    assert len(found) == 1
    assert found[0].value == pytest.approx(number, rel=1e-3)


def test_command_prints_the_issue_example(capsys: pytest.CaptureFixture[str]) -> None:
    line = "llama-3.1-70b --seq 8192 --batch 1 --dtype bf16 --device H100-80GB"
    line += " --recompute selective"
    assert command.run(line.split()) == 0
    out = capsys.readouterr().out
    assert "70,553,706,496 parameters (as published)" in out
    assert re.search(r"formula\s+2,281\.70\s+34\.00\s+182\.5", out)
    assert re.search(r"optimizer\s+564\.43", out)
    assert "does not fit" in out
    assert command.run([*line.split(), "--check"]) == 1


@pytest.mark.parametrize(("part", "told"), [
    ("365 GB", "s b = 16,384"), ("24 layers", "PyTorch: 20.1 GB"),
    ("12 layers", "PyTorch: 10.1 GB"),
    ("under no_grad", "raises AutogradError: element 0 of tensors does not require grad"),
    ("detaches silently", "raises AutogradError: Can't call numpy()"),
    ("x += 1", "raises AutogradError: a leaf Variable"), ("e[:80]", "raises TypeError"),
    ("SumBackward1", "grad_fn is None"), ("1.23", "grad_fn is None"),
    ("freed nodes", "it raises nothing; a graph that was gone through twice raises AutogradError"),
    ("gradcheck", "raises GradcheckError"), ("softmax(x)", "argument: 'dim'"),
    ("use_reentrant", "1.11"), ("GradScaler", 'torch.amp.GradScaler("cuda")')])
def test_sources_that_are_run_or_cited(part: str, told: str) -> None:
    (found,) = [c for c in claims() if part in c.claim]
    assert told in found.right


@pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
def test_sources_that_are_run_leave_no_arrays(no_collector: None) -> None:
    claims()
    before = alloc.live_and_peak()[0]
    claims()
    assert alloc.live_and_peak()[0] == before


def test_command_json_sources_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["gpt2", "--seq", "128", "--json", "--largest-batch"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["parameters"] == 124_439_808 and data["largest_batch"] > 1 and data["fits"]
    assert command.run(["--sources"]) == 0
    assert "182.5 GB" in capsys.readouterr().out
    assert command.run(["--list"]) == 0
    assert "H200-141GB" in capsys.readouterr().out
    assert command.run(["nothing"]) == 2
    assert "the names are gpt2" in capsys.readouterr().err


def test_page_is_one_offline_file(tmp_path: Path) -> None:
    """F67: no address to load from, no eval, data for every architecture."""
    file = tmp_path / "fit.html"
    assert command.run(["gpt2", "--html", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"https?://|<link|src=|@import|\beval\(|new Function", text)
    assert all(f'"{name}"' in text for name in names())
    assert len(text) < 300_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("llama-3.1-70b", Options(8192, recompute="full", parallel=Parallel(8, 4, 2, True, 2, 8))),
        ("resnet-50", Options(1, 32, "fp32")),
        ("gpt2", Options(1000, 3, attention="dense", recompute="selective")),
    ],
)
def test_page_computes_the_same_bytes(tmp_path: Path, model: str, options: Options) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs chromium")
    file = tmp_path / "fit.html"
    file.write_text(page(model, options), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    dom = subprocess.run(
        [chromium, *flags, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=60
    ).stdout
    shown = re.search(r'data-bytes="([^"]+)"', dom)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(estimate(model, options).peak, rel=1e-12)


def test_command_says_where_a_length_does_not_apply(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(["gpt2", "--seq", "0"]) == 2
    assert "seq=0" in capsys.readouterr().err
    assert command.run(["gpt2", "--seq", "2048"]) == 0
    assert "gpt2 has 1,024 learned positions; s=2,048" in capsys.readouterr().out
    assert command.run(["resnet-50", "--seq", "512"]) == 0
    assert "reads pictures, not sequences" in capsys.readouterr().out
    assert command.run(["gpt2"]) == 0 and "note:" not in capsys.readouterr().out
