"""F123: small modules of PyTorch that programs import: `utils.weak`, `utils.module_tracker`,
`utils.collect_env`, `utils.backend_registration`, `nn.attention.bias`, `_ops`, `_jit_internal`."""
import copy
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional, Union

import numpy as np
import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import _jit_internal as internal
from adjoint import _ops
from adjoint.base.errors import NotSupported
from adjoint.nn.attention.bias import (
    CausalBias,
    CausalVariant,
    causal_lower_right,
    causal_upper_left,
)
from adjoint.utils import backend_registration, collect_env
from adjoint.utils.module_tracker import ModuleTracker
from adjoint.utils.weak import TensorWeakRef, WeakIdKeyDictionary, WeakIdRef


class Key:
    """A key that goes when its name does."""


def test_a_dictionary_of_tensors_tells_them_apart_by_which_object_they_are() -> None:
    a, b = ad.ones(2), ad.ones(2)
    d = WeakIdKeyDictionary({a: 1})
    d[b] = 2
    assert (d[a], d[b], len(d), list(d.values())) == (1, 2, 2, [1, 2])
    assert ad.ones(2) not in d and 3 not in d and d.get(3.5 * a, 9) == 9
    with pytest.raises(KeyError):
        d[ad.ones(2)]
    with pytest.raises(TypeError, match="cannot create weak reference to 'int' object"):
        d[3] = 1
    assert d == d.copy() and d != {a: 1} and (d | {b: 4})[b] == 4 and d[b] == 2
    twin = copy.deepcopy(WeakIdKeyDictionary({a: [1]}))
    assert twin[a] == [1] and next(iter(twin)) is a
    assert d.popitem()[1] == 2 and d.pop(a) == 1 and not d


def test_weak_references_let_their_objects_go() -> None:
    a, b = Key(), Key()
    d = WeakIdKeyDictionary({a: 1, b: 2})
    refs = d.keyrefs()
    del a
    assert list(d.values()) == [2] and [r() is b for r in refs] == [False, True]
    assert WeakIdRef(b) == WeakIdRef(b) and WeakIdRef(b) != WeakIdRef(Key())
    t = ad.ones(1)
    held = TensorWeakRef(t)
    assert held() is t and hash(WeakIdRef(t)) == id(t)
    del t
    assert held() is None
    with pytest.raises(AssertionError, match="expected torch.Tensor, got <class 'int'>"):
        TensorWeakRef(3)  # type: ignore[arg-type]  # what is refused


def test_a_tracker_knows_the_modules_of_forward_and_backward() -> None:
    model = ad.nn.Sequential(ad.nn.Linear(2, 2), ad.nn.Tanh())
    seen: list[Any] = []
    with ModuleTracker() as tracker:
        def note(*_: Any) -> None:
            seen.append((sorted(tracker.parents), tracker.is_bw))
        model[0].register_forward_hook(note)
        y = model(ad.ones(1, 2))
        model[0].weight.register_hook(note)
        y.sum().backward()
        assert (tracker.parents, tracker.is_bw) == ({"Global"}, False)
    assert seen == [(["Global", "Sequential", "Sequential.0"], False),
                    (["Global", "Sequential", "Sequential.0"], True)]


def test_the_environment_is_collected_and_devices_are_not_added() -> None:
    text = collect_env.get_pretty_env_info()
    assert text.startswith(f"PyTorch version: {ad.__version__}")
    assert f"numpy=={np.__version__}" in text and f"Python version: {sys.version[:4]}" in text
    info = collect_env.get_env_info()
    assert info.is_cuda_available == "False" and info.python_platform in text
    assert collect_env.get_pip_packages(["nump"])[1].startswith("nump")
    with pytest.raises(NotSupported, match=r"rename_privateuse1_backend\('npu'\): devices cannot"):
        backend_registration.rename_privateuse1_backend("npu")
    with pytest.raises(NotSupported, match="devices cannot be added"):
        backend_registration.generate_methods_for_privateuse1_backend()


