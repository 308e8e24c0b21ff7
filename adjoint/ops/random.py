"""Random numbers: a generator with a seed and a state, and the functions that draw from it.

The generator is Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011):
counter-based, so that a state is a few integers and a draw can be repeated exactly.
"""
from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import I64, default_dtype, finfo, is_float, scalar_type, to_numpy
from adjoint.base.errors import ArgumentError, AutogradError, DTypeError, NotSupported
from adjoint.core.inplace import check_writable
from adjoint.core.modes import about_to_write
from adjoint.core.modes import state as mode_state
from adjoint.core.rehearsal import call
from adjoint.core.tensor import Tensor, bump, wrap
from adjoint.core.trace import mapping
from adjoint.ops.api_common import finish
from adjoint.ops.create import device_name, shape_of
from adjoint.ops.device import check, device, storage_less
from adjoint.ops.public import public


class Generator:
    """A source of random numbers: `manual_seed`, `get_state`, `set_state`.

    >>> import adjoint as ad
    >>> g = ad.Generator().manual_seed(0)
    >>> s = g.get_state(); a = ad.rand(2, generator=g); g.set_state(s) is g
    True
    >>> bool((a == ad.rand(2, generator=g)).all())
    True
    """

    def __init__(self, device: Any = "cpu") -> None:
        self._device = check(device)
        self.manual_seed(67280421310721)

    @property
    def device(self) -> device:
        """Where the numbers are made."""
        return device(self._device)

    def manual_seed(self, seed: int) -> Generator:
        """Begin the sequence of `seed` (an int of at most 64 bits)."""
        if isinstance(seed, Tensor):
            seed = seed.item()
        seed = int(seed)
        if not -2**63 <= seed < 2**64:
            raise ArgumentError(f"Overflow when unpacking long: seed {seed} needs more than 64 "
                                "bits")
        self._seed = seed % 2**64
        self.rng = np.random.Generator(np.random.Philox(self._seed))
        return self

    def initial_seed(self) -> int:
        """The seed given last."""
        return self._seed

    def seed(self) -> int:
        """Seed from the operating system; returns the seed."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
        return self._seed

    def get_state(self) -> Tensor:
        """The state as a uint8 tensor."""
        text = json.dumps({"seed": self._seed, "philox": self.rng.bit_generator.state},
                          default=lambda a: a.tolist()).encode()
        return wrap(np.frombuffer(text.ljust(640), np.uint8).copy())  # of one size in every state

    def set_state(self, new_state: Tensor) -> Generator:
        """Continue from a state that `get_state` gave."""
        try:
            held = json.loads(new_state.array.tobytes())
            philox = held["philox"]
            philox["state"] = {k: np.array(v, np.uint64) for k, v in philox["state"].items()}
            philox["buffer"] = np.array(philox["buffer"], np.uint64)
            self.rng.bit_generator.state = philox
            self._seed = held["seed"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ArgumentError("RNG state is wrong: expected a tensor from get_state() "
                                f"({error})") from None
        return self

    def clone_state(self) -> Generator:
        """A second generator in the same state."""
        return Generator(self._device).set_state(self.get_state())

    def __getstate__(self) -> bytes:
        return bytes(self.get_state().array.tobytes())

    def __setstate__(self, held: bytes) -> None:
        self._device = "cpu"
        self.manual_seed(0)
        self.set_state(wrap(np.frombuffer(held, np.uint8).copy()))

    def __repr__(self) -> str:
        return f"<Generator seed={self._seed} device={self._device}>"


default_generator = Generator()


@public(method=False)
def manual_seed(seed: int) -> Generator:
    """Seed the default generator; returns it."""
    return default_generator.manual_seed(seed)


@public(method=False)
def seed() -> int:
    """Seed the default generator from the operating system."""
    return default_generator.seed()


@public(method=False)
def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


@public(method=False)
def get_rng_state() -> Tensor:
    """The state of the default generator."""
    return default_generator.get_state()


@public(method=False)
def set_rng_state(new_state: Tensor) -> None:
    """Continue the default generator from a saved state."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices: Any = (), enabled: bool = True, **_: Any) -> Iterator[None]:
    """Put the default generator back at the end of the block."""
    held = get_rng_state()
    try:
        yield
    finally:
        if enabled:
            set_rng_state(held)


