"""PyTorch's warnings: the same category and first words, at the line of the program."""
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import adjoint as ad
from adjoint.core import modes

torch = pytest.importorskip("torch")
for name in ("cpu.amp", "nn.utils.stateless", "profiler", "testing", "utils.checkpoint"):
    pytest.importorskip("torch." + name)

# expression | the first words
WARNS = """
F.softmax(x) | Implicit dimension choice for softmax has been deprecated. Change the call to include
F.log_softmax(x) | Implicit dimension choice for log_softmax has been deprecated.
F.softmin(x) | Implicit dimension choice for softmin has been deprecated.
F.mse_loss(x, x, size_average=False) | size_average and reduce args will be deprecated, please use r
F.l1_loss(x, x, reduce=False) | size_average and reduce args will be deprecated, please use reductio
t.add(x, x, out=t.ones(3)) | An output with one or more elements was resized since it had shape [3],
x.to(t.complex64).float() | Casting complex values to real discards the imaginary part
t.meshgrid(v, v) | torch.meshgrid: in an upcoming release, it will be required to pass the indexing
t.cross(sq, sq) | Using torch.cross without specifying the dim arg is deprecated
t.ones(1).var() | var(): degrees of freedom is <= 0. Correction should be strictly less than the red
t.ones(1).std() | std(): degrees of freedom is <= 0. Correction should be strictly less than the red
F.grid_sample(t.ones(1, 1, 2, 2), t.zeros(1, 2, 2, 2)) | Default grid_sample and affine_grid behavio
F.affine_grid(t.zeros(1, 2, 3), (1, 1, 2, 2)) | Default grid_sample and affine_grid behavior has cha
t.from_numpy(frozen) | The given NumPy array is not writable, and
t.range(0, 3) | torch.range is deprecated and will be removed in a future release because its behavi
t.tensor(x) | To copy construct from a tensor, it is recommended to use
x.new_tensor(x) | To copy construct from a tensor, it is recommended to use
v.T | The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated
v[0].T | Tensor.T is deprecated on 0-D tensors. This function is the identity in these cases.
F.dropout2d(t.ones(2, 3, 4)) | dropout2d: Received a 3D input to dropout2d and assuming that channel
F.dropout2d(x) | dropout2d: Received a 2-D input to dropout2d, which is deprecated
F.dropout3d(t.ones(2, 3, 4)) | dropout3d: Received a 3-D input to dropout3d, which is deprecated
t.stft(t.ones(8), 4, return_complex=True) | A window was not provided. A rectangular window will be
t.istft(t.ones(3, 3) + 0j, 4) | A window was not provided. A rectangular window will be applied
t.stft(t.ones(8), 4, window=t.ones(4), return_complex=False) | stft with return_complex=False is dep
v.resize(2) | non-inplace resize is deprecated
v.resize_as(v) | non-inplace resize_as is deprecated
F.upsample(t.ones(1, 1, 2, 2), scale_factor=2) | `nn.functional.upsample` is deprecated. Use `nn.fun
t.autograd.detect_anomaly() | Anomaly Detection has been enabled.
t.nn.TransformerEncoder(t.nn.TransformerEncoderLayer(4, 2), 1) | enable_nested_tensor is True, but s
t.nn.TransformerEncoder(t.nn.TransformerEncoderLayer(3, 3, batch_first=True), 1) | enable_nested_ten
float(v.requires_grad_()[0]) | Converting a tensor with requires_grad=True to a scalar may lead to u
complex(v.requires_grad_()[0]) | Converting a tensor with requires_grad=True to a scalar may lead to
t.chain_matmul(x, x) | torch.chain_matmul is deprecated and will be removed in a future PyTorch rele
F.mse_loss(x, v) | Using a target size (torch.Size([2])) that is different to the input size (torch.
F.l1_loss(x, t.ones(2, 1)) | Using a target size (torch.Size([2, 1])) that is different to the input
F.smooth_l1_loss(x, v) | Using a target size (torch.Size([2])) that is different to the input size (
F.huber_loss(x, v) | Using a target size (torch.Size([2])) that is different to the input size (torc
F.mse_loss(x, x, reduction="elementwise_mean") | reduction='elementwise_mean' is deprecated. Please
F.kl_div(x, x) | reduction: 'mean' divides the total loss by both the batch size and the support siz
t.nn.MSELoss(size_average=False) | size_average and reduce args will be deprecated, please use reduc
t.nn.NLLLoss(reduce=False) | size_average and reduce args will be deprecated, please use reduction='
F.gumbel_softmax(x, eps=1e-5) | `eps` parameter is deprecated and has no effect.
F.upsample_nearest(t.ones(1, 1, 2, 2), 4) | `nn.functional.upsample_nearest` is deprecated. Use `nn.
F.upsample_bilinear(t.ones(1, 1, 2, 2), 4) | `nn.functional.upsample_bilinear` is deprecated. Use `n
x[[0, slice(None)]] | Using a non-tuple sequence for multidimensional indexing is deprecated and wil
x[t.tensor([1, 0], dtype=t.uint8)] | indexing with dtype torch.uint8 is now deprecated, please use a
t.var_mean(t.ones(1)) | var_mean(): degrees of freedom is <= 0. Correction should be strictly less t
t.std_mean(t.ones(1)) | std_mean(): degrees of freedom is <= 0. Correction should be strictly less t
t.ones(3, 0).std(1) | std(): degrees of freedom is <= 0. Correction should be strictly less than the
t.cov(t.ones(3, 1)) | cov(): degrees of freedom is <= 0. Correction should be strictly less than the
t.tensor(1.0).mT | Tensor.mT is deprecated on 0-D tensors. This function is the identity in these ca
v.copy_(v + 0j) | Casting complex values to real discards the imaginary part
t.autograd.Variable(v, volatile=True) | volatile was removed and now has no effect. Use `with torch.
t.amp.autocast("cuda") | CUDA is not available or torch_xla is imported. Disabling autocast.
t.amp.GradScaler("cuda") | torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabli
t.utils.data.random_split(range(1), [0.5, 0.5]) | Length of split at index 1 is 0. This might result
t.nn.Linear(0, 2) | Initializing zero-element tensors is a no-op
t.nn.InstanceNorm2d(3)(t.ones(1, 4, 5, 5)) | input's size at dim=1 does not match num_features. You
t.nn.Linear(2, 1, device="meta").load_state_dict(line) | for weight: copying from a non-meta paramet
"""
# These come in programs that run as `torch` alone: what PyTorch means to change, or does not have.
AS_PYTORCH = """
sq.qr() | torch.qr is deprecated in favor of torch.linalg.qr and will be removed in a future PyTorch
t.cholesky(t.eye(2)) | torch.cholesky is deprecated in favor of torch.linalg.cholesky and will be re
t.lu(sq) | torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex and
t.triangular_solve(x, t.eye(2)) | torch.triangular_solve is deprecated in favor of torch.linalg.solv
t.where(t.ones(2, dtype=t.uint8), v, v) | where received a uint8 condition tensor. This behavior is
x.scatter(0, t.zeros(2, 2, dtype=t.int64), x, reduce="add") | The reduce argument of torch.scatter w
x.index_reduce(0, t.tensor([0, 1]), x, "prod") | index_reduce() is in beta and the API may change at
t.bucketize(sq.T[0], v) | torch.searchsorted(): input value tensor is non-contiguous, this will lowe
F.conv1d(t.ones(1, 1, 4), t.ones(1, 1, 2), padding="same") | Using padding='same' with even kernel l
t.sparse_coo_tensor([[0], [0]], [1.0], (1, 1)) | Sparse invariant checks are implicitly disabled. Me
x.to_sparse_csr() | Sparse CSR tensor support is in beta state. If you miss a functionality in the s
t.utils.checkpoint.checkpoint(F.relu, x, use_reentrant=True) | None of the inputs have requires_grad
t.utils.checkpoint.checkpoint(F.relu, v) | torch.utils.checkpoint: the use_reentrant parameter shoul
with t.profiler.profile(activities=[Kind.CPU, Kind.CUDA]): v + 1 | CUDA is not available, disabling
list(t.utils.data.DataLoader([1], pin_memory=True)) | 'pin_memory' argument is set as true but no ac
t.utils.data.DataLoader([1], num_workers=9999) | This DataLoader will create 9999 worker processes i
t.amp.GradScaler() | torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.
t.tensor([frozen]) | Creating a tensor from a list of numpy.ndarrays is extremely slow. Please consi
t.autograd.gradcheck(F.relu, v.requires_grad_(), eps=0.1) | Input #0 requires gradient and is not a
"""
TWICE = "t.utils.checkpoint.checkpoint(F.relu, v)"       # of the parameter, and of the operands
FUTURE = """
t.testing.assert_allclose(x, x) | `torch.testing.assert_allclose()` is deprecated since 1.12 and wil
t.backends.cuda.sdp_kernel() | `torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this
t.nn.utils.stateless.functional_call(t.nn.Linear(2, 1), {}, x) | `torch.nn.utils.stateless.functiona
t.cpu.amp.autocast() | `torch.cpu.amp.autocast(args...)` is deprecated. Please use `torch.amp.autoca
t.cuda.amp.custom_fwd(F.relu) | `torch.cuda.amp.custom_fwd(args...)` is deprecated. Please use `torc
"""


