"""Einstein summation: a sequence of matrix products, the order chosen by what each step holds.

Pairs are contracted greedily; the cost of a pair is the size of its result less that of the
operands it frees, then its multiplications: intermediate memory weighs before arithmetic.
"""
from __future__ import annotations

import math
from typing import Any

from adjoint.base.dtypes import I64
from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.intercept import TOLD
from adjoint.ops.api_common import (
    cast_to,
    dtype_of,
    need,
    need_kernel,
    same_dtype,
)
from adjoint.ops.arrange import diagonal_op
from adjoint.ops.linalg import matmul_op
from adjoint.ops.pointwise import mul
from adjoint.ops.public import planned, public
from adjoint.ops.reduce import sum_op
from adjoint.ops.shape import permute_op, reshape

LETTERS = "".join(map(chr, (*range(97, 123), *range(65, 91))))     # a-z, A-Z


def _parse(equation: str, operands: list[Any]) -> tuple[list[str], str]:
    """(subscripts of every operand, of the result), ellipses spelled out."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        how = "fewer" if len(operands) < len(terms) else "more"
        raise ArgumentError(f"einsum(): {how} operands were provided than specified in the "
                            f"equation: {equation!r} has {len(terms)}, {len(operands)} were given")
    free = [c for c in LETTERS if c not in text]
    widths = []
    for term, x in zip(terms, operands, strict=True):
        bare = term.replace("...", "")
        if "." in bare or not all(c in LETTERS for c in bare):
            bad = next(c for c in bare if c not in LETTERS)
            raise ArgumentError(
                f"einsum(): found '.' for operand {terms.index(term)} that is not part of any "
                f"ellipsis: {equation!r}" if bad == "." else
                f"einsum(): invalid subscript given at index {equation.index(bad)} in the equation "
                f"string, subscripts must be in [a-zA-Z]: {equation!r}")
        extra = len(x.shape) - len(bare)
        if extra < 0 or (extra and "..." not in term):
            raise ShapeError(f"einsum(): the number of subscripts in the equation ({len(bare)}) "
                             f"does not match the number of dimensions ({len(x.shape)}) for "
                             f"operand {term!r}")
        widths.append(extra)
    ell = free[: max(widths, default=0)]
    spelled = [t.replace("...", "".join(ell[len(ell) - w:])) for t, w in zip(
        terms, widths, strict=True)]
    joined = "".join(spelled)
    if not arrow:
        right = "".join(ell) + "".join(sorted(c for c in set(joined) if joined.count(c) == 1
                                              and c not in ell))
    else:
        right = right.replace("...", "".join(ell))
    for c in right:
        if right.count(c) > 1:
            raise ArgumentError(f"einsum(): output subscript {c} appears more than once in the "
                                "output")
        if c not in joined:
            raise ArgumentError(f"einsum(): output subscript {c} does not appear in the equation "
                                "for any input operand")
    return spelled, right


def _sizes(terms: list[str], operands: list[Any]) -> dict[str, int]:
    size: dict[str, int] = {}
    for term, x in zip(terms, operands, strict=True):
        for c, n in zip(term, x.shape, strict=True):
            if size.get(c, 1) not in (1, n) and n != 1:
                raise ShapeError(f"einsum(): subscript {c} has size {n} for operand {term!r} which "
                                 f"does not broadcast with previously seen size {size[c]}")
            size[c] = max(n, size.get(c, 1)) if n else 0
    return size


def _single(term: str, x: Any) -> tuple[str, Any]:
    """Diagonals for repeated subscripts."""
    while len(set(term)) < len(term):
        c = next(c for c in term if term.count(c) > 1)
        a = term.index(c)
        b = term.index(c, a + 1)
        x = diagonal_op(x, offset=0, dim1=a, dim2=b)
        term = "".join(t for i, t in enumerate(term) if i not in (a, b)) + c
    return term, x


def _reduce(term: str, x: Any, keep: set[str]) -> tuple[str, Any]:
    """Sums over subscripts that nobody else has."""
    gone = tuple(i for i, c in enumerate(term) if c not in keep)
    if not gone:
        return term, x
    return "".join(c for c in term if c in keep), sum_op(x, dim=gone, keepdim=False)


def _squeezed(term: str, x: Any, size: dict[str, int]) -> tuple[str, Any]:
    """Axes of size 1 that stand for larger ones elsewhere are dropped: they broadcast."""
    drop = [i for i, c in enumerate(term) if x.shape[i] == 1 and size[c] != 1]
    if not drop:
        return term, x
    x = reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in drop))
    return "".join(c for i, c in enumerate(term) if i not in drop), x


def _order(term: str, x: Any, wanted: str) -> Any:
    if term == wanted:
        return x
    return permute_op(x, dims=tuple(term.index(c) for c in wanted))


def _pair(ta: str, a: Any, tb: str, b: Any, keep: set[str]) -> tuple[str, Any]:
    """Two operands into one: axes (batch, row, sum) x (batch, sum, column)."""
    both = [c for c in ta if c in tb]
    batch = [c for c in both if c in keep]
    inner = [c for c in both if c not in keep]
    ta, a = _reduce(ta, a, keep | set(both))
    tb, b = _reduce(tb, b, keep | set(both))
    if dtype_of(a) != dtype_of(b):                  # one was summed, in int64
        a, b = cast_to(a, I64), cast_to(b, I64)
    rows = [c for c in ta if c not in both]
    cols = [c for c in tb if c not in both]
    if not inner and (not rows or not cols):
        return _outer(ta, a, tb, b, batch, rows, cols)
    size = {c: n for t, x in ((ta, a), (tb, b)) for c, n in zip(t, x.shape, strict=True)}

    def total(cs: list[str]) -> int:
        return math.prod(size[c] for c in cs)
    if inner:
        need_kernel("bmm", "b", a)
    left = reshape(_order(ta, a, "".join(batch + rows + inner)),
                   (total(batch), total(rows), total(inner)))
    right = reshape(_order(tb, b, "".join(batch + inner + cols)),
                    (total(batch), total(inner), total(cols)))
    if not batch:
        left, right = (reshape(t, tuple(t.shape[1:])) for t in (left, right))
    out = matmul_op(left, right)
    names = batch + rows + cols
    return "".join(names), reshape(out, tuple(size[c] for c in names))


def _outer(ta: str, a: Any, tb: str, b: Any, batch: list[str], rows: list[str],
           cols: list[str]) -> tuple[str, Any]:
    names = "".join(batch + rows + cols)
    left = _order(ta, a, "".join(batch + rows))
    right = _order(tb, b, "".join(batch + cols))
    left = reshape(left, (*left.shape, *(1,) * len(cols)))
    lead = tuple(right.shape[:len(batch)])
    right = reshape(right, (*lead, *(1,) * len(rows), *right.shape[len(batch):]))
    return names, mul(left, right)


def _best(terms: list[str], output: str, size: dict[str, int]) -> tuple[int, int]:
    """The pair whose contraction leaves least in memory, then costs least."""
    best: tuple[float, float, int, int] | None = None
    for i in range(len(terms)):
        for j in range(i + 1, len(terms)):
            others = set(output).union(*(set(t) for k, t in enumerate(terms) if k not in (i, j)))
            union = set(terms[i]) | set(terms[j])
            held = math.prod(size[c] for c in union & others)
            freed = sum(math.prod(size[c] for c in terms[k]) for k in (i, j))
            work = math.prod(size[c] for c in union)
            score = (float(held - freed), float(work), i, j)
            if best is None or score < best:
                best = score
    assert best is not None
    return best[2], best[3]


def _flat(args: Any) -> Any:
    """The operands one by one: as PyTorch tells them, none is a list."""
    listed = len(args) == 2 and isinstance(args[1], (list, tuple))
    return (args[0], *args[1]) if listed else args


TOLD["einsum"] = _flat


@public(method=False)
@planned
def einsum(equation: Any, *operands: Any) -> Any:
    """Sums of products over named axes, as in ``einsum("bij,bjk->bik", a, b)``.

    Ellipses, repeated subscripts (diagonals), implicit output and PyTorch's sublist form
    ``einsum(a, [0, 1], b, [1, 2], [0, 2])`` are understood.

    >>> import adjoint as ad
    >>> ad.einsum("ij,j->i", ad.ones(2, 3), ad.ones(3))
    tensor([3., 3.])
    """
    if not isinstance(equation, str):
        equation, operands = _from_sublists((equation, *operands))
    _, *operands = _flat((equation, *operands))
    if not operands:
        raise ArgumentError("einsum(): must provide at least one operand")
    need("einsum", *operands, argument="operands")
    same_dtype("einsum", *operands)
    xs = list(operands)
    terms, output = _parse(equation, xs)
    size = _sizes(terms, xs)
    done = [_squeezed(*_single(t, x), size) for t, x in zip(terms, xs, strict=True)]
    terms, xs = [t for t, _ in done], [x for _, x in done]
    while len(xs) > 1:
        i, j = _best(terms, output, size) if len(xs) > 2 else (0, 1)
        keep = set(output).union(*(set(t) for k, t in enumerate(terms) if k not in (i, j)))
        term, x = _pair(terms[i], xs[i], terms[j], xs[j], keep)
        terms = [t for k, t in enumerate(terms) if k not in (i, j)] + [term]
        xs = [y for k, y in enumerate(xs) if k not in (i, j)] + [x]
    term, x = _reduce(terms[0], xs[0], set(output))
    return _order(term, x, output)


def _from_sublists(parts: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    def spelled(names: Any) -> str:
        return "".join("..." if n is Ellipsis else LETTERS[n] for n in names)
    count = len(parts) // 2
    text = ",".join(spelled(parts[2 * i + 1]) for i in range(count))
    if len(parts) % 2:
        text += "->" + spelled(parts[-1])
    return text, tuple(parts[2 * i] for i in range(count))


__all__ = ["einsum"]
