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
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset",
    "DistributedSampler", "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler",
    "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler",
    "WorkerError", "WorkerInfo", "default_collate", "default_convert", "get_worker_info",
    "random_split",
]
__getattr__ = _missing("adjoint.utils.data")
