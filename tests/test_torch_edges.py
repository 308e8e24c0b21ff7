"""Edges of single functions, as in PyTorch: bounds that are nan, nothing to reduce, ranges."""
import math

import numpy as np
import pytest

import adjoint as ad
from adjoint.core import modes

nan, inf = math.nan, math.inf


def values(t):
    return [str(v) for v in t.tolist()]


# ------------------------------------------------------------------ clamp between tensors
def test_a_bound_that_is_nan_makes_nan():
    x = ad.tensor([5.0, -6.0, nan])
    assert values(x.clamp(max=ad.tensor([nan, -1.0, 0.0]))) == ["nan", "-6.0", "nan"]
    assert values(x.clamp(ad.tensor([0.0, nan, 0.0]), ad.tensor([1.0, 1.0, 1.0]))) == [
        "1.0", "nan", "nan"]


@pytest.mark.parametrize("bounds, grads", [
    (("low", "high"), ([0, 0, 0], [0, 0, 0], [0, 1, 1])), (("low", None), ([0, 1, 0], [1, 0, 1])),
    ((None, "high"), ([1, 0, 1], None, [0, 1, 0]))])
def test_bounds_take_the_cotangent_where_they_won(bounds, grads):
    given = {"low": [2.0, 2, 5], "high": [2.0, 1, 4]}
    x = ad.tensor([1.0, 2, 3], requires_grad=True)
    ends = [None if b is None else ad.tensor(given[b], requires_grad=True) for b in bounds]
    y = ad.clamp(x, *ends)
    y.sum().backward()
    assert type(y.grad_fn).__name__ == "ClampBackward0"
    for leaf, want in zip((x, *ends), grads, strict=False):
        assert leaf is None or leaf.grad.tolist() == want
    assert not [n for n in dir(y.grad_fn) if n in ("_saved_low", "_saved_high")]


def test_bounds_are_both_tensors_or_both_numbers():
    with pytest.raises(TypeError, match=r"invalid combination of arguments - got \(Tensor, Tensor"):
        ad.ones(2).clamp(ad.zeros(2), 1.0)


# ------------------------------------------------------------------ nothing to reduce
@pytest.mark.parametrize("order", [inf, 1, 2, "nuc", "fro"])
def test_norms_of_matrices_without_elements_are_0(order):
    assert ad.linalg.matrix_norm(ad.zeros(0, 3), order).item() == 0.0
    assert ad.linalg.matrix_norm(ad.zeros(2, 3, 0), order).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("order", [-inf, -1, -2])
def test_least_norms_of_nothing_are_refused(order):
    with pytest.raises(IndexError, match="amin\\(\\): Expected reduction dim"):
        ad.linalg.matrix_norm(ad.zeros(0, 0), order)
    with pytest.raises(RuntimeError, match="cannot compute the .* norm on an empty tensor"):
        ad.linalg.vector_norm(ad.zeros(0), order)
    with pytest.raises(RuntimeError, match="norm on the dimension 1"):
        ad.linalg.vector_norm(ad.zeros(3, 0), order, dim=-1)


def test_nothing_repeated_is_nothing():
    none = ad.zeros(0, dtype=ad.int64)
    assert ad.repeat_interleave(ad.zeros(0), none).shape == (0,)
    assert ad.repeat_interleave(ad.zeros(2, 0, 3), none, 1).shape == (2, 0, 3)
    assert ad.repeat_interleave(ad.zeros(2, 3, 0), 2).shape == (0,)
    assert ad.repeat_interleave(ad.zeros(0, 3), 2).shape == (0,)
    assert ad.repeat_interleave(ad.zeros(2, 3), 0).shape == (0,)
    with pytest.raises(RuntimeError, match="Repeats must be non-negative"):
        ad.repeat_interleave(ad.zeros(2, 3), -1)
    with pytest.raises(RuntimeError, match="repeats can not be negative"):
        ad.repeat_interleave(ad.zeros(2, 3), ad.tensor([1, -1]), 0)


