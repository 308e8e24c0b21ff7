"""In-place ops on the arguments of transforms: what changes outside, against `torch.func`, and what
is refused (F10, F54)."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.base.errors import AutogradError, DTypeError, NotSupported, ShapeError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning",
                                        "ignore:There is a performance drop:UserWarning")
Program = Callable[[Any], Any]


def plain(x: Any) -> Any:
    """Tensors of either library as nested lists."""
    if isinstance(x, (tuple, list)):
        return [plain(v) for v in x]
    return x.detach().tolist() if hasattr(x, "detach") else x


def ones(m: Any, *shape: int, **options: Any) -> Any:
    return m.ones(*shape, dtype=m.float64, **options)


def mapped(write: Callable[[Any, Any], Any], **options: Any) -> Program:
    """`write` under vmap: the argument afterwards, and the result."""
    def run(m: Any) -> Any:
        x = ones(m, 3, 4)
        y = m.func.vmap(lambda v: write(m, v), **options)(x)
        return x, y
    return run


def assigned(m: Any, v: Any) -> Any:
    v[1:3] = 5.0
    v[0] += v[3]
    return v.sum()


def in_a_view(m: Any, v: Any) -> Any:
    v[2:].mul_(7.0)
    v.view(2, 2)[0].zero_()
    return v * 1


def many(m: Any, v: Any) -> Any:
    v.masked_fill_(v > 0, 2.0)
    v.clamp_(max=1.5)
    v.index_put_((m.tensor([0]),), m.tensor(9.0, dtype=m.float64))
    v.scatter_(0, m.tensor([1]), 7.0)
    v.copy_(v.flip(0))
    return v.sum()


def shared_source(m: Any) -> Any:
    x, z = ones(m, 3, 2), ones(m, 2)
    return m.func.vmap(lambda v, w: v.add_(w), in_dims=(0, None))(x, z), x, z


def all_shared(m: Any) -> Any:
    x, z = ones(m, 3, 2), ones(m, 2)
    return m.func.vmap(lambda v, w: v * w.add_(1), in_dims=(0, None))(x, z), x, z


def destination(m: Any) -> Any:
    x, out = ones(m, 3, 2), m.zeros(3, 2)
    m.func.vmap(lambda v, o: o.copy_(v * 2))(x, out)
    return x, out


def nested(m: Any) -> Any:
    x = ones(m, 2, 3, 4)

    def outer(v: Any) -> Any:
        m.func.vmap(lambda w: w.add_(1), in_dims=1)(v)
        return v * 2
    return m.func.vmap(outer)(x), x


def along(m: Any) -> Any:
    x, t = ones(m, 3, 2), m.full((3, 2), 2.0, dtype=m.float64)
    out = m.func.jvp(lambda v: v.mul_(3).add_(v.sum(0)), (x,), (t,))
    return out, x, t


def columns(m: Any) -> Any:
    x = ones(m, 3)
    return m.func.jacfwd(lambda v: v.mul_(3))(x), x


def dual(m: Any) -> Any:
    x, t = ones(m, 3), m.full((3,), 2.0, dtype=m.float64)
    fw = m.autograd.forward_ad
    with fw.dual_level():
        d = fw.make_dual(x, t)
        d.mul_(3)
        found = tuple(fw.unpack_dual(d))
    return found, x, t


def history(m: Any) -> Any:
    """A tensor with a history that is written to under vmap, then used."""
    x = ones(m, 3, 2, requires_grad=True)
    h = x * 2
    y = m.func.vmap(lambda v: v.mul_(v + 1).sum())(h)
    (h.sum() + (y * y).sum()).backward()
    return h, y, x.grad


def gradient_through(m: Any) -> Any:
    """A plain tensor that a derivative enters by a write."""
    def f(w: Any) -> Any:
        k = ones(m, 2, 3)
        m.func.vmap(lambda v, u: v.mul_(u).sum())(k, w)
        return (k * k).sum()
    return m.func.grad(f)(m.full((2, 3), 2.0, dtype=m.float64))


def tangent_through(m: Any) -> Any:
    def f(w: Any) -> Any:
        k = w * 1
        m.func.vmap(lambda v: v.mul_(3))(k)
        return k * k
    return m.func.jvp(f, (ones(m, 2, 3),), (m.full((2, 3), 2.0, dtype=m.float64),))


def without_grad(m: Any) -> Any:
    p = ones(m, 2, 3, requires_grad=True)

    def f(v: Any) -> Any:
        with m.no_grad():
            v.add_(1)
        return v * 2
    return m.func.vmap(f)(p), p, p.requires_grad, p.is_leaf


def reshaped(m: Any) -> Any:
    def f(v: Any) -> Any:
        v.unsqueeze_(0)
        v.mul_(3)
        v.squeeze_(0)
        return v[1:].unsqueeze_(0) * 2
    x = ones(m, 3, 4)
    return m.func.vmap(f)(x), x


def statistics(m: Any) -> Any:
    """Each model of an ensemble moves its own running statistics."""
    nets = [m.nn.BatchNorm1d(3).double() for _ in range(2)]
    parameters, buffers = m.func.stack_module_state(nets)
    x = m.arange(24.0, dtype=m.float64).reshape(2, 4, 3)
    m.func.vmap(lambda p, b, v: m.func.functional_call(nets[0], (p, b), (v,)))(
        parameters, buffers, x)
    return buffers["running_mean"], buffers["running_var"], buffers["num_batches_tracked"]


AGREE = {
    "add": mapped(lambda m, v: v.add_(1)), "other axis": mapped(lambda m, v: v.add_(1), in_dims=1),
    "fill": mapped(lambda m, v: v.fill_(4.0)), "assignment": mapped(assigned),
    "view": mapped(in_a_view), "chunks": mapped(lambda m, v: v.mul_(2), chunk_size=2),
    "many": mapped(many), "twice": mapped(lambda m, v: m.func.vmap(lambda w: w.add_(1))(v)),
    **{f.__name__: f for f in (
        shared_source, all_shared, destination, nested, along, columns, dual, history,
        gradient_through, tangent_through, without_grad, reshaped, statistics)},
}


@pytest.mark.parametrize("name", AGREE)
def test_writes_reach_the_arguments(name: str) -> None:
    """F54: values, gradients and what happened to the arguments are PyTorch's."""
    got, want = plain(AGREE[name](ad)), plain(AGREE[name](torch))

    def compare(a: Any, b: Any) -> None:
        if isinstance(b, list) and any(isinstance(v, (list, bool)) for v in b) and len(a) == len(b):
            for left, right in zip(a, b, strict=True):
                compare(left, right)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-12)
    compare(got, want)


