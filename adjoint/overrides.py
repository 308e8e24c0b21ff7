"""`torch.overrides`: classes and modes that take over the public functions.

A class with `__torch_function__(cls, func, types, args=(), kwargs=None)` is asked when one of its
objects is an operand of a public function, a `TorchFunctionMode` when any is called within it.
Subclasses of Tensor inherit an answer: the function itself, its results as objects of the class.

Programs without any of this pay nothing: plain tensors never look. The functions begin to ask when
this module is imported, and that happens by itself when a class that derives from Tensor is made,
when a mode is wanted, and when the program that imports `adjoint` first defines a class with
`__torch_function__`. A class elsewhere that is no Tensor needs `import adjoint.overrides`.

    >>> import adjoint as ad
    >>> class Metres(ad.Tensor):
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return super().__torch_function__(func, types, args, kwargs)
    >>> both = ad.mul(Metres([2.0]), 3)
    mul
    >>> type(both).__name__
    'Metres'
"""
from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable
from contextvars import Token
from types import FunctionType, TracebackType
from typing import Any, Self

import adjoint.fft
import adjoint.linalg
import adjoint.nn.functional
import adjoint.nn.init
import adjoint.special
from adjoint.base.errors import missing
from adjoint.core import dispatch, intercept
from adjoint.core.intercept import (
    MODES,
    NAME,
    ask,
    base_of_subclasses,
    is_asked,
)
from adjoint.core.tensor import Tensor
from adjoint.ops.public import FUNCTIONS, METHODS

# Functions without a tensor to ask, and questions about the setting: only modes are asked.
_ONLY_MODES = frozenset("""tensor from_numpy frombuffer from_dlpack scalar_tensor zeros ones empty
full rand randn randint randperm arange eye range empty_strided empty_permuted tril_indices
triu_indices can_cast promote_types result_type broadcast_shapes is_tensor is_storage
sparse_coo_tensor sparse_csr_tensor sparse_compressed_tensor sparse_csc_tensor sparse_bsr_tensor
sparse_bsc_tensor bartlett_window blackman_window hamming_window hann_window kaiser_window __iter__
""".split())
_QUESTIONS = ("can_cast", "promote_types", "result_type")
# Operators that are the methods of these names.
_OPERATORS = {f"__{dunder}__": name for dunder, name in (
    pair.split("=") for pair in """add=add radd=add sub=sub mul=mul rmul=mul truediv=div
    matmul=matmul mod=remainder lt=lt le=le gt=gt ge=ge ne=ne neg=neg abs=abs pos=positive
    rand=bitwise_and ror=bitwise_or rxor=bitwise_xor iadd=add_ isub=sub_ imul=mul_ itruediv=div_
    imod=remainder_""".split())}
_NAMED = {"__pow__": "pow", "__ipow__": "pow_", "__rtruediv__": "__rdiv__"}  # as PyTorch's are
# Methods that belong to Python's protocols, or to this one.
_NEVER = frozenset("""__new__ __init__ __getattr__ __hash__ __dir__ __array_ufunc__
__array_function__ __array_namespace__ __torch_function__ as_subclass explain""".split())
_MODULES = {"nn.functional": adjoint.nn.functional, "nn.init": adjoint.nn.init,
            "linalg": adjoint.linalg, "fft": adjoint.fft, "special": adjoint.special}
