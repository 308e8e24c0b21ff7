"""Sparse tensors: products, gradients, embedding tables and their optimizers, against PyTorch."""
import pickle

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd import grad
from adjoint.autograd.gradcheck import gradcheck, gradgradcheck

pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")     # of PyTorch
R = np.random.default_rng(8)
AT = np.array([[0, 1, 1, 0, 3], [2, 0, 2, 2, 1]])
VALUES = R.normal(size=5)
SHAPE = (4, 3)
DENSE = R.normal(size=(3, 2))


def coo(t, **kwargs):
    return t.sparse_coo_tensor(t.tensor(AT), t.tensor(VALUES), SHAPE, **kwargs)


def numbers(x):
    x = x.detach()
    return (x.to_dense() if getattr(x, "is_sparse", False) else x).numpy()


FUNCTIONS = {
    "to_dense": lambda t, s, d: s.to_dense(), "coalesce": lambda t, s, d: s.coalesce(),
    "mm": lambda t, s, d: t.mm(s, d), "matmul": lambda t, s, d: s @ d,
    "spmm": lambda t, s, d: t.spmm(s, d), "sparse.mm": lambda t, s, d: t.sparse.mm(s, d),
    "mv": lambda t, s, d: t.mv(s, d[:, 0]), "vector": lambda t, s, d: s @ d[:, 0],
    "addmm": lambda t, s, d: t.sparse.addmm(t.ones(4, 2, dtype=d.dtype), s, d, beta=0.5, alpha=2.0),
    "transposed": lambda t, s, d: s.t() @ t.ones(4, 2, dtype=d.dtype),
    "square": lambda t, s, d: s @ s.t(), "scaled": lambda t, s, d: s * 2.5,
    "half": lambda t, s, d: s / 2, "minus": lambda t, s, d: -s, "twice": lambda t, s, d: s + s,
    "nothing": lambda t, s, d: s - s, "relu": lambda t, s, d: s.relu(),
    "abs": lambda t, s, d: s.abs(),
    "power": lambda t, s, d: s.pow(2), "sum": lambda t, s, d: t.sparse.sum(s),
    "rows": lambda t, s, d: t.sparse.sum(s, 1), "columns": lambda t, s, d: t.sparse.sum(s, 0),
    "softmax": lambda t, s, d: t.sparse.softmax(s, 1),
    "log_softmax": lambda t, s, d: t.sparse.log_softmax(s, 0).coalesce(),
    "masked": lambda t, s, d: (d @ t.ones(2, 4, dtype=d.dtype)).t().sparse_mask(s.coalesce()),
    "dense": lambda t, s, d: t.ones(4, 3, dtype=d.dtype) + s,
}


@pytest.mark.row("F41")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_equal_torch(name):
    torch = pytest.importorskip("torch")
    results = []
    for t in (ad, torch):
        v = t.tensor(VALUES, requires_grad=True)
        d = t.tensor(DENSE, requires_grad=True)
        s = t.sparse_coo_tensor(t.tensor(AT), v, SHAPE)
        out = FUNCTIONS[name](t, s, d)
        weight = t.tensor(np.cos(np.arange(out.numel()))).reshape(tuple(out.shape))
        dense = out.to_dense() if out.is_sparse else out
        (dense * weight).sum().backward()
        results.append((out.is_sparse, numbers(out), *(None if x.grad is None else numbers(x.grad)
                                                       for x in (v, d))))
    for a, b in zip(*results, strict=True):
        if b is None:
            assert a is None
        else:
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-12)


