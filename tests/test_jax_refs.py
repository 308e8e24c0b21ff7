"""Boxes of arrays that programs write to (`jax.new_ref`); bases of `experimental.hijax` (F54)."""
from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from adjoint import jax
from adjoint.base.errors import NotSupported
from adjoint.jax import lax
from adjoint.jax import numpy as jnp

BASES = ["adjoint.jax", pytest.param("jax")]


def library(base: str) -> Any:
    """`jax` or `adjoint.jax`."""
    return pytest.importorskip(base)


@pytest.mark.parametrize("base", BASES)
class TestBoth:
    def test_reads_and_writes(self, base: str) -> None:
        top = library(base)
        box = top.new_ref(top.numpy.arange(4.0))
        box[0] = 5.0
        box[1:3] += 1.0
        assert float(top.ref.swap(box, 3, 7.0)) == 3.0
        top.ref.addupdate(box, 0, 1.0)
        assert box[...].tolist() == [6.0, 2.0, 3.0, 7.0] and box.shape == (4,)
        assert isinstance(box, top.Ref)
        with pytest.raises(ValueError, match="Invalid dtype for `swap`"):
            box[0] = top.numpy.ones((), "int32")

    def test_in_jit(self, base: str) -> None:
        top = library(base)
        box = top.new_ref(top.numpy.zeros(3))

        @top.jit
        def f(r: Any, x: Any) -> Any:
            r[0] += x
            return r[1]
        f(box, 2.0)
        f(box, 3.0)
        assert top.ref.freeze(box).tolist() == [5.0, 0.0, 0.0]

    def test_in_loops(self, base: str) -> None:
        top = library(base)
        box = top.new_ref(0.0)

        def body(i: Any, c: Any) -> Any:
            box[...] += 1.0
            return c + box[...]
        assert float(top.lax.fori_loop(0, 4, body, top.numpy.zeros(()))) == 10.0
        assert float(box[...]) == 4.0

    def test_derivatives_and_maps(self, base: str) -> None:
        top = library(base)

        def f(x: Any) -> Any:
            box = top.new_ref(top.numpy.zeros(3))
            box[0] = x
            box[1] = top.numpy.sin(box[0])
            return box[...].sum()
        np.testing.assert_allclose(top.grad(f)(2.0), 1 + np.cos(2.0), rtol=1e-6)
        rows = top.numpy.arange(6.0).reshape(3, 2)
        out = top.vmap(lambda v: top.ref.freeze(top.new_ref(v)) * 2)(rows)
        assert out.tolist() == (rows * 2).tolist()


def test_a_frozen_ref_is_of_no_use() -> None:
    box = jax.new_ref(jnp.ones(2))
    jax.ref.freeze(box)
    with pytest.raises(ValueError, match="was frozen"):
        box[...]


def test_a_loop_that_starts_over_does_not_write_twice() -> None:
    box = jax.new_ref(0.0)

    def body(i: Any, c: Any) -> Any:
        box[...] += 1.0
        return c + box[...]
    with pytest.raises(NotSupported, match="give the carry its final dtype"):
        lax.fori_loop(0, 4, body, 0)                # (becomes a float in its first step)
    box[...] = 0.0
    assert float(lax.fori_loop(0, 4, body, 0.0)) == 10 and float(box[...]) == 4


def test_bases_of_libraries_types() -> None:
    hijax = importlib.import_module("adjoint.jax.experimental.hijax")
    core = importlib.import_module("adjoint.jax.extend.core")

    class Kind(core.Effect):
        """An effect of a library."""

    class Own(hijax.HiPrimitive):
        """A primitive of a library."""
    hijax.control_flow_allowed_effects.add_type(Kind)
    with pytest.raises(NotSupported, match="twice: primitives on types"):
        Own("twice").bind(jnp.ones(1))


def test_dry_runs_do_not_write() -> None:
    box = jax.new_ref(jnp.zeros(2))

    def f(x: Any) -> Any:
        box[0] = x
        return x
    jax.eval_shape(f, jnp.ones(()))
    assert box[...].tolist() == [0.0, 0.0]
