"""How much memory a step will take, before it runs: the step itself, on storage-less tensors."""
from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from adjoint.base.aval import account
from adjoint.base.errors import ArgumentError
from adjoint.core.modes import watchers
from adjoint.core.rehearsal import rehearsal
from adjoint.core.tensor import Tensor
from adjoint.kernels import alloc
from adjoint.memory.ledger import Ledger, _role_of, bytes_of
from adjoint.memory.meters import Books
from adjoint.memory.reach import Reach, Shadows
from adjoint.memory.rehearse import Rehearsal
from adjoint.memory.report import Report, capacity


def predict(step_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """The memory that ``step_fn(*args, **kwargs)`` would take if it were called now.

    The step is run as it is, backward, optimizer and checkpointing included, with tensors that
    have no storage: those it is given, those it reaches (closures, globals it names, attributes,
    modules, optimizers) and those it makes. Afterwards everything is as before: tensors,
    gradients, optimizer state, lists, attributes, random states. Numbers are known only where the
    code writes them down (``tensor([1.0])``) and for tensors of no axes that need no gradient.

    Each kind of call (an op, shapes, dtypes, strides) is tried once on scratch arrays to learn
    its temporaries; where it needs more than 32 MB or 1 GFLOP, they are read off the same call on
    smaller arrays, and `Report.exact` is False. Counted is array memory: what NumPy asks its
    allocator for, kernel workspaces included; not Python objects, compiled code, or buffers
    inside of BLAS. Reference cycles are not collected while it runs.

    Raises:
        MetaError: where the code asks for a value that is not known (``.item()`` in a branch),
            naming the line.

    >>> import adjoint as ad
    >>> model = ad.nn.Linear(1000, 1000, bias=False)
    >>> opt = ad.optim.AdamW(model.parameters())
    >>> def step(x):
    ...     model(x).sum().backward(); opt.step(); opt.zero_grad()
    >>> report = predict(step, ad.zeros(8, 1000))
    >>> report.live - report.before >= 8_000_004   # two moments of 4 MB, a count, what was kept
    True
    >>> model.weight.grad is None, len(opt.state)
    (True, 0)
    """
    if not callable(step_fn):
        raise ArgumentError(f"predict(step_fn, *args): step_fn is a {type(step_fn).__name__}; "
                            "pass the function that runs one step")
    if rehearsal.get() is not None:
        raise ArgumentError("predict() inside of predict(): call it outside of the step")
    alloc.install()
    with _collected():
        books = Books()
        rehearser = Rehearsal(books)
        reach = Reach(step_fn, *args, *kwargs.values(), args, kwargs)
        token = account.set(books)
        running = rehearsal.set(rehearser)
        try:
            ledger, before = _run(reach, rehearser, lambda: step_fn(*args, **kwargs))
        finally:
            rehearsal.reset(running)
            account.reset(token)
    return Report(ledger, before, rehearser.assumed, "predicted")


def _run(reach: Reach, rehearser: Rehearsal, step: Callable[[], Any]) -> tuple[Ledger, int]:
    books: Books = rehearser.books
    ledger = Ledger(books)
    outer = rehearsal.set(None)              # (the generators' states are real tensors)
    try:
        shadows = Shadows(reach)
    finally:
        rehearsal.reset(outer)
    held = None
    try:
        books.meta += shadows.copied
        before = books.meta
        shadows.tell(rehearser.tell)
        enter(ledger, reach, shadows.tensors(), shadows.nodes())
        books.begin()
        held = watchers.push(watchers.observers, ledger)
        step()
        ledger.mark("end")
    finally:
        if held is not None:
            watchers.pop(held)
        shadows.undo()
    return ledger, before


def enter(ledger: Ledger, reach: Reach, tensors: Iterable[Any], nodes: Iterable[Any]) -> None:
    """Write down what is there when a run begins, with roles."""
    state = {id(t): f"{type(o).__name__}.{name}" for o in reach.optimizers
             for held in o.state.values() if isinstance(held, dict)
             for name, t in held.items() if isinstance(t, Tensor)}
    for t in tensors:
        if id(t) in state:
            continue
        ledger.own(t, _role_of(t))
        if t._grad is not None and not t._grad.level:
            ledger.own(t._grad, "gradient")
    for node in nodes:
        ledger.forward(node, (), ())
    for o in reach.optimizers:
        ledger.adopt(o)
    ledger.running = True


@contextmanager
def _collected() -> Iterator[None]:
    """Garbage in cycles is gone before, and stays until after: when Python's collector runs
    depends on all else that the process does."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def fits(step_fn: Callable[..., Any], *args: Any, device: Any, **kwargs: Any) -> bool:
    """True if a step's predicted peak fits on ``device`` ("H100-80GB", "16GB", or bytes).

    >>> import adjoint as ad
    >>> fits(lambda: ad.zeros(1000, 1000).sum(), device="1MB")
    False
    """
    room = capacity(device)
    return predict(step_fn, *args, **kwargs).peak <= room


def largest_batch(step_fn: Callable[[int], Any], device: Any, *, most: int = 1 << 20) -> int:
    """The largest n for which ``step_fn(n)``, one step with a batch of n, fits on ``device``.

    ``step_fn`` makes its own batch, ``ad.zeros(n, ...)`` say: it costs nothing. More examples are
    taken to need more memory. 0 where not even one fits; ``most`` bounds the search.

    >>> import adjoint as ad
    >>> w = ad.ones(1000, requires_grad=True)                            # 4 kB, and its gradient
    >>> step = lambda n: (w * ad.ones(n, 1000)).sum().backward()
    >>> 300 < largest_batch(step, 4_000_000) < 500         # rows of 4 kB
    True
    """
    if most < 1:
        raise ArgumentError(f"largest_batch: most={most}; it must be at least 1")
    room = capacity(device)

    def enough(n: int) -> bool:
        return predict(step_fn, n).peak <= room
    if not enough(1):
        return 0
    good, bad = 1, 2
    while bad <= most and enough(bad):
        good, bad = bad, bad * 2
    bad = min(bad, most + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        if enough(middle):
            good = middle
        else:
            bad = middle
    return good


__all__ = ["bytes_of", "fits", "largest_batch", "predict"]
