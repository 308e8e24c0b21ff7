"""`jax.random`: explicit keys. The bits are those of JAX's default generator, threefry2x32 with
partitionable counters, so keys, bits, uniform draws, integers and permutations are equal to JAX's;
what goes through log or erf_inv is equal to rounding.

>>> from adjoint.jax import random
>>> key = random.key(0)
>>> random.uniform(key, (2,))
Array([0.947667 , 0.9785799], dtype=float32)
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import missing as _missing
from adjoint.core.tensor import wrap
from adjoint.jax._array import as_array, make
from adjoint.jax._dtypes import as_dtype, config, default_dtype
from adjoint.jax._keys import KeyArray, key_type
from adjoint.jax._table import T
from adjoint.jax._words import placing
from adjoint.jax.lax._elementwise import bitcast
from adjoint.jax.lax._shapes import sort_key_val, top_k
from adjoint.jax.numpy._elementwise import NAMES as _E
from adjoint.jax.numpy._index import take
from adjoint.jax.numpy._reduce import NAMES as _R
from adjoint.jax.numpy._select import NAMES as _S
from adjoint.jax.numpy._shape import NAMES as _H
from adjoint.jax.numpy._types import finfo
from adjoint.ops.threefry import philox_bits, threefry_bits, threefry_fold

U32 = np.dtype(np.uint32)


# ------------------------------------------------------------------ keys
def PRNGKey(seed: Any, *, impl: Any = None) -> Any:
    """A key as an array of words, from a number."""
    kind = key_type(impl)
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        low = int(seed)
        if not -2 ** 63 <= low < 2 ** 64:
            raise OverflowError(f"Python int {low} too large for a seed of 64 bits")
        high = (low >> 32) & 0xFFFFFFFF if config.x64_enabled else 0
        return make(wrap(np.array([high, low & 0xFFFFFFFF] * (kind.words // 2), np.uint32)))
    x = as_array(seed)
    if x.dtype.kind not in "iu":
        raise TypeError(f"PRNG key seed must be an integer; got {seed!r}")
    if x.ndim:
        raise TypeError("PRNGKey accepts a scalar seed, but was given an array of shape "
                        f"{x.shape} != (). Use jax.vmap for batching")
    words = x.tensor.to(np.dtype(np.int64))
    high_word = (words >> 32) & 0xFFFFFFFF if config.x64_enabled else words * 0
    return make(T["stack"]([high_word, words & 0xFFFFFFFF] * (kind.words // 2)).to(U32))


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """A typed key, from a number; the generator by its name or by the dtype of its keys."""
    impl = _asked("key", impl, dtype)
    return KeyArray(PRNGKey(seed, impl=impl), impl)


def _asked(name: str, impl: Any, dtype: Any) -> Any:
    if impl is not None and dtype is not None:
        raise ValueError(f"Cannot specify both `impl` and `dtype` arguments to jax.random.{name}")
    return impl if dtype is None else dtype


def _data(k: Any, impl: Any = None) -> Any:
    """The words of a key of either kind."""
    if isinstance(k, KeyArray):
        return k.data
    if not hasattr(k, "dtype"):
        raise TypeError("JAX encountered invalid PRNG key data: expected key_data to have ndim, "
                        f"shape, and dtype attributes. Got {k}")
    x, kind = as_array(k), key_type(impl)
    if x.ndim < 1 or x.shape[-1] != kind.words:
        raise TypeError("JAX encountered invalid PRNG key data: expected key_data.shape to end "
                        f"with ({kind.words},); got shape={x.shape} for impl={kind.impl}")
    if x.dtype != U32:
        raise TypeError("JAX encountered invalid PRNG key data: expected key_data.dtype = uint32; "
                        f"got dtype={x.dtype}")
    return x


def _single(k: Any, name: str) -> Any:
    x = _data(k)
    if x.ndim != 1:
        raise ValueError(f"{name} accepts a single key, but was given a key array of shape "
                         f"{x.shape[:-1]} != (). Use jax.vmap for batching.")
    return x.tensor


def _like(k: Any, words: Any) -> Any:
    return k.like(make(words)) if isinstance(k, KeyArray) else make(words)


def _impl(k: Any) -> str:
    return (k.dtype if isinstance(k, KeyArray) else key_type()).impl


def key_data(keys: Any) -> Any:
    """The words of keys."""
    return _data(keys)


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """Typed keys of words."""
    impl = _asked("wrap_key_data", impl, dtype)
    return KeyArray(_data(key_bits_array, impl), impl)


def key_impl(keys: Any) -> str:
    """The name of the generator."""
    return _impl(keys)


def clone(key: Any) -> Any:
    """The key again."""
    return key


def split(key: Any, num: Any = 2) -> Any:
    """`num` new keys (a number or a shape)."""
    words = _single(key, "split")
    shape = (int(num),) if not isinstance(num, (tuple, list)) else tuple(num)
    n = math.prod(shape)
    if _impl(key) == "unsafe_rbg":
        new = philox_bits(words, shape=(10 * n, 4), width=32)[::10]
    else:
        new = _fold(words, wrap(np.arange(n, dtype=np.uint32)))
    return _like(key, new.reshape((*shape, words.shape[0])))


def _fold(words: Any, data: Any) -> Any:
    """A key and numbers; of a key of four words, two by two."""
    parts = [words[i:i + 2] for i in range(0, words.shape[0], 2)]
    made = [threefry_fold(p.unsqueeze(0) if data.ndim else p, data) for p in parts]
    return made[0] if len(made) == 1 else T["cat"](made, -1)


def fold_in(key: Any, data: Any) -> Any:
    """A new key of a key and a number."""
    words = _single(key, "fold_in")
    x = as_array(data)
    if x.ndim:
        raise TypeError(f"fold_in accepts a scalar, but was given an array of shape {x.shape} != "
                        "(). Use jax.vmap for batching.")
    if isinstance(data, int):
        if not 0 <= data < 2 ** 32:
            raise OverflowError(f"Python integer {data} out of bounds for uint32")
        x = make(wrap(np.array(data & 0xFFFFFFFF, np.uint32)))
    if _impl(key) == "unsafe_rbg":
        seed = T["stack"]([x.tensor.to(np.dtype(np.int64)) * k for k in (0, 1, 0, 1)]).to(U32)
        drawn = philox_bits(seed, shape=(10, 4), width=32)[9]
        return _like(key, T["bitwise_xor"](words, drawn))
    return _like(key, _fold(words, x.tensor.to(U32)))


def _shape(shape: Any, *more: Any) -> tuple[int, ...]:
    """A shape; None is that of the parameters, broadcast."""
    if shape is None:
        return tuple(np.broadcast_shapes(*[np.shape(as_array(m).tensor) for m in more]))
    if isinstance(shape, (int, np.integer)):
        return (int(shape),)
    if any(n < 0 for n in shape):
        raise ValueError(f"a shape has no negative sizes, got {tuple(shape)}")
    return tuple(int(n) for n in shape)


def _bits(key: Any, shape: Any, width: int, name: str) -> Any:
    words = _single(key, name)
    draw = threefry_bits if words.shape[0] == 2 else philox_bits
    return draw(words, shape=_shape(shape), width=width)


@placing("out_sharding")
def bits(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Random bits as unsigned integers."""
    kind = np.dtype(np.uint32) if dtype is None and not config.x64_enabled else as_dtype(
        dtype or np.uint64)
    if kind.kind != "u":
        raise ValueError(f"dtype argument to `bits` must be an unsigned int dtype, got {kind}")
    return make(_bits(key, shape, kind.itemsize * 8, "bits"))


