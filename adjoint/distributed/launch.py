"""`python -m adjoint.distributed.launch --nproc-per-node N script.py [args]`: the older launcher,
which tells the script its place on the machine by `--local-rank`, unless given `--use-env`."""
from __future__ import annotations

import sys
from collections.abc import Sequence

from adjoint.distributed import run

_ASKS = ("--use-env", "--use_env")


def main(argv: Sequence[str] | None = None) -> int:
    """`run.main`; its options stand before the script, and so does `--use-env`."""
    given = list(sys.argv[1:] if argv is None else argv)
    first = next((arg for arg in given if arg in _ASKS or arg.endswith(".py")), "")
    if first in _ASKS:
        given.remove(first)
    return run.main(given, tell_rank=first not in _ASKS)


if __name__ == "__main__":
    sys.exit(main())
