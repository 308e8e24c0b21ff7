"""What published libraries lean on beside the documented functions (F15, F123): metadata, names
they import, corners of classes that they derive from."""
from __future__ import annotations

import subprocess
import sys
import threading
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import nn
from adjoint.nn.attention.flex_attention import create_block_mask, flex_attention
from adjoint.utils import _pytree
from adjoint.utils.flop_counter import FlopCounterMode
from adjoint.vision import ops

PROGRAM = '''
import importlib.metadata as m
import torch
from torch.distributed import device_mesh, rpc
from torch.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel as FSDP
from torch.distributed.tensor import DTensor, Shard
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.jit.annotations import List
from torch._subclasses.fake_tensor import is_fake
from torchvision.ops.misc import FrozenBatchNorm2d

print(m.version("torch") == torch.__version__, m.version("torchvision") >= "0.2", torch.__name__)
print("torch" in m.packages_distributions()["torch"], rpc.is_available(), Shard(1).dim)
net = torch.compile(torch.nn.Linear(2, 2))
print(isinstance(net, FSDP), net._orig_mod.weight is net.weight, list(net.state_dict()))
print(is_fake(net.weight))
print(torch.float8_e4m3fn, torch.finfo(torch.float8_e4m3fn).max, torch.complex32)
try:
    FSDP(net)
except NotImplementedError as error:
    print(error)
'''


def test_a_served_program_finds_what_libraries_ask_for(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "-m", "adjoint", "run", "--as-torch", "program.py"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == [
        "True True torch", "True False 1",
        "False True ['_orig_mod.weight', '_orig_mod.bias']", "False",
        "torch.float8_e4m3fn 448.0 torch.complex32",
        "FullyShardedDataParallel is not here"], done.stderr


def test_numpy_of_a_tensor_that_requires_grad_under_no_grad() -> None:
    x = ad.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        x.numpy()
    with ad.no_grad():
        assert x.numpy().tolist() == [1.0, 1.0]


def test_constraints_are_classes() -> None:
    c = ad.distributions.constraints

    class Positive(type(c.positive)):  # type: ignore[misc]  # the class of a value
        def __init__(self) -> None:
            super().__init__(lower_bound=0.0)

    assert repr(Positive()) == "ositive(lower_bound=0.0)" and Positive().check(ad.ones(1)).all()
    assert isinstance(c.unit_interval, c.interval) and not isinstance(c.real, type(c.boolean))
    assert repr(c.nonnegative_integer) == "IntegerGreaterThan(lower_bound=0)"
    assert c.integer_interval(0, 2).check(ad.tensor([0.0, 1.5, 3.0])).tolist() == [
        True, False, False]


def test_a_transform_may_be_a_module() -> None:
    class Scale(ad.distributions.transforms.Transform, nn.Module):
        bijective = True

        def __init__(self) -> None:
            super().__init__(cache_size=1)
            self.log_scale = nn.Parameter(ad.zeros(2))

        def _call(self, x: Any) -> Any:
            return x * self.log_scale.exp()

        def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
            return self.log_scale

    t = Scale()
    x = ad.ones(2)
    y = t(x)
    assert t.inv(y) is x and t._cached_x_y == (x, y) and len(list(t.parameters())) == 1


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (2, 5, 3)])
def test_low_rank_factors(shape: tuple[int, ...]) -> None:
    a = ad.from_numpy(np.random.default_rng(0).standard_normal(shape))
    q = min(shape[-2:])
    u, s, v = ad.svd_lowrank(a, q=q)
    np.testing.assert_allclose(((u * s[..., None, :]) @ v.mT).numpy(), a.numpy(), atol=1e-12)
    np.testing.assert_allclose(s.numpy(), np.linalg.svd(a.numpy(), compute_uv=False), rtol=1e-10)
    _, s, v = ad.pca_lowrank(a, q=q)
    _, exact, directions = np.linalg.svd(a.numpy() - a.numpy().mean(-2, keepdims=True),
                                         full_matrices=False)
    np.testing.assert_allclose(s[..., 0].numpy(), exact[..., 0], rtol=1e-10)
    along = (v[..., 0].numpy() * directions[..., 0, :]).sum(-1)
    np.testing.assert_allclose(np.abs(along), 1.0, rtol=1e-10)
    assert ad.svd_lowrank(a, q=9)[1].shape[-1] == q
    with pytest.raises(ValueError, match=r"q\(=9\) must be .* min\(m, n\)"):
        ad.pca_lowrank(a, q=9)


