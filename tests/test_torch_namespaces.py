"""Namespaces of PyTorch that are small here: jit, onnx, hub, multiprocessing, random, types."""
import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

import adjoint as ad
from adjoint import multiprocessing as mp


def test_jit_marks_change_nothing_and_compilers_say_that_there_is_none():
    def f(x):
        return x + 1
    for mark in (ad.jit.script, ad.jit.unused, ad.jit.export, ad.jit.ignore,
                 ad.jit.ignore(drop=True), ad.jit.script_if_tracing):
        assert mark(f) is f
    model = ad.nn.Linear(2, 2)
    assert ad.jit.script(model) is model and not ad.jit.is_scripting()
    assert ad.jit.annotate(list, [1]) == [1] and not ad.jit.is_tracing()
    for call in (lambda: ad.jit.load("x"), lambda: ad.jit.save(model, "x")):
        with pytest.raises(NotImplementedError, match="there is no TorchScript here; "):
            call()


def test_jit_freezes_and_forks():
    model = ad.nn.Sequential(ad.nn.Linear(2, 2), ad.nn.ReLU())
    with pytest.raises(RuntimeError, match="modules in eval mode"):
        ad.jit.freeze(model)
    frozen, x = ad.jit.freeze(model.eval()), ad.ones(1, 2)
    assert frozen is not model and model(x).requires_grad and not frozen(x).requires_grad
    with ad.no_grad():
        model[0].weight.add_(1)
    assert frozen(x).equal(model(x))
    assert ad.jit.freeze(model, preserve_parameters=True)(x).requires_grad
    assert ad.jit.wait(ad.jit.fork(lambda a, b: a + b, 2, b=3)) == 5
    assert ad.jit.Attribute(1, int).value == 1


def test_jit_trace_runs_the_model_on_its_examples_and_gives_it_back():
    model, seen = ad.nn.Linear(2, 2), []
    model.register_forward_hook(lambda m, args, out: seen.append(tuple(out.shape)))
    assert ad.jit.trace(model, ad.ones(2), check_trace=False) is model
    assert ad.jit.trace(model, (ad.ones(3, 2),), check_inputs=[(ad.ones(4, 2),)]) is model
    assert ad.jit.trace(model, example_kwarg_inputs={"input": ad.ones(5, 2)}) is model
    assert ad.jit.trace_module(model, {"forward": ad.ones(6, 2)}) is model
    assert seen == [(2,), (3, 2), (3, 2), (4, 2), (4, 2), (5, 2), (5, 2), (6, 2), (6, 2)]
    with pytest.raises(RuntimeError, match="shape"):
        ad.jit.trace(model, ad.ones(3))
    with pytest.raises(ValueError, match="example_inputs or example_kwarg_inputs"):
        ad.jit.trace(model)
    with pytest.warns(UserWarning, match="two runs on the same example gave different results"):
        ad.jit.trace(ad.nn.Dropout(), ad.ones(100))

    def nested(x):
        return {"a": [x.to(ad.bfloat16)], "b": (x, 1)}
    assert ad.jit.trace(nested, ad.ones(2)) is nested


