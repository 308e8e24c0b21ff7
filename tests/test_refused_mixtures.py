"""Operands that do not go together are refused before anything changes, as PyTorch refuses them."""
from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import nn

DOUBLE = ad.ones(4, 3, dtype=ad.float64) * ad.arange(4.0, dtype=ad.float64)[:, None]


def test_ctc_targets_of_another_batch_are_refused() -> None:
    log_probs = ad.zeros(5, 2, 4).log_softmax(-1)
    for rows in (1, 3):
        with pytest.raises(RuntimeError, match=f"size 2 at dimension 0, but got size {rows}"):
            F.ctc_loss(log_probs, ad.ones(rows, 2, dtype=ad.int64), (5, 5), (2, 2))
    assert F.ctc_loss(log_probs, ad.ones(2, 2, dtype=ad.int64), (5, 5), (2, 2)).item() > 0


def test_offsets_of_bags_are_whole_numbers() -> None:
    table = ad.arange(8.0).reshape(4, 2)
    with pytest.raises(RuntimeError, match="'offsets'.*Long, Int"):
        F.embedding_bag(ad.tensor([0, 1, 2]), table, ad.tensor([0.0, 2.0]))
    short = F.embedding_bag(ad.tensor([0, 1, 2]), table, ad.tensor([0, 2], dtype=ad.int32))
    assert short.tolist() == [[1.0, 2.0], [4.0, 5.0]]


@pytest.mark.parametrize("dtype", ["int64", "int32", "bool"])
def test_logits_want_targets_of_floats(dtype: str) -> None:
    target = ad.ones(3, dtype=getattr(ad, dtype))
    with pytest.raises(RuntimeError, match="call .float"):
        F.binary_cross_entropy_with_logits(ad.ones(3), target)
    with pytest.raises(RuntimeError, match="call .float"):
        F.binary_cross_entropy_with_logits(ad.ones(3), target, pos_weight=ad.ones(3))
    found = F.binary_cross_entropy_with_logits(ad.ones(3), target.float())
    assert found.item() == pytest.approx(np.log1p(np.exp(-1.0)))


def test_prelu_of_integers_has_no_kernel() -> None:
    with pytest.raises(NotImplementedError, match="prelu_cpu"):
        F.prelu(ad.tensor([1, -3]), ad.tensor([2]))


def test_pairs_of_cosines_have_one_rank() -> None:
    with pytest.raises(RuntimeError, match=r"1D target tensor expects 2D.*\[2, 3\] and \[3\]"):
        F.cosine_embedding_loss(ad.ones(2, 3), ad.ones(3), ad.ones(2))
    assert F.cosine_embedding_loss(ad.ones(2, 3), ad.ones(1, 3), ad.ones(2)).item() == (
        pytest.approx(0, abs=1e-6))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("x", [DOUBLE, DOUBLE.long()], ids=["float64", "int64"])
def test_batch_norm_of_another_dtype_changes_nothing(x: ad.Tensor, training: bool) -> None:
    layer = nn.BatchNorm1d(3).train(training)
    with pytest.raises((RuntimeError, NotImplementedError), match="mixed dtype|batch_norm"):
        layer(x)
    assert layer.num_batches_tracked.item() == 0
    assert layer.running_mean.tolist() == [0.0] * 3 and layer.running_var.tolist() == [1.0] * 3


def test_norms_take_parameters_of_their_dtype_or_float32_over_16_bits() -> None:
    one = ad.ones(3)
    with pytest.raises(RuntimeError, match="mixed dtype"):
        F.group_norm(DOUBLE, 1, one)
    with pytest.raises(RuntimeError, match="mixed dtype"):
        F.instance_norm(DOUBLE[None].mT, weight=ad.ones(3))
    with pytest.raises(RuntimeError, match="mixed dtype"):
        F.batch_norm(DOUBLE.float(), None, None, one.double(), None, True)
    for dtype in (ad.bfloat16, ad.float16):
        assert F.batch_norm(DOUBLE.to(dtype), None, None, one, None, True).dtype == dtype


def test_types_of_cuda_are_refused() -> None:
    with pytest.raises((RuntimeError, AssertionError), match="(?i)cuda"):
        ad.ones(2).type("torch.cuda.FloatTensor")
    with pytest.raises((RuntimeError, AssertionError), match="(?i)cuda"):
        ad.ones(2).type(ad.cuda.FloatTensor)
    for t in ("torch.cuda.FloatTensor", ad.cuda.DoubleTensor):
        with pytest.warns(UserWarning, match="deprecated"), pytest.raises(TypeError, match="CUDA"):
            ad.set_default_tensor_type(t)
    assert ad.get_default_dtype() == ad.float32
    assert ad.ones(2).type("torch.DoubleTensor").dtype == ad.float64


def test_rprop_leaves_what_has_no_gradient_in_numbers() -> None:
    p = ad.ones(2, requires_grad=True)
    step = ad.optim.Rprop([p])
    p.grad = ad.tensor([float("nan"), 1.0])
    step.step()
    assert p.tolist() == pytest.approx([1.0, 0.99])


def test_unflatten_of_a_missing_axis_is_an_index_error() -> None:
    with pytest.raises(IndexError, match=r"\[-2, 1\], but got 3"):
        nn.Unflatten(3, (2, 2))(ad.ones(2, 4))


def test_cuda_has_nothing_to_start_and_a_cpu_tensor_is_on_no_device_of_it() -> None:
    for ask in (ad.cuda.init, ad.cuda.initial_seed):
        with pytest.raises(AssertionError, match="no CUDA device"):
            ask()
    with ad.cuda.device_of(ad.ones(2)):
        assert not ad.cuda.is_initialized()
    with pytest.raises(RuntimeError, match="NVTX functions not installed"):
        ad.cuda.nvtx.range_push("step")


def test_floats_of_two_dtypes_are_not_mixed() -> None:
    for dtype in (ad.float64, ad.bfloat16):
        with pytest.raises(RuntimeError, match="prelu: Type promoting not supported. Got"):
            F.prelu(ad.ones(2, dtype=dtype), ad.ones(1))
    with pytest.raises(RuntimeError, match="All tensors must have the same dtype"):
        F.bilinear(ad.ones(1, 2), ad.ones(1, 2).double(), ad.ones(3, 2, 2))
    with ad.autocast("cpu", dtype=ad.bfloat16):
        assert F.prelu(ad.ones(2, dtype=ad.bfloat16), ad.ones(1)).dtype == ad.bfloat16
    for pair in ((ad.tensor([1]), ad.ones(1)), (ad.ones(1), ad.tensor([1]))):
        with pytest.raises(RuntimeError, match="kl_div: Integral inputs not supported"):
            F.kl_div(*pair, reduction="sum")


def test_probabilities_are_no_nan() -> None:
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        F.binary_cross_entropy(ad.tensor([0.5, float("nan")]), ad.ones(2))


def test_an_instance_norm_of_no_elements_keeps_its_statistics() -> None:
    layer = nn.InstanceNorm1d(2, track_running_stats=True)
    assert tuple(layer(ad.zeros(3, 2, 0)).shape) == (3, 2, 0)
    assert layer.running_mean.tolist() == [0.0, 0.0] and layer.running_var.tolist() == [1.0, 1.0]
