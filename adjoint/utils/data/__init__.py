"""Data sets, samplers and the DataLoader, with PyTorch's names.

>>> import adjoint as ad
>>> from adjoint.utils.data import DataLoader, TensorDataset
>>> loader = DataLoader(TensorDataset(ad.arange(4)), batch_size=2)
>>> [batch.tolist() for (batch,) in loader]
[[0, 1], [2, 3]]
"""
from adjoint.base.errors import missing as _missing
from adjoint.utils.data import _utils as _utils
from adjoint.utils.data.collate import default_collate, default_convert
from adjoint.utils.data.dataloader import DataLoader
from adjoint.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from adjoint.utils.data.distributed import DistributedSampler
from adjoint.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from adjoint.utils.data.worker import WorkerError, WorkerInfo, get_worker_info

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DFIterDataPipe", "DataChunk", "DataLoader",
    "Dataset", "DistributedSampler", "IterDataPipe", "IterableDataset", "MapDataPipe",
    "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "WorkerError", "WorkerInfo",
    "argument_validation", "default_collate", "default_convert", "functional_datapipe",
    "get_worker_info", "guaranteed_datapipes_determinism", "non_deterministic", "random_split",
    "runtime_validation", "runtime_validation_disabled",
]
# Data pipes are loaded when one of their names is first wanted.
__getattr__ = _missing("adjoint.utils.data", "adjoint.utils.data.datapipes")
