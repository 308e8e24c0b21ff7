"""What the doctor's checks build on: the finding, the check, what is known of the run."""
from __future__ import annotations

import linecache
import re
import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from adjoint.base import provenance
from adjoint.core.modes import Observer
from adjoint.core.tensor import AccumulateGrad, Kept, OutRef, Port, Tensor

Place = tuple[Any, int]         # code object and instruction: resolved to a line when printed
NOWHERE: Place = (None, 0)


@dataclass(frozen=True)
class Finding:
    """One mistake: its code, where it is, what was measured, and what to do."""

    code: str
    title: str
    file: str
    line: int
    function: str
    source: str
    evidence: str
    fix: str

    @property
    def where(self) -> str:
        """``file:line``; "" where no line is known."""
        return f"{self.file}:{self.line}" if self.line else ""

    def to_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)

    def one_line(self) -> str:
        """Code, place, title and evidence."""
        at = f" {self.where}:" if self.line else ""
        return f"{self.code}{at} {self.title}: {self.evidence}"


class Check(Observer):
    """One kind of mistake: watches, and says at the end what it found.

    A subclass sets `code`, `title`, `cause` and `fix` and overrides the events that it needs;
    `ops` restricts `before`, `after` and `forward` to ops of those names.
    """

    cotangents = True

    code = ""
    title = ""
    cause = ""
    fix = ""
    turn = 0                    # lower ones are told of an event first; equal ones by their codes
    ops: frozenset[str] | None = None

    def __init__(self, case: Case) -> None:
        self.case = case

    def before_step(self, optimizer: Any, place: Place) -> None:
        """An optimizer is about to update."""

    def after_step(self, optimizer: Any, place: Place) -> None:
        """It has updated."""

    def error(self, error: Any, place: Place) -> Iterable[Finding]:
        """The program stopped with one of our errors: what it means."""
        return ()

    def findings(self) -> Iterable[Finding]:
        """What was seen until now."""
        return ()

    def shares(self) -> Iterable[tuple[str, str, str, float]]:
        """(kind, module, ``file:line``, share) of each layer that it measures."""
        return ()

    def found(self, place: Place, evidence: str, fix: str = "") -> Finding:
        """A finding of this check at a recorded place."""
        code, lasti = place
        if code is None:
            return self.found_at("", 0, "", evidence, fix)
        line = provenance.line_of(code, lasti)
        return self.found_at(code.co_filename, line, code.co_name, evidence, fix)

    def found_at(self, file: str, line: int, function: str, evidence: str,
                 fix: str = "") -> Finding:
        """A finding of this check at a line of a file."""
        source = linecache.getline(file, line).strip() if line else ""
        return Finding(self.code, self.title, file, line, function, source, evidence,
                       fix or self.fix)


CHECKS: list[type[Check]] = []


def check(cls: type[Check]) -> type[Check]:
    """Enter a check into the table of codes."""
    CHECKS.append(cls)
    return cls


class Known:
    """A parameter of a module that was called: its name, its model, who defines it.

    `caller` is the class of the model that called the module without having it among its own.
    """

    __slots__ = ("tensor", "name", "model", "version", "owners", "caller")

    def __init__(self, tensor: Any, name: str, model: Any) -> None:
        self.tensor, self.name, self.model = tensor, name, id(model)
        self.version, self.caller = tensor._version, ""
        owners = []
        owner = model
        for part in name.split(".")[1:]:
            owners.append((type(owner), part))
            owner = owner._modules.get(part)
        self.owners = tuple(owners)

    def defined(self) -> tuple[str, int, str] | None:
        """(file, line, function) of ``self.<name> = ...`` in the innermost class of the user; of
        its constructor where no line reads like that."""
        within = None
        for cls, part in reversed(self.owners):
            code = getattr(cls.__init__, "__code__", None)
            if code is None or provenance.inside[code.co_filename]:
                continue
            it = code.co_varnames[0]                      # `self`, as a rule
            for line in sorted({n for _, _, n in code.co_lines() if n is not None}):
                text = linecache.getline(code.co_filename, line)
                if re.search(rf"\b{it}\.{part}\b[^=]*=[^=]", text):
                    return code.co_filename, line, code.co_qualname
            within = within or (code.co_filename, code.co_firstlineno, code.co_qualname)
        return within


