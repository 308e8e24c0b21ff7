"""`SummaryWriter`: scalars, histograms, texts and images for TensorBoard, which need not be
installed here."""
from __future__ import annotations

import importlib
import itertools
import os
import socket
import struct
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.core.tensor import Tensor
from adjoint.utils import events_file as ev

__all__ = ["SummaryWriter"]

_serial = itertools.count()
_limits: list[float] = []


class SummaryWriter:
    """Writes an event file into `log_dir`, made if it is not there.

    log_dir          default: runs/<date>_<host><comment>
    max_queue        events held back before they are written
    flush_secs       seconds after which they are written anyway, at the next event
    filename_suffix  put behind the file's name

    >>> import adjoint as ad
    >>> from adjoint.utils.events_file import read_scalars
    >>> with SummaryWriter("logs") as writer:
    ...     writer.add_scalar("loss", 0.5, 1)
    ...     writer.add_scalar("loss", ad.tensor(0.25), 2)
    >>> read_scalars(writer.path)
    {'loss': [(1, 0.5), (2, 0.25)]}
    """

    def __init__(self, log_dir: str | os.PathLike[str] | None = None, comment: str = "",
                 purge_step: int | None = None, max_queue: int = 10, flush_secs: float = 120,
                 filename_suffix: str = "") -> None:
        if log_dir is None:
            now = time.strftime("%b%d_%H-%M-%S")
            log_dir = Path("runs") / f"{now}_{socket.gethostname()}{comment}"
        self.log_dir = str(log_dir)
        self.purge_step, self.max_queue, self.flush_secs = purge_step, max_queue, flush_secs
        os.makedirs(log_dir, exist_ok=True)
        stamp = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_serial)}"
        self.path = Path(log_dir) / f"events.out.tfevents.{stamp}{filename_suffix}"
        self._suffix = filename_suffix
        self._file: Any = open(self.path, "ab")
        self._queue: list[bytes] = []
        self._flushed = time.monotonic()
        self._children: dict[str, SummaryWriter] = {}
        self._put(ev.event(time.time(), version="brain.Event:2"))
        self.flush()

    # -- writing -------------------------------------------------------------------------------
    def _put(self, message: bytes) -> None:
        if self._file is None:
            raise ArgumentError(f"SummaryWriter: {self.path} is closed")
        self._queue.append(ev.record(message))
        if (len(self._queue) > self.max_queue
                or time.monotonic() - self._flushed > self.flush_secs):
            self.flush()

    def _add(self, summary: bytes, step: int | None, walltime: float | None) -> None:
        self._put(ev.event(time.time() if walltime is None else walltime,
                           0 if step is None else int(step), summary=summary))

    def flush(self) -> None:
        """Write what is held back."""
        if self._file is not None:
            self._file.write(b"".join(self._queue))
            self._file.flush()
            self._queue.clear()
            self._flushed = time.monotonic()
        for child in self._children.values():
            child.flush()

    def close(self) -> None:
        """Write what is held back and close the file; a second call does nothing."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None
        for child in self._children.values():
            child.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    # -- what can be shown ---------------------------------------------------------------------
    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None,
                   walltime: float | None = None, new_style: bool = False,
                   double_precision: bool = False) -> None:
        """A number at a step; tensors and arrays of one element will do. Stored in single
        precision, as TensorBoard reads it."""
        self._add(ev.scalar(tag, _number(tag, scalar_value)), global_step, walltime)

    def add_scalars(self, main_tag: str, tag_scalar_dict: Mapping[str, Any],
                    global_step: int | None = None, walltime: float | None = None) -> None:
        """Several numbers in one chart: each in a run of its own below `log_dir`."""
        for tag, value in tag_scalar_dict.items():
            name = f"{main_tag}_{tag}".replace("/", "_")
            child = self._children.get(name)
            if child is None:
                child = self._children[name] = SummaryWriter(
                    Path(self.log_dir) / name, max_queue=self.max_queue,
                    flush_secs=self.flush_secs, filename_suffix=self._suffix)
            child.add_scalar(main_tag, value, global_step, walltime)

    def add_histogram(self, tag: str, values: Any, global_step: int | None = None,
                      bins: str = "tensorflow", walltime: float | None = None) -> None:
        """The distribution of the elements of a tensor or array."""
        if bins != "tensorflow":
            array = _array(values).reshape(-1)
            edges = np.histogram_bin_edges(array.astype(np.float64), bins=bins)
            self._add(ev.histogram(tag, array, list(edges[1:])), global_step, walltime)
            return
        if not _limits:
            _limits.extend(ev.default_limits())
        self._add(ev.histogram(tag, _array(values), _limits), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: int | None = None,
                 walltime: float | None = None) -> None:
        """A Markdown text."""
        self._add(ev.text(f"{tag}/text_summary", text_string), global_step, walltime)

    def add_image(self, tag: str, img_tensor: Any, global_step: int | None = None,
                  walltime: float | None = None, dataformats: str = "CHW") -> None:
        """A picture of 1, 3 or 4 channels: bytes, or floats in [0, 1]; `dataformats` names the
        axes ("CHW", "HWC" or "HW")."""
        array = _array(img_tensor)
        if sorted(dataformats) != sorted("CHW"[-len(dataformats):]) or array.ndim != len(
                dataformats):
            raise ShapeError(f"add_image: an array of shape {list(array.shape)} does not have the "
                             f"axes {dataformats!r}; give 'CHW', 'HWC' or 'HW'")
        if array.ndim == 2:
            array = array[..., None]
        elif dataformats != "HWC":
            array = array.transpose([dataformats.index(c) for c in "HWC"])
        if array.dtype.kind == "f":
            array = (np.clip(array, 0, 1) * 255 + 0.5).astype(np.uint8)
        height, width, channels = array.shape
        self._add(ev.image(tag, height, width, channels, _png(array)), global_step, walltime)

    def add_images(self, tag: str, img_tensor: Any, global_step: int | None = None,
                   walltime: float | None = None, dataformats: str = "NCHW") -> None:
        """Several pictures side by side; `dataformats` is that of one picture with an "N"."""
        array = _array(img_tensor)
        if "N" not in dataformats or array.ndim != len(dataformats):
            raise ShapeError(f"add_images: an array of shape {list(array.shape)} does not have the "
                             f"axes {dataformats!r}; give 'NCHW', 'NHWC' or 'NHW'")
        one = dataformats.replace("N", "")
        row = np.concatenate(list(np.moveaxis(array, dataformats.index("N"), 0)), one.index("W"))
        self.add_image(tag, row, global_step, walltime, one)

    def add_figure(self, tag: str, figure: Any, global_step: int | None = None,
                   close: bool = True, walltime: float | None = None) -> None:
        """A Matplotlib figure (or a list of them, side by side) as a picture."""
        figures = figure if isinstance(figure, (list, tuple)) else [figure]
        drawn = []
        for f in figures:
            f.canvas.draw()
            drawn.append(np.asarray(f.canvas.buffer_rgba())[..., :3])
        self.add_images(tag, np.stack(drawn), global_step, walltime, "NHWC")
        if close and figures:
            plt = importlib.import_module("matplotlib.pyplot")
            for f in figures:
                plt.close(f)

    def add_hparams(self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any],
                    hparam_domain_discrete: Any = None, run_name: str | None = None,
                    global_step: int | None = None) -> None:
        """The settings of a run as a table, what it reached as numbers, in a run of its own."""
        rows = "\n".join(f"| {key} | {value} |" for key, value in hparam_dict.items())
        with SummaryWriter(Path(self.log_dir) / (run_name or str(time.time()))) as run:
            run.add_text("hparams", f"| setting | value |\n| --- | --- |\n{rows}", global_step)
            for tag, value in metric_dict.items():
                run.add_scalar(tag, value, global_step)

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False,
                  use_strict_trace: bool = True) -> None:
        """The module as it prints, as a text: nothing here is traced. `draw(model(x))` draws."""
        self.add_text("graph", "\n".join(f"    {line}" for line in str(model).splitlines()))

    def add_gradients(self, model: Any, global_step: int | None = None) -> float:
        """The norm of each parameter's gradient as ``grad_norm/<name>``, and of all of them as
        ``grad_norm/total``, which is returned."""
        squares = 0.0
        for name, p in model.named_parameters():
            if p.grad is not None:
                norm = float(np.linalg.norm(p.grad.array.astype(np.float64, copy=False)))
                squares += norm * norm
                self.add_scalar(f"grad_norm/{name}", norm, global_step)
        total = float(np.sqrt(squares))
        self.add_scalar("grad_norm/total", total, global_step)
        return total


def _array(x: Any) -> Any:
    return x.array if isinstance(x, Tensor) else np.asarray(x)


def _number(tag: str, x: Any) -> float:
    array = _array(x)
    if array.size != 1:
        raise ShapeError(f"add_scalar({tag!r}): expected one number, got shape "
                         f"{list(array.shape)}")
    return float(array.reshape(()))


def _png(array: Any) -> bytes:
    """(height, width, channels) bytes as a PNG file."""
    height, width, channels = array.shape
    kinds = {1: 0, 3: 2, 4: 6}
    if channels not in kinds:
        raise ShapeError(f"add_image: {channels} channels; expected 1, 3 or 4")

    def chunk(name: bytes, data: bytes) -> bytes:
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = np.zeros((height, 1 + width * channels), np.uint8)     # filter 0 before each row
    rows[:, 1:] = array.astype(np.uint8).reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, kinds[channels], 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
            + chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)) + chunk(b"IEND", b""))
