"""Machine code into memory: our own loader for what LLVM emits on x86-64 Linux.

A process whose kernels all lie in the disk cache needs LLVM for nothing but to place them: 50 ms
and 80 MB for what is a copy and some addresses. Kernels are compiled for the large code model, so
that an object is a few sections and one kind of relocation, "the address of that symbol, 8 bytes".
Each object gets one mapping: code and constants first, made readable and executable once they are
written (never writable and executable at once), then what the code writes to. Nothing is unmapped:
arrays are freed through kernels to the very end.

Whatever this loader does not know it refuses (`Unknown`) before anything is mapped; LLVM's own
loader (`kernels/llvm`) then has the object. Every offset is checked against the bytes it points
into: an object made of nonsense is refused as well.

Format: System V Application Binary Interface, chapters 4 (object files) and AMD64 supplement 4.4.
"""
from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_WORD = struct.Struct("<Q")
_IDENT = b"\x7fELF\x02\x01\x01"                       # 64 bits, little endian, version 1
_RELOCATABLE, _X86_64 = 1, 62
_PROGBITS, _SYMTAB, _RELA, _NOBITS, _REL, _UNWIND = 1, 2, 4, 8, 9, 0x70000001
_WRITE, _ALLOC, _TLS = 1, 2, 0x400
_ABSOLUTE, _RELATIVE = 1, 24                          # R_X86_64_64, R_X86_64_PC64
_UNDEFINED, _RESERVED = 0, 0xFF00                     # special section numbers of symbols
_KINDS = (0, 1, 2, 3)                                 # no type, data, function, section
_PAGE = 4096
_MOST = 64 << 20                                      # bytes that an object may come to
_READ, _READ_WRITE, _READ_RUN = 1, 3, 5
_PRIVATE_ANONYMOUS = 0x22


class Unknown(ValueError):
    """An object that this loader does not do."""


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class _Symbol(NamedTuple):
    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


class _Patch(NamedTuple):
    """Eight bytes to be written at `place` of the image: `value`, counted from the start of the
    image where `inside`, less the address of the bytes themselves where `relative`."""

    place: int
    value: int
    inside: bool
    relative: bool


def supported() -> bool:
    """Whether this loader is for the machine that runs it."""
    return (sys.platform == "linux" and os.uname().machine == "x86_64" and sys.maxsize > 2**32
            and os.sysconf("SC_PAGE_SIZE") == _PAGE)


def load(code: bytes, symbols: Iterable[str], links: Mapping[str, int]) -> dict[str, int]:
    """Place an object in memory for good; the addresses of the functions `symbols` of it.

    Args:
        code: a relocatable ELF object.
        symbols: names that it defines.
        links: addresses of functions that it calls; what is not among them is looked up in the
            process (the C library, the interpreter).

    Raises:
        Unknown: where the object has anything that this loader does not do, is damaged, lacks one
            of the symbols or needs one that is not there. Nothing has been mapped then.
    """
    if not supported():
        raise Unknown("this loader is for x86-64 Linux")
    try:
        image = _Image(code)
        patches = list(image.patches(links))
        places = {name: image.place(image.named(name)) for name in symbols}
    except (struct.error, IndexError, UnicodeError) as error:
        raise Unknown(f"not an object file: {error}") from None
    base = _placed(image, patches)
    return {name: base + place for name, place in places.items()}


