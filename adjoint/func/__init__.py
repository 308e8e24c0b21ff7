"""Function transforms: `torch.func`'s and JAX's names over the same ops, in any nesting."""
from adjoint.base.tree import flatten as tree_flatten
from adjoint.base.tree import register_node as register_pytree_node
from adjoint.base.tree import tree_leaves, tree_map
from adjoint.base.tree import unflatten as tree_unflatten
from adjoint.func.push import jvp, linear_transpose, linearize
from adjoint.func.reverse import grad, grad_and_value, value_and_grad, vjp
from adjoint.func.vmap import pmax, pmean, psum, vmap

__all__ = ["grad", "grad_and_value", "jvp", "linear_transpose", "linearize", "pmax", "pmean",
           "psum", "register_pytree_node", "tree_flatten", "tree_leaves", "tree_map",
           "tree_unflatten", "value_and_grad", "vjp", "vmap"]
