"""Programs of tutorials about automatic differentiation, written once and run by both libraries:
every value that such a program prints is compared (F5, F10, F13, F24, F123).

A program takes the library and yields names with tensors, numbers or texts. Data comes from NumPy,
in float64, so that what differs is a difference.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adjoint as ad

Program = Callable[[Any], Iterator[tuple[str, Any]]]
PROGRAMS: dict[str, Program] = {}


def program(f: Program) -> Program:
    """Enter a program into the table."""
    PROGRAMS[f.__name__] = f
    return f


def data(lib: Any, *shape: int, seed: int = 0, grad: bool = False) -> Any:
    """The same numbers in either library."""
    x = lib.from_numpy(np.random.default_rng((seed, *shape)).standard_normal(shape))
    return x.requires_grad_() if grad else x


@program
def first_steps(t: Any) -> Iterator[tuple[str, Any]]:
    """A tutorial's first page: leaves, grad_fn, accumulation, detach, no_grad."""
    x, w, b = t.ones(5).double(), data(t, 5, 3, grad=True), data(t, 3, grad=True)
    y = t.zeros(3).double()
    z = t.matmul(x, w) + b
    loss = t.nn.functional.binary_cross_entropy_with_logits(z, y)
    yield "grad_fn", type(z.grad_fn).__name__
    loss.backward(retain_graph=True)
    yield "w", w.grad
    loss.backward()
    yield "twice", w.grad
    yield "flags", (z.requires_grad, z.detach().requires_grad, z.is_leaf, w.is_leaf)
    with t.no_grad():
        yield "no_grad", (w @ t.ones(3).double()).requires_grad
    w.grad.zero_()
    out = (t.eye(4, 5).double() + 1).requires_grad_()
    cube = (out + 1).pow(2).t()
    cube.backward(t.ones_like(cube), retain_graph=True)
    yield "jacobian product", out.grad
    out.grad = None
    cube.backward(2 * t.ones_like(cube))
    yield "after None", out.grad


@program
def higher_order(t: Any) -> Iterator[tuple[str, Any]]:
    """Derivatives of derivatives by create_graph, Newton steps, a Hessian by rows."""
    x = data(t, 4, grad=True)
    y = (x.sin() * x.exp()).sum()
    for order in range(1, 5):
        (y,) = t.autograd.grad(y, x, create_graph=True)
        yield f"order {order}", y
        y = y.sum()
    p = t.tensor([-1.2, 1.0], dtype=t.float64, requires_grad=True)
    for _ in range(4):
        f = (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
        (g,) = t.autograd.grad(f, p, create_graph=True)
        rows = [t.autograd.grad(g[i], p, retain_graph=True)[0] for i in range(2)]
        with t.no_grad():
            p -= t.linalg.solve(t.stack(rows), g)
        yield "newton", p.detach().clone()


@program
def custom_functions(t: Any) -> Iterator[tuple[str, Any]]:
    """Function in the older and the newer form, several outputs, what ctx knows."""

    class LegendrePolynomial3(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, input: Any) -> Any:
            ctx.save_for_backward(input)
            return 0.5 * (5 * input**3 - 3 * input)

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            (input,) = ctx.saved_tensors
            return grad_output * 1.5 * (5 * input**2 - 1)

    class Split(t.autograd.Function):
        @staticmethod
        def forward(x: Any, scale: float, y: Any) -> Any:
            return x * scale, x * y, (x > 0)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            x, ctx.scale, y = inputs
            ctx.save_for_backward(x, y)
            ctx.mark_non_differentiable(output[2])
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any, _: Any) -> Any:
            x, y = ctx.saved_tensors
            gx = None
            if first is not None:
                gx = first * ctx.scale
            if second is not None:
                gx = second * y if gx is None else gx + second * y
            gy = second * x if ctx.needs_input_grad[2] and second is not None else None
            return gx, None, gy

    x = t.linspace(-3, 3, 20, dtype=t.float64)
    target = t.sin(x)
    params = [t.tensor(v, dtype=t.float64, requires_grad=True) for v in (0.0, -1.0, 0.0, 0.3)]
    for step in range(60):
        a, b, c, d = params
        loss = (a + b * LegendrePolynomial3.apply(c + d * x) - target).pow(2).sum()
        if step % 20 == 0:
            yield "loss", loss.item()
        loss.backward()
        with t.no_grad():
            for q in params:
                q -= 1e-4 * q.grad
                q.grad = None
    yield "parameters", [q.item() for q in params]
    u, v = data(t, 3, grad=True), data(t, 3, seed=1, grad=True)
    one, two, flag = Split.apply(u, 2.5, v)
    yield "outputs", [one, two, flag.double()]
    yield "requires", (one.requires_grad, flag.requires_grad)
    yield "first alone", t.autograd.grad(one.sum(), (u, v), allow_unused=True, retain_graph=True)
    yield "both", t.autograd.grad(one.sum() + (two**2).sum(), (u, v), create_graph=True)
    yield "double", t.autograd.grad(
        t.autograd.grad((Split.apply(u, 2.0, v)[1] ** 2).sum(), u, create_graph=True)[0].sum(), v
    )


