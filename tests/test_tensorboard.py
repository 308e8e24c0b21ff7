"""Event files: checksums, messages, what TensorBoard's own reader sees; sparklines (F131)."""
from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adjoint as ad
from adjoint import nn
from adjoint.base.errors import ArgumentError, ShapeError
from adjoint.utils.events_file import crc32c, fields, read_records, read_scalars
from adjoint.utils.plot import sparkline
from adjoint.utils.tensorboard import SummaryWriter


def test_checksum_is_castagnoli() -> None:
    """RFC 3720, appendix B.4."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"") == 0


@pytest.mark.row("F131")
def test_scalars_come_back(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path, max_queue=3) as writer:
        for step in range(10):
            writer.add_scalar("loss", 1 / (step + 1), step)
        writer.add_scalar("norm", ad.tensor([2.5]), 2**40, walltime=12.5)
        writer.add_scalar("negative", -1.0, -3)
    found = read_scalars(writer.path)
    assert [s for s, _ in found["loss"]] == list(range(10))
    np.testing.assert_allclose([v for _, v in found["loss"]], 1 / np.arange(1, 11), rtol=1e-7)
    assert found["norm"] == [(2**40, 2.5)] and found["negative"] == [(-3, -1.0)]
    first = fields(next(read_records(writer.path)))
    assert first[3] == [b"brain.Event:2"]


@given(st.lists(st.tuples(st.integers(-2**63, 2**63 - 1), st.floats(width=32, allow_nan=False)),
                max_size=8), st.text(min_size=1, max_size=20))
def test_any_scalar(tmp_path_factory: Any, rows: list[tuple[int, float]], tag: str) -> None:
    folder = tmp_path_factory.mktemp("tb")
    with SummaryWriter(folder) as writer:
        for step, value in rows:
            writer.add_scalar(tag, value, step)
    assert read_scalars(writer.path).get(tag, []) == rows


def test_damage_is_noticed(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("a", 1.0, 1)
    data = bytearray(writer.path.read_bytes())
    data[-6] ^= 1
    writer.path.write_bytes(data)
    with pytest.raises(ArgumentError, match="damaged record at byte"):
        list(read_records(writer.path))
    writer.path.write_bytes(bytes(data[:-3]))
    with pytest.raises(ArgumentError, match="damaged"):
        list(read_records(writer.path))


def test_several_curves_in_one_chart(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalars("loss", {"train": 1.0, "held/out": 2.0}, 5)
    folders = sorted(p.name for p in tmp_path.iterdir() if p.is_dir())
    assert folders == ["loss_held_out", "loss_train"]
    (file,) = (tmp_path / "loss_train").iterdir()
    assert read_scalars(file) == {"loss": [(5, 1.0)]}


def test_histogram_counts(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("w", ad.tensor(values), 1)
        writer.add_histogram("w", values, 2, bins="auto")
        writer.add_histogram("zeros", np.zeros(5), 1)
        writer.add_histogram("nan", [1.0, float("nan")])
        with pytest.raises(ArgumentError, match="outside"):
            writer.add_histogram("far", [-1e30])
        with pytest.raises(ArgumentError, match="no values"):
            writer.add_histogram("none", [])
    for data in list(read_records(writer.path))[1:3]:
        value = fields(fields(fields(data)[5][0])[1][0])
        histo = fields(value[5][0])
        limits, counts = (np.frombuffer(histo[i][0], "<f8") for i in (6, 7))
        assert len(limits) == len(counts) and counts.sum() == 1000 == histo[3][0]
        assert histo[1][0] == values.min() and histo[2][0] == values.max()
        expected, _ = np.histogram(values, limits)
        np.testing.assert_array_equal([0, *expected], counts)


def test_images_are_pngs(tmp_path: Path) -> None:
    picture = np.random.default_rng(0).random((3, 4, 5), np.float32)
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("chw", ad.tensor(picture), 1)
        writer.add_image("hw", np.eye(3, dtype=np.uint8) * 255, 1, dataformats="HW")
        with pytest.raises(ShapeError, match="axes 'CHW'"):
            writer.add_image("bad", np.eye(3))
        with pytest.raises(ShapeError, match="5 channels"):
            writer.add_image("bad", np.zeros((5, 3, 3)))
    data = list(read_records(writer.path))[1]
    parts = fields(fields(fields(fields(data)[5][0])[1][0])[4][0])
    assert [parts[i][0] for i in (1, 2, 3)] == [4, 5, 3]
    png = parts[4][0]
    assert png.startswith(b"\x89PNG") and struct.unpack(">II", png[16:24]) == (5, 4)
    at = png.index(b"IDAT")
    (size,) = struct.unpack(">I", png[at - 4:at])
    rows = np.frombuffer(zlib.decompress(png[at + 4:at + 4 + size]), np.uint8).reshape(4, 16)
    expected = (picture.transpose(1, 2, 0) * 255 + 0.5).astype(np.uint8)
    np.testing.assert_array_equal(rows[:, 1:].reshape(4, 5, 3), expected)


@pytest.mark.row("F131")
def test_pictures_figures_settings_and_modules(tmp_path: Path) -> None:
    class Figure:
        """What is used of Matplotlib's."""

        canvas = property(lambda self: self)

        def draw(self) -> None:
            self.drawn = True

        def buffer_rgba(self) -> Any:
            return np.zeros((4, 5, 4), np.uint8)

    figure = Figure()
    with SummaryWriter(tmp_path) as writer:
        writer.add_images("batch", ad.rand(3, 1, 4, 5), 1)
        writer.add_images("last", np.zeros((2, 4, 5, 3), np.uint8), dataformats="NHWC")
        writer.add_figure("plot", [figure, figure], close=False)
        writer.add_graph(nn.Linear(2, 3), ad.ones(1, 2))
        writer.add_hparams({"lr": 0.1, "name": "a"}, {"acc": ad.tensor(0.75)}, run_name="one")
        with pytest.raises(ShapeError, match="does not have the axes"):
            writer.add_images("bad", np.zeros((4, 5)))
    sizes = {}
    for message in list(read_records(writer.path))[1:]:
        value = fields(fields(fields(message)[5][0])[1][0])
        if 4 in value:
            found = fields(value[4][0])
            sizes[value[1][0]] = (found[1][0], found[2][0], found[3][0])
    assert figure.drawn
    assert sizes == {b"batch": (4, 15, 1), b"last": (4, 10, 3), b"plot": (4, 10, 3)}
    (inner,) = (tmp_path / "one").iterdir()
    assert read_scalars(inner) == {"acc": [(0, 0.75)]}
    assert b"Linear(in_features=2" in writer.path.read_bytes()
    tags = [fields(fields(fields(m)[5][0])[1][0])[1][0] for m in list(read_records(inner))[1:4]]
    assert tags == [b"_hparams_/experiment", b"_hparams_/session_start_info",
                    b"_hparams_/session_end_info"]


