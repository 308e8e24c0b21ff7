"""The training run itself: state that can be saved, one step, the loop around it."""
from __future__ import annotations

import math
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import adjoint as ad
from adjoint.base.errors import AdjointError
from adjoint.cli import train_checkpoint as checkpoint
from adjoint.cli.train_monitor import Monitor, finite, where_it_began
from adjoint.cli.train_options import BadInput, TrainConfig
from adjoint.cli.train_progress import Progress, Report
from adjoint.cli.train_text import Corpus, batch_at, validation_batches
from adjoint.core.tensor import wrap
from adjoint.models.gpt import GPT
from adjoint.nn.utils import clip_grad_norm_
from adjoint.optim import AdamW
from adjoint.utils.plot import line_chart

_MODEL = "model."


class Diverged(AdjointError):
    """The loss is no longer a number."""


class StopFlag:
    """Set by SIGINT and SIGTERM, read after each step; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopFlag:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def learning_rate(config: TrainConfig, step: int) -> float:
    """Linear rise over `warmup` steps, then a cosine down to a tenth of the peak."""
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    span = max(1, config.steps - config.warmup)
    way = min(1.0, (step - config.warmup) / span)
    return config.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * way)))


def make_optimizer(model: Any, config: TrainConfig) -> AdamW:
    """AdamW; matrices decay, biases and norms do not."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return AdamW([{"params": matrices, "weight_decay": config.weight_decay},
                  {"params": vectors, "weight_decay": 0.0}], lr=config.lr, betas=(0.9, 0.95))


def make_model(config: TrainConfig, where: str = "cpu") -> GPT:
    """The model with its initial weights, a function of the seed; without values on 'meta'."""
    ad.manual_seed(config.seed)
    with ad.device(where):
        model: GPT = GPT(config.model()).to(getattr(ad, config.dtype))
    return model