WRITES: dict[str, Callable[[Any], Any]] = {
    "whole": lambda v: (v.mul_(2), v.sum())[1],
    "a view from a view": lambda v: (v[0].add_(v[1]), v * 1)[1],
    "through a view": lambda v: (v.unsqueeze(0).mul_(3), v.cumsum(0))[1],
    "what a rule reads": lambda v: (v.clamp_(min=0.3), v.exp_(), v.sum())[2],
    "zeros": lambda v: (v.narrow(0, 1, 2).zero_(), v.neg_(), v * v)[2],
    "a copy": lambda v: (v.copy_(v.sin()), v[1:])[1],
}
KEPT = {("a copy", k) for k in ("vmap of grad", "jvp of grad", "hessian")}  # refused by PyTorch


def points(m: Any, *shape: int) -> Any:
    return m.tensor(np.linspace(-1, 1, int(np.prod(shape))).reshape(shape))


def both(run: Callable[..., Any], *args: Any) -> Any:
    """A result, and the arguments afterwards."""
    return run(*args), *args


WRITTEN: dict[str, Callable[[Any, Any], Any]] = {
    "vmap": lambda m, f: both(m.func.vmap(f, in_dims=1, out_dims=-1), points(m, 3, 4)),
    "vmap of vmap": lambda m, f: both(m.func.vmap(m.func.vmap(f, in_dims=1), in_dims=2),
                                      points(m, 3, 4, 2)),
    "jvp": lambda m, f: both(lambda x, t: m.func.jvp(f, (x,), (t,)), points(m, 3),
                             points(m, 3) * 2),
    "vmap of jvp": lambda m, f: both(m.func.vmap(lambda x, t: m.func.jvp(f, (x,), (t,))),
                                     points(m, 4, 3), points(m, 4, 3) * 2),
    "jvp of vmap": lambda m, f: both(lambda x, t: m.func.jvp(m.func.vmap(f), (x,), (t,)),
                                     points(m, 4, 3), points(m, 4, 3) * 2),
    "grad of vmap": lambda m, f: both(m.func.grad(lambda x: m.func.vmap(f)(x * x).sum()),
                                      points(m, 4, 3)),
    "vmap of grad": lambda m, f: both(m.func.vmap(m.func.grad(lambda x: f(x * x).sum())),
                                      points(m, 4, 3)),
    "jvp of grad": lambda m, f: both(lambda x: m.func.jvp(
        m.func.grad(lambda q: f(q * q).sum()), (x,), (points(m, 3),)), points(m, 3)),
    "jacfwd": lambda m, f: both(m.func.jacfwd(f), points(m, 3)),
    "hessian": lambda m, f: both(m.func.hessian(lambda x: f(x * 1).sum()), points(m, 3)),
}


