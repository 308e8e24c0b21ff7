"""Data sets from local files: IDX (MNIST), CIFAR, text, CSV, NPZ, image folders.

Nothing is downloaded and nothing in a file is executed. A damaged file raises
`FileFormatError` with what is wrong; a missing one FileNotFoundError.
"""
from __future__ import annotations

import csv
import gzip
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.core.tensor import Tensor, wrap
from adjoint.io.errors import FileFormatError
from adjoint.io.pickle_in import SafeUnpickler, find_safe
from adjoint.utils.data.dataset import Dataset, TensorDataset

PathLike = str | os.PathLike[str]
_IDX = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}


def _read(path: PathLike) -> bytes:
    """A file's bytes, unpacked where it is gzipped (by content, not by name)."""
    data = Path(path).read_bytes()
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise FileFormatError(f"{path}: damaged gzip file ({error})") from None


def read_idx(path: PathLike) -> Tensor:
    """An IDX file, the format of MNIST, gzipped or not; shape and dtype are the file's.

    Source of the format: Y. LeCun et al., "The MNIST database of handwritten digits".

    >>> import tempfile; path = tempfile.mktemp()
    >>> _ = Path(path).write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 6, 7]))
    >>> read_idx(path).tolist()
    [5, 6, 7]
    """
    data = _read(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX:
        raise FileFormatError(f"{path}: not an IDX file: it begins with {data[:4]!r}")
    rank, dtype = data[3], np.dtype(_IDX[data[2]])
    shape = tuple(int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(rank))
    start, wanted = 4 + 4 * rank, math.prod(shape) * dtype.itemsize
    if len(data) - start != wanted:
        raise FileFormatError(f"{path}: an IDX file of shape {shape} needs {wanted} data bytes, "
                              f"it has {max(0, len(data) - start)}")
    array = np.frombuffer(data, dtype, offset=start).reshape(shape)
    return wrap(array.astype(dtype.newbyteorder("=")))


def _find(folder: Path, stems: Sequence[str]) -> Path:
    for stem in stems:
        for suffix in ("", ".gz"):
            for sub in ("", "raw", "MNIST/raw"):
                if (found := folder / sub / (stem + suffix)).is_file():
                    return found
    raise FileNotFoundError(f"{folder}: holds none of {', '.join(stems)} (or the same with .gz)")


def mnist(folder: PathLike, train: bool = True) -> TensorDataset:
    """Images (N, 1, 28, 28) float32 in [0, 1] and labels (N,) int64 from the four IDX files.

    Fashion-MNIST, KMNIST and EMNIST in the same layout work too.
    """
    prefix = "train" if train else "t10k"
    images = read_idx(_find(Path(folder), [f"{prefix}-images-idx3-ubyte",
                                           f"{prefix}-images.idx3-ubyte"])).array
    labels = read_idx(_find(Path(folder), [f"{prefix}-labels-idx1-ubyte",
                                           f"{prefix}-labels.idx1-ubyte"])).array
    if images.ndim != 3 or len(images) != len(labels):
        raise FileFormatError(f"{folder}: images of shape {images.shape} and labels of shape "
                              f"{labels.shape} do not belong together")
    return TensorDataset(wrap(images[:, None].astype(np.float32) / np.float32(255)),
                         wrap(labels.astype(np.int64)))


def read_cifar(path: PathLike, classes: int = 10) -> tuple[Tensor, Tensor]:
    """One CIFAR-10 or -100 batch file, binary or python version.

    Returns images (N, 3, 32, 32) uint8 and labels (N,) int64 (the fine ones of CIFAR-100).
    Source of the format: A. Krizhevsky, "Learning multiple layers of features" (2009), data
    page. The python version is a pickle: it is read without executing anything in it.
    """
    if classes not in (10, 100):
        raise ArgumentError(f"read_cifar: classes must be 10 or 100, got {classes}")
    data = _read(path)
    label_bytes = 1 if classes == 10 else 2
    if data[:1] == b"\x80":
        return _cifar_pickle(data, path)
    record = label_bytes + 3072
    if not data or len(data) % record:
        raise FileFormatError(f"{path}: {len(data)} bytes are no whole number of CIFAR-{classes} "
                              f"records of {record} bytes")
    rows = np.frombuffer(data, np.uint8).reshape(-1, record)
    labels = rows[:, label_bytes - 1].astype(np.int64)
    if labels.max() >= classes:
        raise FileFormatError(f"{path}: label {labels.max()} in a CIFAR-{classes} file")
    return wrap(rows[:, label_bytes:].reshape(-1, 3, 32, 32).copy()), wrap(labels)


def _cifar_pickle(data: bytes, path: PathLike) -> tuple[Tensor, Tensor]:
    try:
        content = SafeUnpickler(find_safe, encoding="bytes").load(data)
    except FileFormatError as error:
        raise type(error)(f"{path}: {error}") from None
    content = {k.decode() if isinstance(k, bytes) else k: v for k, v in dict(content).items()}
    labels = content.get("labels", content.get("fine_labels"))
    images = content.get("data")
    if labels is None or not isinstance(images, np.ndarray) or images.shape[1:] != (3072,) or (
            len(labels) != len(images)):
        raise FileFormatError(f"{path}: not a CIFAR batch: it holds {sorted(content)}")
    return (wrap(np.ascontiguousarray(images.reshape(-1, 3, 32, 32), np.uint8)),
            wrap(np.array(labels, np.int64)))


def cifar(folder: PathLike, train: bool = True, classes: int = 10) -> TensorDataset:
    """All batch files of a folder: images (N, 3, 32, 32) float32 in [0, 1], labels (N,) int64."""
    if classes == 10:
        names = [f"data_batch_{i}" for i in range(1, 6)] if train else ["test_batch"]
    else:
        names = ["train"] if train else ["test"]
    root = Path(folder)
    subs = [root, *(root / s for s in ("cifar-10-batches-py", "cifar-10-batches-bin",
                                       "cifar-100-python", "cifar-100-binary"))]
    files = [path for sub in subs for name in names for path in (sub / name, sub / f"{name}.bin")
             if path.is_file()]
    if not files:
        raise FileNotFoundError(f"{folder}: holds none of {', '.join(names)}")
    parts = [read_cifar(path, classes) for path in files]
    images = np.concatenate([image.array for image, _ in parts])
    return TensorDataset(wrap(images.astype(np.float32) / np.float32(255)),
                         wrap(np.concatenate([label.array for _, label in parts])))


class TextDataset(Dataset[tuple[Tensor, Tensor]]):
    """Windows of a byte text: (context,) inputs and the same shifted by one as targets, int64.

    `stride` (default: the context) is the distance between the beginnings of two windows.

    >>> data = TextDataset(b"hello world", context=4)
    >>> len(data), bytes(data[0][0].tolist()), bytes(data[0][1].tolist())
    (2, b'hell', b'ello')
    """

    def __init__(self, text: bytes | PathLike, context: int, stride: int | None = None) -> None:
        data = text if isinstance(text, bytes) else _read(text)
        if context < 1 or (stride is not None and stride < 1):
            raise ArgumentError(f"TextDataset: context {context} and stride {stride} must be "
                                f"positive")
        if len(data) <= context:
            raise ArgumentError(f"TextDataset: the text has {len(data)} bytes; a context of "
                                f"{context} needs at least {context + 1}")
        self.data, self.context = np.frombuffer(data, np.uint8), context
        self.stride = stride or context

    def __len__(self) -> int:
        return (len(self.data) - 1 - self.context) // self.stride + 1

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"TextDataset: window {index} of {len(self)}")
        start = index % len(self) * self.stride
        window = self.data[start:start + self.context + 1].astype(np.int64)
        return wrap(window[:-1]), wrap(window[1:])


