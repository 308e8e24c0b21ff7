"""A pytest plugin: `python -m pytest -p adjoint.cli.as_torch test_file.py` runs the tests with this
package as `torch`, as `adjoint run --as-torch` runs a program."""
from adjoint.cli.run import serve_torch

serve_torch()
