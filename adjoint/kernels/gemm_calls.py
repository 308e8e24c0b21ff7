"""Matrix products without Python: layouts that were met once are started by machine code.

`product(a, b)`, `linear(x, weight, bias)` and `add_product(a, b, total)` are `gemm.matmul` for
operands that its generated kernel does, where working out the plan and filling its argument block
costs as much as a small product, and ten microseconds beside a large one. Products of some tens of
microseconds keep the GIL meanwhile, so that one workspace serves all of them. Longer ones give it
back: their argument block lies on the stack, and one of them at a time has the shared workspace,
another takes memory from the system.
"""
from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from typing import Any

from adjoint.kernels import gemm, launch, llvm, threads
from adjoint.kernels.gemm_ir import ARGS, INDEX
from adjoint.kernels.gemm_plan import BLOCK_BYTES, Array, address, mapped

_LONGEST = 8_000_000        # multiply-adds; above, the GIL is given back
_WORK_BYTES = 1 << 21       # of the workspace of products that keep the GIL
_PANELS = 1 << 18           # of the others' for a thread, beside its block of the right operand
_LAYOUTS = 64               # that each of the three functions knows

# Words before the argument block: chunks (one), the kernel, the pool's entry, workers, which slot
# holds each pointer (slot 0, the geometry itself, stands for NULL), whether the GIL is given back,
# and how long the workspace is.
_HEAD = _CHUNKS, _KERNEL, _RUN, _WORKERS, _A, _B, _C, _BIAS, _FREE, _BYTES = range(10)

_TEXT = """
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @malloc(i64)
declare void @free(ptr)
@taken = internal global i32 0, align 64

define void @gemm_start(ptr %slots, i64 %first, i64 %end) {{
entry:
  %block = alloca [{count} x i64], align 64
  %words = load ptr, ptr %slots
  %pfree = getelementptr i64, ptr %words, i64 {free}
  %wfree = load i64, ptr %pfree
  %long = icmp ne i64 %wfree, 0
  br label %copy
copy:
  %i = phi i64 [0, %entry], [%i1, %copy]
  %at = add i64 %i, {block}
  %psource = getelementptr i64, ptr %words, i64 %at
  %word = load i64, ptr %psource
  %ptarget = getelementptr i64, ptr %block, i64 %i
  store i64 %word, ptr %ptarget
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, {count}
  br i1 %more, label %copy, label %fill
fill:
{moves}
  br i1 %long, label %try, label %held
held:
  call void @run(ptr %words, ptr %block)
  ret void
try:
  %pair = cmpxchg ptr @taken, i32 0, i32 1 acquire monotonic, align 4
  %mine = extractvalue {{i32, i1}} %pair, 1
  br i1 %mine, label %go, label %ask
ask:
  %pbytes = getelementptr i64, ptr %words, i64 {bytes}
  %bytes = load i64, ptr %pbytes
  %asked = call ptr @malloc(i64 %bytes)
  %refused = icmp eq ptr %asked, null
  br i1 %refused, label %try, label %own
own:
  %asked_word = ptrtoint ptr %asked to i64
  %slack = add i64 %asked_word, 63
  %even = and i64 %slack, -64
  %pwork = getelementptr i64, ptr %block, i64 {work}
  store i64 %even, ptr %pwork
  br label %go
go:
  %memory = phi ptr [null, %try], [%asked, %own]
  %thread = call ptr @PyEval_SaveThread()
  call void @run(ptr %words, ptr %block)
  call void @free(ptr %memory)
  br i1 %mine, label %leave, label %done
leave:
  store atomic i32 0, ptr @taken release, align 4
  br label %done
done:
  call void @PyEval_RestoreThread(ptr %thread)
  ret void
}}

define internal void @run(ptr %words, ptr %block) {{
  %pkernel = getelementptr i64, ptr %words, i64 {kernel}
  %kernel = load ptr, ptr %pkernel
  %pworkers = getelementptr i64, ptr %words, i64 {workers}
  %workers = load i64, ptr %pworkers
  %alone = icmp eq i64 %workers, 1
  br i1 %alone, label %one, label %many
one:
  call void %kernel(ptr %block, i64 0, i64 1)
  ret void
many:
  %prun = getelementptr i64, ptr %words, i64 {run}
  %run = load ptr, ptr %prun
  call void %run(ptr %kernel, ptr %block, i64 %workers)
  ret void
}}
"""

