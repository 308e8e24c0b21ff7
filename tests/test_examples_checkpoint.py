"""A checkpoint goes from PyTorch to us, through a training step, and back (F41, F123)."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from helpers_loading import load

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "pytorch_checkpoint.py"


@pytest.fixture
def example() -> ModuleType:
    return load(EXAMPLE)


def test_without_pytorch(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """Three steps, each from the file that the last one wrote."""
    losses = example.main()
    assert losses[2] < losses[1] < losses[0]
    assert "step 3" in capsys.readouterr().out


def in_pytorch(torch: Any, example: ModuleType) -> tuple[Any, Any]:
    """The same network in PyTorch, with an optimizer."""
    layers = torch.nn
    net = layers.Sequential(
        layers.Conv2d(1, 4, 3, bias=False),
        layers.BatchNorm2d(4),
        layers.ReLU(),
        layers.AdaptiveAvgPool2d(2),
        layers.Flatten(),
        layers.Linear(16, 3),
    )
    return net, torch.optim.Adam(net.parameters(), lr=0.01)


def step(torch: Any, net: Any, optimizer: Any, example: ModuleType) -> float:
    """One step of PyTorch on the example's batch."""
    x, y = (torch.from_numpy(np.array(t.numpy())) for t in example.batch())
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return float(loss.item())


def test_from_pytorch_and_back(example: ModuleType, tmp_path: Path) -> None:
    """Our step from PyTorch's file gives PyTorch's own next state, to float32's rounding, and
    PyTorch goes on from our file."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net, optimizer = in_pytorch(torch, example)
    step(torch, net, optimizer, example)  # so that the optimizer has a state
    path = tmp_path / "model.pt"
    torch.save(
        {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}, path
    )

    ours = example.train_a_step(path)
    theirs = step(torch, net, optimizer, example)
    assert ours == pytest.approx(theirs, rel=1e-5)

    held = torch.load(path, weights_only=True)
    assert held["step"] == 2
    want = net.state_dict()
    assert list(held["model"]) == list(want)
    for name, value in want.items():
        assert held["model"][name].dtype == value.dtype
        torch.testing.assert_close(held["model"][name], value, rtol=2e-4, atol=2e-5)

    again, other = in_pytorch(torch, example)
    again.load_state_dict(held["model"])
    other.load_state_dict(held["optimizer"])
    assert float(other.state_dict()["state"][0]["step"]) == 2
    assert step(torch, again, other, example) == pytest.approx(
        step(torch, net, optimizer, example), rel=1e-4
    )
