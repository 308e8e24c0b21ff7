"""Stores that processes share, groups that meet through them, hooks of data parallel gradients,
grids of ranks, the older launcher."""
from __future__ import annotations

import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from test_distributed import each, free_port, in_threads

import adjoint as ad
from adjoint.distributed import DistributedError
from adjoint.distributed import collectives as c
from adjoint.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
from adjoint.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from adjoint.distributed.group import ProcessGroup, _by_store
from adjoint.distributed.transport import Sockets


@pytest.mark.parametrize("kind", ["hash", "file", "tcp", "prefix"])
def test_stores(kind: str, tmp_path: Path) -> None:
    made = {"hash": ad.distributed.HashStore,
            "file": lambda: ad.distributed.FileStore(str(tmp_path / "keys"), 1),
            "tcp": lambda: ad.distributed.TCPStore("127.0.0.1", 0, 1, True),
            "prefix": lambda: ad.distributed.PrefixStore("of", ad.distributed.HashStore())}
    store = made[kind]()
    store.set("a", "1")
    assert (store.get("a"), store.add("n", 3), store.add("n", 2), store.get("n")) == (
        b"1", 3, 5, b"5")
    assert store.check(["a", "n"]) and not store.check(["a", "none"])
    assert [store.compare_set("k", *pair) for pair in (("x", "y"), ("", "v"), ("v", "w"),
                                                       ("x", "y"))] == [b"x", b"v", b"w", b"w"]
    store.multi_set(["p", "q"], ["2", b"\x00\xff"])
    store.append("p", "3")
    assert store.multi_get(["p", "q"]) == [b"23", b"\x00\xff"]
    assert store.num_keys() == (6 if kind == "tcp" else 5)          # there the processes are one
    assert store.delete_key("a") and not store.delete_key("a")
    store.set_timeout(timedelta(milliseconds=30))
    for late in (lambda: store.get("never"),
                 lambda: store.wait(["p", "never"], timedelta(milliseconds=10))):
        with pytest.raises(DistributedError, match="wait timeout after .*ms, keys: .*never"):
            late()
    store.set_timeout(timedelta(seconds=10))
    threading.Timer(0.05, store.set, ("late", "x")).start()
    if kind == "tcp":       # one connection asks one question at a time
        store = ad.distributed.TCPStore("127.0.0.1", store.port)
    assert store.get("late") == b"x"


def test_a_store_behind_a_port_waits_for_its_processes() -> None:
    with pytest.raises(DistributedError, match="1/2 clients joined"):
        ad.distributed.TCPStore("127.0.0.1", 0, 2, True, timeout=timedelta(milliseconds=50))
    with pytest.raises(DistributedError, match="failed to connect"):
        ad.distributed.TCPStore("127.0.0.1", free_port(), timeout=timedelta(milliseconds=50))


def test_ranks_find_each_other_by_a_store() -> None:
    store, n = ad.distributed.HashStore(), 2
    found: list[Any] = [None] * n

    def run(rank: int) -> None:
        transport = Sockets(*_by_store(ad.distributed.PrefixStore("x", store), rank, n), 20)
        t = ad.full((2,), float(rank + 1))
        g = ProcessGroup(transport, list(range(n)), "gloo")
        c.broadcast(t, group=g, group_src=1)
        found[rank] = t.tolist()
        transport.close()
    in_threads(n, run)
    assert found == [[2.0, 2.0]] * n


def test_roots_by_their_place_in_a_group(tmp_path: Path) -> None:
    dist = ad.distributed
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "s"), 1), rank=0,
                            world_size=1)
    try:
        x, out = ad.arange(3.0), [ad.zeros(3)]
        dist.reduce(x, group_dst=0)
        dist.gather(x, out, group_dst=0)
        dist.scatter(out[0], [x + 1], group_src=0)
        assert out[0].tolist() == [1.0, 2.0, 3.0]
        objects = [1]
        dist.broadcast_object_list(objects, group_src=0)
        for call, said in (
                (lambda: dist.broadcast(x), "Must specify global_rank or group_rank"),
                (lambda: dist.broadcast(x, 0, group_src=0), "Can't specify both"),
                (lambda: dist.reduce(x, group_dst=3), "has no place 3"),
                (lambda: dist.send(x, 0), "Invalid destination rank"),
                (lambda: dist.recv(x, group_src=0), "Invalid source rank"),
                (lambda: dist.init_process_group("gloo"), "twice"),
                (lambda: dist.all_reduce(x, op=dist.ReduceOp.BAND), "non-integral dtype"),
                (lambda: dist.all_reduce(x.long(), op=dist.ReduceOp.AVG), "desired output type"),
                (lambda: dist.all_reduce(x.to(ad.complex64), op=dist.ReduceOp.MAX), "complex")):
            with pytest.raises((ValueError, RuntimeError), match=said):
                call()
        assert x.tolist() == [0.0, 1.0, 2.0]
    finally:
        dist.destroy_process_group()


