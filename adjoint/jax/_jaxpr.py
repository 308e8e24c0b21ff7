"""Programs of functions: JAX's `Jaxpr`, its text, and how it is run.

A program is a list of equations `outvars = primitive[params] invars`. `make_jaxpr` records one
(`_record.py`); `eval_jaxpr` runs one by `primitive.bind`, so that a program's own interpreter can
do the same, and a program under `grad` or `vmap` is one more function.
"""
from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adjoint.jax._array import ShapedArray, as_array

_WIDTH = 80
# parameters that the text leaves out, and those that it leaves out where they are None
_QUIET = {"broadcast_in_dim": ("shape", "sharding")}
_QUIET_NONE = {"dot_general": ("precision", "out_sharding"),
               "reduce_max": ("out_sharding",), "reduce_min": ("out_sharding",)}
_SHORT = {"float": "f", "int": "i", "uint": "u", "complex": "c"}


class Var:
    """A value of a program: its type."""

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var(id={id(self)}):{short(self.aval)}"


class DropVar(Var):
    """A result that nothing reads."""

    def __repr__(self) -> str:
        return "_"


class Literal:
    """A number that stands in a program."""

    __hash__: Any = None

    def __init__(self, val: Any, aval: Any) -> None:
        self.val, self.aval = val, aval

    def __repr__(self) -> str:
        return f"{self.val}:{short(self.aval)}"


class JaxprEqn:
    """`outvars = primitive[params] invars`."""

    source_info = None
    ctx = None

    def __init__(self, invars: Sequence[Any], outvars: Sequence[Any], primitive: Any,
                 params: dict[str, Any], effects: Any = frozenset()) -> None:
        self.invars, self.outvars = list(invars), list(outvars)
        self.primitive, self.params, self.effects = primitive, params, set(effects)

    def replace(self, **changes: Any) -> JaxprEqn:
        """A copy with other fields."""
        now = {n: getattr(self, n) for n in ("invars", "outvars", "primitive", "params",
                                             "effects")}
        return JaxprEqn(**{**now, **{k: v for k, v in changes.items() if k in now}})

    def __repr__(self) -> str:
        return _Text(self.invars).equation(self, 0)


class Jaxpr:
    """A program: its arguments, equations and results."""

    debug_info = None

    def __init__(self, constvars: Sequence[Any], invars: Sequence[Any], outvars: Sequence[Any],
                 eqns: Sequence[JaxprEqn], effects: Any = frozenset(), debug_info: Any = None,
                 is_high: bool = False) -> None:
        self.constvars, self.invars = list(constvars), list(invars)
        self.outvars, self.eqns, self.effects = list(outvars), list(eqns), set(effects)

    def replace(self, **changes: Any) -> Jaxpr:
        """A copy with other fields."""
        now = {n: getattr(self, n) for n in ("constvars", "invars", "outvars", "eqns",
                                             "effects")}
        return Jaxpr(**{**now, **{k: v for k, v in changes.items() if k in now}})

    def __repr__(self) -> str:
        return _Text(()).program(self, 0)

    def pretty_print(self, **_: Any) -> str:
        """The text."""
        return repr(self)


class ClosedJaxpr:
    """A program with the arrays that it holds."""

    fun: Any = None              # the function with a rule of its own that it is the program of

    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Any] = ()) -> None:
        if len(consts) != len(jaxpr.constvars):
            raise ValueError(f"ClosedJaxpr: {len(consts)} constants were given for "
                             f"{len(jaxpr.constvars)} constvars")
        self.jaxpr, self.consts = jaxpr, list(consts)

    @property
    def literals(self) -> list[Any]:
        """The arrays that it holds."""
        return self.consts

    @property
    def eqns(self) -> list[JaxprEqn]:
        """The equations."""
        return self.jaxpr.eqns

    @property
    def effects(self) -> set[Any]:
        """None are recorded."""
        return self.jaxpr.effects

    @property
    def in_avals(self) -> list[Any]:
        """Types of the arguments."""
        return [v.aval for v in self.jaxpr.invars]

    @property
    def out_avals(self) -> list[Any]:
        """Types of the results."""
        return [v.aval for v in self.jaxpr.outvars]

    def replace(self, *, jaxpr: Any = None, consts: Any = None) -> ClosedJaxpr:
        """A copy with other fields."""
        return ClosedJaxpr(jaxpr or self.jaxpr, self.consts if consts is None else consts)

    def __repr__(self) -> str:
        return repr(self.jaxpr)

    def pretty_print(self, **_: Any) -> str:
        """The text."""
        return repr(self)