def test_benchmark_measures_and_compares(capsys):
    from adjoint.utils import benchmark
    clock = iter(range(10**9))
    fixed = benchmark.Timer("seen.append(1)", globals={"seen": (seen := [])}, label="fixed",
                            sub_label="one", description="here", timer=lambda: float(next(clock)))
    m = fixed.timeit(200)
    assert len(seen) == 202 and m.number_per_run == 200 and m.times == [1 / 200]
    assert m.median == m.mean == 1 / 200 and m.iqr == 0 and not m.has_warnings
    assert "fixed: one\nhere\n  5.00 ms\n  1 measurement, 200 runs , 1 thread" in repr(m)
    more = benchmark.Measurement(10, [0.1, 0.2, 0.3, 0.4], m.task_spec)
    assert more.median == pytest.approx(0.025) and more.iqr == pytest.approx(0.015)
    assert more.has_warnings and "WARNING: Interquartile range is 60.0%" in repr(more)
    merged, = benchmark.Measurement.merge([m, more])
    assert merged.times == pytest.approx([0.005, 0.01, 0.02, 0.03, 0.04])
    real = benchmark.Timer("torch.add(x, 1)", "x = torch.ones(8)", description="there",
                           label="fixed", sub_label="two", num_threads=2)
    blocked = real.blocked_autorange(min_run_time=0.02)
    assert sum(blocked.raw_times) >= 0.02 and 0 < blocked.median < 1e-2
    before = ad.get_num_threads()
    assert real.adaptive_autorange(threshold=10.0, max_run_time=0.5).number_per_run >= 1
    assert ad.get_num_threads() == before
    table = benchmark.Compare([m])
    table.extend_results([blocked])
    table.trim_significant_figures()
    table.print()
    printed = capsys.readouterr().out
    assert "fixed" in printed and "1 threads: ---" in printed and "2 threads: ---" in printed
    assert "here" in printed and "there" in printed and "Times are in " in printed
    for bad, text in ((lambda: benchmark.Timer(print), "only a `str` stmt"),
                      (lambda: benchmark.Timer(language="c++"), "only statements in Python"),
                      (lambda: benchmark.Timer(num_threads=0), "num_threads must be positive"),
                      (lambda: real.autorange(), "blocked_autorange"),
                      (lambda: real.collect_callgrind(), "Callgrind")):
        with pytest.raises((ValueError, NotImplementedError), match=text):
            bad()


def test_onnx_export_raises_one_line():
    for f in (ad.onnx.export, ad.onnx._export, ad.onnx.dynamo_export):
        with pytest.raises(NotImplementedError, match="not exported to ONNX") as caught:
            f(ad.nn.Linear(1, 1), ad.ones(1), "m.onnx")
        assert "\n" not in str(caught.value)
    assert not ad.onnx.is_in_onnx_export()