@program
def hooks(t: Any) -> Iterator[tuple[str, Any]]:
    """Hooks of tensors, nodes and modules, in the order in which they run."""
    x, seen = data(t, 3, grad=True), []
    y = x * 3
    y.register_hook(lambda g: seen.append(("y", g.clone())))
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    handle = x.register_hook(lambda g: g + 1)
    x.register_post_accumulate_grad_hook(lambda p: seen.append(("post", p.grad.clone())))
    y.grad_fn.register_hook(lambda gi, go: seen.append(("node", gi[0].clone(), go[0].clone())))
    (y**2).sum().backward(retain_graph=True)
    yield "grads", (x.grad, y.grad)
    handle.remove()
    x.grad = None
    (y**2).sum().backward()
    yield "removed", x.grad
    yield "names", [s[0] for s in seen]
    for s in seen:
        yield s[0], list(s[1:])
    net = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.Tanh(), t.nn.Linear(4, 1)).double()
    for i, p in enumerate(net.parameters()):
        p.data.copy_(data(t, *p.shape, seed=i))
    calls: list[Any] = []
    net[0].register_forward_pre_hook(lambda m, a: calls.append(("pre", a[0].clone())))
    net[1].register_forward_hook(lambda m, a, o: o * 2)
    net[1].register_full_backward_hook(lambda m, gi, go: calls.append(("back", gi[0], go[0])))
    net[2].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,))
    net(data(t, 2, 3)).sum().backward()
    for name, *values in calls:
        yield name, values
    yield "parameters", [p.grad for p in net.parameters()]


@program
def functional_api(t: Any) -> Iterator[tuple[str, Any]]:
    """autograd.functional: jacobian, hessian, products with them, strict and vectorized."""
    f = t.autograd.functional
    x, y, v = data(t, 3), data(t, 3, seed=1), data(t, 3, seed=2)

    def several(a: Any, b: Any) -> Any:
        return (a * b).sin(), a.sum() * b

    def scalar(a: Any) -> Any:
        return (a.exp() * a.roll(1)).sum()

    yield "jacobian", [list(row) for row in f.jacobian(several, (x, y))]
    yield "vectorized", f.jacobian(lambda a: a.pow(3), x, vectorize=True)
    yield "forward", f.jacobian(lambda a: a.pow(3), x, strategy="forward-mode", vectorize=True)
    yield "hessian", f.hessian(scalar, x)
    yield "pair", [list(r) for r in f.hessian(lambda a, b: (a * b).sum() ** 2, (x, y))]
    yield "vjp", f.vjp(lambda a: a.sin(), x, v)
    yield "jvp", f.jvp(lambda a: a.sin(), x, v)
    yield "vhp", f.vhp(scalar, x, v)
    yield "hvp", f.hvp(scalar, x, v)
    yield "create_graph", f.jacobian(lambda a: a**2, x.clone().requires_grad_(),
                                     create_graph=True).requires_grad


def small_net(t: Any, seed: int = 0) -> Any:
    net = t.nn.Sequential(t.nn.Linear(4, 8), t.nn.Tanh(), t.nn.Linear(8, 3)).double()
    for i, p in enumerate(net.parameters()):
        p.data.copy_(0.5 * data(t, *p.shape, seed=10 * seed + i))
    return net


