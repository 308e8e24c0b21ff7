"""`torch._functorch`: a package of modules that all show `functional`, which is `functorch`."""
from __future__ import annotations

from adjoint._dynamo import Settings

config = Settings(f"{__name__}.config")
