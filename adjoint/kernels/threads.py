"""The thread pool under the kernels.

    parallel(address, arguments, chunks)     # void f(void *arguments, i64 first, i64 end)

Workers are Python threads that enter a generated LLVM loop through ctypes (so without the GIL)
and stay there: they spin for some microseconds, then sleep on a futex. The caller works too. Parts
are handed out by a shared counter, large ones first, so that a worker that the system has taken
away does not hold up the rest; a caller never waits for a worker that has not joined its job.

One job runs at a time. A call made while the pool is busy (from another Python thread, or from
inside a job) computes everything itself, so nothing can deadlock. A kernel's result must depend
on the chunks and not on who computes them; then results are equal for any number of threads.

Where there is no futex (not Linux) or no llvmlite, the same calls run on ordinary Python threads.
After a fork the child starts with a fresh pool, made when it first needs one.
"""
from __future__ import annotations

import atexit
import ctypes
import functools
import os
import platform
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.kernels import llvm

_FUTEX = {"x86_64": 202, "AMD64": 202, "aarch64": 98, "arm64": 98}
# Rounds of waiting before a worker sleeps (some 200 us): programs of operations of tens of
# microseconds leave gaps of that length, and waking a worker costs as much as one of their products
_SPIN = 12000
_LIGHT = 32      # light chunks (some microseconds each) below which the caller stays alone
# Byte offsets in the shared state; each word that is written often has a cache line of its own.
_LOCK, _SEQ, _SLEEPERS, _STATE, _FN, _ARGS, _TOTAL, _NEXT, _STOP, _LIMIT = (
    0, 64, 128, 192, 256, 264, 272, 320, 384, 388)
_STATE_BYTES = 448

