"""Activations: pointwise nonlinearities and the softmax family.

``inplace=True`` writes the result into the input, as the functional form does. Shapes: the
output has the shape of the input unless the class says otherwise.
"""
from __future__ import annotations

import warnings
from typing import Any

import adjoint.nn.functional as F
from adjoint.base.errors import AssertedError, ShapeError
from adjoint.core.tensor import Tensor
from adjoint.nn.init import constant_
from adjoint.nn.modules._check import empty_parameter, positive, rank
from adjoint.nn.modules.attention import MultiheadAttention
from adjoint.nn.modules.module import Module

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
    "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "MultiheadAttention", "PReLU", "RReLU",
    "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus",
    "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]


class _MaybeInplace(Module):
    """Holds the ``inplace`` flag and prints it when set."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_MaybeInplace):
    """``max(x, 0)``; derivative 0 at 0.

    >>> import adjoint as ad
    >>> ad.nn.ReLU()(ad.tensor(-2.0)).item()
    0.0
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, inplace=self.inplace)


class SiLU(_MaybeInplace):
    """``x sigmoid(x)``, also called swish (Elfwing et al. 2017).

    >>> import adjoint as ad
    >>> ad.nn.SiLU()(ad.tensor(0.0)).item()
    0.0
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, inplace=self.inplace)


class Mish(_MaybeInplace):
    """``x tanh(softplus(x))`` (Misra 2019).

    >>> import adjoint as ad
    >>> ad.nn.Mish()(ad.tensor(0.0)).item()
    0.0
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, inplace=self.inplace)


class SELU(_MaybeInplace):
    """Scaled ELU with the self-normalizing constants (Klambauer et al. 2017).

    >>> import adjoint as ad
    >>> ad.nn.SELU()(ad.tensor(0.0)).item()
    0.0
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, inplace=self.inplace)


class Hardsigmoid(_MaybeInplace):
    """``clip(x / 6 + 1/2, 0, 1)``.

    >>> import adjoint as ad
    >>> ad.nn.Hardsigmoid()(ad.tensor(3.0)).item()
    1.0
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, inplace=self.inplace)

    extra_repr = Module.extra_repr         # PyTorch's prints nothing


class Hardswish(_MaybeInplace):
    """``x clip(x + 3, 0, 6) / 6`` (Howard et al. 2019).

    >>> import adjoint as ad
    >>> ad.nn.Hardswish()(ad.tensor(3.0)).item()
    3.0
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, inplace=self.inplace)

    extra_repr = Module.extra_repr         # PyTorch's prints nothing


class Sigmoid(Module):
    """``1 / (1 + exp(-x))``.

    >>> import adjoint as ad
    >>> ad.nn.Sigmoid()(ad.tensor(0.0)).item()
    0.5
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent.

    >>> import adjoint as ad
    >>> ad.nn.Tanh()(ad.tensor(0.0)).item()
    0.0
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input)


class LogSigmoid(Module):
    """``log(sigmoid(x))`` without overflow.

    >>> import adjoint as ad
    >>> ad.nn.LogSigmoid()(ad.tensor(1000.0)).item()
    0.0
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softsign(Module):
    """``x / (1 + |x|)``.

    >>> import adjoint as ad
    >>> ad.nn.Softsign()(ad.tensor(1.0)).item()
    0.5
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(Module):
    """``x - tanh(x)``.

    >>> import adjoint as ad
    >>> ad.nn.Tanhshrink()(ad.tensor(0.0)).item()
    0.0
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class ELU(_MaybeInplace):
    """``x`` for x > 0, else ``alpha (exp(x) - 1)`` (Clevert et al. 2015).

    >>> import adjoint as ad
    >>> ad.nn.ELU()(ad.tensor(2.0)).item()
    2.0
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(_MaybeInplace):
    """``max(0, x) + min(0, alpha (exp(x / alpha) - 1))`` (Barron 2017).

    >>> import adjoint as ad
    >>> ad.nn.CELU(2.0)(ad.tensor(2.0)).item()
    2.0
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class LeakyReLU(_MaybeInplace):
    """``x`` for x > 0, else ``negative_slope x``.

    >>> import adjoint as ad
    >>> ad.nn.LeakyReLU(0.5)(ad.tensor(-2.0)).item()
    -1.0
    """

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class RReLU(_MaybeInplace):
    """Leaky ReLU whose slope is drawn per element from [lower, upper] in training and is their
    mean in evaluation (Xu et al. 2015).

    >>> import adjoint as ad
    >>> ad.nn.RReLU(0.25, 0.75).eval()(ad.tensor(-2.0)).item()
    -1.0
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
                 ) -> None:
        super().__init__(inplace)
        self.lower = lower
        self.upper = upper

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return (f"lower={self.lower}, upper={self.upper}"
                + (", inplace=True" if self.inplace else ""))


