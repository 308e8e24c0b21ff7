"""Write docs/nesting.md: transform x transform x feature, each cell run and compared.

    python scripts/nesting.py          rewrite the page
    python scripts/nesting.py --check  exit 1 where the page is not what the code does

A cell takes the outer transform of the inner transform of a function that uses the feature, and
compares it with differences or a loop over the inner transform, which was compared in its own row.
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import adjoint as ad  # noqa: E402 (the path comes first)
from adjoint import func  # noqa: E402
from adjoint.utils.checkpoint import checkpoint  # noqa: E402

PAGE = ROOT / "docs" / "nesting.md"
F = Callable[[Any], Any]
X = np.array([0.4, -0.8, 1.1])
W = np.array([[0.3, -0.2, 0.5], [0.1, 0.7, -0.4], [-0.6, 0.2, 0.2]])


class Cubed(ad.autograd.Function):
    """x³ with a backward, a jvp and no vmap of its own."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x ** 3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, ct: Any) -> Any:
        return 3 * ctx.saved_tensors[0] ** 2 * ct

    @staticmethod
    def jvp(ctx: Any, t: Any) -> Any:
        return 3 * ctx.saved_tensors[0] ** 2 * t


class OnlyBackward(ad.autograd.Function):
    """x³ with a backward alone."""

    forward, setup_context, backward = Cubed.forward, Cubed.setup_context, Cubed.backward


@func.custom_vjp
def by_vjp(x: Any) -> Any:
    """tanh, with a reverse rule by hand."""
    return ad.tanh(x)


by_vjp.defvjp(lambda x: (by_vjp(x), x), lambda x, ct: (ct / ad.cosh(x) ** 2,))


@func.custom_jvp
def by_jvp(x: Any) -> Any:
    """tanh, with a forward rule by hand."""
    return ad.tanh(x)


by_jvp.defjvp(lambda p, t: (by_jvp(*p), t[0] / ad.cosh(p[0]) ** 2))
external = func.from_callable(np.sin, vjp=lambda ct, x: ct * np.cos(x),
                              jvp=lambda t, x: t * np.cos(x), vectorized=True)


def in_place(x: Any) -> Any:
    y = ad.sin(x)
    y.mul_(x)
    y[1] = y[0] * 2.0
    return y + x


def through_views(x: Any) -> Any:
    y = ad.cos(x)
    y.view(3, 1)[1:, 0].mul_(x[:2])
    return y * x


def into_constant(x: Any) -> Any:
    y = ad.zeros(3, dtype=ad.float64)
    y[1:] = x[:2] * x[1:]
    y += x.sin()
    return y


def looped(x: Any) -> Any:
    return func.scan(lambda c, w: (ad.tanh(c * w), c.sum()), x, ad.tensor([0.7, 1.3]),
                     segments="sqrt")[0]


FEATURES: dict[str, F] = {
    "ops": lambda x: ad.tanh(ad.tensor(W) @ x) * x + x.sum(),
    "in-place": in_place, "writes through views": through_views,
    "writes into a constant": into_constant,
    "indexing": lambda x: x[ad.tensor([2, 0, 0])] ** 2 * x.flip(0),
    "checkpoint": lambda x: checkpoint(lambda y: ad.sin(y * y), x, use_reentrant=False),
    "custom_vjp": lambda x: by_vjp(x * x), "custom_jvp": lambda x: by_jvp(x * x),
    "Function": lambda x: Cubed.apply(x) * x, "Function without jvp": OnlyBackward.apply,
    "from_callable": lambda x: external(x * x),
    "scan": looped, "while_loop": lambda x: func.while_loop(
        lambda v: (v * v).sum() < 9.0, lambda v: v * 1.5, x),
    "cond": lambda x: func.cond(x[0] > 0, lambda y: y * y, lambda y: y ** 3, x),
    "Python branch": lambda x: x * x if x[0] > 0 else x ** 3,
    "fixed_point": lambda x: func.fixed_point(lambda z, a: 0.5 * ad.cos(z) + a, ad.zeros_like(x),
                                              x),
    "linalg": lambda x: ad.linalg.solve(ad.outer(x, x) + 2.0 * ad.eye(3, dtype=ad.float64), x),
}