# Functions that nobody is asked about.
_UNASKED = frozenset("is_tensor is_storage from_numpy manual_seed".split())
_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD
_INIT = frozenset("uniform_ normal_ constant_ kaiming_uniform_".split())
_FUNCTIONAL = frozenset("""atleast_1d atleast_2d atleast_3d broadcast_shapes broadcast_tensors
cartesian_prod block_diag cdist chain_matmul einsum istft lu norm meshgrid pca_lowrank split stft
svd_lowrank tensordot unique unique_consecutive unravel_index""".split())
# Of nn.functional, what PyTorch has as a builtin: its arguments are told as they were given. Of
# the others, what it writes in Python, and tells with every optional argument by name.
_BUILTIN = frozenset("""adaptive_avg_pool1d avg_pool1d avg_pool2d avg_pool3d bilinear celu_
channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d
cosine_similarity elu_ gelu hardshrink hardtanh_ leaky_relu_ linear logsigmoid one_hot
native_channel_shuffle pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu relu_ rrelu_
selu_ softplus scaled_dot_product_attention softshrink threshold_ tanh sigmoid adaptive_avg_pool2d
adaptive_avg_pool3d""".split())
_SPELLED = frozenset("norm unique unique_consecutive stft istft tensordot cdist split".split())


def _like() -> None:
    """Functions without a record that make a tensor like another: its class is asked."""
    for name in ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
                 "new_zeros", "new_ones", "new_empty", "new_full"):
        def asked(original: Any, args: Any, kwargs: Any, name: str = name) -> Any:
            return dispatch.answer(dispatch.Named(name, original), args, kwargs)
        intercept.LIKE[name] = asked


def _of_module(module: Any) -> dict[str, Any]:
    names = _INIT if module is adjoint.nn.init else module.__all__
    return {n: f for n, f in vars(module).items() if n in names and isinstance(f, FunctionType)}


def _methods() -> dict[str, Any]:
    return {n: f for n, f in {**METHODS, **vars(Tensor)}.items()
            if isinstance(f, FunctionType) and n not in _NEVER
            and (not n.startswith("_") or n.endswith("__"))}


def _part() -> None:
    """A method that is a public function, or another method, becomes a function of its own, so
    that those asked can tell `x.add(y)` from `torch.add(x, y)`."""
    seen = set(FUNCTIONS.values())
    for name, f in list(METHODS.items()):
        if isinstance(f, FunctionType) and vars(Tensor).get(name) is f and f in seen:
            intercept.install(f)
            own = intercept.copied(f)
            own.__name__, own.__qualname__ = name, f"Tensor.{name}"
            intercept.install(own, original=f.__wrapped__)
            METHODS.replace(name, own)
            setattr(Tensor, name, own)
        seen.add(f)


def _install() -> None:
    """Make all of them ask. An operator of Tensor asks for the method that it stands for."""
    _part()
    for name, f in list(vars(Tensor).items()):
        if name.startswith("__") and isinstance(f, FunctionType) and name not in _NEVER:
            public = METHODS.get(_OPERATORS.get(name, ""))
            own = intercept.copied(f)
            own.__name__ = _NAMED.get(name, name)
            setattr(Tensor, name, own)
            intercept.install(own, name not in _ONLY_MODES, public, f)
    named: set[Any] = set()
    for found in _everything().values():
        for name, f in found.items():
            if f.__name__ not in found and f not in named:  # (a builtin would have been hidden)
                f.__name__ = name
            named.add(f)
            intercept.install(f, name not in _ONLY_MODES)
    spelled = _everything()
    for where, names in (("", _SPELLED), ("Tensor", _SPELLED | {"backward"}), ("nn.init", _INIT),
                         ("nn.functional", spelled["nn.functional"].keys() - _BUILTIN)):
        intercept.KEYWORDS.update({f: where == "nn.init" for n, f in spelled[where].items()
                                   if n in names})


def _entered(name: str, f: Any) -> None:
    """Have a function of a part that is loaded late ask as well."""
    if isinstance(f, FunctionType) and name not in _UNASKED:
        intercept.install(f, name not in _ONLY_MODES)
        _names.cache_clear()