def test_sobol_points() -> None:
    pytest.importorskip("scipy")
    torch = pytest.importorskip("torch")
    ours, theirs = ad.quasirandom.SobolEngine(5), torch.quasirandom.SobolEngine(5)
    for n in (1, 3, 8):
        assert np.array_equal(ours.draw(n).numpy(), theirs.draw(n).numpy())
    assert np.array_equal(ours.reset().fast_forward(4).draw(2).numpy(),
                          theirs.reset().fast_forward(4).draw(2).numpy())
    with pytest.raises(ValueError, match="power of 2"):
        ours.draw_base2(2)


def test_boxes() -> None:
    a = ad.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3]])
    assert ops.box_iou(a, a)[0].tolist() == pytest.approx([1.0, 1 / 7])
    assert ops.generalized_box_iou(a, a)[0, 1].item() == pytest.approx(1 / 7 - 2 / 9)
    assert ops.distance_box_iou(a, a)[0, 1].item() == pytest.approx(1 / 7 - 2 / 18, abs=1e-6)
    assert ops.complete_box_iou(a, a)[0, 1].item() == pytest.approx(1 / 7 - 2 / 18, abs=1e-6)
    for there in ("xywh", "cxcywh"):
        again = ops.box_convert(ops.box_convert(a, "xyxy", there), there, "xyxy")
        assert again.tolist() == a.tolist()
    same = ad.cat([a, a])
    scores, groups = ad.tensor([0.9, 0.8, 0.7, 0.6]), ad.tensor([0, 0, 1, 1])
    assert ops.nms(same, scores, 0.5).tolist() == [0, 1]
    assert ops.batched_nms(same, scores, groups, 0.1).tolist() == [0, 2]
    masks = ad.zeros(1, 4, 5)
    masks[0, 1:3, 2:4] = 1
    assert ops.masks_to_boxes(masks).tolist() == [[2.0, 1.0, 3.0, 2.0]]
    with pytest.raises(ValueError, match=r"shape \(N, 4\), got \[4\]"):
        ops.nms(a[0], scores, 0.5)


def test_regions_of_a_linear_image_are_its_values_at_the_middles() -> None:
    y, x = np.mgrid[0:8.0, 0:8.0]
    image = ad.from_numpy((10 * y + x)[None, None]).requires_grad_()
    box = ad.tensor([[0.0, 1.0, 2.0, 5.0, 6.0]], dtype=ad.float64)
    for ratio in (1, 2, -1):
        out = ops.roi_align(image, box, 2, sampling_ratio=ratio)
        assert out[0, 0].tolist() == [[32.0, 34.0], [52.0, 54.0]]
    assert ops.roi_align(image, box, 1, aligned=True).item() == pytest.approx(43 - 5.5)
    out.sum().backward()
    assert image.grad.sum().item() == pytest.approx(4.0)


def test_attention_with_changed_scores() -> None:
    r = np.random.default_rng(0)
    q, k, v = (ad.from_numpy(r.standard_normal((2, h, 6, 4))) for h in (4, 2, 2))
    sees = create_block_mask(lambda b, h, i, j: i >= j, None, None, 6, 6)
    got, lse = flex_attention(q, k, v, block_mask=sees, enable_gqa=True, return_lse=True)
    want = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-10)
    slopes = ad.tensor([1.0, 2.0, 3.0, 4.0], dtype=ad.float64)
    got = flex_attention(q, k, v, lambda s, b, h, i, j: s - slopes[h] * (i - j), sees,
                         enable_gqa=True)
    at = ad.arange(6)
    bias = -slopes[:, None, None] * (at[:, None] - at)
    bias = bias.masked_fill(at[:, None] < at, -np.inf)
    want = nn.functional.scaled_dot_product_attention(q, k, v, bias, enable_gqa=True)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-10)
    assert lse.shape == (2, 4, 6)


