"""Less memory by a fixed rule: what is cheap to have again does not stay (docs/design/0009)."""
from __future__ import annotations

from typing import Any

from adjoint.memory import needs
from adjoint.memory.budgeting import budget
from adjoint.memory.lineage import handles_of


class lean(budget):
    """Keep for backward only what is dear to compute again.

    Results of pointwise ops, norms and copies that another node saves, and that follow from what is
    saved anyway, are dropped at once: the output of a GELU or a layer norm before a matrix product,
    for instance. They are computed again when backward needs them, with the same bits.

    >>> import adjoint as ad
    >>> net = ad.nn.Sequential(ad.nn.Linear(64, 256), ad.nn.GELU(), ad.nn.Linear(256, 64))
    >>> with ad.memory.lean():
    ...     net(ad.ones(8, 64)).sum().backward()
    """

    copies = frozenset({"view", "reshape", "clone", "layer_norm", "rms_norm", "dropout", "cat",
                        "masked_fill", "where", "expand"})

    def __init__(self) -> None:
        super().__init__(1 << 62, spill=False, plan=False)
        self._any = needs.Kind("", None, ())

    def before(self, op: Any, args: Any, attrs: Any) -> None:
        self._frame = needs.Running(self._any, 0, 0)
        self._fresh.clear()

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        super().after(op, args, attrs, made, node)
        for h in handles_of(node, self) if node is not None else ():
            s = h.storage
            r = s.record
            if r is not None and s.owner is not None and (
                    r.op.scalar is not None or r.op.name in self.copies) and r.op is not op \
                    and all(a.storage.wanted() for a in r.slots):
                s.owner = None
                self._dropped += s.nbytes


__all__ = ["lean"]
