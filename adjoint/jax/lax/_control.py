"""Control flow of `jax.lax` on trees of arrays, over that of `adjoint.func`."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from adjoint import func as _func
from adjoint.base.errors import NotSupported
from adjoint.core.tensor import wrap
from adjoint.func import control as _control
from adjoint.jax._array import (
    METHODS,
    as_array,
    convert,
    describe,
    is_array_like,
    is_followed,
    is_hidden,
    is_mapped,
    make,
    moves,
    value_of,
)
from adjoint.jax._dtypes import lattice
from adjoint.jax._flat import Leaves, is_key, leaf, outputs
from adjoint.jax._leaks import tells_leaks
from adjoint.jax._trace import RUN, traced
from adjoint.jax._util import canonicalize_axis
from adjoint.jax.tree_util import (
    PyTreeDef,
    flat,
    keystr,
    structures_differ,
    tree_leaves_with_path,
    tree_map,
)

F = Callable[..., Any]


def _promoted(init: Leaves, out: Leaves) -> Leaves | None:
    """Start values in the dtypes that a loop gives them, where those were weak; None: as is.
    What is weak for no other dtype stays so in the loop, as in JAX (`_settled`)."""
    changed = False
    for k, (a, b) in enumerate(zip(init.arrays, out.arrays, strict=True)):
        if is_key(a) or (a.dtype, a.weak_type) == (b.dtype, b.weak_type):
            continue
        if a.weak_type and a.shape == b.shape:
            dtype, _ = lattice(frozenset([(a.dtype, True), (b.dtype, b.weak_type)]))
            if dtype == a.dtype:
                continue
            init.arrays[k] = make(convert(a.tensor, dtype))
            init.like.marks[k] = False
            changed = True
    return init if changed else None


def _settled(init: Leaves, out: Leaves | None) -> Leaves:
    """What a loop gives at its end: weak where both its start and its step are."""
    for k, a in enumerate(out.arrays if out else ()):
        if not is_key(a) and not a.weak_type:
            init.like.marks[k] = False
    return init


def _same(init: Leaves, out: Leaves, what: str, name: str) -> None:
    """TypeError where a loop changes the structure, shapes or dtypes of what it carries."""
    if init.spec != out.spec:
        where, gap = structures_differ(init.spec, out.spec)
        raise TypeError(f"{what} body function carry input and carry output must have the same "
                        f"pytree structure, but they differ:\n\nThe input carry {name}{where} "
                        f"and the carry output differ there: {gap}.\n\nReturn a carry of the "
                        f"structure of the input: {init.treedef}, not {out.treedef}.")
    for path, a, b in _unlike(init, out):
        raise TypeError(f"{what} body function carry input and carry output must have equal "
                        f"types, but they differ:\n\nThe input carry "
                        f"{'component ' if path else ''}{name}{path} has type {describe(a)} "
                        f"but the corresponding output carry component has type {describe(b)}, "
                        f"so the {_which(a, b)} do not match.")


def _unlike(mine: Leaves, other: Leaves) -> Iterator[tuple[str, Any, Any]]:
    """Where two trees of one structure differ in shape or dtype: the path, and both arrays."""
    for k, (a, b) in enumerate(zip(mine.arrays, other.arrays, strict=True)):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            yield keystr(tree_leaves_with_path(mine.tree(mine.tensors))[k][0]), a, b


def _which(a: Any, b: Any) -> str:
    """What of two types differs."""
    parts = [w for w, x, y in (("shapes", a.shape, b.shape), ("dtypes", a.dtype, b.dtype))
             if x != y]
    return " and ".join(parts)


def first_parameter(f: F, default: str = "carry") -> str:
    """The name of a function's first parameter, for messages."""
    try:
        return next(iter(inspect.signature(f).parameters), default)
    except (TypeError, ValueError):
        return default