def test_a_named_operation_has_the_derivative_that_it_is_given() -> None:
    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    @ad.library.custom_op("published::cube", mutates_args=())
    def cube(x: ad.Tensor, scale: float = 1.0) -> ad.Tensor:
        return x ** 3 * scale

    x = ad.tensor([2.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        cube(x).sum().backward()
    ad.library.register_autograd("published::cube", lambda ctx, g: (
        g * 3 * ctx.saved_tensors[0] ** 2, None), setup_context=keep)
    ad.ops.published.cube.default(x, scale=1.0).backward()
    assert x.grad.tolist() == [12.0]
    with pytest.raises(ValueError, match="namespace::name"):
        ad.library.custom_op("cube", cube, mutates_args=())


def test_counted_operations_are_those_of_products() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(),
                          nn.Linear(256, 3))
    with FlopCounterMode(display=False) as counter:
        model(ad.ones(2, 3, 8, 8)).sum().backward()
    forward = 2 * 2 * 64 * 4 * 27 + 2 * 2 * 256 * 3
    assert counter.get_total_flops() == 2 * forward + 2 * 2 * 256 * 3    # PyTorch's count: 64512


def test_futures() -> None:
    first, second = ad.futures.Future(), ad.futures.Future()
    both = ad.futures.collect_all([first, second])
    failed = first.then(lambda f: f.value() / 0)
    threading.Thread(target=first.set_result, args=(1,)).start()
    second.set_result(2)
    assert ad.futures.wait_all([first, second]) == [1, 2] and both.done() and both.wait()
    with pytest.raises(ZeroDivisionError):
        failed.wait()


def test_trees_of_a_registered_class() -> None:
    class Pair:
        def __init__(self, a: Any, b: Any) -> None:
            self.a, self.b = a, b

    _pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], "pair"),
                                 lambda children, context: Pair(*children))
    doubled = _pytree.tree_map(lambda x: 2 * x, Pair(1, [2, 3]))
    assert (doubled.a, doubled.b) == (2, [4, 6])
    assert Pair in _pytree.SUPPORTED_NODES and int not in _pytree.SUPPORTED_NODES
    assert _pytree.SUPPORTED_NODES[dict].flatten_fn({"a": 1}) == ([1], ["a"])
    assert _pytree.LeafSpec() == _pytree.tree_flatten(1)[1]


def test_a_container_that_is_a_dict_inside_is_registered_with_the_functions_of_dicts() -> None:
    class Output(dict[str, Any]):
        pass

    _pytree.register_pytree_node(
        Output, _pytree._dict_flatten, lambda c, keys: Output(_pytree._dict_unflatten(c, keys)),
        flatten_with_keys_fn=_pytree._dict_flatten_with_keys)
    doubled = _pytree.tree_map(lambda x: 2 * x, Output(a=1, b=2))
    assert doubled == {"a": 2, "b": 4} and type(doubled) is Output
    assert [path[0].key for path, _ in _pytree.tree_leaves_with_path(doubled)] == ["a", "b"]


def test_bytes_of_a_file_as_storage(tmp_path: Path) -> None:
    np.arange(4, dtype=np.float32).tofile(tmp_path / "numbers")
    whole = ad.UntypedStorage.from_file(str(tmp_path / "numbers"), nbytes=16)
    part = ad.asarray(whole[4:12], dtype=ad.uint8)
    assert part.view(dtype=ad.float32).reshape(2).tolist() == [1.0, 2.0]
    assert whole.untyped() is whole and len(whole[4:12]) == 8


def test_names_that_libraries_import() -> None:
    from adjoint.utils._foreach_utils import _group_tensors_by_device_and_dtype
    from adjoint.utils.checkpoint import get_device_states
    from adjoint.utils.data._utils import pin_memory
    from adjoint.vision.models import VGG, make_layers
    Backend = ad.distributed.Backend
    assert Backend("GLOO") == "gloo" == Backend.GLOO and get_device_states(ad.ones(1)) == ([], [])
    with pytest.raises(ValueError, match="must be string-ish, got int"):
        Backend(1)  # type: ignore[arg-type]  # which is refused
    assert ad.functional is ad and pin_memory([1]) == [1]
    assert ad.futures.Future[ad.Tensor] is not None
    assert VGG(make_layers([8, "M", 512]), init_weights=False)(ad.ones(1, 3, 8, 8)).shape == (
        1, 1000)
    a, b = ad.ones(1), ad.ones(2).double()
    got = _group_tensors_by_device_and_dtype([[a, b], [b, a]], with_indices=True)
    assert got[a.device, ad.float64] == ([[b], [a]], [1])


def test_a_distribution_of_a_program_expands_with_pytorchs_helper() -> None:
    class Shifted(ad.distributions.Normal):
        def __init__(self, loc: Any) -> None:
            super().__init__(loc, 1.0)

        def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
            new = self._get_checked_instance(Shifted, _instance)
            return super().expand(batch_shape, _instance=new)

    class Other(Shifted):
        def __init__(self) -> None:
            super().__init__(ad.zeros(1))

    assert Shifted(ad.zeros(1)).expand((3,)).mean.shape == (3,)
    with pytest.raises(NotImplementedError, match="must also define a custom .expand"):
        Other().expand((3,))


