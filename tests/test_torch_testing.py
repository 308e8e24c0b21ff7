"""PyTorch's testing files, from its installed wheel, run with adjoint in PyTorch's place.

`torch_testcase.txt`, `torch_harness.txt` and `torch_tables.txt` are test files in PyTorch's style;
they pass with PyTorch, too. What needs PyTorch's wheel and expecttest is skipped without them.
"""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import adjoint as ad
from adjoint.testing import wheel

HERE = Path(__file__).parent
needs_wheel = pytest.mark.skipif(
    wheel.installed() is None, reason="PyTorch's wheel or expecttest is not installed")
ALONE = """
import sys
from adjoint.testing import wheel
wheel.installed = lambda *given: None
from adjoint.cli.run import run
run(["--as-torch", *sys.argv[1:]])
"""


# (where CI is set, PyTorch reports to a package that need not be there)
without_ci = {k: v for k, v in os.environ.items() if k != "CI"}


def python(folder: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], cwd=folder, capture_output=True, text=True,
                          timeout=300, check=False, env={**without_ci, **environment})


@needs_wheel
@pytest.mark.parametrize(("program", "skipped"), [("torch_testcase", "OK (skipped=2)"),
                                                  ("torch_harness", "(skipped=6, expected fail"),
                                                  ("torch_tables", "OK")])
def test_a_file_of_tests_runs_by_itself(tmp_path: Path, program: str, skipped: str) -> None:
    (tmp_path / "test_program.py").write_text((HERE / f"{program}.txt").read_text("utf-8"))
    done = python(tmp_path, "-m", "adjoint", "run", "--as-torch", "test_program.py")
    assert done.returncode == 0, done.stderr[-3000:]
    assert skipped in done.stderr


@needs_wheel
@pytest.mark.parametrize(("program", "skipped"), [("torch_testcase", "2 skipped"),
                                                  ("torch_harness", "6 skipped, 2 xfailed")])
def test_a_file_of_tests_runs_under_pytest(tmp_path: Path, program: str, skipped: str) -> None:
    under_pytest(tmp_path, program, skipped)


def under_pytest(folder: Path, program: str, skipped: str, *plugins: str) -> None:
    (folder / "test_program.py").write_text((HERE / f"{program}.txt").read_text("utf-8"))
    done = python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins, "-p",
                  "adjoint.cli.as_torch", "test_program.py", PYTHONPATH=f"{folder}:{HERE.parent}")
    assert done.returncode == 0, done.stdout[-3000:]
    assert skipped in done.stdout


@pytest.mark.parametrize(("program", "skipped"), [
    ("torch_testcase", "2 skipped"), ("torch_harness", "6 skipped, 2 xfailed")])
def test_a_file_of_tests_runs_without_pytorch(tmp_path: Path, program: str, skipped: str) -> None:
    """The package's own `TestCase` and decorators stand where PyTorch's files are missing."""
    (tmp_path / "test_program.py").write_text((HERE / f"{program}.txt").read_text("utf-8"))
    (tmp_path / "alone.py").write_text(ALONE)
    done = python(tmp_path, "alone.py", "test_program.py", "-v")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "OK (skipped=" + skipped[0] in done.stderr
    (tmp_path / "alone_plugin.py").write_text("from adjoint.testing import wheel\n"
                                              "wheel.installed = lambda *given: None\n")
    under_pytest(tmp_path, program, skipped, "-p", "alone_plugin")


@needs_wheel
def test_the_tables_hold_what_is_here(tmp_path: Path) -> None:
    """Operations, modules and optimizers that are not here are left out; PyTorch stays away."""
    (tmp_path / "program.py").write_text(
        "import sys, torch\n"
        "from torch.testing._internal.common_methods_invocations import op_db\n"
        "from torch.testing._internal.common_modules import module_db\n"
        "from torch.testing._internal.common_optimizers import optim_db\n"
        "import torch.testing._internal.logging_tensor, torch.testing._internal.hypothesis_utils\n"
        "assert all(callable(op.op) for op in op_db)\n"
        "print(len(op_db) > 600, len(module_db) > 100, len(optim_db) > 14)\n"
        "print({info.name.split('.')[0] for info in module_db})\n"     # of tests' names
        "print(torch.Tensor.__module__, torch._C.__name__)\n"
        "print(torch.autograd.gradcheck(torch.sin, torch.ones(1).double().requires_grad_()))\n")
    done = python(tmp_path, "-m", "adjoint", "run", "--as-torch", "program.py")
    assert done.stdout.splitlines() == ["True True True", "{'nn'}",
                                        "torch adjoint._C", "True"], done.stderr


