"""Memory formats: where the axes of tensors, of results and of gradients lie, as in PyTorch."""

from __future__ import annotations

import copy
import gc
import io
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.kernels import alloc
from adjoint.memory import predict
from adjoint.ops import accelerate

torch = pytest.importorskip("torch")


def last(m: Any, *shape: int) -> Any:
    form = m.channels_last if len(shape) == 4 else m.channels_last_3d
    return m.ones(*shape).contiguous(memory_format=form)


def lies(t: Any) -> tuple[int, ...]:
    """The strides; axes of one element lie anywhere."""
    return tuple(s if n > 1 else 0 for s, n in zip(t.stride(), t.shape, strict=True))


def x(m: Any) -> Any:
    return last(m, 2, 4, 6, 5)


def volume(m: Any) -> Any:
    return last(m, 2, 4, 6, 5, 4)


def dense(m: Any) -> Any:
    return m.ones(2, 4, 6, 5)


MADE = {
    "contiguous": lambda m: dense(m).contiguous(memory_format=m.channels_last),
    "back": lambda m: x(m).contiguous(),
    "to": lambda m: dense(m).to(memory_format=m.channels_last),
    "to dtype": lambda m: dense(m).to(m.float64, memory_format=m.channels_last),
    "to dtype alone": lambda m: x(m).to(m.float64),
    "double": lambda m: x(m).double(),
    "float": lambda m: dense(m).double().float(memory_format=m.channels_last),
    "clone": lambda m: x(m).clone(),
    "clone last": lambda m: dense(m).clone(memory_format=m.channels_last),
    "clone c": lambda m: x(m).clone(memory_format=m.contiguous_format),
    "empty": lambda m: m.empty(2, 3, 4, 5, memory_format=m.channels_last),
    "empty 3d": lambda m: m.empty(2, 3, 4, 5, 6, memory_format=m.channels_last_3d),
    "full_like": lambda m: m.full_like(x(m), 2.0),
    "full_like last": lambda m: m.full_like(dense(m), 2.0, memory_format=m.channels_last),
    "randint_like": lambda m: m.randint_like(x(m), 4),
    "deepcopy": lambda m: copy.deepcopy(x(m)),
    "parameter": lambda m: m.nn.Parameter(x(m)),
    **{f"{n} {how}": lambda m, n=n, how=how: getattr(m, n)(
        dense(m) if how == "last" else x(m), memory_format={
            "last": m.channels_last, "c": m.contiguous_format, "as it is": m.preserve_format}[how])
       for n in ("empty_like", "zeros_like", "ones_like", "rand_like", "randn_like")
       for how in ("last", "c", "as it is")},
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_lies_as_asked(name):
    assert lies(MADE[name](ad)) == lies(MADE[name](torch))


F = {
    "conv": lambda m, x: m.nn.functional.conv2d(x, m.ones(3, 4, 2, 2), m.ones(3)),
    "conv by its weight": lambda m, x: m.nn.functional.conv2d(x.contiguous(), last(m, 3, 4, 2, 2)),
    "conv groups": lambda m, x: m.nn.functional.conv2d(x, m.ones(4, 1, 2, 2), groups=4),
    "conv transposed": lambda m, x: m.nn.functional.conv_transpose2d(x, m.ones(4, 3, 2, 2)),
    "conv of one example": lambda m, x: m.nn.functional.conv2d(x[0], m.ones(3, 4, 2, 2)),
    "max_pool": lambda m, x: m.nn.functional.max_pool2d(x, 2),
    "max_pool of one example": lambda m, x: m.nn.functional.max_pool2d(x[0], 2),
    "avg_pool": lambda m, x: m.nn.functional.avg_pool2d(x, 2),
    "adaptive_avg_pool": lambda m, x: m.nn.functional.adaptive_avg_pool2d(x, 3),
    "adaptive_max_pool": lambda m, x: m.nn.functional.adaptive_max_pool2d(x, 3),
    "batch_norm": lambda m, x: m.nn.functional.batch_norm(
        x, m.zeros(4), m.ones(4), training=True),
    "batch_norm given": lambda m, x: m.nn.functional.batch_norm(x, m.zeros(4), m.ones(4)),
    "group_norm": lambda m, x: m.nn.functional.group_norm(x, 2),
    "instance_norm": lambda m, x: m.nn.functional.instance_norm(x),
    "rms_norm": lambda m, x: m.nn.functional.rms_norm(x, (5,)),
    "local_response_norm": lambda m, x: m.nn.functional.local_response_norm(x, 2),
    "nearest": lambda m, x: m.nn.functional.interpolate(x, scale_factor=2),
    "bilinear": lambda m, x: m.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "pad": lambda m, x: m.nn.functional.pad(x, (1, 1, 2, 1)),
    "pad with ones": lambda m, x: m.nn.functional.pad(x, (1, 1, 2, 1), value=1.0),
    "reflect": lambda m, x: m.nn.functional.pad(x, (1, 1, 2, 1), "reflect"),
    "replicate": lambda m, x: m.nn.functional.pad(x, (1, 1, 2, 1), "replicate"),
    "circular": lambda m, x: m.nn.functional.pad(x, (1, 1, 2, 1), "circular"),
    "pixel_shuffle": lambda m, x: m.nn.functional.pixel_shuffle(x, 2),
    "channel_shuffle": lambda m, x: m.nn.functional.channel_shuffle(x, 2),
    "dropout": lambda m, x: m.nn.functional.dropout(x),
    "cat": lambda m, x: m.cat([x, x], 1),
    "cat mixed": lambda m, x: m.cat([x, x.contiguous()], 1),
    "flip": lambda m, x: x.flip(1),
    "roll": lambda m, x: x.roll(1, 1),
    "relu": lambda m, x: x.relu(),
    "bias": lambda m, x: x + m.ones(4, 1, 1),
    "half of the channels": lambda m, x: m.nn.functional.relu(
        m.nn.functional.conv2d(x[:, :2], m.ones(3, 2, 2, 2))),
}


@pytest.mark.parametrize("name", F)
def test_results_and_gradients_lie_as_in_pytorch(name):
    found = []
    for m in (ad, torch):
        leaf = x(m).requires_grad_()
        out = F[name](m, leaf)
        out.sum().backward()
        found.append((lies(out), lies(leaf.grad)))
    assert found[0] == found[1]


REDUCTIONS = ("sum mean amax amin all any prod logsumexp std var norm max min argmax nansum"
              " count_nonzero").split()


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (16, 8, 12, 10)])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_every_order_give_c_order(name, shape):
    for dim in (0, 1, 2, 3, (0, 1), (2, 3)):
        if isinstance(dim, tuple) and name in ("max", "min", "argmax", "prod"):
            continue
        for t in (last(ad, *shape), ad.ones(*shape).permute(3, 1, 0, 2)):
            for more in ({}, {"keepdim": True})[:1 if name == "count_nonzero" else 2]:
                found = getattr(ad, name)(t, dim=dim, **more)
                for part in found if isinstance(found, tuple) else (found,):
                    assert part.is_contiguous(), (dim, more)