@program
def per_sample_gradients(t: Any) -> Iterator[tuple[str, Any]]:
    """vmap of grad of functional_call, against one gradient after the other."""
    func, net = t.func, small_net(t)
    params = {k: v.detach() for k, v in net.named_parameters()}
    x, y = data(t, 6, 4), t.tensor([0, 1, 2, 0, 1, 2])

    def loss(p: Any, one: Any, label: Any) -> Any:
        out = func.functional_call(net, p, (one.unsqueeze(0),))
        return t.nn.functional.cross_entropy(out, label.unsqueeze(0))

    each = func.vmap(func.grad(loss), in_dims=(None, 0, 0))(params, x, y)
    yield "gradients", [each[k] for k in sorted(each)]
    norms = t.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
    yield "norms", norms
    total, value = func.grad_and_value(loss)(params, x[0], y[0])
    yield "value", value
    yield "one", [total[k] for k in sorted(total)]


@program
def ensembles_and_kernels(t: Any) -> Iterator[tuple[str, Any]]:
    """Model ensembling by stack_module_state, and the neural tangent kernel, two ways."""
    func = t.func
    models = [small_net(t, i) for i in range(3)]
    params, buffers = func.stack_module_state(models)

    def one(p: Any, b: Any, x: Any) -> Any:
        return func.functional_call(models[0], (p, b), (x,))

    x = data(t, 5, 4)
    yield "together", func.vmap(one, in_dims=(0, 0, None))(params, buffers, x)
    yield "apart", func.vmap(one)(params, buffers, data(t, 3, 5, 4))
    net = models[0]
    weights = {k: v.detach() for k, v in net.named_parameters()}

    def single(p: Any, row: Any) -> Any:
        return func.functional_call(net, p, (row.unsqueeze(0),)).squeeze(0)

    def jacobians(rows: Any) -> Any:
        found = func.vmap(func.jacrev(single), (None, 0))(weights, rows)
        return [j.flatten(2) for j in found.values()]

    a, b = data(t, 3, 4, seed=3), data(t, 2, 4, seed=4)
    kernel = sum(t.einsum("Naf,Mbf->NMab", i, j)
                 for i, j in zip(jacobians(a), jacobians(b), strict=True))
    yield "kernel", kernel

    def entry(u: Any, v: Any) -> Any:
        def through(rows: Any) -> Any:
            return lambda p: single(p, rows)

        _, back = func.vjp(through(u), weights)

        def column(c: Any) -> Any:
            return func.jvp(through(v), (weights,), back(c))[1]

        return func.vmap(column)(t.eye(3, dtype=t.float64)).T

    yield "by products", func.vmap(func.vmap(entry, (None, 0)), (0, None))(a, b)


@program
def transforms(t: Any) -> Iterator[tuple[str, Any]]:
    """jacrev, jacfwd, hessian, vmap with axes, aux values, linearize, nesting."""
    func = t.func
    x = data(t, 4)

    def f(a: Any) -> Any:
        return t.sin(a) * a.sum()

    yield "rev", func.jacrev(f)(x)
    yield "fwd", func.jacfwd(f)(x)
    yield "hessian", func.hessian(lambda a: f(a).sum())(x)
    yield "aux", func.grad(lambda a: (f(a).sum(), a * 2), has_aux=True)(x)
    yield "argnums", func.grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x + 1)
    rows = data(t, 4, 3, seed=5)
    yield "out_dims", func.vmap(t.dot, in_dims=(1, None), out_dims=0)(rows, x)
    yield "batched", func.vmap(func.jacrev(f), in_dims=1, out_dims=2)(rows)
    out, push = func.linearize(f, x)
    yield "linearize", [out, push(x)]
    _, pull, aux = func.vjp(lambda a: (f(a), a.sum()), x, has_aux=True)
    yield "vjp", [pull(x)[0], aux]
    yield "jvp", func.jvp(lambda a, b: (a * b, a + b), (x, x + 1), (x + 2, x + 3))
    yield "third", func.grad(lambda a: func.grad(lambda b: func.grad(
        lambda c: (c**5).sum())(b).sum())(a).sum())(x)
    yield "chunks", func.vmap(lambda a: a * 2, chunk_size=2)(rows)


