"""DataLoader: batches, workers, their failures, and that nothing is left behind."""
from __future__ import annotations

import gc
import glob
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import adjoint as ad
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor, wrap
from adjoint.utils import data as D
from adjoint.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    get_worker_info,
)

METHODS = ["fork", "spawn"]
BIG = 20_000  # elements: large enough to travel by shared memory


class Rows(Dataset):
    def __init__(self, n, size=3):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return np.full(self.size, i, np.float32), i


class Failing(Rows):
    def __init__(self, n, how, at=5):
        super().__init__(n)
        self.how, self.at = how, at

    def __getitem__(self, i):
        if i == self.at:
            if self.how == "raise":
                raise ValueError(f"item {i} is broken")
            if self.how == "key":
                raise KeyError("no such column")
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "exit":
                os._exit(3)
            time.sleep(60)
        return super().__getitem__(i)


class Shares(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __iter__(self):
        info = get_worker_info()
        return iter(range(self.n) if info is None else range(info.id, self.n, info.num_workers))


class Identity(Dataset):
    """What a worker knows about itself."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        info = get_worker_info()
        return info.id, info.num_workers, info.seed, int(np.random.randint(2**31)), STARTED[-1]


STARTED = [-1]


def started(worker):
    STARTED.append(worker)


def segments(pid=None):
    return glob.glob(f"/dev/shm/adj_{pid or os.getpid()}_*")


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    gc.collect()
    assert segments() == []
    import multiprocessing
    assert multiprocessing.active_children() == []


def first_items(loader):
    return [batch[1].array.tolist() for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_in_order(workers):
    loader = DataLoader(Rows(7), batch_size=3, num_workers=workers)
    assert first_items(loader) == [[0, 1, 2], [3, 4, 5], [6]] and len(loader) == 3
    x, y = next(iter(loader))
    assert isinstance(x, Tensor) and x.array.dtype == np.float32 and x.shape == (3, 3)
    assert y.array.dtype == np.int64
    assert first_items(DataLoader(Rows(7), 3, drop_last=True, num_workers=workers)) == [
        [0, 1, 2], [3, 4, 5]]
    single = [int(b[1]) for b in DataLoader(Rows(3), None, num_workers=workers)]
    assert single == [0, 1, 2]
    batches = DataLoader(Rows(7), batch_sampler=[[6, 1], [2]], num_workers=workers)
    assert first_items(batches) == [[6, 1], [2]]
    assert first_items(DataLoader(Rows(0), 3, num_workers=workers)) == []


@pytest.mark.parametrize("method", METHODS)
def test_large_arrays_travel_through_shared_memory(method):
    loader = DataLoader(Rows(5, BIG), 2, num_workers=2, multiprocessing_context=method)
    kept = [batch[0] for batch in loader]
    assert not segments()  # the name is gone, the memory is not
    for start, x in zip((0, 2, 4), kept, strict=True):
        assert (x.array == np.arange(start, min(start + 2, 5))[:, None]).all()
        x.array[:] = -1  # ours to write to
        assert (x.array == -1).all()


def test_shuffling_follows_the_generator():
    def order(seed, workers):
        draw = np.random.default_rng(seed)
        return sum(first_items(DataLoader(Rows(20), 4, True, generator=draw,
                                          num_workers=workers)), [])
    assert order(0, 0) == order(0, 0) == order(0, 2) != order(1, 0)
    assert sorted(order(0, 2)) == list(range(20))
    loader = DataLoader(Rows(20), 4, True, generator=np.random.default_rng(0))
    assert first_items(loader) != first_items(loader)


@pytest.mark.parametrize("method", METHODS)
def test_workers_have_seeds_ids_and_run_the_init_function(method):
    loader = DataLoader(Identity(), None, num_workers=2, worker_init_fn=started, collate_fn=tuple,
                        multiprocessing_context=method, generator=np.random.default_rng(3))
    rows = list(loader)
    assert [r[0] for r in rows] == [0, 1] * 4 and {r[1] for r in rows} == {2}
    assert len({r[3] for r in rows}) == 8
    assert rows[1][2] == rows[0][2] + 1 and all(r[4] == r[0] for r in rows)
    again = list(DataLoader(Identity(), None, num_workers=2, collate_fn=tuple,
                            generator=np.random.default_rng(3)))
    assert [r[:4] for r in again] == [r[:4] for r in rows]
    assert get_worker_info() is None


def test_streams():
    assert [b.array.tolist() for b in DataLoader(Shares(5), 2)] == [[0, 1], [2, 3], [4]]
    assert len(DataLoader(Shares(5), 2)) == 3 and len(DataLoader(Shares(5), 2, drop_last=True)) == 2
    got = [b.array.tolist() for b in DataLoader(Shares(7), 2, num_workers=2)]
    assert sorted(sum(got, [])) == list(range(7)) and got[0] == [0, 2] and got[1] == [1, 3]
    dropped = [b.array.tolist() for b in DataLoader(Shares(7), 2, num_workers=2, drop_last=True)]
    assert sorted(dropped) == [[0, 2], [1, 3], [4, 6]] or sorted(dropped) == [[0, 2], [1, 3]]
    assert [int(i) for i in DataLoader(Shares(3), None, num_workers=1)] == [0, 1, 2]
    assert list(DataLoader(Shares(0), 2, num_workers=3)) == []


@pytest.mark.parametrize("stream", [False, True])
def test_persistent_workers_serve_several_passes(stream):
    data = Shares(6) if stream else Rows(6)
    loader = DataLoader(data, 2, num_workers=2, persistent_workers=True)
    def one_pass(batches):
        return sorted(sum(((b if stream else b[1]).array.tolist() for b in batches), []))
    assert one_pass(loader) == list(range(6))
    pids = loader._iterator._pool.pids()
    for _ in loader:
        break  # an abandoned pass must not leak into the next
    assert one_pass(loader) == list(range(6)) and loader._iterator._pool.pids() == pids
    del loader


def test_early_break_leaves_no_process_and_no_memory():
    for _ in range(3):
        for _batch in DataLoader(Rows(50, BIG), 2, num_workers=2, prefetch_factor=4):
            break
    iterator = iter(DataLoader(Rows(50, BIG), 2, num_workers=2))
    next(iterator)
    pids = iterator._pool.pids()
    del iterator, _batch
    gc.collect()
    for pid in pids:
        with pytest.raises(OSError):
            os.kill(pid, 0)


@pytest.mark.parametrize("method", METHODS)
def test_an_exception_in_a_worker_has_its_class_and_traceback(method):
    loader = DataLoader(Failing(20, "raise"), 2, num_workers=2, multiprocessing_context=method)
    got = []
    with pytest.raises(ValueError, match="Caught ValueError in DataLoader worker process 0") as e:
        for batch in loader:
            got.append(batch[1].array.tolist())
    assert got == [[0, 1], [2, 3]]
    assert "item 5 is broken" in str(e.value) and "in __getitem__" in str(e.value)
    with pytest.raises(KeyError, match="(?s)^Caught KeyError.*no such column"):
        list(DataLoader(Failing(20, "key"), 2, num_workers=1))


@pytest.mark.parametrize("how, why", [("kill", "killed by signal SIGKILL"),
                                      ("exit", "exited with code 3")])
def test_a_dead_worker_is_reported_at_once(how, why):
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match=rf"worker \(pid\(s\) \d+\) exited unexp.*{why}"):
        list(DataLoader(Failing(20, how), 2, num_workers=2))
    assert time.monotonic() - begun < 10


def test_what_a_loader_is_made_of_stays():
    loader = DataLoader(Rows(5), 2)
    for name in ("batch_size", "dataset", "sampler", "batch_sampler", "drop_last"):
        with pytest.raises(ValueError, match=f"^{name} attribute should not be set after DataLoad"):
            setattr(loader, name, None)
    loader.num_workers = 1
    loader.multiprocessing_context = "fork"
    assert loader.multiprocessing_context.get_start_method() == "fork"
    assert first_items(loader) == [[0, 1], [2, 3], [4]]
    with pytest.raises(TypeError, match="^multiprocessing_context option should be a valid"):
        loader.multiprocessing_context = 3


@pytest.mark.parametrize("name, value", [("shuffle", True), ("sampler", [1]),
                                         ("batch_sampler", [[1]])])
def test_a_stream_has_no_sampler(name, value):
    with pytest.raises(ValueError, match=f"expected unspecified {name} option, but got {name}="):
        DataLoader(Shares(3), **{name: value})


def test_a_hanging_worker_times_out():
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match="timed out after 0.3 seconds"):
        list(DataLoader(Failing(20, "hang", at=0), 2, num_workers=1, timeout=0.3))
    assert time.monotonic() - begun < 10


def test_out_of_order_gives_what_is_ready_first():
    loader = DataLoader(Slow(4), 1, num_workers=2, in_order=False)
    order = [int(b.array[0]) for b in loader]
    assert sorted(order) == [0, 1, 2, 3] and order[0] != 0


class Slow(Rows):
    def __getitem__(self, i):
        if i == 0:
            time.sleep(1.0)
        return i


def huge_collate(batch):
    return wrap(np.zeros(3)), "x" * 300_000, [bytes(200_000)]


def test_large_pickles_and_many_indices_do_not_deadlock():
    loader = DataLoader(Rows(60_000), 15_000, num_workers=1, prefetch_factor=4,
                        collate_fn=huge_collate)
    assert sum(len(text) for _, text, _ in loader) == 4 * 300_000


@pytest.mark.parametrize("options, message", [
    ({"num_workers": -1}, "^num_workers option should be non-negative"),
    ({"num_workers": 1.5}, "num_workers"),
    ({"timeout": -1}, "^timeout option should be non-negative"),
    ({"prefetch_factor": 2}, "^prefetch_factor option could only be"),
    ({"persistent_workers": True}, "num_workers > 0"),
    ({"num_workers": 1, "prefetch_factor": 0}, "^prefetch_factor option should be non-neg"),
    ({"shuffle": True, "sampler": [1]}, "mutually exclusive"),
    ({"batch_sampler": [[1]], "batch_size": 2}, "mutually exclusive"),
    ({"batch_size": None, "drop_last": True}, "mutually exclusive"),
    ({"batch_size": 0}, "batch_size"),
    ({"multiprocessing_context": "fork"}, "can only be used with multi-process loading"),
    ({"multiprocessing_context": "thread", "num_workers": 1}, "specify a valid start method"),
])
def test_bad_options(options, message):
    with pytest.raises(ArgumentError, match=message):
        DataLoader(Rows(3), **options)
    with pytest.raises(ArgumentError, match="decides its own order"):
        DataLoader(Shares(3), shuffle=True)


def test_what_cannot_be_sent_to_a_spawned_worker_is_named():
    with pytest.raises(ArgumentError, match="must be picklable"):
        list(DataLoader(Rows(3), collate_fn=lambda b: b, num_workers=1,
                        multiprocessing_context="spawn"))


def running(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


SCRIPT = """
import os, signal, sys, time
import numpy as np
from adjoint.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i):
        return np.zeros(20000, np.float32)
