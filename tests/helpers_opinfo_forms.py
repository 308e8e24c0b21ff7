"""What is asked of one operation on one sample of PyTorch's table, beside PyTorch's answer."""

from __future__ import annotations

from typing import Any

import numpy as np
from helpers_opinfo_values import (
    Unsupported,
    array,
    by_pytorch,
    compare_gradients,
    convert,
    differs,
    exchanged,
    flat,
    gradients_differ,
    is_tensor,
    mirrored,
)


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
        mine, theirs, leaves = mine[:1], theirs[:1], []
    if len(mine) != len(theirs):
        return f"{len(mine)} results instead of {len(theirs)}"
    for k, (m, t) in enumerate(zip(mine, theirs, strict=True)):
        if reason := differs(m, t, f"result {k}"):
            return reason
    return compare_gradients(mine, theirs, leaves, ad)


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
def check_noncontiguous(reference: Any, function: Any, sample: Any, ad: Any) -> str:
    """The same numbers with gaps in memory: results and gradients."""
    return check_sample(reference, function, by_pytorch(sample.noncontiguous), ad)


def twice(library: Any, function: Any, args: Any, kwargs: Any, leaves: list[Any], made: Any) -> Any:
    """Gradients of gradients: of the operands and of what was sent into the first backward."""
    outs = [o for o in flat(function(*args, **kwargs)) if is_tensor(o) and o.requires_grad]
    seeds = [made(tuple(o.shape), o.dtype).requires_grad_() for o in outs]
    first = library.autograd.grad(outs, leaves, seeds, create_graph=True, allow_unused=True)
    first = [g for g in first if g is not None and g.requires_grad]
    if not first:
        return None
    weights = [made(tuple(g.shape), g.dtype) for g in first]
    return library.autograd.grad(first, [*leaves, *seeds], weights, allow_unused=True)


def makers(ad: Any) -> tuple[Any, Any]:
    """Two functions (shape, dtype) that draw the same numbers, for PyTorch and for us."""
    import torch

    def drawing() -> Any:
        rng = np.random.default_rng(5)

        def draw(shape: Any, dtype: Any) -> Any:
            real = torch.from_numpy(np.asarray(rng.standard_normal(shape)))
            if dtype.is_complex:
                real = torch.complex(real, torch.from_numpy(np.asarray(
                    rng.standard_normal(shape))))
            return real.to(getattr(torch, str(dtype).split(".")[-1]))

        return draw

    first, second = drawing(), drawing()
    return first, lambda shape, dtype: mirrored(second(shape, dtype), ad)


def check_second(reference: Any, function: Any, sample: Any, ad: Any) -> str:
    """Second derivatives by reverse over reverse, of the operands and of the seeds."""
    import torch

    leaves: list[tuple[Any, Any]] = []
    theirs = ((sample.input, *sample.args), dict(sample.kwargs))
    mine = convert(theirs, ad, leaves)
    if not leaves or sample.kwargs.get("dropout_p"):
        raise Unsupported("nothing to differentiate")
    draw, draw_ours = makers(ad)
    want = by_pytorch(lambda: twice(torch, reference, *theirs, [t for _, t in leaves], draw))
    if want is None:
        raise Unsupported("linear, or PyTorch has no second derivative")
    got = twice(ad, function, *mine, [m for m, _ in leaves], draw_ours)
    if got is None:
        return "no second derivative"
    return gradients_differ(got, want, "second derivative")


