"""Selective checkpointing: a policy says which ops' results are kept, the others run again.

A kept result is handed out when its op comes again in the recomputation, in place of running it.
"""
from __future__ import annotations

import enum
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.errors import ArgumentError, AutogradError
from adjoint.core.modes import Observer, watchers
from adjoint.core.op import OPS, Op
from adjoint.core.rehearsal import copied
from adjoint.core.tensor import Tensor, owner_of, share_cell
from adjoint.ops.shape import name_op


class CheckpointPolicy(enum.Enum):
    """What is to happen with an op's result between forward and backward.

    MUST_SAVE and PREFER_SAVE keep it, MUST_RECOMPUTE and PREFER_RECOMPUTE compute it again. In
    eager mode nothing overrides a preference, so it is followed. MUST_CPU_OFFLOAD and
    PREFER_CPU_OFFLOAD keep a copy in main memory, so that the result may be written to.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


class Offloadable(NamedTuple):
    """A policy's word for a result that is kept as a copy in other memory (JAX's names of memories,
    "device" and "pinned_host" say; here both are main memory)."""

    src: Any
    dst: Any


Saveable, Recompute = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.MUST_RECOMPUTE      # in JAX


class SelectiveCheckpointContext:
    """What a policy function gets first: `is_recompute`, False in forward."""

    def __init__(self, *, is_recompute: bool) -> None:
        self.is_recompute = is_recompute


Key = tuple[str, int]
Decision = CheckpointPolicy | Offloadable | bool
_PRODUCTS = ("matmul", "mm", "bmm", "mv", "dot")
_SAVE = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE, True)
_OFFLOAD = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)


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

    An entry is the op and how many times it had run, so that the order of calls identifies it: raw
    results, the versions of their memory, and whether they are copies.
    """

    def __init__(self, policy: Callable[..., Decision], mutable: bool) -> None:
        self.policy, self.mutable = policy, mutable
        self.kept: dict[Key, tuple[tuple[Any, ...], list[Any], bool]] = {}


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

    def decide(self, op: Op, args: Any, attrs: Any) -> tuple[bool, bool]:
        """(whether the result is kept, whether as a copy)."""
        found = self.shared.policy(self.ctx, op, *args, **attrs)
        if not isinstance(found, CheckpointPolicy | Offloadable | bool | np.bool_):
            raise TypeError(f"checkpoint policy: {self.shared.policy!r} gave {found!r} for "
                            f"{op.name}; it has to be a CheckpointPolicy or a bool")
        away = isinstance(found, Offloadable) or found in _OFFLOAD
        return away or found in _SAVE, away


class _Forward(_Phase):
    """Keeps the results that the policy selects. A name shows the memory of what it is given: where
    a name is kept, so is the result that it names, and its op need not run again."""

    def __init__(self, shared: _Selected) -> None:
        super().__init__(shared)
        # id of the memory -> (memory, what shows all of it (both weakly), version, the op's key)
        self.made: dict[int, tuple[Any, Any, int, Key]] = {}
        self.fresh: Key | None = None

    def computed(self, op: Op, args: Any, attrs: Any, outs: tuple[Any, ...]) -> None:
        key = self._key(op)
        self.fresh = None
        keep, away = self.decide(op, args, attrs)
        if not keep:
            self.fresh = key if len(outs) == 1 and not op.view else None
        elif op is not name_op.op or not self._keep_named(args[0], away):
            self.shared.kept[key] = tuple([copied(x) for x in outs]) if away else outs, [], away

    def _keep_named(self, t: Any, away: bool) -> bool:
        """Keep the result whose memory `t` shows, if nothing was written to it since."""
        cell = share_cell(t) if isinstance(t, Tensor) else None
        memory = None if cell is None else _memory(t.array)
        found = self.made.get(id(memory))
        if cell is None or found is None or found[0]() is not memory or cell.version != found[2]:
            return False
        whole = found[1]()
        if whole is not None:
            entry = ((copied(whole),), [], True) if away else (
                (whole,), [(cell, cell.version)], False)
            self.shared.kept[found[3]] = entry
        return whole is not None

    def after(self, op: Op, args: Any, attrs: Any, made: Any, node: Any) -> None:
        array, fresh, self.fresh = made[0].array, self.fresh, None
        if fresh is not None and isinstance(array, np.ndarray | MetaArray):
            memory = _memory(array)
            version = 0 if made[0]._cell is None else made[0]._cell.version
            self.made[id(memory)] = weakref.ref(memory), weakref.ref(array), version, fresh
        key = op.name, self.calls.get(op.name, 0) - 1
        found = self.shared.kept.get(key)
        if found is not None and not found[1] and found[0][0] is array:
            for t in made:
                cell = share_cell(t)
                found[1].append((cell, cell.version))