iterator = iter(DataLoader(Rows(), 2, num_workers=2))
next(iterator)
print(*iterator._pool.pids(), flush=True)
{ending}
"""


@pytest.mark.parametrize("ending", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit(0)",
                                    "raise KeyboardInterrupt", "os._exit(0)"])
def test_workers_end_with_the_main_process(ending):
    process = subprocess.Popen([sys.executable, "-c", SCRIPT.format(ending=ending)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=60)
    pids = [int(p) for p in out.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 10
    while any(map(running, pids)) and time.monotonic() < deadline:
        pass
    assert not any(map(running, pids))
    assert "BufferError" not in err and "Exception ignored" not in err
    while segments(process.pid) and time.monotonic() < deadline:
        pass  # after SIGKILL the resource tracker removes them
    assert segments(process.pid) == []


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterator_has_the_loaders_length(workers):
    batches = iter(DataLoader(Rows(7), batch_size=2, num_workers=workers))
    assert len(batches) == 4 and iter(batches) is batches
    next(batches)
    assert len(batches) == 4 and len(list(batches)) == 3


def test_after_an_error_in_this_process_the_next_batch_comes():
    class Hole(Rows):
        def __getitem__(self, i):
            return i if i != 1 else 1 // 0

    batches = iter(DataLoader(Hole(3), batch_size=None))
    assert next(batches) == 0
    with pytest.raises(ZeroDivisionError):
        next(batches)
    assert next(batches) == 2
    with pytest.raises(ValueError, match="timeout needs num_workers"):
        iter(DataLoader(Hole(3), timeout=1))


@pytest.mark.parametrize("persistent", [False, True])
def test_after_an_error_in_a_worker_the_next_batch_comes(persistent):
    loader = DataLoader(Failing(9, "key"), 2, num_workers=2, persistent_workers=persistent)
    for _ in range(2):
        found, batches = [], iter(loader)
        while True:
            try:
                next(batches)
                found.append("batch")
            except KeyError:
                found.append("lost")
            except StopIteration:
                break
        assert found == ["batch", "batch", "lost", "batch", "batch"]
    assert batches.closed is not persistent


class Shuffled:
    """Draws when it is begun, not at its first index."""

    def __init__(self, whole=False):
        self.whole = whole

    def __iter__(self):
        order = ad.randperm(6).tolist()
        return iter([order] if self.whole else order)

    def __len__(self):
        return 1 if self.whole else 6


def test_a_sampler_that_draws_at_its_beginning_draws_before_the_loaders_seed():
    """PyTorch's orders, and its generator afterwards."""
    ad.manual_seed(0)
    loader = DataLoader(Rows(6), batch_sampler=Shuffled(whole=True))
    assert next(iter(loader))[1].tolist() == [2, 5, 3, 0, 1, 4]
    assert ad.rand(1).item() == 0.8964447379112244


