"""The arguments that functions take: parameters written as text, JAX's, so that an unknown word is
the interpreter's own TypeError, and the words that say where an array is to be."""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

F = Callable[..., Any]

# functions made of tables, by their parameters; those that are not here have the first ones
FORMS: dict[str, dict[str, str]] = {
    "adjoint.jax.numpy": {
        "x, /": "",
        "x1, x2, /": "arctan2 atan2 copysign divide floor_divide fmod heaviside hypot "
                     "mod remainder right_shift bitwise_right_shift true_divide",
        "x, y, /": "add multiply maximum minimum logical_and logical_or logical_xor bitwise_and "
                   "bitwise_or bitwise_xor logaddexp logaddexp2 subtract equal not_equal less "
                   "less_equal greater greater_equal left_shift bitwise_left_shift nextafter "
                   "float_power",
        "x1, x2": "fmax fmin gcd lcm", "x": "i0 iscomplex isreal", "val, /": "real imag",
        "x, /, out=None": "isposinf isneginf"},
    "adjoint.jax.lax": {
        "x": "", "x, *, accuracy=None": "cbrt cos exp exp2 expm1 log log1p logistic rsqrt sin sqrt "
                                        "tan tanh",
        "x, y": "add sub max min atan2 div rem complex bitwise_and bitwise_or bitwise_xor eq ne lt "
                "le gt ge shift_left shift_right_logical shift_right_arithmetic",
        "x, y, *, out_dtype=None": "mul", "x1, x2": "nextafter", "a, x": "igamma igammac",
        "x, q": "zeta"},
    "adjoint.jax.scipy.special": {
        "x": "", "a, b, x": "betainc hyp1f1", "n, x": "expn",
        "a, x": "gammainc gammaincc igamma igammac",
        "a, b, c, x": "hyp2f1", "h, a": "owens_t", "x, y": "xlogy xlog1py", "x, q": "zeta",
        "p": "ndtri"}}
_FOUND = {(module, name): words for module, forms in FORMS.items()
          for words, names in forms.items() for name in names.split()}


def form(module: str, name: str) -> str:
    """The parameters of a function that is made of a table."""
    return _FOUND.get((module, name)) or next(iter(FORMS[module]))


def taking(words: str, run: F) -> F:
    """The function with parameters written as text: `taking("x, *, accuracy=None", run)`. Its line
    is one of this package, not of the program that calls it."""
    text = compile(f"lambda {words}: run({_passed(words)})", __file__, "eval")
    made: F = eval(text, {"run": run})      # noqa: S307  # our text
    return made


@functools.cache
def _passed(words: str) -> str:
    """The arguments of a call that hands all parameters on."""
    form = inspect.signature(eval(f"lambda {words}: None"))     # noqa: S307  # our text
    return ", ".join(f"{n}={n}" if p.kind is p.KEYWORD_ONLY else n
                     for n, p in form.parameters.items())


def accurate(accuracy: Any) -> None:
    """NotImplementedError for an accuracy that is none."""
    if accuracy is not None and type(accuracy).__name__ not in ("Tolerance", "AccuracyMode"):
        raise NotImplementedError(f"Accuracy {accuracy} not supported")


def placed(name: str, out_sharding: Any) -> None:
    """What JAX refuses of `out_sharding=` outside of a mesh: with one device the others leave an
    array where it is."""
    if out_sharding is None:
        return
    from adjoint.jax.sharding import AxisType, NamedSharding, PartitionSpec
    if isinstance(out_sharding, PartitionSpec):
        raise ValueError("Using PartitionSpec when you are not under a mesh context is not "
                         "allowed. Please pass a NamedSharding instance: there is one device, and "
                         "`jax.set_mesh` is not here.")
    if not isinstance(out_sharding, NamedSharding):
        raise TypeError(f"`out_sharding` argument of {name} only supports instances of "
                        "`NamedSharding` or `PartitionSpec`. Got "
                        f"{out_sharding} of type: {type(out_sharding)}")
    types = dict(zip(out_sharding.mesh.axis_names, out_sharding.mesh.axis_types, strict=True))
    for part in out_sharding.spec:
        for axis in part if isinstance(part, tuple) else (part,):
            if axis is not None and types[axis] is not AxisType.Explicit:
                raise ValueError(f"PartitionSpec passed to {name} cannot contain axis names that "
                                 f"are of type Auto or Manual. Got PartitionSpec: "
                                 f"{out_sharding.spec!r} with axis name: {axis} of type: "
                                 f"{types[axis]!r}.")


def on_device(name: str, device: Any) -> None:
    """ValueError for a `device=` or `sharding=` that is neither a device nor a sharding."""
    if device is None:
        return
    from adjoint.jax._devices import Device
    from adjoint.jax.sharding import Sharding
    if not isinstance(device, (Device, Sharding)):
        raise ValueError(f"{name}: {device!r} is neither a device nor a jax.sharding.Sharding")


_CHECKS = {"out_sharding": placed, "device": on_device, "sharding": on_device}


def placing(*words: str) -> Callable[[F], F]:
    """A decorator: the function with keywords that say where its result is to be. They are looked
    at and not passed on."""
    def decorate(f: F) -> F:
        own = inspect.signature(f)
        more = [inspect.Parameter(w, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Any)
                for w in words]
        name = f.__name__ if not f.__module__.startswith("adjoint.jax.numpy") else (
            f"jnp.{f.__name__}")

        @functools.wraps(f)
        def run(*args: Any, **kwargs: Any) -> Any:
            for w in words:
                if w in kwargs:
                    _CHECKS[w](name, kwargs.pop(w))
            return f(*args, **kwargs)
        own = own.replace(parameters=[*own.parameters.values(), *more])
        run.__signature__ = own      # type: ignore[attr-defined]  # of the words that are added
        return run
    return decorate


__all__ = ["FORMS", "accurate", "form", "on_device", "placed", "placing", "taking"]
