"""Repeating a number once per axis; names of state dicts without a wrapper's prefix."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

__all__ = ["_ntuple", "_pair", "_quadruple", "_reverse_repeat_tuple", "_single", "_triple",
           "consume_prefix_in_state_dict_if_present"]


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function that makes a tuple of an iterable, or n copies of anything else."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple[Any, ...], n: int) -> tuple[Any, ...]:
    """``t`` from the last element to the first, each n times."""
    return tuple(x for x in reversed(t) for _ in range(n))


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take `prefix` off the names of a state dict, in place: of a model saved from within a wrapper
    (`DataParallel`: "module."). Names without it stay.

    >>> saved = {"module.weight": 1, "step": 2}
    >>> consume_prefix_in_state_dict_if_present(saved, "module."); saved
    {'step': 2, 'weight': 1}
    """
    for name in [n for n in state_dict if n.startswith(prefix)]:
        state_dict[name[len(prefix):]] = state_dict.pop(name)
    about = getattr(state_dict, "_metadata", {})
    for name in [n for n in about if n.startswith(prefix) or n == prefix[:-1]]:
        about[name[len(prefix):]] = about.pop(name)
