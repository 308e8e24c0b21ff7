"""`bind` in machine code (`kernels/bind_ir.py`) does what `core/bind.py` does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_kernels import leaks_nothing
from test_calls import described

import adjoint as ad
import adjoint.core.bind as general
from adjoint.base.errors import NotSupported
from adjoint.core.op import OPS
from adjoint.core.tensor import Port, Tensor
from adjoint.kernels import direct
from adjoint.ops import family
from adjoint.testing.samples import table

pytestmark = pytest.mark.skipif(direct.machine() is None, reason="no generated code here")
TABLE = table()
assert (ad.ones(2, 2) @ ad.ones(2, 2)).shape == (2, 2)      # loads it
MACHINE = general.machine


def without(monkeypatch: pytest.MonkeyPatch, f: Callable[[], Any]) -> Any:
    """`f()` by the Python code alone."""
    with monkeypatch.context() as m:
        m.setattr(general, "machine", None)
        return f()


def operand(value: Any, wants: bool) -> Any:
    """A tensor of an array; everything else as it is."""
    if not isinstance(value, (np.ndarray, Tensor)):
        return value
    t = value.detach().clone() if isinstance(value, Tensor) else ad.from_numpy(np.array(value))
    return t.requires_grad_(wants and t.is_floating_point())


def told(t: Any) -> list[Any]:
    """Everything that a result carries."""
    base = t._base
    out = [type(t), t.array.dtype, t.array.shape, t.array.strides, t._rg,
           np.asarray(t.array).tobytes(), (t._cell is None),
           None if base is None else id(base), [(s[0].name, s[1], s[2]) for s in t._steps],
           t._creation]
    n = t._edge
    if n is None:
        return out
    if type(n) is Port:
        out += [n.index, n.shape, n.dtype]
        n = n.node
    saved = n.saved and [described(s) for s in n.saved]
    return [*out, type(n), id(n.plan), n.shape, n.dtype, n.attrs,
            [None if e is None else (id(e.node), e.index) if type(e) is Port else id(e)
             for e in n.edges], saved, n.ports]


def parts(result: Any) -> tuple[Any, ...]:
    """The tensors of a result."""
    return result if type(result) is tuple else (result,)


@pytest.mark.parametrize("name", sorted(OPS))
def test_the_same_as_the_python_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, views and nodes of every record, with every operand, one, and none wanted."""
    op = OPS[name]
    done = 0
    for args, attrs in TABLE.get(name, ())[:4]:
        for wanted in ("all", "first", "none"):
            with ad.set_grad_enabled(wanted != "none"):
                operands = tuple(operand(a, wanted == "all" or i == 0)
                                 for i, a in enumerate(args))

                def run(operands: Any = operands, attrs: Any = attrs) -> Any:
                    ad.manual_seed(0)
                    return general.bind(op, operands, attrs)
                with np.errstate(all="ignore"):
                    want = without(monkeypatch, run)
                    ad.manual_seed(0)
                    got = MACHINE(op, operands, attrs)
                    if got is None:
                        continue
                    got = run()
                done += 1
                for g, w in zip(parts(got), parts(want), strict=True):
                    for mine, other in zip(told(g), told(w), strict=True):
                        assert mine == other
                    if g._edge is not None:
                        g, w = (n.node if op.multi else n for n in (g._edge, w._edge))
                        assert g.seq > w.seq and g.code is w.code
    if type(op).__name__ == "Op" and not op.variadic and done == 0:
        assert not TABLE.get(name) \
            or any(isinstance(a, (list, tuple)) for row in TABLE[name] for a in row[0]) \
            or not any(isinstance(a, (np.ndarray, Tensor)) for row in TABLE[name] for a in row[0])


def test_raw_arrays_give_raw_results() -> None:
    """As rules use it in backward: the function's own result, also a number of NumPy's."""
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    product = MACHINE(OPS["mm"], (a, a.T), {})
    assert type(product) is np.ndarray and np.array_equal(product, a @ a.T)
    total = MACHINE(OPS["sum_all"], (a,), {"dim": (0, 1), "keepdim": False})
    want = OPS["sum_all"].impl(a, dim=(0, 1), keepdim=False)
    assert type(total) is type(want) and total == want == 15.0
    shown = MACHINE(OPS["view"], (a,), {"shape": (6,)})
    assert type(shown) is np.ndarray and shown.base is a.base
    with pytest.raises(RuntimeError, match="size mismatch|shapes|multiplied"):
        general.bind(OPS["mm"], (a, a), {})


