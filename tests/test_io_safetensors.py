"""safetensors files: our reader and writer against the format and against its own package."""
from __future__ import annotations

import json
import os

import numpy as np
import pytest

from adjoint.base.errors import ArgumentError, DTypeError
from adjoint.core.tensor import wrap
from adjoint.io import FileFormatError, safetensors

DTYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64",
          "uint32", "uint16", "uint8", "bool", "complex64"]


def some_tensors():
    draw = np.random.default_rng(0)
    tensors = {f"t.{name}": (draw.normal(size=(3, 2)) * 9).astype(name) for name in DTYPES}
    return tensors | {"zero-size": np.zeros((2, 0, 3), np.float32), "0-d": np.array(2.5),
                      "strided": np.arange(12, dtype=np.int32).reshape(3, 4)[::-1, ::2],
                      "swapped": np.arange(3, dtype=">f4"), "ünïcode": np.ones(1)}


def test_round_trip_of_every_dtype_and_layout(tmp_path):
    tensors = some_tensors()
    path = tmp_path / "a.safetensors"
    safetensors.save_file({k: wrap(v) if v.dtype.isnative else v for k, v in tensors.items()},
                          path, metadata={"note": "é"})
    for mmap in (False, True):
        back = safetensors.load_numpy(path, mmap=mmap)
        assert set(back) == set(tensors)
        for name, array in tensors.items():
            assert back[name].dtype == array.dtype.newbyteorder("=")
            np.testing.assert_array_equal(back[name], array)
    assert safetensors.read_header(path).metadata == {"note": "é"}


def test_files_equal_those_of_the_package_and_are_read_by_it(tmp_path):
    package = pytest.importorskip("safetensors.numpy")
    tensors = {k: np.ascontiguousarray(v).reshape(v.shape) for k, v in some_tensors().items()
               if v.dtype.isnative}
    data = safetensors.save(tensors, metadata={"a": "b"})
    assert data == package.save(tensors, metadata={"a": "b"})
    for name, array in package.load(data).items():
        np.testing.assert_array_equal(array, tensors[name])
    for name, tensor in safetensors.load(package.save(tensors)).items():
        np.testing.assert_array_equal(tensor.array, tensors[name])


def test_bfloat16_goes_through_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2.25, 3e38], ml_dtypes.bfloat16)
    back = safetensors.load(safetensors.save({"x": array}))["x"].array
    assert back.dtype == array.dtype and back.tobytes() == array.tobytes()


def test_safe_open_reads_single_tensors(tmp_path):
    path = tmp_path / "a.safetensors"
    safetensors.save_file({"a": np.arange(6).reshape(2, 3), "b": np.ones(2)}, path, {"k": "v"})
    with safetensors.safe_open(path) as file:
        assert file.keys() == ["a", "b"] and file.metadata() == {"k": "v"}
        assert file.get_tensor("a").array.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert file.get_slice("a")[:, 1].array.tolist() == [1, 4]
        assert file.get_slice("a").get_shape() == [2, 3]
        with pytest.raises(FileFormatError, match="no tensor named 'c'; it has a, b"):
            file.get_tensor("c")


def header(**entries):
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
DAMAGED = {
    "empty": (b"", "too few for a header"),
    "short": (b"\1\2\3", "too few for a header"),
    "huge header": ((2**60).to_bytes(8, "little") + b"{}", "the header would be"),
    "no json": ((4).to_bytes(8, "little") + b"nope", "not JSON"),
    "no utf-8": ((2).to_bytes(8, "little") + b"\xff\xfe", "not JSON"),
    "a list": ((2).to_bytes(8, "little") + b"[]", "not a JSON object"),
    "cut short": (header(x=GOOD) + b"1234", "cut short"),
    "too long": (header(x=GOOD) + b"123456789", "bytes follow"),
    "a hole": (header(x=GOOD | {"data_offsets": [4, 12]}) + bytes(12), "starts at data byte 4"),
    "overlap": (header(x=GOOD, y=GOOD) + bytes(8), "starts at data byte 0"),
    "wrong size": (header(x=GOOD | {"shape": [3]}) + bytes(8), "needs 12 bytes"),
    "negative": (header(x=GOOD | {"shape": [-2]}) + bytes(8), "non-negative"),
    "unknown dtype": (header(x=GOOD | {"dtype": "F99"}) + bytes(8), "unknown dtype 'F99'"),
    "missing field": (header(x={"dtype": "F32"}) + bytes(8), "not described by"),
    "bad metadata": (header(__metadata__={"a": 1}), "not a map of strings"),
    "twice": ((16).to_bytes(8, "little") + b'{"a":{}, "a":{}}', "twice"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_give_one_clear_error(name, tmp_path):
    data, message = DAMAGED[name]
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=message) as caught:
        safetensors.load_numpy(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_every_truncation_is_found():
    whole = safetensors.save({"a": np.arange(5.0), "b": np.zeros((2, 2), np.int8)})
    for size in range(len(whole)):
        with pytest.raises(FileFormatError):
            safetensors.load(whole[:size])


def test_what_cannot_be_written_is_refused_and_the_old_file_kept(tmp_path):
    path = tmp_path / "a.safetensors"
    safetensors.save_file({"x": np.ones(1)}, path)
    before = path.read_bytes()
    with pytest.raises(DTypeError, match="'s' has dtype <U1"):
        safetensors.save_file({"s": np.array(["a"])}, path)
    with pytest.raises(ArgumentError, match="__metadata__"):
        safetensors.save_file({"__metadata__": np.ones(1)}, path)
    with pytest.raises(DTypeError, match="is a list"):
        safetensors.save_file({"x": [1, 2]}, path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["a.safetensors"]
