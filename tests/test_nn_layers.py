"""Every layer beside PyTorch: same state in; same repr, output, gradients and buffers out (F42,
F89). One row of CASES per configuration."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers_nn import both, close, grads_close, total, twins

import adjoint as ad
from adjoint import nn

torch = pytest.importorskip("torch")


class Ints:
    """Integers in [low, high) of a shape, as an input."""

    def __init__(self, high: int, *shape: int, low: int = 0, dtype: str = "int64") -> None:
        self.low, self.high, self.shape, self.dtype = low, high, shape, dtype


class Real:
    """Uniform numbers in [low, high)."""

    def __init__(self, low: float, high: float, *shape: int) -> None:
        self.low, self.high, self.shape = low, high, shape


class Signs:
    """-1 and 1."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape


def make(rng: np.random.Generator, spec: Any) -> Any:
    if isinstance(spec, Ints):
        return rng.integers(spec.low, spec.high, spec.shape).astype(spec.dtype)
    if isinstance(spec, Real):
        return rng.uniform(spec.low, spec.high, spec.shape)
    if isinstance(spec, Signs):
        return np.where(rng.random(spec.shape) < 0.5, -1.0, 1.0)
    if isinstance(spec, tuple):
        return rng.standard_normal(spec)
    return spec


X1, X2, X3 = (2, 4, 9), (2, 4, 7, 8), (2, 4, 5, 6, 7)
CASES: dict[str, list[tuple[Any, ...]]] = {  # name -> (args, kwargs, *inputs)
    "Linear": [((4, 3), {}, (5, 4)), ((4, 3), {"bias": False}, (2, 3, 4)), ((4, 3), {}, (4,))],
    "Bilinear": [((4, 3, 2), {}, (5, 4), (5, 3)), ((4, 3, 2), {"bias": False}, (2, 5, 4),
                                                   (2, 5, 3))],
    "Identity": [((3,), {"any": 1}, (2, 2))],
    "Flatten": [((), {}, (2, 3, 4)), ((0, 1), {}, (2, 3, 4))],
    "Unflatten": [((1, (2, 3)), {}, (2, 6)), ((-1, (2, -1)), {}, (2, 6))],
    "Embedding": [((10, 3), {}, Ints(10, 2, 4)), ((10, 3), {"padding_idx": -1}, Ints(10, 9)),
                  ((10, 3), {"max_norm": 1.0}, Ints(10, 4)),
                  ((10, 3), {"scale_grad_by_freq": True}, Ints(3, 8)),
                  ((10, 3), {"max_norm": 1.0, "norm_type": 1.0}, Ints(10, 4))],
    "EmbeddingBag": [((10, 3), {"mode": m}, Ints(10, 4, 5)) for m in ("sum", "mean", "max")] + [
        ((10, 3), {"mode": "sum"}, Ints(10, 7), np.array([0, 2, 2, 5])),
        ((10, 3), {"mode": "mean", "padding_idx": 1}, Ints(10, 7), np.array([0, 2, 5])),
        ((10, 3), {"mode": "max", "include_last_offset": True}, Ints(10, 7),
         np.array([0, 3, 7])),
        ((10, 3), {"mode": "sum"}, Ints(10, 7), np.array([0, 3]), (7,))],
    "LayerNorm": [((4,), {}, (3, 4)), (([3, 4],), {}, (2, 3, 4)), ((4,), {"bias": False}, (3, 4)),
                  ((4,), {"elementwise_affine": False, "eps": 1e-2}, (3, 4))],
    "RMSNorm": [((4,), {}, (3, 4)), (([3, 4],), {"eps": 1e-2}, (2, 3, 4)),
                ((4,), {"elementwise_affine": False}, (3, 4))],
    "GroupNorm": [((2, 4), {}, X1), ((4, 4), {"affine": False}, (2, 4)),
                  ((1, 4), {"bias": False}, X2)],
    "LocalResponseNorm": [((2,), {}, X1), ((3,), {"alpha": 0.5, "beta": 0.5, "k": 2.0}, X2),
                          ((2,), {}, X3)],
    "BatchNorm1d": [((4,), {}, (5, 4)), ((4,), {"momentum": None}, X1),
                    ((4,), {"affine": False}, X1), ((4,), {"bias": False}, X1),
                    ((4,), {"track_running_stats": False}, X1)],
    "BatchNorm2d": [((4,), {}, X2), ((4,), {"momentum": 0.3, "eps": 1e-2}, X2)],
    "BatchNorm3d": [((4,), {}, X3)],
    "InstanceNorm1d": [((4,), {}, X1), ((4,), {"affine": True}, (4, 6)),
                       ((4,), {"affine": True, "track_running_stats": True}, X1)],
    "InstanceNorm2d": [((4,), {}, X2), ((4,), {"affine": True, "bias": False}, X2)],
    "InstanceNorm3d": [((4,), {"track_running_stats": True}, X3)],
    "PixelShuffle": [((2,), {}, (2, 8, 3, 3))], "PixelUnshuffle": [((2,), {}, (2, 2, 4, 6))],
    "ChannelShuffle": [((2,), {}, X2)],
    "Unfold": [(((2, 3),), {}, X2), ((2,), {"padding": 1, "stride": 2, "dilation": 2}, X2)],
    "Fold": [(((4, 5), (2, 2)), {}, (2, 12, 12)),
             (((6, 6), 3), {"stride": 3}, (2, 9, 4))],
    "Upsample": [((), {"scale_factor": 2}, X1), ((), {"size": (5, 9)}, X2),
                 ((), {"scale_factor": (2.0, 1.5), "mode": "bilinear"}, X2),
                 ((), {"size": 7, "mode": "linear", "align_corners": True}, X1),
                 ((), {"scale_factor": 2, "mode": "bicubic"}, X2),
                 ((), {"size": (3, 4, 5), "mode": "trilinear"}, X3)],
    "UpsamplingNearest2d": [((), {"scale_factor": 2}, X2)],
    "UpsamplingBilinear2d": [((), {"size": (5, 6)}, X2)],
    "CosineSimilarity": [((), {}, (5, 4), (5, 4)), ((), {"dim": 0, "eps": 1.0}, (5, 4), (5, 4))],
    "PairwiseDistance": [((), {}, (5, 4), (5, 4)), ((1.0,), {"keepdim": True}, (5, 4), (5, 4))],
}
for _n, _x in ((1, X1), (2, X2), (3, X3)):
    _u = _x[1:]
    CASES |= {
        f"Conv{_n}d": [((4, 6, 3), {}, _x), ((4, 6, 3), {"stride": 2, "padding": 1}, _u),
                       ((4, 6, 3), {"padding": "same", "dilation": 2, "groups": 2}, _x),
                       ((4, 6, 2), {"padding": "valid", "bias": False}, _x),
                       ((4, 6, 3), {"padding": 1, "padding_mode": "circular"}, _x),
                       ((4, 6, 3), {"padding": "same", "padding_mode": "replicate"}, _x),
                       ((4, 4, 3), {"padding": 1, "padding_mode": "reflect", "groups": 4}, _x)],
        f"ConvTranspose{_n}d": [((4, 6, 3), {}, _x), ((4, 6, 3), {"stride": 2, "padding": 1,
                                                                 "output_padding": 1}, _x),
                                ((4, 6, 2), {"groups": 2, "dilation": 2, "bias": False}, _u)],
        f"MaxPool{_n}d": [((2,), {}, _x), ((3,), {"stride": 2, "padding": 1}, _u),
                          ((2,), {"stride": 1, "dilation": 2, "return_indices": True}, _x),
                          ((2,), {"ceil_mode": True}, _x)],
        f"AvgPool{_n}d": [((2,), {}, _x), ((3,), {"stride": 2, "padding": 1}, _u),
                          ((3,), {"padding": 1, "count_include_pad": False}, _x),
                          ((2,), {"ceil_mode": True}, _x)],
        f"AdaptiveAvgPool{_n}d": [((3,), {}, _x), ((1,), {}, _u)],
        f"AdaptiveMaxPool{_n}d": [((3,), {}, _x), ((2,), {"return_indices": True}, _u)],
        f"LPPool{_n}d": [((2, 2), {}, _x), ((3, 2), {"stride": 1, "ceil_mode": True},
                                            Real(0.1, 1.0, *_x))],
        f"ZeroPad{_n}d": [((1,), {}, _x), ((tuple(range(2 * _n)),), {}, _x)],
        f"ConstantPad{_n}d": [((1, 3.5), {}, _x), (((-1,) * 2 * _n, 2.0), {}, _x)],
        f"ReflectionPad{_n}d": [((1,), {}, _x), (((2, 1) * _n,), {}, _u)],
        f"ReplicationPad{_n}d": [((1,), {}, _x), (((2, 1) * _n,), {}, _u)],
        f"CircularPad{_n}d": [((1,), {}, _x), (((2, 1) * _n,), {}, _u)],
        f"Dropout{_n}d": [((0.0,), {}, _x)],
    }
