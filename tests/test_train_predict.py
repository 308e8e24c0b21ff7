"""The bytes `adjoint train` announces, against what a real step allocates."""
from __future__ import annotations

import numpy as np
import pytest

import adjoint as ad
from adjoint.cli.train_loop import make_model, make_optimizer
from adjoint.cli.train_options import TrainConfig
from adjoint.cli.train_predict import predict_step_bytes
from adjoint.core.tensor import wrap
from adjoint.kernels import alloc
from adjoint.nn.utils import clip_grad_norm_

SMALL = {"batch": 4, "context": 64, "dim": 64, "layers": 2}


@pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
@pytest.mark.parametrize("options", [{}, {"dropout": 0.1}, {"dtype": "float64"}])
def test_the_prediction_is_the_real_step(options):
    config = TrainConfig(**SMALL, **options)
    predicted = predict_step_bytes(config)
    model = make_model(config)
    optimizer = make_optimizer(model, config)
    x, y = (wrap(np.zeros((config.batch, config.context), np.int64)) for _ in range(2))
    for _ in range(2):
        with ad.memory.track(model, optimizer, x, y) as measured:
            optimizer.zero_grad()
            model.loss(x, y).backward()
            clip_grad_norm_(model.parameters(), config.clip)
            optimizer.step()
    roles = {row.what: row.bytes for row in measured.rows("role", len(measured.events) - 1)}
    assert predicted.peak == measured.peak
    assert predicted.saved == measured.saved
    assert sum(predicted.parts.values()) == predicted.peak
    assert predicted.parts["parameters"] == predicted.parameters
    assert predicted.parameters == predicted.gradients == roles["parameter"] == roles["gradient"]
    assert predicted.optimizer == roles["optimizer state"]
    size = 8 if options.get("dtype") == "float64" else 4
    assert predicted.parameter_count * size == predicted.parameters


def test_a_model_far_too_large_is_predicted_at_once():
    huge = predict_step_bytes(TrainConfig(dim=8192, layers=40, heads=64, context=4096, batch=64))
    assert huge.parameters > 120e9 and huge.peak > 1e12
