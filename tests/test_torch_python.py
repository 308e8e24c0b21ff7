"""What Python itself asks of tensors, sizes, devices, dtypes, generators and storages: the same
answer, or an exception of the same class, as PyTorch gives."""
from typing import Any

import numpy as np
import pytest

import adjoint as ad

torch = pytest.importorskip("torch")

# expressions over t (the library), x = t.ones(2, 2), c = t.tensor(1 + 2j)
ANSWERS = """
int(t.tensor(1 + 0j)) | float(t.tensor(2 + 0j)) | float(c) | int(c) | complex(c) | int(x)
'a' in x | None in x | [1] in x | 1 in x | t.tensor(1.) in x | list(reversed(t.tensor([1, 2])))
t.Size([1, 2]) * 2 | 2 * t.Size([1]) | (1,) + t.Size([2]) | t.Size([1]) + [2] | [2] + t.Size([1])
t.Size([1.5]) | t.Size('ab') | t.Size([t.tensor(3)]) | t.Size([True]) | t.Size([None]) | t.Size(3)
t.Size([t.tensor(1.)]) | t.Size([1]) + 1 | t.Size([1]) * 1.5 | t.Size() | t.Size(n for n in (1, 2))
t.device() | t.device('cpu:a') | t.device('cpu:-1') | t.device('cuda:01') | t.device('cuda:1:2')
t.device(1.5) | t.device('cpu', -1) | t.device('cpu', 'a') | t.device('cuda:') | t.device('CPU')
t.device('cpu:0').index | t.device(type='cpu', index=0).index | t.device('') | t.device('foo')
t.int32.to_complex() | t.bool.to_complex() | t.float64.to_complex() | t.complex64.to_real()
t.finfo(t.float32) == t.finfo(t.float32) | t.finfo(t.int8) | t.iinfo(t.float32) | t.iinfo(t.bool)
t.finfo(t.float16).resolution | t.finfo(t.float64).resolution | t.finfo(t.complex64).dtype
repr(t.finfo(t.bfloat16)) | repr(t.finfo(t.float16)) | repr(t.iinfo(t.int64))
hash(t.finfo())
t.Generator().manual_seed('a') | t.Generator().manual_seed(1.5) | t.Generator().set_state(3)
t.Generator().set_state(t.ones(3)) | t.Generator().get_offset() | t.Generator().manual_seed(2**64)
t.tensor([[1, 2], 3]) | t.tensor([[1, 2], [3]]) | t.tensor([2**70]) | t.tensor(2**63)
t.tensor([2**63], dtype=t.uint64).dtype.itemsize | t.tensor([2**70], dtype=t.float32).tolist()
t.tensor([300], dtype=t.uint8) | t.tensor([-1], dtype=t.uint8).tolist()
t.tensor([-300], dtype=t.int8)
t.tensor([1e10], dtype=t.int32) | t.tensor([float('nan')], dtype=t.int32) | t.tensor('a')
t.tensor(['a']) | t.tensor([None]) | t.tensor({}) | t.tensor(object()) | t.tensor([1e39]).tolist()
setattr(x, 'requires_grad', 1) | setattr(x, 'requires_grad', 'a') | x.requires_grad_('a')
t.ones(2).mT | t.ones(2).H | t.ones(2).mH | t.ones(2, 2, 2).H | t.ones(2, 3, 4).mH.shape[1]
t.UntypedStorage([1, 2]).tolist() | t.UntypedStorage(2).fill_(7).tolist()
t.UntypedStorage().nbytes()
x.untyped_storage().float().tolist() | x.untyped_storage().clone().nbytes()
x.untyped_storage().copy_(t.UntypedStorage(16).fill_(0)).tolist() | x.untyped_storage().copy_([1])
t.TypedStorage([1, 2], dtype=t.float32).tolist() | repr(t.ones(1).untyped_storage())
x.untyped_storage().element_size() | x.untyped_storage().is_cuda | x.untyped_storage().filename
t.empty(0).set_(x.untyped_storage(), 1, (3,)).tolist() | t.empty(0).set_(x, 0, (2,), (2,)).stride()
t.empty(0).set_(x.untyped_storage(), -1, (2,)) | t.empty(0).set_().numel() | t.empty(0).set_(c)
t.empty(0).set_(x.untyped_storage()).shape[0]
t.empty(0).set_(x.untyped_storage(), 0, (2, 2)).shape[1]
t.ones(2, device='meta').tolist() | bool(t.ones(1, device='meta'))
"""
EACH = [part.strip() for line in ANSWERS.strip().splitlines() for part in line.split(" | ")]


