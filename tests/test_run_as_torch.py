"""`adjoint run --as-torch`: a program written against torch runs unmodified."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = '''
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc = nn.Linear(4 * 3 * 3, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        return F.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


torch.manual_seed(int(sys.argv[1]))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.randn(64, 1, 8, 8)
y = (x[:, 0, :4].mean((1, 2)) > 0).long()
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
scheduler = StepLR(optimizer, 1, gamma=0.9)
first = last = None
for epoch in range(8):
    for data, target in DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data.to(device)), target)
        loss.backward()
        optimizer.step()
        first = loss.item() if first is None else first
        last = loss.item()
    scheduler.step()
print(device, torch.float32, last < first)
print(torch.__name__)
'''


def run(path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "adjoint.cli", "run", *args], cwd=path,
                          capture_output=True, text=True, timeout=120, check=False)


def test_a_torch_program_runs_unmodified(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run(tmp_path, "--as-torch", "program.py", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["cpu torch.float32 True", "adjoint"]


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import torch.nowhere\n")
    done = run(tmp_path, "--as-torch", "program.py")
    assert done.returncode != 0
    assert "No module named 'torch.nowhere'" in done.stderr


@pytest.mark.parametrize("args", [("absent.py",), ("--as-torch", "absent.py")])
def test_a_missing_script_is_one_line_and_code_2(tmp_path: Path, args: tuple[str, ...]) -> None:
    done = run(tmp_path, *args)
    assert done.returncode == 2
    assert "no file absent.py" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_version_is_that_of_what_is_followed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\nfrom torch import version\nprint(torch.__version__ >= '1.8', "
        "torch.__version__.startswith('2.13.0+adjoint'), version.__version__ == torch.__version__)")
    done = run(tmp_path, "--as-torch", "program.py")
    assert done.stdout.split() == ["True"] * 3, done.stderr
