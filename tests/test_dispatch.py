"""F123: PyTorch's `__torch_dispatch__`: modes and classes that take over ops below the tape. Each
program runs with both libraries where PyTorch is installed, and must print the same."""

from __future__ import annotations

import copy
import importlib
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint.base.errors import NotSupported
from adjoint.utils import _pytree as trees
from adjoint.utils._python_dispatch import TorchDispatchMode
from adjoint.utils.flop_counter import FlopCounterMode, register_flop_formula

Point = namedtuple("Point", "x y")


class Log(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class Two(ad.Tensor):
    """Two tensors that are computed with side by side."""

    __slots__ = ("a",)
    a: Any
    b: Any

    @staticmethod
    def __new__(cls, a: Any, b: Any) -> Any:
        return ad.Tensor._make_wrapper_subclass(cls, a.size(), dtype=a.dtype)

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def part(name: str) -> Any:
            def take(x: Any) -> Any:
                return getattr(x, name) if isinstance(x, cls) else x
            return func(*trees.tree_map(take, args), **trees.tree_map(take, kwargs or {}))
        return trees.tree_map(lambda x, y: cls(x, y) if isinstance(x, ad.Tensor) else x,
                              part("a"), part("b"))


def net() -> Any:
    ad.manual_seed(0)
    nn = ad.nn
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(36, 8), nn.LayerNorm(8), nn.GELU(),
                         nn.Linear(8, 3))


def gradients(model: Any, x: Any, y: Any) -> list[Any]:
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    return [p.grad for p in model.parameters()]


X, Y = ad.randn(5, 1, 8, 8), ad.tensor([0, 1, 2, 0, 1])

NAMES = {
    "add.Tensor": lambda t, x: x + x, "mul.Tensor": lambda t, x: x * 2, "neg.default":
    lambda t, x: -x, "relu.default": lambda t, x: x.relu(), "sum.default": lambda t, x: x.sum(),
    "sum.dim_IntList": lambda t, x: x.sum(1), "mean.dim": lambda t, x: x.mean(0),
    "max.dim": lambda t, x: x.max(1), "_softmax.default": lambda t, x: x.softmax(1),
    "mm.default": lambda t, x: x @ x, "view.default": lambda t, x: x.view(16),
    "transpose.int": lambda t, x: x.transpose(0, 1), "select.int": lambda t, x: x[0],
    "cat.default": lambda t, x: t.cat([x, x]), "clone.default": lambda t, x: x.clone(),
    "native_layer_norm.default": lambda t, x: t.nn.functional.layer_norm(x, (4,)),
    "var.correction": lambda t, x: x.var(1), "lt.Tensor": lambda t, x: x < x,
    "ones.default": lambda t, x: t.ones(2), "zeros_like.default": lambda t, x: t.zeros_like(x),
    "t.default addmm.default": lambda t, x: t.nn.functional.linear(x, x, x[0])
}


