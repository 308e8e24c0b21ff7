"""F123: what `__torch_dispatch__` is called with: overloads and arguments of PyTorch's schemas,
which the overloads take back."""
from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.dispatch import SHOWN
from adjoint.core.op import OPS
from adjoint.core.tensor import wrap
from adjoint.testing import samples
from adjoint.utils._mode_utils import no_dispatch
from adjoint.utils._python_dispatch import TorchDispatchMode

ops = importlib.import_module("adjoint.ops.aten_calls")
TABLE = samples.table()


def outs(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_an_overload_takes_the_arguments_that_handlers_get(name: str) -> None:
    record, made = OPS[name], TABLE[name]
    assert made
    for args, attrs in made:
        given = [wrap(np.asarray(a)) if isinstance(a, np.ndarray) else a for a in args]
        want = record.exposed.call(*given, **attrs)
        func, shown, named, *own = SHOWN[name](record, (given,) if record.variadic else given,
                                               attrs)
        got = func(*shown, **named)
        for back in own:                        # PyTorch's results as the record's
            got = back(*got)
        assert len(outs(got)) == len(outs(want))
        for a, b in zip(outs(got), outs(want), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            assert np.allclose(a.array, b.array, rtol=1e-12, atol=0, equal_nan=True)


CALLS = {
    "view": lambda t, x: x.view(2, 8), "permute": lambda t, x: x.permute(1, 0),
    "select": lambda t, x: x[1], "slice": lambda t, x: x[1:3], "column": lambda t, x: x[:, 1],
    "expand": lambda t, x: x.expand(2, 4, 4), "unsqueeze": lambda t, x: x[None],
    "diagonal": lambda t, x: x.diagonal(), "unbind": lambda t, x: x.unbind(),
    "split": lambda t, x: x.split(3), "chunk": lambda t, x: x.chunk(2, 1),
    "sum": lambda t, x: x.sum(), "sum of rows": lambda t, x: x.sum(1, keepdim=True),
    "mean": lambda t, x: x.mean((0, 1)), "max": lambda t, x: x.max(1), "amax": lambda t, x:
    x.amax(1), "argmax": lambda t, x: x.argmax(), "prod": lambda t, x: x.prod(), "var":
    lambda t, x: x.var(), "any": lambda t, x: x.any(), "all": lambda t, x: x.all(),
    "cumsum": lambda t, x: x.cumsum(0), "logsumexp": lambda t, x: x.logsumexp(1),
    "cat": lambda t, x: t.cat([x, x], 1), "stack": lambda t, x: t.stack([x, x]),
    "topk": lambda t, x: x.topk(2), "gt": lambda t, x: x > 0, "ge": lambda t, x: x >= x,
    "rsub": lambda t, x: 2 - x, "square": lambda t, x: x ** 2, "clamp": lambda t, x: x.clamp(0),
    "clamp of two": lambda t, x: x.clamp(0, 1), "double": lambda t, x: x.double(),
    "alpha": lambda t, x: t.add(x, x, alpha=2), "addmm": lambda t, x: t.addmm(x, x, x),
    "gather": lambda t, x: x.gather(1, t.zeros(4, 4, dtype=t.int64)), "tril": lambda t, x: x.tril(),
    "repeat": lambda t, x: x.repeat(2, 1), "flip": lambda t, x: x.flip(0),
    "add_": lambda t, x: x.add_(1), "mul_": lambda t, x: x.mul_(x), "exp_": lambda t, x: x.exp_(),
    "zeros": lambda t, x: t.zeros(2, 3), "rand": lambda t, x: t.rand([2]),
    "empty": lambda t, x: t.empty(2), "randint": lambda t, x: t.randint(0, 5, (3,)),
    "arange": lambda t, x: t.arange(1, 5, 2), "new": lambda t, x: x.new_zeros(2),
    "full": lambda t, x: t.full((2,), 3.0),
}


def shown(x: Any, tensor: type[Any]) -> Any:
    """Tensors by their shapes, and the rest in words."""
    if isinstance(x, tensor):
        return tuple(x.shape)
    if isinstance(x, (list, tuple)):
        return [shown(v, tensor) for v in x]
    return str(x)


# What PyTorch adds to the arguments of functions that make tensors.
USUAL = ("device", "pin_memory", "layout")


@pytest.mark.parametrize("name", CALLS)
def test_handlers_get_what_those_of_pytorch_get(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
    logs = []
    for library, base in ((ad, TorchDispatchMode), (torch, theirs)):
        log: list[Any] = []

        def note(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None,
                 library: Any = library, log: list[Any] = log) -> Any:
            out = func(*args, **(kwargs or {}))
            named = {k: str(v).split(".")[-1] for k, v in (kwargs or {}).items() if k not in USUAL}
            log.append((str(func), shown(args, library.Tensor), named,
                        shown(out, library.Tensor)))
            return out
        x = library.arange(16.0).reshape(4, 4) / 8
        with type("Mode", (base,), {"__torch_dispatch__": note})():
            CALLS[name](library, x)
        logs.append(log)
    assert logs[0] == logs[1]


def test_operators_are_one_object_wherever_they_are_named() -> None:
    seen: list[Any] = []

    class Note(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))
    x = ad.ones(2)
    with Note():
        x.add_(1).exp_()
        _ = x > 0, x > x, 2 - x, ad.zeros(2)
    aten = ad.ops.aten
    wanted = [aten.add_.Tensor, aten.exp_.default, aten.gt.Scalar, aten.gt.Tensor,
              aten.rsub.Scalar, aten.zeros.default]
    assert all(a is b for a, b in zip(seen, wanted, strict=True))
    assert aten.gt.Scalar(x, 0).all() and aten.gt.Scalar.overloadpacket is aten.gt


def test_modes_are_opened_and_closed_by_hand() -> None:
    dispatch = importlib.import_module("adjoint.utils._python_dispatch")
    seen: list[Any] = []

    def state() -> tuple[int, bool]:
        return dispatch._len_torch_dispatch_stack(), dispatch.is_in_torch_dispatch_mode()

    class Note(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            seen.append((str(func), state()))
            return func(*args, **(kwargs or {}))
    mode, x = Note(), ad.ones(1)
    assert state() == (0, False)
    with mode:
        assert state() == (1, True)
        with dispatch._pop_mode_temporarily() as closed:
            assert closed is mode and state() == (0, False)
            x.exp()
        x.neg()
    dispatch._push_mode(mode)
    x.sin()
    assert dispatch._pop_mode() is mode and state() == (0, False)
    x.cos()
    assert seen == [("aten.neg.default", (0, True)), ("aten.sin.default", (0, True))]


def test_wrappers_show_the_strides_that_they_were_given() -> None:
    """And where nobody is asked they are that outline: views of it, `set_` to another."""
    class Held(ad.Tensor):
        @staticmethod
        def __new__(cls: type, x: Any) -> Any:
            made = ad.Tensor._make_wrapper_subclass(
                cls, x.shape, strides=x.stride(), storage_offset=x.storage_offset(), dtype=x.dtype)
            made.x = x
            return made

        @classmethod
        def __torch_dispatch__(cls, func: Any, *_: Any) -> Any:
            raise AssertionError(f"{func} was asked")
    w, other = Held(ad.ones(4, 3)[1:].t()), Held(ad.ones(2))
    assert (w.stride(), w.storage_offset(), w.is_contiguous()) == ((1, 3), 3, False)
    with no_dispatch():
        v = w.t()[1:]
        assert (tuple(v.shape), v.stride(), v.storage_offset()) == ((2, 3), (3, 1), 6)
        other.set_(v)
    assert (tuple(other.shape), other.stride(), other.storage_offset()) == ((2, 3), (3, 1), 6)
    with pytest.raises(AssertionError, match="aten.t.default was asked"):
        w.t()
