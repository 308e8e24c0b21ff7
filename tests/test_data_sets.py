"""Data sets, samplers and collation (issue 7, item 5)."""
from __future__ import annotations

import sys
from collections import Counter, OrderedDict, namedtuple

import numpy as np
import pytest

from adjoint.base.errors import ArgumentError, DTypeError, IndexOutOfRange, ShapeError
from adjoint.core.tensor import Tensor, wrap
from adjoint.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    random_split,
)

Point = namedtuple("Point", "x y")


class Squares(Dataset):
    def __init__(self, n):
        self.n, self.asked = n, 0

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i * i

    def __getitems__(self, indices):
        self.asked += 1
        return [i * i for i in indices]


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))

    def __len__(self):
        return self.n


def rng(seed=0):
    return np.random.default_rng(seed)


def test_concat_and_chain():
    joined = Squares(3) + Squares(2)
    assert [joined[i] for i in range(-5, 5)] == [0, 1, 4, 0, 1] * 2
    with pytest.raises(IndexOutOfRange, match="index 5 is outside of 5 items"):
        joined[5]
    with pytest.raises(ValueError, match="^absolute value of index should not exceed"):
        joined[-6]
    assert list(Stream(2) + Stream(1)) == [0, 1, 0] and len(Stream(2) + Stream(1)) == 3
    with pytest.raises(ArgumentError, match="empty"):
        ConcatDataset([])
    with pytest.raises(ArgumentError, match="ChainDataset"):
        ConcatDataset([Stream(1)])
    with pytest.raises(ArgumentError, match="only supports IterableDataset"):
        list(ChainDataset([[1]]))


def test_tensor_and_stack_datasets():
    x, y = wrap(np.arange(6.0).reshape(3, 2)), wrap(np.arange(3))
    data = TensorDataset(x, y)
    assert len(data) == 3 and data[1][0].array.tolist() == [2, 3] and data[-1][1].item() == 2
    for bad in ((x, wrap(np.ones(2))), (), (wrap(np.array(1.0)),)):
        with pytest.raises(ShapeError, match="TensorDataset"):
            TensorDataset(*bad)
    both = StackDataset(a=Squares(3), b="xyz")
    assert both[2] == {"a": 4, "b": "z"} and len(both) == 3
    assert both.__getitems__([0, 2]) == [{"a": 0, "b": "x"}, {"a": 4, "b": "z"}]
    assert both.datasets["a"].asked == 1
    with pytest.raises(ArgumentError, match=r"lengths \[3, 2\]"):
        StackDataset(Squares(3), "xy")


def test_subset_and_random_split():
    parts = random_split(Squares(10), [0.5, 0.25, 0.25], generator=rng())
    assert [len(p) for p in parts] == [6, 2, 2]
    assert sorted(v for p in parts for v in p.__getitems__(list(range(len(p))))) == [
        i * i for i in range(10)]
    again = random_split(Squares(10), [6, 4], generator=rng())
    assert again[0].indices == random_split(Squares(10), [6, 4], generator=rng())[0].indices
    with pytest.raises(ArgumentError, match="Sum of input lengths"):
        random_split(Squares(10), [6, 5])
    assert Subset("abc", [2, 0])[0] == "c"


def test_samplers():
    data = range(10)
    assert list(SequentialSampler(data)) == list(data)
    one, two = (list(RandomSampler(data, generator=rng())) for _ in range(2))
    assert one == two and sorted(one) == list(data) != one
    many = list(RandomSampler(data, num_samples=25, generator=rng()))
    assert len(many) == 25 and sorted(many[:10]) == list(data) == sorted(many[10:20])
    drawn = list(RandomSampler(data, replacement=True, num_samples=2000, generator=rng()))
    assert set(drawn) == set(data) and max(Counter(drawn).values()) < 300
    assert sorted(SubsetRandomSampler([3, 5], rng())) == [3, 5]
    weighted = Counter(WeightedRandomSampler([1, 0, 3], 4000, generator=rng()))
    assert weighted[1] == 0 and 2.6 < weighted[2] / weighted[0] < 3.4
    assert sorted(WeightedRandomSampler([1, 0, 3], 2, replacement=False)) == [0, 2]
    batches = BatchSampler(SequentialSampler(range(7)), 3, False)
    assert list(batches) == [[0, 1, 2], [3, 4, 5], [6]] and len(batches) == 3
    batches = BatchSampler(SequentialSampler(range(7)), 3, True)
    assert list(batches) == [[0, 1, 2], [3, 4, 5]] and len(batches) == 2


def test_bad_sampler_arguments():
    for make in (lambda: RandomSampler(range(3), num_samples=0), lambda: RandomSampler([]),
                 lambda: RandomSampler(range(3), replacement=1),
                 lambda: BatchSampler(range(3), 0, False),
                 lambda: BatchSampler(range(3), True, False),
                 lambda: WeightedRandomSampler([1.0], -1),
                 lambda: WeightedRandomSampler([[1.0]], 1),
                 lambda: WeightedRandomSampler([1.0, float("nan")], 1),
                 lambda: WeightedRandomSampler([1.0, 0.0], 2, replacement=False),
                 lambda: DistributedSampler(range(3), 2, 2),
                 lambda: DistributedSampler(range(3))):
        with pytest.raises(ArgumentError):
            make()


