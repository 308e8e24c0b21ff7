"""What pipes share: the functions that they are given, and files."""
from __future__ import annotations

import fnmatch
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from io import IOBase
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.core.modes import warn

__all__ = ["StreamWrapper", "get_file_binaries_from_pathnames", "get_file_pathnames_from_root",
           "match_masks", "validate_input_col", "validate_pathname_binary_tuple"]


def check_unpickable(fn: Any) -> None:
    """Warn of a function that no worker could be sent."""
    if not callable(fn):
        raise TypeError(f"A callable function is expected, but {type(fn)} is provided.")
    if isinstance(fn, functools.partial):
        fn = fn.func
    if not inspect.isfunction(fn):
        return
    kind = "Local" if "<locals>" in fn.__qualname__ else "Lambda"
    if kind == "Lambda" and fn.__name__ != "<lambda>":
        return
    warn(f"{kind} function is not supported by pickle, please use regular python function or "
         "functools.partial instead.")


def validate_input_col(fn: Callable[..., Any], input_col: Any) -> None:
    """Raise ValueError if `fn` does not take as many positional arguments as there are columns.

    >>> validate_input_col(lambda a, b: a, [0, 1])
    """
    try:
        given = inspect.signature(fn).parameters.values()
    except ValueError:
        return                             # builtins may have none
    name = getattr(fn, "__name__", repr(fn))
    places = [p for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p.name for p in given if p.kind == p.KEYWORD_ONLY and p.default is p.empty]
    needed = len(input_col) if isinstance(input_col, (list, tuple)) else 1
    if named:
        raise ArgumentError(f"The function {name} takes {len(named)} non-default keyword-only "
                            "parameters, which is not allowed.")
    least = sum(p.default is p.empty for p in places)
    more = any(p.kind == p.VAR_POSITIONAL for p in given)
    if needed < least:
        raise ArgumentError(f"The function {name} takes {least} positional parameters, but "
                            f"{needed} are required.")
    if needed > len(places) and not more:
        raise ArgumentError(f"The function {name} takes {len(places)} parameters, but {needed} "
                            "are required.")


def match_masks(name: str, masks: str | list[str]) -> bool:
    """Does `name` fit one of the patterns, or are there none?

    >>> match_masks("a.txt", "*.t?t"), match_masks("a.txt", ["*.csv"])
    (True, False)
    """
    patterns = [masks] if isinstance(masks, str) else masks
    return not masks or any(fnmatch.fnmatch(name, mask) for mask in patterns)


def get_file_pathnames_from_root(root: str, masks: str | list[str], recursive: bool = False,
                                 abspath: bool = False, non_deterministic: bool = False
                                 ) -> Iterator[str]:
    """The paths of the files in `root` that fit `masks`, sorted unless `non_deterministic`."""
    def failed(error: OSError) -> None:
        warn(f"{error.filename} : {error.strerror}")
        raise error

    if os.path.isfile(root):
        path = os.path.abspath(root) if abspath else root
        if match_masks(os.path.basename(path), masks):
            yield path
        return
    for folder, folders, files in os.walk(root, onerror=failed):
        where = os.path.abspath(folder) if abspath else folder
        if not non_deterministic:
            files.sort()
            folders.sort()
        for name in files:
            if match_masks(name, masks):
                yield os.path.join(where, name)
        if not recursive:
            return


def get_file_binaries_from_pathnames(pathnames: Iterable[Any], mode: str,
                                     encoding: str | None = None
                                     ) -> Iterator[tuple[str, StreamWrapper]]:
    """(path, opened file) of every path."""
    for path in pathnames:
        if not isinstance(path, str):
            raise TypeError("Expected string type for pathname, but got "
                            f"{type(path)}")
        yield path, StreamWrapper(open(path, "r" + mode if mode in "bt" else mode,
                                       encoding=encoding))


def validate_pathname_binary_tuple(data: Any) -> None:
    """Raise TypeError unless `data` is (path, binary stream)."""
    if not isinstance(data, tuple):
        raise TypeError(f"pathname binary data should be tuple type, but it is type {type(data)}")
    if len(data) != 2:
        raise TypeError("pathname binary stream tuple length should be 2, but got "
                        f"{len(data)}")
    if not isinstance(data[0], str):
        raise TypeError("pathname within the tuple should have string type pathname, but it is "
                        f"type {type(data[0])}")
    if not isinstance(data[1], (IOBase, StreamWrapper)):
        raise TypeError("binary stream within the tuple should have IOBase or its subclasses as "
                        f"type, but it is type {type(data[1])}")


class StreamWrapper:
    """A file, which is closed when the last reference to it goes.

    >>> import io
    >>> stream = StreamWrapper(io.StringIO("two"))
    >>> stream.read(2)
    'tw'
    """

    def __init__(self, file_obj: Any, parent_stream: Any = None, name: str | None = None) -> None:
        self.file_obj, self.name, self.closed = file_obj, name, False
        self.parent_stream = parent_stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["file_obj"], name)

    def close(self, *args: Any, **kwargs: Any) -> None:
        """Close the file."""
        self.closed = True
        self.file_obj.close(*args, **kwargs)

    def autoclose(self) -> None:
        """Close the file."""
        self.close()

    def __iter__(self) -> Iterator[Any]:
        yield from self.file_obj

    def __next__(self) -> Any:
        return next(self.file_obj)

    def __dir__(self) -> list[str]:
        return [*self.__dict__, "autoclose", "close", *dir(self.file_obj)]

    def __del__(self) -> None:
        if not self.__dict__.get("closed", True):
            self.close()

    def __repr__(self) -> str:
        if self.name is None:
            return f"StreamWrapper<{self.file_obj!r}>"
        return f"StreamWrapper<{self.name},{self.file_obj!r}>"

    def __getstate__(self) -> Any:
        return self.file_obj

    def __setstate__(self, held: Any) -> None:
        self.file_obj, self.name, self.closed, self.parent_stream = held, None, False, None
