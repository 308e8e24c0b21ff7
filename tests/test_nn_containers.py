"""Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict (F42), beside PyTorch."""
from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
from helpers_nn import plain

import adjoint as ad
from adjoint import nn


def sequential(lib: Any) -> list[Any]:
    n = lib.nn
    a, b, c = n.ReLU(), n.Tanh(), n.Sigmoid()
    s = n.Sequential(a, b)
    log = [repr(s), repr(s[:1]), repr(s[-1]), len(s), repr(s + n.Sequential(c)), repr(s * 2),
           repr(2 * s)]
    s.append(c)
    s.insert(1, n.GELU())
    s.extend([n.ELU()])
    s += n.Sequential(n.SELU())
    log += [repr(s), repr(s.pop(0)), list(s._modules)]
    del s[0]
    del s[1:3]
    s[0] = n.Softplus()
    s *= 2
    log += [repr(s), repr(n.Sequential(OrderedDict([("one", a), ("two", b)]))),
            repr(n.Sequential(OrderedDict([("one", a), ("two", b)]))[1:])]
    return log


def module_list(lib: Any) -> list[Any]:
    n = lib.nn
    m = n.ModuleList([n.ReLU(), n.ReLU(), n.Tanh()])
    log = [repr(m), repr(m[0]), repr(m[-1]), repr(m[1:]), len(m), len(list(m.modules()))]
    m.append(n.Linear(1, 2))
    m.insert(0, n.GELU())
    m.extend(n.ModuleList([n.ELU()]))
    m += [n.SELU()]
    log += [repr(m), repr(m.pop(1)), repr(m + [n.ReLU()])]
    m[0] = n.Sigmoid()
    del m[1]
    del m[-2:]
    return [*log, repr(m), list(m.state_dict()), repr(n.ModuleList())]


def module_dict(lib: Any) -> list[Any]:
    n = lib.nn
    m = n.ModuleDict([["b", n.ReLU()], ["a", n.Tanh()]])
    m["c"] = n.Linear(1, 1)
    m.update({"d": n.ELU()})
    log = [repr(m), list(m), list(m.keys()), len(m), "a" in m, [repr(v) for v in m.values()],
           repr(m.pop("a")), [k for k, _ in m.items()]]
    del m["b"]
    log.append(repr(m))
    m.clear()
    return [*log, repr(m)]


def parameter_list(lib: Any) -> list[Any]:
    n = lib.nn
    m = n.ParameterList([lib.ones(1), n.Parameter(lib.zeros(2)), 5])
    m.append(lib.zeros(3))
    m.extend([lib.ones(2, 2)])
    m += [lib.ones(1)]
    m[0] = lib.zeros(4)
    return [repr(m), len(m), [name for name, _ in m.named_parameters()], repr(m[1:3]),
            isinstance(m[-1], n.Parameter), [type(x).__name__ for x in m], m[0].shape[0]]


def parameter_dict(lib: Any) -> list[Any]:
    n = lib.nn
    m = n.ParameterDict({"b": lib.ones(1), "a": lib.zeros(2)})
    m["c"] = lib.ones(3)
    m.update([("z", lib.ones(1)), ("y", 7)])
    log = [repr(m), list(m), len(m), list(m.keys()), "a" in m, m.get("q"),
           [name for name, _ in m.named_parameters()], list(reversed(m)),
           [k for k, _ in m.items()], m.setdefault("k", lib.ones(1)).shape[0]]
    m.pop("a")
    m.popitem()
    both = m | n.ParameterDict({"w": lib.ones(1)})
    m |= n.ParameterDict({"v": lib.ones(1)})
    log += [list(both), list(m), list(m.copy()), list(m.fromkeys(["p", "o"]))]
    m.clear()
    return [*log, len(m)]


@pytest.mark.parametrize("program", [sequential, module_list, module_dict, parameter_list,
                                     parameter_dict])
def test_container_programs_equal_torch(program: Any) -> None:
    torch = pytest.importorskip("torch")
    for ours, peer in zip(program(ad), program(torch), strict=True):
        if isinstance(peer, str):
            ours, peer = plain(ours), plain(peer)
        assert ours == peer


@pytest.mark.parametrize(("act", "error"), [
    (lambda: nn.Sequential(nn.ReLU())[1], IndexError),
    (lambda: nn.Sequential(3), TypeError),
    (lambda: nn.Sequential() * 0, ValueError),
    (lambda: nn.Sequential() + [1], ValueError),
    (lambda: nn.ModuleList()[0], IndexError),
    (lambda: nn.ModuleList([3]), TypeError),
    (lambda: nn.ModuleList().extend(3), TypeError),
    (lambda: nn.ModuleDict({"a": 3}), TypeError),
    (lambda: nn.ModuleDict({"keys": nn.ReLU()}), KeyError),
    (lambda: nn.ModuleDict([("a", nn.ReLU(), 3)]), ValueError),
    (lambda: nn.ModuleDict(3), TypeError),
    (lambda: nn.ModuleDict()["a"], KeyError),
    (lambda: nn.ParameterList()[0], IndexError),
    (lambda: nn.ParameterList()(1), RuntimeError),
    (lambda: nn.ParameterDict()[3], TypeError),
    (lambda: nn.ParameterDict()(1), RuntimeError),
])
def test_container_errors(act: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        act()


def test_buffers_are_plain_tensors_that_remember_what_they_are() -> None:
    """F41: `type(x) is Tensor` holds for them, `isinstance(x, Buffer)` too."""
    b = nn.Buffer(ad.ones(2), persistent=False)
    assert type(b) is ad.Tensor and isinstance(b, nn.Buffer)
    assert not isinstance(ad.ones(2), nn.Buffer)
    m = nn.Module()
    m.kept, m.gone = nn.Buffer(ad.zeros(1)), b
    assert list(m.state_dict()) == ["kept"] and [n for n, _ in m.named_buffers()] == ["kept",
                                                                                      "gone"]


def test_modules_of_attention_are_attributes_of_it() -> None:
    """F41."""
    from adjoint.nn.attention import bias, flex_attention

    assert bias.causal_lower_right(2, 3).shape == (2, 3)
    assert callable(flex_attention.flex_attention)
    with pytest.raises(AttributeError, match="nn.attention"):
        _ = nn.attention.nothing
