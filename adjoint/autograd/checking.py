"""What `gradcheck` checks: analytic derivatives against central differences.

After the Jacobians themselves: whether two runs of backward agree, whether cotangents that come
together (`vmap`) give what each gives alone, whether a cotangent of zeros, or none, gives zeros.
"""
from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adjoint.autograd import api, jacobians
from adjoint.autograd.function import Function
from adjoint.autograd.jacobians import as_tuple
from adjoint.autograd.modes import enable_grad
from adjoint.base.errors import ArgumentError, AutogradError, GradcheckError
from adjoint.core.modes import as_pytorch, warn_as_pytorch
from adjoint.core.tensor import Tensor, wrap
from adjoint.ops.sparse_tensor import SparseTensor, make


def _inputs(inputs: tuple[Any, ...]) -> list[tuple[int, Tensor]]:
    """(position, tensor) of the operands to check; refuses single precision, of which PyTorch
    warns."""
    picked = [(i, t) for i, t in enumerate(inputs) if isinstance(t, Tensor) and t._rg]
    if not picked:
        raise ArgumentError("gradcheck expects at least one input tensor to require gradient, but "
                            "none of them have requires_grad=True.")
    for i, t in picked:
        if t.array.dtype not in (np.float64, np.complex128) and as_pytorch[0]:
            warn_as_pytorch(f"Input #{i} requires gradient and is not a double precision floating "
                            "point or complex. This check will likely fail if all the inputs are "
                            "not of double precision floating point or complex.")
        elif t.array.dtype not in (np.float64, np.complex128):
            raise GradcheckError(
                f"gradcheck: input {i} is {t.dtype}; central differences with eps=1e-6 need double "
                "precision (a float32 step loses all digits).\n  fix: pass float64 tensors "
                "(x.double()), and model.double() for a module")
        if t.array.size and 0 in t.array.strides and t.array.size > 1:
            raise AutogradError(f"The {i}th input has a dimension with stride 0. gradcheck only "
                                "supports inputs that are non-overlapping to be able to compute "
                                "the numerical gradients correctly. You should call .contiguous on "
                                "the input before passing it to gradcheck.")
    return picked


