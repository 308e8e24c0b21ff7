"""`jax.scipy.spatial.transform`: rotations as unit quaternions (x, y, z, w)."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from adjoint.base.errors import missing as _missing
from adjoint.jax import numpy as _jnp
from adjoint.jax import random as _random
from adjoint.jax._util import promote_dtypes_inexact as _inexact
from adjoint.jax.tree_util import register_pytree_node as _register

_n: Any = _jnp


def _floats(*xs: Any) -> Any:
    made = _inexact(*[_n.asarray(x) for x in xs])
    return made[0] if len(made) == 1 else made


def _split(q: Any) -> tuple[Any, Any]:
    return q[..., :3], q[..., 3]


def _joined(v: Any, w: Any) -> Any:
    return _n.concatenate([v, w[..., None]], -1)


def _unit(q: Any) -> Any:
    return q / _n.linalg.norm(q, axis=-1, keepdims=True)


def _product(p: Any, q: Any) -> Any:
    """The rotation by q, then by p."""
    (a, s), (b, t) = _split(p), _split(q)
    v = s[..., None] * b + t[..., None] * a + _n.cross(a, b)
    return _joined(v, s * t - (a * b).sum(-1))


def _length(v: Any) -> Any:
    """The norm, with a derivative of 0 at 0."""
    square = (v * v).sum(-1)
    none = square == 0
    return _n.where(none, 0.0, _n.sqrt(_n.where(none, 1.0, square)))


def _sequence(seq: str) -> tuple[list[int], bool]:
    """The axes as numbers, and whether they stay where they are."""
    if not 0 < len(seq) <= 3:
        raise ValueError(f"Expected axis specification to be a non-empty string of upto 3 "
                         f"characters, got {seq}")
    if not (set(seq) <= set("xyz") or set(seq) <= set("XYZ")):
        raise ValueError("Expected axes from `seq` to be from ['x', 'y', 'z'] or ['X', 'Y', 'Z'], "
                         f"got {seq}")
    if any(a == b for a, b in zip(seq, seq[1:], strict=False)):
        raise ValueError(f"Expected consecutive axes to be different, got {seq}")
    return ["xyz".index(c) for c in seq.lower()], seq.islower()


class Rotation:
    """Rotations of space, one or many.

    >>> from adjoint.jax.scipy.spatial.transform import Rotation
    >>> Rotation.from_euler("z", 90, degrees=True).apply([1.0, 0.0, 0.0]).round(3)
    Array([0., 1., 0.], dtype=float32)
    """

    def __init__(self, quat: Any) -> None:
        self.quat = quat

    # ---------------------------------------------------------------- made of
    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """Of quaternions of any length."""
        return cls(_unit(_floats(quat)))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """Of axes, each as long as its angle."""
        v = _floats(rotvec)
        v = _n.deg2rad(v) if degrees else v
        angle = _length(v)
        half = _n.where(angle == 0, 1.0, angle) / 2
        small = 0.5 - angle ** 2 / 48 + angle ** 4 / 3840
        scale = _n.where(angle <= 1e-3, small, _n.sin(half) / (2 * half))
        return cls(_joined(scale[..., None] * v, _n.cos(angle / 2)))

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """Of modified Rodrigues parameters."""
        v = _floats(mrp)
        square = (v * v).sum(-1)
        return cls(_joined(2 * v, 1 - square) / (1 + square)[..., None])

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """Of rotation matrices."""
        m = _floats(matrix)
        trace = _n.trace(m, axis1=-2, axis2=-1)
        found = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            q: list[Any] = [None] * 4
            q[i], q[j] = 1 - trace + 2 * m[..., i, i], m[..., j, i] + m[..., i, j]
            q[k], q[3] = m[..., k, i] + m[..., i, k], m[..., k, j] - m[..., j, k]
            found.append(_n.stack(q, -1))
        found.append(_n.stack([m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0],
                               m[..., 1, 0] - m[..., 0, 1], 1 + trace], -1))
        sizes = _n.stack([m[..., 0, 0], m[..., 1, 1], m[..., 2, 2], trace], -1)
        which = _n.argmax(sizes, -1)[..., None]
        out = found[3]
        for i in range(3):
            out = _n.where(which == i, found[i], out)
        return cls(_unit(out))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """Of angles about axes: of the space in small letters, of the body in capitals."""
        axes, outer = _sequence(seq)
        a = _floats(angles)
        a = _n.deg2rad(a) if degrees else a
        a = a[..., None] if a.ndim == 0 or len(axes) == 1 and a.shape[-1] != 1 else a
        if a.shape[-1] != len(axes):
            raise ValueError(f"Expected {len(axes)} angles for seq={seq!r}, got shape {a.shape}")
        out: Any = None
        for i, axis in enumerate(axes):
            half = a[..., i] / 2
            one = _n.asarray(np.eye(4)[axis], a.dtype) * _n.sin(half)[..., None]
            q = one + _n.asarray(np.eye(4)[3], a.dtype) * _n.cos(half)[..., None]
            out = q if out is None else _product(q, out) if outer else _product(out, q)
        return cls(out)

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """The rotations that change nothing."""
        one = _n.asarray([0.0, 0.0, 0.0, 1.0], dtype)
        return cls(one if num is None else _n.tile(one, (num, 1)))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """Rotations of which each is as likely."""
        return cls(_unit(_random.normal(random_key, (4,) if num is None else (num, 4))))

    @classmethod
    def concatenate(cls, rotations: Any) -> Rotation:
        """Rotations one after another."""
        return cls(_n.concatenate([_n.atleast_2d(r.quat) for r in rotations]))

    # ---------------------------------------------------------------- seen as
    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Any:
        """Quaternions (x, y, z, w); `canonical` ones have no negative w."""
        q = self.quat
        if canonical:
            q = _n.where(q[..., 3:] < 0, -q, q)
        return _n.concatenate([q[..., 3:], q[..., :3]], -1) if scalar_first else q

    def as_matrix(self) -> Any:
        """Matrices."""
        x, y, z, w = (self.quat[..., i] for i in range(4))
        rows = [[x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
                [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
                [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w]]
        return _n.stack([_n.stack(r, -1) for r in rows], -2)

    def as_rotvec(self, degrees: bool = False) -> Any:
        """Axes, each as long as its angle."""
        v, w = _split(self.as_quat(canonical=True))
        size = _length(v)
        angle = 2 * _n.arctan2(size, w)
        small = 2 + angle ** 2 / 12 + 7 * angle ** 4 / 2880
        scale = _n.where(angle <= 1e-3, small, angle / _n.where(size == 0, 1.0, size))
        out = scale[..., None] * v
        return _n.rad2deg(out) if degrees else out

    def as_mrp(self) -> Any:
        """Modified Rodrigues parameters."""
        v, w = _split(self.as_quat(canonical=True))
        return v / (1 + w)[..., None]

    def as_euler(self, seq: str, degrees: bool = False) -> Any:
        """Angles about three axes; where the first and the last are one, the last is 0."""
        axes, outer = _sequence(seq)
        if len(axes) != 3:
            raise ValueError(f"Expected 3 axes, got {seq}.")
        i, j, k = axes if outer else axes[::-1]
        first, third = (0, 2) if outer else (2, 0)
        same = i == k
        k = 3 - i - j if same else k
        sign = (i - j) * (j - k) * (k - i) // 2
        q = self.quat
        if same:
            a, b, c, d = q[..., 3], q[..., i], q[..., j], q[..., k] * sign
        else:
            a, b = q[..., 3] - q[..., j], q[..., i] + q[..., k] * sign
            c, d = q[..., j] + q[..., 3], q[..., k] * sign - q[..., i]
        middle = 2 * _n.arctan2(_n.hypot(c, d), _n.hypot(a, b))
        half_sum, half_diff = _n.arctan2(b, a), _n.arctan2(d, c)
        flat, turned = _n.abs(middle) <= 1e-7, _n.abs(middle - math.pi) <= 1e-7
        out: list[Any] = [None, middle if same else middle - math.pi / 2, None]
        out[first], out[third] = half_sum - half_diff, half_sum + half_diff
        locked = _n.where(flat, 2 * half_sum, 2 * half_diff * (-1 if outer else 1))
        out[0] = _n.where(flat | turned, locked, out[0])
        out[2] = _n.where(flat | turned, 0.0, out[2])
        if not same:
            out[third] = out[third] * sign
        angles = _n.stack(out, -1)
        angles = angles + 2 * math.pi * ((angles < -math.pi) * 1.0 - (angles > math.pi) * 1.0)
        return _n.rad2deg(angles) if degrees else angles

    # ---------------------------------------------------------------- used
    def apply(self, vectors: Any, inverse: bool = False) -> Any:
        """Vectors turned."""
        m, v = _inexact(self.as_matrix(), _n.asarray(vectors))
        m = _n.matrix_transpose(m) if inverse else m
        return (m @ v[..., None])[..., 0]

    def inv(self) -> Rotation:
        """The rotations back."""
        v, w = _split(self.quat)
        return Rotation(_joined(-v, w))

    def magnitude(self) -> Any:
        """The angles."""
        v, w = _split(self.quat)
        return 2 * _n.arctan2(_length(v), _n.abs(w))

    def mean(self, weights: Any = None) -> Rotation:
        """The mean rotation: the direction of the quaternions' largest second moment."""
        q = _n.atleast_2d(self.quat)
        w = _n.ones(q.shape[0], q.dtype) if weights is None else _n.asarray(weights, q.dtype)
        if w.ndim != 1:
            raise ValueError(f"Expected `weights` to be 1 dimensional, got shape {w.shape}.")
        if w.shape[0] != q.shape[0]:
            raise ValueError(f"Expected `weights` to have number of values equal to number of "
                             f"rotations, got {w.shape[0]} values and {q.shape[0]} rotations.")
        return Rotation(_n.linalg.eigh((w[None, :] * q.T) @ q)[1][:, -1])

    @property
    def single(self) -> bool:
        """Is it one?"""
        return bool(self.quat.ndim == 1)

    def __mul__(self, other: Rotation) -> Rotation:
        return Rotation(_product(*_inexact(self.quat, other.quat)))

    def __getitem__(self, indexer: Any) -> Rotation:
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Single rotation has no len().")
        return int(self.quat.shape[0])

    def __repr__(self) -> str:
        return f"Rotation(quat={self.quat!r})"


