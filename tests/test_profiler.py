"""The profiler: events, averages, counts, traces, schedules (F91)."""
from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.kernels import alloc
from adjoint.nn import functional as F
from adjoint.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)


def row(prof: Any, key: str) -> Any:
    return next(r for r in prof.key_averages() if r.key == key)


def train_step(model: Any, optimizer: Any, x: Any) -> None:
    optimizer.zero_grad()
    F.mse_loss(model(x), x[:, :1]).backward()
    optimizer.step()


@pytest.fixture
def network() -> tuple[Any, Any, Any]:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    return model, ad.optim.SGD(model.parameters(), lr=0.1), ad.randn(8, 16)


@pytest.mark.row("F91")
def test_events_of_a_step(network: Any) -> None:
    with profile() as prof:
        train_step(*network)
    names = [e.name for e in prof.events()]
    forward = [n for n in names if n in ("aten::linear", "aten::relu", "aten::mse_loss")]
    assert forward == ["aten::linear", "aten::relu", "aten::linear", "aten::mse_loss"]
    assert names.index("MseLossBackward0") < names.index("ReluBackward0")
    assert "Optimizer.step#SGD.step" in names and "backward" in names
    assert row(prof, "aten::linear").count == 2
    assert row(prof, "AddmmBackward0").count == 2


@pytest.mark.row("F91")
def test_flops_and_bytes_are_those_of_the_records(network: Any) -> None:
    with profile() as prof:
        train_step(*network)
    assert row(prof, "aten::linear").flops == 2 * 8 * 16 * 32 + 2 * 8 * 32 * 1
    first = 8 * 16 + 16 * 32 + 32 + 8 * 32
    second = 8 * 32 + 32 + 1 + 8
    assert row(prof, "aten::linear").nbytes == 4 * (first + second)
    # the data wants no gradient: one product for the first layer, two for the second
    assert row(prof, "AddmmBackward0").flops == 2 * 8 * 16 * 32 + 2 * (2 * 8 * 32 * 1)
    a = row(prof, "aten::linear")
    np.testing.assert_allclose(a.gflops_per_second, a.flops / a.busy / 1e3)
    np.testing.assert_allclose(a.gbytes_per_second, a.nbytes / a.busy / 1e3)
    assert row(prof, "ReluBackward0").flops > 0


def test_pointwise_backward_counts_its_slopes() -> None:
    x = ad.randn(100, requires_grad=True)
    with profile() as prof:
        (x * 3).sum().backward()
    assert row(prof, "aten::mul").flops == 100
    assert row(prof, "MulBackward0").flops == 100


def test_nesting_and_self_time() -> None:
    x = ad.randn(4)
    with profile() as prof:
        with record_function("outer"):
            time.sleep(0.002)
            with record_function("inner", "args"):
                x * 2
    outer, inner, op = prof.events()
    assert (outer.name, inner.name, op.name) == ("outer", "inner", "aten::mul")
    assert [e.depth for e in (outer, inner, op)] == [0, 1, 2]
    assert outer.duration >= inner.duration >= op.duration > 0
    assert outer.self_cpu_time_total == outer.duration - inner.duration >= 1500
    assert abs(prof.key_averages().self_cpu_time_total - outer.duration) < 1e-6


def test_record_function_decorates_and_costs_nothing_outside() -> None:
    @record_function("work")
    def work(x: Any) -> Any:
        return x + 1

    work(ad.ones(2))
    with profile() as prof:
        work(ad.ones(2))
    assert [e.name for e in prof.events()] == ["work", "aten::add"]


def test_an_exception_closes_what_was_open() -> None:
    prof = profile()
    with pytest.raises(RuntimeError), prof:
        with record_function("broken"):
            ad.ones(2) @ ad.ones(3)
    assert all(e.duration >= 0 for e in prof.events())
    with profile() as again:
        ad.ones(2) * 2
    assert [e.name for e in again.events()] == ["aten::mul"]


