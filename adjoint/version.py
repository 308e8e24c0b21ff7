"""The version of the package, under the names that `torch.version` has."""
__version__ = "0.1.0"
# The version of PyTorch whose names and behaviour are followed: what a program that this package
# serves as `torch` reads in `torch.__version__`.
followed = "2.13.0"
cuda = hip = xpu = git_version = None
debug = False
