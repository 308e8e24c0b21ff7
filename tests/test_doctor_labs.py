"""The labs: each program's mistake is found on its line; without the mistake nothing is found."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers_healthy_fields import PROGRAMS
from helpers_loading import load

import adjoint as ad
from adjoint.base.errors import AutogradError
from adjoint.inspect.doctor import codes

LABS = sorted((Path(__file__).resolve().parent.parent / "examples" / "labs").glob("*.py"))


def run(path: Path, healthy: bool) -> list[Any]:
    """What the doctor finds in a lab; our errors end the program, as they would end a script."""
    module = load(path)
    doctor = ad.doctor(quiet=True)
    try:
        with doctor:
            module.main(healthy)
    except AutogradError:
        assert not healthy
    return doctor.findings


@pytest.mark.row("F87", "F88", "F92", "F93", "F95", "F126", "F50", "F23")
@pytest.mark.parametrize("path", LABS, ids=lambda p: p.stem)
def test_a_mistake_is_found_on_its_line(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    code = text[3:8]
    line = 1 + next(i for i, row in enumerate(text.splitlines())
                    if re.search(rf"# {code}$", row))
    found = [(f.code, f.line, Path(f.file).name) for f in run(path, healthy=False)]
    assert found == [(code, line, path.name)]


@pytest.mark.parametrize("path", LABS, ids=lambda p: p.stem)
def test_without_it_nothing_is_found(path: Path) -> None:
    assert [f.one_line() for f in run(path, healthy=True)] == []


def test_every_code_has_a_lab() -> None:
    labs = {path.read_text(encoding="utf-8")[3:8] for path in LABS}
    assert labs == {c.code for c in codes()}
    assert len(labs) == 25


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_healthy_programs_have_no_findings(program: Any) -> None:
    with ad.doctor(quiet=True) as doctor:
        program()
    assert [f.one_line() for f in doctor.findings] == []


def test_there_are_enough_healthy_programs() -> None:
    assert len(PROGRAMS) >= 30