def test_by_line_and_by_module(network: Any) -> None:
    with profile(with_stack=True, with_modules=True) as prof:
        train_step(*network)
    lines = {r.key for r in prof.by_line()}
    assert any(k.startswith(__file__) for k in lines)
    modules = {r.key: r for r in prof.by_module()}
    assert {"0", "1", "2", "(no module)"} <= set(modules)
    assert modules["0"].count == 2                    # forward and backward
    assert [e.module for e in prof.events() if e.kind == "module"] == ["", "0", "1", "2"]
    assert len(prof.key_averages(group_by_stack_n=1)) >= len(prof.key_averages())


def test_shapes_and_grouping(network: Any) -> None:
    with profile(record_shapes=True) as prof:
        train_step(*network)
    grouped = [r for r in prof.key_averages(group_by_input_shape=True) if r.key == "aten::linear"]
    assert sorted(r.input_shapes[1] for r in grouped) == [[1, 32], [32, 16]]
    assert "[8, 16]" in prof.key_averages(group_by_input_shape=True).table()


@pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
def test_memory_is_exact() -> None:
    x = ad.randn(1000)
    with profile(profile_memory=True) as prof:
        y = x * 2
        z = y.view(10, 100)
    assert row(prof, "aten::mul").self_cpu_memory_usage == 4000
    assert row(prof, "aten::view").self_cpu_memory_usage == 0
    assert len(prof.memory_timeline()) == 2 and z.shape == (10, 100)
    assert "3.91 KiB" in prof.key_averages().table()


def test_table(network: Any) -> None:
    with profile() as prof:
        train_step(*network)
    table = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=3, header="hello")
    lines = table.splitlines()
    assert lines[0] == "hello" and "Self CPU %" in lines[2] and "GFLOP/s" in lines[2]
    assert len([s for s in lines if s.startswith("---")]) == 3 and "more)" in table
    times = [r.self_cpu_time_total for r in prof.key_averages()]
    first = lines[4].split("  ")[0]
    assert row(prof, first).self_cpu_time_total == max(times)
    with pytest.raises(ArgumentError, match="self_time"):
        prof.key_averages().table(sort_by="self_time")
    total = prof.key_averages().total_average()
    assert total.count == len(prof.events())
    assert prof.key_averages().table(row_limit=-1) == str(prof.key_averages())


@pytest.mark.row("F91")
def test_chrome_trace(network: Any, tmp_path: Path) -> None:
    with profile(with_stack=True, record_shapes=True) as prof:
        prof.add_metadata("run", "one")
        prof.add_metadata_json("sizes", "[1, 2]")
        train_step(*network)
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    prof.export_chrome_trace(str(plain))
    prof.export_chrome_trace(str(packed))
    data = json.loads(plain.read_text())
    assert data == json.loads(gzip.decompress(packed.read_bytes()))
    assert data["run"] == "one" and data["sizes"] == [1, 2]
    spans = [e for e in data["traceEvents"] if e["ph"] == "X"]
    assert len(spans) == len(prof.events())
    for e in spans:
        assert {"name", "cat", "ts", "dur", "pid", "tid", "args"} <= set(e)
    starts = {e["id"] for e in data["traceEvents"] if e["ph"] == "s"}
    ends = {e["id"] for e in data["traceEvents"] if e["ph"] == "f"}
    assert starts == ends and len(starts) == 4
    linear = next(e for e in spans if e["name"] == "aten::linear")
    assert linear["args"]["Input Dims"][1] == [32, 16] and linear["args"]["FLOPs"] > 0


def test_schedule() -> None:
    f = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    names = ["NONE", "NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"]
    names += names[1:] + ["NONE", "NONE"]
    assert [f(i).name for i in range(11)] == names
    assert schedule(wait=0, warmup=0, active=1)(5) is ProfilerAction.RECORD_AND_SAVE
    with pytest.raises(ArgumentError, match="active=0"):
        schedule(wait=0, warmup=0, active=0)


def test_scheduled_recordings(tmp_path: Path) -> None:
    seen: list[tuple[int, list[str]]] = []
    x = ad.ones(3)
    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
                 on_trace_ready=lambda p: seen.append((p.step_num, [e.name for e in p.events()]))
                 ) as prof:
        for i in range(6):
            x * i
            prof.step()
    assert seen == [(4, ["ProfilerStep*", "aten::mul"] * 2)]
    assert prof.step_num == 6
    with profile(on_trace_ready=tensorboard_trace_handler(str(tmp_path), "worker",
                                                          use_gzip=True)):
        x * 2
    (name,) = os.listdir(tmp_path)
    assert name.startswith("worker.") and name.endswith(".pt.trace.json.gz")


