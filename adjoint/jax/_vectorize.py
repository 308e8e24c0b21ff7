"""`jax.numpy.vectorize`."""
from __future__ import annotations

import re
from functools import wraps
from typing import Any

import numpy as np

from adjoint.jax._array import as_array
from adjoint.jax._transforms import vmap

_CORE = re.compile(r"\(([^()]*)\)")


def _cores(text: str) -> list[tuple[str, ...]]:
    return [tuple(n.strip() for n in c.split(",") if n.strip()) for c in _CORE.findall(text)]


def vectorize(pyfunc: Any, *, excluded: Any = frozenset(), signature: Any = None) -> Any:
    """A function of arrays of core shapes, broadcast over all leading axes.

    signature  as NumPy's "(n,m),(m)->(n)"; default: every core is a number
    excluded   positions (or names) of arguments that are passed as they are
    """
    @wraps(pyfunc)
    def run(*args: Any, **kwargs: Any) -> Any:
        fixed = {i: a for i, a in enumerate(args) if i in excluded or a is None}
        arrays = [as_array(a) for i, a in enumerate(args) if i not in fixed]
        cores = _cores(signature.split("->")[0]) if signature else [()] * len(arrays)
        if signature and len(cores) != len(arrays):
            raise TypeError(f"wrong number of positional arguments: expected {len(cores)}, got "
                            f"{len(arrays)}")
        for a, c in zip(arrays, cores, strict=True):
            if a.ndim < len(c):
                raise ValueError(f"input with shape {a.shape} does not have enough dimensions for "
                                 f"all core dimensions {c} on vectorized function with "
                                 f"excluded={excluded!r} and signature={signature!r}")
        loops = [a.shape[:a.ndim - len(c)] for a, c in zip(arrays, cores, strict=True)]
        lead = np.broadcast_shapes(*loops) if loops else ()

        def call(*given: Any) -> Any:
            rest = iter(given)
            return pyfunc(*[fixed[i] if i in fixed else next(rest) for i in range(len(args))],
                          **kwargs)
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
