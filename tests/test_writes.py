"""In-place ops in machine code (`kernels/writes_ir.py`) do what `core/inplace.py` does."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from helpers_kernels import leaks_nothing

import adjoint as ad
from adjoint.base.errors import AutogradError
from adjoint.core import inplace as core
from adjoint.core.op import OPS
from adjoint.kernels import direct

pytestmark = pytest.mark.skipif(direct.machine() is None, reason="no generated code here")
NAMES = [n for n, op in OPS.items() if op.own is not None and op.own.build is not None]


def ready(op: Any) -> bool:
    """Have the op and its in-place form in machine code, where it can be."""
    own, x = op.own, [ad.ones(2)] * len(op.operands)
    with np.errstate(all="ignore"):
        own.run(np.dtype(np.float32), *[np.ones(2, np.float32)] * len(op.operands))
        own.function(*x)
    return own.machine is not None


@pytest.mark.parametrize("name", NAMES)
def test_the_same_as_without(name: str, monkeypatch: Any) -> None:
    """Values, version, and what is told of the write, for tensors and numbers."""
    op = OPS[name]
    if not ready(op):
        pytest.skip("computed by functions that are no ufunc loops")
    rng, taken = np.random.default_rng(len(name)), 0
    for dtype in (np.float32, np.float64):
        for shape in ((), (1,), (5,), (2, 3)):
            values = rng.uniform(0.1, 0.9, (2, *shape)).astype(dtype)
            others = [()] if len(op.operands) == 1 else [(ad.tensor(values[1]),), (3,), (0.5,)]
            for other in others:
                made = []
                for machine in (False, True, True):
                    t = ad.tensor(values[0])
                    with np.errstate(all="ignore"):
                        if machine:
                            done = op.own.write(t, *other, "written_")
                            made += [(t.array.tobytes(), t._version, t._cell.what)] if done else []
                            taken += bool(done)
                        elif op.infer(*[t] * len(op.operands)).dtype == dtype:
                            arrays = [getattr(o, "array", o) for o in other]
                            core._written(op, t.array, [t.array, *arrays], {}, "written_")
                            core.bump(t, "written_")
                            made.append((t.array.tobytes(), t._version, t._cell.what))
                assert len(set(made)) <= 1, (dtype, shape, other)
    assert taken or op.infer(ad.ones(2), *[ad.ones(2)] * (len(op.operands) - 1)).dtype == np.bool_


def test_ops_of_several_operands_are_copied(monkeypatch: Any) -> None:
    """The value that machine code binds goes into the target's memory, and is counted once."""
    def through_python(*_: Any) -> bool:
        raise AssertionError("a small write went the long way")
    t, a, b = (ad.tensor([x, 2.0 * x]) for x in (0.5, 1.5, 2.5))
    calls = {"addcmul_": (a, b), "addcdiv_": (a, b), "lerp_": (a, 0.25), "clamp_": (0.0, 1.0)}
    want = {n: getattr(t.clone(), n)(*args).tolist() for n, args in calls.items()}
    for name, args in calls.items():
        x, alias = t.clone(), t.clone()
        view = alias[:]
        for _ in range(60):                                 # until it is in machine code
            getattr(t.clone(), name)(*args)
        with monkeypatch.context() as m:
            m.setattr(core, "_quickly", through_python)
            assert getattr(x, name)(*args) is x and x._version == 1
            assert getattr(alias, name)(*args)._version == view._version == 1
        assert x.tolist() == view.tolist() == want[name]
    leaf = ad.ones(2, requires_grad=True)
    y = leaf * 1
    assert y.addcmul_(a, b).grad_fn is not None and y._version == 1
    with pytest.raises(AutogradError, match="a leaf Variable"):
        leaf.clamp_(0.0, 1.0)


def test_what_is_not_its_business() -> None:
    """None, with nothing done, where history has to be told, or the result has another form."""
    assert ready(OPS["mul"])
    write = OPS["mul"].own.write
    x, wants = ad.ones(4), ad.ones(4, requires_grad=True)
    for _ in range(2):
        assert write(x, 2.0, "mul_") in (True, None)                # 2.0 is known from now on
    kept = x.clone()
    views = (wants * 1.0)[:2]
    frozen = np.ones(4, np.float32)
    frozen.flags.writeable = False
    with ad.inference_mode():
        inferred = ad.ones(4)
        assert write(x, 2.0, "mul_") is None
    for target, other in ((x, wants), (wants, x), (views, 2.0), (inferred, 2.0), (x, ad.ones(3)),
                          (ad.tensor(1.0), x), (2.0, x), (x, ad.ones(4, dtype=ad.float64)),
                          (ad.ones(4, 4).T, ad.ones(4, 4)), (x, None), (ad.arange(4), 2.5),
                          (ad.core.tensor.wrap(frozen), 2.0), (ad.ones(40000), 2.0)):
        assert write(target, other, "mul_") is None
    assert x.tolist() == kept.tolist() and wants.tolist() == views.tolist() * 2
    with ad.no_grad():
        assert write(wants, x, "mul_") is True
    with pytest.raises(AutogradError, match="read-only"):
        ad.core.tensor.wrap(frozen).mul_(2.0)
    with pytest.raises(AutogradError, match="a leaf Variable"):
        wants.mul_(2.0)


