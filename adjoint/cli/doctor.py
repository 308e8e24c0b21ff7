"""`adjoint doctor script.py [args]`: run a program, then say what is wrong with how it trains.

    adjoint doctor train.py --epochs 1     the script with its own arguments
    adjoint doctor env                     about this installation
    adjoint doctor codes                   the table of codes
"""
from __future__ import annotations

import argparse
import importlib
import importlib.util
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from adjoint.base.errors import ArgumentError
from adjoint.base.text import say
from adjoint.cli.parser import Parser
from adjoint.cli.run import serve_torch
from adjoint.inspect.doctor import codes, doctor

FOUND = 1       # exit code where the script ran and something was found


def run(argv: Sequence[str]) -> int:
    """The command: 0 without findings, 1 with some (or after an exception), 2 for bad input."""
    if argv and argv[0] == "env":
        return _environment(list(argv[1:]))
    parser = Parser(
        prog="adjoint doctor", description=(__doc__ or "").splitlines()[0],
        epilog="adjoint doctor env: about this installation; adjoint doctor codes: the codes")
    parser.add_argument("--json", metavar="FILE", help="write findings as JSON ('-': stdout)")
    parser.add_argument("--ignore", metavar="CODES", default="", help="AD002,AD021: not these")
    parser.add_argument("--as-torch", action="store_true",
                        help="serve `import torch` from this package")
    parser.add_argument("script", help="the Python program, or: env, codes")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    given = parser.parse_args(list(argv))
    ignore = [c.strip() for c in given.ignore.split(",") if c.strip()]
    try:
        watcher = doctor(ignore=ignore, quiet=True)
    except ArgumentError as error:
        parser.error(f"--ignore: {error}")
    if given.script == "codes":
        say(_codes())
        return 0
    path = Path(given.script)
    if not path.is_file():
        print(f"adjoint doctor: no file {given.script}", file=sys.stderr)
        return 2
    if given.as_torch:
        serve_torch()
    failed = _watch(watcher, path, [given.script, *given.args])
    if given.json == "-":
        print(watcher.to_json())
    else:
        say(watcher.report())
        if not watcher.findings:
            say("\n" + watcher.symptoms.table())
    if given.json and given.json != "-":
        Path(given.json).write_text(watcher.to_json(), encoding="utf-8")
    return FOUND if failed or watcher.findings else 0


def _watch(watcher: doctor, path: Path, argv: list[str]) -> bool:
    """Run the script as `__main__` under the doctor; True if it ended with an exception."""
    before = sys.argv, sys.path[:]
    sys.argv, sys.path[:] = argv, [str(path.resolve().parent), *sys.path]
    try:
        with watcher:
            runpy.run_path(str(path), run_name="__main__")
    except KeyboardInterrupt:
        print("adjoint doctor: interrupted; this is what was seen until then", file=sys.stderr)
        return True
    except SystemExit as stop:
        return bool(stop.code)
    except Exception:  # the script's own: shown as Python would, then explained
        traceback.print_exc()
        return True
    finally:
        sys.argv, sys.path[:] = before
    return False


def _environment(argv: list[str]) -> int:
    name = "adjoint.cli.doctor_env"
    if importlib.util.find_spec(name) is None:
        print("adjoint doctor: env is not part of this version", file=sys.stderr)
        return 2
    return int(importlib.import_module(name).run(argv) or 0)


def _codes() -> str:
    return "\n".join(f"{c.code}  {c.title}\n       {c.cause}\n       fix: {c.fix}" for c in codes())
