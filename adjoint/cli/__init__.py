"""The command `adjoint`: one subcommand per module of this package, imported when used."""
from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence

_COMMANDS = {
    "train": "train a byte-level GPT on text, with checkpoints",
    "memory": "how many bytes a model's training step takes, before it runs",
    "step": "walk through forward and backward, operation by operation",
    "doctor": "look for common mistakes in a training script",
    "bench": "measure speed on this machine",
    "run": "run a script, PyTorch's name served by this package",
}


def commands() -> dict[str, str]:
    """The subcommands of this installation, with one line about each.

    >>> "train" in commands()
    True
    """
    return {name: text for name, text in _COMMANDS.items()
            if importlib.util.find_spec(f"{__name__}.{name}") is not None}


def _usage() -> str:
    lines = [f"  {name:8} {text}" for name, text in commands().items()]
    return "\n".join(["usage: adjoint COMMAND [options]", "", *lines, "",
                      "adjoint COMMAND --help tells a command's options; adjoint --version"])


def _refuse(message: str) -> int:
    print(f"adjoint: {message}", file=sys.stderr)
    return 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run `adjoint` with the given arguments (default: the process's); returns the exit code.

    >>> main(["--version"]) == 0
    adjoint ...
    True
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    if name in ("-V", "--version"):
        print(f"adjoint {_version()}")
        return 0
    if name not in _COMMANDS:
        return _refuse(f"unknown command {name!r}; known are {', '.join(commands())}")
    if name not in commands():
        return _refuse(f"{name} is not part of this version; known are {', '.join(commands())}")
    try:
        module = importlib.import_module(f"{__name__}.{name}")
        return int(module.run(rest) or 0)
    except SystemExit as stop:  # argparse: --help, or a wrong option
        return stop.code if isinstance(stop.code, int) else 2
    except BrokenPipeError:  # the reader of our output went away: `adjoint ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _version() -> str:
    from importlib import metadata
    try:
        return metadata.version("adjoint")
    except metadata.PackageNotFoundError:
        return "(not installed)"
