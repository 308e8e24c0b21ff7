"""Whole models, built of `adjoint.nn`."""
from adjoint.models.gpt import GPT, GPTConfig

__all__ = ["GPT", "GPTConfig"]