@tells_leaks
def scan(f: F, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False,
         unroll: int | bool = 1, _split_transpose: bool = False) -> Any:
    """(carry, y) = f(carry, x) along the first axis of `xs`: the last carry, and all y stacked.

    >>> from adjoint.jax import lax, numpy as jnp
    >>> lax.scan(lambda c, x: (c + x, c * x), 0.0, jnp.array([1.0, 2.0, 3.0]))[1]
    Array([0., 2., 9.], dtype=float32)
    """
    if not callable(f):
        raise TypeError(f"lax.scan: f argument should be a callable; got {f!r}")
    if not isinstance(unroll, (bool, int)) or unroll < 0:
        raise ValueError(f"`unroll` must be a `bool` or a non-negative `int`, got {unroll!r}.")
    carry, rows, name = Leaves(init), Leaves(xs), first_parameter(f)
    for x in rows.arrays:
        if x.ndim == 0:
            raise ValueError("scan got value with no leading axis to scan over: a number")
    sizes = {x.shape[0] for x in rows.arrays}
    if length is not None and sizes - {int(length)}:
        raise ValueError(f"scan got `length` argument of {length} which disagrees with leading "
                         f"axis sizes {[x.shape[0] for x in rows.arrays]}.")
    if not sizes and length is None:
        raise ValueError("scan got no values to scan over and `length` not provided.")
    if len(sizes) > 1:
        raise ValueError("scan got values with different leading axis sizes: "
                         + ", ".join(str(x.shape[0]) for x in rows.arrays) + ".")
    out: dict[str, Leaves] = {}

    def body(state: Any, row: Any) -> Any:
        with traced():
            found = f(carry.tree(state), rows.tree(row))
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise TypeError(f"scan body output must be a pair, got {_type_of(found):.80}.")
        out["carry"], out["y"] = (Leaves(x, outputs(f, "scan")) for x in found)
        if out["carry"].spec == carry.spec and _promoted(carry, out["carry"]) is not None:
            raise _Again
        _same(carry, out["carry"], "scan", name)
        return out["carry"].tensors, out["y"].tensors

    count = int(length) if length is not None else sizes.pop()
    writes = RUN.writes
    for _ in range(4):
        try:
            made = RUN.recording and RUN.recording.loop(
                body, carry, rows, lambda: [*out["carry"].arrays, *out["y"].arrays], length=count,
                reverse=reverse, unroll=unroll)
            last, ys = made or _func.scan(body, carry.tensors, rows.tensors, count, reverse)
            break
        except _Again:
            _once(writes)
    if not out:
        _abstract_run(body, carry, rows)
        ys = [wrap(np.zeros((0, *a.shape), a.dtype)) for a in out["y"].arrays]
        last = carry.tensors
    return _settled(carry, out["carry"]).tree(last), out["y"].tree(ys)


def _type_of(x: Any) -> str:
    """An array's type as JAX writes it, `~float32[3]`; anything else as Python does."""
    return ("~" * x.weak_type + describe(x)) if is_array_like(x) and hasattr(
        x, "weak_type") else repr(x)


class _Again(Exception):
    """A loop has to start over, in the types that its first step gave."""


def _once(writes: int) -> None:
    """NotSupported for a loop that starts over after it wrote to a ref."""
    if RUN.writes != writes:
        raise NotSupported("a loop wrote to a ref in its first step, which changed the type of the "
                           "carry: give the carry its final dtype, jnp.zeros(()) for 0.0")


def _abstract_run(body: F, carry: Leaves, rows: Leaves) -> None:
    """Run a step on zeros, for the types of what it gives."""
    body(carry.tensors, [wrap(np.zeros(a.shape[1:], a.dtype)) for a in rows.arrays])


