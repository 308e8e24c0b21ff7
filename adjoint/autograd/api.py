"""`backward` and `grad`: the two ways into the engine, with PyTorch's arguments and errors."""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from adjoint.autograd.engine import walk
from adjoint.autograd.late import duals
from adjoint.autograd.modes import opened_at
from adjoint.base.aval import MetaArray
from adjoint.base.dtypes import is_inexact
from adjoint.base.errors import ArgumentError, AutogradError, ShapeError
from adjoint.core.modes import WATCH, as_pytorch, modes_open, state, warn, warn_once
from adjoint.core.rehearsal import beginning, call
from adjoint.core.tensor import DISPATCHED, GradientEdge, Node, Port, Tensor, edge_of, wrap
from adjoint.ops.shape import stack_op


def _as_tuple(x: Any) -> tuple[Any, ...]:
    if isinstance(x, (Tensor, GradientEdge)) or x is None:
        return (x,)
    return tuple(x)


def _insides(x: Any) -> tuple[Any, ...]:
    """As `_as_tuple`; of tensors that show another one (sparse and nested ones), the other."""
    many = _as_tuple(x)
    for t in many:
        if type(t) is not Tensor and t is not None and getattr(t, "_held", None) is not None:
            break
    else:
        return many
    held = [getattr(t, "_held", None) for t in many]
    return tuple([t if h is None else h for t, h in zip(many, held, strict=True)])


def _ones(t: Tensor) -> Any:
    shape, kind = t.array.shape, t.array.dtype
    if type(t.array) is MetaArray:
        return call(_filled, shape, kind, otherwise=lambda: MetaArray(shape, kind))
    return _filled(shape, kind)


def _filled(shape: tuple[int, ...], dtype: Any) -> Any:
    # (a scalar takes a quarter of what `np.ones` does)
    return np.ones(shape, dtype) if shape else np.array(1, dtype)


def _between(tensors: Any, grads: Any) -> bool:
    """True if tensors have to run between the nodes though no graph is built: values of a transform
    or of a class with `__torch_dispatch__`, or a mode that wants to see the ops."""
    return modes_open() or any(
        isinstance(t, Tensor) and t.level == DISPATCHED for t in _as_tuple(tensors)) or any(
        isinstance(g, Tensor) and g.level for g in _as_tuple(grads))


def _seed(t: Any, g: Any, i: int, create: bool) -> Any:
    """The cotangent a root starts with, checked against the root."""
    if isinstance(t, GradientEdge):
        t = _stand_in(t)
    if not isinstance(t, Tensor):
        raise ArgumentError(f"backward: root {i} is a {type(t).__name__}, expected a tensor")
    if not t._rg:
        where = opened_at()
        hint = f"\n  {where}" if where else ""
        raise AutogradError(
            f"element {i} of tensors does not require grad and does not have a grad_fn.{hint}\n"
            "  fix: set requires_grad=True on a leaf that it depends on, and do not compute it "
            "under no_grad() or from .detach()ed values", reason="no graph", about=t)
    if g is None:
        if t.array.size != 1:
            raise AutogradError(
                f"grad can be implicitly created only for scalar outputs, this one has shape "
                f"{list(t.array.shape)}.\n  fix: reduce it first (loss.mean().backward() or "
                ".sum()), or pass the cotangent: backward(gradient=tensor of that shape)",
                reason="not scalar", about=t)
        if not is_inexact(t.array.dtype) or t.array.dtype.kind == "c":
            raise AutogradError("grad can be implicitly created only for real scalar outputs but "
                                f"got {t.dtype}")
        if t.level == DISPATCHED:
            return t.trace.ones(t)
        g = _ones(t)
        return wrap(g) if create else g
    if not isinstance(g, Tensor):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(g).__name__}")
    if tuple(g.array.shape) != tuple(t.array.shape):
        raise ShapeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a "
            f"shape of {t.shape}.")
    g = in_dtype_of(t, g, i)
    return g if create else beginning(g.array, t.array)


def in_dtype_of(t: Any, g: Any, i: int) -> Any:
    """A cotangent in the dtype of its output, the `i`-th; complex and real ones do not mix."""
    if (g.array.dtype.kind == "c") != (t.array.dtype.kind == "c"):
        raise AutogradError("For complex Tensors, both grad_output and output are required to have "
                            f"the same dtype. Mismatch in dtype: grad_output[{i}] has a dtype of "
                            f"{g.dtype} and output[{i}] has a dtype of {t.dtype}.")
    return g if g.array.dtype == t.array.dtype else g.to(t.dtype)


def _roots(tensors: Any, grads: Any, create: bool) -> list[tuple[Any, Any]]:
    many = _insides(tensors)
    given = (None,) * len(many) if grads is None else _insides(grads)
    if len(given) != len(many):
        raise AutogradError(f"got {len(many)} tensors and {len(given)} gradients")
    return [(t.inside() if isinstance(t, GradientEdge) else edge_of(t), s) for t, s in
            [(t, _seed(t, g, i, create)) for i, (t, g) in enumerate(zip(many, given, strict=True))]]