def test_workers_that_stay_draw_their_seed_once():
    ad.manual_seed(0)
    loader = DataLoader(Rows(6), sampler=Shuffled(), num_workers=1, batch_size=2,
                        persistent_workers=True)
    seen = []
    for _ in range(2):
        order = [i for _, places in loader for i in places.tolist()]
        seen.append((order, ad.rand(1).item()))
    assert seen == [([5, 1, 0, 3, 2, 4], 0.8964447379112244),
                    ([1, 4, 3, 5, 0, 2], 0.16885894536972046)]


ROWS = ad.tensor(np.arange(40.0).reshape(10, 4)), ad.arange(10)


@pytest.mark.parametrize("wrapped", [lambda d: d, lambda d: D.Subset(D.Subset(d, range(1, 9)),
                                                                     [7, 0, 3, 3, 5])])
@pytest.mark.parametrize("workers", [0, 1])
def test_rows_of_tensors_are_read_at_once_and_are_what_collate_makes_of_items(wrapped, workers):
    data = wrapped(D.TensorDataset(*ROWS))
    asked = []

    def collate(items):
        asked.append(len(items))
        return D.default_collate(items)
    fast = list(D.DataLoader(data, batch_size=3, num_workers=workers))
    slow = list(D.DataLoader(data, batch_size=3, collate_fn=collate))
    assert asked and len(fast) == len(slow)
    for ours, theirs in zip(fast, slow, strict=True):
        assert type(ours) is type(theirs) is list
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype == b.dtype and a.is_contiguous() and a.equal(b)
    fast[0][0].zero_()                                   # a copy, as a stack is
    assert data[0][0].sum() > 0