class Hardtanh(_MaybeInplace):
    """``clip(x, min_val, max_val)``; derivative 0 at both bounds.

    ``min_value`` and ``max_value`` are old names of the bounds. Raises ArgumentError unless
    max_val > min_val.

    >>> import adjoint as ad
    >>> ad.nn.Hardtanh()(ad.tensor(3.0)).item()
    1.0
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False,
                 min_value: float | None = None, max_value: float | None = None) -> None:
        super().__init__(inplace)
        for old, new, given in (("min_value", "min_val", min_value),
                                ("max_value", "max_val", max_value)):
            if given is not None:
                warnings.warn(f"keyword argument `{old}` is deprecated and renamed to `{new}`",
                              FutureWarning, stacklevel=2)
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        if self.max_val <= self.min_val:
            raise AssertedError(f"max_val ({self.max_val}) must be greater than min_val "
                                f"({self.min_val})")

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return (f"min_val={self.min_val}, max_val={self.max_val}"
                + (", inplace=True" if self.inplace else ""))


class ReLU6(Hardtanh):
    """``clip(x, 0, 6)``.

    >>> import adjoint as ad
    >>> ad.nn.ReLU6()(ad.tensor(9.0)).item()
    6.0
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Threshold(_MaybeInplace):
    """``x`` where x > threshold, else ``value``.

    >>> import adjoint as ad
    >>> ad.nn.Threshold(0.5, 20.0)(ad.tensor(0.1)).item()
    20.0
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return (f"threshold={self.threshold}, value={self.value}"
                + (", inplace=True" if self.inplace else ""))


class GELU(Module):
    """``x Phi(x)`` with the normal distribution function Phi (Hendrycks and Gimpel 2016).

    ``approximate="tanh"`` uses the tanh formula instead of erf.

    >>> import adjoint as ad
    >>> ad.nn.GELU()(ad.tensor(0.0)).item()
    0.0
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class GLU(Module):
    """Splits the input in halves a, b along ``dim`` and returns ``a sigmoid(b)`` (Dauphin et al.
    2016); that axis must be even.

    >>> import adjoint as ad
    >>> ad.nn.GLU()(ad.tensor([2.0, 0.0])).tolist()
    [1.0]
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Hardshrink(Module):
    """0 where |x| <= lambd, else x.

    >>> import adjoint as ad
    >>> ad.nn.Hardshrink()(ad.tensor(0.25)).item()
    0.0
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Softshrink(Module):
    """Moves x towards 0 by ``lambd``, stopping there.

    >>> import adjoint as ad
    >>> ad.nn.Softshrink()(ad.tensor(2.0)).item()
    1.5
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Softplus(Module):
    """``log(1 + exp(beta x)) / beta``; the identity where beta x > threshold.

    >>> import adjoint as ad
    >>> ad.nn.Softplus()(ad.tensor(50.0)).item()
    50.0
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class PReLU(Module):
    """Leaky ReLU with a learned slope, one for all or one per channel (axis 1) (He et al. 2015).

    >>> import adjoint as ad
    >>> ad.nn.PReLU()(ad.tensor([-4.0])).tolist()
    [-1.0]
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None,
                 dtype: Any = None) -> None:
        positive("PReLU", zero_ok=True, num_parameters=num_parameters)
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = empty_parameter((num_parameters,), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set every slope to its initial value."""
        constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        n = self.num_parameters
        if n > 1 and (input.ndim < 2 or input.shape[1] != n):
            raise ShapeError(f"PReLU: {n} slopes need an input with {n} channels in axis 1, got "
                             f"shape {tuple(input.shape)}")
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class _AlongDim(Module):
    """Holds ``dim``; None picks an axis by the input's rank, as the functional form does."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """``exp(x) / sum exp(x)`` along ``dim``, without overflow.

    >>> import adjoint as ad
    >>> ad.nn.Softmax(0)(ad.tensor([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim, _stacklevel=5)


class Softmin(_AlongDim):
    """Softmax of the negated input.

    >>> import adjoint as ad
    >>> ad.nn.Softmin(0)(ad.tensor([1.0, 1.0])).tolist()
    [0.5, 0.5]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDim):
    """``log(softmax(x))`` along ``dim``, without overflow or underflow.

    >>> import adjoint as ad
    >>> ad.nn.LogSoftmax(0)(ad.tensor([3.0])).tolist()
    [0.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W).

    >>> import adjoint as ad
    >>> ad.nn.Softmax2d()(ad.zeros(2, 1, 1)).flatten().tolist()
    [0.5, 0.5]
    """

    def forward(self, input: Tensor) -> Tensor:
        rank(self, input, (3, 4), "(N, C, H, W) or (C, H, W)")
        return F.softmax(input, -3, _stacklevel=5)
