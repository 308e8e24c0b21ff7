"""Reading and writing tensors: PyTorch checkpoints, safetensors, atomic files.

>>> import adjoint as ad, io
>>> buffer = io.BytesIO(); ad.save({"w": ad.zeros(2)}, buffer); _ = buffer.seek(0)
>>> ad.load(buffer)["w"].tolist()
[0.0, 0.0]
"""
from adjoint.io.checkpoint_file import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    load,
    safe_globals,
    save,
)
from adjoint.io.errors import FileFormatError, UnsafePickleError

__all__ = ["FileFormatError", "UnsafePickleError", "add_safe_globals", "clear_safe_globals",
           "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "safe_globals", "save"]
