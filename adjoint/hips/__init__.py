"""HIPS autograd's modules on this package's engine: arrays in, arrays out.

`import adjoint.hips as autograd`, or `adjoint run --as-autograd program.py`, which serves these
modules as `autograd` to a program written for it. The functions of `adjoint.func` with the same
names take and give tensors; those here take and give NumPy arrays, as the originals do.

>>> import adjoint.hips.numpy as np
>>> from adjoint.hips import grad
>>> grad(lambda w: np.sum(np.tanh(w) ** 2))(np.array([0.0, 1.0]))
array([0.        , 0.63970001])
"""
from adjoint.base.errors import missing as _missing
from adjoint.hips.builtins import dict, isinstance, list, tuple, type
from adjoint.hips.differential_operators import (
    checkpoint,
    deriv,
    elementwise_grad,
    grad,
    grad_and_aux,
    grad_named,
    hessian,
    hessian_tensor_product,
    hessian_vector_product,
    holomorphic_grad,
    jacobian,
    make_ggnvp,
    make_hvp,
    make_jvp,
    make_vjp,
    multigrad_dict,
    tensor_jacobian_product,
    value_and_grad,
    vector_jacobian_product,
)
from adjoint.hips.extend import primitive

__all__ = ["checkpoint", "deriv", "dict", "elementwise_grad", "grad", "grad_and_aux", "grad_named",
           "hessian", "hessian_tensor_product", "hessian_vector_product", "holomorphic_grad",
           "isinstance", "jacobian", "list", "make_ggnvp", "make_hvp", "make_jvp", "make_vjp",
           "multigrad_dict", "primitive", "tensor_jacobian_product", "tuple", "type",
           "value_and_grad", "vector_jacobian_product"]
__getattr__ = _missing("adjoint.hips")