_POOL_IR = """
@pool = internal global [{bytes} x i8] zeroinitializer, align 64
declare i64 @syscall(i64, ...)
declare i64 @llvm.smax.i64(i64, i64)
{declare_pause}

define ptr @pool_state() {{
  ret ptr @pool
}}

define internal void @share(ptr %fn, ptr %args, i64 %total, i64 %parts) {{
entry:
  %pnext = getelementptr i8, ptr @pool, i64 {next}
  br label %again
again:
  %at = load atomic i64, ptr %pnext monotonic, align 8
  br label %take
take:
  %lo = phi i64 [%at, %again], [%seen, %lost]
  %left = sub i64 %total, %lo
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %try, label %out
try:
  %share = sdiv i64 %left, %parts
  %grain = call i64 @llvm.smax.i64(i64 %share, i64 1)
  %hi = add i64 %lo, %grain
  %pair = cmpxchg ptr %pnext, i64 %lo, i64 %hi acq_rel monotonic, align 8
  %seen = extractvalue {{i64, i1}} %pair, 0
  %won = extractvalue {{i64, i1}} %pair, 1
  br i1 %won, label %work, label %lost
lost:
  br label %take
work:
  call void %fn(ptr %args, i64 %lo, i64 %hi)
  br label %again
out:
  ret void
}}

define void @pool_run_light(ptr %fn, ptr %args, i64 %chunks) {{
entry:
  %few = icmp slt i64 %chunks, {light}
  br i1 %few, label %self, label %pool
self:
  call void %fn(ptr %args, i64 0, i64 %chunks)
  ret void
pool:
  call void @pool_run(ptr %fn, ptr %args, i64 %chunks)
  ret void
}}

define void @pool_run(ptr %fn, ptr %args, i64 %chunks) {{
entry:
  %plimit = getelementptr i8, ptr @pool, i64 {limit}
  %limit = load atomic i32, ptr %plimit monotonic, align 4
  %few = icmp slt i64 %chunks, 2
  %alone = icmp eq i32 %limit, 0
  %serial = or i1 %few, %alone
  br i1 %serial, label %self, label %lock
lock:
  %pair = cmpxchg ptr @pool, i32 0, i32 1 acquire monotonic, align 4
  %won = extractvalue {{i32, i1}} %pair, 1
  br i1 %won, label %open, label %self
self:
  %any = icmp sgt i64 %chunks, 0
  br i1 %any, label %all, label %nothing
all:
  call void %fn(ptr %args, i64 0, i64 %chunks)
  ret void
nothing:
  ret void
open:
  %pfn = getelementptr i8, ptr @pool, i64 {fn}
  %pargs = getelementptr i8, ptr @pool, i64 {args}
  %ptotal = getelementptr i8, ptr @pool, i64 {total}
  %pnext = getelementptr i8, ptr @pool, i64 {next}
  %pstate = getelementptr i8, ptr @pool, i64 {state}
  %pseq = getelementptr i8, ptr @pool, i64 {seq}
  %psleepers = getelementptr i8, ptr @pool, i64 {sleepers}
  store ptr %fn, ptr %pfn
  store ptr %args, ptr %pargs
  store i64 %chunks, ptr %ptotal
  store atomic i64 0, ptr %pnext monotonic, align 8
  store atomic i32 -2147483648, ptr %pstate release, align 4
  %s0 = atomicrmw add ptr %pseq, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %psleepers seq_cst, align 4
  %asleep = icmp sgt i32 %sleepers, 0
  br i1 %asleep, label %wake, label %mine
wake:
  %w = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pseq, i64 129, i32 %limit)
  br label %mine
mine:
  %l64 = zext i32 %limit to i64
  %n2 = shl i64 %l64, 1
  %parts = add i64 %n2, 2
  call void @share(ptr %fn, ptr %args, i64 %chunks, i64 %parts)
  %old = atomicrmw and ptr %pstate, i32 2147483647 acq_rel
  br label %wait
wait:
  %spin = phi i32 [{spin}, %mine], [%spin1, %pause], [0, %sleep]
  %left = load atomic i32, ptr %pstate acquire, align 4
  %done = icmp eq i32 %left, 0
  br i1 %done, label %close, label %more
more:
  %tired = icmp eq i32 %spin, 0
  br i1 %tired, label %sleep, label %pause
pause:
  {pause}
  %spin1 = sub i32 %spin, 1
  br label %wait
sleep:
  %z = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pstate, i64 128, i32 %left, ptr null)
  br label %wait
close:
  store atomic i32 0, ptr @pool release, align 4
  ret void
}}

define void @pool_worker(i32 %index) {{
entry:
  %plimit = getelementptr i8, ptr @pool, i64 {limit}
  %pstop = getelementptr i8, ptr @pool, i64 {stop}
  %pfn = getelementptr i8, ptr @pool, i64 {fn}
  %pargs = getelementptr i8, ptr @pool, i64 {args}
  %ptotal = getelementptr i8, ptr @pool, i64 {total}
  %pstate = getelementptr i8, ptr @pool, i64 {state}
  %pseq = getelementptr i8, ptr @pool, i64 {seq}
  %psleepers = getelementptr i8, ptr @pool, i64 {sleepers}
  br label %idle
idle:
  %known = phi i32 [0, %entry], [%now, %refused], [%now, %left]
  br label %look
look:
  %spin = phi i32 [{spin}, %idle], [%spin1, %pause], [0, %sleep]
  %now = load atomic i32, ptr %pseq seq_cst, align 4
  %same = icmp eq i32 %now, %known
  br i1 %same, label %more, label %check
more:
  %tired = icmp eq i32 %spin, 0
  br i1 %tired, label %sleep, label %pause
pause:
  {pause}
  %spin1 = sub i32 %spin, 1
  br label %look
sleep:
  %a = atomicrmw add ptr %psleepers, i32 1 seq_cst
  %z = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pseq, i64 128, i32 %known, ptr null)
  %b = atomicrmw sub ptr %psleepers, i32 1 seq_cst
  br label %look
check:
  %stop = load atomic i32, ptr %pstop acquire, align 4
  %stopping = icmp ne i32 %stop, 0
  %limit = load atomic i32, ptr %plimit monotonic, align 4
  %wanted = icmp slt i32 %index, %limit
  br i1 %stopping, label %out, label %check2
check2:
  br i1 %wanted, label %join, label %refused
join:
  %state = load atomic i32, ptr %pstate acquire, align 4
  %open = icmp slt i32 %state, 0
  br i1 %open, label %enter, label %refused
enter:
  %plus = add i32 %state, 1
  %pair = cmpxchg ptr %pstate, i32 %state, i32 %plus acq_rel monotonic, align 4
  %won = extractvalue {{i32, i1}} %pair, 1
  br i1 %won, label %work, label %join
refused:
  br label %idle
work:
  %fn = load ptr, ptr %pfn
  %args = load ptr, ptr %pargs
  %total = load i64, ptr %ptotal
  %l64 = zext i32 %limit to i64
  %n2 = shl i64 %l64, 1
  %parts = add i64 %n2, 2
  call void @share(ptr %fn, ptr %args, i64 %total, i64 %parts)
  %was = atomicrmw sub ptr %pstate, i32 1 acq_rel
  %last = icmp eq i32 %was, 1
  br i1 %last, label %tell, label %left
tell:
  %t = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pstate, i64 129, i32 1)
  br label %left
left:
  br label %idle
out:
  ret void
}}

define void @pool_stop() {{
  %pstop = getelementptr i8, ptr @pool, i64 {stop}
  %pseq = getelementptr i8, ptr @pool, i64 {seq}
  store atomic i32 1, ptr %pstop release, align 4
  %s0 = atomicrmw add ptr %pseq, i32 1 seq_cst
  %w = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pseq, i64 129, i32 2147483647)
  ret void
}}
"""