def _stand_in(edge: GradientEdge) -> Tensor:
    """A tensor of zeros, one element in memory, at that place of the graph."""
    t = wrap(np.broadcast_to(np.zeros((), edge.aval.dtype), edge.aval.shape))
    t._edge, t._rg = edge.inside(), True
    return t


# What PyTorch tells, and programs written for it may wait for; here the graph leaves no cycle.
_CYCLE = ("Using backward() with create_graph=True will create a reference cycle between the "
          "parameter and its gradient which can cause a memory leak. We recommend using "
          "autograd.grad when creating the graph to avoid this. If you have to use this function, "
          "make sure to reset the .grad fields of your parameters to None after use to break the "
          "cycle and avoid the leak.")


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None,
             create_graph: bool = False, grad_variables: Any = None, inputs: Any = None) -> None:
    """Accumulate d sum(tensors · grad_tensors) into `.grad` of the leaves.

    tensors       tensor or sequence; scalars unless their `grad_tensors` is given
    retain_graph  keep the residuals for another backward (default: `create_graph`)
    inputs        accumulate into these tensors only
    Raises AutogradError on a second backward, a changed residual, a non-scalar root.

    >>> import adjoint as ad
    >>> x = ad.tensor([3.0], requires_grad=True)
    >>> ad.autograd.backward((x * x).sum())
    >>> x.grad
    tensor([6.])
    """
    if grad_variables is not None:
        warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning)
        if grad_tensors is not None:
            raise ArgumentError("`grad_tensors` and `grad_variables` (deprecated) arguments both "
                                "passed to `backward()`. Please only use `grad_tensors`.")
        grad_tensors = grad_variables
    if create_graph and as_pytorch[0]:
        warn_once(_CYCLE)
    keep = create_graph if retain_graph is None else retain_graph
    if (not create_graph and type(tensors) is type(grad_tensors) is list and len(tensors) == 1
            and type(tensors[0]) is Tensor and len(grad_tensors) == 1 and grad_tensors[0] is None
            and not state() & WATCH):
        between = False                              # `loss.backward()`: nothing to tell apart
        roots = [(edge_of(tensors[0]), _seed(tensors[0], None, 0, False))]
    else:
        between = not create_graph and _between(tensors, grad_tensors)
        roots = _roots(tensors, grad_tensors, create_graph or between)
    if inputs is None:
        walk(roots, keep=keep, create=create_graph, levels=between)
        return
    targets = _insides(inputs)
    if not targets:
        raise ArgumentError("`inputs` argument to `backward()` cannot be empty.")
    places = _capture(targets)
    for t in targets:
        if isinstance(t, Tensor):
            t.retain_grad()                     # an input that is no leaf has its `.grad` so
    walk(roots, keep=keep, create=create_graph, capture=places, accumulate=False, into=True,
         levels=between)


def _capture(targets: Sequence[Any]) -> dict[Any, list[int]]:
    places: dict[Any, list[int]] = {}
    ports: dict[tuple[Node, int], Port] = {}
    for i, t in enumerate(targets):
        if isinstance(t, GradientEdge):
            e = t.inside()
            if type(e) is Port:
                e = ports.setdefault((e.node, e.index), e)
            places.setdefault(e, []).append(i)
            continue
        if not isinstance(t, Tensor):
            raise ArgumentError("all inputs have to be Tensors or GradientEdges, but got "
                                f"{type(t).__name__}")
        if not t._rg:
            raise AutogradError(f"One of the differentiated Tensors does not require grad "
                                f"(input {i}, {_named(t)})")
        e = edge_of(t)
        if type(e) is Port:
            e = ports.setdefault((e.node, e.index), e)
        places.setdefault(e, []).append(i)
    return places


