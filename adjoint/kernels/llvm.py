"""LLVM through llvmlite: IR text in, callable addresses out.

    if available():
        module = compile_ir(text, name="gelu")          # from the disk cache, or compiled (once)
        f = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(module.address("gelu"))

llvmlite is optional and is imported on first use, never at import of this module. Code is
compiled for the CPU that runs it. `compile_ir` is keyed by the IR text; `compile_spec` by a short
description and the sources of this folder, so that a cached kernel does not even have its IR
generated. Both also key on the CPU and the versions of LLVM and llvmlite. Symbols that the IR
declares and does not define are resolved in the running process (libm, malloc, ...).
"""
from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from adjoint.base.errors import NotSupported
from adjoint.kernels.cache import Entry, Store, default_directory, key_of

_PIPELINE = "3"         # to be raised when `run_passes` or the target options change
_lock = threading.RLock()
_state: dict[str, Any] = {}
_modules: dict[str, Module] = {}
_NOTHING: Mapping[str, int] = {}
_DEFINE = re.compile(r"^define (?!internal\b|private\b)[^@]*@\"?([\w.$]+)", re.MULTILINE)


class Module:
    """Loaded machine code. Lives as long as the process: its addresses stay valid."""

    def __init__(self, name: str, library: Any, symbols: tuple[str, ...], cached: bool) -> None:
        self.name = name
        self.symbols = symbols
        self.from_cache = cached
        self._library = library
        self._addresses = {s: int(library[s]) for s in symbols}

    def address(self, symbol: str) -> int:
        """The address of a function that the IR defines (KeyError where it does not)."""
        return self._addresses[symbol]

    def __repr__(self) -> str:
        origin = "cache" if self.from_cache else "compiled"
        return f"<kernel module {self.name}: {', '.join(self.symbols)} ({origin})>"


def available() -> bool:
    """Whether generated kernels can be used: llvmlite imports and `ADJOINT_JIT` is not 0."""
    found: bool | None = _state.get("available")
    if found is None:
        found = _state["available"] = _probe()
    return found


def _probe() -> bool:
    if os.environ.get("ADJOINT_JIT", "1").lower() in ("0", "false", "off", "no"):
        return False
    if sys.byteorder != "little" or sys.maxsize < 2**32:
        return False
    try:
        binding = importlib.import_module("llvmlite.binding")
        if binding.llvm_version_info < (20,):  # splat constants, LLJIT
            return False
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        if not _fast_enough(_features(binding)):
            return False
        _state["binding"] = binding
        _state["machine"] = _machine(binding)
    except Exception:  # a broken installation is the same as none: NumPy computes
        return False
    return True


def _fast_enough(features: frozenset[str]) -> bool:
    """Generated code is made of fused multiply-adds: x86 has to have them (with AVX2)."""
    return (platform.machine() not in ("x86_64", "AMD64", "i386", "i686")
            or {"avx2", "fma"} <= features)


def _machine(binding: Any) -> Any:
    """LLVM's code generator for this CPU.

    Level 1: the next one takes a tenth longer and makes code that is no faster.
    """
    name, features = host_name(binding), host_features_text(binding)
    return binding.Target.from_default_triple().create_target_machine(
        cpu=name, features=features, opt=1)


def host_name(binding: Any) -> str:
    """LLVM's name of the CPU (`$ADJOINT_CPU` overrides it: "x86-64-v3" tries AVX2 code)."""
    return os.environ.get("ADJOINT_CPU") or str(binding.get_host_cpu_name())


def host_features_text(binding: Any) -> str:
    """The CPU's features as LLVM's "+a,-b" list; empty where `$ADJOINT_CPU` names a CPU."""
    if os.environ.get("ADJOINT_CPU"):
        return ""
    try:
        return str(binding.get_host_cpu_features().flatten())
    except RuntimeError:
        return ""


def _need() -> Any:
    if not available():
        raise NotSupported("generated kernels need llvmlite (pip install 'adjoint[jit]') and "
                           "ADJOINT_JIT not 0; use the NumPy implementation")
    return _state["binding"]


@functools.cache
def host_features() -> frozenset[str]:
    """Names of the CPU features that generated code may use ("avx512f", "fma", "neon", ...).

    Empty where `available()` is False.
    """
    if not available():
        return frozenset()
    return _features(_need())


def _features(binding: Any) -> frozenset[str]:
    chosen = os.environ.get("ADJOINT_CPU")
    if chosen:
        table = {"x86-64-v3": "sse2 sse4.2 avx avx2 fma f16c bmi2", "x86-64-v4":
                 "sse2 sse4.2 avx avx2 fma f16c bmi2 avx512f avx512vl avx512dq avx512bw"}
        return frozenset(table.get(chosen, "").split())
    try:
        features = binding.get_host_cpu_features()
    except RuntimeError:
        return frozenset()
    return frozenset(k for k, on in features.items() if on)


@functools.cache
def vector_bits() -> int:
    """Width in bits of the vectors to generate: 512 (AVX-512), 256 (AVX2) or 128."""
    features = host_features()
    if {"avx512f", "avx512vl", "avx512dq"} <= features:
        return 512
    return 256 if {"avx2", "fma"} <= features else 128


