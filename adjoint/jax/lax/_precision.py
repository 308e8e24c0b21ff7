"""How exact a product has to be. Products here are exact in their dtype, so that a request is
checked, and changes nothing."""
from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from adjoint.jax._dtypes import SCALARS


class Precision(enum.Enum):
    """How exact a product has to be; also by XLA's words: `Precision("tensorfloat32")`."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return _WORDS.get(value) if value is None or isinstance(value, str) else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name


_WORDS: dict[Any, Precision] = {
    "highest": Precision.HIGHEST, "float32": Precision.HIGHEST, "high": Precision.HIGH,
    "bfloat16_3x": Precision.HIGH, "tensorfloat32": Precision.HIGH, "default": Precision.DEFAULT,
    "bfloat16": Precision.DEFAULT, "fastest": Precision.DEFAULT, None: Precision.DEFAULT}


class DotAlgorithm(NamedTuple):
    """The dtypes in which a product is computed."""

    lhs_precision_type: object
    rhs_precision_type: object
    accumulation_type: object
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


_PRESETS = ("DEFAULT ANY_F8_ANY_F8_F32 ANY_F8_ANY_F8_F32_FAST_ACCUM ANY_F8_ANY_F8_ANY "
            "ANY_F8_ANY_F8_ANY_FAST_ACCUM F16_F16_F16 F16_F16_F32 BF16_BF16_BF16 BF16_BF16_F32 "
            "BF16_BF16_F32_X3 BF16_BF16_F32_X6 BF16_BF16_F32_X9 TF32_TF32_F32 TF32_TF32_F32_X3 "
            "F32_F32_F32 F64_F64_F64").split()
_TYPES = {"F16": "float16", "BF16": "bfloat16", "TF32": "float32", "F32": "float32",
          "F64": "float64"}


class _Preset(enum.Enum):
    """What the members of `DotAlgorithmPreset` say about themselves."""

    def __repr__(self) -> str:
        return f"DotAlgorithmPreset.{self.name}"

    def __str__(self) -> str:
        return self.name

    def _type(self, place: int) -> Any:
        name = _TYPES.get(([*self.name.split("_"), "", "", ""])[place])
        return None if name is None else SCALARS[name].dtype

    @property
    def accumulation_type(self) -> Any:
        """The dtype of the sums."""
        return np.dtype(np.float32).type if self.name.startswith("ANY") and "F32" in self.name \
            else None if self._type(2) is None else self._type(2).type

    @property
    def supported_lhs_types(self) -> Any:
        """The dtypes that the first operand may have, None for any."""
        kind = self._type(0)
        if kind is None:
            return None
        wide = ("BF16_BF16_BF16", "BF16_BF16_F32")
        if self.name.startswith("BF16_BF16_F32_X"):
            return (np.float32,)
        return (kind.type, np.float32) if self.name in wide else (kind.type,)

    supported_rhs_types = supported_lhs_types


_make: Any = _Preset
DotAlgorithmPreset: Any = _make("DotAlgorithmPreset", _PRESETS)
PrecisionLike = (str | Precision | tuple[str, str] | tuple[Precision, Precision] | DotAlgorithm
                 | _Preset | None)
_ON_CPU = frozenset({"DEFAULT", "F16_F16_F16", "F32_F32_F32", "F64_F64_F64", "BF16_BF16_F32",
                     "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9"})


def check(precision: Any, op: str = "dot_general") -> None:
    """ValueError for what asks for no precision, or for one that JAX has on no CPU."""
    if precision is None or isinstance(precision, Precision):
        return
    if isinstance(precision, str) and precision in DotAlgorithmPreset.__members__:
        precision = DotAlgorithmPreset[precision]
    if isinstance(precision, DotAlgorithm) or (isinstance(precision, _Preset)
                                               and precision.name not in _ON_CPU):
        raise ValueError(f"The precision '{precision}' is not supported by {op} on CPU")
    if isinstance(precision, _Preset):
        return
    each = precision if isinstance(precision, (tuple, list)) else (precision, precision)
    bad = [p for p in each if not isinstance(p, Precision) and not (
        isinstance(p, str) and p in _WORDS)]
    if bad or len(each) != 2:
        got = bad[0] if bad and len(each) == 2 else precision
        raise ValueError(
            "Precision argument must be one of:\n- None,\n- a string in "
            f"{list(_WORDS)},\n- a lax.Precision value,\n- a tuple of two lax.Precision values or "
            "strings,\n- a lax.DotAlgorithmPreset or the name of one of these presets, or\n- a "
            f"lax.DotAlgorithm value;\nbut got {got}.")


__all__ = ["DotAlgorithm", "DotAlgorithmPreset", "Precision", "PrecisionLike", "check"]