def source(generator: Any = None) -> np.random.Generator:
    """The NumPy generator behind `generator` or the default one; refused inside of a vmap whose
    `randomness` is "error"."""
    trace = mapping.get()
    while trace is not None:
        if trace.randomness == "error":
            raise AutogradError(
                "vmap: called random operation while in randomness error mode. Please either use "
                "the 'same' or 'different' randomness flags on vmap or perform the randomness "
                "operation out of vmap")
        trace = trace.outer
    return (default_generator if generator is None else generator).rng


def key(generator: Any = None) -> tuple[int, int]:
    """Two numbers of 64 bits, drawn like everything else: what counter-based kernels start from."""
    bits = source(generator).bit_generator
    return int(bits.random_raw()), int(bits.random_raw())


def drawn(shape: Sequence[int], draw: Callable[[np.random.Generator, Any], Any],
          generator: Any = None) -> Tensor:
    """A tensor of `draw(rng, shape)`; inside of a vmap with randomness "different", of a draw per
    example."""
    rng = source(generator)
    per_example: list[Any] = []
    trace = mapping.get()
    while trace is not None:
        if trace.randomness == "different":
            per_example.insert(0, trace)
        trace = trace.outer
    t: Any = wrap(np.asarray(draw(rng, (*[v.size for v in per_example], *shape))))
    for trace in per_example:
        t = trace.lift(t)
    return t


def _draw(shape: tuple[int, ...], dtype: Any, device: Any, requires_grad: bool, generator: Any,
          draw: Any, out: Any = None) -> Tensor:
    kind = default_dtype() if dtype is None else to_numpy(dtype)
    native = kind if kind in (np.float32, np.float64) else np.dtype(np.float32)
    if kind.kind != "c" and not is_float(kind):
        raise DTypeError(f"random floats have no dtype {kind}: give a floating dtype")

    def make(rng: np.random.Generator, shape: Any) -> Any:
        if kind.kind != "c":
            return np.asarray(draw(rng, shape, native)).astype(kind, copy=False)
        half = np.dtype(f"f{kind.itemsize // 2}")
        array = np.asarray(draw(rng, shape, half) + 1j * draw(rng, shape, half)).astype(kind)
        return array * kind.type(np.sqrt(0.5)) if draw is _normal else array
    if storage_less(device, shape, kind):
        return wrap(call(make, source(generator), shape,
                         otherwise=lambda: MetaArray(shape, kind)), requires_grad)
    t = drawn(shape, make, generator)
    if requires_grad:
        t.requires_grad = True
    if out is not None:
        from adjoint.ops.public import write_out
        return write_out(out, t)
    return t


def _uniform(rng: np.random.Generator, shape: Any, dtype: Any) -> Any:
    return rng.random(shape, dtype=dtype)


def _normal(rng: np.random.Generator, shape: Any, dtype: Any) -> Any:
    return rng.standard_normal(shape, dtype=dtype)


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


def _like(name: str, draw: Any) -> None:
    def like(input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None,
             requires_grad: bool = False, memory_format: Any = None,
             generator: Any = None) -> Tensor:
        where = device if device is not None else device_name(input)
        return _draw(tuple(input.array.shape), dtype or input.dtype, where, requires_grad,
                     generator, draw)
    like.__name__ = like.__qualname__ = name
    like.__doc__ = f"`{name[:-5]}` of the shape, dtype and device of `input`."
    public(name, method=False)(like)


_like("rand_like", _uniform)
_like("randn_like", _normal)


@public(method=False)
def randint(low: Any, high: Any = None, size: Any = None, *, generator: Any = None,
            out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
            requires_grad: bool = False) -> Tensor:
    """Integers in [low, high): randint(high, size) or randint(low, high, size)."""
    if size is None:
        low, high, size = 0, low, high
    low, high = int(low), int(high)
    if low >= high:
        raise ArgumentError(f"random_ expects 'from' to be less than 'to', but got from={low} >= "
                            f"to={high}")
    kind = I64 if dtype is None else to_numpy(dtype)
    shape = shape_of((size,))
    if check(device) == "meta":
        return finish(out, wrap(MetaArray(shape, kind), requires_grad))
    t = drawn(shape, lambda rng, s: np.asarray(rng.integers(low, high, s)).astype(kind), generator)
    if requires_grad:
        t.requires_grad = True
    return finish(out, t)


