"""What libraries on JAX (Flax, Optax, Equinox, Chex) ask for at import and in their layers."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adjoint import jax
from adjoint.base.errors import Absent
from adjoint.jax import _absent  # noqa: F401 - makes the modules that are imported below
from adjoint.jax import numpy as jnp


def test_keys_are_arrays() -> None:
    key = jax.random.key(0)
    assert isinstance(key, jax.Array) and isinstance(jnp.ones(2), jax.Array)
    assert not isinstance(np.ones(2), jax.Array) and not isinstance(1.0, jax.Array)
    assert type(jax.device_get(key)) is type(key)


def test_shapes_carry_a_sharding() -> None:
    assert jax.typeof(jnp.ones(2)).sharding is None
    assert jax.ShapeDtypeStruct((2,), "float32", sharding="there").sharding == "there"
    drawn = jax.random.normal(jax.random.key(1), (2,), jnp.float32)
    assert drawn.shape == (2,)


def test_a_named_scope_is_a_context_and_a_decorator() -> None:
    @jax.named_scope("twice")
    def twice(x: Any) -> Any:
        return 2 * x
    with jax.named_scope("here"):
        assert twice(3) == 6


def test_what_is_not_here_can_stand_in_annotations() -> None:
    name: Any = Absent("somewhere.Mesh")
    assert (name | None) is name and (int | name) is name


def test_names_that_libraries_import() -> None:
    import importlib
    for module, names in {
            "jax.core": "AbstractValue valid_jaxtype get_opaque_trace_state trace_state_clean",
            "jax.extend.core": "get_opaque_trace_state", "jax.api_util": "debug_info flatten_fun",
            "jax.extend.linear_util": "wrap_init WrappedFun",
            "jax.interpreters.partial_eval": "PartialVal trace_to_jaxpr_nounits",
            "jax.extend.source_info_util": "register_exclusion",
            "jax._src.traceback_util": "register_exclusion api_boundary",
            "jax._src.dispatch": "wait_for_tokens"}.items():
        if "._src" in module:
            importlib.import_module("adjoint.jax._src")
        found = importlib.import_module(f"adjoint.{module}")
        for name in names.split():
            assert not isinstance(getattr(found, name), Absent), (module, name)
    core: Any = importlib.import_module("adjoint.jax.core")
    assert core.valid_jaxtype(jnp.ones(2)) and not core.valid_jaxtype(None)
    assert isinstance(jax.typeof(jnp.ones(2)), core.AbstractValue)


def test_states_of_traces_differ_under_a_vmap() -> None:
    from adjoint.jax._inside import get_opaque_trace_state
    outside, seen = get_opaque_trace_state(), []

    def f(x: Any) -> Any:
        seen.append(get_opaque_trace_state())
        return x * x
    jax.vmap(f)(jnp.ones(2))
    assert outside == get_opaque_trace_state() and seen[0] != outside


@pytest.mark.parametrize("run", [
    jax.jit, jax.grad, jax.vmap, jax.make_jaxpr, lambda f: lambda x: jax.vjp(f, x),
    lambda f: lambda x: jax.jvp(f, (x,), (x,)), lambda f: lambda x: jax.linearize(f, x),
    lambda f: lambda x: jax.eval_shape(f, x), lambda f: lambda x: jax.lax.cond(True, f, f, x),
    lambda f: lambda x: jax.lax.scan(lambda c, a: (c, f(a)), 0.0, x)])
def test_a_state_is_clean_outside_of_every_transform(run: Any) -> None:
    from adjoint.jax._inside import trace_state_clean
    seen = []

    def f(x: Any) -> Any:
        seen.append(trace_state_clean())
        return (x * x).sum()
    run(f)(jnp.ones(3))
    assert seen and not any(seen) and trace_state_clean()


def test_names_that_haiku_reads_at_import() -> None:
    import importlib
    core: Any = importlib.import_module("adjoint.jax.extend.core")
    for name in ("take_current_trace", "set_current_trace", "find_top_trace"):
        assert isinstance(getattr(core, name), Absent)


def test_kinds_of_traces_are_defined_and_not_made() -> None:
    import importlib
    core: Any = importlib.import_module("adjoint.jax.core")
    lu: Any = importlib.import_module("adjoint.jax.extend.linear_util")
    own = lu.transformation(lambda *xs: (yield xs))
    kind = type("Own", (core.Trace,), {})
    for make in (own, kind):
        with pytest.raises(NotImplementedError, match="nothing here traces by"):
            make(1)


class TestKnownInputs:
    """Runs of which some inputs have no values."""

    def run(self, f: Any, args: Any) -> Any:
        from adjoint.jax._partial import (
            PartialVal,
            flatten_fun_nokwargs,
            trace_to_jaxpr_nounits,
            wrap_init,
        )
        leaves, tree = jax.tree_util.tree_flatten(args)
        flat, out_tree = flatten_fun_nokwargs(wrap_init(f), tree)
        _, out, _ = trace_to_jaxpr_nounits(flat, [
            PartialVal.unknown(x) if isinstance(x, jax.ShapeDtypeStruct) else PartialVal.known(x)
            for x in leaves])
        return jax.tree_util.tree_unflatten(out_tree(), out)

    def test_what_depends_on_them(self) -> None:
        shape = jax.ShapeDtypeStruct((2, 3), "float32")
        out = self.run(lambda p, x: {"known": p["a"] * 2, "not": x @ p["b"]},
                       ({"a": jnp.ones(3), "b": jnp.ones((3, 4))}, shape))
        assert out["known"].is_known() and out["known"].const.tolist() == [2.0, 2.0, 2.0]
        assert not out["not"].is_known() and out["not"].aval.shape == (2, 4)

    def test_draws_are_known(self) -> None:
        shape = jax.ShapeDtypeStruct((5, 3), "float32")
        out = self.run(lambda key, x: jax.random.normal(key, (x.shape[-1], 2)),
                       (jax.random.key(0), shape))
        np.testing.assert_array_equal(out.const, jax.random.normal(jax.random.key(0), (3, 2)))


class TestSmallDtypes:
    """Dtypes of eight bits and fewer: names, limits and categories."""

    def test_limits(self) -> None:
        pytest.importorskip("ml_dtypes")
        assert float(jnp.finfo(jnp.float8_e4m3fn).max) == 448.0
        assert float(jnp.finfo(jnp.float8_e5m2).max) == 57344.0
        assert (jnp.iinfo(jnp.int4).min, jnp.iinfo(jnp.uint4).max) == (-8, 15)
        assert jnp.float8_e4m3fn.dtype.itemsize == 1
        assert jnp.float8_e4m3fn != jnp.float32 and jnp.int4 == jnp.int4.dtype

    def test_categories(self) -> None:
        pytest.importorskip("ml_dtypes")
        for kind, above in ((jnp.float8_e5m2, (jnp.floating, jnp.inexact, jnp.number)),
                            (jnp.int4, (jnp.integer, jnp.signedinteger, jnp.number)),
                            (jnp.uint2, (jnp.integer, jnp.unsignedinteger, jnp.number))):
            assert all(jnp.issubdtype(kind, a) for a in above)
        assert not jnp.issubdtype(jnp.int4, jnp.floating)
        assert not jnp.issubdtype(jnp.float8_e5m2, jnp.integer)

    def test_no_promotion(self) -> None:
        pytest.importorskip("ml_dtypes")
        with pytest.raises(ValueError, match="eight bits and fewer are not promoted"):
            jnp.promote_types(jnp.float8_e4m3fn, jnp.float32)
