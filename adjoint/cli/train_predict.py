"""How many bytes a training step will take: the step itself, rehearsed on storage-less tensors."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adjoint.cli.train_loop import make_model, make_optimizer
from adjoint.cli.train_options import TrainConfig
from adjoint.core.tensor import wrap
from adjoint.memory import predict
from adjoint.nn.utils import clip_grad_norm_


class StepBytes(NamedTuple):
    """What a step holds, in bytes; `peak` is the most at any one time."""

    parameter_count: int
    parameters: int
    gradients: int
    optimizer: int
    saved: int
    peak: int


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
    return StepBytes(count, end["parameter"], end["gradient"], end["optimizer state"],
                     report.saved, report.peak)


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
