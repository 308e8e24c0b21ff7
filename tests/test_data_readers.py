"""Readers of data sets in local files (issue 7, item 5): right values, and damage is named."""
from __future__ import annotations

import gzip
import os
import pickle

import numpy as np
import pytest

from adjoint.base.errors import ArgumentError
from adjoint.io import FileFormatError
from adjoint.utils.data import readers


def idx(array, code):
    head = bytes([0, 0, code, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return head + array.tobytes()


def test_idx_of_every_dtype(tmp_path):
    for code, dtype in readers._IDX.items():
        array = np.arange(-3, 3).reshape(2, 3).astype(dtype)
        path = tmp_path / f"{code}.idx"
        path.write_bytes(gzip.compress(idx(array, code)) if code % 2 else idx(array, code))
        got = readers.read_idx(path).array
        assert got.dtype == np.dtype(dtype).newbyteorder("=") and got.tolist() == array.tolist()


def test_mnist(tmp_path):
    images = np.arange(2 * 28 * 28).reshape(2, 28, 28).astype(np.uint8)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images, 8))
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(
        gzip.compress(idx(np.array([3, 9], np.uint8), 8)))
    data = readers.mnist(tmp_path)
    x, y = data.tensors
    assert x.shape == (2, 1, 28, 28) and x.array.dtype == np.float32 and y.array.tolist() == [3, 9]
    assert x.array[0, 0, 0, 5] == np.float32(5) / np.float32(255) and x.array.max() <= 1
    with pytest.raises(FileNotFoundError, match="t10k-images"):
        readers.mnist(tmp_path, train=False)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(np.zeros(3, np.uint8), 8))
    with pytest.raises(FileFormatError, match="do not belong together"):
        readers.mnist(tmp_path)


@pytest.mark.parametrize("data, message", [
    (b"", "not an IDX file"), (b"\0\0\x99\1", "not an IDX file"),
    (idx(np.zeros((2, 3), np.uint8), 8)[:-1], "needs 6 data bytes, it has 5"),
    (b"\0\0\x08\x04\0\0", "data bytes"), (b"\x1f\x8b\x08\0damaged", "damaged gzip"),
])
def test_damaged_idx(data, message, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=message):
        readers.read_idx(path)


def cifar_rows(n, classes):
    draw = np.random.default_rng(0)
    return draw.integers(0, 256, (n, 3072), np.uint8), draw.integers(0, classes, n)


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar_binary_and_python_agree(classes, tmp_path):
    rows, labels = cifar_rows(4, classes)
    names = ["data_batch_1", "test_batch"] if classes == 10 else ["train", "test"]
    fields = [labels] if classes == 10 else [labels // 5, labels]
    binary = np.concatenate([*(f[:, None].astype(np.uint8) for f in fields), rows], 1).tobytes()
    (tmp_path / f"{names[0]}.bin").write_bytes(binary)
    key = b"labels" if classes == 10 else b"fine_labels"
    (tmp_path / names[1]).write_bytes(pickle.dumps(
        {b"data": rows, key: labels.tolist(), b"batch_label": b"x"}, protocol=2))
    one, two = (readers.cifar(tmp_path, train, classes) for train in (True, False))
    for ours, theirs in zip(one.tensors, two.tensors, strict=True):
        np.testing.assert_array_equal(ours.array, theirs.array)
    assert one.tensors[0].shape == (4, 3, 32, 32) and one.tensors[1].array.tolist() == (
        labels.tolist())
    np.testing.assert_array_equal(
        (one.tensors[0].array * 255).round().astype(np.uint8).reshape(4, -1), rows)


def test_cifar_pickles_of_python_2_are_read(tmp_path):
    """Strings as SHORT_BINSTRING, dtype and array as NumPy 1 wrote them (protocol 2)."""
    rows, _ = cifar_rows(1, 10)
    raw = rows.tobytes()
    text = (b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
            b"U\x01b\x87R(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|"
            b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + len(raw).to_bytes(4, "little")
            + raw + b"tbU\x06labels]K\x07au.")
    path = tmp_path / "data_batch_1"
    path.write_bytes(text)
    images, labels = readers.read_cifar(path)
    assert labels.array.tolist() == [7] and images.array.tobytes() == raw


def test_cifar_runs_no_code_and_names_damage(tmp_path):
    path = tmp_path / "b"
    path.write_bytes(b"\x80\x02cos\nsystem\nU\x04true\x85R.")
    with pytest.raises(FileFormatError, match="names os.system"):
        readers.read_cifar(path)
    path.write_bytes(pickle.dumps({"data": [1]}, 2))
    with pytest.raises(FileFormatError, match=r"holds \['data'\]"):
        readers.read_cifar(path)
    path.write_bytes(bytes(3072))
    with pytest.raises(FileFormatError, match="records of 3073 bytes"):
        readers.read_cifar(path)
    path.write_bytes(bytes([11]) + bytes(3072))
    with pytest.raises(FileFormatError, match="label 11"):
        readers.read_cifar(path)
    with pytest.raises(ArgumentError):
        readers.read_cifar(path, 20)


def test_text(tmp_path):
    data = readers.TextDataset(b"abcdefgh", 3, stride=2)
    assert [bytes(data[i][0].array.tolist()) for i in range(len(data))] == [b"abc", b"cde", b"efg"]
    assert bytes(data[2][1].array.tolist()) == b"fgh"
    with pytest.raises(IndexError):
        data[3]
    with pytest.raises(ArgumentError, match="has 3 bytes; a context of 3 needs at least 4"):
        readers.TextDataset(b"abc", 3)
    path = tmp_path / "t"
    path.write_bytes("zwölf\nacht".encode())
    assert list(readers.LinesDataset(path)) == ["zwölf", "acht"]
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match="not utf-8 text"):
        readers.LinesDataset(path)


