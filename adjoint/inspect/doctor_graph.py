"""Checks of what is connected to what: parameters, optimizers, losses, modes of recording."""
from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from adjoint.autograd import modes as grad_modes
from adjoint.core.modes import GRAD, state
from adjoint.core.tensor import AccumulateGrad, Port, Tensor
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
    upstream,
    user_place,
)

TAINT = "_without_gradient"     # in a tensor's dict: (kind, place, number of the call)


def taint_of(t: Any) -> Any:
    """Why a tensor has no history though it came from one that had: (kind, place, call)."""
    return t.__dict__.get(TAINT) if isinstance(t, Tensor) and not t._rg else None


@check
class NoGrad(Check):
    """Marks results that lost their history to `no_grad`; says so when a loss is one of them."""

    code = "AD004"
    title = "training inside no_grad"
    cause = "no_grad() or inference_mode() is around the forward pass: nothing is recorded"
    fix = "compute the loss outside of no_grad(); keep it for validation and for updates by hand"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.silent: tuple[Place, int] = (NOWHERE, 0)
        self.idle: list[tuple[Place, int, str]] = []

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        if node is not None:
            return
        off = not state() & GRAD
        for a in args:
            if not isinstance(a, Tensor):
                continue
            mark: Any
            if off and a._rg:
                held = grad_modes.opened()
                mark = ("no_grad", held[1] if held else NOWHERE, self.case.calls)
            elif a._rg:                              # recorded, and yet without a node
                mark = (op.name, user_place(2), self.case.calls)
            else:
                mark = a.__dict__.get(TAINT)
            if mark is not None:
                for t in made:
                    if not t._rg:
                        t.__dict__[TAINT] = mark
                return

    def detached(self, tensor: Any, made: Any) -> None:
        if tensor._rg:
            made.__dict__[TAINT] = ("detached", user_place(2), self.case.calls)
        elif tensor.__dict__.get(TAINT) is not None:
            made.__dict__[TAINT] = tensor.__dict__[TAINT]

    def enter_module(self, path: str, module: Any) -> None:
        if not path and not state() & GRAD:
            held = grad_modes.opened()
            if held is not None:
                self.silent = held[1], self.silent[1] + 1

    def end_walk(self, walk: Any) -> None:
        self.silent = (NOWHERE, 0)

    def before_step(self, optimizer: Any, place: Place) -> None:
        params = [p for g in optimizer.param_groups for p in g["params"]]
        if self.silent[1] and params and all(p._grad is None for p in params):
            self.idle.append((self.silent[0], len(params), type(optimizer).__name__))

    def findings(self) -> Iterable[Finding]:
        if self.idle:
            place, n, name = self.idle[0]
            yield self.found(place, f"{len(self.idle)} calls of {name}.step() found no gradient in "
                             f"any of {n} parameters; the forward pass ran without recording")

    def error(self, error: Any, place: Place) -> Iterable[Finding]:
        if error.reason == "no graph":
            mark = taint_of(error.about)
            if mark is not None and mark[0] == "no_grad":
                yield self.found(mark[1], "backward() was called on a loss that was computed "
                                 "while recording was off")


@check
class Overwritten(Check):
    """The engine's version check, with the line that wrote."""

    code = "AD005"
    title = "a value that backward needs was overwritten"
    cause = "an in-place op, .data or a NumPy array wrote to memory that a node had saved"
    fix = "write out of place (y = y + 1), or clone() the value before the write"

    def error(self, error: Any, place: Place) -> Iterable[Finding]:
        if error.reason == "overwritten":
            cell, node = error.about
            silent = not cell.what
            where = node_place(node) if silent else (cell.code, cell.lasti)
            how = "through a NumPy array that shares its memory" if silent else f"by {cell.what}"
            yield self.found(where, f"saved by {node.name()} at {node.where()}, overwritten {how}"
                             f" (version {cell.version})")


