"""Tracing: a module or a function is called with proxies, which note what is done with them."""
from __future__ import annotations

import dis
import functools
import inspect
import operator
import sys
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from adjoint import nn
from adjoint.base.errors import AdjointError, AssertedError
from adjoint.core.tensor import Tensor
from adjoint.fx.graph import Graph
from adjoint.fx.graph_module import GraphModule
from adjoint.fx.node import Node, map_aggregate
from adjoint.ops.public import FUNCTIONS
from adjoint.overrides import is_tensor_method_or_property


class TraceError(AdjointError, ValueError, RuntimeError):
    """What a program does with a proxy depends on values, which tracing has not."""


def compatibility(is_backward_compatible: bool) -> Callable[[Any], Any]:
    """A decorator that leaves what it is given as it is: it says for readers of PyTorch's source
    whether the function may change. Tracers of libraries mark theirs with it."""
    return lambda f: f


class Proxy:
    """Stands for a value while a program is traced; `node` is what makes it."""

    def __init__(self, node: Node, tracer: Any = None) -> None:
        self.node, self.tracer = node, tracer or GraphAppendingTracer(node.graph)

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        frame = sys._getframe(1)
        step = next((i for i in dis.get_instructions(frame.f_code) if i.offset == frame.f_lasti),
                    None)
        if step is not None and step.opname == "UNPACK_SEQUENCE":
            return (operator.getitem(self, i)
                    for i in range(int(step.argval)))
        return iter(self.tracer.iter(self))

    def __bool__(self) -> bool:
        return bool(self.tracer.to_bool(self))

    def __len__(self) -> int:
        raise TraceError("'len' is not supported in symbolic tracing by default. If you want this "
                         "call to be recorded, please call torch.fx.wrap('len') at module scope")

    def keys(self) -> Any:
        """Refused, unless the tracer says what `**proxy` is."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found: list[Any] = []
        map_aggregate((args, kwargs), lambda a: found.append(a) if isinstance(a, Proxy) else None)
        tracer = found[0].tracer
        method = is_tensor_method_or_property(func) and not _is_function(func)
        if method:
            return tracer.create_proxy("call_method", func.__name__, args, kwargs)
        return tracer.create_proxy("call_function", func, args, kwargs)


def _is_function(func: Any) -> bool:
    """True for a method that is one object with the public function of its name, called as that:
    a proxy records its own methods itself."""
    return FUNCTIONS.get(func.__name__) is func


class Attribute(Proxy):
    """`proxy.name`: recorded when it is read, a method when it is called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Any:  # type: ignore[override]  # made at its first use
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr,
                                                  (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def _operator(name: str, reflected: bool) -> Callable[..., Any]:
    target = getattr(operator, name)

    def method(self: Proxy, *args: Any) -> Any:
        given = (*args, self) if reflected else (self, *args)
        return self.tracer.create_proxy("call_function", target, given, {})
    return method


_TWO = "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift".split()
for _name in (*_TWO, *"lt le gt ge eq ne getitem neg pos invert abs".split()):
    setattr(Proxy, f"__{_name.rstrip('_')}__", _operator(_name, False))
for _name in _TWO:
    setattr(Proxy, f"__r{_name.rstrip('_')}__", _operator(_name, True))
setattr(Proxy, "__hash__", object.__hash__)  # noqa: B010  # a key, though its `==` is recorded


class TracerBase:
    """What a tracer does with what happens to its proxies."""

    graph: Graph

    def create_node(self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None,
                    type_expr: Any = None) -> Node:
        """A node of the graph; override to look at each."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """The proxy of a node."""
        return Proxy(node, self)

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None = None,
                     type_expr: Any = None, proxy_factory_fn: Any = None) -> Any:
        """A node for a call with proxies, and the proxy of its result."""
        node = self.create_node(kind, target, map_aggregate(args, self.create_arg),
                                map_aggregate(kwargs, self.create_arg), name, type_expr)
        return (proxy_factory_fn or self.proxy)(node)

    def create_arg(self, a: Any) -> Any:
        """What stands for a value among a node's arguments."""
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, (tuple, list, dict, slice)):
            return map_aggregate(a, self.create_arg)
        return a

    def to_bool(self, obj: Proxy) -> bool:
        """`if proxy:`."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Any:
        """`for x in proxy:`."""
        raise TraceError("Proxy object cannot be iterated. This can be attempted when the Proxy is "
                         "used in a loop or as a *args or **kwargs function argument. See the "
                         "torch.fx docs on pytorch.org for a more detailed explanation of what "
                         "types of control flow can be traced, and check out the Proxy docstring "
                         "for help troubleshooting Proxy iteration errors")

    def keys(self, obj: Proxy) -> Any:
        """`**proxy`."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """For proxies that are made by hand: nodes come at the end of the graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


