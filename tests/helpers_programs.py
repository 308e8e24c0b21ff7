"""Random differentiable programs as source text, so that one text runs on adjoint, on PyTorch and
on plain numbers.

A program is a list of assignments over float64 variables `x0, x1, ...` (leaves) and `v0, v1, ...`.
The generator knows the shape of every variable and which of them may be written to: nothing that
shares memory with a leaf, nothing that repeats memory (an expanded view). Every variable enters the
loss with its own weight, so histories that were rewritten by an in-place operation on a base or on
a view are all checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

Shape = tuple[int, ...]
LEAF_SHAPES: list[Shape] = [(), (3,), (2, 3), (3, 2), (1, 3), (2, 1), (2, 2, 3)]
SMOOTH = ["sin", "cos", "tanh", "sigmoid", "square", "neg", "arctan"]
SMOOTH_IN_PLACE = ["sin_", "tanh_", "sigmoid_", "neg_", "cos_"]


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """The common shape, or None."""
    size = max(len(a), len(b))
    out = []
    for m, n in zip((1,) * (size - len(a)) + a, (1,) * (size - len(b)) + b, strict=True):
        if m != n and 1 not in (m, n):
            return None
        out.append(n if m == 1 else m)
    return tuple(out)


@dataclass
class Builder:
    """A program under construction; `draw` is Hypothesis's."""

    draw: Callable[..., Any]
    lines: list[str] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)  # must not be written to
    roots: dict[str, str] = field(default_factory=dict)  # whose memory a view shows
    count: int = 0

    def choose(self, options: list[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def variable(self, fits: Callable[[Shape], bool] = lambda shape: True) -> str | None:
        """Any variable whose shape fits, later ones first (shrinking goes towards later ones)."""
        names = [name for name, shape in self.shapes.items() if fits(shape)]
        return self.choose(names[::-1]) if names else None

    def let(
        self, expression: str, shape: Shape, view_of: str | None = None, freeze: bool = False
    ) -> None:
        """`v7 = expression`; a view of something frozen is frozen."""
        name = f"v{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {expression}")
        self.shapes[name] = shape
        if view_of is not None:
            self.roots[name] = self.root(view_of)
        if freeze or view_of in self.frozen:
            self.frozen.add(name)

    def root(self, name: str) -> str:
        """The variable that holds the memory of this one."""
        return self.roots.get(name, name)

    # Fresh values.

    def unary(self) -> None:
        name = self.variable()
        self.let(f"{name}.{self.choose(SMOOTH)}()", self.shapes[name])

    def binary(self) -> None:
        a = self.variable()
        b = self.variable(lambda shape: broadcast(self.shapes[a], shape) is not None)
        form = self.choose(
            [
                "{a} + {b}",
                "{a} - {b}",
                "{a} * {b}",
                "{a} / ({b} * {b} + 1.5)",
                "0.5 * {a} + {b} * 2.0",
            ]
        )
        self.let(form.format(a=a, b=b), broadcast(self.shapes[a], self.shapes[b]))

    def product(self) -> None:
        a = self.variable(lambda shape: len(shape) >= 1)
        if a is None:
            return
        inner = self.shapes[a][-1]
        b = self.variable(lambda shape: len(shape) == 2 and shape[0] == inner)
        if b is not None:
            self.let(f"{a} @ {b}", (*self.shapes[a][:-1], self.shapes[b][1]))

    def reduce(self) -> None:
        name = self.variable(lambda shape: len(shape) >= 1)
        if name is None:
            return
        shape = self.shapes[name]
        axis = self.choose(list(range(len(shape))))
        function = self.choose(["sum", "mean", "logsumexp"])
        keep = self.choose([True, False])
        rest = shape[:axis] + ((1,) if keep else ()) + shape[axis + 1 :]
        self.let(f"{name}.{function}(dim={axis}, keepdim={keep})", rest)

    def rows(self) -> None:
        name = self.variable(lambda shape: len(shape) >= 1)
        if name is None:
            return
        shape = self.shapes[name]
        picked = [self.choose(list(range(shape[0]))) for _ in range(self.choose([1, 2, 4]))]
        self.let(f"{name}[ad.tensor({picked})]", (len(picked), *shape[1:]))

    def join(self) -> None:
        a = self.variable(lambda shape: len(shape) >= 1)
        if a is None:
            return
        shape = self.shapes[a]
        b = self.variable(lambda other: other == shape)
        if self.choose([True, False]):
            self.let(f"ad.cat([{a}, {b}], dim=0)", (2 * shape[0], *shape[1:]))
        else:
            self.let(f"ad.stack([{a}, {b}], dim=-1)", (*shape, 2))

    def scan(self) -> None:
        name = self.variable(lambda shape: len(shape) >= 1)
        if name is not None:
            function = self.choose(["cumsum", "softmax"])
            self.let(f"{name}.{function}(dim=-1)", self.shapes[name])

    def copy(self) -> None:
        name = self.variable()
        self.let(f"{name}.clone()", self.shapes[name])

    # Views.

    def view(self) -> None:
        name = self.variable(lambda shape: len(shape) >= 1)
        if name is None:
            return
        shape = self.shapes[name]
        options: list[tuple[str, Shape]] = [
            (f"{name}.unsqueeze(0)", (1, *shape)),
            (f"{name}[..., None]", (*shape, 1)),
            (f"{name}[0]", shape[1:]),
            (f"{name}[..., -1]", shape[:-1]),
            (f"{name}[...]", shape),
            (f"{name}[::2]", ((shape[0] + 1) // 2, *shape[1:])),
        ]
        if shape[0] > 1:
            options.append((f"{name}[1:]", (shape[0] - 1, *shape[1:])))
        if len(shape) >= 2:
            turned = (shape[1], shape[0], *shape[2:])
            options.append((f"{name}.transpose(0, 1)", turned))
            options.append((f"{name}[:, 0]", (shape[0], *shape[2:])))
        expression, out = self.choose(options)
        self.let(expression, out, view_of=name)

    def expand(self) -> None:
        name = self.variable(lambda shape: len(shape) <= 2)
        if name is not None:
            shape = (2, *self.shapes[name])
            self.let(f"{name}.expand{shape}", shape, view_of=name, freeze=True)

    # Writes.

    def target(self, fits: Callable[[Shape], bool] = lambda shape: True) -> str | None:
        names = [n for n, s in self.shapes.items() if n not in self.frozen and fits(s)]
        return self.choose(names[::-1]) if names else None

    def write_unary(self) -> None:
        name = self.target()
        if name is not None:
            self.lines.append(f"{name}.{self.choose(SMOOTH_IN_PLACE)}()")

    def write_binary(self) -> None:
        name = self.target()
        if name is None:
            return
        shape = self.shapes[name]
        other = self.variable(lambda s: broadcast(shape, s) == shape)
        function = self.choose(["add_", "sub_", "mul_", "copy_"])
        overlap = other != name and self.root(other) == self.root(name)  # nobody defines the order
        value = f"{other}.clone()" if self.choose([True, False]) or overlap else other
        self.lines.append(f"{name}.{function}({value})")

    def write_index(self) -> None:
        name = self.target(lambda shape: len(shape) >= 1)
        if name is None:
            return
        shape = self.shapes[name]
        length = shape[0]
        row = shape[1:]
        last = length - 1
        mask = [k % 2 == 0 for k in range(length)]
        options = [
            ("0", row),
            ("1:", (length - 1, *row)),
            ("..., 0", shape[:-1]),
            (f"ad.tensor([{last}])", (1, *row)),
            (f"ad.tensor([{last}, 0])" if length > 1 else "[0]", (min(length, 2), *row)),
            (f"ad.tensor({mask})", (sum(mask), *row)),
        ]
        place, region = self.choose(options)
        other = self.variable(lambda s: broadcast(region, s) == region)
        value = self.choose(["0.25", *([f"{other}.sin()"] * 3 if other else [])])
        self.lines.append(f"{name}[{place}] = {value}")

    # What only a comparison with PyTorch can judge: kinks, ties, and values cut from the graph.

    def kink(self) -> None:
        name = self.variable(lambda shape: len(shape) >= 1)
        if name is None:
            return
        call = self.choose(
            ["relu()", "abs()", "clamp(-0.5, 0.5)", "sort(dim=-1).values", "cummax(0)[0]"]
        )
        self.let(f"{name}.{call}", self.shapes[name])

    def extreme(self) -> None:
        name = self.variable(lambda shape: len(shape) >= 1)
        if name is not None:
            function = self.choose(["amax(dim=0)", "max(dim=0).values", "min(dim=0)[0]"])
            self.let(f"{name}.{function}", self.shapes[name][1:])

    def detach(self) -> None:
        name = self.variable()
        self.let(f"{name}.detach()", self.shapes[name], view_of=name)

    def quiet_write(self) -> None:
        name = self.target()
        if name is not None:
            self.lines.append(f"with ad.no_grad(): {name}.{self.choose(SMOOTH_IN_PLACE)}()")

    def pieces(self) -> None:
        name = self.variable(lambda shape: len(shape) >= 1 and shape[0] == 2)
        if name is not None:
            k = self.choose([0, 1])
            form = self.choose([f"{name}.unbind(0)[{k}]", f"{name}.chunk(2)[{k}].squeeze(0)"])
            self.let(form, self.shapes[name][1:], view_of=name, freeze=True)

    def choice(self) -> None:
        a = self.variable()
        b = self.variable(lambda shape: shape == self.shapes[a])
        self.let(f"ad.where({a} > {b}, {a} * 2.0, {b})", self.shapes[a])


FRESH = ["unary", "binary", "binary", "product", "reduce", "rows", "join", "scan", "copy"]
VIEWS = ["view", "view", "expand"]
WRITES = ["write_unary", "write_binary", "write_binary", "write_index", "write_index"]
CUTS = ["kink", "kink", "extreme", "detach", "detach", "quiet_write", "pieces", "choice"]


@dataclass(frozen=True)
class Program:
    """The text of a function of the module and the leaves, and the shapes of the leaves."""

    text: str
    leaf_shapes: tuple[Shape, ...]
    seed: int

    def __repr__(self) -> str:
        return f"\n# leaves {self.leaf_shapes}, seed {self.seed}\n{self.text}"

    def run(self, module: Any, leaves: list[Any]) -> Any:
        """The loss on tensors of `module`."""
        scope: dict[str, Any] = {"ad": module}
        exec(self.text, scope)  # noqa: S102 (our own text)
        return scope["program"](*leaves)


@st.composite
def programs(
    draw: Callable[..., Any], writes: bool = True, cuts: bool = False, length: int = 12
) -> Program:
    """Programs with fan-out, broadcasting and views.

    With `writes` also in-place operations; with `cuts` also kinks, detach and no_grad, for which
    finite differences say nothing.
    """
    builder = Builder(draw)
    shapes = draw(st.lists(st.sampled_from(LEAF_SHAPES), min_size=1, max_size=3))
    for k, shape in enumerate(shapes):
        builder.shapes[f"x{k}"] = shape
        builder.frozen.add(f"x{k}")
    kinds = FRESH * 2 + VIEWS + (WRITES * 3 if writes else []) + (CUTS * 2 if cuts else [])
    for _ in range(draw(st.integers(1, length))):
        getattr(builder, draw(st.sampled_from(kinds)))()
    terms = [
        f"({name} * {0.3 + 0.2 * k:.1f}).sum()"
        for k, name in enumerate(builder.shapes)
        if name[0] == "v"
    ]
    terms += [f"x{k}.sum()" for k in range(len(shapes))]
    names = ", ".join(f"x{k}" for k in range(len(shapes)))
    body = "\n    ".join([*builder.lines, "return " + " + ".join(terms)])
    text = f"def program({names}):\n    {body}\n"
    return Program(text, tuple(shapes), draw(st.integers(0, 2**16)))
