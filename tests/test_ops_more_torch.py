"""Functions that came late, beside PyTorch: LDL, segments, hashes, rearranging, sparse diagonals,
layouts in memory."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")


def symmetric(n: int, kind: str, hermitian: bool, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(2, n, n)) + (1j * rng.normal(size=(2, n, n)) if kind == "c" else 0)
    turned = a.swapaxes(-1, -2)
    a = a + (turned.conj() if hermitian else turned)
    if seed % 2:
        a[:, range(n), range(n)] *= 0.01      # blocks of two are chosen
    return a


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("kind", ["r", "c"])
@pytest.mark.parametrize(("n", "seed"), [(0, 0), (1, 0), (3, 1), (6, 2), (9, 3)])
def test_ldl_is_that_of_lapack(n: int, seed: int, kind: str, hermitian: bool) -> None:
    a = symmetric(n, kind, hermitian, seed)
    b = np.random.default_rng(9).normal(size=(2, n, 3)).astype(a.dtype)
    theirs = torch.linalg.ldl_factor_ex(torch.tensor(a), hermitian=hermitian)
    ours = ad.linalg.ldl_factor_ex(ad.tensor(a), hermitian=hermitian)
    assert np.array_equal(ours.pivots.numpy(), theirs.pivots.numpy())
    assert np.array_equal(ours.info.numpy(), theirs.info.numpy())
    np.testing.assert_allclose(ours.LD.numpy(), theirs.LD.numpy(), atol=1e-9)
    x = ad.linalg.ldl_solve(ours.LD, ours.pivots, ad.tensor(b), hermitian=hermitian)
    np.testing.assert_allclose(ad.tensor(a) @ x, b, atol=1e-8)


def test_ldl_says_what_it_cannot_do() -> None:
    with pytest.raises(RuntimeError, match="singular"):
        ad.linalg.ldl_factor(ad.zeros(2, 2))
    with pytest.raises(NotImplementedError, match="no derivative"):
        ad.linalg.ldl_factor(ad.eye(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="square matrices"):
        ad.linalg.ldl_factor(ad.ones(2, 3))
    ld, pivots = ad.linalg.ldl_factor(ad.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=ad.float64))
    b = ad.ones(2, 1, dtype=ad.float64, requires_grad=True)
    assert ad.autograd.gradcheck(lambda b: ad.linalg.ldl_solve(ld, pivots, b), b)


SEGMENTS: dict[str, Any] = {
    "rows": ((5, 2), dict(lengths=[2, 0, 3])),
    "offsets": ((5,), dict(offsets=[0, 1, 1, 5])),
    "batched": ((2, 3, 2), dict(lengths=[[1, 2], [3, 0]], axis=1)),
    "initial": ((5,), dict(lengths=[2, 0, 3], initial=0.5)),
    "unsafe": ((5,), dict(lengths=[2, 1], unsafe=True)),
}


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("case", SEGMENTS)
def test_segments(case: str, reduce: str) -> None:
    shape, given = SEGMENTS[case]
    x = np.random.default_rng(3).normal(size=shape)
    found = []
    for m in (torch, ad):
        t = m.tensor(x, requires_grad=True)
        kwargs = {k: m.tensor(v) if isinstance(v, list) else v for k, v in given.items()}
        out = m.segment_reduce(t, reduce, **kwargs)
        out.nan_to_num(0, 0, 0).sum().backward()
        found.append((out.detach().numpy(), t.grad.nan_to_num().numpy()))
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_segments_refuse_lengths_that_do_not_fit() -> None:
    x = ad.ones(5)
    for kind, text, kwargs in (
            (ValueError, "Either lengths or offsets", {}),
            (ValueError, "sum to", dict(lengths=ad.tensor([2, 2]))),
            (ValueError, "last dimension of lengths", dict(lengths=ad.tensor([[2, 3]])))):
        with pytest.raises(kind, match=text):
            ad.segment_reduce(x, "sum", **kwargs)
    with pytest.raises(ValueError, match="reduce"):
        ad.segment_reduce(x, "median", lengths=ad.tensor([5]))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "uint8", "bool"])
def test_hashes(dtype: str) -> None:
    x = np.random.default_rng(0).integers(-3, 4, (3, 4)).astype(dtype)
    for args, kwargs in (((), {}), ((1,), {}), (((0, 1),), dict(keepdim=True))):
        theirs = torch.hash_tensor(torch.tensor(x), *args, **kwargs)
        ours = ad.hash_tensor(ad.tensor(x), *args, **kwargs)
        assert ours.dtype == ad.uint64 and np.array_equal(ours.numpy(), theirs.numpy())


PATTERNS = [
    ((2, 3, 4, 5), "b h w c -> b h w c", {}), ((2, 3, 4, 5), "b h w c -> h (b w) c", {}),
    ((2, 3, 4, 5), "b h w c -> b (c h w)", {}),
    ((2, 6, 4, 5), "b (h1 h) (w1 w) c -> (b h1 w1) h w c", dict(h1=2, w1=2)),
    ((2, 3, 4), "a ... -> ... a", {}), ((2, 3, 4), "a ... -> a (...)", {}),
    ((2, 1, 4), "a 1 b -> a b", {}), ((2, 4), "a b -> a 1 b", {}), ((2, 4), "a b -> a () b", {}),
]


@pytest.mark.parametrize(("shape", "pattern", "lengths"), PATTERNS)
def test_rearranging(shape: Any, pattern: str, lengths: Any) -> None:
    x = np.arange(np.prod(shape)).reshape(shape)
    theirs = torch.func.rearrange(torch.tensor(x), pattern, **lengths)
    ours = ad.func.rearrange(ad.tensor(x), pattern, **lengths)
    assert ours.shape == theirs.shape and np.array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize(("pattern", "text"), [
    ("a b", "needs an arrow"), ("a b -> a", "one side only"), ("a a -> a", "more than once"),
    ("a (b -> a b", "do not match"), ("a ((b)) -> b a", "do not match"),
    ("a b c -> a b c", "has 3 axes"), ("(a b) c -> a b c", "all but one"), ("a 2 -> a", "no name"),
])
def test_rearranging_refuses_in_words(pattern: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ad.func.rearrange(ad.ones(2, 3), pattern)


@pytest.mark.filterwarnings("ignore")        # (PyTorch says that its CSR is new)
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin", "max", "min"])
def test_products_with_other_sums(reduce: str) -> None:
    a = np.array([[1.0, 0, 2], [0, -3, 0], [0, 0, 0]])
    b = np.random.default_rng(5).normal(size=(3, 2))
    found = []
    for m in (torch, ad):
        s = m.tensor(a).to_sparse_csr()
        t = m.tensor(b, requires_grad=True)
        out = m.sparse.mm(s, t, reduce)
        out.sum().backward()
        found.append((out.detach().numpy(), t.grad.numpy()))
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs)


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
@pytest.mark.parametrize(("rows", "offsets", "shape"), [
    (3, [0, -1, -2], (3, 3)), (3, [0, 1, 2], (5, 5)), (2, [2, -1], (4, 3)), (1, [2], (3, 3))])
def test_diagonals(rows: int, offsets: list[int], shape: Any, layout: str) -> None:
    d = np.arange(rows * 3.0).reshape(rows, 3) + 1
    theirs, ours = (m.sparse.spdiags(m.tensor(d), m.tensor(offsets), shape, getattr(m, layout))
                    for m in (torch, ad))
    assert str(ours.layout).endswith(layout)
    assert np.array_equal(ours.to_dense().numpy(), theirs.to_dense().numpy())


def test_parts_of_sparse_tensors() -> None:
    x = np.arange(16.0).reshape(2, 2, 2, 2)
    for dim, start, length in ((0, 0, 1), (1, 1, 1), (2, 1, 1), (3, 0, 0)):
        theirs, ours = (m.narrow_copy(m.tensor(x).to_sparse(2), dim, start, length)
                        for m in (torch, ad))
        assert ours.shape == theirs.shape
        assert np.array_equal(ours.to_dense().numpy(), theirs.to_dense().numpy())
    with pytest.raises(ValueError, match="exceeds dimension size"):
        ad.narrow_copy(ad.tensor(x).to_sparse(2), 0, 1, 2)


def test_files_as_memory(tmp_path: Any) -> None:
    name = str(tmp_path / "numbers")
    with pytest.raises(ValueError, match="8 bytes|0 bytes|no such|No such") as info:
        np.zeros(1).tofile(name)
        ad.from_file(name, size=3)
    assert "shared=True" in str(info.value)
    ad.from_file(name, shared=True, size=3, dtype=ad.float64).copy_(ad.arange(3.0))
    assert torch.from_file(name, size=3, dtype=torch.float64).tolist() == [0.0, 1.0, 2.0]
    private = ad.from_file(name, size=3, dtype=ad.float64)
    private.add_(1)
    assert np.fromfile(name).tolist() == [0.0, 1.0, 2.0]


CONTIGUOUS = {
    "cat": lambda m, x: m.cat([x.t(), x.t()]), "roll": lambda m, x: m.roll(x.t(), 1, 0),
    "softmax": lambda m, x: m.softmax(x.t(), 0), "cumsum": lambda m, x: m.cumsum(x.t(), 0),
    "log_softmax": lambda m, x: m.log_softmax(x, 0), "rfft": lambda m, x: m.fft.rfft(x.t()),
    "one_hot": lambda m, x: m.nn.functional.one_hot((x > 0).long().t(), 2),
    "fold": lambda m, x: m.nn.functional.fold(x.reshape(1, 4, 3), (2, 4), 2),
}
COLUMNS = {
    "inv": lambda m, x: m.linalg.inv(x @ x.t()), "solve": lambda m, x: m.linalg.solve(x @ x.t(), x),
    "cholesky": lambda m, x: m.linalg.cholesky(x @ x.t()), "qr": lambda m, x: m.linalg.qr(x).Q,
    "svd": lambda m, x: m.linalg.svd(x, full_matrices=False).Vh,
    "eigh": lambda m, x: m.linalg.eigh(x @ x.t()).eigenvectors,
    "lu_factor": lambda m, x: m.linalg.lu_factor(x).LU, "geqrf": lambda m, x: m.geqrf(x)[0],
    "nonzero": lambda m, x: m.nonzero(x > 0), "zeros_like": lambda m, x: m.zeros_like(x.t()),
}


@pytest.mark.parametrize("name", [*CONTIGUOUS, *COLUMNS])
def test_results_lie_in_memory_as_pytorchs_do(name: str) -> None:
    x = np.random.default_rng(1).normal(size=(3, 4))
    program = {**CONTIGUOUS, **COLUMNS}[name]
    theirs, ours = program(torch, torch.tensor(x)), program(ad, ad.tensor(x))
    assert ours.stride() == theirs.stride()
    if name in CONTIGUOUS:
        assert ours.is_contiguous() and ours.view(-1).shape == theirs.view(-1).shape


BYTES = {
    "eq": lambda m, x: x == -1, "lt": lambda m, x: x < 256, "gt": lambda m, x: x > 300,
    "add": lambda m, x: x + 300, "sub": lambda m, x: x - 1, "mul": lambda m, x: x * -1,
    "and": lambda m, x: x & -1, "fill_": lambda m, x: x.clone().fill_(-1),
    "add_": lambda m, x: x.clone().add_(-1), "where": lambda m, x: m.where(x > 0, x, -1),
    "remainder": lambda m, x: x.remainder(-3), "mask": lambda m, x: m.arange(3)[x],
    "floor_divide": lambda m, x: x // -1,
}


@pytest.mark.filterwarnings("ignore")        # (PyTorch's words about masks of bytes)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", BYTES)
def test_numbers_that_do_not_fit_go_round(name: str, dtype: str) -> None:
    if name == "mask" and dtype == "int8":
        pytest.skip("bytes with a sign are positions")
    theirs, ours = (BYTES[name](m, m.tensor([0, 1, 100], dtype=getattr(m, dtype)))
                    for m in (torch, ad))
    assert str(ours.dtype).endswith(str(theirs.dtype).removeprefix("torch."))
    assert ours.tolist() == theirs.tolist()


DEFAULTS = {
    "linalg.cross": lambda m, x: m.linalg.cross(x, x.flip(0)),
    "linalg.diagonal": lambda m, x: m.linalg.diagonal(x.reshape(1, 3, 3)),
    "linalg.vander": lambda m, x: m.linalg.vander(m.tensor([2, 3], dtype=m.int32)),
    "matrix_rank": lambda m, x: m.linalg.matrix_rank(x, atol=1.0, rtol=0.0, hermitian=True),
    "fftn of one axis": lambda m, x: m.fft.fftn(x, 2), "ifft2": lambda m, x: m.fft.irfftn(x, 4),
    "adaptive_max_pool1d": lambda m, x: m.adaptive_max_pool1d(x[None], 2)[1],
    "kl_div": lambda m, x: m.kl_div(x, x.abs()),
    "hinge": lambda m, x: m.hinge_embedding_loss(x, x.sign()),
    "margin": lambda m, x: m.nn.functional.margin_ranking_loss(
        x.int(), x.int().flip(0), x.int().sign()),
    "threshold": lambda m, x: m.nn.functional.threshold(m.arange(-3, 3), 0, 0.5),
    "no integers": lambda m, x: m.zeros(0, 3, dtype=m.int64) // 0,
    "channels last": lambda m, x: m.tensor(x.reshape(1, 3, 1, 3).permute(
        0, 3, 1, 2).is_contiguous(memory_format=m.channels_last)),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_pytorchs(name: str) -> None:
    x = np.random.default_rng(2).normal(size=(3, 3))
    theirs, ours = (DEFAULTS[name](m, m.tensor(x)) for m in (torch, ad))
    assert str(ours.dtype).endswith(str(theirs.dtype).removeprefix("torch."))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-6)


def test_another_tensor_is_no_place_for_the_result() -> None:
    x, y = ad.ones(2), ad.zeros(2)
    with pytest.raises(TypeError, match=r"cos_\(\) takes 0 arguments beside the tensor, got 1"):
        x.cos_(y)
    with pytest.raises(TypeError, match="takes 1 arguments"):
        x.mul_()
    assert x.tolist() == [1.0, 1.0] and y.tolist() == [0.0, 0.0]
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type Long"):
        ad.ones(2, dtype=ad.int64).deg2rad_()


def test_layouts_inside_of_transforms() -> None:
    """Tensors of a transform have no memory to ask."""
    f = ad.func.vmap(lambda r: ad.zeros_like(r) + ad.ones_like(r.t()).sum() * r.is_contiguous())
    assert f(ad.ones(2, 3, 3)).tolist() == [[[9.0] * 3] * 3] * 2
    assert ad.func.grad(lambda x: (ad.ones_like(x) * x).sum())(ad.ones(3)).tolist() == [1.0] * 3


@pytest.mark.parametrize(("call", "want"), [
    (lambda x, m: x.clone().add_(2, x), [3.0, 6.0]), (lambda x, m: x.add(2, x), [3.0, 6.0]),
    (lambda x, m: ad.sub(x, 2, x), [-1.0, -2.0]), (lambda x, m: x.clone().sub_(2, x), [-1.0, -2.0]),
    (lambda x, m: x.clone().addcdiv_(-3, x, x), [-2.0, -1.0]),
    (lambda x, m: ad.addcmul(x, 2, x, x), [3.0, 10.0]),
    (lambda x, m: x.addmv(2, m, x), [5.0, 12.0]),
    (lambda x, m: ad.addmv(2, x, 3, m, x), [11.0, 28.0]),
    (lambda x, m: m.clone().addmm_(0, 2, m, m)[0], [6.0, 8.0]),
    (lambda x, m: ad.addmm(0, m, 2, m, m)[0], [6.0, 8.0]),
    (lambda x, m: ad.baddbmm(1, m[None], m[None], m[None])[0, 1], [10.0, 14.0])])
def test_a_factor_by_position_as_older_programs_give_it(call, want, monkeypatch):
    monkeypatch.setattr("adjoint.core.modes.warn_always", [True])      # it is said once otherwise
    x, m = ad.tensor([1.0, 2.0]), ad.tensor([[1.0, 1.0], [2.0, 3.0]])
    with pytest.warns(UserWarning, match="This overload of .* is deprecated"):
        got = call(x, m)
    assert got.tolist() == want
    with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given"):
        x.add_(x, 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("times", [1, 5000])
def test_the_sign_of_nan_and_of_minus_zero(dtype, times):
    """0 of both, as PyTorch has it, in machine code and in NumPy; so |x| has slope 0 at nan. NumPy,
    JAX and the array standard say nan of nan."""
    values = [float("nan"), -0.0, 2.0, -3.0] * times
    x, t = (m.tensor(values, dtype=getattr(m, dtype)) for m in (ad, torch))
    for name in ("sign", "sgn"):
        mine, theirs = getattr(x, name)(), getattr(t, name)()
        assert mine.tolist() == theirs.tolist()
        assert mine.signbit().tolist() == theirs.signbit().tolist()
    for a in (x, t):
        a.requires_grad_()
    x.abs().sum().backward()
    t.abs().sum().backward()
    assert x.grad.tolist() == t.grad.tolist()
    if dtype == "bfloat16":               # no dtype of NumPy's own
        return
    plain = np.asarray(values, dtype)
    for signs in (np.sign(x.detach()), x.__array_namespace__().sign(x.detach())):
        np.testing.assert_array_equal(signs.numpy(), np.sign(plain))
    jnp = pytest.importorskip("adjoint.jax.numpy")
    assert jnp.isnan(jnp.sign(plain[:1])).all()
