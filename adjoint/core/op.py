"""The Op record: everything that is known of an operation, in one place.

A rule's parameter names are its residuals. `lambda ct, b: ...` keeps operand `b`; `out` keeps the
output (`out0`, or its name, where there are several); `x_aval` keeps only shape and dtype;
keyword-only parameters are attributes. Nothing else is reachable in backward, so what is saved
cannot drift from what is needed. Rules are written in ops, so they differentiate themselves.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from adjoint.base.aval import Aval, aval_of
from adjoint.base.errors import NotSupported
from adjoint.core.tensor import Node, OpNode, PairNode, Tensor

Rule = Callable[..., Any]


class OpFunction(Protocol):
    """The function that runs an op; `op` is its record."""

    op: Op
    __name__: str
    __qualname__: str

    def __call__(self, *args: Any, **attrs: Any) -> Any: ...


Key = str | tuple[str, ...]
OPS: dict[str, Op] = {}


class Op:
    """One operation. Use `op(...)` to declare one and get the function that runs it.

    impl    (*arrays, **attrs) -> array, or a tuple: `outs`, then `hidden`
    infer   (*avals, **attrs) -> aval(s); raises ShapeError/DTypeError in words
    vjp     operand -> (ct, *residuals, *, attrs) -> cotangent; a tuple of operands -> a tuple
    jvp     operand -> (t, *residuals, *, attrs) -> its share of the output tangent; None: linear
    batch   (op, args, batched, attrs) -> out, the batch axis of every batched operand in front
    cost    (*avals, **attrs) -> floating operations
    why     residual -> the reason it is kept, in words
    show    the value as people write it, "{a} @ {b}"; [...] is left out with an operand that is
            absent in it. Empty: as a call (a pointwise op: its expression)
    chooses (residual that is a condition, operand -> is it taken where the condition holds?)
    """

    name: str
    run: Rule                            # what is called for `impl`: it, or machine code before it
    infer: Rule
    vjp: Mapping[Key, Rule]
    jvp: Mapping[Key, Rule | None]
    batch: Rule | None = None
    cost: Rule = staticmethod(lambda *avals, **attrs: 0)
    why: Mapping[str, str] = {}
    show: str = ""
    node: str = ""                       # what grad_fn prints; "<Name>Backward0" when empty
    outs: tuple[str, ...] = ("out",)
    hidden: tuple[str, ...] = ()         # further results of impl, for the rules only
    differentiable: tuple[str, ...] | None = None   # outputs that carry a gradient; None: all
    view: bool = False                   # the output shows operand 0's memory
    autocast: str = ""                   # under amp.autocast: "lower" in 16 bits, "wide" in float32
    elementwise: bool = False            # each element depends on the operands' same element alone
    by_value: bool = False               # what it allocates on the way depends on operands' values
    chooses: tuple[str, Mapping[int, bool]] | None = None
    collective: Rule | None = None       # batch rule at the vmap that the attribute `axis` is
    prepare: Rule | None = None          # arrays -> arrays: promotion, before impl; not asked where
    #                                      all are float32 or all float64 (`kernels/bind_ir`)
    inplace: Rule | None = None          # (out_array, *arrays, **attrs): impl writing into out
    apart: Mapping[str, bool] | None = None     # operand that is read while inplace writes -> may
    #                                      it not share memory at all, or only not lie otherwise
    thrift: Rule | None = None           # operand -> what to keep in its place, or None
    scalar: Any = None                   # kernels.expr expression, for the pointwise family
    domain: Any = None                   # sample inputs for the law table: () -> [(args, attrs)]
    doc: str = ""
    _exposed: Any = None

    def __init__(self, name: str, impl: Rule, infer: Rule, vjp: Mapping[Any, Rule] | None = None,
                 jvp: Mapping[Any, Rule | None] | None = None, batch: Rule | None = None,
                 **fields: Any) -> None:
        self.name, self.impl, self.infer = name, impl, infer
        self.vjp, self.jvp, self.batch = vjp or {}, jvp or {}, batch
        if not fields.keys() <= FIELDS:
            raise TypeError(f"{name}: an op has no {sorted(fields.keys() - FIELDS)}; it has "
                            f"{sorted(FIELDS)}")
        vars(self).update(fields)
        self.operands, self.attrs, self.variadic = parameters(self.impl)
        self.multi = len(self.outs) + len(self.hidden) > 1 or self.variadic_out
        if not self.node:
            self.node = "".join([w[:1].upper() + w[1:] for w in name.split("_")]) + "Backward0"
        self.wide = not self.unrolled or len(self.operands) > 2 or bool(self.attrs)     # `OpNode`s
        self.plans: dict[int, Plan] = {}
        self.pushes: dict[int, tuple[Push, ...]] = {}
        self._small: tuple[Rule | None, int] = None, 0

    def _compute_by(self, rule: Rule) -> None:
        self._impl = self.run = rule
    impl = property(lambda self: self._impl, _compute_by)     # the raw results of raw arrays

    def settle(self, small: Rule, limit: int) -> None:
        """`small` is what `impl` comes to where no operand has `limit` elements."""
        self._small = small, limit
        self._before = vars(self).pop("facts", None)    # (which a call that runs may be reading)

    def stored(self, out: Any, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> bool:
        """Whether the op of large arrays was computed right into `out`; else nothing was done."""
        return False

    @cached_property
    def node_type(self) -> type[Node]:
        """The class of its nodes; few programs need that of every op."""
        base = OpNode if self.wide else PairNode
        return type(self.node, (base,), {
            "__slots__": (), "op": self, "__module__": "builtins"})     # prints as PyTorch's

    @cached_property
    def facts(self) -> tuple[Any, ...]:
        """What dispatch asks for at every call, in one piece."""
        flows = None if self.differentiable is None else tuple(
            o in self.differentiable for o in self.outs)
        return (self.multi, self.view, self.wide, self.plans, self.node_type, len(self.hidden),
                flows, *self._small)

    @cached_property
    def followed(self) -> tuple[bool, ...] | None:
        """Of each operand, whether it has a rule for its gradient; None: there are any number."""
        ruled = {name for names in self.compact[0] for name in names}
        return None if self.variadic else tuple([o in ruled for o in self.operands])

    @cached_property
    def compact(self) -> tuple[dict[tuple[str, ...], Rule | None], ...]:
        """(vjp, jvp) with tuples of operands as keys; verified when they are first needed."""
        tables = (_tuples(self.vjp), _tuples(self.jvp))
        for table in tables:
            for key, rule in table.items():
                self._verify(key, rule)
        return tables

    variadic_out = False
    unrolled = False             # called through the templates of core/callers.py
    often = False                # as good as called several times: see ops/family.py, `_general`
    own: Any = None                      # callers.Own of a pointwise op of one or two operands
    call: Any = None

    @property
    def legal(self) -> set[str]:
        """Every residual name that a rule of this op may read."""
        names = {*self.outs, *self.hidden, "out", "outs"}
        if self.variadic:
            return names | {"xs", "avals", "wanted"}
        return names | {*self.operands, *(f"{o}_aval" for o in self.operands), "wanted"}

    def _verify(self, key: tuple[str, ...], rule: Rule | None) -> None:
        for operand in key:
            if operand not in self.operands and operand != "*":
                raise TypeError(f"{self.name}: rule for unknown operand {operand!r}, "
                                f"has {self.operands}")
        bad = set(reads(rule)) - self.legal
        if bad:
            raise TypeError(f"{self.name}.{key}: rule reads {sorted(bad)}, legal names "
                            f"are {sorted(self.legal)}")

    def plan(self, needs: int) -> Plan:
        """How to differentiate with respect to the operands whose bit is set in `needs`."""
        found = self.plans.get(needs)
        if found is None:
            found = self.plans[needs] = Plan(self, needs)
        return found

    def pushed(self, moving: int) -> tuple[Push, ...]:
        """How the tangents of the operands whose bit is set in `moving` are pushed."""
        found = self.pushes.get(moving)
        if found is None:
            found = self.pushes[moving] = tuple(_pushes(self, moving))
        return found

    @property
    def exposed(self) -> Op:
        """This op with its hidden results among its outputs: for transforms, whose rules read
        hidden values at their own level."""
        if not self.hidden:
            return self
        if self._exposed is None:
            from adjoint.core.bind import function_of

            def first(rule: Rule) -> Rule:
                def lifted(cts: Any, *args: Any, **attrs: Any) -> Any:
                    return rule(cts[:len(self.outs)], *args, **attrs)
                lifted.__signature__ = inspect.signature(rule)  # type: ignore[attr-defined]
                # (so that the residuals are read off as from the rule itself)
                return lifted
            own = {k: v for k, v in vars(self).items() if k in FIELDS}
            self._exposed = type(self)(**own | dict(
                impl=self.impl, outs=(*self.outs, *self.hidden), hidden=(), jvp=self.jvp,
                vjp={k: first(r) for k, r in self.vjp.items()},
                differentiable=self.differentiable or self.outs))
            self._exposed.call = function_of(self._exposed)
        return self._exposed

    def carries(self, index: int) -> bool:
        """True if output `index` has a gradient."""
        return self.differentiable is None or self.outs[index] in self.differentiable

    def residuals(self, wanted: set[str]) -> tuple[str, ...]:
        """Names kept for backward when the operands in `wanted` want a cotangent."""
        bits = sum(1 << i for i, o in enumerate(self.operands) if o in wanted)
        return self.plan(bits).kept

    def label(self) -> str:
        """What `__name__` gives; `ops.aten`, once it is used, gives PyTorch's name here."""
        return self.name

    __name__ = property(lambda self: self.label())    # (a record is called like a function there)

    def __repr__(self) -> str:
        return f"<op {self.name}>"


