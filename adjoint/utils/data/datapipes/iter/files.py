"""Files: their names, the opened ones, what is in them, and what that means."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.core.modes import warn
from adjoint.utils.data.datapipes._decorator import functional_datapipe
from adjoint.utils.data.datapipes.datapipe import IterDataPipe
from adjoint.utils.data.datapipes.iter.utils import IterableWrapperIterDataPipe
from adjoint.utils.data.datapipes.iter.utils import length as _length
from adjoint.utils.data.datapipes.utils.common import (
    get_file_binaries_from_pathnames,
    get_file_pathnames_from_root,
)
from adjoint.utils.data.datapipes.utils.decoder import (
    Decoder,
    basichandlers,
    extension_extract_fn,
    imagehandler,
)

__all__ = ["FileListerIterDataPipe", "FileOpenerIterDataPipe", "RoutedDecoderIterDataPipe",
           "StreamReaderIterDataPipe"]


def _said(pipe: Any, length: int) -> int:
    if length == -1:
        raise TypeError(f"{type(pipe).__name__} instance doesn't have valid length")
    return length


@functional_datapipe("list_files")
class FileListerIterDataPipe(IterDataPipe[str]):
    """The paths of the files in `root`, one folder or several, whose names fit `masks`.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     open(os.path.join(folder, "a.txt"), "w").close()
    ...     [os.path.basename(p) for p in FileListerIterDataPipe(folder, "*.txt")]
    ['a.txt']
    """

    def __init__(self, root: Any = ".", masks: str | list[str] = "", *, recursive: bool = False,
                 abspath: bool = False, non_deterministic: bool = False, length: int = -1) -> None:
        roots = [root] if isinstance(root, str) else root
        self.datapipe: Any = roots if isinstance(roots, IterDataPipe) else (
            IterableWrapperIterDataPipe(roots))
        self.masks, self.recursive, self.abspath = masks, recursive, abspath
        self.non_deterministic, self.length = non_deterministic, length

    def __iter__(self) -> Iterator[str]:
        for root in self.datapipe:
            yield from get_file_pathnames_from_root(root, self.masks, self.recursive, self.abspath,
                                                    self.non_deterministic)

    def __len__(self) -> int:
        return _said(self, self.length)


@functional_datapipe("open_files")
class FileOpenerIterDataPipe(IterDataPipe[Any]):
    """(path, file) of every path, opened with `mode` ("r", "b", "t", ...)."""

    def __init__(self, datapipe: Iterable[str], mode: str = "r", encoding: str | None = None,
                 length: int = -1) -> None:
        if mode not in ("b", "t", "rb", "rt", "r"):
            raise ArgumentError(f"Invalid mode {mode}")
        if "b" in mode and encoding is not None:
            raise ArgumentError("binary mode doesn't take an encoding argument")
        self.datapipe, self.mode, self.encoding, self.length = datapipe, mode, encoding, length

    def __iter__(self) -> Iterator[Any]:
        yield from get_file_binaries_from_pathnames(self.datapipe, self.mode, self.encoding)

    def __len__(self) -> int:
        return _said(self, self.length)


@functional_datapipe("read_from_stream")
class StreamReaderIterDataPipe(IterDataPipe[Any]):
    """(name, what is in the file), whole or in pieces of `chunk`.

    >>> import io
    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([("a", io.StringIO("abc"))]).read_from_stream(chunk=2))
    [('a', 'ab'), ('a', 'c')]
    """

    def __init__(self, datapipe: IterDataPipe[Any], chunk: int | None = None) -> None:
        self.datapipe, self.chunk = datapipe, chunk

    def __iter__(self) -> Iterator[Any]:
        for name, stream in self.datapipe:
            while piece := stream.read(self.chunk):
                yield name, piece
                if self.chunk is None:
                    break


@functional_datapipe("routed_decode")
class RoutedDecoderIterDataPipe(IterDataPipe[Any]):
    """(path, decoded) of (path, binary stream): the first handler that has an answer gives it.

    Without handlers the basic ones (json, txt, pickle, cls, ...) and images decode.

    >>> import io
    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     list(IterableWrapper([("a.json", io.BytesIO(b"[1]"))]).routed_decode())
    [('a.json', [1])]
    """

    def __init__(self, datapipe: Iterable[Any], *handlers: Callable[..., Any],
                 key_fn: Callable[[str], str] = extension_extract_fn) -> None:
        warn("`RoutedDecoderIterDataPipe()` and its functional API `.routed_decode()` are "
             "deprecated since 1.12 and will be removed in 1.13.", FutureWarning)
        self.datapipe = datapipe
        self.decoder = Decoder(*(handlers or (basichandlers, imagehandler("torch"))),
                               key_fn=key_fn)

    def add_handler(self, *handler: Callable[..., Any]) -> None:
        """Ask these first."""
        self.decoder.add_handler(*handler)

    def __iter__(self) -> Iterator[Any]:
        for name, stream in self.datapipe:
            found = self.decoder([(name, stream)])
            yield name, found[name]

    def __len__(self) -> int:
        return _length(self, self.datapipe)
