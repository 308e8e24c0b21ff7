"""`out=` is never passed over in silence: whoever takes it writes there and gives it back (F17)."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.ops.public import FUNCTIONS

CALLS: dict[str, Callable[..., Any]] = {
    "zeros": lambda **k: ad.zeros(2, 3, **k),
    "ones": lambda **k: ad.ones(2, 3, **k),
    "full": lambda **k: ad.full((2, 3), 2.5, **k),
    "arange": lambda **k: ad.arange(0.0, 6.0, **k),
    "linspace": lambda **k: ad.linspace(0, 1, 5, **k),
    "logspace": lambda **k: ad.logspace(0, 1, 5, **k),
    "eye": lambda **k: ad.eye(2, 3, **k),
    "sinc": lambda **k: ad.sinc(ad.ones(3) / 2, **k),
    "nan_to_num": lambda **k: ad.nan_to_num(ad.tensor([1.0, float("nan")]), **k),
    "heaviside": lambda **k: ad.heaviside(ad.tensor([-1.0, 0.0]), ad.tensor(0.5), **k),
    "logaddexp2": lambda **k: ad.logaddexp2(ad.ones(2), ad.ones(2), **k),
    "polygamma": lambda **k: ad.polygamma(1, ad.ones(2), **k),
    "quantile": lambda **k: ad.quantile(ad.arange(5.0), 0.3, **k),
    "frexp": lambda **k: ad.frexp(ad.tensor([6.0]), **k),
}


@pytest.mark.row("F17")
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized",
                            "ignore:The number of elements in the out tensor")
@pytest.mark.parametrize("name", sorted(set(CALLS) - {"frexp"}))
def test_out_takes_the_result(name: str) -> None:
    """Resized where it must be, and the same object comes back."""
    want = CALLS[name]()
    out = ad.full((1,), 7.0)
    assert CALLS[name](out=out) is out
    np.testing.assert_array_equal(out.numpy(), want.numpy())


def test_several_results() -> None:
    """A tuple of tensors takes a tuple of results."""
    out = (ad.empty(1), ad.empty(1, dtype=ad.int32))
    made = CALLS["frexp"](out=out)
    assert made.mantissa is out[0] and made.exponent is out[1]
    assert (out[0].item(), out[1].item()) == (0.75, 3)


def test_random_functions_write_there_too() -> None:
    """From the same seed, the numbers that they give without `out`."""
    for call in (lambda **k: ad.randperm(5, **k), lambda **k: ad.randint(0, 9, (4,), **k)):
        ad.manual_seed(3)
        want, out = call(), ad.empty(0, dtype=ad.int64)
        ad.manual_seed(3)
        assert call(out=out) is out
        assert out.tolist() == want.tolist()


def test_no_function_ignores_it() -> None:
    """Read off the sources: a function with a parameter `out` uses it."""
    spaces = [FUNCTIONS, *({k: getattr(m, k) for k in m.__all__} for m in (ad.linalg, ad.fft))]
    seen, silent = 0, []
    for space in spaces:
        for name, f in space.items():
            try:
                if "out" not in inspect.signature(f).parameters:
                    continue
                source = textwrap.dedent(inspect.getsource(f))
            except (TypeError, ValueError, OSError):
                continue
            tree = ast.parse(source)
            body = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda))
            inside = body.body if isinstance(body.body, list) else [body.body]
            seen += 1
            if not any(isinstance(n, ast.Name) and n.id == "out"
                       for statement in inside for n in ast.walk(statement)):
                silent.append(name)
    assert seen > 150
    assert not silent


def test_lu_writes_into_out_and_avg_pool1d_has_none() -> None:
    """As in PyTorch: a tuple of as many tensors as there are results."""
    a = ad.tensor([[1.0, 2.0], [3.0, 4.0]])
    for infos in (False, True):
        want = ad.lu(a, get_infos=infos)
        out = tuple(ad.empty(0, dtype=w.dtype) for w in want)
        found = ad.lu(a, get_infos=infos, out=out)
        assert all(f is o and ad.equal(o, w) for f, o, w in zip(found, out, want, strict=True))
    with pytest.raises(TypeError, match="^expected tuple of 2 elements but got 3$"):
        ad.lu(a, out=out)
    for more in ("out", "divisor_override"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{more}'"):
            ad.nn.functional.avg_pool1d(ad.ones(1, 1, 4), 2, **{more: None})


@pytest.mark.parametrize("name, args", [
    ("gelu", ()), ("softplus", (2.0,)), ("logsigmoid", ()), ("hardshrink", ()), ("softshrink", ()),
    ("linear", (ad.ones(3, 4),)), ("avg_pool2d", (2,)), ("avg_pool3d", ((1, 2, 2),))])
def test_functions_of_nn_write_into_out(name: str, args: Any) -> None:
    f = getattr(ad.nn.functional, name)
    x = ad.arange(-32.0, 32.0).reshape(1, 2, 2, 4, 4)[:, 0 if name == "avg_pool2d" else slice(None)]
    out = ad.empty(0)
    assert f(x, *args, out=out) is out and ad.equal(out, f(x, *args))
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        f(x.requires_grad_(), *args, out=out)


# expression with `o`, of float64, and the first words of the error; x is (2, 3) of float32
EXACT = """
t.diag(sq, out=o) | Expected out tensor to have dtype float, but got double instead
t.mm(sq, sq, out=o) | Expected out tensor to have dtype float, but got double instead
t.gather(x, 1, i, out=o) | Expected out tensor to have dtype float, but got double instead
t.softmax(x, 0, out=o) | Expected out tensor to have dtype float, but got double instead
t.linalg.inv(sq, out=o) | Expected out tensor to have dtype float, but got double instead
t.argmax(x, out=o) | Expected out tensor to have dtype long int, but got double instead
t.max(x, 1, out=(o, i)) | Expected out tensor to have dtype float, but got double instead
t.sort(x, out=(x.clone(), o)) | Expected out tensor to have dtype long int, but got double instead
t.abs(x, out=o) | Found dtype Double but expected Float
t.round(x, out=o) | Found dtype Double but expected Float
t.where(x > 0, x, x, out=o) | Expected out type to be Float but got Double
t.zeros(2, dtype=t.float32, out=o) | dtype Float does not match dtype of out parameter (Double)
t.arange(2, dtype=t.int64, out=o) | dtype Long does not match dtype of out parameter (Double)
t.randperm(2, dtype=t.int64, out=o) | dtype Long does not match dtype of out parameter (Double)
t.randn(2, dtype=t.float32, out=o) | dtype Float does not match dtype of out parameter (Double)
t.amax(x, 1, out=o) | Expected the dtype for input and out to match, but got Float for input's dtype
t.signbit(x, out=o) | signbit does not support non-boolean outputs.
t.isposinf(x, out=o) | isposinf does not support non-boolean outputs.
t.take(x, i[0], out=o) | take(): self and out expected to have the same dtype, but got self
t.quantile(x, 0.5, out=o) | quantile() out tensor must be same dtype as the input tensor
t.nan_to_num(x, out=o) | nan_to_num: dtype of out: Double should be same as input: Float
"""
ROWS = [tuple(part.strip() for part in line.split(" | ")) for line in EXACT.strip().splitlines()]


@pytest.mark.parametrize("expression, words", ROWS, ids=[row[0] for row in ROWS])
def test_the_dtype_of_out_is_exact_where_it_is_written_to(expression: str, words: str) -> None:
    """Functions that compute in the dtype of their result convert nothing; RuntimeError."""
    torch = pytest.importorskip("torch")
    for t in (torch, ad):
        space = {"t": t, "x": t.ones(2, 3), "sq": t.eye(3), "i": t.zeros(2, 3, dtype=t.int64),
                 "o": t.empty(0, dtype=t.float64)}
        with pytest.raises(RuntimeError) as found:
            eval(expression, space)  # noqa: S307  # our own table
        assert str(found.value).startswith(words)


@pytest.mark.parametrize("name, args", [
    ("zeros", (2,)), ("ones", (2,)), ("empty", (2,)), ("full", ((2,), 1.0)), ("arange", (3,)),
    ("linspace", (0, 1, 3)), ("logspace", (0, 1, 3)), ("eye", (2,)), ("randn", (2,)),
    ("rand", (2,)), ("randperm", (3,)), ("randint", (3, (2,)))])
def test_what_makes_tensors_takes_the_dtype_of_out(name: str, args: Any) -> None:
    """And computes in it: a third in float64 has its 16 digits."""
    out = ad.empty(0, dtype=ad.float64)
    assert getattr(ad, name)(*args, out=out) is out and out.dtype is ad.float64
    assert ad.linspace(0, 1, 4, out=out.resize_(4))[1].item() == 1 / 3


F64_OUT: dict[str, Callable[..., Any]] = {  # operands float32, `out` float64, the words
    "the output given to float_power": lambda x, i, o: ad.float_power(x, x, out=o.float()),
    "Expected object of scalar type ComplexFloat": lambda x, i, o: ad.complex(
        x, x, out=o.to(ad.complex128)),
    "heaviside is not yet implemented": lambda x, i, o: ad.heaviside(x, x, out=o),
    "Found dtype Double but expected Float": lambda x, i, o: ad.lerp(x, x, x, out=o),
    "Expected out tensor to have dtype float": lambda x, i, o: ad.index_add(x, 0, i, x, out=o),
    "torch.searchsorted": lambda x, i, o: ad.searchsorted(x, x, out=o),
    "nonzero: Expected out tensor": lambda x, i, o: ad.nonzero(x, out=o),
    "any only supports bool tensor": lambda x, i, o: ad.any(x, 0, out=o),
    "\"std_cpu\" not implemented for 'ComplexDouble'": lambda x, i, o: ad.std(
        ad.ones(2, 3), 0, out=o.to(ad.complex128)),
    "nansum: provided dtype must match": lambda x, i, o: ad.nansum(x, dtype=ad.float32, out=o),
    "tensordot: Expected the output": lambda x, i, o: ad.inner(x, x, out=o),
}


@pytest.mark.parametrize("words", list(F64_OUT))
def test_an_out_of_another_dtype_is_refused_where_pytorch_does(words: str) -> None:
    """F17: functions that compute into `out` itself take the dtype of the answer alone."""
    with pytest.raises(RuntimeError, match=words):
        F64_OUT[words](ad.ones(3), ad.tensor([0, 1, 2]), ad.zeros(3, dtype=ad.float64))


def test_cumulative_functions_compute_in_the_dtype_of_out() -> None:
    """F17: 1.6 + 2.2 + 0.3 summed in whole numbers, as PyTorch does."""
    out = ad.zeros(3, dtype=ad.int64)
    assert ad.cumsum(ad.tensor([1.6, 2.2, 0.3]), 0, out=out).tolist() == [1, 3, 3]


def test_an_empty_out_that_grows_does_not_overlap() -> None:
    """F17: no element of an empty tensor lies where another does."""
    out = ad.zeros(0, 2, 1)
    assert ad.gather(ad.zeros(0), 0, ad.zeros(0, dtype=ad.int64), out=out) is out
    assert out.shape == (0,)


COPIES: dict[str, Callable[..., Any]] = {
    "expand": lambda x: ad.expand_copy(x[:, :1], (3, 4)), "t": lambda x: ad.t_copy(x),
    "transpose": lambda x: ad.transpose_copy(x, 0, 1), "permute": lambda x: ad.permute_copy(
        x, (1, 0)), "diagonal": lambda x: ad.diagonal_copy(x), "unfold": lambda x: ad.unfold_copy(
        x, 0, 2, 1), "as_strided": lambda x: ad.as_strided_copy(x, (2, 2), (1, 2)),
    "ravel": lambda x: ad.ravel(x[:, 1]), "diff": lambda x: ad.diff(x, 0),
    "index_select": lambda x: ad.index_select(x[0, 0], 0, ad.tensor([0])),
    "shuffle": lambda x: ad.nn.functional.pixel_shuffle(x[None], 1),
    "unshuffle": lambda x: ad.nn.functional.pixel_unshuffle(x[None], 1)}


@pytest.mark.parametrize("name", COPIES)
def test_copies_lie_in_order_in_memory_of_their_own(name: str) -> None:
    """F17: what PyTorch copies does not show the operand, and its elements follow each other."""
    x = ad.arange(12.0).reshape(3, 4)
    out = COPIES[name](x)
    assert out.is_contiguous()
    before = x.clone()
    out.fill_(-1.0)
    assert ad.equal(x, before)


def test_sums_of_small_integers_keep_their_dtype() -> None:
    """F15: products over a batch and bilinear forms of bytes are bytes."""
    b = ad.ones(2, 2, 2, dtype=ad.int8)
    assert ad.addbmm(b[0], b, b).dtype is ad.int8
    assert ad.addbmm(b[0], b, b).tolist() == [[5, 5], [5, 5]]
    out = ad.nn.functional.bilinear(b[0], b[0], b)
    assert out.dtype is ad.int8 and out.tolist() == [[4, 4], [4, 4]]