def test_distributed_sampler_covers_everything_and_matches_pytorch():
    for n, ranks, drop in ((10, 3, False), (10, 3, True), (2, 5, False), (9, 3, True)):
        samplers = [DistributedSampler(range(n), ranks, r, drop_last=drop) for r in range(ranks)]
        first = [list(s) for s in samplers]
        assert len({len(f) for f in first}) == 1 == len({len(s) for s in samplers})
        if not drop:
            assert {i for f in first for i in f} == set(range(n))
        for s in samplers:
            s.set_epoch(1)
        assert n < 4 or [list(s) for s in samplers] != first
    torch = pytest.importorskip("torch")
    for drop in (False, True):
        for rank in range(3):
            theirs = torch.utils.data.DistributedSampler(range(10), 3, rank, False, 0, drop)
            assert list(DistributedSampler(range(10), 3, rank, False, 0, drop)) == list(theirs)


def plain(batch):
    """A batch as nested lists, with dtypes."""
    if isinstance(batch, dict | OrderedDict):
        return {k: plain(v) for k, v in batch.items()}
    if isinstance(batch, Point):
        return ("Point", plain(batch.x), plain(batch.y))
    if isinstance(batch, list | tuple):
        return [plain(v) for v in batch]
    if isinstance(batch, str | bytes):
        return batch
    return str(batch.dtype).split(".")[-1], batch.tolist()


BATCHES = [
    [1, 2], [1.5, 2.5], [True, False], ["a", "b"], [b"a", b"b"], [(1, 0.5), (2, 1.5)],
    [[1, 2], [3, 4]], [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], [Point(1, 2.0), Point(3, 4.0)],
    [np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)], [np.float64(1), np.float64(2)],
    [np.int32(1), np.int32(2)], [(np.ones(1), {"k": [1, (2, "s")]})] * 2,
    [OrderedDict(z=1, a=2.0)] * 3,
]


@pytest.mark.parametrize("batch", BATCHES, ids=repr)
def test_collate_matches_pytorch(batch):
    collate = pytest.importorskip("torch.utils.data").default_collate
    assert plain(default_collate(batch)) == plain(collate(batch))


def test_collate_of_tensors_and_its_errors():
    out = default_collate([wrap(np.ones((2, 1))), wrap(np.zeros((2, 1)))])
    assert isinstance(out, Tensor) and out.shape == (2, 2, 1)
    leaf = wrap(np.ones(2), requires_grad=True)
    assert default_collate([leaf, leaf]).requires_grad
    with pytest.raises(ShapeError, match=r"got \[2\] at entry 0 and \[3\] at entry 1"):
        default_collate([wrap(np.ones(2)), wrap(np.ones(3))])
    with pytest.raises(ShapeError, match=r"lengths are \[1, 2\]"):
        default_collate([[1], [1, 2]])
    with pytest.raises(DTypeError, match="found <class 'object'>"):
        default_collate([object()])
    with pytest.raises(DTypeError, match="found <U1"):
        default_collate([np.array(["a"])])


def test_collate_by_a_map_of_types():
    """Functions of the map are asked by the type of the first item, subclasses included; a type
    added to the default map is collated from then on."""
    module = sys.modules["adjoint.utils.data.collate"]

    class Word(str):
        __slots__ = ()

    def count(batch, *, collate_fn_map=None):
        return len(batch), collate_fn_map is not None

    how = {int: count, str: lambda batch, *, collate_fn_map=None: "".join(batch)}
    assert module.collate([(1, Word("a")), (2, Word("b"))], collate_fn_map=how) == [(2, True), "ab"]
    assert module.collate([True], collate_fn_map=how) == (1, True)
    with pytest.raises(DTypeError, match="found <class 'float'>"):
        module.collate([1.5], collate_fn_map=how)
    with pytest.raises(DTypeError, match="found <class 'set'>"):
        default_collate([{1}])
    module.default_collate_fn_map[set] = count
    try:
        assert default_collate([{"a": {1}}, {"a": {2}}]) == {"a": (2, True)}
    finally:
        del module.default_collate_fn_map[set]


def test_collate_of_mixed_numbers_keeps_fractions():
    mixed = default_collate([1, 2.5])
    assert mixed.dtype == np.float32 and mixed.tolist() == [1.0, 2.5]
    assert default_collate([1, 2]).dtype == np.int64
    assert default_collate([True, False]).dtype == np.bool_
    assert default_collate([1.5, 2]).dtype == np.float64


def test_convert():
    out = default_convert({"a": np.ones(2), "b": [np.float32(1), "s"], "p": Point(np.ones(1), 2)})
    assert isinstance(out["a"], Tensor) and out["b"][0].dtype == np.float32
    assert out["b"][1] == "s" and isinstance(out["p"].x, Tensor) and out["p"].y == 2