FIELDS = frozenset(Op.__annotations__) - {"own", "call", "run", "_exposed"}


def _tuples(table: Mapping[Any, Rule | None]) -> dict[tuple[str, ...], Rule | None]:
    return {(k,) if isinstance(k, str) else tuple(k): r for k, r in table.items()}


_VARARGS, _VARKEYWORDS = 4, 8      # co_flags of the code object (inspect.CO_*)


def _plain(f: Any) -> Any:
    """The code object of a plain function; None where only its signature tells (wrappers)."""
    if hasattr(f, "__wrapped__") or hasattr(f, "__signature__"):
        return None
    return getattr(f, "__code__", None)


def parameters(f: Rule) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """(positional-only, keyword-only, is variadic) parameters of an impl. Read off the code
    object: `inspect.signature` for a few hundred records costs as much as importing NumPy."""
    known = getattr(f, "parameters", None)
    if known is not None:
        return known
    code = _plain(f)
    if code is None:
        params = inspect.signature(f).parameters.values()
        return (tuple(p.name for p in params if p.kind is p.POSITIONAL_ONLY),
                tuple(p.name for p in params if p.kind is p.KEYWORD_ONLY),
                any(p.kind is p.VAR_POSITIONAL for p in params))
    names, n = code.co_varnames, code.co_argcount
    return (names[:code.co_posonlyargcount], names[n:n + code.co_kwonlyargcount],
            bool(code.co_flags & _VARARGS))


