"""save and load: PyTorch's checkpoint files without PyTorch (issue 7, item 6)."""
from __future__ import annotations

import argparse
import functools
import io
import os
import pickle
import warnings
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest

import adjoint as ad
import adjoint.base.dtypes as dtypes
from adjoint.base.errors import ArgumentError, DTypeError, NotSupported
from adjoint.core.tensor import Parameter, Size, Tensor, wrap
from adjoint.io import (
    FileFormatError,
    UnsafePickleError,
    add_safe_globals,
    clear_safe_globals,
    get_unsafe_globals_in_checkpoint,
    load,
    safe_globals,
    save,
)

DTYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "uint16",
          "uint32", "uint64", "bool", "complex64", "complex128"]


def written(obj):
    buffer = io.BytesIO()
    save(obj, buffer)
    buffer.seek(0)
    return buffer


def again(obj, **options):
    return load(written(obj), **options)


def nest():
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    state = OrderedDict(weight=wrap(base), bias=wrap(base[2, 1:4]))
    state._metadata = {"": {"version": 1}}
    return {"state": state, "turned": wrap(base.T), "parameter": Parameter(wrap(np.ones(3))),
            "leaf": wrap(np.ones(2), requires_grad=True), "zero-size": wrap(np.zeros((0, 3))),
            "0-d": wrap(np.array(3.5)), "reversed": wrap(base[::-1, ::2]),
            "all": [wrap(np.ones((2, 1), d)) for d in DTYPES], "size": Size((2, 3)),
            "dtype": dtypes.float32, "set": {1, 2}, "bytes": b"\0\xff", "complex": 1 - 2j,
            "plain": [1, -5, 300, 70000, 2**40, -2**70, 2.5, None, True, "hé\ud800", (), (1,),
                      (1, 2), (1, 2, 3), (1, 2, 3, 4), {}, [], {3: {"x": [0.5]}}]}


def check_nest(got, want):
    for name in ("turned", "parameter", "leaf", "zero-size", "0-d", "reversed"):
        np.testing.assert_array_equal(np.asarray(got[name].array), want[name].array)
        assert got[name].dtype == want[name].dtype
        assert got[name].requires_grad == want[name].requires_grad
    for ours, theirs in zip(got["all"], want["all"], strict=True):
        assert ours.dtype == theirs.dtype and ours.array.tolist() == theirs.array.tolist()
    assert type(got["parameter"]) is Parameter and type(got["leaf"]) is Tensor
    assert got["state"]._metadata == {"": {"version": 1}}
    for name in ("size", "dtype", "set", "bytes", "complex", "plain"):
        assert got[name] == want[name] and type(got[name]) is type(want[name])


def test_round_trip_of_nested_containers():
    want = nest()
    got = again(want)
    check_nest(got, want)
    got["state"]["weight"].array[2, 1] = 99  # shared before, shared after
    assert got["state"]["bias"].array[0] == 99 and got["turned"].array[1, 2] == 99
    assert got["state"]["weight"]._cell is got["turned"]._cell is not None


def test_cycles_and_shared_containers():
    loop = [1]
    loop.append((loop, "x"))
    shared = {"k": 1}
    got = again({"loop": loop, "a": shared, "b": shared})
    assert got["loop"][1][0] is got["loop"] and got["a"] is got["b"]


def laid(t):
    return (t.tolist(), t.stride(), t.storage_offset(), t.untyped_storage().nbytes(), t.is_conj(),
            t.is_neg())


def views(torch):
    x, z = torch.arange(100.0).reshape(10, 10), torch.tensor([1 + 2j, 3 - 1j, 2j])
    return [x[2, 3:5], x[2:4].t(), x.as_strided((3, 2), (1, 5), 4), torch.ones(1, 3).expand(4, 3),
            z.real, z.imag, z.conj(), torch.arange(6.0).reshape(2, 3)._neg_view()[1],
            z.clone().conj().imag, torch.nn.Parameter(torch.arange(6.0)[2:4])]


@pytest.mark.parametrize("zipped", [True, False])
def test_views_keep_their_place_in_their_storage_and_their_bits(zipped):
    for view in views(ad):
        file = io.BytesIO()
        save(view, file, _use_new_zipfile_serialization=zipped)
        file.seek(0)
        got = load(file)
        assert laid(got) == laid(view)
        assert type(got) is type(view) and got.requires_grad == view.requires_grad