for _n, _x in ((2, X2), (3, X3)):
    _u = torch.rand(2, 4, _n, generator=torch.Generator().manual_seed(0)).double().numpy()
    CASES[f"FractionalMaxPool{_n}d"] = [
        ((2,), {"output_size": 3, "_random_samples": _u}, _x),
        ((3,), {"output_ratio": 0.5, "_random_samples": _u, "return_indices": True}, _x)]
CASES["AvgPool2d"].append(((2,), {"divisor_override": 3}, X2))
CASES["AdaptiveAvgPool2d"].append((((None, 3),), {}, X2))
for _name in ("ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardsigmoid", "Hardswish", "Sigmoid",
              "Tanh", "LogSigmoid", "Softsign", "Tanhshrink", "ELU", "CELU", "LeakyReLU", "GELU",
              "GLU", "Hardshrink", "Softshrink", "Softplus", "PReLU", "Hardtanh", "Dropout",
              "AlphaDropout", "FeatureAlphaDropout"):
    CASES[_name] = [((0.0,) if "Dropout" in _name else (), {}, (3, 4))]
CASES |= {
    "ELU": [((), {}, (3, 4)), ((0.5,), {}, (3, 4))], "CELU": [((0.5,), {}, (3, 4))],
    "LeakyReLU": [((0.2,), {}, (3, 4))],
    "GELU": [((), {}, (3, 4)), (("tanh",), {}, (3, 4))], "GLU": [((1,), {}, (3, 4, 2))],
    "Hardshrink": [((0.3,), {}, (3, 4))], "Softshrink": [((0.3,), {}, (3, 4))],
    "Softplus": [((2.0, 1.0), {}, (3, 4))], "PReLU": [((), {}, (3, 4)), ((4, 0.1), {}, X2)],
    "Hardtanh": [((-0.5, 0.7), {}, (3, 4))], "Threshold": [((0.1, 20.0), {}, (3, 4))],
    "Softmax": [((1,), {}, (3, 4)), ((-2,), {}, X2)], "Softmin": [((1,), {}, (3, 4))],
    "LogSoftmax": [((0,), {}, (3, 4))], "Softmax2d": [((), {}, X2), ((), {}, X2[1:])],
}
R = ({}, {"reduction": "sum"}, {"reduction": "none"})
_P = Real(0.01, 0.99, 5, 4)
LOSSES: dict[str, list[tuple[Any, ...]]] = {
    name: [((), kw, *inputs) for kw in R] for name, inputs in {
        "L1Loss": ((5, 4), (5, 4)), "MSELoss": ((5, 4), (5, 4)), "SmoothL1Loss": ((5, 4), (5, 4)),
        "HuberLoss": ((5, 4), (5, 4)), "SoftMarginLoss": ((5, 4), Signs(5, 4)),
        "NLLLoss": ((5, 4), Ints(4, 5)), "CrossEntropyLoss": ((5, 4), Ints(4, 5)),
        "KLDivLoss": ((5, 4), _P), "BCELoss": (_P, _P), "BCEWithLogitsLoss": ((5, 4), _P),
        "PoissonNLLLoss": ((5, 4), Real(0, 5, 5, 4)),
        "GaussianNLLLoss": ((5, 4), (5, 4), Real(0.1, 2, 5, 4)),
        "HingeEmbeddingLoss": ((5, 4), Signs(5, 4)),
        "CosineEmbeddingLoss": ((5, 4), (5, 4), Signs(5)),
        "MarginRankingLoss": ((5,), (5,), Signs(5)),
        "MultiLabelMarginLoss": ((2, 4), np.array([[3, 0, -1, 1], [1, -1, 2, 3]])),
        "MultiLabelSoftMarginLoss": ((5, 4), _P), "MultiMarginLoss": ((5, 4), Ints(4, 5)),
        "TripletMarginLoss": ((5, 4), (5, 4), (5, 4)),
        "TripletMarginWithDistanceLoss": ((5, 4), (5, 4), (5, 4)),
    }.items()}
