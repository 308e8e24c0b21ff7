"""Settings for all pipes of a graph: shares, order, seeds."""
from __future__ import annotations

import inspect
from typing import Any

from adjoint.base.errors import AutogradError
from adjoint.core.modes import warn
from adjoint.ops.generator import Generator
from adjoint.utils.data.datapipes.iter.combinatorics import ShufflerIterDataPipe
from adjoint.utils.data.datapipes.iter.sharding import SHARDING_PRIORITIES
from adjoint.utils.data.graph import traverse_dps
from adjoint.utils.data.seeds import draw_seed

__all__ = ["apply_random_seed", "apply_sharding", "apply_shuffle_seed", "apply_shuffle_settings",
           "get_all_graph_pipes"]


def get_all_graph_pipes(graph: dict[int, Any]) -> list[Any]:
    """Every pipe of a graph, once.

    >>> from adjoint.utils.data.datapipes.iter import IterableWrapper
    >>> get_all_graph_pipes(traverse_dps(IterableWrapper([1]).batch(2)))
    [BatcherIterDataPipe, IterableWrapperIterDataPipe]
    """
    found: dict[int, Any] = {}

    def walk(graph: dict[int, Any]) -> None:
        for number, (pipe, below) in graph.items():
            if number not in found:
                found[number] = pipe
                walk(below)
    walk(graph)
    return list(found.values())


def apply_sharding(datapipe: Any, num_of_instances: int, instance_id: int,
                   sharding_group: Any = SHARDING_PRIORITIES.DEFAULT) -> Any:
    """Tell every pipe with `apply_sharding` its share; two in one branch are refused."""
    def walk(graph: dict[int, Any], above: Any) -> None:
        for pipe, below in graph.values():
            here = above
            if hasattr(pipe, "apply_sharding"):
                if above is not None:
                    raise AutogradError(
                        "Sharding twice on a single pipeline is likely unintended and will cause "
                        f"data loss. Sharding already applied to {above} while trying to apply to "
                        f"{pipe}")
                takes = inspect.signature(pipe.apply_sharding).parameters
                pipe.apply_sharding(num_of_instances, instance_id,
                                    *([sharding_group] if len(takes) > 2 else []))
                here = pipe
            walk(below, here)
    walk(traverse_dps(datapipe), None)
    return datapipe


def _shuffles(pipe: Any) -> bool:
    return callable(getattr(pipe, "set_shuffle", None)) and callable(
        getattr(pipe, "set_seed", None))


def apply_shuffle_settings(datapipe: Any, shuffle: bool | None = None) -> Any:
    """Turn the shuffling pipes on or off; one is added at the end where none is to be turned on.
    """
    if shuffle is None:
        return datapipe
    found = [p for p in get_all_graph_pipes(traverse_dps(datapipe)) if _shuffles(p)]
    if shuffle and not found:
        warn("`shuffle=True` was set, but the datapipe does not contain a `Shuffler`. Adding one "
             "at the end. Be aware that the default buffer size might not be sufficient for your "
             "task.")
        found = [datapipe := ShufflerIterDataPipe(datapipe)]
    for pipe in found:
        pipe.set_shuffle(shuffle)
    return datapipe


def apply_shuffle_seed(datapipe: Any, rng: Any) -> Any:
    """`apply_random_seed` under its older name."""
    warn("`apply_shuffle_seed` is deprecated since 1.12 and will be removed in the future "
         "releases.\nPlease use `apply_random_seed` instead.", FutureWarning)
    return apply_random_seed(datapipe, rng)


def apply_random_seed(datapipe: Any, rng: Generator) -> Any:
    """Give every pipe with `set_seed` a seed that `rng` draws."""
    for pipe in get_all_graph_pipes(traverse_dps(datapipe)):
        if callable(getattr(pipe, "set_seed", None)):
            pipe.set_seed(draw_seed(rng))
    return datapipe


def begin(datapipe: Any, seed: int, worker: int | None = None, workers: int = 0) -> None:
    """Make a pipe ready for one pass of a DataLoader: seeds from the one that all workers share,
    and in a worker its share."""
    apply_random_seed(datapipe, Generator().manual_seed(seed))
    if worker is not None:
        apply_sharding(datapipe, workers, worker, SHARDING_PRIORITIES.MULTIPROCESSING)
