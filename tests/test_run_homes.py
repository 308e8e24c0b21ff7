"""Where classes say they are from in a program under `adjoint run --as-torch` (F15), and what that
is for: whole modules in files that PyTorch reads, and PyTorch's that are read here (F39)."""
from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

HOMES = '''
import importlib, sys
import torch, torchvision.models, torch.utils.tensorboard, torch.profiler, torch.fx
import torch.distributed, torch.distributions, torch.utils.data, torch.optim

weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.AdamW([weight])
for thing in (torch.nn.Linear(1, 1), torch.nn.MultiheadAttention(2, 1), optimizer,
              torch.optim.lr_scheduler.StepLR(optimizer, 1), torch.Generator(), torch.strided,
              torch.distributions.Normal(0.0, 1.0), torch.utils.data.TensorDataset(weight),
              torch.ones(1).untyped_storage(), weight.exp().grad_fn, torch.ones(1).max(0),
              torchvision.models.resnet18().layer1[0], torch.no_grad(), torch.float32):
    print(type(thing))
print(torch.nn.functional.gelu.__module__, torch.mm.__module__, torch.nn.Module.__module__)
lost = []
for name, module in list(sys.modules.items()):
    for kind in list(vars(module).values()) if name.partition(".")[0] == "adjoint" else ():
        if isinstance(kind, type) and kind.__module__.startswith("torch.") and (
                kind.__module__ != "torch._ops.aten"):
            found = importlib.import_module(kind.__module__)
            for part in kind.__qualname__.split("."):
                found = getattr(found, part, None)
            lost += [kind] * (found is not kind and "<locals>" not in kind.__qualname__)
print({k.__name__ for k in lost})
'''

WRITE = '''
import pickle, sys
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.rnn = nn.GRU(9, 6, batch_first=True)
        self.attend = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)

    def forward(self, x):
        return self.attend(self.rnn(self.conv(x).view(-1, 4, 9))[0])


if sys.argv[1] == "write":
    torch.manual_seed(0)
    torch.save(Net().eval(), "whole.pt")
    with open("weights.pkl", "wb") as file:
        pickle.dump(Net().state_dict(), file)
else:
    net = torch.load("whole.pt", weights_only=False)
    print(torch.is_tensor(net.rnn.weight_hh_l0), net(torch.ones(1, 1, 5, 5))[0, 0, 0].item())
    if sys.argv[1] == "all":
        with open("weights.pkl", "rb") as file:
            print(sum(w.double().sum().item() for w in pickle.load(file).values()))
'''


def run(path: Path, *args: str, ours: bool = True) -> list[str]:
    command = ["-m", "adjoint", "run", "--as-torch"] if ours else []
    done = subprocess.run([sys.executable, *command, "program.py", *args], cwd=path,
                          capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_classes_print_as_there_and_are_found_where_they_say(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(HOMES)
    out = run(tmp_path)
    assert [line.removeprefix("<class '").removesuffix("'>") for line in out[:-2]] == [
        "torch.nn.modules.linear.Linear", "torch.nn.modules.activation.MultiheadAttention",
        "torch.optim.adamw.AdamW", "torch.optim.lr_scheduler.StepLR", "torch._C.Generator",
        "torch.layout", "torch.distributions.normal.Normal",
        "torch.utils.data.dataset.TensorDataset", "torch.storage.UntypedStorage", "ExpBackward0",
        "torch.return_types.max", "torchvision.models.resnet.BasicBlock",
        "torch.autograd.grad_mode.no_grad", "torch.dtype"]
    assert out[-2] == "torch.nn.functional torch torch.nn.modules.module"
    # `_DecoratorContextManager` is its name there
    assert ast.literal_eval(out[-1]) == {"Decorating"}


@pytest.mark.parametrize(("writes", "reads"), [(True, True), (True, False), (False, True)])
def test_whole_modules_go_both_ways(tmp_path: Path, writes: bool, reads: bool) -> None:
    if not (writes and reads):
        pytest.importorskip("torch")
    (tmp_path / "program.py").write_text(WRITE)
    run(tmp_path, "write", ours=writes)
    what = "whole" if writes and not reads else "all"   # a plain pickle of ours names our functions
    one, other = run(tmp_path, what, ours=reads), run(tmp_path, what, ours=writes)
    assert [line.split()[0] for line in one[:1]] == ["True"]
    numbers = [[float(line.split()[-1]) for line in lines] for lines in (one, other)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-4)
