"""`torch.utils.data._utils`: where programs find `collate.default_collate` by its full path."""
from adjoint.utils.data import collate as collate
from adjoint.utils.data import worker as worker

__path__: list[str] = []               # a package, as there: `_utils.collate` is imported from it
