"""Functions of flat lists, and runs of which some inputs are known: what libraries that unroll
scans themselves ask of `jax.extend.linear_util` and `jax.interpreters.partial_eval`.

An unknown input is an array without values; an output without values depends on one.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from adjoint.base.errors import NotSupported
from adjoint.jax._api import _meta as _without_values
from adjoint.jax._array import Array, ShapedArray, as_array, has_no_values
from adjoint.jax._flat import is_key
from adjoint.jax.tree_util import tree_flatten, tree_unflatten

F = Callable[..., Any]


class WrappedFun:
    """A function with what is said about it; `call_wrapped(*args)` runs it."""

    def __init__(self, f: F, params: Any = None, debug_info: Any = None) -> None:
        self.f, self.params, self.debug_info = f, dict(params or {}), debug_info

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """The function's output."""
        return self.f(*args, **self.params, **kwargs)


def wrap_init(f: F, params: Any = None, *, debug_info: Any = None) -> WrappedFun:
    """`linear_util.wrap_init`.

    >>> wrap_init(max).call_wrapped(1, 2)
    2
    """
    return WrappedFun(f, params, debug_info)


def transformation(gen: F) -> F:
    """`linear_util.transformation`: a program can define one, and not use it."""
    def run(*_: Any, **__: Any) -> Any:
        raise NotSupported(f"{gen.__name__} is a transformation of jax.extend.linear_util: "
                           "nothing here traces by these. jax.make_jaxpr gives the program of a "
                           "function, and jax.core.eval_jaxpr runs it")
    return run


def debug_info(*names: Any, **more: Any) -> Any:
    """`api_util.debug_info`: what is told about a function; nothing here reads it."""
    return names


def _flat(f: WrappedFun, in_tree: Any, call: F) -> tuple[WrappedFun, F]:
    trees: list[Any] = []

    def run(*leaves: Any) -> list[Any]:
        out, tree = tree_flatten(call(tree_unflatten(in_tree, leaves)))
        trees[:] = [tree]
        return list(out)
    return WrappedFun(run, None, f.debug_info), lambda: trees[0]


def flatten_fun_nokwargs(f: WrappedFun, in_tree: Any) -> tuple[WrappedFun, F]:
    """The function of its arguments' leaves, which gives the leaves of its output, and a function
    that gives the output's structure once it has run."""
    return _flat(f, in_tree, lambda args: f.call_wrapped(*args))


def flatten_fun(f: WrappedFun, in_tree: Any) -> tuple[WrappedFun, F]:
    """`flatten_fun_nokwargs`, the structure being that of (args, kwargs)."""
    return _flat(f, in_tree, lambda both: f.call_wrapped(*both[0], **both[1]))


class PartialVal(NamedTuple):
    """A value that is known (aval None), or its shape and dtype."""

    aval: Any
    const: Any

    @classmethod
    def unknown(cls, aval: Any) -> PartialVal:
        """Shape and dtype alone."""
        return cls(aval, None)

    @classmethod
    def known(cls, const: Any) -> PartialVal:
        """A value."""
        return cls(None, const)

    def is_known(self) -> bool:
        """Whether the value is known."""
        return self.aval is None


def _depends(x: Any) -> bool:
    data = x.data if is_key(x) else x
    return type(data) is Array and has_no_values(data)


def trace_to_jaxpr_nounits(fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool = False
                           ) -> tuple[Any, list[PartialVal], list[Any]]:
    """(None, outputs, []): the outputs that do not depend on unknown inputs are known. There is no
    program of the rest."""
    out = fun.call_wrapped(*[p.const if p.aval is None else _without_values(p.aval)
                             for p in pvals])
    return None, [PartialVal.unknown(ShapedArray(x.shape, as_array(x).dtype)) if _depends(x)
                  else PartialVal.known(x) for x in out], []


__all__ = ["PartialVal", "WrappedFun", "debug_info", "flatten_fun", "flatten_fun_nokwargs",
           "trace_to_jaxpr_nounits", "transformation", "wrap_init"]
