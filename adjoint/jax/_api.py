"""What is left of `jax`'s own names: jit, shapes without values, callbacks, devices, debugging."""
from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np

from adjoint import func as _func
from adjoint.base.aval import MetaArray
from adjoint.base.errors import NotSupported
from adjoint.base.tree import unflatten
from adjoint.core.tensor import wrap
from adjoint.jax._array import (
    Array,
    ShapeDtypeStruct,
    as_array,
    is_array_like,
    is_traced,
    make,
)
from adjoint.jax._dtypes import FLAGS, config
from adjoint.jax._flat import Hidden, Leaves, is_key
from adjoint.jax._keys import KEY, KeyArray
from adjoint.jax._table import finite
from adjoint.jax._trace import in_the_open, traced
from adjoint.jax.tree_util import flat, tree_map

F = Callable[..., Any]


# ------------------------------------------------------------------ jit
def _statics(fun: F, nums: Any, names: Any) -> tuple[set[int], set[str]]:
    """Static arguments by position and by name: each implies the other."""
    numbers = {nums} if isinstance(nums, int) else set(nums or ())
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


def _hashable(x: Any) -> None:
    try:
        hash(x)
    except TypeError as error:
        raise ValueError("Non-hashable static arguments are not supported. An error occurred while "
                         f"trying to hash an object of type {type(x)}, {x}. The error was:\n"
                         f"TypeError: {error}\n") from None


class Jitted:
    """A function that `jit` was called on. It runs as it is written, each time."""

    def __init__(self, fun: F, nums: Any, names: Any) -> None:
        wraps(fun)(self)
        self.fun = fun
        self.nums, self.names = _statics(fun, nums, names)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if config.values["jax_disable_jit"]:
            return self.fun(*args, **kwargs)
        with traced():
            given, named = self._given(args, kwargs)
            found = self.fun(*given, **named)
        found = tree_map(_result, found)
        if config.watched:
            for x in (y for y in Leaves(found).arrays if not is_key(y)):
                finite(x, f"jit({getattr(self.fun, '__name__', 'fun')})")
        return found

    def _given(self, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as the function sees them."""
        given: list[Any] = []
        for i, a in enumerate(args):
            if i in self.nums:
                _hashable(a)
            else:
                a = _arrays(a)
            given.append(a)
        named = {}
        for k, v in kwargs.items():
            if k in self.names:
                _hashable(v)
            named[k] = v if k in self.names else _arrays(v)
        return given, named

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else partial(self, instance)

    def __repr__(self) -> str:
        return f"<PjitFunction of {self.fun!r}>"

    def clear_cache(self) -> None:
        """Nothing: there is no cache."""

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """`jax.eval_shape` of it."""
        return eval_shape(self.fun, *args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The function with its arguments' shapes, of which `compile()` gives it back."""
        return Lowered(self, args, kwargs)

    trace = lower


class Lowered:
    """What `jit(f).lower(...)` gives. There is no program in it: `compile()` is the function."""

    def __init__(self, run: Jitted, args: Any, kwargs: Any) -> None:
        self.run = run
        self.out_info = run.eval_shape(*args, **kwargs)

    def compile(self, *_: Any, **__: Any) -> Jitted:
        """The function."""
        return self.run

    def lower(self) -> Lowered:
        """Itself."""
        return self

    def as_text(self, *_: Any, **__: Any) -> str:
        """NotSupported: no program is made."""
        raise NotSupported("jit(f).lower(...).as_text(): functions run as they are written here, "
                           "and no program of them is made")


def _arrays(tree: Any) -> Any:
    """Numbers and NumPy's arrays in an argument as arrays; TypeError for other leaves."""
    leaves, spec = flat(tree)
    made = []
    for x in leaves:
        if not is_key(x) and not is_array_like(x):
            raise TypeError(f"Cannot interpret value of type {type(x)} as an abstract array; it "
                            "does not have a dtype attribute: a jitted function takes arrays and "
                            "numbers; mark other arguments as static (static_argnums, "
                            "static_argnames)")
        made.append(_remade(x))
    return unflatten(made, spec)


def _remade(x: Any) -> Any:
    """An array or key as one of the trace that runs, or of none."""
    if is_key(x):
        return KeyArray(_remade(x.data))
    a = as_array(x)
    return make(a.tensor, a.weak_type)


def _result(x: Any) -> Any:
    if is_key(x):
        return KeyArray(make(x.data.tensor))
    if type(x) is Array:
        return make(x.tensor, x.weak_type)
    if not is_array_like(x):
        raise TypeError("function returned a value of type "
                        f"{type(x)} at output component, which is not a valid JAX type")
    return _remade(x)


def jit(fun: Any = None, /, *, static_argnums: Any = None, static_argnames: Any = None,
        donate_argnums: Any = None, donate_argnames: Any = None, keep_unused: bool = False,
        device: Any = None, backend: Any = None, inline: bool = False, in_shardings: Any = None,
        out_shardings: Any = None, abstracted_axes: Any = None, compiler_options: Any = None
        ) -> Any:
    """A function that runs as `jax.jit`'s does, but as it is written, each time: nothing is
    compiled, and arguments may be donated in name only. As in JAX, Python does not see the values
    that it works on.

    >>> from adjoint import jax
    >>> jax.jit(lambda x: x + 1)(1.0)
    Array(2., dtype=float32, weak_type=True)
    """
    if fun is None:
        return partial(jit, static_argnums=static_argnums, static_argnames=static_argnames)
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun!r}")
    return Jitted(fun, static_argnums, static_argnames)


