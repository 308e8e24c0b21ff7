"""`ops.aten`: records under PyTorch's names for them, as policies of checkpoints compare them, and
as `__torch_dispatch__` gets them.

`ops.aten.mm.default` is the record. Called, it takes its operands by position and its attributes by
name, or the arguments of PyTorch's function of the name; hidden results are results then.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from adjoint.base.dtypes import DType, to_numpy
from adjoint.base.errors import MissingName
from adjoint.core.dispatch import DECOMPOSED, Named, in_place
from adjoint.core.op import OPS, Op
from adjoint.ops.public import FUNCTIONS, METHODS

# PyTorch's name -> ours, where they differ.
NAMES = {"_softmax": "softmax", "_log_softmax": "log_softmax", "native_layer_norm": "layer_norm",
         "native_group_norm": "group_norm", "native_batch_norm": "batch_norm",
         "native_dropout": "dropout", "_to_copy": "to_dtype", "constant_pad_nd": "constant_pad",
         "max_pool2d_with_indices": "max_pool", "avg_pool2d": "avg_pool",
         "_adaptive_avg_pool2d": "adaptive_avg_pool", "nll_loss_forward": "nll_loss",
         "_softmax_backward_data": "softmax_backward", "detach": "alias",
         "_log_softmax_backward_data": "log_softmax_backward",
         "_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
         "_scaled_dot_product_flash_attention": "scaled_dot_product_attention",
         "_scaled_dot_product_efficient_attention": "scaled_dot_product_attention"}
# Records whose overload is not `default`: "name.overload" -> record.
OVERLOADS = {"sum.dim_IntList": "sum", "sum.default": "sum_all", "mean.dim": "mean",
             "mean.default": "mean_all", "max.default": "max_all", "max.dim": "max_dim",
             "min.default": "min_all", "min.dim": "min_dim", "var.correction": "var",
             "std.correction": "std", "transpose.int": "transpose", "select.int": "select",
             "slice.Tensor": "slice", "split.Tensor": "split", "unbind.int": "unbind",
             "squeeze.dims": "squeeze", "index.Tensor": "index", "where.self": "where",
             "masked_fill.Tensor": "masked_fill", "lerp.Tensor": "lerp", "scatter.src": "scatter",
             "pow.Tensor_Scalar": "pow",
             **{f"{n}.Tensor": n for n in ("add sub mul div fmod remainder eq ne lt le gt ge"
                                           " bitwise_and bitwise_or bitwise_xor").split()}}
# record -> what computes it from PyTorch's arguments by position
READ: dict[str, Callable[..., Any]] = {}
OPERATORS: dict[str, Named] = {}         # of PyTorch's backward: see ops/aten_backward.py
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")      # with a number: the overload `Scalar`
_PREFERRED = {ours: f"{theirs}.default" for theirs, ours in reversed(NAMES.items())} | {
    ours: theirs for theirs, ours in OVERLOADS.items()}


def name_of(op: Op) -> str:
    """PyTorch's name and overload of a record.

    >>> name_of(OPS["softmax"]), name_of(OPS["add"])
    ('_softmax.default', 'add.Tensor')
    """
    return _PREFERRED.get(op.name, f"{op.name}.default")


def _slice(input: Any, dim: int = 0, start: int | None = None, end: int | None = None,
           step: int = 1) -> Any:
    """`input[..., start:end:step, ...]` along `dim`, which only PyTorch's schema has a name for."""
    at = dim + input.ndim if dim < 0 else dim
    return input[(*[slice(None)] * at, slice(start, end, step))]


def _public(name: str) -> Any:
    return FUNCTIONS.get(name) or METHODS.get(name) or (_slice if name == "slice" else None)


