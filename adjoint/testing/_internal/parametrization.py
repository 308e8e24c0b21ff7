"""One test function for many arguments: what decorators note, and how the tests are made of it.

A decorator appends to `fn.axes` a function from the class that the tests are made for to a list of
cases; the tests are the product of the axes, the decorator nearest to the function varying slowest
in the name: `test_f_x_1_y_2`.
"""
from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from adjoint.base.dtypes import DType
from adjoint.base.errors import ArgumentError
from adjoint.ops.device import device


@dataclass
class Case:
    """One value of an axis: its part of the test's name, its arguments, decorators of the test."""

    name: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    decorators: Sequence[Callable[[Any], Any]] = ()


Axis = Callable[[Any], list[Case]]


class subtest:
    """Values of one case with a name or decorators of its own (see `parametrize`)."""

    def __init__(self, arg_values: Any, name: str | None = None,
                 decorators: Sequence[Callable[[Any], Any]] | None = None) -> None:
        self.arg_values, self.name, self.decorators = arg_values, name, decorators or ()


def add_axis(fn: Any, axis: Axis) -> Any:
    """`fn`, to be run for every case of `axis` too."""
    fn.axes = [axis, *getattr(fn, "axes", [])]
    return fn


def _shown(name: str, value: Any, index: int) -> str:
    if isinstance(value, (DType, device)):
        return value.name if isinstance(value, DType) else str(value)
    if isinstance(value, (str, bool, int, float)):
        return f"{name}_{value}".replace(".", "_")
    return f"{name}{index}"


def parametrize(arg_str: str, arg_values: Iterable[Any],
                name_fn: Callable[..., str] | None = None) -> Callable[[Any], Any]:
    """One test per value: `@parametrize("x,y", [(1, 2), subtest((3, 4), name="large")])`."""
    names = [n.strip() for n in arg_str.split(",") if n.strip()]
    cases = []
    for i, given in enumerate(arg_values):
        own = given if isinstance(given, subtest) else subtest(given)
        values = [own.arg_values] if len(names) == 1 else list(own.arg_values)
        if len(values) != len(names):
            raise ArgumentError(f"parametrize: expected {len(names)} values for {arg_str!r}, got "
                                f"{len(values)}: {values}")
        name = own.name or (name_fn(*values) if name_fn else "_".join(
            _shown(n, v, i) for n, v in zip(names, values, strict=True)))
        cases.append(Case(name, dict(zip(names, values, strict=True)), own.decorators))
    return lambda fn: add_axis(fn, lambda cls: cases)


def cases_of(fn: Any, cls: Any) -> list[Case]:
    """The product of the axes that were noted on `fn`."""
    found = []
    for parts in itertools.product(*(axis(cls) for axis in getattr(fn, "axes", []))):
        kwargs: dict[str, Any] = {}
        for part in parts:
            if kwargs.keys() & part.kwargs.keys():
                raise ArgumentError(f"{fn.__name__}: two decorators give the same argument, "
                                    f"{sorted(kwargs.keys() & part.kwargs.keys())}")
            kwargs.update(part.kwargs)
        chosen = [d for d, asks in getattr(fn, "conditional", ()) if asks(kwargs)]
        found.append(Case("_".join(p.name for p in parts if p.name), kwargs,
                          [*(d for p in parts for d in p.decorators), *chosen]))
    return found


def test_of(fn: Any, name: str, case: Case, **more: Any) -> Any:
    """The method that runs `fn` with the arguments of `case`."""
    @functools.wraps(fn)
    def run(self: Any) -> Any:
        return fn(self, **more, **case.kwargs)
    run.__name__ = name
    vars(run).pop("axes", None)
    del run.__wrapped__  # pytest would read the arguments from it
    made: Any = run
    for decorate in case.decorators:
        made = decorate(made)
    return made


def instantiate_parametrized_tests(generic_cls: Any) -> Any:
    """Put the tests that `parametrize` asks for in the place of the function; also a decorator."""
    for name, fn in list(vars(generic_cls).items()):
        if hasattr(fn, "axes"):
            delattr(generic_cls, name)
            for case in cases_of(fn, None):
                full = f"{name}_{case.name}" if case.name else name
                setattr(generic_cls, full, test_of(fn, full, case))
    return generic_cls
