"""What is left of `jax`'s own names: jit, shapes without values, callbacks, devices, debugging."""
from __future__ import annotations

import contextlib
import inspect
import operator
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np

from adjoint import func as _func
from adjoint.autograd.selective import Policy
from adjoint.base.aval import MetaArray
from adjoint.base.tree import unflatten
from adjoint.core.rehearsal import apart
from adjoint.core.tensor import wrap
from adjoint.jax._array import (
    Array,
    ShapeDtypeStruct,
    as_array,
    describe,
    is_array_like,
    is_traced,
    make,
)
from adjoint.jax._dtypes import FLAGS, config
from adjoint.jax._flat import Hidden, Leaves, in_range, is_key, leaf, outputs
from adjoint.jax._keys import KeyArray, KeyType
from adjoint.jax._leaks import leaks_told
from adjoint.jax._table import finite
from adjoint.jax._trace import RUN, in_the_open, taping, traced
from adjoint.jax.errors import JaxRuntimeError
from adjoint.jax.tree_util import flat, keystr, tree_leaves_with_path, tree_map

F = Callable[..., Any]


# ------------------------------------------------------------------ jit
def _statics(fun: F, nums: Any, names: Any) -> tuple[set[int], set[str]]:
    """Static arguments by position and by name: each implies the other."""
    numbers = _named_positions(nums)
    words = {names} if isinstance(names, str) else set(names or ())
    try:
        order = list(inspect.signature(fun).parameters)
    except (TypeError, ValueError):
        return numbers, words
    count = len(order)
    words |= {order[i] for i in numbers if -count <= i < count}
    numbers = {i % count if i < 0 and count else i for i in numbers} | {
        order.index(n) for n in words if n in order}
    return numbers, words


def _named_positions(nums: Any) -> set[int]:
    """Positions that are given as one number or several; TypeError for what is no number."""
    try:
        return {operator.index(nums)}
    except TypeError:
        return {operator.index(i) for i in (nums if nums is not None else ())}


def _check_marked(fun: F, nums: Any, names: Any, what: str) -> set[str]:
    """The names of the parameters that `{what}_argnums` and `{what}_argnames` mark; ValueError
    for those that the function does not have."""
    numbers = _named_positions(nums)
    words = {names} if isinstance(names, str) else set(names or ())
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return words
    kinds = [p.kind for p in parameters]
    order = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if inspect.Parameter.VAR_POSITIONAL not in kinds and any([
            not -len(order) <= i < len(order) for i in numbers]):
        raise ValueError(f"Jitted function has {what}_argnums={tuple(sorted(numbers))}, but only "
                         f"accepts {len(order)} positional arguments.")
    by_name = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if inspect.Parameter.VAR_KEYWORD not in kinds and words - by_name:
        only = words & {p.name for p in parameters if p.kind is p.POSITIONAL_ONLY}
        raise ValueError(f"Jitted function has invalid argnames {only or words - by_name} in "
                         f"{what}_argnames. "
                         + ("These are positional-only" if only else
                            "Function does not take these args."))
    return words | {order[i] for i in numbers if -len(order) <= i < len(order)}


def _hashable(x: Any) -> None:
    try:
        hash(x)
    except TypeError as error:
        raise ValueError("Non-hashable static arguments are not supported. An error occurred while "
                         f"trying to hash an object of type {type(x)}, {x}. The error was:\n"
                         f"TypeError: {error}\n") from None


