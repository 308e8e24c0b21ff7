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
print(torch.__name__, torch.torch is torch, "adjoint" in torch.__version__)
'''


def run(path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "adjoint", "run", *args], cwd=path,
                          capture_output=True, text=True, timeout=120, check=False)


def test_a_torch_program_runs_unmodified(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run(tmp_path, "--as-torch", "program.py", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["cpu torch.float32 True", "torch True True"]


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


WORKERS = '''
import subprocess
import sys

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return torch.tensor(float(i * i))


def add(rank, total):
    total += rank + 1


def main():
    loader = DataLoader(Squares(), batch_size=3, num_workers=2, multiprocessing_context="spawn")
    print([batch.tolist() for batch in loader])
    total = torch.zeros(2).share_memory_()
    mp.spawn(add, args=(total,), nprocs=2)
    print(total.tolist())
    print(subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"],
                         capture_output=True, text=True, check=True).stdout.strip())


if __name__ == "__main__":
    main()
'''


def test_processes_that_a_program_starts_anew_import_the_same_torch(tmp_path: Path) -> None:
    """F123: workers by "spawn", `mp.spawn` and a subprocess; shared tensors are the same numbers.
    The two ranks may add at the same time: then one of the two sums is what stands there."""
    (tmp_path / "program.py").write_text(WORKERS)
    done = run(tmp_path, "--as-torch", "program.py")
    assert done.returncode == 0, done.stderr
    batches, total, name = done.stdout.splitlines()
    assert batches == "[[0.0, 1.0, 4.0], [9.0, 16.0, 25.0]]"
    assert total in ("[3.0, 3.0]", "[1.0, 1.0]", "[2.0, 2.0]") and "adjoint" in name


HOGWILD = '''
import sys

import torch
import torch.nn as nn
import torch.multiprocessing as mp


def data():
    x = torch.arange(64.0).reshape(32, 2) / 32 - 1
    return x, x @ torch.tensor([[2.0], [-1.0]])


def train(model):
    x, y = data()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


if __name__ == "__main__":
    mp.set_start_method(sys.argv[1])
    model = nn.Linear(2, 1)
    model.share_memory()
    x, y = data()
    before = nn.functional.mse_loss(model(x), y).item()
    processes = [mp.Process(target=train, args=(model,)) for _ in range(2)]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    after = nn.functional.mse_loss(model(x), y).item()
    print([p.exitcode for p in processes], model.weight.is_shared(), after < 0.1 * before)
'''


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_train_one_shared_model(tmp_path: Path, method: str) -> None:
    (tmp_path / "program.py").write_text(HOGWILD)
    done = run(tmp_path, "--as-torch", "program.py", method)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[0, 0] True True"


MODULES = '''
import torch.backends.cudnn as cudnn
import torch.utils.data._utils.collate
import torch._dynamo.config
import torch._inductor.config
import torch.utils.model_zoo as model_zoo
from torch.autograd.profiler import profile, record_function
from torch.cuda.amp.grad_scaler import GradScaler
from torch.distributed.elastic.multiprocessing.errors import record
from torch.jit import ScriptModule
from torch.nn.common_types import _size_2_t
from torch.serialization import MAP_LOCATION
from torchvision.models import ResNet18_Weights
from torchvision.models.resnet import BasicBlock, ResNet
from torchvision.transforms import v2
import torch

cudnn.benchmark, cudnn.deterministic = False, True
torch._dynamo.config.suppress_errors = True
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cuda.enable_flash_sdp(False)
with cudnn.flags(enabled=False, benchmark=True), torch.backends.cuda.sdp_kernel():
    print(cudnn.benchmark, cudnn.is_available(), torch.backends.cudnn is cudnn)
print(cudnn.benchmark, cudnn.version(), torch._dynamo.config.suppress_errors)
batch = torch.utils.data._utils.collate.default_collate([1, 2])
print(batch, isinstance(torch.nn.Linear(1, 1), ScriptModule), ResNet18_Weights.DEFAULT.name)
print(hasattr(model_zoo, "load_url"), record(len) is len, len(v2.Compose([]).transforms))
with profile(use_cuda=False) as seen:
    with record_function("span"):
        torch.ones(2).exp()