def test_outputs_of_one_device_are_joined() -> None:
    from adjoint.nn.parallel import scatter_gather as s
    got = s.gather([(ad.ones(2), None), (ad.zeros(1), None)], "cpu")
    assert got[0].tolist() == [1.0, 1.0, 0.0] and got[1] is None
    assert s.scatter_kwargs((1,), None, ["cpu"]) == (((1,),), ({},))
    with pytest.raises(ValueError, match="2 devices, but there is one"):
        s.scatter(1, ["cpu", "cpu"])


def test_a_gradient_that_is_a_view_is_filled_with_zeros() -> None:
    layer = nn.Linear(2, 1, bias=False)
    for zero in (ad.optim.SGD(layer.parameters()).zero_grad, layer.zero_grad):
        layer.weight.grad = ad.ones(2).view_as(layer.weight)
        zero(set_to_none=False)
        assert layer.weight.grad.tolist() == [[0.0, 0.0]]


def test_an_operand_of_another_class_answers_for_operators() -> None:
    class Parts(tuple):
        def __radd__(self, x: Any) -> Any:
            return Parts(x + p for p in self)

        __rmul__ = __rsub__ = __radd__

    x = ad.ones(2, requires_grad=True)
    for y in (x, ad.tensor(1.0), ad.ones(2, dtype=ad.float64)):
        for got in (y + Parts((x, 2.0)), y - Parts((x, 2.0)), y * Parts((x, 2.0))):
            assert type(got) is Parts and len(got) == 2 and got[0].dtype == (y + x).dtype
    for stranger in (object(), "a", None):
        with pytest.raises(TypeError, match="unsupported operand|expected a Tensor|ufunc"):
            x + stranger


def test_names_that_lie_elsewhere_there() -> None:
    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            return ad.einsum("ij,jk->ik", (x, x.T))

    graph = ad.fx.proxy.Tracer().trace(Net())
    node = next(n for n in graph.nodes if n.target is ad.einsum)
    assert len(node.args) == 3 and issubclass(ad.fx.proxy.GraphAppendingTracer,
                                              ad.fx.proxy.TracerBase)
    assert ad.Future is ad.futures.Future and ad.jit.interface(Net) is Net


def test_a_subclass_with_a_property_of_the_memorys_name() -> None:
    class Image(ad.Tensor):
        @property
        def array(self) -> Any:
            return self.as_subclass(ad.Tensor).detach().numpy()

        @array.setter
        def array(self, values: Any) -> None:
            self.data = ad.as_tensor(values)

    image = ad.ones(2, 3).as_subclass(Image)
    assert type(image.array) is np.ndarray and type(image + 1) is Image
    image.array = np.zeros((4, 5), np.float32)
    assert image.shape == (4, 5) and (image * 2 + 1).sum().item() == 20.0


class OwnLoader:
    """A loader of a library that has PyTorch's iterators do the work."""

    _index_sampler, _auto_collation, drop_last, in_order = range(10**9), False, False, True
    generator, prefetch_factor, timeout, persistent_workers = None, 2, 0, False
    worker_init_fn = multiprocessing_context = None

    def __init__(self, num_workers: int) -> None:
        from adjoint.utils.data.dataloader import _DatasetKind
        self.dataset, self.num_workers = self, num_workers
        self._dataset_kind = _DatasetKind.Iterable

    def collate_fn(self, batch: Any) -> Any:
        return batch

    def __iter__(self) -> Any:
        return iter([ad.ones(2), ad.zeros(3)])


@pytest.mark.parametrize("workers", [0, 1])
def test_iterators_serve_a_loader_that_looks_like_one(workers: int) -> None:
    from adjoint.utils.data import dataloader

    kind = (dataloader._MultiProcessingDataLoaderIter if workers
            else dataloader._SingleProcessDataLoaderIter)
    assert [tuple(x.shape) for x in kind(OwnLoader(workers))] == [(2,), (3,)]


