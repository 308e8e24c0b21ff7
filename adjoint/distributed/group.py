"""Process groups: who takes part, and the default group of this process."""
from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from adjoint.base.errors import ArgumentError, AssertedError, NotSupported
from adjoint.distributed.transport import DistributedError, Mpi, Sockets, Transport, free_port

default_pg_timeout = timedelta(minutes=30)


class ProcessGroup:
    """Some ranks of the world, in order; `rank` is the place of this process among them."""

    def __init__(self, transport: Transport, ranks: list[int], backend: str) -> None:
        self.transport, self.ranks, self.backend = transport, ranks, backend
        self.lock = threading.RLock()

    def rank(self) -> int:
        """This process's place in the group; -1 if it is not in it."""
        own = self.transport.rank
        return self.ranks.index(own) if own in self.ranks else -1

    def size(self) -> int:
        """How many processes take part."""
        return len(self.ranks)

    def place(self, rank: int, what: str) -> int:
        """The place in the group of a rank of the world."""
        if rank not in self.ranks:
            raise ArgumentError(f"{what}: rank {rank} is not in the group {self.ranks}")
        return self.ranks.index(rank)


class GroupMember:
    """Names for "all ranks" and "not a member"."""

    WORLD: Any = None
    NON_GROUP_MEMBER: Any = object()


group = GroupMember
_world: ProcessGroup | None = None


def is_available() -> bool:
    """True: process groups over TCP need nothing but Python."""
    return True


def is_initialized() -> bool:
    """True between `init_process_group` and `destroy_process_group`."""
    return _world is not None


def is_gloo_available() -> bool:
    """True: "gloo" names the TCP transport here."""
    return True


def is_nccl_available() -> bool:
    """False: there are no CUDA devices."""
    return False


def is_mpi_available() -> bool:
    """Whether mpi4py is installed."""
    import importlib.util
    return importlib.util.find_spec("mpi4py") is not None


def is_ucc_available() -> bool:
    """False."""
    return False


is_xccl_available = is_ucc_available


def is_backend_available(backend: str) -> bool:
    """Whether `init_process_group` takes the name, in any case of letters.

    >>> is_backend_available("GLOO"), is_backend_available("nccl")
    (True, False)
    """
    return {"gloo": is_gloo_available, "mpi": is_mpi_available}.get(
        backend.lower(), is_nccl_available)()


def is_torchelastic_launched() -> bool:
    """Whether a launcher made this process."""
    return "ADJOINT_LAUNCHED" in os.environ


def _port_by_file(path: Path, rank: int, seconds: float) -> int:
    """A free port of this machine that rank 0 chose and left in the file `path`."""
    if rank == 0:
        port = free_port()
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.write_text(str(port))
        draft.replace(path)
        return port
    until = time.monotonic() + seconds
    while not (path.exists() and path.read_text()):
        if time.monotonic() > until:
            raise DistributedError(f"init_process_group: {path} was not written by rank 0 within "
                                   f"{seconds:g} s")
        time.sleep(0.01)
    return int(path.read_text())


def _by_store(store: Any, rank: int, world_size: int) -> tuple[str, int, int, int]:
    """(host, port, rank, size); rank 0 leaves the port in the store."""
    if world_size < 1 or rank < 0:
        raise AssertedError("world_size must be positive if using store" if world_size < 1 else
                            "rank must be non-negative if using store")
    host = getattr(store, "host", "127.0.0.1")
    if rank == 0:
        store.set("default_pg/port", str(free_port(host)))
    return host, int(store.get("default_pg/port")), rank, world_size


def _rendezvous(init_method: str | None, rank: int, world_size: int,
                seconds: float) -> tuple[str, int, int, int]:
    """(host, port, rank, size) from the address, the arguments and the environment."""
    method = init_method or "env://"
    url = urlparse(method)
    if url.scheme not in ("env", "tcp", "file"):
        raise NotSupported(f"init_method {method!r}: use env:// (MASTER_ADDR, MASTER_PORT, RANK, "
                           "WORLD_SIZE), tcp://host:port, or file:///path on one machine")
    missing = []

    def setting(name: str) -> str:
        if name not in os.environ:
            missing.append(name)
        return os.environ.get(name, "0")
    rank = rank if rank >= 0 else int(setting("RANK"))
    world_size = world_size if world_size > 0 else int(setting("WORLD_SIZE"))
    if url.scheme == "tcp":
        host, port = url.hostname or "", url.port or 0
    elif url.scheme == "file":
        host, port = "127.0.0.1", 0
    else:
        host, port = setting("MASTER_ADDR"), int(setting("MASTER_PORT"))
    if missing:
        raise ArgumentError(f"init_process_group: environment variable {', '.join(missing)} "
                            "expected, but not set; a launcher sets them: python -m "
                            "adjoint.distributed.run --nproc-per-node N script.py")
    if not 0 <= rank < world_size:
        raise ArgumentError(f"init_process_group: rank {rank} is not in a world of {world_size}")
    if url.scheme == "file":
        port = _port_by_file(Path(unquote(url.path)), rank, seconds)
    return host, port, rank, world_size


