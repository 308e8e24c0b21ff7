"""A function of trees of arrays as a function of tensors: what the transforms of `adjoint.func`
are given."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from adjoint.base.dtypes import is_inexact
from adjoint.base.tree import Spec, unflatten
from adjoint.core.tensor import wrap
from adjoint.func.reverse import FLOAT0
from adjoint.jax._array import Array, as_array, describe, is_array_like, make
from adjoint.jax._trace import traced
from adjoint.jax.tree_util import (
    PyTreeDef,
    flat,
    keystr,
    prefix_leaves,
    tree_leaves_with_path,
)

F = Callable[..., Any]


def is_key(x: Any) -> bool:
    """True for typed PRNG keys."""
    return type(x).__name__ == "KeyArray"


def in_range(nums: Sequence[int], count: int, longer: bool = False) -> None:
    """ValueError for positions that `count` arguments do not have; longer: later ones may be."""
    for i in nums:
        if i < -count or i >= count and not longer:
            raise ValueError("Positional argument indices, e.g. for `static_argnums`, must have "
                             "value greater than or equal to -len(args) and less than len(args), "
                             f"but got value {i} for len(args) == {count}.")


def leaf(x: Any, what: str = "Argument", tree: Any = None, at: int = 0) -> Any:
    """An argument as an array; TypeError for what is no value, which says where in `tree`."""
    if type(x) is Array or is_key(x):
        return x
    if not is_array_like(x):
        if what.startswith("function "):
            path = keystr(tree_leaves_with_path(tree)[at][0]) if tree is not None else ""
            raise TypeError(f"{what} returned a value of type {type(x)}"
                            f"{f' at output component {path}' if path else ''}, which is not a "
                            "valid JAX type")
        word = "with" if what.startswith("Output") else "of"
        raise TypeError(f"{what} '{x}' {word} type {type(x)} is not a valid JAX type")
    return as_array(x)


def outputs(fun: Any, what: str) -> str:
    """How an output of a function that `what` runs is called in messages."""
    return f"function {source_of(fun)} traced for {what}"


def source_of(fun: Any) -> str:
    """A function's name, and where it is written if that is known."""
    name, code = getattr(fun, "__name__", None) or repr(fun), getattr(fun, "__code__", None)
    return name if code is None else f"{name} at {code.co_filename}:{code.co_firstlineno}"


def lower(x: Any) -> Any:
    """The tensor of an array or of a key."""
    return x.data.tensor if is_key(x) else x.tensor


class Like:
    """How tensors become the leaves that they were made of: weak arrays, keys."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.marks = [x.like if is_key(x) else bool(x.weak_type) for x in leaves]

    def back(self, tensors: Sequence[Any]) -> list[Any]:
        """Tensors as arrays and keys."""
        return [make(t, m) if isinstance(m, bool) else m(make(t))
                for t, m in zip(tensors, self.marks, strict=True)]


class Leaves:
    """A tree of values: its leaves as tensors, and how to make such a tree again."""

    def __init__(self, tree: Any, what: str = "Argument") -> None:
        found, self.spec = flat(tree)
        self.arrays = [leaf(x, what, tree, k) for k, x in enumerate(found)]
        self.like = Like(self.arrays)

    @property
    def tensors(self) -> list[Any]:
        """The leaves as tensors."""
        return [lower(a) for a in self.arrays]

    @property
    def treedef(self) -> PyTreeDef:
        """The structure."""
        return PyTreeDef(self.spec)

    def tree(self, tensors: Sequence[Any]) -> Any:
        """The tree with these tensors' arrays as its leaves."""
        return unflatten(self.like.back(tensors), self.spec)


class Beside(Leaves):
    """An auxiliary output: what is no array of ours comes back as it was given."""

    def __init__(self, tree: Any) -> None:
        found, self.spec = flat(tree)
        self.found = [None if type(x) is Array or is_key(x) else (x,) for x in found]
        self.arrays = [x for x, kept in zip(found, self.found, strict=True) if kept is None]
        self.like = Like(self.arrays)

    def tree(self, tensors: Sequence[Any]) -> Any:
        """The tree with these tensors' arrays among its leaves."""
        arrays = iter(self.like.back(tensors))
        return unflatten([next(arrays) if kept is None else kept[0] for kept in self.found],
                         self.spec)


