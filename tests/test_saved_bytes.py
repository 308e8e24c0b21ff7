"""What ops keep for backward, beside what PyTorch's saved-tensor hooks see (issue 2: no residual
that the wanted gradients do not need)."""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import adjoint as ad

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import saved_bytes  # noqa: E402  (the benchmarks are not part of the package)

# the log-sum-exp of every row, so that backward need not sum again; PyTorch's 4 bytes are a weight
EXTRA = {"cross_entropy": 4 * saved_bytes.N - 4}


@pytest.mark.filterwarnings("ignore")        # (PyTorch's words about reductions)
@pytest.mark.parametrize(
    ("name", "wanted", "case"), saved_bytes.CASES,
    ids=[f"{name}-{wanted}" for name, wanted, _ in saved_bytes.CASES])
def test_no_more_than_pytorch(name: str, wanted: str, case: Any) -> None:
    ours = saved_bytes.kept("adjoint", ad, wanted, case)
    theirs = saved_bytes.kept("torch", torch, wanted, case)
    assert ours is not None and theirs is not None
    assert ours <= theirs + max(saved_bytes.NUMBER, EXTRA.get(name, 0))
