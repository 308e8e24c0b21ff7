"""Selective checkpointing: what policies keep runs once, the rest twice; the same bits always."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers_engine import exact, leaf, randoms, saved_by, values

import adjoint as ad
from adjoint.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_name,
    create_selective_checkpoint_contexts,
)

policies = ad.func.checkpoint_policies
F = ad.nn.functional


def impl_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """A list that grows with each run of an op's implementation."""
    from adjoint.core.op import OPS

    calls: list[int] = []
    running: list[int] = []
    record, original = OPS[name], OPS[name].impl

    def counted(original: Any) -> Any:
        def impl(*args: Any, **attrs: Any) -> Any:
            if not running:                              # (one may call the other)
                calls.append(1)
            running.append(1)
            try:
                return original(*args, **attrs)
            finally:
                running.pop()
        return impl

    monkeypatch.setattr(record, "impl", counted(original))
    if (own := record.own) is not None:              # its function has the kernels at hand
        getattr(ad, name)(ad.ones(2))
        for raw in ("raw32", "raw64"):
            monkeypatch.setattr(own, raw, counted(getattr(own, raw)))
        monkeypatch.setattr(own, "machine", lambda *args: None)
    monkeypatch.setattr(record, "facts", (*record.facts[:7], None, 0))    # no short form of it
    for plan in record.plans.values():               # rules written out call the original
        monkeypatch.setattr(plan, "rules", None)
        monkeypatch.setattr(plan, "uses", 0)
    return calls


def block(x: Any, w: Any) -> Any:
    return ((x @ w).tanh() @ w).sigmoid().exp()


def gradients(run: Callable[..., Any]) -> list[np.ndarray]:
    x, w = leaf(randoms(4, 4)), leaf(randoms(4, 4, seed=1))
    return [values(g) for g in ad.autograd.grad(run(x, w).sum(), (x, w))]


def selective(policy: Any, **options: Any) -> Callable[..., Any]:
    contexts = functools.partial(create_selective_checkpoint_contexts, policy, **options)
    return lambda x, w: checkpoint(block, x, w, use_reentrant=False, context_fn=contexts)


@pytest.mark.row("F72")
@pytest.mark.parametrize("policy", [
    ["matmul"], [ad.matmul, "tanh"], [],
    lambda ctx, op, *args, **attrs: op.name == "tanh",
    lambda ctx, op, *args, **attrs: CheckpointPolicy.PREFER_SAVE,
    lambda ctx, op, *args, **attrs: CheckpointPolicy.MUST_RECOMPUTE,
    lambda ctx, op, *args, **attrs: CheckpointPolicy.MUST_CPU_OFFLOAD,
    policies.offload_dot_with_no_batch_dims("device", "pinned_host"),
    policies.dots_saveable, policies.nothing_saveable, policies.everything_saveable,
    policies.dots_with_no_batch_dims_saveable],
    ids=["names", "function", "nothing_named", "tanh", "prefer_save", "must_recompute",
         "must_offload", "offload_dot", "dots", "nothing", "everything", "dots_no_batch"])