def test_other_programs_see_none_of_it(tmp_path: Path) -> None:
    """The stand-ins are there for programs that load PyTorch's testing files, and no others."""
    (tmp_path / "program.py").write_text(
        "import torch, torch.backends.cudnn as cudnn\n"
        "print(hasattr(torch, 'per_tensor_affine'), hasattr(torch._C, 'ScriptDict'))\n"
        "try:\n    torch.ones(2, dtype=torch.float8_e5m2)\n"
        "except NotImplementedError as error:\n    print(error)\n"
        "with cudnn.flags(benchmark=True):\n"
        "    print(cudnn.benchmark, cudnn.is_available())\n"
        "print(cudnn.benchmark)\n"
        "import torch.autograd.gradcheck\n"
        "print(callable(torch.autograd.gradcheck))\n")
    done = python(tmp_path, "-m", "adjoint", "run", "--as-torch", "program.py")
    assert done.stdout.splitlines() == [
        "False False", "dtype float8_e5m2: there are no tensors of it here", "True False",
        "False", "True"], done.stderr


class TestFoundByThem:
    """What PyTorch's tables brought to light."""

    def test_gradcheck_of_a_function_that_differentiates(self) -> None:
        x = ad.randn(3, dtype=ad.float64, requires_grad=True)
        assert ad.autograd.gradcheck(
            lambda x: ad.autograd.grad(x.sin().sum(), x, create_graph=True)[0], x)

    def test_gradcheck_of_forward_mode_with_complex_operands(self) -> None:
        x = ad.randn(3, dtype=ad.complex128, requires_grad=True)
        assert ad.autograd.gradcheck(lambda x: x * x.exp(), x, check_forward_ad=True)
        with pytest.raises(ad.autograd.gradcheck.__globals__["GradcheckError"]):
            ad.autograd.gradcheck(lambda x: x * x.detach(), x, check_forward_ad=True)

    def test_gradcheck_of_nothing(self) -> None:
        x = ad.zeros(0, 2, dtype=ad.complex128, requires_grad=True)
        assert ad.autograd.gradcheck(lambda x: x.exp(), x)

    def test_batch_norm_of_an_empty_batch(self) -> None:
        layer = ad.nn.BatchNorm2d(3)
        assert layer.running_mean is not None and layer.running_var is not None
        layer.running_mean.fill_(2.0)
        x = ad.ones(0, 3, 2, 2, requires_grad=True)
        layer(x).sum().backward()
        assert x.grad is not None and layer.weight is not None and layer.weight.grad is not None
        assert tuple(x.grad.shape) == (0, 3, 2, 2)
        assert layer.weight.grad.tolist() == [0.0, 0.0, 0.0]
        assert layer.running_mean.tolist() == [2.0] * 3
        assert layer.running_var.tolist() == [1.0] * 3

    def test_fractions_of_weights_are_cut_for_integers(self) -> None:
        i = ad.ones(2, 2, dtype=ad.int64)
        assert ad.addmm(i, i, i, beta=0.6).tolist() == [[2, 2], [2, 2]]
        assert ad.addmm(i, i, i, alpha=0.6).tolist() == [[1, 1], [1, 1]]

    def test_out_of_an_expanded_tensor_is_refused(self) -> None:
        with pytest.raises(RuntimeError, match="refers to a single memory location"):
            ad.add(ad.ones(3), 1, out=ad.zeros(1).expand(3))

    @pytest.mark.parametrize(("call", "words"), [
        (lambda: -ad.tensor([True]), "Negation, the `-` operator, on a bool tensor"),
        (lambda: ad.tensor([True]) - ad.tensor([True]), "with two bool tensors"),
        (lambda: ad.sub(ad.tensor([True]), ad.tensor([True]), alpha=2), "with two bool tensors"),
        (lambda: ad.cat([ad.ones(5), ad.ones(5, 5)]), "must have same number of dimensions"),
        (lambda: ad.mean(ad.ones(2, dtype=ad.int32)), "Got: Int"),
        (lambda: ad.eye(2, -3), "m must be greater or equal to 0, got -3"),
        (lambda: ad.fft.rfftn(ad.ones(())), "rfftn must transform at least one axis"),
        (lambda: ad.fft.fft2(ad.ones(())), "Dimension specified as -2 but tensor has no"),
        (lambda: ad.rot90(ad.ones(2, 2), 1, (1, 1)), "expected rotation dims to be different"),
        (lambda: ad.roll(ad.ones(3), ()), "`shifts` required"),
        (lambda: ad.dot(ad.ones(3), ad.ones(3, dtype=ad.int32)), "found Float and Int"),
        (lambda: ad.ones(2).exponential_(-1.0), "expects lambda > 0.0, but found lambda=-1"),
        (lambda: ad.ones(2, dtype=ad.int64).cauchy_(), "dtype must be a floating point"),
        (lambda: ad.ones(2).geometric_(0.0), r"expects p to be in \(0, 1\), but got p=0"),
        (lambda: ad.nn.functional.adaptive_avg_pool1d(ad.ones(1, 4), ()), "should contain one int"),
        (lambda: ad.nn.functional.max_pool2d(ad.ones(1, 4, 4), 2, padding=-1),
         "pad must be non-negative"),
        (lambda: ad.nn.functional.batch_norm(ad.ones(4, 3), None, None, training=True, eps=0),
         "eps must be positive during training"),
        (lambda: ad.batch_norm(ad.ones(4, 3, dtype=ad.float64), None, None, ad.zeros(3),
                               ad.ones(3), False, 0.1, 1e-5, False), "mixed dtype"),
        (lambda: ad.nn.functional.softshrink(ad.ones(2), -0.5), r"in range \[0, 3.4"),
        (lambda: ad.nn.GRU(0, 3), "input_size must be greater than zero"),
        (lambda: ad.nn.GRU(3, 3, bias=1), "bias should be of type bool, got: int"),
        (lambda: ad.nn.RNNCell(3, 4)(ad.ones(2, 3), ad.ones(2, 5)),
         "hidden0 has inconsistent hidden_size: got 5, expected 4"),
        (lambda: ad.nn.functional.cross_entropy(ad.ones(2, 3), ad.ones(2, 3, dtype=ad.int64)),
         "Expected floating point type for target with class probabilities"),
    ])
    def test_words_of_refusals(self, call: object, words: str) -> None:
        assert callable(call)
        with pytest.raises((RuntimeError, ValueError, TypeError, IndexError), match=words):
            call()


