"""A pytest plugin: `python -m pytest -p adjoint.cli.as_torch test_file.py` runs the tests with this
package as `torch`, as `adjoint run --as-torch` runs a program."""
from __future__ import annotations

from adjoint.cli.run import serve_torch
from adjoint.testing import unmet


def pytest_load_initial_conftests() -> None:
    """Before any file of the tests is imported."""
    serve_torch()
    unmet.watch()
