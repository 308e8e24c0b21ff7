"""What the bytes of a file mean, by the extension of its name."""
from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint.base.errors import AssertedError
from adjoint.core.tensor import wrap
from adjoint.io import load

__all__ = ["Decoder", "ImageHandler", "basichandlers", "extension_extract_fn",
           "handle_extension", "imagehandler"]


def basichandlers(extension: str, data: Any) -> Any:
    """Text, numbers, JSON and tensors by their extensions; None for another one.

    >>> basichandlers("txt", b"hey"), basichandlers("cls", b"3")
    ('hey', 3)
    """
    if extension in ("txt", "text", "transcript"):
        return data.decode("utf-8")
    if extension in ("cls", "cls2", "class", "count", "index", "inx", "id"):
        try:
            return int(data)
        except ValueError:
            return None
    if extension in ("json", "jsn"):
        return json.loads(data)
    if extension in ("pt", "pyd", "pickle"):
        return load(io.BytesIO(data))                    # nothing is executed
    return None


def handle_extension(extensions: str, f: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    """A handler that decodes by `f` what ends in one of the extensions, "jpg jpeg".

    >>> handle_extension("txt", bytes.decode)("a.txt", b"x")
    'x'
    """
    known = extensions.lower().split()

    def handler(key: str, data: Any) -> Any:
        parts = key.lower().split(".")
        for target in known:
            wanted = target.split(".")
            if len(wanted) <= len(parts) and parts[-len(wanted):] == wanted:
                return f(data)
        return None
    return handler


_IMAGES = {"l8": (None, "uint8", "l"), "rgb8": (None, "uint8", "rgb"),
           "rgba8": (None, "uint8", "rgba"), "l": ("numpy", "float", "l"),
           "rgb": ("numpy", "float", "rgb"), "rgba": ("numpy", "float", "rgba"),
           "torchl8": ("torch", "uint8", "l"), "torchrgb8": ("torch", "uint8", "rgb"),
           "torchrgba8": ("torch", "uint8", "rgba"), "torchl": ("torch", "float", "l"),
           "torchrgb": ("torch", "float", "rgb"), "torch": ("torch", "float", "rgb"),
           "torchrgba": ("torch", "float", "rgba"), "pill": ("pil", None, "l"),
           "pil": ("pil", None, "rgb"), "pilrgb": ("pil", None, "rgb"),
           "pilrgba": ("pil", None, "rgba")}


class ImageHandler:
    """Decodes images through Pillow, as `imagespec` says: "torch" a float tensor (3, H, W),
    "rgb8" an array (H, W, 3) of bytes, "pil" Pillow's image."""

    def __init__(self, imagespec: str) -> None:
        spec = imagespec.lower()
        if spec not in _IMAGES:
            raise AssertedError(f"unknown image specification: {spec}")
        self.imagespec = spec

    def __call__(self, extension: str, data: Any) -> Any:
        if extension.lower() not in ("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm"):
            return None
        try:
            from PIL import Image
        except ImportError as error:
            raise ModuleNotFoundError("Package `PIL` is required to be installed for default "
                                      "image decoder: pip install pillow") from error
        kind, number, mode = _IMAGES[self.imagespec]
        image = Image.open(io.BytesIO(data)).convert(mode.upper())
        if kind == "pil":
            return image
        array = np.asarray(image)
        if number == "float":
            array = array.astype(np.float32) / 255
        if kind != "torch":
            return array
        return wrap(np.ascontiguousarray(array.transpose(2, 0, 1) if array.ndim == 3 else array))


def imagehandler(imagespec: str) -> ImageHandler:
    """The handler of images for a specification; see `ImageHandler`."""
    return ImageHandler(imagespec)


def extension_extract_fn(pathname: str) -> str:
    """What stands after the last dot.

    >>> extension_extract_fn("a.tar.gz")
    'gz'
    """
    return pathname.rpartition(".")[2] if "." in pathname else ""


class Decoder:
    """Decodes (path, stream) pairs by handlers, asked in turn with the key of the path."""

    def __init__(self, *handler: Callable[..., Any],
                 key_fn: Callable[[str], str] = extension_extract_fn) -> None:
        self.handlers, self.key_fn = list(handler), key_fn

    def add_handler(self, *handler: Callable[..., Any]) -> None:
        """Ask these first."""
        self.handlers = [*handler, *self.handlers]

    def decode1(self, key: str, data: Any) -> Any:
        """The first answer that is not None, or the data."""
        for handler in self.handlers:
            found = handler(key, data)
            if found is not None:
                return found
        return data

    def __call__(self, data: Any) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, held in (data.items() if isinstance(data, dict) else data):
            if hasattr(held, "read"):
                stream, held = held, held.read()
                stream.close()
            out[name] = self.decode1(self.key_fn(name), held)
        return out
