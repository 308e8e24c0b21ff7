"""`torch.utils.flop_counter`: floating operations of matrix products, convolutions and attention,
forward and backward, by module and by op.

    >>> import adjoint as ad
    >>> x, w = ad.ones(5, 8), ad.ones(8, 3, requires_grad=True)
    >>> with FlopCounterMode(display=False) as counter:
    ...     (x @ w).sum().backward()
    >>> counter.get_total_flops(), counter.get_flop_counts()["Global"]
    (480, {aten.mm: 480})
"""
from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from adjoint.base.errors import missing
from adjoint.core.modes import warn_as_pytorch, watchers
from adjoint.core.tensor import Tensor
from adjoint.ops import aten
from adjoint.utils._python_dispatch import TorchDispatchMode
from adjoint.utils._pytree import tree_map
from adjoint.utils.module_tracker import Where

flop_registry: dict[Any, Callable[..., int]] = {}


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Any], Any]:
    """Decorator: a function of shapes that counts the operations of `targets`, overload packets
    such as `ops.aten.mm`. It gets the call's arguments with shapes in the place of tensors, and
    `out_shape`; with `get_raw` the arguments themselves and `out_val`."""
    def enter(formula: Callable[..., int]) -> Callable[..., int]:
        def count(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
            if get_raw:
                return formula(*args, **kwargs, out_val=out_val)
            shaped = tree_map(_shape, (args, kwargs, out_val))
            return formula(*shaped[0], **shaped[1], out_shape=shaped[2])
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            flop_registry[target] = count
        return formula
    return enter


def _shape(x: Any) -> Any:
    return x.shape if isinstance(x, Tensor) else x


@register_flop_formula(aten.packet("mm"))
def mm_flop(a_shape: Sequence[int], b_shape: Sequence[int], *args: Any, out_shape: Any = None,
            **kwargs: Any) -> int:
    """Two operations per product and term.

    >>> mm_flop((2, 3), (3, 4))
    48
    """
    return 2 * math.prod(a_shape) * b_shape[-1]


@register_flop_formula(aten.packet("addmm"))
def addmm_flop(self_shape: Sequence[int], a_shape: Sequence[int], b_shape: Sequence[int],
               **kwargs: Any) -> int:
    """Of the product alone."""
    return mm_flop(a_shape, b_shape)


@register_flop_formula(aten.packet("bmm"))
def bmm_flop(a_shape: Sequence[int], b_shape: Sequence[int], **kwargs: Any) -> int:
    """Of all products of the batch."""
    return 2 * math.prod(a_shape) * b_shape[-1]


@register_flop_formula(aten.packet("baddbmm"))
def baddbmm_flop(self_shape: Sequence[int], a_shape: Sequence[int], b_shape: Sequence[int],
                 **kwargs: Any) -> int:
    """Of the products alone."""
    return bmm_flop(a_shape, b_shape)


@register_flop_formula(aten.packet("matmul"))
def matmul_flop(a_shape: Sequence[int], b_shape: Sequence[int], out_shape: Any = None,
                **kwargs: Any) -> int:
    """Of a product with any batch axes: two per element of the result and term."""
    return 2 * math.prod(out_shape) * a_shape[-1]


def _of_pytorch(packet: Any, args: Any) -> Any:
    """The operator that PyTorch has in its place: a product with batch axes is `mm` where one side
    has none, else `bmm`."""
    if packet is not aten.packet("matmul"):
        return packet
    return aten.packet("mm" if min(len(_shape(a)) for a in args[:2]) <= 2 else "bmm")


def conv_flop_count(x_shape: Sequence[int], w_shape: Sequence[int], out_shape: Sequence[int],
                    transposed: bool = False) -> int:
    """Two per product: each element of the result (transposed: of the operand) meets each weight
    of one filter.

    >>> conv_flop_count((2, 3, 8, 8), (6, 3, 3, 3), (2, 6, 6, 6))
    23328
    """
    whole = x_shape if transposed else out_shape
    return 2 * whole[0] * math.prod(whole[2:]) * math.prod(w_shape)


@register_flop_formula(aten.packet("convolution"))
def conv_flop(x_shape: Sequence[int], w_shape: Sequence[int], bias: Any = None, stride: Any = None,
              padding: Any = None, dilation: Any = None, transposed: bool = False, *_: Any,
              out_shape: Any, **kwargs: Any) -> int:
    """Of a convolution."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed)


@register_flop_formula(aten.packet("convolution_backward"))
def conv_backward_flop(grad_out_shape: Sequence[int], x_shape: Sequence[int],
                       w_shape: Sequence[int], bias: Any, stride: Any, padding: Any, dilation: Any,
                       transposed: bool, output_padding: Any, groups: int,
                       output_mask: Sequence[bool], **kwargs: Any) -> int:
    """Of the gradients that `output_mask` asks for: of the operand and of the weight, where each
    channel meets each, groups or not, as PyTorch counts; the bias is not counted."""
    total = 0
    if output_mask[0]:
        total += conv_flop_count(grad_out_shape, w_shape, x_shape, not transposed)
    if output_mask[1]:
        few, many = (grad_out_shape, x_shape) if transposed else (x_shape, grad_out_shape)
        total += 2 * few[1] * math.prod(w_shape[2:]) * math.prod(many)
    return total


@register_flop_formula(aten.packet("convolution_input"))
def conv_input_flop(ct_shape: Sequence[int], w_shape: Sequence[int], **kwargs: Any) -> int:
    """Of a convolution's gradient with respect to its operand (and of a transposed one)."""
    return conv_flop_count(kwargs["x_shape"], w_shape, ct_shape)


@register_flop_formula(aten.packet("convolution_weight"))
def conv_weight_flop(ct_shape: Sequence[int], x_shape: Sequence[int], **kwargs: Any) -> int:
    """Of a convolution's gradient with respect to its weight."""
    return conv_flop_count(x_shape, kwargs["w_shape"], ct_shape)


@register_flop_formula(aten.packet("_scaled_dot_product_flash_attention_for_cpu"))
def sdpa_flop(q_shape: Sequence[int], k_shape: Sequence[int], v_shape: Sequence[int], *_: Any,
              **kwargs: Any) -> int:
    """Of the two products of attention; softmax is not counted."""
    return sdpa_flop_count(q_shape, k_shape, v_shape)


def sdpa_flop_count(q_shape: Sequence[int], k_shape: Sequence[int], v_shape: Sequence[int]) -> int:
    """Of attention on operands of these shapes.

    >>> sdpa_flop_count((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8))
    1024
    """
    rows = math.prod(q_shape[:-1])
    return 2 * rows * k_shape[-2] * (q_shape[-1] + v_shape[-1])


def sdpa_backward_flop_count(grad_out_shape: Sequence[int], q_shape: Sequence[int],
                             k_shape: Sequence[int], v_shape: Sequence[int]) -> int:
    """Of its gradients: the scores again, and two products for each of the two."""
    rows = math.prod(q_shape[:-1])
    return 2 * rows * k_shape[-2] * (3 * q_shape[-1] + 2 * v_shape[-1])


_SUFFIXES = ("", "K", "M", "B", "T")


def get_suffix_str(number: int) -> str:
    """The letter under which a number of operations has one to three or four digits."""
    return _SUFFIXES[max(0, min(len(_SUFFIXES) - 1, (len(str(number)) - 2) // 3))]


def convert_num_with_suffix(number: float, suffix: str) -> str:
    """A number in thousands, millions, ...

    >>> convert_num_with_suffix(12345678, "M")
    '12.346M'
    """
    return f"{number / 1000 ** _SUFFIXES.index(suffix):.3f}{suffix}"


def convert_to_percent_str(num: float, denom: float) -> str:
    """A share, in percent."""
    return "0%" if denom == 0 else f"{num / denom:.2%}"


class FlopCounterMode(TorchDispatchMode):
    """Counts while it is entered; prints the table on exit if `display`.

    depth           down to which level of modules `get_table` goes
    custom_mapping  packet -> formula, beside those that are known
    """

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True,
                 custom_mapping: dict[Any, Any] | None = None) -> None:
        super().__init__()
        if mods is not None:
            warn_as_pytorch("mods argument is not needed anymore, you can stop passing it")
        self.depth, self.display = depth, display
        self.flop_registry = {**flop_registry, **(custom_mapping or {})}
        self.flop_counts: dict[str, dict[Any, int]] = {}
        self._where = Where()

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts = defaultdict(lambda: defaultdict(int))
        self._observing = watchers.push(watchers.observers, self._where)
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        watchers.pop(self._observing)
        if self.display:
            print(self.get_table(self.depth))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet = func.overloadpacket
        formula = self.flop_registry.get(packet)
        if formula is not None:
            count = formula(*args, **kwargs, out_val=out)
            packet = _of_pytorch(packet, args)
            for name in {"Global", *self._where.here()}:
                self.flop_counts[name][packet] += count
        return out

    def get_total_flops(self) -> int:
        """All operations counted."""
        return sum(self.flop_counts.get("Global", {}).values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Module -> packet -> operations; "Global" has all of them."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Modules and ops with their counts and shares, as text."""
        depth = self.depth if depth is None else depth
        total = max(self.get_total_flops(), 1)
        rows = [("Module", "FLOP", "% Total")]
        for name in sorted(self.flop_counts, key=lambda n: (n != "Global", n)):
            level = 0 if name == "Global" else name.count(".") + 1
            if level > depth:
                continue
            counts = self.flop_counts[name]
            rows.append((" " * level + name, str(sum(counts.values())),
                         f"{100 * sum(counts.values()) / total:.2f}%"))
            rows += [(" " * level + f" - {packet}", str(n), f"{100 * n / total:.2f}%")
                     for packet, n in counts.items()]
        widths = [max(len(r[i]) for r in rows) for i in range(3)]
        lines = ["  ".join((r[0].ljust(widths[0]), r[1].rjust(widths[1]), r[2].rjust(widths[2])))
                 for r in rows]
        lines.insert(1, "  ".join("-" * w for w in widths))
        return "\n".join(lines)


__all__ = ["FlopCounterMode", "register_flop_formula"]
__getattr__ = missing("adjoint.utils.flop_counter")
