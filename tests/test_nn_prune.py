"""Pruning beside PyTorch's: masks, hooks, repeated pruning, errors that leave the module alone."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.nn.utils import prune

WEIGHT = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
BIAS = np.random.default_rng(1).normal(size=4).astype(np.float32)


def linear(m: Any) -> Any:
    out = m.nn.Linear(6, 4)
    out.load_state_dict({"weight": m.tensor(WEIGHT), "bias": m.tensor(BIAS)})
    return out


def twice(p: Any, m: Any) -> Any:
    return p.ln_structured(p.l1_unstructured(m, "weight", 0.3), "weight", 0.5, 1, -1)


def thrice(p: Any, m: Any) -> Any:
    return p.l1_unstructured(p.l1_unstructured(twice(p, m), "weight", 2), "weight", 0.5)


def everywhere(p: Any, m: Any) -> Any:
    p.l1_unstructured(m, "weight", 3)
    p.global_unstructured([(m, "weight"), (m, "bias")], p.L1Unstructured, amount=0.4)
    return m


PROGRAMS = {
    "l1 count": lambda p, m: p.l1_unstructured(m, "weight", 7),
    "l1 fraction": lambda p, m: p.l1_unstructured(m, "bias", 0.38),
    "l1 nothing": lambda p, m: p.l1_unstructured(m, "weight", 0),
    "ln rows": lambda p, m: p.ln_structured(m, "weight", 2, 2, 0),
    "ln columns": lambda p, m: p.ln_structured(m, "weight", 0.4, float("inf"), 1),
    "identity": lambda p, m: p.identity(m, "bias"),
    "twice": twice,
    "thrice": thrice,
    "global": everywhere,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_masks_values_and_gradients_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    import torch.nn.utils.prune as theirs

    results = []
    for library, module in ((torch, theirs), (ad, prune)):
        m = PROGRAMS[name](module, linear(library))
        m(library.ones(2, 6)).sum().backward()
        found = {k: v.detach().numpy() for k, v in m.state_dict().items()}
        found |= {f"{k}.grad": v.grad.numpy() for k, v in m.named_parameters()}
        results.append((found, [type(h).__name__ for h in m._forward_pre_hooks.values()]))
    (a, hooks), (b, own) = results
    assert hooks == own and a.keys() == b.keys()
    for k in a:
        np.testing.assert_allclose(b[k], a[k], rtol=1e-6)


def test_random_pruning_takes_the_number_asked_for() -> None:
    m = prune.random_unstructured(linear(ad), "weight", 0.25)
    assert int((m.weight_mask == 0).sum()) == 6
    prune.random_structured(m, "weight", 2, 1)
    lines = (m.weight_mask.sum(0) == 0).sum()
    assert int(lines) >= 2 and len(next(iter(m._forward_pre_hooks.values()))) == 2


def test_removing_keeps_the_zeros_and_the_parameter() -> None:
    m = linear(ad)
    parameter = m.weight
    prune.remove(prune.l1_unstructured(m, "weight", 20), "weight")
    assert m.weight is parameter and not prune.is_pruned(ad.nn.Sequential(m))
    assert int((m.weight != 0).sum()) == 4 and set(dict(m.named_buffers())) == set()


def test_scores_are_ranked_in_place_of_the_values() -> None:
    scores = ad.arange(24.0).reshape(4, 6)
    m = prune.l1_unstructured(linear(ad), "weight", 6, importance_scores=scores)
    np.testing.assert_array_equal(m.weight_mask.numpy()[0], np.zeros(6))
    assert int(m.weight_mask.sum()) == 18


@pytest.mark.parametrize(("kind", "text", "call"), [
    (ValueError, "range \\[0, 1\\]", lambda m: prune.l1_unstructured(m, "weight", 1.5)),
    (ValueError, "amount=25 .* prune=24", lambda m: prune.l1_unstructured(m, "weight", 25)),
    (TypeError, "Invalid type for amount", lambda m: prune.l1_unstructured(m, "weight", "a")),
    (IndexError, "Invalid index 5", lambda m: prune.ln_structured(m, "weight", 1, 2, 5)),
    (ValueError, "multidimensional", lambda m: prune.random_structured(m, "bias", 1, 0)),
    (ValueError, "has to be pruned before", lambda m: prune.remove(m, "weight")),
    (AttributeError, "nope", lambda m: prune.identity(m, "nope")),
    (ValueError, "must match", lambda m: prune.custom_from_mask(m, "weight", ad.ones(2))),
    (TypeError, "structured", lambda m: prune.global_unstructured(
        [(m, "weight")], prune.LnStructured, amount=1, n=2)),
    (ValueError, "same shape", lambda m: prune.l1_unstructured(m, "weight", 1, ad.ones(2))),
])
def test_a_refusal_leaves_the_module_as_it_was(kind: type[Exception], text: str,
                                               call: Any) -> None:
    m = linear(ad)
    before = dict(m.named_parameters())
    with pytest.raises(kind, match=text):
        call(m)
    assert dict(m.named_parameters()) == before and not prune.is_pruned(m)
