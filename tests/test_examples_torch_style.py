"""Whole programs in PyTorch's style, with us and with PyTorch, from the same weights (F123).

In float64 both libraries compute the same losses but for rounding, which training amplifies: 1e-6
of the loss after all steps is ten orders above one rounding and four below any real difference.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import adjoint as ad

EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "torch_style"
OURS = [
    "digits_cnn",
    "char_gpt",
    "vae",
    "dcgan",
    "reinforce",
    "gcn",
    "siamese",
    "style_transfer",
    "teacher_student",
    "quantization_aware",
    "translation",
]
PLAIN = ["word_lm", "super_resolution", "time_series"]  # they say `import torch`
SHORT = {  # arguments that switch off what is random and keep the comparison quick
    "digits_cnn": ["--dropout", "0", "--epochs", "1", "--images", "320"],
    "char_gpt": ["--steps", "20"],
    "dcgan": ["--epochs", "1"],
    "reinforce": ["--episodes", "20"],
    "gcn": ["--epochs", "30"],
    "siamese": ["--epochs", "1"],
    "style_transfer": ["--steps", "8"],
    "teacher_student": ["--epochs", "2"],
    "quantization_aware": ["--steps", "40"],
    "translation": ["--epochs", "2"],
    "vae": ["--epochs", "2"],
    "word_lm": ["--epochs", "2"],
    "super_resolution": ["--nEpochs", "2"],
    "time_series": ["--steps", "3"],
}
LEARNS = {  # the last loss against the first
    "digits_cnn": None,  # an epoch of 320 pictures is too short
    "reinforce": None,  # a policy's loss says nothing about its reward
    "dcgan": None,
}
TOLERANCE = 1e-6


def program(name: str, library: str) -> Any:
    """The example's `main`, with its imports changed to another library."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    package = "adjoint" if name in OURS else "torch"
    assert f"import {package}" in text
    if library != package:
        text = text.replace(f"import {package} as torch", "import torch")
        text = re.sub(rf"^(import|from) {package}\b", rf"\1 {library}", text, flags=re.M)
        text = text.replace("import adjoint\n", "import adjoint as torch\n")
    space: dict[str, Any] = {"__name__": f"{library}_{name}"}
    exec(compile(text, f"{name}.py ({library})", "exec", dont_inherit=True), space)
    return space["main"]


@pytest.fixture
def float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both libraries make float64 tensors."""
    torch = pytest.importorskip("torch")
    # Tools of PyTorch's tests, where another test imported them, forbid the settings of programs.
    monkeypatch.setitem(torch.backends.ContextProp.__set__.__globals__, "flags_frozen",
                        lambda: False)
    torch.set_default_dtype(torch.float64)
    ad.set_default_dtype(ad.float64)
    yield
    torch.set_default_dtype(torch.float32)
    ad.set_default_dtype(ad.float32)


@pytest.mark.row("F123")
@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:`torch.jit")  # PyTorch's own
@pytest.mark.parametrize("name", OURS + PLAIN)
def test_same_losses_as_pytorch(name: str, tmp_path: Path, float64: None) -> None:
    """From the weights that PyTorch wrote, both follow the same curve."""
    start = str(tmp_path / "start.pt")
    want = program(name, "torch")([*SHORT[name], "--write-init", start])
    got = program(name, "adjoint")([*SHORT[name], "--init", start])
    assert len(got) == len(want) > 3
    worst = max(abs(a - b) / max(abs(b), 1.0) for a, b in zip(got, want, strict=True))
    assert worst < TOLERANCE, f"{name}: losses differ by {worst:.2e}: {got[-1]} and {want[-1]}"


@pytest.mark.row("F123")
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", OURS)
def test_learns(name: str, tmp_path: Path) -> None:
    """With us alone, in float32: it runs, writes its weights, and the loss falls."""
    start = tmp_path / "start.pt"
    losses = program(name, "adjoint")([*SHORT[name], "--write-init", str(start)])
    assert start.stat().st_size > 500
    factor = LEARNS.get(name, 0.9)
    if factor is not None:
        assert min(losses[-5:]) < factor * losses[0]


@pytest.mark.row("F123")
@pytest.mark.parametrize("name", PLAIN)
def test_plain_torch_scripts_run_unchanged(name: str) -> None:
    """`adjoint run --as-torch script.py` on programs that say `import torch`."""
    command = [sys.executable, "-m", "adjoint", "run", "--as-torch"]
    done = subprocess.run(
        [*command, str(EXAMPLES / f"{name}.py"), *SHORT[name]],
        cwd=EXAMPLES.parent.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    losses = [float(v) for v in done.stdout.splitlines()[-1].split()]
    assert losses[-1] < losses[0]


@pytest.mark.row("F121")
def test_quantization_aware_training() -> None:
    """The gradient passes straight through where the rounded value is in range and is cut off
    where it is not; trained so, the network keeps its accuracy on weights of sixteen values."""
    quantize = program("quantization_aware", "adjoint").__globals__["FakeQuantize"].apply
    x = ad.tensor([-9.0, -8.4, -0.3, 0.0, 0.26, 6.6, 7.6], requires_grad=True)
    y = quantize(x, ad.tensor(1.0), 4)
    assert y.tolist() == [-8.0, -8.0, 0.0, 0.0, 0.0, 7.0, 7.0]
    y.backward(ad.arange(1.0, 8.0))
    assert x.grad.tolist() == [0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0]
    code = "import runpy, sys; sys.argv = ['q', '--bits', '4']; runpy.run_path({!r}, run_name={!r})"
    done = subprocess.run(
        [sys.executable, "-c", code.format(str(EXAMPLES / "quantization_aware.py"), "__main__")],
        cwd=EXAMPLES.parent.parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = re.search(r"accuracy ([\d.]+) with at most (\d+) values", done.stdout)
    assert found is not None, done.stdout
    assert float(found[1]) > 0.6 and int(found[2]) <= 16


def test_every_example_is_listed() -> None:
    """A program without a test is a program that may not run."""
    assert sorted(OURS + PLAIN) == sorted(p.stem for p in EXAMPLES.glob("*.py"))