@public(method=False)
def randint_like(input: Tensor, low: Any, high: Any = None, *, dtype: Any = None,
                 device: Any = None, **_: Any) -> Tensor:
    """`randint` of the shape and dtype of `input`."""
    if high is None:
        low, high = 0, low
    return randint(low, high, tuple(input.shape), dtype=dtype or input.dtype,
                   device=device or device_name(input))


@public(method=False)
def randperm(n: int, *, generator: Any = None, out: Any = None, dtype: Any = None,
             layout: Any = None, device: Any = None, requires_grad: bool = False,
             pin_memory: bool = False) -> Tensor:
    """A random permutation of 0 .. n-1."""
    kind, (n,) = I64 if dtype is None else to_numpy(dtype), shape_of((n,))
    if check(device) == "meta":
        return finish(out, wrap(MetaArray((n,), kind)))
    def draw(rng: np.random.Generator, shape: Any) -> Any:
        if len(shape) == 1:
            return rng.permutation(n).astype(kind)
        return rng.permuted(np.broadcast_to(np.arange(n, dtype=kind), shape), axis=-1)
    t = drawn((n,), draw, generator)
    if requires_grad:
        t.requires_grad = True
    return finish(out, t)


@public(method=False)
def normal(mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None,
           out: Any = None, dtype: Any = None, device: Any = None,
           requires_grad: bool = False) -> Tensor:
    """Normal numbers with the given mean and standard deviation (numbers or tensors)."""
    given = [x for x in (mean, std) if isinstance(x, Tensor)]
    if size is None:
        shape = np.broadcast_shapes(*(tuple(t.shape) for t in given))
    else:
        shape = shape_of((size,))
    kind = dtype if dtype is not None else (given[0].dtype if given else None)
    noise = _draw(shape, kind, device, False, generator, _normal)
    if noise.level or any(t.level for t in given):
        return mean + std * noise
    raw = [x.array if isinstance(x, Tensor) else x for x in (mean, std)]
    result = wrap((raw[0] + raw[1] * noise.array).astype(noise.array.dtype), requires_grad)
    return finish(out, result)


@public()
def bernoulli(input: Tensor, p: float | None = None, *, generator: Any = None,
              out: Any = None) -> Tensor:
    """1 with the probability that `input` (or `p`) gives, else 0, in the dtype of `input`."""
    array = input.array
    if type(array) is MetaArray:
        return finish(out, wrap(call(_flipped, generator, array, array if p is None else p,
                                     otherwise=lambda: MetaArray(array.shape, array.dtype))))
    if input.level or mapping.get() is not None:
        level = drawn(array.shape, lambda rng, s: rng.random(s), generator) < (
            input if p is None else p)
        return finish(out, level.to(input.dtype))
    return finish(out, wrap(_flipped(generator, array, array if p is None else p)))


def _flipped(generator: Any, array: Any, chance: Any) -> Any:
    if np.any((np.asarray(chance) < 0) | (np.asarray(chance) > 1)):
        raise ArgumentError("bernoulli: Expected p_in >= 0 && p_in <= 1 for every element, got "
                            f"values in [{np.min(chance):g}, {np.max(chance):g}]")
    draws = source(generator).random(array.shape) < chance
    return np.asarray(draws).astype(array.dtype)


