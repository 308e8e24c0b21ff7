"""The law of prediction, over the table of ops: forward and backward of every record take on
storage-less tensors the bytes that they take on real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.base.aval import MetaArray
from adjoint.core.op import OPS
from adjoint.core.rehearsal import keeps_value
from adjoint.core.tensor import Tensor
from adjoint.kernels import alloc
from adjoint.memory.reduced import Reduced
from adjoint.memory.rehearse import shows
from adjoint.testing.samples import table

TABLE = table()
# A sparse gradient is made of the values of its indices: there is none without storage.
NAMES = sorted(n for n, rows in TABLE.items() if rows and n != "embedding_sparse")
pytestmark = pytest.mark.usefixtures("no_collector")
needs_allocator = pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")


def operand(a: Any, grad: bool) -> Any:
    if not isinstance(a, np.ndarray):
        return a
    return ad.tensor(a, requires_grad=grad and a.dtype.kind in "fc")


def law(name: str) -> None:
    op = OPS[name]
    for args, attrs in TABLE[name]:
        for grad in (False, True):
            given = [operand(a, grad) for a in args]

            def step(op: Any = op, given: Any = given, attrs: Any = attrs) -> None:
                out = op.call(*given, **attrs)
                many = [t for t in (out if isinstance(out, (tuple, list)) else [out])
                        if isinstance(t, Tensor) and t.requires_grad]
                if many:
                    ad.autograd.backward(many, [ad.ones_like(t) for t in many])

            step()                           # what is built at the first use is not the step's
            for x in given:
                if isinstance(x, Tensor):
                    x.grad = None
            predicted = ad.memory.predict(step)
            with ad.memory.track(step) as measured:
                step()
            assert predicted.timeline == measured.timeline, (name, attrs)
            real = all(keeps_value(a.shape, a.dtype) for a in args if isinstance(a, np.ndarray))
            assert predicted.exact == (real or not op.by_value), (name, attrs)
            if not predicted.exact:
                continue
            assert predicted.tops == measured.tops, (name, attrs)
            assert predicted.before == measured.before


@needs_allocator
@pytest.mark.row("F62")
@pytest.mark.parametrize("name", NAMES[::16])
def test_some_records(name: str) -> None:
    law(name)


@needs_allocator
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_record(name: str) -> None:
    law(name)


@needs_allocator
@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 4, 6), (4, 1), (0, 3), ()])
def test_where_a_reshape_is_a_view(shape: tuple[int, ...]) -> None:
    """Against NumPy, over permutations, steps and targets."""
    whole = np.zeros([2 * n for n in shape], np.float32)
    cut = whole[tuple(slice(0, n) for n in shape)]
    size = int(np.prod(shape))
    targets = {shape, shape[::-1], (size,), (1, size), (*shape, 1), (size, 1, 1)}
    targets |= {(n, size // n) for n in (2, 3, 5, 7, 15, 21, 35) if size and size % n == 0}
    for base in (np.zeros(shape, np.float32), np.asarray(cut), np.asarray(cut).T,
                 cut[::-1] if shape else np.asarray(cut)):
        for target in targets:
            copied = base.reshape(target)
            real = np.may_share_memory(copied, base) or not size
            assert shows(base, target) == real, (base.shape, base.strides, target)


def test_reduced_calls_keep_the_order_and_the_gaps_of_strides() -> None:
    root = MetaArray((4, 8192, 3, 64, 128), np.dtype("float32"))
    step = 3 * 64 * 128 * 4
    q = MetaArray((4, 64, 8192, 128), np.dtype("float32"), root,
                  (8192 * step, 128 * 4, step, 4))
    w = MetaArray((8192, 8192), np.dtype("float32"))
    small = Reduced(("x", [q, w, q], 8192), {"shape": (8192, 7)}, [q, w], [], 64 << 20,
                    lambda a: 0.0)
    name, (a, b, c), n = small.args
    assert name == "x" and a is c and b.shape == (n, n) and small.kwargs == {"shape": (n, 7)}
    assert a.shape == (4, 64, n, 128) and 256 <= n < 8192
    assert a.strides == (n * step, 512, step, 4) and not a.contiguous and b.contiguous


def test_results_are_shortened_too() -> None:
    """The gradient of a table is as long as the table, which the operands do not show."""
    single = np.dtype("float32")
    ct, table = MetaArray((1, 512, 8192), single), MetaArray((128256, 8192), single)
    small = Reduced((ct,), {"rows": 128256}, [ct], [table], 2 << 20, lambda a: 0.0)
    rows, width = small.kwargs["rows"], small.args[0].shape[2]
    assert small.nbytes <= 2 << 20 and 4 * rows * width <= 2 << 20
