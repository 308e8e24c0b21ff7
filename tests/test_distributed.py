"""Process groups over TCP: collectives, data parallel training, the sharded optimizer, failures.

Ranks are real processes; where only the collectives count, threads with a transport each.
"""
from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.distributed import DistributedError
from adjoint.distributed import collectives as c
from adjoint.distributed.group import ProcessGroup, _port_by_file
from adjoint.distributed.transport import Sockets

ROOT = Path(__file__).resolve().parent.parent


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def ranks(n: int, body: Callable[[ProcessGroup], Any], timeout: float = 20) -> list[Any]:
    """`body` in n threads, each a rank with connections of its own; an exception is a result."""
    port, out = free_port(), [None] * n

    def run(rank: int) -> None:
        transport = None
        try:
            transport = Sockets("127.0.0.1", port, rank, n, timeout)
            out[rank] = body(ProcessGroup(transport, list(range(n)), "gloo"))
        except Exception as error:
            out[rank] = error
        finally:
            if transport is not None:
                transport.close()
    in_threads(n, run)
    return out


def in_threads(n: int, run: Callable[[int], None]) -> None:
    """`run(rank)` in a thread for each of n ranks."""
    threads = [threading.Thread(target=run, args=(r,)) for r in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def each(n: int, body: Callable[[ProcessGroup], Any]) -> list[Any]:
    out = ranks(n, body)
    for r in out:
        if isinstance(r, Exception):
            raise r
    return out


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [0, 1, 7, 50_000])
def test_all_reduce_is_the_sum_with_equal_bits(n: int, size: int) -> None:
    data = [np.random.default_rng(r).standard_normal(size).astype(np.float32) for r in range(n)]

    def body(g: ProcessGroup) -> Any:
        t = ad.tensor(data[g.rank()])
        c.all_reduce(t, group=g)
        return t.numpy()
    out = each(n, body)
    for other in out:
        np.testing.assert_array_equal(other, out[0])
    np.testing.assert_allclose(out[0], np.sum(data, 0), atol=1e-5)


@pytest.mark.parametrize("op, wanted", [("avg", 1.5), ("product", 0.0), ("min", 0.0), ("max", 3.0)])
def test_reduce_ops(op: str, wanted: float) -> None:
    def body(g: ProcessGroup) -> Any:
        t = ad.full((2, 2), float(g.rank()))
        c.all_reduce(t, op, group=g)
        return t
    assert all((t.numpy() == wanted).all() for t in each(4, body))


def test_data_moving_collectives() -> None:
    def body(g: ProcessGroup) -> None:
        me, n = g.rank(), g.size()
        t = ad.full((3,), float(me))
        c.broadcast(t, 2, group=g)
        assert t.tolist() == [2.0] * 3
        got = [ad.zeros(2) for _ in range(n)]
        c.all_gather(got, ad.full((2,), float(me)), group=g)
        assert [x[0].item() for x in got] == list(range(n))
        flat = ad.zeros(n, 2)
        c.all_gather_into_tensor(flat, ad.full((2,), float(me)), group=g)
        assert flat[:, 1].tolist() == list(range(n))
        here = [ad.zeros(1) for _ in range(n)] if me == 1 else None
        c.gather(ad.tensor([float(me)]), here, dst=1, group=g)
        assert here is None or [x.item() for x in here] == list(range(n))
        part = ad.zeros(2)
        c.scatter(part, [ad.full((2,), 10.0 + i) for i in range(n)] if me == 0 else None, 0, g)
        assert part.tolist() == [10.0 + me] * 2
        mine = ad.zeros(2)
        c.reduce_scatter(mine, [ad.full((2,), float(i)) for i in range(n)], group=g)
        assert mine.tolist() == [float(me * n)] * 2
        out = [ad.zeros(1) for _ in range(n)]
        c.all_to_all(out, [ad.tensor([10.0 * me + i]) for i in range(n)], group=g)
        assert [x.item() for x in out] == [10.0 * i + me for i in range(n)]
        objects: list[Any] = [None] * n
        c.all_gather_object(objects, {"rank": me, "data": "x" * (me + 1)}, group=g)
        assert [o["rank"] for o in objects] == list(range(n))
        box = [("from", me)] if me == 2 else [None]
        c.broadcast_object_list(box, 2, group=g)
        assert box == [("from", 2)]
        t = ad.tensor([float(me)])
        if me == 0:
            c.send(t, 1, group=g)
        elif me == 1:
            assert c.recv(t, 0, group=g) == 0 and t.item() == 0.0
        work = c.all_reduce(t, group=g, async_op=True)
        assert work.wait() and work.is_completed()
        c.barrier(g)
    each(3, body)


