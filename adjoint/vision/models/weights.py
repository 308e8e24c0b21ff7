"""The names of pretrained weights, which are never fetched."""
from __future__ import annotations

from enum import Enum
from typing import Any

from adjoint.base.errors import NotSupported
from adjoint.core.tensor import Tensor


class Weights(Enum):
    """The names of pretrained weights, as programs pass them; see `no_weights`.

    >>> Weights.DEFAULT.name
    'IMAGENET1K_V1'
    """

    IMAGENET1K_V1 = "IMAGENET1K_V1"
    DEFAULT = IMAGENET1K_V1

    def transforms(self) -> Any:
        """What the weights expect of an image (PIL or tensor): 224 x 224, in [0, 1], less
        ImageNet's mean and over its spread."""
        from adjoint.vision import transforms as T

        def floats(image: Any) -> Tensor:
            return (T.functional.convert_image_dtype(image) if isinstance(image, Tensor)
                    else T.functional.to_tensor(image))

        return T.Compose([T.Resize(256), T.CenterCrop(224), floats,
                          T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])


def no_weights(name: str, weights: Any, pretrained: bool) -> None:
    """NotSupported where a program asks for weights that would have to be fetched."""
    if weights is not None or pretrained:
        raise NotSupported(f"{name}: pretrained weights are not fetched; make {name}() and load a "
                           "local file: model.load_state_dict(adjoint.load(path))")


__all__ = ["Weights", "no_weights"]