def test_same_bits(policy: Any) -> None:
    for a, b in zip(gradients(selective(policy)), gradients(block), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.row("F72")
def test_saved_ops_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    products, tanhs = impl_calls(monkeypatch, "mm"), impl_calls(monkeypatch, "tanh")
    x, w = leaf(randoms(4, 4)), leaf(randoms(4, 4, seed=1))
    y = selective(["matmul"])(x, w)
    assert (len(products), len(tanhs)) == (2, 1)
    ad.autograd.grad(y.sum(), x)
    forward_again = len(products) - 2 - 4            # backward runs two for each product
    assert (forward_again, len(tanhs)) == (0, 2)


def test_is_recompute_tells_the_phase() -> None:
    phases = []

    def policy(ctx: Any, op: Any, *args: Any, **attrs: Any) -> bool:
        phases.append((ctx.is_recompute, op.name))
        return False

    gradients(selective(policy))
    assert (False, "mm") in phases and not any(again for again, _ in phases)


def test_saved_results_are_what_is_kept() -> None:
    x, w = leaf(randoms(40, 40)), leaf(randoms(40, 40, seed=1))
    assert sum(a.nbytes for a in saved_by(lambda: block(x, w))[1]) > 40 * 40 * 8 * 3
    from adjoint.kernels import alloc

    alloc.install()
    sizes = {}
    for name, policy in (("none", []), ("products", ["matmul"])):
        before = alloc.stats().live
        y = selective(policy)(x, w)
        sizes[name] = alloc.stats().live - before - y.array.nbytes
        del y
    if alloc.installed():
        assert sizes["none"] < 1000 and abs(sizes["products"] - 2 * 40 * 40 * 8) < 1000


def test_hidden_results_come_back_too() -> None:
    """Attention and layer norm keep values that no tensor shows."""
    def region(q: Any) -> Any:
        y = F.layer_norm(q, (8,))
        return F.scaled_dot_product_attention(y, y, y, is_causal=True).exp()

    q = leaf(randoms(2, 4, 8), ad.float32)
    want = values(ad.autograd.grad(region(q).sum(), q)[0])
    keep = functools.partial(create_selective_checkpoint_contexts,
                             ["scaled_dot_product_attention", "layer_norm"])
    y = checkpoint(region, q, use_reentrant=False, context_fn=keep)
    exact(ad.autograd.grad(y.sum(), q)[0], want)


def test_retain_graph_and_nesting() -> None:
    x, w = leaf(randoms(4, 4)), leaf(randoms(4, 4, seed=1))

    def outer(a: Any, b: Any) -> Any:
        return selective(["tanh"])(selective(["matmul"])(a, b), b)

    keep = functools.partial(create_selective_checkpoint_contexts, ["sigmoid"])
    y = checkpoint(outer, x, w, use_reentrant=False, context_fn=keep).sum()
    want = values(ad.autograd.grad(block(block(x, w), w).sum(), x)[0])
    exact(ad.autograd.grad(y, x, retain_graph=True)[0], want)
    exact(ad.autograd.grad(y, x)[0], want)


def test_mutated_results_are_found() -> None:
    def region(x: Any, w: Any) -> Any:
        y = x @ w
        y.mul_(2.0)
        return y.exp()

    x, w = leaf(randoms(4, 4)), leaf(randoms(4, 4, seed=1))
    want = values(ad.autograd.grad(region(x, w).sum(), x)[0])
    for policy, allowed in ((["matmul"], False), (["tanh"], False)):
        keep = functools.partial(create_selective_checkpoint_contexts, policy,
                                 allow_cache_entry_mutation=allowed)
        y = checkpoint(region, x, w, use_reentrant=False, context_fn=keep).sum()
        if policy == ["matmul"]:
            with pytest.raises(RuntimeError, match="mutated.*\n?.*mul_ at .*test_checkpoint_pol"):
                ad.autograd.grad(y, x)
        else:
            exact(ad.autograd.grad(y, x)[0], want)


def test_wrong_policies_say_so() -> None:
    with pytest.raises(ValueError, match="is no op"):
        create_selective_checkpoint_contexts(["matmull"])
    with pytest.raises(TypeError, match="function or a list"):
        create_selective_checkpoint_contexts(3)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError, match="CheckpointPolicy or a bool"):
        gradients(selective(lambda ctx, op, *args, **attrs: "save"))


