"""The shape of the source: layers, import cycles, sizes, width; read from the syntax trees.

Layers are those of the design: a module imports its own layer and the ones below it. Kernels know
raw arrays only, so they see `base` and nothing else. The same holds for names that only a type
checker imports: a type that is needed below its layer belongs below.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "adjoint"

LAYERS = (
    ("base",),
    ("core",),
    ("kernels", "ops"),
    ("autograd", "random"),
    ("printing", "protocols", "tensor", "fft", "linalg", "special", "cuda", "accelerator",
     "backends", "version", "numpy", "sparse", "types", "jit", "onnx", "multiprocessing", "monitor",
     "storage", "compiler", "mps", "mtia", "xpu", "cpu", "masked", "signal", "settings", "legacy",
     "shared", "symbolic", "__config__", "_subclasses", "futures", "fx", "library",
     "checks", "quasirandom", "return_types", "_utils", "torch_version",
     "_ops", "_jit_internal", "holders", "nested"),
    ("func", "_higher_order_ops"),
    ("memory",),
    ("nn", "optim", "amp", "utils", "io", "serialization", "distributed", "distributions",
     "overrides", "_C", "_VF", "library", "fx", "_functorch", "__future__", "_dynamo",
     "_inductor"),
    ("models", "vision", "hub", "interop", "hips", "jax"),
    ("inspect", "profiler", "testing"),
    ("cli",),
)
RANK = {unit: rank for rank, units in enumerate(LAYERS) for unit in units}
TOP = len(LAYERS)  # adjoint/__init__.py and adjoint/__main__.py: only names, on top of everything
# PyTorch's module name for what belongs to another layer; nothing in its own folder imports it.
ELSEWHERE = {"adjoint.autograd.functional": "func", "adjoint.distributed.optim": "optim",
             "adjoint.cuda.amp": "amp", "adjoint.cpu.amp": "amp", "adjoint.utils.model_zoo": "hub",
             "adjoint.autograd.profiler": "profiler"}
KERNELS_SEE = {"base", "kernels"}

OPTIONAL = {
    "absl",
    "llvmlite",
    "ml_dtypes",
    "rich",
    "safetensors",
    "scipy",
    "torch",
    "cupy",
    "mpi4py",
    "PIL",
}

MAX_FILE, MAX_FUNCTION, MAX_WIDTH = 600, 60, 100


@dataclass(frozen=True)
class Import:
    """One imported module: where it stands, and when the import runs."""

    target: str
    line: int
    at_import: bool
    typing_only: bool


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def modules() -> dict[str, Path]:
    return {module_name(path): path for path in sources()}


def unit(module: str) -> str:
    """The layer unit of a module: `adjoint.ops.shape` is in `ops`, `adjoint.tensor` is `tensor`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def rank(module: str) -> int:
    """Its layer; a part that the first test complains of counts as the top."""
    name = ELSEWHERE.get(module) or unit(module)
    return RANK.get(name, TOP)


def _walk(node: ast.AST, in_function: bool, typing: bool) -> Iterator[tuple[ast.stmt, bool, bool]]:
    for child in ast.iter_child_nodes(node):
        inside = in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        guarded = typing
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for statement in child.body:
                yield from _walk(ast.Module([statement], []), inside, True)
            for statement in child.orelse:
                yield from _walk(ast.Module([statement], []), inside, typing)
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, inside, guarded
        yield from _walk(child, inside, guarded)


def _absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    base = module.split(".")
    base = base[: len(base) - node.level + is_package]
    return ".".join([*base, node.module] if node.module else base)


@cache
def imports(module: str) -> tuple[Import, ...]:
    path = modules()[module]
    found = []
    for node, inside, typing in _walk(parse(path), False, False):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            assert isinstance(node, ast.ImportFrom)
            source = _absolute(node, module, path.name == "__init__.py")
            inner = [f"{source}.{alias.name}" for alias in node.names]
            names = [name if name in modules() else source for name in inner]
        for name in dict.fromkeys(names):
            found.append(Import(name, node.lineno, not inside, typing))
    return tuple(found)


def place(module: str, line: int) -> str:
    return f"{modules()[module].relative_to(ROOT)}:{line}"


def own_imports() -> Iterator[tuple[str, Import]]:
    for module in modules():
        for found in imports(module):
            if found.target.split(".")[0] == "adjoint":
                yield module, found


def test_every_part_of_the_package_has_a_layer() -> None:
    units = {unit(module) for module in modules()} - {"", "__main__"}
    assert units <= set(RANK), f"give these a layer in LAYERS: {sorted(units - set(RANK))}"
    assert set(RANK) <= units, f"LAYERS names what is not there: {sorted(set(RANK) - units)}"


def test_imports_go_down_only() -> None:
    """`import adjoint` counts as the highest part that the package itself imports."""
    root = max(rank(found.target) for module, found in own_imports() if module == "adjoint")
    up = []
    for module, found in own_imports():
        of_root = found.target == "adjoint"
        if rank(module) < (root + 1 if of_root else rank(found.target)):
            up.append(f"{place(module, found.line)} imports {found.target}")
    assert not up, "imports from a higher layer:\n" + "\n".join(up)


def test_kernels_see_base_only() -> None:
    wrong = [
        f"{place(module, found.line)} imports {found.target}"
        for module, found in own_imports()
        if unit(module) == "kernels" and unit(found.target) not in KERNELS_SEE
    ]
    assert not wrong, "kernels compute raw arrays and import base only:\n" + "\n".join(wrong)


