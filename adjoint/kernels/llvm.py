"""LLVM through llvmlite: IR text in, callable addresses out.

    if available():
        module = compile_ir(text, name="gelu")          # from the disk cache, or compiled (once)
        f = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(module.address("gelu"))

llvmlite is optional and is imported on first use, never at import of this module; LLVM itself is
loaded when first something has to be compiled: what it says of the machine is remembered
(`kernels/host`), and objects are placed by a loader of our own (`kernels/elf`). Code is compiled
for the CPU that runs it. `compile_ir` is keyed by the IR text; `compile_spec` by a short
description and the sources of this folder, so that a cached kernel does not even have its IR
generated. Both also key on the CPU and the versions of LLVM and llvmlite. Symbols that the IR
declares and does not define are resolved in the running process (libm, malloc, ...).
"""
from __future__ import annotations

import ctypes
import functools
import importlib
import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from adjoint.base.errors import CompilerLost, NotSupported
from adjoint.base.provenance import warn
from adjoint.kernels import elf, host, sources
from adjoint.kernels.cache import Entry, Store, default_directory, key_of
from adjoint.kernels.host import Host

_PIPELINE = "3"         # to be raised when `run_passes` or the target options change
_lock = threading.RLock()
_state: dict[str, Any] = {}
_modules: dict[str, Module] = {}
_NOTHING: Mapping[str, int] = {}
_LEAST = 20                  # LLVM's version: splat constants, LLJIT
T = TypeVar("T")
P = ParamSpec("P")
_DEFINE = re.compile(r"^define (?!internal\b|private\b)[^@]*@\"?([\w.$]+)", re.MULTILINE)


class Module:
    """Loaded machine code. Lives as long as the process: its addresses stay valid."""

    def __init__(self, name: str, addresses: dict[str, int], cached: bool, ours: bool) -> None:
        self.name = name
        self.symbols = tuple(addresses)
        self.from_cache = cached
        self.placed_here = ours          # by `kernels/elf`; else by LLVM's loader
        self._addresses = addresses

    def address(self, symbol: str) -> int:
        """The address of a function that the IR defines (KeyError where it does not)."""
        return self._addresses[symbol]

    def __repr__(self) -> str:
        origin = "cache" if self.from_cache else "compiled"
        return f"<kernel module {self.name}: {', '.join(self.symbols)} ({origin})>"


def available() -> bool:
    """Whether generated kernels can be used: llvmlite imports and `ADJOINT_JIT` is not 0.

    Does not load LLVM where the cache knows what it would say. Should it then turn out not to load
    when first something has to be compiled, the answer is False from there on.
    """
    found: bool | None = _state.get("available")
    if found is None:
        found = _state["available"] = _probe()
    return found


def generating(make: Callable[P, T | None]) -> Callable[P, T | None]:
    """`make`, which needs generated code; the result returns None where there is none, and where
    LLVM turns out not to load when `make` has something compiled."""
    @functools.wraps(make)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> T | None:
        if not available():
            return None
        try:
            return make(*args, **kwargs)
        except CompilerLost:
            return None
    return attempt


def _probe() -> bool:
    if os.environ.get("ADJOINT_JIT", "1").lower() in ("0", "false", "off", "no"):
        return False
    if sys.byteorder != "little" or sys.maxsize < 2**32:
        return False
    try:
        llvmlite = importlib.import_module("llvmlite")
        key = host.key(llvmlite) if elf.supported() else ""
    except Exception:  # a broken installation is the same as none: NumPy computes
        return False
    found = host.known(store(), key)
    if found is None:
        try:
            found = _ask(llvmlite, _binding())
        except Exception:
            return False
        host.remember(store(), key, found)
    _state["host"] = found
    return int(found.llvm.partition(".")[0]) >= _LEAST and _fast_enough(_features(found))


def _binding() -> Any:
    """llvmlite's binding to LLVM, loaded and ready; raises whatever a broken installation does."""
    binding = _state.get("binding")
    if binding is None:
        binding = importlib.import_module("llvmlite.binding")
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        _state["binding"] = binding
    return binding


