"""How many bytes a training step will take: the step itself, rehearsed on storage-less tensors."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adjoint.cli.train_loop import make_model, make_optimizer
from adjoint.cli.train_options import TrainConfig
from adjoint.core.tensor import wrap
from adjoint.memory import predict
from adjoint.nn.utils import clip_grad_norm_

_WORDS = {"parameter": "parameters", "gradient": "gradients", "optimizer state": "optimizer",
          "saved residual": "kept for backward"}


class StepBytes(NamedTuple):
    """What a step holds, in bytes; `peak` is the most at any one time and `parts` what it is made
    of then."""

    parameter_count: int
    parameters: int
    gradients: int
    optimizer: int
    saved: int
    peak: int
    parts: dict[str, int]


def predict_step_bytes(config: TrainConfig) -> StepBytes:
    """Rehearse the configuration's step and report what it holds.

    Two steps are run: the first makes gradients and the optimizer's state, the second is one
    like all that follow.
    """
    model = make_model(config, "meta")
    optimizer = make_optimizer(model, config)
    x, y = (wrap(np.zeros((config.batch, config.context), np.int64)) for _ in range(2))

    def step() -> None:
        optimizer.zero_grad()
        model.loss(x, y).backward()
        clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()

    def steps() -> None:
        step()
        step()
    report = predict(steps)
    end = {row.what: row.bytes for row in report.rows("role", len(report.events) - 1)}
    count = sum(p.numel() for p in model.parameters())
    parts = {word: report.roles[role] for role, word in _WORDS.items() if report.roles[role]}
    parts["at work"] = report.peak - sum(parts.values())
    return StepBytes(count, end["parameter"], end["gradient"], end["optimizer state"],
                     report.saved, report.peak, parts)


def least_step_bytes(config: TrainConfig) -> int:
    """Bytes that a step needs at the very least: of the blocks' matrices, with their gradients and
    AdamW's two moments, and of the batch.

    >>> least_step_bytes(TrainConfig(layers=1, dim=10, batch=1, context=1, dtype="float64"))
    38416
    """
    matrices = 12 * config.layers * config.dim ** 2
    return 4 * matrices * np.dtype(config.dtype).itemsize + 16 * config.batch * config.context


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