# ------------------------------------------------------------------ shapes without values
class _Abstract(threading.local):
    """How deep this thread is in runs without values: callbacks keep quiet in them."""

    depth = 0


_STATE = _Abstract()


def _meta(x: Any) -> Any:
    """A leaf as one without storage."""
    if getattr(x, "dtype", None) == KEY:
        return KeyArray(make(wrap(MetaArray((*x.shape, 2), np.dtype(np.uint32)))))
    if isinstance(x, ShapeDtypeStruct) or not is_array_like(x) and hasattr(x, "shape"):
        kind = ShapeDtypeStruct(x.shape, x.dtype)
        return make(wrap(MetaArray(kind.shape, kind.dtype)), getattr(x, "weak_type", False))
    a = as_array(x)
    return make(wrap(MetaArray(a.shape, a.dtype)), a.weak_type)


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """While functions run on shapes alone."""
    _STATE.depth += 1
    try:
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
    given, named = tree_map(_meta, (args, kwargs))
    with without_values():
        out = fun(*given, **named)
    return tree_map(lambda x: ShapeDtypeStruct(x.shape, KEY) if is_key(x) else ShapeDtypeStruct(
        as_array(x).shape, as_array(x).dtype, weak_type=as_array(x).weak_type), out)


def shapes_of(branch: F, given: Leaves) -> Leaves | None:
    """The output of a branch that is not taken, from a run on shapes; None where it needs values.

    branch  gives tensors of tensors, and enters its output as `Leaves` in a list of its own
    """
    if any(a.tensor.level if not is_key(a) else a.data.tensor.level for a in given.arrays):
        return None
    metas = [_meta(a) for a in given.arrays]
    cells = inspect.getclosurevars(branch).nonlocals["outs"]
    before = len(cells)
    try:
        with without_values():
            branch(*[m.data.tensor if is_key(m) else m.tensor for m in metas])
    except Exception:                      # it asked for a value: its shapes are not known
        del cells[before:]
        return None
    return cells.pop() if len(cells) > before else None


def make_jaxpr(fun: F, *_: Any, **__: Any) -> F:
    """NotSupported: functions are not traced to programs here."""
    def run(*args: Any, **kwargs: Any) -> Any:
        raise NotSupported(
            f"make_jaxpr({getattr(fun, '__name__', fun)}): functions run as they are written, and "
            "no jaxpr is made of them; adjoint.inspect.explain shows the ops of a result, and "
            "jax.eval_shape its shapes")
    return run


# ------------------------------------------------------------------ recomputing
def checkpoint(fun: F | None = None, *, concrete: bool = False, prevent_cse: bool = True,
               static_argnums: Any = (), policy: Any = None) -> Any:
    """A function whose intermediates are computed again in the backward pass, not kept."""
    if fun is None:
        return partial(checkpoint, static_argnums=static_argnums, policy=policy)
    nums = {static_argnums} if isinstance(static_argnums, int) else set(static_argnums)

    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        moving = tuple(a for i, a in enumerate(args) if i not in nums)

        def inner(*given: Any, **named: Any) -> Any:
            rest = iter(given)
            return fun(*[a if i in nums else next(rest) for i, a in enumerate(args)], **named)
        f = Hidden(lambda a, k: inner(*a, **k), (moving, kwargs))
        found = _func.checkpoint(lambda *ts: tuple(f(*ts)))(*f.given.tensors)
        return f.out.tree(found)
    return run


