"""`jax.ad_checkpoint.print_saved_residuals`: what the backward keeps, and whence (F62)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from adjoint import jax
from adjoint.jax import numpy as jnp
from adjoint.jax.ad_checkpoint import checkpoint_name, print_saved_residuals

W, X, Y = jnp.ones((3, 4)), jnp.ones((2, 3)), jnp.ones((2, 4))
policies = jax.checkpoint_policies


def mixed(x: Any, y: Any) -> Any:
    return (jnp.cos(jnp.sin(x) @ W) * y).sum()


def named(x: Any) -> Any:
    return jnp.sin(checkpoint_name(jnp.sin(x), "foo"))


def region(f: Callable[..., Any], policy: Any = None) -> Callable[..., Any]:
    return jax.checkpoint(f, policy=policy)


def lines(capsys: Any, f: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    """What it prints, without the places, which must be lines of this file."""
    print_saved_residuals(f, *args, **kwargs)
    found = []
    for line in capsys.readouterr().out.splitlines():
        what, _, place = line.partition(f" from {__file__}:")
        assert what == line or place.split(" in ")[0].isdigit()
        found.append(what)
    return found


def test_constants_arguments_and_outputs(capsys: Any) -> None:
    assert lines(capsys, mixed, X, Y) == [
        "f32[3,4] from a constant", "f32[2,3] from the argument x", "f32[2,4] from the argument y",
        "f32[2,4] output of mm", "f32[2,4] output of cos"]
    assert lines(capsys, lambda x: x + 1, X) == []


def test_arguments_are_called_by_their_path(capsys: Any) -> None:
    def f(tree: Any, scale: Any) -> Any:
        return jnp.sin(tree["a"][0]) + jnp.cos(scale)
    assert lines(capsys, f, {"a": [jnp.ones(3)]}, scale=jnp.ones(())) == [
        "f32[3] from the argument tree['a'][0]", "f32[] from the argument scale"]


@pytest.mark.parametrize("policy", [None, policies.nothing_saveable])
def test_a_checkpointed_region_keeps_its_arguments(capsys: Any, policy: Any) -> None:
    assert lines(capsys, region(mixed, policy), X, Y) == [
        "f32[2,3] from the argument x", "f32[2,4] from the argument y"]


def test_what_a_policy_keeps(capsys: Any) -> None:
    foo = region(named, policies.save_only_these_names("foo"))
    assert lines(capsys, foo, X) == ["f32[2,3] from the argument x", "f32[2,3] named 'foo'"]
    bar = region(named, policies.save_only_these_names("bar"))
    assert lines(capsys, bar, X) == ["f32[2,3] from the argument x"]
    dots = region(mixed, policies.dots_saveable)
    assert lines(capsys, dots, X, Y) == [
        "f32[2,3] from the argument x", "f32[2,4] from the argument y", "f32[2,4] output of mm"]
