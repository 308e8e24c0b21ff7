"""Special functions of real operands: checks of the dtypes, and SciPy's values with derivatives."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adjoint import func as _func
from adjoint.jax._array import as_array
from adjoint.jax._table import T, elementwise
from adjoint.jax._words import form, taking

Code = Callable[..., Any]
SINGLES = ("float32", "float64")
STRONG = ("erfcx", "expi", "exp1", "spence")


def real(name: str, run: Any, words: str = "", kinds: tuple[str, ...] = ()) -> Any:
    """The function of real operands: TypeError for complex ones, or ValueError with `words`.

    kinds  the dtypes that it takes, where these are not all floats
    """
    def call(*xs: Any) -> Any:
        for x in xs:
            if x.is_complex():
                raise (ValueError(words) if words else TypeError(
                    f"{name} does not accept dtype {x.array.dtype.name}. Accepted dtypes are "
                    "subtypes of floating."))
        return run(*xs)
    found = elementwise(name, call, floating=True, module="adjoint.jax.scipy.special",
                        kind="strong" if kinds or name in STRONG else "same")
    return found if not kinds else _narrow(found, kinds)


def _narrow(found: Any, kinds: tuple[str, ...]) -> Any:
    """The function, with TypeError for an operand of another dtype than these."""
    def call(x: Any) -> Any:
        a = as_array(x, found.__name__)
        if a.dtype.name not in kinds:
            raise TypeError(f"x.dtype={a.dtype.name} is not supported, see docstring for supported "
                            "types.")
        return found(a)
    call = taking(form(found.__module__, found.__name__), call)
    call.__name__ = call.__qualname__ = found.__name__
    call.__module__, call.__doc__ = found.__module__, found.__doc__
    return call


def scipys(name: str) -> Code:
    """SciPy's function of that name."""
    def code(*xs: Any) -> Any:
        import scipy.special
        return getattr(scipy.special, name)(*xs)
    code.__name__ = name
    return code


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def from_values(code: Code) -> Code:
    """A function of tensors from one of arrays, computed in double precision."""
    def run(*xs: Any) -> Any:
        with np.errstate(all="ignore"):
            found = code(*map(_wide, xs))
        kind = xs[0].dtype
        if np.iscomplexobj(found) and kind.kind != "c":
            kind = np.result_type(kind, np.complex64)
        return np.asarray(found).astype(kind)
    run.__name__ = code.__name__
    return _func.from_callable(run, vectorized=True)


def slope(code: Code, place: int) -> Code:
    """The derivative in one argument by a central difference in double precision."""
    def differences(*at: Any) -> Any:
        step = 1e-5 * np.maximum(abs(at[place]), 1e-2)

        def moved(sign: float) -> Any:
            return code(*[v + sign * step if i == place else v for i, v in enumerate(at)])
        return (moved(1) - moved(-1)) / (2 * step)
    return from_values(differences)


def ruled(code: Code, *slopes: Any) -> Code:
    """`code` as a function of broadcast tensors; `slopes`, functions of tensors, are its
    derivatives in each operand, None where it has none."""
    value = from_values(code)

    def whole(*given: Any) -> Any:
        full = list(T["broadcast_tensors"](*given))
        places = [i for i, t in enumerate(full)          # the rest is constant
                  if (t._rg or t.level) and slopes[i] is not None]
        full = [t if s is not None else t.detach() for t, s in zip(full, slopes, strict=True)]

        def filled(moving: Any) -> Any:
            out = list(full)
            for i, t in zip(places, moving, strict=True):
                out[i] = t
            return out
        run = _func.custom_jvp(lambda *moving: value(*filled(moving)))

        def rule(primals: Any, tangents: Any) -> Any:
            shares = [slopes[i](*filled(primals)) * t for i, t in zip(places, tangents,
                                                                      strict=True)]
            return run(*primals), sum(shares[1:], shares[0])
        run.defjvp(rule)
        return run(*[full[i] for i in places])
    return whole


def theirs(name: str, *slopes: Any) -> Any:
    """A function of SciPy's of broadcast operands; `slopes` are functions of tensors."""
    return real({"gammainc": "igamma", "gammaincc": "igammac"}.get(name, name),
                ruled(scipys(name), *slopes),
                f"{name} does not support complex-valued inputs." if name in STRONG else "",
                SINGLES if name == "spence" else ())


__all__ = ["SINGLES", "STRONG", "from_values", "real", "ruled", "scipys", "slope", "theirs"]
