"""`torch.library`: operators of one's own, with a derivative, a shape rule and a batching rule.

    >>> import adjoint as ad
    >>> @custom_op("doc::cube", mutates_args=())
    ... def cube(x: ad.Tensor) -> ad.Tensor:
    ...     return ad.from_numpy(x.detach().numpy() ** 3)
    >>> def keep(ctx, inputs, output):
    ...     ctx.x = inputs[0]
    >>> cube.register_autograd(lambda ctx, g: 3 * ctx.x ** 2 * g, setup_context=keep)
    >>> x = ad.tensor([2.0], requires_grad=True)
    >>> cube(x).backward(); x.grad
    tensor([12.])
    >>> ad.ops.doc.cube(x).item()
    8.0

A call is an `autograd.Function` whose forward is the kernel; modes and classes with
`__torch_dispatch__` are asked in its place, and storage-less tensors take the shape rule.
"""
from __future__ import annotations

import contextlib
import enum
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from adjoint import ops
from adjoint.autograd.function import Function
from adjoint.base.aval import MetaArray
from adjoint.base.errors import ArgumentError, AutogradError, NotSupported, missing
from adjoint.core.autocast import cast_to, resting
from adjoint.core.dispatch import Named, answer, asks
from adjoint.core.modes import AUTOCAST, modes_open, state
from adjoint.core.schema import infer_schema, parsed
from adjoint.core.tensor import Tensor, bump
from adjoint.ops.aten import Overloads
from adjoint.utils._pytree import TreeSpec, tree_flatten, tree_map

Kernel = Callable[..., Any]


def _tensors(x: Any) -> list[Tensor]:
    return [t for t in tree_flatten(x)[0] if isinstance(t, Tensor)]


class Tag(enum.IntEnum):
    """What an operator says of itself to compilers; noted (`OpOverload.tags`), as there are none.

    >>> Tag.core
    <Tag.core: 0>
    """

    __str__ = enum.Enum.__str__
    (core, cudagraph_unsafe, data_dependent_output, dynamic_output_shape, flexible_layout,
     generated, inplace, inplace_view, maybe_aliasing_or_mutating, needs_contiguous_strides,
     needs_exact_strides, needs_fixed_stride_order, nondeterministic_bitwise,
     nondeterministic_seeded, out, out_variant, pointwise, pt2_compliant_tag, reduction,
     view_copy) = range(20)


def _tags(given: Any) -> list[Tag]:
    return [given] if isinstance(given, Tag) else list(given or ())


class _Schema(SimpleNamespace):
    """What an operator declares; prints as it was written."""

    def __str__(self) -> str:
        return str(self.text)


