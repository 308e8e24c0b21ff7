"""functional_call under its older path."""
from __future__ import annotations

from adjoint.func.modules import functional_call as functional_call

__all__ = ["functional_call"]