# ------------------------------------------------------------------ uniform and normal
def _floats(dtype: Any, name: str) -> Any:
    kind = default_dtype("float") if dtype is None else as_dtype(dtype)
    if kind.kind not in "fV":
        raise ValueError(f"dtype argument to `{name}` must be a float dtype, got {kind}")
    return kind


def _unit(key: Any, shape: Any, kind: Any, name: str) -> Any:
    """Uniform in [0, 1): random bits as the mantissa of a number in [1, 2), less one."""
    size = kind.itemsize * 8
    mantissa = {64: 52, 32: 23}.get(size) or (10 if kind.kind == "f" else 7)
    width = 8 if mantissa < 8 else size
    words = _bits(key, shape, width, name) >> (width - mantissa)
    words = words.to(np.dtype(f"uint{size}"))
    one = int(np.ones((), kind).view(f"uint{size}"))
    return bitcast(words | one, kind) - 1


@placing("out_sharding")
def uniform(key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0
            ) -> Any:
    """Uniform in [minval, maxval)."""
    kind = _floats(dtype, "uniform")
    low, high = (as_array(v).tensor.to(kind) for v in (minval, maxval))
    unit = _unit(key, shape, kind, "uniform")
    return make(T["maximum"](low, unit * (high - low) + low))


def _normal(key: Any, shape: Any, kind: Any, name: str) -> Any:
    low = np.nextafter(np.array(-1, kind), np.array(0, kind), dtype=kind)
    unit = uniform(key, shape, kind, low, 1.0).tensor
    return T["erfinv"](unit) * float(np.sqrt(2))


