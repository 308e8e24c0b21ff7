"""`jax.vmap`: a function of one example as one of a batch."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from adjoint import func as _func
from adjoint.base.tree import unflatten
from adjoint.jax._array import describe, is_mapped
from adjoint.jax._flat import Flat, is_key
from adjoint.jax._leaks import leaks_told
from adjoint.jax._transforms import callable_or_error
from adjoint.jax.tree_util import flat, keystr, prefix_errors, prefix_leaves, tree_leaves_with_path

F = Callable[..., Any]


def _check_specs(in_axes: Any, out_axes: Any) -> None:
    """TypeError for specifications that hold what is no axis."""
    if type(in_axes) not in (int, tuple, list, type(None)):
        raise TypeError("vmap in_axes must be an int, None, or a tuple of entries corresponding to "
                        f"the positional arguments passed to the function, but got {in_axes}.")
    for name, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if any([type(a) is not int for a in flat(axes)[0]]):
            raise TypeError(f"vmap {name} must be an int, None, or (nested) container with those "
                            f"types as leaves, but got {axes}.")


def _axes(in_axes: Any, args: tuple[Any, ...]) -> list[Any]:
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise ValueError("vmap in_axes must be an int, None, or a tuple of entries corresponding "
                         "to the positional arguments passed to the function, but got "
                         f"len(in_axes)={len(in_axes)}, len(args)={len(args)}")
    return _spread("in_axes", in_axes, args)


def _spread(name: str, axes: Any, tree: Any) -> list[Any]:
    """One axis per leaf of a tree; ValueError where the axes are no prefix of it."""
    def none(x: Any) -> bool:
        return x is None
    try:
        return prefix_leaves(axes, tree, none)
    except ValueError:
        found = [told(f"vmap {name}") for told in prefix_errors(axes, tree, none)]
        raise ValueError(f"vmap {name} specification must be a tree prefix of the corresponding "
                         f"value; \n  Mismatch details ({len(found)} found):\n  "
                         + "\n  ".join(map(str, found))) from None


def _named(fun: F, args: tuple[Any, ...], kwargs: Any) -> list[str]:
    """How every leaf of the arguments is called in a message."""
    try:
        names = list(inspect.signature(fun).parameters)
    except (TypeError, ValueError):
        names = []
    out = []
    for i, a in enumerate(args):
        word = f"argument {names[i]}" if i < len(names) else f"args[{i}]"
        out += [word + keystr(path) for path, _ in tree_leaves_with_path(a)]
    return out + [f"kwargs{keystr(path)}" for path, _ in tree_leaves_with_path(kwargs)]


def _check_axes(arrays: Sequence[Any], axes: Sequence[Any], size: int | None,
                named: Callable[[], list[str]]) -> None:
    sizes: dict[int, list[int]] = {}
    for k, (x, axis) in enumerate(zip(arrays, axes, strict=True)):
        if axis is None:
            continue
        if not -x.ndim <= axis < x.ndim:
            raise ValueError(f"vmap was requested to map its argument along axis {axis}, which "
                             f"implies that its rank should be at least "
                             f"{axis + 1 if axis >= 0 else -axis}, but is only {x.ndim} (its shape "
                             f"is {x.shape})")
        sizes.setdefault(x.shape[axis], []).append(k)
    if not sizes and size is None:
        raise ValueError("vmap must have at least one non-None value in in_axes or axis_size must "
                         "be specified")
    if len(sizes.keys() | ({size} - {None})) < 2:
        return
    names, most = named(), "most"
    rows = [] if size is None else [f"  * the `axis_size` argument was {size}"]
    for n, places in sorted(sizes.items(), key=lambda item: -len(item[1])):
        k = places[0]
        where = f"axis {axes[k]} of {names[k]} of type {describe(arrays[k])}"
        rows.append(f"  * one axis had size {n}: {where}" if len(places) == 1 else
                    f"  * {most} axes ({len(places)} of them) had size {n}, e.g. {where}")
        most = "some"
    raise ValueError("vmap got inconsistent sizes for array axes to be mapped:\n"
                     + ";\n".join(rows))


def vmap(fun: F, in_axes: Any = 0, out_axes: Any = 0, axis_name: Any = None,
         axis_size: int | None = None, spmd_axis_name: Any = None, sum_match: bool = False) -> F:
    """A function of one example as a function of a batch.

    >>> from adjoint import jax
    >>> jax.vmap(lambda x, y: x * y, in_axes=(0, None))(jax.numpy.arange(3.), 2.0)
    Array([0., 2., 4.], dtype=float32)
    """
    callable_or_error(fun, "vmap")
    _check_specs(in_axes, out_axes)

    def mapped(args: Any, kwargs: Any) -> Any:
        if axis_size is None and not flat((args, kwargs))[0]:
            raise ValueError("vmap wrapped function must be passed at least one argument "
                             "containing an array or axis_size must be specified, got empty "
                             f"*args={args} and **kwargs={kwargs}")
        axes = _axes(in_axes, args) + [0] * len(flat(kwargs)[0])
        f = Flat(lambda a, k: fun(*a, **k), (args, kwargs), what="Output from batched function")
        _check_axes(f.given.arrays, axes, axis_size, lambda: _named(fun, args, kwargs))
        axes = [None if a is None else a % x.ndim for a, x in zip(axes, f.given.arrays,
                                                                  strict=True)]
        places: list[Any] = []

        def inner(*tensors: Any) -> Any:
            found = f(*tensors)
            places[:] = _spread("out_axes", out_axes, unflatten(
                f.out.arrays, f.out.spec))
            return found
        found = _func.vmap(inner, tuple(axes), 0, axis_name=axis_name,
                           axis_size=axis_size)(*f.given.tensors)
        paths = [""] * len(found) if None not in places else [
            keystr(path) for path, _ in tree_leaves_with_path(f.out.tree(found))]
        return f.out.tree([_placed(t, p, a, w) for t, p, a, w in zip(
            found, places, f.out.arrays, paths, strict=True)])

    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        with leaks_told():
            return mapped(args, kwargs)
    return run


def _placed(t: Any, place: Any, inside: Any, where: str) -> Any:
    """An output with its mapped axis where it is wanted."""
    if place is None:
        if is_mapped(inside.data if is_key(inside) else inside):
            raise ValueError(f"at vmap out_axes{where}, got axis spec None but output was batched "
                             "on axis 0")
        return t[0]
    n = t.ndim - (1 if is_key(inside) else 0)
    if not -n <= place < n:
        raise ValueError(f"axis {place} is out of bounds for array of dimension {n}")
    place = place % n
    return t if place == 0 else t.permute(*range(1, place + 1), 0, *range(place + 1, t.ndim))


__all__ = ["vmap"]
