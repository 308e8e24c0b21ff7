"""Every layer of nn on bad input: one exception of our tree that names the layer's mistake with
shapes or dtypes, and no state has changed (F18, F126)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.base.errors import AdjointError

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")

z, ints = ad.zeros, lambda *s: ad.zeros(*s, dtype=ad.int64)
Make = Callable[[], Any]

CASES: dict[str, tuple[Make, tuple[Any, ...], dict[str, tuple[Any, ...]]]] = {}


def add(name: str, make: Make, good: tuple[Any, ...], **bad: tuple[Any, ...]) -> None:
    """A layer, input that it takes, and input that it refuses."""
    CASES[name] = (make, good, bad)


for n in (1, 2, 3):
    s = (8,) * n
    x, deep, flat = z(2, 4, *s), z(1, 1, 2, 4, *s), z(4)
    ranks = {"rank above": (deep,), "rank below": (flat,)}
    for kind in ("Conv", "ConvTranspose"):
        add(f"{kind}{n}d", lambda k=kind, n=n: getattr(nn, f"{k}{n}d")(4, 2, 3), (x,),
            channels=(z(2, 5, *s),), dtype=(ints(2, 4, *s),), double=(x.double(),), **ranks,
            **({"too small": (z(2, 4, *(1,) * n),)} if kind == "Conv" else {}))
        add(f"Lazy{kind}{n}d", lambda k=kind, n=n: getattr(nn, f"Lazy{k}{n}d")(2, 3), (x,), **ranks)
    add(f"BatchNorm{n}d", lambda n=n: getattr(nn, f"BatchNorm{n}d")(4), (x,),
        channels=(z(2, 5, *s),), one=(z(1, 4, *(1,) * n),), **ranks)
    add(f"LazyBatchNorm{n}d", lambda n=n: getattr(nn, f"LazyBatchNorm{n}d")(), (x,), **ranks)
    add(f"InstanceNorm{n}d", lambda n=n: getattr(nn, f"InstanceNorm{n}d")(
        4, affine=True, track_running_stats=True), (x,), channels=(z(2, 5, *s),), **ranks)
    add(f"LazyInstanceNorm{n}d", lambda n=n: getattr(nn, f"LazyInstanceNorm{n}d")(affine=True),
        (x,), **ranks)
    for kind in ("MaxPool", "AvgPool", "LPPool"):
        args = (2, 3) if kind == "LPPool" else (3,)
        add(f"{kind}{n}d", lambda k=kind, n=n, a=args: getattr(nn, f"{k}{n}d")(*a), (x,),
            **ranks, **{"too small": (z(2, 4, *(2,) * n),)})
    add(f"MaxUnpool{n}d", lambda n=n: getattr(nn, f"MaxUnpool{n}d")(2), (x, ints(2, 4, *s)),
        **{"other shape": (x, ints(2, 3, *s)), "float index": (x, x),
           "out of range": (x, ints(2, 4, *s) + 10**6)})
    for kind in ("AdaptiveMaxPool", "AdaptiveAvgPool"):
        add(f"{kind}{n}d", lambda k=kind, n=n: getattr(nn, f"{k}{n}d")(3), (x,), **ranks)
    for kind in ("Reflection", "Replication", "Circular", "Constant", "Zero"):
        args = (2, 0.0) if kind == "Constant" else (2,)
        bad = {} if kind in ("Constant", "Zero") else ranks
        if kind in ("Reflection", "Circular"):
            bad = {**bad, "too small": (z(2, 4, *(1,) * n),)}
        add(f"{kind}Pad{n}d", lambda k=kind, n=n, a=args: getattr(nn, f"{k}Pad{n}d")(*a), (x,),
            **bad, **{"no axes": (z(()),)})
    if n > 1:
        add(f"FractionalMaxPool{n}d", lambda n=n: getattr(nn, f"FractionalMaxPool{n}d")(
            2, output_size=3), (x,), **ranks, **{"too small": (z(2, 4, *(2,) * n),)})

pictures = {"rank below": (z(4),), "rank above": (z(1, 2, 4, 8, 8, 8, 8),)}
add("SyncBatchNorm", lambda: nn.SyncBatchNorm(4), (z(2, 4, 3),), channels=(z(2, 5, 3),),
    **{"rank below": (z(4),)})
add("GroupNorm", lambda: nn.GroupNorm(2, 4), (z(2, 4, 3),), channels=(z(2, 6, 3),),
    **{"rank below": (z(4),)})
add("LayerNorm", lambda: nn.LayerNorm((3, 4)), (z(2, 3, 4),), shape=(z(2, 4, 3),),
    **{"rank below": (z(4),)})
add("RMSNorm", lambda: nn.RMSNorm(4), (z(2, 4),), shape=(z(2, 3),), **{"no axes": (z(()),)})
add("LocalResponseNorm", lambda: nn.LocalResponseNorm(2), (z(2, 4, 3),),
    **{"rank below": (z(4, 4),)})
add("CrossMapLRN2d", lambda: nn.CrossMapLRN2d(2), (z(2, 4, 3, 3),), **{"rank below": (z(4, 4),)})
add("Linear", lambda: nn.Linear(4, 3), (z(2, 4),), features=(z(2, 5),), dtype=(ints(2, 4),),
    double=(z(2, 4).double(),), **{"no axes": (z(()),)})
add("LazyLinear", lambda: nn.LazyLinear(3), (z(2, 4),), **{"no axes": (z(()),)})
add("Bilinear", lambda: nn.Bilinear(2, 3, 4), (z(5, 2), z(5, 3)), first=(z(5, 3), z(5, 3)),
    second=(z(5, 2), z(5, 2)), batch=(z(5, 2), z(4, 3)))
add("Embedding", lambda: nn.Embedding(5, 3), (ints(2, 2),), dtype=(z(2),),
    above=(ad.tensor([5]),), below=(ad.tensor([-1]),))
add("EmbeddingBag", lambda: nn.EmbeddingBag(5, 3), (ints(2, 2),), dtype=(z(2, 2),),
    above=(ad.tensor([[5]]),), rank=(ints(2, 2, 2),), offsets=(ints(4),))
for name in ("RNN", "GRU", "LSTM"):
    add(name, lambda k=name: getattr(nn, k)(4, 3), (z(5, 2, 4),), features=(z(5, 2, 5),),
        rank=(z(1, 5, 2, 4),), hidden=(z(5, 2, 4), (z(1, 3, 3), z(1, 3, 3))
                                       if name == "LSTM" else z(1, 3, 3)))
    add(f"{name}Cell", lambda k=name: getattr(nn, f"{k}Cell")(4, 3), (z(2, 4),),
        features=(z(2, 5),), rank=(z(1, 5, 4),),
        hidden=(z(2, 4), (z(3, 3), z(3, 3)) if name == "LSTM" else z(3, 3)))
add("MultiheadAttention", lambda: nn.MultiheadAttention(4, 2), (z(5, 2, 4),) * 3,
    features=(z(5, 2, 6),) * 3, rank=(z(1, 5, 2, 4),) * 3,
    keys=(z(5, 2, 4), z(6, 2, 4), z(5, 2, 4)))
add("TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(4, 2, 8), (z(5, 2, 4),),
    features=(z(5, 2, 6),))
add("TransformerDecoderLayer", lambda: nn.TransformerDecoderLayer(4, 2, 8),
    (z(5, 2, 4), z(6, 2, 4)), features=(z(5, 2, 6), z(6, 2, 4)), memory=(z(5, 2, 4), z(6, 2, 6)))
add("TransformerEncoder", lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 1),
    (z(5, 2, 4),), features=(z(5, 2, 6),))
add("TransformerDecoder", lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8), 1),
    (z(5, 2, 4), z(6, 2, 4)), features=(z(5, 2, 6), z(6, 2, 4)))
add("Transformer", lambda: nn.Transformer(4, 2, 1, 1, 8), (z(5, 2, 4), z(6, 2, 4)),
    features=(z(5, 2, 6), z(6, 2, 6)), batch=(z(5, 3, 4), z(6, 2, 4)))
add("PixelShuffle", lambda: nn.PixelShuffle(2), (z(1, 4, 2, 2),), channels=(z(1, 5, 2, 2),),
    rank=(z(4, 2),))
add("PixelUnshuffle", lambda: nn.PixelUnshuffle(2), (z(1, 1, 4, 4),), size=(z(1, 1, 5, 4),),
    rank=(z(4, 2),))
add("ChannelShuffle", lambda: nn.ChannelShuffle(2), (z(1, 4, 2, 2),), channels=(z(1, 5, 2, 2),),
    rank=(z(4, 2),))
add("Upsample", lambda: nn.Upsample(scale_factor=2), (z(1, 2, 3),), **pictures)
add("UpsamplingNearest2d", lambda: nn.UpsamplingNearest2d(scale_factor=2), (z(1, 2, 3, 3),),
    **pictures)
add("UpsamplingBilinear2d", lambda: nn.UpsamplingBilinear2d(scale_factor=2), (z(1, 2, 3, 3),),
    **pictures)
add("Fold", lambda: nn.Fold((4, 4), 2, stride=2), (z(1, 8, 4),), columns=(z(1, 8, 5),),
    channels=(z(1, 7, 4),), rank=(z(8),))
add("Unfold", lambda: nn.Unfold(2), (z(1, 2, 4, 4),), rank=(z(4, 4),), small=(z(1, 2, 1, 1),))
add("Flatten", lambda: nn.Flatten(1, 5), (z(1, 1, 1, 1, 1, 1),), rank=(z(2, 2),))
add("Unflatten", lambda: nn.Unflatten(1, (2, 3)), (z(2, 6),), size=(z(2, 5),), rank=(z(6),))
add("PReLU", lambda: nn.PReLU(4), (z(2, 4),), channels=(z(2, 5),))
add("GLU", lambda: nn.GLU(), (z(2, 4),), odd=(z(2, 5),), **{"no axes": (z(()),)})
for name in ("Softmax", "LogSoftmax", "Softmin"):
    add(name, lambda k=name: getattr(nn, k)(2), (z(2, 2, 2),), rank=(z(2, 2),))
add("Softmax2d", lambda: nn.Softmax2d(), (z(1, 2, 3, 3),), rank=(z(2, 2),))
for n in (1, 2, 3):
    add(f"Dropout{n}d", lambda n=n: getattr(nn, f"Dropout{n}d")(), (z(2, 3, *(4,) * n),),
        dtype=(ints(2, 3, *(4,) * n),), **{"not a tensor": ([1.0],)})
pair = (z(3, 4), z(3, 4))
shapes = {"shapes": (z(3, 4), z(5, 4))}
for name in ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "KLDivLoss", "PoissonNLLLoss",
             "SoftMarginLoss", "HingeEmbeddingLoss", "MultiLabelSoftMarginLoss"):
    add(name, getattr(nn, name), pair, **shapes)
halves = (z(3, 4) + 0.5, z(3, 4))
for name in ("BCELoss", "BCEWithLogitsLoss"):
    add(name, getattr(nn, name), halves, **shapes, broadcast=(z(3, 4), z(3, 1)))
for name in ("CrossEntropyLoss", "NLLLoss", "NLLLoss2d"):
    two = (z(3, 4, 2, 2), ints(3, 2, 2)) if name == "NLLLoss2d" else (z(3, 4), ints(3))
    add(name, getattr(nn, name), two, batch=(two[0], ints(5)), above=(two[0], two[1] + 4),
        below=(two[0], two[1] - 2), dtype=(two[0], two[1].float()))
add("MultiMarginLoss", nn.MultiMarginLoss, (z(3, 4), ints(3)), batch=(z(3, 4), ints(5)),
    above=(z(3, 4), ints(3) + 4))
add("MultiLabelMarginLoss", nn.MultiLabelMarginLoss, (z(3, 4), ints(3, 4)),
    shapes=(z(3, 4), ints(3, 5)), dtype=pair)
add("CosineEmbeddingLoss", nn.CosineEmbeddingLoss, (*pair, z(3)), shapes=(*pair, z(5)))
add("MarginRankingLoss", nn.MarginRankingLoss, (z(3), z(3), z(3)), shapes=(z(3), z(3), z(5)))
add("TripletMarginLoss", nn.TripletMarginLoss, (*pair, z(3, 4)), shapes=(*pair, z(5, 4)),
    rank=(*pair, z(4)))
add("TripletMarginWithDistanceLoss", nn.TripletMarginWithDistanceLoss, (*pair, z(3, 4)),
    shapes=(*pair, z(5, 4)))
add("GaussianNLLLoss", nn.GaussianNLLLoss, (*pair, ad.ones(3, 4)), variance=(*pair, z(3, 5)),
    negative=(*pair, z(3, 4) - 1))
add("CTCLoss", nn.CTCLoss, (z(5, 2, 4), ints(2, 3) + 1, ad.tensor([5, 5]), ad.tensor([3, 3])),
    lengths=(z(5, 2, 4), ints(2, 3) + 1, ad.tensor([6, 5]), ad.tensor([3, 3])),
    batch=(z(5, 2, 4), ints(2, 3) + 1, ad.tensor([5]), ad.tensor([3])))
add("LinearCrossEntropyLoss", lambda: nn.LinearCrossEntropyLoss(4, 10), (z(3, 4), ints(3)),
    features=(z(3, 5), ints(3)), above=(z(3, 4), ints(3) + 10), batch=(z(3, 4), ints(5)))
add("CosineSimilarity", nn.CosineSimilarity, pair, **shapes)
add("PairwiseDistance", nn.PairwiseDistance, pair, **shapes)
add("AdaptiveLogSoftmaxWithLoss", lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3]),
    (z(3, 4), ints(3)), features=(z(3, 5), ints(3)), above=(z(3, 4), ints(3) + 10),
    batch=(z(3, 4), ints(5)))
ELEMENTWISE = (
    "AlphaDropout CELU Dropout ELU FeatureAlphaDropout GELU Hardshrink Hardsigmoid Hardswish"
    " Hardtanh LeakyReLU LogSigmoid Mish RReLU ReLU ReLU6 SELU SiLU Sigmoid Softplus Softshrink"
    " Softsign Tanh Tanhshrink Threshold"
).split()
for name in ELEMENTWISE:
    args = (0.1, 0.0) if name == "Threshold" else ()
    add(name, lambda k=name, a=args: getattr(nn, k)(*a), (z(2, 3),), **{"not a tensor": ([1.0],)})
CONTAINERS = (
    "Container DataParallel Identity Module ModuleDict ModuleList ParameterDict ParameterList"
    " RNNBase RNNCellBase Sequential"
).split()  # their input is their children's


def test_every_layer_is_in_the_table() -> None:
    """A new layer comes with its bad input."""
    layers = {
        name
        for name, kind in vars(nn).items()
        if inspect.isclass(kind) and issubclass(kind, nn.Module)
    }
    assert layers == set(CASES) | set(CONTAINERS)


def snapshot(layer: Any) -> dict[str, Any]:
    """All state: lazy layers have none yet."""
    return {
        k: None if nn.parameter.is_lazy(v) else np.array(v.detach().numpy())
        for k, v in layer.state_dict().items()
    }


# Some layers warn, as PyTorch's do, before they compute or refuse.
WARNINGS = ("ignore:reduction", "ignore:`NLLLoss2d`", "ignore:Using a target size")


@pytest.mark.row("F18")
@pytest.mark.filterwarnings(*WARNINGS)
@pytest.mark.parametrize("name", sorted(CASES))
def test_good_input_is_taken(name: str) -> None:
    """The table's good input is good, so that what is refused is refused for its fault."""
    make, good, _ = CASES[name]
    make()(*good)


@pytest.mark.row("F18")
@pytest.mark.filterwarnings(*WARNINGS)
@pytest.mark.parametrize(
    ("name", "fault"), [(n, f) for n in sorted(CASES) for f in sorted(CASES[n][2])]
)
def test_bad_input_is_refused(name: str, fault: str) -> None:
    """One exception of our tree, which says a shape, a dtype or a number; nothing has changed."""
    make, _, bad = CASES[name]
    layer = make()
    before = snapshot(layer)
    with pytest.raises((AdjointError, TypeError)) as caught:
        layer(*bad[fault])
    text = str(caught.value)
    assert re.search(r"\d|\(\)|list|dtype|Long|Int|Float|float|tensor|Tensor", text), text
    assert "ufunc" not in text and "numpy" not in text and "NoneType" not in text, text
    after = snapshot(layer)
    assert before.keys() == after.keys()
    for key, value in before.items():
        if value is None:
            assert after[key] is None, f"{key} was made by input that is refused"
        else:
            np.testing.assert_array_equal(value, after[key], err_msg=key)