def test_only_the_cpu_can_be_watched() -> None:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
        pass
    with pytest.raises(NotSupported, match="CUDA"):
        profile(activities=[ProfilerActivity.CUDA])


def test_nothing_stays_behind(network: Any) -> None:
    before = alloc.installed()
    with profile(profile_memory=True) as prof:
        pass
    train_step(*network)
    assert prof.events() == [] and alloc.installed() == before


def test_functions_transforms_and_graphs_of_graphs() -> None:
    x = ad.randn(5, requires_grad=True)
    with profile() as prof:
        (g,) = ad.autograd.grad((x**3).sum(), x, create_graph=True)
        g.sum().backward()
        ad.func.vmap(ad.func.grad(lambda v: (v * v).sum()))(ad.ones(2, 3))
    assert all(e.duration >= 0 for e in prof.events())
    assert sum(e.name == "backward" for e in prof.events()) >= 2


def test_events_nest_as_pytorchs_do() -> None:
    with profile(record_shapes=True, with_stack=True) as prof:
        with record_function("outer"):
            with record_function("inner"):
                ad.ones(3).exp()
            ad.ones(3).sin()
    outer, inner, exp, sin = prof.events()
    assert [e.cpu_parent for e in (outer, inner, exp, sin)] == [None, outer, inner, outer]
    assert outer.cpu_children == [inner, sin] and inner.cpu_children == [exp]
    assert [e.is_user_annotation for e in (inner, exp)] == [True, False]
    assert exp.input_shapes == [[3]] and exp.key == exp.name and exp.count == 1
    assert exp.time_range.elapsed_us() == pytest.approx(exp.cpu_time_total)
    assert exp.stack[0].startswith(f"{__file__}(") and exp.stack[0].endswith(
        "): test_events_nest_as_pytorchs_do")
    top = prof.events().table(top_level_events_only=True, time_unit="ms")
    assert "outer" in top and "inner" not in top and "us" not in top.splitlines()[3]


def test_times_of_devices_sort_nothing() -> None:
    with profile() as prof:
        ad.ones(3).exp()
        ad.ones(3).sin()
    rows = prof.key_averages()
    assert rows.table(sort_by="self_cuda_time_total") == rows.table()
    assert {r.device_time_total for r in rows} == {0.0}
    assert rows[0].cpu_time_str.endswith("s")


def test_stacks_are_lines_for_flame_graphs(tmp_path: Path) -> None:
    path = tmp_path / "stacks"
    with profile(with_stack=True) as prof:
        with record_function("slow"):
            time.sleep(0.002)
    prof.export_stacks(str(path), "self_cpu_time_total")
    ((frame, us),) = [line.rsplit(" ", 1) for line in path.read_text().splitlines()]
    assert frame.startswith(__file__) and int(us) >= 1500
    with pytest.raises(ArgumentError, match="metric should be one of"):
        prof.export_stacks(str(path), "count")
    with pytest.raises(AssertionError, match="requires with_stack=True"):
        profile().export_stacks(str(path))


def test_nothing_is_there_before_a_start() -> None:
    with pytest.raises(AssertionError, match="must be initialized"):
        profile().key_averages()
    older = ad.autograd.profiler.profile()
    assert repr(older).startswith("<unfinished")
    with older:
        pass
    with pytest.raises(RuntimeError, match="not reentrant"), older:
        pass


def test_recordings_add_up_where_asked() -> None:
    plan = schedule(wait=1, warmup=0, active=1, skip_first=1, skip_first_wait=1)
    assert [plan(i).name for i in range(4)] == ["NONE", "RECORD_AND_SAVE", "NONE",
                                                "RECORD_AND_SAVE"]
    counts = []
    for acc in (False, True):
        with profile(schedule=plan, acc_events=acc) as prof:
            for _ in range(4):
                ad.ones(2).exp()
                prof.step()
        counts.append(row(prof, "aten::exp").count)
    assert counts == [1, 2]