@pytest.mark.parametrize("stack", WRITTEN)
@pytest.mark.parametrize("name", WRITES)
def test_writes_under_stacks(name: str, stack: str) -> None:
    """F54: results and arguments are PyTorch's; where it refuses for a value that a tape keeps, the
    result is that of the write into a copy."""
    f, under = WRITES[name], WRITTEN[stack]
    if (name, stack) == ("a copy", "grad of vmap"):      # the kept value is the argument's own
        for m in (ad, torch):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                under(m, f)
        return
    got = under(ad, f)
    if (name, stack) in KEPT:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            under(torch, f)
        want = under(ad, lambda v: v.sin()[1:])
    else:
        want = under(torch, f)

    def compare(a: Any, b: Any) -> None:
        if isinstance(b, (tuple, list)):
            for left, right in zip(a, b, strict=True):
                compare(left, right)
        else:
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9,
                                       atol=1e-12)
    compare(got, want)


def test_views_outside_see_the_write() -> None:
    """F10: memory, version and aliases of the argument are as after any in-place op."""
    x = ad.ones(3, 2)
    row, version = x[0], x._version
    ad.func.vmap(lambda v: v.add_(1))(x)
    assert row.tolist() == [2.0, 2.0] and x._version > version


def test_a_kept_value_is_protected() -> None:
    """F54: a derivative that needs the old value of an argument refuses to go on."""
    h = ad.ones(3, 2, requires_grad=True) * 1

    def f(v: Any) -> Any:
        y = (v * v).sum()
        v.mul_(2)
        return y
    y = ad.func.vmap(f)(h)
    with pytest.raises(AutogradError, match="modified by an inplace operation"):
        y.sum().backward()


def test_inner_values_are_never_lost() -> None:
    """F54: inside of a transform a tape keeps the value, not the memory."""
    def f(v: Any) -> Any:
        w = v * 1
        u = w * w
        w.mul_(5)
        return u.sum()
    assert ad.func.vmap(ad.func.grad(f))(ad.ones(2, 3)).tolist() == [[2.0] * 3] * 2


