"""Functions that are no methods, in a process where this package is `torch`.

PyTorch's functions are built in, and Python makes no methods of those: after `pool = torch.conv2d`
in the body of a class, `self.pool(x, w)` gets x and w alone. Here they are functions of Python,
which would get `self` before them. So every class that is made has such attributes kept static.
What is written in Python there too (`torch.norm`, `F.cross_entropy`) is a method in both.
"""
from __future__ import annotations

import builtins
import functools
from types import FunctionType
from typing import Any

import adjoint
from adjoint import fft, linalg, special
from adjoint.nn import functional

# Functions of `torch` itself that are written in Python there.
PYTHON = frozenset((
    "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors",
    "cartesian_prod", "cdist", "chain_matmul", "compile", "einsum", "is_storage", "is_tensor", "lu",
    "meshgrid", "norm", "pca_lowrank", "save", "split", "stft", "svd_lowrank", "tensordot",
    "typename", "unique", "unique_consecutive", "unravel_index", "vmap"))
# Functions of `torch.nn.functional` that are built in there.
BUILT_IN = frozenset((
    "adaptive_avg_pool1d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "bilinear", "celu_",
    "channel_shuffle", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "elu_", "gelu", "hardshrink",
    "hardtanh_", "leaky_relu_", "linear", "logsigmoid", "native_channel_shuffle", "one_hot",
    "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "prelu", "relu_", "rrelu_",
    "scaled_dot_product_attention", "selu_", "softplus", "softshrink", "threshold_"))


def built_in(value: Any) -> bool:
    """Is this function one that is built in in PyTorch?"""
    home = getattr(value, "__module__", None) or ""     # (None: made by exec without a name)
    if type(value) is not FunctionType or not home.startswith(("torch", "adjoint")):
        return False
    name = value.__name__
    if name not in PYTHON and vars(adjoint).get(name) is value:
        return True
    return (name in BUILT_IN and vars(functional).get(name) is value) or any(
        vars(module).get(name) is value for module in (linalg, fft, special))


def keep_static() -> None:
    """From now on, in the classes that this process makes outside of this package."""
    build = builtins.__build_class__
    if isinstance(build, functools.partial):
        return

    def made(build: Any, body: Any, name: str, /, *bases: Any, **options: Any) -> Any:
        cls = build(body, name, *bases, **options)
        if isinstance(cls, type) and not cls.__module__.startswith("adjoint."):
            for key in [k for k, v in vars(cls).items() if built_in(v)]:
                type.__setattr__(cls, key, staticmethod(vars(cls)[key]))
        return cls
    setattr(builtins, "__build_class__", functools.partial(made, build))  # noqa: B010  # as above
