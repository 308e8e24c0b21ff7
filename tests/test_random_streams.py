"""The same seed gives PyTorch's numbers: by numbers that it printed, and side by side where it is
installed."""
from __future__ import annotations

import copy
import importlib
import math
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from helpers_random import CLOSE, EXACT

import adjoint as ad
from adjoint.base.errors import ArgumentError
from adjoint.kernels import alloc, mersenne, samplers
from adjoint.kernels.stream import F32, F64, Stream

F = ad.nn.functional


def shown(t: Any) -> Any:
    return t.detach().numpy().tolist()


# ------------------------------------------------------------------ numbers that PyTorch prints
def test_known_numbers() -> None:
    """One sequence after manual_seed(0), as PyTorch 2.13 printed it: every function finds the
    generator where the one before left it. float32 values are written as float64."""
    ad.manual_seed(0)
    assert shown(ad.rand(4)) == [0.49625658988952637, 0.7682217955589294, 0.08847743272781372,
                                 0.13203048706054688]
    assert shown(ad.rand(2, dtype=ad.float64)) == [0.45938294312745087, 0.9207476841219603]
    assert shown(ad.randn(3)) == [-1.0845223665237427, -1.3985954523086548, 0.40334683656692505]
    assert shown(ad.randn(17)) == [
        -1.3526537418365479, 0.03159274160861969, -0.4926769733428955, 0.2484147548675537,
        0.4396958351135254, 0.11241118609905243, 0.6407923698425293, 0.441156268119812,
        -0.21586325764656067, 0.7924439907073975, -0.28966769576072693, 0.05250748619437218,
        0.5228604674339294, 2.3022053241729736, -1.4688938856124878, -1.586688756942749,
        1.203223705291748]
    assert shown(ad.randint(0, 100, (6,))) == [71, 40, 69, 73, 41, 11]
    assert shown(ad.randint(0, 2**40, (2,))) == [139680274975, 869364353268]
    assert shown(ad.randperm(8)) == [7, 4, 6, 2, 3, 1, 5, 0]
    assert shown(ad.empty(12).bernoulli_(0.4)) == [1, 0, 0, 0, 0, 0, 1, 1, 1, 0, 1, 0]
    assert shown(ad.bernoulli(ad.full((8,), 0.4))) == [0, 0, 0, 0, 1, 1, 0, 0]
    assert shown(ad.empty(2).exponential_()) == [2.1174683570861816, 1.439683198928833]
    assert shown(ad.multinomial(ad.arange(1.0, 6.0), 3)) == [4, 1, 0]
    assert shown(ad.multinomial(ad.arange(1.0, 6.0), 6, True)) == [3, 4, 0, 3, 3, 0]
    assert shown(ad.poisson(ad.tensor([1.0, 20.0, 3.0]))) == [0, 14, 4]
    assert shown(F.dropout(ad.ones(10), 0.5)) == [2, 0, 2, 2, 2, 2, 2, 2, 2, 2]
    assert shown(ad.empty(2).uniform_(-0.3, 0.2)) == [-0.08911988139152527, -0.046766966581344604]
    layer = ad.nn.Linear(3, 2)
    assert shown(layer.weight) == [
        [-0.26227572560310364, 0.2174873799085617, -0.5196489691734314],
        [-0.03896377608180046, 0.5077330470085144, -0.23549655079841614]]
    assert shown(layer.bias) == [0.5213490724563599, 0.20908957719802856]
    assert ad.rand(1).item() == 0.04876953363418579


def test_known_order_of_a_loader() -> None:
    """Two epochs of a shuffling DataLoader, as PyTorch 2.13 gave them."""
    ad.manual_seed(0)
    loader = ad.utils.data.DataLoader(range(10), 4, shuffle=True)
    assert [shown(b) for b in loader] == [[6, 7, 1, 4], [2, 0, 9, 8], [3, 5]]
    assert [shown(b) for b in loader] == [[2, 4, 7, 0], [8, 9, 5, 3], [6, 1]]


