"""F123: PyTorch's `__torch_function__`: classes and modes that answer for the public functions."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import overrides
from adjoint.base.errors import ArgumentError

ROOT = Path(__file__).resolve().parent.parent


class Plain(ad.Tensor):
    pass


class Under(Plain):
    pass


class Logged(ad.Tensor):
    log: list[str] = []
    extra: Any

    @staticmethod
    def __new__(cls, data: Any, extra: Any = None) -> Any:
        return super().__new__(cls, data)

    def __init__(self, data: Any, extra: Any = None) -> None:
        super().__init__()
        self.extra = extra

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.log.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)


class Diagonal:
    """No tensor: n times n, one value."""

    def __init__(self, n: int, value: float) -> None:
        self.n, self.value = n, value

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in HANDLED:
            return NotImplemented
        return HANDLED[func](*args, **(kwargs or {}))


HANDLED: dict[Any, Any] = {
    ad.mean: lambda d: d.value / d.n,
    ad.mm: lambda a, b: ("mm", type(a).__name__, type(b).__name__),
    ad.Tensor.add: lambda a, b: ("add", type(a).__name__, type(b).__name__),
    ad.add: lambda a, b: ("ad.add", type(a).__name__, type(b).__name__),
    F.relu: lambda d, inplace=False: Diagonal(d.n, max(d.value, 0.0)),
}


def kinds(values: Any) -> list[str]:
    return [type(v).__name__ for v in values]


def test_results_keep_the_class() -> None:
    m = Plain([1.0, 2.0])
    assert m.tolist() == [1.0, 2.0] and m.dtype is ad.float32
    results = [m + 1, 1 + m, ad.ones(2) + m, ad.add(ad.ones(2), m), m.sum(), F.relu(m), m[0],
               ad.cat([m, m]), ad.stack([ad.ones(2), m]), ad.zeros_like(m), m.data, m.detach(),
               ad.nn.Linear(2, 3)(m), ad.max(m, 0).values, ad.ones(2).add(m), m.new_ones(2),
               np.exp(m), Plain([[1.0]]).T, m @ m, -m, m == m, *m.split(1), *m]
    assert set(kinds(results)) == {"Plain"}
    assert type(m.shape) is ad.Size and type(m.tolist()) is list and type(m.numpy()) is np.ndarray
    assert type(ad.tensor([1.0])) is ad.Tensor
    target = ad.ones(2)
    ad.add(m, 1, out=target)
    assert type(target) is ad.Tensor and target.tolist() == [2.0, 3.0]


def test_of_two_classes_the_lower_one_answers() -> None:
    a, b = Plain([1.0]), Under([2.0])
    assert kinds([a + b, b + a, ad.cat([a, b])]) == ["Under"] * 3
    with pytest.raises(TypeError, match="no implementation found for 'add'"):
        _ = a + Logged([1.0])


def test_gradients_pass_through_a_subclass() -> None:
    x = ad.tensor([1.0, 2.0], requires_grad=True)
    y = x.as_subclass(Plain)
    assert type(y) is Plain and not y.is_leaf and y.grad_fn is not None
    (y * y).sum().backward()
    assert type(x.grad) is ad.Tensor and x.grad.tolist() == [2.0, 4.0]
    leaf = Plain([1.0, 3.0]).requires_grad_()
    assert leaf.is_leaf
    (grad,) = ad.autograd.grad((leaf ** 2).sum(), leaf)
    assert grad.tolist() == [2.0, 6.0]


def test_a_view_of_a_subclass_takes_part_in_its_history() -> None:
    w = ad.ones(3, requires_grad=True)
    c = (w * 1).as_subclass(Plain)
    part = c[:2]
    part.mul_(3)
    assert type(part) is Plain and c.tolist() == [3.0, 3.0, 1.0]
    c.sum().backward()
    assert w.grad.tolist() == [3.0, 3.0, 1.0]


def test_a_class_sees_the_functions_that_are_called() -> None:
    a = Logged([1.0, 2.0], extra="hello")
    assert a.extra == "hello"
    Logged.log.clear()
    _ = a + 1, ad.add(a, 1), a.sum(), F.relu(a), a @ a, -a, abs(a), a / 2, a**2, a[0], len(a)
    _ = a.shape, a.size(), F.softmax(a, 0), ad.cat([a, a]), a.reshape(1, 2), 2 - a, a.clone()
    assert Logged.log == [
        "add", "add", "sum", "relu", "matmul", "neg", "abs", "div", "pow", "__getitem__", "__len__",
        "__get__", "size", "softmax", "cat", "reshape", "__rsub__", "clone"]


def test_properties_are_passed_as_their_get() -> None:
    seen = []

    class Shape(ad.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            seen.append(func == ad.Tensor.shape.__get__)  # type: ignore[attr-defined]
            # (mypy's stub of property hides that its __get__ is a bound method)
            return super().__torch_function__(func, types, args, kwargs)

    assert Shape([1.0]).shape == (1,) and seen == [True]
    assert overrides.is_tensor_method_or_property(
        ad.Tensor.shape.__get__)  # type: ignore[attr-defined]  # as above
    assert overrides.is_tensor_method_or_property(ad.Tensor.add)
    assert not overrides.is_tensor_method_or_property(ad.nn.functional.linear)


def test_a_class_that_is_no_tensor() -> None:
    d = Diagonal(5, 2.0)
    assert ad.mean(d) == 0.4
    assert ad.mm(ad.ones(2, 2), d) == ("mm", "Tensor", "Diagonal")
    assert ad.ones(2) + d == ad.ones(2).add(d) == ("add", "Tensor", "Diagonal")
    assert ad.add(ad.ones(2), d) == ("ad.add", "Tensor", "Diagonal")
    assert F.relu(Diagonal(2, -1.0), inplace=True).value == 0.0
    with pytest.raises(TypeError, match="'mul' on types that implement __torch_function__"):
        ad.mul(d, 2)


def test_a_mode_sees_every_function() -> None:
    calls = []

    class Log(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            calls.append((overrides.resolve_name(func), len(types)))
            return func(*args, **(kwargs or {}))

    with Log():
        x = ad.ones(2)
        y = x + x
        F.gelu(y)
        ad.rand(2).add_(1)
        Plain([1.0]) * 2
        with Log(), overrides.DisableTorchFunction():
            x.sum()
    assert calls == [("torch.ones", 0), ("torch.Tensor.add", 0), ("torch.nn.functional.gelu", 0),
                     ("torch.rand", 0), ("torch.Tensor.add_", 0), ("torch.Tensor.mul", 1)]
    assert (x + 1).tolist() == [2.0, 2.0] and len(calls) == 6


def test_modes_nest_and_pass_on() -> None:
    order = []

    class Named(overrides.BaseTorchFunctionMode):
        def __init__(self, name: str, answer: Any = None) -> None:
            self.name, self.answer = name, answer

        def __torch_function__(self, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            order.append(self.name)
            if self.answer is not None:
                return self.answer
            return super().__torch_function__(func, types, args, kwargs)

    with Named("outer", 7), Named("inner"):
        assert ad.ones(1) == 7
    assert order == ["inner", "outer"]
    with pytest.raises(NotImplementedError, match="must define __torch_function__"), \
            overrides.TorchFunctionMode():
        ad.ones(1)
    assert ad.ones(1).item() == 1.0


def test_disabled_classes_go_as_plain_tensors() -> None:
    class Off(ad.Tensor):
        __torch_function__ = ad._C._disabled_torch_function_impl

    assert type(Off([1.0]) + 1) is ad.Tensor
    with ad._C.DisableTorchFunctionSubclass():
        assert type(Plain([1.0]) + 1) is ad.Tensor
    assert type(Plain([1.0]) + 1) is Plain
    weight = ad.nn.Parameter(ad.ones(1))
    assert type(weight + 1) is ad.Tensor


def test_parameters_of_a_subclass() -> None:
    data = Plain([1.0, 2.0])
    weight = ad.nn.Parameter(data)
    assert type(weight) is Plain and isinstance(weight, ad.nn.Parameter) and weight.requires_grad
    assert not isinstance(data, ad.nn.Parameter) and not isinstance(weight * 2, ad.nn.Parameter)
    module = ad.nn.Module()
    module.weight = weight
    assert [n for n, _ in module.named_parameters()] == ["weight"]
    (module.weight * 3).sum().backward()
    ad.optim.SGD(module.parameters(), lr=1.0).step()
    assert data.tolist() == [-2.0, -1.0]


def test_making_copying_printing() -> None:
    made = ad.Tensor._make_subclass(Plain, ad.ones(2), True)
    assert type(made) is Plain and made.is_leaf and made.requires_grad
    assert repr(Plain([1.0, 2.0])) == "Plain([1., 2.])"
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert type(twin) is Plain and twin.tolist() == [1.0, 1.0] and twin.requires_grad
    with pytest.raises(ArgumentError, match="int is not a subclass of Tensor"):
        ad.ones(1).as_subclass(int)


def test_functions_of_a_program_ask_too() -> None:
    @overrides.wrap_torch_function(lambda a, b=None: (a, b))
    def product(a: Any, b: Any = None) -> Any:
        return a * b

    HANDLED[product] = lambda a, b=None: "asked"
    assert product(2, 3) == 6 and product(2, b=Diagonal(1, 1.0)) == "asked"
    assert overrides.has_torch_function((1, Diagonal(1, 1.0)))
    assert not overrides.has_torch_function((1, ad.ones(1)))
    assert overrides.is_tensor_like(Diagonal(1, 1.0)) and not overrides.is_tensor_like(1)


def test_the_lists_of_functions() -> None:
    listed = overrides.get_overridable_functions()
    assert ad.add in listed[ad] and ad.Tensor.add_ in listed[ad.Tensor]
    assert ad.tensor in overrides.get_ignored_functions() and ad.tensor not in listed[ad]
    stand_ins = overrides.get_testing_overrides()
    assert stand_ins[ad.linalg.inv](1) == -1
    assert list(inspect.signature(ad.cat).parameters) == ["tensors", "dim", "out", "axis"]


def test_functions_look_alike_and_work_alike() -> None:
    """The functions that ask are the objects they were, with their records and residuals."""
    assert ad.Tensor.neg.__wrapped__ is ad.neg.__wrapped__  # as above: no stub has it
    assert ad.neg.__name__ == "neg" and ad.exp.__doc__
    x = ad.tensor(2.0, requires_grad=True)
    y = ad.exp(x)
    assert Path(y.grad_fn.where().partition(":")[0]).name == "test_overrides.py"


PROGRAM = """
import adjoint as torch
class Scalar:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__
print(torch.mean(Scalar()))
"""


def test_a_program_with_such_a_class_is_noticed_at_import() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True,
                          check=True)
    assert done.stdout.strip() == "mean"


def test_elsewhere_the_error_says_what_to_import() -> None:
    hidden = ("Other = type('Other', (), {'__torch_' + 'function__': "
              "classmethod(lambda *a: 'seen')})")
    code = "import adjoint as torch\n{}\nprint(torch.mean(Other()))"
    for extra, expected in ((hidden, "import adjoint.overrides"),
                            ("import adjoint.overrides\n" + hidden, "seen")):
        done = subprocess.run([sys.executable, "-c", code.format(extra)], cwd=ROOT,
                              capture_output=True, text=True, check=False)
        assert expected in (done.stdout or done.stderr)


def test_without_any_of_it_the_functions_are_as_they_were_written() -> None:
    code = "import adjoint as ad, sys; ad.ones(2).sum(); ad.nn.Linear(2, 2)(ad.ones(2)); " \
           "print('adjoint.overrides' in sys.modules, ad.mean.__code__.co_filename)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                          check=True)
    asked, file = done.stdout.split()
    assert asked == "False" and not file.endswith("intercept.py")
