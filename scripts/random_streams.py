"""Compare random numbers with PyTorch's: every program of tests/helpers_random.py from one seed,
and the loss curves of three programs of examples/torch_style. Prints the tables of docs/random.md.

    python scripts/random_streams.py            # needs torch
"""
from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RUNS = {"digits_cnn": "--epochs 2", "word_lm": "--dropout 0.2 --epochs 6", "vae": "--epochs 2"}
STEPS = 50
PRINT = 'if __name__ == "__main__":\n    print(*(f"{loss:.9g}" for loss in main()))\n'


def furthest(program: Any) -> tuple[float, float]:
    """The largest difference in units of the last place of the largest number, and the share of
    the elements that differ."""
    import torch

    import adjoint as ad
    found = []
    for t in (torch, ad):
        t.manual_seed(11)
        made = program(t).detach()
        after = t.rand(5).numpy()
        found.append((np.asarray((made.double() if made.dtype == t.bfloat16 else made).numpy()),
                      after, made))
    (a, x, _), (b, y, _) = found
    assert a.shape == b.shape and (x == y).all(), "the generators stand at different places"
    if a.dtype.kind not in "fc" or not a.size:
        return float((a != b).any()), float((a != b).mean()) if a.size else 0.0
    unit = np.spacing(np.abs(a).max().astype(a.real.dtype))
    return float(np.abs(a - b).max() / unit), float((a != b).mean())


def table() -> None:
    """Programs by what they give."""
    sys.path.insert(0, str(ROOT / "tests"))
    cases = importlib.import_module("helpers_random")
    importlib.import_module("torch.utils.data.distributed")
    equal = [name for name, program in cases.EXACT.items() if furthest(program) == (0.0, 0.0)]
    print(f"{len(equal)} of {len(cases.EXACT)} programs: equal to the last bit.\n")
    print("| program | largest difference, units in the last place | elements that differ |")
    print("| --- | --- | --- |")
    for name, program in cases.CLOSE.items():
        ulps, share = furthest(program)
        print(f"| {name} | {ulps:.1f} | {share:.1%} |")


def losses(path: Path, command: list[str], options: str) -> Any:
    """The last line that a program prints: its losses."""
    done = subprocess.run([*command, str(path), *options.split()], check=True, text=True,
                          capture_output=True, cwd=path.parent,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    return np.array(done.stdout.splitlines()[-1].split(), float)


def curves() -> None:
    """Losses by PyTorch and by `adjoint run --as-torch`, from the programs' own seed."""
    print("\n| program | step | PyTorch | Adjoint | furthest apart up to here, relative |")
    print("| --- | --- | --- | --- | --- |")
    for name, options in RUNS.items():
        text = (ROOT / "examples" / "torch_style" / f"{name}.py").read_text()
        text = text.replace("sampler=Shuffled(len(training), 0)", "shuffle=True")
        text = text[:text.index('if __name__ == "__main__"')] + PRINT
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.py"
            path.write_text(re.sub(r"(?m)^(import|from) adjoint", r"\1 torch", text).replace(
                "import torch as torch", "import torch"))
            theirs = losses(path, [sys.executable, "-W", "ignore"], options)
            ours = losses(path, [sys.executable, "-W", "ignore", "-m", "adjoint", "run",
                                 "--as-torch"], options)
        apart = np.abs(ours - theirs) / np.abs(theirs)
        for step in (1, 2, 5, 10, 20, min(STEPS, len(theirs))):
            print(f"| {name} {options} | {step} | {theirs[step - 1]:.7g} | {ours[step - 1]:.7g} | "
                  f"{apart[:step].max():.1e} |")


if __name__ == "__main__":
    table()
    curves()
