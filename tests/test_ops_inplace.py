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
