"""`make_fx`: a call, run once, as the graph of the operators below the tape.

    f(*args) ─> every operator, and every function that makes a tensor, passes the recorder
             ─> a node each: call_function aten.mm.default
             ─> GraphModule, which runs them again

`symbolic_trace` reads a program as it is written; here the tape, `vmap` and `grad` have done their
part, so that a graph of `func.grad(f)` has the operators of the backward pass.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from operator import getitem
from typing import Any

import numpy as np

from adjoint.autograd.engine import running_walk
from adjoint.base import tree
from adjoint.base.errors import ArgumentError, AssertedError, AutogradError, NotSupported
from adjoint.core.tensor import Parameter, Tensor
from adjoint.fx.graph import Graph
from adjoint.fx.graph_module import GraphModule
from adjoint.fx.node import Node, map_aggregate
from adjoint.ops.aten import packet
from adjoint.overrides import TorchFunctionMode
from adjoint.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

_VALUES = frozenset("item __bool__ __float__ __int__ __index__ __complex__ tolist numpy".split())
_open: list[ProxyTorchDispatchMode] = []


class ProxyTorchDispatchMode(TorchDispatchMode):
    """Notes every operator as a node of `graph`, and runs it.

    A value is known by its memory: what the tape keeps of it is another object of the same array.
    """

    def __init__(self, graph: Graph, table: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self.graph, self.table = graph, table
        self.constants: dict[str, Any] = {}
        self._seeded: Any = None                # the backward pass whose beginning was met
        self._known: dict[int, tuple[Any, Node]] = {}    # id of an array -> (it, its node)

    def track(self, t: Tensor, node: Node) -> None:
        """From now on `node` stands for `t`."""
        node.meta["val"] = t.detach() if t.level == 0 else t
        held = t.array if t.level == 0 else t
        self._known[id(held)] = (held, node)

    def node_of(self, t: Tensor) -> Node | None:
        """The node that stands for a tensor; None where it came from outside."""
        found = self._known.get(id(t.array if t.level == 0 else t))
        return None if found is None else found[1]

    def read(self, x: Any) -> Any:
        """What a node has as its argument: a node for a tensor. One from outside is a constant."""
        if not isinstance(x, Tensor):
            return x
        node = self.node_of(x) or self._view(x)
        if node is None:
            self._check_outside(x)
            kind = "_param_constant" if isinstance(x, Parameter) else "_tensor_constant"
            name = f"{kind}{sum(n.startswith(kind) for n in self.constants)}"
            self.constants[name] = x
            node = self.graph.create_node("get_attr", name, name=name)
            self.track(x, node)
        return node

    def _check_outside(self, x: Tensor) -> None:
        """Raise where a tensor comes from a backward's own arithmetic, which no operator shows:
        as a constant it would be that of this run. What a backward begins with is 1."""
        walk = running_walk()
        if walk is None or isinstance(x, Parameter):
            return
        first = walk is not self._seeded
        self._seeded = walk
        if not first or x.level or not np.all(x.array == 1):
            raise NotSupported(
                f"make_fx: the backward pass reads a tensor{list(x.shape)} that no operator of the "
                "graph made, which depends on this run's values or was given as grad_outputs; "
                "trace the forward pass, or a function without the operation above")

    def _view(self, x: Tensor) -> Node | None:
        """A node for a tensor that shows the memory of one that has a node, where the backward
        made it without an operator: axes in another order, or another shape."""
        if x.level or not isinstance(x.array, np.ndarray) or not x.array.size:
            return None
        a = x.array
        near = [(held, node) for held, node in self._known.values()
                if isinstance(held, np.ndarray) and np.may_share_memory(held, a)]
        for held, node in reversed(near):
            made = _same_elements(held, a)
            if made is not None:
                found = self.graph.call_function(packet(made[0]).default, (node, made[1]))
                self.track(x, found)
                return found
        if near:
            raise NotSupported(
                f"make_fx: a tensor{list(a.shape)} shows part of the memory of a traced one, and "
                "was made without an operator; clone() it where it is made")
        return None

    def write(self, result: Any, node: Node) -> None:
        """`node` stands for a result; of several, an item of it for each."""
        if isinstance(result, Tensor):
            self.track(result, node)
        elif isinstance(result, (list, tuple)):
            node.meta["val"] = result
            for i, part in enumerate(result):
                if isinstance(part, Tensor):
                    self.track(part, self.graph.call_function(getitem, (node, i)))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self.table:
            with self:
                return self.table[func](*args, **kwargs)
        node = self.graph.call_function(func, map_aggregate(args, self.read),
                                        map_aggregate(kwargs, self.read))
        result = func(*args, **kwargs)
        self.write(result, node)
        return result


def _same_elements(held: Any, a: Any) -> tuple[str, list[int]] | None:
    """The operator, and what it is given, that shows the memory of `held` as `a`; None: none."""
    start = "__array_interface__"
    if held.dtype != a.dtype or getattr(held, start)["data"] != getattr(a, start)["data"]:
        return None
    if held.flags.c_contiguous and a.flags.c_contiguous and held.size == a.size:
        return "view", list(a.shape)
    axes = list(zip(held.shape, held.strides, range(held.ndim), strict=True))
    wanted = list(zip(a.shape, a.strides, strict=True))
    if sorted(axis[:2] for axis in axes) != sorted(wanted):
        return None
    return "permute", [axes.pop(next(i for i, axis in enumerate(axes) if axis[:2] == pair))[2]
                       for pair in wanted]


class _NoValues(TorchFunctionMode):
    """Refuses to make a number of a tensor that the graph computes: the number would be fixed."""

    def __init__(self, mode: ProxyTorchDispatchMode) -> None:
        self.mode = mode

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _VALUES and args and isinstance(
                args[0], Tensor) and self.mode.node_of(args[0]) is not None:
            raise AutogradError(
                f"It appears that you're trying to get value out of a tracing tensor with "
                f"{func.__name__}: the graph would hold the number of this run for ever. Use "
                "torch.where in place of a condition, and 0-d tensors in place of numbers")
        return func(*args, **(kwargs or {}))


def get_proxy_mode() -> ProxyTorchDispatchMode | None:
    """The recorder of the `make_fx` that is running; None outside of one."""
    return _open[-1] if _open else None


def _names(f: Callable[..., Any], count: int) -> list[str]:
    """What the arguments are called: as in the function, without a bound `self`."""
    code = getattr(inspect.unwrap(f), "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARARGS:
        return [f"arg{i}" for i in range(count)]
    bound = int(inspect.ismethod(f))
    names = list(code.co_varnames[bound:code.co_argcount])
    if len(names) != count:
        raise ArgumentError(f"Tracing expected {len(names)} arguments but got {count} concrete "
                            f"arguments: {', '.join(names)}. Give every argument, or trace a "
                            "function of fewer (functools.partial, lambda)")
    return names


def _placeholders(mode: ProxyTorchDispatchMode, names: list[str], args: Any) -> None:
    """A node for each argument; of a list or a dict also one for each tensor in it."""
    for name, arg in zip(names, args, strict=True):
        node = mode.graph.placeholder(f"{name}_1")
        _enter(mode, node, arg)


def _enter(mode: ProxyTorchDispatchMode, node: Node, value: Any) -> None:
    if isinstance(value, Tensor):
        mode.track(value, node)
    elif isinstance(value, (list, tuple, dict)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in items:
            if any(isinstance(x, Tensor) for x in tree.tree_leaves(part)):
                inner = mode.graph.call_function(getitem, (node, key))
                inner.meta["entered"] = True
                _enter(mode, inner, part)


def _trace(f: Callable[..., Any], args: Any, table: Mapping[Any, Callable[..., Any]]
           ) -> GraphModule:
    graph = Graph()
    mode = ProxyTorchDispatchMode(graph, table)
    _placeholders(mode, _names(f, len(args)), args)
    _open.append(mode)
    try:
        with _disable_current_modes(), _NoValues(mode), mode:
            result = f(*args)
    finally:
        _open.pop()
    graph.output(map_aggregate(result, mode.read))
    for node in reversed(graph.nodes):      # parts of lists that nobody read
        if node.target is getitem and not node.users and node.meta.pop("entered", False):
            graph.erase_node(node)
    return GraphModule(mode.constants, graph, getattr(f, "__name__", type(f).__name__))


def make_fx(f: Callable[..., Any],
            decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
            tracing_mode: str = "real", _allow_non_fake_inputs: bool = False, *,
            pre_dispatch: bool = False, record_module_stack: bool = False,
            _allow_fake_constant: bool = False, _error_on_data_dependent_ops: bool = True,
            record_stack_traces: bool = False, proxy_module_inputs: bool = False,
            _disable_torch_fn_metadata_mode: bool = False) -> Callable[..., GraphModule]:
    """A function that runs `f` once and gives a `fx.GraphModule` of the operators that ran.

    decomposition_table  operator (`ops.aten.sin.default`) -> function of its arguments that
                         stands for it in the graph
    tracing_mode         "real" or "fake" (shapes are fixed in the graph, both run `f` on the
                         values). "symbolic", with sizes as variables, is refused
    Arguments that are no tensors are fixed in the graph, and so is the way that conditions took.
    Tensors from outside become attributes `_tensor_constant0`, parameters `_param_constant0`.

    Errors: RuntimeError where a number is made of a tensor that the graph computes (`item`, `if`),
    and where the arguments are not as many as those of `f`.

    >>> import adjoint as ad
    >>> graph = make_fx(ad.func.grad(lambda x: (x * x).sum()))(ad.ones(2))
    >>> graph(ad.tensor([1.0, 3.0]))
    tensor([2., 6.])
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise AssertedError(f"tracing_mode must be real/fake/symbolic, got {tracing_mode}")
    if tracing_mode == "symbolic":
        raise NotSupported("make_fx(tracing_mode='symbolic'): graphs here have fixed sizes; trace "
                           "with tracing_mode='real' once per shape")
    if pre_dispatch:
        raise NotSupported("make_fx(pre_dispatch=True): what is traced are the operators below the "
                           "tape; fx.symbolic_trace gives a program as it is written")

    def traced(*args: Any) -> GraphModule:
        return _trace(f, args, decomposition_table or {})
    return traced


__all__ = ["ProxyTorchDispatchMode", "get_proxy_mode", "make_fx"]