def rows(table: str) -> list[tuple[str, ...]]:
    lines = table.strip().splitlines()
    return [tuple(part.strip() for part in line.split(" | ")) for line in lines]


ROWS = rows(WARNS)


def warned(t: Any, expression: str) -> list[warnings.WarningMessage]:
    import numpy as np
    frozen = np.ones(2, np.float32)
    frozen.flags.writeable = False
    space = {"t": t, "F": t.nn.functional, "x": t.ones(2, 2), "v": t.ones(2), "sq": t.ones(3, 3),
             "frozen": frozen, "line": {"weight": t.ones(1, 2), "bias": t.ones(1)},
             "Kind": t.profiler.ProfilerActivity}
    t.set_warn_always(True)                  # or only the first time in this process
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            exec(compile(expression, "program.py", "exec"), space)  # noqa: S102  # our own table
    finally:
        t.set_warn_always(False)
    # what NumPy says of a division by zero, without generated kernels, is about values
    return [w for w in found if w.category is not RuntimeWarning]


@pytest.mark.parametrize("expression, words", ROWS, ids=[row[0] for row in ROWS])
def test_warns_as_pytorch(expression: str, words: str) -> None:
    for t in (torch, ad):
        found = warned(t, expression)
        assert [w for w in found if str(w.message).startswith(words)
                and w.category is UserWarning], (t, [str(w.message) for w in found])
    assert found[0].filename == "program.py"         # ours: at the line of the program
    assert len(found) == (2 if expression.endswith("load_state_dict(line)") else 1)