print("span" in [event.key for event in seen.key_averages()])
'''


def test_modules_that_programs_import_by_their_full_path(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(MODULES)
    done = run(tmp_path, "--as-torch", "program.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "True False True", "False None True", "tensor([1, 2]) False IMAGENET1K_V1",
        "True True 0", "True"]


PYTORCHS_WAY = '''
import numpy as np
import torch

x = torch.ones(3, requires_grad=True)
scratch = torch.zeros(3)
y = (x * scratch).sum()
scratch.data[0] = 5.0
y.backward()
print(x.grad.tolist(), scratch._version)
print(type(np.concatenate([scratch, scratch])).__name__, np.unique(scratch).tolist())
print(isinstance(np.exp(scratch), torch.Tensor))
'''


def test_a_served_program_meets_pytorch_s_rules(tmp_path: Path) -> None:
    """A write through .data is no version there, and NumPy's functions give arrays. Without
    --as-torch the first is an error (F23) and the second gives tensors."""
    (tmp_path / "program.py").write_text(PYTORCHS_WAY)
    done = run(tmp_path, "--as-torch", "program.py")
    assert done.returncode == 0, done.stderr
    want = ["[5.0, 0.0, 0.0] 0", "ndarray [0.0, 5.0]", "True"]
    assert done.stdout.splitlines() == want
    torch = subprocess.run([sys.executable, "-W", "ignore", "program.py"], cwd=tmp_path,
                           capture_output=True, text=True, check=False, timeout=120)
    if torch.returncode == 0:                   # PyTorch is installed: it says the same
        assert torch.stdout.splitlines() == want
    ours = PYTORCHS_WAY.replace("import torch\n", "import adjoint as torch\n")
    (tmp_path / "ours.py").write_text(ours)
    done = run(tmp_path, "ours.py")
    assert done.returncode == 1 and "modified by an inplace operation" in done.stderr


def test_types_print_as_there(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch, pickle\n"
        "x = torch.ones(2)\n"
        "print(type(x), type(x.shape), type(x.dtype), type(x.device),\n"
        "      type(torch.nn.Parameter(x)))\n"
        "again = pickle.loads(pickle.dumps((x, x.shape, torch.nn.Linear(1, 1))))\n"
        "print(type(again[0]), again[1], type(again[2].weight) is torch.nn.Parameter)\n"
        "class Mine(torch.Tensor): pass\n"
        "print(type(x.as_subclass(Mine)), x.dtype)\n")
    done = run(tmp_path, "--as-torch", "program.py")
    assert done.stdout.splitlines() == [
        "<class 'torch.Tensor'> <class 'torch.Size'> <class 'torch.dtype'> <class 'torch.device'> "
        "<class 'torch.nn.parameter.Parameter'>",
        "<class 'torch.Tensor'> torch.Size([2]) True",
        "<class '__main__.Mine'> torch.float32"], done.stderr


ABSENT = '''
import torch
import torch.ao.quantization as tq
from torch.distributed.autograd import context
from torch.distributed.nn.functional import all_gather
from torch.export import Dim, ExportedProgram
from torch.nested._internal.nested_tensor import NestedTensor

x = torch.ones(2)
print(isinstance(x, (NestedTensor, ExportedProgram)),
      torch.distributed.autograd.is_available())
for use in (lambda: Dim("batch"), lambda: torch.export.export(x, ()), lambda: all_gather(x),
            lambda: tq.quantize_dynamic(x)):
    try:
        use()
    except NotImplementedError as error:
        print(str(error).split(":")[0])
'''


def test_absent_parts_are_imported_and_refuse_to_be_used(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ABSENT)
    done = run(tmp_path, "--as-torch", "program.py")
    assert done.returncode == 0, done.stderr
    first, *refused = done.stdout.splitlines()
    assert first == "False False" and len(refused) == 4
    names = ("Dim", "export", "all_gather", "quantize_dynamic")
    for name, line in zip(names, refused, strict=True):
        assert name in line


def test_kernels_of_numpy_are_silent_as_pytorch_is(tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADJOINT_JIT", "0")
    (tmp_path / "program.py").write_text("import torch\nx = torch.zeros(3)\n"
                                         "print(1 / x, x.log())\n")
    done = run(tmp_path, "--as-torch", "program.py")
    assert done.stdout == "tensor([inf, inf, inf]) tensor([-inf, -inf, -inf])\n"
    assert not done.stderr


BUILT_IN = '''
import dataclasses
import torch
from torch import nn

