"""`torch._inductor`: the settings of a compiler that is not here, which programs set before they
call `compile`."""
from __future__ import annotations

from adjoint._dynamo import Settings
from adjoint.base.errors import missing as _missing

_PARTS = ("triton", "cpp", "cuda", "rocm", "aot_inductor", "trace", "halide", "test_configs")
config = Settings(f"{__name__}.config",
                  **{name: Settings(f"{__name__}.config.{name}") for name in _PARTS})
__path__: list[str] = []               # a package, so that `import adjoint._inductor.config` is one
__getattr__ = _missing("adjoint._inductor")
