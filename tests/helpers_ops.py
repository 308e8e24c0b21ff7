"""Values, gradients and second derivatives of one call, ours against PyTorch's, in float64."""
import warnings

import numpy as np

import adjoint as ad
import adjoint.fft  # noqa: F401
import adjoint.linalg  # noqa: F401
import adjoint.nn.functional as F

rng = np.random.default_rng(0)


def R(*shape):
    """Normal numbers."""
    return np.asarray(rng.standard_normal(shape))


def ints(high, *shape):
    """Integers below `high`."""
    return rng.integers(0, high, shape)


class Case:
    def __init__(self, name, call, arrays, tol=1e-9, second=True):
        self.name, self.call, self.arrays = name, call, arrays
        self.tol, self.second = tol, second

    def __repr__(self):
        return self.name


class Cases(list):
    """`cases(name, lambda T, F, *tensors: ..., *arrays)`: T and F are torch's or ours."""

    def __call__(self, name, call, *arrays, **options):
        self.append(Case(name, call, arrays, **options))


def _close(ours, theirs, tol, what):
    a = ours.detach().numpy() if hasattr(ours, "detach") else np.asarray(ours)
    b = theirs.detach().numpy()
    assert a.shape == b.shape, f"{what}: {a.shape} is not {b.shape}"
    assert a.dtype == b.dtype, f"{what}: {a.dtype} is not {b.dtype}"
    scale = max(1.0, float(np.abs(b).max(initial=0.0))) if b.dtype.kind != "b" else 1
    np.testing.assert_allclose(a, b, rtol=tol, atol=tol * scale, err_msg=what)


def compare(case):
    """Run a case on both and compare everything."""
    import torch
    import torch.nn.functional as TF
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _compare(case, torch, TF)


def _compare(case, torch, TF):
    xs = [ad.tensor(a, requires_grad=a.dtype.kind == "f") for a in case.arrays]
    ts = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in case.arrays]
    ours, theirs = case.call(ad, F, *xs), case.call(torch, TF, *ts)
    _close(ours, theirs, case.tol, "value")
    assert ours.requires_grad == theirs.requires_grad
    if not theirs.requires_grad:
        return
    ct = rng.standard_normal(tuple(theirs.shape))
    mine, his = [x for x in xs if x.requires_grad], [t for t in ts if t.requires_grad]
    plain = ad.autograd.grad(case.call(ad, F, *xs), mine, ad.tensor(ct), allow_unused=True)
    want = torch.autograd.grad(theirs, his, torch.tensor(ct), create_graph=case.second,
                               allow_unused=True)
    graph = ad.autograd.grad(ours, mine, ad.tensor(ct), create_graph=True, allow_unused=True)
    for p, q, w in zip(plain, graph, want, strict=True):
        if w is not None and not w._is_zerotensor():
            _close(p, w, case.tol, "gradient")
            _close(q, w, case.tol, "gradient with a graph")
    if case.second:
        _second_order(graph, want, mine, his, torch)


def _second_order(graph, want, mine, his, torch):
    ours = [(g * g).sum() for g in graph if g is not None and g.requires_grad]
    theirs = [(g * g).sum() for g in want if g is not None and g.requires_grad]
    if not ours or not theirs:
        return
    a = ad.autograd.grad(sum(ours[1:], ours[0]), mine, allow_unused=True)
    b = torch.autograd.grad(sum(theirs[1:], theirs[0]), his, allow_unused=True)
    for p, q in zip(a, b, strict=True):
        if q is not None and not q._is_zerotensor():
            zero = np.zeros(tuple(q.shape))
            _close(zero if p is None else p, q, 1e-7, "second derivative")