def test_csv(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('\ufeffid,x,"the, name"\n1,0.5,a\n-2,,"b ""c"""\n\n', encoding="utf-8")
    table = readers.read_csv(path)
    assert table["id"].array.tolist() == [1, -2] and table["id"].array.dtype == np.int64
    assert table["x"].array[0] == 0.5 and np.isnan(table["x"].array[1])
    assert table["the, name"] == ["a", 'b "c"']
    assert list(readers.read_csv(path, columns=["x"])) == ["x"]
    path.write_text("1;2\n3;4\n")
    assert readers.read_csv(path, delimiter=";", header=False)["1"].array.tolist() == [2, 4]
    with pytest.raises(ArgumentError, match=r"no column \['y'\]"):
        readers.read_csv(path, columns=["y"])
    path.write_text("a,b\n1,2\n3\n")
    with pytest.raises(FileFormatError, match="row 3 has 1 cells, 2 are needed"):
        readers.read_csv(path)
    path.write_text("")
    with pytest.raises(FileFormatError, match="no rows"):
        readers.read_csv(path)


def test_npz(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), y=np.ones((2, 2)))
    got = readers.read_npz(tmp_path / "a.npz")
    assert got["x"].array.tolist() == [0, 1, 2] and got["y"].shape == (2, 2)
    np.save(tmp_path / "b.npy", np.arange(2))
    assert readers.read_npz(tmp_path / "b.npy")["data"].array.tolist() == [0, 1]
    np.savez(tmp_path / "c.npz", x=np.array([object()], object))
    (tmp_path / "d.npz").write_bytes(b"PK\x03\x04 cut short")
    (tmp_path / "e.npz").write_bytes(b"something else")
    for name in "cde":
        with pytest.raises(FileFormatError, match=f"{name}.npz: not an .npz file"):
            readers.read_npz(tmp_path / f"{name}.npz")


def test_image_folder(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, colour in (("cat", (255, 0, 0)), ("ant", (0, 255, 0))):
        os.mkdir(tmp_path / name)
        image.new("RGB", (4, 3), colour).save(tmp_path / name / "1.png")
    (tmp_path / "cat" / "broken.jpg").write_bytes(b"nothing")
    data = readers.ImageFolder(tmp_path)
    assert data.classes == ["ant", "cat"] and data.targets == [0, 1, 1]
    x, y = data[0]
    assert x.shape == (3, 3, 4) and y == 0 and x.array[1].min() == 1 and x.array[0].max() == 0
    with pytest.raises(FileFormatError, match="broken.jpg: not a whole image"):
        data[2]
    assert readers.ImageFolder(tmp_path, mode="L")[0][0].shape == (1, 3, 4)


def test_image_folder_without_images(tmp_path):
    with pytest.raises(FileNotFoundError, match="no images"):
        readers.ImageFolder(tmp_path)
