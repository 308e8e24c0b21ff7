"""Transform levels. A value of a transform is a tensor of a higher level that shows a value of the
level below; ops on it are processed by its trace, which calls the same ops one level down.

    Forward (func.jvp)   value + tangent
    Batch   (func.vmap)  value with the mapped axis in front

Reverse mode needs no level of its own: the tape records ops on tensors of every level alike (a
node's residuals and cotangents are then values of that level), and `grad` differentiates with
respect to fresh leaves, so that perturbations of different calls cannot be confused.
"""
from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Self
from weakref import ref

from adjoint.base import provenance
from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import DType, of_numpy
from adjoint.base.errors import TransformError
from adjoint.core.op import Op
from adjoint.core.tensor import AccumulateGrad, Port, Size, Tensor, alias, bump

_innermost: ContextVar[Any] = ContextVar("adjoint_transform", default=None)


# The innermost vmap that runs here: random numbers ask it what a draw per example means.
mapping: ContextVar[Any] = ContextVar("adjoint_mapping", default=None)


def current_level() -> int:
    """The level of the innermost transform that runs here; 0 outside of all."""
    trace = _innermost.get()
    return trace.level if trace is not None else 0


# Weak references to the tensors that came into a tape while the innermost gradient's function runs;
# None outside of all.
taped: ContextVar[list[Any] | None] = ContextVar("adjoint_taped", default=None)
runners: set[Any] = set()       # the code that calls the functions of transforms
settlers: set[Any] = set()      # the code that writes into their arguments when they end


def entered(target: Any, name: str) -> None:
    """A write is about to bring `target` into a tape."""
    running = taped.get()
    if running is not None:
        refuse_captured(target, name)
        running.append(ref(target))


def refuse_captured(target: Any, name: str, mapped: bool = False) -> None:
    """Raise for a write that would carry a value of the innermost transform that runs into a tensor
    from outside: one that a caller of the transform holds, and that is no argument."""
    root = target if target._base is None else target._base
    frame: Any = sys._getframe(1)
    ended = 0                       # transforms that give back what was written to their arguments
    while frame is not None and (frame.f_code not in runners or ended):
        ended += (frame.f_code in settlers) - (frame.f_code in runners)
        frame = frame.f_back
    parts = [frame.f_locals["args"]] if frame is not None else []
    given = set()
    while parts:
        part = parts.pop()
        given.add(id(part))
        if isinstance(part, (tuple, list, dict)):
            parts += part.values() if isinstance(part, dict) else part
    frame = frame.f_back if frame is not None and id(root) not in given else None
    while frame is not None and not any(v is root or v is target for v in frame.f_locals.values()):
        frame = frame.f_back
    if frame is None:
        return
    where = (f"at {provenance.here(sys._getframe(1))} a tensor of shape {list(root.shape)} of "
             f"{frame.f_code.co_name}() would hold a value that has no meaning outside")
    raise TransformError(
        f"vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a "
        f"Tensor `other` in extra_args that has more elements than `self`: {name}_ of a captured "
        f"tensor; {where}; map it too, or write out of place" if mapped else
        "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call "
        f"in-place operation ({name}_) that would mutate a captured Tensor. This is not supported; "
        "please rewrite the function being transformed to explicitly accept the mutated Tensor(s) "
        f"as inputs: {where}")


class Place(NamedTuple):
    """The transforms that run somewhere: the innermost, and the innermost vmap."""

    innermost: Any
    mapped: Any


def here() -> Place:
    """The place of the caller."""
    return Place(_innermost.get(), mapping.get())


@contextmanager
def inside(place: Place) -> Iterator[None]:
    """Run a block as at `place`, wherever it is run from. Transforms that have ended are alive
    again while it runs: it makes values again that they made before."""
    ended = []
    trace = place.innermost
    while trace is not None:
        if not trace.alive:
            trace.alive = True
            ended.append(trace)
        trace = trace.enclosing
    token, mapped = _innermost.set(place.innermost), mapping.set(place.mapped)
    try:
        yield
    finally:
        _innermost.reset(token)
        mapping.reset(mapped)
        for trace in ended:
            trace.alive = False


_new = object.__new__


class LevelArray(MetaArray):
    """What `.array` of a tensor of a transform is: shape and dtype, and an error for its values."""

    __slots__ = ("owner",)
    owner: Any

    def _no_value(self, *_: Any, **__: Any) -> Any:
        owner = self.owner
        owner.trace.check(owner)
        raise TransformError(owner.trace.no_value(owner, "its NumPy array"))

    __array__ = __bool__ = __float__ = __int__ = __index__ = __iter__ = _no_value
    item = tolist = _no_value


inner_variables = [False]       # whether there has been a variable of a gradient inside of a level


def born(edge: Any) -> int:
    """The lowest level that a variable below a node of the plain tape belongs to: what is made of
    variables of a gradient inside of a level alone concerns no tape below that level."""
    if not inner_variables[0]:      # (the graph is not looked through, nor is it noted in nodes)
        return 0
    root = edge.node if type(edge) is Port else edge
    stack = [root]
    while stack:
        node = stack[-1]
        if node.born is not None:
            stack.pop()
            continue
        if type(node) is AccumulateGrad:
            leaf = node.variable
            node.born = 0 if leaf is None else leaf._born
            continue
        edges = [e.node if type(e) is Port else e for e in node.edges if e is not None]
        unseen = [e for e in edges if e.born is None]
        if unseen:
            stack += unseen
        else:
            node.born = min((e.born for e in edges), default=0)
    found: int = root.born
    return found