# ------------------------------------------------------------------ callbacks
def pure_callback(callback: F, result_shape_dtypes: Any, *args: Any, sharding: Any = None,
                  vmap_method: Any = None, vectorized: bool = False, **kwargs: Any) -> Any:
    """The output of a function of NumPy arrays, without a derivative."""
    shapes = tree_map(lambda s: s, result_shape_dtypes)
    wanted, spec = flat(shapes)
    if quiet():
        return tree_map(_meta, shapes)
    given = Leaves((args, kwargs))

    def run(*values: Any) -> Any:
        ins, named = unflatten(list(values), given.spec)
        with in_the_open():
            outs, found = flat(callback(*ins, **named))
        if len(outs) != len(wanted):
            raise ValueError(f"pure_callback: the callback gave {found.leaves} arrays, "
                             f"{len(wanted)} were announced")
        return [_announced(o, w) for o, w in zip(outs, wanted, strict=True)]
    from adjoint.jax._callback import host_call
    return unflatten([make(t) for t in host_call(run, given.tensors, wanted)], spec)


def _announced(x: Any, want: Any) -> Any:
    value = np.asarray(x)
    if value.shape != tuple(want.shape):
        raise RuntimeError(f"pure_callback: the callback returned an array of shape {value.shape}, "
                           f"{tuple(want.shape)} was announced")
    return value.astype(ShapeDtypeStruct(want.shape, want.dtype).dtype)


# ------------------------------------------------------------------ devices
class Device:
    """The CPU."""

    id, process_index, platform, device_kind = 0, 0, "cpu", "cpu"

    def __repr__(self) -> str:
        return "CpuDevice(id=0)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device)

    def __hash__(self) -> int:
        return 0


_CPU = Device()


def devices(backend: Any = None) -> list[Device]:
    """The one CPU."""
    if backend not in (None, "cpu"):
        raise RuntimeError(f"Unknown backend: '{backend}' requested, but no platforms that are "
                           "instances of it are present. Platforms present are: cpu")
    return [_CPU]


def device_put(x: Any, device: Any = None, **_: Any) -> Any:
    """A tree of values as arrays."""
    return tree_map(lambda v: v if is_key(v) else as_array(v) if is_array_like(v) else v, x)


def device_get(x: Any) -> Any:
    """A tree of arrays as NumPy's."""
    return tree_map(lambda v: np.asarray(v) if isinstance(v, Array) and not is_traced(v) else v, x)


def block_until_ready(x: Any) -> Any:
    """The tree: its values are there."""
    return x


def default_backend() -> str:
    """ "cpu". """
    return "cpu"


def device_count(backend: Any = None) -> int:
    """1."""
    return 1


local_device_count = process_count = host_count = device_count
local_devices = devices


def effects_barrier() -> None:
    """Returns: callbacks have been called where they stand."""


def process_index(backend: Any = None) -> int:
    """0."""
    return 0


def process_indices(backend: Any = None) -> list[int]:
    """The one process."""
    return [0]


host_id = process_index


def named_scope(name: str) -> Any:
    """A context that changes nothing."""
    return contextlib.nullcontext()


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


def pmap(fun: F, axis_name: Any = None, *, in_axes: Any = 0, out_axes: Any = 0, **_: Any) -> F:
    """`vmap`, on the one device; more examples than that raise, as in JAX."""
    from adjoint.jax._transforms import vmap

    @wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        n = next((a.shape[0] for a in Leaves(args).arrays if a.ndim), 1)
        if n > 1:
            raise ValueError(f"compiling computation requires {n} logical devices, but only 1 XLA "
                             "devices are available (num_replicas=1)")
        return vmap(fun, in_axes, out_axes, axis_name)(*args, **kwargs)
    return run


def clear_caches() -> None:
    """Nothing: there are none."""


def live_arrays(platform: Any = None) -> Sequence[Any]:
    """Nothing is listed: memory is freed with the last reference."""
    return []


def typeof(x: Any) -> Any:
    """Shape and dtype of a value."""
    return as_array(x).aval if not is_key(x) else x.aval


