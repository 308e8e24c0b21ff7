"""Bad input to layers: one exception of our tree with the shapes, and no state changed (F18)."""
from __future__ import annotations

from typing import Any

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.base.errors import AdjointError

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")

z = ad.zeros
CONSTRUCTION: list[tuple[Any, str]] = [
    (lambda: nn.Linear(-1, 2), "in_features must be >= 0, got -1"),
    (lambda: nn.Linear(2.5, 2), "in_features must be an integer, got 2.5"),
    (lambda: nn.Bilinear(0, 2, 2), "in1_features must be > 0, but got"),
    (lambda: nn.Conv2d(4, 5, 3, groups=3), "in_channels must be divisible by groups"),
    (lambda: nn.Conv2d(3, 5, 3, groups=3), "out_channels must be divisible by groups"),
    (lambda: nn.Conv2d(4, 4, 3, groups=0), "groups must be a positive integer"),
    (lambda: nn.Conv2d(4, 4, 0), "kernel_size.* must be > 0, but got"),
    (lambda: nn.Conv2d(4, 4, (1, 2, 3)), "kernel_size must be one integer or 2 of them"),
    (lambda: nn.Conv2d(4, 5, 3, padding="foo"), "Invalid padding string 'foo'"),
    (lambda: nn.Conv2d(4, 5, 3, padding="same", stride=2), "not supported for strided"),
    (lambda: nn.Conv2d(4, 4, 3, padding_mode="foo"), "but got padding_mode='foo'"),
    (lambda: nn.ConvTranspose2d(4, 4, 3, padding_mode="circular"), 'Only "zeros" padding mode'),
    (lambda: nn.MaxPool2d(2, padding=3), "pad should be at most half of effective kernel size"),
    (lambda: nn.Dropout(1.2), "between 0 and 1, but got 1.2"),
    (lambda: nn.GroupNorm(3, 4), r"num_channels \(4\) must be divisible by num_groups \(3\)"),
    (lambda: nn.LayerNorm(()), "normalized_shape must have at least one axis"),
    (lambda: nn.BatchNorm1d(-3), "num_features must be >= 0"),
    (lambda: nn.Embedding(10, 3, padding_idx=10), "Padding_idx must be within num_embeddings"),
    (lambda: nn.Embedding(2, 3, _weight=z(3, 3)), "Shape of weight does not match"),
    (lambda: nn.Embedding.from_pretrained(z(3)), "expected to be 2-dimensional"),
    (lambda: nn.EmbeddingBag(2, 3, sparse=True, mode="max")(ad.tensor([[1]])),
     "max mode does not support sparse weights"),
    (lambda: nn.EmbeddingBag(2, 3, mode="prod"), "one of sum, mean or max, got prod"),
    (lambda: nn.RNN(3, 4, nonlinearity="foo"), "Unknown nonlinearity 'foo'"),
    (lambda: nn.RNN(3, 4, dropout=1.5), r"number in range \[0, 1\]"),
    (lambda: nn.RNN(3, 0), "hidden_size must be greater than zero"),
    (lambda: nn.LSTM(3, 4, num_layers=0), "num_layers must be greater than zero"),
    (lambda: nn.LSTM(3, 4, proj_size=4), "proj_size has to be smaller than hidden_size"),
    (lambda: nn.GRU(3, 4, proj_size=2), "only supported for LSTM, not RNN or GRU"),
    (lambda: nn.MultiheadAttention(5, 2), "embed_dim must be divisible by num_heads"),
    (lambda: nn.TransformerEncoderLayer(8, 2, activation="foo"), "should be relu/gelu, not foo"),
    (lambda: nn.MSELoss(reduction="average"), "average is not a valid value for reduction"),
    (lambda: nn.MultiMarginLoss(p=3), "only p == 1 and p == 2 supported"),
    (lambda: nn.TripletMarginLoss(margin=0), "expected margin to be greater than 0"),
    (lambda: nn.Hardtanh(1.0, 1.0), "^max_val .* must be greater than min_val"),
    (lambda: nn.FractionalMaxPool2d(2), "either an output size, or a pooling ratio"),
    (lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [10, 5]), "sorted in an increasing order"),
    (lambda: nn.PixelShuffle(0), "upscale_factor must be > 0"),
]
INPUT: list[tuple[Any, tuple[Any, ...], str]] = [
    (lambda: nn.Linear(4, 3), (z(2, 5),), r"shape \(2, 5\), but its last axis must be 4"),
    (lambda: nn.Linear(4, 3), (z(()),), r"shape \(\), but its last axis must be 4"),
    (lambda: nn.Linear(4, 3), ([[1.0] * 4],), "input must be a Tensor, got list"),
    (lambda: nn.Bilinear(2, 3, 4), (z(5, 2), z(5, 2)), "input2 has shape"),
    (lambda: nn.Embedding(10, 3), (ad.tensor([3, 10]),), "indices must be in \\[0, 9\\].*got 10"),
    (lambda: nn.Embedding(10, 3), (ad.tensor([-1]),), "got -1"),
    (lambda: nn.Embedding(10, 3), (z(2),), "one of the following scalar types: Long, Int"),
    (lambda: nn.LayerNorm(4), (z(2, 3),), r"normalized_shape=\[4\], expected input with shape"),
    (lambda: nn.RMSNorm((2, 4)), (z(3, 4),), r"expected input with shape \[\*, 2, 4\]"),
    (lambda: nn.GroupNorm(2, 4), (z(2, 3),), "C = 4 channels in axis 1"),
    (lambda: nn.BatchNorm2d(3), (z(2, 3),), r"expected 4D input \(got 2D input\)"),
    (lambda: nn.BatchNorm2d(3), (z(2, 4, 2, 2),), "should contain 4 elements not 3"),
    (lambda: nn.BatchNorm1d(3), (z(1, 3),), "Expected more than 1 value per channel"),
    (lambda: nn.BatchNorm1d(3, eps=-1.0), (z(2, 3),), "eps must be positive during training"),
    (lambda: nn.BatchNorm1d(3, eps=0.0), (z(2, 3).double(),), "eps must be positive"),
    (lambda: nn.BatchNorm1d(4, eps=-1.0).eval(), (z(2, 3),), "eps must be non-negative"),
    (lambda: nn.InstanceNorm1d(3), (z(1, 3, 1),), "Expected more than 1 spatial element"),
    (lambda: nn.InstanceNorm2d(3, affine=True), (z(1, 4, 2, 2),), r"\(3\), but got: 4"),
    (lambda: nn.Conv2d(4, 4, 3), (z(2, 3),), r"expected 3D or 4D input \(got 2D input\)"),
    (lambda: nn.Conv2d(4, 4, 3), (z(2, 3, 8, 8),), "to have 4 channels, but got 3 channels"),
    (lambda: nn.ConvTranspose2d(4, 4, 3), (z(2, 4, 4, 4), (2, 2)),
     r"requested an output size of \(2, 2\), but valid sizes range from \[6, 6\]"),
    (lambda: nn.MaxPool2d(2), (z(4, 4),), "expected 3D or 4D input"),
    (lambda: nn.ReflectionPad1d(1), (z(4),), "expected 2D or 3D input"),
    (lambda: nn.Unflatten(1, (2, 3)), (z(2, 5),), r"don't multiply up to the size of dim 1 \(5\)"),
    (lambda: nn.PReLU(3), (z(2, 4),), "3 slopes need an input with 3 channels"),
    (lambda: nn.Softmax2d(), (z(2, 2),), "expected 3D or 4D input"),
    (lambda: nn.RNN(3, 4), (z(2, 3, 4),), "must be equal to input_size. Expected 3, got 4"),
    (lambda: nn.RNN(3, 4), (z(3),), "Expected input to be 2D or 3D, got 1D"),
    (lambda: nn.RNN(3, 4), (z(2, 2, 3), z(1, 3, 4)), "Expected hidden size"),
    (lambda: nn.LSTM(3, 4), (z(2, 2, 3), z(1, 2, 4)), "pair of tensors"),
    (lambda: nn.LSTM(3, 4), (z(2, 2, 3), (z(1, 2, 4), z(1, 3, 4))), r"Expected hidden\[1\] size"),
    (lambda: nn.GRU(3, 4), (z(2, 3), z(1, 2, 4)), "hx should also be 2-D"),
    (lambda: nn.RNNCell(3, 4), (z(2, 4),), "inconsistent input_size: got 4 expected 3"),
    (lambda: nn.RNNCell(3, 4), (z(2, 3), z(1, 4)), "hidden0 has shape"),
    (lambda: nn.MultiheadAttention(4, 2), (z(3, 2, 5), z(3, 2, 4), z(3, 2, 4)),
     "was expecting embedding dimension of 4, but got 5"),
    (lambda: nn.MultiheadAttention(4, 2), (z(3, 2, 4), z(3, 4), z(3, 4)),
     "^For batched .3-D. `query`, expected `key`"),
    (lambda: nn.MultiheadAttention(4, 2), (z(3, 2, 4), z(5, 2, 4), z(4, 2, 4)), "must match value"),
    (lambda: nn.Transformer(8, 2, 1, 1, 8), (z(3, 2, 8), z(3, 1, 8)), "batch number of src and"),
    (lambda: nn.Transformer(8, 2, 1, 1, 8), (z(3, 2, 7), z(3, 2, 7)), "feature number of src"),
    (lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5]), (z(2, 8), ad.tensor([0, 20])),
     r"should be in \[0, 19\]"),
]


