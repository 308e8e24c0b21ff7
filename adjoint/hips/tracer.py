"""`autograd.tracer`: boxes, primitives, which are traced as one operation, and graphs of nodes."""
from collections import defaultdict
from contextlib import contextmanager
from functools import wraps

from adjoint.hips.box import Box, getval, isbox
from adjoint.hips.extend import notrace_primitive, primitive, register_notrace
from adjoint.hips.graph import (
    Node,
    TraceStack,
    box_type_mappings,
    box_types,
    find_top_boxed_args,
    new_box,
    notrace_primitives,
    trace,
    trace_stack,
)
from adjoint.hips.util import subvals, toposort

__all__ = ["Box", "Node", "TraceStack", "box_type_mappings", "box_types", "contextmanager",
           "defaultdict", "find_top_boxed_args", "getval", "isbox", "new_box",
           "notrace_primitive", "notrace_primitives", "primitive", "register_notrace", "subvals",
           "toposort", "trace", "trace_stack", "wraps"]
