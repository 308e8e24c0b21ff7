"""Under the kernels: the disk cache, the compiler, the thread pool, the allocator."""
from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.kernels import alloc, cache, llvm, threads

needs_jit = pytest.mark.skipif(not llvm.available(), reason="needs llvmlite")
posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX")
ROOT = Path(__file__).resolve().parents[1]
COUNT = """define void @f(ptr %p, i64 %lo, i64 %hi) {
  %n = sub i64 %hi, %lo
  %old = atomicrmw add ptr %p, i64 %n seq_cst
  ret void
}"""


def python(code: str, **env: str) -> str:
    """Run code in a fresh interpreter, warnings as errors; returns what it prints."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, text=True,
                          capture_output=True, timeout=120, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# -- cache -----------------------------------------------------------------------------------
KEY = cache.key_of("a key")
ENTRY = cache.Entry(("f", "g"), b"machine code")


@pytest.fixture
def store(tmp_path: Path) -> cache.Store:
    return cache.Store(tmp_path / "kernels", 1 << 20)


def test_cache_round_trip_in_a_private_directory(store: cache.Store) -> None:
    assert store.get(KEY) is None
    store.put(KEY, ENTRY)
    assert store.get(KEY) == ENTRY
    assert store.get(cache.key_of("another key")) is None
    if os.name == "posix":
        assert store.directory.stat().st_mode & 0o777 == 0o700
        assert store.path(KEY).stat().st_mode & 0o077 == 0
    assert [p.name for p in store.directory.iterdir()] == [store.path(KEY).name]


@pytest.mark.parametrize("damage", [
    lambda data: b"", lambda data: data[:-1], lambda data: b"x" + data,
    lambda data: data[:-3] + b"###", lambda data: data.replace(b"size", b"sise"),
    lambda data: b"adjoint-kernel-1\n{not json\n" + data[-12:]])
def test_damaged_file_is_ignored_with_a_warning_and_rebuilt(store: cache.Store,
                                                           damage: Any) -> None:
    store.put(KEY, ENTRY)
    path = store.path(KEY)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(cache.CacheWarning, match="damaged"):
        assert store.get(KEY) is None
    store.put(KEY, ENTRY)
    assert store.get(KEY) == ENTRY


def test_file_under_another_key_is_not_taken(store: cache.Store) -> None:
    store.put(KEY, ENTRY)
    other = cache.key_of("other")
    os.replace(store.path(KEY), store.path(other))
    with pytest.warns(cache.CacheWarning, match="damaged"):
        assert store.get(other) is None


@posix
def test_files_and_directories_that_others_may_write_are_refused(store: cache.Store,
                                                                tmp_path: Path) -> None:
    store.put(KEY, ENTRY)
    store.path(KEY).chmod(0o666)
    with pytest.warns(cache.CacheWarning, match="written by others"):
        assert store.get(KEY) is None
    open_directory = tmp_path / "open"
    open_directory.mkdir(mode=0o700)
    open_directory.chmod(0o755)
    with pytest.warns(cache.CacheWarning, match="not private"):
        assert not cache.Store(open_directory, 1).usable()
    link = tmp_path / "link"
    link.symlink_to(store.directory)
    with pytest.warns(cache.CacheWarning, match="link"):
        assert not cache.Store(link, 1).usable()


@posix
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["directory", "pipe"])
def test_what_is_no_file_is_refused(store: cache.Store, make: Any) -> None:
    store.put(KEY, ENTRY)
    store.path(KEY).unlink()
    make(store.path(KEY))
    with pytest.warns(cache.CacheWarning, match="it is no file"):
        assert store.get(KEY) is None
    store.put(KEY, ENTRY)               # (a pipe is replaced, a directory stays)
    assert not [p for p in store.directory.iterdir() if p.name.startswith(".")]


@needs_jit
def test_users_see_the_warning(tmp_path: Path) -> None:
    """The package's filter of NumPy's warnings does not hide those of the cache."""
    code = "import adjoint as ad\nx = ad.ones(300, 300)\nprint(float(x.exp().sum() > 0))"
    where = tmp_path / "cache"
    assert python(code, ADJOINT_CACHE_DIR=str(where)) == "1.0"
    for path in where.iterdir():
        path.write_bytes(b"")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True,
                          env={**os.environ, "ADJOINT_CACHE_DIR": str(where)})
    assert done.stdout == "1.0\n" and "is damaged; it is built again" in done.stderr
    assert "<string>:3: CacheWarning" in done.stderr
    where.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True,
                          env={**os.environ, "ADJOINT_CACHE_DIR": str(where)})
    assert done.stdout == "1.0\n" and "it has to be yours with mode 0700" in done.stderr


def test_what_killed_writers_left_goes(store: cache.Store) -> None:
    store.put(KEY, ENTRY)
    old, new = (store.directory / f".{name}.part" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    store.prune()
    assert not old.exists() and new.exists() and store.get(KEY) == ENTRY


def test_the_directory_may_go_meanwhile(store: cache.Store) -> None:
    store.put(KEY, ENTRY)
    store.path(KEY).unlink()
    store.directory.rmdir()
    assert store.files() == [] and store.clear() == 0 and store.get(KEY) is None
    store.put(KEY, ENTRY)


def test_sizes_that_are_no_number_and_users_without_a_home(tmp_path: Path) -> None:
    assert python("from adjoint.kernels import llvm; print(llvm.store().limit)",
                  ADJOINT_CACHE_MB="much", ADJOINT_CACHE_DIR=str(tmp_path)) == str(256 << 20)
    code = ("import os; from pathlib import Path\n"
            "def home(): raise RuntimeError('Could not determine home directory.')\n"
            "Path.home = home\n"
            "from adjoint.kernels import cache\n"
            "print(cache.Store(cache.default_directory(), 1).usable())")
    assert python(code, ADJOINT_CACHE_DIR="", XDG_CACHE_HOME="") == "False"


@posix
def test_a_link_in_place_of_a_file_is_refused(store: cache.Store, tmp_path: Path) -> None:
    store.put(KEY, ENTRY)
    moved = tmp_path / "moved"
    os.replace(store.path(KEY), moved)
    store.path(KEY).symlink_to(moved)
    with pytest.warns(cache.CacheWarning, match="cannot be read"):
        assert store.get(KEY) is None


def test_cache_stays_within_its_bound_and_drops_the_oldest(tmp_path: Path) -> None:
    store = cache.Store(tmp_path / "k", 5000)
    keys = [cache.key_of(str(i)) for i in range(8)]
    for i, key in enumerate(keys):
        store.put(key, cache.Entry(("f",), bytes(1000)))
        os.utime(store.path(key), (i, i)) if store.path(key).exists() else None
    left = [store.path(k).exists() for k in keys]
    assert sum(size for _, size, _ in store.files()) <= 5000
    assert left[-1] and not left[0]
    assert store.clear() == sum(left) and store.files() == []


def test_files_are_counted_after_many_bytes(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, counted = cache.Store(tmp_path / "k", 1 << 20), []
    monkeypatch.setattr(store, "prune", lambda: counted.append(True))
    keys = [k for i in range(200) if not (k := cache.key_of(str(i))).startswith("00")]
    for key in keys[:16]:
        store.put(key, cache.Entry(("f",), bytes(1000)))       # 16 kB and a little of 64
    assert not counted
    for key in keys[16:80]:
        store.put(key, cache.Entry(("f",), bytes(1000)))
    assert len(counted) == 1
    store.put("00" + keys[0][2:], ENTRY)
    assert len(counted) == 2


def test_unwritable_cache_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = cache.Store(tmp_path / "file" / "kernels", 1 << 20)
    store.put(KEY, ENTRY)
    assert store.get(KEY) is None and store.files() == []


# -- compiler --------------------------------------------------------------------------------
@needs_jit
def test_second_process_takes_kernels_from_the_cache(tmp_path: Path) -> None:
    code = ("from adjoint.kernels import llvm;"
            "m = llvm.compile_ir('define i64 @f() {\\n ret i64 7\\n}', name='f');"
            "import ctypes; print(m.from_cache, ctypes.CFUNCTYPE(ctypes.c_int64)"
            "(m.address('f'))())")
    where = str(tmp_path / "cache")
    assert python(code, ADJOINT_CACHE_DIR=where, ADJOINT_CPU="") == "False 7"
    assert python(code, ADJOINT_CACHE_DIR=where, ADJOINT_CPU="") == "True 7"
    if "avx2" in llvm.host_features():
        assert python(code, ADJOINT_CACHE_DIR=where, ADJOINT_CPU="x86-64-v3") == "False 7"


@needs_jit
def test_object_that_does_not_link_is_rebuilt(tmp_path: Path, monkeypatch: Any) -> None:
    store = cache.Store(tmp_path / "k", 1 << 20)
    monkeypatch.setattr(llvm, "store", lambda: store)
    text = f"define i64 @f() {{\n ret i64 {time.monotonic_ns()}\n}}"
    llvm.compile_ir(text, name="f")
    (path,) = store.directory.iterdir()
    store.put(path.stem, cache.Entry(("f",), b"no object code at all"))
    llvm._modules.clear()
    assert not llvm.compile_ir(text, name="f").from_cache


@needs_jit
def test_linked_functions_are_found_anew_by_cached_code(tmp_path: Path, monkeypatch: Any) -> None:
    """Object code that calls another module holds no address of it: the next process has others."""
    store = cache.Store(tmp_path / "k", 1 << 20)
    monkeypatch.setattr(llvm, "store", lambda: store)
    parts = [llvm.compile_ir(f"define i64 @part() {{\n ret i64 {n}\n}}", name="part")
             for n in (70, 80)]
    text = ("declare i64 @part()\ndefine i64 @whole() {\n %x = call i64 @part()\n"
            " %y = add i64 %x, 1\n ret i64 %y\n}")
    found = []
    for part in parts:
        llvm._modules.clear()
        whole = llvm.compile_spec(("ir", text), lambda: text, name="whole",
                                  links={"part": part.address("part")})
        call = ctypes.CFUNCTYPE(ctypes.c_int64)(whole.address("whole"))
        found.append((whole.from_cache, call()))
    assert found == [(False, 71), (True, 81)]


@needs_jit
def test_kernels_of_products_share_their_parts(tmp_path: Path) -> None:
    """Packing, register tiles and windows are compiled once, for all kernels that call them."""
    code = ("import numpy as np, adjoint as ad\n"
            "from adjoint.kernels import gemm, llvm\n"
            "gemm._MODE = 'generated'\n"
            "x = ad.ones(40, 50, requires_grad=True)\n"
            "ad.nn.functional.linear(x, ad.ones(60, 50), ad.ones(60)).sum().backward()\n"
            "image = ad.ones(2, 8, 9, 9, requires_grad=True)\n"
            "w = ad.ones(8, 8, 3, 3, requires_grad=True)\n"
            "ad.nn.functional.conv2d(image, w, ad.ones(8)).sum().backward()\n"
            "q = ad.ones(1, 2, 40, 16, requires_grad=True)\n"
            "ad.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()\n"
            "assert float(x.grad[0, 0]) == 60 and float(w.grad[0, 0, 0, 0]) == 98\n"
            "names = [m.name for m in llvm.loaded()]\n"
            "parts = 'pack', 'micros', 'windows', 'attention tiles'\n"
            "print(*(names.count(n) for n in (*parts, 'attention forward')), names.count('conv'))\n"
            "print(*(m.from_cache for m in llvm.loaded() if m.name in parts))")
    where = str(tmp_path / "cache")
    for cached in "False", "True":
        counts, origin = python(code, ADJOINT_CACHE_DIR=where).splitlines()
        assert counts[:9] == "1 1 1 1 1" and int(counts[10:]) >= 2, counts
        assert set(origin.split()) == {cached}


@needs_jit
def test_bad_ir_names_the_kernel() -> None:
    with pytest.raises(RuntimeError, match="kernel broken: the generated IR is not valid"):
        llvm.compile_ir("define i64 @f( {", name="broken")


@needs_jit
def test_module_knows_its_symbols() -> None:
    module = llvm.compile_ir("define internal i64 @hidden() {\n ret i64 1\n}\n"
                             "define i64 @seen() {\n %x = call i64 @hidden()\n ret i64 %x\n}",
                             name="two")
    assert module.symbols == ("seen",)
    with pytest.raises(KeyError):
        module.address("hidden")
    assert module in list(llvm.loaded()) and "two" in repr(module)


def test_switched_off_or_missing_everything_still_imports() -> None:
    code = ("{}from adjoint.kernels import choose, llvm, threads, alloc, loops;"
            "assert not llvm.available() and llvm.host_features() == frozenset();"
            "assert choose.lookup('softmax') is None and not alloc.install();"
            "threads.parallel_python(lambda a, b: None, 3);"
            "f = choose.hybrid('f', ['x'], [__import__('adjoint').kernels.expr.var('x') * 2]);"
            "import numpy as np; assert f(np.ones(100000)).sum() == 200000;"
            "print(choose.report()['kernels'])")
    assert python(code.format(""), ADJOINT_JIT="0") == "NumPy"
    assert python(code.format("import sys; sys.modules['llvmlite'] = None;")) == "NumPy"


def test_compiling_without_llvm_says_what_to_do(monkeypatch: Any) -> None:
    monkeypatch.setitem(llvm._state, "available", False)
    with pytest.raises(NotSupported, match="adjoint\\[jit\\]"):
        llvm.compile_ir("", name="x")


# -- threads ---------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def counter() -> int:
    return llvm.compile_ir(COUNT, name="count").address("f")


def run_chunks(address: int, chunks: int) -> int:
    total = ctypes.c_int64(0)
    threads.parallel(address, ctypes.addressof(total), chunks)
    return total.value


@needs_jit
def test_every_chunk_runs_once(counter: int) -> None:
    for chunks in (0, 1, 2, 3, 7, 1000, 10**6):
        assert run_chunks(counter, chunks) == chunks


@needs_jit
def test_number_of_threads(counter: int) -> None:
    before = threads.get_num_threads()
    try:
        for n in (1, 4, 2, 3):
            threads.set_num_threads(n)
            assert threads.get_num_threads() == n
            assert all(run_chunks(counter, 64) == 64 for _ in range(50))
    finally:
        threads.set_num_threads(before)
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ArgumentError, match="positive"):
            threads.set_num_threads(bad)  # type: ignore[arg-type]


@needs_jit
@posix
def test_many_threads_and_forks_in_the_middle(counter: int) -> None:
    alloc.install()
    failures: list[str] = []

    def work(seed: int) -> None:
        alloc.ensure()
        for i in range(1500):
            if run_chunks(counter, 5 + seed) != 5 + seed:
                failures.append(f"thread {seed} turn {i}")
            a = np.full(1 + (i * 37 + seed) % 3000, seed)
            if not (a == seed).all():
                failures.append("memory")
    running = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in running:
        t.start()
    for _ in range(4):
        assert os.waitpid(_fork(counter), 0)[1] == 0
    for t in running:
        t.join(60)
    assert not failures and not any(t.is_alive() for t in running)


def _fork(counter: int) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of fork with threads
        pid = os.fork()
    if pid == 0:
        good = all(run_chunks(counter, 64) == 64 for _ in range(200)) and threads.native()
        good = good and np.ones(5000).sum() == 5000
        os._exit(0 if good else 1)
    return pid


@needs_jit
def test_few_light_chunks_stay_with_the_caller() -> None:
    """Their number of calls says it: one range, where a pool hands out several."""
    text = COUNT.replace("i64 %n seq_cst", "i64 1 seq_cst")          # counts calls
    calls = llvm.compile_ir(text, name="calls").address("f")
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        threads.light_entry())
    for chunks, alone in ((1, True), (threads._LIGHT - 1, True), (10 * threads._LIGHT, False)):
        total = ctypes.c_int64(0)
        run(calls, ctypes.addressof(total), chunks)
        assert (total.value == 1) == (alone or threads.get_num_threads() == 1)


@needs_jit
def test_a_job_inside_a_job_runs_serially() -> None:
    text = COUNT.replace("@f", "@g") + """