class LinesDataset(Dataset[str]):
    """The lines of a UTF-8 text file, without their ends.

    >>> import tempfile; path = tempfile.mktemp()
    >>> _ = Path(path).write_text("one" + chr(10) + "two" + chr(10)); list(LinesDataset(path))
    ['one', 'two']
    """

    def __init__(self, path: PathLike, encoding: str = "utf-8") -> None:
        try:
            self.lines = _read(path).decode(encoding).splitlines()
        except UnicodeDecodeError as error:
            raise FileFormatError(f"{path}: not {encoding} text: {error}") from None

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> str:
        return self.lines[index]


def read_csv(path: PathLike, columns: Sequence[str] | None = None, delimiter: str = ",",
             header: bool = True) -> dict[str, Any]:
    """Columns of a CSV file by name: numbers as tensors, anything else as lists of strings.

    A column is int64 if all its cells are integers, float64 if all are numbers (empty cells
    become NaN). Without `header` columns are called "0", "1", ...

    >>> import tempfile; path = tempfile.mktemp()
    >>> _ = Path(path).write_text(chr(10).join(["n,x,name", "1,0.5,a", "2,,b"]))
    >>> table = read_csv(path); table["n"].tolist(), table["name"]
    ([1, 2], ['a', 'b'])
    """
    with open(path, newline="", encoding="utf-8-sig") as file:
        try:
            rows = [row for row in csv.reader(file, delimiter=delimiter) if row]
        except (csv.Error, UnicodeDecodeError) as error:
            raise FileFormatError(f"{path}: not a CSV file: {error}") from None
    if not rows:
        raise FileFormatError(f"{path}: has no rows")
    names = rows.pop(0) if header else [str(i) for i in range(len(rows[0]))]
    for number, row in enumerate(rows, start=1 + header):
        if len(row) != len(names):
            raise FileFormatError(f"{path}: row {number} has {len(row)} cells, "
                                  f"{len(names)} are needed")
    if missing := set(columns or ()) - set(names):
        raise ArgumentError(f"read_csv: {path} has no column {sorted(missing)}; it has {names}")
    cells = dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))
    return {name: _column(list(cells[name])) for name in (columns or names)}


