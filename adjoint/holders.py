"""Tensors that show another one: the base of nested tensors and of tensors with a mask.

A holder has the values in `_held`, an ordinary tensor, which is what the graph, the memory
accounting and the transforms see. The public functions ask its class (`overrides.py`), which works
out what they do to the values:

    f(holder) ─> RULES[f's name](f, holder, ...) ─> f(holder._held, ...) ─> a holder of the result

No gradient is written here: it is that of the functions on the values.
"""
from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from adjoint.base.aval import UnreadArray
from adjoint.base.errors import NotSupported
from adjoint.core.intercept import Accessor
from adjoint.core.tensor import Cell, Tensor
from adjoint.ops.public import METHODS

Rule = Callable[..., Any]


class HeldArray(UnreadArray):
    """What `.array` of a holder is: shape and dtype, and an error for its elements."""

    __slots__ = ()
    why = ("this function does not take a tensor of {shape} that holds another one: call it on its "
           "values")


class Holder(Tensor):
    """A tensor whose values are another tensor's."""

    RULES: ClassVar[dict[str, Rule]] = {}
    __array_ufunc__ = None
    is_nested = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return object.__new__(cls)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not all(issubclass(t, Holder) or t is Tensor for t in types):
            return NotImplemented
        name = func.__name__
        reads = isinstance(func, Accessor)
        if reads:
            if name == "__set__":
                return setattr(args[0], func.of, args[1])
            name = func.of
        rule = cls.RULES.get(name)
        if rule is not None:
            return rule(func, *args, **(kwargs or {}))
        for kind in cls.__mro__[:cls.__mro__.index(Holder) + 1]:
            found = kind.__dict__.get(name)
            if isinstance(found, property):
                return found.__get__(args[0])
            if found is not None:
                return found if reads else found(*args, **(kwargs or {}))
        if reads and name.startswith("is_"):
            return func(args[0]._held)
        return cls._refused(func, name)

    @classmethod
    def _refused(cls, func: Any, name: str) -> Any:
        raise NotImplementedError(f"{name} of a {cls.__name__}")

    def _with(self, values: Any) -> Any:
        """A holder like this one, of other values."""
        raise NotImplementedError

    def _hold(self, values: Tensor, shape: Iterable[int]) -> None:
        self._held = values
        self.array = HeldArray(tuple(shape), values.array.dtype)

    # -- the graph: that of the values --------------------------------------------------------
    @property
    def _rg(self) -> bool:  # type: ignore[override]  # the values set theirs
        return bool(self._held._rg)

    @property
    def _edge(self) -> Any:
        return self._held._edge

    @property
    def _cell(self) -> Cell | None:  # type: ignore[override]  # the values set theirs
        return self._held._cell

    @property
    def _version(self) -> int:
        return int(self._held._version)

    @property
    def requires_grad(self) -> bool:
        """True if gradients are to be computed for the values."""
        return bool(self._held.requires_grad)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._held.requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Set `requires_grad`; returns the tensor."""
        self._held.requires_grad_(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """True if the values were not computed from other tensors."""
        return bool(self._held.is_leaf)

    @property
    def grad_fn(self) -> Any:
        """The node that made the values."""
        return self._held.grad_fn

    @property
    def output_nr(self) -> int:
        """Which output of `grad_fn` the values are."""
        return int(self._held.output_nr)

    @property
    def grad(self) -> Any:
        """The gradient, as a tensor of this kind."""
        g = self._held.grad
        return None if g is None else self._with(g)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._held.grad = value._held if isinstance(value, Holder) else value

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called."""
        return bool(self._held.retains_grad)

    def retain_grad(self) -> None:
        """Keep the gradient of a result, too."""
        self._held.retain_grad()

    def register_hook(self, hook: Rule) -> Any:
        """Call `hook` with the gradient, a tensor of this kind."""
        def inner(g: Any) -> Any:
            made = hook(self._with(g))
            return made._held if isinstance(made, Holder) else made
        return self._held.register_hook(inner)

    def register_post_accumulate_grad_hook(self, hook: Rule) -> Any:
        """Call `hook` with this leaf after its gradient was added to."""
        return self._held.register_post_accumulate_grad_hook(lambda _: hook(self))

    def backward(self, gradient: Any = None, retain_graph: bool | None = None,
                 create_graph: bool = False, inputs: Any = None) -> None:
        """Accumulate gradients into leaves; `gradient` is a tensor of this kind."""
        given = gradient._held if isinstance(gradient, Holder) else gradient
        self._held.backward(given, retain_graph, create_graph, inputs)

    def detach(self) -> Any:
        """The same values, without history."""
        return self._with(self._held.detach())

    def detach_(self) -> Any:
        """Forget the history of the values."""
        self._held.detach_()
        return self

    @property
    def data(self) -> Any:
        """The values, without history."""
        return self._with(self._held.data)

    @data.setter
    def data(self, value: Any) -> None:
        self._held.data = value._held

    # -- shape and dtype ----------------------------------------------------------------------
    def dim(self) -> int:
        """Number of axes."""
        return len(self.array.shape)

    ndim = property(dim)
    ndimension = dim

    @property
    def dtype(self) -> Any:
        """Element type."""
        return self._held.dtype

    @property
    def device(self) -> Any:
        """Where the values are."""
        return self._held.device

    @property
    def is_meta(self) -> bool:
        """Without storage or not."""
        return bool(self._held.is_meta)

    def numel(self) -> int:
        """Number of elements."""
        return int(self._held.numel())

    def nelement(self) -> int:
        """Number of elements."""
        return self.numel()

    def element_size(self) -> int:
        """Bytes per element."""
        return int(self._held.element_size())

    itemsize = property(element_size)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.numel() * self.element_size()

    def is_floating_point(self) -> bool:
        """Whether elements are floating point numbers."""
        return bool(self._held.is_floating_point())

    def is_complex(self) -> bool:
        """Whether elements are complex numbers."""
        return bool(self._held.is_complex())

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
        return bool(self._held.is_signed())

    def is_inference(self) -> bool:
        """Whether it was made in inference_mode."""
        return bool(self._held.is_inference())

    def get_device(self) -> int:
        """-1: the data is on the cpu."""
        return -1

    def is_pinned(self, device: Any = None) -> bool:
        """False: page-locked memory serves a GPU."""
        return False

    def storage_offset(self) -> int:
        """Position of the first element in its storage."""
        return int(self._held.storage_offset())

    def data_ptr(self) -> int:
        """0: the values have the address."""
        return 0

    def item(self) -> Any:
        """The one element as a Python number."""
        return self._held.item()

    def tolist(self) -> Any:
        """Raises: there is no such list."""
        raise NotSupported(".tolist() is not supported for tensor subclasses, got "
                           f"{type(self).__name__}")

    def numpy(self, *, force: bool = False) -> Any:
        """Raises: there is no such array."""
        raise NotSupported(".numpy() is not supported for tensor subclasses.")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.numpy()

    def __bool__(self) -> bool:
        return bool(self._held)

    def __float__(self) -> float:
        return float(self._held)

    def __int__(self) -> int:
        return int(self._held)

    def __format__(self, spec: str) -> str:
        return object.__format__(self, spec)

    def __hash__(self) -> int:
        return id(self)

    def __deepcopy__(self, memo: Any) -> Any:
        made = memo.get(id(self))
        if made is None:
            made = memo[id(self)] = self._with(copy.deepcopy(self._held, memo))
        return made

    def __copy__(self) -> Any:
        return self._with(self._held)


