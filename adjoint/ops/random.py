"""The functions that draw random numbers: PyTorch's, number for number, from the same seed.

Which are equal to the last bit and which to rounding is in docs/random.md.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.base.aval import Aval, MetaArray, inverse
from adjoint.base.dtypes import (
    I64,
    default_dtype,
    finfo,
    fitting,
    is_float,
    lacking,
    scalar_type,
    to_numpy,
    within,
)
from adjoint.base.errors import ArgumentError, DTypeError, NoKernel
from adjoint.core import inplace as writes
from adjoint.core.inplace import check_writable
from adjoint.core.modes import WATCH, about_to_write
from adjoint.core.modes import state as mode_state
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Tensor, bump, wrap
from adjoint.core.trace import mapping
from adjoint.kernels import samplers
from adjoint.kernels.stream import F32, F64, FEW, Stream, has_library, singles
from adjoint.ops.api_common import (
    exactly,
    finish,
    finish_made,
    need_kernel,
    of_out,
    resized,
)
from adjoint.ops.convert import filled
from adjoint.ops.create import device_name, order_like, refuse_filled, shape_of
from adjoint.ops.device import check, storage_less, strided
from adjoint.ops.family import broadcast_shapes
from adjoint.ops.generator import again, chances, proper, source
from adjoint.ops.public import SPARSE, public, typed
from adjoint.ops.shape import expand_op, permute_op

Draw = Callable[[Stream, Any], Any]


def drawn(shape: Sequence[int], draw: Draw, generator: Any = None) -> Tensor:
    """A tensor of `draw(stream, shape)`; inside of a vmap with randomness "different", of a draw
    per example."""
    stream = source(generator)
    trace = mapping.get()
    if trace is None:
        return wrap(again(draw, stream, shape) if mode_state() & WATCH else draw(stream, shape))
    per_example: list[Any] = []
    while trace is not None:
        if trace.randomness == "different":
            per_example.insert(0, trace)
        trace = trace.outer
    t: Any = wrap(np.asarray(again(draw, stream, (*[v.size for v in per_example], *shape))))
    for trace in per_example:
        t = trace.lift(t)
    return t


def _draw(shape: tuple[int, ...], dtype: Any, device: Any, requires_grad: bool, generator: Any,
          draw: Any, out: Any = None) -> Tensor:
    if out is not None:
        dtype = of_out(dtype, out)
    kind = default_dtype() if dtype is None else to_numpy(dtype)
    if kind is not F32 and kind.kind != "c" and not is_float(kind):
        what = "check_uniform_bounds" if draw is _uniform else "normal_kernel_cpu"
        raise NoKernel(f'"{what}" not implemented for \'{scalar_type(kind)}\': random floats '
                       "take a floating dtype")

    def make(stream: Stream, shape: Any) -> Any:
        return draw(stream, shape, kind)
    if storage_less(device, shape, kind):
        return wrap(call(make, source(generator), shape,
                         otherwise=lambda: MetaArray(shape, kind)), requires_grad)
    t = drawn(shape, make, generator)
    if requires_grad:
        t.requires_grad = True
    if out is not None:
        return finish_made(out, t)
    return t


def _uniform(s: Stream, shape: Any, dtype: Any) -> Any:
    if dtype.kind == "c":
        return s.uniform((*shape, 2), _half(dtype)).view(dtype)[..., 0]
    return s.uniform(shape, dtype)


def _normal(s: Stream, shape: Any, dtype: Any, mean: float = 0.0, std: float = 1.0,
            single: bool = False) -> Any:
    """Real and imaginary part have half of the variance each."""
    if dtype.kind == "c":
        both = s.normal((*shape, 2), _half(dtype), 0.0, std * 0.5**0.5, single=single)
        return both.view(dtype)[..., 0] + dtype.type(mean)
    return s.normal(shape, dtype, mean, std, single=single)


def _half(dtype: Any) -> Any:
    return np.dtype(f"f{dtype.itemsize // 2}")


@public(method=False)
def rand(*size: Any, generator: Any = None, out: Any = None, dtype: Any = None, layout: Any = None,
         device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """Uniform numbers in [0, 1)."""
    return _draw(shape_of(size), dtype, device, requires_grad, generator, _uniform, out)


@public(method=False)
def randn(*size: Any, generator: Any = None, out: Any = None, dtype: Any = None,
          layout: Any = None, device: Any = None, requires_grad: bool = False,
          pin_memory: bool = False) -> Tensor:
    """Standard normal numbers."""
    return _draw(shape_of(size), dtype, device, requires_grad, generator, _normal, out)


def _laid(input: Tensor) -> bool:
    """Whether it has an order in memory that a tensor like it takes over."""
    return type(input.array) in (np.ndarray, MetaArray) and not input.level \
        and mapping.get() is None


def _like(name: str, draw: Any, one_by_one: Any) -> None:
    def like(input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False, memory_format: Any = None,
             generator: Any = None) -> Tensor:
        if type(input) in SPARSE and layout is not strided:
            refuse_filled(name, True, input.layout)
        where = device if device is not None else device_name(input)
        shape, axes = tuple(input.array.shape), None
        if _laid(input):
            axes = order_like(input, memory_format)
        if axes is None:
            return _draw(shape, dtype or input.dtype, where, requires_grad, generator, draw)
        t = _draw(tuple(shape[d] for d in axes), dtype or input.dtype, where, False, generator,
                  one_by_one)
        return wrap(permute_op(t.array, dims=inverse(axes)), requires_grad)
    like.__name__ = like.__qualname__ = name
    like.__doc__ = (f"`{name[:-5]}` of the shape, dtype and device of `input`, and of its order in "
                    "memory (or that of `memory_format`).")
    public(name, method=False)(like)


_like("rand_like", _uniform, _uniform)
_like("randn_like", _normal, lambda s, shape, dtype: _normal(s, shape, dtype, single=True))


def _bounds(low: Any, high: Any) -> tuple[Any, Any]:
    """The least integer and the one above the greatest; one number alone is the latter."""
    return (0, low) if high is None else (low or 0, high)


@public(method=False)
def randint(low: Any = None, high: Any = None, size: Any = None, *, generator: Any = None,
            out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False) -> Tensor:
    """Integers in [low, high): randint(high, size) or randint(low, high, size)."""
    if size is None:
        low, high, size = None, low, high
    if isinstance(size, int):
        raise DTypeError("randint(): argument 'size' must be tuple of ints, not int")
    low, high = map(int, _bounds(low, high))
    if low >= high:
        raise ArgumentError(f"random_ expects 'from' to be less than 'to', but got from={low} >= "
                            f"to={high}")
    kind = I64 if dtype is out is None else to_numpy(of_out(dtype, out) or I64)
    within(low, high, kind)
    shape = shape_of((size,))
    if check(device) == "meta":
        return finish_made(out, wrap(MetaArray(shape, kind), requires_grad))
    t = drawn(shape, lambda s, shape: s.integers(shape, low, high).astype(kind, copy=False),
              generator)
    if requires_grad:
        t.requires_grad = True
    return t if out is None else finish_made(out, t)


@public(method=False)
@typed
def randint_like(input: Tensor, low: Any = None, high: Any = None, *, dtype: Any = None,
                 device: Any = None, memory_format: Any = None, **_: Any) -> Tensor:
    """`randint` of the shape and dtype of `input`, and of its order in memory (or that of
    `memory_format`)."""
    low, high = _bounds(low, high)
    where, shape, axes = device or device_name(input), tuple(input.shape), None
    if _laid(input):
        axes = order_like(input, memory_format)
    if axes is None:
        return randint(low, high, shape, dtype=dtype or input.dtype, device=where)
    t = randint(low, high, tuple(shape[d] for d in axes), dtype=dtype or input.dtype, device=where)
    return wrap(permute_op(t.array, dims=inverse(axes)))


@public(method=False)
def randperm(n: int, *, generator: Any = None, out: Any = None, dtype: Any = None,
             layout: Any = None, device: Any = None, requires_grad: bool = False,
             pin_memory: bool = False) -> Tensor:
    """A random permutation of 0 .. n-1."""
    kind, (n,) = to_numpy(of_out(dtype, out) or I64), shape_of((n,))
    if check(device) == "meta":
        return finish_made(out, wrap(MetaArray((n,), kind)))

    if kind.kind in "bc":
        raise lacking("randperm", kind)
    fitting(max(n - 1, 0), kind if kind.kind in "iu" else I64)

    def draw(s: Stream, shape: Any) -> Any:
        if len(shape) == 1:
            return s.permutation(n).astype(kind, copy=False)
        rows = [s.permutation(n) for _ in range(math.prod(shape[:-1]))]
        return np.stack(rows).reshape(shape).astype(kind) if rows else np.empty(shape, kind)
    t = drawn((n,), draw, generator)
    if requires_grad:
        t.requires_grad = True
    return finish_made(out, t)


@public(method=False)
@typed
def normal(mean: Any, std: Any = None, size: Any = None, *, generator: Any = None,
           out: Any = None, dtype: Any = None, device: Any = None,
           requires_grad: bool = False) -> Tensor:
    """Normal numbers with the given mean and standard deviation (numbers or tensors; 1)."""
    std = 1.0 if std is None else std
    given = [x for x in (mean, std) if isinstance(x, Tensor)]
    if not isinstance(std, Tensor):
        if std < 0:
            raise ArgumentError(f"normal expects std >= 0.0, but found std {std}")
    elif type(std.array) is np.ndarray and std.array.size and std.array.min() < 0:
        raise ArgumentError("normal expects all elements of std >= 0.0, but the least is "
                            f"{std.array.min()}")
    if size is None:
        if not given:
            raise DTypeError("normal() received an invalid combination of arguments: two numbers "
                             "need a size")
        shape = broadcast_shapes("normal", *(Aval(tuple(t.shape), t.dtype) for t in given))
    else:
        shape = shape_of((size,))
    kind = dtype if dtype is not None else (given[0].dtype if given else None)
    if not given:
        return _draw(shape, kind, device, requires_grad, generator,
                     lambda s, shape, dtype: _normal(s, shape, dtype, mean, std), out)
    first = 1.0 if isinstance(std, Tensor) else std
    noise = _draw(shape, kind, device, False, generator,
                  lambda s, shape, dtype: _normal(s, shape, dtype, 0.0, first))
    if noise.level or any(t.level for t in given):
        return mean + (noise if first is std else std * noise)
    given = [noise.array, *[x.array if isinstance(x, Tensor) else x for x in (mean, std)]]
    if first is std:
        given.pop()
    made: Any = call(_moved, *given, otherwise=lambda: MetaArray(shape, given[0].dtype)) \
        if MetaArray in map(type, given) else _moved(*given)
    return finish(out, wrap(made, requires_grad))


def _moved(noise: Any, mean: Any, std: Any = None) -> Any:
    return ((noise if std is None else noise * std) + mean).astype(noise.dtype)


@public()
def bernoulli(input: Tensor, p: float | None = None, *, generator: Any = None,
              out: Any = None) -> Tensor:
    """1 with the probability that `input` (or `p`) gives, else 0, in the dtype of `input`."""
    array = input.array
    if p is None:
        chances(array)
    elif not 0 <= p <= 1:
        raise ArgumentError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    if type(array) is MetaArray:
        return finish(out, wrap(call(_flipped, generator, array, array if p is None else p,
                                     otherwise=lambda: MetaArray(array.shape, array.dtype))))
    if input.level or mapping.get() is not None:
        level = drawn(array.shape, lambda s, shape: s.uniform(shape, F64), generator) < (
            input if p is None else p)
        return finish(out, level.to(input.dtype))
    made = wrap(_flipped(generator, array, array if p is None else p))
    return finish(resized(out, made), made)


def _flipped(generator: Any, array: Any, chance: Any) -> Any:
    proper(chance)
    return again(_flips, source(generator), array.shape, chance).astype(array.dtype)


def _flips(s: Stream, shape: Any, chance: Any) -> Any:
    if type(chance) is float or np.ndim(chance) == 0 and not isinstance(chance, np.ndarray):
        return s.below(math.prod(shape), float(chance)).reshape(shape)
    return samplers.flips(s, chance)


_multinomial_out = exactly("multinomial expects Long tensor out, got: {have}")


_FEWER = ("cannot sample n_sample > prob_dist.size(-1) samples without replacement: {} of {}")


@public()
@typed
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *,
                generator: Any = None, out: Any = None) -> Tensor:
    """Indices drawn with probability proportional to each row of `input` ((n,) or (m, n))."""
    need_kernel("multinomial only supports floating-point dtypes for input, got: {}", "biuc", input)
    if input.level or mapping.get() is not None:
        return _multinomial_levels(input, num_samples, replacement, generator)
    shape = tuple(input.array.shape)
    if len(shape) not in (1, 2):
        raise ArgumentError(f"prob_dist must be 1 or 2 dim, got shape {list(shape)}")
    if isinstance(out, Tensor) and out.array.dtype != I64:
        raise DTypeError("multinomial expects Long tensor out, got: "
                         f"{scalar_type(out.array.dtype)}")
    if num_samples <= 0:
        raise ArgumentError("cannot sample n_sample <= 0 samples")
    if shape[-1] > 2 ** 24:
        raise ArgumentError("number of categories cannot exceed 2^24, as many as float32 counts; "
                            f"got {shape[-1]}")
    if not replacement and num_samples > shape[-1]:
        raise ArgumentError(_FEWER.format(num_samples, shape[-1]))
    given = source(generator), input.array, num_samples, replacement
    if type(input.array) is MetaArray:
        made = wrap(call(_picked, *given, otherwise=lambda: MetaArray(
            (*shape[:-1], num_samples), I64)))
    else:
        made = wrap(_picked(*given))
    return _multinomial_out(resized(out, made), made)


def _picked(s: Stream, array: Any, num_samples: int, replacement: bool) -> Any:
    """`multinomial` of checked arguments but for the weights themselves."""
    weights = np.asarray(array, np.float64)
    rows = np.atleast_2d(weights)
    least = np.minimum.reduce(rows, None) if rows.size else 0.0
    if not least >= 0 or rows.size and np.maximum.reduce(rows, None) == np.inf:     # (nan: neither)
        raise ArgumentError(
            "probability tensor contains either `inf`, `nan` or element < 0"
            if num_samples == 1 or not replacement else "invalid multinomial distribution "
            f"(encountering probability entry {'= infinity or NaN' if least >= 0 else '< 0'})")
    if (rows.sum(1) <= 0).any():
        raise ArgumentError("invalid multinomial distribution (sum of probabilities <= 0)")
    own = rows.astype(array.dtype if array.dtype == F64 else F32)
    if replacement or num_samples == 1:
        picks = again(samplers.picks, s, own, num_samples)
    else:
        picks = again(lambda s: np.argsort(-samplers.race(s, own), 1, kind="stable"), s)[
            :, :num_samples]
    return picks.astype(I64).reshape(*weights.shape[:-1], num_samples)


def _multinomial_levels(input: Tensor, k: int, replacement: bool, generator: Any) -> Any:
    """`multinomial` inside of a transform: by ops, whose values are not looked at."""
    weights = input.detach().double()
    n = int(input.shape[-1])
    if replacement:
        edges = weights.cumsum(-1)
        u = drawn((*input.shape[:-1], k), lambda s, shape: s.uniform(shape, F64),
                  generator) * edges[..., -1:]
        return (edges[..., None, :] <= u[..., None]).sum(-1).clamp(0, n - 1)
    keys = drawn(tuple(input.shape), lambda s, shape: samplers.exponential(s, shape, 1.0),
                 generator)
    return (keys / weights).argsort(-1)[..., :k]


# ------------------------------------------------------------------ in-place fills
_NONE = (0, 0)
_SIXTEENS = ("sixteens", "")
_UNIFORM, _EXPONENTIAL, _FLIP = [(f"{k}float", f"{k}double") for k in ("", "exponential ", "flip ")]


_OVERLOAD = {"random_": 2, "bernoulli_": 2}       # as PyTorch counts the in-place forms


def fill_with(t: Tensor, draw: Draw, what: str, generator: Any = None,
              into: Draw | None = None) -> Tensor:
    """Overwrite a tensor with drawn values; as any in-place op, but with no history. `into(stream,
    array)` is `draw` that may use the array of a tensor in C order for its result."""
    if t.level or mapping.get() is not None:
        dtype = t.array.dtype
        return t.copy_(drawn(tuple(t.shape), lambda s, shape: np.asarray(
            draw(s, shape)).astype(dtype), generator))
    if writes.touch(t, what) is not None:
        array, s = t.array, source(generator)
        made = draw(s, array.shape) if into is None else into(s, array)
        if made is not array:
            np.copyto(array, made, casting="unsafe")
        return t
    if check_writable(t, [t], mode_state()) and type(t.array) is not MetaArray:
        new = np.empty_like(t.array)
        _copied(new, draw, generator)
        title = "".join(w.capitalize() for w in what.split("_"))
        return filled(t.copy_(wrap(new)), f"{title}Backward{_OVERLOAD.get(what, 0)}")
    about_to_write(t)
    if type(t.array) is MetaArray:
        call(_copied, t.array, draw, generator, otherwise=tuple)
    else:
        _copied(t.array, draw, generator)
    bump(t, what)
    return t


def _at_once(t: Tensor, what: str, kinds: tuple[str, str], words: int, generator: Any,
             integers: tuple[int, int] = _NONE, reals: tuple[float, float, float] = (0.0, 1.0, 1.0),
             more: int = 0) -> bool:
    """A small plain float tensor is filled by one call of machine code, of a kind for float32 and
    one for float64 that take so many words a number and `more` (`Stream.few`). False, with nothing
    done, for all others."""
    array = t.array
    if type(array) is not np.ndarray or not 0 < array.size < FEW or mapping.get() is not None:
        return False
    dtype = array.dtype
    if dtype is not F32 and dtype is not F64:
        return False
    s, kind = source(generator), kinds[dtype is F64]
    return s.quick(kind) and writes.touch(t, what) is not None and s.few(
        kind, array, words * array.size + more, integers, reals)


def _copied(array: Any, draw: Draw, generator: Any) -> None:
    """In the order of memory, as PyTorch fills what is not contiguous."""
    if not array.flags.c_contiguous:
        array = array.transpose(sorted(range(array.ndim), key=lambda d: -abs(array.strides[d])))
    np.copyto(array, draw(source(generator), array.shape), casting="unsafe")


@public(function=False, name="uniform_")
def uniform_(self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Any = None,
             **named: Any) -> Tensor:
    """Fill with uniform numbers in [a, b)."""
    if named:
        a, b = named.get("from", a), named.get("to", b)
    if a > b:
        raise ArgumentError(f"uniform_ expects to return a [from, to) range, but found from={a} > "
                            f"to={b}")
    kind = self.array.dtype
    if _at_once(self, "uniform_", _UNIFORM, 1 if kind is F32 else 2, generator, _NONE,
                singles(float(a), float(b)) if kind is F32 else (a, b - a, b)):
        return self
    need_kernel("check_uniform_bounds", "biu", self)

    def draw(s: Stream, shape: Any) -> Any:
        if kind.kind == "c":
            return s.uniform((*shape, 2), _half(kind), a, b).view(kind)[..., 0]
        return s.uniform(shape, kind, a, b)
    return fill_with(self, draw, "uniform_", generator, None if kind.kind == "c" else
                     lambda s, array: s.uniform(array.shape, kind, a, b, array))


@public(function=False, name="normal_")
def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *,
            generator: Any = None) -> Tensor:
    """Fill with normal numbers."""
    if std < 0:
        raise ArgumentError(f"normal expects std >= 0.0, but found std {std}")
    array = self.array
    if array.dtype is F32 and array.size >= 16 and _at_once(
            self, "normal_", _SIXTEENS, 1, generator, _NONE, (mean, std, 0.0),
            16 if array.size % 16 else 0):
        return self
    need_kernel("normal_kernel_cpu", "biu", self)
    single = type(array) is np.ndarray and not array.flags.c_contiguous
    return fill_with(self, lambda s, shape: _normal(s, shape, array.dtype, mean, std, single),
                     "normal_", generator, None if array.dtype.kind == "c" else
                     lambda s, array: s.normal(array.shape, array.dtype, mean, std, out=array))


@public(function=False, name="random_")
def random_(self: Tensor, a: int = 0, b: int | None = None, *, generator: Any = None,
            **named: Any) -> Tensor:
    """Fill with integers: random_(), random_(to), random_(from, to)."""
    a, b = named.get("from", a), named.get("to", b)
    if b is None and a:
        a, b = 0, a
    kind = self.array.dtype
    if b is None:
        return fill_with(self, lambda s, shape: _any_integer(s, shape, kind), "random_", generator)
    low, high = int(a), int(b)
    if low >= high:
        raise ArgumentError(f"random_ expects 'from' to be less than 'to', but got from={low} >= "
                            f"to={high}")
    within(low, high, kind)
    return fill_with(self, lambda s, shape: s.integers(shape, low, high), "random_", generator)


def _any_integer(s: Stream, shape: Any, kind: Any) -> Any:
    """All integers of [0, max] of an integer dtype, or that a float's mantissa has."""
    span = (2 if kind.kind == "b" else round(2 / finfo(kind).eps) + 1 if is_float(kind)
            else int(np.iinfo(kind).max) + 1)
    n = math.prod(shape)
    wide = kind in (np.int64, F64)
    drawn = s.long(n) % np.uint64(span) if wide else s.words(n) % np.uint32(span)
    return drawn.reshape(shape)


