"""Observers: what the full path tells about ops, modules and backward passes."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import adjoint as ad
from adjoint.core.modes import Observer, watchers


class Log(Observer):
    """Writes down every call."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def before(self, op: Any, args: Any, attrs: Any) -> None:
        self.lines.append(f"> {op.name}")

    def after(self, op: Any, args: Any, attrs: Any, made: Any, node: Any) -> None:
        at = watchers.module_path()
        self.lines.append(f"< {op.name} {node.name() if node else '-'}" + (f" @{at}" if at else ""))

    def begin_walk(self, walk: Any) -> None:
        self.lines.append(f"walk {len(walk.order)}")

    def before_backward(self, node: Any, ct: Any) -> None:
        self.lines.append(f"^ {node.name()}")

    def backward(self, node: Any, ct: Any, results: Any) -> None:
        self.lines.append(f"v {node.name()}")

    def accumulated(self, leaf: Any) -> None:
        self.lines.append(f"grad {tuple(leaf.shape)}")

    def end_walk(self, walk: Any) -> None:
        self.lines.append("end")

    def enter_module(self, path: str, module: Any) -> None:
        self.lines.append(f"( {path} {type(module).__name__}")

    def leave_module(self, path: str, module: Any) -> None:
        self.lines.append(f") {path}")


@contextmanager
def logged() -> Iterator[list[str]]:
    log = Log()
    held = watchers.push(watchers.observers, log)
    try:
        yield log.lines
    finally:
        watchers.pop(held)


def test_ops_and_backward_in_order() -> None:
    x = ad.ones(2, requires_grad=True)
    with logged() as lines:
        (x * 3).sum().backward()
    assert lines == ["> mul", "< mul MulBackward0", "> sum_all", "< sum_all SumBackward0", "walk 2",
                     "^ SumBackward0", "v SumBackward0", "^ MulBackward0", "v MulBackward0",
                     "grad (2,)", "end"]


def test_without_gradient_and_in_place() -> None:
    x = ad.ones(2)
    with logged() as lines:
        x.add_(1)
        with ad.no_grad():
            x * 2
    assert lines == ["> add", "< add -", "> mul", "< mul -"]


def test_module_paths_through_lists() -> None:
    class Net(ad.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = ad.nn.Sequential(ad.nn.Linear(2, 2), ad.nn.ReLU())
            self.heads = ad.nn.ModuleList([ad.nn.Linear(2, 1)])

        def forward(self, x: Any) -> Any:
            return self.heads[0](self.body(x))

    net = Net()
    with logged() as lines:
        net(ad.ones(1, 2))
    assert lines == ["(  Net", "( body Sequential", "( body.0 Linear", "> linear",
                     "< linear AddmmBackward0 @body.0", ") body.0", "( body.1 ReLU", "> relu",
                     "< relu ReluBackward0 @body.1", ") body.1", ") body", "( heads.0 Linear",
                     "> linear", "< linear AddmmBackward0 @heads.0", ") heads.0", ") "]
    assert watchers.module_path() == ""


def test_a_failed_walk_ends() -> None:
    x = ad.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: 1 / 0)
    with logged() as lines, pytest.raises(ZeroDivisionError):
        y.sum().backward()
    assert lines[-1] == "end"


def test_nothing_is_told_outside() -> None:
    with logged() as lines:
        pass
    ad.ones(2).add_(1)
    assert lines == []