def _named(t: Any) -> str:
    made = f", made by {t.grad_fn.name()} at {t.grad_fn.where()}" if t.grad_fn else ", a leaf"
    name = getattr(t, "name", None)
    label = f"{name!r}: " if isinstance(name, str) else ""
    return f"{label}shape {list(t.array.shape)} {t.dtype}{made}"


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
         is_grads_batched: bool = False, materialize_grads: bool = False) -> tuple[Any, ...]:
    """d sum(outputs · grad_outputs) / d inputs, as new tensors; no `.grad` is touched.

    allow_unused       an input that was not used gives None in place of an error
    materialize_grads  such an input gives zeros
    is_grads_batched   `grad_outputs` have a leading axis of cotangents to pull back at once
    Inside of a `vmap` the cotangents may be mapped values: one walk pulls all of them back.

    >>> import adjoint as ad
    >>> x = ad.tensor(2.0, requires_grad=True)
    >>> (g,) = ad.autograd.grad(x ** 3, x, create_graph=True)
    >>> g, ad.autograd.grad(g, x)[0]
    (tensor(12., grad_fn=<MulBackward0>), tensor(12.))
    """
    if not only_inputs:
        warn("only_inputs argument is deprecated and is ignored now (defaults to True). To "
             "accumulate gradient for other parts of the graph, please use "
             "torch.autograd.backward.", FutureWarning)
    if materialize_grads and allow_unused is False:
        raise ArgumentError("Expected allow_unused to be True or not passed when "
                            "materialize_grads=True, but got: allow_unused=False.")
    targets = _as_tuple(inputs)
    if not targets:
        raise ArgumentError("`inputs` argument to `grad()` cannot be empty.")
    held = [getattr(t, "_held", None) for t in targets]
    if any([h is not None for h in held]):                   # by their values
        found = grad(outputs, [t if h is None else h for t, h in zip(targets, held, strict=True)],
                     grad_outputs, retain_graph, create_graph, True, allow_unused,
                     is_grads_batched, materialize_grads)
        return tuple([g if h is None or g is None else t._with(g)
                      for t, h, g in zip(targets, held, found, strict=True)])
    keep = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        return _batched(outputs, targets, grad_outputs, keep, create_graph,
                        bool(allow_unused) or materialize_grads, materialize_grads)
    if any([isinstance(t, Tensor) and t.level for t in targets]) or (
            type(outputs) is not Tensor and any([isinstance(t, Tensor) and t.level
                                                 for t in _as_tuple(outputs)])):
        many = _as_tuple(outputs)
        dual = duals().pull_back(
            many, targets, (None,) * len(many) if grad_outputs is None else _as_tuple(grad_outputs),
            retain_graph=keep, create_graph=create_graph, allow_unused=allow_unused,
            materialize_grads=materialize_grads)
        if dual is not None:
            return dual
    mapped = _between(outputs, grad_outputs)
    roots = _roots(outputs, grad_outputs, create_graph or mapped)
    captured = walk(roots, keep=keep, create=create_graph, capture=_capture(targets),
                    accumulate=False, levels=mapped and not create_graph)
    seeds = {id(s) for _, s in roots}
    unused = bool(allow_unused) or materialize_grads
    return tuple([_unused(t, i, unused, materialize_grads) if captured.get(i) is None
                  else _own(captured[i], seeds) for i, t in enumerate(targets)])


def _own(ct: Any, seeds: set[int]) -> Any:
    """A captured cotangent as a tensor, in memory that is nobody else's."""
    if isinstance(ct, Tensor):
        return ct
    if isinstance(ct, np.ndarray) and (id(ct) in seeds or ct.base is not None
                                       or not ct.flags.writeable):
        return wrap(np.array(ct))
    if type(ct) is MetaArray and (id(ct) in seeds or ct.base is not None):
        return wrap(call(np.array, ct, otherwise=partial(MetaArray, ct.shape, ct.dtype)))
    return wrap(np.asarray(ct) if not hasattr(ct, "shape") or isinstance(ct, np.generic) else ct)


def _unused(t: Any, i: int, allowed: bool, zeros: bool) -> Any:
    if zeros:
        array = (_stand_in(t) if isinstance(t, GradientEdge) else t).array
        return wrap(MetaArray(array.shape, array.dtype) if type(array) is MetaArray
                    else np.zeros(array.shape, array.dtype))
    if allowed:
        return None
    raise AutogradError(
        f"The differentiated Tensor at index {i} appears to not have been used in the graph. Set "
        "allow_unused=True if this is the desired behavior.\n"
        f"  unused: input {i} ({_named(t)})")


def _batched(outputs: Any, targets: tuple[Any, ...], grad_outputs: Any, keep: bool, create: bool,
             allowed: bool, zeros: bool) -> tuple[Any, ...]:
    """One pull-back per row of `grad_outputs`, stacked."""
    gs = _as_tuple(grad_outputs)
    for i, (t, g) in enumerate(zip(_as_tuple(outputs), gs, strict=False)):
        t = t.aval if isinstance(t, GradientEdge) else t
        if g is not None and tuple(g.shape[1:]) != tuple(t.shape):
            raise ShapeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output "
                "as the batch dimension. The sizes of the remaining dimensions are expected to "
                f"match the shape of corresponding output, but a mismatch was detected: grad_output"
                f"[{i}] has a shape of {g.shape} and output[{i}] has a shape of {t.shape}. If you "
                f"only want some tensors in `grad_output` to be considered batched, consider using "
                "vmap.")
    sizes = [g.shape[0] for g in gs if g is not None]
    if not sizes:
        raise AutogradError("grad can be implicitly created only for scalar outputs: with "
                            "is_grads_batched=True, grad_outputs have to be given")
    if len(set(sizes)) > 1:
        raise ShapeError("vmap: Expected all tensors to have the same size in the mapped dimension,"
                         f" got sizes {sizes} for the mapped dimension")
    size = sizes[0]
    rows = []
    for k in range(size):
        row = tuple(None if g is None else g[k] for g in gs)
        rows.append(grad(outputs, targets, row, retain_graph=keep or k < size - 1,
                         create_graph=create, allow_unused=allowed, materialize_grads=zeros))
    return tuple(None if column[0] is None else stack_op(*column, dim=0)
                 for column in zip(*rows, strict=True))
