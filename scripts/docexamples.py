"""Make docs/docexamples.md: PyTorch's own documentation examples, run here and there.

The examples are the `>>>` lines of the docstrings of the PyTorch that is installed, read when the
script runs. Each one runs twice in processes of their own, once on PyTorch and once with `torch`
served by this package; both draw random numbers from the same NumPy generator. After every
statement what it shows and what it assigned is compared: values, shapes, dtypes, flags, the printed
form. Needs PyTorch; takes about five minutes.
Usage: `python scripts/docexamples.py` runs everything and writes the page; `--only NAME` runs the
examples whose name contains NAME and prints every difference.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "docexamples.md"
LIMIT = 20  # seconds for one example
MODULES = """torch.Tensor torch torch.nn torch.nn.functional torch.nn.init torch.nn.utils
torch.nn.utils.rnn torch.nn.utils.parametrize torch.nn.utils.parametrizations torch.nn.utils.prune
torch.nn.utils.stateless torch.optim torch.optim.lr_scheduler torch.optim.swa_utils torch.autograd
torch.autograd.functional torch.autograd.forward_ad torch.autograd.graph torch.autograd.function
torch.func torch.linalg torch.fft torch.special torch.distributions torch.sparse torch.masked
torch.utils.data torch.utils.checkpoint torch.amp torch.testing""".split()
# What draws from the framework's own generator, or shows memory that nobody wrote.
RANDOM = re.compile(r"dropout|multinomial|gumbel|poisson|rrelu|sample|Transformer|empty|seed|rng|"
                    r"Generator|trunc_normal|kaiming|xavier|orthogonal_|sparse_\(|resize_|cauchy_|"
                    r"log_normal_|geometric_|lobpcg|lowrank|fractional|random_split|"
                    r"Fractional|svd|qr\(|eig|shuffle|Sampler|dirichlet|Dropout|initial", re.I)
SKIP = [  # what an example may not do, or what is not there to compare
    (re.compile(r"cuda|\bmps\b|\bxpu\b|pin_memory|nccl|gloo|DistributedDataParallel|init_process"),
     "another device or process"),
    (re.compile(r"torch\.compile|torch\.jit|torch\.export|torch\.fx|torchscript|_dynamo|make_fx"),
     "PyTorch's compiler"),
    (re.compile(r"quantiz|qint|named_tensor|names=|refine_names|align_to|nested_tensor|jagged"),
     "quantized, named or nested tensors"),
    (re.compile(r"open\(|torch\.save|torch\.load|hub\.|pickle|num_workers|download|tensorboard"),
     "files, processes or the network"),
]


# -------------------------------------------------------------------------------- the examples


def _sources(text: str) -> list[str]:
    """The statements behind the prompts; a prompt at a continued line is forgiven."""
    groups: list[list[str]] = [[]]
    for line in text.splitlines():
        found = re.match(r"\s*(?:>>>|\.\.\.)(?: (.*)|$)", line)
        if found:
            groups[-1].append(found.group(1) or "")
        elif groups[-1]:
            groups.append([])
    done: list[str] = []
    whole = "\n".join("\n".join(g) for g in groups)
    for source in [whole] if _parses(whole) else ["\n".join(g) for g in groups if g]:
        source = textwrap.dedent(source)
        if _parses(source):
            lines = source.splitlines()
            for node in ast.parse(source).body:
                first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
                done.append("\n".join(lines[first - 1:node.end_lineno]))
        else:
            done.append(source)
    return done


def _parses(source: str) -> bool:
    try:
        ast.parse(textwrap.dedent(source))
    except SyntaxError:
        return False
    return True


def collect() -> list[dict[str, Any]]:
    """Every example once: its name, its module and its statements."""
    seen: set[str] = set()
    found = []
    for module in MODULES:
        owner = importlib.import_module("torch") if module == "torch.Tensor" else (
            importlib.import_module(module))
        owner = owner.Tensor if module == "torch.Tensor" else owner
        for name in sorted(dir(owner)):
            thing = getattr(owner, name, None)
            if name.startswith("_") or inspect.ismodule(thing):
                continue
            members = [(name, thing)]
            if inspect.isclass(thing) and module != "torch.Tensor":
                members += [(f"{name}.{n}", m) for n, m in sorted(vars(thing).items())
                            if not n.startswith("_") and (callable(m) or isinstance(m, property))]
            for label, member in members:
                text = inspect.getdoc(member) or ""
                if ">>>" not in text or text in seen:
                    continue
                seen.add(text)
                found.append({"module": module, "name": f"{module}.{label}",
                              "code": _sources(text)})
    return found


def why_skipped(code: list[str]) -> str:
    """A reason not to run the example, or nothing."""
    text = "\n".join(code)
    return next((reason for pattern, reason in SKIP if pattern.search(text)), "")


# --------------------------------------------------------------------------- one side's process


def same_numbers(torch: Any) -> None:
    """Let the functions that draw take their numbers from NumPy."""
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(0))

    def write(out: Any, values: Any) -> Any:
        with torch.no_grad():
            out.data.copy_(torch.from_numpy(np.array(values)))
        return out

    def normal(out: Any) -> Any:
        if out.is_complex():
            return (rng.normal(size=out.shape) + 1j * rng.normal(size=out.shape)) / math.sqrt(2)
        return rng.normal(size=tuple(out.shape))

    def uniform(out: Any) -> Any:
        if out.is_complex():
            return rng.random(tuple(out.shape)) + 1j * rng.random(tuple(out.shape))
        return rng.random(tuple(out.shape))

    def ranged(out: Any, *a: Any, low: Any = 0, high: Any = None, **_: Any) -> Any:
        ints = [v for v in a if isinstance(v, int)]
        if high is None:
            low, high = (low, ints[0]) if len(ints) == 1 else (ints[0], ints[1])
        return rng.integers(low, high, tuple(out.shape))

    def factory(name: str, values: Any) -> None:
        original = getattr(torch, name)

        def drawn(*a: Any, **k: Any) -> Any:
            out = original(*a, **k)
            return out if out.is_meta else write(out, values(out, *a, **k))

        setattr(torch, name, drawn)

    for name in ("rand", "rand_like"):
        factory(name, lambda out, *a, **k: uniform(out))
    for name in ("randn", "randn_like"):
        factory(name, lambda out, *a, **k: normal(out))
    factory("randint", ranged)
    factory("randint_like", lambda out, x, *a, **k: ranged(out, *a, **k))
    factory("randperm", lambda out, *a, **k: rng.permutation(len(out)))
    factory("bernoulli", lambda out, x, *a, **k: rng.random(tuple(out.shape))
            < x.detach().numpy().astype(float))
    factory("normal", lambda out, mean=0.0, std=1.0, *a, **k: np.asarray(mean)
            + np.asarray(std) * normal(out))

    def method(name: str, values: Any) -> None:
        original = getattr(torch.Tensor, name)

        def drawn(self: Any, *a: Any, **k: Any) -> Any:
            out = original(self, *a, **k)
            return out if out.is_meta else write(out, values(out, *a, **k))

        setattr(torch.Tensor, name, drawn)

    method("uniform_", lambda out, a=0.0, b=1.0, **k: a + (b - a) * uniform(out))
    method("normal_", lambda out, mean=0.0, std=1.0, **k: mean + std * normal(out))
    method("exponential_", lambda out, lambd=1.0, **k: rng.exponential(1 / lambd, out.shape))


def describe(value: Any, torch: Any, depth: int = 0) -> Any:
    """A value as plain data that is the same for the same value on either side."""
    if isinstance(value, torch.Tensor):
        if str(value.layout).rpartition(".")[2] != "strided":
            value = value.to_dense()
        node = value.grad_fn
        plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
        held = [] if value.is_meta else plain.reshape(-1)[:2000].to(
            torch.float64 if plain.dtype == torch.bfloat16 else plain.dtype).tolist()
        found = {"dtype": str(value.dtype).rpartition(".")[2], "shape": list(value.shape),
                 "requires_grad": value.requires_grad, "leaf": value.is_leaf,
                 "device": str(value.device), "stride": list(value.stride()),
                 "node": type(node).__name__ if node is not None else None,
                 "values": [[v.real, v.imag] if isinstance(v, complex) else v for v in held]}
        if value.is_leaf and value.grad is not None and depth < 3:
            found["grad"] = describe(value.grad, torch, depth + 1)
        return found
    if isinstance(value, torch.dtype):
        return str(value).rpartition(".")[2]
    if isinstance(value, bool | int | float | str | bytes | None):
        return repr(value) if isinstance(value, str | bytes) else value
    if isinstance(value, complex):
        return [value.real, value.imag]
    if depth < 4 and isinstance(value, list | tuple):
        return {"type": type(value).__name__,
                "items": [describe(v, torch, depth + 1) for v in value[:50]]}
    if depth < 4 and isinstance(value, dict):
        return {"type": type(value).__name__,
                "items": [[str(k), describe(v, torch, depth + 1)] for k, v in value.items()][:50]}
    if isinstance(value, torch.nn.Module):
        return {"repr": repr(value),
                "state": [[k, describe(v, torch, 3)] for k, v in value.state_dict().items()]}
    return {"type": type(value).__name__}


def run_one(code: list[str], torch: Any) -> list[dict[str, Any]]:
    """Run the statements; what each showed, printed, assigned or raised."""
    import contextlib
    import io
    import warnings

    import numpy as np

    warnings.simplefilter("ignore")
    names: dict[str, Any] = {
        "__name__": "__main__", "torch": torch, "nn": torch.nn, "F": torch.nn.functional, "np": np,
        "math": math, "optim": torch.optim, "Tensor": torch.Tensor}
    found = []
    for source in code:
        before = dict(names)
        shown: list[Any] = []
        sys.displayhook = shown.append
        step: dict[str, Any] = {}
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(source, "<example>", "single"), names)  # noqa: S102
        except Exception as error:
            kinds = [c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins"]
            step["error"] = [kinds, str(error)[:400]]
        step["printed"] = printed.getvalue()
        step["shown"] = [describe(v, torch) for v in shown if v is not None]
        step["repr"] = [repr(v) for v in shown if isinstance(
            v, torch.Tensor | torch.nn.Module | torch.Size) or hasattr(type(v), "n_sequence_fields")
            or hasattr(v, "_fields")]
        step["new"] = {k: describe(v, torch) for k, v in names.items()
                       if (k not in before or before[k] is not v or isinstance(v, torch.Tensor))
                       and not k.startswith("_") and k not in ("torch", "nn", "F")
                       and not inspect.isroutine(v) and not inspect.isclass(v)
                       and not inspect.ismodule(v)}
        found.append(step)
    return found


def _worker(side: str, given: str, result: str) -> None:
    """Run all examples, each in a fork of this process."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    sys.path.insert(0, str(ROOT))
    if side == "here":
        from adjoint.cli.run import serve_torch

        serve_torch()
    import torch

    for name in MODULES:
        if name != "torch.Tensor":
            try:
                importlib.import_module(name)
            except ImportError as error:
                print(f"{side}: {error}", file=sys.stderr)
    torch.set_num_threads(1)
    with open(result, "w", encoding="utf-8") as out:
        for number, example in enumerate(json.loads(Path(given).read_text(encoding="utf-8"))):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reader)
                signal.alarm(LIMIT)
                torch.manual_seed(0)
                same_numbers(torch)
                try:
                    steps: Any = run_one(example["code"], torch)
                except BaseException as error:
                    steps = f"{type(error).__name__}: {error}"
                with os.fdopen(writer, "w") as pipe:
                    json.dump(steps, pipe)
                os._exit(0)
            os.close(writer)
            with os.fdopen(reader) as pipe:
                text = pipe.read()
            os.waitpid(child, 0)
            print(json.dumps({"n": number, "steps": json.loads(text) if text else "died"}),
                  file=out, flush=True)


