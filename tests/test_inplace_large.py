"""In-place ops of large tensors: the values of the op beside them, stored where they belong."""
from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.inplace import LARGE

ROWS = 300
COLUMNS = -(-2 * LARGE // ROWS)
CALLS = {
    "add_": lambda x, y, u: x.add_(y), "add_(alpha)": lambda x, y, u: x.add_(y, alpha=0.25),
    "sub_": lambda x, y, u: x.sub_(y), "mul_": lambda x, y, u: x.mul_(u),
    "mul_(number)": lambda x, y, u: x.mul_(1.5), "div_": lambda x, y, u: x.div_(u),
    "add_(row)": lambda x, y, u: x.add_(y[0]), "add_(itself)": lambda x, y, u: x.add_(x),
    "clamp_": lambda x, y, u: x.clamp_(-0.5, 0.5), "relu_": lambda x, y, u: x.relu_(),
    "lerp_": lambda x, y, u: x.lerp_(y, 0.1), "addcmul_": lambda x, y, u: x.addcmul_(y, u, value=2),
    "addcdiv_": lambda x, y, u: x.addcdiv_(y, u, value=2), "tanh_": lambda x, y, u: x.tanh_(),
    "pow_": lambda x, y, u: x.pow_(2), "abs_": lambda x, y, u: x.abs_(),
    "neg_": lambda x, y, u: x.neg_(), "sqrt_": lambda x, y, u: x.abs_().sqrt_(),
    "fmod_": lambda x, y, u: x.fmod_(0.3), "lt_": lambda x, y, u: x.lt_(y),
    "view": lambda x, y, u: x[:, 1:].mul_(u[:, 1:]), "columns": lambda x, y, u: x[:, ::2].add_(1.0),
    "transposed": lambda x, y, u: x.t().add_(y.t()),
    "wider": lambda x, y, u: x.add_(ad.tensor(np.float64(0.1))),
}


def operands(dtype: str, rows: int, columns: int) -> list[ad.Tensor]:
    rng = np.random.default_rng(0)
    made = [rng.standard_normal((ROWS, COLUMNS))[:rows, :columns] for _ in range(2)]
    made.append(rng.random((ROWS, COLUMNS))[:rows, :columns] + 0.5)
    return [ad.tensor(np.ascontiguousarray(a), dtype=getattr(ad, dtype)) for a in made]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", CALLS)
def test_large_writes_give_what_small_ones_do(name, dtype):
    """Every element follows from those at its place, so a part of the tensor shows the whole."""
    x, y, u = operands(dtype, ROWS, COLUMNS)
    assert x.numel() >= LARGE
    version, address = x._version, x.data_ptr()
    CALLS[name](x, y, u)
    assert x._version > version and x.data_ptr() == address
    a, b, c = operands(dtype, 4, 31)
    CALLS[name](a, b, c)
    want = a.double().numpy()
    step = 2 * float(ad.finfo(x.dtype).eps)
    last = 3 if name.startswith("rows") else 4       # a part has another last row
    np.testing.assert_allclose(x[:last, :31].double().numpy(), want[:last], rtol=step, atol=step)


def test_gradients_read_what_was_there():
    """Writes to large tensors have the gradients of the ops beside them."""
    x, _, u = operands("float64", ROWS, COLUMNS)
    leaf, other = x.clone().requires_grad_(), u.clone().requires_grad_()
    made = leaf.clone().mul_(other).addcmul_(other, other).tanh_()
    made.sum().backward()
    one, two = x.clone().requires_grad_(), u.clone().requires_grad_()
    (one * two + two * two).tanh().sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), one.grad.numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(other.grad.numpy(), two.grad.numpy(), rtol=1e-12, atol=1e-14)


def test_what_does_not_fit_is_refused_and_leaves_the_tensor_alone():
    x, y, _ = operands("float32", ROWS, COLUMNS)
    before = x.clone()
    with pytest.raises(RuntimeError):
        x.add_(y[:7])
    with pytest.raises(RuntimeError):
        x[0].add_(y)
    with pytest.raises((TypeError, RuntimeError)):
        x.long().add_(y)
    assert x.equal(before)


@pytest.mark.skipif(not ad.ops.family.GENERATED, reason="NumPy alone makes the result first")
@pytest.mark.parametrize("name", ["add_(alpha)", "clamp_", "lerp_", "addcmul_", "relu_"])
def test_no_second_array_is_made(name):
    x, y, u = operands("float32", ROWS, COLUMNS)
    CALLS[name](x, y, u)                       # what is kept of a kernel is made here
    with ad.memory.track() as found:
        CALLS[name](x, y, u)
    assert found.peak - found.before < x.nbytes / 8


def test_from_numpy_reads_nothing_of_the_array():
    """F23: content is looked at when it is saved, not when it is shared."""
    array = np.zeros(1 << 20)
    t = ad.from_numpy(array)
    assert t._cell.print is None and t._cell.exposed
    w = ad.ones(1 << 20, dtype=ad.float64, requires_grad=True)
    y = (t * w).sum()
    array[0] = 1.0
    with pytest.raises(RuntimeError, match="modified"):
        y.backward()