def test_large_messages_in_both_directions_do_not_block() -> None:
    def body(g: ProcessGroup) -> float:
        t = ad.full((3_000_000,), float(g.rank() + 1))
        c.all_reduce(t, group=g)
        return t[12345].item()
    assert each(3, body) == [6.0] * 3


def test_groups_of_some_ranks() -> None:
    def body(g: ProcessGroup) -> Any:
        sub = ProcessGroup(g.transport, [1, 3], "gloo")
        if sub.rank() < 0:
            return None
        t = ad.tensor([float(g.rank())])
        c.all_reduce(t, group=sub)
        c.broadcast(t, 3, group=sub)
        return t.item()
    assert each(4, body) == [None, 4.0, None, 4.0]


def test_different_sizes_are_found_out() -> None:
    out = ranks(2, lambda g: c.all_reduce(ad.ones(g.rank() + 1), group=g))
    assert all(isinstance(e, DistributedError) for e in out)
    assert "different sizes" in str(out[0]) or "different sizes" in str(out[1])


def test_a_rank_that_leaves_is_named() -> None:
    def body(g: ProcessGroup) -> None:
        if g.rank() == 1:
            g.transport.close()
            return
        c.all_reduce(ad.ones(3), group=g)
    out = ranks(2, body)
    assert isinstance(out[0], DistributedError) and "rank 1" in str(out[0])


def test_a_late_rank_is_named() -> None:
    def body(g: ProcessGroup) -> None:
        if g.rank() == 1:
            time.sleep(2)
            return
        c.barrier(g)
    out = ranks(2, body, timeout=0.5)
    assert isinstance(out[0], DistributedError) and "0.5 s" in str(out[0]) and "[1]" in str(out[0])


def test_nobody_comes() -> None:
    with pytest.raises(DistributedError, match=r"ranks \[1\]"):
        Sockets("127.0.0.1", free_port(), 0, 2, 0.3)
    with pytest.raises(DistributedError, match="nobody answers"):
        Sockets("127.0.0.1", free_port(), 1, 2, 0.3)


def test_without_a_group() -> None:
    assert ad.distributed.is_available() and not ad.distributed.is_initialized()
    with pytest.raises(RuntimeError, match="has not been initialized"):
        ad.distributed.get_rank()
    with pytest.raises(NotImplementedError, match="gloo"):
        ad.distributed.init_process_group("nccl")
    with pytest.raises(ValueError, match="MASTER_ADDR"):
        ad.distributed.init_process_group("gloo", rank=0, world_size=1)


# ---------------------------------------------------------------------- whole programs
def launch(script: Path, n: int, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "adjoint.distributed.run", "--nproc-per-node", str(n), str(script),
         *args], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)})


TRAIN = '''
import sys
import numpy as np
import adjoint as torch
import adjoint.distributed as dist
from adjoint import nn
from adjoint.distributed.optim import ZeroRedundancyOptimizer
from adjoint.nn.parallel import DistributedDataParallel as DDP
from adjoint.utils.data import TensorDataset, DataLoader
from adjoint.utils.data.distributed import DistributedSampler

folder = sys.argv[1]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
rng = np.random.default_rng(0)
x = torch.tensor(rng.standard_normal((16, 4)), dtype=torch.float64)
y = torch.tensor(rng.standard_normal((16, 2)), dtype=torch.float64)

def loss(model, a, b):
    return ((model(a) - b) ** 2).mean()

for kind in ("plain", "zero", "accumulate"):
    torch.manual_seed(100 + rank)               # different weights: DDP takes rank 0's
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    if rank == 0:
        np.savez(folder + "/start.npz", *[p.detach().numpy() for p in net.parameters()])
    model = DDP(net)
    if kind == "zero":
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
        assert 0 < len(optimizer.mine) < 4
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, shuffle=False)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for a, b in DataLoader(data, batch_size=16 // world // 2, sampler=sampler):
            optimizer.zero_grad()
            if kind == "accumulate":
                half = len(a) // 2
                with model.no_sync():
                    (loss(model, a[:half], b[:half]) / 2).backward()
                (loss(model, a[half:], b[half:]) / 2).backward()
            else:
                loss(model, a, b).backward()
            optimizer.step()
    if kind == "zero":
        optimizer.load_state_dict(optimizer.state_dict())
    np.savez(f"{folder}/{kind}{rank}.npz", *[p.detach().numpy() for p in net.parameters()])
dist.barrier()
dist.destroy_process_group()
'''


