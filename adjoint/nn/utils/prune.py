"""Pruning: a parameter becomes `name_orig` times a mask of zeros and ones, `name_mask`.

The product is made again before every forward, so that gradients reach only what is kept.
Pruning again counts and ranks only what is left. Sources: Y. LeCun et al., "Optimal brain damage"
(1990); S. Han et al., "Learning both weights and connections" (2015).
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from adjoint.base.errors import (
    ArgumentError,
    AssertedError,
    DTypeError,
    IndexOutOfRange,
)
from adjoint.base.errors import missing as _missing
from adjoint.core.tensor import Tensor
from adjoint.nn.modules.module import Module
from adjoint.ops.public import FUNCTIONS as _F

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured",
    "PruningContainer", "RandomStructured", "RandomUnstructured", "custom_from_mask",
    "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]

M = TypeVar("M", bound=Module)
Amount = int | float


# -------------------------------------------------------------------------------- the methods
class BasePruningMethod(ABC):
    """A way to choose what goes; also the forward pre-hook that multiplies by the mask.

    A subclass sets ``PRUNING_TYPE`` ("unstructured": ranked among the elements that are left;
    "structured": among the slices along ``dim`` that are left; "global": over everything) and
    defines ``compute_mask``.
    """

    PRUNING_TYPE: ClassVar[str]
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """A mask of the shape of the scores ``t``; 0 wherever ``default_mask`` is."""

    def apply_mask(self, module: Module) -> Tensor:
        """The parameter times its mask."""
        original = getattr(module, self._tensor_name + "_orig")
        out: Tensor = getattr(module, self._tensor_name + "_mask").to(original.dtype) * original
        return out

    @classmethod
    def apply(cls, module: M, name: str, *args: Any, importance_scores: Tensor | None = None,
              **kwargs: Any) -> Any:
        """Prune parameter ``name`` of ``module``; returns the method, which is the hook.

        ``importance_scores`` (of the parameter's shape) are ranked in place of the parameter.
        Raises before anything is changed.
        """
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        key, old = _hook(module, name)
        original = getattr(module, name if old is None else name + "_orig")
        scores = original if importance_scores is None else importance_scores
        if tuple(scores.shape) != tuple(original.shape):
            raise AssertedError("importance_scores should have the same shape as parameter "
                                f"{name} of {module}, got {scores.shape} vs {original.shape}")
        if old is None:
            before = _F["ones_like"](original.detach())
        else:
            before = getattr(module, name + "_mask").clone()
            method = _joined(old, method)
        mask = method.compute_mask(scores.detach(), before)
        if old is None:
            del module._parameters[name]
            module.register_parameter(name + "_orig", original)
        else:
            del module._forward_pre_hooks[key]
        module.register_buffer(name + "_mask", mask.to(original.dtype))
        method(module, None)
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None,
              importance_scores: Tensor | None = None) -> Tensor:
        """``t`` with zeros where this method prunes it."""
        scores = t if importance_scores is None else importance_scores
        if tuple(scores.shape) != tuple(t.shape):
            raise AssertedError("importance_scores should have the same shape as tensor t, got "
                             f"{scores.shape} vs {t.shape}")
        before = _F["ones_like"](t) if default_mask is None else default_mask
        out: Tensor = t * self.compute_mask(scores, before).to(t.dtype)
        return out

    def remove(self, module: Module) -> None:
        """Make the pruned values the parameter again; what was pruned stays 0."""
        name = self._tensor_name
        original, value = getattr(module, name + "_orig"), self.apply_mask(module).detach()
        if hasattr(module, name):
            delattr(module, name)
        original.data = value
        del module._parameters[name + "_orig"], module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Methods applied one after the other to one parameter; the last one ranks what is left."""

    def __init__(self, *args: Any) -> None:
        first = args[0] if len(args) == 1 and isinstance(args[0], Iterable) and not isinstance(
            args[0], BasePruningMethod) else args
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        for method in first:
            if not self._pruning_methods and isinstance(method, BasePruningMethod):
                self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Append a method for the same parameter."""
        if not isinstance(method, BasePruningMethod):
            raise DTypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method._tensor_name != self._tensor_name:
            raise ArgumentError("Can only add pruning methods acting on the parameter named "
                                f"'{self._tensor_name}' to PruningContainer {self}. Found "
                                f"'{method._tensor_name}'")
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of the last method on what the mask so far keeps, and that mask."""
        method: Any = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype)
        left: Any
        if method.PRUNING_TYPE == "unstructured":
            left = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = _validate_pruning_dim(t, method.dim)
            others = [d for d in range(t.ndim) if d != dim]
            left = (slice(None),) * dim + (mask.sum(others) != 0,)
        elif method.PRUNING_TYPE == "global":
            left = (slice(None),) * t.ndim
        else:
            raise ArgumentError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}; one of "
                                "unstructured, structured, global is needed")
        out: Tensor = mask.clone()
        out[left] = method.compute_mask(t[left], mask[left]).to(mask.dtype)
        return out


class Identity(BasePruningMethod):
    """Prunes nothing: a mask of ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask so far."""
        return default_mask