@public(function=False, name="bernoulli_")
def bernoulli_(self: Tensor, p: Any = None, *, generator: Any = None) -> Tensor:
    """Fill with 1 (probability p: a number, 0.5 by default, or a tensor of them) and 0."""
    p = 0.5 if p is None else p
    if isinstance(p, Tensor):
        chance = expand_op(p.detach(), shape=tuple(self.shape)).array
        chances(chance)
        p = chance if type(chance) is np.ndarray else 0.5
        proper(p)
        return fill_with(self, lambda s, shape: _flips(s, shape, np.broadcast_to(p, shape)),
                         "bernoulli_", generator)
    if not 0 <= p <= 1:
        raise ArgumentError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    if self.array.dtype.kind == "c":
        raise lacking("bernoulli_scalar_cpu_", self.array.dtype)
    if type(p) is float and 0 <= p <= 1 and _at_once(
            self, "bernoulli_", _FLIP, 2, generator, (math.ceil(p * 2.0**53), 0)):
        return self
    return fill_with(self, lambda s, shape: _flips(s, shape, p), "bernoulli_", generator)


def _continuous(name: str, x: Tensor, scale: str, value: float) -> None:
    """Refuse a dtype without fractions, and a `scale` that is not positive."""
    if not is_float(x.array.dtype):
        if name == "log_normal_":
            raise lacking("log_normal_cpu", x.array.dtype)
        raise DTypeError(f"{name}: this is a continuous probability distribution. dtype must be a "
                         f"floating point but you specified {scalar_type(x.array.dtype)}")
    if not value > 0:
        raise ArgumentError(f"{name} expects {scale} > 0.0, but found {scale}={value}")