class Run:
    """A run's whole state: model, optimizer, step, history; `save` and `restore` move it."""

    def __init__(self, config: TrainConfig, corpus: Corpus, folder: Path) -> None:
        self.config, self.corpus, self.folder = config, corpus, folder
        self.model = make_model(config)
        self.optimizer = make_optimizer(self.model, config)
        self.step = 0
        self.losses: list[list[float]] = []       # [step, loss, gradient norm]
        self.validations: list[list[float]] = []  # [step, loss]
        self.monitor = Monitor(print)

    def save(self) -> None:
        """Write the checkpoint, in one atomic step."""
        optimizer, rest = checkpoint.flatten_optimizer(self.optimizer.state_dict())
        tensors = {_MODEL + name: t.array for name, t in self.model.state_dict().items()}
        tensors |= optimizer | {"rng": ad.get_rng_state().array,
                                "losses": np.array(self.losses, np.float64).reshape(-1, 3),
                                "validations": np.array(self.validations).reshape(-1, 2)}
        checkpoint.write(self.folder, tensors, {
            "config": self.config.to_json(), "step": self.step, "text": self.corpus.digest,
            "optimizer": rest})

    def restore(self, tensors: dict[str, np.ndarray], state: dict[str, Any]) -> None:
        """Take over what `save` wrote; `BadInput` if the text is another one."""
        if state["text"] != self.corpus.digest:
            raise BadInput(f"--resume: the text ({self.corpus.source}) is not the one this run "
                           f"began with; give the same --text and --max-mb")
        weights = {name.removeprefix(_MODEL): wrap(array) for name, array in tensors.items()
                   if name.startswith(_MODEL)}
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict(
            checkpoint.unflatten_optimizer(tensors, state["optimizer"], wrap))
        ad.set_rng_state(wrap(tensors["rng"]))
        self.step = state["step"]
        self.losses = tensors["losses"].tolist()
        self.validations = tensors["validations"].tolist()

    def train_step(self) -> tuple[float, float]:
        """One update of all weights; returns the loss and the gradient norm before clipping."""
        config = self.config
        x, y = map(wrap, batch_at(self.corpus.train, self.step, config.seed, config.batch,
                                  config.context))
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, self.step)
        generator = ad.get_rng_state()
        with self.monitor.watch(self.model, self.optimizer, x, y):
            self.optimizer.zero_grad()
            loss = self.model.loss(x, y)
            loss.backward()
            norm = float(clip_grad_norm_(self.model.parameters(), config.clip))
            value = float(loss.item())
            if not finite(value, norm):
                ad.set_rng_state(generator)
                began = where_it_began(lambda: self.model.loss(x, y).backward())
                raise Diverged(f"the loss is {value}, the gradient norm {norm} at step "
                               f"{self.step + 1}; the last checkpoint is kept; start again with a "
                               f"smaller --lr (it is {config.lr:g}). {began}")
            self.optimizer.step()
        self.step += 1
        self.losses.append([self.step, value, norm])
        self.monitor.seen(self.step, norm)
        return value, norm

    def small_loss(self) -> Any:
        """The loss of one sequence, with its graph: for the picture in the report."""
        x, y = batch_at(self.corpus.train, 0, self.config.seed, 1, min(self.config.context, 8))
        return self.model.loss(wrap(x), wrap(y))

    def validate(self) -> float:
        """Mean loss in nats per byte over the held-out text."""
        self.model.eval()
        total = count = 0.0
        with ad.no_grad():
            for x, y in validation_batches(self.corpus.validation, self.config.batch,
                                           self.config.context):
                total += float(self.model.loss(wrap(x), wrap(y)).item()) * len(x)
                count += len(x)
        self.model.train()
        self.validations.append([self.step, total / count])
        self.monitor.validated(self.step, total / count)
        return total / count

    def owes_validation(self, save_every: int) -> bool:
        """True after a stop at a step that validates in an uninterrupted run."""
        done = self.validations[-1][0] if self.validations else 0
        return self.step > done and (self.step % save_every == 0 or self.step == self.config.steps)

    def plot(self) -> None:
        """Write loss.svg."""
        from adjoint.io.atomic import write_bytes
        chart = line_chart({"training": [(s, v) for s, v, _ in self.losses],
                            "validation": [(s, v) for s, v in self.validations]},
                           "Loss", "step", "nats per byte")
        write_bytes(self.folder / "loss.svg", chart.encode())

    def sample(self, count: int) -> str:
        """Text in the style of the corpus: a function, or on from how the held-out text begins."""
        self.model.eval()
        prompt = bytes(self.corpus.validation[:24]) if self.config.text else b"def "
        draw = np.random.Generator(np.random.Philox(self.config.seed))
        text = self.model.generate(prompt, count, draw=draw)
        self.model.train()
        return text.decode("utf-8", "replace")


def train(run: Run, progress: Progress, save_every: int) -> int:
    """Train to the end or to a signal, saving as it goes; returns the signal, 0 at the end."""
    config = run.config
    tokens = config.batch * config.context
    begun, first, pace = time.perf_counter(), run.step, 0.0
    if run.owes_validation(save_every):
        run.validate()
    run.monitor.say = progress.note
    with StopFlag() as stop:
        while run.step < config.steps and not stop.signal:
            before = time.perf_counter()
            loss, norm = run.train_step()
            now = time.perf_counter()
            pace = now - before if not pace else 0.9 * pace + 0.1 * (now - before)
            left = (now - begun) / (run.step - first) * (config.steps - run.step)
            progress.step(Report(run.step, loss, norm, tokens / pace, left))
            if stop.signal or run.step == config.steps or run.step % save_every == 0:
                _pause(run, progress, bool(stop.signal))
    return stop.signal if run.step < config.steps else 0


def _pause(run: Run, progress: Progress, stopping: bool) -> None:
    """Validate (unless told to stop) and save."""
    if not stopping:
        progress.note(f"Step {run.step}: validation loss {run.validate():.4f}")
    run.save()
    run.plot()