@pytest.mark.parametrize("name", ["max_pool3d", "avg_pool3d", "adaptive_avg_pool3d"])
def test_volumes(name):
    of = [getattr(m.nn.functional, name)(volume(m), 2) for m in (ad, torch)]
    assert lies(of[0]) == lies(of[1])


def test_values_are_those_of_c_order():
    ad.manual_seed(0)
    net = ad.nn.Sequential(
        ad.nn.Conv2d(3, 8, 3, bias=False), ad.nn.BatchNorm2d(8), ad.nn.ReLU(),
        ad.nn.MaxPool2d(2), ad.nn.Conv2d(8, 8, 3, groups=2), ad.nn.GroupNorm(2, 8),
        ad.nn.Upsample(scale_factor=2), ad.nn.AdaptiveAvgPool2d(2), ad.nn.Flatten(),
        ad.nn.Linear(32, 4))
    other = copy.deepcopy(net).to(memory_format=ad.channels_last)
    batch = ad.randn(4, 3, 16, 16)
    for part, given in ((net, batch), (other, batch.to(memory_format=ad.channels_last))):
        steps = ad.optim.Adam(part.parameters(), lr=0.01)
        for _ in range(3):
            steps.zero_grad()
            part(given).square().sum().backward()
            steps.step()
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        assert ad.allclose(a, b, atol=1e-5)
        assert b.grad.stride() == b.stride()
    assert other[0].weight.is_contiguous(memory_format=ad.channels_last)


def test_kernels_of_batch_norm_get_images_as_they_lie():
    """As a matrix of pixels and channels, which shares the memory of the image."""
    image = ad.randn(2, 4, 6, 5).contiguous(memory_format=ad.channels_last).array
    seen: list[Any] = []

    def kernel(*arrays: Any, **_: Any) -> Any:
        big = [a for a in arrays if a is not None and a.size == image.size]
        seen.extend((a.shape, a.flags.c_contiguous, np.shares_memory(a, image)) for a in big)
        return (big[-1] * 2, *(np.ones(4, np.float32),) * 3)
    one = np.ones(4, np.float32)
    out = accelerate._batch_norm(kernel, image, one, None, eps=1e-5)
    given = accelerate._batch_norm_given(kernel, image, one, None, one, one, eps=1e-5)
    grad = accelerate._batch_norm_backward(kernel, image, image, one, one, one, eps=1e-5,
                                           wanted=(True,) * 3, training=True)
    assert seen == [((60, 4), True, True)] * 4
    for got in (out[0], given, grad[0]):
        assert got.strides == image.strides and (got == image * 2).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("shape", [(4, 3, 6, 5), (2, 3, 4, 3, 5)])
