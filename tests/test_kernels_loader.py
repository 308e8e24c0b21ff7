"""Kernels from the disk cache without LLVM: our own loader of object code, what is remembered of
the machine, and what happens where LLVM cannot be loaded after all."""
from __future__ import annotations

import ctypes
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adjoint.kernels import cache, elf, host, llvm, sources

ROOT = Path(__file__).resolve().parents[1]
ours = pytest.mark.skipif(not (elf.supported() and llvm.available()),
                          reason="needs llvmlite on x86-64 Linux")

# constants, memory of its own, a function of the C library, one of another module, a local one
TEXT = """
@count = internal global [3 x i64] zeroinitializer, align 64
@table = internal constant [4 x double] [double 1.5, double 2.5, double 3.5, double 4.5], align 32
declare double @cos(double)
declare double @elsewhere(double)
define internal double @local(double %x) noinline {
  %y = fadd double %x, 0.125
  ret double %y
}
define i64 @counted() {
  %old = atomicrmw add ptr @count, i64 1 seq_cst
  ret i64 %old
}
define ptr @memory() {
  ret ptr @count
}
define double @sum(double %x, i64 %i) {
  %a = call double @cos(double %x)
  %b = call double @elsewhere(double %a)
  %c = call double @local(double %b)
  %p = getelementptr double, ptr @table, i64 %i
  %v = load double, ptr %p
  %d = fadd double %c, %v
  %e = fmul double %d, 3.0
  ret double %e
}
"""
NAMES = ("counted", "memory", "sum")
TWICE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: 2 * x)
LINKS = {"elsewhere": ctypes.cast(TWICE, ctypes.c_void_p).value or 0}


@pytest.fixture(scope="module")
def code() -> bytes:
    return llvm._compile(TEXT, "loader", 0, False)


def called(addresses: dict[str, int]) -> list[Any]:
    f = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int64)(addresses["sum"])
    count = ctypes.CFUNCTYPE(ctypes.c_int64)(addresses["counted"])
    return [*(f(0.25 * i, i) for i in range(4)), count(), count(), count()]


@ours
def test_both_loaders_make_the_same_of_an_object(code: bytes) -> None:
    expected = [3 * (2 * np.cos(0.25 * i) + 0.125 + 1.5 + i) for i in range(4)] + [0, 1, 2]
    assert called(elf.load(code, NAMES, LINKS)) == pytest.approx(expected, rel=1e-15)
    assert called(llvm._linked(cache.Entry(NAMES, code), LINKS)) == pytest.approx(expected)
    again = elf.load(code, NAMES, LINKS)          # with memory of its own
    assert called(again)[-3:] == [0, 1, 2]


@ours
def test_code_is_never_writable_and_executable(code: bytes) -> None:
    found = elf.load(code, NAMES, LINKS)
    memory = ctypes.CFUNCTYPE(ctypes.c_void_p)(found["memory"])()
    rights = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, mode = line.split()[:2]
        lo, hi = (int(x, 16) for x in span.split("-"))
        for name, where in (("code", found["sum"]), ("memory", memory)):
            if lo <= int(where) < hi:
                rights[name] = mode
    assert rights == {"code": "r-xp", "memory": "rw-p"}


@ours
@pytest.mark.parametrize("change", [
    pytest.param(lambda c: c[:4] + b"\x01" + c[5:], id="32 bits"),
    pytest.param(lambda c: c[:18] + struct.pack("<H", 183) + c[20:], id="another machine"),
    pytest.param(lambda c: c[:16] + struct.pack("<H", 2) + c[18:], id="an executable"),
    pytest.param(lambda c: b"", id="nothing"),
    pytest.param(lambda c: b"no object code at all" * 10, id="no object"),
    pytest.param(lambda c: c[:60] + struct.pack("<H", 60000) + c[62:], id="too many sections"),
])
def test_other_files_are_refused(code: bytes, change: Callable[[bytes], bytes]) -> None:
    with pytest.raises(elf.Unknown):
        elf.load(change(code), NAMES, LINKS)