def test_errors_are_said_in_words() -> None:
    """What the op's function raised is raised again by the Python code, with its explanation."""
    a, b = ad.ones(2, 3, requires_grad=True), ad.ones(2, 3)
    assert MACHINE(OPS["matmul"] if "matmul" in OPS else OPS["mm"], (a, b), {}) is None
    with pytest.raises(RuntimeError, match="cannot be multiplied|size mismatch|do not"):
        a @ b
    with pytest.raises(RuntimeError):
        a.reshape(7)


def test_interrupts_and_memory_errors_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not swallowed, nor is anything computed twice."""
    calls: list[int] = []
    for error in (KeyboardInterrupt, MemoryError):
        def impl(*_: Any, error: Any = error, **__: Any) -> Any:
            calls.append(1)
            raise error
        with monkeypatch.context() as m:
            m.setattr(OPS["transpose"] if "transpose" in OPS else OPS["permute"], "impl", impl)
            with pytest.raises(error):
                general.bind(OPS["transpose"] if "transpose" in OPS else OPS["permute"],
                             (ad.ones(2, 2),), {"dim0": 0, "dim1": 1})
    assert len(calls) == 2


def test_what_is_not_its_business() -> None:
    """None for values of transforms, meta tensors, subclasses, foreign operands and states."""
    op, x = OPS["mm"], ad.ones(2, 2, requires_grad=True)
    assert MACHINE(op, (x, x), {}) is not None
    meta = ad.ones(2, 2, device="meta")
    for args in ((meta, meta), (x, meta), (x, "a"), (x, [1.0]), ()):
        assert MACHINE(op, args, {}) is None
    assert MACHINE(op, [x, x], {}) is None
    with ad.inference_mode():
        fresh = MACHINE(op, (x, x), {})
        assert fresh.is_inference() and not fresh.requires_grad
        view = MACHINE(OPS["view"], (fresh,), {"shape": (4,)})
        assert view.is_inference() and general.bind(OPS["view"], (x,), {"shape": (4,)})._base is x
    seen: list[Any] = []
    ad.func.vmap(lambda t: seen.append(MACHINE(op, (t, t), {})) or t)(ad.ones(3, 2, 2))
    assert seen == [None]


def test_views_reach_their_base() -> None:
    """In-place writes through a view made by machine code are seen by the base and its graph."""
    x = ad.ones(4, requires_grad=True)
    y = x * 1.0
    v = y.view(2, 2)
    assert v._base is y
    v.mul_(3.0)
    y.sum().backward()
    assert y.tolist() == [3.0] * 4 and x.grad.tolist() == [3.0] * 4


def test_nothing_leaks() -> None:
    """References and bytes after many calls, refusals and errors."""
    w, x = ad.ones(4, 4, requires_grad=True), ad.ones(4, 4)

    def work() -> None:
        for _ in range(300):
            y = (w @ x).sum()
            y = w.t().reshape(16).sum()
            y.backward()
            with ad.no_grad():
                x @ x
            MACHINE(OPS["mm"], (w, "other"), {})
            MACHINE(OPS["mm"], (w, ad.ones(3, 3)), {})
    work()
    op = OPS["mm"]
    shared = [None, True, False, op.plan(1), op.plan(3), op.node_type, op.impl, w._edge, 0, 1, -1]
    leaks_nothing(work, shared, 40)


ATTRIBUTES = [n for n, op in OPS.items() if type(op) is family.PointwiseOp and op.attrs]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_as_operands_of_loops(name: str) -> None:
    """A pointwise op with attributes gives the same bits after many calls as in the first ones,
    for shapes that broadcast, half-width floats and integers too."""
    op = OPS[name]
    rng, compared = np.random.default_rng(len(name)), 0
    slow = family._general(op, op.operands, op.attrs)           # (its first calls)
    few = family._few(op, op.operands, op.attrs, slow)
    attrs = {a: v for a, v in zip(op.attrs, (0.25, 3, -0.0), strict=False)}
    shapes = ((3,), (), (2, 3), (0,))
    for dtype in (np.float32, np.float64, np.float16, np.int64):
        for k, shape in enumerate(shapes):
            arrays = [(rng.uniform(0.5, 4.0, shape if i == 0 else shapes[k // 2])).astype(dtype)
                      for i in range(len(op.operands))]
            try:
                arrays = list(op.prepare(arrays)) if op.prepare else arrays
                with np.errstate(all="ignore"):
                    want = np.asarray(slow(*arrays, **attrs))
                    got = np.asarray(few(*arrays, **attrs))
            except (TypeError, NotSupported):       # no function of such a dtype
                assert dtype is np.int64 or dtype is np.float16
                continue
            compared += 1
            assert got.dtype == want.dtype and got.shape == want.shape
            assert got.tobytes() == want.tobytes(), (name, dtype, shape)
    assert compared >= 8