@pytest.mark.parametrize("order", ["C", "gaps", "expanded"])
def test_batch_norm_of_every_order_has_the_same_values(dtype, shape, order):
    """The image channels last, its cotangent as it comes."""
    ad.manual_seed(0)
    kind, found = getattr(ad, dtype), []
    values, sent = ad.randn(*shape, dtype=kind), ad.randn(*shape, dtype=kind)
    if order == "gaps":
        sent = ad.cat([sent, sent], -1)[..., :shape[-1]]
    elif order == "expanded":
        sent = sent[:, :, :1].expand(shape)
    form = ad.channels_last if len(shape) == 4 else ad.channels_last_3d
    for image in (values.clone(), values.contiguous(memory_format=form)):
        leaves = [t.requires_grad_() for t in (image, ad.ones(3, dtype=kind) * 2,
                                               ad.ones(3, dtype=kind))]
        out = ad.nn.functional.batch_norm(image, None, None, *leaves[1:], training=True)
        found.append([out, *ad.autograd.grad(out, leaves, sent)])
    for a, b in zip(*found, strict=True):
        assert ad.allclose(a, b, rtol=2**-7 if dtype == "bfloat16" else 1e-4, atol=1e-4)


def training(m: Any) -> Any:
    """Where parameters, gradients and states lie, through steps, casts, copies and files."""
    net = m.nn.Conv2d(3, 4, 3).to(memory_format=m.channels_last)
    steps = m.optim.Adam(net.parameters())
    net(m.ones(2, 3, 5, 5)).sum().backward()
    steps.step()
    plain = m.nn.Conv2d(3, 4, 3)
    plain.load_state_dict(net.state_dict())
    held = io.BytesIO()
    m.save(net.weight.detach(), held)
    held.seek(0)
    state = [v for v in steps.state[net.weight].values() if v.ndim == 4]
    every = [net.weight, net.weight.grad, *state, plain.weight, m.load(held),
             copy.deepcopy(net).weight, net.double().weight]
    return [lies(t) for t in every]


def test_parameters_keep_their_format():
    assert training(ad) == training(torch)


def test_a_leaf_gets_its_gradient_in_its_own_order():
    for m in (ad, torch):
        leaf = m.ones(2, 3, 4, 5).permute(3, 0, 2, 1).detach().requires_grad_()
        (leaf.sum() * 2).backward()
        assert leaf.grad.stride() == leaf.stride()
        gaps = m.ones(4, 6)[:, ::2].detach().requires_grad_()
        gaps.sum().backward()
        assert gaps.grad.stride() == (3, 1)


def test_formats_are_refused_where_axes_are_too_few():
    for m in (ad, torch):
        for call in (lambda m: m.ones(2, 3, 4).contiguous(memory_format=m.channels_last),
                     lambda m: m.empty(2, 3, 4, memory_format=m.channels_last),
                     lambda m: m.ones(2, 3, 4).to(memory_format=m.channels_last_3d),
                     lambda m: x(m).contiguous(memory_format=m.preserve_format)):
            with pytest.raises(RuntimeError, match="required rank|preserve memory format"):
                call(m)


def test_is_contiguous_and_no_copy_where_the_format_holds():
    t = x(ad)
    assert t.is_contiguous(memory_format=ad.channels_last) and not t.is_contiguous()
    assert t.contiguous(memory_format=ad.channels_last) is t
    assert t.to(memory_format=ad.channels_last) is t
    one = ad.ones(2, 1, 4, 5)
    assert one.contiguous(memory_format=ad.channels_last) is one
    assert not ad.ones(3, 4, 5).is_contiguous(memory_format=ad.channels_last)


def test_gradients_flow_through_a_change_of_format():
    t = ad.arange(24.0).reshape(1, 2, 3, 4).requires_grad_()
    y = t.contiguous(memory_format=ad.channels_last)
    assert y.grad_fn.name() == "CloneBackward0" and y._base is None
    (y * y).sum().backward()
    assert (t.grad == 2 * t.detach()).all() and t.grad.is_contiguous()


def test_weights_of_convolutions_are_converted():
    net = ad.nn.Sequential(ad.nn.Conv2d(3, 4, 3), ad.nn.ConvTranspose2d(4, 3, 2),
                           ad.nn.Linear(2, 2))
    ad.nn.utils.convert_conv2d_weight_memory_format(net, ad.channels_last)
    assert all(part.weight.is_contiguous(memory_format=ad.channels_last) for part in net[:2])
    assert net[:2](ad.ones(1, 3, 3, 3)).is_contiguous(memory_format=ad.channels_last)


@pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
@pytest.mark.parametrize("weights", [False, True])
def test_memory_is_predicted_to_the_byte(weights):
    net = ad.nn.Sequential(ad.nn.Conv2d(3, 8, 3, padding=1), ad.nn.BatchNorm2d(8), ad.nn.ReLU(),
                           ad.nn.MaxPool2d(2), ad.nn.Conv2d(8, 8, 3), ad.nn.ReflectionPad2d(1))
    if weights:
        net.to(memory_format=ad.channels_last)
    batch = ad.randn(2, 3, 32, 32).contiguous(memory_format=ad.channels_last)

    def step(batch: Any) -> Any:
        net.zero_grad()
        out = net(batch)
        out.sum().backward()
        return out.detach().contiguous(), ad.zeros_like(batch, memory_format=ad.contiguous_format)

    step(batch)
    gc.collect()
    predicted = predict(step, batch)
    with ad.memory.track(step, batch) as measured:
        step(batch)
    assert predicted.timeline == measured.timeline
    assert predicted.tops == measured.tops
