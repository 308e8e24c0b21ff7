"""Helpers of PyTorch's modules that programs import beside the public names."""
import math
import typing

import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint.nn import init
from adjoint.nn.modules import transformer
from adjoint.optim import optimizer


def test_helpers_of_attention_are_its_parts():
    q, w, b = ad.randn(3, 2, 4), ad.randn(12, 4), ad.randn(12)
    packed = F._in_projection_packed(q, q, q, w, b)
    single = F._in_projection(q, q, q, w[:4], w[4:8], w[8:], b[:4], b[4:8], b[8:])
    for x, y, k in zip(packed, single, range(3), strict=True):
        assert ad.equal(x, y) and ad.equal(x, F.linear(q, w[4 * k:4 * k + 4], b[4 * k:4 * k + 4]))
    assert F._mha_shape_check(q, q, q, None, None, 2)
    assert not F._mha_shape_check(q[0], q[0], q[0], None, ad.ones(2, 2, 2), 2)
    for args, text in (((ad.ones(2), q, q, None, None), "query should be unbatched 2D or batched"),
                       ((q, ad.ones(2, 2), q, None, None), "found 2-D and 3-D tensors"),
                       ((q, q, q, ad.ones(2), None), "`None` or 2-D but found 1-D"),
                       ((q[0], q[0], q[0], None, ad.ones(1, 2, 2)), "Expected `attn_mask` shape")):
        with pytest.raises(AssertionError, match=text):
            F._mha_shape_check(*args, 2)
    mask = F._canonical_mask(ad.tensor([True, False]), "m", F._none_or_dtype(None), "", ad.float32)
    assert mask.tolist() == [-math.inf, 0.0]
    with pytest.raises(AssertionError, match="only bool and floating types of m are supported"):
        F._canonical_mask(ad.ones(2, dtype=ad.int32), "m", None, "", ad.float32)
    with pytest.warns(UserWarning, match="Support for mismatched m and o is deprecated"):
        F._canonical_mask(ad.ones(2), "m", ad.bool, "o", ad.float32)


def test_helpers_of_functional_and_init():
    assert F._Reduction.get_enum("sum") == 2 and F._pair(3) == (3, 3)
    assert not F.has_torch_function((ad.ones(1),))
    with pytest.raises(ValueError, match=r"Expected more than 1 value per channel .*\[1, 3\]"):
        F._verify_batch_size([1, 3])
    F._verify_batch_size([1, 3, 2])
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        assert [F._get_softmax_dim("softmax", n, 2) for n in (0, 1, 2, 3, 4)] == [0, 0, 1, 0, 1]
    x = ad.nn.Parameter(ad.empty(50))
    assert init._no_grad_uniform_(x, 2.0, 3.0).min() >= 2 and x.max() <= 3 and x.is_leaf
    assert init._no_grad_fill_(x, 4.0).sum() == 200 and init._no_grad_zero_(x).sum() == 0
    assert init._no_grad_trunc_normal_(x, 0, 1, -0.5, 0.5).abs().max() <= 0.5
    with pytest.raises(AttributeError, match="_no_grad_nothing_"):
        getattr(init, "_no_grad_nothing_")  # noqa: B009  # the point is that it is missing


def test_helpers_of_transformers():
    assert transformer._get_activation_fn("gelu") is F.gelu
    with pytest.raises(RuntimeError, match="activation should be relu/gelu, not a"):
        transformer._get_activation_fn("a")
    causal = transformer._generate_square_subsequent_mask(3)
    assert causal[0].tolist() == [0, -math.inf, -math.inf]
    assert transformer._detect_is_causal_mask(causal, size=3)
    assert not transformer._detect_is_causal_mask(causal, size=4)
    assert not transformer._detect_is_causal_mask(ad.zeros(3, 3))
    assert [transformer._get_seq_len(ad.ones(5, 2, 1), f) for f in (False, True)] == [5, 2]
    assert transformer._get_seq_len(ad.ones(7, 2), True) == 7


def test_an_optimizer_written_with_pytorch_s_helpers():
    class Descent(optimizer.Optimizer):
        def __init__(self, params, differentiable=False):
            super().__init__(params, {"lr": 0.5, "differentiable": differentiable})

        @optimizer._use_grad_for_differentiable
        def step(self, closure=None):
            self.recorded = ad.is_grad_enabled()
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-optimizer._get_value(ad.tensor(group["lr"])))

    x = ad.ones(2, requires_grad=True)
    (x * x).sum().backward()
    plain = Descent([x])
    plain.step()
    assert x.tolist() == [0.0, 0.0] and not plain.recorded
    y = ad.ones(2, requires_grad=True).clone()
    y.grad = ad.ones(2)
    recorded = Descent([y], differentiable=True)
    recorded.step()
    assert recorded.recorded and y.tolist() == [0.5, 0.5] and y.requires_grad
    assert optimizer._default_to_fused_or_foreach([x], False) == (False, False)
    assert optimizer._get_scalar_dtype() == ad.float32 and optimizer._dispatch_sqrt(9.0) == 3
    z = [ad.ones(2, dtype=ad.complex64)]
    optimizer._view_as_real(z)
    assert z[0].tolist() == [[1, 0], [1, 0]]


def test_names_of_jit_and_hub(monkeypatch, tmp_path):
    jit, OPTIONAL = ad.jit, typing.Union[int, None]  # noqa: UP007  # programs write it so
    for value, kind in (([1, 2], list[int]), ({"a": 1.0}, dict[str, float]),
                        ((1, "a"), tuple[int, str]), (None, OPTIONAL),
                        (3, int | None), (ad.ones(1), ad.Tensor), (1, (str, int))):
        assert jit.isinstance(value, kind), (value, kind)
    for value, kind in (([1, "a"], list[int]), ({1: 1.0}, dict[str, float]),
                        ((1,), tuple[int, str]), ("a", OPTIONAL), ((1, 2), list[int])):
        assert not jit.isinstance(value, kind), (value, kind)
    assert issubclass(jit.TracerWarning, Warning) and issubclass(jit.Error, RuntimeError)
    model = ad.nn.Linear(1, 1)
    assert jit.optimize_for_inference(model) is model
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert ad.hub._get_torch_home() == str(tmp_path)
    assert ad.hub.get_dir() == str(tmp_path / "hub")