def run(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a record: as it is given to a handler, or with the arguments of PyTorch's function."""
    if op.variadic and len(args) == 1 and isinstance(args[0], (list, tuple)):
        given: Sequence[Any] = args[0]
    else:
        given = args
    if op.name in READ and not kwargs and op.attrs:
        return READ[op.name](*args)
    fits = op.variadic or len(given) == len(op.operands)
    if op.name == "to_dtype" and isinstance(kwargs.get("dtype"), DType):
        kwargs = {"dtype": to_numpy(kwargs["dtype"])}
    if fits and (op.attrs == tuple(kwargs) or set(op.attrs) == set(kwargs)):
        return op.exposed.call(*given, **kwargs)
    function = _public(name_of(op).partition(".")[0]) or _public(op.name)
    return op.exposed.call(*given, **kwargs) if function is None else function(*args, **kwargs)


class Overloads:
    """The overloads of one name (`default`, `Tensor`, `dim`, ...)."""

    def __init__(self, name: str, namespace: str = "aten") -> None:
        self.__name__, self.namespace = name, namespace
        self._own: dict[str, Any] = {}
        self._record: Any = self._find("default") or next(
            (r for k in OVERLOADS if k.partition(".")[0] == name and (r := self._find(
                k.partition(".")[2]))), None)

    def _find(self, overload: str) -> Any:
        name = self.__name__
        own = OVERLOADS.get(f"{name}.{overload}") or NAMES.get(name, name)
        if overload == "Scalar" and name in COMPARED:
            return Named(name, lambda *args, **kwargs: run(OPS[name], args, kwargs), overload)
        if own in OPS:
            return OPS[own]
        if name in OPERATORS and overload == "default":
            return OPERATORS[name]
        if name.endswith("_") and name[:-1] in OPS:
            return in_place(OPS[name[:-1]], overload)
        function = _public(name)
        return None if function is None else Named(name, function, overload)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._own:
            self._own[name] = self._find(name) or self._record
        return self._own[name]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the record: operands by position and attributes by name, or PyTorch's arguments."""
        public = _public(self.__name__)
        record = self._record
        if isinstance(record, Op) and not (public is not None and record.attrs and not kwargs):
            return run(record, args, kwargs)
        return (public or record)(*args, **kwargs)

    def __deepcopy__(self, memo: Any) -> Overloads:
        return self                         # there is one

    def overloads(self) -> list[str]:
        """The overloads that have a record of their own."""
        return [k.partition(".")[2] for k in OVERLOADS
                if k.partition(".")[0] == self.__name__] or ["default"]

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    __repr__ = __str__


_packets: dict[str, Overloads] = {}


def packet(name: str) -> Overloads:
    """The overloads of a name; the same object each time."""
    if name not in _packets:
        _packets[name] = Overloads(name)
    return _packets[name]


def _faces(kind: Any, whole: Callable[[Any], str]) -> None:
    """What PyTorch's overloads answer, for a class of them; `whole` gives "name.overload"."""
    def part(index: int) -> property:
        return property(lambda self: whole(self).partition(".")[index])
    kind.overloadpacket = kind._overloadpacket = property(lambda self: packet(
        whole(self).partition(".")[0]))
    kind._opname, kind._overloadname = part(0), part(2)
    kind._schema = property(lambda self: SimpleNamespace(
        name=f"{self.namespace}::{whole(self).partition('.')[0]}",
        overload_name=whole(self).partition(".")[2],
        is_mutable=whole(self).partition(".")[0].endswith("_")))


def _attach() -> None:
    """Records answer as PyTorch's overloads do, from when `ops.aten` is first used."""
    kind: Any = Op
    kind.namespace = "aten"
    kind.__call__ = lambda self, *args, **kwargs: run(self, args, kwargs)
    kind.__str__ = lambda self: f"aten.{name_of(self)}"
    kind.label = lambda self: name_of(self)
    for op in OPS.values():
        op.__module__ = Named.__module__
    _faces(kind, name_of)
    _faces(Named, lambda self: self.__name__)


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    """PyTorch's: a transposed weight and one product, of rows."""
    rows = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
    turned = OPS["t"].call(weight)
    y = OPS["mm"].call(rows, turned) if bias is None else OPS["addmm"].call(
        bias, rows, turned, beta=1, alpha=1)
    return y if x.ndim == 2 else y.reshape(*x.shape[:-1], weight.shape[0])


DECOMPOSED["linear"] = _linear
_attach()


def __getattr__(name: str) -> Any:
    if not name.startswith("__") and (
            name in NAMES or name in OPS or name in OPERATORS
            or any(k.partition(".")[0] == name for k in OVERLOADS) or _public(name) is not None
            or name.endswith("_") and name[:-1] in OPS):
        return packet(name)
    raise MissingName("module 'adjoint.ops.aten'", name, lambda: sorted({*NAMES, *OPS}))
