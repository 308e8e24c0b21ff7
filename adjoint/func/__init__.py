"""Function transforms: `torch.func`'s and JAX's names over the same ops, in any nesting."""
from adjoint.base.errors import missing as _missing
from adjoint.base.tree import flatten as tree_flatten
from adjoint.base.tree import register_node as register_pytree_node
from adjoint.base.tree import tree_leaves, tree_map
from adjoint.base.tree import unflatten as tree_unflatten
from adjoint.func.collectives import (
    all_gather,
    axis_index,
    axis_size,
    pmax,
    pmean,
    pmin,
    psum,
)
from adjoint.func.compare import compare_methods
from adjoint.func.control import (
    associative_scan,
    cond,
    fori_loop,
    scan,
    stop_gradient,
    switch,
    while_loop,
)
from adjoint.func.control import map_ as map
from adjoint.func.external import from_callable
from adjoint.func.fuse import fuse
from adjoint.func.hips import (
    deriv,
    elementwise_grad,
    grad_and_aux,
    grad_named,
    hessian_tensor_product,
    hessian_vector_product,
    holomorphic_grad,
    make_ggnvp,
    make_hvp,
    make_jvp,
    make_vjp,
    multigrad_dict,
    tensor_jacobian_product,
    vector_jacobian_product,
)
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
from adjoint.func.modules import (
    functional_call,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from adjoint.func.push import jvp, linear_transpose, linearize
from adjoint.func.rearrange import rearrange
from adjoint.func.remat import checkpoint, checkpoint_name, checkpoint_policies, remat
from adjoint.func.reverse import grad, grad_and_value, value_and_grad, vjp
from adjoint.func.rules import custom_jvp, custom_vjp, straight_through
from adjoint.func.unwrap import debug_unwrap, functionalize
from adjoint.func.vmap import vmap

__all__ = ["all_gather", "associative_scan", "axis_index", "axis_size", "checkpoint",
           "checkpoint_name", "checkpoint_policies", "choose_mode", "compare_methods", "cond",
           "custom_jvp", "custom_vjp", "debug_unwrap", "deriv", "elementwise_grad",
           "fisher_product", "fixed_point", "fori_loop", "from_callable", "functional_call",
           "functionalize", "fuse",
           "gauss_newton_product", "grad", "grad_and_aux", "grad_and_value", "grad_named",
           "hessian", "hessian_tensor_product", "hessian_vector_product", "holomorphic_grad",
           "hutchinson_diagonal", "hutchinson_trace", "hvp", "jacfwd", "jacobian", "jacrev", "jvp",
           "linear_transpose", "linearize", "make_ggnvp", "make_hvp", "make_jvp", "make_vjp",
           "map", "multigrad_dict", "pmax", "pmean", "pmin", "psum", "rearrange",
           "register_pytree_node",
           "remat", "replace_all_batch_norm_modules_", "root", "scan", "stack_module_state",
           "stop_gradient", "straight_through", "switch", "tensor_jacobian_product",
           "tree_flatten", "tree_leaves", "tree_map", "tree_unflatten", "value_and_grad",
           "vector_jacobian_product", "vhp", "vjp", "vmap", "while_loop"]
__getattr__ = _missing("adjoint.func")