@tells_leaks
def while_loop(cond_fun: F, body_fun: F, init_val: Any) -> Any:
    """Repeat `body_fun` while `cond_fun` holds. Unlike JAX's, it has reverse mode too."""
    state, name = Leaves(init_val), first_parameter(body_fun)
    last: list[Leaves] = []
    if not callable(cond_fun) or not callable(body_fun):
        raise TypeError("lax.while_loop: body_fun and cond_fun arguments should be callable.")

    def test(tensors: Any) -> Any:
        with traced():
            found = cond_fun(state.tree(tensors))
        leaves, spec = flat(found)
        if spec.kind is not None:
            raise TypeError("cond_fun must return a boolean scalar, but got pytree "
                            f"{PyTreeDef(spec)}.")
        c = leaf(leaves[0], outputs(cond_fun, "while_cond"))
        if c.dtype.kind != "b" or c.shape != ():
            raise TypeError("cond_fun must return a boolean scalar, but got output type(s) "
                            f"[{c.aval}].")
        return c.tensor

    def body(tensors: Any) -> Any:
        with traced():
            out = Leaves(body_fun(state.tree(tensors)), outputs(body_fun, "while_body"))
        if out.spec == state.spec and _promoted(state, out) is not None:
            raise _Again
        _same(state, out, "while_loop", name)
        last[:] = [out]
        return out.tensors
    writes = RUN.writes
    for _ in range(4):
        try:
            found = (RUN.recording.repeat(test, body, state) if RUN.recording else
                     _func.while_loop(test, body, state.tensors))
            return _settled(state, last[0] if last else None).tree(found)
        except _Again:
            _once(writes)
    raise TypeError("while_loop: the types of the carry do not settle")


@tells_leaks
def fori_loop(lower: Any, upper: Any, body_fun: F, init_val: Any, *, unroll: Any = None) -> Any:
    """val = body_fun(i, val) for i from lower to upper.

    >>> from adjoint.jax import lax
    >>> int(lax.fori_loop(0, 4, lambda i, v: v + i, 0))
    6
    """
    low, high = as_array(lower), as_array(upper)
    if not callable(body_fun):
        raise TypeError("lax.fori_loop: body_fun argument should be callable.")
    a, b = (low.dtype, low.weak_type), (high.dtype, high.weak_type)
    kind = lattice(frozenset([a, b]))
    if a[0] != b[0] and not (a[1] != b[1] and kind[0] in (a[0], b[0]) and a[0].kind == b[0].kind):
        raise TypeError("lower and upper arguments to fori_loop must have equal types, got "
                        f"{a[0].name} and {b[0].name}")
    for x in (low, high):
        if x.shape != ():
            raise TypeError("cond_fun must return a boolean scalar, but got bounds of fori_loop "
                            f"of types {describe(low)} and {describe(high)} compare to none")
    if RUN.recording and not (is_hidden(low) or is_hidden(high)):
        return scan(lambda s, _: ((s[0] + 1, body_fun(*s)), None), (low, init_val), None,
                    max(0, int(value_of(high)) - int(value_of(low))))[0][1]
    if is_mapped(low) or is_mapped(high) or RUN.recording:
        start = (low + 0 * high, init_val)
        return while_loop(lambda s: s[0] < high, lambda s: (s[0] + 1, body_fun(*s)), start)[1]
    what = "while_loop" if is_hidden(low) or is_hidden(high) else "scan"
    if what == "while_loop" and unroll is not None and (unroll is True or unroll > 1):
        raise ValueError("Can only use `unroll` in `fori_loop` if the loop bounds are statically "
                         "known.")
    state, writes, out = Leaves(init_val), RUN.writes, None
    for _ in range(4):
        tensors = state.tensors
        for i in range(int(value_of(low)), int(value_of(high))):
            with traced():
                at = make(wrap(np.array(i, kind[0])), kind[1])
                out = Leaves(body_fun(at, state.tree(tensors)), outputs(body_fun, what))
            if out.spec == state.spec and _promoted(state, out) is not None:
                _once(writes)
                break
            _same(state, out, what, "loop_carry[1]")
            tensors = out.tensors
        else:
            return _settled(state, out).tree(tensors)
    raise TypeError("fori_loop: the types of the carry do not settle")


