"""`adjoint bench`: this package's speed beside that of whatever peers are installed.

Every peer runs in a process of its own; the processes take turns on each workload (A B A B ...), so
that a slow moment of the machine hits all. Medians of forward + backward, the ratio to each peer
(below 1: this package is faster), and the share of what the machine can do, measured in the same
run: multiply-adds against the fastest product, bytes against the fastest addition of large arrays.
"""
from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import IO, Any

import numpy as np

import adjoint as ad
from adjoint.cli.bench_cases import CASES, JAX, Case
from adjoint.cli.parser import Parser
from adjoint.kernels import choose
from adjoint.ops.threads import get_num_threads

# glibc told to keep its pages: the fair PyTorch on large tensors, where fresh pages cost most
TUNED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": "2000000000",
         "MALLOC_TOP_PAD_": str(64 << 20)}
PEERS = ("torch", "torch+tuned", "jax")
_AGREE = 2e-3               # of the check values: float32 sums in different orders


def installed() -> list[str]:
    """The peers that can be imported here.

    >>> set(installed()) <= set(PEERS)
    True
    """
    return [p for p in PEERS if importlib.util.find_spec(p.partition("+")[0]) is not None]


def _build(peer: str, name: str) -> Case:
    if peer == "jax":
        return JAX[name]()
    return CASES[name](importlib.import_module(peer.partition("+")[0]))


def _worker(peer: str, name: str, threads: int) -> int:
    """In a process of its own: build, say so, then time as told on the standard input."""
    if peer != "jax":
        importlib.import_module(peer.partition("+")[0]).set_num_threads(threads)
    case = _build(peer, name)
    case.step()
    case.step()
    print(json.dumps({"flop": case.flop, "bytes": case.nbytes, "check": case.check()}), flush=True)
    for line in sys.stdin:
        seconds, times = float(line), list[float]()
        until = time.perf_counter() + seconds
        while not times or time.perf_counter() < until:
            start = time.perf_counter()
            case.step()
            times.append(time.perf_counter() - start)
        print(json.dumps(times), flush=True)
    return 0


class _Process:
    """A peer on one workload."""

    def __init__(self, peer: str, name: str, threads: int) -> None:
        env = {**os.environ, **(TUNED if peer.endswith("+tuned") else {})}
        env |= {k: str(threads) for k in ("OMP_NUM_THREADS", "MKL_NUM_THREADS",
                                          "OPENBLAS_NUM_THREADS", "ADJOINT_NUM_THREADS")}
        env |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self.peer, self.times = peer, list[float]()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "adjoint", "bench", "--worker", peer, name, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=env)
        self.about = self._read()

    def _stream(self, which: Any) -> IO[str]:
        assert which is not None
        stream: IO[str] = which
        return stream

    def _read(self) -> Any:
        line = self._stream(self.process.stdout).readline()
        if not line:
            self.process.wait()
            told = self._stream(self.process.stderr).read().strip().splitlines()
            return {"error": told[-1] if told else f"exit status {self.process.returncode}"}
        return json.loads(line)

    def run(self, seconds: float) -> None:
        """Time steps for so long."""
        stream = self._stream(self.process.stdin)
        stream.write(f"{seconds}\n")
        stream.flush()
        got = self._read()
        if isinstance(got, dict):
            self.about = got
        else:
            self.times += got

    def close(self) -> None:
        """End the process, by force if it does not end by itself."""
        with self.process:      # closes the pipes and waits
            self._stream(self.process.stdin).close()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()


def _best(f: Callable[[], Any], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times)


def roofs() -> tuple[float, float]:
    """(operations per second of the fastest product, bytes per second of the fastest addition)."""
    a = ad.ones(1024, 1024)
    flops = max(2 * 1024**3 / _best(f, 40) for f in (
        lambda: a @ a, lambda: np.matmul(a.numpy(), a.numpy())))
    x, y = ad.ones(1 << 24), ad.ones(1 << 24)
    raw, out = x.numpy(), np.empty(1 << 24, np.float32)
    moved = 12.0 * (1 << 24)
    return flops, max(moved / _best(f, 25) for f in (
        lambda: x + y, lambda: np.add(raw, raw, out=out)))


