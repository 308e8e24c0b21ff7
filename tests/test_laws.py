"""The law table: every op record x every law (rows of issue 2, "Tests")."""
import subprocess
import sys

import pytest

from adjoint.core.op import OPS
from adjoint.testing.laws import LAWS
from adjoint.testing.samples import table

TABLE = table()
# Records whose rules are right only as a whole, proved elsewhere: why, and by which test.
ELSEWHERE = {
    "log_gamma_variate": "a draw: its slope is that of a quantile: tests/test_distributions.py",
    "dirichlet_variate": "so is this: tests/test_distributions_gradients.py",
    "scale_gradient": "scales the gradient and not the value, on purpose: tests/test_ops_nn.py",
}
# Central differences see what the rule defines away, so the law does not apply.
NOT = {
    "forward": {"scale_gradient", "sgn",
                *(n for n in TABLE if n.startswith("fake_quantize") or "_fq_" in n)},
    "transpose": set(),
    # The first two are refused in words (tests/test_special.py), the third has a sparse gradient.
    "again": {"gammainc", "gammaincc", "embedding_sparse"},
}


def test_every_record_has_a_row():
    missing = sorted(set(OPS) - {n for n, rows in TABLE.items() if rows} - set(ELSEWHERE))
    assert not missing, f"ops without sample operands in the law table: {missing}"
    assert not sorted(set(TABLE) - set(OPS)), "rows of ops that do not exist"


def test_no_record_comes_after_the_table():
    """Whatever loads later, in whatever order: the table has asked for every record."""
    program = """
import importlib, pkgutil
import adjoint
from adjoint.core.op import OPS
from adjoint.testing.samples import table
table()
before = set(OPS)
for module in pkgutil.walk_packages(adjoint.__path__, "adjoint."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ImportError:              # an extra that is not installed
            pass
print(sorted(set(OPS) - before))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "[]\n", run.stdout + run.stderr


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", sorted(n for n in TABLE if n not in ELSEWHERE))
def test_law(name, law):
    if name in NOT.get(law, ()):
        pytest.skip("the law does not apply, see NOT")
    for args, attrs in TABLE[name]:
        LAWS[law](OPS[name], args, attrs)