class Flat:
    """`fun(*args, **kwargs)` as a function of the tensors of `args`, giving a list of tensors;
    the structure of its last output, and its auxiliary output, are kept."""

    def __init__(self, fun: F, args: Any, kwargs: Any = None, has_aux: bool = False,
                 what: str = "Argument") -> None:
        self.fun, self.kwargs, self.has_aux, self.what = fun, kwargs or {}, has_aux, what
        self.given = Leaves(args)
        self.out: Leaves
        self.aux: Beside

    def __call__(self, *tensors: Any) -> Any:
        found = self.fun(*self.given.tree(tensors), **self.kwargs)
        if self.has_aux:
            if not isinstance(found, (tuple, list)) or len(found) != 2:
                raise TypeError("expected function with aux output to return a two-element tuple, "
                                f"but got type {type(found)} with value {found!r:.80}")
            found, extra = found
            self.aux = Beside(extra)
        self.out = Leaves(found, self.what)
        return (self.out.tensors, self.aux.tensors) if self.has_aux else self.out.tensors


class Hidden(Flat):
    """The same, of a function that Python code does not look into."""

    def __call__(self, *tensors: Any) -> Any:
        with traced():
            return super().__call__(*tensors)


class Moving:
    """The arguments that a derivative is taken of, and those that stay."""

    def __init__(self, args: Sequence[Any], argnums: Sequence[int]) -> None:
        self.args, self.nums = list(args), [i % len(args) for i in argnums]
        self.leaves = Leaves(tuple(args[i] for i in self.nums))
        self.places = [k for k, a in enumerate(self.leaves.arrays)
                       if not is_key(a) and is_inexact(a.dtype)]

    @property
    def tensors(self) -> list[Any]:
        """The leaves that can carry a derivative."""
        return [self.leaves.arrays[k].tensor for k in self.places]

    def bind(self, fun: F) -> F:
        """The function of the moving leaves' arrays alone."""
        def run(*arrays: Any, **kwargs: Any) -> Any:
            full = list(self.leaves.arrays)
            for k, a in zip(self.places, arrays, strict=True):
                full[k] = a
            args = list(self.args)
            for i, v in zip(self.nums, unflatten(full, self.leaves.spec), strict=True):
                args[i] = v
            return fun(*args, **kwargs)
        return run

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The moving leaves."""
        return tuple(self.leaves.arrays[k] for k in self.places)

    def gather(self, found: Sequence[Any], rows: Sequence[int] | None = None) -> Any:
        """Per-leaf results in the structure of the arguments; float0 zeros at the others, and
        blocks of integer zeros where `rows` is the shape of an output of a Jacobian."""
        import numpy as np
        full: list[Any] = [
            np.zeros(a.shape, FLOAT0) if rows is None or is_key(a) else
            make(wrap(np.zeros((*rows, *a.shape), a.dtype))) for a in self.leaves.arrays]
        for k, v in zip(self.places, found, strict=True):
            full[k] = v
        return unflatten(full, self.leaves.spec)


def flatten_axes(name: str, treedef: PyTreeDef, axis_tree: Any, *, kws: bool = False,
                 tupled_args: bool = False) -> list[Any]:
    """One entry of a prefix of axes, None among them, per leaf of a structure."""
    try:
        return prefix_leaves(axis_tree, treedef.unflatten([0] * treedef.num_leaves),
                             lambda x: x is None)
    except ValueError:
        hint = (" In particular, you're passing in a single argument which means that it is a tuple"
                " of one.") if tupled_args and isinstance(axis_tree, tuple) else ""
        raise ValueError(f"{name} specification must be a tree prefix of the corresponding value, "
                         f"got specification {axis_tree} for value tree {treedef}.{hint}"
                         ) from None


def conjugate(t: Any) -> Any:
    """JAX pulls back by the transpose, this engine by the adjoint: they differ by this."""
    return t.conj() if t.is_complex() else t


def zeros(x: Array) -> Any:
    """A zero tangent of an array."""
    import numpy as np
    return wrap(np.zeros(x.shape, x.dtype))


__all__ = ["FLOAT0", "Flat", "Hidden", "Leaves", "Like", "Moving", "Spec", "conjugate",
           "describe", "in_range", "leaf", "lower", "outputs", "source_of", "zeros"]
