"""`jax.ad_checkpoint.print_saved_residuals`: what a function's backward keeps, and whence."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from adjoint.autograd.graph import saved_tensors_hooks
from adjoint.autograd.selective import _Forward, _named
from adjoint.core.modes import Observer, watchers
from adjoint.core.tensor import Kept, Node, OutRef, Tensor, owner_of
from adjoint.jax._api import _parameter
from adjoint.jax._array import ShapeDtypeStruct
from adjoint.jax._flat import Leaves
from adjoint.jax._jaxpr import short
from adjoint.jax._trace import taping
from adjoint.jax.tree_util import keystr, tree_leaves_with_path


class _Seen(saved_tensors_hooks):
    """Writes down what nodes and checkpointed regions keep: the tensor's array, and the node that
    made it (None: an argument or a constant)."""

    def __init__(self) -> None:
        super().__init__(lambda t: t, lambda t: t)
        self.found: list[tuple[Any, Any]] = []

    def pack(self, saved: Any, node: Any) -> Any:
        t = saved.tensor if type(saved) is Kept else saved
        maker = node if isinstance(saved, OutRef) else t.grad_fn if isinstance(t, Tensor) else None
        self.found.append((t.array, maker))
        return super().pack(saved, node)


class _Regions(Observer):
    """Writes down which regions with a policy run, and which op made what in them; holds it."""

    def __init__(self) -> None:
        self.regions: dict[int, Any] = {}
        self.made: dict[int, tuple[Any, str, Any]] = {}

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        inside = [o.shared for o in watchers.observers.get() if isinstance(o, _Forward)]
        self.regions |= {id(r): r for r in inside}
        if inside and node is not None:
            name = _named(op, attrs)
            what = f"named {name!r}" if name is not None else f"output of {op.name}"
            for t in made:
                self.made[id(owner_of(t.array))] = t, what, node

    def kept(self) -> Iterator[tuple[Any, str]]:
        """(array, where it comes from) of what policies chose to keep."""
        for region in self.regions.values():
            for (op, _), (arrays, *_) in region.kept.items():
                for x in arrays:
                    _, what, node = self.made.get(id(owner_of(x)), (None, f"output of {op}", None))
                    yield x, what + (f" from {node.where()}" if node is not None else "")


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print what the backward of `f` keeps here: shape and dtype of each residual once, and where
    it comes from: a constant, an argument, or the output of an op at a line. It is what this
    library keeps, which may be other values than JAX's partial evaluation chooses.

    >>> from adjoint.jax import numpy as jnp
    >>> from adjoint.jax.ad_checkpoint import print_saved_residuals
    >>> print_saved_residuals(lambda x: jnp.sin(x), jnp.ones(3))
    f32[3] from the argument x
    """
    leaves = Leaves((args, kwargs))
    tensors = [t.detach().requires_grad_(t.dtype.is_floating_point or t.dtype.is_complex)
               for t in leaves.tensors]
    names = {}
    for (path, _), t in zip(tree_leaves_with_path((args, kwargs)), tensors, strict=True):
        at = path[1].idx if path[0].idx == 0 else path[1].key
        names[id(owner_of(t.array))] = f"{_parameter(f, at)}{keystr(path[2:])}"
    seen, regions = _Seen(), _Regions()
    held = watchers.push(watchers.observers, regions)
    try:
        with taping(), seen:
            given, named = leaves.tree(tensors)
            out = f(*given, **named)
    finally:
        watchers.pop(held)
    whence = [(array, _whence(array, maker, names)) for array, maker in seen.found]
    told: dict[int, str] = {}
    for array, words in (*whence, *regions.kept()):
        what = short(ShapeDtypeStruct(array.shape, array.dtype))
        told.setdefault(id(owner_of(array)), f"{what} {words}")
    for line in sorted(told.values(), key=_rank):
        print(line)
    del out


def _whence(array: Any, maker: Any, names: dict[int, str]) -> str:
    if id(owner_of(array)) in names:
        return f"from the argument {names[id(owner_of(array))]}"
    if not isinstance(maker, Node):
        return "from a constant"
    made = maker.plan.op.name if maker.plan is not None else maker.name()
    return f"output of {made} from {maker.where()}"


def _rank(line: str) -> int:
    return 0 if "from a constant" in line else 1 if "from the argument" in line else 2
