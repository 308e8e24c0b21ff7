"""F130: operators of one's own under PyTorch's `torch.library`, compared with PyTorch's."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint import library
from adjoint.utils._python_dispatch import TorchDispatchMode


def cube(lib: Any, torch: Any, name: str) -> Any:
    """An operator that a tape cannot look into, with every rule."""
    def run(x, k=2.0):  # type: ignore[no-untyped-def]  # annotated below, with the library's types
        return torch.from_numpy(x.detach().numpy() ** 3 * k)
    run.__annotations__ = {"x": torch.Tensor, "k": float, "return": torch.Tensor}
    op = lib.custom_op(name, run, mutates_args=())

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.k = inputs
        ctx.save_for_backward(x)

    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * ctx.k * x ** 2 * g, None
    op.register_autograd(backward, setup_context=setup)
    op.register_fake(lambda x, k=2.0: torch.empty_like(x))
    op.register_vmap(lambda info, in_dims, x, k=2.0: (op(x, k), in_dims[0]))
    return op


def test_values_gradients_and_rules_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for t, lib in ((ad, library), (torch, importlib.import_module("torch.library"))):
        op = cube(lib, t, "adjoint_test::cube")
        x = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True)
        op(x, 3.0).sum().backward()
        (g,) = t.autograd.grad(op(x).sum(), x, create_graph=True)
        (h,) = t.autograd.grad(g.sum(), x)
        by_name = t.ops.adjoint_test.cube(x.detach(), k=1.0)
        mapped = t.func.vmap(op)(t.ones(2, 3))
        found.append([x.grad.tolist(), g.tolist(), h.tolist(), by_name.tolist(), mapped.tolist(),
                      tuple(op(t.ones(3, device="meta")).shape), repr(op),
                      str(t.ops.adjoint_test.cube.default), str(op._opoverload._schema.name),
                      type(op(x).grad_fn).__name__, t.autograd.gradcheck(op, x)])
    assert found[0] == found[1]


SCHEMAS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"x": "Tensor", "k": float, "return": "Tensor"}, {"k": 2.5}),
    ({"xs": "Tensors", "n": int, "b": bool, "return": "Two"}, {"b": True}),
    ({"x": "Tensor", "e": "int?", "s": str, "l": "floats?", "return": "Tensors"}, {"l": None}),
    ({"x": "Tensor", "return": None}, {}),
]


@pytest.mark.parametrize("types, defaults", SCHEMAS)
def test_schemas_are_read_off_annotations(types: dict[str, Any], defaults: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    shown = []
    for t, lib in ((ad, library), (torch, importlib.import_module("torch.library"))):
        named = {"Tensor": t.Tensor, "Tensors": list[t.Tensor], "int?": int | None,
                 "floats?": list[float] | None, "Two": tuple[t.Tensor, t.Tensor]}
        names = [n for n in types if n != "return"]
        text = ", ".join(n + (f"={defaults[n]!r}" if n in defaults else "") for n in names)
        space: dict[str, Any] = {}
        exec(f"def f({text}): ...", space)  # noqa: S102  # our own text
        f = space["f"]
        f.__annotations__ = {n: named.get(k, k) if isinstance(k, str) else k
                             for n, k in types.items()}
        shown.append([lib.infer_schema(f, mutates_args=()),
                      lib.infer_schema(f, mutates_args="unknown")])
    assert shown[0] == shown[1]


def test_lists_of_tensors_and_keyword_arguments() -> None:
    @library.custom_op("adjoint_test::both", mutates_args=())
    def both(xs: Sequence[ad.Tensor], *, p: float) -> tuple[ad.Tensor, ad.Tensor]:
        return xs[0] * p, xs[1] + 1

    def setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        ctx.p = keyword_only_inputs["p"]
    both.register_autograd(lambda ctx, g, h: [g * ctx.p, h], setup_context=setup)
    a, b = ad.ones(2, requires_grad=True), ad.ones(2, requires_grad=True)
    one, two = both([a, b], p=3.0)
    (one.sum() + 2 * two.sum()).backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([3, 3], [2, 2])
    both.register_autograd(lambda ctx, g, h: (g, h), setup_context=setup)
    with pytest.raises(RuntimeError, match="same structure as the inputs: 1 gradients, got 2"):
        both([a, b], p=3.0)[0].sum().backward()


def test_writes_are_declared_and_noticed() -> None:
    @library.custom_op("adjoint_test::scale_", mutates_args={"x"})
    def scale_(x: ad.Tensor, s: float) -> None:
        x.detach().numpy()[...] *= s
    z = ad.ones(2)
    assert scale_(z, 3.0) is None and z.tolist() == [3, 3] and z._version == 1
    assert scale_._opoverload._schema.is_mutable
    assert str(scale_._opoverload._schema).endswith("(Tensor(a0!) x, float s) -> ()")
    with pytest.raises(RuntimeError, match="Cannot register autograd formula for non-functional"):
        scale_.register_autograd(lambda ctx: None)

    @library.custom_op("adjoint_test::sly", mutates_args=())
    def sly(x: ad.Tensor) -> ad.Tensor:
        return x.mul_(2).clone()
    with pytest.raises(library.OpCheckError, match="test_schema failed.*mutates_args does not"):
        library.opcheck(sly, (ad.ones(2),))


def test_what_is_refused() -> None:
    @library.custom_op("adjoint_test::same", mutates_args=())
    def same(x: ad.Tensor) -> ad.Tensor:
        return x
    for call, match in (
            (lambda: same(ad.ones(2)), "may not alias any inputs"),
            (lambda: same("a"), "Expected a value of type 'Tensor' for argument 'x' but instead"),
            (lambda: same(), "missing a required argument: 'x'"),
            (lambda: library.custom_op("noname", mutates_args=())(abs), "namespace::name"),
            (lambda: library.infer_schema(lambda x: x), "must have a type annotation"),
            (lambda: library.register_fake("adjoint_test::none", abs), "there is no operator"),
            (lambda: same(ad.ones(2, device="meta")), "There was no fake impl registered")):
        with pytest.raises((ValueError, RuntimeError), match=match):
            call()
    with pytest.raises(AttributeError, match="'_OpNamespace' 'adjoint_test' object has no attrib"):
        _ = ad.ops.adjoint_test.nothere

    @library.custom_op("adjoint_test::closed", mutates_args=())
    def closed(x: ad.Tensor) -> ad.Tensor:
        return x * 2
    y = closed(ad.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        y.sum().backward()


def test_operators_by_schema_and_libraries() -> None:
    library.define("adjoint_test::shift", "(Tensor x, int n=3) -> Tensor")
    library.impl("adjoint_test::shift", "cpu")(lambda x, n=3: x + n)
    x = ad.ones(2, requires_grad=True)
    shift = ad.ops.adjoint_test.shift
    assert shift(x).tolist() == [4, 4] and shift(x, n=5).grad_fn.name() == "AddBackward0"
    library.register_autograd("adjoint_test::shift", lambda ctx, g: (7 * g, None))
    shift(x).sum().backward()
    assert x.grad.tolist() == [7, 7]
    lib = library.Library("adjoint_test", "FRAGMENT")
    assert lib.define("product(Tensor a, Tensor b) -> Tensor") == "product"
    lib.impl("product", lambda a, b: a @ b, "CompositeImplicitAutograd")
    assert ad.ops.adjoint_test.product(x[None], x[:, None]).grad_fn.name() == "MmBackward0"
    assert str(ad.ops.adjoint_test.product.default._schema) == (
        "adjoint_test::product(Tensor a, Tensor b) -> Tensor")


def test_kernels_modes_and_checks() -> None:
    op = cube(library, ad, "adjoint_test::watched")
    seen = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))
    x = ad.ones(2, requires_grad=True)
    with Log():
        y = op(x)
    y.sum().backward()
    assert "adjoint_test.watched.default" in seen and np.allclose(x.grad, 6)
    assert set(library.opcheck(op, (x,)).values()) == {"SUCCESS"}
    op.register_kernel("cpu", lambda x, k=2.0: ad.zeros_like(x))
    assert op(x).tolist() == [0, 0]
    with op.set_kernel_enabled("cpu", False):
        assert op(x).tolist() == [2, 2]
    op.register_fake(lambda x, k=2.0: ad.empty_like(x, dtype=ad.float64))
    found = library.opcheck(op, (x,), test_utils="test_faketensor", raise_exception=False)
    assert "the shape rule gives" in found["test_faketensor"]


def test_tags_a_library_for_a_while_and_casts_under_autocast() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for t, lib, name in ((ad, library, "adjoint_tags"), (torch, torch.library, "torch_tags")):
        one = cube(lib, t, f"{name}::one")
        with lib._scoped_library(name, "FRAGMENT") as scope:
            scope.define("two(Tensor x) -> Tensor", tags=(t.Tag.pointwise, t.Tag.core))
            scope.impl("two", lambda x: x * 2, "CPU")
            space = getattr(t.ops, name)
            told = [space.two(t.ones(1)).tolist(), str(space.two.default.tags),
                    str(space.one.default.tags)]
        told.append(hasattr(space, "two"))
        lib.register_autocast(f"{name}::one", "cpu", t.float64)
        with t.autocast("cpu", dtype=t.bfloat16):
            told.append(str(one(t.ones(1)).dtype).rpartition(".")[2])
        with pytest.raises(NotImplementedError, match="should never be called"):
            lib.fallthrough_kernel()
        found.append(told)
    assert found[0] == found[1]
