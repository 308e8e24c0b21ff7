"""Helpers around training: data (`adjoint.utils.data`), checkpointing, plots."""
