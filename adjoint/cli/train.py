"""`adjoint train`: a GPT on real text, from the first check to the sample at the end."""
from __future__ import annotations

import json
import math
import os
import shlex
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Sequence

from adjoint.base.text import format_bytes, printable
from adjoint.cli import train_checkpoint as checkpoint
from adjoint.cli.train_loop import Diverged, Run, train
from adjoint.cli.train_options import (
    BadInput,
    TrainConfig,
    apply_run_options,
    choose_folder,
    given,
    merge_resumed,
    parser,
)
from adjoint.cli.train_predict import available_bytes, least_step_bytes, predict_step_bytes
from adjoint.cli.train_progress import format_time, make_progress, peak_bytes
from adjoint.cli.train_report import report
from adjoint.cli.train_text import Corpus, load_corpus
from adjoint.io.atomic import remove_partial, write_bytes
from adjoint.io.safetensors import save_file


def run(argv: Sequence[str]) -> int:
    """The command; 0 at the end, 130 after Ctrl-C, 143 after SIGTERM, 2 for bad input."""
    options = parser().parse_args(list(argv))
    try:
        apply_run_options(options)
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
        where = error.filename or (f"--out {options.out}" if options.out else "")
        where = f"{where}: " if where else ""
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
    foretold = _announce(config, corpus)
    with checkpoint.prepare_folder(folder, options.resume):
        remove_partial(folder)
        work = Run(config, corpus, folder)
        if saved is not None:
            work.restore(*saved)
            if "steps" in wanted and config.steps < work.step:
                raise BadInput(f"--steps {config.steps}: the run in {folder} is at step "
                               f"{work.step} already; give more")
            print(f"resumed {folder} at step {work.step} of {config.steps}", flush=True)
        else:
            work.save()
            print(f"run folder {folder}", flush=True)
        return _train(work, options, foretold)


def _announce(config: TrainConfig, corpus: Corpus) -> int:
    """Say what will be trained on what, and how much memory it takes; refuse what cannot fit. Gives
    the bytes back."""
    free, least = available_bytes(), least_step_bytes(config)
    if free is not None and least > free:      # before a model that large is rehearsed
        raise BadInput(_too_large(f"more than {format_bytes(least)}", free))
    cost = predict_step_bytes(config)
    print(f"text: {corpus.source}: {format_bytes(len(corpus.train))} to train, "
          f"{format_bytes(len(corpus.validation))} to validate")
    print(f"model: {cost.parameter_count:,} parameters ({config.layers} layers, {config.heads} "
          f"heads, dim {config.dim}, context {config.context}, {config.dtype})")
    parts = ", ".join(f"{word} {format_bytes(n)}" for word, n in cost.parts.items())
    later = "" if "gradients" in cost.parts else (
        f"; gradients take {format_bytes(cost.gradients)} after it")
    print(f"memory: the tensors of a step of {config.batch} x {config.context} bytes take "
          f"{format_bytes(cost.peak)} at their peak: {parts}{later}", flush=True)
    if free is not None and cost.peak > free:
        raise BadInput(_too_large(format_bytes(cost.peak), free))
    return cost.peak


def _too_large(needs: str, free: int) -> str:
    return f"the step needs {needs}, this machine has {format_bytes(free)} available; choose a " \
           "smaller --batch, --context, --layers or --dim"


def _train(work: Run, options: Namespace, foretold: int) -> int:
    config, begun, first = work.config, time.perf_counter(), work.step
    progress = make_progress(work.step, config.steps, options.every, options.plain)
    try:
        stopped = train(work, progress, options.save_every)
    finally:
        progress.close()
    _report(work, time.perf_counter() - begun)
    if stopped:
        name = signal.Signals(stopped).name
        called = os.environ.get("ADJOINT_CALLED", "adjoint")      # ./run says how it was called
        print(f"stopped by {name} after step {work.step}; continue with: {shlex.quote(called)} "
              f"train --resume --out {shlex.quote(str(work.folder))}")
        return 128 + stopped
    _finish(work, options, time.perf_counter() - begun, work.step - first, foretold)
    return 0


def _report(work: Run, seconds: float) -> None:
    """Write report.html: of the whole run's curves, and of what this process watched."""
    loss = f"{work.losses[-1][1]:.4f}" if work.losses else "-"
    held = f"{work.validations[-1][1]:.4f}" if work.validations else "-"
    facts = [("steps", f"{work.step} of {work.config.steps}"), ("training loss", loss),
             ("validation loss", held), ("time", format_time(seconds)),
             ("peak memory of the process", format_bytes(peak_bytes())),
             ("peak of a step's tensors", format_bytes(work.monitor.step_bytes)
              if work.monitor.step_bytes else "-"), ("text", work.corpus.source),
             ("model", f"{work.config.layers} layers, dim {work.config.dim}, context "
                       f"{work.config.context}, {work.config.dtype}")]
    write_bytes(work.folder / "report.html", report(work, facts).encode())


def _finish(work: Run, options: Namespace, seconds: float, steps: int, foretold: int) -> None:
    """The final files, the last figures, and a sample."""
    weights = {name: t.array for name, t in work.model.state_dict().items()}
    save_file(weights, work.folder / "model.safetensors",
              metadata={"config": json.dumps(work.config.to_json())})
    work.plot()
    if not work.validations:
        work.validate()
    loss = work.validations[-1][1]
    print(f"done: {steps} steps in {format_time(seconds)}, validation loss {loss:.4f} nats "
          f"({loss / math.log(2):.3f} bits) per byte")
    _say_memory(work, foretold)
    if options.sample:
        text = work.sample(options.sample)
        write_bytes(work.folder / "sample.txt", text.encode())
        print(f"\n--- sample ---\n{printable(text)}\n--- end ---\n")
    names = ["report.html", "loss.svg", "model.safetensors", checkpoint.NAME]
    print(f"wrote {', '.join(names + ['sample.txt'] * bool(options.sample))} to {work.folder}")


def _say_memory(work: Run, foretold: int) -> None:
    """What was announced beside what was measured in one step, and what the process held."""
    measured = work.monitor.step_bytes
    step = f"a step's tensors took {format_bytes(measured)} at their peak (announced: " \
           f"{format_bytes(foretold)}); " if measured else ""
    print(f"memory: {step}the process took {format_bytes(peak_bytes())}, with Python, the text and "
          "the kernels")