@pytest.fixture
def in_pytorch_s_place() -> Iterator[None]:
    modes.as_pytorch[0] = True
    yield
    modes.as_pytorch[0] = False


@pytest.mark.parametrize("expression, words", rows(AS_PYTORCH + FUTURE.lstrip()))
def test_warns_in_pytorch_s_place(expression: str, words: str, in_pytorch_s_place: None) -> None:
    category, counts = FutureWarning if expression in FUTURE else UserWarning, []
    for t in (torch, ad):
        found = warned(t, expression)
        assert [w for w in found if str(w.message).startswith(words)
                and w.category is category], (t, [str(w.message) for w in found])
        counts.append(len(found))
    assert found[0].filename == "program.py"
    assert counts[0] == counts[1] == (2 if expression == TWICE else 1)


CHECKPOINTS = """
t.utils.checkpoint.checkpoint(F.relu, v)
t.utils.checkpoint.checkpoint(F.relu, v.requires_grad_())
t.utils.checkpoint.checkpoint(F.relu, v, use_reentrant=True)
t.utils.checkpoint.checkpoint(F.relu, v, use_reentrant=False)
t.utils.checkpoint.checkpoint_sequential([F.relu, F.relu], 2, v)
t.utils.checkpoint.checkpoint_sequential([F.relu, F.relu], 2, v, use_reentrant=True)
t.utils.checkpoint.checkpoint_sequential([F.relu, F.relu], 1, v, use_reentrant=True)
t.searchsorted(x[:, 0], v)
t.searchsorted(x.T, x.T, sorter=t.tensor([[0, 0], [1, 1]]).T)
t.searchsorted(x[:, 0], 1.0)
t.bucketize(x.T, x[:, 0])
"""


@pytest.mark.parametrize("expression", CHECKPOINTS.strip().splitlines())
def test_says_all_that_pytorch_says(expression: str, in_pytorch_s_place: None) -> None:
    theirs, ours = ([str(w.message).partition(" (Triggered internally")[0]
                     for w in warned(t, expression)] for t in (torch, ad))
    assert ours == theirs


@pytest.mark.parametrize("expression", [
    row[0] for row in rows(AS_PYTORCH) if "gradcheck" not in row[0]])
def test_silent_under_its_own_name(expression: str) -> None:
    assert not warned(ad, expression)


def test_a_call_that_warns_is_not_replayed_in_silence() -> None:
    x = ad.ones(2, 2)
    for _ in range(5):
        with pytest.warns(UserWarning, match="^Implicit dimension choice"):
            ad.nn.functional.softmax(x)


@pytest.mark.parametrize("call", [
    "t.add(x, 2, x)", "t.sub(x, 2, x)", "x.clone().add_(2, x)", "x.clone().sub_(2, x)",
    "t.addcmul(x, 2, x, x)", "x.clone().addcmul_(2, x, x)", "t.addcdiv(x, 2, x, x)",
    "x.clone().addcdiv_(2, x, x)"])
