"""The gallery: the examples of the source texts, recorded."""
from __future__ import annotations

from pathlib import Path


def write_gallery(folder: str | Path) -> list[Path]:
    """Write the gallery."""
    return []