def outcome(t: Any, expression: str) -> Any:
    space = {"t": t, "x": t.ones(2, 2), "c": t.tensor(1 + 2j)}
    try:
        return eval(expression, space)  # noqa: S307  # our own table
    except Exception as error:
        return error


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("expression", EACH)
def test_as_pytorch(expression: str) -> None:
    wanted, got = outcome(torch, expression), outcome(ad, expression)
    if isinstance(wanted, Exception):
        assert isinstance(got, type(wanted)), got
    elif isinstance(wanted, torch.dtype):
        assert str(got).split(".")[1] == str(wanted).split(".")[1]
    elif isinstance(wanted, tuple):
        assert type(got) is ad.Size if isinstance(wanted, torch.Size) else tuple
        assert tuple(got) == tuple(wanted)
    else:
        def plain(value: Any) -> Any:
            if isinstance(value, list):
                return [v.item() if hasattr(v, "item") else v for v in value]
            return value
        assert plain(got) == plain(wanted)


def test_numpy_integers_are_extents() -> None:
    assert ad.Size([np.int64(3)]) == (3,) and type(ad.Size([np.int64(3)])[0]) is int


def test_bytes_are_turned_around_in_place() -> None:
    for t in (ad, torch):
        x = t.tensor([1, 256], dtype=t.int16)
        x.untyped_storage().byteswap(t.int16)
        assert x.tolist() == [256, 1]


def test_a_storage_is_shared_and_named(tmp_path: Any) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(8))
    assert ad.UntypedStorage.from_file(str(path), True, 8).filename == str(path)
    storage = ad.ones(2).untyped_storage()
    assert not storage.is_shared() and storage.share_memory_().is_shared()


def test_parameters_of_a_class_name_it() -> None:
    class Mine(ad.Tensor):
        pass
    p = ad.nn.Parameter(ad.ones(1).as_subclass(Mine))
    assert repr(p) == "Parameter(Mine([1.], requires_grad=True))"


def test_results_of_several_parts_have_their_classes_and_pickle() -> None:
    import copy
    import pickle
    for result, name in ((ad.ones(2, 2).max(0), "max"), (ad.linalg.svd(ad.eye(2)), "linalg_svd"),
                         (ad.ones(3).sort(), "sort"), (ad.aminmax(ad.ones(2)), "aminmax")):
        assert type(result) is getattr(ad.return_types, name)
        again = pickle.loads(pickle.dumps(result))
        assert type(again) is type(result) and again[0].tolist() == result[0].tolist()
        assert type(copy.deepcopy(result)) is type(result)
        assert hasattr(torch.return_types, name)
    kind = ad.return_types.max
    a = kind(1, indices=2)
    assert a == (1, 2) and (a.values, a.indices) == (1, 2) and a._asdict() == {
        "values": 1, "indices": 2}
    assert a._replace(values=3) == kind._make([3, 2]) and type(a._replace(values=3)) is kind
    assert kind((1, 2)) == (1, 2)
    with pytest.raises(TypeError, match="constructor requires a sequence"):
        kind(1)
    for wrong in (lambda: kind(1, 2, 3), lambda: kind(1, 2, index=3), lambda: kind(1, values=2)):
        with pytest.raises(ValueError, match=r"max\(values, indices\) got"):
            wrong()
    with pytest.raises(AttributeError, match="return_types"):
        _ = ad.return_types.maxx


def test_print_options_come_back_after_a_block() -> None:
    before = ad._tensor_str.get_printoptions()
    assert before == torch._tensor_str.get_printoptions()
    with ad._tensor_str.printoptions(precision=1, threshold=2, sci_mode=True):
        assert repr(ad.tensor([1.25])) == "tensor([1.2e+00])"
    assert ad._tensor_str.get_printoptions() == before