@program
def forward_mode(t: Any) -> Iterator[tuple[str, Any]]:
    """Dual numbers by hand, through a module too."""
    fa, net = t.autograd.forward_ad, small_net(t)
    x, v = data(t, 2, 4), data(t, 2, 4, seed=1)
    with fa.dual_level():
        dual = fa.make_dual(x, v)
        out = fa.unpack_dual(net(dual))
        yield "module", [out.primal, out.tangent]
        yield "none", fa.unpack_dual(x).tangent is None
        y = fa.unpack_dual(dual.exp().softmax(1).log())
        yield "chain", y.tangent


@program
def penalties(t: Any) -> Iterator[tuple[str, Any]]:
    """Gradient penalty, a physics-informed residual, a Hessian-vector product by pearlmutter."""
    net = small_net(t)
    x = data(t, 5, 4, grad=True)
    (g,) = t.autograd.grad(net(x).sum(), x, create_graph=True)
    loss = ((g.norm(2, dim=1) - 1) ** 2).mean()
    loss.backward()
    yield "penalty", [loss, *(p.grad for p in net.parameters() if p.grad is not None)]
    u = t.nn.Sequential(t.nn.Linear(1, 6), t.nn.Tanh(), t.nn.Linear(6, 1)).double()
    for i, p in enumerate(u.parameters()):
        p.data.copy_(data(t, *p.shape, seed=i))
    s = t.linspace(0, 1, 7, dtype=t.float64).unsqueeze(1).requires_grad_()
    y = u(s)
    dy = t.autograd.grad(y, s, t.ones_like(y), create_graph=True)[0]
    ddy = t.autograd.grad(dy, s, t.ones_like(dy), create_graph=True)[0]
    residual = ((ddy + y) ** 2).mean() + (y[0] - 1).pow(2).sum()
    residual.backward()
    yield "residual", [residual, *(p.grad for p in u.parameters())]


@program
def saved_tensors(t: Any) -> Iterator[tuple[str, Any]]:
    """Pack hooks, checkpointing, and the refusal of a write to a kept value."""
    x, packed = data(t, 4, grad=True), []

    def pack(v: Any) -> Any:
        packed.append(tuple(v.shape))
        return v.detach().numpy().copy()

    with t.autograd.graph.saved_tensors_hooks(pack, lambda a: t.from_numpy(a)):
        y = (x.exp() * x).sum()
    y.backward()
    yield "hooked", [x.grad, len(packed) > 0]
    x.grad = None
    z = t.utils.checkpoint.checkpoint(lambda a: (a.sin() ** 2).sum(), x, use_reentrant=False)
    z.backward()
    yield "checkpoint", x.grad
    w = data(t, 3, grad=True)
    e = w.exp()
    out = e.sum()
    e.add_(1)
    try:
        out.backward()
        (e * e).sum().backward()
        yield "write", "no error"
    except RuntimeError as error:
        yield "write", "modified by an inplace operation" in str(error)
    try:
        y.backward()
        yield "again", "no error"
    except RuntimeError as error:
        yield "again", "second time" in str(error)


@program
def in_place_and_views(t: Any) -> Iterator[tuple[str, Any]]:
    """Writes through views, masked writes, the history that they leave."""
    a, b = data(t, 3, 4, grad=True), data(t, 4, grad=True)
    y = a * 1.0
    y[1] = b
    y[:, 2].mul_(3)
    y.view(-1)[::5].add_(1)
    y.t()[0].copy_(b[:3] ** 2)
    y.masked_fill_(y > 1.5, 0.0)
    y.relu_()
    (y**2).sum().backward()
    yield "value", y
    yield "gradients", [a.grad, b.grad]
    c = data(t, 2, 3, grad=True)
    left, right = (c * 2).split([1, 2], dim=1)
    left, right = left.clone(), right.clone()
    left.addcmul_(right[:, :1], right[:, 1:], value=0.5)
    left.sum().backward()
    yield "split", c.grad
    yield "versions", [y._version > 0, c._version]
    d = data(t, 3, grad=True)
    try:
        d.add_(1)
        yield "leaf", "no error"
    except RuntimeError as error:
        yield "leaf", "leaf Variable that requires grad" in str(error)