# ------------------------------------------------------------------ branches
def _branches(what: str, branches: Sequence[F], operands: Any) -> tuple[list[F], Leaves,
                                                                        list[Leaves],
                                                                        list[int]]:
    """The branches on tensors, their operands, and where runs enter outputs and numbers."""
    given, outs, ran = Leaves(operands), [], []

    def flatly(k: int, branch: F) -> F:
        def run(*tensors: Any) -> Any:
            with traced():
                outs.append(Leaves(branch(*given.tree(tensors)), outputs(branch, what)))
            ran.append(k)
            return outs[-1].tensors
        return run
    return [flatly(k, b) for k, b in enumerate(branches)], given, outs, ran


def _agree(outs: Sequence[tuple[str, Leaves]], what: str) -> None:
    """TypeError where the outputs of named branches differ in structure, shapes or dtypes."""
    first, mine = outs[0]
    for name, other in outs[1:]:
        if other.spec != mine.spec:
            where, gap = structures_differ(mine.spec, other.spec)
            raise TypeError(f"{what} branch outputs must have the same pytree structure, but they "
                            f"differ:\n\n{first} output{where} and {name} output{where}: "
                            f"{gap}.\n\nRevise {first} and/or {name} so that they have the "
                            "same pytree structure.")
        for path, a, b in _unlike(mine, other):
            raise TypeError(f"{what} branches must have equal output types but they differ."
                            f"\n\nThe output of {first}{' at path ' * bool(path)}{path} "
                            f"has type {describe(a)} but the corresponding output of {name} "
                            f"has type {describe(b)}, so the {_which(a, b)} do not match.")


def _other(branch: F, given: Leaves) -> Leaves | None:
    """What a branch that is not taken would give: shapes and dtypes, by a run without values."""
    from adjoint.jax._api import shapes_of
    return shapes_of(branch, given)


_NONE: Any = object()            # for an operand that is not given, where None is one


@tells_leaks
def cond(pred: Any, true_fun: Any, false_fun: Any, *operands: Any, operand: Any = _NONE) -> Any:
    """true_fun(*operands) if `pred` else false_fun(*operands).

    One branch runs, except where a vmap gives examples their own `pred`. The other one is run on
    shapes alone, so that both are known to give the same types.
    """
    if not callable(true_fun) and len(operands) == 2 and callable(false_fun) and callable(
            operands[1]):                    # (pred, true_operand, true_fun, ...): the old way
        x, f, y, g = true_fun, false_fun, *operands
        return cond(pred, lambda a, b: f(a), lambda a, b: g(b), x, y)
    funs = [true_fun, false_fun]
    if operand is not _NONE:
        if operands:
            raise TypeError("if 'operand' keyword is passed then no positional operands can be "
                            f"passed, got {operand=} and positional operands {operands}")
        operands = (operand,)
    if not all([callable(f) for f in funs]):
        raise TypeError("lax.cond: true_fun and false_fun arguments should be callable.")
    if pred is None:
        raise TypeError("cond predicate is None")
    if isinstance(pred, (str, list, tuple)):
        raise TypeError(f"Pred must be a scalar, got {pred} of type {type(pred)}")
    if not is_array_like(pred):
        raise TypeError(f"Pred type must be either boolean or number, got {pred!r}.")
    p = as_array(pred)
    if p.shape != ():
        raise TypeError(f"Pred must be a scalar, got {pred} of shape {p.shape}.")
    flag = p if p.dtype.kind == "b" else p != 0
    return _choose("cond", flag, None, funs, operands)


def switch(index: Any, branches: Sequence[F], *operands: Any, operand: Any = _NONE) -> Any:
    """branches[index](*operands), the index clamped to the branches there are."""
    if not all([callable(f) for f in branches]):
        raise TypeError("lax.switch: branches argument should be a sequence of callables.")
    if not len(branches):
        raise ValueError("Empty branch sequence")
    if not is_array_like(index):
        raise TypeError(f"Index type must be an integer, got {index}.")
    i = as_array(index)
    if i.shape != ():
        raise TypeError(f"Branch index must be scalar, got {index} of shape {i.shape}.")
    if i.dtype.kind not in "iu":
        raise TypeError(f"Index type must be an integer, got {index} as {i.dtype.name}")
    if operand is not _NONE and operands:
        raise TypeError("if 'operand' keyword is passed then no positional operands can be "
                        f"passed, got {operand=} and positional operands {operands}")
    given = operands if operand is _NONE else (operand,)
    if len(branches) == 1:
        return branches[0](*given)
    return _choose("switch", None, i, list(branches), given)