class OpOverload(Named):
    """An operator: its kernels and its rules. `ops.<namespace>.<name>.default`."""

    def __init__(self, namespace: str, name: str, schema: str) -> None:
        super().__init__(name, self._run)
        self.namespace, self.signature = namespace, parsed(schema)
        self.text = f"{namespace}::{name}{schema}"
        self.kernels: dict[str, Kernel] = {}
        self.disabled: set[str] = set()
        self.tags: list[Tag] = []
        self.lowered: Kernel | None = None       # in place of all under `autocast`
        self.fake: Kernel | None = None
        self.whole: Kernel | None = None         # in place of all: no node is made
        self.mutated: tuple[str, ...] = ()
        self.opaque = False                      # the tape does not look into the kernel
        self._backward: Kernel | None = None
        self._setup: Kernel | None = None
        self._vmap: Kernel | None = None

    @property
    def _schema(self) -> Any:
        return _Schema(name=f"{self.namespace}::{self.packet}", overload_name="",
                       is_mutable=bool(self.mutated), text=self.text)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self.lowered is not None and state() & AUTOCAST:
            return self.lowered(*args, **kwargs)
        if self.whole is not None:
            return self.whole(*args, **kwargs)
        bound = self._bind(args, kwargs)
        if self._backward is None and not self.opaque:
            return self._compute(bound.args, bound.kwargs)
        flat, spec = tree_flatten((bound.args, bound.kwargs))
        result = self._function(spec).apply(*flat)
        return result.value if type(result) is _Box else result

    def _bind(self, args: Any, kwargs: Any) -> inspect.BoundArguments:
        """The arguments in their order, defaults included; RuntimeError where they do not fit."""
        name = f"{self.namespace}::{self.packet}"
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{name}() {error}. Declaration: {self.text}") from None
        for p in self.signature.parameters.values():
            value = bound.arguments.get(p.name, p.default)
            if p.annotation == "Tensor" and not isinstance(value, Tensor):
                raise ArgumentError(
                    f"{name}() Expected a value of type 'Tensor' for argument '{p.name}' but "
                    f"instead found type '{type(value).__name__}'. Declaration: {self.text}")
        bound.apply_defaults()
        return bound

    def _function(self, spec: TreeSpec) -> Any:
        """The call as a Function of the leaves of its arguments."""
        op = self

        def forward(*flat: Any) -> Any:
            result = op._compute(*spec.unflatten(flat))
            return result if isinstance(result, (Tensor, tuple)) else (
                tuple(result) if isinstance(result, list) else _Box(result))

        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            args, kwargs = spec.unflatten(inputs)
            if op._setup is None:
                return
            if kwargs:
                op._setup(ctx=ctx, inputs=args, keyword_only_inputs=kwargs, output=output)
            else:
                op._setup(ctx=ctx, inputs=args, output=output)

        def backward(ctx: Any, *grads: Any) -> Any:
            if op._backward is None:
                raise AutogradError(f"Trying to backward through {op} but no autograd formula was "
                                    "registered. Please use register_autograd to add one.")
            return op._pulled(op._backward(ctx, *grads), spec)

        space: dict[str, Any] = {
            "forward": staticmethod(forward), "setup_context": staticmethod(setup_context),
            "backward": staticmethod(backward)}
        if self._vmap is not None:
            def vmap(info: Any, in_dims: Any, *flat: Any) -> Any:
                args, _ = spec.unflatten(flat)
                dims, _ = spec.unflatten(in_dims)
                rule: Kernel = op._vmap  # type: ignore[assignment]  # looked at above
                _, kwargs = spec.unflatten(flat)
                return rule(info, dims, *args, **kwargs)
            space["vmap"] = staticmethod(vmap)
        name = f"GeneratedBackwardFor_{self.namespace}_{self.packet}_default"
        return type(name, (Function,), space)

    def _pulled(self, grads: Any, spec: TreeSpec) -> Any:
        """What `backward` returned, one gradient per leaf of the arguments."""
        grads = grads if isinstance(grads, tuple) else (grads,)
        args, kwargs = spec.children()
        if len(grads) != args.num_children:
            raise AutogradError(f"{self}: Expected the return from backward to be of the same "
                                f"structure as the inputs: {args.num_children} gradients, got "
                                f"{len(grads)}")
        flat: list[Any] = []
        for g, part in zip(grads, args.children(), strict=True):
            if part.is_leaf() or g is None:
                flat += [g] if part.is_leaf() else [None] * part.num_leaves
            elif not isinstance(g, (list, tuple)) or len(g) != part.num_leaves:
                raise AutogradError(f"{self}: the gradient of a list of {part.num_leaves} tensors "
                                    f"has to be a list of as many, got {type(g).__name__}")
            else:
                flat += g
        return (*flat, *[None] * kwargs.num_leaves)

    def _compute(self, args: Any, kwargs: Any) -> Any:
        tensors = _tensors((args, kwargs))
        if modes_open() or any(map(asks, tensors)):
            return answer(self, args, kwargs)
        if any(type(t.array) is MetaArray for t in tensors):
            if self.fake is None:
                raise NotSupported(
                    f"There was no fake impl registered for {self}. This is necessary for meta "
                    f"tensors and memory predictions. Please use `{self.packet}.register_fake` to "
                    "add an fake impl.")
            return self.fake(*args, **kwargs)
        enabled = [k for d, k in self.kernels.items() if d not in self.disabled]
        if not enabled:
            raise NotSupported(f"{self} has no kernel for the cpu: add one with register_kernel or "
                               "library.impl")
        result = enabled[-1](*args, **kwargs)
        held = {id(t) for t in tensors}
        shared = [t for t in _tensors(result) if id(t) in held or t._base is not None
                  and id(t._base) in held]
        if shared:
            raise ArgumentError(
                f"{self} (with implementation in {enabled[-1].__module__}): The output of this "
                "custom operator (1) must not also be an input to this custom operator and (2) may "
                "not alias any inputs to this custom operator or other returns. The most common "
                "way to trigger this error is if we have y = custom_op(x) and y and x are the same "
                "Tensor. Please instead return a clone of the offending output tensor(s) (e.g. "
                "return x.clone()) or refactor the custom operator to not return y.")
        self._note_writes(args, kwargs)
        return result

    def _note_writes(self, args: Any, kwargs: Any) -> None:
        bound = self.signature.bind(*args, **kwargs) if self.mutated else None
        for name in self.mutated:
            for t in _tensors(bound and bound.arguments.get(name)):
                if t._cell is None or t._cell.what == "":     # in-place ops inside said so already
                    bump(t, str(self))


