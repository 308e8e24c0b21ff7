"""The generated functions of the caching allocator (see `alloc`), as IR text.

State: one lock, ten counters, and a list of free blocks per size class. A block begins with a
header of 64 bytes (requested bytes, class, next free block), so data is aligned to 64 bytes.
Classes of data sizes are multiples of 64 up to 1024 and then eight per doubling. Blocks over
256 KiB are mapped pages; those of 4 MiB and more ask for huge pages.
"""
from __future__ import annotations

CLASSES = 320
COUNTERS = ("live", "peak", "idle", "held", "most", "calls", "reused", "slack", "mark", "limit")
REFUSABLE = 256                 # smaller requests are served beyond the limit too

_HEAD = """
@lock = internal global i32 0, align 64
@state = internal global [{counters} x i64] zeroinitializer, align 64
@heads = internal global [{classes} x ptr] zeroinitializer, align 64
declare i64 @llvm.ctlz.i64(i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare i32 @sched_yield()
{system}

define void @allocator_lock() {{
entry:
  br label %try
try:
  %pair = cmpxchg ptr @lock, i32 0, i32 1 acquire monotonic, align 4
  %won = extractvalue {{i32, i1}} %pair, 1
  br i1 %won, label %have, label %wait
wait:
  %y = call i32 @sched_yield()
  br label %try
have:
  ret void
}}

define void @allocator_unlock() {{
  store atomic i32 0, ptr @lock release, align 4
  ret void
}}

define ptr @allocator_state() {{
  ret ptr @state
}}

define internal i64 @class_of(i64 %n) alwaysinline {{
entry:
  %none = icmp eq i64 %n, 0
  %some = select i1 %none, i64 1, i64 %n
  %s = sub i64 %some, 1
  %small = icmp ult i64 %s, 1024
  %c0 = lshr i64 %s, 6
  %lz = call i64 @llvm.ctlz.i64(i64 %s, i1 true)
  %e = sub i64 63, %lz
  %shift = sub i64 %e, 3
  %top = lshr i64 %s, %shift
  %sub = and i64 %top, 7
  %e10 = sub i64 %e, 10
  %e8 = shl i64 %e10, 3
  %c1 = add i64 %e8, 16
  %c2 = add i64 %c1, %sub
  %c = select i1 %small, i64 %c0, i64 %c2
  ret i64 %c
}}

define internal i64 @size_of(i64 %c) alwaysinline {{
entry:
  %small = icmp ult i64 %c, 16
  %c1 = add i64 %c, 1
  %s0 = shl i64 %c1, 6
  %k = sub i64 %c, 16
  %d = lshr i64 %k, 3
  %sub = and i64 %k, 7
  %m = add i64 %sub, 9
  %shift = add i64 %d, 7
  %s1 = shl i64 %m, %shift
  %s = select i1 %small, i64 %s0, i64 %s1
  %block = add i64 %s, 64
  ret i64 %block
}}

define internal void @bump(i64 %slot, i64 %by) alwaysinline {{
  %p = getelementptr i64, ptr @state, i64 %slot
  %old = load i64, ptr %p
  %new = add i64 %old, %by
  store i64 %new, ptr %p
  ret void
}}

define internal void @top(i64 %slot, i64 %of) alwaysinline {{
  %p = getelementptr i64, ptr @state, i64 %slot
  %q = getelementptr i64, ptr @state, i64 %of
  %most = load i64, ptr %p
  %now = load i64, ptr %q
  %more = icmp sgt i64 %now, %most
  %new = select i1 %more, i64 %now, i64 %most
  store i64 %new, ptr %p
  ret void
}}
"""

