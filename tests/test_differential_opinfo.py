"""PyTorch's own table of operations, on its own samples: values, dtypes, gradients.

The table needs PyTorch and expecttest; without them these tests are skipped. `python
tests/helpers_opinfo.py` prints the whole comparison.
"""

from __future__ import annotations

from pathlib import Path
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

ROUNDING = "PyTorch's own rounding is the larger one, against extended precision"
CONVENTION = "PyTorch adds softmax(log_probs), which log_softmax's backward takes away again"
OVERWRITTEN = "PyTorch sends a gradient to the element that was overwritten"
KEPT = "the operand itself is kept, where PyTorch keeps something made of it; the write is refused"
OVERLAP = "the elements of the result share memory; the write is refused"
VALUES = "the values of the operand decide the result's shape or what the program does next"

FINITE = "finite here, in PyTorch nan"
PLACES = "computed in 32 bits and rounded once; PyTorch rounds on the way"
SIGN = "PyTorch rounds on the way; the gradient of a sign is 0"
COMMON_16 = {**dict.fromkeys(("grid_sampler_2d", "nn.functional.grid_sample", "histc"), PLACES),
             "matrix_exp": FINITE}
GAPS = "reads the gaps between the elements of its operand, where anything may be"
TALL = "of tall matrices without gaps; PyTorch's columns are as long as those of B"
EMPTY = "operands without elements are refused, too, in PyTorch they are not looked at"

# What differs on purpose: column (a dtype or a mode, "*" for all) -> operations -> why. One that
# no longer differs fails the sweep.
ON_PURPOSE: dict[str, dict[str, str]] = {
    "*": {
        "as_strided_scatter": OVERWRITTEN,
        "cov": f"weights of lower precision are promoted first; {ROUNDING}",
        "nn.functional.ctc_loss": CONVENTION,
        "histogramdd": "bin edges that do not increase are refused",
        "istft": "the window has a gradient, too",
        "logcumsumexp": ROUNDING,
        "special.bessel_j0": ROUNDING,
        "special.bessel_y1": ROUNDING,
    },
    "jvp": {
        "cholesky_inverse": ROUNDING,
        **dict.fromkeys(
            ("masked.logsumexp", "masked.logaddexp"),
            "a slice that is masked out does not move: 0, in PyTorch nan",
        ),
    },
    "vmap": {
        **dict.fromkeys(
            "item allclose unique unique_consecutive nonzero nonzero_static argwhere histogram"
            " histogramdd histc linspace.tensor_overload logspace.tensor_overload equal".split(),
            VALUES,
        ),
        "resize_": "a batch cannot be resized",
        "gradient": "coordinates are read as numbers, they are not batched",
        "linalg.pinv": "tolerances are read as numbers, they are not batched",
    },
    "writes": {
        **dict.fromkeys(
            "cdist ldexp nn.functional.cross_entropy nn.functional.linear_cross_entropy.chunked"
            " nn.functional.conv2d nn.functional.conv3d nn.functional.scaled_dot_product_attention"
            " __rmatmul__ __rdiv__ special.ndtr polar kron nn.functional.gaussian_nll_loss"
            " nn.functional.tanhshrink".split(),
            KEPT,
        ),
        "erfinv": "the result is kept, where PyTorch computes it again; the write is refused",
        **dict.fromkeys("as_strided unfold".split(), OVERLAP),
    },
    "bfloat16": {**COMMON_16, "nn.functional.poisson_nll_loss": FINITE,
                 "nn.functional.scaled_dot_product_attention": PLACES},
    "float16": {
        **COMMON_16,
        "grid_sampler_3d": PLACES,
        **dict.fromkeys(("complex", "view_as_complex"), "no complex numbers of 16-bit parts here"),
        "linalg.vector_norm": "PyTorch's powers underflow in 16 bits",
        "nn.functional.normalize": SIGN,
        "nn.functional.soft_margin_loss": FINITE,
    },
    "int8": {
        **dict.fromkeys(
            ("special.polygamma.special_polygamma_n_0",
             *(f"polygamma.polygamma_n_{k}" for k in range(5))),
            "at a pole: inf, in PyTorch a large number"),
    },
    "noncontiguous": dict.fromkeys(("as_strided", "as_strided_copy"), GAPS),
    "mask": {
        **dict.fromkeys(("native_group_norm", "triangular_solve"),
                        "one node makes all results in PyTorch, so each requires a gradient"),
    },
    "second": {
        **dict.fromkeys(("linalg.norm", "linalg.norm.subgradients_at_zero"),
                        "at zero: 0, in PyTorch nan"),
        **dict.fromkeys(("masked.logsumexp", "masked.logaddexp"),
                        "a slice that is masked out: 0, in PyTorch nan"),
        "nn.functional.linear_cross_entropy.chunked":
            "the loss in pieces has second derivatives, in PyTorch it has none",
        "prod": "of nothing: no gradient that depends on anything, in PyTorch empty ones",
    },
    "mixed": {
        "cholesky_inverse": ROUNDING,
        "linalg.norm.subgradients_at_zero": "at zero: 0, in PyTorch nan",
        "triangular_solve": "PyTorch's tangent disagrees with central differences",
    },
    "out float32": {
        "linalg.lstsq": TALL,
        **dict.fromkeys(("matmul", "nn.functional.linear"),
                        "an out with gaps keeps its strides, PyTorch gives it others"),
        "native_batch_norm": "no out= here",
    },
    "layout": {
        "linalg.lstsq": TALL,
        **dict.fromkeys("diagonal_scatter select_scatter slice_scatter".split(),
                        "the result has no gaps, PyTorch's has those of the operand"),
        **dict.fromkeys(("as_strided", "as_strided_copy"), GAPS),
        "cartesian_prod": "of one vector: the vector itself, in PyTorch a view",
    },
    "refused bool": {
        **dict.fromkeys(
            "index_reduce.amax index_reduce.amin index_reduce.prod linalg.lu linalg.lu_factor_ex"
            " masked.cumprod masked.cumsum masked.median tensordot".split(), EMPTY),
    },
    "refused int64": {
        **dict.fromkeys("linalg.lu linalg.lu_factor_ex".split(), EMPTY),
        "round.decimals_0": "computed, in PyTorch refused",
    },
    "refused bfloat16": {
        **dict.fromkeys(
            "cdist cholesky histogram linalg.cholesky linalg.cholesky_ex linalg.ldl_factor"
            " linalg.ldl_factor_ex linalg.lu linalg.lu_factor_ex linalg.svdvals".split(), EMPTY),
    },
}

