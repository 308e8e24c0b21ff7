"""How bytes get from one process of a group to another: TCP connections between all pairs, or MPI.

Both sides of every transfer know its size; a header is sent along, so that ranks which call
different collectives find out instead of waiting for each other.
"""
from __future__ import annotations

import json
import selectors
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from adjoint.base.errors import AdjointError, NotSupported

_HEAD = struct.Struct("<QQ")        # payload bytes, tag
_CHUNK = 1 << 20


class DistributedError(AdjointError, RuntimeError):
    """A process of the group is gone, late, or does something else than the others."""


class Transport(Protocol):
    """What the collectives need."""

    rank: int
    size: int

    def exchange(self, sends: Mapping[int, Any], receives: Mapping[int, Any], tag: int = 0,
                 what: str = "exchange") -> None:
        """Send buffers to ranks and fill buffers from ranks, all at once."""

    def close(self) -> None:
        """Leave the group."""


def _octets(buffer: Any) -> memoryview:
    """The memory of a contiguous array of any dtype, or of another buffer, as bytes."""
    if isinstance(buffer, np.ndarray):
        return buffer.reshape(-1).view(np.uint8).data
    return memoryview(buffer).cast("B")


class _Stream:
    """One direction of one connection during an exchange."""

    def __init__(self, peer: int, head: bytearray, body: Any) -> None:
        self.peer, self.head, self.body = peer, memoryview(head), _octets(body)
        self.done = 0

    @property
    def left(self) -> int:
        """Bytes that have not passed yet."""
        return len(self.head) + len(self.body) - self.done

    def window(self) -> memoryview:
        """What is to pass next."""
        if self.done < len(self.head):
            return self.head[self.done:]
        at = self.done - len(self.head)
        return self.body[at:at + _CHUNK]


class Sockets:
    """A TCP connection between every two ranks; rank 0 introduces them to each other."""

    def __init__(self, host: str, port: int, rank: int, size: int, timeout: float) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self.links: dict[int, socket.socket] = {}
        deadline = time.monotonic() + timeout
        try:
            if size > 1 and rank == 0:
                self._introduce(host, port, deadline)
            elif size > 1:
                self._join(host, port, deadline)
        except BaseException:
            self.close()
            raise
        for link in self.links.values():
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setblocking(False)

    def _introduce(self, host: str, port: int, deadline: float) -> None:
        """Rank 0: take everybody's address, tell everybody all of them."""
        with socket.create_server((host, port), backlog=self.size) as server:
            places: dict[int, tuple[str, int]] = {}
            while len(places) < self.size - 1:
                server.settimeout(max(deadline - time.monotonic(), 0.001))
                try:
                    link, address = server.accept()
                except TimeoutError:
                    missing = sorted(set(range(1, self.size)) - set(places))
                    raise DistributedError(
                        f"init_process_group: {self.timeout:g} s over and ranks {missing} have not "
                        f"come to {host}:{port}") from None
                link.settimeout(self.timeout)
                hello = _receive_json(link)
                peer = hello.get("rank")
                if hello.get("size") != self.size or peer in places or peer == 0:
                    _send_json(link, {"error": f"rank {peer} of {hello.get('size')} does not fit a "
                                      f"group of {self.size}, or is there already"})
                    link.close()
                    raise DistributedError(f"init_process_group: a process called itself rank "
                                           f"{peer} of {hello.get('size')}; this group has "
                                           f"{self.size} ranks, each once")
                self.links[peer] = link
                places[peer] = (address[0], hello["port"])
        for link in self.links.values():
            _send_json(link, {"places": {str(r): list(p) for r, p in places.items()}})

    def _join(self, host: str, port: int, deadline: float) -> None:
        """Others: introduce oneself to rank 0, then connect to the ranks below."""
        first = _connect(host, port, deadline, self.timeout)
        self.links[0] = first
        with socket.create_server((first.getsockname()[0], 0), backlog=self.size) as server:
            _send_json(first, {"rank": self.rank, "size": self.size,
                               "port": server.getsockname()[1]})
            answer = _receive_json(first)
            if "error" in answer:
                raise DistributedError(f"init_process_group: {answer['error']}")
            places = {int(r): p for r, p in answer["places"].items()}
            for peer in range(1, self.rank):
                there, its_port = places[peer]
                link = _connect(there, int(its_port), deadline, self.timeout)
                _send_json(link, {"rank": self.rank})
                self.links[peer] = link
            server.settimeout(self.timeout)
            while len(self.links) < self.size - 1:
                link, _ = server.accept()
                link.settimeout(self.timeout)
                self.links[_receive_json(link)["rank"]] = link

    def exchange(self, sends: Mapping[int, Any], receives: Mapping[int, Any], tag: int = 0,
                 what: str = "exchange") -> None:
        """See `Transport`; no order among the peers, so that no two ranks can block each other."""
        out = {p: _Stream(p, bytearray(_HEAD.pack(_octets(b).nbytes, tag)), b)
               for p, b in sends.items()}
        into = {p: _Stream(p, bytearray(_HEAD.size), b) for p, b in receives.items()}
        deadline = time.monotonic() + self.timeout
        with selectors.DefaultSelector() as selector:
            for peer in {*out, *into}:
                self._watch(selector, peer, out, into)
            while out or into:
                ready = selector.select(min(1.0, max(deadline - time.monotonic(), 0.0)))
                if not ready and time.monotonic() >= deadline:
                    raise DistributedError(
                        f"{what}: rank {self.rank} waited {self.timeout:g} s for ranks "
                        f"{sorted({*out, *into})}; they are late, or do not call {what}")
                for key, events in ready:
                    peer = key.data
                    if events & selectors.EVENT_WRITE and peer in out:
                        self._write(peer, out, what)
                    if events & selectors.EVENT_READ and peer in into:
                        self._read(peer, into, tag, what)
                    self._watch(selector, peer, out, into)

    def _watch(self, selector: Any, peer: int, out: dict[int, _Stream],
               into: dict[int, _Stream]) -> None:
        link = self.links[peer]
        wanted = (selectors.EVENT_WRITE if peer in out else 0) \
            | (selectors.EVENT_READ if peer in into else 0)
        known = selector.get_map().get(link.fileno()) if link.fileno() >= 0 else None
        if known is None and wanted:
            selector.register(link, wanted, peer)
        elif known is not None and not wanted:
            selector.unregister(link)
        elif known is not None and known.events != wanted:
            selector.modify(link, wanted, peer)

    def _write(self, peer: int, out: dict[int, _Stream], what: str) -> None:
        stream = out[peer]
        try:
            stream.done += self.links[peer].send(stream.window())
        except BlockingIOError:
            return
        except OSError as error:
            raise self._gone(peer, what, error) from None
        if not stream.left:
            del out[peer]

    def _read(self, peer: int, into: dict[int, _Stream], tag: int, what: str) -> None:
        stream = into[peer]
        try:
            n = self.links[peer].recv_into(stream.window())
        except BlockingIOError:
            return
        except OSError as error:
            raise self._gone(peer, what, error) from None
        if not n:
            raise self._gone(peer, what, None)
        before, stream.done = stream.done, stream.done + n
        if before < _HEAD.size <= stream.done:
            length, sent_tag = _HEAD.unpack(stream.head)
            if (length, sent_tag) != (len(stream.body), tag):
                raise DistributedError(
                    f"{what}: rank {peer} sent {length} bytes (tag {sent_tag}) where rank "
                    f"{self.rank} expects {len(stream.body)} (tag {tag}): the ranks call different "
                    "collectives, or with tensors of different sizes")
        if not stream.left:
            del into[peer]

    def _gone(self, peer: int, what: str, error: OSError | None) -> DistributedError:
        return DistributedError(f"{what}: the connection from rank {self.rank} to rank {peer} is "
                                f"closed ({error or 'the process ended'})")

    def close(self) -> None:
        """Close every connection."""
        for link in self.links.values():
            link.close()
        self.links.clear()