def test_parts_of_a_sparse_tensor():
    s = coo(ad)
    assert s.is_sparse and not s.is_sparse_csr and s.layout is ad.sparse_coo
    assert not s.is_coalesced()
    assert (s._nnz(), s.sparse_dim(), s.dense_dim(), s.dim(), s.numel()) == (5, 2, 0, 2, 12)
    assert s.shape == s.size() == SHAPE and s.size(0) == len(s) == 4
    with pytest.raises(RuntimeError, match="uncoalesced tensor, please call"):
        s.indices()
    c = s.coalesce()
    assert c.coalesce() is c and c.indices().tolist() == [[0, 1, 1, 3], [2, 0, 2, 1]]
    np.testing.assert_allclose(c.values().numpy(), [VALUES[0] + VALUES[3], *VALUES[[1, 2, 4]]])
    assert not ad.ones(2).is_sparse and ad.ones(2).layout is ad.strided
    assert ad.ones(2).to_dense().tolist() == [1.0, 1.0]
    again = pickle.loads(pickle.dumps(c))
    assert again.to_dense().equal(c.to_dense()) and again.layout is ad.sparse_coo
    empty = ad.sparse_coo_tensor(size=(2, 3), indices=np.zeros((2, 0), int), values=[])
    assert empty.to_dense().equal(ad.zeros(2, 3)) and (empty @ ad.ones(3, 2)).equal(ad.zeros(2, 2))


def test_what_torch_cannot_differentiate_is_right_too():
    v = ad.tensor(VALUES, requires_grad=True)
    s = ad.sparse_coo_tensor(AT, v, SHAPE)
    for f in (lambda x: x.sin(), lambda x: x[0], lambda x: x.tanh(), lambda x: x.expm1(),
              lambda x: x.double()):
        a, b = f(s).to_dense(), f(s.to_dense())
        np.testing.assert_allclose(numbers(a), numbers(b))
        ga, gb = (grad((y * y).sum(), v, retain_graph=True)[0] for y in (a, b))
        np.testing.assert_allclose(numbers(ga), numbers(gb))


def test_leaves_hybrids_and_round_trips():
    s = coo(ad, requires_grad=True)
    assert s.requires_grad and s.is_leaf
    (s @ ad.tensor(DENSE)).sum().backward()
    assert s.grad.is_sparse
    np.testing.assert_allclose(s.grad._values().numpy(), DENSE.sum(1)[AT[1]])
    s.grad = None
    assert s.grad is None and not s.detach().requires_grad
    x = ad.tensor(R.normal(size=(3, 4, 2)) * (R.random((3, 4, 2)) > 0.5), requires_grad=True)
    for k in (None, 1, 2):
        h = x.to_sparse(k) if k else x.to_sparse()
        assert h.sparse_dim() == (k or 3) and h.is_coalesced()
        assert h.to_dense().equal(x)
    g, = grad((x.to_sparse(2).to_dense() * 3).sum(), x)
    assert set(np.unique(g.numpy())) <= {0.0, 3.0}
    hybrid = ad.sparse_coo_tensor([[0, 2, 0]], R.normal(size=(3, 2)), (3, 2))
    np.testing.assert_allclose(hybrid.sum(1).to_dense().numpy(),
                               hybrid.to_dense().sum(1).numpy())


@pytest.mark.row("F41")
def test_product_is_differentiable_twice_forward_and_batched():
    v, d = ad.tensor(VALUES, requires_grad=True), ad.tensor(DENSE, requires_grad=True)

    def f(v, d):
        return (ad.sparse_coo_tensor(AT, v, SHAPE) @ d).tanh()
    assert gradcheck(f, (v, d))
    assert gradgradcheck(f, (v, d))
    _, tangent = ad.func.jvp(lambda w: f(w, d), (v,), (ad.ones(5, dtype=ad.float64),))
    eps = 1e-6
    numeric = (f(v + eps, d) - f(v - eps, d)) / (2 * eps)
    np.testing.assert_allclose(tangent.detach().numpy(), numeric.detach().numpy(), atol=1e-8)
    many = ad.tensor(R.normal(size=(6, 5)))
    out = ad.func.vmap(lambda w: f(w, d))(many)
    np.testing.assert_allclose(out.detach().numpy(), np.stack(
        [f(w, d).detach().numpy() for w in many]))


