"""Resampling, unpooling, blocks and bags at their edges: what is refused, in which words."""
import pytest

import adjoint as ad
import adjoint.nn.functional as F


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("mode, antialias", [
    ("bilinear", False), ("bilinear", True), ("bicubic", False), ("bicubic", True),
    ("lanczos", True)])
def test_bytes_are_rounded_after_every_axis(mode, antialias, align):
    torch = pytest.importorskip("torch")
    if mode == "lanczos" and align:
        return
    for channels in (1, 5):
        image = torch.randint(0, 256, (2, channels, 12, 10), dtype=torch.uint8,
                              generator=torch.Generator().manual_seed(channels))
        for x in (image, (image > 128).to(torch.uint8) * 255):
            for size in ((6, 6), (12, 20), (30, 31), (1, 1)):
                how = dict(size=size, mode=mode, antialias=antialias, align_corners=align)
                want = torch.nn.functional.interpolate(x, **how)
                assert F.interpolate(ad.from_numpy(x.numpy()), **how).tolist() == want.tolist()


def test_bytes_are_weighed_and_rounded():
    x = ad.tensor([[[[0, 255]]]], dtype=ad.uint8)
    out = F.interpolate(x, size=(1, 4), mode="bilinear")
    assert out.dtype == ad.uint8 and out.tolist() == [[[[0, 64, 191, 255]]]]
    with pytest.raises(NotImplementedError, match="bilinear is not implemented for"):
        F.interpolate(x.long(), size=(1, 4), mode="bilinear")


def test_interpolate_says_which_sizes_do_not_fit():
    with pytest.raises(ValueError, match="^recompute_scale_factor is not meaningful with an expl"):
        F.interpolate(ad.ones(1, 1, 3), size=2, recompute_scale_factor=True)
    with pytest.raises(RuntimeError, match=r"but got input \(W: 3\) and output \(W: 0"):
        F.interpolate(ad.ones(1, 1, 3), scale_factor=0.1)
    one = F.interpolate(ad.arange(9.0).reshape(1, 1, 3, 3), size=1, mode="bilinear",
                        align_corners=True, antialias=True)
    assert one.item() == 0.0                    # the corner, as in PyTorch


def test_unpooling_stays_near_the_size_that_was_pooled():
    values, where = F.max_pool2d(ad.arange(25.0).reshape(1, 1, 5, 5), 2, return_indices=True)
    assert tuple(F.max_unpool2d(values, where, 2, output_size=(1, 1, 5, 5)).shape) == (1, 1, 5, 5)
    with pytest.raises(RuntimeError, match=r"^Found an invalid max index: 18 \(output volumes are"):
        F.max_unpool2d(values, where, 2)
    with pytest.raises(ValueError, match=r'^invalid output_size "\(9, 9\)" \(dim 0 must be betw'):
        F.max_unpool2d(values, where, 2, output_size=(9, 9))
    with pytest.raises(ValueError, match="containing 2 or 4 elements, but it has a length of '1'"):
        F.max_unpool2d(values, where, 2, output_size=(5,))
    with pytest.raises(TypeError, match="^elements in indices should be type int64"):
        F.max_unpool2d(values, values, 2)
    x = ad.tensor([[[1.0, -3.0, 2.0, -1.0]]])
    assert F.lp_pool1d(x, float("inf"), 2).tolist() == [[[3, 2]]]


@pytest.mark.parametrize("setting, words", [
    ({"kernel_size": 0}, "kernel size should be greater than zero, but got kernel_height: 0"),
    ({"stride": 0}, "stride should be greater than zero, but got stride_height: 0"),
    ({"dilation": 0}, "dilation should be greater than zero, but got dilation_height: 0"),
    ({"padding": -1}, "padding should be non-negative, but got pad_height: -1"),
    ({"kernel_size": (2, 2, 2)}, "expected kernel_size equals to 2, but got size 3")])
def test_impossible_blocks_are_refused(setting, words):
    for call in (lambda **k: F.unfold(ad.ones(1, 1, 4, 4), **k),
                 lambda **k: F.fold(ad.ones(1, 4, 9), (4, 4), **k)):
        with pytest.raises(RuntimeError, match=words):
            call(**{"kernel_size": 2, **setting})


@pytest.mark.parametrize("options, words", [
    ({"offsets": [0, 9]}, r"^offsets\[-1\] can not be greater than input's length 4"),
    ({"offsets": [1, 2]}, r"^offsets\[0\] has to be 0"),
    ({"offsets": [[0]]}, "has to be a 1D"),
    ({"offsets": [0], "padding_idx": 7}, "^padding_idx must be within the number of embeddings"),
    ({"offsets": [0], "mode": "sum", "weights": 3}, "must have the same shape as the input")])
def test_impossible_bags_are_refused(options, words):
    made = {k: v for k, v in options.items() if k != "weights"}
    made["offsets"] = ad.tensor(made["offsets"])
    if "weights" in options:
        made["per_sample_weights"] = ad.ones(options["weights"])
    with pytest.raises(ValueError, match=words):
        F.embedding_bag(ad.tensor([1, 2, 3, 4]), ad.ones(5, 2), **made)
    with pytest.raises(ValueError, match="input has to be 1D or 2D Tensor, but got Tensor of dim"):
        F.embedding_bag(ad.zeros(1, 1, 1, dtype=ad.int64), ad.ones(5, 2))


SPREAD = [("linear", 1, {}), ("bilinear", 2, {}), ("bicubic", 2, {"align_corners": True}),
          ("trilinear", 3, {}), ("area", 2, {}), ("bilinear", 2, {"antialias": True})]


@pytest.mark.parametrize("sizes", [(7, 4), (5, 9), (41, 18), (64, 7)])
@pytest.mark.parametrize("mode, dims, options", SPREAD)
def test_what_is_not_finite_stays_where_it_is_read(mode, dims, options, sizes):
    n, out = (min(s, 9) for s in sizes) if dims == 3 else sizes
    clean = ad.arange(float(2 * n**dims)).sin().reshape(2, 1, *(n,) * dims)
    resized = {"size": (out,) * dims, "mode": mode, **options}
    want = F.interpolate(clean, **resized)
    for value in (float("nan"), float("inf")):
        x = clean.clone()
        x[(0, 0, *(n // 2,) * dims)] = value
        x.requires_grad_()
        y = F.interpolate(x, **resized)
        fine = y.isfinite()
        assert fine.double().mean() > 0.5 and fine[1].all()
        assert ad.allclose(y[fine], want[fine], atol=1e-5)
        ct = ad.ones_like(y)
        ct[(0, 0, *(0,) * dims)] = value
        y.backward(ct)
        assert x.grad[1].isfinite().all() and x.grad.isfinite().double().mean() > 0.5


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_adaptive_means_keep_what_is_not_finite_in_its_windows(dims):
    x = ad.ones(1, 2, *(7,) * dims)
    x[(0, 0, *(0,) * dims)] = float("nan")
    y = getattr(F, f"adaptive_avg_pool{dims}d")(x, 3)
    assert y.isnan().sum() == 1 and y[(0, 0, *(0,) * dims)].isnan() and y[0, 1].eq(1).all()
