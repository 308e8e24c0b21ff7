"""Function transforms: `torch.func`'s and JAX's names over the same ops, in any nesting."""
from adjoint.base.tree import flatten as tree_flatten
from adjoint.base.tree import register_node as register_pytree_node
from adjoint.base.tree import tree_leaves, tree_map
from adjoint.base.tree import unflatten as tree_unflatten
from adjoint.func.compare import compare_methods
from adjoint.func.control import cond, scan, while_loop
from adjoint.func.external import from_callable
from adjoint.func.fuse import fuse
from adjoint.func.implicit import fixed_point, root
from adjoint.func.jacobian import (
    choose as choose_mode,
)
from adjoint.func.jacobian import (
    fisher_product,
    gauss_newton_product,
    hessian,
    hutchinson_diagonal,
    hutchinson_trace,
    hvp,
    jacfwd,
    jacobian,
    jacrev,
    vhp,
)
from adjoint.func.modules import functional_call, stack_module_state
from adjoint.func.push import jvp, linear_transpose, linearize
from adjoint.func.remat import checkpoint, checkpoint_name, checkpoint_policies, remat
from adjoint.func.reverse import grad, grad_and_value, value_and_grad, vjp
from adjoint.func.rules import custom_jvp, custom_vjp, straight_through
from adjoint.func.vmap import pmax, pmean, psum, vmap

__all__ = ["checkpoint", "checkpoint_name", "checkpoint_policies", "choose_mode",
           "compare_methods", "cond", "custom_jvp", "custom_vjp", "fisher_product",
           "fixed_point", "from_callable", "functional_call", "fuse", "gauss_newton_product",
           "grad", "grad_and_value", "hessian", "hutchinson_diagonal", "hutchinson_trace", "hvp",
           "jacfwd", "jacobian", "jacrev", "jvp", "linear_transpose", "linearize", "pmax",
           "pmean", "psum", "register_pytree_node", "remat", "root", "scan",
           "stack_module_state", "straight_through", "tree_flatten", "tree_leaves", "tree_map",
           "tree_unflatten", "value_and_grad", "vhp", "vjp", "vmap", "while_loop"]