_MOVE = """
  %w{name} = getelementptr i64, ptr %words, i64 {word}
  %s{name} = load i64, ptr %w{name}
  %p{name} = getelementptr i64, ptr %slots, i64 %s{name}
  %v{name} = load i64, ptr %p{name}
  %n{name} = icmp eq i64 %s{name}, 0
  %x{name} = select i1 %n{name}, i64 0, i64 %v{name}
  %d{name} = getelementptr i64, ptr %block, i64 {place}
  store i64 %x{name}, ptr %d{name}"""


@functools.cache
@llvm.generating
def _start() -> int:
    """The address of the function that starts a plan (None: it cannot be had)."""
    moves = "".join(_MOVE.format(name=name, word=word, place=INDEX[name]) for name, word in (
        ("a", _A), ("b", _B), ("c", _C), ("bias", _BIAS)))
    text = _TEXT.format(block=len(_HEAD), count=len(ARGS), moves=moves, work=INDEX["work"],
                        kernel=_KERNEL, workers=_WORKERS, run=_RUN, free=_FREE, bytes=_BYTES)
    return llvm.compile_ir(text, name="gemm start", opt=1).address("gemm_start")


@functools.cache
def _workspace(size: int) -> Array:
    return mapped(size)


def _teach(table: launch.Table, made: Any, operands: Sequence[Array | None], work: int,
           out: int) -> None:
    """Let `table` do what `made` does for such operands; operand `out` is added to, where it is
    -1 there is a new result."""
    if type(made) is not gemm.Generated or launch.machine() is None:
        return
    plan = made.plan
    free = work > _LONGEST
    room = plan.workers * (BLOCK_BYTES + _PANELS) if free else _WORK_BYTES
    if plan.work_bytes > room or (plan.workers > 1 and not threads.native()):
        return
    start = _start()
    if start is None:
        return
    left, right = (2, 1) if made.swapped else (1, 2)
    bias = 3 if len(operands) == 3 and out < 0 and operands[2] is not None else 0
    block = list(plan.values)
    block[INDEX["work"]] = address(_workspace(room))
    block[INDEX["accumulate"]] = int(made.accumulate)
    words = launch.words_of([
        1, plan.address, threads.entry(), plan.workers, left, right,
        out + 1 if out >= 0 else len(operands) + 1, bias, free, plan.work_bytes + 64, *block])
    table.add(operands, made.shape, [] if out >= 0 else [made.dtype], None,
              ctypes.addressof(words), start, (words, plan))


def _product(a: Array, b: Array) -> Array:
    made = gemm.plan_for(a, b)
    _teach(_PRODUCTS, made, (a, b), math.prod(a.shape) * b.shape[-1], -1)
    result: Array = made(a, b, None)
    return result


def _linear(x: Array, weight: Array, bias: Array | None) -> Array:
    made = gemm.plan_for(x, weight.T, bias=bias)
    _teach(_LINEAR, made, (x, weight, bias), x.size * weight.shape[0], -1)
    result: Array = made(x, weight.T, None, bias)
    return result


def _add_product(a: Array, b: Array, total: Array) -> None:
    made = gemm.plan_for(a, b, total, accumulate=True)
    _teach(_SUMS, made, (a, b, total), math.prod(a.shape) * b.shape[-1], 2)
    made(a, b, total)


_PRODUCTS = launch.Table("product", _product, _LAYOUTS)
_LINEAR = launch.Table("linear", _linear, _LAYOUTS)
_SUMS = launch.Table("add_product", _add_product, _LAYOUTS)
for _table in (_PRODUCTS, _LINEAR, _SUMS):
    threads.on_resize(_table.clear)     # plans are for a number of threads

# a (M, K) @ b (K, N) -> (M, N)
product = _PRODUCTS.call
# x (M, K), weight (N, K), bias (N,) or None -> x @ weight.T + bias
linear = _LINEAR.call
# total (M, N) += a (M, K) @ b (K, N), in place; it must not share memory with a or b
add_product = _SUMS.call
