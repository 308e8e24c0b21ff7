"""What the nn and optim tests share: the same layer in PyTorch and here, compared."""
from __future__ import annotations

from typing import Any

import numpy as np

import adjoint as ad
from adjoint.base.dtypes import DType

try:
    import torch as _torch
except ModuleNotFoundError:
    pass
else:
    _torch.set_num_threads(1)  # small operands: a thread pool only waits, longest on a busy machine


def plain(text: str) -> str:
    """A repr without the namespace that the two libraries print."""
    return text.replace("torch.", "").replace(DType.namespace + ".", "")


def twins(peer: Any, ours: Any) -> None:
    """Load the state of ``peer`` into ``ours``; keys, order and repr must agree."""
    assert list(ours.state_dict()) == list(peer.state_dict())
    ours.load_state_dict({k: v.detach().numpy() for k, v in peer.state_dict().items()})
    assert plain(repr(ours)) == plain(repr(peer))


def values(x: Any) -> Any:
    """The NumPy values of a tensor of either library."""
    return x.detach().numpy()


def close(ours: Any, peer: Any, tol: float = 1e-12) -> None:
    """Equal shapes and dtypes, and values within ``tol`` of the largest, through tuples."""
    if peer is None or ours is None:
        assert ours is None and peer is None
    elif isinstance(peer, (tuple, list)):
        assert len(ours) == len(peer)
        for a, b in zip(ours, peer, strict=True):
            close(a, b, tol)
    else:
        a, b = values(ours), values(peer)
        assert a.shape == b.shape and a.dtype == b.dtype
        scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol * scale)


def total(out: Any) -> Any:
    """A scalar that weighs every entry of the floating outputs differently."""
    if isinstance(out, (tuple, list)):
        parts = [total(x) for x in out if x is not None]
        return sum(p for p in parts if p is not None)
    if not out.is_floating_point():
        return None
    return (out * out).sum() + out.sum()


def grads_close(peer: Any, ours: Any, tol: float = 1e-11) -> None:
    """The gradients of all parameters agree."""
    for (name, p), (other, q) in zip(peer.named_parameters(), ours.named_parameters(),
                                     strict=True):
        assert name == other
        close(q.grad, p.grad, tol)


def both(torch: Any, array: np.ndarray, grad: bool = True) -> tuple[Any, Any]:
    """The same array as a leaf of PyTorch and of ours."""
    grad = grad and array.dtype.kind == "f"
    return (torch.tensor(array, requires_grad=grad), ad.tensor(array, requires_grad=grad))
