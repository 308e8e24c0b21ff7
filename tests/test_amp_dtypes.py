"""16-bit tensors everywhere: stored in 16 bits, computed in float32, rounded once (F74, F101)."""
import io
import subprocess
import sys

import numpy as np
import pytest

import adjoint as ad
from adjoint.autograd import grad
from adjoint.core.bind import bind
from adjoint.core.op import OPS
from adjoint.core.tensor import wrap
from adjoint.testing.samples import table

ml_dtypes = pytest.importorskip("ml_dtypes")
TABLE = table()
EPS = {"bfloat16": 2.0 ** -8, "float16": 2.0 ** -11}       # half a unit in the last place
WIDE_ONLY = {n for n in OPS if (n.startswith("linalg_") or n == "geqrf")
             and OPS[n].prepare is not None}
NO_COMPLEX = {"view_as_complex"}           # there is no complex dtype of 32 bits
# Quotients of rounded values: an operand near 0 scales its error up.
LOOSE = {"div", "addcdiv", "softmax_backward", "linear_scan"}


REFUSED = {n for n in TABLE if any("h" in kinds for kinds in getattr(OPS[n], "refuses", ()))}


def halves(args, dtype):
    return [a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a
            for a in args]


def run(op, args, attrs, cts):
    """(results, gradients under given cotangents), as float64 arrays, and the dtypes."""
    tensors = [wrap(a) if isinstance(a, np.ndarray) else a for a in args]
    floats = [t for t in tensors if isinstance(t, ad.Tensor) and t.is_floating_point()]
    for t in floats:
        t.requires_grad = True
    out = bind(op, tensors, attrs)
    outs = list(out) if isinstance(out, tuple) else [out]
    carry = [(o, c) for o, c in zip(outs, cts(outs), strict=True) if o._rg]
    grads = []
    if carry:
        grads = [None if g is None else g.to_dense() for g in grad(
            [o for o, _ in carry], floats, [c for _, c in carry], allow_unused=True)]
    return outs, grads


@pytest.mark.row("F74")
@pytest.mark.parametrize("name", sorted(set(TABLE) - WIDE_ONLY - NO_COMPLEX - REFUSED))
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_every_op_in_16_bits_is_float32_rounded(name, kind):
    dtype = np.dtype(getattr(ml_dtypes, kind, None) or kind)
    real = [(a, k) for a, k in TABLE[name] if not any(
        isinstance(x, np.ndarray) and x.dtype.kind == "c" for x in a)]
    for args, attrs in real:
        low = halves(args, dtype)
        high = [a.astype(np.float32) if isinstance(a, np.ndarray) and a.dtype == dtype else a
                for a in low]
        if not any(isinstance(a, np.ndarray) and a.dtype == dtype for a in low):
            continue

        def cts(outs):
            rng = np.random.default_rng(3)
            made = [rng.standard_normal(o.shape).astype(dtype) for o in outs]
            return [wrap(m.astype(o.array.dtype)) for m, o in zip(made, outs, strict=True)]
        if name.startswith("fft"):
            with pytest.raises(RuntimeError, match="16-bit"):
                getattr(ad.fft, "rfft" if "r2c" in name else "fft")(wrap(low[0]))
            return
        expect, got = run(OPS[name], high, attrs, cts), run(OPS[name], low, attrs, cts)
        wanted = [*expect[0], *expect[1]]
        # of the largest number that takes part: sums over broadcast axes may cancel
        scale = max([1.0, *(np.abs(w.array).max() for w in wanted if w is not None
                            and w.numel() and w.dtype == ad.float32)])
        for want, have in zip(wanted, [*got[0], *got[1]], strict=True):
            if want is None or have is None:
                assert want is have
                continue
            if want.dtype != ad.float32:
                assert have.dtype == want.dtype
                continue
            statistic = name == "batch_norm" and any(have is o for o in got[0][1:])
            cast = name == "to_dtype"
            assert have.array.dtype == (np.float32 if statistic else dtype) or cast
            w, h = want.array.astype(np.float64), have.array.astype(np.float64)
            slack = 16 if name in LOOSE else 4     # a gradient is made of a few rounded values
            np.testing.assert_allclose(h, w, rtol=slack * EPS[kind],
                                       atol=slack * EPS[kind] * scale + 1e-7)


@pytest.mark.row("F74")
@pytest.mark.parametrize("name", sorted(REFUSED))
@pytest.mark.parametrize("kind", ["BFloat16", "Half"])
def test_records_that_refuse_16_bits_say_so_in_pytorchs_words(name, kind):
    dtype = np.dtype(ml_dtypes.bfloat16 if kind == "BFloat16" else np.float16)
    args, attrs = TABLE[name][0]
    kernel = next(words for kinds, words in OPS[name].refuses.items() if "h" in kinds)
    with pytest.raises(NotImplementedError, match=f"^\"{kernel}\" not implemented for '{kind}'"):
        bind(OPS[name], [wrap(a) for a in halves(args, dtype)], attrs)