class Slerp:
    """Rotations between others, at constant speed: `Slerp.init(times, rotations)(at)`."""

    def __init__(self, times: Any, timedelta: Any, rotations: Any, rotvecs: Any) -> None:
        self.times, self.timedelta = times, timedelta
        self.rotations, self.rotvecs = rotations, rotvecs

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """Between rotations at growing times."""
        if not isinstance(rotations, Rotation):
            raise TypeError("`rotations` must be a `Rotation` instance.")
        if rotations.single or len(rotations) < 2:
            raise ValueError("`rotations` must be a sequence of at least 2 rotations.")
        t = _n.asarray(times, rotations.quat.dtype)
        if t.ndim != 1:
            raise ValueError("Expected times to be specified in a 1 dimensional array, got "
                             f"{t.ndim} dimensions.")
        if t.shape[0] != len(rotations):
            raise ValueError("Expected number of rotations to be equal to number of timestamps "
                             f"given, got {len(rotations)} rotations and {t.shape[0]} timestamps.")
        low, high = rotations[:-1], rotations[1:]
        return cls(t, _n.diff(t), low, (low.inv() * high).as_rotvec())

    def __call__(self, times: Any) -> Rotation:
        """The rotations at these times."""
        at = _n.asarray(times, self.times.dtype)
        if at.ndim > 1:
            raise ValueError("`times` must be at most 1-dimensional.")
        i = _n.maximum(_n.searchsorted(self.times, at) - 1, 0)
        part = (at - self.times[i]) / self.timedelta[i]
        return self.rotations[i] * Rotation.from_rotvec(self.rotvecs[i] * part[..., None])

    def __repr__(self) -> str:
        return (f"Slerp(times={self.times!r}, timedelta={self.timedelta!r}, "
                f"rotations={self.rotations!r}, rotvecs={self.rotvecs!r})")


_register(Rotation, lambda r: ((r.quat,), None), lambda _, parts: Rotation(*parts))
_register(Slerp, lambda s: ((s.times, s.timedelta, s.rotations, s.rotvecs), None),
          lambda _, parts: Slerp(*parts))
__all__ = ["Rotation", "Slerp"]
__getattr__ = _missing("adjoint.jax.scipy.spatial.transform")
