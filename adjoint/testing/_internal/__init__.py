"""PyTorch's test utilities under their module names, where PyTorch's own files are not installed.

`torch.testing._internal.common_utils` and its neighbours are then these modules: what test files
use most. With PyTorch's wheel and expecttest at hand its own files are run instead
(`adjoint.testing.wheel`), tables of operations and all.
"""