# ----------------------------------------------------------------------------------- comparison


def close(a: Any, b: Any) -> bool:
    """Whether two described values are the same, floats up to rounding in float32."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b) or abs(a - b) <= 2e-5 * (1 + abs(a))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


def _without(value: Any, keys: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {k: _without(v, keys) for k, v in value.items() if k not in keys}
    return [_without(v, keys) for v in value] if isinstance(value, list) else value


def compare(there: Any, here: Any, random: bool) -> tuple[str, str]:
    """The first difference between two runs of an example: its kind, and the two sides."""
    if isinstance(there, str):
        return "skipped", there
    if isinstance(here, str):
        return "raises", here
    softer: tuple[str, str] | None = None
    for number, (t, h) in enumerate(zip(there, here, strict=True)):
        where = f"statement {number}"
        if "error" in h and "error" not in t:
            return "raises", f"{where}: {h['error']}"
        if "error" in t:
            if "error" not in h:
                return "accepts", f"{where}: there {t['error']}"
            if t["error"][0][0] not in h["error"][0]:
                return "another error", f"{where}: there {t['error']}, here {h['error']}"
            continue
        keys = ("values", "printed") if random else ()
        a, b = ({k: _without(s[k], keys) for k in ("shown", "new")} for s in (t, h))
        hard = ("node", "stride", "device")
        if not close(_without(a, hard), _without(b, hard)) and not (
                random and _numbers_only(a, b)):
            return "values", f"{where}:\n   there {_pick(a, b)}\n   here  {_pick(b, a)}"
        for kind, x, y in (
                ("strides or device", _without(a, ("node",)), _without(b, ("node",))),
                ("grad_fn", a, b),
                ("printed form", *([[s["repr"], s["printed"]] for s in (t, h)]
                                   if not random else (0, 0)))):
            if softer is None and not close(x, y) and not random:
                softer = kind, f"{where}:\n   there {_pick(x, y)}\n   here  {_pick(y, x)}"
    return softer or ("same", "")


def _numbers_only(a: Any, b: Any) -> bool:
    """Whether nothing but plain numbers differs, which chance may have made."""
    if isinstance(a, float | int | str) and isinstance(b, float | int | str):
        return type(a) is type(b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_numbers_only(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(
            close(a[k], b[k]) if k in ("dtype", "shape", "requires_grad", "leaf")
            else _numbers_only(a[k], b[k]) for k in a)
    return a is b is None


def _pick(a: Any, b: Any) -> str:
    """The part of a that differs from b, short."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in a:
            if key not in b:
                return f"{key}: {str(a[key])[:160]}"
            if not close(a[key], b[key]):
                return f"{key}: {_pick(a[key], b[key])}"
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for x, y in zip(a, b, strict=True):
            if not close(x, y):
                return _pick(x, y)
    return str(a)[:300]