def test_views_of_one_storage_share_it_when_read():
    x = ad.arange(100.0).reshape(10, 10)
    a, b, c = again([x[1], x[7], x.view(ad.int32)[7]])
    assert laid(a) == laid(x[1]) and laid(b) == laid(x[7])
    b.fill_(1.0)
    assert c.tolist() == [0x3F800000] * 10          # of another dtype, on the same memory
    z = ad.tensor([1 + 2j, 3 - 1j])
    plain, turned = again([z, z.conj()])
    plain[0] = 5j
    assert turned.tolist() == [-5j, 3 + 1j] and turned.is_conj()


def test_arrays_without_a_layout_of_pytorch_s_are_copied():
    x = np.arange(6.0)
    assert laid(again(wrap(x[::-1])))[:4] == ([5, 4, 3, 2, 1, 0], (1,), 0, 48)


def test_paths_are_written_atomically_and_mapped(tmp_path):
    path = tmp_path / "model.pt"
    want = {"w": wrap(np.arange(5000.0)), "n": 3}
    save(want, path)
    before = path.read_bytes()
    with pytest.raises(DTypeError, match="cannot pickle"):
        save({"x": (i for i in range(3))}, path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["model.pt"]
    mapped = load(path, mmap=True)["w"].array
    assert mapped.tolist() == want["w"].array.tolist()
    mapped[0] = 5  # copy-on-write: the file stays
    assert path.read_bytes() == before
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("model/data/0")
        start = info.header_offset + 30 + len(info.filename) + len(info.extra)
        assert start % 64 == 0 and archive.testzip() is None


def test_map_location():
    data = {"w": wrap(np.ones((2, 3)))}
    for location in ("cpu", None, {"cuda:0": "cpu"}, lambda storage, where: storage, "cpu:0"):
        assert again(data, map_location=location)["w"].array.tolist() == [[1, 1, 1]] * 2
    meta = again(data, map_location="meta")["w"]
    assert meta.shape == (2, 3) and not isinstance(meta.array, np.ndarray)
    with pytest.raises(RuntimeError, match="deserialize object on a CUDA device"):
        again(data, map_location="cuda")
    with pytest.raises(ArgumentError, match="map_location is a int"):
        again(data, map_location=3)


class Evil:
    def __reduce__(self):
        return os.system, ("echo executed > /tmp/adjoint-was-executed",)


def zip_with(pickled, **members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for name, data in members.items():
            archive.writestr(f"archive/{name}", data)
    buffer.seek(0)
    return buffer


def test_nothing_is_executed(tmp_path):
    with pytest.raises(UnsafePickleError, match=r"names (posix|nt)\.system.*add_safe_globals"):
        load(zip_with(pickle.dumps({"x": Evil()}, 2)))
    assert not os.path.exists("/tmp/adjoint-was-executed")
    for names in ("cbuiltins\neval\n", "cbuiltins\ngetattr\n", "cnumpy\nload\n"):
        with pytest.raises(UnsafePickleError):
            load(zip_with(b"\x80\x02" + names.encode() + b"."))


def test_a_file_cannot_change_what_it_is_handed():
    set_name = b"\x80\x02ctorch\nfloat32\n}X\x04\0\0\0nameX\x04\0\0\0evils\x86N\x86b."
    with pytest.raises(FileFormatError):
        load(zip_with(set_name))
    assert dtypes.float32.name == "float32"
    change = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x0c\0\0\0__defaults__)sb."
    with pytest.raises(UnsafePickleError):
        load(zip_with(change))
    with pytest.raises(UnsafePickleError, match="keeps a function"):
        load(zip_with(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n."))


def test_own_classes_need_permission():
    data = written({"args": argparse.Namespace(lr=0.1), "counts": Counter("aab")})
    with pytest.raises(UnsafePickleError, match="argparse.Namespace"):
        load(data)
    data.seek(0)
    assert load(data, weights_only=False)["args"].lr == 0.1
    with safe_globals([argparse.Namespace]):
        data.seek(0)
        got = load(data)
        assert got["args"] == argparse.Namespace(lr=0.1) and got["counts"] == Counter("aab")
    data.seek(0)
    add_safe_globals([argparse.Namespace])
    try:
        assert load(data)["args"].lr == 0.1
    finally:
        clear_safe_globals()


def test_listed_functions_are_values_too():
    """F44: a whole module that holds an activation, as PyTorch's language model saves it."""
    layer = ad.nn.TransformerEncoderLayer(4, 2, 8, activation=ad.nn.functional.gelu)
    data = written(layer)
    kinds = {type(m) for m in layer.modules()}
    with safe_globals(list(kinds)), pytest.raises(UnsafePickleError, match="names .*gelu"):
        load(data)
    data.seek(0)
    with safe_globals([*kinds, ad.nn.functional.gelu]):
        got = load(data)
    assert got.activation is ad.nn.functional.gelu
    x = ad.ones(1, 3, 4)
    assert ad.equal(got.eval()(x), layer.eval()(x))
    data = written({"f": ad.nn.functional.gelu})
    with safe_globals([ad.nn.functional.relu]), pytest.raises(UnsafePickleError, match="gelu"):
        load(data)


def test_numpy_numbers_and_arrays_are_safe():
    want = {"best": np.float64(0.5), "a": np.arange(6, dtype=">i4").reshape(2, 3),
            "f": np.asfortranarray(np.ones((2, 2)))}
    got = again(want)
    assert got["best"] == 0.5 and type(got["best"]) is np.float64
    np.testing.assert_array_equal(got["a"], want["a"])
    np.testing.assert_array_equal(got["f"], want["f"])
    with pytest.raises(FileFormatError, match="Python objects|plain number"):
        again({"o": np.array([None, 1], object)})


def test_damage_gives_one_clear_error():
    whole = written({"w": wrap(np.arange(10.0)), "n": [1, "two"]}).getvalue()
    for size in range(0, len(whole), 7):
        with pytest.raises(FileFormatError, match="^load: ") as caught:
            load(io.BytesIO(whole[:size]))
        assert "\n" not in str(caught.value)


def test_flipped_bytes_never_crash():
    want = {"w": wrap(np.arange(10.0)), "n": [1, "two"]}
    whole = written(want).getvalue()
    draw = np.random.default_rng(0)
    found = 0
    for at in draw.integers(0, len(whole), 300):
        data = bytearray(whole)
        data[at] ^= 1 << int(draw.integers(8))
        try:
            load(io.BytesIO(bytes(data)))
        except (FileFormatError, NotSupported):
            found += 1
    assert found > 100


def test_random_pickles_never_crash():
    good = zipfile.ZipFile(written(nest())).read("archive/data.pkl")
    draw = np.random.default_rng(1)
    for _ in range(300):
        data = bytearray(good)
        for at in draw.integers(2, len(data), 3):
            data[at] = int(draw.integers(256))
        try:
            load(zip_with(bytes(data), version=b"3"))
        except (FileFormatError, NotSupported):
            continue


BAD = {
    "legacy": (pickle.dumps(0x1950A86A20F9469CFC6C, 2) +
               b"\x80\x02M\xe9\x03.", "has no end|damaged"),
    "a pickle": (pickle.dumps({"w": 1}), "^Invalid magic number; corrupt file"),
    "text": (b"hello, this is not a model", "neither a checkpoint"),
    "empty": (b"", "is empty"),
    "another zip": (None, "holds no data.pkl"),
}


@pytest.mark.parametrize("name", BAD)
def test_other_files_are_named(name):
    data, message = BAD[name]
    if data is None:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("readme.txt", "x")
        data = buffer.getvalue()
    with pytest.raises(FileFormatError, match=message):
        load(io.BytesIO(data))


def test_safetensors_files_are_read_too(tmp_path):
    from adjoint.io import safetensors
    path = tmp_path / "a.safetensors"
    safetensors.save_file({"w": np.ones(2)}, path)
    assert load(path)["w"].array.tolist() == [1, 1]


def test_missing_files_and_wrong_arguments(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.pt")
    with pytest.raises(ArgumentError, match="'int' object has no attribute 'seek'. load takes a"):
        load(3)
    with pytest.raises(ArgumentError, match="with a 'write' attribute: save got a int"):
        save({}, 3)
    with pytest.raises(ArgumentError, match="must be a file path in order to use the mmap"):
        load(io.BytesIO(b""), mmap=True)
    with pytest.raises(DTypeError, match="not found under that name"):
        save({"f": lambda: 0}, io.BytesIO())


# ------------------------------------------------------------------ against PyTorch itself
@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_pytorch_reads_what_we_write(torch):
    want = nest()
    want["plain"].remove(-2**70)  # beyond what its restricted reader takes, as any long integer
    got = torch.load(written(want), weights_only=True)
    for name in ("turned", "parameter", "leaf", "zero-size", "0-d", "reversed"):
        np.testing.assert_array_equal(got[name].detach().numpy(), want[name].array)
        assert got[name].requires_grad == want[name].requires_grad
    assert [str(t.dtype) for t in got["all"]] == [f"torch.{d}" for d in DTYPES]
    assert all(t.tolist() == w.array.tolist() for t, w in zip(got["all"], want["all"],
                                                             strict=True))
    assert type(got["parameter"]) is torch.nn.Parameter
    weight, turned, bias = got["state"]["weight"], got["turned"], got["state"]["bias"]
    assert weight.data_ptr() == turned.data_ptr() and turned.stride() == (1, 6)
    assert bias.data_ptr() - weight.data_ptr() == 13 * 4
    assert got["state"]._metadata == {"": {"version": 1}} and got["dtype"] is torch.float32
    assert got["size"] == torch.Size([2, 3]) and got["set"] == {1, 2} and got["complex"] == 1 - 2j


def test_views_and_bits_go_both_ways(torch):
    for ours, theirs in zip(views(ad), views(torch), strict=True):
        assert laid(ours) == laid(theirs) == laid(torch.load(written(ours)))
        file = io.BytesIO()
        torch.save(theirs, file)
        file.seek(0)
        assert laid(load(file)) == laid(theirs)


def test_pytorch_maps_what_we_write(torch, tmp_path):
    path = tmp_path / "m.pt"
    save({"w": wrap(np.arange(100.0))}, path)
    assert torch.load(path, mmap=True, weights_only=True)["w"].tolist() == list(range(100))


def test_we_read_what_pytorch_writes(torch, tmp_path):
    base = torch.arange(24.0).reshape(4, 6)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    obj = {"a": base, "row": base[2, 1:4], "t": base.t(), "diag": base.diagonal(),
           "wide": torch.ones(1).expand(5), "p": torch.nn.Parameter(base.clone()),
           "conj": torch.view_as_complex(torch.ones(3, 2)).conj(), "e": torch.zeros(2, 0),
           "s": base.shape, "d": torch.int8, "dev": torch.device("cpu"),
           "meta": torch.empty(2, 3, device="meta"), "np": np.float32(2.5),
           "all": [torch.ones(2, 2).to(getattr(torch, d)) for d in DTYPES],
           "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    path = tmp_path / "t.pt"
    torch.save(obj, path)
    for options in ({}, {"mmap": True}, {"weights_only": False}):
        got = load(path, **options)
        for name in ("a", "row", "t", "diag", "wide", "p", "conj", "e"):
            want = obj[name].detach().resolve_conj().numpy()
            np.testing.assert_array_equal(got[name].array, want)
        assert np.shares_memory(got["a"].array, got["row"].array)
        assert got["t"].array.strides == (4, 24) and got["p"].requires_grad
        assert [t.dtype.name for t in got["all"]] == DTYPES
        assert got["s"] == (4, 6) and got["d"] is dtypes.int8 and got["np"] == 2.5
        assert got["meta"].shape == (2, 3)
        assert list(got["model"]) == list(obj["model"])
        for name, tensor in obj["model"].items():
            np.testing.assert_array_equal(got["model"][name].array, tensor.numpy())
        moment = got["optimizer"]["state"][0]["exp_avg"].array
        np.testing.assert_array_equal(moment, obj["optimizer"]["state"][0]["exp_avg"].numpy())


def test_bfloat16_both_ways(torch):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([[1.5, -2.25]], ml_dtypes.bfloat16)
    got = torch.load(written({"x": wrap(array)}), weights_only=True)["x"]
    assert got.dtype == torch.bfloat16 and got.tolist() == [[1.5, -2.25]]
    buffer = io.BytesIO()
    torch.save(got, buffer)
    buffer.seek(0)
    back = load(buffer)
    assert back.dtype == dtypes.bfloat16 and back.array.tobytes() == array.tobytes()


def kinds(package):
    """Tensors of every kind that a checkpoint may hold, some of which share memory."""
    whole = package.arange(12.0, dtype=package.float64).reshape(3, 4)
    names = ("float16", "bfloat16", "int32", "uint8", "bool", "complex64", "uint16")
    return {"views": [whole, whole.t(), whole[1], whole.reshape(-1)[3:7]], "scalar": whole[1, 2],
            "dtypes": [package.tensor([0, 1]).to(getattr(package, n)) for n in names],
            "empty": package.zeros(0, 3), "parameter": package.nn.Parameter(package.ones(2)),
            "coo": package.eye(3).to_sparse(), "csr": package.eye(3).to_sparse_csr(),
            "csc": (package.eye(3) * 2).to_sparse_csc()}


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if "sparse" in str(a.layout):
        assert str(a.layout).split(".")[1] == str(b.layout).split(".")[1]
        a, b = a.to_dense(), b.to_dense()
    assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1]
    assert a.requires_grad == b.requires_grad and tuple(a.shape) == tuple(b.shape)
    return a.tolist() == b.tolist()


def through(write, read, obj, **options):
    buffer = io.BytesIO()
    write(obj, buffer, **options)
    buffer.seek(0)
    return read(buffer)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("safe", [True, False])
def test_both_formats_keep_every_kind_of_tensor(zipped, safe):
    wanted = kinds(ad)
    got = through(save, functools.partial(load, weights_only=safe), wanted,
                  _use_new_zipfile_serialization=zipped)
    assert same(wanted, got) and isinstance(got["parameter"], ad.nn.Parameter)
    got["views"][0].zero_()
    assert all(not v.any() for v in got["views"])


@pytest.mark.parametrize("zipped", [True, False])
def test_both_formats_go_both_ways(torch, zipped):
    option = {"_use_new_zipfile_serialization": zipped}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)        # compressed layouts are beta there
        assert same(through(torch.save, load, kinds(torch), **option), kinds(ad))
        assert same(through(save, torch.load, kinds(ad), **option), kinds(torch))


def test_the_old_format_does_not_run_code_and_finds_damage():
    buffer = io.BytesIO()
    save([os.system, ad.ones(3)], buffer, _use_new_zipfile_serialization=False)
    with pytest.raises(UnsafePickleError, match="^Weights only load failed.*system"):
        load(io.BytesIO(buffer.getvalue()))
    buffer = io.BytesIO()
    save(ad.ones(3), buffer, _use_new_zipfile_serialization=False)
    whole = buffer.getvalue()
    for cut in range(len(whole)):
        with pytest.raises((FileFormatError, NotSupported)):
            load(io.BytesIO(whole[:cut]))
    assert load(io.BytesIO(whole)).tolist() == [1.0] * 3


def test_names_that_load_would_not_accept_are_told():
    for zipped in (True, False):
        for protocol in (2, 4):
            buffer = io.BytesIO()
            save({"f": os.system, "w": ad.ones(2)}, buffer, None, protocol, zipped)
            buffer.seek(0)
            assert get_unsafe_globals_in_checkpoint(buffer) == [f"{os.system.__module__}.system"]


def test_a_pytorch_checkpoint_trained_one_step_and_read_back_by_pytorch(torch, tmp_path):
    """Issue 7, must show: weights and optimizer state go both ways."""
    import adjoint as ad
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    x, y = torch.randn(7, 3), torch.randn(7, 2)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()},
               tmp_path / "theirs.pt")
    held = load(tmp_path / "theirs.pt")
    ours = ad.nn.Sequential(ad.nn.Linear(3, 5), ad.nn.Tanh(), ad.nn.Linear(5, 2))
    ours.load_state_dict(held["model"])
    our_optimizer = ad.optim.Adam(ours.parameters(), lr=0.1)
    our_optimizer.load_state_dict(held["optimizer"])
    ad.nn.functional.mse_loss(ours(wrap(x.numpy())), wrap(y.numpy())).backward()
    our_optimizer.step()
    save({"model": ours.state_dict(), "optimizer": our_optimizer.state_dict()},
         tmp_path / "ours.pt")
    step()
    back = torch.load(tmp_path / "ours.pt", weights_only=True)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(back["model"][name], tensor, rtol=1e-5, atol=1e-6)
    model.load_state_dict(back["model"])
    optimizer.load_state_dict(back["optimizer"])
    assert int(back["optimizer"]["state"][0]["step"]) == 2
    step()
