"""Products of matrices (F15-F48) like PyTorch: values and two derivatives."""
import pytest
from helpers_ops import Cases, R, compare

pytest.importorskip("torch")
case = Cases()

for a, b in [((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (2, 4, 5)),
             ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)),
             ((2, 3, 4), (4,)), ((4,), (2, 4, 5))]:
    case(f"matmul{a}{b}", lambda T, F, a, b: T.matmul(a, b), R(*a), R(*b))
case("linear 3d", lambda T, F, x, w, b: F.linear(x, w, b), R(2, 3, 4), R(5, 4), R(5))
case("linear 1d", lambda T, F, x, w: F.linear(x, w), R(4), R(5, 4))
case("addmm", lambda T, F, c, x, w: T.addmm(c, x, w, beta=0.5, alpha=2), R(4), R(5, 3), R(3, 4))
case("baddbmm", lambda T, F, c, x, w: T.baddbmm(c, x, w, beta=0.5, alpha=2), R(5, 4), R(2, 5, 3),
     R(2, 3, 4))
case("addbmm", lambda T, F, c, x, w: T.addbmm(c, x, w), R(5, 4), R(2, 5, 3), R(2, 3, 4))
case("addmv", lambda T, F, c, x, w: T.addmv(c, x, w, alpha=2), R(5), R(5, 3), R(3))
case("inner", lambda T, F, a, b: T.inner(a, b), R(2, 3), R(4, 3))
case("outer", lambda T, F, a, b: T.outer(a, b), R(2), R(4))
case("kron", lambda T, F, a, b: T.kron(a, b), R(3, 2), R(2, 2, 3))
case("tensordot", lambda T, F, a, b: T.tensordot(a, b, ([1, 0], [0, 2])), R(3, 4, 5), R(4, 2, 3))
case("cross", lambda T, F, a, b: T.cross(a, b, 1), R(2, 3), R(2, 3))
case("bilinear", lambda T, F, a, b, w, c: F.bilinear(a, b, w, c), R(2, 3, 4), R(2, 3, 5),
     R(6, 4, 5), R(6))
case("cov", lambda T, F, a: T.cov(a), R(3, 5))
case("corrcoef", lambda T, F, a: T.corrcoef(a), R(3, 5))
for p in (1.0, 2.0, 3.0):
    case(f"cdist {p}", lambda T, F, a, b, p=p: T.cdist(a, b, p), R(3, 4), R(2, 4), second=False)
case("cdist mm", lambda T, F, a, b: T.cdist(a, b), R(30, 4), R(28, 4), tol=1e-8)
for eq, shapes in [
        ("ij,jk", ((2, 3), (3, 4))), ("ii->i", ((3, 3),)), ("ii", ((3, 3),)),
        ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))), ("...ij,...jk->...ik", ((2, 3, 4), (4, 5))),
        ("i,j->ij", ((2,), (3,))), ("ijk->k", ((2, 3, 4),)), ("ij,ij->", ((2, 3), (2, 3))),
        ("ab,bc,cd->ad", ((2, 3), (3, 4), (4, 5))),
        ("bhid,bhjd->bhij", ((2, 2, 3, 4), (2, 2, 5, 4))), ("i...->...", ((2, 3),)),
        ("ij,ij->ij", ((2, 1), (2, 3))), ("iji->j", ((2, 3, 2),)), ("ba,b->a", ((4, 3), (4,)))]:
    case("einsum " + eq, lambda T, F, *a, eq=eq: T.einsum(eq, *a), *[R(*s) for s in shapes])


@pytest.mark.parametrize("one", case, ids=repr)
def test_like_torch(one):
    compare(one)
