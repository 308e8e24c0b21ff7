"""The version, as `torch.version` gives it."""
from adjoint import __version__ as __version__

cuda = hip = git_version = None
debug = False
