"""`SummaryWriter`: what TensorBoard shows, which need not be installed here."""
from __future__ import annotations

import importlib
import io
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

from adjoint.base.errors import ArgumentError, NotSupported, ShapeError
from adjoint.core.tensor import Tensor
from adjoint.utils import board_messages as board
from adjoint.utils import events_file as ev
from adjoint.utils.projector import write_embedding

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
        self._suffix = filename_suffix
        self._file: Any = None
        self._queue: list[bytes] = []
        self._children: dict[str, SummaryWriter] = {}
        self._open()

    # -- writing -------------------------------------------------------------------------------
    def _open(self) -> None:
        """Begin a file, at first and where something is added after `close`."""
        os.makedirs(self.log_dir, exist_ok=True)
        stamp = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_serial)}"
        self.path = Path(self.log_dir) / f"events.out.tfevents.{stamp}{self._suffix}"
        self._file = open(self.path, "ab")
        self._flushed = time.monotonic()
        self._put(ev.event(time.time(), version="brain.Event:2"))
        self.flush()

    def _put(self, message: bytes) -> None:
        if self._file is None:
            self._open()
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
        """Write what is held back and close the file; a second call does nothing. What is added
        later begins another file."""
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

    @property
    def default_bins(self) -> list[float]:
        """The edges between which `add_histogram` counts."""
        if not _limits:
            _limits.extend(ev.default_limits())
        return _limits

    @property
    def file_writer(self) -> SummaryWriter:
        """What writes: the writer itself."""
        return self

    @property
    def all_writers(self) -> dict[str, SummaryWriter]:
        """Folder -> writer, those that `add_scalars` made too."""
        return {self.log_dir: self} | {w.log_dir: w for w in self._children.values()}

    # -- what can be shown ---------------------------------------------------------------------
    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None,
                   walltime: float | None = None, new_style: bool = False,
                   double_precision: bool = False) -> None:
        """A number at a step; tensors and arrays of one element will do. Stored in single
        precision, as TensorBoard reads it; `new_style` stores a tensor, which `double_precision`
        makes one of float64."""
        number = _number(tag, scalar_value)
        if new_style:
            array = np.asarray(number, np.float64 if double_precision else np.float32)
            value = board.any_tensor(tag, "scalars", b"", array)
        else:
            value = ev.scalar(tag, number)
        self._add(value, global_step, walltime)

    def add_tensor(self, tag: str, tensor: Any, global_step: int | None = None,
                   walltime: float | None = None) -> None:
        """A tensor's numbers in its own dtype."""
        self._add(board.any_tensor(tag, "tensor", b"", _array(tensor)), global_step, walltime)

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
                      bins: Any = "tensorflow", walltime: float | None = None,
                      max_bins: int | None = None) -> None:
        """The distribution of the elements of a tensor or array: counted between `default_bins`,
        between the edges `bins`, or by a rule of `numpy.histogram` ("auto", "fd", ...)."""
        edges = self.default_bins if isinstance(bins, str) and bins == "tensorflow" else bins
        self._add(ev.histogram(tag, _array(values), edges, max_bins), global_step, walltime)

    def add_histogram_raw(self, tag: str, min: float, max: float, num: float, sum: float,
                          sum_squares: float, bucket_limits: Any, bucket_counts: Any,
                          global_step: int | None = None, walltime: float | None = None) -> None:
        """A distribution that was counted already: `bucket_counts` numbers up to each of
        `bucket_limits`."""
        limits, counts = _array(bucket_limits), _array(bucket_counts)
        if len(limits) != len(counts):
            raise ArgumentError("len(bucket_limits) != len(bucket_counts), see the document: "
                                f"{len(limits)} limits, {len(counts)} counts")
        self._add(ev.histogram_raw(tag, [min, max, num, sum, sum_squares], limits, counts),
                  global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: int | None = None,
                 walltime: float | None = None) -> None:
        """A Markdown text."""
        self._add(ev.text(f"{tag}/text_summary", text_string), global_step, walltime)

    def add_image(self, tag: str, img_tensor: Any, global_step: int | None = None,
                  walltime: float | None = None, dataformats: str = "CHW") -> None:
        """A picture of 1 to 4 channels: bytes, or floats in [0, 1]; `dataformats` names the
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
        """Several pictures, eight in a row; `dataformats` is that of one picture with an "N"."""
        array = _array(img_tensor)
        if "N" not in dataformats or array.ndim != len(dataformats):
            raise ShapeError(f"add_images: an array of shape {list(array.shape)} does not have the "
                             f"axes {dataformats!r}; give 'NCHW', 'NHWC' or 'NHW'")
        one = dataformats.replace("N", "")
        pictures = list(np.moveaxis(array, dataformats.index("N"), 0))
        if len(pictures) > 8:
            pictures += [np.zeros_like(pictures[0])] * (-len(pictures) % 8)
        rows = [np.concatenate(pictures[i:i + 8], one.index("W"))
                for i in range(0, len(pictures), 8)]
        self.add_image(tag, np.concatenate(rows, one.index("H")), global_step, walltime, one)

    def add_image_with_boxes(self, tag: str, img_tensor: Any, box_tensor: Any,
                             global_step: int | None = None, walltime: float | None = None,
                             rescale: float = 1, dataformats: str = "CHW",
                             labels: Any = None) -> None:
        """A picture with frames drawn into it (Pillow draws): `box_tensor` (N, 4) holds the
        corners x1, y1, x2, y2, `labels` a text for each."""
        boxes = np.asarray(_array(box_tensor), np.float64).reshape(-1, 4)
        labels = [labels] if isinstance(labels, str) else labels
        if labels is not None and len(labels) != len(boxes):
            labels = None
        array = np.moveaxis(_array(img_tensor), [dataformats.index(c) for c in "HWC"], [0, 1, 2])
        if array.dtype.kind == "f":
            array = (np.clip(array, 0, 1) * 255 + 0.5).astype(np.uint8)
        image, draw = (importlib.import_module(f"PIL.{name}") for name in ("Image", "ImageDraw"))
        picture = image.fromarray(np.ascontiguousarray(array))
        if rescale != 1:
            picture = picture.resize((int(picture.width * rescale), int(picture.height * rescale)))
        pen = draw.Draw(picture)
        for i, box in enumerate(boxes * rescale):
            pen.rectangle(tuple(box), outline="red", width=4)
            if labels is not None:
                pen.text((box[0], box[3]), labels[i], fill="black")
        self.add_image(tag, np.array(picture), global_step, walltime, "HWC")

    def add_video(self, tag: str, vid_tensor: Any, global_step: int | None = None,
                  fps: float = 4, walltime: float | None = None) -> None:
        """Films (N, T, C, H, W), bytes or floats in [0, 1], beside each other as one GIF, which
        Pillow makes."""
        array = _array(vid_tensor)
        if array.ndim != 5:
            raise ShapeError(f"add_video: expected (N, T, C, H, W), got {list(array.shape)}")
        if array.dtype.kind == "f":
            array = (np.clip(array, 0, 1) * 255 + 0.5).astype(np.uint8)
        n, frames, channels, height, width = array.shape
        wide = array.transpose(1, 3, 0, 4, 2).reshape(frames, height, n * width, channels)
        image, held = importlib.import_module("PIL.Image"), io.BytesIO()
        first, *rest = [image.fromarray(np.broadcast_to(f, (*f.shape[:2], 3)).copy()
                                        if channels == 1 else f) for f in wide]
        first.save(held, "GIF", save_all=True, append_images=rest, duration=1000 / fps, loop=0)
        self._add(ev.image(tag, height, n * width, channels, held.getvalue()), global_step,
                  walltime)

    def add_audio(self, tag: str, snd_tensor: Any, global_step: int | None = None,
                  sample_rate: int = 44100, walltime: float | None = None) -> None:
        """Sound: the samples of one channel, in [-1, 1], as (L,) or (1, L)."""
        array = np.asarray(_array(snd_tensor), np.float64)
        array = array[0] if array.ndim == 2 else array
        if array.ndim != 1:
            raise ShapeError(f"add_audio: expected (L,) or (1, L), got {list(array.shape)}")
        if np.abs(array).max(initial=0) > 1:
            print("warning: audio amplitude out of range, auto clipped.")
        held, file = io.BytesIO(), importlib.import_module("wave")
        with file.open(held, "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(sample_rate)
            out.writeframes((np.clip(array, -1, 1) * 32767).astype("<i2").tobytes())
        self._add(ev.audio(tag, sample_rate, 1, len(array), held.getvalue()), global_step,
                  walltime)

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
                    hparam_domain_discrete: Mapping[str, Any] | None = None,
                    run_name: str | None = None, global_step: int | None = None) -> None:
        """The settings of a run and what it reached, for TensorBoard's table of runs, in a folder
        of its own; `hparam_domain_discrete` lists the values that a setting can have."""
        if not isinstance(hparam_dict, Mapping) or not isinstance(metric_dict, Mapping):
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        parts = board.settings(hparam_dict, metric_dict, hparam_domain_discrete or {})
        with SummaryWriter(Path(self.log_dir) / (run_name or str(time.time()))) as run:
            for part in parts:
                run._add(part, global_step, None)
            for tag, value in metric_dict.items():
                run.add_scalar(tag, value, global_step)

    def add_pr_curve(self, tag: str, labels: Any, predictions: Any,
                     global_step: int | None = None, num_thresholds: int = 127,
                     weights: Any = None, walltime: float | None = None) -> None:
        """Precision over recall of a classifier of two classes: `labels` 0 or 1, `predictions`
        probabilities, both of any one shape; at most 127 thresholds."""
        truth, found = (_array(x).reshape(-1) for x in (labels, predictions))
        if truth.shape != found.shape:
            raise ShapeError(f"add_pr_curve: {truth.size} labels, {found.size} predictions")
        heavy = None if weights is None else _array(weights).reshape(-1)
        rows = board.curve_rows(truth, found, min(num_thresholds, 127), heavy)
        self._add(board.curve(tag, rows), global_step, walltime)

    def add_pr_curve_raw(self, tag: str, true_positive_counts: Any, false_positive_counts: Any,
                         true_negative_counts: Any, false_negative_counts: Any, precision: Any,
                         recall: Any, global_step: int | None = None, num_thresholds: int = 127,
                         weights: Any = None, walltime: float | None = None) -> None:
        """A curve that was computed already: a number for each threshold, six times."""
        rows = np.stack([_array(x) for x in (
            true_positive_counts, false_positive_counts, true_negative_counts,
            false_negative_counts, precision, recall)])
        self._add(board.curve(tag, rows), global_step, walltime)

    def add_mesh(self, tag: str, vertices: Any, colors: Any = None, faces: Any = None,
                 config_dict: Any = None, global_step: int | None = None,
                 walltime: float | None = None) -> None:
        """A cloud of points or a mesh: `vertices` (B, N, 3), `colors` (B, N, 3) of 0 to 255,
        `faces` (B, M, 3) indices of vertices; `config_dict` goes to three.js."""
        parts = [(1, vertices), (2, faces), (3, colors)]
        bits = sum(1 << kind for kind, part in parts if part is not None)
        for kind, part in parts:
            if part is not None:
                array = _array(part)
                if array.ndim != 3 or array.shape[-1] != 3:
                    raise ShapeError(f"add_mesh: {('vertices', 'faces', 'colors')[kind - 1]} of "
                                     f"shape {list(array.shape)}; expected (B, N, 3)")
                self._add(board.mesh(tag, kind, bits, config_dict, array), global_step, walltime)

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Any]]) -> None:
        """Which scalars share a chart: {page: {chart: ["Multiline", tags] or ["Margin", [value,
        lower, upper]]}}. Once per run."""
        self._add(board.layout(layout), None, None)

    def add_custom_scalars_multilinechart(self, tags: Any, category: str = "default",
                                          title: str = "untitled") -> None:
        """One chart of several scalars."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(self, tags: Any, category: str = "default",
                                       title: str = "untitled") -> None:
        """One chart of a scalar between two others: [value, lower, upper]."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_embedding(self, mat: Any, metadata: Any = None, label_img: Any = None,
                      global_step: int | None = None, tag: str = "default",
                      metadata_header: Any = None) -> None:
        """Points for the projector: `mat` (N, D), a label (or a row of them) and a picture
        `label_img` (N, C, H, W) for each, as files in the folder."""
        pictures = None if label_img is None else _array(label_img)
        if pictures is not None and pictures.dtype.kind == "f":
            pictures = (np.clip(pictures, 0, 1) * 255 + 0.5).astype(np.uint8)
        write_embedding(self.log_dir, f"{global_step or 0:05d}", tag, _array(mat), metadata,
                        metadata_header, pictures, _png)

    def add_onnx_graph(self, prototxt: Any) -> None:
        """Raises: ONNX is not read here."""
        raise NotSupported("add_onnx_graph: ONNX files are not read here")

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
    kinds = {1: 0, 2: 4, 3: 2, 4: 6}
    if channels not in kinds:
        raise ShapeError(f"add_image: {channels} channels; expected 1 to 4")

    def chunk(name: bytes, data: bytes) -> bytes:
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = np.zeros((height, 1 + width * channels), np.uint8)     # filter 0 before each row
    rows[:, 1:] = array.astype(np.uint8).reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, kinds[channels], 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
            + chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)) + chunk(b"IEND", b""))
