"""`autograd.numpy.numpy_wrapper`: the functions of `autograd.numpy`."""
from typing import Any

from adjoint.hips import numpy as _numpy


def __getattr__(name: str) -> Any:
    return getattr(_numpy, name)
