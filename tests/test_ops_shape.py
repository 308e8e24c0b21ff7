"""Functions that rearrange (F15-F48) like PyTorch: values and two derivatives."""
import numpy as np
import pytest
from helpers_ops import Cases, R, compare

import adjoint as ad

pytest.importorskip("torch")
case = Cases()

X = R(3, 4, 5)
FORMS = {
    "split": lambda T, F, x: x.split(2, 1)[1], "chunk": lambda T, F, x: x.chunk(3, 2)[2],
    "unbind": lambda T, F, x: x.unbind(1)[1], "flatten": lambda T, F, x: x.flatten(1),
    "permute": lambda T, F, x: x.permute(2, 0, 1), "transpose": lambda T, F, x: x.transpose(0, 2),
    "unsqueeze": lambda T, F, x: x.unsqueeze(1), "squeeze": lambda T, F, x: x[:, :1].squeeze(),
    "expand": lambda T, F, x: x[:, :1].expand(-1, 3, -1),
    "repeat": lambda T, F, x: x.repeat(2, 1, 1, 2), "flip": lambda T, F, x: x.flip(1, 2),
    "roll": lambda T, F, x: x.roll((1, 2), (0, 1)), "rot90": lambda T, F, x: T.rot90(x, 1, (0, 2)),
    "movedim": lambda T, F, x: T.movedim(x, 0, 2), "narrow": lambda T, F, x: x.narrow(1, 1, 2),
    "tensor_split": lambda T, F, x: T.tensor_split(x, 3, 2)[1], "t": lambda T, F, x: x[0].t(),
    "mT": lambda T, F, x: x.mT, "unflatten": lambda T, F, x: x.unflatten(1, (2, 2)),
    "dstack": lambda T, F, x: T.dstack([x, x]), "contiguous": lambda T, F, x: x.mT.contiguous(),
    "reshape": lambda T, F, x: x.reshape(6, 10), "view": lambda T, F, x: x.view(6, 10),
    "cat": lambda T, F, x: T.cat([x, x[:1]]), "stack": lambda T, F, x: T.stack([x, x * 2], 1),
    "diagonal": lambda T, F, x: T.diagonal(x, 1, 0, 2),
    "diag_embed": lambda T, F, x: T.diag_embed(x, -1, 0, 2),
    "diag": lambda T, F, x: T.diag(x[0], 1), "diag of a vector": lambda T, F, x: T.diag(x[0, 0], 1),
    "trace": lambda T, F, x: T.trace(x[0]), "unfold": lambda T, F, x: x.unfold(1, 2, 1),
    "as_strided": lambda T, F, x: T.as_strided(x, (3, 2), (2, 1), 3),
    "as_strided, transposed": lambda T, F, x: x.permute(2, 0, 1).as_strided((3, 4), (2, 5)),
    "as_strided, expanded": lambda T, F, x: x[:, :1].expand(-1, 3, -1)[0].as_strided((5,), (1,)),
    "as_strided, of a copy": lambda T, F, x: x.exp().mT.as_strided((2, 2), (1, 7), 3),
    "repeat_interleave all": lambda T, F, x: T.repeat_interleave(x, 3),
    "repeat_interleave": lambda T, F, x: T.repeat_interleave(x, T.tensor([1, 0, 2, 1]), 1),
    "hsplit": lambda T, F, x: T.hsplit(x, 2)[1], "triu": lambda T, F, x: T.triu(x, 1),
    "tril": lambda T, F, x: T.tril(x, -1),
    "view_as_real": lambda T, F, x: T.view_as_real(T.view_as_complex(x[..., :2].contiguous())),
    "block_diag": lambda T, F, x: T.block_diag(x[0], x[1, 0]),
    "vander": lambda T, F, x: T.linalg.vander(x[0, 0]),
}
for name, form in FORMS.items():
    case(name, form, X)