def test_compressed_rows():
    torch = pytest.importorskip("torch")
    args = [[0, 2, 2, 3], [0, 2, 1], [1.0, 2.0, 3.0]]
    ours, theirs = ad.sparse_csr_tensor(*args, (3, 3)), torch.sparse_csr_tensor(*args, (3, 3))
    assert ours.is_sparse_csr and not ours.is_sparse and ours.layout is ad.sparse_csr
    for name in ("crow_indices", "col_indices", "values", "to_dense"):
        assert getattr(ours, name)().tolist() == getattr(theirs, name)().tolist()
    np.testing.assert_allclose((ours @ ad.ones(3, 2)).numpy(), (theirs @ torch.ones(3, 2)).numpy())
    back = ad.tensor(DENSE, requires_grad=True)
    (ad.eye(3, dtype=ad.float64).to_sparse_csr() @ back).sum().backward()
    assert back.grad.equal(ad.ones_like(back)) and ours.to_sparse().is_sparse
    with pytest.raises(ValueError, match="crow_indices must rise"):
        ad.sparse_csr_tensor([0, 3, 2], [0, 1], [1.0, 2.0])
    with pytest.raises(RuntimeError, match="expected sparse_csr layout"):
        coo(ad).crow_indices()


def test_printing_is_that_of_torch():
    torch = pytest.importorskip("torch")
    for make in (lambda t: t.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)),
                 lambda t: t.eye(2).to_sparse()):
        assert repr(make(ad)).replace("adjoint.", "torch.") == repr(make(torch))


@pytest.mark.parametrize("call, error, text", [
    (lambda: ad.sparse_coo_tensor([[5]], [1.0], (2,)), IndexError, "size is 2 but found index 5"),
    (lambda: ad.sparse_coo_tensor([[-1]], [1.0], (2,)), IndexError, "found index -1"),
    (lambda: ad.sparse_coo_tensor([[0]], [1.0, 2.0], (2,)), RuntimeError, "same nnz"),
    (lambda: ad.sparse_coo_tensor([[0], [0]], [1.0], (2,)), RuntimeError, "sparse_dim = 2"),
    (lambda: ad.sparse_coo_tensor([[0.5]], [1.0], (2,)), ValueError, "must be integers"),
    (lambda: ad.sparse_coo_tensor([0], [1.0], (2,)), ValueError, "sparse_dim x nnz"),
    (lambda: coo(ad) @ ad.ones(4, 2), ValueError, "cannot be multiplied"),
    (lambda: coo(ad) @ ad.ones(3, 2), ValueError, "one dtype"),
    (lambda: coo(ad).exp(), NotImplementedError, "does not take a sparse tensor"),
    (lambda: ad.exp(coo(ad)), NotImplementedError, "does not take a sparse tensor"),
    (lambda: coo(ad).reshape(12), NotImplementedError, "to_dense"),
    (lambda: coo(ad).numpy(), TypeError, "Sparse layout"),
    (lambda: coo(ad) + 1, TypeError, "dense"),
    (lambda: coo(ad).pow(-1), NotImplementedError, "positive"),
    (lambda: coo(ad)[0, :1], NotImplementedError, "integers, None"),
    (lambda: coo(ad)[7], IndexError, "out of bounds"),
    (lambda: ad.ones(2, 2).to_sparse(3), ValueError, "sparse_dim must be"),
])
def test_bad_input_is_refused_in_words(call, error, text):
    with pytest.raises(error, match=text):
        call()


# ------------------------------------------------------------------ compressed columns and blocks
MATRIX = np.array([[1.0, 0, 2, 0], [0, 0, 3, 0], [4, 5, 0, 0], [0, 0, 0, 6]])
COMPRESSED = [("sparse_csr", {}), ("sparse_csc", {}), ("sparse_bsr", {"blocksize": (2, 2)}),
              ("sparse_bsc", {"blocksize": (2, 1)}), ("sparse_bsr", {"blocksize": (1, 4)})]
ROWS, COLUMNS = ("crow_indices", "col_indices"), ("ccol_indices", "row_indices")
PARTS = {"sparse_csr": ROWS, "sparse_bsr": ROWS, "sparse_csc": COLUMNS, "sparse_bsc": COLUMNS}


def laid_out(t, kind, kwargs):
    dense = t.tensor(MATRIX, requires_grad=True)
    return dense, getattr(dense, f"to_{kind}")(**kwargs)


def laid_out_again(x, kind, kwargs):
    return getattr(x, f"to_{kind}")(**kwargs)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("kind, kwargs", COMPRESSED, ids=repr)