def _choose(what: str, flag: Any, index: Any, funs: Sequence[F], operands: Any) -> Any:
    runs, given, outs, ran = _branches(what, funs, operands)
    if RUN.recording:
        at = METHODS["clip"](index, 0, len(funs) - 1) if flag is None else flag.astype("int32")
        found = RUN.recording.choose(at.tensor, runs if flag is None else runs[::-1], given, outs)
    elif flag is not None:
        found = _control.cond(flag.tensor, runs[0], runs[1], *given.tensors)
    else:
        found = _control.switch(index.tensor, runs, *given.tensors)
    names = ["true_fun", "false_fun"] if flag is not None else [
        f"branch {k}" for k in range(len(runs))]
    mine, known = outs[0], dict(zip(ran, outs, strict=True))
    for k in range(len(runs)):
        other = None if k in known else _other(runs[k], given)
        if other is not None:
            known[k] = other
    _agree([(names[k], known[k]) for k in sorted(known)], what)
    return mine.tree(found)


# ------------------------------------------------------------------ maps and scans
def map(f: F, xs: Any, *, batch_size: int | None = None) -> Any:      # JAX's name
    """`f` of every entry along the first axis, one after another, stacked."""
    if batch_size:
        from adjoint.jax._vmap import vmap
        n = Leaves(xs).arrays[0].shape[0]
        parts = [vmap(f)(tree_map(lambda x, s=start: as_array(x)[s:s + batch_size], xs))
                 for start in range(0, n, batch_size)]
        from adjoint.jax.numpy import _shape
        return tree_map(lambda *ys: _shape.NAMES["concatenate"](ys), *parts)
    return scan(lambda _, x: ((), f(x)), (), xs)[1]


