"""`jax.numpy.vectorize`."""
from __future__ import annotations

import re
from functools import wraps
from typing import Any

import numpy as np

from adjoint.jax._array import as_array
from adjoint.jax._vmap import vmap

_CORE = re.compile(r"\(([^()]*)\)")


def _cores(text: str) -> list[tuple[str, ...]]:
    return [tuple(n.strip() for n in c.split(",") if n.strip()) for c in _CORE.findall(text)]


_WHOLE = re.compile(r"^\s*(\([^()]*\)\s*,?\s*)*->\s*(\([^()]*\)\s*,?\s*)*$")


def _match(shapes: Any, cores: Any, sizes: dict[str, int], where: str) -> None:
    """Note the sizes of core dimensions; ValueError where one has two."""
    for shape, core in zip(shapes, cores, strict=True):
        for name, n in zip(core, shape[len(shape) - len(core):], strict=True):
            if sizes.setdefault(name, n) != n:
                raise ValueError(f"inconsistent size for core dimension {name!r}: {n} vs "
                                 f"{sizes[name]} {where}")


def _checked_outputs(found: Any, cores: Any, sizes: dict[str, int], where: str) -> Any:
    """The outputs of one example; TypeError for another number, ValueError for other shapes."""
    if len(cores) > 1 and not isinstance(found, tuple):
        raise TypeError(f"output must be a tuple: got {type(found)} {where}")
    outs = found if isinstance(found, tuple) else (found,)
    if len(outs) != len(cores):
        raise TypeError(f"wrong number of output arguments: expected {len(cores)}, got {len(outs)} "
                        f"{where}")
    for y, core in zip(outs, cores, strict=True):
        shape = as_array(y).shape
        if len(shape) != len(core):
            raise ValueError(f"output shape {shape} does not match core dimensions {core} {where}")
        _match([shape], [core], sizes, where)
    return found


def vectorize(pyfunc: Any, *, excluded: Any = frozenset(), signature: Any = None) -> Any:
    """A function of arrays of core shapes, broadcast over all leading axes.

    signature  as NumPy's "(n,m),(m)->(n)"; default: every core is a number
    excluded   positions (or names) of arguments that are passed as they are
    """
    if any(isinstance(i, int) and i < 0 for i in excluded):
        raise ValueError(f"excluded={set(excluded)!r} contains negative numbers")
    where = f"on vectorized function with excluded={excluded!r} and signature={signature!r}"

    @wraps(pyfunc)
    def run(*args: Any, **kwargs: Any) -> Any:
        if signature is not None and not _WHOLE.match(signature):
            raise ValueError(f"not a valid gufunc signature: {signature}")
        fixed = {i: a for i, a in enumerate(args) if i in excluded or a is None}
        arrays = [as_array(a) for i, a in enumerate(args) if i not in fixed]
        cores = _cores(signature.split("->")[0]) if signature else [()] * len(arrays)
        if signature and len(cores) != len(arrays):
            raise TypeError(f"wrong number of positional arguments: expected {len(cores)}, got "
                            f"{len(arrays)} {where}")
        for a, c in zip(arrays, cores, strict=True):
            if a.ndim < len(c):
                raise ValueError(f"input with shape {a.shape} does not have enough dimensions for "
                                 f"all core dimensions {c} {where}")
        sizes: dict[str, int] = {}
        _match([a.shape for a in arrays], cores, sizes, where)
        loops = [a.shape[:a.ndim - len(c)] for a, c in zip(arrays, cores, strict=True)]
        try:
            lead = np.broadcast_shapes(*loops) if loops else ()
        except ValueError:
            raise ValueError(f"Incompatible shapes for broadcasting: shapes={loops}") from None

        def call(*given: Any) -> Any:
            rest = iter(given)
            found = pyfunc(*[fixed[i] if i in fixed else next(rest) for i in range(len(args))],
                           **kwargs)
            return found if not signature else _checked_outputs(
                found, _cores(signature.split("->")[1]), sizes, where)
        f: Any = call
        for depth in range(len(lead)):          # the last broadcast axis is mapped innermost
            f = vmap(f, in_axes=tuple(
                0 if len(s) > depth and s[len(s) - 1 - depth] != 1 or (
                    len(s) > depth and lead[len(lead) - 1 - depth] == 1) else None for s in loops))
        kept = [a.reshape((*[n for k, n in enumerate(s) if n != 1 or lead[
            len(lead) - len(s) + k] == 1], *a.shape[len(s):]))
            for a, s in zip(arrays, loops, strict=True)]
        return f(*kept)
    return run