class _Box:
    """A result that is no tensor, on its way through `Function.apply`."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Packet(Overloads):
    """`ops.<namespace>.<name>`."""

    def __init__(self, op: OpOverload) -> None:
        self.__name__, self.namespace, self._record = op.packet, op.namespace, op
        self._own: dict[str, Any] = {"default": op}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._own:
            return self._own[name]
        raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._record(*args, **kwargs)


class _Namespace:
    """`ops.<namespace>`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{name}'")


def _split(qualname: str) -> tuple[str, str]:
    namespace, colons, name = qualname.partition("::")
    if not colons or not namespace or not name:
        raise ArgumentError(f"Expected `name` to be of the form \"namespace::name\", got "
                            f"{qualname!r}")
    return namespace, name.removesuffix(".default")


def _found(op: Any) -> OpOverload:
    if isinstance(op, OpOverload):
        return op
    if isinstance(op, CustomOpDef):
        return op._opoverload
    if isinstance(op, Overloads) and isinstance(op.default, OpOverload):
        return op.default
    namespace, name = _split(str(op))
    packet = getattr(ops.NAMESPACES.get(namespace), "__dict__", {}).get(name)
    if packet is None:
        raise ArgumentError(f"library: there is no operator {op!r}; define it with custom_op or "
                            "library.define")
    found: OpOverload = packet.default
    return found


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """A new operator `"namespace::name"` with a schema `"(Tensor x, int n=3) -> Tensor"`; `impl`
    gives it kernels."""
    namespace, name = _split(qualname)
    op = OpOverload(namespace, name, schema)
    op.tags = _tags(tags)
    op.mutated = tuple(n for n, p in op.signature.parameters.items()
                       if str(p.annotation).endswith("!"))
    space = ops.NAMESPACES.setdefault(namespace, _Namespace(namespace))
    setattr(space, name, _Packet(op))


_DEVICES = {"cpu", "CPU", "default", "CompositeExplicitAutograd"}
_WHOLE = {"CompositeImplicitAutograd", "Autograd", "AutogradCPU"}


def impl(qualname: Any, types: Any, func: Kernel | None = None, *, lib: Any = None) -> Any:
    """A kernel of an operator for "cpu" or "default"; kernels of other devices are taken and never
    run. Without `func` a decorator."""
    if func is None:
        return lambda f: impl(qualname, types, f) or f
    op = _found(qualname)
    for kind in (types,) if isinstance(types, str) else types or ("default",):
        if kind == "Meta":
            op.fake = func
        elif kind in _WHOLE:
            op.whole = func
        elif kind in _DEVICES:
            op.kernels[kind] = func
    return None


def register_kernel(op: Any, device_types: Any, func: Kernel | None = None, /, *,
                    lib: Any = None) -> Any:
    """`impl`, of an operator that `custom_op` made; None as device is every device."""
    return impl(op, device_types or "default", func)


def register_fake(op: Any, func: Kernel | None = None, /, *, lib: Any = None,
                  allow_override: bool = False, _stacklevel: int = 1) -> Any:
    """The shape rule: called with storage-less tensors in place of the kernel."""
    if func is None:
        return lambda f: register_fake(op, f)
    _found(op).fake = func
    return func