def rules(table: dict[str, Rule], *names: str) -> Callable[[Rule], Rule]:
    """Puts a rule under the names of the functions that it is for."""
    def put(rule: Rule) -> Rule:
        for name in names:
            table[name] = rule
        return rule
    return put


def held(x: Any) -> Any:
    """The tensor in a holder; anything else as it is."""
    return x._held if isinstance(x, Holder) else x


# Functions of elements: each of a result depends on those of the operands at the same place.
POINTWISE = frozenset("""abs absolute acos acosh add alpha_dropout angle arccos arccosh arcsin
arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh bernoulli bitwise_and bitwise_left_shift
bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min clip
clone conj conj_physical copysign cos cosh deg2rad detach digamma div divide dropout elu eq erf erfc
erfinv exp exp2 expm1 feature_alpha_dropout fix float_power floor floor_divide fmax fmin fmod frac
frexp ge gelu greater greater_equal gt hardshrink hardsigmoid hardswish hardtanh heaviside hypot i0
igamma igammac imag isclose isfinite isinf isnan isneginf isposinf isreal ldexp le leaky_relu lerp
less less_equal lgamma log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or
logical_xor logit logsigmoid lt masked_fill maximum minimum mish mul multiply mvlgamma nan_to_num
native_dropout ne neg negative nextafter not_equal polygamma positive pow rad2deg real reciprocal
relu relu6 remainder round rrelu rsqrt rsub selu sgn sigmoid sign signbit silu sin sinc sinh
softplus softshrink softsign special_airy_ai sqrt square sub subtract tan tanh tanhshrink threshold
threshold_backward true_divide trunc where xlogy zeta
__add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__ __truediv__
__rtruediv__ __rdiv__ __itruediv__ __floordiv__ __rfloordiv__ __mod__ __rmod__ __pow__ __rpow__
__neg__ __pos__ __abs__ __invert__ __and__ __or__ __xor__ __rand__ __ror__ __rxor__ __eq__ __ne__
__lt__ __le__ __gt__ __ge__ __lshift__ __rshift__""".split())
LIKE = frozenset("""zeros_like ones_like empty_like full_like rand_like randn_like
randint_like""".split())
CONVERTS = frozenset("""double float half bfloat16 long int short char byte bool cfloat cdouble
chalf cpu""".split())
WRITES = frozenset(n for n in METHODS if n.endswith("_") and n[:-1] in POINTWISE) | {
    "zero_", "fill_", "__iadd__", "__isub__", "__imul__", "__itruediv__", "normal_", "uniform_",
    "bernoulli_", "relu_", "apply_"}
__all__ = ["CONVERTS", "LIKE", "POINTWISE", "WRITES", "HeldArray", "Holder", "Rule", "held",
           "rules"]