def associative_scan(fn: F, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """All prefixes of an associative operation along an axis."""
    if not callable(fn):
        raise TypeError("lax.associative_scan: fn argument should be callable.")
    given = Leaves(elems)
    for x in given.arrays:
        canonicalize_axis(axis, x.ndim)
    sizes = [x.shape for x in given.arrays]
    if len({x[axis] for x in sizes}) > 1:
        raise ValueError("Array inputs to associative_scan must have the same first dimension. "
                         f"(saw: {sizes})")

    def join(a: Any, b: Any) -> Any:
        return Leaves(fn(given.tree(a), given.tree(b)), "Output").tensors
    return given.tree(_func.associative_scan(join, given.tensors, reverse, axis))


def stop_gradient(x: Any) -> Any:
    """A tree of values cut from every derivative."""
    def stop(v: Any) -> Any:
        if is_key(v):
            return v
        a = as_array(v)
        t = a.tensor.detach()
        return make(RUN.recording.stopped(t) if RUN.recording else t, a.weak_type)
    return tree_map(stop, x)


_ORDERS = 3                 # derivatives of roots and of solutions of linear equations are exact to


def _by_argument(f: F) -> F:
    """The function without derivatives by what it closes over, as long as its argument carries
    none: a solver may differentiate it by its argument, as Newton's method does."""
    def run(x: Any) -> Any:
        found = f(x)
        return found if any([moves(t) for t in Leaves(x).tensors]) else stop_gradient(found)
    return run


def custom_root(f: F, initial_guess: Any, solve: F, tangent_solve: F, has_aux: bool = False) -> Any:
    """A root of f that `solve(f, guess)` finds, differentiated by the implicit function theorem: by
    refinements x - S(f(x)), with S a solve by the constant derivative at the root, each of which
    adds an order."""
    from adjoint.jax._rules import custom_jvp
    from adjoint.jax._transforms import linearize
    guess = Leaves(initial_guess)
    found = solve(_by_argument(f), stop_gradient(initial_guess))
    if has_aux and not (isinstance(found, tuple) and len(found) == 2):
        raise ValueError(f"solve() produced a pytree with structure {Leaves(found).treedef}, but a "
                         "pytree tuple with auxiliary output was expected because has_aux was set "
                         "to True.")
    root, aux = found if has_aux else (found, None)
    _structure("solve() output", root, "initial_guess", guess)
    root = stop_gradient(root)

    @custom_jvp
    def there(residual: Any) -> Any:
        return tree_map(lambda v: as_array(v) * 0, residual)

    def rule(primals: Any, tangents: Any) -> Any:
        return there(*primals), tangent_solve(linearize(lambda x: f(x), root)[1], tangents[0])
    there.defjvp(rule)
    residual = f(root)
    _structure("f() output", residual, "initial_guess", guess)
    x = root
    if any([is_followed(a) for a in Leaves(residual).arrays if not is_key(a)]):
        for _ in range(_ORDERS):
            x = tree_map(lambda p, q: p - q, x, there(f(x)))
    return (x, aux) if has_aux else x


def _structure(what: str, x: Any, name: str, like: Leaves) -> None:
    """TypeError where a tree has not the structure of another."""
    found = Leaves(x)
    if found.spec != like.spec:
        raise TypeError(f"{what} pytree structure must match {name}, got {found.treedef} and "
                        f"{like.treedef}.")


def _shapes(what: str, x: Any, b: Leaves) -> None:
    """ValueError where the leaves of an output have not the shapes of those of `b`."""
    found, wanted = ([a.shape for a in y.arrays] for y in (Leaves(x), b))
    if found != wanted:
        raise ValueError(f"{what} output shapes must match b, got {found} and {wanted}")
    _structure(f"{what} output", x, "b", b)


def custom_linear_solve(matvec: F, b: Any, solve: F, transpose_solve: Any = None,
                        symmetric: bool = False, has_aux: bool = False) -> Any:
    """x with matvec(x) = b, found by `solve(matvec, b)` and differentiated as a solution: by
    refinements x + S(b - A x), with S a solve by a constant A, each of which adds an order."""
    from adjoint.jax._rules import custom_vjp
    from adjoint.jax._transforms import vjp

    constant = _by_argument(matvec)

    def solved(r: Any) -> Any:
        """(x, aux) of the solver for a right-hand side."""
        found = solve(constant, stop_gradient(r))
        if has_aux and not (isinstance(found, tuple) and len(found) == 2):
            raise ValueError(f"solve() produced a pytree with structure {Leaves(found).treedef}, "
                             "but a pytree tuple with auxiliary output was expected because "
                             "has_aux was set to True.")
        return stop_gradient(found if has_aux else (found, None))

    transposed = _by_argument(lambda v: vjp(matvec, stop_gradient(b))[1](v)[0])

    @custom_vjp
    def there(r: Any) -> Any:
        return solved(r)[0]

    @custom_vjp
    def back(r: Any) -> Any:
        if transpose_solve is None:
            found = solve(constant if symmetric else transposed, stop_gradient(r))
        else:
            found = transpose_solve(transposed, stop_gradient(r))
        return stop_gradient(found[0] if has_aux else found)
    there.defvjp(lambda r: (there(r), None), lambda _, ct: ((there if symmetric else back)(ct),))
    back.defvjp(lambda r: (back(r), None), lambda _, ct: (there(ct),))
    given = Leaves(b)
    x, aux = solved(b)
    _shapes("solve()", x, given)
    image = matvec(x)
    _shapes("matvec()", image, given)
    if any(is_followed(a) for a in Leaves((b, image)).arrays):
        for _ in range(_ORDERS):
            off = tree_map(lambda p, q: p - q, b, matvec(x))
            x = tree_map(lambda p, q: p + q, x, there(off))
    return (x, aux) if has_aux else x


__all__ = ["associative_scan", "cond", "custom_linear_solve", "custom_root", "fori_loop", "map",
           "scan", "stop_gradient", "switch", "while_loop"]
