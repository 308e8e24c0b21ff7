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
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
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
