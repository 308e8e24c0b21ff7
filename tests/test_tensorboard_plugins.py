"""SummaryWriter's rarer methods: what TensorBoard's plugins find in the event files (F131).

The expected fields are those of TensorBoard's public .proto files; PyTorch's writer gave the same
bytes for these calls.
"""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.base.errors import ArgumentError, NotSupported, ShapeError
from adjoint.utils.events_file import fields, read_records
from adjoint.utils.tensorboard import SummaryWriter

pytestmark = pytest.mark.row("F131")


def values(folder: Path, add: Callable[[SummaryWriter], Any]) -> list[dict[int, list[Any]]]:
    """The summary values that `add` writes."""
    with SummaryWriter(folder) as writer:
        add(writer)
    events = [fields(data) for data in read_records(writer.path)][1:]
    return [fields(v) for e in events for s in e[5] for v in fields(s)[1]]


def plugin(value: dict[int, list[Any]]) -> tuple[bytes, bytes]:
    """Name and content of the plugin's part."""
    data = fields(fields(value[9][0])[1][0])
    return data[1][0], data.get(2, [b""])[0]


def floats(value: dict[int, list[Any]], dtype: str = "<f4", field: int = 5) -> Any:
    tensor = fields(value[8][0])
    sizes = [fields(d)[1][0] for d in fields(tensor[2][0]).get(2, [])]
    return np.frombuffer(tensor[field][0], dtype).reshape(sizes)


def test_curves_of_precision_and_recall(tmp_path: Path) -> None:
    (found,) = values(tmp_path, lambda w: w.add_pr_curve(
        "p", ad.tensor([True, False, True]), ad.tensor([0.1, 0.9, 1.0]), 1, num_thresholds=5,
        weights=np.array([1.0, 2.0, 3.0])))
    assert plugin(found) == (b"pr_curves", b"\x10\x05")
    expected = [[4, 3, 3, 3, 3], [2, 2, 2, 2, 0], [0, 0, 0, 0, 2], [0, 1, 1, 1, 1],
                [2 / 3, 0.6, 0.6, 0.6, 1], [1, 0.75, 0.75, 0.75, 0.75]]
    np.testing.assert_allclose(floats(found), expected, rtol=1e-6)
    (raw,) = values(tmp_path / "r", lambda w: w.add_pr_curve_raw(
        "p", [1, 2], [0, 1], [3, 4], [1, 1], [0.5, 0.6], [0.7, 0.8]))
    assert floats(raw)[3].tolist() == [1, 1] and plugin(raw)[1] == b"\x10\x02"
    with pytest.raises(ShapeError, match="2 labels, 1 predictions"):
        values(tmp_path, lambda w: w.add_pr_curve("p", [0, 1], [0.5]))


def test_meshes(tmp_path: Path) -> None:
    points = ad.arange(12.0).view(1, 4, 3)
    found = values(tmp_path, lambda w: w.add_mesh(
        "m", points, colors=ad.full((1, 4, 3), 7), faces=ad.tensor([[[0, 1, 2]]]),
        config_dict={"b": 1, "a": [1]}))
    assert [v[1][0] for v in found] == [b"m_VERTEX", b"m_FACE", b"m_COLOR"]
    for kind, value in enumerate(found, 1):
        name, content = plugin(value)
        parts = fields(content)
        assert name == b"mesh" and parts[2] == [b"m"] and parts[3] == [kind] and parts[7] == [14]
        assert parts[5] == [b'{"a": [1], "b": 1}'] and parts[6] == [bytes(floats(value).shape)]
    np.testing.assert_array_equal(floats(found[0]), points.numpy())
    with pytest.raises(ShapeError, match="vertices of shape"):
        values(tmp_path, lambda w: w.add_mesh("m", ad.ones(4, 3)))


def test_layouts(tmp_path: Path) -> None:
    found = values(tmp_path, lambda w: (
        w.add_custom_scalars({"A": {"c": ["Multiline", ["x", "y"]]}}),
        w.add_custom_scalars_marginchart(["v", "lo", "hi"], title="t"),
        w.add_custom_scalars_multilinechart(["z"])))
    layouts = [fields(fields(v[8][0])[8][0]) for v in found]
    titles = [fields(x[2][0])[1] for x in layouts]
    assert titles == [[b"A"], [b"default"], [b"default"]]
    charts = [fields(fields(x[2][0])[2][0]) for x in layouts]
    assert fields(charts[0][2][0])[1] == [b"x", b"y"] and charts[1][1] == [b"t"]
    margin = fields(fields(charts[1][3][0])[1][0])
    assert [margin[i] for i in (1, 2, 3)] == [[b"v"], [b"lo"], [b"hi"]]
    with pytest.raises(ArgumentError, match="Expected 3 tags, got 2"):
        values(tmp_path, lambda w: w.add_custom_scalars_marginchart(["a", "b"]))


