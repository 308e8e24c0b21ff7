"""Images for training programs: data sets in local files, transforms, grids and networks, under
the names that programs written for torchvision use.

`adjoint run --as-torch` serves it as `torchvision`. Nothing is downloaded; Pillow is used where it
is installed, and needed only to read and write formats other than PNG.
"""
from adjoint.vision import datasets as datasets
from adjoint.vision import io as io
from adjoint.vision import models as models
from adjoint.vision import ops as ops
from adjoint.vision import transforms as transforms
from adjoint.vision import utils as utils

# The version of torchvision whose names are followed, which programs compare with.
__version__ = "0.28.0"