UNMET = '''
import torch
import torch._dynamo.test_case
import torch._functorch.compilers
import torch.utils.no_such_part as part
from torch.autograd.graph import _get_sid
from torch.testing._internal.common_utils import TestCase, parametrize, run_tests
from torch.testing._internal.inductor_utils import HAS_GPU


@torch._dynamo.config.patch("cache_size_limit", 1)
class TestParts(TestCase):
    flag = torch._C._private_flag

    @torch._functorch.compilers.something(3)
    def test_decorated(self): pass

    def test_called(self): _get_sid(1)

    def test_rest(self):
        self.assertFalse(hasattr(torch._C, "_private_flag") or self.flag or HAS_GPU)
        self.assertFalse(isinstance(1, torch._functorch.compilers.Kind))


class TestDynamo(torch._dynamo.test_case.TestCase):
    @torch._inductor.config.patch({"triton.cudagraphs": True})
    def test_of_dynamo(self): self.assertTrue(torch._inductor.config.triton.cudagraphs)


class TestOther(torch._functorch.compilers.Base):
    def test_none(self): pass


assert not list(torch._functorch.compilers.cases) and not hasattr(torch, "_private_flag")
if __name__ == "__main__":
    run_tests()
'''


@needs_wheel
def test_names_that_are_not_here_fail_the_tests_that_use_them(tmp_path: Path) -> None:
    """F75: ... and no others of the file; what PyTorch has not either is an error of the import."""
    (tmp_path / "test_program.py").write_text(UNMET.replace("import torch.utils.no_such_part", "#"))
    done = python(tmp_path, "-m", "adjoint", "run", "--as-torch", "test_program.py")
    assert "Ran 4 tests" in done.stderr and "FAILED (errors=2)" in done.stderr, done.stderr[-3000:]
    assert "NotSupported: torch.autograd.graph._get_sid is not here" in done.stderr
    assert "NotSupported: torch._functorch.compilers.something is not here" in done.stderr
    (tmp_path / "test_program.py").write_text(UNMET)
    done = python(tmp_path, "-m", "adjoint", "run", "--as-torch", "test_program.py")
    assert "No module named 'torch.utils.no_such_part'" in done.stderr
