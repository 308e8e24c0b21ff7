"""`adjoint memory`: what a training step of a named architecture needs, and whether it fits."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Sequence

from adjoint.base.errors import AdjointError
from adjoint.base.text import say
from adjoint.cli.parser import Parser
from adjoint.memory import calculator
from adjoint.memory.architectures import architecture, names
from adjoint.memory.calculator import ELEMENT_BYTES, OPTIMIZERS, Estimate, Options
from adjoint.memory.devices import DEVICES, Device, compute_seconds, device, offload
from adjoint.memory.page import write_page
from adjoint.memory.parallel import RECOMPUTE, Parallel
from adjoint.memory.sources import claims

Row = Sequence[str]


def _parser() -> Parser:
    p = Parser(
        prog="adjoint memory",
        description="Memory of one training step: parameters, gradients, optimizer, activations.",
        epilog="example: adjoint memory llama-3.1-70b --seq 8192 --batch 1 --dtype bf16 "
        "--device H100-80GB --recompute selective",
    )
    p.add_argument("model", nargs="?", help="architecture (--list shows them)")
    p.add_argument("--seq", type=int, help="tokens per sequence (default: the model's)")
    p.add_argument("--batch", type=int, default=1, help="sequences per rank and micro-batch")
    p.add_argument("--dtype", default="bf16", help=f"one of {', '.join(ELEMENT_BYTES)}")
    p.add_argument("--grad-dtype", help="type of the gradients (default: that of the weights)")
    p.add_argument("--optimizer", default="adamw", choices=list(OPTIMIZERS))
    p.add_argument("--no-master", action="store_true", help="no 32-bit copy of 16-bit weights")
    p.add_argument("--attention", default="flash", choices=["flash", "dense"])
    p.add_argument("--recompute", default="none", choices=list(RECOMPUTE))
    p.add_argument("--device", default="H100-80GB", help="such as A100-40GB or 8xH100-80GB")
    p.add_argument("--tensor", "--tp", type=int, default=1, metavar="T")
    p.add_argument("--pipeline", "--pp", type=int, default=1, metavar="P")
    p.add_argument("--data", "--dp", type=int, default=1, metavar="N")
    p.add_argument("--sequence-parallel", "--sp", action="store_true")
    p.add_argument("--zero", type=int, default=0, choices=[0, 1, 2, 3])
    p.add_argument("--microbatches", type=int, default=1)
    p.add_argument("--expr", help="evaluate an expression in its symbols, such as 34*s*b*h*L")
    p.add_argument("--largest-batch", action="store_true", help="the largest batch that fits")
    p.add_argument("--json", action="store_true", help="print plain data")
    p.add_argument("--html", metavar="FILE", help="write the interactive page (works offline)")
    p.add_argument("--check", action="store_true", help="exit with 1 if it does not fit")
    p.add_argument("--list", action="store_true", help="list architectures and devices")
    p.add_argument("--sources", action="store_true", help="check the source texts' numbers")
    return p


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command with its arguments; 0 on success, 1 if `--check` finds no fit, 2 on misuse.

    >>> run(["gpt2", "--seq", "1024", "--expr", "34*s*b*h*L / 1e9"])
    0.320864256
    0
    """
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        if args.list:
            return _list()
        if args.sources:
            return _sources(args.json)
        if args.model is None:
            parser.print_usage(sys.stderr)
            print("adjoint memory: give an architecture; --list shows them", file=sys.stderr)
            return 2
        return _estimate(args)
    except AdjointError as error:
        print(f"adjoint memory: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"adjoint memory: cannot write {args.html}: {error.strerror}", file=sys.stderr)
        return 2


def _options(args: argparse.Namespace) -> Options:
    parallel = Parallel(
        args.data, args.tensor, args.pipeline, args.sequence_parallel, args.zero,
        args.microbatches,
    )
    return Options(
        architecture(args.model).seq if args.seq is None else args.seq, args.batch, args.dtype,
        args.optimizer, not args.no_master, args.grad_dtype, args.attention, args.recompute,
        parallel,
    )


def _estimate(args: argparse.Namespace) -> int:
    options, on = _options(args), device(args.device)
    if args.expr:
        arch = architecture(args.model)
        extra = {"P": calculator.parameters(arch), "M": on.memory}
        print(calculator.evaluate(args.expr, {**calculator.symbols(arch, options), **extra}))
        return 0
    found = calculator.estimate(args.model, options)
    if args.html:
        write_page(args.html, found.architecture.name, options, on.name)
    fits = found.fits(on)
    if args.json:
        data = found.as_dict()
        data |= {"device": on.name, "device_memory": on.memory, "fits": fits}
        if args.largest_batch:
            data["largest_batch"] = calculator.largest_batch(args.model, options, on)
        print(json.dumps(data, indent=2))
    else:
        _print_estimate(found, on)
        if args.largest_batch:
            batch = calculator.largest_batch(args.model, options, on)
            print(f"\nlargest batch that fits {on.name}: {batch}")
        if args.html:
            print(f"\nwrote {args.html}")
    return 1 if args.check and not fits else 0


# ---------------------------------------------------------------------------------------------
# Printing


def _table(rows: Sequence[Row], right: Sequence[int] = (), wrap: int | None = None) -> str:
    """Rows in aligned columns, the first row a header; column `wrap` takes the width left over."""
    widths = [max(len(r[c]) for r in rows) for c in range(len(rows[0]))]
    if wrap is not None:
        others = sum(w + 2 for c, w in enumerate(widths) if c != wrap)
        room = shutil.get_terminal_size((120, 24)).columns - others - 1
        widths[wrap] = min(widths[wrap], max(30, room))
    lines = []
    for number, row in enumerate(rows):
        cells = [[c] for c in row]
        if wrap is not None:
            cells[wrap] = textwrap.wrap(row[wrap], widths[wrap]) or [""]
        for k in range(max(len(c) for c in cells)):
            parts = [c[k] if k < len(c) else "" for c in cells]
            padded = [
                x.rjust(w) if c in right else x.ljust(w)
                for c, (x, w) in enumerate(zip(parts, widths, strict=True))
            ]
            lines.append("  ".join(padded).rstrip())
        if number == 0:
            lines.append("  ".join("-" * w for w in widths))
    return "\n".join(lines)


def _print_estimate(found: Estimate, on: Device) -> None:
    arch, o = found.architecture, found.options
    p = o.parallel
    print(f"{arch.name}: {arch.title}")
    note = "as published"
    if arch.published and abs(found.parameters - arch.published) > 0:
        note = f"published: {arch.published:,}, rounded"
    print(f"{found.parameters:,} parameters ({note})")
    print(
        f"s={o.seq} b={o.batch} {o.dtype}, {o.optimizer}, {o.attention} attention, recompute "
        f"{o.recompute}; {p.ranks} rank(s): data {p.data}, tensor {p.tensor}, pipeline "
        f"{p.pipeline}, zero {p.zero}"
    )
    learned = arch.symbols.get("C", 0)
    if 0 < learned < o.seq:
        print(f"note: {arch.name} has {learned:,} learned positions; s={o.seq:,} would need a "
              "larger table, which is not counted")
    if arch.seq == 1 < o.seq:
        print(f"note: {arch.name} reads pictures, not sequences: s={o.seq:,} changes nothing")
    print()
    rows = [("part", "GB", "GiB", "how")]
    rows += [
        (x.name, f"{x.nbytes / 1e9:,.2f}", f"{x.nbytes / 2**30:,.2f}", x.formula)
        for x in found.lines
    ]
    rows.append(("peak", f"{found.peak / 1e9:,.2f}", f"{found.peak / 2**30:,.2f}", "their sum"))
    print(_table(rows, right=(1, 2), wrap=3))
    if found.block:
        _print_block(found)
    spare = on.memory - found.peak
    print(
        f"\n{on.name} has {on.memory / 1e9:,.0f} GB: "
        + (f"fits, {spare / 1e9:,.1f} GB free" if spare >= 0 else
           f"does not fit, {-spare / 1e9:,.1f} GB too much")
    )
    if p.ranks > on.count:
        print(f"({p.ranks} such devices are needed; {on.count} named)")
    _print_offload(found, on)


def _print_block(found: Estimate) -> None:
    o, arch = found.options, found.architecture
    sbh = o.seq * o.batch * arch.symbols["h"]
    print("\none block, value by value, before recomputation (bytes on a rank)")
    rows: list[Row] = [("operation: value", "MB", "B per s b h", "expression")]
    rows += [
        (x.name, f"{x.nbytes / 1e6:,.2f}", f"{x.nbytes / sbh:.3f}", x.formula) for x in found.block
    ]
    print(_table(rows, right=(1, 2), wrap=3))
    print("\nactivations of a layer, kept until backward, by route")
    explain = {
        "formula": "Korthikanti et al. (a GPT block, 16 bit)",
        "walk": "the values above that stay",
        "lean": "with results of norms and activations recomputed in backward",
        "traced": "as the engine reports it",
    }
    rows = [("route", "MB", "B per s b h", "GB in all layers", "")]
    rows += [
        (name, f"{n / 1e6:,.2f}", f"{n / sbh:.2f}", f"{n * arch.symbols['L'] / 1e9:,.1f}",
         explain[name])
        for name, n in found.routes.items()
    ]
    print(_table(rows, right=(1, 2, 3), wrap=4))
    if found.differences:
        print("\nwhy the walk differs from the formula")
        rows = [("group", "formula", "walk", "B per s b h", "reason")]
        rows += [
            (d.group, f"{d.formula / sbh:.2f}", f"{d.walk / sbh:.2f}",
             f"{(d.walk - d.formula) / sbh:+.2f}", d.why)
            for d in found.differences
        ]
        print(_table(rows, right=(1, 2, 3), wrap=4))


def _print_offload(found: Estimate, on: Device) -> None:
    """Whether moving the blocks' activations out hides behind computation."""
    blocks = sum(x.nbytes for x in found.lines if x.name == "blocks")
    if not blocks or on.host == float("inf"):
        return
    tokens = found.options.seq * found.options.batch
    forward = compute_seconds(2.0 * found.rank_parameters * tokens, on, found.options.width)
    for target in ("host", "disk"):
        t = offload(blocks, on, to=target, forward_seconds=forward * on.count,
                    backward_seconds=2 * forward * on.count)
        verdict = "hidden behind" if t.hidden else f"{t.exposed:.2f} s longer than"
        say(
            f"offload of {blocks / 1e9:,.1f} GB to {target}: {t.seconds_out:.2f} s each way, "
            f"{verdict} the computation ({3 * forward * on.count:.2f} s at peak rate)"
        )


def _list() -> int:
    rows = [("architecture", "parameters", "")]
    for name in names():
        arch = architecture(name)
        rows.append((name, f"{calculator.parameters(arch):,}", arch.title))
    print(_table(rows, right=(1,)))
    print()
    devices = [("device", "GB", "memory GB/s", "16-bit TFLOP/s", "host GB/s")]
    devices += [
        (d.name, f"{d.memory / 1e9:.0f}", f"{d.bandwidth / 1e9:,.0f}", f"{d.flops16 / 1e12:,.0f}",
         "-" if d.host == float("inf") else f"{d.host / 1e9:.1f}")
        for d in DEVICES.values()
    ]
    print(_table(devices, right=(1, 2, 3, 4)))
    return 0


def _sources(as_json: bool) -> int:
    found = claims()
    if as_json:
        print(json.dumps([vars(c) for c in found], indent=2))
        return 0
    rows = [("source", "claim", "verdict", "right")]
    rows += [(c.source, c.claim, c.verdict, c.right) for c in found]
    print(_table(rows, wrap=3))
    return 0
