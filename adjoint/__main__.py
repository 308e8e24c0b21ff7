"""`python -m adjoint`: the command line."""
from adjoint.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