def reads(rule: Rule | None) -> tuple[str, ...]:
    """The residual names a rule reads: its positional parameters after the first."""
    if rule is None:
        return ()
    code = _plain(rule)
    if code is not None:
        return tuple(code.co_varnames[1:code.co_argcount])
    params = inspect.signature(rule).parameters.values()
    return tuple(p.name for p in params
                 if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))[1:]


def attr_names(rule: Rule | None, op: Op) -> tuple[str, ...]:
    """The attributes a rule reads: its keyword-only parameters (all, for ``**attrs``)."""
    if rule is None:
        return op.attrs
    code = _plain(rule)
    if code is not None:
        if code.co_flags & _VARKEYWORDS:
            return op.attrs
        n = code.co_argcount
        return tuple(code.co_varnames[n:n + code.co_kwonlyargcount])
    params = list(inspect.signature(rule).parameters.values())
    if any(p.kind is p.VAR_KEYWORD for p in params):
        return op.attrs
    return tuple(p.name for p in params if p.kind is p.KEYWORD_ONLY)


class Group:
    """One rule as a plan runs it: positions of its residuals, its attributes, its targets; `grow`
    is what a rule offers that can add its cotangent to an array without making it first:
    `rule.grow(sum, ct, *residuals)`, False where it did not. No later rule reads the residuals at
    `spent`."""

    __slots__ = ("rule", "positions", "attrs", "targets", "joint", "wants", "grow", "spent")

    def __init__(self, rule: Rule | None, positions: tuple[int, ...], attrs: tuple[str, ...],
                 targets: tuple[int, ...], joint: bool, wants: bool) -> None:
        self.rule: Any = rule                     # (a vjp table has no None rules)
        self.positions, self.attrs = positions, attrs
        self.targets, self.joint, self.wants = targets, joint, wants
        self.grow: Any = getattr(rule, "grow", None)
        self.spent: tuple[int, ...] = ()


OFTEN = 20      # uses of a plan, after which writing its rules out has paid

# How a node of one or two operands fills its residual slots.
NOTHING, FIRST, SECOND, SWAPPED, OUTPUT, BOTH, OTHER = range(7)
LAYOUTS = {(): NOTHING, (("in", 0),): FIRST, (("in", 1),): SECOND, (("out", 0),): OUTPUT,
           (("in", 1), ("in", 0)): SWAPPED, (("in", 0), ("in", 1)): BOTH}


