"""Some of the items."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.core.tensor import Tensor
from adjoint.utils.data.datapipes._decorator import functional_datapipe
from adjoint.utils.data.datapipes.datapipe import IterDataPipe
from adjoint.utils.data.datapipes.utils.common import check_unpickable, validate_input_col

__all__ = ["FilterIterDataPipe"]


@functional_datapipe("filter")
class FilterIterDataPipe(IterDataPipe[Any]):
    """The items of which `filter_fn` says True, asked of the item or of its `input_col`.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(["a", "1"]).filter(str.isalpha))
    ['a']
    """

    def __init__(self, datapipe: IterDataPipe[Any], filter_fn: Callable[..., Any],
                 input_col: Any = None) -> None:
        check_unpickable(filter_fn)
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col
        validate_input_col(filter_fn, input_col)

    def _keep(self, data: Any) -> bool:
        cols = self.input_col
        if cols is None:
            found = self.filter_fn(data)
        elif isinstance(cols, (list, tuple)):
            found = self.filter_fn(*(data[c] for c in cols))
        else:
            found = self.filter_fn(data[cols])
        if isinstance(found, Tensor) and found.numel() == 1:
            found = found.item()
        if not isinstance(found, bool):
            raise ArgumentError("Boolean output is required for `filter_fn` of FilterIterDataPipe"
                                ", got", type(found))
        return found

    def __iter__(self) -> Iterator[Any]:
        for data in self.datapipe:
            if self._keep(data):
                yield data
