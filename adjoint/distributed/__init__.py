"""Several processes that train together: groups over TCP or MPI, collectives, sharded optimizers.

    python -m adjoint.distributed.run --nproc-per-node 2 script.py

starts two processes; each calls `init_process_group()` and wraps its model in
`nn.parallel.DistributedDataParallel`.
"""
import importlib as _importlib
from typing import Any as _Any

from adjoint.base.errors import missing as _missing
from adjoint.distributed.bucket import GradBucket as GradBucket
from adjoint.distributed.collectives import ReduceOp as ReduceOp
from adjoint.distributed.collectives import Work as Work
from adjoint.distributed.collectives import all_gather as all_gather
from adjoint.distributed.collectives import all_gather_into_tensor as all_gather_into_tensor
from adjoint.distributed.collectives import all_gather_object as all_gather_object
from adjoint.distributed.collectives import all_reduce as all_reduce
from adjoint.distributed.collectives import all_to_all as all_to_all
from adjoint.distributed.collectives import all_to_all_single as all_to_all_single
from adjoint.distributed.collectives import barrier as barrier
from adjoint.distributed.collectives import broadcast as broadcast
from adjoint.distributed.collectives import broadcast_object_list as broadcast_object_list
from adjoint.distributed.collectives import gather as gather
from adjoint.distributed.collectives import irecv as irecv
from adjoint.distributed.collectives import isend as isend
from adjoint.distributed.collectives import recv as recv
from adjoint.distributed.collectives import reduce as reduce
from adjoint.distributed.collectives import reduce_scatter as reduce_scatter
from adjoint.distributed.collectives import reduce_scatter_tensor as reduce_scatter_tensor
from adjoint.distributed.collectives import scatter as scatter
from adjoint.distributed.collectives import send as send
from adjoint.distributed.device_mesh import DeviceMesh as DeviceMesh
from adjoint.distributed.device_mesh import init_device_mesh as init_device_mesh
from adjoint.distributed.group import Backend as Backend
from adjoint.distributed.group import GroupMember as GroupMember
from adjoint.distributed.group import ProcessGroup as ProcessGroup
from adjoint.distributed.group import default_pg_timeout as default_pg_timeout
from adjoint.distributed.group import destroy_process_group as destroy_process_group
from adjoint.distributed.group import get_backend as get_backend
from adjoint.distributed.group import get_backend_config as get_backend_config
from adjoint.distributed.group import (
    get_default_backend_for_device as get_default_backend_for_device,
)
from adjoint.distributed.group import get_global_rank as get_global_rank
from adjoint.distributed.group import get_group_rank as get_group_rank
from adjoint.distributed.group import get_node_local_rank as get_node_local_rank
from adjoint.distributed.group import get_process_group_ranks as get_process_group_ranks
from adjoint.distributed.group import get_rank as get_rank
from adjoint.distributed.group import get_world_size as get_world_size
from adjoint.distributed.group import group as group
from adjoint.distributed.group import init_process_group as init_process_group
from adjoint.distributed.group import is_available as is_available
from adjoint.distributed.group import is_backend_available as is_backend_available
from adjoint.distributed.group import is_gloo_available as is_gloo_available
from adjoint.distributed.group import is_initialized as is_initialized
from adjoint.distributed.group import is_mpi_available as is_mpi_available
from adjoint.distributed.group import is_nccl_available as is_nccl_available
from adjoint.distributed.group import is_torchelastic_launched as is_torchelastic_launched
from adjoint.distributed.group import is_ucc_available as is_ucc_available
from adjoint.distributed.group import is_xccl_available as is_xccl_available
from adjoint.distributed.group import new_group as new_group
from adjoint.distributed.group import new_subgroups as new_subgroups
from adjoint.distributed.objects import P2POp as P2POp
from adjoint.distributed.objects import batch_isend_irecv as batch_isend_irecv
from adjoint.distributed.objects import gather_object as gather_object
from adjoint.distributed.objects import monitored_barrier as monitored_barrier
from adjoint.distributed.objects import recv_object_list as recv_object_list
from adjoint.distributed.objects import scatter_object_list as scatter_object_list
from adjoint.distributed.objects import send_object_list as send_object_list
from adjoint.distributed.store import FileStore as FileStore
from adjoint.distributed.store import HashStore as HashStore
from adjoint.distributed.store import PrefixStore as PrefixStore
from adjoint.distributed.store import Store as Store
from adjoint.distributed.store import TCPStore as TCPStore
from adjoint.distributed.transport import DistributedError as DistributedError

DistBackendError = DistError = DistNetworkError = DistStoreError = DistributedError


def __getattr__(name: str) -> _Any:
    """Modules inside load when they are first used."""
    if not name.startswith("_"):
        try:
            return _importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    return _missing(__name__)(name)
