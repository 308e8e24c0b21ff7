"""What `register_*hook` returns."""
from adjoint.core.tensor import RemovableHandle as RemovableHandle
