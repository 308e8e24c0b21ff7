"""`python -m adjoint.distributed.run --nproc-per-node N script.py [args]`: N processes of one
program that find each other by `init_process_group()`."""
from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from adjoint.distributed.transport import free_port

# Options of PyTorch's launcher about its agents, which restart and log processes: none are here.
_OF_AGENTS = ("rdzv-backend", "rdzv-id", "rdzv-conf", "max-restarts", "monitor-interval",
              "start-method", "role", "log-dir", "redirects", "tee", "local-addr")


def _processes(text: str) -> int:
    return (os.cpu_count() or 1) if text in ("auto", "cpu") else int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="adjoint.distributed.run", description=__doc__)
    parser.add_argument("--nproc-per-node", "--nproc_per_node", type=_processes, default=1,
                        help="processes on this machine; auto, cpu: one per core")
    parser.add_argument("--nnodes", type=int, default=1, help="machines")
    parser.add_argument("--rdzv-endpoint", "--rdzv_endpoint", default="",
                        help="host:port, the same as --master-addr and --master-port")
    for name in _OF_AGENTS:
        parser.add_argument(f"--{name}", f"--{name.replace('-', '_')}", help="not used here")
    parser.add_argument("--node-rank", "--node_rank", type=int, default=0, help="this machine")
    parser.add_argument("--master-addr", "--master_addr", default="127.0.0.1")
    parser.add_argument("--master-port", "--master_port", type=int, default=0,
                        help="default: a free one")
    parser.add_argument("--standalone", action="store_true", help="one machine (the default)")
    parser.add_argument("--as-torch", action="store_true", help="serve `import torch` from here")
    parser.add_argument("-m", "--module", action="store_true", help="the script is a module name")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    return parser


def main(argv: Sequence[str] | None = None, tell_rank: bool = False) -> int:
    """Start the processes and wait; the first that fails ends the others. Returns its code. With
    `tell_rank` the script is given `--local-rank=...` before its own arguments."""
    given = _parser().parse_args(argv)
    n = given.nproc_per_node
    host, _, at = given.rdzv_endpoint.partition(":")
    given.master_addr, given.master_port = host or given.master_addr, int(at or given.master_port)
    if n < 1 or given.nnodes > 1 and not given.master_port:
        print("adjoint.distributed.run: --nproc-per-node must be positive, and several machines "
              "need a --master-port", file=sys.stderr)
        return 2
    command = [sys.executable]
    if given.as_torch:
        command += ["-m", "adjoint", "run", "--as-torch"]
    command += ["-m", given.script] if given.module else [given.script]
    port = given.master_port or free_port()
    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // n)))
    processes = []
    for local in range(n):
        env = {**os.environ, "LOCAL_RANK": str(local), "RANK": str(given.node_rank * n + local),
               "WORLD_SIZE": str(n * given.nnodes), "LOCAL_WORLD_SIZE": str(n),
               "GROUP_RANK": str(given.node_rank), "GROUP_WORLD_SIZE": str(given.nnodes),
               "MASTER_ADDR": given.master_addr, "MASTER_PORT": str(port),
               "OMP_NUM_THREADS": threads, "ADJOINT_LAUNCHED": "1"}
        told = [f"--local-rank={local}"] if tell_rank else []
        processes.append(subprocess.Popen([*command, *told, *given.args], env=env))
    return _wait(processes)


def _wait(processes: list[subprocess.Popen[bytes]]) -> int:
    try:
        while True:
            codes = [p.poll() for p in processes]
            failed = [(i, c) for i, c in enumerate(codes) if c]
            if failed:
                rank, code = failed[0]
                print(f"adjoint.distributed.run: local rank {rank} ended with code {code}; ending "
                      "the others", file=sys.stderr)
                return code if code > 0 else 1
            if all(c == 0 for c in codes):
                return 0
            time.sleep(0.05)
    except KeyboardInterrupt:
        return 130
    finally:
        for p in processes:
            if p.poll() is None:
                p.send_signal(signal.SIGTERM)
        for p in processes:
            try:
                p.wait(5)
            except subprocess.TimeoutExpired:
                p.kill()


if __name__ == "__main__":
    sys.exit(main())
