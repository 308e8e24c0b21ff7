"""PyTorch's own tables of optimizers and of modules, on their samples, beside PyTorch.

They need PyTorch and expecttest; without them these tests are skipped. `python
tests/helpers_optimizers.py` and `python tests/helpers_modules.py` print the whole comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import helpers_modules
import helpers_optimizers
import pytest

import adjoint as ad

MOMENTUM = "PyTorch cuts the gradient through the first momentum buffer"
CONVENTION = "PyTorch adds softmax(log_probs), which log_softmax's backward takes away again"
OVERFLOW = "sums of squares are float32 here; PyTorch's overflow in half precision"

# What differs on purpose: (table, mode) -> name -> why. One that no longer differs fails the sweep.
ON_PURPOSE: dict[tuple[str, str], dict[str, str]] = {
    ("optimizers", "flags"): {"SGD": MOMENTUM},
    ("modules", "call"): {"CTCLoss": CONVENTION},
    ("modules", "strided"): {"CTCLoss": CONVENTION},
    ("modules", "to"): {"CosineEmbeddingLoss": OVERFLOW},
}


@pytest.fixture(scope="module")
def tables() -> dict[str, Callable[[], list[Any]]]:
    pytest.importorskip("torch")
    pytest.importorskip("expecttest")
    return {"optimizers": helpers_optimizers.optimizer_table,
            "modules": helpers_modules.module_table}


def sweep(table: str, mode: str, verdicts: Iterable[Any]) -> None:
    """What differs is known, what is known differs, and something was compared."""
    found = list(verdicts)
    known = ON_PURPOSE.get((table, mode), {})
    wrong = {v.name.split()[0]: v.reason for v in found if v.state != "pass"}
    unexpected = [f"{name}: {why}" for name, why in wrong.items() if name not in known]
    assert not unexpected, "\n".join(unexpected)
    assert not set(known) - set(wrong), "these no longer differ: remove them from the list"
    assert sum(v.samples for v in found) > 40, "hardly anything was compared"


@pytest.mark.parametrize("mode", ["steps", "errors"])
def test_optimizers(mode: str, tables: dict[str, Callable[[], list[Any]]]) -> None:
    """F123, F128: ten steps of every optimizer in each of PyTorch's settings, from parameters of
    five shapes, one of them empty: parameters, states and settings; PyTorch's bad calls."""
    sweep("optimizers", mode, (helpers_optimizers.check(info, ad, mode)
                               for info in tables["optimizers"]()))


@pytest.mark.slow
@pytest.mark.parametrize("mode", [m for m in helpers_optimizers.MODES if m != "steps"])
def test_optimizers_in_every_form(mode: str, tables: dict[str, Callable[[], list[Any]]]) -> None:
    """F123, F128: flags, complex and single precision, groups, a state that goes either way
    between the libraries, a tensor as learning rate, missing gradients, copies."""
    sweep("optimizers", mode, (helpers_optimizers.check(info, ad, mode)
                               for info in tables["optimizers"]()))


@pytest.mark.parametrize("mode", ["call", "errors"])
def test_modules(mode: str, tables: dict[str, Callable[[], list[Any]]]) -> None:
    """F123: the first samples of every layer, in training and in evaluation: results, state,
    gradients of operands and parameters; PyTorch's bad constructors and calls."""
    sweep("modules", mode, (v for info in tables["modules"]()
                            for v in helpers_modules.check(info, ad, "float64", mode, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("mode", [*helpers_modules.MODES, "errors"])
def test_modules_in_every_form(mode: str, tables: dict[str, Callable[[], list[Any]]]) -> None:
    """F123: all samples: second derivatives, operands that are not contiguous, channels last,
    copies and files both ways, other dtypes."""
    sweep("modules", mode, (v for info in tables["modules"]()
                            for v in helpers_modules.check(info, ad, "float64", mode)))
