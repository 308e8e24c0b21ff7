"""`ops.aten`: records under PyTorch's names for them, as policies of checkpoints compare them:
`ops.aten.mm.default` is the record that a policy function gets.
"""
from __future__ import annotations

from typing import Any

from adjoint.base.errors import MissingName
from adjoint.core.op import OPS

# PyTorch's name -> ours, where they differ.
NAMES = {"_softmax": "softmax", "_log_softmax": "log_softmax", "native_layer_norm": "layer_norm",
         "native_group_norm": "group_norm", "native_batch_norm": "batch_norm",
         "native_dropout": "dropout",
         "_scaled_dot_product_flash_attention": "scaled_dot_product_attention",
         "_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
         "_scaled_dot_product_efficient_attention": "scaled_dot_product_attention"}


class Overloads:
    """The overloads of one name (`default`, `Tensor`, `dim`, ...): here all the same record."""

    def __init__(self, name: str) -> None:
        self._record = OPS[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._record

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        """Run the record: its operands by position, its attributes by name."""
        return self._record.call(*args, **attrs)


def __getattr__(name: str) -> Any:
    own = NAMES.get(name, name)
    if name.startswith("__") or own not in OPS:
        raise MissingName("module 'adjoint.ops.aten'", name, lambda: sorted({*NAMES, *OPS}))
    return Overloads(own)
