"""PyTorch's own table of operations, on its own samples: values, dtypes, gradients.

The table needs PyTorch and expecttest; without them these tests are skipped. `python
tests/helpers_opinfo.py` prints the whole comparison.
"""

from __future__ import annotations

from typing import Any

import helpers_opinfo
import pytest

import adjoint as ad

QUICK = (
    "add sub mul div true_divide pow neg abs exp log log1p expm1 sqrt rsqrt sin cos tan tanh"
    " sigmoid erf clamp"
    " maximum minimum where sum mean var std prod amax amin max.reduction_with_dim"
    " min.reduction_with_dim"
    " logsumexp cumsum cumprod softmax log_softmax sort topk gather index_select masked_fill"
    " masked_select"
    " take_along_dim cat stack split chunk unbind reshape view transpose permute squeeze unsqueeze"
    " expand flip"
    " roll tril triu diagonal matmul mm bmm mv dot einsum addmm outer linalg.norm"
    " linalg.vector_norm norm"
    " nn.functional.relu nn.functional.gelu nn.functional.silu nn.functional.softplus"
    " nn.functional.elu"
    " nn.functional.leaky_relu nn.functional.linear nn.functional.embedding"
    " nn.functional.layer_norm"
    " nn.functional.cross_entropy nn.functional.nll_loss nn.functional.mse_loss"
    " nn.functional.l1_loss"
    " nn.functional.smooth_l1_loss nn.functional.huber_loss nn.functional.binary_cross_entropy"
    " nn.functional.scaled_dot_product_attention __getitem__ index_put index_add scatter"
    " scatter_add"
).split()

# Operations that differ on purpose, with the reason; one that no longer differs fails the sweep.
ON_PURPOSE: dict[str, str] = {
    "as_strided_scatter": "PyTorch sends a gradient to the element that was overwritten",
}
REFUSED_OTHERWISE: dict[str, str] = {}  # bad calls that adjoint answers in another way, and why


def named(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


@pytest.fixture(scope="module")
def table() -> dict[str, list[Any]]:
    """Name -> its variants."""
    pytest.importorskip("torch")
    pytest.importorskip("expecttest")
    found: dict[str, list[Any]] = {}
    for op in helpers_opinfo.op_table():
        found.setdefault(op.name, []).append(op)
        if op.variant_test_name:
            found.setdefault(named(op), []).append(op)
    return found


def verdicts(ops: list[Any], dtype: str, limit: int) -> list[helpers_opinfo.Verdict]:
    return [helpers_opinfo.check(op, ad, dtype, limit) for op in ops]


@pytest.mark.parametrize("name", QUICK)
def test_common_operations(name: str, table: dict[str, list[Any]]) -> None:
    """F123: float64 values and gradients on the first samples of each variant."""
    found = verdicts(table[name], "float64", 8)
    wrong = [
        f"{v.name}: {v.state}: {v.reason}" for v in found if v.state not in ("pass", "skipped")
    ]
    assert not wrong, "\n".join(wrong)
    assert any(v.samples for v in found), "no sample was compared"


IN_PLACE = (
    "add sub mul div pow neg abs exp log sqrt sin cos tanh sigmoid clamp masked_fill index_add"
    " index_put scatter scatter_add tril triu cumsum erf reciprocal square floor"
).split()


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_forms(name: str, table: dict[str, list[Any]]) -> None:
    """F22, F123: `x.add_(...)` and its like: the value written, and the gradients through it."""
    found = [helpers_opinfo.check(op, ad, "float64", 6, "inplace") for op in table[name]]
    wrong = [
        f"{v.name}: {v.state}: {v.reason}" for v in found if v.state not in ("pass", "skipped")
    ]
    assert not wrong, "\n".join(wrong)


FORWARD = (
    "add mul div exp log sin tanh sigmoid sum mean var prod logsumexp cumsum softmax log_softmax"
    " sort gather where cat stack reshape matmul bmm einsum norm nn.functional.gelu"
    " nn.functional.layer_norm nn.functional.cross_entropy nn.functional.linear"
    " nn.functional.scaled_dot_product_attention __getitem__ index_put"
).split()


@pytest.mark.parametrize("name", FORWARD)
def test_forward_mode(name: str, table: dict[str, list[Any]]) -> None:
    """F10, F123: the tangent that jvp gives is the one of PyTorch's forward mode."""
    found = [helpers_opinfo.check(op, ad, "float64", 4, "jvp") for op in table[name]]
    wrong = [
        f"{v.name}: {v.state}: {v.reason}" for v in found if v.state not in ("pass", "skipped")
    ]
    assert not wrong, "\n".join(wrong)


WRITTEN = (
    "add sub mul div pow neg abs exp log sqrt sin tanh sigmoid sum mean var softmax log_softmax"
    " cumsum matmul bmm addmm cat stack reshape transpose expand where gather index_select clamp"
    " maximum norm logsumexp split unbind sort nn.functional.linear nn.functional.relu"
    " nn.functional.gelu nn.functional.silu nn.functional.layer_norm nn.functional.mse_loss"
).split()


@pytest.mark.parametrize("name", WRITTEN)
def test_writing_before_backward(name: str, table: dict[str, list[Any]]) -> None:
    """F22: an operand or a result overwritten before backward gives the right gradient, or the
    refusal, and a refusal only where PyTorch refuses."""
    found = [helpers_opinfo.check(op, ad, "float64", 3, "writes") for op in table[name]]
    wrong = [
        f"{v.name}: {v.state}: {v.reason}" for v in found if v.state not in ("pass", "skipped")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inplace", "errors", "jvp", "writes"])
def test_every_other_form(mode: str, table: dict[str, list[Any]]) -> None:
    """F10, F123: all in-place forms and tangents; every bad call gets PyTorch's builtin."""
    ops = {id(op): op for group in table.values() for op in group}.values()
    found = [helpers_opinfo.check(op, ad, "float64", 10**6, mode) for op in ops]
    known = REFUSED_OTHERWISE if mode == "errors" else {}
    wrong = [
        f"{v.name}: {v.state}: {v.reason}"
        for v in found
        if v.state in ("differ", "fail") and v.name not in known
    ]
    assert not wrong, f"{len(wrong)} operations\n" + "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "int64", "bool"])
def test_every_operation_we_have(dtype: str, table: dict[str, list[Any]]) -> None:
    """F123, F134: all samples of all operations that exist under the same name."""
    ops = {id(op): op for group in table.values() for op in group}.values()
    found = verdicts(list(ops), dtype, 10**6)
    wrong = {v.name: f"{v.state}: {v.reason}" for v in found if v.state in ("differ", "fail")}
    unexpected = [f"{name}: {why}" for name, why in wrong.items() if name not in ON_PURPOSE]
    assert not unexpected, f"{len(unexpected)} operations\n" + "\n".join(unexpected)
    if dtype == "float64":
        assert not set(ON_PURPOSE) - set(wrong), "these no longer differ: remove them from the list"