for _name, _kw, *_in in [
        ("SmoothL1Loss", {"beta": 0.3}, (5, 4), (5, 4)), ("HuberLoss", {"delta": 0.3}, (5, 4),
                                                          (5, 4)),
        ("NLLLoss", {"ignore_index": 1}, (5, 4, 3), Ints(4, 5, 3)),
        ("CrossEntropyLoss", {"ignore_index": 1, "label_smoothing": 0.1}, (5, 4), Ints(4, 5)),
        ("CrossEntropyLoss", {"label_smoothing": 0.2}, (5, 4, 3), Ints(4, 5, 3)),
        ("CrossEntropyLoss", {}, (5, 4), _P), ("CrossEntropyLoss", {}, (4,), Ints(4)),
        ("KLDivLoss", {"log_target": True, "reduction": "batchmean"}, (5, 4), (5, 4)),
        ("PoissonNLLLoss", {"log_input": False, "full": True}, Real(0.1, 3, 5, 4),
         Real(0, 5, 5, 4)),
        ("GaussianNLLLoss", {"full": True}, (5, 4), (5, 4), Real(0.1, 2, 5, 1)),
        ("HingeEmbeddingLoss", {"margin": 0.3}, (5, 4), Signs(5, 4)),
        ("CosineEmbeddingLoss", {"margin": 0.2}, (5, 4), (5, 4), Signs(5)),
        ("MarginRankingLoss", {"margin": 0.2}, (5,), (5,), Signs(5)),
        ("MultiMarginLoss", {"p": 2, "margin": 0.5}, (5, 4), Ints(4, 5)),
        ("TripletMarginLoss", {"swap": True, "p": 1.0, "margin": 2.0}, (5, 4), (5, 4), (5, 4))]:
    LOSSES[_name].append(((), _kw, *_in))

