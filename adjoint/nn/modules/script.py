"""`torch.jit.ScriptModule`: what a program of TorchScript's first days derives its models from."""
from __future__ import annotations

from adjoint.nn.modules.module import Module


class ScriptModule(Module):
    """A module like any other: it runs as Python, nothing is compiled.

    No function here returns one: `jit.script` gives back what it was given, so that
    ``isinstance(m, ScriptModule)`` is true of the program's own classes alone.
    """


class RecursiveScriptModule(ScriptModule):
    """What PyTorch's `jit.script` makes of a module; here it makes none."""
