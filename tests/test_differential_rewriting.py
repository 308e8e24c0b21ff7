"""What in-place changes of shape, of memory and of history do, beside PyTorch: each program runs on
both libraries and prints the same, errors by their first words (F13, F23, F24).
"""
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adjoint as ad

Program = Callable[[Any], Iterator[Any]]
PROGRAMS: dict[str, Program] = {}


def program(f: Program) -> Program:
    """Enter a program into the table."""
    PROGRAMS[f.__name__] = f
    return f


def leaf(t: Any, *shape: int) -> Any:
    return (t.arange(1.0, 1.0 + int(np.prod(shape)), dtype=t.float64)
            .reshape(shape).clone().requires_grad_())


def shown(v: Any) -> Any:
    """A value as both libraries have it."""
    if isinstance(v, (tuple, list)):
        return [shown(x) for x in v]
    return v.detach().tolist() if hasattr(v, "detach") else v


def said(f: Callable[..., Any], *args: Any) -> Any:
    """The value, or the first words of the error."""
    try:
        return shown(f(*args))
    except RuntimeError as error:
        words = str(error).partition("\n")[0][:110]
        return words.partition(" (F: ")[0].partition(", got")[0]      # what only ours adds


@program
def views_of_nothing_dropped(t: Any) -> Iterator[Any]:
    for view in (lambda y: y.squeeze(), lambda y: y.squeeze(0), lambda y: y.squeeze((0, 1))):
        x = leaf(t, 2, 3)
        y = x * 2
        v = view(y)
        v.mul_(3)
        y.sum().backward()
        yield x.grad, v._is_view(), v._base is y, y._version
    y = leaf(t, 2, 3).exp()
    y.squeeze().detach().mul_(2)
    yield said(lambda: y.sum().backward())


@program
def shapes_in_place(t: Any) -> Iterator[Any]:
    for name, args in (("unsqueeze_", (0,)), ("squeeze_", ()), ("transpose_", (0, 1)), ("t_", ()),
                       ("as_strided_", ((3,), (2,)))):
        yield said(getattr(leaf(t, 2, 3), name), *args)
        yield said(getattr(leaf(t, 2, 3)[:, :], name), *args)
        w = leaf(t, 2, 3)
        with t.no_grad():
            getattr(w, name)(*args)
        yield w, w.requires_grad, w.is_leaf
        (w * w).sum().backward()
        yield w.grad
        y = leaf(t, 2, 3) * 2
        with t.no_grad():
            getattr(y, name)(*args)
        yield y.requires_grad, type(y.grad_fn).__name__
        y.detach_()
        yield y.requires_grad


@program
def shapes_with_views_alive(t: Any) -> Iterator[Any]:
    x = leaf(t, 2, 3)
    y = x * 2
    row = y[0]
    y.t_()
    row.mul_(2)
    yield y, row, y._version
    y.mul_(3)
    yield y, row
    (y.sum() + row.sum()).backward()
    yield x.grad


@program
def memory_in_place(t: Any) -> Iterator[Any]:
    y = t.arange(6.0)
    row, place = y[:3], y.data_ptr()
    y.resize_(2, 2)
    row.mul_(5)
    yield y, y.data_ptr() == place
    y.resize_(2, 3)
    yield y, y._version, y.data_ptr() == place
    yield t.arange(6.0).reshape(2, 3).t().resize_(6)
    part = t.arange(6.0)[2:]
    yield part.resize_(2), part.storage_offset(), part.resize_(4)
    z = t.arange(2.0)
    yield z.resize_(3)[:2], tuple(z.shape)
    yield said(lambda: leaf(t, 2).resize_(1))
    yield said(lambda: leaf(t, 2).set_(t.zeros(1, dtype=t.float64)))
    yield said(lambda: setattr(leaf(t, 2), "data", t.zeros(2, dtype=t.int64)))
    yield said(lambda: leaf(t, 2).detach().set_(t.zeros(1)))[:28]


@program
def views_that_may_not_be_written_to(t: Any) -> Iterator[Any]:
    for base in (leaf(t, 4), leaf(t, 4) * 2):
        for split in (lambda y: y.chunk(2), lambda y: y.split(2), lambda y: y.unbind(0)):
            yield said(split(base)[0].mul_, 2)
            with t.no_grad():
                parts = split(base)
            yield said(parts[0].mul_, 2)
            yield said(split(t.ones(4, dtype=t.float64))[0].mul_, leaf(t, 4)[0])
        with t.no_grad():
            view = base[:2]
        yield said(view.mul_, 2)
        with t.inference_mode():
            view = base[:2]
        yield said(view.mul_, 2)
    for split in (t.unsafe_chunk, t.unsafe_split):
        y = leaf(t, 4) * 2
        parts = split(y, 2)
        parts[0].mul_(3)
        yield y, parts


