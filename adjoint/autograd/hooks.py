"""What hooks get during a backward pass, and what they may return."""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import AutogradError
from adjoint.core.tensor import Tensor


def on_tensor(walk: Any, hooks: dict[int, Any], ct: Any) -> Any:
    """The cotangent of a tensor after its hooks."""
    given = walk.boxed(ct)
    for hook in list(hooks.values()):
        new = hook(given)
        if new is None:
            continue
        if not isinstance(new, Tensor):
            raise TypeError(f"expected Variable, but hook returned {type(new).__name__!r}; it "
                            "returns a Tensor or None")
        if tuple(new.shape) != tuple(given.shape):
            raise AutogradError(f"hook '{_name(hook)}' has changed the size of value (from "
                                f"{list(given.shape)} to {list(new.shape)})")
        if new.dtype != given.dtype:
            raise AutogradError(f"hook '{_name(hook)}' has changed the type of value (was "
                                f"{given.dtype} got {new.dtype})")
        given = new
    return walk.unboxed(given)


def before_node(walk: Any, node: Any, ct: Any) -> Any:
    """The cotangents of a node's outputs after its prehooks."""
    given = tuple([walk.boxed(c) for c in (ct if node.ports else (ct,))])
    for hook in list(node._pre_hooks.values()):
        new = hook(given)
        if new is not None:
            given = _checked(new, len(given), hook)
    back = [walk.unboxed(c) for c in given]
    return back if node.ports else back[0]


def after_node(walk: Any, node: Any, results: list[Any], ct: Any) -> list[Any]:
    """The cotangents of a node's operands after its hooks."""
    grads = tuple([walk.boxed(c) for c in results])
    outer = tuple([walk.boxed(c) for c in (ct if node.ports else (ct,))])
    for hook in list(node._post_hooks.values()):
        new = hook(grads, outer)
        if new is not None:
            grads = _checked(new, len(results), hook)
    return [walk.unboxed(c) for c in grads]


def after_leaf(walk: Any, node: Any, leaf: Tensor, ct: Any) -> None:
    """The hooks of a leaf, once its gradient was accumulated."""
    for hook in list((node._accumulated or {}).values()):
        answer = hook(leaf)
        if answer is None or answer is leaf:              # (as `p.add_(p.grad)` gives it)
            continue
        if isinstance(answer, Tensor):
            raise AutogradError("Tensor post accumulate grad hooks should return None.")
        raise TypeError(f"expected Variable, but hook returned {type(answer).__name__!r}; a hook "
                        "that runs after the gradient was accumulated returns None")
    for hook in list((node._post_hooks or {}).values()):
        hook((), (walk.boxed(ct),))


def _name(hook: Any) -> str:
    return getattr(hook, "__name__", "hook")


def _checked(new: Any, n: int, hook: Any) -> tuple[Any, ...]:
    """What a hook of a node returned in place of `n` gradients."""
    if not isinstance(new, tuple):
        raise TypeError(f"expected tuple, but hook returned {type(new).__name__!r}; it returns a "
                        f"tuple of {n} or None")
    if len(new) != n:
        raise AutogradError(f"hook '{_name(hook)}' has returned an incorrect number of values "
                            f"(got {len(new)}, but expected {n})")
    return new
