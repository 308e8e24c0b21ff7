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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

MODES = ("call", "jvp", "vmap", "inplace", "writes", "errors")
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
# Unique only up to a sign or a phase: PyTorch's own samples say what of the result is.
READS_A_TRIANGLE = {"cholesky_inverse": 0, "cholesky_solve": 1, "triangular_solve": 1}
UP_TO_A_PHASE = ("svd", "linalg.svd", "linalg.eig", "linalg.eigh")
ARGUMENT_ORDER = {  # PyTorch's table calls these through a lambda
    "einsum": lambda f: lambda tensors, equation: f(equation, *tensors),
    "where": lambda f: lambda x, condition, other: f(condition, x, other),
    "polygamma": lambda f: lambda x, n: f(n, x),
    "special.polygamma": lambda f: lambda x, n: f(n, x),
    "nn.functional.embedding": lambda f: lambda weight, index, **kw: f(index, weight, **kw),
    "nn.functional.embedding_bag": lambda f: lambda weight, index, **kw: f(index, weight, **kw),
}
TIED = ("sort", "argsort", "topk", "kthvalue", "median", "nanmedian", "mode")  # indices of equals
TOLERANCE = {
    "float64": 1e-7,
    "complex128": 1e-7,
    "float32": 2e-4,
    "complex64": 2e-4,
    "float16": 5e-3,
}


class Unsupported(Exception):
    """A sample that has no meaning here (sparse layouts, other devices, memory formats)."""


@dataclass
class Verdict:
    """What came out for one operation."""

    name: str
    state: str  # pass, differ, fail, missing, skipped (random or not unique)
    samples: int = 0
    reason: str = ""


def op_table() -> list[Any]:
    """PyTorch's operations; raises ImportError where PyTorch or expecttest is missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
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


def convert(value: Any, ad: Any, leaves: list[tuple[Any, Any]]) -> Any:
    """A PyTorch argument as one of adjoint; those that require grad are noted in `leaves`."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_quantized or value.dtype == torch.bfloat16:
            raise Unsupported(str(value.layout))
        if value.device.type != "cpu":
            raise Unsupported(str(value.device))
        if value.ndim > 64:
            raise Unsupported("NumPy has at most 64 axes")
        array = value.detach().resolve_conj().resolve_neg().numpy(force=True)
        out = ad.from_numpy(array.copy(order="K"))
        if value.requires_grad:
            out.requires_grad_()
            leaves.append((out, value))
        return out
    if isinstance(value, torch.dtype):
        found = getattr(ad, str(value).split(".")[-1], None)
        if found is None:
            raise Unsupported(str(value))
        return found
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, torch.device):
        return "cpu"
    if isinstance(value, torch.nn.Module):
        raise Unsupported("a module of PyTorch as an argument")
    if isinstance(value, torch.layout | torch.memory_format | torch.Generator):
        raise Unsupported(str(value))
    if isinstance(value, tuple | list):
        return type(value)(convert(v, ad, leaves) for v in value)
    if isinstance(value, dict):
        return {k: convert(v, ad, leaves) for k, v in value.items()}
    return value


