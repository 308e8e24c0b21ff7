"""What `save` and `load` do where a call does not say: `config.load.mmap`,
`config.load.mmap_flags`, `config.load.endianness`, `config.save.storage_alignment`; and `patch` for
the length of a block.

`load.calculate_storage_offsets`, `save.compute_crc32` and `save.use_pinned_memory_for_d2h` are
noted alone: offsets are read off the file's directory, checksums always written, and there is no
other device to copy from.

    >>> from adjoint.utils.serialization import config
    >>> config.save.storage_alignment
    64
"""
from __future__ import annotations

from adjoint.io.options import LOAD as load
from adjoint.io.options import SAVE as save
from adjoint.io.options import patch as patch

__all__ = ["load", "patch", "save"]
