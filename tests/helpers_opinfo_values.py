"""Arguments and results of PyTorch beside ours: converted, taken apart, compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

HERE = (  # dtypes of tensors that both have
    "float64 float32 float16 bfloat16 complex64 complex128 int64 int32 int16 int8 uint8 uint16"
    " uint32 uint64 bool").split()
TOLERANCE = {
    "float64": 1e-7,
    "complex128": 1e-7,
    "float32": 2e-4,
    "complex64": 2e-4,
    "float16": 5e-3,
    "bfloat16": 4e-2,
}


class Unsupported(Exception):
    """A sample that has no meaning here (sparse layouts, other devices, memory formats)."""


def of_array(numbers: np.ndarray, ad: Any) -> Any:
    """A tensor of NumPy's numbers; bfloat16 goes by its bits, as `from_numpy` does not know it."""
    if numbers.dtype.name == "bfloat16":
        return ad.from_numpy(numbers.view(np.int16)).view(ad.bfloat16)
    return ad.from_numpy(numbers)


def mirrored(value: Any, ad: Any) -> Any:
    """The same numbers at the same strides, in memory of its own."""
    import torch

    if value.is_contiguous() or not value.numel():
        return of_array(array(value).copy(), ad)
    reach = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
    start = value.storage_offset()
    memory = array(torch.as_strided(value, (start + reach,), (1,), 0)).copy()
    return of_array(memory, ad).as_strided(tuple(value.shape), value.stride(), start)


def convert(value: Any, ad: Any, leaves: list[tuple[Any, Any]]) -> Any:
    """A PyTorch argument as one of adjoint; those that require grad are noted in `leaves`."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_quantized:
            raise Unsupported(str(value.layout))
        if value.device.type != "cpu" or str(value.dtype).split(".")[-1] not in HERE:
            raise Unsupported(f"{value.device} {value.dtype}")
        if value.ndim > 64:
            raise Unsupported("NumPy has at most 64 axes")
        out = mirrored(value.detach().resolve_conj().resolve_neg(), ad)
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
        if str(value.dtype) == "torch.bfloat16":
            import ml_dtypes
            import torch

            bits = value.contiguous().view(torch.int16).numpy(force=True)
            return np.asarray(bits).view(ml_dtypes.bfloat16)
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
    if a.dtype.itemsize == 2:  # computed in float32 here: what overflows there may be finite
        a, b = a.astype(np.float32), b.astype(np.float32)
        more = np.isinf(b) & np.isfinite(a) | np.isnan(b) & np.isinf(a)     # (inf - inf there)
        a, b = a[~more], b[~more]
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
        seeds.append(torch.from_numpy(np.asarray(seed)).to(t.dtype))
    outputs, inputs = [t for _, t in pairs], [b for _, b in leaves]
    want = by_pytorch(
        lambda: torch.autograd.grad(
            outputs, inputs, seeds, allow_unused=True
        )
    )
    got = ad.autograd.grad(
        [m for m, _ in pairs],
        [a for a, _ in leaves],
        [mirrored(s, ad) for s in seeds],
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


def after(function: Any, process: Any) -> Any:
    """`process` of what `function` gives."""
    return lambda *args, **kwargs: process(function(*args, **kwargs))


def exchanged(value: Any, new: dict[int, Any]) -> Any:
    """The same arguments with some tensors replaced, by identity."""
    if id(value) in new:
        return new[id(value)]
    if isinstance(value, tuple | list):
        return type(value)(exchanged(v, new) for v in value)
    if isinstance(value, dict):
        return {k: exchanged(v, new) for k, v in value.items()}
    return value