# ------------------------------------------------------------------ running
def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any,
               propagate_source_info: bool = True) -> list[Any]:
    """The results of a program for constants and arguments."""
    if len(args) != len(jaxpr.invars):
        raise ValueError(f"eval_jaxpr: the program takes {len(jaxpr.invars)} arguments, "
                         f"{len(args)} were given")
    env: dict[int, Any] = {}

    def read(v: Any) -> Any:
        return v.val if type(v) is Literal else env[id(v)]

    def write(vs: Sequence[Any], values: Sequence[Any]) -> None:
        for v, x in zip(vs, values, strict=True):
            env[id(v)] = x
    write(jaxpr.constvars, consts)
    write(jaxpr.invars, args)
    for e in jaxpr.eqns:
        found = e.primitive.bind(*map(read, e.invars), **e.params)
        write(e.outvars, found if e.primitive.multiple_results else [found])
    return [as_array(read(v)) for v in jaxpr.outvars]


def jaxpr_as_fun(closed_jaxpr: ClosedJaxpr) -> Callable[..., list[Any]]:
    """The program as a function that gives a list."""
    return lambda *args: eval_jaxpr(closed_jaxpr.jaxpr, closed_jaxpr.consts, *args)


# ------------------------------------------------------------------ text
def short(aval: Any) -> str:
    """`f32[3]`."""
    name = str(aval.dtype)
    kind = name.rstrip(string.digits)
    if kind in _SHORT:
        name = _SHORT[kind] + name[len(kind):]
    elif name == "bfloat16":
        name = "bf16"
    return f"{name}[{','.join(map(str, aval.shape))}]"


def _letters(n: int) -> str:
    found = string.ascii_lowercase[n % 26]
    while n >= 26:
        n //= 26
        found = string.ascii_lowercase[n % 26] + found
    return found


def _programs(x: Any) -> list[Any]:
    """The programs in a parameter."""
    if isinstance(x, (ClosedJaxpr, Jaxpr)):
        return [x]
    return [p for y in x for p in _programs(y)] if isinstance(x, (tuple, list)) else []


def _plain(x: Any) -> Jaxpr:
    return x.jaxpr if isinstance(x, ClosedJaxpr) else x


def _name_first(item: tuple[str, Any]) -> Any:
    return item[0] != "name", item[0]


