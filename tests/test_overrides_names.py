"""F123: which function a mode is told of, by PyTorch's names, and with which arguments."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import adjoint as ad
import adjoint.nn.functional as F
from adjoint import overrides

# expression -> what PyTorch's modes see: its full name; "2 a,b" behind it: two arguments by
# position, and those by name
SEEN = {
    "x + x": "Tensor.add 2", "1 + x": "Tensor.add 2", "x - x": "Tensor.sub 2",
    "1 - x": "Tensor.__rsub__ 2", "2 * x": "Tensor.mul 2", "x / 2": "Tensor.div 2",
    "1 / x": "Tensor.__rtruediv__ 2", "x // 2": "Tensor.__floordiv__ 2",
    "x % 2": "Tensor.remainder 2", "x ** 2": "Tensor.__pow__ 2", "x @ x": "Tensor.matmul 2",
    "-x": "Tensor.neg 1", "+x": "Tensor.positive 1", "abs(x)": "Tensor.abs 1",
    "x < x": "Tensor.lt 2", "x == x": "Tensor.__eq__ 2", "x != x": "Tensor.ne 2",
    "~(i > 0)": "Tensor.gt 2;Tensor.__invert__ 1", "1 & i": "Tensor.bitwise_and 2",
    "x.__iadd__(1)": "Tensor.add_ 2", "x.__itruediv__(2)": "Tensor.div_ 2",
    "x[0]": "Tensor.__getitem__ 2", "len(x)": "Tensor.__len__ 1",
    "x.__setitem__(0, 1.0)": "Tensor.__setitem__ 3", "bool(s)": "Tensor.__bool__ 1",
    "x.shape": "Tensor.shape.__get__ 1", "x.dtype": "Tensor.dtype.__get__ 1",
    "x.device": "Tensor.device.__get__ 1", "x.layout": "Tensor.layout.__get__ 1",
    "x.grad": "Tensor.grad.__get__ 1", "x.data": "Tensor.data.__get__ 1",
    "x.T": "Tensor.T.__get__ 1", "x.mH": "Tensor.mH.__get__ 1", "x.ndim": "Tensor.ndim.__get__ 1",
    "x.real": "Tensor.real.__get__ 1", "x.is_cuda": "Tensor.is_cuda.__get__ 1",
    "x._version": "Tensor._version.__get__ 1", "x.nbytes": "Tensor.nbytes.__get__ 1",
    "setattr(x, 'requires_grad', True)": "Tensor.requires_grad.__set__ 2",
    "setattr(x, 'grad', None)": "Tensor.grad.__set__ 2",
    "x.add(x)": "Tensor.add 2", "ad.add(x, x)": "add 2", "x.sum(0)": "Tensor.sum 2",
    "ad.sum(x, dim=0)": "sum 1 dim", "x.clip(0, 1)": "Tensor.clip 3", "x.size()": "Tensor.size 1",
    "x.split(1)": "Tensor.split 2 dim", "ad.split(x, 1)": "functional.split 2 dim",
    "ad.einsum('ij->ji', x)": "functional.einsum 2", "ad.sigmoid(x)": "sigmoid 1",
    "ad.unique(i)": "functional.unique 1 dim,return_counts,return_inverse,sorted",
    "ad.zeros(2)": "zeros 1", "ad.zeros_like(x)": "zeros_like 1", "ad.tensor([1.0])": "tensor 1",
    "ad.is_tensor(x)": "", "ad.from_numpy(np.ones(2))": "", "ad.result_type(x, i)": "result_type 2",
    "ad.promote_types(ad.int8, ad.int16)": "promote_types 2",
    "ad.linalg.det(x)": "linalg.det 1", "ad.fft.fft(x)": "fft.fft 1",
    "F.relu(x)": "nn.functional.relu 1 inplace", "F.gelu(x)": "nn.functional.gelu 1",
    "F.dropout(x, 0.5)": "nn.functional.dropout 1 inplace,p,training",
    "F.softmax(x, 0)": "nn.functional.softmax 1 _stacklevel,dim,dtype",
    "F.layer_norm(x, (2,))": "nn.functional.layer_norm 2 bias,eps,weight",
    "F.linear(x, x)": "nn.functional.linear 2", "ad.conv2d(im, im)": "nn.functional.conv2d 2",
    "F.max_pool2d(im, 2)": "nn.functional.max_pool2d 2"
                           " ceil_mode,dilation,padding,return_indices,stride",
    "F.mse_loss(x, x)": "nn.functional.mse_loss 2 reduce,reduction,size_average,weight",
    "ad.nn.init.normal_(x)": "nn.init.normal_ 0 generator,mean,std,tensor",
    "x.to_sparse()": "Tensor.to_sparse 1", "x.tolist()": "Tensor.tolist 1",
}


class Names(overrides.TorchFunctionMode):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(overrides.resolve_name(func)).removeprefix("torch.")
        by_name = " ".join(["", ",".join(sorted(kwargs))]) if kwargs else ""
        self.seen.append(f"{name} {len(args)}{by_name}")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("expression", SEEN)
def test_a_mode_is_told_what_was_called(expression: str) -> None:
    space = {"ad": ad, "F": F, "np": np, "x": ad.ones(2, 2), "i": ad.tensor([1, 2]),
             "s": ad.tensor(1.0), "im": ad.ones(1, 1, 4, 4)}
    with Names() as mode:
        eval(expression, space)  # noqa: S307  # our own text
    assert ";".join(mode.seen) == SEEN[expression]


def test_methods_and_functions_are_told_apart() -> None:
    """A table of answers by function finds the one that was called."""
    table = {ad.Tensor.add: "method", ad.add: "function", ad.Tensor.shape.__get__: "shape"}

    class Answers(ad.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            return table.get(func) or super().__torch_function__(func, types, args, kwargs)

    a: Any = Answers([1.0])
    assert [a + a, a.add(a), ad.add(a, a), a.shape] == ["method", "method", "function", "shape"]
    with Names():
        assert [a + a, ad.add(a, a), a.shape] == ["method", "function", "shape"]
        assert ad.Tensor.shape.__get__ in table and ad.Tensor.shape.__get__(ad.ones(3)) == (3,)


def test_an_accessor_asks_the_modes_outside() -> None:
    """What a mode is told of a property is itself told to the mode around it when it is called."""
    with Names() as outer, Names() as inner:
        assert ad.ones(2).shape == (2,)
    assert inner.seen == outer.seen == ["ones 1", "Tensor.shape.__get__ 1"]


def test_every_overridable_function_asks_a_class() -> None:
    """Each one, called as its signature wants with objects of such a class, asks it, and tells it
    that very function or the one it stands for."""
    asked: list[Any] = []

    class Anything:
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> str:
            asked.append(func)
            return "asked"

    silent = []
    assert ad.fake_quantize_per_channel_affine      # of a module that is loaded late
    for owner, functions in overrides.get_overridable_functions().items():
        for f in functions:
            asked.clear()
            wanted = [p for p in inspect.signature(f).parameters.values()
                      if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
            of_property = isinstance(getattr(f, "__self__", None), property)
            given = 1 if of_property else max(3, len(wanted))
            if f(*[Anything()] * given) != "asked" or len(asked) != 1:
                silent.append((owner, f.__name__))
    assert not silent
    assert len(overrides.get_testing_overrides()) > 1000


def test_the_stand_ins_have_the_arguments_of_their_functions() -> None:
    told = overrides.get_testing_overrides()
    assert inspect.getfullargspec(told[ad.add])[:4] == (
        ["input", "other", "alpha", "out"], None, None, (1, None))
    assert inspect.getfullargspec(told[ad.meshgrid]).varargs
    assert inspect.getfullargspec(told[ad.Tensor.shape.__get__]).args == ["self"]
    assert overrides.resolve_name(ad.Tensor.T.__get__) == "torch.Tensor.T.__get__"