class TestNames:
    """JAX's policies by name."""

    def region(self, x: Any, w: Any) -> Any:
        a = checkpoint_name((x @ w).tanh(), "a")
        b = checkpoint_name((a @ w).sigmoid(), "b")
        return b.exp() * a

    @pytest.mark.parametrize(("policy", "again"), [
        (policies.nothing_saveable, {"tanh": 1, "sigmoid": 1}),
        (policies.save_only_these_names("a"), {"tanh": 0, "sigmoid": 1}),
        (policies.save_any_names_but_these("b"), {"tanh": 0, "sigmoid": 1}),
        (policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["b"], names_which_can_be_offloaded=["a"],
            offload_src="device", offload_dst="pinned_host"), {"tanh": 0, "sigmoid": 0}),
        (policies.save_anything_except_these_names("a", "b"), {"tanh": 0, "sigmoid": 0}),
        (policies.save_from_both_policies(policies.save_only_these_names("a"),
                                          lambda op, *_, **__: op.name == "tanh"),
         {"tanh": 0, "sigmoid": 1})], ids=repr)
    def test_what_runs_again(self, policy: Any, again: dict[str, int],
                             monkeypatch: pytest.MonkeyPatch) -> None:
        x, w = leaf(randoms(4, 4)), leaf(randoms(4, 4, seed=1))
        want = values(ad.autograd.grad(self.region(x, w).sum(), x)[0])
        calls = {name: impl_calls(monkeypatch, name) for name in again}
        y = ad.func.checkpoint(self.region, policy=policy)(x, w)
        before = {name: len(c) for name, c in calls.items()}
        exact(ad.autograd.grad(y.sum(), x)[0], want)
        assert {name: len(c) - before[name] for name, c in calls.items()} == again

    def test_name_is_the_identity(self) -> None:
        x = leaf([1.0, 2.0])
        y = checkpoint_name(x, "n")
        y.sum().backward()
        exact(x.grad, [1.0, 1.0])
        z = x * 1.0
        checkpoint_name(z, "n").mul_(3.0)
        exact(z, [3.0, 6.0])

    @pytest.mark.parametrize("transform", ["grad", "vmap", "jvp", "hessian"])
    def test_under_transforms(self, transform: str) -> None:
        def f(x: Any) -> Any:
            return (checkpoint_name(x.sin(), "s").exp() * x).sum()

        g = ad.func.remat(f, policy=policies.save_only_these_names("s"))
        x = ad.tensor(randoms(3))
        if transform == "grad":
            exact(ad.func.grad(g)(x), values(ad.func.grad(f)(x)))
        elif transform == "vmap":
            xs = ad.tensor(randoms(4, 3))
            exact(ad.func.vmap(ad.func.grad(g))(xs), values(ad.func.vmap(ad.func.grad(f))(xs)))
        elif transform == "jvp":
            exact(ad.func.jvp(g, (x,), (x,))[1], values(ad.func.jvp(f, (x,), (x,))[1]))
        else:
            np.testing.assert_allclose(values(ad.func.hessian(g)(x)), values(ad.func.hessian(f)(x)),
                                       rtol=1e-12)

    def test_all_of_jaxs_policies_are_there(self) -> None:
        jax = pytest.importorskip("jax")
        theirs = {n for n in dir(jax.checkpoint_policies) if not n.startswith("_")}
        assert theirs == set(vars(policies))

    @pytest.mark.parametrize("away", [False, True])
    def test_a_name_keeps_the_result_that_it_names(self, away: bool) -> None:
        """Through views too, with no bytes of its own; not where it was written to before."""
        def region(x: Any, w: Any, between: Any) -> Any:
            y = x @ w
            return checkpoint_name(between(y), "y").sin().sum()

        policy = policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[] if away else ["y"],
            names_which_can_be_offloaded=["y"] if away else [], offload_src="device",
            offload_dst="pinned_host")
        x, w = leaf(randoms(4, 4)), leaf(randoms(4, 4, seed=1))
        for between, runs in ((lambda y: y, 0), (lambda y: y.view(2, 8).t(), 0),
                              (lambda y: y.mul_(2.0), 1), (lambda y: y * 2.0, 1)):
            with pytest.MonkeyPatch.context() as patch:
                products = impl_calls(patch, "mm")
                y = ad.func.checkpoint(region, policy=policy)(x, w, between)
                got = ad.autograd.grad(y, (x, w))
                assert len(products) == 1 + runs + 2
            for a, b in zip(got, ad.autograd.grad(region(x, w, between), (x, w)), strict=True):
                exact(a, values(b))

    def test_what_is_offloaded_may_be_written_to(self) -> None:
        def region(x: Any, w: Any) -> Any:
            y = checkpoint_name(x @ w, "y")
            z = y.exp()
            y.detach().mul_(3.0)
            return z.exp().sum()

        x, w = leaf(randoms(4, 4)), leaf(randoms(4, 4, seed=1))
        want = values(ad.autograd.grad((x @ w).exp().exp().sum(), x)[0])
        away = policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[], names_which_can_be_offloaded=["y"],
            offload_src="device", offload_dst="pinned_host")
        y = ad.func.checkpoint(region, policy=away)(x, w)
        exact(ad.autograd.grad(y, x, retain_graph=True)[0], want)
        exact(ad.autograd.grad(y, x)[0], want)
        here = policies.save_only_these_names("y")
        with pytest.raises(RuntimeError, match="mutated"):
            ad.func.checkpoint(region, policy=here)(x, w).backward()

    def test_what_jax_refuses(self) -> None:
        names = policies.save_and_offload_only_these_names
        with pytest.raises(ValueError, match="exclusive.*\n?.*: a is in both"):
            names(names_which_can_be_saved=["a"], names_which_can_be_offloaded=["a"],
                  offload_src="device", offload_dst="pinned_host")
        both = policies.save_from_both_policies(
            policies.offload_dot_with_no_batch_dims("device", "pinned_host"),
            policies.save_only_these_names("a"))
        x, w = leaf(randoms(4, 4)), leaf(randoms(4, 4, seed=1))
        with pytest.raises(ValueError, match="should be a boolean"):
            ad.func.checkpoint(self.region, policy=both)(x, w)