_Run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_Chunk = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def _pool_ir(futex: int) -> str:
    arm = platform.machine() in ("aarch64", "arm64")
    pause, declare = (("call void @llvm.aarch64.hint(i32 1)",
                       "declare void @llvm.aarch64.hint(i32)") if arm else
                      ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"))
    return _POOL_IR.format(bytes=_STATE_BYTES, next=_NEXT, limit=_LIMIT, fn=_FN, args=_ARGS,
                           total=_TOTAL, state=_STATE, seq=_SEQ, sleepers=_SLEEPERS, stop=_STOP,
                           futex=futex, spin=_SPIN, light=_LIGHT, pause=pause,
                           declare_pause=declare)


class _NativePool:
    """Workers in a generated loop."""

    def __init__(self, futex: int) -> None:
        module = llvm.compile_ir(_pool_ir(futex), name="threads")
        self.entry = module.address("pool_run")
        self.light = module.address("pool_run_light")
        self.run = _Run(self.entry)
        self._worker = ctypes.CFUNCTYPE(None, ctypes.c_int32)(module.address("pool_worker"))
        self._stop = ctypes.CFUNCTYPE(None)(module.address("pool_stop"))
        self._state = int(ctypes.CFUNCTYPE(ctypes.c_void_p)(module.address("pool_state"))())
        self.threads: list[threading.Thread] = []

    def _word(self, offset: int) -> ctypes.c_int32:
        return ctypes.c_int32.from_address(self._state + offset)

    def resize(self, n: int) -> None:
        while len(self.threads) < n - 1:
            index = len(self.threads)
            worker = threading.Thread(target=self._worker, args=(index,), daemon=True,
                                      name=f"adjoint-kernel-{index + 1}")
            worker.start()
            self.threads.append(worker)
        self._word(_LIMIT).value = n - 1

    def reset(self) -> None:
        """In a forked child: nobody else runs, and no worker came along."""
        ctypes.memset(self._state, 0, _STATE_BYTES)
        self.threads = []

    def close(self) -> None:
        self._word(_LIMIT).value = 0
        self._stop()
        for worker in self.threads:
            worker.join(1.0)
        self.threads = []


@llvm.generating
def _compiled(futex: int) -> _NativePool:
    return _NativePool(futex)


class _PortablePool:
    """Ordinary Python threads; the functions that they call release the GIL."""

    def __init__(self) -> None:
        self.run: Any = _Run(self._run)
        self.entry = int(ctypes.cast(self.run, ctypes.c_void_p).value or 0)
        self.count = 1
        self._executor: ThreadPoolExecutor | None = None
        self._busy = threading.Lock()

    def resize(self, n: int) -> None:
        self.reset()
        self.count = n

    def _run(self, address: int, arguments: int | None, chunks: int) -> None:
        f = _Chunk(address)
        self.map(lambda lo, hi: f(arguments, lo, hi), chunks)

    def map(self, f: Callable[[int, int], Any], chunks: int) -> None:
        if self.count < 2 or chunks < 2 or not self._busy.acquire(blocking=False):
            if chunks > 0:
                f(0, chunks)
            return
        try:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.count - 1, "adjoint-kernel")
            parts = min(self.count, chunks)
            edges = [chunks * i // parts for i in range(parts + 1)]
            others = [self._executor.submit(f, edges[i], edges[i + 1]) for i in range(1, parts)]
            f(0, edges[1])
            for future in others:
                future.result()
        finally:
            self._busy.release()

    def reset(self) -> None:
        self._executor, self._busy = None, threading.Lock()

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True)
        self._executor = None


_lock = threading.Lock()
_native: _NativePool | None = None
_portable: _PortablePool | None = None
_count: int | None = None
_entry = 0
MOST = 1024     # threads; far more take the process down when they start
_resized: list[Callable[[], None]] = []


