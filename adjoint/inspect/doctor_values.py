"""Checks of numbers: dead and saturated units, gradients that fade or grow, NaN, underflow."""
from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import Any

import numpy as np

from adjoint.autograd.anomaly import not_finite
from adjoint.core.modes import GRAD, state, watchers
from adjoint.core.tensor import Tensor
from adjoint.inspect.doctor_case import (
    NOWHERE,
    Case,
    Check,
    Finding,
    Place,
    check,
    leaves_of,
    node_place,
    norm,
    parents,
    place_of,
    several,
    spot,
    user_place,
)


def _units(array: Any) -> Any:
    """The values as (samples, units): channels of images, else the last axis."""
    if array.ndim == 4:
        return np.moveaxis(array, 1, -1).reshape(-1, array.shape[1])
    return array.reshape(-1, array.shape[-1])


class _Layer:
    """What one activation showed at the training steps so far."""

    __slots__ = ("place", "alive", "samples", "steps", "name", "share", "streak", "shrink")

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name = place, name
        self.alive: Any = None
        self.samples = self.steps = self.streak = 0
        self.share = self.shrink = 0.0


@check
class DeadReLU(Check):
    """Units whose output was 0 for every sample of the last training steps."""

    code = "AD009"
    title = "dead ReLU units"
    cause = "their inputs are negative for all data: output and gradient are 0, so they stay so"
    fix = "lower the learning rate, look at the bias's initial value, or use leaky_relu or gelu"
    ops = frozenset({"relu", "relu6", "clamp_min", "threshold"})
    limit, steps, samples = 0.9, 3, 64

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.layers: dict[Any, _Layer] = {}

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        array = made[0].array
        if node is None or not isinstance(array, np.ndarray) or array.ndim not in (2, 3, 4) \
                or not array.size:
            return
        if op.name == "clamp_min" and attrs.get("low") != 0:
            return
        path = watchers.module_path()
        key = path, node_place(node)
        layer = self.layers.setdefault(key, _Layer(node_place(node), path))
        units = _units(array)
        active = (units > 0).any(0)
        if layer.alive is None or layer.alive.shape != active.shape or layer.steps >= 50:
            layer.alive, layer.steps, layer.samples = active, 0, 0
        else:
            layer.alive |= active
        layer.steps += 1
        layer.samples += len(units)

    def shares(self) -> Iterable[tuple[str, str, str, float]]:
        for layer in self.layers.values():
            yield "dead", layer.name, spot(layer.place), 1 - float(layer.alive.mean())

    def findings(self) -> Iterable[Finding]:
        for layer in self.layers.values():
            if layer.steps < self.steps or layer.samples < self.samples or layer.alive.size < 4:
                continue
            dead = 1 - float(layer.alive.mean())
            if dead >= self.limit:
                n = layer.alive.size
                yield self.found(layer.place, f"{round(dead * n)} of {n} units ({dead:.0%})"
                                 f"{' of ' + layer.name if layer.name else ''} gave 0 for all "
                                 f"{layer.samples} samples of {layer.steps} calls")


_EACH = ("binary_cross_entropy", "mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss")
_LOSSES = frozenset({*_EACH, *(f"{name}_each" for name in _EACH), "l1_loss", "log", "log1p",
                     "xlogy"})


