"""`torch.__config__`: what computes here, in words."""
from __future__ import annotations

import numpy as np

from adjoint.ops.threads import get_num_threads
from adjoint.version import __version__


def show() -> str:
    """The parts that compute, one a line.

    >>> show().splitlines()[0].startswith("Adjoint")
    True
    """
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return (f"Adjoint {__version__}\n  - NumPy {np.__version__}\n"
            f"  - BLAS {blas['name']} {blas['version']}\n")


def parallel_info() -> str:
    """How many threads operations run on."""
    return f"ATen/Parallel:\n\tat::get_num_threads() : {get_num_threads()}\n"