case("meshgrid xy", lambda T, F, a, b: T.meshgrid(a, b, indexing="xy")[0], R(3), R(4))
case("cartesian_prod", lambda T, F, a, b: T.cartesian_prod(a, b), R(3), R(4))
case("diagonal_scatter", lambda T, F, x, s: T.diagonal_scatter(x, s, 1), R(4, 5), R(4))
case("select_scatter", lambda T, F, x, s: T.select_scatter(x, s, 1, 2), R(2, 4), R(2))
case("slice_scatter", lambda T, F, x, s: T.slice_scatter(x, s, 1, 1, 4, 2), R(2, 4), R(2, 2))
for mode in ("hann", "hamming", "blackman", "bartlett", "kaiser"):
    case(mode, lambda T, F, x, m=mode: getattr(T, m + "_window")(7, dtype=T.float64) * x, R(7))


@pytest.mark.parametrize("one", case, ids=repr)
def test_like_torch(one):
    compare(one)


STRIDED = [lambda x: x[:, 1:].as_strided((2, 2), (1, 2)),
           lambda x: x[1:].as_strided((2,), (1,), 0),
           lambda x: x[1:, ::2].as_strided((2, 2), (4, 1), 1),
           lambda x: x[1:].as_strided((2,), (3,)), lambda x: x[:1].as_strided((3, 4), (4, 1)),
           lambda x: x.T[1:3].as_strided((2, 3), (4, 1)),
           lambda x: x[0].expand(3, 4).as_strided((2, 2), (1, 2))]


@pytest.mark.parametrize("form", STRIDED, ids=range(len(STRIDED)))
def test_strides_over_the_memory_of_a_view(form):
    """The same elements as in PyTorch; the gradient reaches each of them, also outside the view."""
    import adjoint as ad
    torch = pytest.importorskip("torch")
    assert form(ad.arange(12.0).reshape(3, 4)).tolist() == form(
        torch.arange(12.0).reshape(3, 4)).tolist()
    x = ad.arange(12.0).reshape(3, 4).clone().requires_grad_()
    y = form(x)
    y.sum().backward()
    counts = [0] * 12
    for v in y.detach().flatten().tolist():
        counts[int(v)] += 1
    assert x.grad.flatten().tolist() == counts
    z = ad.arange(12.0).reshape(3, 4)
    form(z).mul_(0)
    assert all(z.flatten()[int(v)] == 0 for v in y.detach().flatten().tolist())


def test_strided_writes_to_a_copy():
    import adjoint as ad
    torch = pytest.importorskip("torch")
    ours, theirs = (t.as_strided_scatter(t.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
                                         t.ones(2, 2), (2, 2), (1, 7), 3) for t in (ad, torch))
    assert ours.tolist() == theirs.tolist()


def test_strides_that_cannot_be_had():
    import adjoint as ad
    x = ad.arange(12.0).reshape(3, 4)
    with pytest.raises(RuntimeError, match="^setStorage: sizes .5, 5., strides .4, 1., stor"):
        x.T.as_strided((5, 5), (4, 1))
    leaf = x.requires_grad_()                  # a leaf that is a view: its base has no gradient
    with pytest.raises(NotImplementedError, match="views of such"):
        leaf[:, 1:].as_strided((2, 2), (1, 2))
    leaf.T.as_strided((2, 2), (1, 2)).sum().backward()
    assert leaf.grad.flatten().tolist() == [1, 1, 1, 1, *[0] * 8]


@pytest.mark.parametrize("form", [
    lambda x: x.reshape(3.0), lambda x: x.reshape("a"), lambda x: x.view(3, 1.0),
    lambda x: x.expand(3.5), lambda x: x.repeat(2.5), lambda x: x.permute(0.5),
    lambda x: x.permute("a"), lambda x: x.flip(0.5), lambda x: x.sum("a"),
    lambda x: x.sum(dim=[0.5])], ids=range(10))
def test_sizes_and_dims_are_integers(form):
    import adjoint as ad
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError) as theirs:
        form(torch.ones(3))
    with pytest.raises(TypeError, match="must be tuple of ints, not (float|str)") as ours:
        form(ad.ones(3))
    if "argument" in str(theirs.value) and "(position" in str(theirs.value):
        assert str(ours.value).split()[:3] == str(theirs.value).split()[:3]


def test_a_shape_is_a_size_of_ints_however_many_were_seen():
    for n in range(5000):
        assert ad.empty(n, 0).shape == (n, 0)
    shape = ad.empty(3, 1).shape
    assert type(shape) is ad.Size and shape.numel() == 3
    assert shape == ad.empty(3, 1, device="meta").shape