def check_mixed(reference: Any, function: Any, sample: Any, ad: Any) -> str:
    """Forward mode over reverse mode: the tangent of a gradient."""
    import torch

    leaves: list[tuple[Any, Any]] = []
    theirs = ((sample.input, *sample.args), dict(sample.kwargs))
    mine = convert(theirs, ad, leaves)
    if not leaves or sample.kwargs.get("dropout_p"):
        raise Unsupported("nothing to differentiate")

    def tangents(library: Any, call: Any, both: Any, inputs: list[Any], made: Any) -> Any:
        def outputs(*xs: Any) -> Any:
            args, kwargs = exchanged(both, {id(m): x for m, x in zip(inputs, xs, strict=True)})
            found = flat(call(*args, **kwargs))
            return tuple(o for o in found if is_tensor(o) and o.dtype.is_floating_point
                         or is_tensor(o) and o.dtype.is_complex)

        def gradient(*xs: Any) -> Any:
            outs, pull = library.func.vjp(outputs, *xs)
            return pull(tuple(made(tuple(o.shape), o.dtype) for o in outs))

        primals = tuple(x.detach() for x in inputs)
        steps = tuple(made(tuple(x.shape), x.dtype) for x in inputs)
        return library.func.jvp(gradient, primals, steps)[1]

    draw, draw_ours = makers(ad)
    want = by_pytorch(lambda: tangents(torch, reference, theirs, [t for _, t in leaves], draw))
    got = tangents(ad, function, mine, [m for m, _ in leaves], draw_ours)
    return gradients_differ(got, want, "tangent of gradient")


def check_mask(reference: Any, function: Any, sample: Any, ad: Any) -> str:
    """Each operand alone requires a gradient: the same results do, and its gradient is right."""
    leaves: list[tuple[Any, Any]] = []
    convert(((sample.input, *sample.args), dict(sample.kwargs)), ad, leaves)
    if len(leaves) < 2:
        raise Unsupported("one operand or none")
    tensors = [t for _, t in leaves]
    try:
        for k, alone in enumerate(tensors):
            for t in tensors:
                t.requires_grad_(t is alone)
            if reason := check_sample(reference, function, sample, ad):
                return f"operand {k} alone: {reason}"
    finally:
        for t in tensors:
            t.requires_grad_()
    return ""


def check_refused(reference: Any, function: Any, sample: Any, ad: Any) -> str:
    """A dtype: refused where PyTorch refuses it, and only there."""
    args = convert((sample.input, *sample.args), ad, [])
    kwargs = convert(dict(sample.kwargs), ad, [])
    refusal = ""
    try:
        reference(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:  # noqa: BLE001 (whatever PyTorch raises is its refusal)
        refusal = f"{type(error).__name__}: {error}"
    try:
        function(*args, **kwargs)
    except Exception as error:
        if not refusal:
            raise
        theirs = refusal.split(":")[0]
        if theirs not in (c.__name__ for c in type(error).__mro__):
            return f"{type(error).__name__} ({error}) instead of {refusal}"[:200]
        return ""
    return f"accepted; PyTorch raises {refusal}"[:200] if refusal else ""


def strides(t: Any) -> list[int]:
    """The strides that lead anywhere."""
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n > 1 and t.numel()]


def layout(results: list[Any], operands: list[Any]) -> list[tuple[Any, ...]]:
    """Strides of each result and whose memory it shows."""
    def memory(t: Any) -> int:
        return int(t.untyped_storage().data_ptr())

    told = []
    for r in results:
        if is_tensor(r) and str(r.layout).endswith("strided"):
            shown = [k for k, o in enumerate(operands) if r.numel() and memory(o) == memory(r)]
            offset = r.storage_offset() - operands[shown[0]].storage_offset() if shown else 0
            view = bool(shown) and r._is_view()
            told.append((strides(r), shown, offset, view, r.is_contiguous()))
    return told


def check_layout(reference: Any, function: Any, sample: Any, ad: Any) -> str:
    """Strides of results, and whether they are views of operands; also of strided operands."""
    for kind in ("", "noncontiguous"):
        here = by_pytorch(sample.noncontiguous) if kind else sample
        theirs = ((here.input, *here.args), dict(here.kwargs))
        mine = convert(theirs, ad, [])
        operands = [[t for t in flat(x) if is_tensor(t)] for x in (theirs, mine)]
        if kind and not all(t.dim() for t in operands[0]):
            continue                        # (PyTorch's strided form of a number is a view itself)
        want = by_pytorch(lambda t=theirs: list(flat(reference(*t[0], **t[1]))))
        want = layout(want, operands[0])
        got = layout(list(flat(function(*mine[0], **mine[1]))), operands[1])
        for k, (g, w) in enumerate(zip(got, want, strict=True)):
            names = ("strides", "shows operands", "offset", "is a view", "contiguous")
            for name, a, b in zip(names, g, w, strict=True):
                if a != b:
                    return f"{kind} result {k} {name}: {a} instead of {b}"
    return ""


