"""`_saved_<name>` of nodes under PyTorch's names (F2)."""
from __future__ import annotations

from typing import Any

import pytest

import adjoint as ad

# expression | names after _saved_
TABLE = [line.split(" | ") for line in """
m.clamp(0.1, 0.5) | min max self
m.clamp(min=0.1) | min max
F.hardtanh(m) | min_val max_val self
F.prelu(m, t.rand(1)) | self
F.gelu(m) | approximate self
F.gelu(m, approximate="tanh") | approximate
F.mse_loss(m, c) | reduction self target
F.mse_loss(m, c, reduction="none") | reduction self target
F.smooth_l1_loss(m, c, reduction="sum") | reduction self target beta
F.binary_cross_entropy(m, c) | reduction self target weight
F.binary_cross_entropy_with_logits(m, c) | reduction self target weight pos_weight
F.nll_loss(m, where) | reduction target
F.max_pool2d(x, 2) | kernel_size result1 padding dilation ceil_mode
F.avg_pool2d(x, 2) | kernel_size padding ceil_mode count_include_pad divisor_override
F.layer_norm(m, (5,)) | input normalized_shape weight
F.group_norm(x, 3) | input weight eps
F.linear(m, w, v0) | alpha beta mat1 mat2
F.conv2d(x, k, padding=1) | weight stride padding dilation groups transposed output_padding
F.conv_transpose2d(x[:, :2], k) | transposed
F.embedding(where, m) | indices
F.scaled_dot_product_attention(x, x, x) | query key value output logsumexp attn_mask is_causal
x[:, where] | indices self_sym_sizes
m.index_select(0, where) | dim index self_sym_sizes
m.index_add(0, where, c) | dim alpha
m[1:3] | dim start end step self_sym_sizes
m[0:2, 1:3] | dim start end step
m.mean() | self_sym_numel self_sym_sizes
m.mean(0) | self_sym_numel dim keepdim
m.max(0)[0] | dim keepdim indices self_sym_sizes
m.sort()[0] | indices
m.topk(2)[0] | indices
m.cummax(0)[0] | indices dim
m + m | alpha
m - 1 | alpha
m ** 2 | exponent self
m.pow(3) | exponent self
m.pow(0.5) | exponent
m @ v | self vec
v @ v | self tensor
t.baddbmm(b, b, b) | batch1 batch2 alpha beta
t.addcmul(m, m * 1, m * 2) | tensor1 tensor2 value
t.addcdiv(m, m * 1, m * 2) | tensor1 tensor2 value
m.unfold(0, 2, 1) | dimension size step
m.repeat(2, 2) | repeats
t.linalg.inv(s) | inverse
t.linalg.cholesky(s @ s.t()) | L upper
t.linalg.det(s) | A result
t.linalg.solve(s, s) | A left result
t.linalg.qr(s)[0] | Q R mode
t.linalg.svd(s)[1] | U S Vh
t.linalg.eigh(s + s.t())[0] | eigenvalues eigenvectors
t.linalg.solve_triangular(s, s, upper=True) | self upper left unitriangular
t.fft.rfft(m) | dim normalization onesided
t.fft.ifft(z) | dim normalization forward
m.logit() | eps self
t.where(m > 0.5, m, c) | condition
t.cat([m, m]) | dim
F.linear(m, w, v0) | mat1_sym_sizes
F.group_norm(x, 3) | N C HxW
F.batch_norm(x, t.zeros(3), t.ones(3), training=True) | training eps
F.batch_norm(x, t.zeros(3), t.ones(3)) | training
F.embedding(where, m) | weight_sym_argsize_0
F.interpolate(x, scale_factor=2) | output_size
F.interpolate(x[0], scale_factor=2) | output_size
F.interpolate(x[0], size=7, mode="linear", align_corners=True) | output_size align_corners
F.interpolate(x, size=(3, 7), mode="bilinear") | output_size align_corners
F.interpolate(x, size=(3, 7), mode="bicubic", align_corners=True) | output_size align_corners
F.interpolate(x, size=(3, 7), mode="bilinear", antialias=True) | output_size align_corners
m.index_copy(0, where[:2], c[:2]) | source_dim
m.index_add(0, where, c) | source_dim
t.add(m, c, alpha=2) | alpha
t.sub(m, c, alpha=3) | alpha
m.index_add(0, where, c, alpha=2) | alpha
t.addmm(m, s, m, beta=0.5, alpha=2) | alpha beta mat1_sym_sizes mat2_sym_sizes
t.addmv(v0, w, v, alpha=2) | alpha beta
t.addr(w, v0, v, beta=0.5) | alpha beta
t.addbmm(s, b, b, alpha=2) | alpha beta
t.linalg.cholesky(s @ s.t(), upper=True) | upper
t.cholesky_inverse(s, upper=False) | upper
t.linalg.solve(s, s, left=False) | left
t.renorm(m, 2, 0, 1.0) | p maxnorm
t.rot90(m, 3) | k dims
F.pixel_shuffle(t.cat([x, x[:, :1]], 1), 2) | upscale_factor
F.channel_shuffle(x[:, :2], 2) | groups
F.unfold(x, 2, padding=1) | kernel_size padding dilation stride
F.multi_margin_loss(m, where, margin=0.5) | p margin reduction
t.mvlgamma(m + 2, 2) | p
m.scatter_reduce(0, where[:, None], c, "amax", include_self=False) | include_self reduce
m.unsafe_split(2)[0] | split_size
F.pad(m, (1, 2)) | pad
m.clamp(min=c) | min max
m.gather(0, where[:, None]) | sparse_grad
F.interpolate(x, scale_factor=2) | scales_h scales_w
F.interpolate(x, size=(3, 7), mode="bilinear") | scales_h scales_w
F.interpolate(x[0], scale_factor=1.5, mode="linear") | scales
F.interpolate(x, size=(3, 7), mode="nearest-exact") | output_size scales_h
t.linalg.svd(w)[1] | S_sym_argsize_minus_1
""".strip().splitlines()]