_SYSTEM_MMAP = """
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)
define internal ptr @pages(i64 %size) {{
entry:
  %huge = icmp uge i64 %size, 4194304
  %room = select i1 %huge, i64 2097152, i64 0
  %total = add i64 %size, %room
  %p = call ptr @mmap(ptr null, i64 %total, i32 3, i32 34, i32 -1, i64 0)
  %at = ptrtoint ptr %p to i64
  %bad = icmp eq i64 %at, -1
  br i1 %bad, label %fail, label %got
fail:
  ret ptr null
got:
  br i1 %huge, label %align, label %plain
plain:
  ret ptr %p
align:
  %up = add i64 %at, 2097151
  %base = and i64 %up, -2097152
  %front = sub i64 %base, %at
  %back = sub i64 2097152, %front
  %has = icmp ugt i64 %front, 0
  br i1 %has, label %cut, label %rest
cut:
  %u = call i32 @munmap(ptr %p, i64 %front)
  br label %rest
rest:
  %q = inttoptr i64 %base to ptr
  %end = getelementptr i8, ptr %q, i64 %size
  %hasb = icmp ugt i64 %back, 0
  br i1 %hasb, label %cutb, label %tell
cutb:
  %w = call i32 @munmap(ptr %end, i64 %back)
  br label %tell
tell:
  %a = call i32 @madvise(ptr %q, i64 %size, i32 14)
  ret ptr %q
}}
define internal void @unpages(ptr %p, i64 %size) {{
  %u = call i32 @munmap(ptr %p, i64 %size)
  ret void
}}
define internal i1 @mapped(i64 %size) alwaysinline {{
  %m = icmp ugt i64 %size, 262144
  ret i1 %m
}}
"""

_SYSTEM_PLAIN = """
define internal ptr @pages(i64 %size) {{
  ret ptr null
}}
define internal void @unpages(ptr %p, i64 %size) {{
  ret void
}}
define internal i1 @mapped(i64 %size) alwaysinline {{
  ret i1 false
}}
"""

_RAW = """
define internal ptr @take_raw(i64 %size) {{
entry:
  %slot = alloca ptr
  %m = call i1 @mapped(i64 %size)
  br i1 %m, label %map, label %heap
map:
  %p = call ptr @pages(i64 %size)
  ret ptr %p
heap:
  %rc = call i32 @posix_memalign(ptr %slot, i64 64, i64 %size)
  %bad = icmp ne i32 %rc, 0
  %q = load ptr, ptr %slot
  %r = select i1 %bad, ptr null, ptr %q
  ret ptr %r
}}

define internal void @drop_raw(ptr %p, i64 %size) {{
entry:
  %m = call i1 @mapped(i64 %size)
  br i1 %m, label %map, label %heap
map:
  call void @unpages(ptr %p, i64 %size)
  ret void
heap:
  call void @free(ptr %p)
  ret void
}}

; Give idle blocks back, largest class first, until idle <= %keep. The lock is held.
define internal void @trim(i64 %keep) noinline {{
entry:
  %pidle = getelementptr i64, ptr @state, i64 2
  br label %next
next:
  %c = phi i64 [{last}, %entry], [%below, %down], [%c, %drop]
  %idle = load i64, ptr %pidle
  %enough = icmp sle i64 %idle, %keep
  %over = icmp slt i64 %c, 0
  %stop = or i1 %enough, %over
  br i1 %stop, label %out, label %look
look:
  %ph = getelementptr ptr, ptr @heads, i64 %c
  %b = load ptr, ptr %ph
  %none = icmp eq ptr %b, null
  br i1 %none, label %down, label %drop
down:
  %below = sub i64 %c, 1
  br label %next
drop:
  %pn = getelementptr i8, ptr %b, i64 16
  %n = load ptr, ptr %pn
  store ptr %n, ptr %ph
  %size = call i64 @size_of(i64 %c)
  %minus = sub i64 0, %size
  call void @bump(i64 2, i64 %minus)
  call void @drop_raw(ptr %b, i64 %size)
  br label %next
out:
  ret void
}}

define void @allocator_trim(i64 %keep) {{
  call void @allocator_lock()
  call void @trim(i64 %keep)
  %ph = getelementptr i64, ptr @state, i64 3
  %held = load i64, ptr %ph
  %pm = getelementptr i64, ptr @state, i64 4
  store i64 %held, ptr %pm
  call void @allocator_unlock()
  ret void
}}

define void @allocator_reset_peak() {{
  call void @allocator_lock()
  %pl = getelementptr i64, ptr @state, i64 0
  %live = load i64, ptr %pl
  %pp = getelementptr i64, ptr @state, i64 1
  store i64 %live, ptr %pp
  call void @allocator_unlock()
  ret void
}}
"""

