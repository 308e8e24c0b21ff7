"""Module: registration, iteration, hooks, state_dict and conversion (F42, F87).

The hook and state tests run one program with PyTorch and with ours and compare what it logged.
"""
from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest
from helpers_nn import plain

import adjoint as ad
from adjoint import nn
from adjoint.base.errors import AdjointError


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(ad.ones(2))
        self.register_buffer("b", ad.zeros(2))
        self.register_buffer("hidden", ad.zeros(1), persistent=False)
        self.none = None

    def forward(self, x: Any, k: float = 1) -> Any:
        return x * self.w + self.b * k


def classes(lib: Any) -> tuple[Any, Any]:
    """The same two classes in either library."""
    n = lib.nn

    class Leaf(n.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = n.Parameter(lib.ones(2))
            self.register_buffer("b", lib.zeros(2))
            self.register_buffer("hidden", lib.zeros(1), persistent=False)

        def forward(self, x: Any, k: float = 1) -> Any:
            return x * self.w + self.b * k

    class Net(n.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = Leaf()
            self.l = n.ModuleList([Leaf(), Leaf()])
            self.s = n.Sequential(Leaf(), Leaf())
            self.shared = self.a
            self.p = n.Parameter(lib.zeros(1))
            self.d = n.ModuleDict({"x": Leaf()})
            self.pl = n.ParameterList([lib.ones(1), n.Parameter(lib.ones(2))])
            self.pd = n.ParameterDict({"q": lib.ones(1)})

        def forward(self, x: Any) -> Any:
            return self.s(self.a(x))

    return Leaf, Net


def test_names_and_repr_equal_torch() -> None:
    torch = pytest.importorskip("torch")
    peer, ours = classes(torch)[1](), classes(ad)[1]()
    for look in (
            lambda m: [n for n, _ in m.named_parameters()],
            lambda m: [n for n, _ in m.named_parameters(remove_duplicate=False)],
            lambda m: [n for n, _ in m.named_parameters(prefix="z", recurse=False)],
            lambda m: [n for n, _ in m.named_buffers()],
            lambda m: [n for n, _ in m.named_modules()],
            lambda m: [n for n, _ in m.named_modules(remove_duplicate=False)],
            lambda m: [n for n, _ in m.named_children()],
            lambda m: len(list(m.modules())),
            lambda m: list(m.state_dict()),
            lambda m: list(m.state_dict(prefix="z.")),
            lambda m: list(m.state_dict()._metadata.items()),
            lambda m: plain(repr(m))):
        assert look(ours) == look(peer)


def hooked(lib: Any) -> list[Any]:
    """Every kind of hook, in one program; returns what happened in which order."""
    leaf, net = classes(lib)
    log: list[Any] = []
    m = net()
    shapes = lambda gs: [None if g is None else g.tolist() for g in gs]  # noqa: E731
    m.register_forward_pre_hook(lambda mod, args: log.append("pre 1"))
    m.register_forward_pre_hook(lambda mod, args: log.append("pre 0"), prepend=True)
    m.a.register_forward_pre_hook(
        lambda mod, args, kw: (args, {**kw, "k": 3}), with_kwargs=True)
    m.a.register_forward_hook(
        lambda mod, args, kw, out: log.append(("kwargs", sorted(kw))), with_kwargs=True)
    m.register_forward_hook(lambda mod, args, out: out * 2)
    m.register_full_backward_pre_hook(lambda mod, go: log.append(("pre", shapes(go))))
    m.register_full_backward_hook(lambda mod, gi, go: log.append((shapes(gi), shapes(go))))
    m.a.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 10,))
    m.s.register_full_backward_pre_hook(lambda mod, go: (go[0] * 3,))
    m.s.register_full_backward_hook(lambda mod, gi, go: log.append(("s", shapes(gi))))
    with m.s.register_forward_hook(lambda mod, args, out: log.append("removed")):
        pass
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    m(x).sum().backward()
    log.append(x.grad.tolist())
    log += [(n, None if p.grad is None else p.grad.tolist()) for n, p in m.named_parameters()]
    bare = leaf()
    bare.register_full_backward_hook(lambda mod, gi, go: log.append((shapes(gi), shapes(go))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it fires at the outputs, and says so
        bare(lib.tensor([1.0, 2.0])).sum().backward()
    broken = leaf()
    broken.register_forward_hook(lambda mod, args, out: log.append(("always", out)),
                                 always_call=True)
    broken.register_forward_hook(lambda mod, args, out: log.append("never"))
    with pytest.raises(TypeError):
        broken(1, 2, 3, 4)
    return log


@pytest.mark.row("F42")
def test_hooks_run_in_torch_s_order_with_its_values() -> None:
    torch = pytest.importorskip("torch")
    assert hooked(ad) == hooked(torch)


def state_hooks(lib: Any) -> list[Any]:
    log: list[Any] = []
    m = classes(lib)[0]()
    m.register_state_dict_pre_hook(lambda mod, prefix, keep: log.append((prefix, keep)))
    m.register_state_dict_post_hook(
        lambda mod, sd, prefix, meta: sd.update({prefix + "extra": 1}))
    log.append(list(m.state_dict(prefix="q.")))

    def before(mod: Any, sd: Any, prefix: str, *rest: Any) -> None:
        log.append(("load", prefix))
        sd.pop("extra", None)

    def after(mod: Any, found: Any) -> None:
        log.append((list(found.missing_keys), list(found.unexpected_keys)))
        found.missing_keys.clear()

    m.register_load_state_dict_pre_hook(before)
    m.register_load_state_dict_post_hook(after)
    log.append(str(m.load_state_dict({"w": lib.zeros(2), "extra": 2})))
    log.append(m.w.tolist())
    return log


def test_state_dict_hooks_equal_torch() -> None:
    torch = pytest.importorskip("torch")
    assert state_hooks(ad) == state_hooks(torch)


def test_load_reports_every_mismatch_in_torch_s_words_and_changes_nothing() -> None:
    m = Inner()
    with pytest.raises(RuntimeError) as caught:
        m.load_state_dict({"w": ad.zeros(3), "zz": ad.zeros(1)})
    assert str(caught.value) == (
        'Error(s) in loading state_dict for Inner:\n\tMissing key(s) in state_dict: "b". \n\t'
        'Unexpected key(s) in state_dict: "zz". \n\tsize mismatch for w: copying a param with '
        "shape torch.Size([3]) from checkpoint, the shape in current model is torch.Size([2]).")
    assert isinstance(caught.value, AdjointError)
    with pytest.raises(RuntimeError):  # w alone would fit
        m.load_state_dict({"w": ad.zeros(2)})
    assert m.w.tolist() == [1.0, 1.0]
    found = m.load_state_dict({"w": ad.zeros(2)}, strict=False)
    assert found.missing_keys == ["b"] and m.w.tolist() == [0.0, 0.0]


def test_load_hints_at_a_prefix_and_at_close_names() -> None:
    m = Inner()
    with pytest.raises(RuntimeError, match=r"removeprefix\('module\.'\)"):
        m.load_state_dict(nn.DataParallel(m).state_dict())
    with pytest.raises(RuntimeError, match=r"hint: .*'module\.' \+ k"):
        nn.DataParallel(m).load_state_dict(m.state_dict())
    layer = nn.Linear(1, 1)
    with pytest.raises(RuntimeError, match='"weight" is perhaps "weigth"'):
        layer.load_state_dict({"weigth": layer.weight, "bias": layer.bias})


def test_load_assign_takes_the_tensors_and_plain_load_copies() -> None:
    m, w = Inner(), ad.zeros(2, dtype=ad.float64)
    kept = m.w
    m.load_state_dict({"w": w, "b": ad.ones(2)})
    assert m.w is kept and m.w.dtype == ad.float32
    m.load_state_dict({"w": w, "b": ad.ones(2)}, assign=True)
    assert m.w.dtype == ad.float64 and isinstance(m.w, nn.Parameter) and m.w.requires_grad
    w[0] = 5.0
    assert m.w[0].item() == 5.0


def test_extra_state_travels() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n = 0

        def get_extra_state(self) -> Any:
            return {"n": self.n}

        def set_extra_state(self, state: Any) -> None:
            self.n = state["n"]

    a, b = Counter(), Counter()
    a.n = 3
    assert a.state_dict() == {"_extra_state": {"n": 3}}
    b.load_state_dict(a.state_dict())
    assert b.n == 3
    with pytest.raises(RuntimeError, match="_extra_state"):
        b.load_state_dict({})


@pytest.mark.parametrize(("act", "error", "words"), [
    (lambda m: setattr(m, "w", ad.ones(2)), TypeError,
     "cannot assign 'torch.FloatTensor' as parameter 'w'"),
    (lambda m: setattr(m, "b", 3), TypeError, "cannot assign 'int' as buffer 'b'"),
    (lambda m: m.register_parameter("a.b", None), KeyError, "parameter name can.*t contain"),
    (lambda m: m.register_parameter("", None), KeyError, "t be empty string"),
    (lambda m: m.register_buffer("w", None), KeyError, "attribute 'w' already exists"),
    (lambda m: m.register_buffer("q", 3), TypeError, "cannot assign 'int' object to buffer 'q'"),
    (lambda m: m.register_parameter("q", m.w * 2), TypeError,
     "'torch.FloatTensor' object to parameter"),
    (lambda m: m.add_module("x", 3), TypeError, "int is not a Module subclass"),
    (lambda m: m.zzz, AttributeError, "'Inner' object has no attribute 'zzz'"),
    (lambda m: m.get_parameter("b"), AttributeError, "`b` is not an nn.Parameter"),
    (lambda m: m.get_buffer("w"), AttributeError, "`w` is not a buffer"),
    (lambda m: m.get_submodule("a.b"), AttributeError, "Inner has no attribute `a`"),
    (lambda m: m.to(ad.int64), TypeError, "only accepts floating point or complex"),
    (lambda m: m.load_state_dict([1]), TypeError, "Expected state_dict to be dict-like"),
    (lambda m: m.train("yes"), ValueError, "training mode is expected to be boolean"),
    (lambda m: nn.Module()(3), NotImplementedError, 'missing the required "forward"'),
    (lambda m: nn.Module(3), TypeError, "takes 1 positional argument but 2"),
])
def test_errors_are_torch_s(act: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words.replace("(", r"\(")):
        act(Inner())


def test_assignment_before_init_says_what_to_do() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.ReLU()

    with pytest.raises(AttributeError, match=r"super\(\).__init__\(\)"):
        Early()


def test_conversion_keeps_identity_of_parameters() -> None:
    m = Inner()
    w = m.w
    m(ad.ones(2)).sum().backward()
    m.double()
    assert m.w is w and m.w.dtype == m.b.dtype == m.w.grad.dtype == ad.float64
    assert m.to(ad.float32) is m and m.w.dtype == ad.float32
    m.register_buffer("count", ad.tensor(3))
    assert m.half().count.dtype == ad.int64 and m.w.dtype == ad.float16
    assert m.to("meta").w.device.type == "meta"
    assert m.to_empty(device="cpu").w.shape == (2,)


def test_deepcopy_and_pickle_keep_sharing_and_values() -> None:
    net = nn.Sequential(Inner(), Inner())
    net.again = net[0]
    made = copy.deepcopy(net)
    assert made.again is made[0] and made[0] is not net[0]
    assert made[0].w is not net[0].w and made[0].w.tolist() == net[0].w.tolist()
    back = pickle.loads(pickle.dumps(net))
    assert back.again is back[0] and isinstance(back[0].w, nn.Parameter)
    assert list(back.state_dict()) == list(net.state_dict())


def test_buffers_by_assignment_and_replacement() -> None:
    m = nn.Module()
    m.kept = nn.Buffer(ad.ones(1))
    m.dropped = nn.Buffer(ad.ones(1), persistent=False)
    assert list(m.state_dict()) == ["kept"] and len(list(m.buffers())) == 2
    m.kept = ad.zeros(1)
    assert m.state_dict()["kept"].item() == 0.0
    del m.kept
    assert list(m.state_dict()) == [] and not hasattr(m, "kept")
    m.kept = nn.Parameter(ad.ones(1))
    assert list(m.state_dict()) == ["kept"] and "kept" in dir(m)


def test_freeze_zero_grad_and_modes() -> None:
    m = Inner()
    assert not any(p.requires_grad for p in m.requires_grad_(False).parameters())
    m.requires_grad_()
    m(ad.ones(2)).sum().backward()
    m.zero_grad(set_to_none=False)
    assert m.w.grad.tolist() == [0.0, 0.0]
    m.zero_grad()
    assert m.w.grad is None
    assert not m.eval().training and m.train().training
    seen: list[str] = []
    nn.Sequential(nn.ReLU(), nn.Tanh()).apply(lambda x: seen.append(x._get_name()))
    assert seen == ["ReLU", "Tanh", "Sequential"]
    assert m.share_memory() is m and m.compile() is None


def test_global_hooks_see_every_module_and_are_removed() -> None:
    from adjoint.nn.modules import module as mm
    seen: list[str] = []
    net = nn.Sequential(Inner(), Inner())
    with mm.register_module_forward_pre_hook(lambda m, a: seen.append("pre " + m._get_name())), \
            mm.register_module_forward_hook(lambda m, a, o: seen.append("post " + m._get_name())):
        net(ad.ones(2))
    assert seen == ["pre Sequential", "pre Inner", "post Inner", "pre Inner", "post Inner",
                    "post Sequential"]
    net(ad.ones(2))
    assert len(seen) == 6
    with mm.register_module_parameter_registration_hook(
            lambda m, name, p: seen.append("param " + name)):
        Inner()
    assert seen[6:] == ["param w"]


def test_backward_hook_with_a_wrong_number_of_gradients_is_refused() -> None:
    m = Inner()
    m.register_full_backward_hook(lambda mod, gi, go: (gi[0], gi[0]))
    with pytest.raises(RuntimeError, match="returned an invalid number of grad_input, got 2"):
        m(ad.ones(2, requires_grad=True)).sum().backward()


def test_a_compiled_module_is_the_module_with_other_names() -> None:
    """What was read, written, deleted and switched, beside PyTorch's OptimizedModule."""
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l, self.tag = nn.Linear(2, 2), "x"
            self.register_buffer("b", ad.zeros(1))

        def forward(self, x: Any) -> Any:
            return self.l(x) + self.b

        def __len__(self) -> int:
            return 7

    m = Net()
    c: Any = ad.compile(m)
    assert list(c.state_dict()) == ["_orig_mod.b", "_orig_mod.l.weight", "_orig_mod.l.bias"]
    assert [n for n, _ in c.named_modules()] == ["", "_orig_mod", "_orig_mod.l"]
    assert repr(c).startswith("OptimizedModule(\n  (_orig_mod): Net(")
    assert c._orig_mod is m and c.l is m.l and c.tag == "x" and len(c) == 7 and bool(c)
    c.tag, c.b, c.l = "y", ad.ones(1), nn.Linear(2, 2)
    assert m.tag == "y" and m.b.item() == 1 and c.l is m.l and list(c._modules) == ["_orig_mod"]
    del c.tag
    assert not hasattr(m, "tag") and not hasattr(c, "tag")
    c.eval()
    assert not m.training and not m.l.training
    m.train()
    assert c.training
    calls: list[str] = []
    m.register_forward_hook(lambda *_: calls.append("inner"))
    c.register_forward_hook(lambda *_: calls.append("outer"))
    assert c(ad.ones(1, 2)).equal(m(ad.ones(1, 2))) and calls == ["inner", "outer", "inner"]
    again = copy.deepcopy(c)
    assert again._orig_mod is not m and again.load_state_dict(c.state_dict())
    kept: Any = pickle.loads(pickle.dumps(ad.compile(nn.Linear(2, 2))))
    assert list(kept.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    with pytest.raises(RuntimeError, match="_orig_mod"):
        c.load_state_dict(m.state_dict())
    assert ad.compile(c) is c and ad.compile(m, disable=True) is m and ad.compile(Net) is Net
    with pytest.raises(TypeError, match="no len"):
        len(ad.compile(nn.Linear(2, 2)))


def test_sizes_can_be_tensors_of_one_integer() -> None:
    """Models compute their sizes with tensors; floats and truth values are refused."""
    three = ad.tensor(3)
    assert nn.Linear(three, 2)(ad.ones(1, 3)).shape == (1, 2)
    assert nn.Embedding(three, three)(ad.tensor([1])).shape == (1, 3)
    for wrong in (ad.tensor(3.0), ad.tensor(True), ad.tensor([3])):
        with pytest.raises(TypeError, match="must be an integer"):
            nn.Linear(wrong, 2)                                 # type: ignore[arg-type]  # wrong
