"""What a comparison with PyTorch, clause by clause, found to differ."""
import subprocess
import sys

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn


def test_lu_solve_and_unpack_under_vmap():
    r = np.random.default_rng(2)
    a, b = ad.tensor(r.normal(size=(4, 3, 3))), ad.tensor(r.normal(size=(4, 3, 2)))
    for adjoint in (False, True):
        def solved(m, v, adjoint=adjoint):
            return ad.linalg.lu_solve(*ad.linalg.lu_factor(m), v, adjoint=adjoint)
        each = ad.vmap(solved)(a, b)
        np.testing.assert_allclose(each.numpy(), solved(a, b).numpy(), rtol=1e-12)
        of = a.mT if adjoint else a
        np.testing.assert_allclose((of @ each).numpy(), b.numpy(), rtol=1e-9)
    p, low, high = ad.vmap(lambda m: ad.lu_unpack(*ad.linalg.lu_factor(m)))(a)
    np.testing.assert_allclose((p @ low @ high).numpy(), a.numpy(), rtol=1e-12)


def test_a_singular_matrix_is_told_where_its_factors_are_to_be_solved_with():
    many = ad.stack([ad.eye(2), ad.zeros(2, 2)])
    with pytest.raises(RuntimeError, match=r"lu_factor: \(Batch element 1\): U\[1,1\] is zero"):
        ad.linalg.lu_factor(many)
    with pytest.raises(RuntimeError, match=r"lu_factor_ex: U\[2,2\] is zero"):
        ad.linalg.lu_factor_ex(ad.ones(2, 2), check_errors=True)
    assert ad.linalg.lu_factor_ex(many).info.tolist() == [0, 1]
    assert many.lu(get_infos=True)[2].tolist() == [0, 1] and len(many.lu()) == 2


@pytest.mark.parametrize("call", [
    lambda a, b: ad.linalg.solve(a, b), lambda a, b: ad.cholesky_solve(b, a),
    lambda a, b: ad.linalg.solve_ex(a, b), lambda a, b: ad.linalg.vecdot(a, b),
    lambda a, b: ad.linalg.tensorsolve(a, b[0]), lambda a, b: ad.linalg.cross(a, b),
    lambda a, b: ad.cdist(a, b), lambda a, b: ad.addbmm(a, b[None], b[None]),
    lambda a, b: ad.linalg.lu_solve(a, ad.tensor([1, 2, 3], dtype=ad.int32), b)])
def test_operands_of_two_dtypes_are_refused_where_pytorch_refuses_them(call):
    a, b = ad.eye(3) + 1, ad.ones(3, 3, dtype=ad.float64)
    with pytest.raises(RuntimeError, match="same dtype.*float"):
        call(a, b)
    call(a.double(), b)


def test_autocast_runs_these_as_pytorch_lists_them():
    x, low = ad.ones(2, 2), ad.ones(2, 2, dtype=ad.bfloat16)
    with ad.autocast("cpu", dtype=ad.bfloat16):
        assert ad.polar(low, low).dtype == ad.view_as_complex(low).dtype == ad.complex64
        assert ad.cholesky_inverse(low + 3 * ad.eye(2).bfloat16()).dtype == ad.float32
        assert ad.addbmm(x, x[None], x[None]).dtype == ad.bfloat16


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular", "constant"])
def test_padding_by_nothing_is_a_tensor_of_its_own(mode):
    x = ad.ones(1, 2, 3)
    y = nn.functional.pad(x, (0, 0), mode)
    y += 1
    assert x.tolist() == [[[1.0] * 3] * 2] and y.tolist() == [[[2.0] * 3] * 2]


def test_ellipses_at_the_end_of_an_index_are_passed_over():
    a = ad.arange(24.0).reshape(2, 3, 4).requires_grad_()
    assert a[..., ...].shape == (2, 3, 4) and a[..., 0, ...].equal(a[..., 0])
    assert a[0, ..., 1, ...].equal(a[0, :, 1]) and a[..., None, ...].shape == (2, 3, 4, 1)
    assert a[..., ad.tensor([0]), ...].shape == (2, 3, 1)
    for index in ((..., ..., 0), (0, ..., ..., slice(1, None))):
        with pytest.raises(IndexError, match="ellipsis"):
            a[index]
    b = ad.zeros(2, 2)
    b[..., ...] = 3.0
    assert b.sum() == 12


def test_positions_take_values_of_their_dtype_and_a_mask_alone_one_number_of_any():
    a = ad.zeros(2, 3)
    for index in ([0], ad.tensor([0]), (slice(None), [0, 1]), ad.tensor([True, False])):
        with pytest.raises(RuntimeError, match="got float32 for the destination and int64"):
            a[index] = ad.tensor([5, 6, 7]) if not isinstance(index, tuple) else ad.tensor(5)
    assert not a.any()
    a[ad.tensor([True, False])] = ad.tensor(5)
    a[0] = ad.tensor([1, 2, 3])
    a[[1]] = 4
    assert a.tolist() == [[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]]


@pytest.mark.parametrize("call, kind, text", [
    (lambda: ad.ones(1).to(ad.float64, "cpu"), TypeError, "device comes first"),
    (lambda: ad.ones(1).type("bogus"), ValueError, "invalid type: 'bogus'"),
    (lambda: ad.LongTensor(ad.ones(1)), TypeError, "expected a tensor of .*int64"),
    (lambda: ad.ones(1, dtype=ad.int64).new(ad.ones(1)), TypeError, "expected a tensor"),
    (lambda: ad.full(2, 3), TypeError, "must be tuple of ints, not int")])
def test_forms_that_pytorch_has_not_are_refused(call, kind, text):
    with pytest.raises(kind, match=text):
        call()
    assert ad.ones(1).to(ad.float64, True).dtype == ad.float64
    assert ad.Tensor(ad.tensor([1, 2])).dtype == ad.int64


def test_a_class_made_without_a_module_name_in_a_program_run_as_torch(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import torch\n"
                       "exec('class M(torch.nn.Module):\\n  def forward(self, x): return x + 1\\n"
                       "print(M()(torch.zeros(1)))', {'torch': torch})\n")
    done = subprocess.run([sys.executable, "-m", "adjoint", "run", "--as-torch", str(program)],
                          capture_output=True, text=True, check=False)
    assert done.stdout == "tensor([1.])\n", done.stderr


def test_searchsorted_refuses_right_on_the_left():
    with pytest.raises(RuntimeError, match="side and right can't be set to opposites"):
        ad.searchsorted(ad.tensor([1.0, 2.0]), ad.tensor([1.0]), side="left", right=True)
