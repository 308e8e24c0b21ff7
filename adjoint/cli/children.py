"""What a program's own processes import: the same modules as the program.

`adjoint run --as-torch` serves `torch` in its own process. A process that the program starts anew
(`multiprocessing` with "spawn" or "forkserver", `subprocess`) is a plain Python, which finds
modules along `PYTHONPATH`; so a folder is put first there that has one small module per served
package. Imported, it serves the packages in that process too, and gives its place to the real one.
"""
from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

_STANDING = """import importlib, sys
from adjoint.cli.run import {serve}
del sys.modules[__name__]
{serve}()
sys.modules[__name__] = importlib.import_module(__name__)
"""


@contextlib.contextmanager
def inherited(serve: str, packages: Iterable[str]) -> Iterator[None]:
    """Within it, processes started anew call `serve` (of `cli.run`) when they import a package.

    >>> with inherited("serve_program", ["torch"]):
    ...     (Path(sys.path[0]) / "torch.py").is_file(), sys.path[0] in os.environ["PYTHONPATH"]
    (True, True)
    """
    before = os.environ.get("PYTHONPATH")
    with tempfile.TemporaryDirectory(prefix="adjoint-run-") as folder:
        for name in packages:
            (Path(folder) / f"{name}.py").write_text(_STANDING.format(serve=serve))
        home = str(Path(__file__).resolve().parents[2])        # where `adjoint` itself is found
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, before, home)))
        sys.path.insert(0, folder)                             # "spawn" hands this list on
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):
                sys.path.remove(folder)
            if before is None:
                os.environ.pop("PYTHONPATH", None)
            else:
                os.environ["PYTHONPATH"] = before
