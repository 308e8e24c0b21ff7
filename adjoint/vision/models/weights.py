"""The names of pretrained weights, which are never fetched, and the weights networks begin with."""
from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from adjoint import nn
from adjoint.base.errors import NotSupported
from adjoint.core.tensor import Tensor
from adjoint.nn import init


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


def _small(weight: Tensor) -> Any:
    return init.normal_(weight, 0, 0.01)


def start(model: nn.Module, linear: Callable[[Tensor], Any] = _small) -> None:
    """He initialisation of the convolutions (He et al. 2015), `linear` for the weights of linear
    layers, zeros for the biases of both; norms begin as ones and zeros by themselves."""
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(m, nn.Linear):
            linear(m.weight)
        if isinstance(m, (nn.Conv2d, nn.Linear)) and m.bias is not None:
            init.zeros_(m.bias)


__all__ = ["Weights", "no_weights", "start"]
