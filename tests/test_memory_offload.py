"""Residuals on disk, as copies, compressed: the same gradients, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.kernels import alloc
from adjoint.memory.compression import decode, encode
from adjoint.memory.spill import SpillFile

counting = pytest.mark.skipif(not alloc.available(), reason="needs the counting allocator")
SHAPE = (256, 128)  # 128 KiB in float32
PLAIN = {**os.environ, "ADJOINT_JIT": "0"}  # starts sooner
disk = ad.memory.saved_on_disk


def leaf(seed: int, *shape: int) -> Any:
    rng = np.random.default_rng(seed)
    return ad.tensor(rng.standard_normal(shape or SHAPE).astype(np.float32), requires_grad=True)


def chain(x: Any, w: Any, depth: int = 6) -> Any:
    for _ in range(depth):
        x = (x @ w).tanh() + x.sin() * 0.5
    return x


def grads(loss: Callable[..., Any], *leaves: Any) -> list[np.ndarray]:
    return [g.numpy().copy() for g in ad.autograd.grad(loss(*leaves), leaves)]


def same(hooks: Callable[[], Any], loss: Callable[..., Any], *leaves: Any) -> None:
    with ad.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        want = grads(loss, *leaves)
    with hooks():
        y = loss(*leaves)
    for a, b in zip(ad.autograd.grad(y, leaves), want, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)


PLACES = [disk, lambda: disk(ahead=0), lambda: disk(in_flight=1), lambda: disk(min_bytes="1MB"),
          ad.memory.saved_on_cpu, lambda: ad.memory.compressed("zlib")]


@pytest.mark.row("F73")
@pytest.mark.parametrize("place", PLACES, ids=["disk", "no prefetch", "one at a time", "too small",
                                               "cpu", "zlib"])
class TestSameBits:
    def test_chain(self, place: Any) -> None:
        same(place, lambda x, w: chain(x, w).sum(), leaf(0), leaf(1, 128, 128))

    def test_views_and_strides(self, place: Any) -> None:
        def loss(x: Any, w: Any) -> Any:
            y = (x @ w).view(256, 4, 32).permute(1, 0, 2)
            z = y[1:].exp() * y[:3].sin()
            return (z.transpose(0, 1) * x.t()[:3, ::2][:, :128, None].permute(1, 0, 2)[
                :, :, :1].repeat(2, 1, 32)).sum()

        same(place, loss, leaf(0), leaf(1, 128, 128))

    def test_second_derivatives(self, place: Any) -> None:
        def loss(x: Any, w: Any) -> Any:
            (g,) = ad.autograd.grad(chain(x, w, 2).sum(), x, create_graph=True)
            return (g * g).sum()

        same(place, loss, leaf(0), leaf(1, 128, 128))

    def test_several_dtypes(self, place: Any) -> None:
        def loss(x: Any) -> Any:
            y = x.to(ad.float64).exp()
            z = ad.where(x > 0, x.cos(), x.sin())
            i = x.argmax(1, keepdim=True)
            return y.sum() + z.sum() + (x.gather(1, i) ** 3).sum() + x.to(ad.complex64).exp(
            ).abs().sum()

        same(place, loss, leaf(0))


class TestDisk:
    @counting
    def test_memory_is_free_in_between(self) -> None:
        alloc.install()
        x, w = leaf(0), leaf(1, 128, 128)
        base = alloc.live()
        with disk():
            y = chain(x, w).sum()
        assert alloc.live() - base < x.array.nbytes
        y.backward()

    def test_parameters_and_shared_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Weights stay; a block that several nodes show is written once."""
        written: list[int] = []
        write = SpillFile.write
        monkeypatch.setattr(SpillFile, "write",
                            lambda self, a: (written.append(a.nbytes), write(self, a))[1])
        x, w = leaf(0), leaf(1, 512, 128)
        with disk():
            y = x @ w.t()                                # leaves: nothing to write
            z = y.view(512, 256).exp() * y.t().sin().reshape(512, 256) + y.view(512, 256).cos()
        size = y.array.nbytes
        assert written.count(size) == len(written) <= 4   # y once, exp, and sin's two results
        z.sum().backward()

    def test_write_after_saving_is_found(self) -> None:
        x = leaf(0)
        with disk():
            y = x * 1.0
            z = y.sin()
        y.add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()

    def test_retained_graph(self) -> None:
        x = leaf(0)
        with disk():
            y = x.sin().exp().tanh().sum()
        (a,) = ad.autograd.grad(y, x, retain_graph=True)
        (b,) = ad.autograd.grad(y, x)
        np.testing.assert_array_equal(a.numpy(), b.numpy())

    @pytest.mark.parametrize("how", ["raise", "memory"])
    def test_full_disk(self, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The third block does not fit. Nothing is lost: backward works, or the step is repeated
        without the disk."""
        room, write = [2], SpillFile._pwrite

        def limited(self: Any, data: Any, offset: int) -> int:
            if not room[0]:
                raise OSError(28, "No space left on device")
            room[0] -= 1
            return write(self, data, offset)

        monkeypatch.setattr(SpillFile, "_pwrite", limited)
        x, w = leaf(0), leaf(1, 128, 128)
        want = grads(lambda x, w: chain(x, w).sum(), x, w)
        made: list[Any] = []
        if how == "raise":
            with pytest.raises(OSError, match="no space is left.*still in memory"), disk():
                made.append(chain(x, w).sum())
            with disk(on_full="memory"), pytest.warns(RuntimeWarning, match="no space"):
                made.append(chain(x, w).sum())
        else:
            with pytest.warns(RuntimeWarning, match="in memory"), disk(on_full="memory"):
                made.append(chain(x, w).sum())
        for a, b in zip(ad.autograd.grad(made[-1], (x, w)), want, strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-4, atol=1e-4)

    @pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
    def test_real_limit_of_the_system(self) -> None:
        """A process that may not write files beyond a few blocks."""
        code = """
            import resource, signal
            import numpy as np
            import adjoint as ad
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
            x = ad.tensor(np.ones((256, 128), np.float32), requires_grad=True)
            try:
                with ad.memory.saved_on_disk():
                    y = x.sin().exp().tanh().sigmoid().sum()
                    y2 = (x * 2).sin().exp().sum()
            except ad.memory.SpillError as error:
                print("told", error.strerror)
            y.backward()
            print("recovered", x.grad.shape)
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], text=True,
                              capture_output=True, timeout=120, check=True, env=PLAIN)
        assert "told" in done.stdout and "recovered" in done.stdout

    @pytest.mark.parametrize("end", [pytest.param("exception", marks=pytest.mark.slow), "kill"])
    def test_nothing_is_left_behind(self, end: str, tmp_path: Any) -> None:
        code = f"""
            import os, signal
            import numpy as np
            import adjoint as ad
            x = ad.tensor(np.ones((256, 128), np.float32), requires_grad=True)
            hooks = ad.memory.saved_on_disk(dir={str(tmp_path)!r})
            with hooks:
                y = x.sin().exp().tanh()
            hooks.wait()
            if {end == "kill"}:
                os.kill(os.getpid(), signal.SIGKILL)
            raise SystemExit(3)
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=120, env=PLAIN,
                              capture_output=True, check=False)
        assert done.returncode == (-signal.SIGKILL if end == "kill" else 3)
        assert not list(tmp_path.iterdir())

    def test_wrong_arguments(self, tmp_path: Any) -> None:
        with pytest.raises(OSError, match="cannot make a temporary file"):
            disk(dir=str(tmp_path / "missing"))
        with pytest.raises(ValueError, match="on_full"):
            disk(on_full="panic")

    def test_space_is_used_again(self) -> None:
        x = leaf(0)
        hooks = disk()
        for _ in range(4):
            with hooks:
                y = x.sin().exp().tanh().sum()
            y.backward()
            del y
        assert hooks.file._end <= 6 * x.array.nbytes


class TestCopies:
    def test_originals_may_be_overwritten(self) -> None:
        x = leaf(0)
        want = grads(lambda x: (x * 1.0).sin().sum(), x)
        with ad.memory.saved_on_cpu():
            y = x * 1.0
            z = y.sin().sum()
        y.mul_(0.0)
        np.testing.assert_array_equal(ad.autograd.grad(z, x)[0].numpy(), want[0])


@pytest.mark.parametrize("place", PLACES, ids=["disk", "no prefetch", "one at a time", "too small",
                                               "cpu", "zlib"])
def test_a_write_between_two_residuals(place: Any) -> None:
    """One block of memory with two contents: each residual is what its op read."""
    x = leaf(0)
    with place():
        h = x * 1.0
        before = h.sin()
        h.mul_(2)
        after = h.sin()
    want = 2 * np.cos(2 * x.detach().numpy())
    np.testing.assert_allclose(ad.autograd.grad(after.sum(), x, retain_graph=True)[0].numpy(),
                               want, rtol=1e-5, atol=1e-6)
    if place is ad.memory.saved_on_cpu:       # a copy: writes to the original do not matter
        np.testing.assert_allclose(ad.autograd.grad(before.sum(), x)[0].numpy(),
                                   np.cos(x.detach().numpy()), rtol=1e-5, atol=1e-6)
    else:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            before.sum().backward()


class TestCompression:
    @counting
    def test_what_several_residuals_show_is_stored_once(self) -> None:
        alloc.install()
        x, w = leaf(0), leaf(1, 128, 128)
        x.tanh() @ w                                     # (kernels are made at their first call)
        live = alloc.live()
        with ad.memory.compressed("int8", measure=False) as held:
            y = x.tanh() @ w
        bytes_of_one = 256 * 128 + 256 * 128 // 64 * 4
        assert alloc.live() - live == y.nbytes + bytes_of_one
        assert sum(loss.residuals for loss in held.report().values()) == 2

    @pytest.mark.parametrize(("dtype", "smaller", "near"), [
        ("bf16", 1.99, 2**-8), ("fp16", 1.99, 2**-10), ("int8", 3.7, 0.02), ("int4", 6.9, 0.3)])
    def test_size_and_error(self, dtype: str, smaller: float, near: float) -> None:
        x, w = leaf(0), leaf(1, 128, 128)
        want = grads(lambda x, w: chain(x * 0.1, w * 0.1).sum(), x, w)
        with ad.memory.compressed(dtype) as held:
            y = chain(x * 0.1, w * 0.1).sum()
        got = ad.autograd.grad(y, (x, w))
        for a, b in zip(got, want, strict=True):
            assert np.linalg.norm(a.numpy() - b) < near * np.linalg.norm(b)
        report = held.report()
        sines = report["SinBackward0"]
        assert sines.before / sines.after > smaller and sines.residuals == 6
        assert 0 < sines.relative < near and sines.worst > 0

    @pytest.mark.parametrize("dtype", ["bf16", "fp16", "int8", "int4", "zlib"])
    @pytest.mark.parametrize("shape", [(), (0,), (1,), (63,), (65,), (3, 5, 7)], ids=str)
    def test_round_trip(self, dtype: str, shape: tuple[int, ...]) -> None:
        for kind in (np.float32, np.float64, np.int64, bool):
            array = (np.random.default_rng(0).standard_normal(shape) * 10).astype(kind)
            array = np.asarray(array)
            back = decode(encode(array, dtype), array.shape, array.dtype)
            assert back.shape == array.shape and back.dtype == array.dtype
            if kind in (np.int64, bool) or dtype == "zlib":
                np.testing.assert_array_equal(back, array)
            else:
                loss = {"bf16": 2**-8, "fp16": 2**-10, "int8": 1 / 127, "int4": 1 / 7}[dtype]
                np.testing.assert_allclose(back, array, atol=loss * np.abs(array).max(initial=0))

    def test_special_values(self) -> None:
        array = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3.4e38], np.float32)
        back = decode(encode(array, "bf16"), array.shape, array.dtype)
        assert np.isnan(back[0]) and (back[1:4] == [np.inf, -np.inf, 0.0]).all()
        assert np.signbit(back[4])

    def test_bits_of_bfloat16(self) -> None:
        ml = pytest.importorskip("ml_dtypes")
        array = np.random.default_rng(0).standard_normal(10000).astype(np.float32)
        np.testing.assert_array_equal(encode(array, "bf16")[1],
                                      array.astype(ml.bfloat16).view(np.uint16))

    def test_wrong_dtype(self) -> None:
        with pytest.raises(ValueError, match="'bf16', 'fp16'"):
            ad.memory.compressed("int2")
