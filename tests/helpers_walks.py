"""Programs whose walks the page tests open, and the browser that opens them."""
from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import adjoint as ad
from adjoint import nn
from adjoint.inspect.walk import Walk

F = nn.functional
EVIL = "</script><script>window.evil=1</script><img src=x onerror='window.evil=1'>"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]


def relu_of_linear(budget: int | None = None) -> Walk:
    """y = relu(x @ W + b), forward and backward (F5)."""
    x = ad.tensor([[1.0, 2.0], [3.0, -4.0]])
    W = ad.tensor([[1.0, -1.0], [0.5, 2.0]], requires_grad=True)
    b = ad.tensor([0.1, 0.2], requires_grad=True)
    with ad.record("relu(x @ W + b)", budget=budget) as walk:
        z1 = x @ W
        z2 = z1 + b
        y = z2.relu()
        loss = y.sum()
        loss.backward()
    return walk


class Block(nn.Module):
    """Attention and a feed-forward part, each with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        n, s, d = x.shape
        parts = self.qkv(self.norm1(x)).split(d, dim=2)
        q, k, v = (p.view(n, s, self.heads, d // self.heads).transpose(1, 2) for p in parts)
        scores = q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5
        mixed = scores.softmax(dim=-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(n, s, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Tiny(nn.Module):
    """A few blocks and a head."""

    def __init__(self, blocks: int, width: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, 2) for _ in range(blocks)])
        self.head = nn.Linear(width, 5)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def training(blocks: int, events: int, budget: int | None = None) -> Walk:
    """Steps of AdamW on a small transformer until there are that many events."""
    model = Tiny(blocks)
    optimizer = ad.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = ad.randn(2, 4, 8), ad.randint(0, 5, (8,))
    with ad.record("Training a small transformer", budget=budget) as walk:
        while len(walk) < events:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x).view(-1, 5), y)
            loss.backward()
            optimizer.step()
    return walk


@cache
def five_thousand() -> str:
    """The page of a walk of that many events, with a budget that is too small."""
    return training(blocks=4, events=5000, budget=30_000).html()


def executable() -> str | None:
    """The browser of this machine."""
    named = os.environ.get("ADJOINT_CHROMIUM")
    return named or next((p for b in BROWSERS if (p := shutil.which(b))), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser; skips the test, saying why, where there is none."""
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = executable()
    if path is None:
        pytest.skip("no Chromium found: install Debian's package chromium, or name one in "
                    "ADJOINT_CHROMIUM")
    with sync.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def screenshot(page: Any, name: str, folder: Path) -> None:
    """A picture of the page in `folder`, and in the folder that ADJOINT_SCREENSHOTS names."""
    target = folder / f"{name}.png"
    page.screenshot(path=str(target))
    assert target.stat().st_size > 10_000, "an empty page"
    keep = os.environ.get("ADJOINT_SCREENSHOTS")
    if keep:
        Path(keep).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target, Path(keep) / target.name)