@check
class NonScalar(Check):
    """backward() on something that is not one number."""

    code = "AD006"
    title = "backward of a tensor that is not a scalar"
    cause = "without a given cotangent only a single number has a gradient"
    fix = "reduce the loss first (.mean() or .sum()), or pass gradient="

    def error(self, error: Any, place: Place) -> Iterable[Finding]:
        if error.reason == "not scalar":
            t = error.about
            yield self.found(place, f"shape {list(t.array.shape)}, {t.array.size} elements")


@check
class UnusedParameter(Check):
    """Parameters of a trained model that no backward ever reached."""

    code = "AD007"
    title = "a parameter gets no gradient"
    cause = "no loss depends on it: the layer is not called, or its result is not used"
    fix = "use the layer in forward(), remove it, or requires_grad_(False)"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.used: set[int] = set()
        self.touched: dict[int, Place] = {}
        self.cuts: dict[Place, set[int]] = {}        # detach() -> leaves that it cuts off
        case.connected = self  # type: ignore[attr-defined]  # AD008 and AD024 read it

    def forward(self, node: Any, args: Any, made: Any) -> None:
        for e in node.edges:
            if type(e) is AccumulateGrad:
                leaf = e.variable
                if leaf is not None:
                    self.touched.setdefault(id(leaf), node_place(node))

    def detached(self, tensor: Any, made: Any) -> None:
        if tensor.grad_fn is not None:
            place = user_place(2)
            if place not in self.cuts:
                self.cuts[place] = upstream(tensor.grad_fn)[2]

    def begin_walk(self, walk: Any) -> None:
        if walk.levels:
            return
        self.used.update(id(leaf) for leaf in leaves_of(walk))
        for key in walk.capture:
            if type(key) is AccumulateGrad and key.variable is not None:
                self.used.add(id(key.variable))

    def idle(self) -> dict[int, Any]:
        """Parameters that require a gradient and never got one, in models that others did."""
        alive = {self.case.parameters[i].model for i in self.used
                 if i in self.case.parameters}
        return {i: k for i, k in self.case.parameters.items()
                if i not in self.used and k.tensor._rg and k.model in alive and not k.caller}

    def cut_at(self, key: int) -> Place | None:
        """The detach() between a parameter and the loss."""
        for place, leaves in self.cuts.items():
            if key in leaves:
                return place
        return None

    def findings(self) -> Iterable[Finding]:
        layers: dict[str, list[Any]] = {}
        for key, known in self.idle().items():
            if self.cut_at(key) is None:
                layers.setdefault(known.name.rpartition(".")[0], []).append(known)
        for group in layers.values():
            names = several([k.name for k in group])
            touched = self.touched.get(id(group[0].tensor))
            how = ("it was used, but not for a loss" if touched
                   else "no recorded op ever read it")
            evidence = f"{names}: .grad is None after {self.case.walks} backward passes; {how}"
            at = group[0].defined()
            if at is not None:
                file, line, function = at
                yield self.found_at(file, line, function, evidence)
            else:
                made = next((o.made_at for o in self.case.optimizers.values()), NOWHERE)
                yield self.found(touched or made, evidence)


@check
class NotOptimized(Check):
    """Parameters with a gradient that no optimizer updates."""

    code = "AD008"
    title = "a parameter is missing from the optimizer"
    cause = "it gets gradients, and no optimizer that stepped knows it: it never learns"
    fix = "give the optimizer model.parameters(), or requires_grad_(False) where it is to be frozen"

    def findings(self) -> Iterable[Finding]:
        known, used = self.case.parameters, self.case.connected.used  # type: ignore[attr-defined]
        # (set by AD007, which is made before)
        covered = self.case.optimized()
        models = {known[i].model for i in covered if i in known}
        lost = [k for i, k in known.items()
                if i in used and i not in covered and k.tensor._rg and k.model in models
                and k.tensor._version == k.version]
        if lost and self.case.steps >= 2:
            size = norm(k.tensor._grad.array for k in lost if k.tensor._grad is not None)
            place = next(iter(self.case.optimizers.values())).made_at
            n = len(covered)
            stray = next((k for k in lost if k.caller), None)
            why = (f"; {stray.caller} calls the layer of {stray.name} without having it among its "
                   "modules, so parameters() leaves it out" if stray else "")
            fix = "keep the layers in nn.ModuleList or nn.ModuleDict, not in a plain list or dict"
            yield self.found(place, f"{several([k.name for k in lost])}: |grad| = {size:.3g}, "
                             f"unchanged by {self.case.steps} steps of an optimizer of {n} tensors"
                             f"{why}", fix if stray else "")


