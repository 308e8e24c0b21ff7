"""`adjoint doctor env`: what computes here, for bug reports and for "why is it slow?"."""
from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adjoint.base.text import say
from adjoint.kernels import blas, choose
from adjoint.version import __version__

_OPTIONAL = ("llvmlite", "ml_dtypes", "safetensors", "scipy", "rich", "torch", "jax")
_FEATURES = ("avx512f", "avx512vl", "avx512bf16", "avx512fp16", "amx-tile", "avx2", "fma", "f16c",
             "sve", "neon", "fp16", "bf16")
_VARIABLES = ("ADJOINT_JIT", "ADJOINT_GEMM", "ADJOINT_ALLOC", "ADJOINT_CPU", "ADJOINT_CACHE_DIR",
              "ADJOINT_CACHE_MB", "ADJOINT_NUM_THREADS", "OMP_NUM_THREADS",
              "OPENBLAS_NUM_THREADS")


def facts() -> dict[str, Any]:
    """Everything that `report` prints, as data.

    >>> facts()["kernels"]["kernels"] in ("generated (LLVM)", "NumPy")
    True
    """
    library = blas.library()
    return {
        "versions": {"adjoint": __version__, "python": platform.python_version(),
                     "numpy": np.__version__, "system": platform.platform()},
        "packages": {name: _version(name) for name in _OPTIONAL},
        "kernels": choose.report(),
        "cpus": (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity")
                 else os.cpu_count()),
        "blas_threads": None if library is None else library.get_num_threads(),
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def _version(name: str) -> str:
    if importlib.util.find_spec(name) is None:
        return ""
    from importlib import metadata
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "?"


def _why_not(found: Mapping[str, Any]) -> str:
    """Why there are no generated kernels."""
    if os.environ.get("ADJOINT_JIT", "1").lower() in ("0", "false", "off", "no"):
        return "ADJOINT_JIT is " + os.environ["ADJOINT_JIT"]
    if not found["packages"]["llvmlite"]:
        return "llvmlite is not installed: pip install 'adjoint[jit]'"
    return "llvmlite is broken or too old, or the CPU has no fused multiply-add"


def report() -> str:
    """One page of text: versions, kernels in use, CPU features, threads, cache, allocator.

    >>> "kernels" in report()
    True
    """
    found = facts()
    k, versions = found["kernels"], found["versions"]
    generated = k["kernels"] != "NumPy"
    have = [f"{n} {v}" for n, v in found["packages"].items() if v]
    lack = [n for n, v in found["packages"].items() if not v]
    features = [f for f in _FEATURES if f in k["features"]]
    lines = [
        ("adjoint", f"{versions['adjoint']}, Python {versions['python']}, NumPy "
                    f"{versions['numpy']}"),
        ("system", versions["system"]),
        ("installed", ", ".join(have) or "nothing optional"),
        ("not installed", ", ".join(lack) or "-"),
        ("kernels", k["kernels"] + ("" if generated else f" ({_why_not(found)})")),
    ]
    if generated:
        lines += [
            ("cpu", f"{k['cpu']}, vectors of {k['vector_bits']} bits"),
            ("features", " ".join(features) or "-"),
            ("LLVM", f"{k['llvm']}; kernels are placed in memory by {k['loader']}"),
            ("cache", f"{k['cache']}, files: {k['cache_files']}, {k['cache_bytes'] / 1e6:.1f} MB"),
            ("loaded", ", ".join(sorted(set(k["loaded"]))) or "no kernel yet"),
        ]
    openblas = found["blas_threads"]
    lines += [
        ("threads", f"{k['threads']} of {found['cpus']} CPUs, {k['thread_pool']} pool; OpenBLAS "
                    + (f"{openblas} threads" if openblas is not None else "not found in NumPy")),
        ("allocator", k["allocator"]),
        ("environment", ", ".join(f"{n}={v}" for n, v in found["environment"].items()) or "-"),
    ]
    return "\n".join(f"{name:14} {text}" for name, text in lines)


def run(argv: Sequence[str]) -> int:
    """The command: prints the page, or JSON with `--json`; 2 for other arguments."""
    if list(argv) not in ([], ["--json"]):
        print("usage: adjoint doctor env [--json]", file=sys.stderr)
        return 2
    say(json.dumps(facts(), indent=1) if argv else report())
    return 0