def test_compressed_layouts_equal_torch(kind, kwargs):
    torch = pytest.importorskip("torch")
    (x, mine), (y, theirs) = laid_out(ad, kind, kwargs), laid_out(torch, kind, kwargs)
    assert mine.layout is getattr(ad, kind) and mine._nnz() == theirs._nnz()
    for part in (*PARTS[kind], "values"):
        assert getattr(mine, part)().tolist() == getattr(theirs, part)().tolist()
    assert repr(mine.detach().float()).split() == repr(theirs.detach().float()).replace(
        "torch.", "adjoint.").split()
    for got, want in ((mine.t(), theirs.t()), (mine * 2, theirs * 2), (-mine, -theirs),
                      (mine.detach(), theirs.detach()), (mine.double(), theirs.double()),
                      (mine.to_sparse(), theirs.to_sparse()), (mine + mine, theirs + theirs)):
        assert str(got.layout).partition(".")[2] == str(want.layout).partition(".")[2]
        np.testing.assert_array_equal(got.to_dense().detach(), want.to_dense().detach())
        if got.layout is not ad.sparse_coo:
            assert got.values().tolist() == want.values().tolist()
    other = R.normal(size=(4, 3))
    (mine @ ad.tensor(other)).square().sum().backward()
    (theirs.to_dense() @ torch.tensor(other)).square().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy())
    found, = grad(laid_out_again(x, kind, kwargs).values().sum(), x)
    assert found.sum() == np.prod(mine.values().shape)      # also to the zeros inside of blocks
    again = pickle.loads(pickle.dumps(mine.detach()))
    assert again.layout is mine.layout and again.values().tolist() == mine.values().tolist()


@pytest.mark.parametrize("kind, kwargs", COMPRESSED, ids=repr)
def test_compressed_layouts_are_constructed_from_their_parts(kind, kwargs):
    _, s = laid_out(ad, kind, kwargs)
    parts = [getattr(s, p)().tolist() for p in PARTS[kind]]
    values = s.values().detach().requires_grad_()
    for made in (getattr(ad, f"{kind}_tensor")(*parts, values, (4, 4)),
                 ad.sparse_compressed_tensor(*parts, values, layout=getattr(ad, kind))):
        assert made.layout is s.layout and made.values().tolist() == values.tolist()
        np.testing.assert_array_equal(made.to_dense().detach(), MATRIX)
        values.grad = None
        (made @ ad.tensor(R.normal(size=(4, 2)))).sum().backward()
        assert values.grad.shape == values.shape and values.grad.abs().sum() > 0
    leaf = getattr(ad, f"{kind}_tensor")(*parts, values.detach(), (4, 4), requires_grad=True,
                                         dtype=ad.float32)
    leaf.to_dense().sum().backward()
    assert leaf.grad.layout is leaf.layout and leaf.grad.values().tolist() == ad.ones_like(
        values).tolist()


def test_compressed_layouts_refuse():
    with pytest.raises(RuntimeError, match="must be divisible by given blocksize"):
        ad.ones(4, 4).to_sparse_bsr((3, 2))
    with pytest.raises(RuntimeError, match="ccol_indices must rise from 0 to 2"):
        ad.sparse_csc_tensor([0, 3, 2], [0, 1], [1.0, 2.0])
    with pytest.raises(RuntimeError, match="values must have 3 axes"):
        ad.sparse_bsr_tensor([0, 1], [0], [[1.0]])
    with pytest.raises(RuntimeError, match="1 values for 2 row_indices"):
        ad.sparse_csc_tensor([0, 1, 2], [0, 1], [1.0])
    with pytest.raises(RuntimeError, match="3 compressed indices for 3 columns"):
        ad.sparse_csc_tensor([0, 1, 2], [0, 1], [1.0, 2.0], (2, 3))
    with pytest.raises(RuntimeError, match="expected a compressed sparse layout"):
        ad.sparse_compressed_tensor([0, 1], [0], [1.0])
    with pytest.raises(RuntimeError, match=r"call to_sparse_csc\(\)"):
        ad.eye(2).to_sparse_csr().ccol_indices()
    with pytest.raises(IndexError):
        ad.sparse_csc_tensor([0, 1, 2], [0, 5], [1.0, 2.0], (2, 2))


