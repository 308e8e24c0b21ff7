"""What mistaken arguments of public functions lead to: an error of our tree that is also the
builtin which a caller would catch, with the function, the arguments and what it takes."""
from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint.base.errors import (
    AdjointError,
    ArgumentError,
    DTypeError,
    IndexOutOfRange,
    ShapeError,
)

X = ad.arange(6.0).reshape(2, 3)
WRONG: dict[str, Any] = {
    "text": "abc", "None": None, "list": [1, 2], "ragged": [[1, 2], [3]], "object": object(),
    "dict": {}, "array": np.ones((2, 3)), "objects": np.array([object()]), "nan": float("nan"),
    "type": int, "dtype": ad.float32, "function": len, "huge": 10**30, "bytes": b"x"}
# Asked for a size, it would compute as long as its argument is large.
LONG = {("mvlgamma", "huge"), ("mvlgamma_", "huge"), ("matrix_power", "huge")}
# What is done with the object that is given: by itself, or as what it stands for.
OWN = {"apply_", "map_", "register_hook", "register_post_accumulate_grad_hook", "reinforce"}


def refused(call: Any) -> Exception | None:
    """What the call raises; TypeErrors with which Python refuses the call itself do not count."""
    try:
        call()
    except AdjointError as error:
        return error
    except Exception as error:
        tb = error.__traceback__
        inside = tb is not None and tb.tb_next is not None and tb.tb_next.tb_next is not None
        said = str(error)
        if isinstance(error, TypeError) and (not inside or "positional argument" in said
                                             or "unexpected keyword" in said
                                             or "multiple values" in said):
            return None
        return error
    return None


METHODS = sorted(n for n in ad.ops.public.METHODS if not n.startswith("__") and n not in OWN)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", METHODS)
def test_methods_of_one_mistaken_argument(name: str) -> None:
    for label, value in WRONG.items():
        if (name, label) in LONG:
            continue
        error = refused(lambda v=value: getattr(X.clone(), name)(v))
        assert error is None or isinstance(error, AdjointError), (label, repr(error))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", METHODS)
def test_methods_of_two_mistaken_arguments(name: str) -> None:
    labels = list(WRONG)
    for i, label in enumerate(labels):
        other = WRONG[labels[(i + len(name)) % len(labels)]]
        if (name, label) in LONG:
            continue
        error = refused(lambda v=WRONG[label], o=other: getattr(X.clone(), name)(v, o))
        assert error is None or isinstance(error, AdjointError), (label, repr(error))


def test_it_is_said_what_was_called_and_what_is_taken() -> None:
    with pytest.raises(DTypeError) as caught:
        X.narrow(0, (), 1)
    said = str(caught.value)
    assert said.startswith("narrow(): ") and said.endswith(
        "called with (Tensor float32 [2, 3], int 0, tuple, int 1) where "
        "(input, dim, start, length) are taken")
    assert type(caught.value.__cause__) is TypeError        # what went wrong inside is kept


def test_errors_of_callbacks_pass_unchanged() -> None:
    for error in (ValueError("mine"), KeyError("mine"), TypeError("mine"), AttributeError("mine")):
        def fails(v: float, error: Exception = error) -> float:
            raise error
        with pytest.raises(type(error)) as caught:
            X.clone().apply_(fails)
        assert caught.value is error


@pytest.mark.parametrize(("call", "kind"), [
    (lambda: X.size(5), IndexOutOfRange), (lambda: X.stride(5), IndexOutOfRange),
    (lambda: X.size("a"), DTypeError), (lambda: len(ad.tensor(1.0)), DTypeError),
    (lambda: range(X), DTypeError),  # type: ignore[call-overload]  # the mistake
    (lambda: ad.zeros_like(3), DTypeError), (lambda: ad.detach(3), DTypeError),
    (lambda: ad.Generator([]), ArgumentError), (lambda: X.new(10**30), ShapeError),
    (lambda: X.uniform_("a"), DTypeError), (lambda: X.normal_(generator="a"), DTypeError),
    (lambda: X.sum(dtype=b"x"), DTypeError), (lambda: X.max(0, out=3), DTypeError),
    (lambda: X.contiguous(memory_format=3), DTypeError), (lambda: X.clamp_(X.numpy()), DTypeError),
])
def test_what_was_a_bare_error_of_the_insides(call: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        call()


FUNCTIONS = sorted(n for n in F.__all__ if not isinstance(getattr(F, n), type))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_layers(name: str) -> None:
    labels = list(WRONG)
    for i, label in enumerate(labels):
        other = WRONG[labels[(i + len(name)) % len(labels)]]
        for args in ((WRONG[label],), (X, WRONG[label]), (X, X, WRONG[label]),
                     (X[None, None], WRONG[label], other)):
            own = [a.clone() if isinstance(a, ad.Tensor) else a for a in args]
            error = refused(lambda a=own: getattr(F, name)(*a))
            assert error is None or isinstance(error, (AdjointError, NotImplementedError)), (
                label, repr(error))


def test_a_difference_of_an_order_above_the_size_is_empty() -> None:
    assert ad.diff(X, 10**30).shape == (2, 0)


def test_a_product_of_dense_matrices_under_the_name_of_sparse_ones() -> None:
    assert ad.equal(ad.spmm(X, X.t()), X @ X.t())


@pytest.mark.parametrize("name", [n for n in dir(ad) if n in ad.ops.public.FUNCTIONS and n in (
    "argsort sort clone flip stack cat index_select take roll tile repeat_interleave tril where "
    "cumsum cummax topk gather ravel").split()])
@pytest.mark.filterwarnings("ignore")
def test_arrays_of_objects_keep_their_objects(name: str) -> None:
    """Kernels move words: what is in such an array is refused before one counts no reference."""
    thing = object()
    held = [thing] * 1000
    for shape in ((1,), (3,), (70, 70)):
        array = np.full(shape, thing, dtype=object)
        before = sys.getrefcount(thing)
        for args in ((array,), (array, 0), ([array, array],), (array, 0, ad.tensor([0])),
                     (array[::-1].T, (0,)), (ad.zeros(1), array)):
            refused(lambda a=args: getattr(ad, name)(*a))
        del args
        gc.collect()
        assert sys.getrefcount(thing) == before, shape
    assert len(held) == 1000


def test_arrays_of_objects_are_refused_by_name() -> None:
    for f in (ad.sort, ad.ravel):
        with pytest.raises(DTypeError, match="np.ndarray of type numpy.object_"):
            f(np.array([object()]))


def test_a_range_of_text_is_an_error_of_our_tree() -> None:
    with pytest.raises(DTypeError, match="arange"):
        ad.arange("abc")


def test_a_device_is_what_it_is() -> None:
    """Tensors share it: what is set in one would be set in all."""
    for name, words in (("type", "not writable"), ("index", "not writable"), ("kind", "no attr")):
        with pytest.raises(AttributeError, match=words):
            setattr(X.device, name, "cuda")
    assert X.device == ad.device("cpu")