def strongly_connected(graph: dict[str, set[str]]) -> list[list[str]]:
    """Components with a cycle in them (Tarjan 1972, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []
    for root in graph:
        work = [(root, iter(sorted(graph[root])))] if root not in index else []
        while work:
            node, edges = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
            for target in edges:
                if target not in index:
                    work.append((target, iter(sorted(graph[target]))))
                    break
                if target in stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    component = stack[at:]
                    del stack[at:]
                    if len(component) > 1 or node in graph[node]:
                        found.append(component)
    return found


def test_the_cycle_finder_finds_cycles() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}, "e": {"a", "d"}}
    assert sorted(map(sorted, strongly_connected(graph))) == [["b", "c"], ["d"]]
    assert strongly_connected({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_import_cycles_between_modules() -> None:
    graph: dict[str, set[str]] = {module: set() for module in modules()}
    for module, found in own_imports():
        if found.at_import and not found.typing_only and found.target in graph:
            if not module.startswith(found.target + "."):  # a package is there before its modules
                graph[module].add(found.target)
    assert strongly_connected(graph) == []


def test_no_import_cycles_between_parts() -> None:
    """Also through imports inside functions: no two parts of the package need each other."""
    graph: dict[str, set[str]] = {unit(module): set() for module in modules() if unit(module)}
    for module, found in own_imports():
        source, target = ELSEWHERE.get(module) or unit(module), unit(found.target)
        if source != target and source in graph and target in graph:
            graph[source].add(target)
    assert strongly_connected(graph) == []


def test_optional_packages_are_not_imported_with_the_package() -> None:
    eager = [
        f"{place(module, found.line)} imports {found.target}"
        for module in modules()
        for found in imports(module)
        if found.target.split(".")[0] in OPTIONAL and found.at_import and not found.typing_only
    ]
    assert not eager, "import these inside the function that needs them:\n" + "\n".join(eager)


def test_late_imports_across_parts_are_few() -> None:
    """Within a part they serve rules that need each other, and code that is slow to load.

    Between parts an import inside a function hides a dependency.
    """
    late = [
        f"{place(module, found.line)} imports {found.target}"
        for module, found in own_imports()
        if not found.at_import and not found.typing_only and unit(module) != unit(found.target)
    ]
    assert len(late) <= 12, "late imports across parts:\n" + "\n".join(late)


def test_files_are_at_most_600_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in (*sources(), *sorted((ROOT / "tests").glob("*.py")))
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MAX_FILE
    }
    assert not long, f"split by meaning: {long}"


def test_the_engine_can_be_read_in_one_sitting() -> None:
    """The walk, the fitting of cotangents and the leaves are at most 600 lines together (F124)."""
    names = ("engine.py", "fit.py", "leaves.py")
    counts = {
        name: len((PACKAGE / "autograd" / name).read_text(encoding="utf-8").splitlines())
        for name in names
    }
    assert sum(counts.values()) <= 600, counts


def test_functions_are_at_most_60_lines() -> None:
    """Without the docstring, which is free."""
    long = []
    for path in sources():
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                start = node.body[0].end_lineno if ast.get_docstring(node) else node.lineno - 1
                length = (node.end_lineno or 0) - (start or 0)
                if length > MAX_FUNCTION:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} {length}")
    assert not long, "\n".join(long)


def test_lines_are_at_most_100_columns() -> None:
    """ruff says the same of everything else."""
    wide = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > MAX_WIDTH
    ]
    assert not wide, "\n".join(wide)


def test_silencers_name_the_rule_and_the_reason() -> None:
    """`# type: ignore[code]  # reason`, or a comment below; never for a whole file."""
    codes = r"type: ignore\[[\w-]+(,\s*[\w-]+)*\]|noqa: [A-Z]+\d+(,\s*[A-Z]+\d+)*"
    good = re.compile(rf"#\s*({codes})\s+(#|-|--|:)?\s*\w")
    wrong = []
    for path in sources():
        lines = [*path.read_text(encoding="utf-8").splitlines(), ""]
        for number, line in enumerate(lines, 1):
            silenced = re.search(r"#\s*(type:\s*ignore|noqa|mypy:|ruff:)", line)
            if silenced and not good.search(line) and lines[number].strip()[:1] != "#":
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not wrong, "\n".join(wrong)


def test_nothing_is_left_to_do_in_comments() -> None:
    words = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
    left = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if words.search(line)
    ]
    assert not left, "\n".join(left)


def test_every_function_is_annotated() -> None:
    """mypy asks for it too; this says it without a type checker at hand. Lambdas are free."""
    bare = []
    for path in sources():
        for node in ast.walk(parse(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            arguments = node.args
            named = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
            named += [a for a in (arguments.vararg, arguments.kwarg) if a]
            typed = [a.annotation is not None for a in named if a.arg not in ("self", "cls")]
            if not all(typed) or node.returns is None:
                bare.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert not bare, "\n".join(bare)


def test_the_standard_library_and_numpy_are_all_that_is_needed() -> None:
    known = set(sys.stdlib_module_names) | {"adjoint", "numpy"} | OPTIONAL | {"_typeshed"}
    foreign = [
        f"{place(module, found.line)} imports {found.target}"
        for module in modules()
        for found in imports(module)
        if found.target.split(".")[0] not in known
    ]
    assert not foreign, "\n".join(foreign)
