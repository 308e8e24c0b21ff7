"""Selective checkpointing: a policy says which ops' results are kept, the others run again.

A kept result is handed out when its op comes again in the recomputation, in place of running it.
"""
from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, AutogradError
from adjoint.core.modes import Observer, watchers
from adjoint.core.op import OPS, Op
from adjoint.core.tensor import Tensor, share_cell
from adjoint.ops.shape import name_op


class CheckpointPolicy(enum.Enum):
    """What is to happen with an op's result between forward and backward.

    MUST_SAVE and PREFER_SAVE keep it, MUST_RECOMPUTE and PREFER_RECOMPUTE compute it again. In
    eager mode nothing overrides a preference, so it is followed.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3


class SelectiveCheckpointContext:
    """What a policy function gets first: `is_recompute`, False in forward."""

    def __init__(self, *, is_recompute: bool) -> None:
        self.is_recompute = is_recompute


Decision = CheckpointPolicy | bool
_PRODUCTS = ("matmul", "mm", "bmm", "dot")
_SAVE = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE, True)


class Policy:
    """A named policy: `decide(op, args, attrs)` is True for results to keep. Callable with JAX's
    arguments (op, *args, **attrs) and with PyTorch's (ctx, op, *args, **attrs)."""

    def __init__(self, name: str, decide: Callable[[Op, Any, Any], Decision]) -> None:
        self.name, self.decide = name, decide

    def __call__(self, first: Any, *args: Any, **attrs: Any) -> Decision:
        if isinstance(first, SelectiveCheckpointContext):
            first, *args = args  # type: ignore[assignment]  # the op stands second
        return self.decide(op_of(first), args, attrs)

    def __repr__(self) -> str:
        return f"<checkpoint policy {self.name}>"


def op_of(given: Any) -> Op:
    """The record that a policy's entry means: a record, its function, a public function, a name."""
    if isinstance(given, Op):
        return given
    found = getattr(given, "op", None)
    if isinstance(found, Op):
        return found
    name = given if isinstance(given, str) else getattr(given, "__name__", "")
    if name in OPS:
        return OPS[name]
    raise ArgumentError(f"checkpoint policy: {given!r} is no op. Give a record, a function of one "
                        "op such as adjoint.matmul, or a name such as 'matmul', 'linear', "
                        "'scaled_dot_product_attention'")


def _names(given: Any) -> tuple[str, ...]:
    """Names of the ops that an entry of a list stands for: `matmul` is several by rank."""
    name = op_of(given).name
    return _PRODUCTS if name == "matmul" else (name,)


class _Selected:
    """Both contexts of one checkpointed call: forward fills `kept`, recomputation takes from it.

    An entry is the op and how many times it had run, so that the order of calls identifies it.
    """

    def __init__(self, policy: Callable[..., Decision], mutable: bool) -> None:
        self.policy, self.mutable = policy, mutable
        self.kept: dict[tuple[str, int], tuple[tuple[Any, ...], list[Any]]] = {}


class _Phase(Observer):
    """The context manager of one phase; re-entrant, one after the other."""

    recompute = False

    def __init__(self, shared: _Selected) -> None:
        self.shared = shared
        self.ctx = SelectiveCheckpointContext(is_recompute=self.recompute)
        self.calls: dict[str, int] = {}
        self.held: list[Any] = []

    def __enter__(self) -> None:
        self.calls = {}
        self.held.append(watchers.push(watchers.observers, self))

    def __exit__(self, *exc: object) -> None:
        watchers.pop(self.held.pop())

    def _key(self, op: Op) -> tuple[str, int]:
        count = self.calls.get(op.name, 0)
        self.calls[op.name] = count + 1
        return op.name, count

    def saves(self, op: Op, args: Any, attrs: Any) -> bool:
        decision = self.shared.policy(self.ctx, op, *args, **attrs)
        if not isinstance(decision, CheckpointPolicy | bool | np.bool_):
            raise TypeError(f"checkpoint policy: {self.shared.policy!r} gave {decision!r} for "
                            f"{op.name}; it has to be a CheckpointPolicy or a bool")
        return decision in _SAVE


class _Forward(_Phase):
    """Keeps the results that the policy selects."""

    def computed(self, op: Op, args: Any, attrs: Any, outs: tuple[Any, ...]) -> None:
        key = self._key(op)
        if self.saves(op, args, attrs):
            self.shared.kept[key] = (outs, [])

    def after(self, op: Op, args: Any, attrs: Any, made: Any, node: Any) -> None:
        key = op.name, self.calls.get(op.name, 0) - 1
        found = self.shared.kept.get(key)
        if found is not None and not found[1] and found[0][0] is made[0].array:
            for t in made:
                cell = share_cell(t)
                found[1].append((cell, cell.version))