def test_gradient_norms(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    model(ad.ones(1, 3)).sum().backward()
    with SummaryWriter(tmp_path) as writer:
        total = writer.add_gradients(model, 7)
    found = read_scalars(writer.path)
    assert set(found) == {"grad_norm/weight", "grad_norm/bias", "grad_norm/total"}
    np.testing.assert_allclose(total, np.sqrt(6 + 2), rtol=1e-6)


def test_use_after_close_and_bad_values(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path / "a" / "b", filename_suffix=".mine")
    assert writer.get_logdir().endswith("b") and writer.path.name.endswith(".mine")
    with pytest.raises(ShapeError, match="one number"):
        writer.add_scalar("x", [1.0, 2.0])
    writer.close()
    writer.close()
    first = writer.path
    writer.add_scalar("x", 1.0)
    writer.close()
    assert writer.path != first and read_scalars(writer.path) == {"x": [(0, 1.0)]}


@pytest.mark.row("F131")
def test_tensorboard_reads_it(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with SummaryWriter(tmp_path) as writer:
        for step in range(5):
            writer.add_scalar("loss", step * 0.5, step)
        writer.add_histogram("w", np.arange(10.0), 3)
        writer.add_text("note", "**hello**", 1)
        writer.add_image("picture", np.zeros((3, 2, 2), np.float32), 2)
    seen = accumulator.EventAccumulator(str(tmp_path))
    seen.Reload()
    assert [(e.step, e.value) for e in seen.Scalars("loss")] == [(i, i * 0.5) for i in range(5)]
    assert seen.Histograms("w")[0].histogram_value.num == 10
    assert seen.Images("picture")[0].width == 2
    tensor = seen.Tensors("note/text_summary")[0].tensor_proto
    assert tensor.string_val[0] == b"**hello**"


@pytest.mark.row("F131")
def test_sparkline() -> None:
    assert sparkline([]) == "" and sparkline([3.0]) == "▁" and sparkline([1, 1]) == "▁▁"
    assert sparkline(range(8)) == "▁▂▃▄▅▆▇█"
    assert len(sparkline(range(1000), width=50)) == 50
    assert sparkline([1.0, float("inf"), 2.0]) == "▁!█"
    assert sparkline([0.0, 1e-3, 1.0], log=True) == "▁▁█"
    spike = [1.0] * 99 + [100.0]
    assert sparkline(spike, width=10)[-1] == "█"