class CustomFromMask(BasePruningMethod):
    """Prunes where a given mask is 0."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The given mask, and the one so far."""
        if tuple(default_mask.shape) != tuple(self.mask.shape):
            raise AssertedError(f"default_mask shape {default_mask.shape} must match "
                                f"self.mask shape {self.mask.shape}")
        out: Tensor = default_mask * self.mask.to(default_mask.dtype)
        return out


class _Lowest(BasePruningMethod):
    """Prunes the elements of lowest score."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Amount) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def _scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """0 for the elements of lowest score, and where the mask so far is 0."""
        count = _count(self.amount, t.numel())
        mask: Tensor = default_mask.clone()
        if count:
            flat = self._scores(t).reshape(-1)
            lowest = _F["topk"](flat, count, largest=False).indices
            mask.view(-1)[lowest] = 0
        return mask


class L1Unstructured(_Lowest):
    """Prunes the elements of least magnitude: ``amount`` of them, or that fraction."""

    def _scores(self, t: Tensor) -> Tensor:
        return _F["abs"](t)


class RandomUnstructured(_Lowest):
    """Prunes random elements: ``amount`` of them, or that fraction."""

    def _scores(self, t: Tensor) -> Tensor:
        return -_F["rand_like"](t)      # those of the largest numbers go, as in PyTorch


class _Slices(BasePruningMethod):
    """Prunes whole slices along an axis, those of lowest score."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Amount, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount, self.dim = amount, dim

    def _scores(self, t: Tensor, dim: int) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """0 for the slices of lowest score, and where the mask so far is 0."""
        _validate_structured_pruning(t)
        dim = _validate_pruning_dim(t, self.dim)
        n = t.shape[dim]
        count = _count(self.amount, n)
        keep = np.zeros(n, bool)
        keep[_F["topk"](self._scores(t, dim), n - count).indices.numpy()] = True
        shape = [n if d == dim else 1 for d in range(t.ndim)]
        out: Tensor = default_mask * _F["as_tensor"](keep).reshape(shape).to(default_mask.dtype)
        return out


class LnStructured(_Slices):
    """Prunes the slices along ``dim`` of least ``n``-norm: ``amount`` of them, or that fraction."""

    def __init__(self, amount: Amount, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor, dim: int) -> Tensor:
        return _compute_norm(t, self.n, dim)


class RandomStructured(_Slices):
    """Prunes random slices along ``dim``: ``amount`` of them, or that fraction."""

    def _scores(self, t: Tensor, dim: int) -> Tensor:
        return _F["rand"](t.shape[dim])


# ---------------------------------------------------------------------------------- arguments
def _validate_pruning_amount_init(amount: Any) -> None:
    if isinstance(amount, bool) or not isinstance(amount, (int, float, np.number)):
        raise DTypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    whole = isinstance(amount, (int, np.integer))
    if amount < 0 or not whole and not amount <= 1:
        raise ArgumentError(f"amount={amount} should either be a float in the range [0, 1] or a "
                            "non-negative integer")


def _validate_pruning_amount(amount: Amount, tensor_size: int) -> None:
    if isinstance(amount, (int, np.integer)) and amount > tensor_size:
        raise ArgumentError(f"amount={amount} should be smaller than the number of parameters "
                            f"to prune={tensor_size}")


def _compute_nparams_toprune(amount: Amount, tensor_size: int) -> int:
    """How many of ``tensor_size`` go."""
    whole = isinstance(amount, (int, np.integer))
    return int(amount) if whole else round(amount * tensor_size)


def _count(amount: Amount, size: int) -> int:
    _validate_pruning_amount(amount, size)
    return _compute_nparams_toprune(amount, size)


def _validate_structured_pruning(t: Tensor) -> None:
    if t.ndim <= 1:
        raise ArgumentError("Structured pruning can only be applied to multidimensional tensors. "
                            f"Found tensor of shape {t.shape} with {t.ndim} dims")


def _compute_norm(t: Tensor, n: Any, dim: int) -> Tensor:
    """The norm of each slice along ``dim``."""
    dim = _validate_pruning_dim(t, dim)
    norm: Tensor = _F["norm"](t, p=n, dim=[d for d in range(t.ndim) if d != dim])
    return norm


def _validate_pruning_dim(t: Tensor, dim: int) -> int:
    if not -t.ndim <= dim < t.ndim:
        raise IndexOutOfRange(f"Invalid index {dim} for tensor of size {t.shape}; "
                              f"{t.ndim} axes, so {-t.ndim} to {t.ndim - 1}")
    return dim % t.ndim