def aval_of_value(x: Any) -> Aval:
    """Shape and dtype of a tensor of any level, an array or a number."""
    array = x.array if isinstance(x, Tensor) else x
    if not hasattr(array, "shape"):
        array = np.asarray(array)
    return Aval(tuple(array.shape), array.dtype)


Push = Callable[[Sequence[Any], Sequence[Any], Sequence[Any], Mapping[str, Any]], Any]


def _push(op: Op, rule: Rule | None, indices: tuple[int, ...], joint: bool) -> Push:
    """One forward rule as (tangents, primals, every output, attrs) -> its share, with the places
    of its residuals written out. Without a rule the op is linear in the operand."""
    if rule is None:
        operands = [f"t[{i}]" if i in indices else f"p[{i}]" for i in range(len(op.operands))]
        text = f"call({', '.join(operands)}{', **k' if op.attrs else ''})"
    else:
        form = {"in": "p[{}]", "out": "e[{}]", "aval": "(None if p[{0}] is None else aval(p[{0}]))"}
        moved = ", ".join(f"t[{i}]" for i in indices)
        values = [f"({moved},)" if joint else moved]
        values += [form.get(kind, "e").format(i) for kind, i in
                   (_source(op, n) for n in reads(rule))]
        values += [f"{a}=k[{a!r}]" for a in attr_names(rule, op)]
        text = f"rule({', '.join(values)})"
    code = compile(f"lambda t, p, e, k: {text}", "<adjoint rule>", "eval")
    made: Push = eval(code, {"rule": rule, "call": op.call, "aval": aval_of_value})  # noqa: S307
    # (our own text: names and numbers of the record)
    return made


def _pushes(op: Op, moving: int) -> Iterator[Push]:
    """The forward rules for some moving operands: joint ones first."""
    rest = {o for i, o in enumerate(op.operands) if moving >> i & 1}
    table = op.compact[1]
    for key in sorted(table, key=lambda k: -len(k)):
        if not rest & set(key):
            continue
        rest -= set(key)
        yield _push(op, table[key], tuple(op.operands.index(o) for o in key), len(key) > 1)
    for operand in sorted(rest & {o for key in op.compact[0] for o in key}):
        raise NotSupported(f"{op.name}: no forward-mode rule for operand {operand!r}")