def register_autograd(op: Any, backward: Kernel, /, *, setup_context: Kernel | None = None,
                      lib: Any = None) -> None:
    """The derivative: `setup_context(ctx, inputs, output)` keeps what `backward(ctx, *grads)`
    needs, which returns a gradient per argument (a list for a list of tensors, None for what has
    none). With keyword-only arguments `setup_context` gets them as `keyword_only_inputs`."""
    found = _found(op)
    if found.mutated:
        raise AutogradError(f"Cannot register autograd formula for non-functional operator {found} "
                            f"with schema {found.text}. Please create a functional operator and "
                            "register an autograd formula for that.")
    found._backward, found._setup = backward, setup_context


def register_vmap(op: Any, func: Kernel | None = None, /, *, lib: Any = None) -> Any:
    """The batching rule: `func(info, in_dims, *args) -> (outputs, out_dims)`."""
    if func is None:
        return lambda f: register_vmap(op, f)
    _found(op)._vmap = func
    return func


impl_abstract = register_fake              # its name in PyTorch before 2.4


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Any = None) -> None:
    """Under `autocast` the operator gets its tensors of floating point, float64 excepted, in the
    dtype `cast_inputs`, and what it calls is not cast further. Counts for the device "cpu"."""
    if device_type == "cpu":
        found, dtype = _found(op), cast_inputs.dtype
        found.lowered = resting(found._run, lambda x: cast_to(x, dtype))


def fallthrough_kernel() -> None:
    """Stands for "no kernel here, the next one", as an argument; it is not to be called."""
    raise NotSupported("fallthrough_kernel() should never be called.")