class Trace:
    """One call of a transform: its level, and whether the call is still running."""

    name = "transform"

    def __init__(self) -> None:
        self.enclosing: Any = _innermost.get()
        self.level = current_level() + 1
        self.alive = True
        self.shared: Sequence[Any] = ()          # arguments that are not of this level
        self.written: dict[int, Any] = {}        # arguments that in-place ops changed (`settle`)
        frame = provenance.user_frame(sys._getframe(1))
        self.code: Any = frame.f_code if frame else None
        self.lasti = frame.f_lasti if frame else 0

    def __enter__(self) -> Self:
        self._token = _innermost.set(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self.alive = False
        _innermost.reset(self._token)

    def below(self, t: Any) -> Any:
        """An operand of the level below, for the op that runs there. A variable of a gradient taken
        inside of this level is recorded at this level alone."""
        if isinstance(t, Tensor) and t._rg and not t.level and (
                t._born >= self.level or t._edge is not None and born(t._edge) >= self.level):
            return alias(t)
        return t

    # what each transform defines
    def process(self, op: Op, args: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
        """The op on values of this level."""
        raise NotImplementedError

    def single(self, op: Op, x: Any) -> Any:
        """A pointwise op of one operand without attributes, in no tape of this level."""
        return self.process(op, (x,), {})

    def pair(self, op: Op, a: Any, b: Any) -> Any:
        """A pointwise op of two operands without attributes, neither in a tape of this level."""
        return self.process(op, (a, b), {})

    def custom(self, cls: Any, args: tuple[Any, ...]) -> Any:
        """A user's autograd.Function on values of this level."""
        raise NotImplementedError

    def strip(self, t: Any) -> Any:
        """`t` without its place in the tape."""
        raise NotImplementedError

    def held(self, t: Any) -> tuple[Any, ...]:
        """What `t` consists of, one level down."""
        raise NotImplementedError

    def value(self, t: Any, what: str) -> Any:
        """The NumPy array behind `t`, where there is one answer."""
        raise TransformError(self.no_value(t, what))

    def detach(self, t: Any) -> Any:
        """`t` cut from every derivative."""
        raise NotImplementedError

    def no_value(self, t: Any, what: str) -> str:
        """Why a value cannot be given, in words."""
        return (f"{what} of a tensor inside of {self.name} was asked for at "
                f"{provenance.here(sys._getframe(2))}")

    def describe(self, t: Any) -> str:
        """`repr` of a tensor of this level."""
        return f"{type(t).__name__}(level={self.level}, value={t.value!r})"

    def leave(self, t: Any) -> bool:
        """Make `t`, which outlived this call, a value of the level below; False: it is none."""
        return False

    def check(self, t: Any) -> None:
        """Raise for a value that outlived its transform, unless it can go on without it."""
        if not t.trace.alive and not t.trace.leave(t):
            raise TransformError(
                f"a tensor of {t.trace.name} called at "
                f"{provenance.locate(t.trace.code, t.trace.lasti)} was used after that call ended; "
                "it has no meaning outside. Return it from the function instead of storing it")


class LevelTensor(Tensor, own=True):
    """A tensor of a transform. Its class may be assigned to a plain tensor that is written to
    inside of a transform, so it adds no slots: `value`, `trace`, `tangent` sit in the dict."""

    __slots__ = ()
    level = 1

    @property
    def array(self) -> Any:
        """Shape and dtype of the logical value."""
        found = _new(LevelArray)         # (`__init__`, for this runs several times per op)
        found.shape, found.dtype = self.trace.aval(self)
        found.base = found.steps = found._account = None
        found.offset, found.owner = 0, self
        return found

    @property
    def shape(self) -> Size:
        """Logical extent along each axis."""
        return Size(self.trace.aval(self)[0])

    @property
    def dtype(self) -> DType:
        """Element type."""
        return of_numpy(self.trace.aval(self)[1])


def make(kind: type[LevelTensor], trace: Trace, **fields: Any) -> Any:
    """A tensor of a level, with no place in the tape."""
    t: Any = _new(kind)
    t._edge = t._cell = None
    t._rg = False
    fields["trace"] = trace
    fields["level"] = trace.level
    t.__dict__ = fields
    return t


def become(target: Any, new: Any) -> None:
    """Make `target` show what `new` shows: in-place ops on values of a transform."""
    if not target.level:                 # a node that saved this object must find it changed
        bump(target, "an in-place op inside of a transform")
    keep = {k: target.__dict__[k] for k in ("_base", "_steps", "_kids", "_creation")
            if k in target.__dict__}
    if isinstance(new, LevelTensor):
        if target.__class__ is not new.__class__:
            target.__class__ = new.__class__
        for name in ("value", "tangent", "trace", "level"):
            if name in new.__dict__:
                target.__dict__[name] = new.__dict__[name]
    else:
        target.__class__ = type(new)
        for name in ("value", "tangent", "trace", "level"):
            target.__dict__.pop(name, None)
        target.array = new.array
    target.__dict__.update(keep)
    target._edge, target._rg = new._edge, new._rg


def top_level(args: Sequence[Any]) -> Any:
    """The trace of the highest level among tensors (looking into sequences), or None."""
    best: Any = None
    for a in args:
        if isinstance(a, Tensor) and a.level and (best is None or a.level > best.level):
            best = a.trace
    return best
