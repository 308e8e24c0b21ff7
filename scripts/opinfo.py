"""Make docs/opinfo.md: what every operation of PyTorch's own test table gives here.

PyTorch's wheel holds a table of operations with sample inputs and bad calls. Each one that is here
under the same name runs on all samples, beside PyTorch: values and gradients in eight dtypes,
tangents of forward mode, vmap against a loop, second derivatives, in-place forms and methods,
writing to operands before backward, `out=`, strides, and bad calls. Takes about twenty minutes and
needs PyTorch and expecttest.
Usage: `python scripts/opinfo.py` runs everything and writes the page; `--from FILE` makes the page
of the verdicts in a file, which `--verdicts FILE` wrote.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from helpers_opinfo import COLUMNS  # noqa: E402  # found on the path above

PAGE = ROOT / "docs" / "opinfo.md"

HEADER = """# PyTorch's operations on PyTorch's samples

Every operation of PyTorch's own test table (`torch.testing`, version {version}), run on all of its
sample inputs beside PyTorch. Made by `python scripts/opinfo.py`; a test repeats a part of it.

- **float64, float32, bfloat16, float16, complex, int64, int8, bool**: values, dtypes and shapes of
  results, and gradients of all operands, in that dtype (complex128). Tolerance: 1e-7 of the largest
  value in double precision, 2e-4 in single, a few units of the last place in 16 bits; integers and
  truth values are equal.
- **strided**: float64 operands with gaps in memory. **alone**: each operand alone requires a
  gradient: the same results do, and the gradient is right.
- **jvp**: the tangent of `func.jvp` against PyTorch's forward mode.
- **second**: gradients of gradients, of the operands and of what was sent into the first backward.
  **mixed**: forward mode over reverse mode.
- **vmap**: `func.vmap` over all floating operands against a loop.
- **in place**: the form that ends in `_`, and the gradient through it. **method**: the method.
- **out**: `out=` with gaps, empty, of a wrong shape, and of other dtypes (float32): what is
  written, the strides that come out, and what is refused.
- **layout**: strides of results and whether they show operands, of contiguous and of strided ones.
- **writes**: an operand or the result is overwritten before backward: the right gradient comes out,
  or the refusal, and a refusal only where PyTorch refuses.
- **errors**: PyTorch's list of bad calls: each raises the builtin exception that PyTorch raises.
- **no bool, no int64, no bfloat16**: PyTorch says that it does not take that dtype: what it refuses
  is refused here with the same builtin exception, and nothing else.

A number is how many samples agree; a blank means there are none (no such form, or no samples). An
operation counts as passing where no column differs.
"""


def verdicts(version: str) -> dict[str, Any]:
    """Operation -> column -> (state, samples, reason)."""
    import helpers_opinfo

    import adjoint as ad

    ops = helpers_opinfo.op_table()
    found: dict[str, Any] = {}
    for column, (mode, dtype) in COLUMNS.items():
        for op in ops:
            v = helpers_opinfo.check(op, ad, dtype, 10**6, mode)
            found.setdefault(v.name, {})[column] = (v.state, v.samples, v.reason)
        print(column, dict(Counter(found[n][column][0] for n in found)), flush=True)
    return {"version": version, "found": found}


def _why(column: str, name: str, state: str, reason: str) -> str:
    from test_differential_opinfo import known

    text = known(COLUMNS[column], name)
    if text:
        return text
    return " ".join(reason.split("<-")[0].split())[:160].replace("|", "/")


def page(data: dict[str, Any]) -> str:
    """The whole page."""
    found = data["found"]
    missing = sorted(n for n, v in found.items() if v["float64"][0] == "missing")
    skipped = sorted(n for n, v in found.items() if v["float64"][0] == "skipped")
    compared = sorted(n for n in found if n not in {*missing, *skipped})
    bad = {n: [c for c in COLUMNS if found[n][c][0] in ("differ", "fail")] for n in compared}
    passing = [n for n in compared if not bad[n]]
    lines = [HEADER.format(version=data["version"]), "| operations | |", "| --- | ---: |",
             f"| pass in every column | {len(passing)} |",
             f"| differ somewhere | {len(compared) - len(passing)} |",
             f"| not here | {len(missing)} |",
             f"| not comparable (random, uninitialised, other storages) | {len(skipped)} |",
             f"| all | {len(found)} |", "",
             "| column | operations that pass | differ | samples that agree |",
             "| --- | ---: | ---: | ---: |"]
    for c in COLUMNS:
        states = Counter(found[n][c][0] for n in compared if found[n][c][1] or
                         found[n][c][0] != "pass")
        agree = sum(found[n][c][1] for n in compared)
        lines.append(f"| {c} | {states['pass']} | {states['differ'] + states['fail']} | {agree} |")
    lines += ["", "## What differs, and why", "", "| operation | column | why |",
              "| --- | --- | --- |"]
    for n in compared:
        for c in bad[n]:
            state, _, reason = found[n][c]
            lines.append(f"| `{n}` | {c} | {_why(c, n, state, reason)} |")
    lines += ["", "## All operations", "", "| operation | " + " | ".join(COLUMNS) + " |",
              "| --- | " + " | ".join("---:" for _ in COLUMNS) + " |"]
    for n in compared:
        cells = [str(found[n][c][1] or "") if c not in bad[n] else "differs" for c in COLUMNS]
        lines.append(f"| `{n}` | " + " | ".join(cells) + " |")
    lines += ["", "## Not here", "", "Why: see the names in [compat](compat.md).", "",
              " ".join(f"`{n}`" for n in missing), "", "## Not comparable", "",
              " ".join(f"`{n}`" for n in skipped), ""]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run the table, or read it, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", help="a file with verdicts")
    parser.add_argument("--verdicts", help="write the verdicts to this file, too")
    options = parser.parse_args(argv)
    if options.source:
        data = json.loads(Path(options.source).read_text(encoding="utf-8"))
    else:
        import torch

        data = verdicts(torch.__version__.split("+")[0])
    if options.verdicts:
        Path(options.verdicts).write_text(json.dumps(data), encoding="utf-8")
    PAGE.write_text(page(data), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