def test_a_complex_infinity_has_no_sign():
    got = ad.sgn(ad.tensor([complex(-inf, 0), 3 + 4j, 0j])).tolist()
    assert math.isnan(got[0].real)
    assert abs(got[1] - (0.6 + 0.8j)) < 1e-6 and got[2] == 0


# ------------------------------------------------------------------ dtypes that are asked for
@pytest.mark.parametrize("name", ["sum", "cumsum", "cumprod", "prod", "nansum"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
def test_reductions_keep_a_small_dtype_that_is_asked_for(name, dtype):
    x = ad.tensor([100, 100, 100])
    got = getattr(ad, name)(x, 0, dtype=getattr(ad, dtype))
    with np.errstate(over="ignore"):
        want = getattr(np, name)(x.numpy().astype(dtype), 0, dtype=dtype)
    assert got.dtype == getattr(ad, dtype) and got.tolist() == want.tolist()


@pytest.mark.parametrize("args, dtype, want", [
    ((2.5,), "int32", [0, 1, 2]), ((2.5,), "int64", [0, 1]), ((0.5, 3, 1.5), "int32", [0, 1]),
    ((1, 2.5, 0.5), "uint8", [1, 1, 1]), ((0, 4.9, 1.5), "int64", [0, 1, 2, 3])])
def test_whole_ranges_between_fractions(args, dtype, want):
    assert ad.arange(*args, dtype=getattr(ad, dtype)).tolist() == want


def test_ranges_between_complex_numbers():
    assert ad.linspace(0, 1 + 1j, 3).tolist() == [0, 0.5 + 0.5j, 1 + 1j]
    assert ad.logspace(0, 1, 2).dtype == ad.float32
    assert ad.logspace(0, 1j, 2).dtype == ad.complex64
    with pytest.raises(RuntimeError, match="inferred dtype ComplexFloat can't be safely cast"):
        ad.linspace(0, 1j, 3, dtype=ad.float32)


def test_a_word_or_a_number_is_not_blamed():
    with pytest.raises(IndexError, match="Expected reduction dim"):
        ad.linalg.matrix_norm(ad.zeros(0, 0), -1.0)


# ------------------------------------------------------------------ integers and empty operands
@pytest.mark.parametrize("name", ["int8", "int16", "int32", "int64"])
def test_masked_logsumexp_of_integers(name):
    """F123: what the mask drops counts as the least number of the dtype, not as a cast of -inf."""
    dtype = getattr(ad, name)
    x = ad.tensor([[-8, 3], [5, -2]], dtype=dtype)
    mask = ad.tensor([[True, True], [False, True]])
    assert ad.masked.logsumexp(x, 0, mask=mask).tolist() == [-8, 3]
    assert ad.masked.logsumexp(x, 1, mask=mask).tolist() == [3, -2]
    nothing = ad.masked.logsumexp(x, 1, mask=ad.tensor([[False, False], [True, True]]))
    assert nothing.dtype == dtype and nothing[1] == 5 and nothing[0] < ad.iinfo(dtype).min / 1.01


def test_cosine_embedding_loss_of_small_integers():
    """Products stay in the dtype, their sums are int64, as in PyTorch."""
    a = ad.tensor([[7, -8, 3, 2, 1]], dtype=ad.int8)
    b = ad.tensor([[1, -2, 9, 9, -8]], dtype=ad.int8)
    for target, want in ((1, 0.6497), (-1, 0.3503)):
        for x, y in ((a, b), (a.long(), b.long())):
            loss = ad.nn.functional.cosine_embedding_loss(x, y, ad.tensor([target]))
            assert abs(loss.item() - want) < 1e-4


def test_cat_keeps_the_gradient_of_an_empty_vector():
    """An empty vector fits beside anything, and where it requires a gradient it gets one."""
    empty, x = ad.zeros(0, requires_grad=True), ad.ones(2, 2)
    for dim in (0, 1, -1):
        empty.grad = None
        joined = ad.cat([x, empty, ad.zeros(0)], dim)
        assert joined.requires_grad and joined.shape == (2, 2)
        joined.sum().backward()
        assert empty.grad is not None and empty.grad.shape == (0,)
    assert not ad.cat([x, ad.zeros(0)]).requires_grad


def test_max_norm_is_for_floating_tables():
    with pytest.raises(TypeError, match="floating point or complex. Got Long"):
        ad.nn.functional.embedding(ad.tensor([0]), ad.ones(2, 2, dtype=ad.int64), max_norm=1.0)


def test_narrow_copy_writes_to_out():
    out = ad.zeros(0)
    assert ad.narrow_copy(ad.arange(6.0), 0, 1, 2, out=out) is out and out.tolist() == [1.0, 2.0]


def test_vmap_shares_what_is_passed_by_keyword():
    """As in PyTorch; with JAX's `in_axes` it is mapped, as in JAX."""
    x = ad.arange(6.0).reshape(2, 3)

    def scaled(x, scale=4.0):
        return x * scale
    assert ad.vmap(scaled)(x).equal(x * 4)
    assert ad.vmap(scaled)(x, scale=x).shape == (2, 2, 3)
    assert ad.vmap(scaled)(x, scale=ad.ones(5, 3)).shape == (2, 5, 3)
    assert ad.func.vmap(scaled, chunk_size=1)(x, scale=x).equal(ad.func.vmap(scaled)(x, scale=x))
    assert ad.func.vmap(scaled, in_axes=0)(x, scale=x).equal(x * x)


def test_dim_order_takes_formats_to_check():
    x = ad.empty((2, 3, 5, 7))
    assert x.dim_order(ambiguity_check=[ad.contiguous_format, ad.channels_last]) == (0, 1, 2, 3)
    with pytest.raises(TypeError, match="must be bool"):
        x.dim_order(ambiguity_check="yes")


def test_a_buffer_that_is_not_writable_is_warned_about_once(monkeypatch):
    """In a program that runs as torch, as there; under its own name the package is silent."""
    monkeypatch.setattr(modes, "as_pytorch", [True])
    monkeypatch.setattr(modes, "said", set())
    with pytest.warns(UserWarning, match="The given buffer is not writable") as told:
        for _ in range(2):
            assert ad.frombuffer(b"ab", dtype=ad.uint8).tolist() == [97, 98]
        ad.frombuffer(bytearray(b"ab"), dtype=ad.uint8)
    assert len(told) == 1


# ------------------------------------------------------------------ infinities, nan, whole numbers
X, Y = [inf, -inf, nan, 0.5, -2.0, 3.0], [1.0, 0.25, -1.0, 2.0, -2.0, 0.5]
AT_INFINITY = {
    "smooth_l1": lambda F, x, y: F.smooth_l1_loss(x, y, reduction="none"),
    "huber": lambda F, x, y: F.huber_loss(x, y, reduction="none", delta=0.5),
    "prelu": lambda F, x, y: F.prelu(x, y[:1]),
    "prelu of channels": lambda F, x, y: F.prelu(x[None], y),
    "hardtanh": lambda F, x, y: F.hardtanh(x),
    "relu6": lambda F, x, y: F.relu6(x),
    "logits": lambda F, x, y: F.binary_cross_entropy_with_logits(
        x, y.detach().sigmoid(), reduction="none")}


@pytest.mark.parametrize("name", AT_INFINITY)
def test_slopes_at_infinity_and_nan(name):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (torch, ad):
        x = lib.tensor(X, dtype=lib.float64, requires_grad=True)
        y = lib.tensor(Y, dtype=lib.float64, requires_grad=True)
        out = AT_INFINITY[name](lib.nn.functional, x, y)
        out.sum().backward()
        found.append([out.tolist(), x.grad.tolist(), y.grad.tolist() if y.grad is not None else 0])
    for ours, theirs in zip(*reversed(found), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "bool"])
@pytest.mark.parametrize("name", ["LPPool1d", "LPPool2d", "PairwiseDistance"])
def test_whole_numbers_in_powers_and_distances(name, dtype):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (torch, ad):
        x = (lib.arange(64) % 5).reshape(1, 2, 4, 8).to(getattr(lib, dtype))
        layer = getattr(lib.nn, name)
        try:
            out = layer()(x, x.flip(-1)) if name == "PairwiseDistance" else layer(2, 2)(
                x[0] if name == "LPPool1d" else x)
            found.append((str(out.dtype).split(".")[-1], out.tolist()))
        except RuntimeError:
            found.append(("refused", 0))
    assert found[1][0] == found[0][0]
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-6)


