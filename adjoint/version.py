"""The version of the package, under the names that `torch.version` has."""
__version__ = "0.1.0"
cuda = hip = git_version = None
debug = False