def judge(only: str) -> list[dict[str, Any]]:
    """Run everything on both sides."""
    examples = [e for e in collect() if not only or only in e["name"]]
    for example in examples:
        example["skipped"] = why_skipped(example["code"])
    todo = [e for e in examples if not e["skipped"]]
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "examples.json"
        given.write_text(json.dumps(todo), encoding="utf-8")
        sides = {}
        for side in ("there", "here"):
            result = Path(folder) / side
            subprocess.run([sys.executable, __file__, "--worker", side, str(given), str(result)],
                           check=True, cwd=folder)
            sides[side] = [json.loads(s)["steps"] for s in result.read_text().splitlines()]
    for example, there, here in zip(todo, sides["there"], sides["here"], strict=True):
        random = bool(RANDOM.search("\n".join(example["code"])))
        example["kind"], example["detail"] = compare(there, here, random)
        if example["kind"] == "skipped":
            example["skipped"] = "PyTorch does not finish it"
    return examples


# ----------------------------------------------------------------------------------------- page

HEADER = """# PyTorch's documentation examples, run here

The `>>>` examples in the docstrings of PyTorch {version}'s public modules, each run on PyTorch and
here, with the same random numbers. Made by `python scripts/docexamples.py`, which reads them from
the PyTorch that is installed. Compared after every statement: what it shows and what it assigned,
that is values, dtypes, shapes, `requires_grad`, gradients, results' types, then strides, names of
`grad_fn` and the printed form. Where an example draws from the framework's own generator, or shows
memory that nobody wrote, values are left out. An example that raises on PyTorch (many are sketches
that use undefined names) has to raise here.
"""