@pytest.mark.row("F80")
def test_data_parallel_equals_one_process(tmp_path: Path) -> None:
    """Two processes with half of each batch give the weights of one process with all of it: plain,
    with a sharded optimizer, and with accumulated gradients."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    done = launch(script, 2, str(tmp_path))
    assert done.returncode == 0, done.stderr
    net = ad.nn.Sequential(ad.nn.Linear(4, 8), ad.nn.Tanh(), ad.nn.Linear(8, 2)).double()
    with ad.no_grad():
        for p, start in zip(net.parameters(), np.load(tmp_path / "start.npz").values(),
                            strict=True):
            p.copy_(ad.tensor(start))
    rng = np.random.default_rng(0)
    x, y = ad.tensor(rng.standard_normal((16, 4))), ad.tensor(rng.standard_normal((16, 2)))
    optimizer = ad.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(3):
        for k in range(2):
            at = ad.arange(16)[k * 8:(k + 1) * 8]
            optimizer.zero_grad()
            ((net(x[at]) - y[at]) ** 2).mean().backward()
            optimizer.step()
    for kind in ("plain", "zero", "accumulate"):
        ends = [list(np.load(tmp_path / f"{kind}{r}.npz").values()) for r in range(2)]
        for a, b, p in zip(*ends, net.parameters(), strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_allclose(a, p.detach().numpy(), rtol=1e-12, atol=1e-14)


def test_the_launcher_ends_everybody_when_one_fails(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("import os, sys, time\n"
                      "sys.exit(3) if os.environ['RANK'] == '1' else time.sleep(60)\n")
    start = time.monotonic()
    done = launch(script, 2)
    assert done.returncode == 3 and time.monotonic() - start < 30
    assert "local rank 1" in done.stderr


def test_unused_parameters(tmp_path: Path) -> None:
    script = tmp_path / "unused.py"
    script.write_text('''
import adjoint as torch
import adjoint.distributed as dist
dist.init_process_group()
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (torch.nn.Parameter(torch.ones(1)) for _ in range(3))
    def forward(self, x):
        return (self.a if dist.get_rank() == 0 else self.b) * x
net = torch.nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
net(torch.tensor([4.0])).sum().backward()
m = net.module
assert m.a.grad.item() == 2.0 and m.b.grad.item() == 2.0 and m.c.grad is None
assert list(net.state_dict()) == ["module.a", "module.b", "module.c"]
print("fine")
''')
    done = launch(script, 2)
    assert done.stdout.count("fine") == 2, done.stderr


def test_buffers_are_rank_0s_after_a_forward_that_was_averaged(tmp_path: Path) -> None:
    """Not after one inside of `no_sync` or `no_grad`, as PyTorch has it."""
    script = tmp_path / "buffers.py"
    script.write_text('''
import sys
import adjoint as torch
import adjoint.distributed as dist
dist.init_process_group()
class Count(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(1))
        self.register_buffer("b", torch.zeros(1))
    def forward(self, x):
        self.b += dist.get_rank() + 1
        return self.w * x
net = torch.nn.parallel.DistributedDataParallel(Count())
seen = []
def step():
    net(torch.ones(1)).sum().backward()
    seen.append(int(net.module.b))
step(), step()
with net.no_sync():
    step(), step()
step(), step()
net.eval()
with torch.no_grad():
    for _ in range(2):
        net(torch.ones(1))
        seen.append(int(net.module.b))
open(f"{sys.argv[1]}/{dist.get_rank()}", "w").write(str(seen))
dist.destroy_process_group()
''')
    done = launch(script, 2, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "0").read_text() == str([1, 2, 3, 4, 5, 6, 7, 8])
    assert (tmp_path / "1").read_text() == str([2, 3, 4, 6, 8, 7, 8, 10])


def test_processes_of_one_machine_find_each_other_by_a_file(tmp_path: Path) -> None:
    """Rank 0 leaves a port in the file, the others read it; it is gone when all have come."""
    file = tmp_path / "a b"
    port = _port_by_file(file, 0, 1.0)
    assert port > 0 and _port_by_file(file, 1, 1.0) == port
    file.unlink()
    with pytest.raises(DistributedError, match="was not written by rank 0"):
        _port_by_file(file, 1, 0.05)
    ad.distributed.init_process_group("gloo", init_method=file.as_uri(), rank=0, world_size=1)
    try:
        assert not file.exists() and ad.distributed.is_initialized()
    finally:
        ad.distributed.destroy_process_group()


def test_objects_and_crossing_sends_between_ranks() -> None:
    """Values cross whatever the order in which two ranks send and receive; objects are pickled."""
    c: Any = ad.distributed
    big = 1 << 21                                        # more than the buffers of a socket hold

    def body(g: ProcessGroup) -> Any:
        n, r = g.size(), g.rank()
        sent, got, small = ad.full((big,), float(r)), ad.zeros(big), ad.zeros(1)
        after, before = (r + 1) % n, (r - 1) % n
        ops = [c.P2POp(c.isend, sent, after, g), c.P2POp(c.isend, ad.ones(1) * r, after, g),
               c.P2POp(c.irecv, got, before, g), c.P2POp(c.irecv, small, before, g)]
        works = c.batch_isend_irecv(ops)
        assert all(w.wait() for w in works) and (got == before).all() and int(small) == before
        lists: list[Any] = [None] * n
        c.gather_object({"rank": r}, lists if r == 1 else None, dst=1, group=g)
        mine: list[Any] = [None]
        c.scatter_object_list(mine, [f"to {i}" for i in range(n)] if r == 2 else None, 2, g)
        parts: list[Any] = [None, None]
        if r == 0:
            c.send_object_list(["a", (1, 2)], 1, g)
        elif r == 1:
            assert c.recv_object_list(parts, 0, g) == 0
        c.monitored_barrier(g, timedelta(seconds=20))
        assert vars(g.transport)["timeout"] == 20
        return lists, mine, parts
    out = each(3, body)
    assert out[1][0] == [{"rank": 0}, {"rank": 1}, {"rank": 2}] and out[0][0] == [None] * 3
    assert [o[1] for o in out] == [["to 0"], ["to 1"], ["to 2"]]
    assert out[1][2] == ["a", (1, 2)]


def test_a_monitored_barrier_names_who_is_late() -> None:
    def body(g: ProcessGroup) -> Any:
        if g.rank():
            time.sleep(0.5)
            return None
        ad.distributed.monitored_barrier(g, timedelta(seconds=0.1))
    late = ranks(2, body)[0]
    assert isinstance(late, DistributedError)
    assert "monitored_barrier: rank 0 waited 0.1 s" in str(late)


def test_questions_about_backends_and_subgroups(tmp_path: Path, monkeypatch: Any) -> None:
    d: Any = ad.distributed
    assert d.is_backend_available("Gloo") and not d.is_backend_available("nccl")
    assert not d.is_ucc_available() and not d.is_xccl_available()
    assert d.get_default_backend_for_device(ad.device("cpu")) == "gloo"
    assert issubclass(d.DistError, RuntimeError)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert d.get_node_local_rank(3) == 3
    monkeypatch.setenv("LOCAL_RANK", "2")
    assert d.get_node_local_rank(3) == 2
    d.init_process_group("gloo", init_method=(tmp_path / "f").as_uri(), rank=0, world_size=1)
    try:
        mine, every = d.new_subgroups(1)
        assert every == [mine] and mine.ranks == [0]
        for call, words in [
                (lambda: d.new_subgroups(2), "must not exceed the world size"),
                (lambda: d.gather_object(1), "must be specified on destination rank"),
                (lambda: d.scatter_object_list([], [1]), "list of size at least 1"),
                (lambda: d.send_object_list([1], 0), "should not be the same as the rank"),
                (lambda: d.P2POp(d.send, ad.ones(1), 0), "Invalid ``op``"),
                (lambda: d.batch_isend_irecv([3]), "Invalid ``p2p_op_list``")]:
            with pytest.raises(ValueError, match=words):
                call()
        with pytest.raises(TypeError, match="datetime.timedelta"):
            d.monitored_barrier(timeout=3)
    finally:
        d.destroy_process_group()
