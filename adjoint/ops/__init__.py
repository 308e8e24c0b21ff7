"""L2: declarations of operations, and the public functions with PyTorch's signatures."""
from adjoint.ops import pointwise as pointwise
from adjoint.ops import shape as shape
from adjoint.ops import reduce as reduce
from adjoint.ops import create as create
from adjoint.ops import random as random
from adjoint.ops import convert as convert
from adjoint.ops import api_pointwise as api_pointwise
from adjoint.ops import linalg as linalg
from adjoint.ops import moments as moments
from adjoint.ops import api_shape as api_shape
from adjoint.ops import api_reduce as api_reduce
from adjoint.ops import api_linalg as api_linalg