@pytest.mark.parametrize(("make", "words"), CONSTRUCTION)
def test_bad_settings_are_refused(make: Any, words: str) -> None:
    with pytest.raises((AdjointError, TypeError), match=words) as caught:
        make()
    assert isinstance(caught.value, (ValueError, TypeError, NotImplementedError))


@pytest.mark.parametrize(("make", "args", "words"), INPUT)
@pytest.mark.row("F18")
def test_bad_input_is_refused_before_anything_changes(make: Any, args: tuple[Any, ...],
                                                      words: str) -> None:
    layer = make()
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    with pytest.raises(AdjointError, match=words):
        layer(*args)
    for key, value in layer.state_dict().items():
        assert ad.equal(value, before[key]), key


def test_attention_masks_are_checked() -> None:
    m, x = nn.MultiheadAttention(4, 2), z(3, 2, 4)
    with pytest.raises(RuntimeError, match=r"2D attn_mask is \w+\.Size\(\[2, 2\]\), but should be"
                                           r" \(3, 3\)"):
        m(x, x, x, attn_mask=z(2, 2))
    with pytest.raises(RuntimeError, match=r"^Expected key_padded_mask.shape\[0\] to be 2, but"):
        m(x, x, x, key_padding_mask=z(3, 2))
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
        m(x, x, x, is_causal=True)
    with pytest.raises(AssertionError, match="only bool and floating types of attn_mask"):
        m(x, x, x, attn_mask=ad.zeros(3, 3, dtype=ad.int64))


