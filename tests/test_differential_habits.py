"""What training programs rely on beside values of operations: lists as indices, settings shared
with the optimizer, draws of pruning, gradients at borders. Each case runs in both libraries (F15).
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")
PRUNES = {torch: pytest.importorskip("torch.nn.utils.prune"), ad: ad.nn.utils.prune}

INDICES = """
x[[0, 1]] | x[[[0, 1], [0, 1]]] | x[[[0, 1]]] | x[[[0, 1], [0, 1], [0, 2]]] | x[[0, slice(None)]]
x[[slice(None), 0]] | x[[None, 0]] | x[[Ellipsis, 0]] | x[[t.tensor(0), t.tensor(1)]] | x[[0, None]]
x[[t.tensor([0, 1]), t.tensor([1, 2])]] | x[[np.array([0, 1]), np.array([1, 2])]] | x[[True, False]]
x[[[True, False]]] | x[[]] | x[[[]]] | x[[0, [1, 0]]] | x[[[0, 1], 0]] | x[[(0, 1), (0, 1)]]
x[[range(2)]] | x[[0] * 40] | x[[[0]] * 40] | x[[np.int64(1)]] | x[[t.tensor(1)]]
x[[t.tensor([1])]] | x[[[[0, 1]], [[0, 1]]]] | x[(0, 1), (0, 1)]
x[[t.tensor(1), 0]] | x[[[0, 1]] * 5]
"""


@pytest.mark.parametrize("expression", INDICES.replace("\n", " | ").strip(" |").split(" | "))
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_lists_as_indices(expression: str) -> None:
    found = []
    for t in (torch, ad):
        space = {"t": t, "np": np, "x": t.arange(24).reshape(2, 3, 4)}
        try:
            found.append(eval(expression, space).tolist())
        except IndexError:
            found.append("IndexError")
    assert found[0] == found[1]


def test_a_list_of_arrays_is_written_to_axis_by_axis() -> None:
    for t in (torch, ad):
        x = t.zeros(3, 3)
        with pytest.warns(UserWarning, match="^Using a non-tuple sequence for multidimensional"):
            x[[t.arange(3), t.arange(3)]] = 1.0
        assert x.tolist() == np.eye(3).tolist()


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_samples_at_the_border_of_an_image(padding: str, align: bool) -> None:
    """The identity of a spatial transformer meets it exactly."""
    line = np.array([-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1, 1.25, -1.25, 2, 0.8, -0.8])
    places = np.stack(np.meshgrid(line, line), -1)[None]
    image = np.random.default_rng(0).standard_normal((1, 2, 4, 5))
    slopes = []
    for t in (torch, ad):
        grid = t.tensor(places, requires_grad=True)
        y = t.nn.functional.grid_sample(t.tensor(image), grid, "bilinear", padding, align)
        (y * y).sum().backward()
        slopes.append(grid.grad.numpy())
    np.testing.assert_allclose(slopes[1], slopes[0], rtol=0, atol=1e-13)


def of_both(f: Callable[[Any], Any]) -> None:
    assert f(ad) == f(torch)


def test_a_group_is_the_dictionary_that_was_given() -> None:
    def f(t: Any) -> Any:
        p, q = (t.ones(2, requires_grad=True) for _ in range(2))
        groups = [{"params": [p]}, {"params": [q], "lr": 0.5}]
        optimizer = t.optim.SGD(groups, lr=0.1)
        groups[0]["lr"] = 0.25
        later = {"params": t.ones(1, requires_grad=True)}
        optimizer.add_param_group(later)
        again = t.optim.SGD(groups, lr=3.0)     # the settings stay what they became
        return ([g is h for g, h in zip(optimizer.param_groups, [*groups, later], strict=True)],
                [g["lr"] for g in optimizer.param_groups], [g["lr"] for g in again.param_groups],
                later["momentum"], type(later["params"]).__name__)
    of_both(f)


def test_a_refused_group_is_left_as_it_was() -> None:
    w = ad.ones(1, requires_grad=True)
    optimizer = ad.optim.SGD([w], lr=0.1)
    group = {"params": [w]}
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group(group)
    assert list(group) == ["params"] and len(optimizer.param_groups) == 1


def test_pruning_draws_as_pytorch() -> None:
    def f(t: Any) -> Any:
        t.manual_seed(0)
        layer = PRUNES[t].random_unstructured(t.nn.Linear(4, 3), "weight", 0.3)
        return layer.weight_mask.tolist(), t.rand(1).item()
    of_both(f)


@pytest.mark.filterwarnings("ignore:dropout3d. Received")
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 2, 2, 2)])
def test_dropout_of_volumes_of_every_rank(shape: tuple[int, ...]) -> None:
    def f(t: Any) -> Any:
        t.manual_seed(1)
        return t.nn.functional.dropout3d(t.ones(shape), 0.5, True).tolist()
    of_both(f)


def test_a_sequence_of_schedules_counts_as_pytorch() -> None:
    def f(t: Any) -> Any:
        lrs = t.optim.lr_scheduler
        optimizer = t.optim.SGD([t.ones(1, requires_grad=True)], lr=0.1)
        schedule = lrs.SequentialLR(optimizer, [lrs.LinearLR(optimizer, 0.1, total_iters=2),
                                                lrs.CosineAnnealingLR(optimizer, 4)], [2])
        for _ in range(4):
            optimizer.step(), schedule.step()
        state = schedule.state_dict()
        return [s["_step_count"] for s in state["_schedulers"]], round(state["_last_lr"][0], 12)
    of_both(f)


def test_no_warning_from_inside_of_a_step() -> None:
    """Warnings are errors here; those that come once in a process come each time."""
    w = ad.nn.Parameter(ad.ones(1))
    optimizer = ad.optim.LBFGS([w], line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    ad.set_warn_always(True)
    try:
        optimizer.step(closure)
    finally:
        ad.set_warn_always(False)
    assert abs(w.item()) < 1e-3


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2)])
def test_reversed_turns_the_first_axis(shape: tuple[int, ...]) -> None:
    def f(t: Any) -> Any:
        return reversed(t.arange(int(np.prod(shape))).reshape(shape)).tolist()
    of_both(f)