def test_distances_of_numbers_and_places_of_nan():
    assert ad.nn.functional.pairwise_distance(ad.tensor(3.0), ad.tensor(1.0)).item() == (
        pytest.approx(2.0, abs=1e-5))
    x = ad.arange(10.0).reshape(1, 1, 10)
    x[0, 0, [1, 2, 4]] = nan
    values_, where = ad.nn.functional.adaptive_max_pool1d(x, 3, return_indices=True)
    assert values(values_[0, 0]) == ["nan", "nan", "9.0"] and where.tolist() == [[[2, 4, 9]]]
    with pytest.warns(UserWarning, match="1-D input to dropout3d"):
        assert ad.nn.functional.dropout3d(ad.ones(3), 0.5, False).tolist() == [1.0] * 3
    assert tuple(ad.nn.FractionalMaxPool2d(2, 3)(ad.ones(0, 2, 5, 5)).shape) == (0, 2, 3, 3)
    assert tuple(ad.nn.GroupNorm(2, 4, affine=False)(ad.ones(1, 8, 2)).shape) == (1, 8, 2)


def test_removing_a_parametrization_leaves_what_was_saved():
    from adjoint.nn.utils import parametrizations, parametrize
    for wrap in (parametrizations.spectral_norm, parametrizations.orthogonal):
        layer = ad.nn.Linear(3, 3)
        optimizer = ad.optim.SGD(wrap(layer).parameters(), lr=0.1)
        saved = layer.state_dict()["parametrizations.weight.original"]
        before = saved.tolist()
        parametrize.remove_parametrizations(layer, "weight")
        assert saved.tolist() == before and layer.weight.tolist() != before
        held = {id(p) for g in optimizer.param_groups for p in g["params"]}
        assert id(layer.weight) in held


