"""What the engine tests share: the module under test, exact comparison, finite differences, saved
values.

The tests are written with PyTorch's names only, so their expectations can be checked on PyTorch
itself: `PYTHONPATH=tests python -m pytest -p helpers_torch_oracle tests/test_engine_*.py` runs the
same text with PyTorch in the place of `adjoint` (see `helpers_torch_oracle.py`). Where adjoint
promises more than PyTorch, a test carries `only_ours`.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import adjoint as ad

OURS = ad.__name__ == "adjoint"
only_ours = pytest.mark.skipif(not OURS, reason="adjoint promises this, PyTorch does not")


def values(tensor: Any) -> np.ndarray:
    """The numbers of a tensor as an array that does not alias it."""
    return np.array(tensor.detach().numpy())


def exact(actual: Any, expected: Any) -> None:
    """Equal in shape and in every bit pattern that `==` sees."""
    assert actual is not None, "expected a tensor, got None"
    np.testing.assert_array_equal(values(actual), np.asarray(expected), strict=False)
    assert tuple(actual.shape) == np.shape(expected)


def near(actual: Any, expected: Any, rtol: float = 1e-12, atol: float = 1e-12) -> None:
    """Equal in shape, and in value to rounding in float64 (or to the stated tolerance)."""
    assert actual is not None, "expected a tensor, got None"
    assert tuple(actual.shape) == np.shape(expected)
    np.testing.assert_allclose(values(actual), np.asarray(expected), rtol=rtol, atol=atol)


def leaf(data: Any, dtype: Any = None) -> Any:
    """A float64 leaf that requires grad."""
    return ad.tensor(data, dtype=dtype or ad.float64, requires_grad=True)


def const(data: Any, dtype: Any = None) -> Any:
    """A float64 tensor that does not require grad."""
    return ad.tensor(data, dtype=dtype or ad.float64)


def randoms(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal float64 numbers, the same on every machine."""
    return np.random.default_rng(seed).standard_normal(shape)


def node_name(tensor: Any) -> str:
    """The name that a user sees: `<MulBackward0 object at 0x7f...>` -> `MulBackward0`."""
    text = repr(tensor.grad_fn)
    return text.lstrip("<").split(" ")[0].split(">")[0].split("::")[-1].split(".")[-1]


def line_with(comment: str) -> str:
    """`file.py:123` of the line of the calling function that carries `comment`."""
    code = sys._getframe(1).f_code
    lines, start = inspect.getsourcelines(code)
    places = [start + k for k, line in enumerate(lines) if line.rstrip().endswith(comment)]
    assert len(places) == 1, (comment, places)
    return f"{code.co_filename.rsplit('/', 1)[-1]}:{places[0]}"


def saved_by(program: Callable[[], Any]) -> tuple[Any, list[np.ndarray]]:
    """Runs `program`; returns its result and the arrays that autograd saved meanwhile, in order."""
    packed: list[np.ndarray] = []

    def pack(tensor: Any) -> Any:
        packed.append(np.array(tensor.detach().numpy()))
        return tensor

    with ad.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = program()
    return result, packed


def numeric_gradients(
    function: Callable[..., Any], arrays: Sequence[np.ndarray], step: float = 1e-5
) -> list[np.ndarray]:
    """Central differences of a scalar-valued function of float64 arrays, one entry at a time.

    Error O(step**2) * third derivative + O(eps / step): about 1e-9 for tame functions.
    """
    gradients = []
    for which, array in enumerate(arrays):
        gradient = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            sides = []
            for sign in (+1.0, -1.0):
                moved = [np.array(a) for a in arrays]
                moved[which][place] += sign * step
                sides.append(float(function(*[const(a) for a in moved])))
            gradient[place] = (sides[0] - sides[1]) / (2.0 * step)
        gradients.append(gradient)
    return gradients


@contextmanager
def without_gc() -> Iterator[None]:
    """Only reference counts free memory inside: what survives is held by something."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