def test_hub_reads_weights_and_runs_no_code(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    assert ad.hub.get_dir() == str(tmp_path / "home" / "hub")
    weights = {"w": ad.arange(3)}
    ad.save(weights, tmp_path / "plain.pth")
    digest = hashlib.sha256((tmp_path / "plain.pth").read_bytes()).hexdigest()
    source = tmp_path / f"net-{digest[:8]}.pth"
    os.rename(tmp_path / "plain.pth", source)
    for _ in range(2):                      # the second time from the folder
        got = ad.hub.load_state_dict_from_url(source.as_uri(), check_hash=True, progress=False)
        assert got["w"].tolist() == [0, 1, 2]
        source.unlink(missing_ok=True)
    again = tmp_path / "again.bin"
    again.write_bytes(b"abc")
    with pytest.raises(RuntimeError, match="invalid hash value"):
        ad.hub.download_url_to_file(again.as_uri(), tmp_path / "out", "0000")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.bin", "home"]
    for f in (ad.hub.load, ad.hub.list, ad.hub.help):
        with pytest.raises(NotImplementedError, match="code from repositories"):
            f("owner/name", "model")
    ad.hub.set_dir(tmp_path / "other")
    try:
        assert ad.hub.get_dir() == str(tmp_path / "other")
    finally:
        ad.hub._directory.clear()


def test_random_and_types():
    ad.random.manual_seed(3)
    state = ad.random.get_rng_state()
    first = ad.rand(2)
    ad.random.set_rng_state(state)
    assert ad.rand(2).equal(first) and ad.random.initial_seed() == 3
    with ad.random.fork_rng():
        ad.rand(5)
    assert isinstance(3.0, ad.types.Number) and ad.types.Tensor is ad.Tensor
    assert isinstance(ad.device("cpu"), ad.types.Device)


def double(rank, folder, tensor):
    np.save(os.path.join(folder, f"{rank}.npy"), (tensor * (rank + 1)).numpy())


def fail(rank):
    if rank == 1:
        raise ValueError("rank one is unwell")


def leave(rank):
    os._exit(7)


def send(queue, tensor):
    queue.put(tensor * 2)


def test_spawn_runs_waits_and_tells_what_failed(tmp_path):
    assert mp.spawn(double, (str(tmp_path), ad.ones(2)), nprocs=2) is None
    assert [np.load(tmp_path / f"{i}.npy").tolist() for i in (0, 1)] == [[1, 1], [2, 2]]
    with pytest.raises(mp.ProcessRaisedException, match="rank one is unwell") as caught:
        mp.spawn(fail, nprocs=2)
    assert caught.value.error_index == 1
    with pytest.raises(mp.ProcessExitedException, match="exit code 7") as gone:
        mp.spawn(leave)
    assert gone.value.exit_code == 7
    with pytest.raises(ValueError, match="nprocs must be at least 1"):
        mp.spawn(leave, nprocs=0)


def test_tensors_travel_through_queues_as_copies():
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    x = ad.arange(3)
    p = context.Process(target=send, args=(queue, x))
    p.start()
    assert queue.get().tolist() == [0, 2, 4] and x.tolist() == [0, 1, 2]
    p.join()
    assert p.exitcode == 0 and mp.get_sharing_strategy() == "copy"
    mp.set_sharing_strategy("file_system")
    with pytest.raises(ValueError, match="unknown sharing strategy"):
        mp.set_sharing_strategy("telepathy")


def test_importing_the_package_loads_none_of_them():
    code = ("import sys, adjoint\n"
            "print([m for m in ('amp','distributions','sparse','special','jit','onnx','hub',"
            "'multiprocessing','interop') if 'adjoint.' + m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_elements_of_a_storage_are_written():
    x = ad.arange(4.0)
    x[2:].storage()[1] = 9.0
    x.untyped_storage()[3] = 63                # the last byte of the first float32, little-endian
    assert x.tolist() == [0.5, 9.0, 2.0, 3.0]


def test_checks_of_arguments():
    assert ad._check(True) is ad._check_is_size(3) is None
    assert ad._check_tensor_all(ad.tensor([True])) is None
    for check, kind in ((ad._check, RuntimeError), (ad._check_index, IndexError),
                        (ad._check_value, ValueError), (ad._check_type, TypeError),
                        (ad._check_not_implemented, NotImplementedError)):
        with pytest.raises(kind, match="^too wide$"):
            check(False, lambda: "too wide")
    with pytest.raises(RuntimeError, match="Expected cond to be True, but got False"):
        ad._check_is_size(3, max=2)
    with pytest.raises(KeyError, match="no"):
        ad._check_tensor_all_with(KeyError, ad.tensor([True, False]), lambda: "no")
    for call, text in ((lambda: ad._check(ad.tensor(True)), "cond must be a bool, but got a T"),
                       (lambda: ad._check(True, "text"), "message must be a callable"),
                       (lambda: ad._check_tensor_all(True), "cond must be a tensor"),
                       (lambda: ad._check_tensor_all(ad.ones(1)), "must have dtype torch.bool")):
        with pytest.raises(TypeError, match=text):
            call()


def test_questions_about_cuda_devices_of_which_there_are_none():
    assert ad.cuda.default_generators == () and ad.cuda.get_arch_list() == []
    assert ad.cuda.memory_stats() == {} and not ad.cuda.is_tf32_supported()
    with ad.cuda.device(-1), ad.cuda.stream(None):
        pass
    for ask in (ad.cuda.mem_get_info, ad.cuda.current_stream, ad.cuda.get_rng_state,
                lambda: ad.cuda.device("cuda:0"), lambda: ad.cuda.stream(1)):
        with pytest.raises(RuntimeError, match="no CUDA device is available"):
            ask()
    assert ad.OutOfMemoryError is ad.cuda.OutOfMemoryError
    assert issubclass(ad.OutOfMemoryError, RuntimeError)


def test_nn_attention_needs_no_import() -> None:
    """`torch.nn.attention` is there once torch is imported; other absent names are named."""
    code = "import adjoint as t; print(t.nn.attention.SDPBackend.MATH.name); t.nn.nosuch"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)  # noqa: S603
    assert ran.stdout == "MATH\n" and "has no attribute 'nosuch'" in ran.stderr
