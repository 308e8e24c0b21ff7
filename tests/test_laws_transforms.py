"""The law table under transforms: every op record x every stack of two (F54)."""
import pytest
from test_laws import ELSEWHERE, TABLE

import adjoint as ad  # noqa: F401 - registers the ops
import adjoint.func  # noqa: F401 - registers those of the collectives
from adjoint.base.errors import NotSupported
from adjoint.core.op import OPS
from adjoint.testing.transform_laws import TRANSFORM_LAWS

# Stacks that the record refuses in words, and why.
REFUSED = {
    "gammainc": (("jvp of vjp", "vjp of jvp"), "second derivative"),      # in its order
    "gammaincc": (("jvp of vjp", "vjp of jvp"), "second derivative"),
    "embedding_sparse": (("vmap of vjp", "jvp of vjp"), "sparse"),        # its gradient is sparse
}


@pytest.mark.parametrize("law", TRANSFORM_LAWS)
@pytest.mark.parametrize("name", sorted(n for n in TABLE if n not in ELSEWHERE))
def test_law(name, law):
    stacks, words = REFUSED.get(name, ((), ""))
    for args, attrs in TABLE[name]:
        if law in stacks:
            with pytest.raises((NotSupported, TypeError), match=f"(?i){words}"):
                TRANSFORM_LAWS[law](OPS[name], args, attrs)
        else:
            TRANSFORM_LAWS[law](OPS[name], args, attrs)


def test_the_laws_see_derivatives():
    """The samples have smooth operands for every op that has rules both ways."""
    from adjoint.testing.transform_laws import Sample
    blind = []
    for name, rows in TABLE.items():
        record = OPS[name]
        if name in ELSEWHERE or not (record.vjp and record.jvp):
            continue
        if not any((s := Sample(record, *row)).where and s.live for row in rows):
            blind.append(name)
    assert not blind
