"""Arguments of a wrong kind: refused where PyTorch refuses them, by the same builtin exception."""
from typing import Any

import pytest

import adjoint as ad

torch = pytest.importorskip("torch")

# expression | how much of PyTorch's message ours begins with (all but numbers of its own)
REFUSED = """
t.maximum(x, 1) | maximum(): argument 'other' (position 2) must be Tensor, not int
t.fmin(1.5, x) | fmin(): argument 'input' (position 1) must be Tensor, not float
t.hypot(x, 2) | hypot(): argument 'other' (position 2) must be Tensor, not int
t.atan2(x, True) | atan2(): argument 'other' (position 2) must be Tensor, not bool
t.logical_and(x, None) | logical_and(): argument 'other' (position 2) must be Tensor, not NoneType
t.logaddexp(x, 1) | logaddexp(): argument 'other' (position 2) must be Tensor, not int
t.ldexp(x, 2) | ldexp(): argument 'other' (position 2) must be Tensor, not int
t.dist(x, 1) | dist(): argument 'other' (position 2) must be Tensor, not int
t.igamma(x, 1) | igamma(): argument 'other' (position 2) must be Tensor, not int
t.heaviside(x, i) | heaviside is not yet implemented for tensors with different dtypes
t.heaviside(z, z) | heaviside is not yet implemented for complex tensors
t.eq(x, None) |
t.eq(x, "a") |
t.stack(x) | stack(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor
t.cat(x) | cat(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor
t.hstack(x) | hstack(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor
t.column_stack(x) | column_stack(): argument 'tensors' (position 1) must be tuple of Tensors, not
t.sum(x, True) |
t.sum(x, {}) |
x.amax(True) |
x.mean(dim=True) |
t.conj(3) | conj(): argument 'input' (position 1) must be Tensor, not int
t.sinc(1.5) | sinc(): argument 'input'
t.nan_to_num("a") | nan_to_num(): argument 'input'
t.abs(x, out="a") |
t.addmm(x, x, x, out=3) |
x.float(5) |
x.cpu(5) |
t.erf(z) | "erf_vml_cpu" not implemented for 'ComplexFloat'
t.lgamma(z) | "lgamma_vml_cpu" not implemented for 'ComplexFloat'
t.floor(b) | "floor_vml_cpu" not implemented for 'Bool'
t.round(z) | "round_vml_cpu" not implemented for 'ComplexFloat'
t.frac(i) | "frac_cpu" not implemented for 'Long'
F.elu(i) | "elu_cpu" not implemented for 'Long'
F.leaky_relu(b) | "leaky_relu_cpu" not implemented for 'Bool'
F.silu(i) | "silu_cpu" not implemented for 'Long'
F.softplus(z) | "softplus_cpu" not implemented for 'ComplexFloat'
F.mish(i) | "mish_cpu" not implemented for 'Long'
F.hardswish(i) | "hardswish_cpu" not implemented for 'Long'
F.hardsigmoid(i) | "hardsigmoid_cpu" not implemented for 'Long'
t.amax(z) | "max_values_cpu" not implemented for 'ComplexFloat'
t.max(z) | "max_all" not implemented for 'ComplexFloat'
t.aminmax(z) | "aminmax_cpu" not implemented for 'ComplexFloat'
t.argmax(z) | argmax(): does not support complex input
t.argmin(b) | argmin(): does not support bool input
t.sort(z) | Sort does not support complex dtypes on CPU
t.median(b) | "median_cpu" not implemented for 'Bool'
t.mode(z) | "mode_cpu" not implemented for 'ComplexFloat'
t.unique(z) | "unique" not implemented for 'ComplexFloat'
t.nansum(z) | nansum on CPU does not support complex inputs
t.nanmean(i) | nanmean(): expected input to have floating point or complex dtype but got Long
t.deg2rad(z) | deg2rad is not supported for complex tensors.
"""
ROWS = [tuple(part.strip() for part in line.split("|")) for line in REFUSED.strip().splitlines()]


def refusal(t: Any, expression: str) -> Exception:
    x = t.tensor([[1.0, 2.0], [3.0, 4.0]])
    space = {"t": t, "F": t.nn.functional, "x": x, "i": x.long(), "b": x > 2,
             "z": x.to(t.complex64)}
    with pytest.raises(Exception) as caught:  # noqa: PT011  # compared below
        eval(expression, space)  # noqa: S307  # our own table
    return caught.value


@pytest.mark.parametrize("expression, words", ROWS, ids=[row[0] for row in ROWS])
def test_refused_as_in_pytorch(expression: str, words: str) -> None:
    ours, theirs = refusal(ad, expression), refusal(torch, expression)
    kind = next(k for k in type(theirs).__mro__ if k.__module__ == "builtins")
    assert isinstance(ours, kind), (ours, theirs)
    if words:
        assert str(theirs).strip().startswith(words), theirs
        assert str(ours).strip().startswith(words), ours


def test_numpy_functions_take_numbers() -> None:
    """What NumPy takes stays: the refusals are those of PyTorch's functions."""
    np = pytest.importorskip("numpy")
    x = ad.tensor([1.0, 3.0])
    assert np.maximum(x, 2.0).tolist() == [2.0, 3.0] and np.fmin(2, x).tolist() == [1.0, 2.0]
    assert np.maximum(x, 2).dtype == ad.float32 and np.hypot(x, 0).tolist() == [1.0, 3.0]