@public()
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *,
                generator: Any = None, out: Any = None) -> Tensor:
    """Indices drawn with probability proportional to each row of `input` ((n,) or (m, n))."""
    if input.level or mapping.get() is not None:
        return _multinomial_levels(input, num_samples, replacement, generator)
    weights = np.asarray(input.array, np.float64)
    if weights.ndim not in (1, 2):
        raise ArgumentError(f"prob_dist must be 1 or 2 dim, got shape {list(weights.shape)}")
    rows = np.atleast_2d(weights)
    if num_samples <= 0:
        raise ArgumentError("cannot sample n_sample <= 0 samples")
    if not np.isfinite(rows).all() or (rows < 0).any():
        raise ArgumentError("probability tensor contains either `inf`, `nan` or element < 0")
    if (rows.sum(1) <= 0).any():
        raise ArgumentError("invalid multinomial distribution (sum of probabilities <= 0)")
    if not replacement and ((rows > 0).sum(1) < num_samples).any():
        raise ArgumentError("cannot sample n_sample > prob_dist.size(-1) samples without "
                            f"replacement: {num_samples} of {int((rows > 0).sum(1).min())}")
    rng = source(generator)
    if replacement:
        edges = np.cumsum(rows, 1)
        u = rng.random((len(rows), num_samples)) * edges[:, -1:]
        picks = np.stack([np.searchsorted(e, v, side="right") for e, v in zip(edges, u,
                                                                           strict=True)])
        picks = np.minimum(picks, rows.shape[1] - 1)
    else:       # Efraimidis and Spirakis (2006): the largest of u^(1/w), here as exponentials
        with np.errstate(divide="ignore"):
            keys = rng.standard_exponential(rows.shape) / rows
        picks = np.argsort(keys, 1, kind="stable")[:, :num_samples]
    return finish(out, wrap(picks.astype(I64).reshape(*weights.shape[:-1], num_samples)))


def _multinomial_levels(input: Tensor, k: int, replacement: bool, generator: Any) -> Any:
    """`multinomial` inside of a transform: by ops, whose values are not looked at."""
    weights = input.detach().double()
    n = int(input.shape[-1])
    if replacement:
        edges = weights.cumsum(-1)
        u = drawn((*input.shape[:-1], k), lambda rng, s: rng.random(s), generator) * edges[..., -1:]
        return (edges[..., None, :] <= u[..., None]).sum(-1).clamp(0, n - 1)
    keys = drawn(tuple(input.shape), lambda rng, s: rng.standard_exponential(s), generator)
    return (keys / weights).argsort(-1)[..., :k]


@public(method=False)
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Poisson counts with the rates in `input`, in its dtype."""
    if input.level:
        trace = input.trace
        if getattr(trace, "randomness", "different") != "different":
            raise NotSupported("poisson of mapped rates has one draw per example: use vmap("
                               "randomness='different')")
        source(generator)
        token = mapping.set(None)
        try:
            return trace.lift(poisson(input.value, generator)) if hasattr(
                trace, "randomness") else poisson(input.value, generator)
        finally:
            mapping.reset(token)
    if mapping.get() is not None:
        return drawn(tuple(input.shape), lambda rng, s: rng.poisson(input.array, s), generator).to(
            input.dtype)
    return wrap(np.asarray(source(generator).poisson(input.array)).astype(input.array.dtype))


@public(method=False)
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Successes among `count` trials of probability `prob`, in the dtype of `count`.

    >>> import adjoint as ad
    >>> ad.binomial(ad.tensor([5.0]), ad.tensor([1.0]))
    tensor([5.])
    """
    n, p = count.array, prob.array
    shape = np.broadcast_shapes(n.shape, p.shape)
    if type(n) is MetaArray or type(p) is MetaArray:
        return wrap(MetaArray(shape, n.dtype))
    if (n < 0).any() or (p < 0).any() or (p > 1).any():
        raise ArgumentError("binomial: counts must be >= 0 and probabilities in [0, 1]")
    draw = source(generator).binomial(n.astype(I64), p.astype(np.float64), shape)
    return wrap(np.asarray(draw).astype(n.dtype))


# ------------------------------------------------------------------ in-place fills
def fill_with(t: Tensor, draw: Callable[[np.random.Generator, Any], Any], what: str,
              generator: Any = None) -> Tensor:
    """Overwrite a tensor with drawn values; as any in-place op, but with no history."""
    if t.level or mapping.get() is not None:
        dtype = t.array.dtype
        return t.copy_(drawn(tuple(t.shape), lambda rng, s: np.asarray(draw(rng, s)).astype(dtype),
                             generator))
    check_writable(t, [t], mode_state())
    about_to_write(t)
    if type(t.array) is MetaArray:
        call(_copied, t.array, draw, generator, otherwise=tuple)
    else:
        _copied(t.array, draw, generator)
    bump(t, what)
    return t


