"""How much memory a training step of a named architecture needs, by formula and by walk.

Activations are counted by several routes that are shown side by side:

- `formula`: Korthikanti's bytes per layer (a GPT block in 16 bit), where they apply;
- `walk`: value by value, what the rules of a block's operations keep;
- `lean`: the same walk when results of norms and activations are recomputed in backward;
- `traced`: what an engine reports for the block, when one was given to `set_tracer`.

`Estimate.differences` says, group by group, why formula and walk differ, and the parts sum to the
whole difference. All amounts are bytes on the fullest rank; GB are 10^9 bytes.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.memory.architectures import Architecture, Saved, architecture, dense
from adjoint.memory.devices import Device
from adjoint.memory.parallel import RECOMPUTE, Parallel, States, layer_bytes, states

ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp64": 8}
_LONG = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}

# Bytes of optimizer state per parameter: moments, and whether 16-bit weights need a 32-bit copy.
OPTIMIZERS = {
    "adamw": 8.0,
    "adamw-8bit": 2.0,
    "adamw-16bit": 4.0,
    "lion": 4.0,
    "momentum": 4.0,
    "sgd": 0.0,
    "none": 0.0,
}

Tracer = Callable[[Architecture, "Options"], Iterable[tuple[str, float]]]
_tracers: list[Tracer] = []


def set_tracer(tracer: Tracer | None) -> None:
    """Give the `traced` route: a function of (architecture, options) to (value name, bytes) pairs.

    The pairs are all values that one block keeps for backward on one rank; None removes the route.
    """
    _tracers[:] = [] if tracer is None else [tracer]


@dataclass(frozen=True)
class Options:
    """How the model is trained.

    `seq` tokens per sequence, `batch` sequences per rank and micro-batch, `attention` "flash"
    (tiled) or "dense", `recompute` "none", "selective" (attention core) or "full" (whole blocks),
    `master` a 32-bit copy of 16-bit weights, `gradient` the gradients' type (None: the weights').
    """

    seq: int
    batch: int = 1
    dtype: str = "bf16"
    optimizer: str = "adamw"
    master: bool = True
    gradient: str | None = None
    attention: str = "flash"
    recompute: str = "none"
    parallel: Parallel = Parallel()

    def __post_init__(self) -> None:
        for name in ("dtype", "gradient"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _LONG.get(value, value))
        choices: dict[str, tuple[str | None, ...]] = {
            "dtype": tuple(ELEMENT_BYTES), "gradient": (None, *ELEMENT_BYTES),
            "optimizer": tuple(OPTIMIZERS), "attention": ("flash", "dense"),
            "recompute": RECOMPUTE,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                listed = ", ".join(str(k) for k in known)
                raise ArgumentError(f"Options: {name}={getattr(self, name)!r}; one of {listed}")
        if self.seq < 1 or self.batch < 1:
            raise ArgumentError(
                f"Options: seq={self.seq}, batch={self.batch}; both have to be at least 1"
            )

    @property
    def width(self) -> int:
        """Bytes per element."""
        return ELEMENT_BYTES[self.dtype]


# ---------------------------------------------------------------------------------------------
# Expressions

_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.Mod: operator.mod,
}


def evaluate(expression: str, symbols: Mapping[str, float]) -> float:
    """Value of an arithmetic expression over named symbols; nothing else is allowed in it.

    >>> evaluate("34*s*b*h * L / 1e9", dict(s=8192, b=1, h=8192, L=80))
    182.53611008
    """
    try:
        tree = ast.parse(expression.replace("^", "**"), mode="eval")
    except SyntaxError as error:
        raise ArgumentError(
            f"evaluate: {expression!r} is not an expression ({error.msg})"
        ) from None
    return _value(tree.body, symbols, expression)


def _value(node: ast.expr, symbols: Mapping[str, float], whole: str) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in symbols:
            raise ArgumentError(
                f"evaluate: {node.id!r} in {whole!r} is not a symbol; they are "
                f"{', '.join(sorted(symbols))}"
            )
        return symbols[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand, symbols, whole)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left, symbols, whole), _value(node.right, symbols, whole)
        if isinstance(node.op, ast.Pow) and abs(right) > 64:
            raise ArgumentError(f"evaluate: the power {right} in {whole!r} is beyond 64")
        try:
            return _BINARY[type(node.op)](left, right)
        except ZeroDivisionError:
            raise ArgumentError(f"evaluate: {whole!r} divides by zero") from None
    raise ArgumentError(
        f"evaluate: {whole!r} may hold numbers, symbols, + - * / // % ** and parentheses only"
    )


# ---------------------------------------------------------------------------------------------
# The estimate


@dataclass(frozen=True)
class Line:
    """One line of a report: what, how it was computed, bytes per rank."""

    name: str
    formula: str
    nbytes: float


@dataclass(frozen=True)
class Difference:
    """What one group of values adds to the walk over the formula, in bytes per layer, and why."""

    group: str
    formula: float
    walk: float
    why: str


@dataclass(frozen=True)
class Estimate:
    """Memory of one training step on the fullest rank, in bytes."""

    architecture: Architecture
    options: Options
    parameters: int
    rank_parameters: float
    states: States
    lines: tuple[Line, ...]
    block: tuple[Line, ...]
    routes: dict[str, float]
    differences: tuple[Difference, ...] = field(repr=False)

    @property
    def activations(self) -> float:
        """Bytes kept for backward when the loss has been computed (the `walk` route)."""
        return sum(x.nbytes for x in self.lines if x.name in ("blocks", "outside of blocks"))

    @property
    def peak(self) -> float:
        """All of it together."""
        return sum(x.nbytes for x in self.lines)

    def fits(self, on: Device) -> bool:
        """Whether one device of this kind holds a rank."""
        return self.peak <= on.memory

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "architecture": self.architecture.name,
            "options": asdict(self.options),
            "parameters": self.parameters,
            "published_parameters": self.architecture.published,
            "parameters_per_rank": self.rank_parameters,
            "bytes": {x.name: x.nbytes for x in self.lines},
            "block_bytes": [asdict(x) for x in self.block],
            "routes_bytes_per_layer": self.routes,
            "differences": [asdict(d) for d in self.differences],
            "activations": self.activations,
            "peak": self.peak,
        }


def symbols(arch: Architecture, options: Options) -> dict[str, float]:
    """The symbols of `arch` with the run's s, b, e and t.

    >>> from adjoint.memory.architectures import architecture
    >>> symbols(architecture("gpt2"), Options(1024, 4))["s"]
    1024
    """
    extra = {"s": options.seq, "b": options.batch, "e": options.width,
             "t": options.parallel.tensor}
    return {**arch.symbols, **extra}


def parameters(arch: Architecture) -> int:
    """Number of parameters, exactly.

    >>> from adjoint.memory.architectures import architecture
    >>> parameters(architecture("llama-3.1-70b"))
    70553706496
    """
    layers = arch.symbols["L"]
    return sum(
        int(evaluate(p.count, arch.symbols)) * (layers if p.per_layer else 1) for p in arch.parts
    )


def _rank_parameters(arch: Architecture, parallel: Parallel) -> float:
    """Parameters of the rank that has most: its share of the layers and one end of the model."""
    t, layers = parallel.tensor, arch.symbols["L"] / parallel.pipeline
    inner, ends = 0.0, []
    for p in arch.parts:
        count = evaluate(p.count, arch.symbols) / (t if p.split else 1)
        if p.per_layer:
            inner += count * layers
        else:
            ends.append((p.name in ("final norm", "output projection", "pooler"), count))
    if parallel.pipeline == 1:
        return inner + sum(count for _, count in ends)
    last = sum(count for is_last, count in ends if is_last)
    return inner + max(last, sum(count for is_last, count in ends if not is_last))


def _rows(arch: Architecture, options: Options) -> tuple[Saved, ...]:
    if options.attention == "flash":
        return arch.block
    return dense(arch.block, dropout=arch.dropout)


def _row_bytes(row: Saved, values: Mapping[str, float], parallel: Parallel) -> float:
    share = parallel.tensor if row.split or parallel.sequence else 1
    return evaluate(row.elements, values) * evaluate(row.width, values) / share


def _walk(rows: Iterable[Saved], arch: Architecture, options: Options) -> list[Line]:
    values = symbols(arch, options)
    return [
        Line(f"{r.op}: {r.value}", f"{r.elements} * {r.width}",
             _row_bytes(r, values, options.parallel))
        for r in rows
    ]


def _kept(rows: Iterable[Saved], options: Options) -> list[Saved]:
    """Rows that stay until backward in this recomputation mode."""
    if options.recompute == "selective":
        return [r for r in rows if not r.selective]
    return list(rows)


def estimate(arch: Architecture | str, options: Options) -> Estimate:
    """Memory of a training step.

    >>> e = estimate("llama-3.1-70b", Options(8192, 1))
    >>> round(e.states.total / 1e9), round(e.routes["formula"] * 80 / 1e9, 1)
    (1129, 182.5)
    """
    arch = architecture(arch) if isinstance(arch, str) else arch
    parallel, layers = options.parallel, arch.symbols["L"]
    if layers:
        parallel.check(layers, arch.symbols["a"], arch.symbols["k"], options.seq)
    total, on_rank = parameters(arch), _rank_parameters(arch, parallel)
    kinds = _bytes_per_parameter(options)
    model = states(on_rank, parallel, **kinds)
    rows = _rows(arch, options)
    routes = _routes(arch, options, rows)
    lines = [
        Line("weights", f"{on_rank:,.0f} * {kinds['weight']:g}" + _over(parallel, 3),
             model.weights),
        Line("gradients", f"{on_rank:,.0f} * {kinds['gradient']:g}" + _over(parallel, 2),
             model.gradients),
        Line("optimizer", f"{on_rank:,.0f} * {kinds['moments']:g}" + _over(parallel, 1),
             model.optimizer),
        Line("32-bit weights", f"{on_rank:,.0f} * {kinds['master']:g}" + _over(parallel, 1),
             model.master),
        *_activation_lines(arch, options, rows),
    ]
    return Estimate(
        arch, options, total, on_rank, model, tuple(lines), tuple(_walk(rows, arch, options)),
        routes, tuple(_differences(arch, options, rows)),
    )


def _over(parallel: Parallel, stage: int) -> str:
    return f" / {parallel.data}" if parallel.zero >= stage and parallel.data > 1 else ""


def _bytes_per_parameter(options: Options) -> dict[str, float]:
    weight = float(options.width)
    trains = options.optimizer != "none"
    gradient = float(ELEMENT_BYTES[options.gradient]) if options.gradient else weight
    master = 4.0 if trains and options.master and weight < 4 else 0.0
    return {"weight": weight, "gradient": gradient if trains else 0.0,
            "moments": OPTIMIZERS[options.optimizer], "master": master}


def _activation_lines(
    arch: Architecture, options: Options, rows: tuple[Saved, ...]
) -> list[Line]:
    values, parallel = symbols(arch, options), options.parallel
    layers = arch.symbols["L"] / parallel.pipeline * parallel.in_flight
    whole = sum(x.nbytes for x in _walk(rows, arch, options))
    kept = sum(x.nbytes for x in _walk(_kept(rows, options), arch, options))
    working = whole - kept
    note = "one block's walk"
    if options.recompute == "full" and rows:
        share = parallel.tensor if parallel.sequence else 1
        kept, working = evaluate("s*b*h*e", values) / share, whole
        note = "a block's input: s*b*h*e"
    elif options.recompute == "selective":
        note = "one block's walk without the s x s values"
    rest = sum(x.nbytes for x in _walk(arch.rest, arch, options))
    lines = []
    if rows:
        lines.append(Line("blocks", f"{layers:g} * {kept:,.0f} ({note})", layers * kept))
    lines.append(Line("outside of blocks", f"{len(arch.rest)} values", rest))
    if working:
        lines.append(Line("recomputed block", "live while its backward runs", working))
    largest = max((_row_bytes(r, values, parallel) for r in arch.rest), default=0.0)
    lines.append(Line("largest cotangent", "of the values outside of blocks", largest))
    return lines


def _routes(arch: Architecture, options: Options, rows: tuple[Saved, ...]) -> dict[str, float]:
    """Bytes per layer by each route (nothing for residual networks, which have no such block)."""
    if not rows:
        return {}
    parallel = options.parallel
    share = parallel.tensor if parallel.sequence else 1
    input_bytes = evaluate("s*b*h*e", symbols(arch, options)) / share
    full = options.recompute == "full"
    kept = _kept(rows, options)
    found = {
        "formula": layer_bytes(
            options.seq, options.batch, arch.symbols["h"], arch.symbols["a"], parallel.tensor,
            sequence=parallel.sequence, recompute=options.recompute,
            dense=options.attention == "dense",
        ),
        "walk": input_bytes if full else sum(x.nbytes for x in _walk(kept, arch, options)),
        "lean": input_bytes
        if full
        else sum(x.nbytes for x in _walk([r for r in kept if r.lean], arch, options)),
    }
    for tracer in _tracers:
        found["traced"] = sum(nbytes for _, nbytes in tracer(arch, options))
    return found


_PUBLISHED = {"norm": (4, 0), "attention": (2, 8), "mlp": (2, 16), "dropout": (2, 0)}


def _differences(
    arch: Architecture, options: Options, rows: tuple[Saved, ...]
) -> Iterable[Difference]:
    """Formula against walk by group, for the values that are kept."""
    if not rows or options.recompute == "full":
        return
    values, parallel = symbols(arch, options), options.parallel
    sbh = evaluate("s*b*h", values)
    t, whole = parallel.tensor, parallel.tensor if parallel.sequence else 1
    published = {g: sbh * (w / whole + split / t) for g, (w, split) in _PUBLISHED.items()}
    dense_kept = options.attention == "dense" and options.recompute == "none"
    published["scores"] = 5 * values["a"] * options.seq / values["h"] * sbh / t * dense_kept
    published["statistics"] = 0.0
    counted = dict.fromkeys(published, 0.0)
    for row in _kept(rows, options):
        counted[row.group] += _row_bytes(row, values, parallel)
    for group, nbytes in published.items():
        if abs(counted[group] - nbytes) > 0.5:
            yield Difference(group, nbytes, counted[group], _why(group, arch, options, rows))


def _why(group: str, arch: Architecture, options: Options, rows: tuple[Saved, ...]) -> str:
    v = arch.symbols
    reasons = []
    if options.width != 2 and group not in ("dropout", "statistics"):
        reasons.append(f"the formula counts 16-bit values, here they have {options.width} bytes")
    if group == "attention" and v["k"] != v["a"]:
        reasons.append(f"keys and values have {v['k']} heads, not {v['a']}")
    if group == "mlp" and any(r.op == "silu" for r in rows):
        reasons.append(
            f"SwiGLU of inner width {v['f']} = {v['f'] / v['h']:g}h keeps gate, silu(gate), up and "
            "their product; the formula has GELU of 4h, which keeps its input and result"
        )
    if group in ("dropout", "scores"):
        reasons.append(
            "masks of dropout are a bit for each element, in the formula a byte"
            if arch.dropout else
            "no dropout: no masks" + " and no dropped copy" * (group == "scores")
        )
    if group == "statistics":
        reasons.append(
            "norm statistics" + (" and log-sum-exp rows" * (options.attention == "flash"))
            + " in 32 bit, which the formula leaves out"
        )
    return "; ".join(reasons) or "the formula's block is divided differently"


def largest_batch(arch: Architecture | str, options: Options, on: Device) -> int:
    """The largest batch per rank whose estimate fits `on`; 0 if not even one sequence does.

    >>> from adjoint.memory.devices import device
    >>> largest_batch("gpt2", Options(1024), device("H100-80GB")) > 8
    True
    """

    def fits(batch: int) -> bool:
        return estimate(arch, replace(options, batch=batch)).fits(on)

    if not fits(1):
        return 0
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