def _line(name: str, done: Sequence[_Process], roof: tuple[float, float]) -> str:
    ours = done[0]
    median = statistics.median(ours.times)
    about = ours.about
    share = " " * 22
    for kind, unit, most in (("flop", "GFLOP/s", roof[0]), ("bytes", "GB/s", roof[1])):
        amount = about[kind]
        if amount:
            share = f"{amount / median / 1e9:7.1f} {unit:7} {amount / median / most:6.0%}"
    parts = []
    for p in done[1:]:
        if "error" in p.about:
            parts.append(f"{p.peer} failed: {p.about['error']}")
            continue
        ratio = median / statistics.median(p.times)
        off = abs(p.about["check"] - about["check"]) > _AGREE * abs(about["check"])
        drawn = "dropout" in name       # masks differ among peers
        parts.append(f"{p.peer} {ratio:5.2f}x" + (" (values differ!)" if off and not drawn else ""))
    return f"{name:26} {median * 1e3:9.3f} ms  {share}  {'  '.join(parts)}"


def measure(name: str, peers: Sequence[str], rounds: int, seconds: float, threads: int
            ) -> list[_Process]:
    """This package and the peers on one workload, taking turns."""
    able = [p for p in peers if p != "jax" or name in JAX]
    done: list[_Process] = []
    with ExitStack() as ended:
        for peer in ("adjoint", *able):
            done.append(_Process(peer, name, threads))
            ended.callback(done[-1].close)
        for _ in range(rounds):
            for p in done:
                if "error" not in p.about:
                    p.run(seconds)
    return done


def _parser() -> Parser:
    parser = Parser(prog="adjoint bench", description=(__doc__ or "").split(
        "\n\n", 1)[1], formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE",
                        help="workloads by a part of their name; all unless given")
    parser.add_argument("--peers", default=",".join(PEERS),
                        help="peers to compare with (%(default)s)")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each peer (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of one turn (%(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="threads of every peer; all CPUs")
    parser.add_argument("--list", action="store_true", help="the names of the workloads")
    return parser


def run(argv: Sequence[str]) -> int:
    """The command: 0, 1 where this package failed on a workload, 2 for bad arguments."""
    if len(argv) == 4 and argv[0] == "--worker":
        return _worker(argv[1], argv[2], int(argv[3]))
    parser = _parser()
    options = parser.parse_args(list(argv))
    if options.list:
        print("\n".join(CASES))
        return 0
    wanted = [n for n in CASES if not options.cases or any(c in n for c in options.cases)]
    unknown = set(options.peers.split(",")) - set(PEERS) - {""}
    if not wanted or unknown or options.rounds < 1 or options.seconds <= 0 or options.threads < 0:
        parser.error(f"unknown peers {sorted(unknown)}; known are {', '.join(PEERS)}" if unknown
                     else f"no workload is called {' or '.join(options.cases)}: see --list"
                     if not wanted else "--rounds, --seconds and --threads have to be positive")
    return _table(wanted, options)


def _table(wanted: Sequence[str], options: argparse.Namespace) -> int:
    here = installed()
    peers = [p for p in options.peers.split(",") if p in here]
    missing = [p for p in options.peers.split(",") if p and p not in here]
    threads = options.threads or get_num_threads()
    roof = roofs()
    print(f"{choose.report()['cpu'] or platform.machine()}, {threads} threads, Python "
          f"{platform.python_version()}, NumPy {np.__version__}; roof {roof[0] / 1e9:.0f} GFLOP/s, "
          f"{roof[1] / 1e9:.1f} GB/s")
    if missing:
        print(f"not installed: {', '.join(missing)}")
    failed = 0
    for name in wanted:
        done = measure(name, peers, options.rounds, options.seconds, threads)
        if "error" in done[0].about or not done[0].times:
            failed = 1
            print(f"{name:26} failed: {done[0].about.get('error')}", flush=True)
        else:
            print(_line(name, done, roof), flush=True)
    return failed