def _copied(array: Any, draw: Any, generator: Any) -> None:
    np.copyto(array, draw(source(generator), array.shape), casting="unsafe")


def _in_default(t: Tensor) -> Any:
    return t.array.dtype if t.array.dtype in (np.float32, np.float64) else np.dtype(np.float32)


@public(function=False, name="uniform_")
def uniform_(self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Any = None,
             **named: Any) -> Tensor:
    """Fill with uniform numbers in [a, b)."""
    a, b = named.get("from", a), named.get("to", b)
    if a > b:
        raise ArgumentError(f"uniform_ expects to return a [from, to) range, but found from={a} > "
                            f"to={b}")
    return fill_with(self, lambda rng, s: _uniform(rng, s, _in_default(self)) * (b - a) + a,
                     "uniform_", generator)


@public(function=False, name="normal_")
def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *,
            generator: Any = None) -> Tensor:
    """Fill with normal numbers."""
    if std < 0:
        raise ArgumentError(f"normal expects std >= 0.0, but found std {std}")
    return fill_with(self, lambda rng, s: _normal(rng, s, _in_default(self)) * std + mean,
                     "normal_", generator)


@public(function=False, name="random_")
def random_(self: Tensor, a: int = 0, b: int | None = None, *, generator: Any = None,
            **named: Any) -> Tensor:
    """Fill with integers: random_(), random_(to), random_(from, to)."""
    a, b = named.get("from", a), named.get("to", b)
    if b is None and a:
        a, b = 0, a
    if b is None:
        kind = self.array.dtype
        b = (2 if kind.kind == "b" else round(2 / finfo(kind).eps) if is_float(kind)
             else int(np.iinfo(kind).max))
    return fill_with(self, lambda rng, s: rng.integers(a, b, s), "random_", generator)


@public(function=False, name="bernoulli_")
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Fill with 1 (probability p) and 0."""
    chance = p.array if isinstance(p, Tensor) else p
    return fill_with(self, lambda rng, s: rng.random(s) < chance, "bernoulli_", generator)


def _continuous(name: str, x: Tensor, scale: str, value: float) -> None:
    """Refuse a dtype without fractions, and a `scale` that is not positive."""
    if not is_float(x.array.dtype):
        raise DTypeError(f"{name}: this is a continuous probability distribution. dtype must be a "
                         f"floating point but you specified {scalar_type(x.array.dtype)}")
    if not value > 0:
        raise ArgumentError(f"{name} expects {scale} > 0.0, but found {scale}={value}")


@public(function=False, name="exponential_")
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with exponential numbers of rate `lambd`."""
    _continuous("exponential_", self, "lambda", lambd)
    return fill_with(self, lambda rng, s: rng.standard_exponential(s) / lambd, "exponential_",
                     generator)


@public(function=False, name="cauchy_")
def cauchy_(self: Tensor, median: float = 0.0, sigma: float = 1.0, *,
            generator: Any = None) -> Tensor:
    """Fill with Cauchy numbers."""
    _continuous("cauchy_", self, "sigma", sigma)
    return fill_with(self, lambda rng, s: rng.standard_cauchy(s) * sigma + median, "cauchy_",
                     generator)


@public(function=False, name="log_normal_")
def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, *,
                generator: Any = None) -> Tensor:
    """Fill with log-normal numbers."""
    _continuous("log_normal_", self, "std", std)
    return fill_with(self, lambda rng, s: rng.lognormal(mean, std, s), "log_normal_", generator)


@public(function=False, name="geometric_")
def geometric_(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """Fill with geometric numbers."""
    if not 0 < p < 1:
        raise ArgumentError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    return fill_with(self, lambda rng, s: rng.geometric(p, s), "geometric_", generator)


def choice(n: int, weights: Sequence[float] | None, k: int, generator: Any = None) -> Any:
    """k indices below n (helper of samplers)."""
    return source(generator).choice(n, k, p=weights)
