"""Data sets of one folder per class, and the base of all data sets of images."""
from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.utils.data.dataset import Dataset
from adjoint.utils.data.readers import open_image

Transform = Callable[[Any], Any] | None
Samples = list[tuple[str, int]]
IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class StandardTransform:
    """Two transforms as one of an image and its target."""

    def __init__(self, transform: Transform = None, target_transform: Transform = None) -> None:
        self.transform, self.target_transform = transform, target_transform

    def __call__(self, input: Any, target: Any) -> tuple[Any, Any]:
        if self.transform is not None:
            input = self.transform(input)
        return input, target if self.target_transform is None else self.target_transform(target)

    def __repr__(self) -> str:
        lines = [type(self).__name__]
        for head, transform in (("Transform: ", self.transform),
                                ("Target transform: ", self.target_transform)):
            if transform is not None:
                first, *rest = str(transform).splitlines() or [""]
                lines += [head + first, *(" " * len(head) + line for line in rest)]
        return "\n".join(lines)


class VisionDataset(Dataset[tuple[Any, Any]]):
    """Base: a root folder, and either `transforms` of (image, target) or one transform each.

    >>> VisionDataset("images", transform=abs).transforms(-1, 5)
    (1, 5)
    """

    def __init__(self, root: Any = None, transforms: Callable[[Any, Any], Any] | None = None,
                 transform: Transform = None, target_transform: Transform = None) -> None:
        self.root = os.path.expanduser(root) if isinstance(root, str) else root
        self.transform, self.target_transform = transform, target_transform
        if transform is not None or target_transform is not None:
            if transforms is not None:
                raise ArgumentError("Only transforms or transform/target_transform can be passed "
                                    "as argument")
            transforms = StandardTransform(transform, target_transform)
        self.transforms = transforms

    def _changed(self, image: Any, target: Any) -> tuple[Any, Any]:
        return StandardTransform(self.transform, self.target_transform)(image, target)

    def __len__(self) -> int:
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Further lines of the text that `repr` gives; for subclasses."""
        return ""

    def __repr__(self) -> str:
        lines = [f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            lines.append(f"Root location: {self.root}")
        lines += self.extra_repr().splitlines()
        if self.transforms is not None:
            first, *rest = repr(self.transforms).splitlines()
            return "\n".join([f"Dataset {type(self).__name__}",
                              *("    " + line for line in [*lines, first]), *rest])
        return "\n".join([f"Dataset {type(self).__name__}", *("    " + line for line in lines)])


def has_file_allowed_extension(filename: str, extensions: Any) -> bool:
    """Whether the name ends in one of `extensions` (a text or several), in either case.

    >>> has_file_allowed_extension("a.PNG", (".png",))
    True
    """
    return filename.lower().endswith(extensions if isinstance(extensions, str)
                                     else tuple(extensions))


def is_image_file(filename: str) -> bool:
    """Whether the name ends as one of `IMG_EXTENSIONS`."""
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)


def find_classes(directory: str | Path) -> tuple[list[str], dict[str, int]]:
    """The names of the folders in a folder, sorted, and name -> number.

    Raises FileNotFoundError if there are none."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: i for i, name in enumerate(classes)}


def make_dataset(directory: str | Path, class_to_idx: dict[str, int] | None = None,
                 extensions: Any = None, is_valid_file: Callable[[str], bool] | None = None,
                 allow_empty: bool = False) -> Samples:
    """(path, class number) of each file below the classes' folders, sorted by path.

    extensions, is_valid_file    which files count: exactly one of the two

    Raises FileNotFoundError for a class without a file, unless `allow_empty`."""
    directory = os.path.expanduser(directory)
    if class_to_idx is None:
        class_to_idx = find_classes(directory)[1]
    elif not class_to_idx:
        raise ArgumentError("'class_to_index' must have at least one entry to collect any samples.")
    if (extensions is None) == (is_valid_file is None):
        raise ArgumentError("Both extensions and is_valid_file cannot be None or not None at the "
                            "same time")
    valid = is_valid_file or (lambda path: has_file_allowed_extension(path, extensions))
    samples, empty = [], []
    for name in sorted(class_to_idx):
        found = [path for folder, _, names in sorted(os.walk(os.path.join(directory, name),
                                                             followlinks=True))
                 for file in sorted(names) if valid(path := os.path.join(folder, file))]
        samples += [(path, class_to_idx[name]) for path in found]
        if not found:
            empty.append(name)
    if empty and not allow_empty:
        text = f"Found no valid file for the classes {', '.join(empty)}. "
        if extensions is not None:
            text += "Supported extensions are: " + (
                extensions if isinstance(extensions, str) else ", ".join(extensions))
        raise FileNotFoundError(text)
    return samples


def pil_loader(path: str | Path) -> Any:
    """A Pillow image in RGB. Needs Pillow."""
    return open_image(path, "RGB")


def default_loader(path: str | Path) -> Any:
    """What `ImageFolder` reads a file with: `pil_loader`."""
    return pil_loader(path)


class DatasetFolder(VisionDataset):
    """One folder per class, of files that `loader(path)` reads. Items are (value, class number).

    extensions, is_valid_file    which files count: exactly one of the two
    allow_empty                  a class may be without a file

    `classes`, `class_to_idx`, `samples` (path, number) and `targets` tell what was found.
    """

    def __init__(self, root: str | Path, loader: Callable[[str], Any], extensions: Any = None,
                 transform: Transform = None, target_transform: Transform = None,
                 is_valid_file: Callable[[str], bool] | None = None,
                 allow_empty: bool = False) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.make_dataset(self.root, self.class_to_idx, extensions, is_valid_file,
                                         allow_empty)
        self.loader, self.extensions = loader, extensions
        self.targets = [target for _, target in self.samples]

    @staticmethod
    def make_dataset(directory: str | Path, class_to_idx: dict[str, int], extensions: Any = None,
                     is_valid_file: Callable[[str], bool] | None = None,
                     allow_empty: bool = False) -> Samples:
        """`make_dataset`; a subclass may find its files otherwise."""
        return make_dataset(directory, class_to_idx, extensions, is_valid_file, allow_empty)

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        """`find_classes`; a subclass may name its classes otherwise."""
        return find_classes(directory)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self._changed(self.loader(path), target)


class ImageFolder(DatasetFolder):
    """One folder per class of images, which Pillow reads unless another `loader` is given."""

    def __init__(self, root: str | Path, transform: Transform = None,
                 target_transform: Transform = None, loader: Callable[[str], Any] = default_loader,
                 is_valid_file: Callable[[str], bool] | None = None,
                 allow_empty: bool = False) -> None:
        super().__init__(root, loader, IMG_EXTENSIONS if is_valid_file is None else None,
                         transform, target_transform, is_valid_file, allow_empty)
        self.imgs = self.samples
