"""Module names that programs import from, beside those of their own test files."""
from __future__ import annotations

import importlib
import inspect
import pickle
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.base.errors import ArgumentError


@pytest.mark.parametrize("name, member", [
    ("autograd.variable", "Variable"), ("autograd.anomaly_mode", "detect_anomaly"),
    ("autograd.grad_mode", "no_grad"), ("utils.hooks", "RemovableHandle"),
    ("utils.dlpack", "from_dlpack"), ("utils._pytree", "tree_map"), ("testing", "assert_close")])
def test_importable(name: str, member: str) -> None:
    assert hasattr(importlib.import_module(f"adjoint.{name}"), member)


def test_variable_is_the_tensor() -> None:
    from adjoint.autograd import Variable
    x = Variable(ad.ones(2), requires_grad=True)
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0] and isinstance(x, ad.Tensor)


def test_trees() -> None:
    from adjoint.utils import _pytree as t
    tree = {"a": (1, [ad.ones(1), None]), "b": 2.5}
    leaves, spec = t.tree_flatten(tree)
    assert t.tree_unflatten(leaves, spec)["a"][0] == 1
    assert t.tree_map(lambda a, b: a + b, [1, (2,)], [10, (20,)]) == [11, (22,)]
    doubled = t.tree_map_only(float, lambda x: 2 * x, {"x": 1, "y": 2.0})
    assert doubled == {"x": 1, "y": 4.0}
    assert t.tree_all(lambda x: x > 0, [1, 2]) and not t.tree_any(lambda x: x > 2, [1, 2])


def test_dlpack_capsule_shares_memory() -> None:
    from adjoint.utils.dlpack import from_dlpack
    array = np.arange(4.0)
    x = from_dlpack(array)
    array[0] = 7
    assert x[0].item() == 7.0


def test_a_public_name_is_entered_once() -> None:
    """Another function under a taken name is refused, unless it says that it replaces."""
    from adjoint.ops import public
    before = public.FUNCTIONS["exp"], public.METHODS["exp"]

    def other(x: object) -> object:
        return x
    with pytest.raises(ArgumentError, match=r"^ad\.exp is registered already, by adjoint\.ops.*"
                                               r"other may take another name.*replace=True"):
        public.public("exp", method=False)(other)
    with pytest.raises(ArgumentError, match=r"^Tensor\.exp is registered already"):
        public.public("not_a_name", method="exp", function=False)(other)
    with pytest.raises(ArgumentError, match=r"^ad\.not_a_name is not registered: .*"
                                               "leave replace=True out"):
        public.public("not_a_name", replace=True)(other)
    assert (public.FUNCTIONS["exp"], public.METHODS["exp"]) == before
    try:
        assert public.public("exp", replace=True)(other) is other
        assert public.FUNCTIONS["exp"] is public.METHODS["exp"]
        assert inspect.unwrap(public.FUNCTIONS["exp"]) is other
    finally:
        public.FUNCTIONS.replace("exp", before[0])
        public.METHODS.replace("exp", before[1])


def test_public_functions_can_be_pickled() -> None:
    """By their public names, so that a module that holds one can be, too."""
    functional = ad.nn.functional
    spaces: list[tuple[Any, frozenset[str]]] = [
        (ad, frozenset()), (ad.Tensor, frozenset({"storage", "untyped_storage"})),
        (functional, frozenset(n for n in dir(functional) if "max_pool" in n))]
    for space, own in spaces:
        for name in set(dir(space)) - own:
            f = getattr(space, name)
            if isinstance(f, FunctionType) and not name.startswith("_"):
                assert pickle.loads(pickle.dumps(f)) is f, name
