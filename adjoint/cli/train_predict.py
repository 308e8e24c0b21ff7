"""How many bytes a training step will take: the step itself, run on storage-less tensors.

The same model, loss, backward and clipping run on device `meta`; arrays are made and dropped
where the real step makes and drops them, so adding up the living ones gives its peak.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adjoint.base.aval import MetaArray
from adjoint.cli.train_loop import make_model, make_optimizer
from adjoint.cli.train_options import TrainConfig
from adjoint.core.tensor import Tensor, wrap
from adjoint.nn.utils import clip_grad_norm_


class StepBytes(NamedTuple):
    """What a step holds, in bytes; `peak` is the most at any one time."""

    parameter_count: int
    parameters: int
    gradients: int
    optimizer: int
    saved: int
    peak: int


class MetaLedger:
    """Adds up the storage-less arrays that are alive, and keeps the largest sum.

    >>> with MetaLedger() as ledger:
    ...     a = MetaArray((10,), np.float32); del a
    >>> ledger.live, ledger.peak
    (0, 40)
    """

    def __init__(self) -> None:
        self.live = self.peak = 0
        self._alive: dict[int, weakref.ref[MetaArray]] = {}
        self._init: Any = None

    def __enter__(self) -> MetaLedger:
        init = self._init = MetaArray.__init__

        def counted(array: MetaArray, shape: tuple[int, ...], dtype: Any,
                    base: MetaArray | None = None) -> None:
            init(array, shape, dtype, base)
            if base is None:
                self._add(array)
        self._install(counted)
        return self

    def __exit__(self, *exc: object) -> None:
        self._install(self._init)

    def _install(self, init: Callable[..., None]) -> None:
        setattr(MetaArray, "__init__", init)  # noqa: B010  # counting for the length of a block

    def _add(self, array: MetaArray) -> None:
        key, nbytes = id(array), array.nbytes

        def gone(_: object) -> None:
            self.live -= nbytes
            del self._alive[key]
        self.live += nbytes
        self.peak = max(self.peak, self.live)
        self._alive[key] = weakref.ref(array, gone)


def predict_step_bytes(config: TrainConfig) -> StepBytes:
    """Run the configuration's step without storage and report what it held.

    Two steps are run: the first makes gradients and the optimizer's state, the second is one
    like all that follow; `peak` is its.
    """
    with MetaLedger() as ledger:
        model = make_model(config, "meta")
        parameters = ledger.live
        optimizer = make_optimizer(model, config)
        tokens = wrap(MetaArray((config.batch, config.context), np.dtype(np.int64)))
        saved = 0
        for _ in range(2):
            ledger.peak = ledger.live
            optimizer.zero_grad()
            before = ledger.live
            loss = model.loss(tokens, tokens)
            saved = ledger.live - before
            loss.backward()
            clip_grad_norm_(model.parameters(), config.clip)
            del loss
            optimizer.step()
        gradients = sum(p.grad.array.nbytes for p in model.parameters())
        state = sum(value.array.nbytes for held in optimizer.state.values()
                    for value in held.values() if isinstance(value, Tensor))
        count = sum(p.numel() for p in model.parameters())
        return StepBytes(count, parameters, gradients, state, saved, ledger.peak)


def available_bytes() -> int | None:
    """Memory that this machine could still give, if the system tells.

    >>> available_bytes() is None or available_bytes() > 0
    True
    """
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