def wave(shape: tuple[int, ...], phase: float) -> Any:
    """Fixed weights, tangents and cotangents."""
    return np.cos(np.arange(int(np.prod(shape))).reshape(shape) + phase)


def weighted(h: F) -> F:
    """h as a scalar."""
    return lambda x: (lambda y: (y * ad.tensor(wave(tuple(y.shape), 1.0))).sum())(h(x))


def pulled(h: F) -> F:
    """The vjp of h at a fixed cotangent."""
    def run(x: Any) -> Any:
        y, pull = func.vjp(h, x)
        return pull(ad.tensor(wave(tuple(y.shape), 3.0)))[0]
    return run


TANGENT = wave((3,), 2.0)
TRANSFORMS: dict[str, Callable[[F], F]] = {
    "grad": lambda h: func.grad(weighted(h)), "vjp": pulled,
    "jvp": lambda h: lambda x: func.jvp(h, (x,), (ad.tensor(TANGENT),))[1],
    "linearize": lambda h: lambda x: func.linearize(h, x)[1](ad.tensor(TANGENT)),
    "vmap": lambda h: lambda x: func.vmap(h)(ad.stack([x, x * 0.9])),
    "jacfwd": lambda h: func.jacfwd(h), "jacrev": lambda h: func.jacrev(h),
    "hessian": lambda h: func.hessian(weighted(h)),
}


def measured(f: Callable[[Any], Any]) -> Any:
    """The derivative of f along the tangent by five-point differences."""
    def at(s: float) -> Any:
        return f(X + s * TANGENT)
    return (8 * (at(1e-3) - at(-1e-3)) - (at(2e-3) - at(-2e-3))) / 12e-3


def check(outer: str, h: F) -> None:
    """Raise AssertionError where the outer transform of h is wrong."""
    got = TRANSFORMS[outer](h)(ad.tensor(X)).detach().numpy()

    def value(a: Any) -> Any:
        return h(ad.tensor(a)).detach().numpy()
    if outer in ("jvp", "linearize"):
        want = measured(value)
    elif outer == "vmap":
        want = np.stack([value(X), value(0.9 * X)])
    else:
        got = got @ TANGENT
        if outer == "hessian":
            want = measured(lambda a: func.grad(weighted(h))(ad.tensor(a)).numpy())
        elif outer in ("jacfwd", "jacrev"):
            want = measured(value)
        else:
            w = wave(value(X).shape, 1.0 if outer == "grad" else 3.0)
            want = measured(lambda a: np.sum(value(a) * w))
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def cell(outer: str, inner: str | None, feature: str, reasons: dict[str, int]) -> str:
    """right, or the number of the reason why it raises."""
    h = FEATURES[feature] if inner is None else TRANSFORMS[inner](FEATURES[feature])
    try:
        check(outer, h)
    except AssertionError:
        return "WRONG"
    except ad.base.errors.AdjointError as error:
        said = " ".join(str(error).split())
        said = said[:said.find(" at /")] if " at /" in said else said
        said = said.split(". ")[0].split(", or use")[0].split("; ")[0].rstrip(" ,")
        return f"[{reasons.setdefault(said, len(reasons) + 1)}]"
    return "right"


def render() -> str:
    """The page."""
    reasons: dict[str, int] = {}
    out = ["# Nesting", "",
           "Every cell was run by `scripts/nesting.py` and compared with differences, or with a "
           "loop over examples,", "of the inner transform. A number is the reason why the cell "
           "raises; nothing is silently wrong.", ""]
    names = list(TRANSFORMS)
    for feature in FEATURES:
        out += [f"## {feature}", "", "| outer \\ inner | none | " + " | ".join(names) + " |",
                "|---" * (len(names) + 2) + "|"]
        for outer in names:
            cells = [cell(outer, inner, feature, reasons) for inner in (None, *names)]
            out.append(f"| {outer} | " + " | ".join(cells) + " |")
        out.append("")
    if reasons:
        out += ["## Reasons", ""]
        out += [f"{n}. {text}" for text, n in reasons.items()] + [""]
    return "\n".join(out)


def main() -> int:
    """Write the page, or compare it."""
    text = render()
    if "--check" in sys.argv:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    wrong = text.count("WRONG")
    print(f"{PAGE.relative_to(ROOT)}: {text.count(' right ')} right, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