TWO_OPERANDS = {"gammainc", "gammaincc", "xlog1py", "xlogy", "zeta"}


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_special_functions_take_the_16_bits_that_pytorch_takes(kind):
    """The same refusals in the same words, and where there is none, the dtype of the operand."""
    torch = pytest.importorskip("torch")

    def outcome(lib, name):
        x, f = lib.full((3,), 0.5, dtype=getattr(lib, kind)), getattr(lib.special, name)
        args = {"multigammaln": (x + 1, 1), "polygamma": (1, x), "softmax": (x, 0),
                "log_softmax": (x, 0), "logsumexp": (x, 0)}.get(name)
        try:
            out = f(*args) if args else f(x, x) if name in TWO_OPERANDS else f(x)
        except NotImplementedError as error:
            return str(error).partition(";")[0]
        return str(out.dtype).partition(".")[2]
    names = [n for n in dir(torch.special) if hasattr(ad.special, n) and n[0] != "_"
             and callable(getattr(torch.special, n)) and "polynomial" not in n]
    assert len(names) > 35
    assert {n: outcome(ad, n) for n in names} == {n: outcome(torch, n) for n in names}


@pytest.mark.row("F101")
@pytest.mark.parametrize("name", sorted(WIDE_ONLY))
def test_linear_algebra_refuses_16_bits_in_words_and_takes_them_under_autocast(name):
    args, attrs = TABLE[name][0]
    low = [wrap(a) for a in halves(args, np.dtype(np.float16))]
    with pytest.raises(TypeError, match=r"linalg\.\w+ is not implemented for float16.*cast it"):
        bind(OPS[name], low, attrs)
    with ad.autocast("cpu"):
        out = bind(OPS[name], low, attrs)
    first = out[0] if isinstance(out, tuple) else out
    assert first.dtype in (ad.float32, ad.complex64)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad",
                                  "Adadelta", "RMSprop", "Rprop", "ASGD", "Adafactor"])
def test_optimizers_step_16_bit_parameters(name, kind):
    dtype = getattr(ad, kind)
    first = ad.tensor(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)).to(dtype)
    values = []
    for d in (dtype, ad.float32):
        p = ad.nn.Parameter(first.to(d, copy=True))
        opt = getattr(ad.optim, name)([p], lr=8.0 if name == "Adadelta" else 0.125)
        for _ in range(3):
            opt.zero_grad()
            (p * p).sum().backward()
            assert p.grad.dtype == d
            opt.step()
        assert p.dtype == d and bool(ad.isfinite(p).all())
        values.append(p.detach().float().numpy())
    assert not np.array_equal(values[0], first.float().numpy())
    np.testing.assert_allclose(values[0], values[1], atol=24 * EPS[kind])


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_print_save_load_copy_and_convert(kind, tmp_path):
    dtype = getattr(ad, kind)
    x = ad.tensor([[1.5, -2.25], [3.0, float("inf")]], dtype=dtype)
    assert f"dtype={dtype!r}" in repr(x) and "-2.2500" in repr(x)
    assert x.element_size() == 2 and x.tolist() == [[1.5, -2.25], [3.0, float("inf")]]
    buffer = io.BytesIO()
    ad.save({"x": x}, buffer)
    buffer.seek(0)
    again = ad.load(buffer)["x"]
    assert again.dtype == dtype and ad.equal(again, x)
    for factory in (ad.zeros, ad.ones, ad.empty, ad.rand, ad.randn):
        assert factory(2, 2, dtype=dtype).dtype == dtype
    assert ad.full((2,), 0.1, dtype=dtype).dtype == ad.arange(3, dtype=dtype).dtype == dtype
    assert x.to(ad.float64).to(ad.int32)[0].tolist() == [1, -2]
    assert x.sort().values.dtype == dtype and int(x.argmax()) == 3
    assert (x + 1).dtype == dtype and (x + ad.ones(2)).dtype == ad.float32
    assert (ad.ones(2, dtype=ad.bfloat16) * ad.ones(2, dtype=ad.float16)).dtype == ad.float32
    assert ad.isclose(x, x).all() and x.isnan().sum() == 0


def test_sums_accumulate_in_float32():
    assert ad.ones(4096, dtype=ad.bfloat16).sum().item() == 4096.0
    assert ad.ones(4096, dtype=ad.float16).cumsum(0)[-1].item() == 4096.0
    assert (ad.ones(1, 4096).half() @ ad.ones(4096, 1).half()).item() == 4096.0


