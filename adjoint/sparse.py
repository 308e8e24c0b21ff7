"""Sparse tensors: the functions of `torch.sparse`.

    >>> import adjoint as ad
    >>> s = ad.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse()
    >>> ad.sparse.mm(s, ad.ones(2, 1))
    tensor([[2.],
            [0.]])
"""
from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

from adjoint.base.errors import missing as _missing
from adjoint.ops.sparse import sampled_addmm as sampled_addmm
from adjoint.ops.sparse import sparse_addmm as addmm
from adjoint.ops.sparse import sparse_log_softmax as log_softmax
from adjoint.ops.sparse import sparse_softmax as softmax
from adjoint.ops.sparse import sparse_sum as sum
from adjoint.ops.sparse_more import as_sparse_gradcheck as as_sparse_gradcheck
from adjoint.ops.sparse_more import sparse_mm as mm
from adjoint.ops.sparse_more import spdiags as spdiags
from adjoint.ops.sparse_tensor import SparseTensor as SparseTensor
from adjoint.settings import check_sparse_tensor_invariants as check_sparse_tensor_invariants

__all__ = ["SparseTensor", "addmm", "as_sparse_gradcheck", "check_sparse_tensor_invariants",
           "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum"]


def __getattr__(name: str) -> _Any:
    """The older constructors, `sparse.FloatTensor`, load when they are first used."""
    found = name.endswith("Tensor") and _importlib.import_module("adjoint.legacy").SPARSE.get(name)
    return found or _missing("adjoint.sparse")(name)
