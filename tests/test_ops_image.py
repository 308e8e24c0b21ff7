"""Convolution, pooling, padding, resampling (F15-F48) like PyTorch: values and two derivatives."""
import numpy as np
import pytest
from helpers_ops import Cases, R, compare

import adjoint as ad

pytest.importorskip("torch")
case = Cases()

IM = R(2, 4, 5, 6)
for st, pd, dl, g in [(1, 0, 1, 1), (2, 1, 1, 2), (1, 2, 2, 1), (2, "valid", 1, 4),
                      (1, "same", 2, 1)]:
    case(f"conv2d {st} {pd} {dl} {g}", lambda T, F, a, w, b, s=st, p=pd, d=dl, g=g: F.conv2d(
        a, w, b, s, p, d, g), IM, R(8, 4 // g, 3, 2), R(8))
case("conv1d", lambda T, F, a, w: F.conv1d(a, w, None, 2), R(4, 7), R(2, 4, 3))
case("conv3d", lambda T, F, a, w: F.conv3d(a, w, None, 1, 1), R(1, 2, 4, 4, 4), R(2, 2, 2, 2, 2))
for st, pd, op, dl, g in [(1, 0, 0, 1, 1), (2, 1, 1, 1, 2), (3, 0, 2, 2, 1), (2, 1, 2, 3, 1)]:
    case(f"conv_transpose2d {st} {pd} {op} {dl} {g}",
         lambda T, F, a, w, b, s=st, p=pd, o=op, d=dl, g=g: F.conv_transpose2d(
             a, w, b, s, p, o, g, d), IM, R(4, 6 // g, 3, 2), R(6))
for a in [(2,), (3, 2, 1), (3, 2, 1, 2), (2, 3, 0, 1, True)]:
    case(f"max_pool2d {a}", lambda T, F, x, a=a: F.max_pool2d(x, *a), IM)
case("max_pool2d indices", lambda T, F, x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[1], IM)
for a in [(2,), (3, 2, 1), (3, 2, 1, True), (3, 2, 1, True, False), (3, 2, 1, False, True, 5)]:
    case(f"avg_pool2d {a}", lambda T, F, x, a=a: F.avg_pool2d(x, *a), IM)
case("avg_pool1d", lambda T, F, x: F.avg_pool1d(x, 2), R(2, 3, 6))
case("max_pool3d", lambda T, F, x: F.max_pool3d(x, 2), R(1, 2, 4, 4, 4))
case("adaptive_avg_pool2d", lambda T, F, x: F.adaptive_avg_pool2d(x, (3, None)), IM)
case("adaptive_max_pool2d", lambda T, F, x: F.adaptive_max_pool2d(x, (3, 4)), IM)
case("lp_pool2d", lambda T, F, x: F.lp_pool2d(x, 3.0, 2), np.abs(IM))
case("max_unpool2d", lambda T, F, x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
     R(1, 2, 4, 4))
for m in ("constant", "reflect", "replicate", "circular"):
    case("pad " + m, lambda T, F, x, m=m: F.pad(x, (1, 2, 2, 1), m), IM)
case("pad negative", lambda T, F, x: F.pad(x, (-1, 2, 0, -1), value=3), IM)
SIZES = [{"size": (7, 3)}, {"scale_factor": 1.7},
         {"scale_factor": (0.6, 2.3), "recompute_scale_factor": True}]
for m in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"):
    for k, kw in enumerate(SIZES):
        case(f"interpolate {m} {k}", lambda T, F, x, m=m, kw=kw: F.interpolate(x, mode=m, **kw), IM)
        if m.startswith("bi"):
            for extra in ({"align_corners": True}, {"antialias": True}):
                case(f"interpolate {m} {k} {extra}", lambda T, F, x, m=m, kw={**kw, **extra}:
                     F.interpolate(x, mode=m, **kw), IM)
for k, kw in enumerate(SIZES):
    case(f"interpolate lanczos {k}", lambda T, F, x, kw=kw: F.interpolate(
        x, mode="lanczos", antialias=True, **kw), IM)
GRID = np.random.default_rng(3).uniform(-1.3, 1.3, (2, 3, 4, 2))
for pm in ("zeros", "border", "reflection"):
    for al in (False, True):
        for m in ("bilinear", "bicubic"):
            case(f"grid_sample {m} {pm} {al}", lambda T, F, x, g, m=m, p=pm, a=al: F.grid_sample(
                x, g, m, p, a), IM, GRID, second=m == "bilinear")
        case(f"grid_sample nearest {pm} {al}", lambda T, F, x, p=pm, a=al: F.grid_sample(
            x, T.tensor(GRID), "nearest", p, a), IM)
case("affine_grid", lambda T, F, t: F.affine_grid(t, (2, 3, 4, 5), False), R(2, 2, 3))
case("pixel_shuffle", lambda T, F, x: F.pixel_shuffle(x, 2), IM)
case("pixel_unshuffle", lambda T, F, x: F.pixel_unshuffle(x, 2), R(2, 3, 4, 6))
case("unfold", lambda T, F, x: F.unfold(x, (2, 3), 1, 1, 2), IM)
case("fold", lambda T, F, x: F.fold(x, (5, 6), (2, 3), 1, 1, 2), R(2, 24, 9))


@pytest.mark.parametrize("one", case, ids=repr)
def test_like_torch(one):
    compare(one)


def test_nearest_samples_give_the_grid_a_gradient_of_zeros() -> None:
    """F123: as in PyTorch, though no value depends on where a pixel lies; also beside nan."""
    grid = ad.tensor([[[[0.1, float("nan")], [0.2, -0.3]]]], requires_grad=True)
    image = ad.rand(1, 1, 3, 3)
    out = ad.nn.functional.grid_sample(image, grid, mode="nearest", align_corners=False)
    assert type(out.grad_fn).__name__ == "GridSampler2DBackward0"
    (g,) = ad.autograd.grad(out.sum(), grid)
    assert g.tolist() == [[[[0.0, 0.0], [0.0, 0.0]]]]
    space = ad.rand(1, 1, 2, 2, 2, requires_grad=True)
    out = ad.nn.functional.grid_sample(space, ad.zeros(1, 1, 1, 1, 3), align_corners=True)
    assert type(out.grad_fn).__name__ == "GridSampler3DBackward0"
