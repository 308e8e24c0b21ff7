"""Random bits from a key and a counter, and the bytes of an array as another dtype.

Threefry-2x32 with 20 rounds: Salmon, Moraes, Dror, Shaw (2011), "Parallel random numbers: as easy
as 1, 2, 3", SC'11; Philox-4x32 with 10 rounds is from there too. The same key and place always give
the same bits, so nothing is remembered.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.base.errors import DTypeError, ShapeError
from adjoint.core.bind import bind
from adjoint.core.op import Op, op
from adjoint.ops.shape import batch_loop, unsqueeze_op

U32 = np.dtype(np.uint32)
_TURNS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)                 # the constant of the key schedule


def _hash(k0: Any, k1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    """Two words of 32 bits for every pair of counters."""
    keys = (k0, k1, k0 ^ k1 ^ _PARITY)
    x0, x1 = x0 + k0, x1 + k1
    for group in range(5):
        for turn in _TURNS[group % 2]:
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(turn)) | (x1 >> np.uint32(32 - turn))) ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def _key_check(key: Aval, name: str) -> None:
    if key.dtype != U32 or not key.shape or key.shape[-1] != 2:
        raise DTypeError(f"{name}: a key has dtype uint32 and shape [..., 2], got {key}")


def raw_bits(key: Any, /, *, shape: Any, width: int) -> Any:
    """Bits of that shape, for every key of the array."""
    lead = key.shape[:-1]
    count = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64).reshape(shape)
    k0, k1 = (key[..., i].reshape((*lead, *[1] * len(shape))) for i in (0, 1))
    with np.errstate(over="ignore"):
        a, b = _hash(k0, k1, (count >> np.uint64(32)).astype(np.uint32),
                     count.astype(np.uint32))
    if width == 64:
        return np.asarray((a.astype(np.uint64) << np.uint64(32)) | b)
    return np.asarray((a ^ b).astype(f"uint{width}"))


def _bits_aval(key: Aval, *, shape: Any, width: int) -> Aval:
    _key_check(key, "threefry_bits")
    return Aval((*key.shape[:-1], *shape), np.dtype(f"uint{width}"))


_KEYS = np.array([[1, 2], [3, 4]], np.uint32)
threefry_bits: Any = op(
    "threefry_bits", impl=raw_bits, infer=_bits_aval,
    batch=lambda op_, args, batched, attrs: op_.call(args[0], **attrs),
    cost=lambda key, *, shape, width: 100 * int(np.prod(shape)), domain=lambda: [
        ((_KEYS,), {"shape": (3,), "width": 32}), ((_KEYS[0],), {"shape": (2, 2), "width": 64})])


def threefry_pairs(key: Any, x0: Any, x1: Any) -> Any:
    """Two words for every pair of counters, for one key."""
    with np.errstate(over="ignore"):
        return np.stack(_hash(key[0], key[1], x0, x1), -1)


def raw_fold(key: Any, data: Any, /) -> Any:
    """Keys of keys and numbers."""
    with np.errstate(over="ignore"):
        zero = np.zeros_like(data)
        a, b = _hash(key[..., 0], key[..., 1], zero, data)
    return np.stack(np.broadcast_arrays(a, b), -1)


def _fold_aval(key: Aval, data: Aval) -> Aval:
    _key_check(key, "threefry_fold")
    if data.dtype != U32 or len(data.shape) != len(key.shape) - 1:
        raise ShapeError(f"threefry_fold: data must be uint32 with one axis less than the key, got "
                         f"{data} for a key {key}")
    return Aval((*np.broadcast_shapes(key.shape[:-1], data.shape), 2), U32)


def _batch_fold(op_: Any, args: Any, batched: Any, attrs: Any) -> Any:
    return op_.call(*[a if b else unsqueeze_op(a, dim=0)
                      for a, b in zip(args, batched, strict=True)])


threefry_fold: Any = op(
    "threefry_fold", impl=raw_fold, infer=_fold_aval, batch=_batch_fold,
    cost=lambda key, data: 100 * data.size,
    domain=lambda: [((_KEYS, np.array([5, 6], np.uint32)), {}),
                    ((_KEYS[0], np.array(7, np.uint32)), {})])


# ------------------------------------------------------------------ Philox: keys of four words
_U64, _LOW = np.uint64, np.uint64(0xFFFFFFFF)


def _product(factor: int, x: Any) -> tuple[Any, Any]:
    """The high and the low word of a product."""
    p = _U64(factor) * x
    return p >> _U64(32), p & _LOW


def raw_philox(key: Any, /, *, shape: Any, width: int) -> Any:
    """Bits of that shape, for every key of the array: the first two words are the key of the
    rounds, the last two the number of the first block of four words."""
    lead, n = key.shape[:-1], int(np.prod(shape, dtype=np.int64))
    blocks = -(-n * max(width, 32) // 128)
    words = [key[..., i, None].astype(np.uint64) for i in range(4)]
    with np.errstate(over="ignore"):
        place = (words[2] | words[3] << _U64(32)) + np.arange(blocks, dtype=np.uint64)
        k0, k1 = words[:2]
        c = [place & _LOW, place >> _U64(32), k0, k1]
        for _ in range(10):
            (a, b), (d, e) = _product(0xD2511F53, c[0]), _product(0xCD9E8D57, c[2])
            c = [d ^ c[1] ^ k0, e, a ^ c[3] ^ k1, b]
            k0, k1 = (k0 + _U64(0x9E3779B9)) & _LOW, (k1 + _U64(0xBB67AE85)) & _LOW
    drawn = np.stack(np.broadcast_arrays(*c), -1).reshape((*lead, -1))
    if width == 64:
        drawn = drawn[..., ::2] | drawn[..., 1::2] << _U64(32)
    return drawn[..., :n].astype(f"uint{width}").reshape((*lead, *shape))


def _philox_aval(key: Aval, *, shape: Any, width: int) -> Aval:
    if key.dtype != U32 or not key.shape or key.shape[-1] != 4:
        raise DTypeError(f"philox_bits: a key has dtype uint32 and shape [..., 4], got {key}")
    return Aval((*key.shape[:-1], *shape), np.dtype(f"uint{width}"))


def _batch_philox(op_: Any, args: Any, batched: Any, attrs: Any) -> Any:
    """One stream, that of the first key, for all examples, as in JAX."""
    keys = args[0]
    return philox_bits(keys[0], shape=(keys.shape[0], *attrs["shape"]), width=attrs["width"])


# (An Op alone, as `keyed_draw` below: examples share a stream, which is no law of batching.)
_philox = Op("philox_bits", raw_philox, _philox_aval, batch=_batch_philox)


def philox_bits(key: Any, *, shape: Any, width: int) -> Any:
    """Random bits of that shape, of the state in four words."""
    return bind(_philox, (key,), {"shape": tuple(shape), "width": width})


# ------------------------------------------------------------------ other samplers
def _drawn(key: Any, /, *params: Any, draw: Any, shape: Any, dtype: Any) -> Any:
    return np.asarray(draw(key.reshape(-1), *params)).astype(dtype).reshape(shape)


# A sampler of a key's words and parameters: a constant, drawn once per key under vmap.
keyed_draw = Op("keyed_draw", _drawn, lambda key, *params, draw, shape, dtype: Aval(shape, dtype),
                batch=batch_loop)


def draw_with(key: Any, draw: Any, shape: Any, *params: Any, dtype: Any) -> Any:
    """draw(words of the key, *parameters) as a tensor of that shape."""
    return bind(keyed_draw, (key, *params), {"draw": draw, "shape": tuple(shape),
                                             "dtype": np.dtype(dtype)})


# ------------------------------------------------------------------ bytes
def _bitcast_aval(x: Aval, *, dtype: Any) -> Aval:
    if x.dtype.itemsize != dtype.itemsize:
        raise DTypeError(f"bitcast: {x.dtype} has {x.dtype.itemsize} bytes, {dtype} has "
                         f"{dtype.itemsize}; they must be equal")
    return Aval(x.shape, dtype)


bitcast: Any = op(
    "bitcast", impl=lambda x, /, *, dtype: np.ascontiguousarray(x).view(dtype).reshape(x.shape),
    infer=_bitcast_aval, batch=lambda op_, args, batched, attrs: op_.call(args[0], **attrs),
    domain=lambda: [((np.array([1, 2], np.uint32),), {"dtype": np.dtype(np.float32)})])