def _column(cells: list[str]) -> Any:
    for kind in (np.int64, np.float64):
        try:
            filled = [c.strip() or "nan" for c in cells] if kind is np.float64 else cells
            return wrap(np.array([kind(c) for c in filled], kind))
        except (ValueError, OverflowError):
            continue
    return cells


def read_npz(path: PathLike) -> dict[str, Tensor]:
    """The arrays of an .npz (or the one of an .npy, called "data"), pickles refused.

    >>> import tempfile; path = tempfile.mktemp(suffix=".npz")
    >>> np.savez(path, x=np.ones(2)); read_npz(path)["x"].tolist()
    [1.0, 1.0]
    """
    try:
        with open(path, "rb") as file:
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.ndarray):
                return {"data": wrap(content)}
            return {name: wrap(content[name]) for name in content.files}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise FileFormatError(f"{path}: not an .npz file of numbers: {error}") from None


class ImageFolder(Dataset[tuple[Any, int]]):
    """Images in one folder per class; needs Pillow.

    Without a `transform` an item is a (channels, height, width) float32 tensor in [0, 1], and
    the number of its class (folders sorted by name).
    """

    def __init__(self, root: PathLike, transform: Callable[[Any], Any] | None = None,
                 target_transform: Callable[[int], Any] | None = None, mode: str = "RGB") -> None:
        folder = Path(root)
        self.classes = sorted(p.name for p in folder.iterdir() if p.is_dir())
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.samples = [(path, self.class_to_idx[name]) for name in self.classes
                        for path in sorted((folder / name).rglob("*"))
                        if path.suffix.lower() in _IMAGES]
        if not self.samples:
            raise FileNotFoundError(f"{root}: no images in folders, one per class")
        self.targets = [target for _, target in self.samples]
        self.transform, self.target_transform, self.mode = transform, target_transform, mode

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        image = open_image(path, self.mode)
        value = self.transform(image) if self.transform is not None else _image_tensor(image)
        return value, target if self.target_transform is None else self.target_transform(target)


def open_image(path: PathLike, mode: str | None = None) -> Any:
    """A Pillow image, read whole; in the colours of `mode` if given."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise NotSupported("reading images needs Pillow: pip install pillow") from None
    try:
        with Image.open(path) as image:
            return image.convert(mode) if mode else image.copy()
    except (UnidentifiedImageError, OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise FileFormatError(f"{path}: not a whole image: {error}") from None


def _image_tensor(image: Any) -> Tensor:
    array = np.asarray(image, np.float32) / np.float32(255)
    planes = array[None] if array.ndim == 2 else np.moveaxis(array, -1, 0)
    return wrap(np.ascontiguousarray(planes))