@pytest.mark.parametrize("names", NAMES)
def test_ops_have_the_names_of_pytorch(names: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
    program, wanted = NAMES[names], [f"aten.{n}" for n in names.split()]
    for library, base in ((ad, TorchDispatchMode), (torch, theirs)):
        mode = type("Mode", (base,), {"__torch_dispatch__": Log.__torch_dispatch__})()
        mode.seen = []
        x = library.ones(4, 4)
        row = x[0]
        with mode:
            program(library, x)
        assert [n for n in mode.seen if "select" not in n or "select" in names] == wanted
        assert row.shape == (4,)


def test_a_mode_sees_forward_and_backward_and_changes_no_number() -> None:
    model = net()
    plain = [g.clone() for g in gradients(model, X, Y)]
    with Log() as log:
        watched = gradients(model, X, Y)
    assert {"aten.convolution.default", "aten.convolution_backward.default"} <= set(log.seen)
    assert all(ad.allclose(a, b, atol=1e-6) for a, b in zip(plain, watched, strict=True))
    loss = F.cross_entropy(model(X), Y)
    with Log():
        again = ad.autograd.grad(loss, list(model.parameters()), create_graph=True)
    assert all(g.requires_grad for g in again)
    assert all(ad.allclose(a, b, atol=1e-6) for a, b in zip(plain, again, strict=True))


def test_gradients_of_two_leaves_under_a_mode_are_two_tensors() -> None:
    x, y = ad.ones(3, requires_grad=True), ad.ones(3, requires_grad=True)
    with Log():
        (x + y).sum().backward()
    x.grad.mul_(5)
    assert y.grad.tolist() == [1, 1, 1]


def test_a_mode_gives_results_and_is_set_aside_while_it_does() -> None:
    class Double(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            assert not ad.is_grad_enabled()
            return func(*args, **(kwargs or {})) * 2
    x = ad.tensor([1.0, 2.0], requires_grad=True)
    with Double():
        y = x.exp()
    assert ad.allclose(y, 2 * x.exp()) and y.grad_fn is not None
    with Double(), Double():
        assert (x + 0).tolist() == [8, 16]        # the product of the inner one is doubled, too


def test_modes_nest_the_innermost_first() -> None:
    order = []

    class Named(TorchDispatchMode):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            order.append(self.name)
            return func(*args, **(kwargs or {}))
    with Named("outer"), Named("inner"):
        ad.ones(1).exp()
    assert order == ["inner", "outer", "inner", "outer"]        # ones, exp
    with pytest.raises(TypeError, match="handlers returned NotImplemented.*mode Nothing"):
        with type("Nothing", (TorchDispatchMode,), {
                "__torch_dispatch__": lambda *_, **__: NotImplemented})():
            ad.neg(X)


def test_in_place_ops_and_views_keep_their_history_under_a_mode() -> None:
    x = ad.ones(4, requires_grad=True)
    with Log() as log:
        y = x * 2
        y[1:3].mul_(10)
        y.add_(1)
        view = y.view(2, 2)
        view.exp_()
    y.sum().backward()
    assert log.seen.count("aten.mul_.Tensor") == 1 and "aten.exp_.default" in log.seen
    z = ad.ones(4, requires_grad=True)
    ref = z * 2
    ref[1:3].mul_(10)
    ref.add_(1)
    ref.view(2, 2).exp_()
    ref.sum().backward()
    assert ad.equal(y, ref) and ad.equal(x.grad, z.grad)
    saved = x * 3
    kept = saved.exp()
    with Log():
        kept.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.sum().backward()


def test_a_wrapper_runs_a_network_and_its_gradient() -> None:
    model = net().eval()
    out = model(Two(X, 2 * X))
    assert type(out) is Two and type(out.grad_fn).__name__ == "LinearBackward0" or out.grad_fn
    assert ad.allclose(out.a, model(X)) and ad.allclose(out.b, model(2 * X))
    both = gradients(model, Two(X, 2 * X), Y)
    one, two = gradients(model, X, Y), gradients(model, 2 * X, Y)
    assert all(type(g) is Two for g in both)
    assert all(ad.allclose(g.a, p, atol=1e-5) and ad.allclose(g.b, q, atol=1e-5)
               for g, p, q in zip(both, one, two, strict=True))


def test_a_wrapper_as_a_leaf_its_second_derivative_and_transforms() -> None:
    w = Two(ad.ones(3), 2 * ad.ones(3)).requires_grad_()
    (g,) = ad.autograd.grad((w ** 3).sum(), w, create_graph=True)
    assert (g.a.tolist(), g.b.tolist()) == ([3] * 3, [12] * 3)
    (h,) = ad.autograd.grad(g.sum(), w)
    assert (h.a.tolist(), h.b.tolist()) == ([6] * 3, [12] * 3)
    mapped = ad.func.vmap(lambda r: r * 2)(Two(ad.ones(2, 3), ad.zeros(2, 3)))
    assert type(mapped) is Two and mapped.a.tolist() == [[2] * 3] * 2
    pulled = ad.func.grad(lambda t: (t * t).sum())(Two(ad.ones(2), 2 * ad.ones(2)))
    assert (pulled.a.tolist(), pulled.b.tolist()) == ([2, 2], [4, 4])


def test_a_wrapper_is_written_to_copied_and_made_a_parameter() -> None:
    v = Two(ad.ones(3), 2 * ad.ones(3))
    v[0] = 5.0
    v.mul_(2)
    assert (v.a.tolist(), v.b.tolist()) == ([10, 2, 2], [10, 4, 4])
    w = Two(ad.ones(3), 2 * ad.ones(3)).requires_grad_()
    q = w.clone()
    q.mul_(w)
    q.sum().backward()
    assert (w.grad.a.tolist(), w.grad.b.tolist()) == ([2] * 3, [4] * 3)
    twin = copy.deepcopy(w)
    twin.a.zero_()
    assert w.a.tolist() == [1] * 3 and twin.requires_grad and type(twin) is Two
    layer = ad.nn.Linear(3, 2)
    layer.weight = ad.nn.Parameter(Two(ad.ones(2, 3), ad.zeros(2, 3)))
    layer(ad.ones(1, 3)).sum().backward()
    assert type(layer.weight) is Two and type(layer.weight.grad) is Two
    assert [type(layer.state_dict()["weight"]), w.data.__class__] == [Two, Two]
    with pytest.raises(NotSupported, match="Two has __torch_dispatch__ and no array"):
        ad.optim.SGD([layer.weight], lr=0.1).step()
    with pytest.raises(NotSupported, match="numpy.* is not supported for tensor subclasses"):
        w.detach().numpy()


def test_a_write_to_a_saved_wrapper_is_found() -> None:
    w = Two(ad.ones(3), 2 * ad.ones(3)).requires_grad_()
    y = w.clone()
    z = (y * y).sum()
    with ad.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_a_class_with_data_of_its_own() -> None:
    seen: list[str] = []

    class Seen(ad.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            seen.append(func.overloadpacket.__name__)
            plain = trees.tree_map(
                lambda t: ad.from_numpy(t.array) if isinstance(t, cls) else t, args)
            return func(*plain, **(kwargs or {}))
    assert Seen.__torch_function__ is ad._C._disabled_torch_function_impl
    s = ad.Tensor._make_subclass(Seen, ad.tensor([4.0]))
    assert type(s) is Seen and (s + 1).tolist() == [5] and bool(s == 4)
    assert seen[:2] == ["add", "eq"]


def test_overloads_are_called_with_pytorchs_arguments_and_as_they_are_handed_over() -> None:
    aten = ad.ops.aten
    x = ad.arange(6.0).reshape(2, 3)
    assert aten.sum.dim_IntList(x, [1]).tolist() == [3, 12] and aten.sum(x).item() == 15
    assert aten.view.default(x, [3, 2]).shape == (3, 2) and aten.add(x, 1, alpha=2)[0, 0] == 2
    y, mean, rstd = aten.native_layer_norm.default(x, None, None, ndim=1, eps=1e-5)
    assert ad.allclose(y, F.layer_norm(x, (3,))) and ad.allclose(mean.flatten(), x.mean(1))
    assert aten.relu_.default(x - 3).min() == 0 and rstd.numel() == 2
    mm = aten.mm.default
    assert (mm.__name__, mm._schema.name, mm.namespace) == ("mm.default", "aten::mm", "aten")
    assert mm.overloadpacket is aten.mm and str(mm) == "aten.mm.default"
    assert aten.add_.Tensor._schema.is_mutable and not mm._schema.is_mutable


def test_operations_are_counted_by_op_and_module() -> None:
    torch = pytest.importorskip("torch")
    theirs = importlib.import_module("torch.utils.flop_counter").FlopCounterMode
    counts = []
    for library, counter in ((ad, FlopCounterMode), (torch, theirs)):
        nn = library.nn
        model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(48, 5))
        with counter(display=False) as c:
            model(library.ones(2, 2, 6, 6)).sum().backward()
        found = c.get_flop_counts()
        counts.append((c.get_total_flops(), {n: sum(d.values()) for n, d in found.items()}))
        assert {str(k) for k in found["Sequential.2"]} == {"aten.addmm", "aten.mm"}
    assert counts[0] == counts[1]
    with FlopCounterMode(display=False, custom_mapping={}) as c:
        ad.bmm(ad.ones(2, 3, 4), ad.ones(2, 4, 5))
    assert c.get_total_flops() == 240 and "aten.bmm" in c.get_table()

    @register_flop_formula(ad.ops.aten.exp)
    def count(shape: Any, *, out_shape: Any = None, **_: Any) -> int:
        return 7 * int(shape[0])
    with FlopCounterMode(display=False) as c:
        ad.ones(3).exp()
    assert c.get_total_flops() == 21 and count((2,)) == 14


TREE = {"b": [1, (2, None)], "a": Point(3, 4), "c": OrderedDict(z=5), "d": deque([6], 3),
        "e": defaultdict(list, {"q": 7})}


def test_trees_are_walked_as_pytorch_walks_them() -> None:
    torch = pytest.importorskip("torch.utils._pytree")
    shown = []
    for p in (trees, torch):
        leaves, spec = p.tree_flatten(TREE)
        assert p.tree_unflatten(leaves, spec) == TREE
        with pytest.raises(ValueError, match="has length 1 but the spec refers to"):
            p.tree_unflatten([1], spec)
        with pytest.raises(ValueError, match="expected 2, but got 3"):
            p.tree_map(max, [1, 2], [3, 4, 5])
        paths = [p.keystr(k) for k, _ in p.tree_flatten_with_path(TREE)[0]]
        two = p.tree_structure([1, [2, 3]])
        shown.append([
            leaves, repr(spec), spec.num_leaves, spec.num_nodes, spec.num_children, paths,
            p.tree_map_with_path(lambda k, x, p=p: (p.keystr(k), x), {"a": [1]}),
            p.tree_map_only(int, lambda x: x + 1, [1, "a"]), p.tree_leaves(None),
            p.tree_map(lambda a, b: (a, b), [1, 2], [3, [4]]), list(p.tree_iter([1, [2]])),
            [p._broadcast_to_and_flatten(t, two) for t in (1, [0, 1], [0])],
            p.tree_any_only(int, lambda x: x > 1, [1, "a"]), str(p.tree_structure(1))])
    assert shown[0] == shown[1]


def test_classes_become_nodes_when_they_are_registered() -> None:
    class Pair:
        def __init__(self, a: Any, b: Any) -> None:
            self.a, self.b = a, b
    assert trees.tree_is_leaf(Pair(1, 2))
    trees.register_pytree_node(Pair, lambda x: ((x.a, x.b), None), lambda c, _: Pair(*c))
    assert trees.tree_map(lambda x: x + 1, Pair(1, [2])).b == [3]
    with pytest.raises(ValueError, match="already registered as pytree node"):
        trees.register_pytree_node(Pair, lambda x: ((x.a, x.b), None), lambda c, _: Pair(*c))
    with pytest.raises(ValueError, match="flatten_with_keys_fn"):
        trees.tree_flatten_with_path(Pair(1, 2))


def test_aten_slice_takes_pytorchs_arguments() -> None:
    x = ad.arange(12.0).reshape(3, 4).requires_grad_()
    aten = ad.ops.aten
    for made, want in ((aten.slice(x), x), (aten.slice.Tensor(x, 1, 1, -1, 2), x[:, 1:-1:2]),
                       (aten.slice.Tensor(x, dim=-1, start=1, end=2**63 - 1), x[:, 1:])):
        assert made.tolist() == want.tolist() and made.requires_grad
