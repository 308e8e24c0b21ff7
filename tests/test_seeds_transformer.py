"""The checkpointed transformer of the guide, small in the quick suite and as written in the slow
one.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers_engine import exact, saved_by, values

import adjoint as ad
from adjoint.utils.checkpoint import checkpoint

nn = ad.nn


class TransformerBlock(nn.Module):  # type: ignore[misc,name-defined]
    """Attention and feed-forward with residual connections, norm after."""

    def __init__(self, d_model: int = 512, nhead: int = 8) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, nhead, batch_first=True)
        self.ffn = nn.Sequential(
            nn.Linear(d_model, d_model * 4), nn.GELU(), nn.Linear(d_model * 4, d_model)
        )
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(self, x: Any) -> Any:
        attn_out, _ = self.attn(x, x, x)
        x = self.norm1(x + attn_out)
        return self.norm2(x + self.ffn(x))


class CheckpointedTransformer(nn.Module):  # type: ignore[misc,name-defined]
    """Embedding, checkpointed blocks, projection to the vocabulary."""

    def __init__(
        self, n_layers: int = 12, d_model: int = 512, vocabulary: int = 50000, save: bool = True
    ) -> None:
        super().__init__()
        self.save = save
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.layers = nn.ModuleList([TransformerBlock(d_model) for _ in range(n_layers)])
        self.output_proj = nn.Linear(d_model, vocabulary)

    def forward(self, x: Any) -> Any:
        x = self.embedding(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.save else layer(x)
        return self.output_proj(x)


def three_lines(model: CheckpointedTransformer) -> list[str]:
    attention = model.layers[0].attn.in_proj_weight.grad
    return [
        f"Embedding gradient exists: {model.embedding.weight.grad is not None}",
        f"Layer 0 attention gradient exists: {attention is not None}",
        f"All parameters received gradients: {all(p.grad is not None for p in model.parameters())}",
    ]


EXPECTED = [
    "Embedding gradient exists: True",
    "Layer 0 attention gradient exists: True",
    "All parameters received gradients: True",
]


def test_small() -> None:
    """F82: three times True, and the output shape."""
    model = CheckpointedTransformer(n_layers=3, d_model=32, vocabulary=100)
    out = model(ad.randint(0, 100, (4, 16)))
    assert tuple(out.shape) == (4, 16, 100)
    out.sum().backward()
    assert three_lines(model) == EXPECTED


def test_same_gradients_as_without_checkpoints() -> None:
    """F70, F82: bit for bit, parameter by parameter."""
    gradients = []
    for save in (True, False):
        ad.manual_seed(0)
        model = CheckpointedTransformer(n_layers=2, d_model=16, vocabulary=50, save=save)
        ad.manual_seed(1)
        tokens = ad.randint(0, 50, (2, 8))
        (model(tokens) ** 2).mean().backward()
        gradients.append([(name, values(p.grad)) for name, p in model.named_parameters()])
    for (name, a), (_, b) in zip(*gradients, strict=True):
        assert (a == b).all(), name


def test_saves_less() -> None:
    """F70, F71: what the blocks keep shrinks to their inputs."""
    kept = []
    for save in (True, False):
        model = CheckpointedTransformer(n_layers=4, d_model=32, vocabulary=50, save=save)
        tokens = ad.randint(0, 50, (2, 16))
        _, arrays = saved_by(lambda model=model, tokens=tokens: model(tokens))
        kept.append(sum(a.nbytes for a in arrays))
    assert kept[0] < kept[1] / 5


def test_printing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """F81: a side effect inside a checkpointed block happens in forward and again in backward."""

    def block(x: Any) -> Any:
        print("block")
        return x.sin().exp()

    x = ad.ones(2, requires_grad=True)
    y = checkpoint(block, x, use_reentrant=False)
    assert capsys.readouterr().out == "block\n"
    y.sum().backward()
    assert capsys.readouterr().out == "block\n"


def test_dropout_block() -> None:
    """F81: dropout inside a checkpointed block sees the same mask in both runs."""
    ad.manual_seed(0)
    dropout = nn.Dropout(0.5)
    x = ad.ones(100, requires_grad=True)
    y = checkpoint(lambda t: dropout(t * 1.0), x, use_reentrant=False)
    y.sum().backward()
    exact(x.grad, values(y))


@pytest.mark.slow
def test_as_written() -> None:
    """F82: n_layers=12, d_model=512, batch (4, 64), vocabulary 50000."""
    model = CheckpointedTransformer(n_layers=12, d_model=512)
    out = model(ad.randint(0, 50000, (4, 64)))
    assert tuple(out.shape) == (4, 64, 50000)
    out.sum().backward()
    assert three_lines(model) == EXPECTED