def test_rows_that_are_more_than_rows_go_item_by_item():
    class Counting(D.TensorDataset):
        asked = 0

        def __getitem__(self, index):
            self.asked += 1
            return super().__getitem__(index)
    counting = Counting(*ROWS)
    list(D.DataLoader(counting, batch_size=5))
    assert counting.asked == 10
    leaf = ROWS[0].clone().requires_grad_()
    batch, = next(iter(D.DataLoader(D.TensorDataset(leaf), batch_size=2)))
    batch.sum().backward()
    assert leaf.grad.sum() == 8 and batch.grad_fn.name() == "StackBackward0"
    with pytest.raises(IndexError):
        list(D.DataLoader(D.TensorDataset(*ROWS), batch_sampler=[[0, 10]]))
    with pytest.raises(IndexError):
        list(D.DataLoader(D.Subset(D.TensorDataset(*ROWS), [0]), batch_sampler=[[1]]))


def test_loaders_in_annotations_and_the_pass_that_libraries_ask_for() -> None:
    """F42."""
    loader = ad.utils.data.DataLoader[int](range(3))
    assert [int(x) for x in loader._get_iterator()] == [0, 1, 2]
    assert ad.utils.data.DataLoader[int].__origin__ is ad.utils.data.DataLoader


def test_a_length_asked_for_after_the_pass_began_is_no_promise_to_it() -> None:
    """F42: `list(loader)` asks for it then."""
    class Stream(ad.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(4))

        def __len__(self):
            return 2

    assert len(list(ad.utils.data.DataLoader(Stream()))) == 4       # warnings are errors
    loader = ad.utils.data.DataLoader(Stream())
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="was reported to be 2"):
        list(loader)


def test_names_of_the_loader_that_programs_reach_for() -> None:
    """F42: fetchers, the workers of a pass, the next indices."""
    from adjoint.utils.data import _utils
    fetch = _utils._MapDatasetFetcher(D.TensorDataset(ad.arange(6)), True, list, False)
    assert [int(x) for (x,) in fetch.fetch([1, 4])] == [1, 4] and fetch.auto_collation
    stream = _utils._IterableDatasetFetcher([1, 2, 3], True, list, True)
    assert stream.fetch([0, 0]) == [1, 2]
    with pytest.raises(StopIteration):
        stream.fetch([0, 0])
    here = iter(DataLoader([1, 2, 3]))
    assert here._next_index() == [0] and int(next(here)) == 2 and here._num_workers == 0
    batches = iter(DataLoader(D.TensorDataset(ad.arange(6)), 2, num_workers=2))
    workers = batches._workers
    assert len(workers) == 2 and all(w.is_alive() for w in workers)
    batches._shutdown_workers()
    assert not batches._workers and batches.closed