class Plan:
    """What one pattern of wanted operands keeps, and how its backward runs.

    names   every residual name, in order; values are looked up by position
    kept    those of them that hold memory (avals do not)
    groups  the rules to call
    fast    optional: (ct, *vals) -> tuple of cotangents per operand, on raw arrays of `dtype`
    into    optional: `fast` that adds to arrays: (ct, *vals, out=, same=), see `choose.Adding`
    over    optional: `fast` for large arrays, the only cotangent in the memory of `ct`
    down    optional: that and its sum down the columns: (ct, *vals, over=), see `columns.Columns`
    """

    __slots__ = ("op", "needs", "names", "kept", "groups", "fast", "sources", "wanted", "pick",
                 "grows", "keeps_out", "keeps_a", "keeps_b", "dtype", "large", "limit", "pair",
                 "layout", "into", "over", "down", "rules", "choice", "uses", "born", "variants")
    _post_hooks = _pre_hooks = _tensor_hooks = _retain = _metadata = None   # see `alone`
    hooked = False

    def __init__(self, op: Op, needs: int) -> None:
        self.op, self.needs = op, needs
        self.born: int | None = None     # of the nodes (`core.trace.born`), where it is known
        self.variants: dict[Any, Plan] = {}
        self.fast: Rule | None = None
        self.large: Rule | None = None   # `fast` by a generated kernel, from `limit` elements
        self.limit = 1 << 62
        self.into: Rule | None = None
        self.over: Rule | None = None
        self.down: Rule | None = None
        self.pick: Rule | None = None
        self.rules: Rule | None = None   # `run` written out, once the plan was used often
        self.choice: Rule | None = None  # the same of an op that chooses
        self.uses = 0
        self.dtype: Any = None     # of operands and output, where `fast` is set
        table = op.compact[0]
        chosen = _choose(op, table, needs)
        names: dict[str, None] = {}
        for key in chosen:
            names.update(dict.fromkeys(n for n in reads(table[key]) if n != "wanted"))
        self.names = tuple(names)
        self.kept = tuple(n for n in names if not n.endswith("_aval") and n != "avals")
        self.groups = self._groups(table, chosen)
        self.grows = any(g.grow is not None for g in self.groups)
        self.wanted = tuple(sorted(t for g in self.groups for t in g.targets))
        self.sources = tuple(_source(op, n) for n in self.names)
        self.keeps_a, self.keeps_b = ("in", 0) in self.sources, ("in", 1) in self.sources
        self.pair = len(op.operands) == 2
        self.layout = LAYOUTS.get(self.sources, OTHER)
        self.keeps_out = any(kind == "out" for kind, _ in self.sources)

    def variant(self, **fields: Any) -> Plan:
        """The same plan but for these fields; without `fast` the engine takes the full path."""
        key = tuple(fields.items())
        found = self.variants.get(key)
        if found is None:
            found = self.variants[key] = self._copy(Plan, fields)
        return found

    def alone(self) -> Plan:
        """A plan for one node, with room for what that one alone has: hooks, metadata."""
        return self._copy(_OwnPlan, {"fast": None})

    def _copy(self, kind: type[Plan], fields: Mapping[str, Any]) -> Plan:
        made = kind.__new__(kind)
        for name in Plan.__slots__:
            setattr(made, name, getattr(self, name))
        made.variants = {}
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    def _groups(self, table: Mapping[tuple[str, ...], Rule | None],
                chosen: Sequence[tuple[str, ...]]) -> list[Group]:
        """The rules, in the order in which they run: those first whose cotangents are gradients of
        weights as a rule, small beside the residual that is not needed after them."""
        groups = sorted([self._group(key, table[key]) for key in chosen],
                        key=lambda g: g.grow is None)
        light = {i for i, n in enumerate(self.names) if n not in self.kept}
        later: set[int] = set()
        for g in reversed(groups):
            g.spent = tuple(sorted({p for p in g.positions if p >= 0} - later - light))
            later.update(g.positions)
        return groups

    def _group(self, key: tuple[str, ...], rule: Rule | None) -> Group:
        op = self.op
        if key == ("*",):
            targets: tuple[int, ...] = (-1,)
        else:
            targets = tuple(op.operands.index(o) for o in key)
        asked = reads(rule)
        positions = tuple(self.names.index(n) if n != "wanted" else -1 for n in asked)
        return Group(rule, positions, attr_names(rule, op), targets,
                     len(key) > 1 or key == ("*",), "wanted" in asked)

    def run(self, ct: Any, vals: list[Any], attrs: Mapping[str, Any], n: int,
            sums: Sequence[Any] | None = None, made: list[Any] | None = None) -> list[Any]:
        """Cotangents per operand (None where none flows) by calling the rules. `vals` is emptied:
        a residual goes when no rule is left that reads it. `sums` are arrays per operand that
        rules which can may add to; then no cotangent comes back. `made` takes what each rule gave:
        a second call with it goes on after the last rule that came to its end."""
        out: list[Any] = [None] * n
        made = [] if made is None else made
        for g in self.groups[len(made):] if made else self.groups:
            args = [self._wants(n) if i < 0 else vals[i] for i in g.positions]
            have = sums[g.targets[0]] if sums is not None and g.grow is not None else None
            if have is not None and g.grow(have, ct, *args):
                made.append(None)
            else:
                made.append(g.rule(ct, *args, **{k: attrs[k] for k in g.attrs}))
            args.clear()
            for i in g.spent:
                vals[i] = None
        for g, result in zip(self.groups, made, strict=True):
            if not g.joint:
                out[g.targets[0]] = result
            elif g.targets == (-1,):
                out[:] = result
            else:
                for t, r in zip(g.targets, result, strict=True):
                    out[t] = r
        return out

    def pull(self, ct: Any, vals: list[Any], attrs: Mapping[str, Any], n: int,
             sums: Sequence[Any] | None = None) -> list[Any]:
        """`run`, quickly where that is done again and again."""
        rules = self.rules or self.choice
        if rules is None:
            self.uses += 1
            if self.uses < OFTEN or self.op.variadic and self.groups[0].wants:
                return self.run(ct, vals, attrs, n, sums)
            rules = self._written_out(n)
            if self.op.chooses:                  # (machine code would not ask where it leads)
                self.choice = rules
            else:
                self.rules = rules
        found: list[Any] = rules(ct, vals, attrs) if sums is None else rules(ct, vals, attrs, sums)
        return found

    def _written_out(self, n: int) -> Rule:
        """The calls of the rules as one function (ct, values, attributes, sums) -> cotangents;
        values go as in `run`. There is no parameter for sums where no rule can add to one."""
        space: dict[str, Any] = {"wanted": self._wants(n), "nothing": (None,) * n}
        lines, out = ["def rules(c, v, k, s=nothing):" if self.grows else "def rules(c, v, k):"], \
            ["None"] * n
        for i, g in enumerate(self.groups):
            space[f"rule{i}"], space[f"grow{i}"] = g.rule, g.grow
            values = ["c", *("wanted" if p < 0 else f"v[{p}]" for p in g.positions)]
            call = f"rule{i}({', '.join([*values, *(f'{a}=k[{a!r}]' for a in g.attrs)])})"
            if g.grow is not None:
                have = f"s[{g.targets[0]}]"
                call = (f"None if {have} is not None and grow{i}({have}, {', '.join(values)}) "
                        f"else {call}")
            if g.targets == (-1,):                   # one cotangent for each of any number
                lines.append(f"    return list({call})")
                break
            for t in g.targets:
                out[t] = f"o{t}"
            made = ", ".join(f"o{t}" for t in g.targets) + ("," if g.joint else "")
            lines.append(f"    {made} = {call}")
            if g is not self.groups[-1]:             # (after the last one all of them go)
                lines += [f"    v[{p}] = None" for p in g.spent]
        lines.append(f"    return [{', '.join(out)}]")
        exec(compile("\n".join(lines), "<adjoint rules>", "exec"), space)  # noqa: S102
        # (our own text: names and numbers of the record)
        made_rules: Rule = space["rules"]
        return made_rules

    def _wants(self, n: int) -> tuple[bool, ...]:
        return tuple(bool(self.needs >> i & 1) for i in range(n))