def test_without_ml_dtypes_bfloat16_says_what_to_install():
    code = ("import sys; sys.modules['ml_dtypes'] = None\n"
            "import adjoint as ad\n"
            "ad.ones(2, dtype=ad.float16) @ ad.ones(2, dtype=ad.float16)\n"
            "try: ad.ones(2, dtype=ad.bfloat16)\n"
            "except NotImplementedError as e: print(e)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "bfloat16 needs ml_dtypes: pip install" in done.stdout, done.stderr


F = ad.nn.functional


def test_bfloat16_stays_in_the_sets_it_was_put_in():
    """F74: its hash is the same before and after its first use, which loads its numbers."""
    code = ("import adjoint as ad\n"
            "held = {ad.bfloat16, ad.float32}; assert ad.bfloat16 in held\n"
            "ad.ones(2, dtype=ad.bfloat16)\n"
            "assert ad.bfloat16 in held and {ad.bfloat16: 1}[ad.ones(2).bfloat16().dtype]\n")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_layers_of_16_bits_run_in_the_kernels_of_float32(kind, monkeypatch):
    """Convolutions, maxima of windows and norms: the bits of float32, rounded once, and NumPy's
    own forms, which convert element by element, are not asked."""
    from adjoint.kernels import conv_numpy, conv_pool, gemm_plan
    from adjoint.ops import api_common
    if not gemm_plan.usable():
        pytest.skip("no generated code here")

    def left(*_):
        raise RuntimeError("computed by NumPy")
    for name in ("forward", "grad_input"):
        monkeypatch.setattr(conv_numpy, name, left)
    monkeypatch.setattr(conv_pool, "_taps", left)
    monkeypatch.setattr(api_common.np, "einsum", left)
    low = getattr(ad, kind)
    ad.manual_seed(0)
    # (whole numbers: sums of their products are exact in whatever order)
    x, w, ones = (t.to(low) for t in (
        ad.randint(-3, 4, (4, 8, 16, 16)), ad.randint(-3, 4, (8, 8, 3, 3)), ad.ones(8)))
    for f in (lambda x, w, _: F.conv2d(x, w, None, 1, 1),
              lambda x, w, _: F.conv_transpose2d(x, w, None, 2, 1),
              lambda x, _, __: F.max_pool2d(x, 2),
              lambda x, _, v: F.batch_norm(x, None, None, v, None, True),
              lambda x, _, v: F.group_norm(x, 4, v)):
        found = []
        for dtype in (low, ad.float32):
            leaves = [t.to(dtype).detach().requires_grad_() for t in (x, w, ones)]
            y = f(*leaves)
            y.backward(ad.ones(*y.shape, dtype=dtype))
            found.append([y, *[t.grad for t in leaves if t.grad is not None]])
        assert len(found[0]) == len(found[1])
        assert all(a.dtype is low and ad.equal(a, b.to(low))
                   for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("shape, weight, groups", [
    ((4, 8, 9, 9), (6, 8, 1, 1), 1), ((3, 8, 70), (6, 4, 1), 2), ((2, 8, 3, 3), (6, 8, 1, 1), 1),
    ((2, 8, 4, 5, 5), (6, 4, 1, 1, 1), 2)])
def test_convolutions_of_one_tap_multiply_16_bits(kind, shape, weight, groups, monkeypatch):
    """They are products of matrices, which widen operands themselves; sums stay in float32."""
    from adjoint.kernels import conv_pairs, convert, gemm_plan
    if not gemm_plan.usable():
        pytest.skip("no generated code here")
    monkeypatch.setattr(conv_pairs, "supported", lambda *args: False)
    low, asked = getattr(ad, kind), []
    real = convert.as_float32
    monkeypatch.setattr(convert, "as_float32", lambda x: asked.append(x.shape) or real(x))
    ad.manual_seed(0)
    x, w = ad.randn(*shape).to(low), ad.randn(*weight).to(low)
    conv = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(shape)]
    found = []
    for dtype in (low, ad.float64):
        leaves = [t.to(dtype).detach().requires_grad_() for t in (x, w)]
        y = conv(*leaves, groups=groups)
        y.backward(ad.ones(*y.shape, dtype=dtype))
        found.append([y.detach(), *[t.grad for t in leaves]])
    for got, want in zip(*found, strict=True):
        assert got.dtype is low
        assert float((got.double() - want).abs().max() / want.abs().max()) < 2 * EPS[kind]
    small = np.prod(shape[2:]) < 64            # the gradient of the weight, by way of float32
    assert len(asked) == 2 * small


ORDERED = {
    "sort": lambda x: ad.sort(x), "descending": lambda x: ad.sort(x, descending=True),
    "argsort": lambda x: ad.argsort(x, stable=True), "topk": lambda x: ad.topk(x, 3),
    "kthvalue": lambda x: ad.kthvalue(x, 2), "median": lambda x: ad.median(x, 0),
    "nanmedian": lambda x: ad.nanmedian(x, 0), "mode": lambda x: ad.mode(x, 0),
    "unique": lambda x: ad.unique(x, return_inverse=True, return_counts=True),
    "searchsorted": lambda x: ad.searchsorted(ad.sort(x).values, x)}


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ORDERED)
def test_nan_of_16_bits_is_ordered_as_in_float32(name, kind):
    """F98: nan is the largest; none of the others loses its place to it."""
    x = ad.tensor([1.0, np.nan, 3.0, np.nan, 2.5, -0.5, 2.5])
    call = ORDERED[name]
    found, want = call(x.to(getattr(ad, kind))), call(x)
    for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, want)), strict=True):
        np.testing.assert_array_equal(a.float().numpy(), b.float().numpy())
        assert a.dtype is (getattr(ad, kind) if b.dtype is ad.float32 else b.dtype)
