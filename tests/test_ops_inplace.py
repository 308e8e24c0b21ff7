"""In-place forms that change shape, and names at the top level."""
import numpy as np
import pytest

import adjoint as ad
import adjoint.nn.functional as F


def test_shapes_change_in_place_and_the_graph_follows():
    x = ad.ones(2, 3, requires_grad=True)
    y = x * 2
    version = y._version
    assert y.unsqueeze_(0) is y and tuple(y.shape) == (1, 2, 3) and y._version == version + 1
    y.mul_(3)
    y.squeeze_().transpose_(0, 1)
    assert tuple(y.shape) == (3, 2)
    (y * ad.arange(6.0).reshape(3, 2)).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[0, 12, 24], [6, 18, 30]])


def test_a_view_stays_a_view():
    base = ad.zeros(4, 3)
    part = base[:, :2]
    part.t_()
    part.add_(1)
    np.testing.assert_array_equal(base.numpy(), [[1, 1, 0]] * 4)


def test_a_leaf_that_requires_grad_is_refused():
    with pytest.raises(RuntimeError, match="leaf Variable"):
        ad.ones(2, requires_grad=True).unsqueeze_(0)


@pytest.mark.parametrize("shape", [(3, 3), (5, 2)])
def test_fill_diagonal(shape):
    torch = pytest.importorskip("torch")
    for wrap in (False, True):
        ours = ad.zeros(*shape).fill_diagonal_(2.0, wrap=wrap).numpy()
        np.testing.assert_array_equal(ours, torch.zeros(*shape).fill_diagonal_(
            2.0, wrap=wrap).numpy())


def test_older_names_take_their_older_arguments():
    table = ad.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(ad.embedding(table, ad.tensor([2])).numpy(), [[4, 5]])
    x, y = ad.tensor([1.0, 2.0]), ad.tensor([0.0, 0.0])
    assert ad.poisson_nll_loss(x, y, True, False, None, 1e-8, reduction=2).item() == pytest.approx(
        float(np.exp(1) + np.exp(2)))
    out, at = F.max_pool2d_with_indices(ad.arange(16.0).reshape(1, 1, 4, 4), 2)
    np.testing.assert_array_equal(at.numpy().ravel(), [5, 7, 13, 15])
    np.testing.assert_array_equal(out.numpy().ravel(), [5, 7, 13, 15])


@pytest.mark.parametrize("name", ["clamp", "clamp_", "clip", "clip_"])
def test_a_clamp_without_bounds_is_refused(name):
    """In place too, and before anything is compared."""
    with pytest.raises(RuntimeError, match="At least one of 'min' or 'max' must not be None"):
        getattr(ad.ones(3), name)()


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64])
def test_numbers_beside_three_operands_are_no_wider_than_the_target(dtype):
    """In-place ops of small tensors without a gradient, again and again: once in Python, later by
    machine code; the same bits as the ops that give a new tensor."""
    a, b = ad.linspace(1.0, 2.0, 5, dtype=dtype), ad.linspace(-1.0, 3.0, 5, dtype=dtype)
    for weight in (0.1, 0.7, -0.0, 1e-50, 2):
        for _ in range(60):
            x = a.clone()
            assert x.lerp_(b, weight) is x
            assert x.numpy().tobytes() == ad.lerp(a, b, weight).numpy().tobytes()
            assert x._version == 1
    x = ad.ones(3).addcmul_(ad.ones(3), ad.ones(3, dtype=ad.float64), value=0.5)
    assert x.dtype == ad.float32 and x.tolist() == [1.5] * 3


def test_three_operands_of_one_dtype_need_no_common_one(monkeypatch):
    """Nothing is looked for that is known: the dtypes that `addcmul` and `lerp` refuse are not
    those of three float32 arrays, with a number among them or without."""
    from adjoint.ops import family
    from adjoint.ops import pointwise as p

    def fail(operands):
        raise AssertionError("a common dtype was looked for")
    monkeypatch.setattr(family, "result_type", fail)
    a = np.ones(3, np.float32)
    assert all(x is a for x in p.addcmul_op.op.prepare((a, a, a)))
    first, second, weight = p.lerp_op.op.prepare((a, a, 0.5))
    assert first is a and second is a and weight.dtype == a.dtype and weight == 0.5


def test_lerp_takes_one_dtype():
    f, d = ad.ones(2), ad.ones(2, dtype=ad.float64)
    with pytest.raises(RuntimeError, match="expected dtype float for `end` but got dtype double"):
        ad.lerp(f, d, 0.5)
    with pytest.raises(RuntimeError, match="expected dtype double for `end` but got dtype float"):
        d.lerp_(f, 0.5)
    with pytest.raises(RuntimeError, match="expected dtype float for `weight` but got .*long int"):
        f.lerp(f, ad.ones(2, dtype=ad.int64))
    assert f.lerp(f, ad.tensor(0.5, dtype=ad.float64)).dtype == ad.float32
    assert d.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("value", [1, 0.5])
def test_addcdiv_divides_no_two_integers(value):
    f, i = ad.ones(2), ad.ones(2, dtype=ad.int64)
    for wrong in (lambda: ad.addcdiv(f, i, i, value=value), lambda: f.addcdiv_(i, i, value=value)):
        with pytest.raises(RuntimeError, match="Integer division with addcdiv is no longer"):
            wrong()
    assert ad.addcdiv(f, i, f, value=value).tolist() == [1 + value] * 2