def test_a_write_is_found_by_backward() -> None:
    """The version, the op's name and the user's line are those of the Python steps; views of
    one storage share them."""
    x, c = ad.ones(3, requires_grad=True), ad.ones(3)
    c * c, ready(OPS["add"])
    y = x * c
    rows = c[1:]
    line = sys._getframe().f_lineno + 1
    rows += 1.0
    rows.add_(rows)
    assert c.tolist() == [1.0, 4.0, 4.0] and c._version == 2 == rows._version
    with pytest.raises(AutogradError, match="modified by an inplace") as told:
        y.sum().backward()
    assert f"last modified by add_ at {__file__}:{line + 1}" in str(told.value)


def test_nothing_leaks() -> None:
    """Objects, references and bytes after many writes, taken and refused."""
    x, y, s = ad.ones(8), ad.ones(8), ad.tensor(2.0)
    assert ready(OPS["add"]) and ready(OPS["relu"])

    def work() -> None:
        for _ in range(500):
            x.add_(y)
            x.mul_(0.5)
            s.relu_()
            OPS["add"].own.write(s, x, "add_")
            x[2:].add_(1.0)
    work()
    shared = [None, True, False, ad.Tensor, 0, 1, x, y, s, x._cell, work.__code__]
    leaks_nothing(work, shared, 60)


PLAIN: dict[str, Any] = {
    "zero_": lambda t: t.zero_(), "fill_": lambda t: t.fill_(-0.0), "copy_": lambda t: t.copy_(-t),
    "row": lambda t: t.__setitem__(1, 2.5), "rows": lambda t: t.__setitem__(slice(1, 3), t[:2] + 1),
    "one": lambda t: t.__setitem__((-1, 2), float("-inf")),
    "column": lambda t: t.__setitem__((slice(None), 0), 7),
    "mask": lambda t: t.__setitem__(t > 0, float("nan")),
    "ids": lambda t: t.__setitem__(ad.tensor([0, -1]), ad.ones(2, 4)),
    "number at ids": lambda t: t.__setitem__(ad.tensor([2, 2]), 3.0),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_writes_are_counted_as_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, versions, the user's line, and what backward says: with machine code and without."""
    found = []
    for quick in (True, False):
        with monkeypatch.context() as m:
            if not quick:
                m.setattr(core, "touch", lambda *_: None)
            t = ad.tensor([[0.5, -1.0, 2.0, -0.0], [1.0, 2.0, 3.0, 4.0], [-1.0, 0.0, 5.0, 6.0]])
            w = ad.ones(3, 4, requires_grad=True)
            y = (w * t).sum()
            PLAIN[name](t)
            with pytest.raises(AutogradError) as told:
                y.backward()
            assert "test_writes.py" in str(told.value)
            found.append((t.array.tobytes(), t._version, str(told.value)))
    assert found[0][:2] == found[1][:2] and found[0][1] == 1


def test_what_plain_writes_refuse() -> None:
    """With nothing counted where nothing was written."""
    t = ad.zeros(3, 4)
    for index, v in ((3, 1.0), ((0, 4), 1.0), (ad.tensor([3]), 1.0), (0, ad.ones(3)),
                     (ad.tensor([0]), ad.ones(2, 4))):
        with pytest.raises((IndexError, RuntimeError)):
            t[index] = v
    assert t._version == 0 and not t.array.any()
    leaf = ad.zeros(3, requires_grad=True)
    for write in (lambda: leaf.zero_(), lambda: leaf.copy_(ad.ones(3)),
                  lambda: leaf.__setitem__(0, 1.0)):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            write()
    with ad.no_grad():
        leaf.fill_(2.0)
        leaf[0] = 1.0
    assert leaf.tolist() == [1.0, 2.0, 2.0] and leaf._version == 2
    source = ad.ones(3, requires_grad=True)
    target = ad.zeros(3)
    target.copy_(source)
    target[0] = (source * 2)[1]
    assert target.requires_grad and target.tolist() == [2.0, 1.0, 1.0]
    base = ad.zeros(2, 3)
    base[0].fill_(1.0)
    base[1][2] = 5.0
    assert base.tolist() == [[1.0] * 3, [0.0, 0.0, 5.0]] and base._version == 2
    with ad.inference_mode():
        held = ad.zeros(2)
        held.zero_()
    big = ad.zeros(2)
    big.fill_(float("inf"))
    assert big.tolist() == [float("inf")] * 2