def space(t: Any) -> dict[str, Any]:
    def leaf(*shape: int) -> Any:
        return t.linspace(0.1, 0.9, int(t.ones(shape).numel())).reshape(shape).requires_grad_()
    return {"t": t, "F": t.nn.functional, "m": leaf(4, 5), "c": t.full((4, 5), 0.25),
            "w": leaf(3, 5), "v0": leaf(3), "v": leaf(5), "x": leaf(2, 3, 4, 4), "b": leaf(2, 4, 4),
            "k": leaf(2, 3, 3, 3), "where": t.tensor([0, 2, 1, 2]),
            "s": (t.eye(4) * 3 + leaf(4, 4).detach().sin()).requires_grad_(),
            "z": t.full((4,), 1 + 2j, dtype=t.complex64).requires_grad_()}


def shown(t: Any, value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [shown(t, v) for v in value]
    if isinstance(value, t.Tensor):
        return (list(value.shape), str(value.dtype).rpartition(".")[2], value.requires_grad)
    return value


@pytest.mark.parametrize(("expression", "names"), TABLE)
def test_pytorch_keeps_the_same(expression: str, names: str) -> None:
    torch = pytest.importorskip("torch")
    told = []
    for t in (torch, ad):
        node = eval(expression, space(t)).grad_fn
        told.append({n: shown(t, getattr(node, f"_saved_{n}")) for n in names.split()})
    assert told[1] == told[0]


CALLED = ["m.fmod(c)", "m.fmod(2)", "m.clamp_min(0.5)", "m.clamp_max(c)", "t.clamp_max(m, max=c)",
          "m.scatter(0, where[:, None], 1.0)", "m.scatter(0, where[:, None], c)",
          "m.scatter_reduce(0, where[:, None], c, 'sum')", "t.linalg.lu_factor(s)[0]",
          "t.linalg.lstsq(s, s)[0]", "t.triangular_solve(s, s)[0]"]


@pytest.mark.parametrize("expression", CALLED)
@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
def test_nodes_are_called_as_the_peers(expression: str) -> None:
    torch = pytest.importorskip("torch")
    theirs, ours = (eval(expression, space(t)).grad_fn.name() for t in (torch, ad))
    assert ours == theirs


def test_numbers_can_be_read_after_backward_and_tensors_cannot() -> None:
    m = ad.rand(3, 4, requires_grad=True)
    y, z = m.sum(0), m.max(0)[0]
    nodes = y.grad_fn, z.grad_fn
    (y.sum() + z.sum()).backward()
    assert nodes[0]._saved_dim == (0,) and tuple(nodes[0]._saved_self_sym_sizes) == (3, 4)
    assert nodes[1]._saved_keepdim is False
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        nodes[1]._saved_indices  # noqa: B018  # the question itself


def test_places_have_no_gradient() -> None:
    m = ad.rand(3, 4, requires_grad=True)
    seen: list[bool] = []
    with ad.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.requires_grad) or t,
                                               lambda t: t):
        y = m.max(0)[0]
    kept = m.max(0)[0].grad_fn._saved_indices
    assert seen == [False] and kept.grad_fn is None and not kept.requires_grad
    y.sum().backward()
    assert m.grad.sum() == 4


def test_hooks_on_what_is_not_kept_or_not_there_any_more() -> None:
    m = ad.rand(3, requires_grad=True)
    node = (m * 2).grad_fn
    with pytest.raises(RuntimeError, match="with value None is forbidden"):
        node._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
    y = m.exp()
    raw = y.grad_fn._raw_saved_result
    y.sum().backward()
    with pytest.raises(RuntimeError, match="saved tensor after it has been freed. Saved interm"):
        raw.register_hooks(lambda t: t, lambda t: t)