class _Image:
    """What an object becomes in memory: `sealed` bytes to be read and run, then the others."""

    def __init__(self, code: bytes) -> None:
        self._code = code
        (ident, kind, machine, _, _, _, sections, _, _, _, _, size, count, _) = (
            _HEADER.unpack_from(code))
        if (not ident.startswith(_IDENT) or (kind, machine) != (_RELOCATABLE, _X86_64)
                or size != _SECTION.size):
            raise Unknown("not a relocatable object for x86-64")
        self._sections = [_Section(*s) for s in _SECTION.iter_unpack(
            self._bytes(sections, count * _SECTION.size))]
        tables = [i for i, s in enumerate(self._sections) if s.kind == _SYMTAB]
        if len(tables) != 1:
            raise Unknown(f"{len(tables)} symbol tables")
        self._table = tables[0]
        table = self._sections[self._table]
        self._symbols = [_Symbol(*s) for s in _SYMBOL.iter_unpack(
            self._bytes(table.offset, table.size))]
        names = self._sections[table.link]
        self._names = self._bytes(names.offset, names.size)
        self.sealed, self.size = 0, 0
        self._at: dict[int, int] = {}                  # number of a section -> its place
        self._lay()

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset + size > len(self._code):
            raise Unknown(f"{size} bytes at {offset} of {len(self._code)}")
        return self._code[offset:offset + size]

    def _lay(self) -> None:
        """Give every section that lies in memory its place. Tables for unwinding are left out: no
        exception passes through a kernel."""
        loaded = [(i, s) for i, s in enumerate(self._sections)
                  if s.flags & _ALLOC and s.kind != _UNWIND]
        for writable in (0, _WRITE):
            for i, s in loaded:
                if s.kind not in (_PROGBITS, _NOBITS) or s.flags & _TLS:
                    raise Unknown(f"a section of kind {s.kind:#x}, flags {s.flags:#x}")
                if s.flags & _WRITE == writable:
                    self._at[i] = self.size = _rounded(self.size, s.align)
                    self.size += s.size
                    if self.size > _MOST:
                        raise Unknown(f"more than {_MOST} bytes")
            self.size = _rounded(self.size, _PAGE)
            self.sealed = self.sealed if writable else self.size
        if not self.sealed:
            raise Unknown("nothing to run")

    def content(self) -> bytearray:
        """The bytes as the object has them."""
        found = bytearray(self.size)
        for i, place in self._at.items():
            s = self._sections[i]
            if s.kind == _PROGBITS:
                found[place:place + s.size] = self._bytes(s.offset, s.size)
        return found

    def patches(self, links: Mapping[str, int]) -> Iterator[_Patch]:
        """What has to be written into those bytes."""
        for s in self._sections:
            place = self._at.get(s.info)
            if place is None or s.kind not in (_RELA, _REL):
                continue
            target = self._sections[s.info]
            if s.kind == _REL or target.kind == _NOBITS or s.link != self._table:
                raise Unknown("relocations of another form")
            for offset, info, addend in _RELOCATION.iter_unpack(self._bytes(s.offset, s.size)):
                kind, symbol = info & 0xFFFFFFFF, self._symbols[info >> 32]
                if kind not in (_ABSOLUTE, _RELATIVE):
                    raise Unknown(f"a relocation of kind {kind}")
                if offset + _WORD.size > target.size:
                    raise Unknown(f"a relocation at {offset} of {target.size} bytes")
                inside = symbol.section != _UNDEFINED
                value = self.place(symbol) if inside else self._outside(symbol, links)
                yield _Patch(place + offset, value + addend, inside, kind == _RELATIVE)

    def place(self, symbol: _Symbol) -> int:
        """Where in the image a symbol lies that the object defines."""
        place = self._at.get(symbol.section)
        if (place is None or symbol.section >= _RESERVED or symbol.info & 15 not in _KINDS
                or symbol.value > self._sections[symbol.section].size):
            raise Unknown(f"a symbol of kind {symbol.info & 15} in section {symbol.section}")
        return place + symbol.value

    def named(self, name: str) -> _Symbol:
        """The symbol of that name that other code may use."""
        for symbol in self._symbols:
            if symbol.section != _UNDEFINED and symbol.info >> 4 and self._name(symbol) == name:
                return symbol
        raise Unknown(f"no symbol {name}")

    def _name(self, symbol: _Symbol) -> str:
        end = self._names.find(b"\0", symbol.name)
        if end < 0:
            raise Unknown("a name without an end")
        return self._names[symbol.name:end].decode()

    def _outside(self, symbol: _Symbol, links: Mapping[str, int]) -> int:
        name = self._name(symbol)
        found = links.get(name) or process(name)
        if not found:
            raise Unknown(f"no symbol {name!r} in the process")
        return found


def _rounded(size: int, align: int) -> int:
    if align & (align - 1) or align > _PAGE:
        raise Unknown(f"an alignment of {align}")
    return -(-size // max(align, 1)) * max(align, 1)


def _placed(image: _Image, patches: Iterable[_Patch]) -> int:
    """Map the image, written and sealed; the answer is where it begins."""
    content = image.content()
    system = _system()
    base = system.mmap(None, len(content), _READ_WRITE, _PRIVATE_ANONYMOUS, -1, 0)
    if base in (None, 2**64 - 1):
        raise Unknown(f"no memory for {len(content)} bytes: {os.strerror(ctypes.get_errno())}")
    for place, value, inside, relative in patches:
        where = value + (base if inside else 0) - (base + place if relative else 0)
        _WORD.pack_into(content, place, where & (2**64 - 1))
    ctypes.memmove(base, (ctypes.c_char * len(content)).from_buffer(content), len(content))
    if system.mprotect(base, image.sealed, _READ_RUN):
        reason = os.strerror(ctypes.get_errno())
        system.munmap(base, len(content))
        raise Unknown(f"memory cannot be made executable: {reason}")
    return int(base)


@functools.cache
def _system() -> ctypes.PyDLL:
    """The process, with the functions used here declared. They keep the GIL: a fork, which needs
    it, never comes while another thread is inside the lock of `dlsym`."""
    library = ctypes.PyDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.mmap.restype = pointer
    library.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_int64]
    library.mprotect.argtypes = [pointer, size, number]
    library.munmap.argtypes = [pointer, size]
    library.dlsym.restype, library.dlsym.argtypes = pointer, [pointer, ctypes.c_char_p]
    return library


@functools.cache
def process(name: str) -> int:
    """The address of a symbol of the process; 0 where there is none."""
    library = _system()
    return int(library.dlsym(library._handle, name.encode()) or 0)