@placing("out_sharding")
def normal(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Standard normal; complex values have variance 1 in all."""
    if dtype is not None and as_dtype(dtype).kind == "c":
        kind = np.dtype(f"float{as_dtype(dtype).itemsize * 4}")
        first, second = split(key)
        return make(T["complex"](_normal(first, shape, kind, "normal"),
                                 _normal(second, shape, kind, "normal")) / math.sqrt(2))
    return make(_normal(key, shape, _floats(dtype, "normal"), "normal"))


@placing("out_sharding")
def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Standard normal within (lower, upper)."""
    kind = _floats(dtype, "truncated_normal")
    low, high = (as_array(v).tensor.to(kind) for v in (lower, upper))
    ends = [make(T["erf"](v / math.sqrt(2))) for v in (low, high)]
    unit = uniform(key, _shape(shape, lower, upper), kind, *ends).tensor
    out = T["erfinv"](unit) * math.sqrt(2)
    inf = out.new_full((), math.inf)
    return make(T["maximum"](T["minimum"](out, T["nextafter"](high.detach(), -inf)),
                             T["nextafter"](low.detach(), inf)))


@placing("out_sharding")
def multivariate_normal(key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = None,
                        method: str = "cholesky") -> Any:
    """Normal with a mean vector and a covariance matrix."""
    from adjoint.jax.numpy import linalg
    m, c = as_array(mean), as_array(cov)
    if method not in ("svd", "eigh", "cholesky"):
        raise ValueError("method must be one of {'svd', 'eigh', 'cholesky'}")
    if m.ndim < 1:
        raise ValueError("multivariate_normal requires mean.ndim >= 1, got mean.ndim == 0")
    if c.shape[-2:] != (m.shape[-1],) * 2:
        raise ValueError("multivariate_normal requires cov.shape == (..., n, n) for "
                         f"n={m.shape[-1]}, but got cov.shape == {c.shape}.")
    batch = np.broadcast_shapes(m.shape[:-1], c.shape[:-2])
    kind = _floats(dtype, "multivariate_normal") if dtype is not None else np.result_type(
        m.dtype, c.dtype)
    if method == "cholesky":
        factor = linalg.cholesky(c)
    elif method == "svd":
        u, s, _ = linalg.svd(c)
        factor = u * _E["sqrt"](s)[..., None, :]
    else:
        w, v = linalg.eigh(c)
        factor = v * _E["sqrt"](_E["abs"](w))[..., None, :]
    n = batch if shape is None else _shape(shape)
    noise = normal(key, (*n, m.shape[-1]), kind)
    moved = (factor @ noise[..., None])[..., 0]
    return m.reshape((1,) * (moved.ndim - m.ndim) + m.shape) + moved


# ------------------------------------------------------------------ integers and order
@placing("out_sharding")
def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None) -> Any:
    """Whole numbers in [minval, maxval)."""
    kind = default_dtype("int") if dtype is None else as_dtype(dtype)
    if kind.kind not in "iu":
        raise TypeError(f"randint only accepts integer dtypes, got {kind}")
    limits = np.iinfo(kind)
    if kind.itemsize < 4:                       # drawn in 32 bits, where the end is a number too
        ends = [_E["clip"](as_array(v), int(limits.min), int(limits.max) + past)
                for v, past in ((minval, 0), (maxval, 1))]
        return randint(key, shape, ends[0], ends[1], np.int32).astype(kind)
    width = kind.itemsize * 8
    first, second = split(key)
    unsigned = np.dtype(f"uint{width}")
    low, high = (_end(v, kind, past) for v, past in ((minval, False), (maxval, width < 64)))
    upper, lower = (_bits(k, shape, width, "randint") for k in (first, second))
    wide = T["where"](high <= low, low * 0 + 1, high - low).to(unsigned)
    every = wide == 0                           # (all numbers of the dtype)
    span = T["where"](every, wide + 1, wide)
    scale = span.new_full((), 2 ** (width // 2)) % span
    scale = (scale * scale) % span
    offset = T["where"](every, lower, ((upper % span) * scale + lower % span) % span)
    return make(low.to(kind) + offset.to(kind))


def _end(value: Any, kind: np.dtype[Any], past: bool) -> Any:
    """An end of a range of whole numbers, within those of a dtype; past: or the one after them."""
    t, limits = as_array(value).tensor, np.iinfo(kind)
    if kind.itemsize < 8:
        return T["clamp"](t.to(np.dtype(np.int64)), int(limits.min), int(limits.max) + past)
    if t.dtype.is_floating_point:
        return T["clamp"](t, float(limits.min), float(np.nextafter(2.0 ** (
            64 - (kind.kind == "i")), 0))).to(kind)
    own = np.iinfo(np.dtype(str(t.array.dtype))) if t.array.dtype.kind in "iu" else limits
    return T["clamp"](t, max(int(limits.min), int(own.min)), min(int(limits.max), int(own.max))
                      ).to(kind) if t.array.dtype != kind else t


def _shuffle(key: Any, x: Any, axis: int) -> Any:
    rounds = math.ceil(3 * math.log(max(1, x.size)) / math.log(2 ** 32 - 1))
    for _ in range(rounds):
        key, sub = split(key)
        x = sort_key_val(make(_bits(sub, x.shape, 32, "shuffle")), x, axis)[1]
    return x


@placing("out_sharding")
def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Any:
    """The entries of an array in random order, or the numbers below one."""
    a = as_array(x)
    if a.ndim == 0:
        if a.dtype.kind not in "iu":
            raise TypeError("x must be an integer or at least 1-dimensional")
        return _shuffle(key, make(wrap(np.arange(int(a)).astype(a.dtype))), 0)
    if independent or a.ndim == 1:
        return _shuffle(key, a, axis)
    order = _shuffle(key, make(wrap(np.arange(a.shape[axis]).astype(default_dtype("int")))), 0)
    return take(a, order, axis)


def choice(key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0,
           mode: Any = None) -> Any:
    """Entries drawn from an array (or the numbers below one), with or without replacement."""
    x, shape = as_array(a), _shape(shape)
    n = int(x) if x.ndim == 0 else x.shape[axis]
    draws = math.prod(shape)
    if n <= 0 and draws:
        raise ValueError("a must be greater than 0 unless no samples are taken")
    if not replace and draws > n:
        raise ValueError(f"Cannot take a larger sample (size {draws}) than population (size {n}) "
                         "when 'replace=False'")
    if p is None:
        if replace:
            at = randint(key, shape, 0, n)
        else:
            at = permutation(key, n)[:draws].reshape(shape)
            if x.ndim:
                found = permutation(key, x, axis)
                found = found[(*[slice(None)] * (axis % x.ndim), slice(draws))]
                return found.reshape((*x.shape[:axis], *shape, *x.shape[axis + 1:]))
    else:
        chances = as_array(p)
        if chances.shape != (n,):
            raise ValueError("p must be None or a 1D vector with the same size as "
                             f"a.shape[axis]. p has shape {chances.shape} and a.shape[axis] is "
                             f"{n}.")
        if replace:
            total = _R["cumsum"](chances)
            draw = total[-1] * (1 - uniform(key, shape, total.dtype))
            at = _S["searchsorted"](total, draw)
        else:
            noise = gumbel(key, (n,), chances.dtype) + _E["log"](chances)
            at = top_k(noise, draws)[1].reshape(shape)
    return at if x.ndim == 0 else take(x, at, axis)


@placing("out_sharding")
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low") -> Any:
    """True with probability p; with mode "high" a second draw adds bits to the uniforms."""
    chance = as_array(p)
    if mode not in ("low", "high"):
        raise ValueError(f"got mode={mode!r}, expected 'high' or 'low'")
    if not is_inexact(chance.dtype):
        raise TypeError("bernoulli probability `p` must have a floating dtype, got "
                        f"{chance.dtype}.")
    to = _shape(shape, chance)
    if shape is not None:
        np.broadcast_shapes(to, chance.shape)
    if mode == "high":
        first, second = uniform(key, (2, *to), chance.dtype)
        fine: Any = second * _finest(chance.dtype) < chance - first
        return fine
    drawn: Any = uniform(key, to, chance.dtype) < chance
    return drawn


@placing("out_sharding")
def rademacher(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """1 or -1."""
    kind = default_dtype("int") if dtype is None else as_dtype(dtype)
    drawn: Any = 2 * bernoulli(key, 0.5, _shape(shape)).astype(default_dtype("int")) - 1
    return drawn.astype(kind)


@placing("out_sharding")
def categorical(key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True,
                mode: Any = None) -> Any:
    """Indices drawn with log-probabilities `logits` (up to a constant)."""
    x = as_array(logits)
    axis = axis % x.ndim - x.ndim
    batch = tuple(n for d, n in enumerate(x.shape) if d - x.ndim != axis)
    out = batch if shape is None else _shape(shape)
    prefix = out[:len(out) - len(batch)]
    if replace:
        noise = gumbel(key, (*prefix, *x.shape), x.dtype, mode)
        return _R["argmax"](noise + x.reshape((1,) * len(prefix) + x.shape), axis)
    draws = math.prod(prefix)
    noise = gumbel(key, x.shape, x.dtype, mode)
    at = top_k(noise + x, draws, axis=axis)[1]
    return _H["moveaxis"](at, axis, 0).reshape(out)


# ------------------------------------------------------------------ other distributions
def _of_uniform(name: str, run: Any, low: Any = 0.0, high: Any = 1.0) -> Any:
    def draw(key: Any, shape: Any = (), dtype: Any = None) -> Any:
        kind = _floats(dtype, name)
        info = finfo(kind)
        start = {"tiny": info.tiny, "eps": info.eps, "-1": -1 + info.eps / 2}.get(low, low)
        return make(run(uniform(key, shape, kind, start, high).tensor))
    draw.__name__ = name
    draw.__doc__ = f"`jax.random.{name}`."
    return placing("out_sharding")(draw)


_gumbel = _of_uniform("gumbel", lambda u: -T["log"](-T["log"](u)), "tiny")


@placing("out_sharding")
def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: Any = None) -> Any:
    """`jax.random.gumbel`; with mode "high" a second draw adds bits to small uniforms."""
    if mode not in (None, "low", "high"):
        raise ValueError(f"gumbel: mode {mode!r} is none of 'low', 'high'")
    if mode != "high":
        return _gumbel(key, shape, dtype)
    kind = _floats(dtype, "gumbel")
    high, low = uniform(key, (2, *_shape(shape)), kind)
    fine = high + low * _finest(kind) + float(finfo(kind).tiny)
    return -_E["log"](-_E["log1p"](-_S["where"](high >= 0.5, high, fine)))


def _finest(kind: Any) -> float:
    """The spacing of uniform draws."""
    return float(finfo(kind).eps)


exponential = _of_uniform("exponential", lambda u: -T["log1p"](-u))
laplace = _of_uniform("laplace", lambda u: T["sign"](u) * T["log1p"](-abs(u)), "-1")
logistic = _of_uniform("logistic", lambda u: T["log"](u / (1 - u)), "tiny")
cauchy = _of_uniform("cauchy", lambda u: T["tan"]((u - 0.5) * math.pi), "eps")


@placing("out_sharding")
def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None) -> Any:
    """`jax.random.rayleigh`."""
    kind = _floats(dtype, "rayleigh")
    u = uniform(key, _shape(shape, scale), kind)
    return as_array(scale) * _E["sqrt"](-2 * _E["log"](u))


def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None
                ) -> Any:
    """`jax.random.weibull_min`."""
    u = uniform(key, shape, _floats(dtype, "weibull_min"))
    drawn: Any = (-_E["log1p"](-u)) ** (1.0 / as_array(concentration)) * as_array(scale)
    return drawn