class _OwnPlan(Plan):
    """What `Plan.alone` gives: a node's own, to be written to."""

    __slots__ = ("__dict__",)

    def variant(self, **fields: Any) -> Plan:
        for name, value in fields.items():
            setattr(self, name, value)
        return self

    def alone(self) -> Plan:
        return self


def _choose(op: Op, table: Mapping[tuple[str, ...], Rule | None],
            needs: int) -> list[tuple[str, ...]]:
    """Rules that cover the wanted operands: the largest joint keys first, then single ones."""
    if op.variadic:
        return [("*",)] if needs and ("*",) in table else []
    wanted = {o for i, o in enumerate(op.operands) if needs >> i & 1}
    chosen: list[tuple[str, ...]] = []
    for exact in (True, False):
        for key in sorted(table, key=lambda k: -len(k)):
            inside = wanted & set(key)
            usable = len(inside) == len(key) if exact else bool(inside) and len(key) > 1
            if inside and usable:
                chosen.append(key)
                wanted -= set(key)
    return chosen


def _source(op: Op, name: str) -> tuple[str, int]:
    """Where a residual comes from: ("in", i), ("aval", i), ("out", i), ("xs"|"avals"|"outs", 0)."""
    if name in ("xs", "avals", "outs"):
        return name, 0
    if name in op.operands:
        return "in", op.operands.index(name)
    if name == "out":
        return "out", 0
    every = (*op.outs, *op.hidden)
    if name in every:
        return "out", every.index(name)
    return "aval", op.operands.index(name[:-5])


def op(name: str, impl: Rule, infer: Rule, vjp: Mapping[Any, Rule] | None = None,
       jvp: Mapping[Any, Rule | None] | None = None, batch: Rule | None = None,
       **fields: Any) -> OpFunction:
    """Declare an op; returns the function that runs it (its record is ``function.op``).

    >>> from adjoint.core.op import OPS
    >>> OPS["mul"].residuals({"a"})
    ('b',)
    """
    from adjoint.core.bind import function_of
    record = Op(name, impl, infer, vjp or {}, jvp or {}, batch, **fields)
    return register(record, function_of(record))


def register(record: Op, function: Any) -> OpFunction:
    """Enter a record and the function that runs it into the registry."""
    if record.name in OPS:
        raise TypeError(f"op {record.name!r} is declared twice")
    OPS[record.name] = record
    function.__name__ = function.__qualname__ = record.name
    function.__doc__ = record.doc or f"Run the op `{record.name}`; `.op` is its record."
    function.op = record
    record.call = function
    return function


def avals(args: Sequence[Any]) -> list[Aval]:
    """Avals of raw operands (None stays None)."""
    return [None if a is None else aval_of(a) for a in args]  # type: ignore[misc]  # optional
