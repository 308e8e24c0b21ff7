"""Kernels of all kinds from eight Python threads at once, forks in the middle; thread counts."""
from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint.base.errors import ArgumentError
from adjoint.kernels import blas, llvm, threads

ROOT = Path(__file__).resolve().parents[1]
THREADS = 8


def draw(seed: int, *shape: int) -> ad.Tensor:
    return ad.tensor(np.random.default_rng(seed).standard_normal(shape, np.float32),
                     requires_grad=True)


def cases(seed: int) -> list[Callable[[], Any]]:
    """One training-like computation per family of kernels; each returns output and gradient."""
    x, w, bias = draw(seed, 65, 128), draw(seed + 1, 128, 128), draw(seed + 2, 128)
    q = draw(seed + 3, 2, 33, 16)
    image, filters = draw(seed + 4, 2, 3, 12, 12), draw(seed + 5, 4, 3, 3, 3)
    index = ad.tensor(np.random.default_rng(seed).integers(0, 65, 200))

    def run(f: Callable[[], ad.Tensor], leaf: ad.Tensor) -> Callable[[], Any]:
        def step() -> Any:
            y = f()
            g, = ad.autograd.grad(y.float().pow(2).sum(), [leaf])
            return y.detach().numpy(), g.numpy()
        return step
    return [run(lambda: F.gelu(x + bias), x), run(lambda: F.softmax(x, -1), x),
            run(lambda: F.layer_norm(x, (128,), bias, bias), x), run(lambda: F.linear(x, w), w),
            run(lambda: x.sum(0), x), run(lambda: F.embedding(index, x), x),
            run(lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True), q),
            run(lambda: F.max_pool2d(F.conv2d(image, filters), 2), filters)]


def fork_and_check(expected: list[Any], steps: list[Callable[[], Any]]) -> int:
    """In a child of fork every kernel gives the same bits; returns the exit status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of fork with threads
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if all(same(f(), e) for f, e in zip(steps, expected, strict=True)) else 3
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def stress(kernels: int, forks: int) -> None:
    """Each of eight threads runs `kernels` kernels; every result has the bits of a quiet run."""
    per_step = 4                    # at least: forward, pow, sum, backward
    turns = max(1, kernels // (per_step * len(cases(0))))
    quiet = {i: [f() for f in cases(10 * i)] for i in range(THREADS)}
    wrong: list[Any] = []

    def work(i: int) -> None:
        try:
            steps = cases(10 * i)
            for _ in range(turns):
                wrong.extend((i, k) for k, f in enumerate(steps) if not same(f(), quiet[i][k]))
        except BaseException as error:
            wrong.append(error)
    running = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    for t in running:
        t.start()
    steps = cases(0)
    codes = [fork_and_check(quiet[0], steps) for _ in range(forks)]
    for t in running:
        t.join(900)
    assert not any(t.is_alive() for t in running), "a kernel does not return"
    assert wrong == [] and codes == [0] * forks


# NumPy's OpenBLAS stops its threads when the process forks and waits for ever where another thread
# is inside a product; the generated kernels' pool does not, so forks belong to it alone.
can_fork = pytest.mark.skipif(not hasattr(os, "fork") or not llvm.available(),
                              reason="needs fork, and kernels that stand it")


def test_eight_threads() -> None:
    stress(200, forks=0)


@can_fork
def test_eight_threads_and_forks() -> None:
    stress(200, forks=3)


@pytest.mark.slow
@can_fork
def test_eight_threads_of_ten_thousand_kernels_and_forks() -> None:
    stress(10_000, forks=20)


def test_results_do_not_depend_on_when_they_are_computed() -> None:
    """Same bits for the same number of threads, run after run."""
    before = ad.get_num_threads()
    try:
        for n in (1, 2, 3):
            ad.set_num_threads(n)
            first = [f() for f in cases(3)]
            for _ in range(3):
                assert all(same(f(), e) for f, e in zip(cases(3), first, strict=True))
    finally:
        ad.set_num_threads(before)


def test_set_num_threads_reaches_both_pools() -> None:
    before = ad.get_num_threads()
    try:
        for n in (1, 3):
            ad.set_num_threads(n)
            assert ad.get_num_threads() == threads.get_num_threads() == n
            library = blas.library()
            assert library is None or library.get_num_threads() == n
        with blas.one_thread():
            ad.set_num_threads(2)
            library = blas.library()
            assert library is None or library.get_num_threads() == 1
        assert library is None or library.get_num_threads() == 2
    finally:
        ad.set_num_threads(before)


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", None, True])
def test_thread_counts_have_to_be_positive_integers(n: Any) -> None:
    fits = isinstance(n, int)
    for f in (ad.set_num_threads, ad.set_num_interop_threads):
        with pytest.raises(ArgumentError if fits else TypeError,
                           match="positive integer" if fits else "must be int, not"):
            f(n)


@pytest.mark.skipif(not llvm.available(), reason="needs llvmlite")
def test_empty_cache_returns_what_is_kept() -> None:
    code = ("import adjoint as ad, numpy as np\n"
            "x = ad.ones(1000, 1000); z = x.exp(); y = (x @ x).exp(); del y\n"
            "kept = ad.memory.memory_stats()['idle']\n"
            "print(kept > 0, ad.memory.empty_cache() >= kept, ad.memory.memory_stats()['idle'],\n"
            "      ad.memory.memory_allocated() >= 4_000_000,\n"
            "      ad.memory.max_memory_allocated() >= 12_000_000)\n"
            "ad.memory.reset_peak_memory_stats()\n"
            "print(ad.memory.max_memory_allocated() < 12_000_000)")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True,
                          check=True)
    assert done.stdout.split() == ["True", "True", "0", "True", "True", "True"]


def test_exit_with_threads_inside_kernels() -> None:
    """The interpreter ends while a daemon thread computes."""
    code = ("import adjoint as ad, threading\n"
            "x = ad.ones(400, 400)\n"
            "def work():\n"
            "    while True: (x @ x).exp().sum()\n"
            "for _ in range(3): threading.Thread(target=work, daemon=True).start()\n"
            "import time; time.sleep(0.3); print('end')")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True,
                          timeout=60)
    assert done.stdout == "end\n" and done.returncode == 0, (done.returncode, done.stderr)