@program
def gradients_of_many(t: Any) -> Iterator[tuple[str, Any]]:
    """grad with grad_outputs, unused inputs, batched cotangents, accumulation, inputs=."""
    x, y, z = (data(t, 3, seed=i, grad=True) for i in range(3))
    out = [x * y, (x + y).exp()]
    seeds = [t.ones(3).double(), data(t, 3, seed=7)]
    yield "outputs", t.autograd.grad(out, (x, y), seeds, retain_graph=True)
    found = t.autograd.grad(out[0].sum(), (x, z), allow_unused=True, retain_graph=True)
    yield "unused", [found[0], found[1] is None]
    yield "materialized", t.autograd.grad(out[0].sum(), (x, z), materialize_grads=True,
                                          retain_graph=True)
    eye = t.eye(3, dtype=t.float64)
    yield "batched", t.autograd.grad(out[1], x, eye, is_grads_batched=True, retain_graph=True)
    t.autograd.backward(out, seeds, inputs=[x])
    yield "inputs", [x.grad, y.grad is None]
    try:
        t.autograd.grad((x * 2).sum(), z)
        yield "error", "no error"
    except RuntimeError as error:
        yield "error", "appears to not have been used in the graph" in str(error)


@program
def micrograd(t: Any) -> Iterator[tuple[str, Any]]:
    """Scalars in a loop, as in engines that count them: control flow, fan-out, comparison."""
    a, b = (t.tensor(v, dtype=t.float64, requires_grad=True) for v in (-4.0, 2.0))
    c = a + b
    d = a * b + b**3
    c = c + c + 1
    c = c + 1 + c + (-a)
    d = d + d * 2 + (b + a).relu()
    d = d + 3 * d + (b - a).relu()
    e = c - d
    f = e**2
    g = f / 2.0
    g = g + 10.0 / f
    g.backward()
    yield "micrograd", [g, a.grad, b.grad]
    x = t.tensor(0.3, dtype=t.float64, requires_grad=True)
    y = x
    while y.abs() < 10:
        y = y * 2 if y.item() < 3 else y**2 + x
    y.backward()
    yield "loop", [y, x.grad]


@program
def complex_numbers(t: Any) -> Iterator[tuple[str, Any]]:
    """Wirtinger's convention through products, conjugates, roots and transforms."""
    z = t.complex(data(t, 4), data(t, 4, seed=1)).requires_grad_()
    for name, f in (
        ("abs", lambda v: v.abs().sum()), ("conj", lambda v: (v * v.conj()).real.sum()),
        ("exp", lambda v: v.exp().imag.sum()), ("angle", lambda v: v.angle().sum()),
        ("fft", lambda v: t.fft.fft(v).abs().pow(2).sum()), ("pow", lambda v: (v**3).real.sum()),
        ("view", lambda v: t.view_as_real(v).pow(2).sum()),
    ):
        yield name, t.autograd.grad(f(z), z)


def plain(value: Any) -> Any:
    """Tensors as arrays, containers as lists."""
    if hasattr(value, "detach"):
        return np.asarray(value.detach().resolve_conj().numpy()
                          if hasattr(value, "resolve_conj") else value.detach().numpy())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def same(a: Any, b: Any, where: str) -> None:
    """Equal, numbers to 1e-9 of the largest."""
    if isinstance(b, list):
        assert isinstance(a, list) and len(a) == len(b), where
        for i, (one, other) in enumerate(zip(a, b, strict=True)):
            same(one, other, f"{where}[{i}]")
    elif isinstance(b, np.ndarray | float):
        assert np.shape(a) == np.shape(b), f"{where}: {np.shape(a)} and {np.shape(b)}"
        scale = max(1.0, np.abs(b).max(initial=0.0))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * scale, err_msg=where)
    else:
        assert a == b, f"{where}: {a!r} and {b!r}"


@pytest.mark.row("F123")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:`torch.jit")
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_same_values(name: str) -> None:
    """Every printed value is PyTorch's."""
    torch = pytest.importorskip("torch")
    for part in ("autograd.forward_ad", "autograd.functional", "utils.checkpoint"):
        importlib.import_module(f"torch.{part}")
    want = list(PROGRAMS[name](torch))
    got = list(PROGRAMS[name](ad))
    assert [n for n, _ in got] == [n for n, _ in want]
    for (key, a), (_, b) in zip(got, want, strict=True):
        same(plain(a), plain(b), f"{name}: {key}")