def init_process_group(backend: str | None = None, init_method: str | None = None,
                       timeout: Any = None, world_size: int = -1, rank: int = -1,
                       store: Any = None, group_name: str = "", device_id: Any = None) -> None:
    """Join the other processes; returns when all have come.

    backend      "gloo" (TCP; the default) or "mpi" (mpi4py). "nccl" is refused: no CUDA here
    store        through which the ranks find each other, with rank and world_size
    init_method  "env://" or "tcp://host:port"; rank 0 listens there. "file:///path": a file that
                 does not exist yet, through which the processes of one machine find each other
    timeout      seconds or timedelta, for joining and for every collective (default 30 minutes)
    """
    global _world
    if _world is not None:
        raise ArgumentError("trying to initialize the default process group twice!")
    name = (backend or "gloo").lower().split(",")[0].split(":")[-1]
    if name == "nccl":
        raise NotSupported("backend 'nccl' needs CUDA devices; use backend='gloo'")
    if name not in ("gloo", "mpi"):
        raise ArgumentError(f"Unknown backend {backend!r}: gloo or mpi")
    if store is not None and init_method is not None:
        raise AssertedError("Cannot specify both init_method and store.")
    given = default_pg_timeout if timeout is None else timeout
    seconds = given.total_seconds() if isinstance(given, timedelta) else float(given)
    transport: Transport = Mpi() if name == "mpi" else Sockets(
        *(_rendezvous(init_method, rank, world_size, seconds) if store is None
          else _by_store(store, rank, world_size)), seconds)
    if (init_method or "").startswith("file:") and transport.rank == 0:      # all have come
        Path(unquote(urlparse(init_method or "").path)).unlink(missing_ok=True)
    _world = GroupMember.WORLD = ProcessGroup(transport, list(range(transport.size)), name)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Leave: close the connections."""
    global _world
    if _world is None:
        raise DistributedError("destroy_process_group: no process group is initialized")
    if group is None or group is _world:
        _world.transport.close()
        _world = GroupMember.WORLD = None


def the(group: ProcessGroup | None) -> ProcessGroup:
    """The given group, or the default one."""
    if group is not None:
        return group
    if _world is None:
        raise ArgumentError("Default process group has not been initialized, please make sure to "
                            "call init_process_group.")
    return _world


def get_rank(group: ProcessGroup | None = None) -> int:
    """This process's place; -1 if it is not in the group."""
    return the(group).rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """How many processes the group has; -1 if this one is not in it."""
    found = the(group)
    return found.size() if found.rank() >= 0 else -1


class Backend(str):
    """A back-end's name in small letters; the names that PyTorch knows are attributes. Of them
    "gloo" and "mpi" are here.

    >>> Backend("GLOO") == Backend.GLOO
    True
    """

    __slots__ = ()
    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"
    default_device_backend_map = {"cpu": "gloo"}
    backend_list = [UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL]

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish, got "
                             f"{type(name).__name__}")
        return super().__new__(cls, name.lower())


def get_backend(group: ProcessGroup | None = None) -> str:
    """ "gloo" or "mpi"."""
    return the(group).backend


def get_backend_config(group: ProcessGroup | None = None) -> str:
    """The back-end of each kind of device: "cpu:gloo"."""
    return f"cpu:{the(group).backend}"


def get_default_backend_for_device(device: Any) -> str:
    """ "gloo", for the cpu."""
    kind = str(getattr(device, "type", device)).split(":")[0]
    if kind not in Backend.default_device_backend_map:
        raise ArgumentError(f"Default backend not supported for device : {device}")
    return Backend.default_device_backend_map[kind]


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The place of this process among those of its machine, which the launcher says (LOCAL_RANK),
    or `fallback_rank`."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise DistributedError(
            "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
            "`get_node_local_rank` to work, assuming you are not running in a multi-device context "
            "and want the code to run locally instead.")
    return int(fallback_rank)


def place_of(g: ProcessGroup, rank: int | None, place: int | None, what: str,
             default: int | None = None) -> int:
    """The rank of the world that a collective is told: by that rank, or by its place in the
    group."""
    if place is not None:
        if rank is not None:
            raise ArgumentError("Can't specify both group_rank and global_rank")
        if not 0 <= place < g.size():
            raise ArgumentError(f"{what}: a group of {g.size()} has no place {place}")
        return g.ranks[place]
    chosen = default if rank is None else rank
    if chosen is None:
        raise ArgumentError("Must specify global_rank or group_rank")
    g.place(chosen, what)
    return chosen


def new_group(ranks: list[int] | None = None, timeout: Any = None, backend: str | None = None,
              **_: Any) -> ProcessGroup:
    """A group of some ranks of the world; every process must call it."""
    world = the(None)
    chosen = sorted(ranks) if ranks is not None else list(world.ranks)
    if bad := [r for r in chosen if r not in world.ranks]:
        raise ArgumentError(f"new_group: ranks {bad} are not in a world of {world.size()}")
    return ProcessGroup(world.transport, chosen, world.backend)


def new_subgroups(group_size: int | None = None, group: ProcessGroup | None = None,
                  timeout: Any = None, backend: str | None = None,
                  **_: Any) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """The ranks in groups of `group_size` neighbours: this process's group, and all of them."""
    world = the(group)
    if group_size is None:
        raise ArgumentError("Default group size only takes effect when there are CUDA devices; "
                            "give group_size")
    if group_size <= 0:
        raise ArgumentError(f"The arg 'group_size' ({group_size}) must be positive")
    if world.size() < group_size:
        raise ArgumentError(f"The arg 'group_size' ({group_size}) must not exceed the world size "
                            f"({world.size()})")
    if world.size() % group_size:
        raise ArgumentError(f"The world size ({world.size()}) must be divisible by "
                            f"group_size={group_size}")
    all_groups = [ProcessGroup(world.transport, world.ranks[at:at + group_size], world.backend)
                  for at in range(0, world.size(), group_size)]
    return all_groups[world.rank() // group_size], all_groups


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """The ranks of the world that are in a group."""
    return list(the(group).ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank in the world of a place in the group."""
    return group.ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The place in the group of a rank of the world."""
    return group.place(global_rank, "get_group_rank")