def test_settings_of_runs(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams({"lr": 0.5, "opt": "sgd", "t": ad.tensor(3.0)}, {"acc": 0.75},
                           hparam_domain_discrete={"opt": ["sgd", "adam"]}, run_name="one")
        with pytest.raises(ArgumentError, match="'a' is a list"):
            writer.add_hparams({"a": [1]}, {})
        with pytest.raises(TypeError, match="should be a list of same type"):
            writer.add_hparams({"a": 1}, {}, hparam_domain_discrete={"a": ["x"]})
        with pytest.raises(TypeError, match="should be dictionary"):
            writer.add_hparams({"a": 1}, 3)                        # type: ignore[arg-type]  # wrong
    (file,) = (tmp_path / "one").iterdir()
    found = [fields(fields(fields(m)[5][0])[1][0]) for m in list(read_records(file))[1:]]
    experiment = fields(fields(plugin(found[0])[1])[2][0])
    infos = [fields(x) for x in experiment[4]]
    assert [(i[1][0], i[4][0]) for i in infos] == [(b"lr", 3), (b"opt", 1), (b"t", 3)]
    assert [fields(x)[3] for x in fields(infos[1][5][0])[1]] == [[b"sgd"], [b"adam"]]
    assert fields(fields(experiment[5][0])[1][0])[2] == [b"acc"]
    start = fields(fields(plugin(found[1])[1])[3][0])[1]
    given = {fields(x)[1][0]: fields(fields(x)[2][0]) for x in start}
    assert given == {b"lr": {2: [0.5]}, b"opt": {3: [b"sgd"]}, b"t": {2: [3.0]}}
    assert found[3][1] == [b"acc"] and found[3][2] == [0.75]


def test_points_of_the_projector(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_embedding(ad.tensor([[1.0, 2.5], [3.0, 4.0], [0.0, 1.0]]), ["a", "b", "c"],
                             ad.rand(3, 1, 2, 2), 7, "e/x")
        writer.add_embedding(np.eye(2), [["a", 1], ["b", 2]], metadata_header=["name", "n"])
        with pytest.raises(ArgumentError, match="1 for 2"):
            writer.add_embedding(np.eye(2), ["a"])
        with pytest.raises(ShapeError, match="mat should be 2D"):
            writer.add_embedding(np.ones(3))
    place = tmp_path / "00007" / "e%2Fx"
    assert (place / "tensors.tsv").read_text() == "1.0\t2.5\n3.0\t4.0\n0.0\t1.0\n"
    assert (place / "metadata.tsv").read_text() == "a\nb\nc\n"
    assert (place / "sprite.png").read_bytes()[16:24] == b"\0\0\0\4\0\0\0\4"
    table = (tmp_path / "00000" / "default" / "metadata.tsv").read_text()
    assert table == "name\tn\na\t1\nb\t2\n"
    config = (tmp_path / "projector_config.pbtxt").read_text()
    assert config.count("embeddings {") == 2 and 'tensor_name: "e/x:00007"' in config
    assert "single_image_dim: 2" in config


def test_sounds_and_films(tmp_path: Path) -> None:
    (sound,) = values(tmp_path, lambda w: w.add_audio("a", ad.tensor([[0.5, -1.0]]), 1, 8000))
    audio = fields(sound[6][0])
    assert (audio[1], audio[2], audio[3]) == ([8000.0], [1], [2])
    assert audio[4][0][-4:] == np.array([16383, -32767], "<i2").tobytes()
    with pytest.raises(ShapeError, match="1, 1, 5"):
        values(tmp_path, lambda w: w.add_audio("a", ad.zeros(1, 1, 5)))
    pytest.importorskip("PIL")
    (film,) = values(tmp_path / "f", lambda w: w.add_video("v", ad.rand(2, 3, 3, 4, 5)))
    image = fields(film[4][0])
    assert (image[1], image[2], image[3]) == ([4], [10], [3]) and image[4][0][:3] == b"GIF"
    (boxed,) = values(tmp_path / "b", lambda w: w.add_image_with_boxes(
        "b", ad.zeros(3, 20, 30), ad.tensor([[2, 2, 15, 15]]), labels=["cat"]))
    assert fields(boxed[4][0])[2] == [30]


def test_tensors_and_counted_distributions(tmp_path: Path) -> None:
    found = values(tmp_path, lambda w: [
        w.add_tensor("t", ad.tensor([0, 1, 2]).to(d))
        for d in (ad.float64, ad.int64, ad.bool, ad.float16)])
    kept = [fields(v[8][0]) for v in found]
    assert [k[1][0] for k in kept] == [2, 9, 10, 19] and plugin(found[0])[0] == b"tensor"
    assert floats(found[0], "<f8", 6).tolist() == [0.0, 1.0, 2.0]
    assert kept[1][10] == [b"\0\1\2"] and kept[2][11] == [b"\0\1\1"]
    (new,) = values(tmp_path / "n", lambda w: w.add_scalar("s", 1.5, new_style=True))
    assert plugin(new)[0] == b"scalars" and floats(new) == 1.5
    (raw,) = values(tmp_path / "r", lambda w: w.add_histogram_raw(
        "h", 0.0, 1.0, 3, 1.5, 2.0, [0.5, 1.0], [1, 2]))
    histogram = fields(raw[5][0])
    assert histogram[3] == [3.0] and np.frombuffer(histogram[7][0]).tolist() == [1.0, 2.0]
    (few,) = values(tmp_path / "m", lambda w: w.add_histogram("h", np.arange(100.0), bins="auto",
                                                              max_bins=3))
    assert np.frombuffer(fields(few[5][0])[7][0]).tolist() == [0, 25, 25, 25, 25]


def test_writers_and_bins(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalars("g", {"a": 1.0}, 1)
        assert sorted(writer.all_writers) == sorted([str(tmp_path), str(tmp_path / "g_a")])
        assert writer.file_writer.get_logdir() == str(tmp_path)
        assert len(writer.default_bins) == 1549 and writer.default_bins[774] == 0.0
        with pytest.raises(NotSupported, match="ONNX"):
            writer.add_onnx_graph("x.onnx")