class _Again(_Phase):
    """Hands kept results out in place of computing them."""

    recompute = True

    def supply(self, op: Op, args: Any, attrs: Any) -> tuple[Any, ...] | None:
        key = self._key(op)
        found = self.shared.kept.get(key)
        if found is None:
            return None
        outs, versions = found
        for cell, version in versions:
            if cell.version != version and not self.shared.mutable:
                raise AutogradError(
                    "Tensor cached during selective activation checkpoint has been mutated: the "
                    f"result of {op.name} (call {key[1] + 1}) was {cell.where()}\n  fix: write out "
                    "of place there, do not save that op's result, or pass "
                    "allow_cache_entry_mutation=True if the new value is what you want")
        return outs


def create_selective_checkpoint_contexts(
        policy_fn_or_list: Callable[..., Decision] | Iterable[Any],
        allow_cache_entry_mutation: bool = False) -> tuple[Any, Any]:
    """The contexts of forward and recomputation that keep the results a policy selects.

    policy_fn_or_list  `policy(ctx, op, *args, **attrs)` gives a CheckpointPolicy or a bool (True:
                       keep); or the ops whose results are kept: names, functions, records
    allow_cache_entry_mutation  hand a kept result out even if it was written to since

    Use it as the `context_fn` of `checkpoint`:

    >>> import functools
    >>> import adjoint as ad
    >>> from adjoint.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
    >>> w, x = ad.randn(3, 3, requires_grad=True), ad.randn(2, 3)
    >>> keep = functools.partial(create_selective_checkpoint_contexts, ["matmul"])
    >>> y = checkpoint(lambda t: ad.matmul(t, w).sin().exp(), x, context_fn=keep)
    >>> y.sum().backward()
    """
    if callable(policy_fn_or_list):
        policy = policy_fn_or_list
    elif isinstance(policy_fn_or_list, Iterable):
        chosen = {name for given in policy_fn_or_list for name in _names(given)}
        policy = Policy("ops", lambda op, args, attrs: op.name in chosen)
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops, got "
                        f"{type(policy_fn_or_list).__name__}")
    shared = _Selected(policy, allow_cache_entry_mutation)
    return _Forward(shared), _Again(shared)


# ---------------------------------------------------------------------- JAX's names
def checkpoint_name(x: Tensor, name: str) -> Tensor:
    """`x`, with a name for policies such as `save_only_these_names`.

    >>> import adjoint as ad
    >>> checkpoint_name(ad.ones(2), "hidden")
    tensor([1., 1.])
    """
    named: Tensor = name_op(x, name=str(name))
    return named


_DOTS = frozenset({*_PRODUCTS, "linear", "addmm", "baddbmm"})


def _no_batch_dims(args: Any) -> bool:
    """Whether a product has no axis that both operands carry through."""
    ranks = [len(a.shape) for a in args[:2] if isinstance(a, Tensor | np.ndarray)]
    return len(ranks) < 2 or min(ranks) <= 2


everything_saveable = Policy("everything_saveable", lambda op, args, attrs: True)
nothing_saveable = Policy("nothing_saveable", lambda op, args, attrs: False)
dots_saveable = Policy("dots_saveable", lambda op, args, attrs: op.name in _DOTS)
checkpoint_dots = dots_saveable
dots_with_no_batch_dims_saveable = Policy(
    "dots_with_no_batch_dims_saveable",
    lambda op, args, attrs: op.name in _DOTS and op.name != "bmm" and _no_batch_dims(args))
checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable


def _named(op: Op, attrs: Any) -> str | None:
    return attrs["name"] if op.name == "checkpoint_name" else None


def save_only_these_names(*names_which_can_be_saved: str) -> Policy:
    """Keep the values that `checkpoint_name` gave one of these names."""
    wanted = frozenset(names_which_can_be_saved)
    return Policy(f"save_only_these_names{names_which_can_be_saved}",
                  lambda op, args, attrs: _named(op, attrs) in wanted)


def save_any_names_but_these(*names_not_to_save: str) -> Policy:
    """Keep the values that have a name, except these."""
    refused = {None, *names_not_to_save}
    return Policy(f"save_any_names_but_these{names_not_to_save}",
                  lambda op, args, attrs: _named(op, attrs) not in refused)


def save_anything_except_these_names(*names_not_to_save: str) -> Policy:
    """Keep every result except those that `checkpoint_name` gave one of these names."""
    refused = frozenset(names_not_to_save)
    return Policy(f"save_anything_except_these_names{names_not_to_save}",
                  lambda op, args, attrs: _named(op, attrs) not in refused)


def save_from_both_policies(policy_1: Callable[..., Decision],
                            policy_2: Callable[..., Decision]) -> Policy:
    """Keep what either policy keeps."""
    def decide(op: Op, args: Any, attrs: Any) -> bool:
        return policy_1(op, *args, **attrs) in _SAVE or policy_2(op, *args, **attrs) in _SAVE
    return Policy("save_from_both_policies", decide)
