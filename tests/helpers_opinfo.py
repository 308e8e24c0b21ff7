"""Every operation of PyTorch's own test table that adjoint has under the same name, on PyTorch's
own samples.

`python tests/helpers_opinfo.py [name ...] [--dtype float64] [--mode errors] [--all]` prints the
table: one line per operation that differs or fails (with `--all`: for every one), and a line of
totals. The samples come from `torch.testing._internal.common_methods_invocations.op_db`, which is
inside PyTorch's wheel.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

from helpers_opinfo_forms import TESTS, check_error, check_sample
from helpers_opinfo_values import Unsupported, after, is_tensor

MODES = ("call", "jvp", "vmap", "inplace", "writes", "errors", "noncontiguous", "second", "mixed",
         "out", "layout", "refused", "method", "mask")
# Columns of docs/opinfo.md -> (mode, dtype).
COLUMNS = {
    "float64": ("call", "float64"), "float32": ("call", "float32"),
    "bfloat16": ("call", "bfloat16"), "float16": ("call", "float16"),
    "complex": ("call", "complex128"), "int64": ("call", "int64"), "int8": ("call", "int8"),
    "bool": ("call", "bool"), "strided": ("noncontiguous", "float64"), "alone": ("mask", "float64"),
    "jvp": ("jvp", "float64"), "second": ("second", "float64"), "mixed": ("mixed", "float64"),
    "vmap": ("vmap", "float64"), "in place": ("inplace", "float64"),
    "method": ("method", "float64"), "writes": ("writes", "float64"), "out": ("out", "float32"),
    "layout": ("layout", "float64"), "errors": ("errors", "float64"),
    "no bool": ("refused", "bool"), "no int64": ("refused", "int64"),
    "no bfloat16": ("refused", "bfloat16"),
}
CRASHES = ("lu_unpack", "linalg.lu", "tril", "triu")  # PyTorch's, with some `out=`
# A column is asked of the operations that say so.
ASKS = {"jvp": "supports_forward_ad", "second": "supports_gradgrad", "out": "supports_out",
        "mixed": "supports_fwgrad_bwgrad"}
RANDOM = (
    "bernoulli cauchy_ exponential geometric log_normal multinomial normal uniform rand randint"
    " randn rand_like"
    " randn_like randint_like empty empty_like empty_permuted empty_strided new_empty"
    " new_empty_strided"
    " nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d"
    " nn.functional.alpha_dropout"
    " nn.functional.feature_alpha_dropout nn.functional.rrelu nn.functional.gumbel_softmax randperm"
    " nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d svd_lowrank"
    " pca_lowrank"
    " nn.functional.multi_head_attention_forward torch.ops.aten._efficient_attention_forward"
    " torch.ops.aten._flash_attention_forward"
).split()
NOT_COMPARABLE = (  # other storages, written to the leaf itself, lambdas around the function
    "bfloat16 chalf to_sparse zero_ as_strided.partial_views linalg.pinv.singular"
    " linalg.lstsq.grad_oriented"
).split()
READS_A_TRIANGLE = {"cholesky_inverse": 0, "cholesky_solve": 1, "triangular_solve": 1}
UP_TO_A_PHASE = ("svd", "linalg.svd", "linalg.eig", "linalg.eigh")
ARGUMENT_ORDER = {  # PyTorch's table calls these through a lambda
    "resize_": lambda f: lambda x, *args: f(x.clone(), *args),
    "resize_as_": lambda f: lambda x, *args: f(x.clone(), *args),
    "einsum": lambda f: lambda tensors, equation: f(equation, *tensors),
    "where": lambda f: lambda x, condition, other, **kw: f(condition, x, other, **kw),
    "polygamma": lambda f: lambda x, n, **kw: f(n, x, **kw),
    "special.polygamma": lambda f: lambda x, n, **kw: f(n, x, **kw),
    "nn.functional.embedding": lambda f: lambda weight, index, **kw: f(index, weight, **kw),
    "nn.functional.embedding_bag": lambda f: lambda weight, index, **kw: f(index, weight, **kw),
}
TIED = (  # indices of equals
    "sort", "msort", "argsort", "topk", "kthvalue", "median", "nanmedian", "mode")


@dataclass
class Verdict:
    """What came out for one operation."""

    name: str
    state: str  # pass, differ, fail, missing, skipped (random or not unique)
    samples: int = 0
    reason: str = ""
    wrong: int = 0


def op_table() -> list[Any]:
    """PyTorch's operations; raises ImportError where PyTorch or expecttest is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from torch.testing._internal.common_methods_invocations import op_db
    torch.set_num_threads(1)  # of two values for one place any thread's may be the last
    return list(op_db)


def ours(name: str, ad: Any) -> Any:
    """adjoint's function of that dotted name, or the tensor method, or None."""
    where = ad
    for part in name.split("."):
        where = getattr(where, part, None)
        if where is None:
            break
    if where is not None and callable(where):
        return where
    method = getattr(ad.Tensor, name, None)
    if isinstance(method, property):
        return lambda x: getattr(x, name)
    return method if callable(method) else None


def wrapped(op: Any, function: Any) -> Any:
    """`function` on matrices of the kind it is defined for: a triangle where it reads one, a
    Hermitian matrix where it takes one (what PyTorch's own gradient tests do)."""
    at = READS_A_TRIANGLE.get(op.name)
    if at is not None:

        def of_triangle(*args: Any, **kwargs: Any) -> Any:
            upper = kwargs.get("upper", op.name == "triangular_solve")
            x = args[at].triu() if upper else args[at].tril()
            return function(*args[:at], x, *args[at + 1 :], **kwargs)

        return of_triangle
    if getattr(op.gradcheck_wrapper, "__name__", "").endswith("hermitian_input"):
        return lambda x, *args, **kwargs: function(x + x.mH, *args, **kwargs)
    return function