def _stored(func: Callable[..., Any], inputs: tuple[Any, ...], masked: bool
            ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """`func` as a function of the stored elements of its sparse operands: of those at their
    positions (`masked`), or of all elements."""
    if not any(isinstance(x, SparseTensor) for x in inputs):
        return func, inputs
    full = tuple(_filled(x) if isinstance(x, SparseTensor) and not masked else x for x in inputs)
    held = tuple(x._values().detach().requires_grad_(x.requires_grad)
                 if isinstance(x, SparseTensor) else x for x in full)

    def on_values(*values: Any) -> Any:
        return func(*(x._with(v) if isinstance(x, SparseTensor) else v
                      for x, v in zip(full, values, strict=True)))
    return on_values, held


def _filled(x: SparseTensor) -> Any:
    """The same matrix with every element stored."""
    dense = x.detach().to_dense()
    at = np.indices(tuple(dense.shape)).reshape(dense.ndim, -1)
    filled = make(at, dense.reshape(-1), tuple(dense.shape), True)
    return (filled if x.is_sparse else filled.to_sparse(layout=x.layout)).requires_grad_(
        x.requires_grad)


def _difference(i: int, k: int, t: Tensor, out: Tensor | None, a: Any, n: Any, atol: float,
                rtol: float, mode: str = "Jacobian") -> str:
    """Empty if the two agree; else the report of the worst element."""
    if a.size == 0 or np.allclose(a, n, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    error = np.abs(a - n)
    error = np.where(np.isnan(error), np.inf, error)
    at = np.unravel_index(int(np.argmax(error)), error.shape)
    where_in = tuple(int(v) for v in np.unravel_index(int(at[0]), t.array.shape))
    node = out.grad_fn if out is not None else None
    made = f" (made by {node.name()} at {node.where()})" if node is not None else ""
    out_shape = list(out.array.shape) if out is not None else "?"
    return (f"{mode} mismatch for output {k} with respect to input {i},\n"
            f"  output {k}: shape {out_shape}{made}\n"
            f"  input {i}: shape {list(t.array.shape)}, worst at index {where_in}, output element "
            f"{int(at[1])}\n  numerical: {n[at]:.10g}\n  analytical: {a[at]:.10g}\n"
            f"  difference {error[at]:.3g} > atol {atol:g} + rtol {rtol:g} * |numerical|\n"
            f"numerical:{np.array2string(n, threshold=64)}\n"
            f"analytical:{np.array2string(a, threshold=64)}")


_FORWARD = "Jacobian computed with forward mode"


@dataclass
class _Check:
    """One function at one point, and what to check there."""

    func: Callable[..., Any]
    given: tuple[Any, ...]
    picked: Sequence[tuple[int, Tensor]]
    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    fast: bool
    all_places: list[int] = field(default_factory=list)        # numbers of outputs
    places: list[int] = field(default_factory=list)            # of those that require a gradient
    outs: list[tuple[int, Tensor]] = field(default_factory=list)
    rng: Any = None

    def begin(self) -> _Check:
        """Run the function once and see what it gives."""
        found = jacobians.outputs(self.func, self.given)
        if any(isinstance(o, SparseTensor) for _, o in found):
            raise ArgumentError("Sparse output is not supported at gradcheck yet. Please call "
                                "to_dense(masked_grad=...) on the output of fn for gradcheck.")
        self.all_places = [k for k, _ in found]
        self.outs = [(k, o) for k, o in found if o._rg]
        self.places = [k for k, _ in self.outs]
        self.rng = np.random.default_rng(0)
        return self

    def flat(self) -> None:
        """No output requires a gradient: no output may depend on the operands."""
        for i, t in self.picked:
            for k, n in zip(self.all_places, jacobians.slopes(
                    self.func, self.given, t, self.eps, self.all_places), strict=True):
                if np.abs(n).max(initial=0.0) > self.atol:
                    raise GradcheckError("Numerical gradient for function expected to be zero: "
                                         f"output {k} does not require grad but depends on input "
                                         f"{i}")

    def random(self, like: Any) -> Any:
        """Random numbers of the shape and kind of an array."""
        x = self.rng.standard_normal(like.shape)
        if like.dtype.kind == "c":
            x = x + 1j * self.rng.standard_normal(like.shape)
        return np.asarray(x, like.dtype)

    def jacobian(self, forward: bool) -> None:
        """The derivatives by backward (or forward mode) against central differences."""
        for i, t in self.picked:
            real = t.array.dtype.kind != "c" and all(
                o.array.dtype.kind != "c" for _, o in self.outs)
            if not (self.fast and real) or self._differs_along(i, t, forward):
                (self._forward if forward else self._backward)(i, t)

    def _backward(self, i: int, t: Tensor) -> None:
        numeric = jacobians.numerical_jacobian(self.func, self.given, t, self.eps, self.places)
        for (k, out), n in zip(self.outs, numeric, strict=True):
            for a, b in jacobians.pairs(self.func, self.given, t, self.eps, k, out, n):
                self._agree(_difference(i, k, t, out, a, b, self.atol, self.rtol))

    def _forward(self, i: int, t: Tensor) -> None:
        for unit in (1, 1j) if t.array.dtype.kind == "c" else (1,):
            numeric = jacobians.slopes(self.func, self.given, t, self.eps, self.places, unit)
            rows = jacobians.forward_rows(self.func, self.given, i, self.places, unit)
            for (k, out), a, n in zip(self.outs, rows, numeric, strict=True):
                self._agree(_difference(i, k, t, out, a, n, self.atol, self.rtol, _FORWARD))

    def _agree(self, text: str) -> None:
        if text:
            raise GradcheckError(text)

    def _differs_along(self, i: int, t: Tensor, forward: bool) -> bool:
        """Fast mode: the Jacobian between two random directions. Where it differs, the whole
        Jacobians are looked at, which say where."""
        u = self.random(t.array)
        numeric = jacobians.slope_along(self.func, self.given, t, self.eps, self.places, u)
        moved = jacobians.pushed(self.func, self.given, i, wrap(u), self.places) if forward else ()
        for j, (_, out) in enumerate(self.outs):
            v = self.random(out.array)
            want = np.vdot(v, numeric[j])
            got = (np.vdot(v, 0 * v if moved[j] is None else moved[j].array) if forward
                   else np.vdot(u, jacobians.pulled(out, t, v)))
            slack = self.atol * np.abs(v).sum() * np.abs(u).sum()
            if not np.allclose(got, want, rtol=self.rtol, atol=slack, equal_nan=True):
                return True
        return False

    def repeatable(self) -> None:
        """Backward twice with one cotangent gives one answer."""
        for (_, out), (i, t) in ((a, b) for a in self.outs for b in self.picked):
            seed = wrap(np.ones(out.array.shape, out.array.dtype))
            first, second = (api.grad(out, t, seed, retain_graph=True, allow_unused=True)[0]
                             for _ in range(2))
            if first is None or second is None:
                continue
            if first.array.dtype != t.array.dtype:
                raise GradcheckError("Gradient has dtype mismatch: of input "
                                     f"{i} it is {first.dtype}, the input {t.dtype}")
            gap = np.abs(first.array - second.array).max(initial=0.0)
            if gap > self.nondet_tol:
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and "
                    "grad_output multiple times gives different values, although analytical "
                    "gradient matches numerical gradient.The tolerance for nondeterminism was "
                    f"{self.nondet_tol}, the difference is {gap:g}.")

    def batched(self) -> None:
        """Cotangents that are mapped by `vmap` against each alone."""
        targets = [t for _, t in self.picked]
        for k, out in self.outs:
            stack = np.stack([self.random(out.array) for _ in range(2)])
            alone = [api.grad(out, targets, wrap(row), retain_graph=True, allow_unused=True)
                     for row in stack]
            try:
                together = _functional().mapped_pull(out, targets, wrap(stack))
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                raise GradcheckError(f"While computing batched gradients, got: {error}\n\n"
                                     + _BATCHED) from error
            for j, (i, t) in enumerate(self.picked):
                zeros = np.zeros(t.array.shape, t.array.dtype)
                rows = np.stack([zeros if row[j] is None else row[j].array for row in alone])
                got = np.stack([zeros] * 2) if together[j] is None else together[j].array
                self._same(rows, got, f"{_BATCHED}\nFor output {k} and input {i}")

    def batched_forward(self) -> None:
        """Tangents that are mapped by `vmap` against each alone."""
        for i, t in self.picked:
            stack = np.stack([self.random(t.array) for _ in range(2)])
            alone = [jacobians.pushed(self.func, self.given, i, wrap(row), self.places)
                     for row in stack]
            try:
                together = _functional().mapped_push(self.func, self.given, i, wrap(stack))
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                raise GradcheckError("While computing batched gradients, got: "
                                     f"{error}\n\n{_BATCHED_FORWARD}") from error
            for j, (k, out) in enumerate(self.outs):
                rows = np.stack([np.zeros(out.array.shape) if row[j] is None else row[j].array
                                 for row in alone])
                self._same(rows, together[k].array,
                           f"{_BATCHED_FORWARD}\nFor output {k} and input {i}")

    def _same(self, want: Any, got: Any, text: str) -> None:
        if not np.allclose(got, want, rtol=self.rtol, atol=self.atol, equal_nan=True):
            raise GradcheckError(f"{text}:\n\nexpected:\n{want}\n\ngot:\n{got}\n")

    def by_zeros(self) -> None:
        """Backward is linear in what it is given: zeros give zeros."""
        targets = [t for _, t in self.picked]
        seeds = [wrap(np.zeros(o.array.shape, o.array.dtype)) for _, o in self.outs]
        found = api.grad([o for _, o in self.outs], targets, seeds, retain_graph=True,
                         allow_unused=True)
        if any(g is not None and np.any(np.asarray(g.array) != 0) for g in found):
            raise GradcheckError("backward not multiplied by grad_output")

    def by_nothing(self) -> None:
        """Outputs without any cotangent, all of them and one after the other."""
        outs = [o for _, o in self.outs]
        stopped = [_Undefined.apply(o) for o in outs]
        self._nothing_from(stopped)
        if len(outs) > 1:
            for j in range(len(outs)):
                self._nothing_from([stopped[j] if j == m else o for m, o in enumerate(outs)])

    def _nothing_from(self, outs: list[Any]) -> None:
        seeds = [wrap(np.zeros(o.array.shape, o.array.dtype)) for o in outs]
        try:
            found = api.grad(outs, [t for _, t in self.picked], seeds, retain_graph=True,
                             allow_unused=True)
        except (RuntimeError, TypeError) as error:
            warn_as_pytorch(_NEW)
            raise GradcheckError("Expected backward function to handle undefined output grads. "
                                 + _UNDEFINED) from error
        if any(g is not None and np.any(np.asarray(g.array) != 0) for g in found):
            warn_as_pytorch(_NEW)
            raise GradcheckError("Expected all input grads to be undefined or zero when all output "
                                 "grads are undefined or zero. " + _UNDEFINED)


_NEW = ("Backwards compatibility: New undefined gradient support checking feature is enabled by "
        "default, but it may break existing callers of this function. If this is true for you, you "
        'can call this function with "check_undefined_grad=False" to disable the feature')
_UNDEFINED = ('Please look at "Notes about undefined output gradients" in '
              '"tools/autograd/derivatives.yaml": a backward gets None where an output has no '
              "cotangent and set_materialize_grads(False) was called, zeros otherwise")
_BATCHED = "gradcheck or gradgradcheck failed while testing batched gradient computation."
_BATCHED_FORWARD = ("gradcheck failed while testing batched gradient computation with forward-mode "
                    "AD.")


class _Undefined(Function):
    """Gives no gradient to its operand."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> None:
        return None


def _functional() -> Any:
    """What maps derivatives; it stands above this part, and is loaded by whoever asks for it."""
    return importlib.import_module("adjoint.autograd.functional")


def run(func: Callable[..., Any], inputs: Any, *, eps: float, atol: float, rtol: float,
        raise_exception: bool, nondet_tol: float, undefined: bool, batched: bool,
        batched_forward: bool, forward: bool, backward: bool, fast: bool, masked: bool) -> bool:
    """The checks that were asked for, in order; True, or False where one fails and that is not to
    raise."""
    func, given = _stored(func, as_tuple(inputs), masked)
    try:
        with enable_grad():
            check = _Check(func, given, _inputs(given), eps, atol, rtol, nondet_tol, fast).begin()
            if not check.outs:
                check.flat()
                return True
            if backward:
                check.jacobian(forward=False)
            if forward:
                check.jacobian(forward=True)
            if batched_forward:
                check.batched_forward()
            if backward:
                check.repeatable()
                if batched:
                    check.batched()
                check.by_zeros()
                if undefined:
                    check.by_nothing()
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def of_gradient(func: Callable[..., Any], inputs: Any, grad_outputs: Any, masked: bool,
                strided: bool) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The gradient of `func` as a function of its operands and of the cotangents, and both."""
    func, given = _stored(func, as_tuple(inputs), masked)
    picked = _inputs(given)
    outs = [o for _, o in jacobians.differentiable(func, given)]
    rng = np.random.default_rng(0)
    seeds = ([_seed(rng, o, strided) for o in outs] if grad_outputs is None
             else list(as_tuple(grad_outputs)))
    n = len(given)

    @enable_grad()
    def gradient(*args: Any) -> tuple[Any, ...]:
        own, cts = args[:n], args[n:]
        results = [o for _, o in jacobians.differentiable(func, own)]
        targets = [own[i] for i, _ in picked]
        return tuple(g for g in api.grad(results, targets, tuple(cts), create_graph=True,
                                         allow_unused=True) if g is not None)
    return gradient, (*given, *seeds)


def _seed(rng: Any, out: Tensor, strided: bool) -> Tensor:
    """A random cotangent that requires a gradient; `strided`: every second element of memory."""
    shape = out.array.shape
    values = rng.standard_normal((*shape, 2) if strided else shape)
    if out.array.dtype.kind == "c":
        values = values + 1j * rng.standard_normal(values.shape)
    made = np.asarray(values).astype(out.array.dtype)
    return wrap(made[..., 0] if strided else made, True)
