"""Nested and masked tensors beside PyTorch's, where it is installed (F123)."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest

import adjoint as ad

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.row("F123"),
              pytest.mark.filterwarnings("ignore:The PyTorch API of"),
              pytest.mark.filterwarnings("ignore:It is not recommended to create a Masked")]

# One expression a line: `t` is nested, of the layout `lay`; `r` has the same offsets.
JAGGED = """t + 1
2 * t - r
t / torch.ones(4)
t * torch.ones(3, 1, 4) * 2
t + torch.ones(1, 1, 4)
t - torch.tensor(2.0)
t.tanh() * t.sigmoid()
F.gelu(t)
F.silu(t)
F.leaky_relu(t, 0.2)
t.clamp(0, 1)
(t > 0) & (t < 1)
torch.logical_not(t > 0)
torch.where(t > 0, t, r)
t.masked_fill(t > 0, 5.0)
torch.maximum(t, r)
t.lerp(r, 0.5)
t.sum()
t.sum(1)
t.sum(-1)
t.sum((0, 1))
t.sum(1, keepdim=True)
t.mean()
t.mean(1)
t.mean(-1, keepdim=True)
t.amax(1)
t.amin(2)
t.max(1)
t.min(2)
t.argmax(1)
t.prod(1)
(t > 0).any(1)
(t > 0).all(2)
t.softmax(1)
t.softmax(-1)
F.log_softmax(t, -1)
F.layer_norm(t, (4,))
F.layer_norm(t, (4,), torch.ones(4) * 2, torch.ones(4))
F.rms_norm(t, (4,))
F.linear(t, torch.ones(5, 4) / 3, torch.ones(5))
t @ (torch.ones(4, 2) / 2)
torch.bmm(t, torch.ones(3, 4, 2) / 2)
t.transpose(1, 2) @ r
t.transpose(1, 2)
t.transpose(1, 2).contiguous()
t.permute(0, 2, 1)
t.view(3, -1, 2, 2)
t.view(3, -1, 2, 2).transpose(1, 2)
t.view(3, -1, 2, 2).transpose(1, 2).sum(2)
t.view(3, -1, 2, 2).flatten(-2)
t.unflatten(-1, (2, 2))
t.unsqueeze(1)
t.unsqueeze(-1).squeeze(-1)
t.select(2, 1)
t.narrow(2, 1, 2)
t[..., 0]
t[..., 1:3]
t[1]
t[-1, 0]
t.chunk(2, -1)
t.chunk(2)
t.split(2, -1)
t.split([1, 3], -1)
torch.cat([t, r], -1)
torch.stack([t, r], 2)
t.unbind()
t.to_padded_tensor(0.0)
t.to_padded_tensor(-1.0, (3, 6, 4))
t.double()
t.to(torch.float16)
t.clone()
t.detach()
torch.ones_like(t)
torch.full_like(t, 3)
t.unsqueeze(-1).expand(3, -1, 4, 2)
t.offsets()
t.values()
t.diff()
t.dim()
t.numel()
t.size(2)
t.is_contiguous()
t.transpose(1, 2).is_contiguous()
t.element_size()
F.embedding((t > 0).long(), torch.ones(2, 3))
F.dropout(t, 0.5, False)
F.scaled_dot_product_attention(h, h, h)
F.scaled_dot_product_attention(h, h, h).transpose(1, 2)
t.sum(0)
t.sum((1, 2))
t.transpose(0, 1)
t.view(-1, 4)
t.unsqueeze(0)
t.select(1, 0)
t.narrow(1, 0, 1)
torch.cat([t, r])
t.softmax(0)
t @ t.transpose(1, 2)
t.sort()
t.cumsum(1)
t.std(2)
t[:, 0]
t.flatten(1)
t.unbind(1)
t.size(3)
F.scaled_dot_product_attention(h, h, torch.ones(3, 2, 2, 2))""".splitlines()
STRIDED = """t + 1
t + r
t * torch.tensor(2.0)
t / 2
t - r
t.abs()
t.cos() * t.sin()
t.tanh()
F.relu(t)
F.gelu(t)
t > 0
t >= 1
t.eq(0)
torch.isnan(t)
t.softmax(1)
t.softmax(-1)
t.sum(-1, keepdim=True)
F.linear(t, torch.ones(5, 4) / 3, torch.ones(5))
F.layer_norm(t, (4,), torch.ones(4) * 2, torch.ones(4))
t @ r.transpose(1, 2)
torch.matmul(t.transpose(1, 2), r)
torch.bmm(t, torch.ones(3, 4, 2) / 2)
t.transpose(1, 2)
t.transpose(1, 2).contiguous()
t.mT
t.view(3, -1, 2, 2)
t.reshape(3, -1, 2, 2)
t.reshape(3, -1, -1)
t.unsqueeze(1)
t.unsqueeze(-1).squeeze(-1)
t.select(2, 1)
t.select(1, 0)
t[..., 0]
t[1]
t[1, 0]
t.narrow(0, 1, 2)
t.chunk(2, -1)
t.split([1, 3], -1)
torch.cat([t, r])
torch.cat([t, r], -1)
t.unbind()
t.to_padded_tensor(0.0)
t.to_padded_tensor(-1.0, (3, 6, 4))
t.double()
t.clone()
t.detach()
torch.zeros_like(t)
t.masked_fill(t > 0, 1.0)
t.numel()
t.size(0)
t.size(2)
t.dim()
t.is_contiguous()
t.transpose(1, 2).is_contiguous()
t._nested_tensor_size()
t._nested_tensor_strides()
t.add_(1)
t.mul_(r)
t.fill_(2.0)
t.zero_()
F.dropout(t, 0.5, False)
t.size(1)
t.shape
t.size()
len(t)
t.unbind(1)
t.softmax(0)
t.sum()
t.sum(1)
t.sum(-1)
t.exp()
t.transpose(0, 1)
t.chunk(2, 0)
t + torch.ones(4)
t @ torch.ones(4, 2)
t.bmm(r)
t.view(-1, 4)
t.reshape(3, -1)
F.linear(t, torch.ones(5, 3))
F.layer_norm(t, (4,))
t == t
t[3]
t[:, 0]
t.permute(0, 2, 1)""".splitlines()
MASKED = """m + 1
m * m
m - d
d * m
m.exp()
m.sqrt().round()
torch.clamp(m, 1, 2)
m >= 2
m == d
m.double()
m.sum()
m.sum(0)
m.sum(1, keepdim=True)
m.mean()
m.mean(1)
m.prod()
m.prod(1)
m.amin(0)
m.amax(1)
m.argmin()
m.argmax(1)
m.all()
m.all(1)
m.var()
m.std(1)
(m * float("nan")).sum()
e.sum(1)
e.amax(1)
e.prod()
m.softmax(1)
m[0]
m[:, 1:]
m[0, 1]
m.view(-1)
m.reshape(4, 3)
m.t()
m.transpose(0, 1)
m.unsqueeze(0)
m.split(1)
m.chunk(2, 1)
m.expand(2, 3, 4)
m.narrow(1, 0, 2)
m.flatten()
torch.cat([m, m])
torch.stack([m, m])
torch.where(k, m, n)
torch.where(d > 1, m, m * 2)
m.to_sparse_coo()
m.to_sparse_csr().sin()
(m.to_sparse_coo() * m.to_sparse_coo()).to_dense()
m.to_sparse_coo().sum()
m.to_tensor(0.0)
m.get_data()
m.get_mask()
m.add_(1)
m.mul_(m)
m.exp_()
torch.ones_like(m)
m.is_sparse_coo()
m.size()
m.dim()
m.clone()
m + n
m.add_(n)
masked_tensor(d, k.long())
masked_tensor(d, k[0])
masked_tensor(d, k[:1])
masked_tensor([1.0], k)
m.sort()
F.relu(m)
m.cumsum(0)
m.sum(2)""".splitlines()


def names(lib: Any, lay: str) -> dict[str, Any]:
    """What the expressions name, made by either library."""
    def parts(seed: int) -> list[Any]:
        values = [((i * 37 + seed * 11) % 19 - 8) / 4 for i in range(24)]
        return [lib.tensor(values[a * 4:b * 4]).view(-1, 4) for a, b in ((0, 2), (2, 3), (3, 6))]
    kind = getattr(lib, lay)
    t = lib.nested.nested_tensor(parts(0), layout=kind)
    r = t * 1 if lay == "jagged" else None
    found = {"torch": lib, "F": lib.nn.functional, "lay": kind, "t": t,
             "r": lib.nested.nested_tensor(parts(1), layout=kind) if r is None else r.cos(),
             "h": t.view(3, -1, 2, 2).transpose(1, 2)}
    d = lib.tensor([[0.5, 1.0, 2.0, 3.0], [1.5, 0.25, 4.0, 1.0], [2.0, 3.5, 0.75, 6.0]])
    k = lib.tensor([[True, False, True, True], [True, True, False, False], [False] * 3 + [True]])
    make = lib.masked.masked_tensor
    return {**found, "d": d, "k": k, "m": make(d, k), "n": make(d, ~k), "masked_tensor": make,
            "e": make(d, k & (d > 100))}


def plain(x: Any) -> Any:
    """A result of either library as Python values."""
    if getattr(x, "is_nested", False):
        return ["nested", str(x.dtype).split(".")[-1], [plain(p) for p in x.unbind()]]
    if type(x).__name__ == "MaskedTensor":
        x = x.to_dense()
        return ["masked", plain(x.get_data().masked_fill(~x.get_mask(), 0)), plain(x.get_mask())]
    if isinstance(x, (tuple, list)) and not type(x).__name__ == "Size":
        return [plain(p) for p in x]
    if isinstance(x, (torch.Tensor, ad.Tensor)):
        return [str(x.dtype).split(".")[-1], list(x.shape), x.tolist()]
    return tuple(x) if type(x).__name__ == "Size" else x


def close(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return a == pytest.approx(b, rel=2e-5, abs=1e-6, nan_ok=True)
    return bool(a == b)


def outcome(lib: Any, expression: str, lay: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(eval(expression, names(lib, lay)))  # noqa: S307  # our own texts
        except Exception as error:
            return error


@pytest.mark.parametrize(("lay", "expression"), [
    *(("jagged", e) for e in JAGGED), *(("strided", e) for e in STRIDED),
    *(("jagged", e) for e in MASKED)])
def test_same_results(lay: str, expression: str) -> None:
    mine, theirs = outcome(ad, expression, lay), outcome(torch, expression, lay)
    if isinstance(theirs, Exception):
        kinds = [k for k in (IndexError, TypeError, NotImplementedError, RuntimeError, ValueError)
                 if isinstance(theirs, k)]
        assert isinstance(mine, (*kinds, RuntimeError)), (mine, theirs)
        said, told = (re.sub(r"j\d+", "j", str(e)).split("'")[0] for e in (mine, theirs))
        assert words(said)[:2] == words(told)[:2] or "not" in words(told)[:6], (said, told)
    else:
        assert not isinstance(mine, Exception), mine
        assert close(mine, theirs), (mine, theirs)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


GRADIENTS = """t.sum()
(F.layer_norm(t, (4,)) * F.rms_norm(t, (4,))).values().exp().sum()
(t.transpose(1, 2) @ t).sum()
F.scaled_dot_product_attention(h, h, h).values().square().sum()
t.to_padded_tensor(1.0).prod(1).sum()
t[2].exp().sum() + t.values().sum()
t.amin(1).sum()""".splitlines()


@pytest.mark.parametrize("expression", GRADIENTS)
def test_same_gradients(expression: str) -> None:
    def gradient(lib: Any) -> Any:
        found = names(lib, "jagged")
        t = found["t"].detach().requires_grad_()
        h = t.view(3, -1, 2, 2).transpose(1, 2)
        eval(expression, {**found, "t": t, "h": h}).backward()  # noqa: S307  # our own texts
        return plain(t.grad)
    assert close(gradient(ad), gradient(torch))


@pytest.mark.parametrize("expression", ["m.sum()", "(m * m).mean()", "m.exp().sum(0).sum()",
                                        "m.prod(1).sum()", "m.amax(0).sum()",
                                        "(m.softmax(1) * d).sum()", "(m.log() / 3).mean(1).sum()"])
def test_same_masked_gradients(expression: str) -> None:
    def gradient(lib: Any) -> Any:
        found = names(lib, "jagged")
        m = found["masked_tensor"](found["d"], found["k"], requires_grad=True)
        eval(expression, {**found, "m": m}).backward()  # noqa: S307  # our own texts
        return plain(m.grad)
    assert close(gradient(ad), gradient(torch))


@pytest.mark.parametrize("lay", ["jagged", "strided"])
@pytest.mark.parametrize(("write", "read"), [(ad, torch), (torch, ad)])
def test_checkpoints_go_both_ways(lay: str, write: Any, read: Any, tmp_path: Any) -> None:
    t = names(write, lay)["t"]
    write.save({"t": t}, tmp_path / "t.pt")
    assert plain(read.load(tmp_path / "t.pt")["t"]) == plain(t)


@pytest.mark.parametrize("norm", [False, True])
def test_an_encoder_in_evaluation(norm: bool) -> None:
    def run(lib: Any) -> Any:
        layer = lib.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        model = lib.nn.TransformerEncoder(layer, 2, lib.nn.LayerNorm(8) if norm else None).eval()
        for i, p in enumerate(model.parameters()):
            p.data.copy_((lib.arange(p.numel()) * (i + 7) % 13 / 10.0 - 0.6).view(p.shape))
        x = (lib.arange(64.0) * 5 % 11).view(2, 4, 8) / 10
        padding = lib.tensor([[False, False, True, True], [False] * 4])
        with lib.no_grad():
            return plain(model(x, src_key_padding_mask=padding))
    mine, theirs = run(ad), run(torch)
    assert all(abs(a - b) < 1e-4 for a, b in zip(flat(mine), flat(theirs), strict=True))


def flat(x: Any) -> list[float]:
    return [v for y in x for v in flat(y)] if isinstance(x, list) else (
        [x] if isinstance(x, float) else [])