# PyTorch's derivative of hardsigmoid is the float32 number nearest to 1/6, in float64 too.
TOLERANCE = {"Hardsigmoid": 1e-7}
TABLE = [(name, case) for table in (CASES, LOSSES) for name, rows in sorted(table.items())
         for case in rows]


@pytest.mark.parametrize(("name", "case"), TABLE, ids=[n for n, _ in TABLE])
@pytest.mark.filterwarnings("ignore:reduction. .mean. divides",
                            "ignore:.*:UserWarning:torch")
def test_layer_equals_torch(name: str, case: tuple[Any, ...], rng: np.random.Generator) -> None:
    args, kwargs, *specs = case
    peer, ours = (getattr(lib.nn, name)(*args, **{
        k: lib.tensor(v) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()})
        for lib in (torch, ad))
    peer.double()
    ours.double()
    twins(peer, ours)
    arrays = [make(rng, spec) for spec in specs]
    leaves = [both(torch, a, grad=i == 0 or name not in LOSSES) for i, a in enumerate(arrays)]
    expected = peer(*(p for p, _ in leaves))
    got = ours(*(q for _, q in leaves))
    close(got, expected, 1e-11)
    scalar = total(expected)
    if scalar.requires_grad:
        scalar.backward()
        total(got).backward()
        for p, q in leaves:
            close(q.grad, p.grad, TOLERANCE.get(name, 1e-10))
        grads_close(peer, ours, 1e-10)
    for (n, p), (_, q) in zip(peer.named_buffers(), ours.named_buffers(), strict=True):
        close(q, p, 1e-12), n
    with torch.no_grad():
        close(ours.eval()(*(q for _, q in leaves)), peer.eval()(*(p for p, _ in leaves)), 1e-11)


# What these return or check depends on the values of indices or targets.
READ_VALUES = {"EmbeddingBag", "CosineEmbeddingLoss", "GaussianNLLLoss", "HingeEmbeddingLoss",
               "MultiLabelMarginLoss", "MultiMarginLoss"}


@pytest.mark.parametrize(("name", "case"), [
    (n, c) for n, c in TABLE if n not in READ_VALUES and not {"max_norm", "scale_grad_by_freq",
                                                              "full"} & set(c[1])],
    ids=lambda x: x if isinstance(x, str) else "")
@pytest.mark.filterwarnings("ignore:reduction. .mean. divides")
@pytest.mark.row("F79")
def test_layer_runs_on_storage_less_tensors(name: str, case: tuple[Any, ...],
                                            rng: np.random.Generator) -> None:
    """Same shapes, dtypes and gradients as a real run, without values."""
    args, kwargs, *specs = case
    layer = getattr(nn, name)(*args, **{
        k: ad.tensor(v) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()}).double()
    arrays = [make(rng, spec) for spec in specs]
    runs = []
    for device in ("cpu", "meta"):
        layer.to(device)
        leaves = [ad.tensor(a).to(device).requires_grad_(a.dtype.kind == "f") for a in arrays]
        out = layer(*leaves)
        outs = out if isinstance(out, tuple) else (out,)
        if outs[0].requires_grad:
            outs[0].sum().backward()
        grads = [None if t.grad is None else tuple(t.grad.shape)
                 for t in (*leaves, *layer.parameters())]
        runs.append(([(tuple(o.shape), o.dtype, o.requires_grad) for o in outs], grads))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", sorted(
    n for n in dir(torch.nn) if isinstance(getattr(torch.nn, n), type)
    and issubclass(getattr(torch.nn, n), torch.nn.Module) and hasattr(nn, n)
    and n not in ("Container", "NLLLoss2d")))  # PyTorch hides these behind a deprecation wrapper
def test_signature_equals_torch(name: str) -> None:
    from inspect import signature
    peer, ours = signature(getattr(torch.nn, name)), signature(getattr(nn, name))

    def names(s: Any) -> list[Any]:
        return [(p.name, p.kind, p.default if isinstance(p.default, (int, float, str, type(None)))
                 else "other") for p in s.parameters.values()]

    assert names(ours) == names(peer)
