"""`torch.utils.data._utils`: what programs import from the parts of PyTorch's loader."""
import sys
from typing import Any

from adjoint.utils.data import collate as collate
from adjoint.utils.data import worker as worker

__path__: list[str] = []               # a package, as there: `_utils.collate` is imported from it
MP_STATUS_CHECK_INTERVAL = 5.0         # seconds; nothing here waits by it
python_exit_status = False


class _BaseDatasetFetcher:
    """PyTorch's arguments and names around a `worker.Fetcher`."""

    stream = False

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Any,
                 drop_last: bool) -> None:
        self.dataset, self.auto_collation = dataset, auto_collation
        self.collate_fn, self.drop_last = collate_fn, drop_last
        self._fetch = worker.Fetcher(dataset, collate_fn, auto_collation, drop_last, self.stream)

    def fetch(self, possibly_batched_index: Any) -> Any:
        """The batch of these indices."""
        return self._fetch(possibly_batched_index)


class _MapDatasetFetcher(_BaseDatasetFetcher):
    """Gets batches of a data set by indices."""


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    """Gets as many next items of a stream as there are indices."""

    stream = True


def pin_memory(data: Any, device: Any = None) -> Any:
    """What is given: there is no memory of another kind."""
    return data


vars(pin_memory)["pin_memory"] = pin_memory     # there it is a file, and the function in it
fetch = signal_handling = sys.modules[__name__]
sys.modules |= {f"{__name__}.{name}": module for name, module in (    # files of their own there
    ("collate", collate), ("worker", worker), ("fetch", fetch), ("pin_memory", fetch),
    ("signal_handling", fetch))}


def _set_SIGCHLD_handler() -> None:  # noqa: N802  # PyTorch's name
    """Nothing: the end of a worker is seen at its pipe (`pool.WorkerPool`), not by a signal."""


def _set_worker_signal_handlers() -> None:
    """Nothing, as above."""