@pytest.mark.parametrize("options", [{"max_norm": 1.0, "padding_idx": 1},
                                     {"scale_grad_by_freq": True}])
def test_embeddings_without_storage(options):
    table = ad.nn.Embedding(5, 3, device="meta", **options)
    out = table(ad.ones(2, 4, dtype=ad.int64, device="meta"))
    assert tuple(out.shape) == (2, 4, 3) and out.is_meta
    out.sum().backward()
    assert tuple(table.weight.grad.shape) == (5, 3)


def test_random_pools_want_channels():
    with pytest.raises(RuntimeError, match="non-zero size for non-batch dimensions"):
        ad.nn.FractionalMaxPool2d(2, 3)(ad.ones(2, 0, 5, 5))
def test_ranks_that_in_place_forms_and_windows_refuse() -> None:
    v, m = ad.tensor([1.0, 2.0]), ad.ones(3)
    for run, words in ((lambda: v.fill_diagonal_(0.5), "dimensions must larger than 1"),
                       (lambda: ad.ones(2, 3, 2).fill_diagonal_(0.5), "of equal length"),
                       (lambda: m.addmm_(v, v), "mat1 must be a matrix, got 1-D tensor"),
                       (lambda: m.baddbmm_(v, v), "batch1 must be a 3D tensor"),
                       (lambda: ad.tensor(3.0).unfold(0, 2, 1), "maximum size .* is 1 but size")):
        with pytest.raises(RuntimeError, match=words):
            run()
    assert v.tolist() == [1, 2] and m.tolist() == [1, 1, 1]
    assert [ad.tensor(3.0).unfold(0, n, 1).tolist() for n in (0, 1)] == [[], [3]]


def test_softmax_of_a_number_that_is_none() -> None:
    for x in (float("nan"), float("inf")):
        for f in (ad.softmax, ad.log_softmax):
            assert f(ad.tensor(x), 0).isnan() and f(ad.tensor([x]), 0).isnan().all()
    assert ad.softmax(ad.tensor(3.0), -1) == 1 and ad.log_softmax(ad.tensor(-3.0), 0) == 0