CASES: dict[str, Any] = {
    "dot": lambda j, x, a: j.numpy.dot(x, a[0]),
    "vector": lambda j, x, a: j.numpy.dot(x[0], a[0, 0]),
    "matrix, vector": lambda j, x, a: x @ a[0, 0],
    "batch": lambda j, x, a: j.numpy.matmul(j.numpy.stack([x, x]), a),
    "batch of one side": lambda j, x, a: j.numpy.matmul(j.numpy.stack([x, x]), a[0]),
    "tensordot": lambda j, x, a: j.numpy.tensordot(x, a[0], 1),
    "einsum": lambda j, x, a: j.numpy.einsum("ij,bjk->bik", x, a),
    "einsum of a batch": lambda j, x, a: j.numpy.einsum("bi,bij->bj", x[:2], a),
    "outer": lambda j, x, a: j.numpy.outer(x[0], a[0, 0]),
    "dot_general": lambda j, x, a: j.lax.dot_general(x, a[0], (((1,), (1,)), ((0,), (0,)))),
    "conv": lambda j, x, a: j.lax.conv(x[None, None], a[None, :1, :2, :2], (1, 1), "VALID"),
    "vmap": lambda j, x, a: j.vmap(lambda m: m @ x)(a),
    "vmap of both": lambda j, x, a: j.vmap(lambda m, n: m @ n)(j.numpy.stack([x, x]), a)}