@check
class NothingRequiresGrad(Check):
    """A loss without a graph though nothing switched recording off."""

    code = "AD023"
    title = "nothing requires a gradient"
    cause = "no leaf that the loss depends on has requires_grad=True"
    fix = "set requires_grad=True on what is to be learned; parameters of nn.Module have it"

    def error(self, error: Any, place: Place) -> Iterable[Finding]:
        if error.reason == "no graph" and taint_of(error.about) is None:
            known = self.case.parameters.values()
            frozen = sum(not k.tensor._rg for k in known)
            if frozen:
                seen = (f"{frozen} of {len(known)} parameters of the models that were called have "
                        "requires_grad=False")
            elif known:
                seen = (f"all {len(known)} parameters of the models that were called require a "
                        "gradient, and the loss was not made from their outputs by recorded ops: "
                        "item(), tolist(), torch.tensor(loss) and NumPy take the numbers only")
            else:
                seen = "no operand of any op that led to it requires a gradient"
            yield self.found(place, f"the loss has no grad_fn; {seen}")


@check
class DetachedPath(Check):
    """The path from a parameter to the loss goes through detach() or .data only."""

    code = "AD024"
    title = "the path to the loss is cut"
    cause = "detach(), .data or a value taken out of the graph stands between parameter and loss"
    fix = "use the tensor itself where a gradient is wanted"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.walked: Place = NOWHERE
        self.alone = False                           # the last backward began at a leaf
        self.missed: dict[Place, list[Any]] = {}     # backward -> [leaf?, times, what stepped]

    def begin_walk(self, walk: Any) -> None:
        if not walk.levels and walk.accumulate:
            self.walked = place_of(walk)
            self.alone = all(type(n) is AccumulateGrad for n in walk.order)

    def before_step(self, optimizer: Any, place: Place) -> None:
        params = [p for g in optimizer.param_groups for p in g["params"]]
        if (self.walked[0] is not None and params
                and all(p._rg and p._grad is None for p in params)):
            row = self.missed.setdefault(self.walked, [self.alone, 0, type(optimizer).__name__,
                                                       params])
            row[1] += 1

    def after_step(self, optimizer: Any, place: Place) -> None:
        self.walked = NOWHERE

    def _missed(self, used: set[int]) -> Iterable[Finding]:
        """Backward passes after which an optimizer found nothing, ever."""
        for place, (alone, times, name, params) in self.missed.items():
            if times >= 2 and not any(id(p) in used for p in params):
                why = ("the loss is a leaf itself: a tensor made from numbers, which knows nothing "
                       "of the ops before" if alone else "its graph leads to none of them")
                yield self.found(place, f"{times} calls of {name}.step() found no gradient in any "
                                 f"of {len(params)} parameters after this backward; {why}",
                                 "call backward() on the loss that the ops gave, not on a tensor "
                                 "made from its value (loss.item(), NumPy, torch.tensor(loss))")

    def findings(self) -> Iterable[Finding]:
        connected = self.case.connected  # type: ignore[attr-defined]  # set by AD007
        yield from self._missed(connected.used)
        groups: dict[Place, list[str]] = {}
        for key, known in connected.idle().items():
            place = connected.cut_at(key)
            if place is not None:
                groups.setdefault(place, []).append(known.name)
        for place, names in groups.items():
            yield self.found(place, f"{several(names)}: .grad is None after {self.case.walks} "
                             "backward passes; every path to a loss is detached here")

    def error(self, error: Any, place: Place) -> Iterable[Finding]:
        if error.reason == "no graph":
            mark = taint_of(error.about)
            if mark is not None and mark[0] == "detached":
                yield self.found(mark[1], "backward() was called on a loss that depends on "
                                 "detached values only")
            elif mark is not None and mark[0] != "no_grad":
                yield self.found(mark[1], f"backward() was called on a loss that depends on "
                                 f"parameters through {mark[0]} only, which has no derivative",
                                 f"use what {mark[0]} was computed from: a loss of the outputs "
                                 "themselves (cross_entropy takes logits and class numbers)")


