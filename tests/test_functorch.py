"""F15, F60: functorch's names, `torch._functorch`'s modules, and the version that compares."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import adjoint as ad
from adjoint._functorch import functional as functorch
from adjoint.torch_version import TorchVersion

PROGRAM = """
import torch, functorch, torch.cuda.nvtx as nvtx
from torch._functorch.apis import vmap
from torch._functorch.eager_transforms import hessian, jacfwd, jacrev, jvp, vjp
from torch._functorch.functional_call import functional_call
from torch._functorch.make_functional import make_functional, make_functional_with_buffers
from torch._vmap_internals import vmap as again
from torch.torch_version import TorchVersion
print(vmap is again is torch.func.vmap, callable(make_functional), callable(functorch.vmap))
print(type(torch.__version__) is TorchVersion, torch.__version__ > "2.9", torch.__version__ >= (2,))
try:
    nvtx.range_push("step")
except RuntimeError as error:
    print(error)
"""


def test_the_modules_are_found_as_torch(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "-m", "adjoint", "run", "--as-torch", "program.py"],
                          cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "True True True", "True True True",
        "NVTX functions not installed. Are you sure you have a CUDA build?"], done.stderr


def test_a_model_as_a_function_of_its_parameters() -> None:
    model = ad.nn.Linear(2, 3)
    x = ad.randn(4, 2)
    f, params = functorch.make_functional(model)
    assert [tuple(p.shape) for p in params] == [(3, 2), (3,)]
    assert f(params, x).equal(model(x)) and params[0] is not model.weight
    assert params[0].requires_grad
    assert not functorch.make_functional(model, True)[1][0].requires_grad
    grads = functorch.vmap(functorch.grad(lambda p, x: f(p, x).sum()), (None, 0))(params, x)
    assert grads[0].shape == (4, 3, 2) and grads[1].equal(ad.ones(4, 3))
    with pytest.raises(RuntimeError, match="make_functional_with_buffers"):
        functorch.make_functional(ad.nn.BatchNorm1d(2))


def test_buffers_are_arguments_too() -> None:
    model = ad.nn.Sequential(ad.nn.Linear(2, 3), ad.nn.BatchNorm1d(3)).eval()
    x = ad.randn(4, 2)
    f, params, buffers = functorch.make_functional_with_buffers(model)
    assert (len(params), len(buffers)) == (4, 3)
    assert f(params, buffers, x).equal(model(x))
    assert not f(params, (buffers[0] + 1, *buffers[1:]), x).equal(model(x))


def test_an_ensemble_is_one_function_of_stacked_values() -> None:
    models = [ad.nn.Linear(2, 3) for _ in range(5)]
    x = ad.randn(4, 2)
    f, params, buffers = functorch.combine_state_for_ensemble(models)
    assert params[0].shape == (5, 3, 2) and buffers == () and not params[0].requires_grad
    out = functorch.vmap(f, (0, 0, None))(params, buffers, x)
    assert out.allclose(ad.stack([m(x) for m in models]))


@pytest.mark.parametrize("smaller, larger", [
    ("1.9.1", "1.10.0"), ("2.0.0a0", "2.0"), ("2.0rc1", "2.0"), ("1.8.1", "1.8.1+cu101"),
    ("1.9", (1, 10)), ("2.13.0", "10")])
def test_versions_compare_by_numbers(smaller: object, larger: object) -> None:
    a, b = TorchVersion(smaller), TorchVersion(
        ".".join(map(str, larger)) if isinstance(larger, tuple) else larger)
    assert a < larger and a <= larger and a != larger and b > smaller and b >= smaller
    assert not a > larger and not a == larger and not b <= smaller
    assert sorted([b, a]) == [a, b]


def test_versions_are_texts() -> None:
    v = TorchVersion("1.10.0")
    assert v == (1, 10) and v == "1.10" and v == "1.10.0" and v.split(".")[1] == "10"
    assert v != "parrot" and v < "parrot" and isinstance(v, str) and v in {TorchVersion("1.10.0")}