_wrapped: list[tuple[dict[str, Any], str]] = []


def wrap(fn_or_name: Any) -> Any:
    """Let calls of a function of the calling module be nodes in place of being traced through:
    `wrap("len")` or a decorator, at module scope."""
    if not isinstance(fn_or_name, str) and not callable(fn_or_name):
        raise TraceError("Unsupported type for global function! Must be either a callable or "
                         "string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    _wrapped.append((frame.f_back.f_globals, name))
    return fn_or_name


def _said(annotation: Any) -> Any:
    """An annotation that says something: "Any" of our own layers does not."""
    return None if annotation == "Any" else annotation


class Tracer(TracerBase):
    """Traces a module or a function into a graph; override `is_leaf_module` to say which modules
    stay calls."""

    def __init__(self, autowrap_modules: Any = (), autowrap_functions: Any = (),
                 param_shapes_constant: bool = False) -> None:
        self._autowrap = tuple(autowrap_functions)
        self.root: Any = None

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """True for the modules of `nn` but Sequential, whose insides are of no interest."""
        ours = type(m).__module__.startswith(("adjoint.nn", "torch.nn"))
        return ours and not isinstance(m, nn.Sequential)

    def path_of_module(self, mod: Any) -> str:
        """The name under which the root has a module; NameError if it has not."""
        for name, found in self.root.named_modules():
            if found is mod:
                return str(name)
        raise NameError(f"module {type(mod).__name__} is not installed as a submodule")

    def call_module(self, m: Any, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A module is called with proxies: a node, or what its forward does."""
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return self.create_proxy("call_module", path, args, kwargs)
        return forward(*args, **kwargs)

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, Tensor):
            for name, found in (*self.root.named_parameters(), *self.root.named_buffers()):
                if found is a:
                    return self.create_node("get_attr", name, (), {})
            held = next((k for k, v in vars(self.root).items() if v is a), "")
            if not held:
                n = 0
                while hasattr(self.root, held := f"_tensor_constant{n}"):
                    n += 1
                object.__setattr__(self.root, held, a)
            return self.create_node("get_attr", held, (), {})
        if isinstance(a, nn.Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        return super().create_arg(a)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What a module's attribute is while a program is traced: the proxy of a parameter of the
        root, so that what is made of it is made again by every call."""
        if isinstance(attr_val, nn.Parameter):
            name = next((n for n, p in self.root.named_parameters() if p is attr_val), None)
            if name is not None:
                if name not in parameter_proxy_cache:
                    parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {})
                return parameter_proxy_cache[name]
        return attr_val

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of `root`; arguments named in `concrete_args` have these values, whatever the
        graph is called with."""
        module = isinstance(root, nn.Module)
        self.root = root if module else nn.Module()
        f = type(root).forward if module else root
        self.graph = Graph(tracer_cls=type(self))
        f, args, kwargs = self._arguments(f, module, concrete_args or {})
        with _Patched(self):
            result = f(*([root] if module else []), *args, **kwargs)
            self.create_node("output", "output", (map_aggregate(result, self.create_arg),), {},
                             type_expr=_said(getattr(f, "__annotations__", {}).get("return")))
        return self.graph

    def _arguments(self, f: Any, module: bool, given: dict[str, Any]) -> tuple[Any, Any, Any]:
        """The function to call, and the proxies to call it with. `*args` and `**kwargs` are one
        proxy each: the function is then called by position alone."""
        parameters = list(inspect.signature(f).parameters.values())[1 if module else 0:]
        stars = any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)
        if stars and (not isinstance(f, FunctionType) or hasattr(f, "__wrapped__")):
            raise TraceError("fx: *args and **kwargs are traced in plain Python functions only; "
                             f"{f!r} is none: name the arguments in a function around it")
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for p in sorted(parameters, key=lambda p: _ORDER[p.kind]) if stars else parameters:
            value = self._argument(p, given)
            if p.kind is p.KEYWORD_ONLY and not stars:
                kwargs[p.name] = value
            else:
                args.append(value)
        return _by_position(f, len(args) + module) if stars else f, args, kwargs

    def _argument(self, p: inspect.Parameter, given: dict[str, Any]) -> Any:
        """The proxy of a parameter; of one that has a value already, that, after a check."""
        star = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        default = () if p.default is p.empty or star else (p.default,)
        if p.name not in given:
            kind = None if p.annotation is p.empty else _said(p.annotation)
            return self.create_proxy("placeholder", star + p.name, default, {}, type_expr=kind)
        value = given[p.name]
        checked = value is None or type(value) in (bool, int, float, str)
        if checked and not default:
            default = (value,)
        proxy = self.create_proxy("placeholder", f"{p.name}_1", default, {})
        text = f"{p.name} has been specialized to have value {value} but got another value"
        if value is None:
            self.create_proxy("call_function", _assert_is_none, (proxy, text), {})
        elif checked:
            self.create_proxy("call_function", FUNCTIONS["_assert"], (proxy == value, text), {})
        return value


_ORDER = {kind: i for i, kind in enumerate((
    inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD))}


def _by_position(f: FunctionType, count: int) -> FunctionType:
    """The function with `count` plain parameters in place of keyword-only ones, `*` and `**`; the
    variables of its code begin with them, in the order of `_ORDER`."""
    stars = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    code = f.__code__.replace(co_argcount=count, co_kwonlyargcount=0, co_posonlyargcount=0,
                              co_flags=f.__code__.co_flags & ~stars)
    return FunctionType(code, f.__globals__, f.__name__, None, f.__closure__)


def _assert_is_none(value: Any, message: str) -> None:
    if value is not None:
        raise AssertedError(message)


class _Patched:
    """While a tracer runs, modules and wrapped functions tell it of their calls."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.undo: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        tracer, call = self.tracer, nn.Module.__call__

        def traced(module: Any, *args: Any, **kwargs: Any) -> Any:
            def forward(*given: Any, **named: Any) -> Any:
                return call(module, *given, **named)
            return tracer.call_module(module, forward, args, kwargs)
        read, cache = nn.Module.__getattr__, dict[str, Any]()

        def attribute(module: Any, name: str) -> Any:
            return tracer.getattr(name, read(module, name), cache)
        self._set(nn.Module, "__call__", traced)
        self._set(nn.Module, "__getattr__", attribute)
        for space, name in _wrapped:
            self._wrap(space, name)
        for f in tracer._autowrap:
            self._wrap(f.__globals__, f.__name__)

    def __exit__(self, *exc: object) -> None:
        for step in reversed(self.undo):
            step()

    def _set(self, owner: Any, name: str, value: Any) -> None:
        self.undo.append(functools.partial(setattr, owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    def _wrap(self, space: dict[str, Any], name: str) -> None:
        import builtins
        there = name in space
        original = space[name] if there else getattr(builtins, name)

        @functools.wraps(original)
        def noted(*args: Any, **kwargs: Any) -> Any:
            found: list[Any] = []
            map_aggregate((args, kwargs),
                          lambda a: found.append(a) if isinstance(a, Proxy) else None)
            if not found:
                return original(*args, **kwargs)
            return found[0].tracer.create_proxy("call_function", original, args, kwargs)
        space[name] = noted

        def back() -> None:
            if there:
                space[name] = original
            else:
                del space[name]
        self.undo.append(back)


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A module that does what `root`, a module or a function, does, with its graph. Control flow
    that depends on tensors cannot be traced: TraceError.

    >>> import adjoint as ad
    >>> traced = symbolic_trace(lambda x: ad.relu(x) * 2)
    >>> [node.op for node in traced.graph.nodes]
    ['placeholder', 'call_function', 'call_function', 'output']
    >>> traced(ad.tensor([-1.0, 3.0]))
    tensor([0., 6.])
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, nn.Module) else (
        root.__name__ if isinstance(root, FunctionType) and root.__name__.isidentifier()
        else "GraphModule")
    return GraphModule(tracer.root, graph, name)


__all__ = ["Attribute", "GraphAppendingTracer", "Proxy", "TraceError", "Tracer", "TracerBase",
           "symbolic_trace", "wrap"]