def _ask(llvmlite: Any, binding: Any) -> Host:
    try:
        features = str(binding.get_host_cpu_features().flatten())
    except RuntimeError:
        features = ""
    found = Host(str(llvmlite.__version__), ".".join(map(str, binding.llvm_version_info)),
                 str(binding.get_default_triple()), str(binding.get_host_cpu_name()), features)
    _state["machine"] = _machine(binding, found)
    return found


def _compiler() -> tuple[Any, Any]:
    """The binding and LLVM's code generator for this CPU, to compile with; (once) a warning and
    from then on `CompilerLost` where LLVM does not load.

    That was tried when its words about this machine were remembered, but this is another process:
    a library that LLVM's needs may be gone meanwhile, or memory short.
    """
    found = _need()
    try:
        binding = _binding()
        machine = _state.get("machine")
        if machine is None:
            machine = _state["machine"] = _machine(binding, found)
    except Exception as error:
        _state["available"] = False
        text = _state["lost"] = (
            f"LLVM {found.llvm} was usable when kernels were cached, and cannot be loaded now "
            f"({error}); what is not compiled yet is computed by NumPy")
        warn(text, RuntimeWarning)
        raise CompilerLost(text) from error
    return binding, machine


def _fast_enough(features: frozenset[str]) -> bool:
    """Generated code is made of fused multiply-adds: x86 has to have them (with AVX2)."""
    return (platform.machine() not in ("x86_64", "AMD64", "i386", "i686")
            or {"avx2", "fma"} <= features)


def _machine(binding: Any, found: Host) -> Any:
    """LLVM's code generator for this CPU.

    Level 1: the next one takes a tenth longer and makes code that is no faster.
    """
    return binding.Target.from_default_triple().create_target_machine(
        cpu=_name(found), features=_feature_list(found), opt=1)


def host_name() -> str:
    """LLVM's name of the CPU (`$ADJOINT_CPU` overrides it: "x86-64-v3" tries AVX2 code)."""
    return _name(_need())


def _name(found: Host) -> str:
    return os.environ.get("ADJOINT_CPU") or found.cpu


def _feature_list(found: Host) -> str:
    """The CPU's features as LLVM's "+a,-b" list; empty where `$ADJOINT_CPU` names a CPU."""
    return "" if os.environ.get("ADJOINT_CPU") else found.features


def _need() -> Host:
    if not available():
        if "lost" in _state:
            raise CompilerLost(_state["lost"])
        raise NotSupported("generated kernels need llvmlite (pip install 'adjoint[jit]') and "
                           "ADJOINT_JIT not 0; use the NumPy implementation")
    found: Host = _state["host"]
    return found


@functools.cache
def host_features() -> frozenset[str]:
    """Names of the CPU features that generated code may use ("avx512f", "fma", "neon", ...).

    Empty where `available()` is False.
    """
    return _features(_need()) if available() else frozenset()


def _features(found: Host) -> frozenset[str]:
    chosen = os.environ.get("ADJOINT_CPU")
    if chosen:
        table = {"x86-64-v3": "sse2 sse4.2 avx avx2 fma f16c bmi2", "x86-64-v4":
                 "sse2 sse4.2 avx avx2 fma f16c bmi2 avx512f avx512vl avx512dq avx512bw"}
        return frozenset(table.get(chosen, "").split())
    return frozenset(f[1:] for f in found.features.split(",") if f.startswith("+"))


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
    found = _need()
    return "|".join([_PIPELINE, _name(found), _feature_list(found), found.llvmlite, found.llvm,
                     str(vector_bits()), found.triple])


@functools.cache
def generator_fingerprint() -> str:
    """A digest of the sources that generate kernels (part of the key of `compile_spec`)."""
    return sources.digest(Path(__file__).parent, store())