class _Text:
    """One text: the names of its values, in the order in which they appear."""

    def __init__(self, known: Sequence[Any]) -> None:
        self.names: dict[int, str] = {}
        self.count = 0
        self.bind(known)

    def bind(self, vs: Sequence[Any]) -> None:
        """Names for values that have none."""
        for v in vs:
            if type(v) is DropVar:
                self.names[id(v)] = "_"
            elif type(v) is not Literal and id(v) not in self.names:
                self.names[id(v)] = _letters(self.count)
                self.count += 1

    def name_all(self, j: Jaxpr) -> None:
        """Names for the values of a program and of those in it."""
        self.bind([*j.constvars, *j.invars])
        for e in j.eqns:
            self.name_equation(e)

    def name_equation(self, e: JaxprEqn) -> None:
        """Names for what an equation makes; the program of a jit has those around it."""
        self.bind(e.outvars)
        for _, value in sorted(e.params.items(), key=_name_first):
            for p in map(_plain, _programs(value)):
                if e.primitive.name == "jit":
                    for inner, outer in (*zip(p.invars, e.invars, strict=True),
                                         *zip(p.outvars, e.outvars, strict=True)):
                        if type(outer) is Var and type(inner) is Var:
                            self.names.setdefault(id(inner), self.names[id(outer)])
                self.name_all(p)
                self.bind(p.outvars)

    def atom(self, v: Any) -> str:
        return repr(v) if type(v) is Literal else self.names[id(v)]

    def typed(self, vs: Sequence[Any]) -> str:
        return " ".join([f"{self.names[id(v)]}:{short(v.aval)}" for v in vs])

    def program(self, j: Jaxpr, indent: int, before: int = 0) -> str:
        """`{ lambda ; a:f32[]. let b:f32[] = sin a in (b,) }`; `before` characters precede it."""
        self.name_all(j)
        constants = self.typed(j.constvars)
        head = f"{{ lambda {constants}; {self.typed(j.invars)}. let"
        outs = ", ".join(map(self.atom, j.outvars)) + ("," if len(j.outvars) == 1 else "")
        body = "; ".join([self.equation(e, None) for e in j.eqns])
        line = f"{head} {body} in ({outs}) }}"
        if "\n" not in line and indent + before + len(line) <= _WIDTH:
            return line
        gap = " " * indent
        lines = [f"{gap}    {self.equation(e, indent + 4)}" for e in j.eqns]
        return "\n".join([head, *lines, f"{gap}  in ({outs}) }}"])

    def equation(self, e: JaxprEqn, indent: int | None) -> str:
        """One equation, after `indent` spaces; None: in one line."""
        self.name_equation(e)
        outs, p = self.typed(e.outvars), e.primitive.name
        quiet = {*_QUIET.get(p, ()), *[n for n in _QUIET_NONE.get(p, ("accuracy",))
                                       if e.params.get(n) is None]}
        shown = [(k, v) for k, v in sorted(e.params.items(), key=_name_first) if k not in quiet
                 and not (p == "broadcast_in_dim" and v == ())]
        ins = " ".join(map(self.atom, e.invars))
        head, tail = f"{outs} = {p}" if outs else p, f" {ins}"
        if not shown:
            return head + tail
        if indent is None or len(
                line := self._line(head, shown, tail)) + indent <= _WIDTH:
            return self._line(head, shown, tail) if indent is None else line
        gap = " " * (indent + 2)
        rows = [f"{gap}{k}={self.parameter(v, indent + 2, len(k) + 1)}" for k, v in shown]
        return "\n".join([f"{head}[", *rows, f"{' ' * indent}]{tail}"])

    def _line(self, head: str, shown: Sequence[tuple[str, Any]], tail: str) -> str:
        return f"{head}[{' '.join([f'{k}={self.parameter(v, None, 0)}' for k, v in shown])}]{tail}"

    def parameter(self, x: Any, indent: int | None, before: int) -> str:
        """The value of a parameter."""
        if isinstance(x, (ClosedJaxpr, Jaxpr)):
            return self.program(_plain(x), indent if indent is not None else -10**6, before)
        if isinstance(x, tuple) and _programs(x):
            if indent is None:
                return f"( {' '.join([self.parameter(p, None, 0) for p in x])} )"
            gap = " " * indent
            return "\n".join(["(", *[f"{gap}  {self.parameter(p, indent + 2, 0)}" for p in x],
                              f"{gap})"])
        if isinstance(x, np.dtype):
            return x.name
        return str(getattr(x, "__name__", x)) if callable(x) else str(x)


def aval(shape: Any, dtype: Any, weak: bool = False) -> Any:
    """The type of a value."""
    return ShapedArray(tuple(shape), dtype, weak_type=weak)


__all__ = ["ClosedJaxpr", "DropVar", "Jaxpr", "JaxprEqn", "Literal", "Var", "eval_jaxpr",
           "jaxpr_as_fun"]
