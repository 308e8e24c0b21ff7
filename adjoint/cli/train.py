"""`adjoint train`: a GPT on real text, from the first check to the sample at the end."""
from __future__ import annotations

import json
import math
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Sequence

from adjoint.base.text import format_bytes
from adjoint.cli import train_checkpoint as checkpoint
from adjoint.cli.train_loop import Diverged, Run, train
from adjoint.cli.train_options import (
    BadInput,
    TrainConfig,
    check_run_options,
    choose_folder,
    given,
    merge_resumed,
    parser,
)
from adjoint.cli.train_predict import available_bytes, predict_step_bytes
from adjoint.cli.train_progress import format_time, make_progress, peak_bytes
from adjoint.cli.train_report import report
from adjoint.cli.train_text import Corpus, load_corpus
from adjoint.io.atomic import remove_partial, write_bytes
from adjoint.io.safetensors import save_file
from adjoint.ops.threads import set_num_threads


def run(argv: Sequence[str]) -> int:
    """The command; 0 at the end, 130 after Ctrl-C, 143 after SIGTERM, 2 for bad input."""
    options = parser().parse_args(list(argv))
    try:
        check_run_options(options)
        return _run(options)
    except KeyboardInterrupt:
        print("\nadjoint train: interrupted", file=sys.stderr)
        return 130
    except Diverged as error:
        return _fail(str(error), 1)
    except BadInput as error:
        return _fail(str(error), 2)
    except MemoryError:
        return _fail("not enough memory; choose a smaller --batch, --context or --dim", 2)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}; what was saved before is unharmed", 2)


def _fail(message: str, code: int) -> int:
    print(f"adjoint train: {' '.join(message.split())}", file=sys.stderr)
    return code


def _run(options: Namespace) -> int:
    folder = choose_folder(options.out, options.resume)
    wanted = given(options)
    saved = checkpoint.read(folder) if options.resume else None
    config = (TrainConfig(**wanted) if saved is None else
              merge_resumed(saved[1]["config"], wanted, folder / checkpoint.NAME))
    config.check()
    corpus = load_corpus(config.text, config.max_mb, config.context)
    if options.threads is not None:
        set_num_threads(options.threads)
    _announce(config, corpus)
    with checkpoint.prepare_folder(folder, options.resume):
        remove_partial(folder)
        work = Run(config, corpus, folder)
        if saved is not None:
            work.restore(*saved)
            print(f"resumed {folder} at step {work.step} of {config.steps}", flush=True)
        else:
            work.save()
            print(f"run folder {folder}", flush=True)
        return _train(work, options)


def _announce(config: TrainConfig, corpus: Corpus) -> None:
    """Say what will be trained on what, and how much memory it takes; refuse what cannot fit."""
    cost = predict_step_bytes(config)
    print(f"text: {corpus.source}: {format_bytes(len(corpus.train))} to train, "
          f"{format_bytes(len(corpus.validation))} to validate")
    print(f"model: {cost.parameter_count:,} parameters ({config.layers} layers, {config.heads} "
          f"heads, dim {config.dim}, context {config.context}, {config.dtype})")
    print(f"memory: the tensors of a step of {config.batch} x {config.context} bytes take "
          f"{format_bytes(cost.peak)} at their peak: parameters {format_bytes(cost.parameters)}, "
          f"gradients {format_bytes(cost.gradients)}, optimizer {format_bytes(cost.optimizer)}, "
          f"kept for backward {format_bytes(cost.saved)}", flush=True)
    free = available_bytes()
    if free is not None and cost.peak > free:
        raise BadInput(f"the step needs {format_bytes(cost.peak)}, this machine has "
                       f"{format_bytes(free)} available; choose a smaller --batch, --context, "
                       f"--layers or --dim")


def _train(work: Run, options: Namespace) -> int:
    config, begun, first = work.config, time.perf_counter(), work.step
    progress = make_progress(work.step, config.steps, options.every, options.plain)
    try:
        stopped = train(work, progress, options.save_every)
    finally:
        progress.close()
    _report(work, time.perf_counter() - begun)
    if stopped:
        name = signal.Signals(stopped).name
        print(f"stopped by {name} after step {work.step}; continue with: adjoint train --resume "
              f"--out {work.folder}")
        return 128 + stopped
    _finish(work, options, time.perf_counter() - begun, work.step - first)
    return 0


def _report(work: Run, seconds: float) -> None:
    """Write report.html: of the whole run's curves, and of what this process watched."""
    loss = f"{work.losses[-1][1]:.4f}" if work.losses else "-"
    held = f"{work.validations[-1][1]:.4f}" if work.validations else "-"
    facts = [("steps", f"{work.step} of {work.config.steps}"), ("training loss", loss),
             ("validation loss", held), ("time", format_time(seconds)),
             ("peak memory", format_bytes(peak_bytes())), ("text", work.corpus.source),
             ("model", f"{work.config.layers} layers, dim {work.config.dim}, context "
                       f"{work.config.context}, {work.config.dtype}")]
    write_bytes(work.folder / "report.html", report(work, facts).encode())


def _finish(work: Run, options: Namespace, seconds: float, steps: int) -> None:
    """The final files, the last figures, and a sample."""
    weights = {name: t.array for name, t in work.model.state_dict().items()}
    save_file(weights, work.folder / "model.safetensors",
              metadata={"config": json.dumps(work.config.to_json())})
    work.plot()
    if not work.validations:
        work.validate()
    loss = work.validations[-1][1]
    print(f"done: {steps} steps in {format_time(seconds)}, validation loss {loss:.4f} nats "
          f"({loss / math.log(2):.3f} bits) per byte, peak memory {format_bytes(peak_bytes())}")
    if options.sample:
        text = work.sample(options.sample)
        write_bytes(work.folder / "sample.txt", text.encode())
        print(f"\n--- sample ---\n{text}\n--- end ---\n")
    names = ["report.html", "loss.svg", "model.safetensors", checkpoint.NAME]
    print(f"wrote {', '.join(names + ['sample.txt'] * bool(options.sample))} to {work.folder}")