def test_lists_of_tensors_as_one_vector() -> None:
    from adjoint import _utils
    from adjoint.amp.grad_scaler import OptState

    tensors = [ad.ones(2, 3), ad.arange(4.0), ad.zeros(5), ad.ones(100)]
    flat = _utils._flatten_dense_tensors(tensors)
    back = _utils._unflatten_dense_tensors(flat, tensors)
    assert flat.shape == (115,) and all(a.equal(b) for a, b in zip(back, tensors, strict=True))
    assert back[0]._base is not None and OptState.UNSCALED.value == 1
    wide = [*tensors[:2], ad.ones(3, dtype=ad.float64), tensors[2], ad.ones(1, dtype=ad.float64),
            tensors[3]]
    found = {limit: [[t.numel() for t in group] for group in _utils._take_tensors(wide, limit)]
             for limit in (1, 40, 1000)}           # as PyTorch groups them
    assert found == {1: [[6], [4], [3], [5], [100], [1]], 40: [[6, 4], [5], [100], [3, 1]],
                     1000: [[6, 4, 5, 100], [3, 1]]}


def test_the_older_constructor_of_a_graph_s_matrix() -> None:
    at, values = ad.tensor([[0, 1], [1, 0]]), ad.tensor([1.0, 2.0])
    with pytest.warns(UserWarning, match="Please use torch.sparse_coo_tensor"):
        matrix = ad.sparse.FloatTensor(at, values, ad.Size([2, 3]))
    assert matrix.to_dense().tolist() == [[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]]
    assert isinstance(matrix, ad.sparse.FloatTensor) and matrix.type() == "torch.sparse.FloatTensor"
    assert not isinstance(values, ad.sparse.FloatTensor | ad.cuda.FloatTensor)
    with pytest.warns(UserWarning, match="sparse_coo_tensor"):
        assert ad.sparse.DoubleTensor(2, 3).to_dense().tolist() == [[0.0] * 3] * 2
    with pytest.raises(TypeError, match=r"type torch\.cuda\.FloatTensor not available"):
        ad.cuda.FloatTensor([1.0])


def test_contexts_of_libraries_decorate_functions() -> None:
    from adjoint.utils import _contextlib

    class counted(_contextlib._NoParamDecoratorContextManager):
        inside = 0

        def __enter__(self) -> None:
            counted.inside += 1

        def __exit__(self, *exc: object) -> None:
            counted.inside -= 1

    @counted
    def depth(more: int) -> int:
        return depth(more - 1) if more else counted.inside

    assert depth(2) == 3 and counted.inside == 0
    assert isinstance(ad.no_grad(), _contextlib._DecoratorContextManager)
    assert _contextlib.context_decorator(counted(), lambda: counted.inside)() == 1


def test_pytree_tells_the_class_of_a_node() -> None:
    pair = namedtuple("pair", "a b")
    kind = _pytree._get_node_type(pair(1, 2))
    assert kind is namedtuple and kind in _pytree.SUPPORTED_NODES
    assert _pytree._get_node_type({}) in _pytree.SUPPORTED_NODES
    assert _pytree._get_node_type(1) not in _pytree.SUPPORTED_NODES


def test_helpers_about_devices() -> None:
    from adjoint import _utils

    assert _utils._get_device_index(None, optional=True) == -1
    assert _utils._get_device_index("cpu", allow_cpu=True) == -1
    with pytest.raises(ValueError, match="Expected a non cpu device, but got: cpu"):
        _utils._get_device_index("cpu")
    assert _utils._get_all_device_indices() == [] and _utils._get_available_device_type() is None


def test_bounds_of_integers_by_keyword() -> None:
    x = ad.zeros(4)
    for made in (ad.randint_like(x, high=2), ad.randint_like(x, 2), ad.randint_like(x, 0, 2),
                 ad.randint(high=2, size=(4,)), ad.randint(2, (4,))):
        assert made.shape == (4,) and set(made.tolist()) <= {0, 1}
    assert ad.randint(low=5, high=6, size=(2,)).tolist() == [5, 5]
    assert ad.cuda.random.get_rng_state_all() == [] and ad.cuda.random.manual_seed(0) is None


def test_an_overflow_of_a_product_is_inf_without_a_word() -> None:
    """Warnings are errors in these tests."""
    big = ad.full((2, 2, 2), 1e200, dtype=ad.float64)
    for product in (big @ big, big[0] @ big[0], big[0] @ big[0, 0], big[0, 0] @ big[0, 0],
                    ad.dot(big[0, 0], big[0, 1]), ad.mv(big[0], big[0, 0])):
        assert ad.isinf(product).all()