@functools.cache
def store() -> Store:
    """The disk cache (`$ADJOINT_CACHE_DIR`; `$ADJOINT_CACHE_MB` bounds it, 256 MB unless said)."""
    text = os.environ.get("ADJOINT_CACHE_MB", "").strip()
    return Store(default_directory(), (int(text) if text.isdecimal() else 256) << 20)


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
    generators = () if spec[0] == "ir" else (generator_fingerprint(),)
    key = key_of(*spec, *generators, fingerprint(), f"O{opt}{int(vectorize)}")
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
            return _placed(name, entry, links, cached=True)
        except CompilerLost:
            raise
        except (RuntimeError, KeyError):
            entry = None
    ir = make()
    entry = Entry(tuple(_DEFINE.findall(ir)), _compile(ir, name, opt, vectorize))
    store().put(key, entry)
    return _placed(name, entry, links, cached=False)


def _compile(ir: str, name: str, opt: int, vectorize: bool) -> bytes:
    binding, machine = _compiler()
    try:
        module = binding.parse_assembly(ir)
        module.verify()
    except RuntimeError as error:
        raise RuntimeError(f"kernel {name}: the generated IR is not valid: {error}") from None
    run_passes(module, opt, vectorize)
    return bytes(machine.emit_object(module))


def run_passes(module: Any, opt: int, vectorize: bool) -> None:
    """Optimise an llvmlite module in place with LLVM's standard pipeline at that level."""
    binding, machine = _compiler()
    options = binding.create_pipeline_tuning_options(speed_level=opt)
    options.loop_vectorization = options.slp_vectorization = vectorize
    options.loop_unrolling = options.loop_interleaving = vectorize
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def assembly(ir: str, *, opt: int = 2, vectorize: bool = False) -> str:
    """The machine code of an IR text as assembly, for reading."""
    binding, machine = _compiler()
    module = binding.parse_assembly(ir)
    run_passes(module, opt, vectorize)
    return str(machine.emit_assembly(module))


def _placed(name: str, entry: Entry, links: Mapping[str, int], cached: bool) -> Module:
    try:
        return Module(name, elf.load(entry.code, entry.symbols, links), cached, True)
    except elf.Unknown:
        return Module(name, _linked(entry, links), cached, False)


def _linked(entry: Entry, links: Mapping[str, int]) -> dict[str, int]:
    """The addresses of an object's functions, placed by LLVM's own loader."""
    binding, _ = _compiler()
    jit = _state.get("jit")
    if jit is None:
        machine = _machine(binding, _need())
        jit = _state["jit"] = binding.create_lljit_compiler(machine, use_jit_link=False)
        _immortal(jit)
    _state["count"] = count = _state.get("count", 0) + 1
    builder = binding.JITLibraryBuilder().add_object_img(entry.code).add_current_process()
    for symbol in entry.symbols:
        builder = builder.export_symbol(symbol)
    for symbol, address in links.items():
        builder = builder.import_symbol(symbol, address)
    library = _immortal(builder.link(jit, f"adjoint{count}"))
    return {symbol: int(library[symbol]) for symbol in entry.symbols}


def found_in_process(*symbols: str) -> bool:
    """Whether code may declare these functions of the C library."""
    if elf.supported():
        return all(elf.process(symbol) for symbol in symbols)
    binding, _ = _compiler()
    return all(binding.address_of_symbol(symbol) for symbol in symbols)


def _immortal(thing: Any) -> Any:
    """Keep machine code to the very end: arrays are freed through it after modules are gone."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


def loaded() -> Iterator[Module]:
    """Every module that this process has loaded."""
    return iter(list(_modules.values()))


def loader() -> str:
    """What places kernels in memory here: "our own loader", "LLVM", or both."""
    if not elf.supported():
        return "LLVM"
    ours = "our own loader"
    return ours if all(m.placed_here for m in loaded()) else f"{ours} and, in part, LLVM"


def version() -> str:
    """LLVM's version, and whether this process had to load it."""
    return f"{_need().llvm}, {'loaded' if 'binding' in _state else 'not loaded'}"


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
