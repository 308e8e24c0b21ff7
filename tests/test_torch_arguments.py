"""Arguments of a wrong type: TypeError that names the argument, where the call fails by it or it is
a keyword whose default says what it is; and calls that are right stay as they are."""
import inspect

import pytest

import adjoint as ad
from adjoint.core.schema import blamed
from adjoint.ops.public import typed

x = ad.ones(2, 2)
F = ad.nn.functional
WRONG = {
    "combinations('x')": (lambda: ad.combinations("x"), "'input' (position 1) must be Tensor"),
    "index_fill": (lambda: ad.index_fill("x", 0, ad.tensor([0]), 1.0), "must be Tensor, not str"),
    "unique": (lambda: ad.unique(x, sorted=3), "unique(): argument 'sorted' must be bool, not int"),
    "unique_": (lambda: ad.unique(x, return_counts="y"), "'return_counts' must be bool, not str"),
    "interpolate": (lambda: F.interpolate(x[None, None], scale_factor=2, mode=3), "must be str"),
    "sum": (lambda: ad.sum(x, 0, keepdim=ad.ones(3)), "'keepdim' must be bool, not Tensor"),
    "meshgrid": (lambda: ad.meshgrid("x"), "expected Tensor as element 0 in argument 0"),
    "cartesian": (lambda: ad.cartesian_prod(None), "expected Tensor as element 0 in argument 0"),
    "svd": (lambda: ad.linalg.svd(x, full_matrices=1), "'full_matrices' must be bool, not int"),
    "scatter_reduce": (lambda: x.scatter_reduce(0, ad.tensor([[0]]), x, 3), "must be str, not int"),
    "kl_div": (lambda: F.kl_div(x, x, reduction="sum", log_target=x), "'log_target' must be bool"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_type_is_a_type_error_that_names_the_argument(name: str) -> None:
    call, words = WRONG[name]
    with pytest.raises(TypeError) as caught:
        call()
    assert words in str(caught.value)


def test_what_fails_for_another_reason_keeps_its_exception() -> None:
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.sum(5)
    with pytest.raises(ValueError, match="other words"):
        _fails(x, 1)
    assert blamed(_fails, (x, 1), {}) is None


@typed
def _fails(input: ad.Tensor, times: int, *, keepdim: bool = False) -> None:
    raise ValueError("other words")


def test_checks_know_what_defaults_and_annotations_say() -> None:
    assert "'times'" in str(blamed(_fails, (x, "2"), {}))
    assert "(position 1) must be Tensor, not list" in str(blamed(_fails, ([1], 2), {}))
    assert "'keepdim' must be bool" in str(blamed(_fails, (x, 2), {"keepdim": 1}))
    assert list(inspect.signature(ad.unique).parameters)[:2] == ["input", "sorted"]
