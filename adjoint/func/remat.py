"""`checkpoint` as a transform, with JAX's policies."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from adjoint.autograd import selective
from adjoint.autograd.checkpoint import checkpoint as run_checkpointed
from adjoint.autograd.checkpoint import noop_context_fn
from adjoint.autograd.selective import SelectiveCheckpointContext, checkpoint_name

checkpoint_policies = SimpleNamespace(**{
    name: getattr(selective, name) for name in (
        "everything_saveable", "nothing_saveable", "dots_saveable", "checkpoint_dots",
        "dots_with_no_batch_dims_saveable", "checkpoint_dots_with_no_batch_dims",
        "offload_dot_with_no_batch_dims", "save_only_these_names",
        "save_and_offload_only_these_names", "save_any_names_but_these",
        "save_anything_except_these_names", "save_from_both_policies")})


def checkpoint(fun: Callable[..., Any], *, prevent_cse: bool = True,
               policy: Callable[..., Any] | None = None,
               static_argnums: int | Sequence[int] = ()) -> Callable[..., Any]:
    """`fun`, whose intermediate values are computed again when a derivative needs them.

    policy          (op, *args, **attrs) -> True for results to keep; see `checkpoint_policies`.
                    None keeps nothing but the arguments
    static_argnums  accepted for JAX's sake: arguments may be anything here
    prevent_cse     accepted for JAX's sake: there is nothing to prevent

    >>> import adjoint as ad
    >>> f = ad.func.checkpoint(lambda x: (x.sin().exp() * x).sum(),
    ...                        policy=ad.func.checkpoint_policies.dots_saveable)
    >>> ad.func.grad(f)(ad.zeros(2))
    tensor([1., 1.])
    """
    if policy is selective.everything_saveable:
        return fun
    if policy is None or policy is selective.nothing_saveable:
        contexts = noop_context_fn
    else:
        def decide(ctx: SelectiveCheckpointContext, op: Any, *args: Any, **attrs: Any) -> Any:
            return policy(op, *args, **attrs)
        contexts = functools.partial(selective.create_selective_checkpoint_contexts, decide)

    @functools.wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return run_checkpointed(fun, *args, use_reentrant=False, context_fn=contexts, **kwargs)
    return checkpointed


remat = checkpoint

__all__ = ["checkpoint", "checkpoint_name", "checkpoint_policies", "remat"]
