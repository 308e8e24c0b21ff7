"""`torch.onnx`: models are not exported to ONNX here; every exporter raises one line."""
from __future__ import annotations

from typing import Any, NoReturn

from adjoint.base.errors import NotSupported


def export(model: Any = None, args: Any = (), f: Any = None, **kwargs: Any) -> NoReturn:
    """Raises: there is no ONNX exporter."""
    raise NotSupported(
        "onnx.export: models are not exported to ONNX here. Save the weights with "
        "save(model.state_dict(), path), which PyTorch reads, and export from there")


_export = dynamo_export = export


def is_in_onnx_export() -> bool:
    """False: no export is ever running."""
    return False


__all__ = ["dynamo_export", "export", "is_in_onnx_export"]