def test_what_lies_where():
    x = ad.arange(12.0).reshape(3, 4)
    own = x.numpy()
    for part, array in ((x, own), (x[1:, 1:], own[1:, 1:]), (x.T, own.T), (x[::2], own[::2])):
        assert part.data_ptr() == array.__array_interface__["data"][0]
        assert part.stride() == tuple(s // 4 for s in array.strides)
        assert part.is_contiguous() is bool(array.flags.c_contiguous)
    assert x[1:, 1:].storage_offset() == 5 and x.to("meta").data_ptr() == 0
    with pytest.raises(TypeError, match="must be torch.memory_format, not int"):
        x.is_contiguous(memory_format=3)


def test_the_device_that_tensors_share_can_be_entered_in_any_depth():
    here = ad.ones(2).device
    assert here is ad.zeros(3).device and here == ad.device("cpu")
    with ad.device("meta") as meta:
        with meta, here:
            assert ad.zeros(1).device.type == "cpu"
            with here, meta:
                assert ad.zeros(1).is_meta
            assert not ad.zeros(1).is_meta
        assert ad.zeros(1).device == meta
    assert ad.zeros(1).device is here


def test_nan_to_num_replaces_each_element_once():
    inf, nan = float("inf"), float("nan")
    x = ad.tensor([nan, inf, -inf, 1.5], requires_grad=True)
    y = x.nan_to_num(nan=inf, posinf=-inf, neginf=2.0)
    assert y.tolist() == [inf, -inf, 2.0, 1.5]
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 1.0]


def test_resize_to_the_shape_that_is_there_changes_nothing():
    x = ad.arange(6.0).reshape(2, 3).T
    version = x._version
    assert x.resize_(3, 2) is x and x.stride() == (1, 3) and x._version == version
    assert x.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


@pytest.mark.parametrize("shape", [(5,), (2, 3), (0, 3), (3, 1, 4)])
def test_roll_of_one_axis_and_of_several(shape):
    x = ad.arange(float(np.prod(shape))).reshape(shape)
    for dim in range(-1, len(shape) - 1):
        for shift in (-7, -1, 0, 1, 2, 9):
            for part in (x, x.transpose(0, -1)):
                made = part.roll(shift, dim)
                assert made.is_contiguous()
                np.testing.assert_array_equal(made.numpy(), np.roll(part.numpy(), shift, dim))
    several = x.roll((1,) * len(shape), tuple(range(len(shape))))
    np.testing.assert_array_equal(several.numpy(), np.roll(
        x.numpy(), (1,) * len(shape), tuple(range(len(shape)))))


def test_masked_scatter_in_place():
    x, mask = ad.arange(6.0), ad.tensor([False, True, True, True, False, True])
    version = x._version
    assert x.masked_scatter_(mask, x) is x and x._version == version + 1
    assert x.tolist() == [0.0, 0.0, 1.0, 2.0, 4.0, 3.0]
    with pytest.raises(ValueError, match="4 True values, source 3 elements"):
        x.masked_scatter_(mask, ad.ones(3))
    leaf = ad.ones(6, requires_grad=True)
    x.masked_scatter_(mask, leaf * 2).sum().backward()
    assert x.tolist() == [0.0, 2.0, 2.0, 2.0, 4.0, 2.0] and leaf.grad.tolist() == [2.0] * 4 + [0, 0]
    kept = x.detach()
    loss = (leaf * kept).sum()
    kept.masked_scatter_(mask, ad.ones(6))
    with pytest.raises(RuntimeError, match="modified"):
        loss.backward()


def test_the_rank_of_few_and_of_many():
    for n in (1, 2, 7, 64, 65, 200):
        x = ad.tensor(np.arange(n) * 7 % 13 % 5)
        ordered = sorted(x.tolist())
        assert x.median().item() == ordered[(n - 1) // 2]
        value, at = x.mode()
        counts = {v: ordered.count(v) for v in ordered}
        best = min(v for v in counts if counts[v] == max(counts.values()))
        assert value.item() == best
        assert at.item() == max(i for i, v in enumerate(x.tolist()) if v == best)