def flat(value: Any) -> Iterator[Any]:
    """The tensors and numbers of a result in order."""
    if isinstance(value, tuple | list):
        for v in value:
            yield from flat(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from flat(v)
    else:
        yield value


def is_tensor(value: Any) -> bool:
    return hasattr(value, "requires_grad") and hasattr(value, "detach")


def array(value: Any) -> np.ndarray:
    """The numbers of a tensor of either library."""
    value = value.detach()
    if type(value).__module__.startswith("torch"):  # PyTorch conjugates and negates lazily
        value = value.resolve_conj().resolve_neg()
    return np.asarray(value.numpy(force=True))


def differs(mine: Any, theirs: Any, what: str) -> str:
    """Why two results are not the same, or an empty string."""
    if is_tensor(theirs) != is_tensor(mine):
        return f"{what}: {type(mine).__name__} instead of {type(theirs).__name__}"
    if not is_tensor(theirs):
        return "" if mine == theirs or mine != mine else f"{what}: {mine!r} != {theirs!r}"
    a, b = array(mine), array(theirs)
    if a.shape != b.shape:
        return f"{what}: shape {a.shape} != {b.shape}"
    if a.dtype != b.dtype:
        return f"{what}: dtype {a.dtype} != {b.dtype}"
    if a.dtype.kind in "biu":
        return "" if (a == b).all() else f"{what}: {a.ravel()[:4]} != {b.ravel()[:4]}"
    tolerance = TOLERANCE[a.dtype.name]
    scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
    if np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
        return ""
    wrong = ~np.isclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    text = f"{what}: {a[wrong][:3]} != {b[wrong][:3]} in {wrong.sum()} of {wrong.size}"
    return " ".join(text.split())


def by_pytorch(call: Any) -> Any:
    """PyTorch's answer; what PyTorch itself cannot do is no sample."""
    try:
        return call()
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        raise Unsupported(str(error)) from error


def compare_gradients(
    mine: list[Any], theirs: list[Any], leaves: list[tuple[Any, Any]], ad: Any
) -> str:
    """Why the vector-Jacobian products differ, or an empty string."""
    import torch

    pairs = [(m, t) for m, t in zip(mine, theirs, strict=True) if is_tensor(t)]
    for m, t in pairs:
        if bool(m.requires_grad) != bool(t.requires_grad):
            return f"requires_grad {bool(m.requires_grad)} instead of {bool(t.requires_grad)}"
    pairs = [(m, t) for m, t in pairs if t.requires_grad]
    if not pairs or not leaves:
        return ""
    rng = np.random.default_rng(0)
    seeds = []
    for _, t in pairs:
        seed = rng.standard_normal(t.shape)
        if t.is_complex():
            seed = seed + 1j * rng.standard_normal(t.shape)
        seeds.append(np.asarray(seed).astype(array(t).dtype))
    outputs, inputs = [t for _, t in pairs], [b for _, b in leaves]
    want = by_pytorch(
        lambda: torch.autograd.grad(
            outputs, inputs, [torch.from_numpy(s) for s in seeds], allow_unused=True
        )
    )
    got = ad.autograd.grad(
        [m for m, _ in pairs],
        [a for a, _ in leaves],
        [ad.from_numpy(s) for s in seeds],
        allow_unused=True,
    )
    return gradients_differ(got, want, "gradient")


def gradients_differ(got: Any, want: Any, what: str) -> str:
    """Why our gradients are not theirs, or an empty string. None and zeros are the same."""
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        if g is None or w is None:
            known = w if g is None else g
            if known is not None and np.abs(array(known)).max(initial=0.0) > 0:
                return f"{what} {k}: {'ours' if g is None else 'theirs'} is None"
        elif reason := differs(g, w, f"{what} {k}"):
            return reason
    return ""


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


def after(function: Any, process: Any) -> Any:
    """`process` of what `function` gives."""
    return lambda *args, **kwargs: process(function(*args, **kwargs))


def check_sample(reference: Any, function: Any, sample: Any, ad: Any, ties: bool = False) -> str:
    """Why one sample differs, or an empty string; raises what our function raises."""
    leaves: list[tuple[Any, Any]] = []
    if sample.kwargs.get("dropout_p"):
        raise Unsupported("random")
    args = convert((sample.input, *sample.args), ad, leaves)
    kwargs = convert(dict(sample.kwargs), ad, leaves)
    theirs = by_pytorch(lambda: reference(sample.input, *sample.args, **sample.kwargs))
    theirs = list(flat(theirs))
    mine = list(flat(function(*args, **kwargs)))
    if ties:
        mine, theirs = mine[:1], theirs[:1]
    if len(mine) != len(theirs):
        return f"{len(mine)} results instead of {len(theirs)}"
    for k, (m, t) in enumerate(zip(mine, theirs, strict=True)):
        if reason := differs(m, t, f"result {k}"):
            return reason
    return compare_gradients(mine, theirs, leaves, ad)


def exchanged(value: Any, new: dict[int, Any]) -> Any:
    """The same arguments with some tensors replaced, by identity."""
    if id(value) in new:
        return new[id(value)]
    if isinstance(value, tuple | list):
        return type(value)(exchanged(v, new) for v in value)
    if isinstance(value, dict):
        return {k: exchanged(v, new) for k, v in value.items()}
    return value


def check_tangents(reference: Any, function: Any, sample: Any, ad: Any) -> str:
    """Forward mode against PyTorch's forward mode on one sample."""
    import torch
    from torch.autograd import forward_ad

    leaves: list[tuple[Any, Any]] = []
    if sample.kwargs.get("dropout_p"):
        raise Unsupported("random")
    theirs = ((sample.input, *sample.args), dict(sample.kwargs))
    mine = convert(theirs, ad, leaves)
    if not leaves:
        raise Unsupported("no tangent")
    rng = np.random.default_rng(1)
    steps = [rng.standard_normal(t.shape).astype(array(t).dtype) for _, t in leaves]

    def dual() -> list[Any]:
        with forward_ad.dual_level():
            new = {
                id(t): forward_ad.make_dual(t.detach(), torch.from_numpy(d))
                for (_, t), d in zip(leaves, steps, strict=True)
            }
            args, kwargs = exchanged(theirs, new)
            outs = [o for o in flat(reference(*args, **kwargs)) if is_tensor(o)]
            found = [forward_ad.unpack_dual(o).tangent for o in outs]
            return [None if t is None else t.detach().clone() for t in found]

    want = by_pytorch(dual)

    def program(*xs: Any) -> Any:
        args, kwargs = exchanged(mine, {id(m): x for (m, _), x in zip(leaves, xs, strict=True)})
        return tuple(o for o in flat(function(*args, **kwargs)) if is_tensor(o))

    for t in want:
        by_pytorch(lambda t=t: None if t is None else array(t))
    primals = tuple(m.detach() for m, _ in leaves)
    _, got = ad.func.jvp(program, primals, tuple(ad.from_numpy(d) for d in steps))
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        if w is None:
            if g is not None and np.abs(array(g)).max(initial=0.0) > 0:
                return f"tangent {k}: PyTorch has none"
        elif reason := differs(g, w, f"tangent {k}"):
            return reason
    return ""


def check_batching(reference: Any, function: Any, sample: Any, ad: Any) -> str:
    """vmap over all floating operands against a loop, with us on both sides."""
    if sample.kwargs.get("dropout_p"):
        raise Unsupported("random")
    mine = convert(((sample.input, *sample.args), dict(sample.kwargs)), ad, [])
    leaves = [(t, t) for t in flat(mine) if is_tensor(t) and t.dtype.is_floating_point]
    if not leaves:
        raise Unsupported("nothing to batch")
    rng = np.random.default_rng(3)
    rows = [
        [m.detach(), m.detach() + ad.from_numpy(
            np.asarray(0.01 * rng.standard_normal(m.shape)).astype(array(m).dtype))]
        for m, _ in leaves
    ]

    def program(*xs: Any) -> Any:
        args, kwargs = exchanged(mine, {id(m): x for (m, _), x in zip(leaves, xs, strict=True)})
        return tuple(o for o in flat(function(*args, **kwargs)) if is_tensor(o))

    try:
        singles = [program(*(r[i] for r in rows)) for i in (0, 1)]
        want = [ad.stack([a, b]) for a, b in zip(*singles, strict=True)]
    except (RuntimeError, ValueError) as error:
        raise Unsupported(f"not in the domain: {error}") from error
    got = ad.func.vmap(program)(*(ad.stack(r) for r in rows))
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        if reason := differs(g, w, f"batched result {k}"):
            return reason
    return ""


def after_writing(library: Any, function: Any, args: Any, kwargs: Any, write: str) -> Any:
    """The gradient of `function` when its operand or its result is overwritten before backward.

    Adding 1 changes no gradient, so a gradient that comes out must be the one without the write;
    a string is the refusal.
    """
    leaf = args[0].detach().requires_grad_()
    operand = leaf * 1.0
    out = function(operand, *args[1:], **kwargs)
    out = next((o for o in flat(out) if is_tensor(o) and o.requires_grad), None)
    if out is None or out.is_leaf:
        raise Unsupported("no gradient")
    rng = np.random.default_rng(2)
    seed = rng.standard_normal(tuple(out.shape)).astype(array(out).dtype)
    try:
        if write == "operand":
            operand.add_(1.0)
        elif write == "result":
            out.add_(1.0)
        (g,) = library.autograd.grad(out, leaf, library.from_numpy(seed), allow_unused=True)
    except RuntimeError as error:
        if "inplace" not in str(error) and "memory location" not in str(error):
            raise
        return "refused"
    return g


def check_writes(reference: Any, function: Any, sample: Any, ad: Any) -> str:
    """Writing to an operand or a result before backward: right, or refused as PyTorch does."""
    import torch

    theirs = ((sample.input, *sample.args), dict(sample.kwargs))
    if not isinstance(sample.input, torch.Tensor) or not sample.input.requires_grad:
        raise Unsupported("no gradient")
    if sample.kwargs.get("dropout_p"):
        raise Unsupported("random")
    mine = convert(theirs, ad, [])
    clean = by_pytorch(lambda: after_writing(torch, reference, *theirs, "nothing"))
    if clean is None or isinstance(clean, str):
        raise Unsupported("no gradient")
    for write in ("operand", "result"):
        want = by_pytorch(lambda write=write: after_writing(torch, reference, *theirs, write))
        got = after_writing(ad, function, *mine, write)
        if isinstance(got, str):
            if not isinstance(want, str):
                return f"stricter than PyTorch: writing to its {write} is refused"
        elif got is None or (reason := differs(got, clean, f"after writing to its {write}")):
            return "gradient lost" if got is None else reason
    return ""


TESTS = {"jvp": check_tangents, "writes": check_writes, "vmap": check_batching}


def check_error(function: Any, case: Any, ad: Any) -> str:
    """Why a bad call is not refused as PyTorch refuses it, or an empty string."""
    sample = case.sample_input
    if "out" in sample.kwargs or case.error_type is Exception:
        raise Unsupported("out= has its own tests; a bare Exception stands for PyTorch's parser")
    args = convert((sample.input, *sample.args), ad, [])
    kwargs = convert(dict(sample.kwargs), ad, [])
    try:
        function(*args, **kwargs)
    except case.error_type:
        return ""
    except Exception as error:  # noqa: BLE001 (any other exception is the finding)
        return f"{type(error).__name__} instead of {case.error_type.__name__}: {error}"[:200]
    return f"accepted; PyTorch raises {case.error_type.__name__}: {case.error_regex}"[:200]


def written(op: Any, ad: Any) -> tuple[Any, Any] | None:
    """The in-place form of both libraries, each on a clone, or None."""
    name = getattr(op.inplace_variant, "__name__", "")
    method = getattr(ad.Tensor, name, None) if name.endswith("_") else None
    if method is None:
        return None
    return (
        lambda x, *args, **kwargs: op.inplace_variant(x.clone(), *args, **kwargs),
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
    if dtype not in op.supported_dtypes("cpu"):
        return []
    wants_grad = bool(op.supports_autograd) and dtype in op.supported_backward_dtypes("cpu")
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=wants_grad))
    return [s for s in samples if not s.broadcasts_input] if mode == "inplace" else samples


