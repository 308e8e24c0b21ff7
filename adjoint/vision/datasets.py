"""Data sets of images in local files. Items are (image, label); images are Pillow images where
Pillow is installed, else uint8 arrays (height, width[, channels]): `transforms` take both."""
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.generator import Generator
from adjoint.ops.random import rand, randint
from adjoint.utils.data import readers
from adjoint.vision import folders
from adjoint.vision.folders import DatasetFolder as DatasetFolder
from adjoint.vision.folders import ImageFolder as ImageFolder
from adjoint.vision.folders import Transform
from adjoint.vision.folders import VisionDataset as VisionDataset

__path__: list[str] = []               # a package, as there: `datasets.folder` is imported
folder = vision = folders


def _image(array: Any) -> Any:
    """A Pillow image of a uint8 array where Pillow is installed, else the array."""
    try:
        from PIL import Image
    except ImportError:
        return array
    return Image.fromarray(array)


def _local(load: Callable[[], Any], name: str, root: Any, download: bool) -> Any:
    try:
        return load()
    except FileNotFoundError as error:
        hint = "; nothing is downloaded here: put the files there first" if download else \
            ". You can use download=True elsewhere, or put the files there"
        raise RuntimeError(f"Dataset not found: {name} in {root} ({error}){hint}") from None


class _InMemory(VisionDataset):
    """Images in `data`, one label each."""

    classes: list[str]
    data: Any
    train: bool

    def extra_repr(self) -> str:
        """Which half of the data set it is."""
        return f"Split: {'Train' if self.train else 'Test'}"

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Class name -> label."""
        return {name: i for i, name in enumerate(self.classes)}

    def __len__(self) -> int:
        return len(self.data)


class MNIST(_InMemory):
    """Handwritten digits, 28x28: the four IDX files, gzipped or not, in `root` or
    `root/MNIST/raw`. `download=True` is accepted and changes nothing."""

    classes = ["0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six",
               "7 - seven", "8 - eight", "9 - nine"]

    def __init__(self, root: str | Path, train: bool = True, transform: Transform = None,
                 target_transform: Transform = None, download: bool = False) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        place = Path(os.path.expanduser(root))
        own = place / type(self).__name__ / "raw"
        data = _local(lambda: readers.mnist(own if own.is_dir() else place, train),
                      type(self).__name__, root, download)
        images, labels = data.tensors
        self.data = wrap(np.rint(images.array[:, 0] * 255).astype(np.uint8))
        self.targets = labels

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._changed(_image(self.data.array[index]), int(self.targets.array[index]))


class FashionMNIST(MNIST):
    """Clothes, in the layout of MNIST."""

    classes = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
               "Bag", "Ankle boot"]


class KMNIST(MNIST):
    """Japanese characters, in the layout of MNIST."""

    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]


class CIFAR10(_InMemory):
    """Colour images, 32x32, of ten classes: the python or the binary files."""

    classes = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship",
               "truck"]
    _classes = 10

    def __init__(self, root: str | Path, train: bool = True, transform: Transform = None,
                 target_transform: Transform = None, download: bool = False) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        data = _local(lambda: readers.cifar(os.path.expanduser(root), train, self._classes),
                      type(self).__name__, root, download)
        images, labels = data.tensors
        self.data = np.moveaxis(np.rint(images.array * 255).astype(np.uint8), 1, -1)
        self.targets = labels.tolist()

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = np.ascontiguousarray(self.data[index])
        return self._changed(_image(image), self.targets[index])


class CIFAR100(CIFAR10):
    """The same with a hundred classes (called by number)."""

    classes = [str(i) for i in range(100)]
    _classes = 100


class FakeData(VisionDataset):
    """Random images of a given size, the same for the same index."""

    def __init__(self, size: int = 1000, image_size: tuple[int, int, int] = (3, 224, 224),
                 num_classes: int = 10, transform: Transform = None,
                 target_transform: Transform = None, random_offset: int = 0) -> None:
        super().__init__(None, transform=transform, target_transform=target_transform)
        if size < 0 or num_classes < 1:
            raise ArgumentError(f"FakeData: size {size} and num_classes {num_classes} must be "
                                "positive")
        self.size, self.num_classes = size, num_classes
        self.image_size, self.random_offset = image_size, random_offset

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not 0 <= index < self.size:
            raise IndexError(f"FakeData: index {index} of {self.size}")
        source = Generator().manual_seed(index + self.random_offset)
        image: Tensor = rand(*self.image_size, generator=source)
        target = int(randint(0, self.num_classes, (1,), generator=source).item())
        pixels = np.moveaxis((image.array * 255).astype(np.uint8), 0, -1)
        pixels = pixels[..., 0] if pixels.shape[-1] == 1 else np.ascontiguousarray(pixels)
        return self._changed(_image(pixels), target)
