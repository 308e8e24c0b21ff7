"""Tables of keys and bytes that processes share: in memory, in a file, behind a TCP port.

Every kind answers the same few questions, `_ask(what, words)` with words of bytes; what they mean
is said once, in `_Table`. Reading a key waits for it, at most for the store's timeout.
"""
from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import IO, Any

from adjoint.base.errors import ArgumentError, NotSupported
from adjoint.distributed.transport import DistributedError, reached, taken

_LENGTH = struct.Struct("<I")
_DEFAULT = timedelta(minutes=5)
_JOINED = "init/"               # how many processes have come to a store behind a port
Words = Sequence[bytes]


def _packed(words: Words) -> bytes:
    return b"".join(part for word in words for part in (_LENGTH.pack(len(word)), word))


def _unpacked(data: bytes) -> list[bytes]:
    words, at = [], 0
    while at < len(data):
        size, = _LENGTH.unpack_from(data, at)
        words.append(data[at + 4:at + 4 + size])
        at += 4 + size
    return words


class _Table:
    """What the questions mean for a dict. `ready` is notified of every change."""

    def __init__(self, content: dict[bytes, bytes] | None = None) -> None:
        self.content = {} if content is None else content
        self.ready = threading.Condition()

    def answer(self, what: str, words: Words) -> list[bytes]:
        """The answer at once; a missing key of "get" is no word."""
        with self.ready:
            found: list[bytes] = getattr(self, "_" + what)(*words)
            self.ready.notify_all()
        return found

    def wait(self, keys: Words, seconds: float) -> bool:
        """Whether all keys come within that time."""
        with self.ready:
            return self.ready.wait_for(lambda: all(k in self.content for k in keys), seconds)

    def _set(self, *pairs: bytes) -> list[bytes]:
        self.content.update(zip(pairs[::2], pairs[1::2], strict=True))
        return []

    def _get(self, *keys: bytes) -> list[bytes]:
        return [self.content[k] for k in keys if k in self.content]

    def _add(self, key: bytes, amount: bytes) -> list[bytes]:
        total = b"%d" % (int(self.content.get(key, b"0")) + int(amount))
        self.content[key] = total
        return [total]

    def _append(self, key: bytes, value: bytes) -> list[bytes]:
        self.content[key] = self.content.get(key, b"") + value
        return []

    def _compare_set(self, key: bytes, expected: bytes, desired: bytes) -> list[bytes]:
        now = self.content.get(key)
        if now == expected or now is None and not expected:
            self.content[key] = desired
        return [self.content.get(key, expected)]

    def _delete(self, key: bytes) -> list[bytes]:
        return [b"1"] if self.content.pop(key, None) is not None else []

    def _count(self) -> list[bytes]:
        return [b"%d" % len(self.content)]


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _seconds(timeout: timedelta) -> float:
    if not isinstance(timeout, timedelta):
        raise TypeError(f"a timeout is a datetime.timedelta, not {type(timeout).__name__}")
    return timeout.total_seconds()