class Net(nn.Module):
    act, conv, rel, norm = torch.tanh, torch.conv2d, torch.relu, torch.norm
    def forward(self, x):
        return self.rel(self.act(x)).sum().item(), self.conv(x, torch.ones(1, 1, 1, 1)).shape

class Plain:
    det, gelu, loss = torch.linalg.det, torch.nn.functional.gelu, nn.functional.mse_loss
    def both(self):
        return self.det(torch.eye(2)).item(), self.gelu(torch.zeros(1)).item()

@dataclasses.dataclass
class Settings:
    act: object = torch.sigmoid

print(Net()(torch.zeros(1, 1, 2, 2)), Plain().both(), Settings().act(torch.zeros(1)).item())
print(Net().norm.__self__ is not None, Plain().loss.__self__ is not None, Net.act is torch.tanh)
'''


def test_functions_in_the_body_of_a_class_are_no_methods(tmp_path: Path) -> None:
    """As PyTorch's, which are built in; what is written in Python there is a method in both."""
    (tmp_path / "program.py").write_text(BUILT_IN)
    done = subprocess.run([sys.executable, "-m", "adjoint", "run", "--as-torch", "program.py"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == ["(0.0, torch.Size([1, 1, 2, 2])) (1.0, 0.0) 0.5",
                                        "True True True"], done.stderr


ANNOTATED = '''
import torch
import torch.fx._symbolic_trace as st
from torch.fx._compatibility import compatibility

def graph(module: torch.nn.Module) -> torch._C.Graph: ...

class Tracer(st.Tracer):
    @st.compatibility(is_backward_compatible=True)
    def is_leaf_module(self, module, name):
        return True

net = torch.nn.Sequential(torch.nn.Linear(2, 2))
print([n.op for n in Tracer().trace(net).nodes], isinstance(1, torch._C.Value),
      compatibility is st.compatibility)
'''


def test_names_that_annotate_and_mark(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ANNOTATED)
    done = subprocess.run([sys.executable, "-m", "adjoint", "run", "--as-torch", "program.py"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == ["['placeholder', 'call_module', 'output'] False True"], (
        done.stderr)


MODULE = '''
import os, pickle, sys
import torch
from pkg.model import Net
class Own: pass
print(sys.argv[1:], os.path.isabs(__file__), os.path.isabs(sys.argv[0]), __package__,
      type(pickle.loads(pickle.dumps(Own()))) is Own, Net()(torch.ones(1, 2)).shape[0],
      os.environ.get("RANK"))
'''


def test_a_module_is_run_by_its_name(tmp_path: Path) -> None:
    """As `python -m package.module`, alone and by PyTorch's launcher."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "model.py").write_text(
        "import torch\nclass Net(torch.nn.Linear):\n    def __init__(self):\n"
        "        super().__init__(2, 3)\n")
    (tmp_path / "pkg" / "train.py").write_text(MODULE)
    told = "['--lr', '3', '-m', 'x'] True True pkg True 1"
    done = run(tmp_path, "--as-torch", "-m", "pkg.train", "--lr", "3", "-m", "x")
    assert done.stdout.splitlines() == [f"{told} None"], done.stderr
    done = run(tmp_path, "--as-torch", "-m", "torch.distributed.run", "--nproc_per_node=2",
               "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "-m", "pkg.train",
               "--lr", "3", "-m", "x")
    assert sorted(done.stdout.splitlines()) == [f"{told} 0", f"{told} 1"], done.stderr


def test_the_file_of_the_main_program_is_absolute(tmp_path: Path) -> None:
    """As Python's: programs find their folder by it after they have changed theirs."""
    (tmp_path / "program.py").write_text("import sys\nprint(__file__)\nprint(sys.argv[0])\n")
    done = run(tmp_path, "--as-torch", "program.py")
    assert done.stdout.splitlines() == [str(tmp_path / "program.py"), "program.py"], done.stderr
