"""Spectral normalization by hooks (Miyato et al. 2018)."""
from __future__ import annotations

from typing import Any, TypeVar

import adjoint.nn._core as core
import adjoint.nn.functional as F
from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Parameter, Tensor
from adjoint.nn._core import no_grad
from adjoint.nn.modules.module import Module

__all__ = ["SpectralNorm", "as_matrix", "power_iterations", "remove_spectral_norm",
           "spectral_norm", "start_vectors"]

M = TypeVar("M", bound=Module)


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """``weight`` with axis ``dim`` in front and all others joined."""
    if dim != 0:
        weight = weight.permute(dim, *(d for d in range(weight.ndim) if d != dim))
    out: Tensor = weight.reshape(weight.shape[0], -1)
    return out


def start_vectors(matrix: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Random unit vectors (left, right) for the power iteration."""
    made = []
    for n in matrix.shape:
        draw = core.empty((n,), dtype=matrix.dtype).normal_(0, 1)
        made.append(F.normalize(draw, dim=0, eps=eps))
    return made[0], made[1]


def power_iterations(matrix: Tensor, u: Tensor, v: Tensor, n: int, eps: float) -> None:
    """Move u and v, in place, towards the leading singular vectors."""
    with no_grad():
        for _ in range(n):
            v.copy_(F.normalize(matrix.t() @ u, dim=0, eps=eps))
            u.copy_(F.normalize(matrix @ v, dim=0, eps=eps))


class SpectralNorm:
    """The forward pre-hook that divides the weight by its largest singular value."""

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        if n_power_iterations <= 0:
            raise ArgumentError("Expected n_power_iterations to be positive, but got "
                                f"n_power_iterations={n_power_iterations}")
        self.name, self.dim, self.eps = name, dim, eps
        self.n_power_iterations = n_power_iterations

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        """The normalized weight; iterates first if asked to."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            power_iterations(matrix.detach(), u, v, self.n_power_iterations, self.eps)
            u, v = u.clone(), v.clone()  # the graph keeps these; the buffers move on
        out: Tensor = weight / (u * (matrix @ v)).sum()
        return out

    def say_version(self, module: Module, state_dict: Any, prefix: str, metadata: Any) -> None:
        """Which buffers a state dict has: since version 1 both vectors."""
        said = metadata.setdefault("spectral_norm", {})
        key = self.name + ".version"
        if key in said:
            raise ArgumentError(f"Unexpected key in metadata['spectral_norm']: {key}")
        said[key] = 1

    def from_older(self, state_dict: Any, prefix: str, metadata: Any, *_: Any) -> None:
        """A state dict of before version 1 has the normalized weight in place of the right vector,
        which is the one that gives the same norm."""
        key = prefix + self.name
        old = [key + "_orig", key, key + "_u"]
        if self.name + ".version" in metadata.get("spectral_norm", {}) or key + "_v" in state_dict \
                or not all(k in state_dict for k in old):
            return
        with no_grad():
            weight, u = state_dict[key + "_orig"], state_dict[key + "_u"]
            norm = (weight / state_dict.pop(key)).mean()
            matrix = as_matrix(weight, self.dim)
            v = (matrix.mT @ matrix).pinverse() @ (matrix.mT @ u)
            state_dict[key + "_v"] = v * (norm / (u * (matrix @ v)).sum())

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


def spectral_norm(module: M, name: str = "weight", n_power_iterations: int = 1,
                  eps: float = 1e-12, dim: int | None = None) -> M:
    """Divide parameter ``name`` by an estimate of its largest singular value before every forward.

    The estimate comes from ``n_power_iterations`` per forward in training, on vectors kept in
    buffers; the parameter is now ``name_orig``. ``dim`` is the output axis (1 for transposed
    convolutions, else 0).

    >>> import adjoint as ad
    >>> m = spectral_norm(ad.nn.Linear(2, 3))
    >>> sorted(m.state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            raise ArgumentError("Cannot register two spectral_norm hooks on the same parameter "
                                + name)
    fn = SpectralNorm(name, n_power_iterations, dim, eps)
    weight = module._parameters[name]
    if weight is None:
        raise ArgumentError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    u, v = start_vectors(as_matrix(weight.detach(), dim), eps)
    delattr(module, name)
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.detach())  # a plain attribute until the first forward
    module.register_buffer(name + "_u", u)
    module.register_buffer(name + "_v", v)
    module.register_forward_pre_hook(fn)
    module._register_state_dict_hook(fn.say_version)
    module._register_load_state_dict_pre_hook(fn.from_older)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Undo ``spectral_norm``: the weight is a parameter again, with its normalized value."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            with no_grad():
                weight = hook.compute_weight(module, do_power_iteration=False)
            for suffix in ("", "_u", "_v", "_orig"):
                delattr(module, name + suffix)
            module.register_parameter(name, Parameter(weight.detach()))
            del module._forward_pre_hooks[key]
            return module
    raise ArgumentError(f"spectral_norm of '{name}' not found in {module}")