def page(examples: list[dict[str, Any]], version: str) -> str:
    """The report: names and counts."""
    ran = [e for e in examples if not e["skipped"]]
    lines = [HEADER.format(version=version),
             "| module | examples | same | differ | raise | skipped |",
             "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for module in [*MODULES, "all"]:
        group = [e for e in examples if module in ("all", e["module"])]
        kinds = Counter("skipped" if e["skipped"] else e["kind"] for e in group)
        if group:
            same, raises, skipped = kinds["same"], kinds["raises"], kinds["skipped"]
            lines.append(f"| {module} | {len(group)} | {same} | "
                         f"{len(group) - same - raises - skipped} | {raises} | {skipped} |")
    lines += ["", "| what differs first | examples |", "| --- | --- |"]
    for kind in sorted({e["kind"] for e in ran} - {"same"}):
        named = " ".join(f"`{e['name']}`" for e in ran if e["kind"] == kind)
        lines.append(f"| {kind} | {named} |")
    lines += ["", "| skipped because of | examples |", "| --- | ---: |"]
    reasons = Counter(e["skipped"] for e in examples if e["skipped"])
    lines += [f"| {reason} | {count} |" for reason, count in sorted(reasons.items())]
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """The command: returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a part of the examples' names")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.worker:
        _worker(*given.worker)
        return 0
    import torch

    examples = judge(given.only)
    for example in examples:
        if not example["skipped"] and example["kind"] != "same":
            print(f"{example['name']}: {example['kind']}: {example['detail']}")
    print(dict(Counter(e["skipped"] or e["kind"] for e in examples)))
    if not given.only:
        PAGE.write_text(page(examples, torch.__version__.split("+")[0]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