def test_the_state_has_the_layout_of_pytorch() -> None:
    """5056 bytes: the seed, how many words are left, and the words; their sum as PyTorch's."""
    g = ad.Generator().manual_seed(0)
    ad.rand(700, generator=g)
    state = g.get_state().numpy()
    assert state.shape == (5056,) and int(state.astype(int).sum()) == 317076
    assert state[:24].tolist() == [0] * 8 + [37, 2, 0, 0, 1, 0, 0, 0, 76] + [0] * 7
    with pytest.raises(RuntimeError, match="RNG state is wrong: expected 5056 bytes"):
        g.set_state(ad.zeros(3, dtype=ad.uint8))
    with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
        g.set_state(ad.zeros(5056, dtype=ad.uint8))
    with pytest.raises(RuntimeError, match="RNG state must be a torch.ByteTensor"):
        g.set_state(ad.zeros(5056))


# ------------------------------------------------------------------ side by side
def both(program: Any) -> tuple[Any, Any]:
    """What both packages give from one seed; afterwards both generators go on alike."""
    torch = pytest.importorskip("torch")
    importlib.import_module("torch.utils.data.distributed")
    found = []
    for t in (torch, ad):
        t.manual_seed(11)
        t.rand(613)
        made = program(t).detach()
        kept = made.float() if made.dtype == t.bfloat16 else made
        found.append((kept.numpy(), t.rand(700).numpy()))
    np.testing.assert_array_equal(found[0][1], found[1][1])
    return found[0][0], found[1][0]


@pytest.mark.parametrize("name", EXACT)
def test_equal_to_the_last_bit(name: str) -> None:
    want, got = both(EXACT[name])
    np.testing.assert_array_equal(got, want)
    assert got.shape == want.shape


@pytest.mark.parametrize("name", CLOSE)
def test_equal_to_rounding(name: str) -> None:
    want, got = both(CLOSE[name])
    few = 8 * np.finfo(want.dtype).eps
    np.testing.assert_allclose(got, want, rtol=few, atol=few)


def test_states_travel() -> None:
    """A state saved in PyTorch continues here, half a pair of normal numbers too, and back."""
    torch = pytest.importorskip("torch")
    for n in (0, 1, 3, 623, 624, 625):
        torch.manual_seed(n)
        torch.rand(n)
        torch.randn(1)
        state = torch.get_rng_state()
        ad.set_rng_state(ad.tensor(state.numpy()))
        np.testing.assert_array_equal(ad.get_rng_state().numpy(), state.numpy())
        np.testing.assert_array_equal(ad.randn(5).numpy(), torch.randn(5).numpy())
        torch.set_rng_state(torch.from_numpy(ad.get_rng_state().numpy()))
        assert ad.initial_seed() == torch.initial_seed() == n
        np.testing.assert_array_equal(ad.rand(1000).numpy(), torch.rand(1000).numpy())


