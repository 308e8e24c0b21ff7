"""Where in the user's program an op was called: recorded cheaply, resolved only when asked.

A node keeps the code object and the instruction offset of the nearest frame outside of this
package; `locate` turns the pair into ``file:line``.
"""
from __future__ import annotations

import linecache
import os
import sys
import warnings
from types import CodeType, FrameType

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class _Files(dict[str, bool]):
    """File name of a code object -> is it a module of this package, or code that it generates?"""

    def __missing__(self, name: str) -> bool:
        own = self[name] = name.startswith(PACKAGE) and name.endswith(".py")
        return own


inside = _Files({"<adjoint rule>": True})


def is_own_code(code: CodeType) -> bool:
    """True for code of this package."""
    return inside[code.co_filename]


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The nearest frame outside of the package, from `frame` outwards."""
    while frame is not None and inside[frame.f_code.co_filename]:
        frame = frame.f_back
    return frame


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest frame outside of the package."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and inside[frame.f_code.co_filename]:
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, category, stacklevel=depth)


def line_of(code: CodeType | None, lasti: int) -> int:
    """The line number that instruction offset `lasti` of `code` belongs to."""
    if code is None:
        return 0
    for start, end, line in code.co_lines():
        if start <= lasti < end and line is not None:
            return line
    return code.co_firstlineno


def locate(code: CodeType | None, lasti: int) -> str:
    """``file:line in function`` of a recorded place, or ``unknown place``."""
    if code is None:
        return "unknown place"
    return f"{code.co_filename}:{line_of(code, lasti)} in {code.co_name}"


def source_line(code: CodeType | None, lasti: int) -> str:
    """The text of the recorded line, stripped; empty where the source cannot be read."""
    if code is None:
        return ""
    return linecache.getline(code.co_filename, line_of(code, lasti)).strip()


def here(frame: FrameType | None) -> str:
    """``file:line in function`` of the nearest user frame from `frame` outwards."""
    frame = user_frame(frame)
    if frame is None:
        return "unknown place"
    return locate(frame.f_code, frame.f_lasti)