@placing("out_sharding")
def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None) -> Any:
    """`jax.random.lognormal`."""
    kind = _floats(dtype, "lognormal")
    drawn: Any = _E["exp"](normal(key, _shape(shape, sigma), kind) * as_array(sigma))
    return drawn


@placing("out_sharding")
def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None) -> Any:
    """`jax.random.pareto`."""
    kind = _floats(dtype, "pareto")
    drawn: Any = _E["exp"](exponential(key, _shape(shape, b), kind) / as_array(b))
    return drawn


@placing("out_sharding")
def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """`jax.random.geometric`."""
    kind = default_dtype("int") if dtype is None else as_dtype(dtype)
    chance = as_array(p)
    chance = chance if is_inexact(chance.dtype) else chance.astype(default_dtype("float"))
    u = uniform(key, _shape(shape, chance), chance.dtype if is_inexact(chance.dtype) else None)
    u = _S["where"](u == 0, 1, u)
    drawn: Any = _E["floor"](_E["log"](u) / _E["log1p"](-chance)).astype(kind) + 1
    return drawn


@placing("out_sharding")
def triangular(key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None
               ) -> Any:
    """`jax.random.triangular`."""
    kind = _floats(dtype, "triangular")
    a, c, b = (as_array(v).astype(kind) for v in (left, mode, right))
    u = uniform(key, _shape(shape, left, mode, right), kind)
    at = (c - a) / (b - a)
    low = a + _E["sqrt"](u * (b - a) * (c - a))
    high = b - _E["sqrt"]((1 - u) * (b - a) * (b - c))
    return _S["where"](u < at, low, high)