def test_old_reduction_flags() -> None:
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert nn.MSELoss(size_average=False).reduction == "sum"
    with pytest.warns(UserWarning, match="reduction='none'"):
        assert nn.L1Loss(reduce=False).reduction == "none"


def test_attention_takes_the_parameters_of_its_output_projection_alone() -> None:
    """As in PyTorch: a module put in place of out_proj is not called, its weight and bias count."""
    class Loud(nn.Linear):
        def forward(self, input: Any) -> Any:
            raise AssertionError("called")

    m, x = nn.MultiheadAttention(4, 2), ad.arange(24.0).reshape(3, 2, 4)
    plain, _ = m(x, x, x)
    loud = Loud(4, 4)
    loud.load_state_dict(m.out_proj.state_dict())
    m.out_proj = loud
    assert ad.equal(m(x, x, x)[0], plain)
    plain.sum().backward()
    with pytest.warns(UserWarning, match="^Support for mismatched key_padding_mask and attn_mask"):
        m(x, x, x, attn_mask=z(3, 3), key_padding_mask=ad.zeros(2, 3, dtype=ad.bool))


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_name_both_dtypes(kind: Any) -> None:
    m = kind(3, 4)
    with pytest.raises(ValueError, match=r"^RNN input dtype \(.*float64\) does not match"):
        m(ad.zeros(2, 1, 3, dtype=ad.float64))
    with ad.amp.autocast("cpu"):
        m(ad.zeros(2, 1, 3))
    assert [tuple(w.shape) for w in m._flat_weights] == [
        tuple(getattr(m, n).shape) for n in m._flat_weights_names]


def test_old_ways_say_what_to_write() -> None:
    with pytest.warns(FutureWarning, match="^keyword argument `min_value` is deprecated"):
        assert nn.Hardtanh(min_value=-2.0).min_val == -2.0
    with pytest.warns(FutureWarning, match="^`nn.Container` is deprecated"):
        nn.Container(a=nn.ReLU())
    with pytest.warns(FutureWarning, match="^Positional args are being deprecated, use kwargs"):
        assert list(nn.Linear(1, 1).state_dict(None, "p.")) == ["p.weight", "p.bias"]
    with pytest.warns(UserWarning, match="^Complex modules are a new feature"):
        assert nn.Linear(1, 1).to(ad.complex64).weight.dtype == ad.complex64
    with pytest.raises(KeyError, match="dictionary is empty"):
        nn.ParameterDict().popitem()
    with pytest.raises(TypeError, match="delta must be a float or int, got: <class 'complex'>"):
        nn.HuberLoss(delta=1j)  # type: ignore[arg-type]  # what is tested
