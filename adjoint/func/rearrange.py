"""`rearrange`: the axes of a tensor permuted, split and joined as a pattern says."""
from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.tensor import Tensor
from adjoint.ops.public import FUNCTIONS
from adjoint.ops.shape import permute_op, reshape

Group = tuple[str, ...]
REST = "..."
BARE: Group = (REST, "")          # `...` outside of parentheses: axes of their own


def _side(text: str, pattern: str) -> list[Group]:
    """The axes of one side: each a group of names; a 1 is a group without names."""
    groups: list[Group] = []
    for outer, inner in re.findall(r"([^\s()]+)|\(([^()]*)\)", text):
        names = [outer] if outer else inner.split()
        for n in names:
            if n not in (REST, "1") and not n.isidentifier():
                raise ArgumentError(f"rearrange: {n!r} in {pattern!r} is no name of an axis; use "
                                    "letters, 1, ... and parentheses")
        groups.append(BARE if outer == REST else tuple(n for n in names if n != "1"))
    if re.search(r"[()]", re.sub(r"\([^()]*\)", "", text)):
        raise ArgumentError(f"rearrange: parentheses in {pattern!r} do not match; they may not be "
                            "nested")
    return groups


def _parse(pattern: str) -> tuple[list[Group], list[Group]]:
    left, arrow, right = pattern.partition("->")
    if not arrow:
        raise ArgumentError(f"rearrange: the pattern {pattern!r} needs an arrow, as in "
                            "'b h w -> b (h w)'")
    sides = _side(left, pattern), _side(right, pattern)
    names = [[n for group in side for n in group if n] for side in sides]
    for side in names:
        twice = sorted({n for n in side if side.count(n) > 1})
        if twice:
            raise ArgumentError(f"rearrange: {twice} more than once on one side of {pattern!r}")
    odd = sorted(set(names[0]) ^ set(names[1]))
    if odd:
        raise ArgumentError(f"rearrange: {odd} on one side only of {pattern!r}; axes are neither "
                            "dropped nor made")
    return sides


def _extents(shape: Sequence[int], groups: list[Group], given: dict[str, int],
             pattern: str) -> tuple[dict[str, int], int]:
    """Extent of every name, and how many axes `...` stands for."""
    rest = len(shape) - len(groups) + 1 if BARE in groups else 0
    if rest < 0 or BARE not in groups and len(groups) != len(shape):
        raise ShapeError(f"rearrange: {pattern!r} has {len(groups)} axes on the left, the tensor "
                         f"{list(shape)} has {len(shape)}")
    sizes, d = dict(given), 0
    for group in groups:
        if group == BARE:
            for i in range(rest):
                sizes[f"{REST}{i}"] = shape[d + i]
            d += rest
            continue
        known = math.prod(sizes[n] for n in group if n in sizes)
        unknown = [n for n in group if n not in sizes]
        if len(unknown) > 1:
            raise ArgumentError(f"rearrange: give the lengths of all but one of {unknown} in "
                                f"{pattern!r}")
        if unknown and known and not shape[d] % known:
            sizes[unknown[0]] = shape[d] // known
        elif unknown or known != shape[d]:
            raise ShapeError(f"rearrange: axis {d} of {list(shape)} has {shape[d]} elements, "
                             f"{' '.join(group) or '1'} in {pattern!r} makes "
                             f"{'a multiple of ' if unknown else ''}{known}")
        d += 1
    return sizes, rest


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Any:
    """`tensor` (or several of one shape, stacked as a first axis) with its axes permuted, split and
    joined: on both sides of the arrow the same names, in parentheses where they form one axis; a 1
    is an axis of one element, ``...`` any number of axes.

    Raises ArgumentError for a pattern that says nothing, ShapeError where it does not fit.
    Source: A. Rogozhnikov, "Einops: clear and reliable tensor manipulations" (2022).

    >>> import adjoint as ad
    >>> images = ad.zeros(2, 6, 4, 3)
    >>> ad.func.rearrange(images, "b (h two) w c -> b c h (two w)", two=2).shape
    adjoint.Size([2, 3, 3, 8])
    """
    x = tensor if isinstance(tensor, Tensor) else FUNCTIONS["stack"](list(tensor))
    left, right = _parse(pattern)
    unknown = sorted(set(axes_lengths) - {n for group in left for n in group})
    if unknown:
        raise ArgumentError(f"rearrange: lengths for {unknown}, which {pattern!r} does not have")
    sizes, rest = _extents(x.shape, left, axes_lengths, pattern)

    def flat(groups: list[Group]) -> list[Group]:
        return [tuple(m for n in group for m in (
            [f"{REST}{i}" for i in range(rest)] if n == REST else [n] if n else []))
            for group in groups]
    first = [n for group in flat(left) for n in group]
    last = [n for group in flat(right) for n in group]
    x = reshape(x, tuple(sizes[n] for n in first))
    if first != last:
        x = permute_op(x, dims=tuple(first.index(n) for n in last))
    shape: list[int] = []
    for group, named in zip(right, flat(right), strict=True):
        shape += [sizes[n] for n in named] if group == BARE else [
            math.prod(sizes[n] for n in named)]
    return reshape(x, tuple(shape))


__all__ = ["rearrange"]