@functools.cache
def cache_bytes() -> int:
    """Size in bytes of the last-level cache: what Linux says of the first CPU, else 32 MiB.

    >>> cache_bytes() > 0
    True
    """
    found = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        told = re.fullmatch(r"(\d+)([KMG]?)", path.read_text().strip())
        if told is not None:
            found.append(int(told[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[told[2]])
    return max(found, default=0) or 32 << 20


@functools.cache
def fingerprint() -> str:
    """What compiled code depends on beside its text: CPU, LLVM, llvmlite, how we compile."""
    binding = _need()
    llvmlite = importlib.import_module("llvmlite")
    return "|".join([_PIPELINE, host_name(binding), host_features_text(binding),
                     str(llvmlite.__version__), str(binding.llvm_version_info),
                     str(vector_bits()), str(binding.get_default_triple())])


@functools.cache
def generator_fingerprint() -> str:
    """A digest of the sources that generate kernels (part of the key of `compile_spec`)."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@functools.cache
def store() -> Store:
    """The disk cache (`$ADJOINT_CACHE_DIR`; `$ADJOINT_CACHE_MB` bounds it, 256 MB unless said)."""
    megabytes = int(os.environ.get("ADJOINT_CACHE_MB", "256"))
    return Store(default_directory(), megabytes << 20)


def compile_ir(ir: str, *, name: str, opt: int = 0, vectorize: bool = False) -> Module:
    """The module of that IR text: loaded before, from the disk cache, or compiled now.

    Args:
        ir: LLVM IR; each `define` that is not internal becomes a symbol of the module.
        name: what the code is, for messages.
        opt: optimisation level of the passes, 0 to 3.
        vectorize: run LLVM's loop and SLP vectorizers too (code that already uses vector types
            does not need them and compiles faster without).

    Raises:
        NotSupported: where `available()` is False.
        RuntimeError: where the IR does not parse or verify.

    >>> from adjoint.kernels import llvm
    >>> text = "define i64 @twice(i64 %x) {\\n %y = add i64 %x, %x\\n ret i64 %y\\n}"
    >>> if llvm.available():
    ...     assert llvm.compile_ir(text, name="twice").address("twice") > 0
    """
    return compile_spec(("ir", ir), lambda: ir, name=name, opt=opt, vectorize=vectorize)


def compile_spec(spec: tuple[str, ...], make: Callable[[], str], *, name: str, opt: int = 0,
                 vectorize: bool = False, links: Mapping[str, int] = _NOTHING) -> Module:
    """The module described by `spec`; `make()` returns its IR and is called only to compile.

    `spec` has to determine the IR together with the sources of this folder and the CPU: it is the
    key of the disk cache. `links` are the addresses of functions that the IR declares and other
    modules define; what is cached does not hold them, so that they are no part of the key.
    Arguments and errors are else those of `compile_ir`.
    """
    _need()
    sources = () if spec[0] == "ir" else (generator_fingerprint(),)
    key = key_of(*spec, *sources, fingerprint(), f"O{opt}{int(vectorize)}")
    module = _modules.get(key)
    if module is None:
        with _lock:
            module = _modules.get(key)
            if module is None:
                module = _modules[key] = _load(key, make, name, opt, vectorize, links)
    return module


def _load(key: str, make: Callable[[], str], name: str, opt: int, vectorize: bool,
          links: Mapping[str, int]) -> Module:
    entry = store().get(key)
    if entry is not None:
        try:
            return _link(name, entry, links, cached=True)
        except (RuntimeError, KeyError):
            entry = None
    ir = make()
    entry = Entry(tuple(_DEFINE.findall(ir)), _compile(ir, name, opt, vectorize))
    store().put(key, entry)
    return _link(name, entry, links, cached=False)


def _compile(ir: str, name: str, opt: int, vectorize: bool) -> bytes:
    binding, machine = _state["binding"], _state["machine"]
    try:
        module = binding.parse_assembly(ir)
        module.verify()
    except RuntimeError as error:
        raise RuntimeError(f"kernel {name}: the generated IR is not valid: {error}") from None
    run_passes(module, machine, opt, vectorize)
    return bytes(machine.emit_object(module))


def run_passes(module: Any, machine: Any, opt: int, vectorize: bool) -> None:
    """Optimise an llvmlite module in place with LLVM's standard pipeline at that level."""
    binding = _state["binding"]
    options = binding.create_pipeline_tuning_options(speed_level=opt)
    options.loop_vectorization = options.slp_vectorization = vectorize
    options.loop_unrolling = options.loop_interleaving = vectorize
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def assembly(ir: str, *, opt: int = 2, vectorize: bool = False) -> str:
    """The machine code of an IR text as assembly, for reading."""
    module = _need().parse_assembly(ir)
    run_passes(module, _state["machine"], opt, vectorize)
    return str(_state["machine"].emit_assembly(module))


def _link(name: str, entry: Entry, links: Mapping[str, int], cached: bool) -> Module:
    binding = _state["binding"]
    jit = _state.get("jit")
    if jit is None:
        machine = _machine(binding)
        jit = _state["jit"] = binding.create_lljit_compiler(machine, use_jit_link=False)
        _immortal(jit)
    _state["count"] = count = _state.get("count", 0) + 1
    builder = binding.JITLibraryBuilder().add_object_img(entry.code).add_current_process()
    for symbol in entry.symbols:
        builder = builder.export_symbol(symbol)
    for symbol, address in links.items():
        builder = builder.import_symbol(symbol, address)
    return Module(name, _immortal(builder.link(jit, f"adjoint{count}")), entry.symbols, cached)


def _immortal(thing: Any) -> Any:
    """Keep machine code to the very end: arrays are freed through it after modules are gone."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


def loaded() -> Iterator[Module]:
    """Every module that this process has loaded."""
    return iter(list(_modules.values()))


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
