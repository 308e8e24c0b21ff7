"""Plain nodes of a backward pass in machine code: what the generated code needs to know of them."""
from __future__ import annotations

import os
from typing import Any

import numpy as np

from adjoint.base.aval import Aval
from adjoint.core.op import OPS, Plan
from adjoint.core.tensor import (
    AccumulateGrad,
    Kept,
    OpNode,
    OutRef,
    PairNode,
    Parameter,
    Port,
    Tensor,
    wrap,
)


def walker(large: int, whole: int) -> Any:
    """`kernels.walk.walker` for our nodes: (walk, arrange). Sums of `large` elements and cotangents
    of `whole` are the engine's. None where there is no generated code."""
    if os.environ.get("ADJOINT_JIT", "1") == "0":
        return None
    from adjoint.kernels import walk  # it loads the compiler
    leaf = wrap(np.ndarray(0, buffer=b""))               # no memory that counts
    node, wide, ref = PairNode(), OpNode(), OutRef()
    end, plan = AccumulateGrad(leaf), Plan(OPS["add"], 1)
    slots: dict[str, tuple[Any, str]] = {n: (leaf, n) for n in ("array", "_cell")}
    slots |= {n: (node, n) for n in ("plan", "shape", "seq", "e0", "e1", "s0", "s1")}
    slots |= {"ref." + n: (ref, n) for n in ("array", "cell")}
    slots |= {n: (wide, n) for n in ("edges", "saved", "attrs", "dtype")}
    slots |= {"plan." + n: (plan, n) for n in ("fast", "limit", "large", "names", "pair", "rules",
                                               "kept", "grows", "dtype")}
    slots |= {"kept." + n: (Kept(leaf, 0, None), n) for n in ("tensor", "version")}
    slots |= {"leaf." + n: (end, n) for n in ("shape", "dtype")}
    slots |= {"port." + n: (Port(node, 0, (), None), n) for n in ("node", "index", "shape",
                                                                  "dtype")}
    return walk.walker({
        "tensor": Tensor, "parameter": Parameter, "plan_type": Plan, "ref": OutRef, "kept": Kept,
        "accumulate": AccumulateGrad, "port": Port, "large": large, "pair_node": PairNode,
        "op_node": OpNode, "aval_type": Aval, "whole": whole}, slots)
