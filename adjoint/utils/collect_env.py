"""`torch.utils.collect_env`: what a bug report begins with. `adjoint doctor env` says more.

    >>> "Python version" in get_pretty_env_info()
    True
"""
from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from adjoint import version
from adjoint.base.errors import missing
from adjoint.ops.threads import get_num_threads

_PACKAGES = ("adjoint", "llvmlite", "ml_dtypes", "mypy", "numpy", "safetensors", "scipy", "torch")
_NONE = "N/A"


class SystemEnv(NamedTuple):
    """What was found; None where there is nothing to find (a GPU's driver)."""

    torch_version: str
    is_debug_build: str
    cuda_compiled_version: str
    os: str
    libc_version: str
    python_version: str
    python_platform: str
    is_cuda_available: str
    pip_version: str
    pip_packages: str
    cpu_info: str
    gcc_version: str | None = None
    clang_version: str | None = None
    cmake_version: str | None = None
    cuda_runtime_version: str | None = None
    cuda_module_loading: str | None = None
    nvidia_driver_version: str | None = None
    nvidia_gpu_models: str | None = None
    cudnn_version: str | None = None
    is_xpu_available: str = "False"
    conda_packages: str | None = None
    hip_compiled_version: str = _NONE
    hip_runtime_version: str = _NONE
    miopen_runtime_version: str = _NONE
    caching_allocator_config: str = _NONE
    is_xnnpack_available: str = "False"


_LINES = (("PyTorch version", "torch_version"), ("Is debug build", "is_debug_build"),
          ("CUDA used to build PyTorch", "cuda_compiled_version"), ("", ""), ("OS", "os"),
          ("Libc version", "libc_version"), ("", ""), ("Python version", "python_version"),
          ("Python platform", "python_platform"), ("Is CUDA available", "is_cuda_available"))


def get_platform() -> str:
    """`sys.platform`, or the one of "linux", "win32", "cygwin", "darwin" that it starts with."""
    return next((n for n in ("linux", "win32", "cygwin", "darwin") if sys.platform.startswith(n)),
                sys.platform)


def get_python_platform() -> str:
    """What `platform.platform` says.

    >>> get_python_platform() == platform.platform()
    True
    """
    return platform.platform()


def get_libc_version() -> str:
    """The C library, on Linux; else "N/A"."""
    return "-".join(platform.libc_ver()) if get_platform() == "linux" else _NONE


def get_os() -> str:
    """The system's name and the machine it is for."""
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        name = f"{platform.system()} {platform.release()}"
    return f"{name} ({platform.machine()})"


def get_pip_packages(patterns: Sequence[str] | None = None) -> tuple[str, str]:
    """("pip3", lines of `name==version`) of the packages whose names are or contain one of
    `patterns`; by default those that decide what runs here."""
    found = set()
    for d in importlib.metadata.distributions():
        name = d.metadata["Name"] or ""
        if name in _PACKAGES if patterns is None else any(p in name for p in patterns):
            found.add(f"{name}=={d.version}")
    return "pip3", "\n".join(sorted(found))


def get_cpu_info() -> str:
    """The processor, and the threads that operations run on."""
    return (f"Architecture: {platform.machine()}\nModel name: "
            f"{platform.processor() or platform.machine()}\nThreads: {get_num_threads()}")


def get_env_info() -> SystemEnv:
    """Everything that the report says, by name."""
    pip, packages = get_pip_packages()
    served = getattr(version, "__version__", "")
    return SystemEnv(
        torch_version=str(served), is_debug_build="False", cuda_compiled_version="None",
        os=get_os(), libc_version=get_libc_version(),
        python_version=f"{sys.version} ({sys.maxsize.bit_length() + 1}-bit runtime)".replace(
            "\n", " "),
        python_platform=get_python_platform(), is_cuda_available="False", pip_version=pip,
        pip_packages=packages, cpu_info=get_cpu_info())


def pretty_str(envinfo: SystemEnv) -> str:
    """The report, as text."""
    held: dict[str, Any] = envinfo._asdict()
    lines = [f"{label}: {held[name]}" if label else "" for label, name in _LINES]
    packages = [f"[{envinfo.pip_version}] {p}" for p in envinfo.pip_packages.splitlines()]
    return "\n".join([*lines, "", "CPU:", envinfo.cpu_info, "",
                      "Versions of relevant libraries:", *packages])


def get_pretty_env_info() -> str:
    """`pretty_str(get_env_info())`."""
    return pretty_str(get_env_info())


def main() -> None:
    """Print the report: `python -m adjoint.utils.collect_env`."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


__getattr__ = missing("adjoint.utils.collect_env")
if __name__ == "__main__":
    main()