class Store:
    """A table of keys and bytes that processes share; its kinds say where it is."""

    _timeout = _DEFAULT

    def _ask(self, what: str, words: Words) -> list[bytes]:
        raise NotImplementedError(f"{type(self).__name__} does not say where its keys are")

    def _wait(self, keys: Words, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while len(self._ask("get", keys)) < len(keys):
            if time.monotonic() >= until:
                return False
            time.sleep(0.005)
        return True

    @property
    def timeout(self) -> timedelta:
        """How long reading waits for a key."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Let reading wait that long."""
        _seconds(timeout)
        self._timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        """Write a key."""
        self._ask("set", [_bytes(key), _bytes(value)])

    def get(self, key: str) -> bytes:
        """The bytes of a key, once it is there."""
        return self.multi_get([key])[0]

    def multi_get(self, keys: Iterable[str]) -> list[bytes]:
        """The bytes of several keys, once all are there."""
        wanted = list(keys)
        self.wait(wanted)
        return self._ask("get", [_bytes(k) for k in wanted])

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Write several keys."""
        if len(keys) != len(values):
            raise ArgumentError("multi_set keys and values vectors must be of same size")
        self._ask("set", [_bytes(w) for pair in zip(keys, values, strict=True) for w in pair])

    def add(self, key: str, amount: int) -> int:
        """Add to the number that a key holds (0 where it is not there); the sum."""
        return int(self._ask("add", [_bytes(key), b"%d" % amount])[0])

    def append(self, key: str, value: str | bytes) -> None:
        """Write behind what a key holds."""
        self._ask("append", [_bytes(key), _bytes(value)])

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        """Write a key if it holds `expected_value` (or is not there, and that is empty); what it
        holds then."""
        return self._ask("compare_set", [_bytes(w) for w in (key, expected_value, desired_value)
                                         ])[0]

    def check(self, keys: Iterable[str]) -> bool:
        """Whether all keys are there."""
        wanted = [_bytes(k) for k in keys]
        return len(self._ask("get", wanted)) == len(wanted)

    def wait(self, keys: Iterable[str], timeout: timedelta | None = None) -> None:
        """Return when all keys are there; DistributedError where they do not come in time."""
        wanted = list(keys)
        seconds = _seconds(self.timeout if timeout is None else timeout)
        if not self._wait([_bytes(k) for k in wanted], seconds):
            raise DistributedError(f"wait timeout after {seconds * 1000:.0f}ms, keys: "
                                   f"{', '.join(wanted)}")

    def delete_key(self, key: str) -> bool:
        """Take a key away; whether it was there."""
        return bool(self._ask("delete", [_bytes(key)]))

    def num_keys(self) -> int:
        """How many keys there are."""
        return int(self._ask("count", [])[0])

    def has_extended_api(self) -> bool:
        """True: `append`, `multi_get` and `multi_set` are there."""
        return True


class HashStore(Store):
    """A table in the memory of this process, for its threads.

    >>> store = HashStore()
    >>> store.set("a", "1"); store.get("a"), store.add("n", 2), store.check(["b"])
    (b'1', 2, False)
    """

    def __init__(self) -> None:
        self._table = _Table()

    def _ask(self, what: str, words: Words) -> list[bytes]:
        return self._table.answer(what, words)

    def _wait(self, keys: Words, seconds: float) -> bool:
        return self._table.wait(keys, seconds)

    def clone(self) -> HashStore:
        """Another handle of the same table."""
        other = HashStore()
        other._table, other._timeout = self._table, self._timeout
        return other


def _alone(file: IO[bytes]) -> None:
    """Wait until no other process has the file, until it is closed."""
    try:
        import fcntl
    except ImportError as error:                    # Windows
        raise NotSupported("FileStore needs the file locks of POSIX systems; TCPStore works "
                           "everywhere") from error
    fcntl.flock(file, fcntl.LOCK_EX)


class FileStore(Store):
    """A table in a file, for the processes that see it. `world_size` is how many use it, where that
    is known."""

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        self._path, self.world_size = os.fspath(file_name), world_size
        with open(self._path, "ab"):
            pass

    @property
    def path(self) -> str:
        """The file."""
        return self._path

    def _ask(self, what: str, words: Words) -> list[bytes]:
        with open(self._path, "r+b") as file:
            _alone(file)
            held = _unpacked(file.read())
            before = dict(zip(held[::2], held[1::2], strict=True))
            table = _Table(dict(before))
            found = table.answer(what, words)
            if table.content != before:
                file.seek(0)
                file.truncate()
                file.write(_packed([w for pair in table.content.items() for w in pair]))
        return found


class PrefixStore(Store):
    """The keys of another store that begin with a prefix, without it."""

    def __init__(self, prefix: str, store: Store) -> None:
        self.prefix, self._store = prefix, store

    @property
    def underlying_store(self) -> Store:
        """The other store."""
        return self._store

    @property
    def timeout(self) -> timedelta:
        """That of the other store."""
        return self._store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set that of the other store."""
        self._store.set_timeout(timeout)

    def _key(self, key: bytes) -> bytes:
        return self.prefix.encode() + b"/" + key

    def _ask(self, what: str, words: Words) -> list[bytes]:
        every = {"get": 1, "set": 2}.get(what, len(words) + 1)      # a key among so many words
        return self._store._ask(what, [self._key(w) if not i % every else w
                                       for i, w in enumerate(words)])

    def _wait(self, keys: Words, seconds: float) -> bool:
        return self._store._wait([self._key(k) for k in keys], seconds)


def _send(link: socket.socket, words: Words) -> None:
    data = _packed(words)
    link.sendall(_LENGTH.pack(len(data)) + data)


def _receive(link: socket.socket) -> list[bytes]:
    size, = _LENGTH.unpack(taken(link, _LENGTH.size))
    return _unpacked(taken(link, size))


class _Server:
    """A table behind a port; a thread answers each process that comes."""

    def __init__(self, host: str, port: int) -> None:
        self.table = _Table()
        self.listening = socket.create_server((host, port), backlog=1024)
        self.port = int(self.listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self.listening.accept()
            except OSError:                 # it was closed
                return
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with link:
            try:
                while True:
                    what, *words = _receive(link)
                    if what == b"wait":
                        there = self.table.wait(words[1:], float(words[0]))
                        _send(link, [b"1"] if there else [])
                    else:
                        _send(link, self.table.answer(what.decode(), words))
            except OSError:                 # the process has ended
                return


class TCPStore(Store):
    """A table behind a port: of this process where `is_master`, else of that at `host_name`. The
    master waits until `world_size` processes have come, itself among them; port 0 chooses one.

    >>> store = TCPStore("127.0.0.1", 0, is_master=True)
    >>> other = TCPStore("127.0.0.1", store.port)
    >>> other.set("a", "1"); store.get("a")
    b'1'
    """

    def __init__(self, host_name: str, port: int, world_size: int | None = None,
                 is_master: bool = False, timeout: timedelta = _DEFAULT,
                 wait_for_workers: bool = True, multi_tenant: bool = False,
                 master_listen_fd: int | None = None, use_libuv: bool = True) -> None:
        if master_listen_fd is not None:
            raise NotSupported("TCPStore: the port is opened by the store; give its number in "
                               "place of master_listen_fd")
        self._timeout, self.host, self._lock = timeout, host_name, threading.Lock()
        try:
            self._server = _Server(host_name, port) if is_master else None
        except OSError as error:
            raise DistributedError(f"The server socket has failed to listen on {host_name}:{port} "
                                   f"({error})") from None
        self.port = port if self._server is None else self._server.port
        self._link = self._connected(_seconds(timeout))
        self.add(_JOINED, 1)
        if is_master and wait_for_workers and world_size is not None and world_size > 0:
            self._all_here(world_size, _seconds(timeout))

    def _connected(self, seconds: float) -> socket.socket:
        try:
            return reached(self.host, self.port, time.monotonic() + seconds)
        except OSError as error:
            raise DistributedError(f"The client socket has failed to connect to "
                                   f"{self.host}:{self.port} ({error})") from None

    def _all_here(self, world_size: int, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (here := self.add(_JOINED, 0)) < world_size:
            if time.monotonic() >= until:
                raise DistributedError(f"Timed out after {seconds:g} seconds waiting for clients. "
                                       f"{here}/{world_size} clients joined.")
            time.sleep(0.005)

    def _ask(self, what: str, words: Words) -> list[bytes]:
        try:
            with self._lock:
                self._link.settimeout(None)
                _send(self._link, [what.encode(), *words])
                return _receive(self._link)
        except OSError as error:
            raise DistributedError(f"TCPStore: the store at {self.host}:{self.port} is gone "
                                   f"({error})") from None

    def _wait(self, keys: Words, seconds: float) -> bool:
        return bool(self._ask("wait", [b"%r" % seconds, *keys]))

    def __del__(self) -> None:
        for held in (getattr(self, "_link", None), self.__dict__.get("_server")):
            if held is not None:
                (held.listening if isinstance(held, _Server) else held).close()


__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]