class Jitted:
    """A function that `jit` was called on. It runs as it is written, each time."""

    def __init__(self, fun: F, nums: Any, names: Any, donated: Any = ()) -> None:
        wraps(fun)(self)
        self.donated = frozenset(donated)
        self.fun = fun
        self.nums, self.names = _statics(fun, nums, names)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if config.values["jax_disable_jit"]:
            return self.fun(*args, **kwargs)
        if RUN.recording is not None and (made := self._recorded(args, kwargs)) is not None:
            return made[0]
        with leaks_told():
            found = self._traced(args, kwargs)
        if config.watched:
            for x in (y for y in Leaves(found).arrays if not is_key(y)):
                finite(x, f"jit({getattr(self.fun, '__name__', 'fun')})")
        if self.donated:
            self._donate(args, kwargs, found)
        return found

    def _donate(self, args: Any, kwargs: Any, found: Any) -> None:
        """Delete the donated arguments that an output could stand in place of; a warning names the
        others. What a transform follows stays."""
        given = [(_parameter(self.fun, i), a) for i, a in enumerate(args)] + [*kwargs.items()]
        leaves = [x for name, a in given if name in self.donated for x in flat(a)[0]]
        free = [y.nbytes for y in flat(found)[0] if isinstance(y, Array)]
        useless = []
        for x in leaves:
            if not isinstance(x, Array) or is_traced(x) or x.is_deleted():
                continue
            if x.nbytes in free:
                free.remove(x.nbytes)
                x.delete()
            else:
                useless.append(describe(x))
        if useless:
            warnings.warn(f"Some donated buffers were not usable: {', '.join(useless)}.",
                          UserWarning, stacklevel=3)

    def _traced(self, args: Any, kwargs: Any) -> Any:
        with traced():
            given, named = self._given(args, kwargs)
            found = self.fun(*given, **named)
        return _results(found, self.fun)

    def _given(self, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as the function sees them."""
        given: list[Any] = []
        for i, a in enumerate(args):
            if i in self.nums:
                _hashable(a)
            else:
                a = _arrays(a, self.fun, i)
            given.append(a)
        named = {}
        for k, v in kwargs.items():
            if k in self.names:
                _hashable(v)
            named[k] = v if k in self.names else _arrays(v, self.fun, k)
        return given, named

    def _recorded(self, args: Any, kwargs: Any) -> Any:
        """The call as an equation of the program that is being recorded, or None."""
        with traced():
            given, named = self._given(args, kwargs)
        moving = ([a for i, a in enumerate(given) if i not in self.nums],
                  {k: v for k, v in named.items() if k not in self.names})

        def run(tree: Any) -> Any:
            rest = iter(tree[0])
            return self.fun(*[a if i in self.nums else next(rest) for i, a in enumerate(given)],
                            **{k: tree[1].get(k, v) for k, v in named.items()})
        return RUN.recording.jit(getattr(self.fun, "__name__", "fun"), run, Leaves(moving))

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else partial(self, instance)

    def __repr__(self) -> str:
        return f"<PjitFunction of {self.fun!r}>"

    def clear_cache(self) -> None:
        """Nothing: there is no cache."""

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """`jax.eval_shape` of it."""
        return eval_shape(self.fun, *args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """The function with its arguments' types: `stages.Traced`."""
        from adjoint.jax.stages import Traced
        return Traced(self, args, kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """The same as `stages.Lowered`, of which `compile()` gives the function for these types."""
        return self.trace(*args, **kwargs).lower()


def _arrays(tree: Any, fun: F, at: int | str) -> Any:
    """Numbers and NumPy's arrays in argument `at` as arrays; TypeError for other leaves."""
    leaves, spec = flat(tree)
    made = []
    for k, x in enumerate(leaves):
        if hasattr(type(x), "is_box"):             # (a ref: read and written where it is)
            made.append(x)
            continue
        if not is_key(x) and not is_array_like(x):
            path = keystr(tree_leaves_with_path(tree)[k][0])
            raise _no_value(x, fun, f"{_parameter(fun, at)}{path}")
        made.append(_remade(x))
    return unflatten(made, spec)


def _parameter(fun: F, at: int | str) -> str:
    """The name of an argument in a message."""
    try:
        order = list(inspect.signature(fun).parameters)
    except (TypeError, ValueError):
        order = []
    return order[at] if isinstance(at, int) and at < len(order) else f"{at}"


def _no_value(x: Any, fun: F, path: str) -> TypeError:
    return TypeError(f"Error interpreting argument to {fun} as an abstract array. The problematic "
                     f"value is of type {type(x)} and was passed to the function at path {path}."
                     "\nThis typically means that a jit-wrapped function was called with a "
                     "non-array argument, and this argument was not marked as static using the "
                     "static_argnums or static_argnames parameters of jax.jit.")


def _remade(x: Any) -> Any:
    """An array or key as one of the trace that runs, or of none."""
    if is_key(x):
        return x.like(_remade(x.data))
    a = as_array(x)
    return make(a.tensor, a.weak_type)


def _results(tree: Any, fun: F) -> Any:
    """The output of a function as arrays and keys of the trace that runs."""
    found, spec = flat(tree)
    what = outputs(fun, "jit")
    return unflatten([_result(leaf(x, what, tree, k)) for k, x in enumerate(found)], spec)


def _result(x: Any) -> Any:
    """An array or key of the trace that is over as one of the trace around it."""
    return x.like(make(x.data.tensor)) if is_key(x) else make(x.tensor, x.weak_type)


def jit(fun: Any = None, /, *, static_argnums: Any = None, static_argnames: Any = None,
        donate_argnums: Any = None, donate_argnames: Any = None, keep_unused: bool = False,
        device: Any = None, backend: Any = None, inline: bool = False, in_shardings: Any = None,
        out_shardings: Any = None, compiler_options: Any = None) -> Any:
    """A function that runs as `jax.jit`'s does, but as it is written, each time: nothing is
    compiled, and arguments may be donated in name only. As in JAX, Python does not see the values
    that it works on.

    >>> from adjoint import jax
    >>> jax.jit(lambda x: x + 1)(1.0)
    Array(2., dtype=float32, weak_type=True)
    """
    if fun is None:
        return partial(jit, static_argnums=static_argnums, static_argnames=static_argnames,
                       donate_argnums=donate_argnums, donate_argnames=donate_argnames)
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}")
    donated = _check_marked(fun, donate_argnums, donate_argnames, "donate")
    both = _check_marked(fun, static_argnums, static_argnames, "static") & donated
    if both:
        raise ValueError("static_argnames and donate_argnames cannot intersect. Argument names "
                         f"{both} appear in both static_argnames and donate_argnames")
    return Jitted(fun, static_argnums, static_argnames, donated)


# ------------------------------------------------------------------ shapes without values
class _Abstract(threading.local):
    """How deep this thread is in runs without values: callbacks keep quiet in them."""

    depth = 0


_STATE = _Abstract()


def _meta(x: Any) -> Any:
    """A leaf as one without storage."""
    kind: Any = getattr(x, "dtype", None)
    if isinstance(kind, KeyType):
        words = MetaArray((*x.shape, kind.words), np.dtype(np.uint32))
        return KeyArray(make(wrap(words)), kind)
    if isinstance(x, ShapeDtypeStruct) or not is_array_like(x) and hasattr(x, "shape"):
        kind = ShapeDtypeStruct(x.shape, x.dtype)
        return make(wrap(MetaArray(kind.shape, kind.dtype)), getattr(x, "weak_type", False))
    a = as_array(x)
    return make(wrap(MetaArray(a.shape, a.dtype)), a.weak_type)


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """While functions run on shapes alone; a prediction of memory does not count what they make."""
    _STATE.depth += 1
    try:
        with apart():
            yield
    finally:
        _STATE.depth -= 1


def quiet() -> bool:
    """True while functions run on shapes alone."""
    return _STATE.depth > 0


def eval_shape(fun: F, *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of a function's output, from arrays or `ShapeDtypeStruct`s: it runs on
    storage-less tensors.

    >>> from adjoint import jax
    >>> jax.eval_shape(lambda x: x @ x.T, jax.ShapeDtypeStruct((3, 2), "float32"))
    ShapeDtypeStruct(shape=(3, 3), dtype=float32)
    """
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}: eval_shape takes a function")
    for path, x in tree_leaves_with_path((args, kwargs)):
        if not is_array_like(x) and not hasattr(x, "shape"):
            at = path[1].idx if path[0].idx == 0 else path[1].key
            raise _no_value(x, fun, f"{_parameter(fun, at)}{keystr(path[2:])}")
    with without_values(), taping():
        given, named = tree_map(_meta, (args, kwargs))
        out = fun(*given, **named)
    Leaves(out, outputs(fun, "jit"))
    return tree_map(lambda x: ShapeDtypeStruct(x.shape, x.dtype) if is_key(x) else ShapeDtypeStruct(
        as_array(x).shape, as_array(x).dtype, weak_type=as_array(x).weak_type), out)


def shapes_of(branch: F, given: Leaves) -> Leaves | None:
    """The output of a branch that is not taken, from a run on shapes; None where it needs values.

    branch  gives tensors of tensors, and enters its output as `Leaves` in a list of its own
    """
    if any(a.tensor.level if not is_key(a) else a.data.tensor.level for a in given.arrays):
        return None
    cells = inspect.getclosurevars(branch).nonlocals["outs"]
    before = len(cells)
    try:
        with without_values():
            metas = [_meta(a) for a in given.arrays]
            branch(*[m.data.tensor if is_key(m) else m.tensor for m in metas])
    except Exception:                      # it asked for a value: its shapes are not known
        del cells[before:]
        return None
    return cells.pop() if len(cells) > before else None


def make_jaxpr(fun: F, static_argnums: Any = (), axis_env: Any = None, return_shape: bool = False
               ) -> F:
    """The program of a function, by arguments of the types it is for: see `_record.make_jaxpr`."""
    from adjoint.jax._record import make_jaxpr
    return make_jaxpr(fun, static_argnums, axis_env, return_shape)


# ------------------------------------------------------------------ recomputing
def checkpoint(fun: F | None = None, *, prevent_cse: Any = True, policy: Any = None,
               static_argnums: Any = (), static_argnames: Any = (), concrete: bool = False) -> Any:
    """A function whose intermediates are computed again in the backward pass, but for those that
    `policy` (see `checkpoint_policies`) keeps. A policy of one's own is given primitives as
    `jax.lax.dot_general_p`, where `jax.lax` has the function, the operands and parameters."""
    if fun is None:
        return partial(checkpoint, concrete=concrete, static_argnums=static_argnums,
                       static_argnames=static_argnames, policy=policy)
    if concrete:
        raise NotImplementedError("The `concrete` option to `jax.checkpoint` was removed in JAX "
                                  "v0.10.0: mark arguments that Python code looks at by "
                                  "`static_argnums`")
    wanted, named_static = _named_positions(static_argnums), (
        {static_argnames} if isinstance(static_argnames, str) else set(static_argnames))
    rule = policy
    if not (policy is None or isinstance(policy, Policy)):
        from adjoint.jax._primitive import of_primitives
        rule = of_primitives(policy)

    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        if any([i >= len(args) for i in wanted]):
            raise ValueError("the `static_argnums` argument to `jax.checkpoint` / `jax.remat` can "
                             "only take integer values greater than or equal to `-len(args)` and "
                             f"less than `len(args)`, but got {tuple(wanted)}, while `len(args)` = "
                             f"{len(args)}")
        in_range(sorted(wanted), len(args))
        nums = {i % len(args) for i in wanted}
        moving = tuple(a for i, a in enumerate(args) if i not in nums)

        held = {k: v for k, v in kwargs.items() if k in named_static}

        def inner(*given: Any, **named: Any) -> Any:
            rest = iter(given)
            return fun(*[a if i in nums else next(rest) for i, a in enumerate(args)], **named,
                       **held)
        f = Hidden(lambda a, k: inner(*a, **k),
                   (moving, {k: v for k, v in kwargs.items() if k not in held}),
                   what=outputs(fun, "checkpoint / remat"))
        found = _func.checkpoint(lambda *ts: tuple(f(*ts)), policy=rule)(*f.given.tensors)
        return f.out.tree(found)
    return run


# ------------------------------------------------------------------ callbacks
def pure_callback(callback: F, result_shape_dtypes: Any, *args: Any, sharding: Any = None,
                  vmap_method: Any = None, vectorized: bool = False, **kwargs: Any) -> Any:
    """The output of a function of arrays that show their values, without a derivative.

    result_shape_dtypes  its shapes and dtypes, in the structure of its output
    vmap_method          under `vmap`: "sequential" calls it once per example; "expand_dims" once,
                         with the examples in front and 1 where an argument is not mapped;
                         "broadcast_all" repeats those; None refuses

    Raises ValueError for another method and under derivatives, NotImplementedError under `vmap`
    without one, JaxRuntimeError where the callback raises or gives other shapes.

    >>> from adjoint import jax
    >>> jax.pure_callback(lambda x: x + 1, jax.ShapeDtypeStruct((), "float32"), 1.0)
    Array(2., dtype=float32)
    """
    from adjoint.jax._host import METHODS, host_call
    if vmap_method not in (*METHODS, None):
        raise ValueError(f"vmap_method must be one of the allowed methods {[*METHODS, None]}, but "
                         f"got: {vmap_method}")
    wanted, spec = flat(result_shape_dtypes)
    if any([np.dtype(w.dtype).itemsize > np.dtype(ShapeDtypeStruct((), w.dtype).dtype).itemsize
            for w in wanted if not hasattr(w.dtype, "words")]):
        raise ValueError("result_shape_dtypes cannot specify 64-bit types when `jax_enable_x64` is "
                         "disabled")
    if quiet():
        return tree_map(_meta, result_shape_dtypes)
    given = Leaves((args, kwargs))

    def run(*values: Any) -> Any:
        with in_the_open():
            ins, named = given.tree([wrap(np.array(v)) for v in values])
            try:
                outs, found = flat(callback(*ins, **named))
            except Exception as error:
                raise JaxRuntimeError("INTERNAL: CpuCallback error calling callback: "
                                      f"{type(error).__name__}: {error}") from error
        if len(outs) != len(wanted):
            raise JaxRuntimeError("INTERNAL: CpuCallback error calling callback: Mismatched number "
                                  f"of outputs from callback. Expected: {len(wanted)}, Actual: "
                                  f"{found.leaves}")
        return outs or [0]
    kinds = wanted or [ShapeDtypeStruct((), np.int32)]          # (effects alone: it is called too)
    found = host_call(run, given.tensors, kinds, "legacy_vectorized" if vectorized else vmap_method)
    return unflatten([make(t) for t in found[:len(wanted)]], spec)


# ------------------------------------------------------------------ devices
def effects_barrier() -> None:
    """Returns: callbacks have been called where they stand."""


def named_scope(name: str) -> contextlib.AbstractContextManager[None]:
    """A context that changes nothing; as a decorator the function itself."""
    if not isinstance(name, str):
        raise TypeError("named_scope name argument must be a string.")
    return _scope()


@contextlib.contextmanager
def _scope() -> Iterator[None]:
    yield


(enable_x64, disable_jit, debug_nans, debug_infs, numpy_dtype_promotion, numpy_rank_promotion,
 default_matmul_precision, default_prng_impl, threefry_partitionable, enable_custom_prng,
 legacy_prng_key, log_compiles, enable_checks, explain_cache_misses, debug_key_reuse,
 softmax_custom_jvp, transfer_guard, default_device, check_tracer_leaks) = (FLAGS[n] for n in (
     "enable_x64 disable_jit debug_nans debug_infs numpy_dtype_promotion numpy_rank_promotion "
     "default_matmul_precision default_prng_impl threefry_partitionable enable_custom_prng "
     "legacy_prng_key log_compiles enable_checks explain_cache_misses debug_key_reuse "
     "softmax_custom_jvp transfer_guard default_device check_tracer_leaks").split())
checking_leaks = check_tracer_leaks
ensure_compile_time_eval = in_the_open


def named_call(fun: F, *, name: Any = None) -> F:
    """The function."""
    return fun


def clear_caches() -> None:
    """Nothing: there are none."""


def live_arrays(platform: Any = None) -> Sequence[Any]:
    """Nothing is listed: memory is freed with the last reference."""
    return []


def typeof(x: Any) -> Any:
    """Shape and dtype of a value."""
    return as_array(x).aval if not is_key(x) else x.aval