class CustomOpDef:
    """An operator that `custom_op` made: called like its function; its methods add the rules."""

    def __init__(self, op: OpOverload, function: Kernel) -> None:
        self._opoverload, self._init_fn = op, function
        self._namespace, self._name = op.namespace, op.packet
        self._qualname = f"{op.namespace}::{op.packet}"
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def register_kernel(self, device_types: Any, fn: Kernel | None = None, /) -> Any:
        """A kernel for devices; see `library.register_kernel`."""
        return register_kernel(self, device_types, fn)

    def register_fake(self, fn: Kernel, /) -> Kernel:
        """The shape rule; see `library.register_fake`."""
        self._opoverload.fake = fn
        return fn

    def register_autograd(self, backward: Kernel, /, *, setup_context: Kernel | None = None
                          ) -> None:
        """The derivative; see `library.register_autograd`."""
        register_autograd(self, backward, setup_context=setup_context)

    def register_vmap(self, func: Kernel | None = None) -> Any:
        """The batching rule; see `library.register_vmap`."""
        return register_vmap(self, func)

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Within the context the kernel that was registered for the device runs, or does not."""
        disabled = self._opoverload.disabled
        before = set(disabled)
        (disabled.discard if enabled else disabled.add)(device_type)
        try:
            yield
        finally:
            disabled.clear()
            disabled.update(before)


def custom_op(name: str, fn: Kernel | None = None, /, *, mutates_args: str | Iterable[str],
              device_types: Any = None, schema: str | None = None, tags: Any = None) -> Any:
    """Make a function an operator `ops.<namespace>.<name>`: decorator.

    mutates_args  names of the arguments that it writes to; "unknown" counts every tensor
    schema        the types of arguments and results; read off the annotations if None
    Raises ArgumentError for a name without "::" and for arguments without annotations.
    """
    if fn is None:
        return lambda f: custom_op(name, f, mutates_args=mutates_args, device_types=device_types,
                                   schema=schema, tags=tags)
    namespace, own = _split(name)
    define(name, schema or infer_schema(fn, mutates_args=mutates_args),
           tags=[Tag.pt2_compliant_tag, *_tags(tags)])
    op = _found(f"{namespace}::{own}")
    op.opaque = True
    impl(op, device_types or "default", fn)
    return CustomOpDef(op, fn)


class Library:
    """Operators of one namespace: `define` new ones, `impl` kernels."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "IMPL", "FRAGMENT"):
            raise ArgumentError(f"Unsupported kind: {kind}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self.defined: list[str] = []

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """An operator by `"name(Tensor x) -> Tensor"`; gives its name."""
        name, _, rest = schema.partition("(")
        define(f"{self.ns}::{name.strip()}", f"({rest}", tags=tags)
        self.defined.append(name.strip())
        return name.strip()

    def impl(self, op_name: Any, fn: Kernel, dispatch_key: str = "", **_: Any) -> None:
        """A kernel, for the library's key if none is given."""
        name = op_name if isinstance(op_name, OpOverload) else (
            op_name if "::" in str(op_name) else f"{self.ns}::{op_name}")
        impl(name, dispatch_key or self.dispatch_key or "CompositeImplicitAutograd", fn)


    def _destroy(self) -> None:
        """The operators that it has defined are no more."""
        for name in self.defined:
            vars(ops.NAMESPACES[self.ns]).pop(name, None)


@contextlib.contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """A `Library` whose operators are there within the context."""
    library = Library(*args, **kwargs)
    try:
        yield library
    finally:
        library._destroy()


class _Context:
    """What `get_ctx` gives inside of a shape rule."""

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        """Refused: a shape that depends on values is not known without them."""
        raise NotSupported("register_fake: a size that depends on values is not known for meta "
                           "tensors")


def get_ctx() -> _Context:
    """The context of a shape rule."""
    return _Context()


class OpCheckError(Exception):
    """A test of `opcheck` failed."""


def _check_schema(op: OpOverload, args: Any, kwargs: Any) -> None:
    """Arguments that are not declared as written to stay what they were."""
    tensors = _tensors((args, kwargs))
    bound = op.signature.bind(*args, **kwargs)
    may = {id(t) for n in op.mutated for t in _tensors(bound.arguments.get(n))}
    before = [(t, t.detach().clone()) for t in tensors if id(t) not in may]
    op(*args, **kwargs)
    for t, was in before:
        if not bool(((t.detach() == was) | (was != was)).all()):
            raise ArgumentError(f"{op} was written to an argument of shape {list(t.shape)} that "
                                "mutates_args does not name")


def _check_fake(op: OpOverload, args: Any, kwargs: Any) -> None:
    """Kernel and shape rule give results of one shape and dtype."""
    real = _tensors(op(*args, **kwargs))

    def meta(x: Any) -> Any:
        return x.detach().to("meta") if isinstance(x, Tensor) else x
    fake = _tensors(op(*tree_map(meta, args), **tree_map(meta, kwargs)))
    have, want = ([(tuple(t.shape), t.dtype) for t in ts] for ts in (fake, real))
    if have != want:
        raise ArgumentError(f"{op}: the shape rule gives {have}, the kernel {want}")


def _check_autograd(op: OpOverload, args: Any, kwargs: Any) -> None:
    """Where an argument requires a gradient, a derivative is registered."""
    if any(t.requires_grad for t in _tensors((args, kwargs))) and not op.mutated and (
            op._backward is None and op.whole is None):
        raise AutogradError(f"{op} has no derivative: add one with register_autograd")


_CHECKS: dict[str, Callable[[OpOverload, Any, Any], None]] = {
    "test_schema": _check_schema, "test_autograd_registration": _check_autograd,
    "test_faketensor": _check_fake, "test_aot_dispatch_dynamic": _check_fake}


def opcheck(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *,
            test_utils: str | Sequence[str] = ("test_schema", "test_autograd_registration",
                                               "test_faketensor", "test_aot_dispatch_dynamic"),
            raise_exception: bool = True, rtol: float | None = None, atol: float | None = None
            ) -> dict[str, str]:
    """Check an operator on sample arguments: that it writes to what it says, and that kernel and
    shape rule agree; a test that fails raises, or is told in the result.

    >>> @custom_op("doc::twice", mutates_args=())
    ... def twice(x: Tensor) -> Tensor:
    ...     return x + x
    >>> import adjoint as ad
    >>> opcheck(twice, (ad.ones(2),), test_utils="test_schema")
    {'test_schema': 'SUCCESS'}
    """
    found = _found(op)
    wanted = (test_utils,) if isinstance(test_utils, str) else test_utils
    unknown = set(wanted) - set(_CHECKS)
    if unknown:
        raise ArgumentError(f"opcheck: no test {sorted(unknown)}; there are {sorted(_CHECKS)}")
    results = {}
    for name in wanted:
        try:
            _CHECKS[name](found, args, kwargs or {})
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {error}") from error
            results[name] = str(error)
    return results


__all__ = ["CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "get_ctx", "impl",
           "impl_abstract", "infer_schema", "opcheck", "register_autocast", "register_autograd",
           "register_fake", "register_kernel", "register_vmap"]
__getattr__ = missing("adjoint.library")