# ------------------------------------------------------------------ embedding tables
INDEX = np.array([[1, 1, 3], [0, 3, 3]])


def test_embedding_gradient_is_sparse_and_equal_to_the_dense_one():
    table = R.normal(size=(6, 2)).astype(np.float32)
    grads = []
    for sparse in (False, True):
        e = ad.nn.Embedding.from_pretrained(ad.tensor(table), freeze=False, padding_idx=0,
                                            sparse=sparse)
        for _ in range(2):
            (e(ad.tensor(INDEX)) ** 2).sum().backward()
        grads.append(e.weight.grad)
    assert grads[1].is_sparse and grads[1]._nnz() == 10 and grads[1].shape == (6, 2)
    np.testing.assert_allclose(grads[1].to_dense().numpy(), grads[0].numpy(), rtol=1e-6)
    w = ad.ones(4, 2, requires_grad=True)
    ad.nn.functional.embedding(ad.tensor([1, 1]), w * 2, sparse=True).sum().backward()
    assert w.grad.tolist() == [[0, 0], [4, 4], [0, 0], [0, 0]]      # only a leaf takes sparse ones
    w.grad = None
    out = ad.nn.functional.embedding(ad.tensor([1]), w, sparse=True).sum() + (w * 3).sum()
    out.backward()
    assert w.grad.tolist() == [[3, 3], [4, 4], [3, 3], [3, 3]]
    e = ad.nn.Embedding(5, 2, sparse=True)
    found, = grad(e(ad.tensor([4])).sum(), e.weight)
    assert found.is_sparse and found.coalesce().indices().tolist() == [[4]]


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_have_sparse_gradients_too(mode):
    table = R.normal(size=(6, 2)).astype(np.float32)
    grads = []
    for sparse in (False, True):
        bag = ad.nn.EmbeddingBag.from_pretrained(ad.tensor(table), freeze=False, mode=mode,
                                                 sparse=sparse, padding_idx=0)
        out = bag(ad.tensor(INDEX.reshape(-1)), ad.tensor([0, 2, 2]))
        (out ** 2).sum().backward()
        grads.append(bag.weight.grad)
    assert grads[1].is_sparse and sorted(set(grads[1]._indices()[0].tolist())) == [1, 3]
    np.testing.assert_allclose(grads[1].to_dense().numpy(), grads[0].numpy(), rtol=1e-6)
    before = bag.weight.detach().clone()
    ad.optim.SparseAdam(bag.parameters(), lr=0.1).step()
    changed = (bag.weight.detach() != before).any(1)
    assert changed.tolist() == [False, True, False, True, False, False]


@pytest.mark.parametrize("name, kwargs", [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("SGD", {"lr": 0.1,
                                                                         "maximize": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.01}), ("SparseAdam", {"lr": 0.1}),
    ("SparseAdam", {"lr": 0.1, "betas": (0.8, 0.9), "maximize": True})])
def test_optimizers_with_sparse_gradients_equal_torch(name, kwargs):
    torch = pytest.importorskip("torch")
    table = R.normal(size=(6, 2)).astype(np.float32)
    batches = [R.integers(0, 6, (2, 3)) for _ in range(5)]
    found = []
    for t in (ad, torch):
        e = t.nn.Embedding.from_pretrained(t.tensor(table.copy()), freeze=False, sparse=True)
        opt = getattr(t.optim, name)(e.parameters(), **kwargs)
        for b in batches:
            opt.zero_grad()
            (e(t.tensor(b)) ** 2).sum().backward()
            assert e.weight.grad.is_sparse
            opt.step()
        found.append(e.weight.detach().numpy().copy())
    np.testing.assert_allclose(found[0], found[1], rtol=2e-5, atol=1e-6)


