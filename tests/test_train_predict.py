"""The bytes `adjoint train` announces, against what NumPy allocates in a real step."""
from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from adjoint.base.aval import MetaArray
from adjoint.cli.train_loop import make_model, make_optimizer
from adjoint.cli.train_options import TrainConfig
from adjoint.cli.train_predict import MetaLedger, predict_step_bytes
from adjoint.core.tensor import wrap
from adjoint.nn.utils import clip_grad_norm_

SMALL = {"batch": 4, "context": 64, "dim": 64, "layers": 2}


def allocated():
    """Bytes of array data that NumPy holds now."""
    chosen = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    return sum(t.size for t in tracemalloc.take_snapshot().filter_traces([chosen]).traces)


def measure(config):
    """Parameters, saved, optimizer state, gradients: bytes of the second of two real steps."""
    tokens = np.zeros((config.batch, config.context), np.int64)
    tracemalloc.start()
    try:
        before = allocated()
        model = make_model(config)
        parameters = allocated() - before
        optimizer = make_optimizer(model, config)
        state = 0
        for _ in range(2):
            optimizer.zero_grad()
            before = allocated()
            loss = model.loss(wrap(tokens), wrap(tokens))
            saved = allocated() - before
            loss.backward()
            clip_grad_norm_(model.parameters(), config.clip)
            del loss
            after = allocated()
            optimizer.step()
            state = max(state, allocated() - after)
        return parameters, saved, state, after - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("options", [{}, {"dropout": 0.1}, {"dtype": "float64"}])
def test_the_prediction_matches_a_real_step(options):
    config = TrainConfig(**SMALL, **options)
    predicted = predict_step_bytes(config)
    parameters, saved, state, gradients = measure(config)
    assert gradients == predicted.gradients == predicted.parameters
    assert 0 <= parameters - predicted.parameters < 100
    assert 2 * predicted.parameters <= predicted.optimizer < 2 * predicted.parameters + 1000
    scratch = 2 * max(p.array.nbytes for p in make_model(config).parameters())
    assert 0 <= state - predicted.optimizer < scratch + 1000  # NumPy's kernels keep a buffer
    assert abs(saved - predicted.saved) < 0.1 * saved
    assert predicted.peak > predicted.parameters + predicted.optimizer + predicted.saved
    assert predicted.parameter_count * (8 if options.get("dtype") == "float64" else 4) == (
        predicted.parameters)


def test_a_model_far_too_large_is_predicted_at_once():
    huge = predict_step_bytes(TrainConfig(dim=8192, layers=40, heads=64, context=4096, batch=64))
    assert huge.parameters > 120e9 and huge.peak > 1e12


def test_the_ledger_counts_each_storage_once_and_puts_the_class_back():
    before = MetaArray.__init__
    with MetaLedger() as ledger:
        a = MetaArray((10,), np.float32)
        view = MetaArray((5,), np.float32, a)
        assert ledger.live == 40
        del a
        assert ledger.live == 40  # the view keeps it
        del view
    assert ledger.live == 0 and ledger.peak == 40 and MetaArray.__init__ is before