@ours
def test_what_is_missing_is_named(code: bytes) -> None:
    with pytest.raises(elf.Unknown, match="no symbol 'elsewhere' in the process"):
        elf.load(code, NAMES, {})
    with pytest.raises(elf.Unknown, match="no symbol other"):
        elf.load(code, [*NAMES, "other"], LINKS)
    with pytest.raises(elf.Unknown, match="no symbol local"):
        elf.load(code, ["local"], LINKS)


@ours
def test_relocations_and_sections_of_other_kinds_are_refused(code: bytes) -> None:
    """Every relocation in turn with another kind; thread-local memory."""
    text = TEXT.replace("@count = internal global", "@count = internal thread_local global")
    with pytest.raises(elf.Unknown):
        elf.load(llvm._compile(text, "threads", 0, False), NAMES, LINKS)
    image = elf._Image(code)
    places = [s.offset + 24 * i for s in image._sections if s.kind == elf._RELA
              and s.info in image._at for i in range(s.size // 24)]
    assert len(places) >= 5
    for at in places:
        with pytest.raises(elf.Unknown, match="kind 42"):
            elf.load(code[:at + 8] + struct.pack("<I", 42) + code[at + 12:], NAMES, LINKS)


def checked(image: Any, patches: list[Any]) -> int:
    """In the place of `_placed`: nothing is mapped, everything that it would write is looked at."""
    assert len(image.content()) == image.size <= elf._MOST + 2 * elf._PAGE
    assert all(0 <= p.place <= image.size - 8 for p in patches)
    return 1 << 40


@ours
def test_damaged_objects_do_no_harm(code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut anywhere and with bytes changed anywhere, an object is placed within bounds or refused;
    there is no third way."""
    monkeypatch.setattr(elf, "_placed", checked)
    random = np.random.default_rng(0)
    refused = 0
    damaged = [code[:n] for n in range(0, len(code), 7)]
    for at in (*range(64), *random.integers(64, len(code), 3000).tolist()):
        made = bytearray(code)
        made[at] = random.choice([0, 1, 0x7F, 0x80, 0xFF, made[at] ^ 1, made[at] ^ 0x40])
        damaged.append(bytes(made))
    for made in damaged:
        try:
            found = elf.load(bytes(made), NAMES, LINKS)
        except elf.Unknown:
            refused += 1
        else:
            assert all(0 <= a - (1 << 40) <= elf._MOST for a in found.values())
    assert len(code) // 7 < refused < len(damaged)


@ours
@pytest.mark.parametrize("refusal", ["mmap", "mprotect"])
def test_a_system_that_refuses_is_not_ours_to_argue_with(
        code: bytes, refusal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    system, freed = elf._system(), []
    fake = types.SimpleNamespace(
        mmap=(lambda *_: 2**64 - 1) if refusal == "mmap" else system.mmap,
        mprotect=lambda *_: -1, munmap=lambda *args: freed.append(args) or system.munmap(*args))
    monkeypatch.setattr(elf, "_system", lambda: fake)
    monkeypatch.setattr(elf, "process", lambda name: 4096)
    with pytest.raises(elf.Unknown, match="memory"):
        elf.load(code, NAMES, LINKS)
    assert len(freed) == (refusal == "mprotect")


@ours
def test_many_threads_and_forks_load_at_once(code: bytes,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf, "process", elf.process.__wrapped__)     # looked up every time
    expected = called(elf.load(code, NAMES, LINKS))
    wrong: list[Any] = []

    def work(turns: int) -> None:
        for _ in range(turns):
            if called(elf.load(code, NAMES, LINKS)) != expected:
                wrong.append("another result")

    def child() -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)      # 3.12 warns of it
            pid = os.fork()
        if pid == 0:
            status = 1
            try:
                work(20)
                status = len(wrong)
            finally:
                os._exit(status)
        return os.waitpid(pid, 0)[1]
    running = [threading.Thread(target=work, args=(100,)) for _ in range(8)]
    for t in running:
        t.start()
    codes = [child() for _ in range(6)]
    for t in running:
        t.join(120)
    assert not any(t.is_alive() for t in running) and wrong == [] and codes == [0] * 6


@ours
def test_llvm_loads_what_our_loader_refuses(tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    store = cache.Store(tmp_path / "k", 1 << 20)
    monkeypatch.setattr(llvm, "store", lambda: store)
    text = "define i64 @f() {\n ret i64 77\n}"
    found = []
    for supported in (True, False, True):
        llvm._modules.clear()
        monkeypatch.setattr(elf, "supported", lambda s=supported: s)
        module = llvm.compile_ir(text, name="f")
        value = ctypes.CFUNCTYPE(ctypes.c_int64)(module.address("f"))()
        found.append((module.from_cache, module.placed_here, value))
    assert found == [(False, True, 77), (True, False, 77), (True, True, 77)]


# -- what is remembered of the machine ---------------------------------------------------------
@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Something like llvmlite, and a processor."""
    (tmp_path / "binding").mkdir()
    (tmp_path / "binding" / "libllvmlite.so").write_bytes(b"a library")
    cpu = tmp_path / "cpuinfo"
    cpu.write_text("processor\t: 0\nmodel\t\t: 2\ncpu MHz\t\t: 17\nflags\t\t: avx2 fma\n\n"
                   "processor\t: 1\nmodel\t\t: 3\nflags\t\t: none\n")
    monkeypatch.setattr(host, "_CPUINFO", cpu)
    return types.SimpleNamespace(__path__=[str(tmp_path)], __version__="0.50.0")


def test_the_key_of_the_machine_follows_everything_that_it_depends_on(
        package: Any, tmp_path: Path) -> None:
    first = host.key(package)
    assert first and first == host.key(package)
    cpu, library = tmp_path / "cpuinfo", tmp_path / "binding" / "libllvmlite.so"
    text = cpu.read_text()
    cpu.write_text(text.replace("17", "18").replace("none", "some"))
    assert host.key(package) == first                   # the clock, another processor
    keys = [first]
    for change in (lambda: cpu.write_text(text.replace("fma", "fma avx512f")),
                   lambda: cpu.write_text(text.replace(": 2", ": 4")),
                   lambda: setattr(package, "__version__", "0.51.0"),
                   lambda: library.write_bytes(b"another library"),
                   lambda: os.utime(library, (1, 1))):
        change()
        keys.append(host.key(package))
    assert len(set(keys)) == len(keys) and "" not in keys
    library.unlink()
    assert host.key(package) == ""
    library.write_bytes(b"")
    cpu.write_text("processor\t: 0\nFeatures\t: asimd\n")
    assert host.key(package) == ""
    cpu.unlink()
    assert host.key(package) == ""


def test_words_about_the_machine_are_kept_like_kernels(tmp_path: Path) -> None:
    store, key = cache.Store(tmp_path / "k", 1 << 20), cache.key_of("host")
    said = host.Host("0.50.0", "22.1.0", "x86_64-linux", "znver5", "+avx2,-sve")
    assert host.known(store, key) is None and host.known(store, "") is None
    host.remember(store, "", said)
    assert host.known(store, key) is None
    host.remember(store, key, said)
    assert host.known(store, key) == said
    for content in (b"", b"[1, 2]", b"{}", b"null", b"\xff"):
        store.put(key, cache.Entry((), content))
        assert host.known(store, key) is None
    host.remember(store, key, said)
    path = store.path(key)
    path.write_bytes(path.read_bytes().replace(b"znver5", b"znver4"))
    with pytest.warns(cache.CacheWarning, match="damaged"):
        assert host.known(store, key) is None


# -- the digest of the sources -----------------------------------------------------------------
@pytest.mark.skipif(os.name != "posix", reason="times of change are told by POSIX")
def test_a_change_of_the_sources_is_always_seen(tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of the same length that puts the time of writing back."""
    store, folder = cache.Store(tmp_path / "k", 1 << 20), tmp_path / "sources"
    folder.mkdir()
    (folder / "a.py").write_text("one")
    (folder / "b.py").write_text("two")
    (folder / "notes.txt").write_text("not a source")
    reads = []
    read = sources.read
    monkeypatch.setattr(sources, "read", lambda f: reads.append(1) or read(f))
    first = sources.digest(folder, store)
    assert sources.digest(folder, store) == first == read(folder)
    assert len(reads) == 2 and store.files() == []         # changed a moment ago: not kept
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 10**10)
    assert [sources.digest(folder, store) for _ in range(3)] == [first] * 3
    assert len(reads) == 3 and len(store.files()) == 1
    before = (folder / "a.py").stat()
    time.sleep(0.05)                                       # a tick of the system's clock
    (folder / "a.py").write_text("ONE")
    os.utime(folder / "a.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sources.digest(folder, store) == read(folder) != first
    (folder / "c.py").write_text("three")
    assert sources.digest(folder, store) == read(folder)
    assert len(reads) == 5


@pytest.mark.skipif(os.name != "posix", reason="times of change are told by POSIX")
def test_a_digest_of_sources_that_change_meanwhile_is_not_kept(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, folder = cache.Store(tmp_path / "k", 1 << 20), tmp_path / "sources"
    folder.mkdir()
    (folder / "a.py").write_text("one")
    read = sources.read

    def disturbed(where: Path) -> str:
        found = read(where)
        (folder / "a.py").write_text("and more")
        return found
    monkeypatch.setattr(sources, "read", disturbed)
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 10**10)
    sources.digest(folder, store)
    assert store.files() == []


# -- a process of its own ----------------------------------------------------------------------
PROGRAM = """
import json, sys, warnings
how, parts = sys.argv[1:3]
if how == "lost":
    sys.modules["llvmlite.binding"] = None
if how == "hidden":
    sys.modules["llvmlite"] = None
import numpy as np
import adjoint as ad
import adjoint.nn.functional as F
from adjoint.base import tier
random, sums = np.random.default_rng(0), []

def keep(*tensors):
    sums.extend(float(np.abs(t.detach().numpy().astype(np.float64)).sum()) for t in tensors)

def train(f, *shapes):
    leaves = [ad.tensor(random.standard_normal(s, np.float32), requires_grad=True)
              for s in shapes]
    y = f(*leaves)
    y.float().pow(2).sum().backward()
    keep(y, *[x.grad for x in leaves])

def draws():
    ad.manual_seed(1)
    keep(ad.rand(10), ad.rand(5000), ad.randn(10), ad.randn(5000), ad.randperm(900).double(),
         ad.rand(700, dtype=ad.float64), ad.rand(4000, dtype=ad.float64),
         F.dropout(ad.ones(5000), 0.5), ad.bernoulli(ad.full((5000,), 0.3)))

def recurrent():
    ad.manual_seed(0)
    m = ad.nn.LSTM(16, 32)
    o, x = ad.optim.AdamW(m.parameters()), ad.tensor(random.standard_normal((7, 8, 16), np.float32))
    m(x)[0].pow(2).sum().backward()
    ad.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    o.step()
    keep(*m.parameters())

zeros = lambda *s: ad.zeros(*s, dtype=ad.int64)
PARTS = {
    "a": lambda: train(lambda x, b: F.gelu(x + b), (65, 128), (128,)),
    "b": lambda: train(lambda x: F.softmax(x, -1), (65, 128)),
    "c": lambda: train(F.linear, (65, 128), (128, 128), (128,)),
    "d": lambda: train(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
                       (2, 33, 16)),
    "e": lambda: train(lambda x, w: F.max_pool2d(F.conv2d(x, w), 2), (2, 3, 40, 40), (4, 3, 3, 3)),
    "f": lambda: train(lambda x, w: F.layer_norm(x, (128,), w, w), (65, 128), (128,)),
    "g": draws,
    "h": lambda: train(lambda x: x.cumsum(0) + x.sum(0) + x.flip(0) + x.gather(0, zeros(65, 128)),
                       (65, 128)),
    "i": lambda: train(lambda a, v: a @ v, (300, 300), (300,)),
    "j": recurrent,
    "k": lambda: train(lambda x: F.cross_entropy(x, zeros(512)).reshape(1), (512, 100)),
    "l": lambda: train(lambda x: x.half(), (200, 100)),
    "m": lambda: train(lambda x: x.reshape(-1, 8)[:, ::2].tanh() * x[0, 0], (16, 8)),
    "n": lambda: train(lambda x, w: F.conv2d(x, w, groups=8), (2, 8, 20, 20), (8, 1, 3, 3)),
}
tier.at_once()
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(2):
        for part in parts:
            PARTS[part]()
from adjoint.kernels import llvm
print(json.dumps({
    "sums": sums, "available": llvm.available(), "kernels": len(list(llvm.loaded())),
    "said": [str(w.message) for w in seen if "LLVM" in str(w.message)],
    "loaded": sys.modules.get("llvmlite.binding") is not None}))
"""
ALL = "abcdefghijklmn"


def run(directory: Path, how: str, parts: str = ALL, **env: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how, parts], cwd=ROOT, text=True, capture_output=True,
        timeout=300, env={**os.environ, "ADJOINT_CACHE_DIR": str(directory), **env})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def close(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """The same to a few roundings of sums of float32: kernels add in another order."""
    return np.allclose(found["sums"], expected["sums"], rtol=1e-5, atol=0)


@ours
def test_kernels_from_the_cache_need_no_llvm(tmp_path: Path) -> None:
    """Cold it is loaded; warm it is not, and neither hidden nor broken does it change a bit."""
    cold, warm = run(tmp_path / "k", ""), run(tmp_path / "k", "")
    assert cold["loaded"] and not warm["loaded"] and warm["kernels"] == cold["kernels"] > 40
    lost = run(tmp_path / "k", "lost")
    assert lost["available"] and lost["said"] == [] and lost["kernels"] == warm["kernels"]
    assert warm["sums"] == cold["sums"] == lost["sums"]
    hidden, plain = run(tmp_path / "k", "hidden"), run(tmp_path / "k", "", ADJOINT_JIT="0")
    assert not hidden["available"] and hidden["sums"] == plain["sums"]
    assert close(cold, plain)


@ours
def test_without_llvm_the_rest_is_numpys(tmp_path: Path) -> None:
    """A cache that holds some kernels, and an LLVM that no longer loads: said once."""
    run(tmp_path / "k", "", "ab")
    lost = run(tmp_path / "k", "lost")
    assert not lost["available"] and lost["kernels"] > 5
    assert len(lost["said"]) == 1 and "computed by NumPy" in lost["said"][0]
    assert close(lost, run(tmp_path / "k", "", ADJOINT_JIT="0"))
    empty = run(tmp_path / "empty", "lost")
    assert not empty["available"] and empty["said"] == [] and empty["kernels"] == 0


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A cache with every kernel of the program, and what NumPy computes."""
    where = tmp_path_factory.mktemp("warm") / "k"
    run(where, "")
    return where, run(where, "", ADJOINT_JIT="0")


@ours
@pytest.mark.slow
@pytest.mark.parametrize("share", range(8))
def test_whichever_kernel_cannot_be_compiled(
        warm: tuple[Path, dict[str, Any]], share: int, tmp_path: Path) -> None:
    """Each kernel of a warm cache missing in turn, without LLVM."""
    full, plain = warm
    said = 0
    for path in sorted(full.glob("*.kernel"))[share::8]:
        shutil.copytree(full, tmp_path / "without")
        (tmp_path / "without" / path.name).unlink()
        lost = run(tmp_path / "without", "lost")
        assert close(lost, plain), path
        said += len(lost["said"])
        shutil.rmtree(tmp_path / "without")
    assert said >= 5                       # of 8: one may hold what is known of the machine