def test_hooks_say_what_becomes_of_gradients() -> None:
    """Two ranks: the mean by every hook, what a hook of one's own makes, one hook alone."""
    def body(g: ProcessGroup) -> Any:
        found: list[Any] = []
        made = [None, hooks.allreduce_hook, hooks.fp16_compress_hook, hooks.bf16_compress_hook,
                hooks.fp16_compress_wrapper(hooks.allreduce_hook), noop_hook]
        for hook in made:
            net = ad.nn.Linear(2, 1)
            ddp = ad.nn.parallel.DistributedDataParallel(net, process_group=g)
            if hook is not None:
                ddp.register_comm_hook(g, hook)
            ddp(ad.full((1, 2), float(g.rank() + 1))).sum().backward()
            found.append((net.weight.grad.tolist(), net.weight.grad.dtype == ad.float32))
        seen: list[Any] = []

        def mine(state: str, bucket: ad.distributed.GradBucket) -> ad.futures.Future:
            seen.append((state, bucket.index(), bucket.is_last(), len(bucket.parameters()),
                         [list(part.shape) for part in bucket.gradients()]))
            future = ad.futures.Future()
            future.set_result(bucket.buffer() * 5)
            return future
        net = ad.nn.Linear(2, 1)
        ddp = ad.nn.parallel.DistributedDataParallel(net, process_group=g)
        ddp.register_comm_hook("state", mine)
        with ddp.no_sync():
            ddp(ad.ones(1, 2)).sum().backward()
        ddp(ad.ones(1, 2)).sum().backward()
        for hook, said in ((mine, "only be called once"), (3, "must be callable")):
            with pytest.raises((RuntimeError, TypeError), match=said):
                ddp.register_comm_hook(None, hook)
        return found, net.weight.grad.tolist(), seen
    for rank, (found, grad, seen) in enumerate(each(2, body)):
        mean = ([[1.5, 1.5]], True)
        assert found == [mean] * 5 + [([[rank + 1.0, rank + 1.0]], True)]
        assert grad == [[10.0, 10.0]] and seen == [("state", 0, True, 2, [[1, 2], [1]])]


def test_ranks_as_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    from adjoint.distributed import device_mesh
    world = ProcessGroup(Sockets("", 0, 4, 1, 1), list(range(6)), "gloo")
    monkeypatch.setattr(sys.modules["adjoint.distributed.group"], "_world", world)
    grid = device_mesh.init_device_mesh("cpu", (2, 3), mesh_dim_names=("data", "model"))
    assert (grid.ndim, grid.shape, grid.size(), grid.size(1)) == (2, (2, 3), 6, 3)
    assert grid.mesh.tolist() == [[0, 1, 2], [3, 4, 5]] and grid.get_rank() == 4
    assert grid.get_coordinate() == (1, 1) and grid.get_local_rank("model") == 1
    assert grid.get_group("data").ranks == [1, 4] and grid.get_group(1).ranks == [3, 4, 5]
    assert grid["model"].mesh.tolist() == [3, 4, 5] and grid["model"].get_local_rank() == 1
    assert grid["model", "data"].mesh.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert grid["model", "data"].get_group("data") is grid.get_group("data")
    assert repr(grid["data"]) == "DeviceMesh((data=2), 'cpu')"
    assert grid == device_mesh.DeviceMesh("cpu", grid.mesh, mesh_dim_names=("data", "model"))
    assert device_mesh.DeviceMesh("cpu", [0, 1]).get_coordinate() is None
    line = device_mesh.DeviceMesh.from_group(grid.get_group("data"), "cpu")
    assert line.mesh.tolist() == [1, 4] and line.get_group() is grid.get_group("data")
    for kind, call in (
            (RuntimeError, lambda: device_mesh.init_device_mesh("cpu", (7,))),
            (RuntimeError, lambda: device_mesh.init_device_mesh("cpu", (6,), mesh_dim_names="ab")),
            (RuntimeError, lambda: device_mesh.init_device_mesh("cpu", (6, 1),
                                                                mesh_dim_names=("a", "a"))),
            (RuntimeError, lambda: device_mesh.init_device_mesh("cpu:0", (6,))),
            (RuntimeError, grid.get_local_rank), (KeyError, lambda: grid["none"]),
            (KeyError, lambda: grid.get_group("none"))):
        with pytest.raises(kind):
            call()


@pytest.mark.parametrize("asked", [[], ["--use-env"]])
def test_the_older_launcher_tells_the_script_its_place(
        asked: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from adjoint.distributed import launch
    script = tmp_path / "s.py"
    script.write_text("import os, sys\nprint(os.environ['LOCAL_RANK'], *sys.argv[1:])\n")
    assert launch.main(["--nproc_per_node", "2", *asked, str(script), "--use-env", "x"]) == 0
    rank = [] if asked else [f"--local-rank={i}" for i in range(2)]
    assert sorted(capfd.readouterr().out.splitlines()) == [
        " ".join([str(i), *rank[i:i + 1], "--use-env", "x"]) for i in range(2)]