# ------------------------------------------------------------------ the stream itself
@pytest.mark.skipif(not mersenne.available(), reason="needs llvmlite")
@pytest.mark.parametrize("used", [0, 1, 7, 300, 623])
def test_machine_code_is_numpy(used: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number, and where the state stands afterwards."""
    def run() -> list[Any]:
        s = Stream(used)
        s.raw(used)
        out: list[Any] = []
        for n in (1, 2, 21, 311, 313, 623, 1251, 5000):
            out += [s.words(n), s.uniform((n,), F32, -0.3, 0.9), s.uniform((n,), F64, -0.3, 0.9),
                    s.below(n, 0.3), s.bits(n, 0.7)[:n // 8], s.normal((n,), F32, 0.2, 1.3),
                    s.permutation(n), s.words_at()[1]]
        return out
    fast = run()
    monkeypatch.setattr(mersenne, "available", lambda: False)
    monkeypatch.setattr("adjoint.kernels.box_muller._compiled", lambda: None)
    for name in ("few_entry", "_compiled", "_flagging", "_shift", "_shuffle"):
        monkeypatch.setattr(mersenne, name, lambda *_: None)
    for a, b in zip(fast, run(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_flag_is_decided_by_all_its_bits() -> None:
    """Limits that agree with a drawn number in the upper bits, or in all of them."""
    for used in (0, 1):
        s = Stream(3)
        s.raw(used)
        u = s.uniform((5000,), F64)
        for k in (0, 777, 4999):
            for away in (-1, 0, 1):
                p = (int(u[k] * 2**53) + away) / 2**53
                again = Stream(3)
                again.raw(used)
                np.testing.assert_array_equal(again.below(5000, p), u < p)


def test_a_tape_leaves_the_stream_behind_what_it_took() -> None:
    a, b = Stream(1), Stream(1)
    with a.tape() as tape:
        taken = [tape.uniform() for _ in range(700)]
    np.testing.assert_array_equal(taken, b.uniform((700,), F64))
    assert a.words_at() == b.words_at()


def test_moments_of_what_is_drawn_one_by_one() -> None:
    """Means within five standard errors."""
    s, n = Stream(7), 4000
    for draw, mean, variance in (
            (samplers.poisson(s, np.full(n, 4.0)), 4.0, 4.0),
            (samplers.poisson(s, np.full(n, 40.0)), 40.0, 40.0),
            (samplers.binomial(s, np.full(n, 9.0), np.full(n, 0.3)), 2.7, 1.89),
            (samplers.binomial(s, np.full(n, 90.0), np.full(n, 0.7)), 63.0, 18.9),
            (np.exp(samplers.log_gamma(s, np.full(n, 0.4))), 0.4, 0.4),
            (np.exp(samplers.log_gamma(s, np.full(n, 3.5))), 3.5, 3.5)):
        assert abs(draw.mean() - mean) < 5 * (variance / n) ** 0.5
        assert abs(draw.var() - variance) < 0.15 * variance


def test_generators_copy_and_pickle() -> None:
    g = ad.Generator().manual_seed(5)
    ad.randn(3, generator=g)                                     # half a pair waits
    others = [copy.deepcopy(g), pickle.loads(pickle.dumps(g)), g.clone_state()]
    want = ad.randn(7, generator=g)
    for other in others:
        assert other.initial_seed() == 5
        np.testing.assert_array_equal(ad.randn(7, generator=other).numpy(), want.numpy())


def test_threads_share_a_generator() -> None:
    """No number is lost or given twice, whatever the order."""
    g, parts = ad.Generator().manual_seed(9), list[float]()

    def work() -> None:
        for _ in range(20):
            for n in (100, 2900):
                parts.extend(ad.rand(n, generator=g, dtype=ad.float64).tolist())
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    want = ad.rand(240000, generator=ad.Generator().manual_seed(9), dtype=ad.float64).numpy()
    np.testing.assert_array_equal(np.sort(parts), np.sort(want))


# ------------------------------------------------------------------ a few numbers at once
_DRAWS = [lambda s: s.uniform((8,), F32), lambda s: s.uniform((3, 2), F64, -1.0, 2.5),
          lambda s: s.normal((7,), F32, 0.3, 1.7), lambda s: s.normal((), F64),
          lambda s: s.normal((20,), F64, 1.0, 2.0, single=True), lambda s: s.below(9, 0.4),
          lambda s: s.integers((5,), -3, 100), lambda s: s.integers((2,), 2**62, 2**62 + 7),
          lambda s: s.normal((4,), F64), lambda s: s.normal((4, 8), F32),
          lambda s: s.normal((255,), F32, 0.3, 1.7), lambda s: s.normal((0,), F64),
          lambda s: s.uniform((0,), F32)]


def test_a_few_numbers_are_those_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call of machine code for few numbers makes what NumPy and the C library make of the same
    words, leaves the same state, and hands over the half of a pair."""
    fast, slow = Stream(5), Stream(5)
    monkeypatch.setattr(slow, "few", lambda *args, **named: False)
    for draw in _DRAWS * 30:
        np.testing.assert_array_equal(draw(fast), draw(slow))
    assert fast.hold() == slow.hold()


@pytest.mark.parametrize("bad", [math.nan, -0.1, 1.1, math.inf])
def test_what_is_no_chance_is_refused(bad: float) -> None:
    """A nan as well, wherever it stands, and nothing is drawn."""
    for dtype in (ad.float32, ad.float64, ad.bfloat16):
        for chances in ([bad], [0.5, bad, 0.5]):
            ad.manual_seed(0)
            with pytest.raises(ArgumentError, match="Expected p_in >= 0 && p_in <= 1"):
                ad.bernoulli(ad.tensor(chances, dtype=dtype))
            assert shown(ad.rand(1)) == [0.49625658988952637]
    if bad != 1.1:
        with pytest.raises(ArgumentError, match="`inf`, `nan` or element < 0"):
            ad.multinomial(ad.tensor([0.5, bad, 0.5]), 1)


def test_no_numbers_take_no_words() -> None:
    for empty in (lambda: ad.rand(0), lambda: ad.randint(0, 2**40, (0,)), lambda: ad.randn(3, 0),
                  lambda: ad.randint(0, 5, (0,)), lambda: ad.zeros(0).bernoulli_(0.5)):
        ad.manual_seed(0)
        ad.rand(2)
        empty()
        assert shown(ad.rand(2)) == [0.08847743272781372, 0.13203048706054688]


@pytest.mark.skipif(not mersenne.available(), reason="the one call is of machine code")
def test_a_few_numbers_are_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else touches the words."""
    s = Stream(5)
    s.words(1)

    def fail(*args: Any, **named: Any) -> Any:
        raise AssertionError("a draw of a few numbers went another way")
    for name in ("raw", "_bulk", "pairs"):
        monkeypatch.setattr(s, name, fail)
    for draw in _DRAWS[:-2]:
        draw(s)
    x = ad.zeros(8)
    g = ad.Generator()
    ad.rand(1, generator=g)
    monkeypatch.setattr(g.stream, "_bulk", fail)
    version = x._version
    assert 0.0 < float(x.uniform_(generator=g).min()) < 1.0
    assert x._version == version + 1


# ------------------------------------------------------------------ where a block ends
FEW = {"float": lambda s: s.uniform((37,), F32), "double": lambda s: s.uniform((37,), F64),
       "below": lambda s: s.below(37, 0.3), "range": lambda s: s.integers((37,), -3, 1000),
       "normal": lambda s: s.normal((37,), F32, 1.0, 2.0, single=True),
       "normals": lambda s: s.normal((5,), F64),
       "sixteens": lambda s: s.normal((37,), F32, 1.0, 2.0)}


@pytest.mark.parametrize("kind", sorted(FEW))
def test_few_numbers_across_two_blocks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers, and the generator in the same place, as NumPy makes them of single words;
    the memory asked for on the way is the result's, wherever the block ends."""
    found, tops, counted = [], set(), alloc.install()
    FEW[kind](Stream(7))                         # what is made once in a process
    for single in (False, True):
        if single:
            monkeypatch.setattr("adjoint.kernels.stream._machine", lambda: False)
        rows = []
        for used in (1, 540, *range(545, 625)):
            s = Stream(7)
            s.raw(used)
            if counted:
                alloc.reset_peak()
                before = alloc.live_and_peak()[0]
            first = FEW[kind](s)
            if counted and not single:
                tops.add(alloc.live_and_peak()[1] - before)
            rows.append([*first.tolist(), *FEW[kind](s).tolist(), *s.words(3).tolist()])
            del first
        found.append(rows)
    assert found[0] == found[1]
    assert not counted or len(tops) == 1 and min(tops) > 0


def test_many_doubles_are_those_of_single_words() -> None:
    """In the memory of the result alone, wherever in a pair and a block they begin and end."""
    counted = alloc.install()
    for used in (0, 1, 2, 3, 621, 622, 623, 624):
        for n in (256, 311, 312, 313, 623, 625, 937, 5000):
            fast, slow, out = Stream(3), Stream(3), np.empty((2, n))
            fast.raw(used), slow.raw(used)
            if counted:
                alloc.reset_peak()
            before = alloc.live_and_peak()[0]
            assert fast.uniform((2, n), F64, 0.0, 1.0, out) is out
            assert not counted or alloc.live_and_peak()[1] == before
            words = slow.raw(4 * n).astype(np.uint64)
            pairs = (words[::2] << np.uint64(32) | words[1::2]) & np.uint64(2**53 - 1)
            np.testing.assert_array_equal(out.ravel(), pairs * 2.0**-53)
            assert fast.hold() == slow.hold()