def decided(j: Any, name: str) -> list[set[str]]:
    """What three policies do with the products of a case: under adjoint.jax as under JAX."""
    rules = j.checkpoint_policies
    found: list[set[str]] = []
    for rule in (rules.dots_saveable, rules.dots_with_no_batch_dims_saveable,
                 rules.offload_dot_with_no_batch_dims("device", "pinned_host")):
        seen: set[str] = set()

        def ask(prim: Any, *args: Any, rule: Any = rule, seen: set[str] = seen, **params: Any
                ) -> Any:
            answer = rule(prim, *args, **params)
            if prim is j.lax.dot_general_p or prim is j.lax.conv_general_dilated_p:
                word = "offload" if hasattr(answer, "dst") else str(answer is True)
                seen.add(f"{prim.name} {word}")
            return answer
        x, a = j.numpy.ones((4, 4)), j.numpy.asarray(randoms(2, 4, 4).astype("float32"))
        j.grad(j.checkpoint(lambda x, a=a: j.numpy.sin(CASES[name](j, x, a)).sum(), policy=ask))(x)
        found.append(seen)
    return found


@pytest.mark.parametrize("name", CASES)
def test_products_are_told_apart_as_in_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    import adjoint.jax as ours

    assert decided(ours, name) == decided(jax, name)


@pytest.mark.parametrize("kept", [True, False])
def test_jaxs_checkpoint_follows_its_policy(kept: bool) -> None:
    import adjoint.jax as ours
    from adjoint.jax.ad_checkpoint import Offloadable, Recompute, Saveable

    counts = []
    for word in (kept, Saveable if kept else Recompute,
                 Offloadable("device", "pinned_host") if kept else Recompute):
        with pytest.MonkeyPatch.context() as patch:
            products = impl_calls(patch, "mm")
            f = ours.checkpoint(lambda x: ours.numpy.sin(ours.numpy.sin(x @ x)).sum(),
                                policy=lambda prim, *_, word=word, **__: word)
            ours.grad(f)(ours.numpy.ones((3, 3)))
            counts.append(len(products))
    assert counts == [3 if kept else 4] * 3


class TestDeterminismCheck:
    def test_same_shape_but_another_op_is_found(self) -> None:
        turn = []

        def region(t: Any) -> Any:
            turn.append(1)
            return t.sin().exp() if len(turn) == 1 else t.cos().exp()

        y = checkpoint(region, leaf(randoms(3)), use_reentrant=False)
        with pytest.raises(RuntimeError) as caught:
            y.sum().backward()
        text = str(caught.value)
        assert "SinBackward0" in text and "CosBackward0" in text
        assert text.count("test_checkpoint_policies.py:") == 2

    def test_shapes_and_lines_are_named(self) -> None:
        turn = []

        def region(t: Any) -> Any:
            turn.append(1)
            return t.sin().exp() if len(turn) == 1 else t[:2].sin().exp()

        y = checkpoint(region, leaf(randoms(3)), use_reentrant=False)
        with pytest.raises(RuntimeError, match=r"float64\[3\][\s\S]*float64\[2\]"):
            y.sum().backward()

    def test_what_is_missing_is_named(self) -> None:
        turn = []

        def region(t: Any) -> Any:
            turn.append(1)
            return t.sin().exp() if len(turn) == 1 else t.sin()

        y = checkpoint(region, leaf(randoms(3)), use_reentrant=False)
        with pytest.raises(RuntimeError, match="missing: .*ExpBackward0 at .*test_checkpoint_pol"):
            y.sum().backward()


def test_records_have_pytorchs_names_for_policies() -> None:
    aten = ad.ops.aten
    assert aten.mm.default is aten.mm.out and aten.mm.default.name == "mm"
    assert aten._softmax.default.name == "softmax"
    with pytest.raises(AttributeError, match="no attribute 'convolute'.*'convolution'"):
        _ = aten.convolute
    seen = []

    def policy(ctx: Any, op: Any, *args: Any, **attrs: Any) -> Any:
        seen.append(op in [aten.mm.default])
        return CheckpointPolicy.MUST_SAVE if seen[-1] else CheckpointPolicy.PREFER_RECOMPUTE
    x = ad.ones(2, 2, requires_grad=True)
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    checkpoint(lambda x: (x @ x).sigmoid(), x, use_reentrant=False, context_fn=contexts).sum(
        ).backward()
    assert any(seen) and not all(seen) and x.grad is not None
