"""Helpers that PyTorch keeps in files of their own and that programs import from there."""
from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from adjoint.nn import _reduction
from adjoint.nn.modules import batchnorm, conv, linear
from adjoint.utils import _small as small


def test_ordered_sets_are_sets_in_order() -> None:
    s = small.OrderedSet([3, 1, 2, 1])
    s.add(5)
    assert (list(s), list(reversed(s)), repr(s)) == (
        [3, 1, 2, 5], [5, 2, 1, 3], "OrderedSet([3, 1, 2, 5])")
    assert s == {1, 2, 3, 5} and s == small.OrderedSet([5, 3, 2, 1])
    assert list(s | {9}) == list(s.union([9])) == [3, 1, 2, 5, 9]
    assert list(s - {3}) == list(s.difference([3])) == [1, 2, 5]
    assert list(s & {1, 5}) == [1, 5] and set(s ^ {1, 7}) == set(s.symmetric_difference({1, 7}))
    s.intersection_update([3, 2], [2, 3, 4])
    assert list(s) == [3, 2] and s.issubset([2, 3, 4]) and s.issuperset([2]) and s.pop() == 2
    s.discard(77)
    s.update([8], [9])
    s.difference_update([8])
    s.symmetric_difference_update([3, 4])
    assert list(s) == [9, 4]
    with pytest.raises(KeyError):
        s.remove(77)


def test_values_that_wait_and_calls_that_are_counted() -> None:
    made: list[int] = []
    thunk = small.Thunk(lambda: made.append(1) or 3)
    assert (thunk.force(), thunk.force(), made) == (3, 3, [1])

    class Twice:
        calls = 0

        @small.cache_method
        def of(self, x: int) -> int:
            Twice.calls += 1
            return 2 * x
    first, second = Twice(), Twice()
    assert [first.of(1), first.of(1), first.of(2), second.of(1), Twice.calls] == [2, 2, 4, 2, 3]
    small.simple_call_counter.clear()
    small.count(test_ordered_sets_are_sets_in_order)()
    small.count_label("x")
    assert list(small.simple_call_counter.values()) == [1, 1]
    with pytest.raises(TypeError, match="value was None"):
        small.not_none(None)


def test_one_of_several_processes_holds_the_baton(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    baton = small.FileBaton(str(path), 0.01)
    assert baton.try_acquire() and not baton.try_acquire() and path.exists()
    baton.release()
    baton.wait()
    assert not path.exists()


def test_reductions_by_number() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        names = [_reduction.legacy_get_string(a, b) for a in (None, True, False)
                 for b in (None, True, False)]
    assert names == ["mean", "mean", "none", "mean", "mean", "none", "sum", "sum", "none"]
    assert len(told) == 9
    assert _reduction.legacy_get_enum(True, False, emit_warning=False) == 0
    with pytest.raises(ValueError, match="x is not a valid value for reduction"):
        _reduction.get_enum("x")


def test_lazy_layers_are_beside_those_that_they_become() -> None:
    assert linear.LazyLinear.cls_to_become is linear.Linear
    assert conv.LazyConvTranspose3d and batchnorm.LazyBatchNorm1d


def test_they_have_pytorchs_paths() -> None:
    from adjoint.cli.served import RENAMED
    torch = pytest.importorskip("torch")
    import importlib
    for theirs in (k for k, v in RENAMED.items() if v == "adjoint.utils._small"):
        module = importlib.import_module(theirs)
        names = [n for n, v in vars(module).items() if not n.startswith("_")
                 and getattr(v, "__module__", "") == theirs and callable(v)]
        gone = [n for n in names if not hasattr(small, n)]
        assert set(gone) <= {"prefetchable_cache", "triton_backend", "triton_hash_with_backend"}
    ours = {str(d).removeprefix("adjoint."): s for d, s in small.dtype_abbrs.items()}
    theirs = importlib.import_module("torch.utils._dtype_abbrs").dtype_abbrs
    assert ours == {str(d).removeprefix("torch."): s for d, s in theirs.items()
                    if str(d).removeprefix("torch.") in ours}
    assert torch and "adjoint" in sys.modules
