"""PyTorch's names: docs/compat.md is true, the names of real programs are here, a name that is not
says what is near (F123, F126)."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers_loading import load

import adjoint as ad

ROOT = Path(__file__).resolve().parent.parent
ROOTS = {"F": "nn.functional", "Module": "nn.Module"}
# What only makes sense with CUDA, ONNX, several processes or PyTorch's own profiler.
ELSEWHERE = (
    "torch.distributed. torch.onnx. torch.hub. torch.profiler. torch.multiprocessing."
    " torch.cuda.amp. torch.amp. torch.distributions. torch.sparse_coo_tensor torch.spmm"
    " Tensor.to_sparse"
).split()


@pytest.fixture(scope="module")
def compat() -> ModuleType:
    return load("scripts/compat.py")


def test_the_page_is_true(compat: ModuleType) -> None:
    """Rewrite it by `python scripts/compat.py` when names come or go."""
    assert compat.main(["--check"]) == 0, "docs/compat.md is out of date: run scripts/compat.py"


def test_what_grad_fn_prints() -> None:
    """The names of nodes, here and in PyTorch, are those of the table (F2)."""
    table = load("scripts/grad_fn_names.py")
    expressions = [e for e, _, _ in table.rows()]
    assert table.names(ad, expressions) == {e: ours for e, _, ours in table.rows()}
    torch = pytest.importorskip("torch")
    assert table.names(torch, expressions) == {e: theirs for e, theirs, _ in table.rows()}


def test_every_name_is_accounted_for(compat: ModuleType) -> None:
    """Each of PyTorch's names is in one of the three columns, once."""
    names = compat.read_names()
    for section in compat.sections():
        listed = [*section.here, *(n for n, _ in section.differs), *section.unexplained]
        listed += [n for group in section.absent.values() for n in group]
        assert sorted(listed) == sorted(names[section.module]), section.module
    assert sum(map(len, names.values())) > 2000


def test_the_core_modules_are_whole(compat: ModuleType) -> None:
    """No name of these modules is missing without a reason."""
    whole = ("nn nn.Module nn.functional nn.init nn.utils nn.utils.rnn nn.utils.parametrize optim"
             " optim.lr_scheduler optim.swa_utils utils.data autograd autograd.functional"
             " autograd.forward_ad linalg fft func signal.windows masked").split()
    found = {s.module: s.unexplained for s in compat.sections()}
    assert {m: found[m] for m in whole if found[m]} == {}


def resolve(name: str) -> Any:
    """The object that a program gets for one of PyTorch's names."""
    first, *rest = name.split(".")
    where: Any = ad
    for part in [*(ROOTS.get(first, first).split(".") if first != "torch" else ()), *rest]:
        where = getattr(where, part)
    return where


def test_names_of_real_programs() -> None:
    """All of them, except what belongs to devices and services that are not here."""
    lines = (ROOT / "scripts" / "compat_programs.txt").read_text(encoding="utf-8").splitlines()
    absent = []
    for line in lines[1:]:
        name = line.split()[1]
        try:
            resolve(name)
        except AttributeError:
            absent.append(name)
    assert len(lines) > 250
    assert not [n for n in absent if not n.startswith(tuple(ELSEWHERE))]


@pytest.mark.parametrize(
    ("where", "name", "near"),
    [
        ("", "onse", "'ones'"),
        ("nn", "Linera", "'Linear'"),
        ("nn.functional", "cross_entrop", "'cross_entropy'"),
        ("optim", "AdamWW", "'AdamW'"),
        ("linalg", "sovle", "'solve'"),
        ("utils.data", "Dataloader", "'DataLoader'"),
        ("autograd", "functionals", "'functional'"),
    ],
)
def test_a_missing_name_says_what_is_near(where: str, name: str, near: str) -> None:
    """F126: AttributeError with the nearest names and the page that lists them all."""
    module = resolve(f"torch.{where}") if where else ad
    with pytest.raises(AttributeError, match=f"no attribute '{name}'.*{near}.*docs/compat.md"):
        getattr(module, name)


def test_a_missing_method_says_what_is_near() -> None:
    """F126: tensors too; asking whether a name is there stays cheap and quiet."""
    x = ad.ones(2)
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'reshap'; .*"
                                             "'reshape'.*docs/compat.md"):
        _ = x.reshap
    assert not hasattr(x, "no_such_method")


# Parameters that mean nothing here, or carry PyTorch's own internals.
INTERNAL = {"device", "dtype", "foreach", "capturable", "fused", "decoupled_weight_decay",
            "_stacklevel", "_random_samples", "_freeze", "_weight", "inplace", "args", "kwargs"}


def parameters(f: Any) -> list[tuple[str, Any]]:
    """(name, default) of what a user passes, in order."""
    found = inspect.signature(f).parameters.values()
    return [(p.name, p.default) for p in found if p.name not in INTERNAL and p.name != "self"]


@pytest.mark.row("F123")
@pytest.mark.parametrize("module", ["nn", "optim", "optim.lr_scheduler", "nn.init", "nn.utils"])
def test_signatures(module: str) -> None:
    """Parameters have PyTorch's names, order and defaults."""
    torch = pytest.importorskip("torch")
    theirs, ours = torch, ad
    for part in module.split("."):
        theirs, ours = getattr(theirs, part), getattr(ours, part)
    wrong, compared = [], 0
    for name in sorted(vars(theirs)):
        mine, their = getattr(ours, name, None), getattr(theirs, name)
        if name.startswith("_") or mine is None or not callable(their):
            continue
        try:
            want, got = parameters(their), parameters(mine)
        except (TypeError, ValueError):
            continue
        compared += 1
        if got == [] and inspect.isclass(mine):  # made by __new__: its own tests call it
            continue
        both = [p for p in want if p[0] in dict(got)]
        if [n for n, _ in want] != [n for n, _ in got if n in dict(want)]:
            wrong.append(f"{name}: {[n for n, _ in got]} instead of {[n for n, _ in want]}")
        for n, default in both:
            mine_default = dict(got)[n]
            plain = isinstance(default, bool | int | float | str | type(None))
            if plain and mine_default != default:
                wrong.append(f"{name}({n}={mine_default!r}) instead of {default!r}")
    assert compared > 5
    assert not wrong, "\n".join(wrong)
