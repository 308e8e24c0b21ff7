"""Options of the commands: a wrong one is told in one line."""
from __future__ import annotations

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that names what is wrong, and the help, instead of printing all options.

    >>> Parser(prog="adjoint train").parse_args(["--bogus"])
    Traceback (most recent call last):
    SystemExit: 2
    """

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help tells its options\n")
