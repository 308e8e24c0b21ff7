"""Errors begin with PyTorch's words, so that programs and people that know those find them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import adjoint as ad

torch = pytest.importorskip("torch")
WORDS = 6


def _leaf(t: Any) -> Any:
    return t.ones(3, requires_grad=True)


def _linear(x: Any, *rest: Any) -> Any:
    return (x * 2).sum()


def _constant(t: Any) -> Callable[..., Any]:
    return lambda *xs: t.ones(())


def _number_as_gradient(t: Any) -> Any:
    class Bad(t.autograd.Function):  # type: ignore[misc, name-defined]  # of either library
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return 3
    return Bad.apply(_leaf(t)).sum().backward()


def _assign_gradient(t: Any, grad: Any) -> None:
    _leaf(t).grad = grad


AUTOGRAD: dict[str, Callable[[Any], Any]] = {
    "an unused input": lambda t: t.autograd.grad(_leaf(t).sum(), _leaf(t)),
    "no gradient wanted": lambda t: t.autograd.grad(_leaf(t).sum(), t.ones(2)),
    "integers": lambda t: t.ones(3, dtype=t.int64).requires_grad_(),
    "new integers": lambda t: t.ones(3, dtype=t.int64, requires_grad=True),
    "integers from a list": lambda t: t.tensor([1, 2], requires_grad=True),
    "a setter": lambda t: setattr(t.ones(3, dtype=t.int64), "requires_grad", True),
    "detach_ of a view": lambda t: (_leaf(t) * 2)[0].detach_(),
    "detach_ of a plain view": lambda t: t.ones(3)[:2].detach_(),
    "a shape": lambda t: _assign_gradient(t, t.ones(4)),
    "a dtype": lambda t: _assign_gradient(t, t.ones(3, dtype=t.float64)),
    "no tensor": lambda t: _assign_gradient(t, 3),
    "a cotangent": lambda t: (_leaf(t) * 2).backward(t.ones(4)),
    "no cotangent": lambda t: (_leaf(t) * 2).backward(),
    "a number": _number_as_gradient,
}
FUNCTIONAL: dict[str, Callable[[Any, Any], Any]] = {
    "v missing": lambda t, f: f.vhp(_linear, t.ones(2)),
    "v missing, outputs": lambda t, f: f.vjp(lambda x: x, t.ones(2)),
    "v of another size": lambda t, f: f.jvp(lambda x: x, t.ones(2), t.ones(3)),
    "an entry of another size": lambda t, f: f.vjp(lambda x: (x, x), t.ones(2),
                                                   (t.ones(2), t.ones(3))),
    "too few": lambda t, f: f.vjp(lambda x: (x, x), t.ones(2), t.ones(2)),
    "too many": lambda t, f: f.vjp(lambda x: x, t.ones(2), (t.ones(2), t.ones(2))),
    "v a number": lambda t, f: f.jvp(lambda x: x, t.ones(2), 3),
    "an input a number": lambda t, f: f.jacobian(_linear, (t.ones(2), 3)),
    "the input a number": lambda t, f: f.vhp(_linear, 3, t.ones(2)),
    "the output a number": lambda t, f: f.jacobian(lambda x: 3, t.ones(2)),
    "several elements": lambda t, f: f.hvp(lambda x: x, t.ones(2), t.ones(2)),
    "several outputs": lambda t, f: f.hessian(lambda x: (x.sum(), x.sum()), t.ones(2)),
    "strict and vectorized": lambda t, f: f.jacobian(_linear, t.ones(2), strict=True,
                                                     vectorize=True),
}


def words(call: Callable[[], Any]) -> tuple[type[BaseException], list[str]]:
    """The class of the error that a call raises, and its words."""
    with pytest.raises(Exception) as caught:
        call()
    return caught.type, str(caught.value).replace("adjoint.Size", "torch.Size").split()


def agree(ours: Callable[[], Any], theirs: Callable[[], Any], n: int = WORDS) -> None:
    """Both raise, ours a subclass of theirs, with the same first words."""
    kind, text = words(ours)
    want, expected = words(theirs)
    assert issubclass(kind, want)
    assert text[:n] == expected[:n]


@pytest.mark.parametrize("name", AUTOGRAD)
def test_autograd(name: str) -> None:
    agree(lambda: AUTOGRAD[name](ad), lambda: AUTOGRAD[name](torch))


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_functional(name: str) -> None:
    call = FUNCTIONAL[name]
    agree(lambda: call(ad, ad.autograd.functional), lambda: call(torch, torch.autograd.functional))


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("two", [False, True], ids=["one", "two"])
@pytest.mark.parametrize("kind", ["constant", "linear", "square"])
@pytest.mark.parametrize("name", ["jacobian", "hessian", "vjp", "jvp", "vhp", "hvp"])
def test_strict(name: str, kind: str, two: bool, create_graph: bool) -> None:
    """strict=True refuses what PyTorch refuses, with its whole first sentence."""
    def call(t: Any) -> Any:
        f = {"constant": _constant(t), "linear": _linear,
             "square": lambda x, *rest: (x * x).sum()}[kind]
        x = (t.ones(2), t.ones(2)) if two else t.ones(2)
        v = () if name in ("jacobian", "hessian") else (t.tensor(1.0) if name == "vjp" else x,)
        return getattr(t.autograd.functional, name)(f, x, *v, strict=True,
                                                    create_graph=create_graph)
    try:
        want = call(torch)
    except RuntimeError:
        agree(lambda: call(ad), lambda: call(torch), 18)
        return
    got = call(ad)
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
    for ours, theirs in pairs:
        assert ours.tolist() == theirs.tolist()


_ROW = [1.0, 2.0, 3.0]
BAD_CALLS = {                     # over t (the library), F (its functional), x (3,) and m (2, 3)
    "F.conv1d(m[None], t.ones(1, 2, 2), stride=-1)": "non-positive stride is not supported",
    "F.conv1d(m[None], t.ones(1, 2, 2), padding=-1)": "negative padding is not supported",
    "F.conv1d(m[None], t.ones(1, 2, 2), dilation=-1)": "dilation should be greater than zero",
    "F.conv1d(m[None], t.ones(1, 2))": "weight should have at least three dimensions",
    "F.conv1d(m[None], t.ones(2, 2, 2), groups=3)": "expected weight to be at least 3 at dimension",
    "F.conv1d(m[None], t.ones(1, 2, 2), padding='same', groups=0)":
        "non-positive groups is not supported",
    "F.max_pool1d(m, 0)": "kernel_size must be greater than zero",
    "F.max_pool1d(m, 1, stride=0)": "stride must be greater than zero, but got 0",
    "F.rms_norm(m, ())": "Expected normalized_shape to be at least 1-dimensional",
    "F.rms_norm(m, (3,), t.ones(2))": "Expected weight to be of same shape as normalized_shape",
    "F.linear_cross_entropy(m, t.ones(4), t.tensor([0, 1]))":
        "expected linear_weight with dimensionality at least 2, got 1",
    "F.linear_cross_entropy(m, t.ones(2, 4), t.tensor([0, 1]))":
        "expected equal input and linear_weight last dimensions (in_features), got 3 and 4",
    "F.linear_cross_entropy(m, t.ones(2, 3), t.tensor([0, 1]), linear_bias=x)":
        "expected linear_bias shape (2,), got (3,)",
    "F.multi_margin_loss(m, t.ones(2))": "expected scalar type Long but found Float",
    "F.multi_margin_loss(m, t.tensor([0, 1]), weight=m)": "weight must be one-dimensional",
    "F.triplet_margin_with_distance_loss(m, x, m)":
        "The anchor, positive, and negative tensors are expected to have the same number of",
    "t.movedim(m, (0, 0), (1, 0))": "movedim: repeated dim in `source` ([0, 0])",
    "t.movedim(m, (0, 1), (1,))": "movedim: Invalid source or destination dims: source ([0, 1]",
    "t.movedim(m, -6, 0)": "Dimension out of range (expected to be in range of [-2, 1]",
    "t.take(x, t.tensor([0, 1, 2]), out=x)": "unsupported operation: some elements of the input",
    "t.take(x, t.tensor([0, 1]), out=t.ones(1).expand(2))":
        "unsupported operation: more than one element of the written-to tensor refers",
    "t.cat([m, m], out=m)": "unsupported operation: ",
    "t.eq(2, x)": "eq()",
    "t.fmod(2, x)": "fmod()",
    "t.gcd(t.tensor([4]), 2)": "gcd(): argument 'other' (position 2) must be Tensor, not int",
    "t.multinomial(x, 1, out=t.ones(1))": "multinomial expects Long tensor out",
    "t.multinomial(-x, 2, True)": "(encountering probability entry < 0)",
    "t.multinomial(x / 0, 2, True)": "(encountering probability entry = infinity or NaN)",
    "t.multinomial(-x, 2)": "probability tensor contains either `inf`, `nan` or element < 0",
    "t.multinomial(x, 4)": "cannot sample n_sample > prob_dist.size(-1) samples",
    "t.rsub(2, x)": "rsub()",
    "t.pow(2, 3)": "pow()",
    "t.float_power(2, 3)": "float_power()",
    "t.remainder(2, 3)": "remainder()",
    "t.clamp_min(2, x)": "clamp_min()",
    "t.clamp(x > 1, max=True)": "\"clamp_max_scalar_cpu\" not implemented for",
    "t.tensor([1j]).abs_()": "In-place abs is not supported for complex tensors",
    "x.float_power_(2)": "the base given to float_power_ has dtype Float but the operation's",
    "t.tensor([True]).igamma_(x[:1])": "result type Float can't be cast to the desired output type",
    "t.ldexp(x, t.tensor(True))": "\"ldexp_cpu_exp\" not implemented for 'Bool'",
    "t.polar(x, t.tensor([1, 2, 3]))": "but got Float and Long",
    "t.polar(x, x.double())": "Expected object of scalar type Float but got scalar type Double",
    "t.arange(0, 64, 0.5, out=t.tensor([1]))": "step must be nonzero",
    "t.linspace(x, 2, 3)": "only supports 0-dimensional start and end tensors, but got start with",
    "t.dot(m, x)": "1D tensors expected",
    "t.cov(x, fweights=m)": "expected fweights to have one or fewer dimensions",
    "t.fft.fft(x[0])": "Dimension specified as -1 but tensor has no dimensions",
    "t.cat([x, None])": "expected Tensor as element 1 in argument 0, but got NoneType",
    "t.as_strided(x, (2,), (5,))": "and itemsize 4 requiring a storage size of 24 are out of",
    "t.native_layer_norm(m, (), None, None, 1e-5)": "Expected normalized_shape to be at least 1-",
    "t.ormqr(m, x, m)": "tau.shape[-1] must be equal to min(other.shape[-2], input.shape[-1])",
    "F.adaptive_avg_pool2d(m[None], ())": "output_size must be 2",
    "F.gaussian_nll_loss(x, x, x, reduction='abc')": "abc is not valid",
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("row", BAD_CALLS)
def test_bad_calls_have_pytorchs_words(row: str) -> None:
    """F15: the words, and the class that PyTorch raises."""
    caught = []
    for t in (torch, ad):
        names = {"t": t, "F": t.nn.functional, "x": t.tensor(_ROW), "m": t.tensor([_ROW, _ROW])}
        with pytest.raises((RuntimeError, ValueError, IndexError, TypeError)) as error:
            eval(row, names)
        caught.append(error.value)
    for error_ in caught:
        assert BAD_CALLS[row] in str(error_), error_
    kinds = [k for k in (ValueError, IndexError, TypeError) if isinstance(caught[0], k)]
    assert isinstance(caught[1], kinds[0] if kinds else RuntimeError)
