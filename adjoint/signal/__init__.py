"""Signal processing: windows."""
from adjoint.signal import windows as windows

__all__ = ["windows"]
