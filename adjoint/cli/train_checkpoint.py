"""The checkpoint of `adjoint train`: one safetensors file whose metadata holds JSON.

One file, because one rename is what a file system does in one step: killed at any moment, the
folder holds the old checkpoint or the new one. A checksum over everything finds damage.
"""
from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adjoint.cli.train_options import BadInput
from adjoint.io.errors import FileFormatError
from adjoint.io.safetensors import load_numpy, read_header, save_file

NAME = "checkpoint.safetensors"
_VERSION = 1
_OPTIMIZER = "optimizer."


def _checksum(tensors: Mapping[str, np.ndarray], state: str) -> str:
    crc = zlib.crc32(state.encode())
    for name in sorted(tensors):
        crc = zlib.crc32(np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8).data,
                         zlib.crc32(name.encode(), crc))
    return f"{crc:08x}"


def write(folder: Path, tensors: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> None:
    """Replace the checkpoint in `folder` in one atomic step."""
    text = json.dumps({**state, "version": _VERSION}, sort_keys=True)
    save_file(tensors, folder / NAME,
              metadata={"state": text, "crc32": _checksum(tensors, text)})


def read(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Tensors and state; `BadInput` if there is none or it is damaged."""
    path = folder / NAME
    try:
        notes = read_header(path).metadata
        tensors = load_numpy(path)
    except FileNotFoundError:
        raise BadInput(f"--resume: there is no {path}; leave out --resume to start a run, or "
                       f"name the run's folder with --out") from None
    except FileFormatError as error:
        raise BadInput(f"damaged checkpoint: {error}") from None
    text = notes.get("state", "")
    if not text or notes.get("crc32") != _checksum(tensors, text):
        raise BadInput(f"damaged checkpoint: {path}: its checksum does not fit its contents; "
                       f"restore it from a copy, or start a new run")
    state = json.loads(text)
    if state.get("version") != _VERSION:
        raise BadInput(f"{path} was written by another version of this program "
                       f"(format {state.get('version')}, this one reads {_VERSION})")
    return tensors, state


def flatten_optimizer(state: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """An optimizer's `state_dict` as named arrays and a JSON value."""
    tensors: dict[str, np.ndarray] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for index, values in state["state"].items():
        for key, value in values.items():
            if hasattr(value, "array"):
                tensors[f"{_OPTIMIZER}{index}.{key}"] = value.array
            else:
                numbers.setdefault(str(index), {})[key] = value
    return tensors, {"numbers": numbers, "param_groups": state["param_groups"]}


def unflatten_optimizer(tensors: Mapping[str, np.ndarray], rest: Mapping[str, Any],
                        wrap: Any) -> dict[str, Any]:
    """The `state_dict` that `flatten_optimizer` took apart."""
    state: dict[int, dict[str, Any]] = {
        int(index): dict(values) for index, values in rest["numbers"].items()}
    for name, array in tensors.items():
        if name.startswith(_OPTIMIZER):
            index, key = name.removeprefix(_OPTIMIZER).split(".", 1)
            state.setdefault(int(index), {})[key] = wrap(array)
    return {"state": state, "param_groups": rest["param_groups"]}


class FolderLock:
    """Keeps a second run out of a folder; released when the process ends, however it does."""

    def __init__(self, folder: Path) -> None:
        self._file = open(folder / ".lock", "w")
        try:
            import fcntl
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # no such locks on this system
            pass
        except OSError:
            self._file.close()
            raise BadInput(f"{folder} is in use by another run; choose another --out") from None

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()


def prepare_folder(folder: Path, resume: bool) -> FolderLock:
    """Make the folder and check that it can be written to; `BadInput` if not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "no permission to write")
        lock = FolderLock(folder)
    except OSError as error:
        raise BadInput(f"--out {folder}: {error.strerror or error}") from None
    if not resume and (folder / NAME).exists():
        lock.__exit__()
        raise BadInput(f"{folder} already holds a run; continue it with --resume, or choose "
                       f"another --out")
    return lock
