"""What `adjoint train` reads and draws: text, batches, options, the chart."""
from __future__ import annotations

import xml.etree.ElementTree as xml

import numpy as np
import pytest

from adjoint.cli.train_options import BadInput, TrainConfig, choose_folder, merge_resumed
from adjoint.cli.train_text import batch_at, load_corpus, validation_batches, windows
from adjoint.utils.plot import line_chart, ticks


def test_the_default_text_is_the_standard_library():
    corpus = load_corpus("", 1.0, 128)
    assert "standard library" in corpus.source
    assert 800_000 < len(corpus.train) < 1_000_000 and len(corpus.validation) > 20_000
    assert b"import" in corpus.train.tobytes()
    assert load_corpus("", 1.0, 128).digest == corpus.digest
    assert load_corpus("", 0.9, 128).digest != corpus.digest


def test_a_file_is_divided_at_its_end(tmp_path):
    path = tmp_path / "t"
    path.write_bytes(bytes(range(200)))
    corpus = load_corpus(str(path), 1.0, 9)
    assert corpus.train.tolist() == list(range(180))
    assert corpus.validation.tolist() == list(range(180, 200))


def test_a_folder_holds_out_whole_files(tmp_path):
    for i in range(30):
        (tmp_path / f"{i:02d}.txt").write_bytes(b"%02d " % i * 20)
    (tmp_path / ".hidden").write_bytes(b"hidden" * 100)
    (tmp_path / "binary").write_bytes(b"\0binary" * 100)
    (tmp_path / "empty").write_bytes(b"")
    corpus = load_corpus(str(tmp_path), 1.0, 9)
    held = corpus.validation.tobytes()
    assert {held[i:i + 2] for i in range(0, len(held), 61)} == {b"09", b"19", b"29"}
    assert b"09 " not in corpus.train.tobytes() and b"hidden" not in corpus.train.tobytes()
    assert b"binary" not in corpus.train.tobytes()


@pytest.mark.parametrize("content, message", [
    (None, "No such file"), (b"", "the file is empty"), (b"abc", "3 bytes are too short")])
def test_bad_text(content, message, tmp_path):
    path = tmp_path / "t"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=message) as caught:
        load_corpus(str(path), 1.0, 8)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_the_shortest_text_that_fits(tmp_path):
    path = tmp_path / "t"
    path.write_bytes(b"x" * 18)
    assert len(load_corpus(str(path), 1.0, 8).train) == 9
    path.write_bytes(b"x" * 17)
    with pytest.raises(BadInput, match="at least 18"):
        load_corpus(str(path), 1.0, 8)


def test_batches_are_a_function_of_seed_and_step():
    data = np.arange(250, dtype=np.uint8)
    x, y = batch_at(data, 3, 1, 4, 10)
    assert x.shape == y.shape == (4, 10) and x.dtype == np.int64
    assert (y == x + 1).all() and (x[:, 1:] == y[:, :-1]).all()
    assert (batch_at(data, 3, 1, 4, 10)[0] == x).all()
    assert (batch_at(data, 4, 1, 4, 10)[0] != x).any()
    assert (batch_at(data, 3, 2, 4, 10)[0] != x).any()
    last = windows(data, np.array([239]), 10)[1]
    assert last[0, -1] == 249
    every = {int(x[0, 0]) for s in range(2000) for x in batch_at(data[:12], s, 0, 1, 10)[:1]}
    assert every == {0, 1}


def test_validation_is_spread_over_the_text():
    data = np.arange(101, dtype=np.uint8)
    rows = np.concatenate([x for x, _ in validation_batches(data, 3, 10)])
    assert rows.shape == (10, 10) and rows[0, 0] == 0 and rows[-1, -1] == 99
    assert len(list(validation_batches(data, 64, 10, limit=4))[0][0]) == 4


def test_configurations_that_cannot_be():
    for options, message in [({"dim": 10, "heads": 4}, "dim 10 is not divisible by 4 heads"),
                             ({"batch": 0}, "--batch must be at least 1"),
                             ({"lr": -1.0}, "--lr must be a positive number"),
                             ({"lr": float("nan")}, "--lr"), ({"dropout": 1.0}, "dropout"),
                             ({"seed": -1}, "--seed"), ({"weight_decay": -0.1}, "--weight-decay"),
                             ({"max_mb": 0.0}, "--max-mb")]:
        with pytest.raises(BadInput, match=message):
            TrainConfig(**options).check()
    TrainConfig().check()


def test_resuming_with_other_sizes(tmp_path):
    saved = TrainConfig(dim=64).to_json()
    assert merge_resumed(saved, {"dim": 64, "text": "a"}, tmp_path).text == "a"
    with pytest.raises(BadInput, match="--dim 32 differs from the 64 of"):
        merge_resumed(saved, {"dim": 32}, tmp_path)


def test_run_folders_are_numbered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(choose_folder(None, False)) == "runs/gpt-001"
    for n in (1, 2, 10):
        (tmp_path / "runs" / f"gpt-{n:03d}").mkdir(parents=True)
    assert str(choose_folder(None, False)) == "runs/gpt-011"
    assert str(choose_folder(None, True)) == "runs/gpt-010"
    assert str(choose_folder("x", True)) == "x"


def test_resume_without_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="no run in ./runs"):
        choose_folder(None, True)


def test_the_chart_is_xml_and_holds_the_points():
    picture = line_chart({"a & b": [(0, 1.0), (1, 2.0), (2, float("nan"))], "c": []}, "t<")
    root = xml.fromstring(picture)
    lines = [e for e in root.iter() if e.tag.endswith("polyline")]
    assert len(lines) == 2 and len(lines[0].get("points").split()) == 2
    (x0, y0), (x1, y1) = (map(float, p.split(",")) for p in lines[0].get("points").split())
    assert x0 < x1 and y0 > y1  # upwards on the screen is a smaller y
    assert xml.fromstring(line_chart({})) is not None
    assert "@media(prefers-color-scheme:dark)" in picture and ".p{fill:#12181e}" in picture
    assert len(line_chart({"long": [(i, i) for i in range(100_000)]})) < 40_000
    assert xml.fromstring(line_chart({"flat": [(1, 3.0), (2, 3.0)]})) is not None


@pytest.mark.parametrize("low, high", [(0, 10), (-3.2, 7.7), (1e-9, 3e-9), (5, 5), (0, 1e6)])
def test_ticks_cover_the_interval_in_round_steps(low, high):
    got = ticks(low, high)
    assert got[0] <= low and got[-1] >= high and 2 <= len(got) <= 12
    steps = np.diff(got)
    assert np.allclose(steps, steps[0], rtol=1e-6)
