"""Random generators with a seed and a state, and the default one.

The numbers are those of PyTorch's CPU generator (`kernels/stream.py`), and a state has the layout
of PyTorch's, so that a state saved there continues here and the other way round.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from adjoint.base.dtypes import is_float, lacking
from adjoint.base.errors import (
    ArgumentError,
    AutogradError,
    DTypeError,
    NotSupported,
    StructureError,
)
from adjoint.core.bind import retried
from adjoint.core.modes import WATCH, state, watchers
from adjoint.core.tensor import Tensor, wrap
from adjoint.core.trace import mapping
from adjoint.kernels.stream import F32, F64, Stream
from adjoint.ops.device import check, device
from adjoint.ops.public import public

_WORDS = 624
_STATE = np.dtype([("seed", "<u8"), ("left", "<i4"), ("seeded", "<i4"), ("next", "<u8"),
                   ("words", "<u8", _WORDS), ("unused", "<f8"), ("normal", "<f8"),
                   ("unused2", "<f8"), ("waits", "<i4"), ("gap", "<i4"), ("single", "<f4"),
                   ("single_waits", "?"), ("gap2", "u1", 3)])


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
        self.stream = Stream(0)
        self.manual_seed(67280421310721)

    @property
    def device(self) -> device:
        """Where the numbers are made."""
        return device(self._device)

    def manual_seed(self, seed: int) -> Generator:
        """Begin the sequence of `seed` (an int of at most 64 bits)."""
        if isinstance(seed, Tensor):
            seed = seed.item()
        if isinstance(seed, float) or not hasattr(seed, "__index__"):
            raise ArgumentError(f"manual_seed expected a long, but got {type(seed).__name__}: give "
                                "an int")
        seed = int(seed)
        if not -2**63 <= seed < 2**64:
            raise ArgumentError(f"Overflow when unpacking long: seed {seed} needs more than 64 "
                                "bits")
        self._seed = seed % 2**64
        self.stream.seed(self._seed)
        return self

    def initial_seed(self) -> int:
        """The seed given last."""
        return self._seed

    def seed(self) -> int:
        """Seed from the operating system; returns the seed."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
        return self._seed

    def get_state(self) -> Tensor:
        """The state as a uint8 tensor of 5056 elements."""
        packed, used = self.stream.words_at()
        words = np.frombuffer(packed, np.uint32)
        s = np.zeros((), _STATE)
        fresh = used == _WORDS and words[0] == self._seed % 2**32
        s["seed"], s["seeded"], s["words"] = self._seed, 1, words
        s["left"], s["next"] = (1, 0) if fresh else (_WORDS + 1 - used, used)
        waiting, single = self.stream.next_double, self.stream.next_float
        if waiting is not None:
            s["normal"], s["waits"] = waiting, 1
        if single is not None:
            s["single"], s["single_waits"] = single, True
        return wrap(np.frombuffer(s.tobytes(), np.uint8).copy())

    def set_state(self, new_state: Tensor) -> Generator:
        """Continue from a state that `get_state` gave, here or in PyTorch."""
        if not isinstance(new_state, Tensor | np.ndarray):
            raise StructureError("expected a torch.ByteTensor, but got "
                                 f"{type(new_state).__name__}: give what get_state() returned")
        held = np.asarray(getattr(new_state, "array", new_state))
        if held.dtype != np.uint8:
            raise StructureError(f"RNG state must be a torch.ByteTensor, got {held.dtype}: give "
                                 "what get_state() returned")
        if held.size != _STATE.itemsize:
            raise ArgumentError(f"RNG state is wrong: expected {_STATE.itemsize} bytes from "
                                f"get_state(), found {held.size}")
        s = np.frombuffer(held.tobytes(), _STATE)[0]
        used = _WORDS + 1 - int(s["left"])
        if not (0 < used <= _WORDS and s["seeded"] and int(s["next"]) in (used, used % _WORDS)):
            raise ArgumentError("RNG state is wrong: Invalid mt19937 state, the words do not come "
                                "from get_state()")
        self._seed = int(s["seed"])
        self.stream.place(s["words"].astype(np.uint32), used)
        self.stream.next_double = float(s["normal"]) if s["waits"] else None
        self.stream.next_float = float(s["single"]) if s["single_waits"] else None
        return self

    def get_offset(self) -> int:
        """Refused: a count of the numbers drawn is kept by generators of other devices."""
        raise NotSupported("CPU Generator does not use offset: get_state() has all of its state")

    def set_offset(self, offset: int) -> Generator:
        """Refused, as `get_offset` is."""
        raise NotSupported("CPU Generator does not use offset: set_state() sets all of its state")

    def clone_state(self) -> Generator:
        """A second generator in the same state."""
        return Generator(self._device).set_state(self.get_state())

    def __getstate__(self) -> bytes:
        return bytes(self.get_state().array.tobytes())

    def __setstate__(self, held: bytes) -> None:
        self._device, self.stream = "cpu", Stream(0)
        self.set_state(wrap(np.frombuffer(held, np.uint8).copy()))

    def __repr__(self) -> str:
        return f"<Generator seed={self._seed} device={self._device}>"


default_generator = Generator()


@public(method=False)
def manual_seed(seed: int) -> Generator:
    """Seed the default generator; returns it."""
    return default_generator.manual_seed(seed if isinstance(seed, Tensor) else int(seed))


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


def rewind(randomness: str) -> Callable[[], None]:
    """To be called before each part of a vmap that runs in parts: with "same", every part begins
    where the default generator is now, so that all examples share the draws."""
    if randomness != "same":
        return lambda: None
    held = get_rng_state()
    return lambda: set_rng_state(held)


def again(draw: Callable[..., Any], stream: Stream, *args: Any) -> Any:
    """`draw(stream, *args)`, once more from where it began where memory is refused and an observer
    can free some."""
    if not state() & WATCH:
        return draw(stream, *args)
    held = stream.hold()

    def drawn() -> Any:
        stream.back_to(held)
        return draw(stream, *args)
    return retried(watchers.observers.get(), drawn)


def source(generator: Any = None) -> Stream:
    """The stream behind `generator` or the default one; refused inside of a vmap whose
    `randomness` is "error"."""
    trace = mapping.get()
    while trace is not None:
        if trace.randomness == "error":
            raise AutogradError(
                "vmap: called random operation while in randomness error mode. Please either use "
                "the 'same' or 'different' randomness flags on vmap or perform the randomness "
                "operation out of vmap")
        trace = trace.outer
    if generator is None:
        return default_generator.stream
    if not isinstance(generator, Generator):
        raise DTypeError("argument 'generator' must be Generator, not "
                         f"{type(generator).__name__}")
    return generator.stream


def chances(array: Any) -> None:
    """Refuse probabilities that are whole numbers."""
    if not is_float(array.dtype):
        raise lacking("bernoulli_tensor_cpu_p_", array.dtype)


def proper(chance: Any) -> None:
    """Refuse probabilities outside of [0, 1]."""
    known = chance if getattr(chance, "dtype", F32) in (F32, F64) else np.asarray(chance, F64)
    if np.size(known) and not (np.minimum.reduce(known, None) >= 0          # (a nan is neither)
                               and np.maximum.reduce(known, None) <= 1):
        raise ArgumentError("bernoulli: Expected p_in >= 0 && p_in <= 1 for every element, got "
                            f"values in [{np.min(known):g}, {np.max(known):g}]")