VARIANTS = {"inplace": "inplace_variant", "method": "method_variant"}


def variant(op: Any, ad: Any, mode: str) -> tuple[Any, Any] | None:
    """Another form in both libraries (the in-place one on a clone), or None."""
    theirs = getattr(op, VARIANTS[mode])
    name = getattr(theirs, "__name__", "")
    method = getattr(ad.Tensor, name, None)
    if theirs is None or method is None or (mode == "inplace" and not name.endswith("_")):
        return None
    if mode == "method":
        return theirs, method
    return (
        lambda x, *args, **kwargs: theirs(x.clone(), *args, **kwargs),
        lambda x, *args, **kwargs: method(x.clone(), *args, **kwargs),
    )


def describe(sample: Any) -> str:
    """The arguments of a sample in one short line."""

    def short(value: Any) -> str:
        if is_tensor(value):
            return f"{str(value.dtype).split('.')[-1]}{list(value.shape)}"
        if isinstance(value, list | tuple):
            return "[" + ", ".join(short(v) for v in value) + "]"
        return repr(value)

    parts = [short(v) for v in (sample.input, *sample.args)]
    parts += [f"{k}={short(v)}" for k, v in sample.kwargs.items()]
    return ", ".join(parts)[:160]


def cases_of(op: Any, dtype_name: str, mode: str) -> list[Any]:
    """The samples, or the bad calls, of PyTorch's table."""
    import torch

    torch.manual_seed(0)
    if mode == "errors":
        return list(op.error_inputs("cpu")) if op.error_inputs_func else []
    dtype = getattr(torch, dtype_name)
    if (dtype in op.supported_dtypes("cpu")) == (mode == "refused"):
        return []
    wants_grad = bool(op.supports_autograd) and dtype in op.supported_backward_dtypes("cpu")
    if mode == "refused":
        try:
            return list(op.sample_inputs("cpu", dtype))
        except Exception:  # noqa: BLE001 (PyTorch has no samples in a dtype that it refuses)
            return []
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=wants_grad))
    return [s for s in samples if not s.broadcasts_input] if mode == "inplace" else samples


def check(
    op: Any, ad: Any, dtype_name: str = "float64", limit: int = 10**6, mode: str = "call"
) -> Verdict:
    """One operation on up to `limit` of its samples; `mode` is one of MODES."""
    name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
    if op.name in RANDOM or name in NOT_COMPARABLE:
        return Verdict(name, "skipped")
    if not getattr(op, ASKS.get(mode, "name")) or (mode == "out" and op.name in CRASHES):
        return Verdict(name, "skipped")
    function = ours(op.name, ad) or ours(getattr(op.op, "__name__", "-"), ad)
    pair = variant(op, ad, mode) if mode in VARIANTS else (op.op, function)
    if function is None or pair is None:
        return Verdict(name, "missing")
    reference, function = pair
    if mode not in VARIANTS and op.name in ARGUMENT_ORDER:
        function = ARGUMENT_ORDER[op.name](function)
    if mode in ("call", "method", *TESTS):
        reference, function = wrapped(op, reference), wrapped(op, function)
    ties = op.name in TIED and dtype_name not in ("float64", "float32")
    if op.name == "argsort" and ties:
        return Verdict(name, "skipped")
    done = 0
    found: list[tuple[str, str]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases_of(op, dtype_name, mode):
            if done >= limit:
                break
            sample = case.sample_input if mode == "errors" else case
            here, ours_here = reference, function
            if op.name in UP_TO_A_PHASE and mode != "errors":
                here, ours_here = (after(f, sample.output_process_fn_grad) for f in (
                    reference, function))
            try:
                if mode == "errors":
                    reason = check_error(function, case, ad)
                elif mode in TESTS:
                    reason = TESTS[mode](here, ours_here, sample, ad)
                else:
                    reason = check_sample(here, ours_here, sample, ad, ties)
            except Unsupported:
                continue
            except Exception as error:  # noqa: BLE001 (a table of all failures is the point)
                text = f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
                found.append(("fail", f"{text} <- {describe(sample)}"))
                continue
            if reason:
                found.append(("differ", f"{reason} <- {describe(sample)}"))
            done += not reason
    state, reason = found[0] if found else ("pass", "")
    return Verdict(name, state, done, reason, len(found))


def main(argv: list[str] | None = None) -> int:
    """Print the table; the exit code is 1 when something differs or fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="operations; all when none is given")
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--samples", type=int, default=10**6, help="at most so many per operation")
    parser.add_argument("--mode", choices=MODES, default="call")
    parser.add_argument("--all", action="store_true", help="print the operations that pass, too")
    parser.add_argument("--missing", action="store_true", help="print the names that adjoint lacks")
    options = parser.parse_args(argv)
    import adjoint as ad

    count: Counter[str] = Counter()
    samples = 0
    for op in op_table():
        if options.names and op.name not in options.names:
            continue
        verdict = check(op, ad, options.dtype, options.samples, options.mode)
        count[verdict.state] += 1
        samples += verdict.samples
        if (
            options.all
            or verdict.state in ("differ", "fail")
            or (options.missing and verdict.state == "missing")
        ):
            print(
                f"{verdict.state:8} {verdict.name:44} {verdict.samples:4}  {verdict.reason}",
                flush=True,
            )
    total = sum(count.values())
    print(
        f"{total} operations, {options.mode} {options.dtype}:"
        f" {count['pass']} pass ({samples} samples),"
        f" {count['differ']} differ,"
        f" {count['fail']} fail, {count['missing']} missing, {count['skipped']} skipped"
    )
    return int(bool(count["differ"] or count["fail"]))


if __name__ == "__main__":
    sys.exit(main())