_API = """
; A block for %n bytes; stores whether its bytes are zero already (fresh pages) to %zero.
define internal ptr @take(i64 %n, ptr %zero) {{
entry:
  %c = call i64 @class_of(i64 %n)
  %size = call i64 @size_of(i64 %c)
  store i1 false, ptr %zero
  %absurd = icmp uge i64 %c, {classes}
  br i1 %absurd, label %fail, label %start
fail:
  ret ptr null
start:
  call void @allocator_lock()
  %plive = getelementptr i64, ptr @state, i64 0
  %live = load i64, ptr %plive
  %wanted = add i64 %live, %n
  %plimit = getelementptr i64, ptr @state, i64 9
  %limit = load i64, ptr %plimit
  %beyond = icmp sgt i64 %wanted, %limit
  %limited = icmp sgt i64 %limit, 0
  %large = icmp uge i64 %n, {refusable}
  %refuse0 = and i1 %beyond, %limited
  %refuse = and i1 %refuse0, %large
  br i1 %refuse, label %refused, label %granted
refused:
  call void @allocator_unlock()
  ret ptr null
granted:
  call void @bump(i64 0, i64 %n)
  call void @top(i64 1, i64 0)
  call void @top(i64 8, i64 0)
  call void @bump(i64 3, i64 %size)
  call void @bump(i64 5, i64 1)
  %ph = getelementptr ptr, ptr @heads, i64 %c
  %b = load ptr, ptr %ph
  %none = icmp eq ptr %b, null
  br i1 %none, label %fresh, label %warm
warm:
  %pn = getelementptr i8, ptr %b, i64 16
  %next = load ptr, ptr %pn
  store ptr %next, ptr %ph
  %minus = sub i64 0, %size
  call void @bump(i64 2, i64 %minus)
  call void @bump(i64 6, i64 1)
  call void @top(i64 4, i64 3)
  call void @allocator_unlock()
  br label %ready
fresh:
  ; footprint (held + idle) may exceed the most ever held by an eighth and a fixed slack
  call void @top(i64 4, i64 3)
  %pheld = getelementptr i64, ptr @state, i64 3
  %held = load i64, ptr %pheld
  %pmost = getelementptr i64, ptr @state, i64 4
  %most = load i64, ptr %pmost
  %pslack = getelementptr i64, ptr @state, i64 7
  %slack = load i64, ptr %pslack
  %eighth = lshr i64 %most, 3
  %room0 = add i64 %most, %eighth
  %room = add i64 %room0, %slack
  %keep = sub i64 %room, %held
  call void @trim(i64 %keep)
  call void @allocator_unlock()
  %f = call ptr @take_raw(i64 %size)
  %failed = icmp eq ptr %f, null
  br i1 %failed, label %again, label %new
again:
  call void @allocator_lock()
  call void @trim(i64 0)
  call void @allocator_unlock()
  %f2 = call ptr @take_raw(i64 %size)
  %failed2 = icmp eq ptr %f2, null
  br i1 %failed2, label %undo, label %new
undo:
  call void @allocator_lock()
  %n0 = sub i64 0, %n
  call void @bump(i64 0, i64 %n0)
  %s0 = sub i64 0, %size
  call void @bump(i64 3, i64 %s0)
  call void @allocator_unlock()
  ret ptr null
new:
  %g = phi ptr [%f, %fresh], [%f2, %again]
  %m = call i1 @mapped(i64 %size)
  store i1 %m, ptr %zero
  br label %ready
ready:
  %block = phi ptr [%b, %warm], [%g, %new]
  store i64 %n, ptr %block
  %pc = getelementptr i8, ptr %block, i64 8
  store i64 %c, ptr %pc
  %data = getelementptr i8, ptr %block, i64 64
  ret ptr %data
}}

define ptr @allocator_malloc(ptr %ctx, i64 %n) {{
  %zero = alloca i1
  %p = call ptr @take(i64 %n, ptr %zero)
  ret ptr %p
}}

define ptr @allocator_calloc(ptr %ctx, i64 %a, i64 %b) {{
entry:
  %zero = alloca i1
  %n = mul i64 %a, %b
  %p = call ptr @take(i64 %n, ptr %zero)
  %none = icmp eq ptr %p, null
  %clean = load i1, ptr %zero
  %skip = or i1 %none, %clean
  br i1 %skip, label %done, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %n, i1 false)
  br label %done
done:
  ret ptr %p
}}

define void @allocator_free(ptr %ctx, ptr %p, i64 %ignored) {{
entry:
  %none = icmp eq ptr %p, null
  br i1 %none, label %out, label %have
have:
  %block = getelementptr i8, ptr %p, i64 -64
  %n = load i64, ptr %block
  %pc = getelementptr i8, ptr %block, i64 8
  %c = load i64, ptr %pc
  %size = call i64 @size_of(i64 %c)
  %n0 = sub i64 0, %n
  %s0 = sub i64 0, %size
  %ph = getelementptr ptr, ptr @heads, i64 %c
  %pn = getelementptr i8, ptr %block, i64 16
  call void @allocator_lock()
  call void @bump(i64 0, i64 %n0)
  call void @bump(i64 3, i64 %s0)
  call void @bump(i64 2, i64 %size)
  %next = load ptr, ptr %ph
  store ptr %next, ptr %pn
  store ptr %block, ptr %ph
  call void @allocator_unlock()
  br label %out
out:
  ret void
}}

define ptr @allocator_realloc(ptr %ctx, ptr %p, i64 %n) {{
entry:
  %zero = alloca i1
  %none = icmp eq ptr %p, null
  br i1 %none, label %first, label %have
first:
  %q0 = call ptr @take(i64 %n, ptr %zero)
  ret ptr %q0
have:
  %block = getelementptr i8, ptr %p, i64 -64
  %old = load i64, ptr %block
  %pc = getelementptr i8, ptr %block, i64 8
  %c = load i64, ptr %pc
  %want = call i64 @class_of(i64 %n)
  %same = icmp eq i64 %c, %want
  br i1 %same, label %stay, label %move
stay:
  %by = sub i64 %n, %old
  call void @allocator_lock()
  call void @bump(i64 0, i64 %by)
  call void @top(i64 1, i64 0)
  call void @top(i64 8, i64 0)
  call void @allocator_unlock()
  store i64 %n, ptr %block
  ret ptr %p
move:
  %q = call ptr @take(i64 %n, ptr %zero)
  %failed = icmp eq ptr %q, null
  br i1 %failed, label %fail, label %copy
fail:
  ret ptr null
copy:
  %less = icmp ult i64 %n, %old
  %k = select i1 %less, i64 %n, i64 %old
  call void @llvm.memcpy.p0.p0.i64(ptr %q, ptr %p, i64 %k, i1 false)
  call void @allocator_free(ptr null, ptr %p, i64 0)
  ret ptr %q
}}
"""


def text(linux: bool) -> str:
    """The module: `allocator_{malloc,calloc,realloc,free,lock,unlock,trim,state,reset_peak}`."""
    system = (_SYSTEM_MMAP if linux else _SYSTEM_PLAIN).format()
    head = _HEAD.format(counters=len(COUNTERS), classes=CLASSES, system=system)
    return head + _RAW.format(last=CLASSES - 1) + _API.format(classes=CLASSES, refusable=REFUSABLE)