_LOG = frozenset({"cross_entropy", "log_softmax", "softmax"})
_OF_LOGITS = frozenset({f"binary_cross_entropy_with_{what}{each}"
                        for what in ("logits", "pos_weight") for each in ("", "_each")})
_SHOWS = frozenset({"view", "unsqueeze", "squeeze", "permute", "transpose", "t", "alias",
                    "contiguous", "clone", "to_dtype"})


def _source(node: Any) -> Any:
    """The node that made operand 0, views passed over."""
    e = node.edges[0]
    for _ in range(8):
        n = e.node if type(e) is Port else e
        if n is None or type(n) is AccumulateGrad:
            return None
        if n.plan is None or n.plan.op.name not in _SHOWS:
            return n
        e = n.edges[0]
    return None


@check
class SoftmaxTwice(Check):
    """Probabilities where a loss expects logits."""

    code = "AD017"
    title = "softmax is applied twice"
    cause = "the loss applies (log-)softmax or sigmoid itself; its operand has been through one"
    fix = "give the loss the raw outputs of the last layer"
    ops = frozenset({*_LOG, "nll_loss", *_OF_LOGITS})

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.seen: dict[Place, list[Any]] = {}

    def forward(self, node: Any, args: Any, made: Any) -> None:
        if node.plan is None or node.edges[0] is None:
            return
        source = _source(node)
        if source is None or source.plan is None:
            return
        first, second = source.plan.op.name, node.plan.op.name
        if second in _OF_LOGITS:
            wrong = first == "sigmoid"
        elif second == "nll_loss":
            wrong = first == "softmax"
        else:
            wrong = first in ("softmax", "log_softmax") and (
                second == "cross_entropy" or source.attrs.get("dim") == node.attrs.get("dim"))
        if wrong:
            x = args[0].array
            classes = x.shape[1] if x.ndim > 1 else x.shape[0] if x.ndim else 1
            value = float(made[0].array) if made[0].array.size == 1 else math.nan
            entry = self.seen.setdefault(node_place(node), [first, second, classes, value, 0])
            entry[3], entry[4] = value, entry[4] + 1

    def findings(self) -> Iterable[Finding]:
        for place, (first, second, classes, value, times) in self.seen.items():
            if first == "softmax" and second == "cross_entropy":
                floor = math.log(1 + (classes - 1) / math.e)
                what = (f"probabilities as logits of {classes} classes keep the loss above "
                        f"{floor:.4f} (it is {value:.4f})")
            elif second == "nll_loss":
                what = "nll_loss expects log-probabilities and gets probabilities: use log_softmax"
            elif first == "log_softmax":
                what = "the second one changes nothing and costs a pass over the data"
            else:
                what = "the outputs are squeezed into [0, 1] before they are compared"
            yield self.found(place, f"{second} of the output of {first}, {times} times: {what}")