@check
class Saturated(Check):
    """Sigmoid and tanh outputs at their bounds, and the gradient that is lost there."""

    code = "AD010"
    title = "saturated activation"
    cause = "inputs are so large that the slope is almost 0: little gradient passes"
    fix = "smaller initial weights, normalized inputs, a norm layer, or another activation"
    ops = frozenset({"sigmoid", "tanh", "hardsigmoid", "hardtanh", "sub"})
    limit, passed, steps = 0.9, 0.3, 3

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.layers: dict[Any, _Layer] = {}
        self.open: dict[int, _Layer] = {}

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        array = made[0].array
        if op.name == "sub":                        # from a target: a loss by hand
            first, second = args
            if isinstance(first, Tensor) and isinstance(second, Tensor) and (
                    first._rg != second._rg):
                self.open.pop(getattr((first if first._rg else second).grad_fn, "seq", -1), None)
            return
        if node is None or not isinstance(array, np.ndarray) or array.size < 16 or array.ndim < 2:
            return
        path = watchers.module_path()
        key = path, node_place(node)
        layer = self.layers.get(key)
        if layer is None:
            layer = self.layers[key] = _Layer(node_place(node), path)
        low = 0.01 if "sigmoid" in op.name else -0.99
        layer.share = float(((array < low) | (array > 0.99)).mean())
        self.open[node.seq] = layer

    def begin_walk(self, walk: Any) -> None:
        """What a loss reads directly may well be at its bounds: a confident prediction."""
        if self.open and not walk.levels:
            for n in walk.order:
                if n.plan is not None and n.plan.op.name in _LOSSES:
                    for p in parents(n):
                        self.open.pop(p.seq, None)

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        layer = self.open.pop(node.seq, None)
        if layer is None or not all(isinstance(a, np.ndarray) for a in (ct, results[0])):
            return
        incoming, passed = norm([ct]), norm([results[0]])
        layer.shrink = passed / incoming if incoming else 1.0
        layer.steps += 1
        bad = layer.share >= self.limit and layer.shrink <= self.passed
        layer.streak = layer.streak + 1 if bad else 0

    def end_walk(self, walk: Any) -> None:
        self.open.clear()

    def shares(self) -> Iterable[tuple[str, str, str, float]]:
        for layer in self.layers.values():
            yield "saturated", layer.name, spot(layer.place), layer.share

    def findings(self) -> Iterable[Finding]:
        for layer in self.layers.values():
            if layer.streak >= self.steps:
                yield self.found(layer.place, f"{layer.share:.0%} of the outputs"
                                 f"{' of ' + layer.name if layer.name else ''} lie within 0.01 of "
                                 f"a bound; {layer.shrink:.1e} of the gradient's norm passes")


