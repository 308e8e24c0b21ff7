"""`torch.__future__`: how modules take converted and loaded values."""
from __future__ import annotations

from adjoint.nn.modules._conversion import CONVERSION


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether `Module.to`, `double`, `to_empty` and the like give a module new parameters, and
    leave the old ones as they were. By default the parameters stay and take the new values.

    >>> import adjoint as ad
    >>> set_overwrite_module_params_on_conversion(True)
    >>> layer = ad.nn.Linear(2, 2); old = layer.weight
    >>> layer.double().weight.dtype, old.dtype
    (adjoint.float64, adjoint.float32)
    >>> set_overwrite_module_params_on_conversion(False)
    """
    CONVERSION["overwrite"] = value


def get_overwrite_module_params_on_conversion() -> bool:
    """What `set_overwrite_module_params_on_conversion` was told last; False at first.

    >>> get_overwrite_module_params_on_conversion()
    False
    """
    return CONVERSION["overwrite"]


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether conversions, and `load_state_dict`, exchange a parameter with its new value by
    `utils.swap_tensors`; a loaded value is made by `Tensor.module_load`. It goes before
    `set_overwrite_module_params_on_conversion`. A parameter with views is refused (RuntimeError).

    >>> import adjoint as ad
    >>> set_swap_module_params_on_conversion(True)
    >>> layer = ad.nn.Linear(2, 2); held = layer.weight
    >>> layer.double().weight is held, held.dtype
    (True, adjoint.float64)
    >>> set_swap_module_params_on_conversion(False)
    """
    CONVERSION["swap"] = value


def get_swap_module_params_on_conversion() -> bool:
    """What `set_swap_module_params_on_conversion` was told last; False at first.

    >>> get_swap_module_params_on_conversion()
    False
    """
    return CONVERSION["swap"]