@check
class WrongReduction(Check):
    """A loss summed over many elements, whose step is out of proportion to the weights."""

    code = "AD018"
    title = "the loss is a sum over the batch"
    cause = "with reduction='sum' the gradient, and so the step, grows with the batch"
    fix = "use the mean (reduction='mean'), or divide the learning rate by the batch size"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.root: tuple[Place, int] | None = None
        self.copies: list[tuple[Any, Any]] = []
        self.ratios: list[float] = []
        self.place: tuple[Place, int] = (NOWHERE, 0)
        self.looked = 0

    def begin_walk(self, walk: Any) -> None:
        self.root = None
        if walk.levels or not walk.order or not walk.accumulate or self.looked >= 6:
            return
        node = walk.order[0]
        if node.plan is None:
            return
        name = node.plan.op.name
        if name in ("sum", "sum_all"):
            source = next(parents(node), None)
            shape = getattr(source, "shape", ())
            n = math.prod(shape) if shape and all(isinstance(i, int) for i in shape) else 1
        elif node.attrs.get("reduction") == "sum":
            saved = [s for s in node.saved or () if hasattr(s, "array")]
            n = max((s.array.shape[0] for s in saved if s.array.ndim), default=1)
        else:
            return
        if n >= 8:
            self.root = node_place(node), n

    def before_step(self, optimizer: Any, place: Place) -> None:
        if self.root is not None:
            self.looked += 1
            self.copies = [(p, p.array.copy()) for g in optimizer.param_groups
                           for p in g["params"]
                           if p._grad is not None and isinstance(p.array, np.ndarray)]

    def after_step(self, optimizer: Any, place: Place) -> None:
        if self.root is not None and self.copies:
            change = norm(p.array - old for p, old in self.copies)
            size = norm(old for _, old in self.copies)
            if not change <= 0.5 * size:                # also where it is not a number
                self.ratios.append(change / size if size else math.inf)
                self.place = self.root
        self.copies = []

    def findings(self) -> Iterable[Finding]:
        if len(self.ratios) >= 2:
            place, n = self.place
            worst = self.ratios[0]
            yield self.found(place, f"summed over {n} elements; a step changed the weights by "
                             f"{worst:.0%} of their norm (a mean over them: {worst / n:.1%})")


@check
class BroadcastLoss(Check):
    """(N, 1) predictions against (N,) targets: an N x N table of differences."""

    code = "AD019"
    title = "the loss broadcasts predictions against targets"
    cause = "shapes (N, 1) and (N,) broadcast to (N, N): every prediction meets every target"
    fix = "make the shapes equal: pred.squeeze(1), or target.unsqueeze(1)"
    ops = frozenset({"sub", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
                     "binary_cross_entropy", "binary_cross_entropy_with_logits",
                     "mse_loss_each", "smooth_l1_loss_each", "huber_loss_each"})

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.made: dict[int, tuple[Place, tuple[int, ...], tuple[int, ...]]] = {}
        self.seen: dict[Place, tuple[Any, ...]] = {}

    def forward(self, node: Any, args: Any, made: Any) -> None:
        if len(args) < 2 or not isinstance(args[0], Tensor) or not isinstance(args[1], Tensor):
            return
        a, b = args[0].array.shape, args[1].array.shape
        if args[0]._rg == args[1]._rg or len(a) + len(b) != 3 or not a or not b:
            return
        column = a if len(a) == 2 else b
        row = b if len(a) == 2 else a
        if column[1] == 1 and row[0] == column[0] > 1:
            self.made[node.seq] = node_place(node), a, b

    def begin_walk(self, walk: Any) -> None:
        if self.made and not walk.levels:
            for n in walk.order:
                if n.seq in self.made:
                    place, a, b = self.made[n.seq]
                    self.seen[place] = a, b
            self.made.clear()

    def findings(self) -> Iterable[Finding]:
        for place, (a, b) in self.seen.items():
            n = max(a)
            yield self.found(place, f"{list(a)} against {list(b)} gives [{n}, {n}]: the loss "
                             f"averages {n * n} differences where {n} were meant")


