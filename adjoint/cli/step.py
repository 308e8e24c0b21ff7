"""`adjoint step script.py`: run a script, record its forward and backward, and walk through it.

The script runs as `__main__` with its own arguments. The walk is written as one HTML file that
opens from disk, or served on 127.0.0.1. If the script fails, what ran until then is kept.
"""
from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from adjoint.base.errors import AdjointError, ArgumentError
from adjoint.cli.parser import Parser
from adjoint.cli.run import serve_torch
from adjoint.inspect.gallery import write_gallery
from adjoint.inspect.practice import check_engine
from adjoint.inspect.record import record
from adjoint.inspect.serve import Server
from adjoint.inspect.walk import Walk
from adjoint.inspect.walk_text import size
from adjoint.memory.sizes import parse_bytes


def _parser() -> Parser:
    p = Parser(
        prog="adjoint step", description=__doc__.splitlines()[0], allow_abbrev=False,
        usage="adjoint step [options] script.py [script options]",
        epilog="options of the script that have the same name as one of these go after --")
    p.add_argument("script", nargs="?", help="the Python program")
    p.add_argument("--as-torch", action="store_true",
                   help="serve `import torch` from this package")
    p.add_argument("-o", "--output", metavar="FILE", help="where to write the page (.json: the "
                   "data); default: NAME.walk.html in this folder")
    p.add_argument("--serve", action="store_true", help="serve it on 127.0.0.1 instead")
    p.add_argument("--port", type=int, default=0, help="of the server; default: a free one")
    p.add_argument("--open", action="store_true", help="open it in the browser")
    p.add_argument("--text", action="store_true", help="print the walk, write nothing")
    p.add_argument("--budget", type=_bytes, metavar="BYTES", help="a line in the memory bar, "
                   "such as 500kB or 2GB")
    p.add_argument("--limit", type=int, default=20_000, metavar="N", help="events to record")
    p.add_argument("--gallery", metavar="DIR", help="write the gallery of examples to a folder")
    p.add_argument("--check-engine", metavar="FILE", help="judge an engine of your own (practice "
                   "problem 7 of the gallery)")
    return p


def _bytes(text: str) -> int:
    try:
        value = parse_bytes(text)
    except ArgumentError:
        value = 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes; write 500kB or 2GB")
    return value


def run(argv: Sequence[str]) -> int:
    """The command: returns the exit code, the script's where it has one.

    >>> run(["no_such_file.py"])
    2
    """
    parser = _parser()
    own, after = list(argv), []
    if "--" in own:
        cut = own.index("--")
        own, after = own[:cut], own[cut + 1:]
    given, rest = parser.parse_known_args(own)
    try:
        if given.gallery:
            for path in write_gallery(given.gallery):
                print(f"wrote {path}")
            return 0
        if given.check_engine:
            verdict = check_engine(given.check_engine)
            print(verdict.text)
            return int(not verdict)
        if given.script is None:
            parser.error("give a script, or --gallery DIR")
        if not Path(given.script).is_file():
            print(f"adjoint step: no file {given.script}", file=sys.stderr)
            return 2
        folder = Path(given.output or ".").parent
        if not folder.is_dir():                 # said before the script runs, not after
            parser.error(f"--output: no folder {folder}")
        if given.as_torch:
            serve_torch()
        walk, code = recorded(given.script, [*rest, *after], given.budget, given.limit)
        _show(walk, given)
    except AdjointError as error:
        print(f"adjoint step: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"adjoint step: {error}", file=sys.stderr)
        return 2
    return code


def recorded(script: str, args: Sequence[str], budget: int | None = None,
             limit: int = 20_000) -> tuple[Walk, int]:
    """Run a script under recording; returns the walk and the script's exit code."""
    recorder = record(Path(script).name, budget=budget, limit=limit)
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).resolve().parent))
    code = 0
    try:
        with recorder:
            runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except KeyboardInterrupt:
        print(f"adjoint step: interrupted; {len(recorder.walk)} events are kept", file=sys.stderr)
        code = 130
    except Exception:
        traceback.print_exc()
        code = 1
    return recorder.walk, code


def _show(walk: Walk, given: argparse.Namespace) -> None:
    if not walk.events:
        print("adjoint step: the script ran no operation of adjoint; `import torch` programs need "
              "--as-torch, or `import adjoint as torch`", file=sys.stderr)
    if given.text:
        print(walk)
        return
    if given.serve:
        _serve(walk, given)
        return
    target = given.output or f"{Path(given.script).stem}.walk.html"
    path = walk.save(target)
    print(f"{len(walk)} events, peak {size(walk.peak)}: wrote {path} "
          f"({size(os.path.getsize(path))})")
    if walk.dropped:
        print(f"{walk.dropped} later events were left out; --limit {len(walk) + walk.dropped} "
              "keeps them")
    if given.open:
        webbrowser.open(path.resolve().as_uri())


def _serve(walk: Walk, given: argparse.Namespace) -> None:
    with Server(walk.html(), given.port) as server:
        print(f"{len(walk)} events at {server.url} (Ctrl+C ends it)", flush=True)
        if given.open:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