def free_port(host: str = "127.0.0.1") -> int:
    """The number of a port that nobody listens at."""
    with socket.socket() as free:
        free.bind((host, 0))
        return int(free.getsockname()[1])


def reached(host: str, port: int, deadline: float) -> socket.socket:
    """A connection, tried again until the other side listens; OSError once `deadline` is over."""
    while True:
        try:
            return socket.create_connection((host, port), max(deadline - time.monotonic(), 0.001))
        except (ConnectionRefusedError, TimeoutError, socket.gaierror):
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.02)


def taken(link: socket.socket, size: int) -> bytes:
    """The next so many bytes of a connection; ConnectionError where it ends before."""
    data = bytearray()
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionError("the other side closed the connection")
        data += part
    return bytes(data)


def _connect(host: str, port: int, deadline: float, timeout: float) -> socket.socket:
    try:
        link = reached(host, port, deadline)
    except OSError as error:
        raise DistributedError(f"init_process_group: nobody answers at {host}:{port} within "
                               f"{timeout:g} s ({error})") from None
    link.settimeout(timeout)
    return link


def _send_json(link: socket.socket, value: Any) -> None:
    data = json.dumps(value).encode()
    link.sendall(_HEAD.pack(len(data), 0) + data)


def _receive_json(link: socket.socket) -> Any:
    try:
        length, _ = _HEAD.unpack(taken(link, _HEAD.size))
        if length > 1 << 20:
            raise DistributedError("init_process_group: something else answers at this address")
        return json.loads(taken(link, length))
    except ConnectionError as error:
        raise DistributedError(f"init_process_group: {error}") from None


class Mpi:
    """The same through mpi4py: ranks are those of COMM_WORLD."""

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except ImportError:
            raise NotSupported("backend 'mpi' needs mpi4py: pip install mpi4py") from None
        self._mpi, self._world = MPI, MPI.COMM_WORLD
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()

    def exchange(self, sends: Mapping[int, Any], receives: Mapping[int, Any], tag: int = 0,
                 what: str = "exchange") -> None:
        """See `Transport`."""
        waits = [self._world.Irecv(_octets(b), p, tag) for p, b in receives.items()]
        waits += [self._world.Isend(_octets(b), p, tag) for p, b in sends.items()]
        self._mpi.Request.Waitall(waits)

    def close(self) -> None:
        """MPI itself ends with the process."""