def _hook(module: Module, name: str) -> tuple[Any, BasePruningMethod | None]:
    """The hook that prunes a parameter, with its key."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return key, hook
    return None, None


def _joined(old: BasePruningMethod, new: BasePruningMethod) -> PruningContainer:
    """The methods of a hook and another one, in a new container."""
    return PruningContainer(*(old if isinstance(old, PruningContainer) else (old,)), new)


# ---------------------------------------------------------------------------------- functions
def identity(module: M, name: str) -> M:
    """Reparameterize ``name`` with a mask of ones.

    >>> import adjoint as ad
    >>> identity(ad.nn.Linear(2, 3), "bias").bias_mask
    tensor([1., 1., 1.])
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: M, name: str, amount: Amount) -> M:
    """Prune random elements of parameter ``name``: ``amount`` of those left, or that fraction.

    Raises ArgumentError where ``amount`` is negative or more than there is.

    >>> import adjoint as ad
    >>> int((random_unstructured(ad.nn.Linear(2, 3), "weight", 4).weight_mask == 0).sum())
    4
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: M, name: str, amount: Amount,
                    importance_scores: Tensor | None = None) -> M:
    """Prune the elements of parameter ``name`` of least magnitude (or least score).

    >>> import adjoint as ad
    >>> m = ad.nn.Linear(2, 2, bias=False)
    >>> m.weight = ad.nn.Parameter(ad.tensor([[1.0, -3.0], [0.5, 2.0]]))
    >>> l1_unstructured(m, "weight", 0.5).weight.detach()
    tensor([[ 0., -3.],
            [ 0.,  2.]])
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: M, name: str, amount: Amount, dim: int) -> M:
    """Prune random slices of parameter ``name`` along ``dim``.

    >>> import adjoint as ad
    >>> m = random_structured(ad.nn.Linear(5, 3), "weight", 2, dim=1)
    >>> int((m.weight_mask.sum(0) == 0).sum())
    2
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: M, name: str, amount: Amount, n: Any, dim: int,
                  importance_scores: Tensor | None = None) -> M:
    """Prune the slices of parameter ``name`` along ``dim`` of least ``n``-norm.

    >>> import adjoint as ad
    >>> m = ad.nn.Linear(2, 2, bias=False)
    >>> m.weight = ad.nn.Parameter(ad.tensor([[1.0, -3.0], [0.5, 2.0]]))
    >>> ln_structured(m, "weight", 1, n=float("inf"), dim=0).weight_mask
    tensor([[1., 1.],
            [0., 0.]])
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: M, name: str, mask: Tensor) -> M:
    """Prune parameter ``name`` where ``mask`` (of its shape) is 0.

    >>> import adjoint as ad
    >>> custom_from_mask(ad.nn.Linear(5, 3), "bias", ad.tensor([0, 1, 0])).bias_mask
    tensor([0., 1., 0.])
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Iterable[tuple[Module, str]], pruning_method: Any,
                        importance_scores: Mapping[Any, Tensor] | None = None,
                        **kwargs: Any) -> None:
    """Prune several parameters, ranked together: ``parameters`` are pairs (module, name).

    ``importance_scores`` maps such pairs to scores. Raises DTypeError for a method that prunes
    slices.

    >>> import adjoint as ad
    >>> m = ad.nn.Linear(2, 2)
    >>> global_unstructured([(m, "weight"), (m, "bias")], L1Unstructured, amount=3)
    >>> int(m.weight_mask.sum() + m.bias_mask.sum())
    3
    """
    pairs = list(parameters)
    given = {} if importance_scores is None else importance_scores
    if not isinstance(given, Mapping):
        raise DTypeError("global_unstructured(): importance_scores should be of type dict, got "
                         f"{type(given).__name__}")
    values = [getattr(module, name) for module, name in pairs]
    scores = [given.get(pair, v) for pair, v in zip(pairs, values, strict=True)]
    masks = [getattr(module, name + "_mask", _F["ones_like"](v.detach()))
             for (module, name), v in zip(pairs, values, strict=True)]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise DTypeError('Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. '
                         f"Found method {pruning_method} of type {method.PRUNING_TYPE}")
    method._tensor_name = "all"
    flat, before = (_F["cat"]([t.detach().reshape(-1) for t in ts]) for ts in (scores, masks))
    final = PruningContainer(method).compute_mask(flat, before)
    parts = _F["split"](final, [v.numel() for v in values])
    for (module, name), v, part in zip(pairs, values, parts, strict=True):
        custom_from_mask(module, name, part.reshape(v.shape))


def remove(module: M, name: str) -> M:
    """Make the pruned values parameter ``name`` again; what was pruned stays 0.

    Raises ArgumentError where it is not pruned.

    >>> import adjoint as ad
    >>> m = remove(identity(ad.nn.Linear(2, 3), "bias"), "bias")
    >>> isinstance(m.bias, ad.nn.Parameter), is_pruned(m)
    (True, False)
    """
    key, hook = _hook(module, name)
    if hook is None:
        raise ArgumentError(f"Parameter '{name}' of module {module} has to be pruned before "
                            "pruning can be removed")
    hook.remove(module)
    del module._forward_pre_hooks[key]
    return module


def is_pruned(module: Module) -> bool:
    """True if a parameter of ``module`` or of a module inside it is pruned."""
    return any(isinstance(hook, BasePruningMethod) for inner in module.modules()
               for hook in inner._forward_pre_hooks.values())


__getattr__ = _missing("adjoint.nn.utils.prune")