@program
def functions(t: Any) -> Iterator[Any]:
    def made(forward: Any, **rest: Any) -> Any:
        return type("F", (t.autograd.Function,), {
            k: staticmethod(v) for k, v in {"forward": forward, **rest}.items()}).apply

    def saving(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x, 3)
        return x * 2

    def dirty(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(2)

    def passed(ctx: Any, g: Any) -> Any:
        return g

    def twice(ctx: Any, x: Any, n: int = 2) -> Any:
        return x * n
    with pytest.raises(TypeError, match="can only save variables, but argument 1 is of type int"):
        made(saving, backward=passed)(leaf(t, 3))
    f = made(twice, backward=lambda ctx, g: (g, g))
    yield said(lambda: f(leaf(t, 3), 2).sum().backward())
    f = made(twice, backward=passed, vjp=passed)
    yield said(lambda: f(leaf(t, 3)).sum().backward())
    f = made(dirty, backward=passed)
    yield said(lambda: f((leaf(t, 4) * 1).chunk(2)[0]))
    yield said(lambda: f((leaf(t, 4) * 1)[:2]))
    f = made(lambda x: x * 2, setup_context=lambda ctx, i, o: None, backward=passed)
    yield said(lambda: t.func.jvp(f, (leaf(t, 3),), (leaf(t, 3),)))
    f = made(lambda x: x * 2, setup_context=lambda ctx, i, o: None, backward=passed,
             vmap=lambda info, dims, x: x * 2)
    yield said(lambda: t.vmap(f)(leaf(t, 2, 3)))


@program
def exchanges(t: Any) -> Iterator[Any]:
    a, b = t.ones(2), t.nn.Parameter(t.zeros(3))
    a.note = 3
    (b * 2).sum().backward()
    t.utils.swap_tensors(a, b)
    yield a, b, a.grad, b.grad, b.note, hasattr(a, "note"), type(a).__name__, type(b).__name__
    (a * 5).sum().backward()
    yield a.grad, a.is_leaf, b.requires_grad
    x, y = leaf(t, 2), t.zeros(1)
    z = x * 2
    t.utils.swap_tensors(z, y)
    y.sum().backward()
    yield x.grad, type(y.grad_fn).__name__, z.requires_grad
    w = t.ones(2)
    with t.autograd._unsafe_preserve_version_counter(w):
        w.mul_(2)
    yield w._version, w
    with t.autograd._force_original_view_tracking(True):
        base = leaf(t, 3) * 2
        view = base[:1]
        base.mul_(2)
        yield type(view.grad_fn).__name__, view


def run(t: Any, name: str) -> list[Any]:
    return [shown(v) for v in PROGRAMS[name](t)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():        # torch.func loads parts that the library itself reports
        warnings.simplefilter("ignore", DeprecationWarning)
        theirs = run(torch, name)
    ours = run(ad, name)
    for mine, his in zip(ours, theirs, strict=True):
        assert mine == his, name


class TestWithoutTheOracle:
    def test_what_is_written_to_a_squeezed_view_reaches_the_gradient(self) -> None:
        (grad, *rest), *_ = run(ad, "views_of_nothing_dropped")
        assert grad == [[6.0] * 3] * 2 and rest == [True, True, 1]

    def test_a_leaf_stays_one(self) -> None:
        w = ad.nn.Parameter(ad.ones(2, 3))
        with ad.no_grad():
            w.t_()
        (w * 2).sum().backward()
        assert w.grad.tolist() == [[2.0, 2.0]] * 3 and w.is_leaf

    def test_smaller_shows_the_same_memory(self) -> None:
        y = ad.arange(6.0)
        row = y[:3]
        y.resize_(2)
        row.mul_(5)
        assert y.tolist() == [0.0, 5.0] and y.resize_(6).tolist() == [0.0, 5.0, 10.0, 3.0, 4.0, 5.0]

    def test_a_graph_notices_that_its_values_were_exchanged(self) -> None:
        a, b = leaf(ad, 3), leaf(ad, 3) * 7
        y = (a * a).sum()
        ad.utils.swap_tensors(a, b)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
        whole = ad.ones(3)
        view = whole[:1]
        with pytest.raises(RuntimeError, match="Cannot swap t2 because it has views"):
            ad.utils.swap_tensors(ad.ones(1), whole)
        with pytest.raises(RuntimeError, match="Cannot swap t1"):
            ad.utils.swap_tensors(view, ad.ones(1))

    @pytest.mark.parametrize("counts", [True, False])
    def test_data_of_another_tensor(self, counts: bool, monkeypatch: Any) -> None:
        """Assignment to .data is a write here, and none in a program that is served as PyTorch."""
        monkeypatch.setattr("adjoint.core.tensor.Cell.data_counts", counts)
        x = leaf(ad, 3)
        y = (x * x).sum()
        x.data = ad.zeros(3, dtype=ad.float64)
        if counts:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.backward()
        else:
            y.backward()
            assert x.grad.tolist() == [0.0, 0.0, 0.0]