class Case:
    """What the checks share: parameters by name, optimizers that stepped, steps and norms."""

    def __init__(self) -> None:
        self.parameters: dict[int, Known] = {}
        self.models: dict[int, Any] = {}         # id -> weak reference
        self.training: dict[int, bool] = {}      # mode of each model at its last call
        self.inner: set[int] = set()             # modules called inside of a model, once looked at
        self.called: list[Any] = []              # those that this call of a model called first
        self.optimizers: dict[int, Any] = {}     # those that stepped
        self.steps = 0
        self.walks = 0
        self.losses: list[float] = []
        self.norms: list[float] = []             # of all gradients at each step
        self.calls = 0                           # of outermost modules
        self.not_finite = ""                     # the code of the check that saw the first one

    def meet(self, module: Any) -> None:
        """Learn the names of the parameters of an outermost module."""
        self.training[id(module)] = module.training
        self._meet_strays(module)
        known = self.models.get(id(module))
        if known is not None and known() is module:
            return
        self.models[id(module)] = weakref.ref(module)
        kind = type(module).__name__
        found = [(name, p) for name, p in module.named_parameters()
                 if p.__class__.__name__ != "UninitializedParameter"]
        for name, p in found:
            have = self.parameters.get(id(p))
            if have is None or have.name.count(".") < name.count(".") + 1:
                self.parameters[id(p)] = Known(p, f"{kind}.{name}", module)

    def inside(self, module: Any) -> None:
        """A module was called by another one."""
        if id(module) not in self.inner:
            self.inner.add(id(module))
            self.called.append(module)

    def _meet_strays(self, model: Any) -> None:
        """Of the modules that `model` called, those that are not its own: kept in a plain list,
        say, where neither `parameters()` nor `to()` finds them."""
        if self.called:
            own = {id(m) for m in model.modules()}
            for module in self.called:
                for name, p in () if id(module) in own else module.named_parameters():
                    if p.__class__.__name__ != "UninitializedParameter":
                        known = Known(p, f"{type(module).__name__}.{name}", module)
                        known.model, known.caller = id(model), type(model).__name__
                        self.parameters.setdefault(id(p), known)
            self.called.clear()

    def name(self, leaf: Any) -> str:
        """The name of a leaf as users know it."""
        known = self.parameters.get(id(leaf))
        if known is not None:
            return known.name
        return f"a leaf of shape {list(leaf.array.shape)}"

    def optimized(self) -> set[int]:
        """Ids of the parameters of every optimizer that stepped."""
        return {id(p) for o in self.optimizers.values() for g in o.param_groups
                for p in g["params"]}


def leaves_of(walk: Any) -> Iterator[Any]:
    """The leaves that a backward pass will accumulate into."""
    for ends in walk.last.values():
        for end in ends:
            leaf = end.variable
            if leaf is not None:
                yield leaf


def place_of(walk: Any) -> Place:
    """The user's line that called backward."""
    return walk.mark.code, walk.mark.lasti


def node_place(node: Any) -> Place:
    """The user's line that recorded a node."""
    return node.code, node.lasti


def user_place(depth: int = 1) -> Place:
    """The user's line that is running now."""
    frame = provenance.user_frame(sys._getframe(depth + 1))
    return (frame.f_code, frame.f_lasti) if frame is not None else NOWHERE


def spot(place: Place) -> str:
    """``file:line`` of a place; "" where it is not known."""
    code, lasti = place
    return f"{code.co_filename}:{provenance.line_of(code, lasti)}" if code is not None else ""


def parents(node: Any) -> Iterator[Any]:
    """The nodes (and leaf accumulators) that a node's edges lead to."""
    for e in node.edges:
        if e is not None:
            yield e.node if type(e) is Port else e


def upstream(node: Any, limit: int = 20_000) -> tuple[int, int, set[int]]:
    """(nodes, bytes kept for backward, ids of leaves) of the graph that ends at `node`."""
    seen = {node}
    stack = [node]
    held: dict[int, int] = {}
    found: set[int] = set()
    while stack and len(seen) < limit:
        n = stack.pop()
        if type(n) is AccumulateGrad:
            found.add(id(n.variable))
            continue
        saved = n.saved
        for s in saved if type(saved) is tuple else ():
            for one in s if type(s) is tuple else (s,):
                array = one.array if isinstance(one, (Tensor, OutRef, Kept)) else None
                if isinstance(array, np.ndarray):
                    held[id(array)] = array.nbytes
        for p in parents(n):
            if p not in seen:
                seen.add(p)
                stack.append(p)
    return len(seen), sum(held.values()), found


def norm(arrays: Iterable[Any]) -> float:
    """The 2-norm over all elements of the arrays, in double precision."""
    total = 0.0
    for a in arrays:
        if isinstance(a, np.ndarray) and a.size:
            flat = a.reshape(-1)
            if flat.dtype.kind == "c":
                flat = np.abs(flat)
            elif flat.dtype.kind != "f" or flat.dtype.itemsize < 4:
                flat = flat.astype(np.float64)
            total += float(np.dot(flat, flat))
    return float(np.sqrt(total)) if total >= 0 else float("nan")


def several(names: list[str], most: int = 4) -> str:
    """Names in a sentence, the last ones counted."""
    if len(names) <= most:
        return ", ".join(names)
    return ", ".join(names[:most]) + f" and {len(names) - most} more"