def check_out(reference: Any, function: Any, sample: Any, ad: Any) -> str:
    """`out=`: right shape at odd strides, empty (it grows), a wrong shape, other dtypes."""
    import torch

    theirs = ((sample.input, *sample.args), dict(sample.kwargs))
    for t in flat(list(theirs)):
        if is_tensor(t) and t.is_leaf:
            t.requires_grad_(False)
    mine = convert(theirs, ad, [])
    expected = by_pytorch(lambda: reference(*theirs[0], **theirs[1]))
    if expected is None or isinstance(expected, bool | int | float):
        raise Unsupported("no tensor")
    one = is_tensor(expected)
    if not one and not all(is_tensor(t) for t in expected):
        raise Unsupported("lists of results")
    shapes = [(tuple(t.shape), t.dtype) for t in ([expected] if one else expected)]

    def made(kind: str) -> list[Any]:
        found = []
        for shape, dtype in shapes:
            if kind == "strided":
                found.append(torch.zeros((*shape[::-1], 2), dtype=dtype)[..., 0].permute(
                    tuple(range(len(shape))[::-1])))
            elif kind == "empty":
                found.append(torch.zeros(0, dtype=dtype))
            elif kind == "wrong shape":
                found.append(torch.zeros((*shape, 2, 1), dtype=dtype))
            else:
                found.append(torch.zeros(shape, dtype=getattr(torch, kind)))
        return found

    def call(f: Any, both: Any, outs: list[Any]) -> Any:
        try:
            given = f(*both[0], **both[1], out=outs[0] if one else tuple(outs))
        except (RuntimeError, TypeError, IndexError, ValueError) as error:
            return type(error).__name__
        given = [given] if one else list(outs if given is None else given)
        same = [g is o for g, o in zip(given, outs, strict=True)]
        return same, [(tuple(o.shape), strides(o), str(o.dtype).split(".")[-1]) for o in outs]

    for kind in ("strided", "empty", "wrong shape", "int64", "float64", "float32", "complex128"):
        outs = made(kind)
        ours_outs = [mirrored(o, ad) for o in made(kind)]  # (NumPy's view would pin its size)
        want = call(reference, theirs, outs)
        got = call(function, mine, ours_outs)
        if want == "TypeError" and kind == "strided":
            raise Unsupported("no out=")
        answers = [expected] if one else expected
        if not isinstance(want, str) and any(
                differs(o, e.to(o.dtype), "") for o, e in zip(outs, answers, strict=True)):
            continue  # (some of PyTorch's write past the strides of `out`)
        if got != want and not isinstance(want, str) and not isinstance(got, str):
            return f"out {kind}: {got} instead of {want}"
        if isinstance(want, str) or isinstance(got, str):
            if isinstance(want, str) != isinstance(got, str):
                return f"out {kind}: {str(got)[:60]} instead of {str(want)[:60]}"
            continue
        for m, t, e in zip(ours_outs, outs, answers, strict=True):  # (as precise as computed)
            made_in = str(e.dtype).split(".")[-1]
            if reason := differs(m.to(getattr(ad, made_in)), t.to(e.dtype), f"out {kind}"):
                return reason
    return ""


TESTS = {"jvp": check_tangents, "writes": check_writes, "vmap": check_batching,
         "noncontiguous": check_noncontiguous, "second": check_second, "mixed": check_mixed,
         "mask": check_mask, "refused": check_refused, "layout": check_layout, "out": check_out}
