"""L2: declarations of operations, and the public functions with PyTorch's signatures."""
import importlib as _importlib
from typing import Any as _Any

from adjoint.ops import accelerate as accelerate
from adjoint.ops import activation as activation
from adjoint.ops import api_arrange as api_arrange
from adjoint.ops import api_decompose as api_decompose
from adjoint.ops import api_index as api_index
from adjoint.ops import api_inplace as api_inplace
from adjoint.ops import api_join as api_join
from adjoint.ops import api_linalg as api_linalg
from adjoint.ops import api_names as api_names
from adjoint.ops import api_pointwise as api_pointwise
from adjoint.ops import api_reduce as api_reduce
from adjoint.ops import api_scatter as api_scatter
from adjoint.ops import api_shape as api_shape
from adjoint.ops import api_small as api_small
from adjoint.ops import api_sort as api_sort
from adjoint.ops import arrange as arrange
from adjoint.ops import attention as attention
from adjoint.ops import batch_norm as batch_norm
from adjoint.ops import conv as conv
from adjoint.ops import convert as convert
from adjoint.ops import create as create
from adjoint.ops import cross_entropy as cross_entropy
from adjoint.ops import cumulative as cumulative
from adjoint.ops import decompose as decompose
from adjoint.ops import dropout as dropout
from adjoint.ops import einsum as einsum
from adjoint.ops import embedding as embedding
from adjoint.ops import fourier as fourier
from adjoint.ops import gather as gather
from adjoint.ops import group_norm as group_norm
from adjoint.ops import householder as householder
from adjoint.ops import index as index
from adjoint.ops import least_squares as least_squares
from adjoint.ops import linalg as linalg
from adjoint.ops import loss as loss
from adjoint.ops import lu as lu
from adjoint.ops import moments as moments
from adjoint.ops import more as more
from adjoint.ops import network as network
from adjoint.ops import norm as norm
from adjoint.ops import pointwise as pointwise
from adjoint.ops import pool as pool
from adjoint.ops import random as random
from adjoint.ops import ranges as ranges
from adjoint.ops import recurrent as recurrent
from adjoint.ops import reduce as reduce
from adjoint.ops import shape as shape
from adjoint.ops import softmax as softmax
from adjoint.ops import sort as sort
from adjoint.ops import sparse as sparse
from adjoint.ops import special as special
from adjoint.ops import threads as threads
from adjoint.ops import vision as vision

NAMESPACES: dict[str, _Any] = {}        # of operators that programs define (`adjoint.library`)
_LATE = ("aten", "ctc", "fake_quantize", "ldl", "linear_loss", "lowrank", "native",
         "random_counts", "resample", "segments", "sparse_more", "sparse_rules")


def __getattr__(name: str) -> _Any:
    """Records that few programs need load when they are first used."""
    if name in _LATE:
        return _importlib.import_module(f"adjoint.ops.{name}")
    if name in NAMESPACES:
        return NAMESPACES[name]
    raise AttributeError(f"module 'adjoint.ops' has no attribute {name!r}")