# What differs on some processors only: PyTorch's kernels for AVX2 round in another order.
ON_SOME_PROCESSORS = {"bfloat16": {"nn.functional.normalize": SIGN}}


def key(column: tuple[str, str]) -> str:
    """Where ON_PURPOSE has a column (mode, dtype)."""
    mode, dtype = column
    return dtype if mode == "call" else mode if dtype == "float64" else f"{mode} {dtype}"


def known(column: tuple[str, str], name: str) -> str:
    """Why an operation differs in a column (mode, dtype), or an empty string."""
    tables = (ON_PURPOSE.get(key(column), {}), ON_SOME_PROCESSORS.get(key(column), {}),
              ON_PURPOSE["*"])
    return next((table[name] for table in tables if name in table), "")


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


def test_the_page_says_what_is_known() -> None:
    """docs/opinfo.md (made by scripts/opinfo.py) and ON_PURPOSE name the same differences, each
    with its reason, and the operations that are compared here every time pass there."""
    page = (Path(__file__).resolve().parent.parent / "docs" / "opinfo.md").read_text("utf-8")
    differs, everything = page.split("## What differs, and why")[1].split("## All operations")
    rows = [line.split(" | ") for line in differs.splitlines() if line.startswith("| `")]
    assert len(rows) > 10
    for name, column, why in rows:
        found = known(helpers_opinfo.COLUMNS[column], name.strip("|` "))
        assert why.rstrip(" |") == found, f"{name} {column}"
    told = {(name.strip("|` "), key(helpers_opinfo.COLUMNS[column])) for name, column, _ in rows}
    for column, names in ON_PURPOSE.items():
        for name in names:
            if column == "*":
                assert any(name == n for n, _ in told), f"{name} does not differ on the page"
            else:
                assert (name, column) in told, f"{name} does not differ in {column} on the page"
    table = {line.split("`")[1]: line for line in everything.splitlines() if "`" in line[:4]}
    for name in QUICK:
        rows_of = [r for n, r in table.items() if n == name or n.startswith(name + ".")]
        assert rows_of, f"{name} is not on the page"
        assert not any("differs" in r.split(" | ")[1] for r in rows_of), f"{name} differs"


SEVERAL = "add mul div pow sum cumsum sort topk median bmm where clamp nn.functional.gelu".split()


@pytest.mark.parametrize("mode, dtype", [
    ("call", "bfloat16"), ("call", "float16"), ("call", "int8"), ("refused", "bool"),
    ("noncontiguous", "float64"), ("second", "float64"), ("mixed", "float64"),
    ("layout", "float64"), ("out", "float32"), ("method", "float64")])
def test_other_dtypes_and_forms(mode: str, dtype: str, table: dict[str, list[Any]]) -> None:
    """F10, F17, F123: 16-bit and small dtypes, refused ones, operands with gaps, second
    derivatives, `out=`, strides and views, methods, on the first samples."""
    ops = [op for name in SEVERAL for op in table[name]]
    found = [helpers_opinfo.check(op, ad, dtype, 5, mode) for op in ops]
    wrong = [f"{v.name}: {v.state}: {v.reason}" for v in found if v.state in ("differ", "fail")]
    assert not wrong, "\n".join(wrong)
    assert any(v.samples for v in found), "no sample was compared"


@pytest.mark.slow
@pytest.mark.parametrize("column", helpers_opinfo.COLUMNS)
def test_every_operation_we_have(column: str, table: dict[str, list[Any]]) -> None:
    """F10, F13, F123, F134: all samples of all operations that exist under the same name: in every
    dtype, form and mode of docs/opinfo.md; every bad call gets PyTorch's builtin."""
    sweep(helpers_opinfo.COLUMNS[column], table)


def sweep(column: tuple[str, str], table: dict[str, list[Any]]) -> None:
    """All operations in one column: what differs is known, and what is known still differs."""
    mode, dtype = column
    own = ON_PURPOSE.get(key(column), {})
    ops = {id(op): op for group in table.values() for op in group}.values()
    found = [helpers_opinfo.check(op, ad, dtype, 10**6, mode) for op in ops]
    wrong = {v.name: f"{v.state}: {v.reason}" for v in found if v.state in ("differ", "fail")}
    unexpected = [f"{name}: {why}" for name, why in wrong.items() if not known(column, name)]
    assert not unexpected, f"{len(unexpected)} operations\n" + "\n".join(unexpected)
    assert not set(own) - set(wrong), "these no longer differ: remove them from the list"