def _memory(array: Any) -> Any:
    """The array that owns what `array` shows, with storage or without."""
    if type(array) is MetaArray:
        return array if array.base is None else array.base
    return owner_of(array)


class _Again(_Phase):
    """Hands kept results out in place of computing them."""

    recompute = True

    def supply(self, op: Op, args: Any, attrs: Any) -> tuple[Any, ...] | None:
        key = self._key(op)
        found = self.shared.kept.get(key)
        if found is None:
            return None
        outs, versions, away = found
        if away:
            return tuple([copied(x) for x in outs])
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
_CONVOLUTIONS = ("convolution", "convolution_input", "convolution_weight")


def _no_batch_dims(args: Any) -> bool:
    """Whether a product has no axis that both operands carry through."""
    ranks = [len(a.shape) for a in args[:2] if isinstance(a, Tensor | np.ndarray)]
    return len(ranks) < 2 or min(ranks) <= 2


everything_saveable = Policy("everything_saveable", lambda op, args, attrs: True)
nothing_saveable = Policy("nothing_saveable", lambda op, args, attrs: False)
dots_saveable = Policy("dots_saveable", lambda op, args, attrs: (
    op.name in _DOTS or op.name in _CONVOLUTIONS))
checkpoint_dots = dots_saveable


def _plain_dot(op: Op, args: Any) -> bool:
    return op.name in _DOTS and op.name not in ("bmm", "baddbmm") and _no_batch_dims(args)


dots_with_no_batch_dims_saveable = Policy(
    "dots_with_no_batch_dims_saveable", lambda op, args, attrs: _plain_dot(op, args))
checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable


def offload_dot_with_no_batch_dims(offload_src: Any, offload_dst: Any) -> Policy:
    """Keep copies of what `dots_with_no_batch_dims_saveable` keeps. The names of memories
    ("device", "pinned_host") are taken; both are main memory here."""
    away = Offloadable(offload_src, offload_dst)
    return Policy("offload_dot_with_no_batch_dims",
                  lambda op, args, attrs: away if _plain_dot(op, args) else False)


def _named(op: Op, attrs: Any) -> str | None:
    return attrs["name"] if op.name == "checkpoint_name" else None


def save_only_these_names(*names_which_can_be_saved: str) -> Policy:
    """Keep the values that `checkpoint_name` gave one of these names."""
    wanted = frozenset(names_which_can_be_saved)
    return Policy(f"save_only_these_names{names_which_can_be_saved}",
                  lambda op, args, attrs: _named(op, attrs) in wanted)


def save_and_offload_only_these_names(
        *, names_which_can_be_saved: Sequence[str], names_which_can_be_offloaded: Sequence[str],
        offload_src: Any, offload_dst: Any) -> Policy:
    """Keep the values that `checkpoint_name` gave one of the names: of the second list as copies.

    >>> policy = save_and_offload_only_these_names(
    ...     names_which_can_be_saved=["q"], names_which_can_be_offloaded=["up"],
    ...     offload_src="device", offload_dst="pinned_host")
    >>> policy(name_op, name="q"), policy(name_op, name="up"), policy(name_op, name="k")
    (True, Offloadable(src='device', dst='pinned_host'), False)
    """
    here, away = frozenset(names_which_can_be_saved), frozenset(names_which_can_be_offloaded)
    if here & away:
        raise ValueError("The names should be exclusive and should not intersect in "
                         "`names_which_can_be_saved` and `names_which_can_be_offloaded`: "
                         f"{', '.join(sorted(here & away))} is in both")
    copy = Offloadable(offload_src, offload_dst)

    def decide(op: Op, args: Any, attrs: Any) -> Decision:
        name = _named(op, attrs)
        return copy if name in away else name in here
    return Policy("save_and_offload_only_these_names", decide)


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
    """Keep what either policy keeps. ValueError where one of them offloads: write a policy that
    says which is to win."""
    def decide(op: Op, args: Any, attrs: Any) -> bool:
        found = [p(op, *args, **attrs) for p in (policy_1, policy_2)]
        if any(isinstance(f, Offloadable) or f in _OFFLOAD for f in found):
            raise ValueError("The return value of the policies should be a boolean. Got: "
                             f"{found[0]} and {found[1]}. Please write a custom policy function "
                             "directly, rather than using this helper function.")
        return any(f in _SAVE for f in found)
    return Policy("save_from_both_policies", decide)