@pytest.mark.parametrize("dtype", [ad.float32, ad.float64])
@pytest.mark.parametrize("function, base", [(ad.log10, 10.0), (ad.log2, 2.0)])
def test_logarithms_of_powers_of_the_base_are_whole(
        function: Any, base: float, dtype: Any) -> None:
    powers = np.arange(-30, 39) if dtype is ad.float32 else np.arange(-290, 300)
    numbers = ad.tensor([base ** float(k) for k in powers], dtype=dtype)
    copies = -(-70_000 // len(powers))        # enough for the kernels of large arrays
    for x, want in ((numbers, powers), (numbers.repeat(copies), np.tile(powers, copies))):
        assert np.array_equal(function(x).numpy(), want)
    assert function(ad.tensor(base ** 3, dtype=dtype)).item() == 3


def test_other_elements_of_the_same_bytes() -> None:
    """An empty tensor, and one element whatever NumPy says of its stride, as safetensors saves."""
    assert ad.empty(0).view(ad.uint8).shape == (0,)
    assert ad.empty(2, 0, dtype=ad.float64).view(ad.int16).shape == (2, 0)
    one = ad.ones(()).expand(1).contiguous()
    assert one.view(ad.uint8).tolist() == [0, 0, 128, 63]
    part = ad.ones(4, 3)[:, :1]
    assert part.view(ad.int16).shape == (4, 2)
    part.view(ad.int32)[:] = 0
    assert part.sum() == 0
    with pytest.raises(RuntimeError, match=r"self\.size\(-1\) must be divisible by 2 to view Float "
                                           r"as Double \(different element sizes\), but got 1"):
        part.view(ad.float64)
    with pytest.raises(RuntimeError, match=r"self\.stride\(-1\) must be 1 to view Float as Byte"):
        ad.ones(3, 4).t().view(ad.uint8)
    with pytest.raises(RuntimeError, match=r"self\.dim\(\) cannot be 0 to view Float as Byte"):
        ad.ones(()).view(ad.uint8)


def test_row_pointers_of_positions_and_back() -> None:
    rows, columns = ad.tensor([0, 0, 2, 3]), ad.tensor([1, 2, 0, 1])
    ends = ad._convert_indices_from_coo_to_csr(rows, 5)
    assert ends.tolist() == [0, 2, 2, 3, 4, 4] and ends.dtype == ad.int64
    assert ad._convert_indices_from_coo_to_csr(rows, 5, out_int32=True).dtype == ad.int32
    back = ad._convert_indices_from_csr_to_coo(ends, columns)
    assert back.tolist() == [rows.tolist(), columns.tolist()]
    turned = ad._convert_indices_from_csr_to_coo(ends, columns, transpose=True, out_int32=True)
    assert turned.tolist() == [columns.tolist(), rows.tolist()] and turned.dtype == ad.int32
    with pytest.raises(RuntimeError, match="supposed to be a vector, but got 2 dimensional"):
        ad._convert_indices_from_coo_to_csr(rows[None], 5)
    with pytest.raises(RuntimeError, match="not implemented for float32"):
        ad._convert_indices_from_coo_to_csr(rows.float(), 5)
    most = ad._segment_reduce(ad.tensor([1.0, 2.0, 3.0]), "amax", offsets=ad.tensor([0, 2, 3]))
    assert most.tolist() == [2.0, 3.0]


def test_switches_and_traces_that_libraries_ask_for() -> None:
    with ad.backends.__allow_nonbracketed_mutation():
        ad.backends.cudnn.deterministic = False
    assert ad.cuda._initialized is ad.cuda.is_initialized() is False
    with pytest.raises(RuntimeError, match="FlopCounterMode counts"):
        ad.jit._get_trace_graph(nn.Linear(1, 1), (ad.ones(1),))
def test_lerp_starts_from_the_nearer_end() -> None:
    """Weight 1 gives the end itself; an infinite start does not spoil weights from 1/2 on."""
    start, end = ad.tensor([1e8, -1.0, 3.0]), ad.tensor([0.3, 0.1, 7.0])
    assert (ad.lerp(start, end, 1.0) == end).all() and (ad.lerp(start, end, 0.0) == start).all()
    low, far = ad.full((3,), -np.inf), ad.full((3,), 2.0)
    assert low.lerp(far, 0.5).tolist() == [-np.inf] * 3
    assert low.lerp(far, 0.4).isnan().all() and far.lerp(low, 0.5).isnan().all()