REFUSED: dict[str, tuple[Program, type[Exception], str]] = {
    "a shared argument": (
        lambda m: m.func.vmap(lambda v, w: w.add_(v), in_dims=(0, None))(
            ones(m, 3, 2), ones(m, 2)), AutogradError, r"shape \[2\] that all examples share"),
    "a variable": (lambda m: m.func.grad(lambda v: v.mul_(3).sum())(ones(m, 3)), AutogradError,
                   "leaf Variable"),
    "a variable per example": (
        lambda m: m.func.vmap(m.func.grad(lambda v: v.mul_(3).sum()))(ones(m, 3, 2)),
        AutogradError, "leaf Variable"),
    "a parameter": (lambda m: m.func.vmap(lambda v: v.add_(1))(
        ones(m, 3, 2, requires_grad=True)), AutogradError, "leaf Variable"),
    "a variable outside": (
        lambda m: m.func.grad(lambda q: m.func.vmap(lambda v: v.mul_(3).sum())(q).sum())(
            ones(m, 3, 2)), AutogradError, "leaf Variable"),
    "growing": (lambda m: m.func.vmap(lambda v, w: v.add_(w))(ones(m, 3), ones(m, 3, 2)),
                ShapeError, "broadcast shape"),
    "another dtype": (lambda m: m.func.vmap(lambda v: v.add_(1.5))(
        m.ones(3, 2, dtype=m.int64)), DTypeError, "result type Float can't be cast"),
    "expanded": (lambda m: m.func.vmap(lambda v: v.add_(1))(ones(m, 2).expand(3, 2)),
                 AutogradError, "single memory location"),
    "out=": (lambda m: m.func.vmap(lambda v: m.add(v, v, out=v))(ones(m, 3, 2)), NotSupported,
             "out=... is for plain tensors"),
    "data": (lambda m: m.func.vmap(lambda v: v.data * 1)(ones(m, 3, 2)), NotSupported,
             "accessing `data`"),
    "shared statistics": (
        lambda m: m.func.vmap(m.nn.BatchNorm1d(3).double(), randomness="same")(ones(m, 2, 4, 3)),
        AutogradError, "were not batched"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    """F54: where PyTorch raises RuntimeError we do, in words that end the search."""
    program, kind, text = REFUSED[name]
    with pytest.raises(RuntimeError):
        program(torch)
    with pytest.raises(kind, match=text) as error:
        program(ad)
    assert isinstance(error.value, RuntimeError)


@pytest.mark.parametrize("name", ["vmap", "jvp"])
def test_a_captured_tensor_that_was_written_to_has_escaped(name: str) -> None:
    """F10: a tensor of outside that took a value of the transform has none afterwards."""
    z = [ad.ones(2)]
    if name == "vmap":
        ad.func.vmap(lambda v: z[0].add_(v))(ad.ones(3, 2))
    else:
        ad.func.jvp(lambda v: z[0].mul_(v), (ad.ones(2),), (ad.ones(2),))
    with pytest.raises(AutogradError, match=rf"a tensor of {name} called at .*was used after"):
        z[0].tolist()


def test_a_tensor_of_outside_takes_no_value_of_a_transform() -> None:
    """F54: refused where a caller holds the tensor or its base, as PyTorch does, and it is as it
    was; one that is found elsewhere keeps the value without the tape."""
    transforms: dict[str, Callable[[Any, Any, Any], Any]] = {
        "grad": lambda m, f, x: m.func.grad(lambda v: f(v).sum())(x),
        "vjp": lambda m, f, x: m.func.vjp(f, x),
        "jvp": lambda m, f, x: m.func.jvp(f, (x,), (x,)),
        "jacrev": lambda m, f, x: m.func.jacrev(f)(x),
        "jacfwd": lambda m, f, x: m.func.jacfwd(f)(x)}
    writes: list[Callable[[Any, Any], Any]] = [
        lambda c, v: c.mul_(v), lambda c, v: c[0].copy_(v), lambda c, v: c.__setitem__(1, v)]
    for m in (torch, ad):
        for name, run in transforms.items():
            for write in writes:
                c = ones(m, 2, 3)

                def f(v: Any, c: Any = c, write: Any = write) -> Any:
                    write(c, v)
                    return c * v
                with pytest.raises(RuntimeError, match=r"mutate a captured Tensor"):
                    run(m, f, ones(m, 3) * 2)
                assert c.tolist() == [[1.0] * 3] * 2 and not c.requires_grad, name
        c = ones(m, 3)
        with pytest.raises(RuntimeError, match=r"vmap: inplace|shape \[2, 3\]"):
            m.func.vmap(lambda v, c=c: c.add_(v))(ones(m, 2, 3))
    kept = [ones(ad, 3)]
    g = ad.func.grad(lambda v: (kept[0].mul_(v) * v).sum())(ones(ad, 3) * 2)
    assert g.tolist() == [4.0] * 3
    assert kept[0].tolist() == [2.0] * 3 and not kept[0].requires_grad


def test_outer_gradients_are_off_where_no_grad_encloses_a_transform() -> None:
    """F54: what a gradient taken inside of no_grad gives is a constant of outer ones; its own
    variables are recorded, in inference mode too."""
    def outer(m: Any, mode: str) -> Any:
        def f(x: Any) -> Any:
            with getattr(m, mode)():
                s = m.func.grad(lambda y: (y * y * x).sum())(x)
                _, pull = m.func.vjp(lambda y: y * x, x)
                (r,) = pull(x)
            return ((s + r) * x).sum()
        return m.func.grad(f)(ones(m, 3) * 2), m.func.grad(lambda y: (y**2).sum())(ones(m, 3))
    for mode in ("no_grad", "enable_grad"):
        assert plain(outer(ad, mode)) == plain(outer(torch, mode))
    with ad.inference_mode():
        assert ad.func.grad(lambda y: (y**3).sum())(ones(ad, 2)).tolist() == [3.0, 3.0]
    with ad.no_grad():
        x = ones(ad, 2, requires_grad=True)
        assert not ad.func.grad(lambda y: (y * x).sum())(x).requires_grad


def test_arguments_of_the_transforms() -> None:
    """F54: places are named once, a strict tangent depends on the inputs, a pull frees on demand,
    and a function with has_aux returns a pair."""
    x = ones(ad, 3)
    for run, text in (
            (lambda: ad.func.grad(lambda v, w: (v * w).sum(), (0, 0))(x, x), "must be unique"),
            (lambda: ad.func.jvp(lambda v: x * 2, (x,), (x,), strict=True), "independent of the"),
            (lambda: ad.func.jvp(lambda v: v, (x,), (x,), has_aux=True), "should be a tuple")):
        with pytest.raises((AutogradError, ValueError), match=text):
            run()
    _, pull = ad.func.vjp(lambda v: v * v, x)
    assert pull(x, retain_graph=False)[0].tolist() == [2.0] * 3
    with pytest.raises(RuntimeError, match="second time"):
        pull(x)
    ct = ones(ad, 3, requires_grad=True)
    _, pull = ad.func.vjp(lambda v: v * v, x)
    assert pull(ct)[0].requires_grad and not pull(ct, create_graph=False)[0].requires_grad


def test_batch_norm_without_running_statistics() -> None:
    """F16: `replace_all_batch_norm_modules_` makes a model a function that can be mapped."""
    def run(m: Any) -> Any:
        net = m.nn.Sequential(m.nn.BatchNorm1d(3), m.nn.InstanceNorm1d(
            4, track_running_stats=True)).double().eval()
        net = m.func.replace_all_batch_norm_modules_(net)
        x = m.arange(24.0, dtype=m.float64).reshape(2, 4, 3) ** 1.5
        return (m.func.vmap(net[0])(x), net[0].running_mean is None,
                net[1].running_mean is not None, net[0].track_running_stats)
    got, want = run(ad), run(torch)
    np.testing.assert_allclose(got[0].detach().numpy(), want[0].detach().numpy(), rtol=1e-10)
    assert got[1:] == want[1:]