@placing("out_sharding")
def maxwell(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Lengths of normal vectors of three entries."""
    from adjoint.jax.numpy import linalg
    return linalg.norm(normal(key, (*_shape(shape), 3), _floats(dtype, "maxwell")), axis=-1)


def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None) -> Any:
    """`maxwell` of either sign, scaled and moved."""
    kind, params = _floats(dtype, "double_sided_maxwell"), _shape(None, loc, scale)
    to = (*(_shape(shape) or params), *params)
    first, second = split(key)
    drawn: Any = rademacher(second, to, kind) * maxwell(first, to, kind)
    return drawn * as_array(scale) + as_array(loc)


@placing("out_sharding")
def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Inverse Gaussian variates (Michael, Schucany and Haas 1976)."""
    kind, to = _floats(dtype, "wald"), _shape(shape, mean)
    first, second = split(key)
    m = _H["broadcast_to"](as_array(mean).astype(kind), to)
    y = normal(first, to, kind) ** 2
    x = m + m ** 2 * y / 2 - m / 2 * _E["sqrt"](4 * m * y + m ** 2 * y ** 2)
    return _S["where"](uniform(second, to, kind) <= m / (m + x), x, m ** 2 / x)


def key_dtype(impl_spec: Any = None) -> Any:
    """The dtype of keys."""
    return key_type(impl_spec)


@placing("out_sharding")
def orthogonal(key: Any, n: int, shape: Any = (), dtype: Any = None, m: Any = None) -> Any:
    """Orthogonal matrices, uniform in the group."""
    from adjoint.jax.numpy import linalg
    m = n if m is None else m
    z = normal(key, (*_shape(shape), max(n, m), min(n, m)), dtype)
    q, r = linalg.qr(z)
    d = linalg.diagonal(r)
    q = q * _E["sign"](d)[..., None, :]
    return q if n >= m else _H["matrix_transpose"](q)


def __dir__() -> Sequence[str]:
    return sorted(n for n in globals() if not n.startswith("_"))


from adjoint.jax._gamma import (  # noqa: E402  # it draws from the functions above
    ball,
    beta,
    binomial,
    chisquare,
    dirichlet,
    f,
    gamma,
    gamma_slope,
    generalized_normal,
    loggamma,
    multinomial,
    poisson,
    t,
)

__all__ = ["KeyArray", "PRNGKey", "ball", "beta", "binomial", "chisquare", "dirichlet", "f",
           "gamma", "gamma_slope", "generalized_normal", "key", "loggamma", "multinomial",
           "poisson", "split", "t", "uniform"]
__getattr__ = _missing("adjoint.jax.random")