def check(
    op: Any, ad: Any, dtype_name: str = "float64", limit: int = 10**6, mode: str = "call"
) -> Verdict:
    """One operation on up to `limit` of its samples; `mode` is one of MODES."""
    name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
    if op.name in RANDOM or name in NOT_COMPARABLE:
        return Verdict(name, "skipped")
    if mode == "jvp" and not op.supports_forward_ad:
        return Verdict(name, "skipped")
    function = ours(op.name, ad) or ours(getattr(op.op, "__name__", "-"), ad)
    pair = (op.op, function) if mode != "inplace" else written(op, ad)
    if function is None or pair is None:
        return Verdict(name, "missing")
    reference, function = pair
    if mode != "inplace" and op.name in ARGUMENT_ORDER:
        function = ARGUMENT_ORDER[op.name](function)
    if mode in ("call", *TESTS):
        reference, function = wrapped(op, reference), wrapped(op, function)
    ties = op.name in TIED and dtype_name in ("bool", "int64", "uint8", "float16")
    if op.name == "argsort" and ties:
        return Verdict(name, "skipped")
    done = 0
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
                return Verdict(name, "fail", done, f"{text} <- {describe(sample)}")
            if reason:
                return Verdict(name, "differ", done, f"{reason} <- {describe(sample)}")
            done += 1
    return Verdict(name, "pass", done)


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