def test_optimizers_refuse_what_they_cannot_do_before_anything_changes():
    e = ad.nn.Embedding(4, 2, sparse=True)
    before = e.weight.detach().clone()
    e(ad.tensor([1])).sum().backward()
    for opt, text in ((ad.optim.Adam(e.parameters()), "does not support sparse gradients"),
                      (ad.optim.SGD(e.parameters(), weight_decay=0.1), "not compatible"),
                      (ad.optim.Adagrad(e.parameters(), weight_decay=0.1), "not compatible")):
        with pytest.raises((RuntimeError, NotImplementedError), match=text):
            opt.step()
        assert e.weight.detach().equal(before)
    e.weight.grad = ad.ones(4, 2)
    with pytest.raises(RuntimeError, match="does not support dense gradients"):
        ad.optim.SparseAdam(e.parameters()).step()
    with pytest.raises(ValueError, match="Invalid learning rate"):
        ad.optim.SparseAdam(e.parameters(), lr=0.0)


def test_grad_scaler_unscales_sparse_gradients():
    e = ad.nn.Embedding(4, 2, sparse=True)
    opt, scaler = ad.optim.SGD(e.parameters(), lr=1.0), ad.amp.GradScaler()
    before = e.weight.detach().clone()
    scaler.scale(e(ad.tensor([1, 1])).sum()).backward()
    scaler.unscale_(opt)
    assert e.weight.grad.to_dense()[1].tolist() == [2.0, 2.0]
    scaler.step(opt)
    scaler.update()
    np.testing.assert_allclose((before - e.weight.detach())[1].numpy(), [2.0, 2.0], rtol=1e-5)


def test_graph_convolution_trains():
    ad.manual_seed(0)
    n = 12
    edges = np.array([[i, (i + 1) % n] for i in range(n)] + [[i, i] for i in range(n)])
    both = np.concatenate([edges, edges[:, ::-1]]).T
    adjacency = ad.sparse_coo_tensor(both, np.full(both.shape[1], 0.3, np.float32), (n, n))
    adjacency = adjacency.coalesce()
    x, y = ad.randn(n, 4), ad.tensor([0, 1] * (n // 2))
    first, second = ad.nn.Linear(4, 16), ad.nn.Linear(16, 2)
    opt = ad.optim.Adam([*first.parameters(), *second.parameters()], lr=0.05)
    losses = []
    for _ in range(60):
        opt.zero_grad()
        out = ad.spmm(adjacency, second(ad.spmm(adjacency, first(x)).relu()))
        loss = ad.nn.functional.cross_entropy(out + second(first(x).relu()), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_zeros_are_made_in_the_layout_asked_for(layout: str) -> None:
    kind = getattr(ad, layout)
    like = ad.ones(2, 3)
    for made in (ad.zeros(2, 3, layout=kind), ad.empty((2, 3), layout=kind),
                 ad.zeros_like(like, layout=kind), like.new_zeros(2, 3, layout=kind)):
        assert made.layout is kind and tuple(made.shape) == (2, 3) and made.dtype is ad.float32
        assert made.values().numel() == 0 and made.to_dense().tolist() == [[0] * 3] * 2
    made = ad.zeros(2, 3, layout=kind, dtype=ad.float64, requires_grad=True)
    assert made.requires_grad and made.dtype is ad.float64
    with pytest.raises(RuntimeError, match="not implemented for sparse layout"):
        ad.ones(2, 3, layout=kind)
    assert ad.zeros(2, layout=ad.strided).layout is ad.strided


def test_sparse_parameters_are_refused_by_sparse_adam() -> None:
    with pytest.raises(ValueError, match="requires dense parameter tensors"):
        ad.optim.SparseAdam([ad.zeros(3, layout=ad.sparse_coo)])


@pytest.mark.parametrize("act", [
    lambda s: s.index_select(1, ad.tensor([2, 0, 2])), lambda s: s.select(1, 2),
    lambda s: s.unsqueeze(1), lambda s: s.permute(1, 0)])
def test_moves_have_the_values_and_gradients_of_the_dense_tensor(act):
    dense = ad.tensor([[0.0, 2.0, 3.0], [4.0, 0.0, 5.0]], requires_grad=True)
    weight = ad.arange(1.0, 1.0 + act(dense).numel()).reshape(act(dense).shape)
    moved = act(dense.to_sparse()).to_dense()
    (got,) = ad.autograd.grad((moved * weight).sum(), dense)
    (want,) = ad.autograd.grad((act(dense) * weight).sum(), dense)
    assert (moved == act(dense)).all()
    assert (got == want * (dense != 0)).all()