@public(function=False, name="exponential_")
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with exponential numbers of rate `lambd`."""
    _continuous("exponential_", self, "lambda", lambd)
    if has_library() and _at_once(self, "exponential_", _EXPONENTIAL, 2, generator, _NONE,
                              (-1.0 / lambd, 0.0, 0.0)):
        return self
    return fill_with(self, lambda s, shape: samplers.exponential(s, shape, lambd),
                     "exponential_", generator)


@public(function=False, name="cauchy_")
def cauchy_(self: Tensor, median: float = 0.0, sigma: float = 1.0, *,
            generator: Any = None) -> Tensor:
    """Fill with Cauchy numbers."""
    _continuous("cauchy_", self, "sigma", sigma)
    return fill_with(self, lambda s, shape: samplers.cauchy(s, shape, median, sigma), "cauchy_",
                     generator)


@public(function=False, name="log_normal_")
def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, *,
                generator: Any = None) -> Tensor:
    """Fill with log-normal numbers."""
    _continuous("log_normal_", self, "std", std)
    return fill_with(self, lambda s, shape: samplers.log_normal(s, shape, mean, std),
                     "log_normal_", generator)


@public(function=False, name="geometric_")
def geometric_(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """Fill with geometric numbers."""
    if not 0 < p < 1:
        raise ArgumentError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    need_kernel("geometric_cpu", "bc", self)
    return fill_with(self, lambda s, shape: samplers.geometric(s, shape, p), "geometric_",
                     generator)