@pytest.mark.filterwarnings("ignore:This overload of")
def test_numbers_by_position_as_in_old_programs(call: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("adjoint.core.modes.warn_always", [True])      # it is said once otherwise
    ours, theirs = (eval(call, {"t": t, "x": t.tensor([1.0, 3.0])}) for t in (ad, torch))
    assert ours.tolist() == theirs.tolist()
    with pytest.warns(UserWarning, match="^This overload of .* is deprecated:"):
        eval(call, {"t": ad, "x": ad.tensor([1.0, 3.0])})


def test_no_words_where_all_is_said() -> None:
    """Warnings are errors in these tests."""
    F, x = ad.nn.functional, ad.ones(2, 2)
    F.softmax(x, 1), F.mse_loss(x, x, reduction="sum"), ad.meshgrid(x[0], x[0], indexing="ij")
    ad.add(x, x, out=ad.empty(0)), ad.add(x, x, out=ad.empty(2, 2)), ad.ones(2).var()
    ad.ones(1).var(correction=0), x.to(ad.complex64).abs()


def test_once_in_a_process() -> None:
    def count(t: Any) -> int:
        v = t.ones(1, requires_grad=True)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for _ in range(2):
                float(v), float(v * v)
            int(v), bool(v), v.item()
            with t.no_grad():
                float(v)
        return len(found)
    for t in (torch, ad):
        t.set_warn_always(True)
        assert count(t) == 4 and t.is_warn_always_enabled()
        t.set_warn_always(False)
        assert count(t) <= 1 and count(t) == 0       # (another test may have been first)


def test_a_program_in_pytorch_s_place_is_told_of_cycles() -> None:
    expression = "t.autograd.backward(v.requires_grad_().sum(), create_graph=True, inputs=[v])"
    assert not warned(ad, expression)                # nothing is kept in a cycle here
    modes.as_pytorch[0] = True
    try:
        (theirs,), (ours,) = (warned(t, expression) for t in (torch, ad))
    finally:
        modes.as_pytorch[0] = False
    assert str(theirs.message).startswith(str(ours.message)) and ours.category is UserWarning


def test_a_stream_that_said_it_was_shorter() -> None:
    def found(t: Any) -> list[str]:
        class Stream(t.utils.data.IterableDataset):  # type: ignore[misc, name-defined]  # either's
            def __iter__(self) -> Iterator[int]:
                return iter(range(4))

            def __len__(self) -> int:
                return 2

            def __str__(self) -> str:
                return "Stream"
        loader = t.utils.data.DataLoader(Stream())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert sum(1 for _ in loader) == 4   # nobody has asked for its length
        assert len(loader) == 2
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert sum(1 for _ in loader) == 4
        assert {w.filename for w in told} == {__file__}
        return [str(w.message).strip() for w in told]
    ours = found(ad)
    assert ours == found(torch) and len(ours) == 2 and "but 3 samples" in ours[0]


OLDER_HOOKS = {
    "several nodes": lambda x: (x * 2).sin(), "one node": lambda x: x.sin(),
    "several outputs": lambda x: (x * 2, x * 3), "outputs of one node": lambda x: x.split(1),
    "a dict": lambda x: {"a": x * 2}, "a list": lambda x: [x * 2],
    "no tensor": lambda x: (x * 2, 1),
}


@pytest.mark.parametrize("name", OLDER_HOOKS)
def test_what_backward_hooks_of_the_older_kind_do_not_see(name: str) -> None:
    def found(t: Any) -> list[tuple[type, str]]:
        class Module(t.nn.Module):  # type: ignore[misc, name-defined]  # either's
            def forward(self, x: Any) -> Any:
                return OLDER_HOOKS[name](x)
        module = Module()
        module.register_backward_hook(lambda *a: None)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            module(t.ones(2, requires_grad=True).exp())
        return [(w.category, str(w.message)) for w in told]
    assert found(ad) == found(torch)


def test_a_hook_of_the_older_kind_for_all_modules() -> None:
    """F27: register_module_backward_hook: once per module, at its last node, beside own hooks;
    hooks of the other kind are refused while it is there."""
    from adjoint.nn.modules import module as global_hooks
    seen: list[Any] = []
    net = ad.nn.Sequential(ad.nn.Linear(2, 2), ad.nn.Tanh())
    net[1].register_backward_hook(lambda m, i, o: seen.append("own"))
    handle = global_hooks.register_module_backward_hook(
        lambda m, i, o: seen.append((type(m).__name__, len(i), len(o))))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net(ad.ones(1, 2, requires_grad=True)).sum().backward()
        with pytest.raises(RuntimeError, match="both regular backward hooks and full backward"):
            global_hooks.register_module_full_backward_hook(print)
    finally:
        handle.remove()
    assert seen == [("Tanh", 1, 1), "own", ("Sequential", 1, 1), ("Linear", 3, 1)]
    whole: list[str] = []
    handle = global_hooks.register_module_full_backward_hook(
        lambda m, i, o: whole.append(type(m).__name__))
    try:
        ad.nn.Linear(2, 2)(ad.ones(1, 2, requires_grad=True)).sum().backward()
    finally:
        handle.remove()
    assert whole == ["Linear"]
