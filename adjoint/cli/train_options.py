"""The options of `adjoint train`: what they are, and which values make sense."""
from __future__ import annotations

import argparse
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from adjoint.base.errors import ArgumentError
from adjoint.cli.parser import Parser
from adjoint.models.gpt import GPTConfig
from adjoint.ops.threads import set_num_threads


class BadInput(ArgumentError):
    """Something the user gave cannot be used; the message is the one line they see."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides the course of a run: stored in its checkpoint."""

    text: str = ""            # a file or folder; "": the standard library's source
    max_mb: float = 8.0
    steps: int = 2400
    batch: int = 12
    context: int = 64
    layers: int = 4
    heads: int = 4
    dim: int = 128
    dropout: float = 0.0
    lr: float = 4e-3
    weight_decay: float = 0.1
    warmup: int = 60
    clip: float = 1.0
    seed: int = 1337
    dtype: str = "float32"

    def model(self) -> GPTConfig:
        """The sizes of the model."""
        return GPTConfig(256, self.context, self.layers, self.heads, self.dim, self.dropout)

    def check(self) -> None:
        """Raise `BadInput` for values that cannot be trained with."""
        for name in ("steps", "batch", "context", "layers", "heads", "dim"):
            if getattr(self, name) < 1:
                raise BadInput(f"--{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lr", "clip", "max_mb"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise BadInput(f"--{name.replace('_', '-')} must be a positive number, "
                               f"got {value}")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise BadInput(f"--weight-decay must be 0 or more, got {self.weight_decay}")
        if self.warmup < 0 or not 0 <= self.seed < 2**63:
            raise BadInput("--warmup must be 0 or more, --seed between 0 and 2**63")
        try:
            self.model()
        except ArgumentError as error:
            raise BadInput(str(error)) from None

    def to_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


# What a resumed run may change: how long it goes on, and where its text is found (a digest
# of the text itself is compared).
_FREE = {"text", "max_mb", "steps"}
_HELP = {
    "text": ("FILE|DIR", "text to learn (default: the source of Python's standard library)"),
    "max_mb": ("MB", "read at most this much text"), "steps": ("N", "training steps"),
    "batch": ("N", "sequences per step"), "context": ("N", "bytes per sequence"),
    "layers": ("N", "transformer blocks"), "heads": ("N", "attention heads"),
    "dim": ("N", "width; a multiple of heads"), "dropout": ("P", "dropout rate"),
    "lr": ("X", "peak learning rate"), "weight_decay": ("X", "AdamW's weight decay"),
    "warmup": ("N", "steps of rising learning rate"), "clip": ("X", "largest gradient norm"),
    "seed": ("N", "seed of weights and data order"),
    "dtype": (None, "float32 or float64"),
}


def parser() -> Parser:
    """The command's options; those of `TrainConfig` default to None, meaning not given."""
    p = Parser(
        prog="adjoint train", description="Train a byte-level GPT on text. Checkpoints are "
        "written as it goes; Ctrl-C saves and stops, --resume continues bit for bit.")
    for f in fields(TrainConfig):
        metavar, text = _HELP[f.name]
        kind = {"int": int, "float": float, "str": str}[str(f.type)]
        extra: dict[str, Any] = {"metavar": metavar} if metavar else {
            "choices": ["float32", "float64"]}
        shown = "" if f.name == "text" else f" (default: {f.default})"
        p.add_argument(f"--{f.name.replace('_', '-')}", type=kind, dest=f.name,
                       help=text + shown, **extra)
    p.add_argument("--out", metavar="DIR", help="folder of the run (default: runs/gpt-NNN)")
    p.add_argument("--resume", action="store_true", help="continue from the checkpoint in --out")
    p.add_argument("--every", type=int, default=50, metavar="N", help="steps between log lines "
                   "(default: 50)")
    p.add_argument("--save-every", type=int, default=250, metavar="N",
                   help="steps between checkpoints and validations (default: 250)")
    p.add_argument("--threads", type=int, metavar="N", help="threads of the matrix products "
                   "(default: all cores); a resumed run is bit-equal for the same number")
    p.add_argument("--sample", type=int, default=400, metavar="N",
                   help="bytes of text to generate at the end (default: 400)")
    p.add_argument("--plain", action="store_true", help="plain lines even on a terminal")
    return p


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The `TrainConfig` options that were on the command line."""
    return {f.name: getattr(options, f.name) for f in fields(TrainConfig)
            if getattr(options, f.name) is not None}


def apply_run_options(options: argparse.Namespace) -> None:
    """Set the threads; raise `BadInput` for options outside of `TrainConfig` that make no sense."""
    if options.text == "":
        raise BadInput("--text is empty; name a file or a folder, or leave it out")
    for name in ("every", "save_every"):
        if getattr(options, name) < 1:
            raise BadInput(f"--{name.replace('_', '-')} must be at least 1, got "
                           f"{getattr(options, name)}")
    if options.sample < 0:
        raise BadInput(f"--sample must be 0 or more, got {options.sample}")
    if options.threads is not None:
        try:
            set_num_threads(options.threads)
        except ArgumentError as error:
            raise BadInput(f"--threads: {error}") from None


def merge_resumed(saved: dict[str, Any], wanted: dict[str, Any], where: Path) -> TrainConfig:
    """The configuration of a resumed run; `BadInput` where an option contradicts it."""
    config = TrainConfig(**saved)
    for name, value in wanted.items():
        if name not in _FREE and value != getattr(config, name):
            raise BadInput(f"--{name.replace('_', '-')} {value} differs from the "
                           f"{getattr(config, name)} of {where}; leave it out to resume, or "
                           f"start a new run with another --out")
    free = {name: wanted[name] for name in _FREE if name in wanted}
    return TrainConfig(**{**config.to_json(), **free})


def choose_folder(out: str | None, resume: bool) -> Path:
    """The run's folder: the given one, else the newest (resume) or a new one in runs/."""
    if out is not None:
        return Path(out)
    taken = sorted(p for p in Path("runs").glob("gpt-[0-9][0-9][0-9]*") if p.is_dir())
    if resume:
        if not taken:
            raise BadInput("--resume: no run in ./runs; name its folder with --out")
        return taken[-1]
    number = 1 + max((int(p.name[4:]) for p in taken if p.name[4:].isdigit()), default=0)
    return Path("runs") / f"gpt-{number:03d}"


