"""`jax._src.config`: every flag by its name, with its value and as a context."""
from __future__ import annotations

from typing import Any

from adjoint.jax._dtypes import FLAGS, Config, Flag, config

update, read, parse_flags_with_absl = config.update, config.read, config.parse_flags_with_absl
State = Flag


def __getattr__(name: str) -> Any:
    if name == "FLAGS":
        return config
    if name in FLAGS:
        return FLAGS[name]
    raise AttributeError(f"Unrecognized config option: {name}")


__all__ = ["Config", "Flag", "State", "config", "parse_flags_with_absl", "read", "update"]
