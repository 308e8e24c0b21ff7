"""`torch.hub`: files of weights, and models of a local folder. No code is fetched.

Weights are looked for in `get_dir()/checkpoints` first; a URL is opened only where they are not
there, and its hash is compared before the file gets its name.
"""
from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import tempfile
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn
from urllib.parse import urlparse

from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.io import load as _load

MODULE_HUBCONF, VAR_DEPENDENCY = "hubconf.py", "dependencies"
HASH_REGEX = re.compile(r"-([a-f0-9]{8,})\.")
_directory: list[str] = []


def get_dir() -> str:
    """Where weights are kept: `set_dir`, or $TORCH_HOME/hub, or ~/.cache/torch/hub."""
    return _directory[-1] if _directory else str(Path(_get_torch_home()) / "hub")


def _get_torch_home() -> str:
    """The folder of caches: $TORCH_HOME, or ~/.cache/torch."""
    home = os.environ.get("TORCH_HOME") or str(
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch")
    return str(Path(home).expanduser())


def set_dir(d: Any) -> None:
    """Keep weights in the folder `d` from now on."""
    _directory[:] = [str(Path(d).expanduser())]


def download_url_to_file(url: str, dst: Any, hash_prefix: str | None = None,
                         progress: bool = True) -> None:
    """Copy what `url` gives to the file `dst`; raises RuntimeError, and leaves no file, if its
    SHA-256 does not begin with `hash_prefix`."""
    target = Path(dst).expanduser()
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".partial")
    digest = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as out, urllib.request.urlopen(url) as source:
            while piece := source.read(1 << 20):
                out.write(piece)
                digest.update(piece)
                if progress and sys.stderr.isatty():
                    print(f"\r{target.name}: {out.tell() / 1e6:.1f} MB", end="", file=sys.stderr)
        if progress and sys.stderr.isatty():
            print(file=sys.stderr)
        found = digest.hexdigest()
        if hash_prefix is not None and not found.startswith(hash_prefix):
            raise ArgumentError(f'invalid hash value (expected "{hash_prefix}", got "{found}") of '
                                f"{url}")
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


_download_url_to_file = download_url_to_file


def load_state_dict_from_url(url: str, model_dir: Any = None, map_location: Any = None,
                             progress: bool = True, check_hash: bool = False,
                             file_name: str | None = None, weights_only: bool = True) -> Any:
    """The state dict in the file named by `url`, which is fetched once into `model_dir`
    (`get_dir()/checkpoints`). With `check_hash`, a hash in its name (name-<sha256>.pth) must fit.
    """
    folder = Path(model_dir) if model_dir is not None else Path(get_dir()) / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (file_name or os.path.basename(urlparse(url).path))
    if not path.exists():
        print(f'Downloading: "{url}" to {path}', file=sys.stderr)
        found = HASH_REGEX.search(path.name) if check_hash else None
        download_url_to_file(url, path, found[1] if found else None, progress)
    return _load(path, map_location=map_location)


def _entries(folder: Any) -> ModuleType:
    """The module `hubconf.py` of a folder, run with the folder in `sys.path`."""
    where = os.path.expanduser(os.fspath(folder))
    path = os.path.join(where, MODULE_HUBCONF)
    sys.path.insert(0, where)
    try:
        spec = importlib.util.spec_from_file_location(MODULE_HUBCONF, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(where)
    lacking = [name for name in getattr(module, VAR_DEPENDENCY, None) or ()
               if importlib.util.find_spec(name) is None]
    if lacking:
        raise ArgumentError(f"Missing dependencies: {', '.join(lacking)}")
    return module


def _entry(module: ModuleType, name: str) -> Any:
    if not isinstance(name, str):
        raise ArgumentError("Invalid input: model should be a string of function name")
    found = getattr(module, name, None)
    if not callable(found):
        raise ArgumentError(f"Cannot find callable {name} in hubconf")
    return found


def _no_code(name: str) -> NoReturn:
    raise NotSupported(f"hub.{name}: code from repositories is not fetched. Download the "
                       "repository and load it with source='local', install the package that has "
                       "the model, or write it with adjoint.nn; load_state_dict_from_url gives "
                       "the weights")


def load(repo_or_dir: Any, model: Any = None, *args: Any, source: str = "github",
         trust_repo: Any = "check", force_reload: bool = False, verbose: bool = True,
         skip_validation: bool = False, **kwargs: Any) -> Any:
    """`model(*args, **kwargs)` of the file `hubconf.py` in a local folder (`source="local"`).

    Raises NotSupported for a repository (`source="github"`), RuntimeError where the folder has no
    such function, or what its `dependencies` name is not installed.
    """
    source = source.lower()
    if source not in ("github", "local"):
        raise ArgumentError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        _no_code("load")
    return _entry(_entries(repo_or_dir), model)(*args, **kwargs)


def list(github: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises: it would run code from a repository."""
    _no_code("list")


def help(github: Any, model: Any = None, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises: it would run code from a repository."""
    _no_code("help")


__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url",
           "set_dir"]
