"""PyTorch's place of the class of nested tensors of layout jagged."""
from adjoint.nested import nested_tensor_from_jagged as nested_view_from_values_offsets
from adjoint.nested.tensor import NestedTensor

__all__ = ["NestedTensor", "nested_view_from_values_offsets"]