class _Depth(Check):
    """Norms of the weights' gradients in the order in which forward uses them."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.order: list[Any] = []
        self.first = NOWHERE
        self.profiles: list[list[tuple[str, float]]] = []
        self.place = NOWHERE

    def begin_walk(self, walk: Any) -> None:
        if walk.levels or not walk.accumulate:
            return
        ends = [(node.seq, end.variable, node) for node, es in walk.last.items()
                if node is not None for end in es]
        ends.sort(key=lambda e: e[0])
        chosen = [(p, n) for _, p, n in ends if p is not None and p.array.ndim >= 2]
        self.order = [p for p, _ in chosen]
        if chosen:
            self.first = node_place(chosen[0][1])
        self.place = place_of(walk)

    def before_step(self, optimizer: Any, place: Place) -> None:
        mine = {id(p) for g in optimizer.param_groups for p in g["params"]}
        layers = [(self.case.name(p), norm([p._grad.array])) for p in self.order
                  if id(p) in mine and p._grad is not None]
        if len(layers) >= 4:
            self.profiles.append(layers)
            del self.profiles[:-3]

    def typical(self) -> list[tuple[str, float]]:
        """The median profile of the last three steps; empty before there are three."""
        if len(self.profiles) < 3 or len({len(p) for p in self.profiles}) != 1:
            return []
        return [(col[0][0], statistics.median(v for _, v in col))
                for col in zip(*self.profiles, strict=True)]


def _trend(values: list[float]) -> tuple[float, float]:
    """(factor per layer from the last to the first, share of steps that go that way)."""
    logs = [math.log10(max(v, 1e-300)) for v in values]
    falls = [b - a for a, b in zip(logs, logs[1:], strict=False)]
    total = logs[-1] - logs[0]
    same = sum((f > 0) == (total > 0) for f in falls) / len(falls)
    return 10 ** (-total / len(falls)), same


def _layers_text(layers: list[tuple[str, float]]) -> str:
    shown = layers if len(layers) <= 6 else [*layers[:3], *layers[-3:]]
    return ", ".join(f"{name} {value:.1e}" for name, value in shown)


@check
class Vanishing(_Depth):
    """Gradients that shrink by a steady factor from layer to layer towards the input."""

    code = "AD011"
    title = "vanishing gradients"
    cause = "each layer passes on a fraction of the gradient: the first layers hardly learn"
    fix = "residual connections, norm layers, He or Xavier initialization, relu-like activations"
    ratio = 1e-4

    def findings(self) -> Iterable[Finding]:
        layers = self.typical()
        values = [v for _, v in layers]
        if not layers or not values[-1] or not all(map(math.isfinite, values)):
            return
        factor, steady = _trend(values)
        if values[0] > 0 and values[0] / values[-1] < self.ratio and factor < 0.5 and steady >= 0.7:
            yield self.found(self.first, f"|grad| of the first layer is "
                             f"{values[0] / values[-1]:.1e} of the last one's, a factor of "
                             f"{factor:.2g} per layer: {_layers_text(layers)}")


@check
class Exploding(_Depth):
    """Gradients that an optimizer consumes at a size out of all proportion."""

    code = "AD012"
    title = "exploding gradients"
    cause = "the gradient grows from layer to layer, or jumps from step to step"
    fix = "clip_grad_norm_(model.parameters(), 1.0), a smaller learning rate, smaller weights"
    jump, layer_ratio, size_ratio = 100.0, 1e4, 1e6

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.jumps: list[tuple[Place, int, float, float]] = []
        self.huge: list[tuple[float, float]] = []

    def before_step(self, optimizer: Any, place: Place) -> None:
        super().before_step(optimizer, place)
        norms = self.case.norms
        weights = norm(p.array for g in optimizer.param_groups for p in g["params"])
        if norms[-1] > self.size_ratio * weights > 0:
            self.huge.append((norms[-1], weights))
        if len(norms) >= 4:
            usual = statistics.median(norms[-21:-1])
            if norms[-1] > self.jump * usual > 0 and norms[-1] > 100:
                self.jumps.append((self.place, self.case.steps, norms[-1], usual))

    def findings(self) -> Iterable[Finding]:
        layers = self.typical()
        values = [v for _, v in layers]
        if values and values[-1] > 0:
            factor, steady = _trend(values)
            if (values[0] / values[-1] > self.layer_ratio and steady >= 0.7 and values[0] > 100):
                yield self.found(self.first, f"|grad| of the first layer is "
                                 f"{values[0] / values[-1]:.1e} times the last one's, a factor of "
                                 f"{factor:.3g} per layer: {_layers_text(layers)}")
                return
        if len(self.huge) >= 3:
            size, weights = self.huge[0]
            yield self.found(self.first, f"|grad| = {size:.2e}, {size / weights:.1e} times "
                             f"the norm of the weights, at {len(self.huge)} steps")
        elif self.jumps:
            place, step, now, usual = self.jumps[0]
            yield self.found(place, f"step {step + 1}: |grad| = {now:.3g}, the median of the steps "
                             f"before is {usual:.3g}")


@check
class Underflow(Check):
    """float16 cotangents below the smallest normal number, 2**-14 = 6.1e-5."""

    code = "AD013"
    title = "float16 gradients underflow"
    cause = "values below 6.1e-5 lose digits, below 6.0e-8 (2**-24) they are 0"
    fix = "scale the loss (amp.GradScaler, or loss * 2**16 and grads / 2**16), or use bfloat16"
    limit = 0.5

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.layers: dict[Place, list[Any]] = {}

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        for c in results:
            if not isinstance(c, np.ndarray) or c.dtype != np.float16 or not c.size:
                continue
            size = np.abs(c)
            small = int(np.count_nonzero((size > 0) & (size < np.float16(6.104e-5))))
            large = int(np.count_nonzero(size)) - small
            lost = c.size if not small and not large and isinstance(ct, np.ndarray) \
                and ct.any() and node.plan is not None and node.plan.op.name in _PRODUCTS else 0
            row = self.layers.setdefault(node_place(node), [0, 0, 0, node.name()])
            row[0], row[1], row[2] = row[0] + small, row[1] + large, row[2] + lost

    def shares(self) -> Iterable[tuple[str, str, str, float]]:
        for place, (small, large, lost, name) in self.layers.items():
            yield "underflow", name, spot(place), (small + lost) / max(1, small + lost + large)

    def findings(self) -> Iterable[Finding]:
        every = [(s + lost, s + lost + n) for s, n, lost, _ in self.layers.values()]
        bad, total = sum(b for b, _ in every), sum(n for _, n in every)
        if total >= 16 and bad / total >= self.limit:
            place, row = max(self.layers.items(), key=lambda i: (i[1][0] + i[1][2]))
            yield self.found(place, f"{bad / total:.0%} of the float16 gradient values are "
                             f"subnormal or lost; most at {row[3]}: {row[0]} subnormal, {row[2]} "
                             f"became 0, {row[1]} normal")


_PRODUCTS = frozenset({"mul", "div", "mm", "mm_left", "mm_right", "matmul", "linear", "bmm",
                       "addmm", "mse_loss", "square", "mse_loss_each", "convolution", "mean",
                       "mean_all", "softmax", "log_softmax", "to_dtype"})


def _range(x: Any) -> str:
    array = x.array if isinstance(x, Tensor) else x
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or not array.size:
        return ""
    ok = array[np.isfinite(array)]
    span = f"{ok.min():.4g} to {ok.max():.4g}" if ok.size else "no finite value"
    return f"{list(array.shape)} {span}"


@check
class BadForward(Check):
    """The op that first made NaN or inf on the way to a loss that is not finite."""

    code = "AD014"
    title = "NaN or inf arises in forward"
    cause = "log or division at 0, exp or a product beyond the largest number, or bad input data"
    fix = "clamp or mask the operand before the op; look at the data and at the learning rate"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.first: list[tuple[Any, ...]] = []       # (place, op, kind, operands, from data)
        self.last = ""
        self.sure: list[tuple[Any, ...]] = []

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        kind = next((k for t in made if (k := not_finite(t.array))), "")
        self.last = kind
        if not kind or len(self.first) >= 8 or op.name in ("masked_fill", "where", "copy"):
            return
        before = [not_finite(a.array if isinstance(a, Tensor) else a) for a in args]
        if any(before) and (self.first or "nan" not in before):
            return
        place = node_place(node) if node is not None else user_place(2)
        n, size = _count(made, kind)
        operands = "; ".join(filter(None, map(_range, args)))
        self.first.append((place, op.name, kind, operands, "nan" in before, n, size))

    def begin_walk(self, walk: Any) -> None:
        if walk.levels or not walk.order:
            return
        if self.last:
            self._confirm()
        self.first.clear()

    def leave_module(self, path: str, module: Any) -> None:
        if not path and not state() & GRAD:
            if self.last == "nan":
                self._confirm()
            self.first.clear()

    def _confirm(self) -> None:
        if self.first and not self.case.not_finite:
            self.case.not_finite = self.code
            self.sure.append((*self.first[0], self.case.walks + 1))

    def findings(self) -> Iterable[Finding]:
        for place, name, kind, operands, data, n, size, step in self.sure:
            how = "got it from its operands, which no op made" if data else "made it"
            yield self.found(place, f"step {step}: {name} {how}: {kind} in {n} of {size} values; "
                             f"operands {operands}")


def _count(made: Any, kind: str) -> tuple[int, int]:
    test = np.isnan if kind == "nan" else np.isinf
    arrays = [t.array for t in made if t.array.dtype.kind in "fc"]
    return sum(int(test(a).sum()) for a in arrays), sum(a.size for a in arrays)


@check
class BadBackward(Check):
    """The node whose rule first gave NaN or inf, when an update consumed the result."""

    code = "AD015"
    title = "NaN or inf arises in backward"
    cause = "an infinite slope (sqrt or a power at 0, a masked branch) times zero, or overflow"
    fix = "mask the operand of the op, not only its result; add an epsilon inside the root"
    turn = -1                   # a bad gradient is older than the loss that it spoils

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.open: tuple[Any, ...] | None = None
        self.sure: list[tuple[Any, ...]] = []
        self.leaves: list[Any] = []

    def begin_walk(self, walk: Any) -> None:
        if not self.case.optimizers:
            self._settle(p.array for p in self.leaves)
        self.open = None
        self.leaves = [] if walk.levels else list(leaves_of(walk))

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        if self.open is not None or self.sure:
            return
        for i, c in enumerate(results):
            kind = not_finite(c)
            if kind:
                cts = ct if isinstance(ct, (list, tuple)) else [ct]
                if any(not_finite(x) for x in cts):
                    return                              # came in from an earlier node
                bad = np.isnan(c) if kind == "nan" else np.isinf(c)
                where = tuple(int(j) for j in np.unravel_index(int(bad.argmax()), c.shape))
                self.open = (node_place(node), node.name(), i, kind, where, list(c.shape),
                             self.case.walks + 1)
                return

    def before_step(self, optimizer: Any, place: Place) -> None:
        params = [p for g in optimizer.param_groups for p in g["params"]]
        self._settle(p._grad.array for p in params if p._grad is not None)
        self.open = None

    def _settle(self, arrays: Iterable[Any]) -> None:
        """The mistake is real once an update reads a gradient that is not finite, or a leaf is
        not finite itself."""
        if self.open is not None and any(map(not_finite, arrays)):
            if not self.case.not_finite:
                self.case.not_finite = self.code
                self.sure.append(self.open)
            self.open = None

    def findings(self) -> Iterable[Finding]:
        if not self.case.optimizers:
            self._settle(p._grad.array for p in self.leaves if p._grad is not None)
        for place, name, i, kind, where, shape, step in self.sure:
            yield self.found(place, f"step {step}: {name} gave {kind} for operand {i} from a "
                             f"finite cotangent, first at index {where} of {shape}")


@check
class Symmetric(Check):
    """Weight matrices whose rows are equal and stay so: all units compute the same."""

    code = "AD025"
    title = "units of a layer are all the same"
    cause = "the weights began equal (all zeros or one constant), so their gradients are equal too"
    fix = "initialize at random: nn.init.xavier_uniform_ or kaiming_uniform_"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.places: dict[int, Place] = {}
        self.same: dict[int, int] = {}
        self.looked = 0

    def begin_walk(self, walk: Any) -> None:
        if walk.levels or self.looked > 8:
            return
        for node, ends in walk.last.items():
            for end in ends:
                if node is not None and end.variable is not None:
                    self.places[id(end.variable)] = node_place(node)

    def after_step(self, optimizer: Any, place: Place) -> None:
        self.looked += 1
        if self.looked > 8:
            return
        for group in optimizer.param_groups:
            for p in group["params"]:
                a = p.array
                g = None if p._grad is None else p._grad.array
                if not isinstance(a, np.ndarray) or not isinstance(g, np.ndarray) or a.ndim < 2 \
                        or len(a) < 2:
                    continue
                key = id(p)
                if (a == a[:1]).all() and (g == g[:1]).all():
                    self.same[key] = self.same.get(key, 0) + 1
                else:
                    self.same.pop(key, None)

    def findings(self) -> Iterable[Finding]:
        bad = [k for k, n in self.same.items() if n >= 2 and k in self.case.parameters]
        if bad:
            names = [self.case.parameters[k].name for k in bad]
            p = self.case.parameters[bad[0]].tensor
            yield self.found(self.places.get(bad[0], NOWHERE), f"{several(names)}: all "
                             f"{p.array.shape[0]} rows equal after {self.same[bad[0]]} steps, and "
                             "so are the rows of the gradient")