define void @f(ptr %p, i64 %lo, i64 %hi) {
  %run = load ptr, ptr %p
  %total = getelementptr i8, ptr %p, i64 8
  call void %run(ptr @g, ptr %total, i64 10)
  ret void
}"""
    address = llvm.compile_ir(text, name="nested").address("f")
    words = (ctypes.c_int64 * 2)(threads.entry(), 0)
    threads.parallel(address, ctypes.addressof(words), 1)
    assert words[1] == 10
    threads.parallel(address, ctypes.addressof(words), 50)
    assert words[1] > 10 and words[1] % 10 == 0


@needs_jit
def test_interpreter_exits_cleanly_with_workers_and_live_arrays() -> None:
    out = python("import numpy as np; from adjoint.kernels import choose, threads;"
                 "threads.set_num_threads(4);"
                 "x = np.ones((512, 512), np.float32); keep = [choose.lookup('softmax')(x)];"
                 "print(keep[0].sum())")
    assert float(out) == pytest.approx(512, rel=1e-5)


def test_python_threads_cover_the_range_and_raise() -> None:
    seen: list[int] = []
    lock = threading.Lock()

    def f(lo: int, hi: int) -> None:
        with lock:
            seen.extend(range(lo, hi))
    threads.parallel_python(f, 101)
    assert sorted(seen) == list(range(101))
    with pytest.raises(ZeroDivisionError):
        threads.parallel_python(lambda lo, hi: 1 // 0, 8)


@needs_jit
def test_portable_pool_runs_machine_code(counter: int) -> None:
    pool = threads._PortablePool()
    pool.resize(3)
    total = ctypes.c_int64(0)
    pool.run(counter, ctypes.addressof(total), 1000)
    assert total.value == 1000
    pool.close()


# -- allocator -------------------------------------------------------------------------------
needs_alloc = pytest.mark.skipif(not alloc.available(), reason="needs llvmlite and POSIX")


@pytest.fixture
def allocator() -> Any:
    was = alloc.installed()
    alloc.install()
    alloc.empty_cache()
    yield alloc
    if not was:
        alloc.uninstall()


@needs_alloc
def test_live_and_peak_are_exact_with_temporaries(allocator: Any) -> None:
    x = np.ones(10000, np.float32)
    alloc.reset_peak()
    start = alloc.stats().live
    y = x * x
    assert alloc.stats().live - start == 40000
    z = (x + y) * (x - y)
    assert alloc.stats().live - start == 80000
    # while the product is made, both operands and (unless NumPy reuses one) the result live
    assert alloc.stats().peak - start in (120000, 160000)
    del y, z
    assert alloc.stats().live == start
    peak = alloc.stats().peak
    alloc.reset_peak()
    assert alloc.stats().peak == start < peak


@needs_alloc
@pytest.mark.parametrize("call", [
    "nn.functional.conv2d(ad.ones(2, 8, 16, 16), ad.ones(8, 8, 3, 3))",
    "ad.ones(128, 128) @ ad.ones(128, 128)",
    "nn.functional.scaled_dot_product_attention(*[ad.ones(1, 2, 64, 32)] * 3)"])
def test_products_bring_the_allocator(call: str) -> None:
    """Their results are large: fresh pages for each would cost more than the memory is worth."""
    code = ("import adjoint as ad; from adjoint import nn; from adjoint.kernels import alloc\n"
            f"before = alloc.installed(); {call}\nprint(before, alloc.installed())")
    assert python(code) == "False True"


@needs_alloc
@pytest.mark.parametrize("made", [
    "ad.tensor(np.ones((600, 600), np.float32))", "ad.zeros(600, 600)", "ad.empty((600, 600))",
    "ad.nn.Linear(600, 600).weight.detach()", "ad.randn(600, 600)"])
def test_the_first_large_tensor_brings_the_allocator(made: str) -> None:
    """Its memory begins on a cache line; small tensors do not load the compiler."""
    code = ("import sys, numpy as np, adjoint as ad; small = ad.tensor([1.0, 2.0]) + ad.ones(2); "
            "assert 'adjoint.kernels.alloc' not in sys.modules; "
            f"first = {made}; from adjoint.kernels import alloc; "
            "print(alloc.installed(), first.numpy().ctypes.data % 64)")
    assert python(code).split() == ["True", "0"]


@needs_alloc
def test_freed_blocks_come_back_warm_and_aligned(allocator: Any) -> None:
    a = np.empty(1 << 20, np.uint8)
    where = a.ctypes.data
    assert where % 64 == 0
    del a
    before = alloc.stats()
    b = np.empty((1 << 20) - 100, np.uint8)
    after = alloc.stats()
    assert b.ctypes.data == where and after.reused == before.reused + 1
    assert after.idle < before.idle


@needs_alloc
def test_empty_cache_gives_everything_back(allocator: Any) -> None:
    for n in (10, 1000, 10**5, 10**7):
        np.empty(n, np.uint8)
    assert alloc.stats().idle > 10**7
    assert alloc.empty_cache() > 10**7
    assert alloc.stats().idle == 0
    assert alloc.empty_cache() == 0


@needs_alloc
def test_kept_memory_is_bounded_by_the_most_ever_held(allocator: Any) -> None:
    alloc.set_slack(0)
    try:
        blocks = [np.ones(1 << 20, np.uint8) for _ in range(16)]
        del blocks
        held = alloc.stats().held
        big = np.ones(12 << 20, np.uint8)   # another class: the small ones have to go
        s = alloc.stats()
        assert s.idle + s.held <= (held + (18 << 20)) * 9 // 8
        assert big.all()
    finally:
        alloc.set_slack(64 << 20)
    with pytest.raises(ArgumentError, match="negative"):
        alloc.set_slack(-1)


@needs_alloc
def test_zeros_are_zero_when_the_block_is_warm(allocator: Any) -> None:
    for n in (3, 100, 5000, 10**6):
        a = np.zeros(n)
        a[:] = 7
        del a
        assert not np.zeros(n).any()


@needs_alloc
def test_realloc_keeps_data_and_counts(allocator: Any) -> None:
    start = alloc.stats().live
    a = np.fromiter(range(100000), np.float64)
    assert a[-1] == 99999 and alloc.stats().live - start == a.nbytes
    a.resize(10, refcheck=False)
    assert a.tolist() == list(range(10)) and alloc.stats().live - start == 80
    a.resize(100000, refcheck=False)
    assert a[9] == 9 and a[10] == 0
    del a
    assert alloc.stats().live == start


@needs_alloc
def test_uninstall_leaves_arrays_valid(allocator: Any) -> None:
    a = np.ones(1000)
    alloc.uninstall()
    assert not alloc.installed()
    start = alloc.stats().live
    b = np.ones(1000)
    assert alloc.stats().live == start
    assert a.sum() == b.sum() == 1000
    del a
    assert alloc.stats().live == start - 8000
    alloc.install()


@needs_alloc
def test_impossible_request_is_a_memory_error(allocator: Any) -> None:
    start = alloc.stats().live
    with pytest.raises(MemoryError):
        np.empty(1 << 50, np.uint8)
    assert alloc.stats().live == start