@pytest.mark.parametrize("lengths", [(3, 5), (4, 4), (3, 2)])
@pytest.mark.parametrize("make", [causal_upper_left, causal_lower_right])
@pytest.mark.filterwarnings("ignore:Lower right causal bias will produce NaNs")
def test_a_causal_bias_is_its_mask(make: Any, lengths: tuple[int, int]) -> None:
    bias, (rows, columns) = make(*lengths), lengths
    later = columns - rows if make is causal_lower_right else 0
    mask = ad.tensor(np.tri(rows, columns, later, dtype=bool))
    assert isinstance(bias, CausalBias) and tuple(bias.shape) == lengths
    assert repr(bias) == repr(mask) and ad.equal(bias & True, mask) and bias.sum() == mask.sum()
    q, k = ad.randn(1, 2, rows, 4, requires_grad=True), ad.randn(1, 2, columns, 4)
    got = F.scaled_dot_product_attention(q, k, k, attn_mask=bias, scale=0.3)
    want = F.scaled_dot_product_attention(q, k, k, attn_mask=mask, scale=0.3)
    assert ad.allclose(got, want, atol=1e-6)
    assert all(ad.allclose(*pair, atol=1e-6) for pair in zip(
        ad.autograd.grad(got.sum(), q), ad.autograd.grad(want.sum(), q), strict=True))


def test_a_causal_bias_says_what_it_refuses() -> None:
    q = ad.ones(1, 1, 3, 4)
    with pytest.raises(ValueError, match="CausalBias should not be used with causal=True"):
        F.scaled_dot_product_attention(q, q, q, attn_mask=causal_upper_left(3, 3), is_causal=True)
    with pytest.raises(AssertionError, match="causal_lower_right only supports 2D tensors"):
        causal_lower_right(3)
    with pytest.raises(AssertionError, match="variant must be a CausalVariant, got int"):
        CausalBias(3, 5, 3)  # type: ignore[arg-type]  # what is refused
    with pytest.warns(UserWarning, match="will produce NaNs in the output when seq_len_q >"):
        CausalBias(CausalVariant.LOWER_RIGHT, 5, 3)


def test_operators_have_classes() -> None:
    mm = ad.ops.aten.mm
    for x, packet, overload in ((mm, True, False), (mm.default, False, True),
                                (ad.ops.aten.add_.Tensor, False, True), (ad.mm, False, False)):
        assert isinstance(x, _ops.OpOverloadPacket) is packet
        assert isinstance(x, _ops.OpOverload) is overload
        assert isinstance(x, _ops.OperatorBase) is (packet or overload)
    assert not isinstance(ad.cond, _ops.HigherOrderOperator)
    with pytest.raises(NotSupported, match="operators are made by library.custom_op"):
        _ops.OpOverload()


def test_marks_and_kinds_of_annotations() -> None:
    f = internal.boolean_dispatch("flag", 1, False, lambda x, flag: "T", lambda x, flag=False: "F",
                                  "module", "name")
    assert (f(1), f(1, True), f(1, flag=True), f.__name__, f.__module__) == (
        "F", "T", "T", "name", "module")
    assert internal.is_optional(Optional[int]) and internal.is_optional(int | None)  # noqa: UP045
    assert internal.is_union(Union[int, str]) and not internal.is_optional(int | str)  # noqa: UP007
    assert internal.is_tuple(tuple[int]) and internal.is_list(list[int])
    assert internal.is_dict(internal.Dict[str, int]) and internal.is_final(internal.Final[int])
    assert not internal.is_ignored_fn(f) and internal.BroadcastingList2[int] is None
    assert internal._qualified_name(Key) == f"__torch__.{__name__}.Key"
    assert internal.get_torchscript_modifier(f) == internal.FunctionModifiers.DEFAULT


PROGRAM = """
import torch
from torch._higher_order_ops.cond import cond
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops import cond as again, scan
from torch.nn.attention.bias import causal_lower_right
from torch.utils.weak import WeakTensorKeyDictionary
from torch._ops import OpOverload
from torch._jit_internal import boolean_dispatch
import torch._higher_order_ops.while_loop, torch.utils.collect_env
print(cond is again is torch.cond, callable(mapped), callable(torch._higher_order_ops.while_loop))
print(isinstance(torch.ops.aten.mm.default, OpOverload), torch.utils.weak is not None)
"""


def test_a_pytorch_program_imports_them(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    made = subprocess.run([sys.executable, "-m", "adjoint", "run", "--as-torch", str(path)],
                          capture_output=True, text=True, timeout=300, check=False)
    assert made.stderr == "" and made.stdout == "True True True\nTrue True\n"