def _everything() -> dict[str, dict[str, Any]]:
    """Where a function is found -> name -> function."""
    plain = {**FUNCTIONS, **{n: getattr(adjoint, n) for n in _QUESTIONS}}
    return {"": {n: f for n, f in plain.items()
                 if isinstance(f, FunctionType) and n not in _UNASKED},
            "Tensor": _methods(), **{name: _of_module(m) for name, m in _MODULES.items()}}


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """Namespace -> the functions in it that ask classes; `Tensor` and modules are the keys.

    >>> import adjoint as ad
    >>> ad.add in get_overridable_functions()[ad]
    True
    """
    owners: dict[str, Any] = {"": adjoint, "Tensor": Tensor, **_MODULES}
    found = {owners[where]: [f for n, f in found.items() if n not in _ONLY_MODES]
             for where, found in _everything().items()}
    intercept.properties_ask()
    found[Tensor] += [p.__get__ for p in vars(Tensor).values() if isinstance(p, intercept.Asking)]
    return found


def get_ignored_functions() -> set[Callable[..., Any]]:
    """The public functions that do not ask the classes of their operands (modes are asked)."""
    return {f for found in _everything().values() for n, f in found.items() if n in _ONLY_MODES}


def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Each overridable function -> a function of the same signature that returns -1.

    >>> import adjoint as ad
    >>> get_testing_overrides()[ad.add](1, 2)
    -1
    """
    def stand_in(f: Callable[..., Any]) -> Callable[..., Any]:
        def dummy(*args: Any, **kwargs: Any) -> int:
            return -1
        dummy.__name__ = dummy.__qualname__ = f.__name__
        dummy.__signature__ = _told(f)  # type: ignore[attr-defined]  # a function takes attributes
        return dummy
    return {f: stand_in(f) for found in get_overridable_functions().values() for f in found}


def _told(f: Callable[..., Any]) -> inspect.Signature:
    """The arguments of a function in one row, operands without a default, as PyTorch tells them."""
    if not isinstance(f, FunctionType):                         # of a property
        return inspect.Signature([inspect.Parameter("self", _EITHER)])
    row: list[inspect.Parameter] = []
    for p in inspect.signature(f).parameters.values():
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            given = p.empty if p.name in ("self", "input", "other") and all(
                q.default is q.empty for q in row) else p.default
            row.append(inspect.Parameter(p.name, _EITHER, default=given))
    needed = [p for p in row if p.default is p.empty]
    many = [p.replace(annotation=p.empty) for p in inspect.signature(f).parameters.values()
            if p.kind is p.VAR_POSITIONAL]
    if many and not needed:
        return inspect.Signature(many)
    return inspect.Signature(needed + [p for p in row if p.default is not p.empty])


@functools.cache
def _names() -> dict[Any, str]:
    found: dict[Any, str] = {}
    for where, functions in _everything().items():
        prefix = f"torch.{where}." if where else "torch."
        for name, f in functions.items():
            if where == "nn.functional":
                found[f] = prefix + name
            found.setdefault(f, ("torch.functional." if not where and name in _FUNCTIONAL else
                                 prefix) + name)
    return found


def resolve_name(f: Any) -> str | None:
    """PyTorch's full name of a public function; None for other objects.

    >>> import adjoint as ad
    >>> resolve_name(ad.nn.functional.linear)
    'torch.nn.functional.linear'
    """
    if isinstance(f, intercept.Accessor):
        return f"torch.Tensor.{f.of}.{f.__name__}"
    owner = getattr(f, "__self__", None)
    if isinstance(owner, property):
        names = [n for n, p in vars(Tensor).items() if p is owner]
        return f"torch.Tensor.{names[0]}.{f.__name__}" if names else None
    return _names().get(f)


def is_tensor_method_or_property(func: Any) -> bool:
    """True if `func` is a method of Tensor or the `__get__` of one of its properties."""
    if isinstance(getattr(func, "__self__", None), property):
        return bool(func.__name__ == "__get__")
    return func in _methods().values()


def is_tensor_like(inp: Any) -> bool:
    """True for tensors, and for objects whose class has `__torch_function__`.

    >>> is_tensor_like([1.0])
    False
    """
    return type(inp) is Tensor or hasattr(inp, NAME)


def _get_current_function_mode_stack() -> list[Any]:
    """The modes that are open, outermost first."""
    return list(MODES.get())


def _get_current_function_mode() -> Any:
    """The mode that is asked first; None: none is open."""
    return next(iter(reversed(MODES.get())), None)


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """True if `handle_torch_function` has somebody to ask about these operands."""
    return is_asked(relevant_args)


def has_torch_function_unary(tensor: Any) -> bool:
    """`has_torch_function` of one operand."""
    return is_asked((tensor,))


def has_torch_function_variadic(*relevant_args: Any) -> bool:
    """`has_torch_function` of the arguments."""
    return is_asked(relevant_args)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any],
                          *args: Any, **kwargs: Any) -> Any:
    """What modes and the classes of `relevant_args` answer to ``public_api(*args, **kwargs)``.

    Subclasses are asked before their bases, else from left to right. Raises TypeError if everyone
    asked returns NotImplemented.

    >>> class Answer:
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         return 42
    >>> def double(x):
    ...     if has_torch_function_unary(x):
    ...         return handle_torch_function(double, (x,), x)
    ...     return 2 * x
    >>> double(Answer()), double(4)
    (42, 8)
    """
    return ask(public_api, tuple(relevant_args), args, kwargs)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """Makes a function ask the classes of the operands that `dispatcher(*args)` returns.

    >>> @wrap_torch_function(lambda a: (a,))
    ... def double(a):
    ...     return a + a
    >>> double(3)
    6
    """
    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if is_asked(relevant):
                return ask(wrapped, relevant, args, kwargs)
            return func(*args, **kwargs)
        return wrapped
    return decorate


class TorchFunctionMode:
    """A context in which every public function is passed to `__torch_function__`, whatever its
    operands: override that method. While it runs, the mode is set aside, so that it can call
    functions itself. Modes nest; the innermost is asked first.

    >>> import adjoint as ad
    >>> class Count(TorchFunctionMode):
    ...     calls = 0
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         self.calls += 1
    ...         return func(*args, **(kwargs or {}))
    >>> with Count() as count:
    ...     x = ad.ones(2) + 1
    >>> count.calls
    2
    """

    _tokens: list[Token[tuple[Any, ...]]]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __torch_function__")

    def __enter__(self) -> Self:
        if "_tokens" not in self.__dict__:
            self._tokens = []
        intercept.properties_ask()
        self._tokens.append(MODES.set((*MODES.get(), self)))
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None,
                 traceback: TracebackType | None) -> None:
        MODES.reset(self._tokens.pop())

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """A mode of the class; use `with`."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that calls the functions as they are."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class DisableTorchFunctionSubclass(intercept.Silence):
    """Context in which the classes of operands are not asked: subclasses go as plain tensors."""


class DisableTorchFunction(intercept.Silence):
    """Context in which neither classes nor modes are asked."""

    level = 2


def get_default_nowrap_functions() -> set[Any]:
    """The functions whose result a subclass does not take over: the gradient."""
    return {Tensor.__dict__["grad"].__get__}


_install()
FUNCTIONS.entered = METHODS.entered = _entered
_like()
importlib.import_module("adjoint.ops.aten_calls")   # records take PyTorch's names
__all__ = ["BaseTorchFunctionMode", "DisableTorchFunction", "DisableTorchFunctionSubclass",
           "TorchFunctionMode", "base_of_subclasses", "get_default_nowrap_functions",
           "get_ignored_functions", "get_overridable_functions", "get_testing_overrides",
           "handle_torch_function", "has_torch_function", "has_torch_function_unary",
           "has_torch_function_variadic", "is_tensor_like", "is_tensor_method_or_property",
           "resolve_name", "wrap_torch_function"]
__getattr__ = missing("adjoint.overrides")
