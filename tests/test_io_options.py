"""What a program sets for all files, and what lies in files beside tensors: storages, attributes,
classes of tensors, several objects one after the other."""
import functools
import io
import mmap
import pickle
import zipfile

import pytest

import adjoint as ad
from adjoint.serialization import (
    LoadEndianness,
    get_default_load_endianness,
    get_default_mmap_options,
    safe_globals,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from adjoint.utils.serialization import config


class Marked(ad.Tensor):
    """A tensor of a program's own class."""


class Kept(ad.Tensor):
    """One that restores its own state."""

    def __setstate__(self, state):
        self.restored = state["note"]


def written(obj, **options):
    buffer = io.BytesIO()
    ad.save(obj, buffer, **options)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("safe", [True, False])
def test_storages_are_those_of_the_tensors(zipped, safe):
    x = ad.arange(6.0)
    file = written([x[:3], x[3:], x.storage(), x.storage()], _use_new_zipfile_serialization=zipped)
    a, b, typed, again = ad.load(file, weights_only=safe)
    assert typed is again and typed.tolist() == [0, 1, 2, 3, 4, 5]
    assert a.data_ptr() == typed.data_ptr() and b.storage_offset() == 3
    assert a.untyped_storage().nbytes() == b.untyped_storage().nbytes() == 24
    typed[4] = 9.0
    assert b.tolist() == [3, 9, 5]


def test_parts_of_one_memory_stay_there_and_parts_of_a_storage_are_written_alone():
    x = ad.arange(1000.0)
    a, b = ad.load(written([x[:3], x[3:5]]))
    assert a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    assert ad.load(written(x.untyped_storage()[4:8])).nbytes() == 4


@pytest.mark.parametrize("safe", [True, False])
def test_bytes_of_a_tensor_are_its_memory(safe):
    x = ad.ones(2)
    y, raw = ad.load(written([x, x.untyped_storage()]), weights_only=safe)
    assert raw.nbytes() == 8 and raw.data_ptr() == y.data_ptr()
    assert type(raw).__name__ == "UntypedStorage"


@pytest.mark.parametrize("safe", [True, False])
def test_attributes_and_parameters_with_attributes(safe):
    x, p = ad.ones(2), ad.nn.Parameter(ad.ones(3))
    x.note, p.tags = {"k": [1]}, ("a",)
    y, q = ad.load(written([x, p]), weights_only=safe)
    assert y.note == {"k": [1]} and q.tags == ("a",) and type(q) is ad.nn.Parameter


def test_classes_of_tensors_need_permission():
    file = written(ad.ones(2).as_subclass(Marked))
    with pytest.raises(pickle.UnpicklingError, match="Marked"):
        ad.load(file)
    file.seek(0)
    assert type(ad.load(file, weights_only=False)) is Marked
    file.seek(0)
    with safe_globals([Marked]):
        assert type(ad.load(file)) is Marked
    x = ad.ones(1).as_subclass(Kept)
    x.note = "n"
    with safe_globals([Kept]):
        assert ad.load(written(x)).restored == "n"


def test_a_file_cannot_rebuild_by_other_functions_or_change_a_tensor_s_own_parts():
    def file(pickled):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("archive/data.pkl", pickled)
        buffer.seek(0)
        return buffer
    head = b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n("
    for function in (b"ctorch\nTensor\n", b"ctorch\nSize\n"):
        with pytest.raises(pickle.UnpicklingError):
            ad.load(file(head + function + b"ctorch\nTensor\n)}tR."))
    with pytest.raises(pickle.UnpicklingError, match="keeps a function"):
        ad.load(file(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n."))
    x = ad.ones(2)
    x.note = 1
    data = written(x).getvalue().replace(b"note", b"_grd")
    assert data != written(x).getvalue()
    from adjoint.io.torch_names import set_attributes
    set_attributes(x, {"array": 3, "_grad": 4, "sum": 5, "mine": 6})
    assert x.sum().item() == 2 and x.grad is None and x.mine == 6


@pytest.mark.parametrize("safe", [True, False])
def test_meta_tensors(safe):
    x = ad.load(written(ad.ones(2, 3, device="meta", dtype=ad.float64)), weights_only=safe)
    assert x.is_meta and x.shape == (2, 3) and x.dtype == ad.float64


def test_buffers_stay_buffers():
    b = ad.load(written(ad.nn.Buffer(ad.ones(1), persistent=False)))
    assert isinstance(b, ad.nn.Buffer) and b.persistent is False


def test_objects_one_after_the_other_in_the_old_format(tmp_path):
    path = tmp_path / "two.pt"
    with open(path, "wb") as file:
        file.write(b"head")
        for n in (2, 3):
            ad.save(ad.ones(n), file, _use_new_zipfile_serialization=False)
        file.write(b"tail")
    with open(path, "rb") as file:
        assert file.read(4) == b"head"
        assert [ad.load(file).numel(), ad.load(file).numel()] == [2, 3]
        assert file.read() == b"tail"


def test_skip_data_keeps_room():
    with skip_data():
        file = written({"w": ad.ones(4)})
        with pytest.raises(RuntimeError, match="^Cannot use skip_data=True with"):
            written(1, _use_new_zipfile_serialization=False)
    assert ad.load(file)["w"].tolist() == [0, 0, 0, 0]
    assert ad.load(written(ad.ones(1))).tolist() == [1]


def test_byte_order_of_files_that_do_not_say_it():
    file = written(ad.tensor([1], dtype=ad.int32), _disable_byteorder_record=True)
    assert not [n for n in zipfile.ZipFile(file).namelist() if n.endswith("byteorder")]
    for order, number in ((LoadEndianness.BIG, 1 << 24), (LoadEndianness.LITTLE, 1),
                          (LoadEndianness.NATIVE, 1), (None, 1)):
        set_default_load_endianness(order)
        try:
            file.seek(0)
            assert ad.load(file).tolist() == [number]
            assert get_default_load_endianness() is order is config.load.endianness
            assert ad.load(written(ad.ones(1))).tolist() == [1.0]       # this one says it
        finally:
            set_default_load_endianness(None)
    with pytest.raises(TypeError, match="^Invalid argument type in function set_default_load"):
        set_default_load_endianness("little")


@pytest.mark.skipif(not hasattr(mmap, "MAP_SHARED"), reason="this system maps files otherwise")
def test_shared_maps_write_to_the_file(tmp_path):
    path = tmp_path / "w.pt"
    ad.save(ad.zeros(4), path)
    with config.patch("load.mmap", True):
        ad.load(path)[0] = 5                    # copied where it is written to
    assert ad.load(path).tolist() == [0] * 4
    with set_default_mmap_options(mmap.MAP_SHARED):
        assert get_default_mmap_options() == mmap.MAP_SHARED
        x = ad.load(path, mmap=True)
        x[1] = 7
    assert get_default_mmap_options() == mmap.MAP_PRIVATE
    assert ad.load(path, mmap=True).tolist() == [0, 7, 0, 0]
    with pytest.raises(ValueError, match="^Invalid argument in function set_default_mmap_options"):
        set_default_mmap_options(0)


def test_alignment_and_names_of_the_configuration():
    with config.patch({"save.storage_alignment": 4096}):
        file = written([ad.ones(3), ad.zeros(2)])
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if "/data/" in info.filename:
                at = info.header_offset + 30 + len(info.filename) + len(info.extra)
                assert at % 4096 == 0
    assert config.save.storage_alignment == 64
    with pytest.raises(AttributeError, match="config.load"):
        config.load.nmap = True


REFUSED = {
    "a number to read": (lambda: ad.load(3), AttributeError, "'int' object has no attribute 's"),
    "a number to write": (lambda: ad.save(1, 3), AttributeError, "expected 'f' to be string, path"),
    "no folder": (lambda: ad.save(1, "/no such folder/x.pt"), RuntimeError, "Parent directory /no"),
    "a map of a file object": (lambda: ad.load(written(1), mmap=True), ValueError,
                               "f must be a file path in order to use the mmap argument"),
    "another pickle, and safe": (lambda: ad.load(written(1), pickle_module=pickle,
                                                 weights_only=True), RuntimeError,
                                 "Can not safely load weights when explicit pickle_module"),
    "an unknown option": (lambda: ad.load(written(1), foo=1), TypeError,
                          "load\\(\\) got an unexpected keyword argument 'foo'"),
    "a location": (lambda: ad.load(written(1), map_location=3), TypeError, "load: map_location"),
    "a lambda": (lambda: written(lambda x: x), pickle.PicklingError, "save: cannot pickle"),
    "no checkpoint": (lambda: ad.load(io.BytesIO(b"abcdefgh")), pickle.UnpicklingError, "load: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_have_pytorch_s_class_and_words(name):
    call, kind, words = REFUSED[name]
    with pytest.raises(kind, match=f"^{words}"):
        call()


def test_a_pickle_module_of_the_program_reads():
    class Module:
        calls = 0

        class Unpickler(pickle.Unpickler):
            def load(self):
                Module.calls += 1
                return super().load()
    assert ad.load(written({"w": ad.ones(2)}), pickle_module=Module)["w"].tolist() == [1, 1]
    assert Module.calls == 1


def _kinds(t):
    x, p = t.arange(6.0), t.nn.Parameter(t.ones(2))
    x.note, p.tags = [1, "k"], {"a": t.zeros(1)}
    return {"x": x, "p": p, "meta": t.ones(2, device="meta"), "typed": x.storage(),
            "raw": t.ones(1).untyped_storage()}


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("safe", [True, False])
def test_both_ways_with_pytorch(zipped, safe):
    torch = pytest.importorskip("torch")
    for write, read in ((torch, ad), (ad, torch)):
        buffer = io.BytesIO()
        kinds = _kinds(write)
        if not zipped:
            kinds["raw"] = [0, 0, 128, 63]      # PyTorch does not read its own here
        write.save(kinds, buffer, _use_new_zipfile_serialization=zipped)
        buffer.seek(0)
        got = functools.partial(read.load, weights_only=safe)(buffer)
        assert got["x"].note == [1, "k"] and got["p"].tags["a"].tolist() == [0.0]
        assert type(got["p"]) is read.nn.Parameter and got["meta"].is_meta
        assert got["typed"].tolist() == list(range(6))
        assert got["typed"].data_ptr() == got["x"].data_ptr()
        assert list(got["raw"]) == [0, 0, 128, 63]


def test_files_without_checksums_are_read(tmp_path):
    torch = pytest.importorskip("torch")
    x = torch.arange(5.0)
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(x, tmp_path / "c.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    with torch.serialization.skip_data():
        torch.save(x, tmp_path / "s.pt")
    assert ad.load(tmp_path / "c.pt").tolist() == [0, 1, 2, 3, 4]
    assert ad.load(tmp_path / "s.pt").shape == (5,)


def test_files_that_cannot_say_whether_they_are_seekable() -> None:
    """F45: `seek`, `tell` and `read` are enough."""
    class Least:
        def __init__(self, data: bytes) -> None:
            inner = io.BytesIO(data)
            self.read, self.seek, self.tell = inner.read, inner.seek, inner.tell

    for zipped in (True, False):
        out = io.BytesIO()
        ad.save({"a": ad.arange(3)}, out, _use_new_zipfile_serialization=zipped)
        assert ad.load(Least(out.getvalue()))["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("old", [False, True])
def test_steps_of_tensors_without_elements_are_kept(old: bool) -> None:
    """What is empty comes back with the steps that it had, and is written with PyTorch's."""
    torch = pytest.importorskip("torch")
    for make in (lambda t: t.zeros(0, 4), lambda t: t.zeros(2, 3)[2:].t(), lambda t: t.zeros(2, 0)):
        for here, there in ((ad, torch), (torch, ad)):
            buffer, x = io.BytesIO(), make(here)
            here.save(x, buffer, _use_new_zipfile_serialization=not old)
            buffer.seek(0)
            assert tuple(there.load(buffer).stride()) == tuple(x.stride())
    buffer = io.BytesIO()
    torch.save(torch.zeros(0, 4).t(), buffer)
    buffer.seek(0)
    assert ad.load(buffer).stride() == (1, 4)