def _default_count() -> int:
    for name in ("ADJOINT_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "").split(",")[0]
        if text.isdigit() and int(text) > 0:
            return min(int(text), MOST)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def get_num_threads() -> int:
    """How many threads a kernel may use, the caller included.

    At first `$ADJOINT_NUM_THREADS`, else `$OMP_NUM_THREADS`, else the CPUs of this process.

    >>> get_num_threads() >= 1
    True
    """
    global _count
    if _count is None:
        _count = _default_count()
    return _count


def set_num_threads(n: int) -> None:
    """Let kernels use `n` threads, the caller included, from the next kernel on.

    Raises:
        ArgumentError: where `n` is not a positive integer, or more than 1024.

    >>> before = get_num_threads()
    >>> set_num_threads(1); get_num_threads()
    1
    >>> set_num_threads(before)
    """
    global _count
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ArgumentError(f"set_num_threads: n = {n!r} is not a positive integer")
    if n > MOST:
        raise ArgumentError(f"set_num_threads: n = {n} is more than {MOST} threads; give the "
                            "number of this machine's cores or less")
    with _lock:
        _count = n
        for pool in (_native, _portable):
            if pool is not None and (_entry or pool is _portable):
                pool.resize(n)
    for told in _resized:
        told()


def on_resize(f: Callable[[], None]) -> None:
    """Call `f` whenever the number of threads was set."""
    _resized.append(f)


def entry() -> int:
    """The address of `void run(f, arguments, i64 chunks)` of the pool, started where needed.

    Generated code calls it to split work over the pool; Python calls `parallel`.
    """
    return _entry or _start()


def light_entry() -> int:
    """`entry()` for chunks of some microseconds. Waking a worker costs fifty, and what it reads and
    writes travels from the caller's cache and back: fewer than `_LIGHT` chunks take twice as long
    on two threads as on one."""
    where = entry()
    return _native.light if _native is not None and where == _native.entry else where


def _start() -> int:
    global _entry, _native
    with _lock:
        if not _entry:
            futex = _FUTEX.get(platform.machine())
            if _native is None and sys.platform == "linux" and futex:
                _native = _compiled(futex)
            if _native is not None:
                _native.resize(get_num_threads())
                _entry = _native.entry
            else:
                _entry = _python_threads().entry
    return _entry


def _python_threads() -> _PortablePool:
    global _portable
    if _portable is None:
        _portable = _PortablePool()
        _portable.resize(get_num_threads())
    return _portable


def parallel(address: int, arguments: int, chunks: int) -> None:
    """Run `void f(void *arguments, i64 first, i64 end)` over `[0, chunks)`, split over the pool.

    Args:
        address: of the machine code of f. It is called once or more, on disjoint ranges that
            cover `[0, chunks)`, from several threads, without the GIL.
        arguments: passed through; 0 is NULL. The caller keeps what it points to alive.
        chunks: how many pieces of work there are; with 0 f is not called, with 1 only here.

    >>> from adjoint.kernels import llvm
    >>> text = '''define void @f(ptr %p, i64 %lo, i64 %hi) {
    ...   %n = sub i64 %hi, %lo
    ...   %old = atomicrmw add ptr %p, i64 %n seq_cst
    ...   ret void
    ... }'''
    >>> if llvm.available():
    ...     total = ctypes.c_int64(0)
    ...     f = llvm.compile_ir(text, name="count").address("f")
    ...     parallel(f, ctypes.addressof(total), 1000)
    ...     assert total.value == 1000
    """
    where = _entry or _start()
    pool = _native if _native is not None and where == _native.entry else _python_threads()
    pool.run(address, arguments, chunks)


_Range = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_alone = functools.cache(_Range)


def alone(address: int, arguments: int, chunks: int) -> None:
    """What `parallel` does, on the caller's thread: for work that takes less than waking another
    one, some 50 us."""
    _alone(address)(arguments, 0, chunks)


def parallel_python(f: Callable[[int, int], Any], chunks: int) -> None:
    """Call `f(first, end)` on ranges that cover `[0, chunks)`, from Python threads.

    For functions that release the GIL (NumPy on large arrays). An exception of `f` is raised.

    >>> seen = []
    >>> parallel_python(lambda lo, hi: seen.extend(range(lo, hi)), 10)
    >>> sorted(seen) == list(range(10))
    True
    """
    with _lock:
        pool = _python_threads()
    pool.map(f, chunks)


def native() -> bool:
    """Whether the pool is the generated one (False: ordinary Python threads)."""
    entry()
    return _native is not None and _entry == _native.entry


def _after_fork() -> None:
    global _lock, _entry
    _lock = threading.Lock()
    _entry = 0
    if _native is not None:
        _native.reset()
    if _portable is not None:
        _portable.reset()


def _at_exit() -> None:
    global _entry
    if _native is not None and _entry == _native.entry:
        _native.close()
    if _portable is not None:
        _portable.close()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
