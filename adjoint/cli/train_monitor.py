"""What a training run watches besides its loss, and the report at its end.

The gradient norm is looked at after every step: a spike is said at once, since it often comes
before the loss shows anything. The doctor watches the first steps and then one in a hundred, so
that it costs well under a percent. A step whose numbers are not finite is run again, checked op by
op, to say which line made the first of them.
"""
from __future__ import annotations

import contextlib
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from adjoint.autograd.anomaly import detect_anomaly
from adjoint.base.errors import AutogradError
from adjoint.inspect.doctor import doctor
from adjoint.inspect.doctor_symptoms import resident_bytes
from adjoint.memory import track
from adjoint.profiler import profile

FIRST, EVERY = 3, 100       # steps that the doctor watches: the first ones, then one in EVERY
SPIKE, WINDOW = 8.0, 50     # a norm of SPIKE times the median of the last WINDOW steps
CLEARLY = 8.0               # robust deviations that it must lie outside of, too


class Monitor:
    """The eyes of one run. `say` takes a line for the user."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.doctor = doctor(quiet=True)
        self.norms: deque[float] = deque(maxlen=WINDOW)
        self.spikes: list[tuple[int, float, float]] = []   # step, norm, median before
        self.memory: list[tuple[float, float]] = []        # step, resident bytes
        self.profile: Any = None
        self.step_bytes = 0                                # the most a step's tensors held
        self._steps = 0
        self._said: set[tuple[str, str]] = set()

    @contextlib.contextmanager
    def watch(self, *roots: Any) -> Iterator[None]:
        """Around a step; `roots` (model, optimizer, batch) say what was there before it."""
        self._steps += 1
        n = self._steps
        if n == FIRST + 1:
            self.profile = profile(profile_memory=True, with_stack=True)
            with self.profile:
                yield
        elif n == FIRST + 2:
            with track(*roots) as measured:
                yield
            self.step_bytes = measured.peak
        elif n <= FIRST or n % EVERY == 0:
            with self.doctor:
                yield
            self._tell()
        else:
            yield

    def _tell(self) -> None:
        for f in self.doctor.findings:
            if (f.code, f.where) not in self._said:
                self._said.add((f.code, f.where))
                self.say(f"doctor: {f.one_line()}")

    def seen(self, step: int, norm: float) -> None:
        """A step is over."""
        if len(self.norms) >= 10:
            usual = statistics.median(self.norms)
            spread = statistics.median(abs(v - usual) for v in self.norms)
            if norm > SPIKE * usual and norm - usual > CLEARLY * spread:
                self.spikes.append((step, norm, usual))
                self.say(f"Step {step}: gradient norm {norm:.4g}, {norm / usual:.0f} times the "
                         f"median of the last {len(self.norms)} steps ({usual:.4g})")
        self.norms.append(norm)
        if self._steps <= FIRST or self._steps % 10 == 0:
            self.memory.append((step, float(resident_bytes())))
            if len(self.memory) > 2000:
                del self.memory[1:-1:2]

    def validated(self, step: int, loss: float) -> None:
        """The held-out text was evaluated."""
        if not math.isfinite(loss):
            self.say(f"Step {step}: the validation loss is {loss} though training goes on; "
                     "look at the held-out text and at the ops that evaluation alone runs")

    def findings(self) -> list[Any]:
        """What the doctor has found until now."""
        return self.doctor.findings


def where_it_began(step: Callable[[], Any]) -> str:
    """Run a step's forward and backward again, checked op by op; the first lines of what is
    wrong, "" if nothing is."""
    try:
        with detect_anomaly(check_inf=True, check_forward=True):
            step()
    except AutogradError as error:
        if error.reason in ("nan", "inf"):
            return "; ".join(line.strip() for line in str(error).splitlines()[:3])
    return ""


def finite(*values: float) -> bool:
    """True if all are numbers and not infinite."""
    return all(map(math.isfinite, values))
