"""Data pipes: streams (`iter`) and maps (`map`) that are joined by calls.

>>> from adjoint.utils.data.datapipes.iter import IterableWrapper
>>> list(IterableWrapper(["a", "2", "b"]).filter(str.isalpha).map(str.upper))
['A', 'B']
"""
from adjoint.utils.data.datapipes import iter as iter
from adjoint.utils.data.datapipes import map as map
from adjoint.utils.data.datapipes._decorator import (
    argument_validation,
    functional_datapipe,
    guaranteed_datapipes_determinism,
    non_deterministic,
    runtime_validation,
    runtime_validation_disabled,
)
from adjoint.utils.data.datapipes.datapipe import (
    DataChunk,
    DFIterDataPipe,
    IterDataPipe,
    MapDataPipe,
)

__all__ = ["DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe", "argument_validation",
           "functional_datapipe", "guaranteed_datapipes_determinism", "non_deterministic",
           "runtime_validation", "runtime_validation_disabled"]
