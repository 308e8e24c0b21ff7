"""An optimizer whose state is divided among the ranks (ZeRO, stage 1)."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.distributed.collectives import broadcast, broadcast_object_list
from adjoint.distributed.group import ProcessGroup, the
from adjoint.optim import Optimizer


class ZeroRedundancyOptimizer:
    """Each rank keeps the state of its share of the parameters, updates that share, and sends the
    new values to the others. Source: Rajbhandari et al., "ZeRO" (2019), arXiv:1910.02054, P_os.

    All ranks must hold the same parameters and, at `step`, the same gradients (as
    DistributedDataParallel leaves them).

    optimizer_class  the optimizer of a share; `defaults` are its arguments
    """

    def __init__(self, params: Iterable[Any], optimizer_class: type[Optimizer],
                 process_group: ProcessGroup | None = None, **defaults: Any) -> None:
        self.group = the(process_group)
        self.params = list(params)
        if not self.params:
            raise ArgumentError("optimizer got an empty parameter list")
        if isinstance(self.params[0], dict):
            raise ArgumentError("ZeroRedundancyOptimizer: parameter groups are not supported; give "
                                "the parameters")
        self.owner = self._divide()
        me = self.group.rank()
        self.mine = [p for p, o in zip(self.params, self.owner, strict=True) if o == me]
        self.optim = optimizer_class(self.mine, **defaults) if self.mine else None

    def _divide(self) -> list[int]:
        """The place that owns each parameter: the largest first, to whoever has least."""
        held = [0] * self.group.size()
        owner = [0] * len(self.params)
        for i in sorted(range(len(self.params)), key=lambda i: -self.params[i].numel()):
            owner[i] = held.index(min(held))
            held[owner[i]] += self.params[i].numel()
        return owner

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of this rank's share."""
        return self.optim.param_groups if self.optim is not None else []

    @property
    def state(self) -> Any:
        """The state of this rank's share."""
        return self.optim.state if self.optim is not None else {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all parameters."""
        for p in self.params:
            if p.grad is not None:
                if set_to_none:
                    p.grad = None
                else:
                    p.grad.zero_()

    def step(self, closure: Any = None) -> Any:
        """Update this rank's share, then exchange the new values."""
        loss = closure() if closure is not None else None
        if self.optim is not None:
            self.optim.step()
        for p, place in zip(self.params, self.owner, strict=True):
            broadcast(p.detach(), self.group.ranks[place], self.group)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The state of every rank's share, collected on all ranks: every rank must call it."""
        shares = []
        for rank in self.group.ranks:
            box = [self.optim.state_dict() if self.optim is not None else None]
            broadcast_object_list(box, rank, self.group)
            shares.append(box[0])
        return {"shares": shares, "owner": self.owner}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take this rank's share of a collected state."""
        if state["owner"] != self.owner:
            raise ArgumentError("ZeroRedundancyOptimizer: the state was saved by a group of "
                                f"{len(state['shares'])} ranks, or for other parameters")
        if self.optim is not None:
            self.optim.load_state_dict(state["shares"][self.group.rank()])
