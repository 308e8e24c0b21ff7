"""The scripts at the top, `run` and `.ci/run`, with a stand-in for Python: nothing is fetched."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHELL = shutil.which("dash") or "/bin/sh"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a POSIX shell script")


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


# Stands for python3: answers the version question as Python 3.$FAKE_MINOR would, makes an
# environment whose python is this script again, and writes down what it was asked to do.
PYTHON = """#!/bin/sh
case "$*" in
  "-V") echo "Python 3.${FAKE_MINOR:-12}.0" ;;
  "-c import sys"*) [ "${FAKE_MINOR:-12}" -ge 11 ] ;;
  "-c ") exit 0 ;;
  "-m venv "*)
    mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; cp "$0" "$3/bin/adjoint"; echo venv >>"$LOG" ;;
  "-m pip install "*)
    for last; do :; done; echo "install ${last##*[}" >>"$LOG"; exit "${FAKE_PIP:-0}" ;;
  *) printf 'ran' >>"$LOG"; printf ' <%s>' "$@" >>"$LOG"; printf ' in %s\\n' "$(pwd)" >>"$LOG" ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the script in `a project`, and a PATH with a fake python3 and little else."""
    folder = tmp_path / "a project"
    folder.mkdir()
    shutil.copy2(ROOT / "run", folder / "run")
    shutil.copy2(ROOT / "pyproject.toml", folder / "pyproject.toml")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("dirname", "cksum", "cat", "rm", "mkdir", "sleep", "cp", "ls", "sed", "tr"):
        (tools / name).symlink_to(str(shutil.which(name)))
    executable(tools / "python3", PYTHON)
    return folder


def run(project: Path, *words: str, cwd: Path | None = None, **environment: str) -> tuple[int, str]:
    base = {"PATH": str(project.parent / "bin"), "LOG": str(project.parent / "log")}
    done = subprocess.run(
        [SHELL, str(project / "run"), *words],
        cwd=cwd or project,
        env={**base, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stderr


def log(project: Path) -> list[str]:
    path = project.parent / "log"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def test_the_scripts_are_executable_and_parse() -> None:
    for name, shell in (("run", SHELL), (".ci/run", "bash")):
        assert os.access(ROOT / name, os.X_OK), name
        if shutil.which(shell):
            subprocess.run([shell, "-n", str(ROOT / name)], check=True, timeout=60)


def test_train_installs_once_and_keeps_the_callers_folder(project: Path) -> None:
    """Relative paths in the arguments mean what they mean to the caller."""
    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir()
    for _ in range(2):
        assert run(project, "train", "--text", "a b.txt", cwd=elsewhere)[0] == 0
    assert log(project) == [
        "venv",
        "install train]",
        "install jit]",
        *[f"ran <train> <--text> <a b.txt> in {elsewhere}"] * 2,
    ]


def test_the_environment_is_remade_when_pyproject_changes(project: Path) -> None:
    run(project, "test")
    (project / "pyproject.toml").write_text("# changed", encoding="utf-8")
    run(project, "test", "-x")
    assert log(project) == [
        *["venv", "install dev]", f"ran <-m> <pytest> in {project}"],
        *["venv", "install dev]", f"ran <-m> <pytest> <-x> in {project}"],
    ]


def test_the_environment_is_remade_when_the_folder_moves(project: Path) -> None:
    run(project, "test")
    moved = project.rename(project.with_name("moved"))
    assert run(moved, "test")[0] == 0
    assert log(moved).count("venv") == 2


def test_dev_serves_train_too(project: Path) -> None:
    run(project, "test")
    run(project, "train")
    assert log(project)[-1] == f"ran <train> in {project}"
    assert log(project).count("install dev]") == 1 and "install train]" not in log(project)


def test_a_failed_installation_says_so_and_is_tried_again(project: Path) -> None:
    status, said = run(project, "test", FAKE_PIP="1")
    assert status == 2 and "installing adjoint[dev] failed" in said
    assert not (project / ".venv.lock").exists()
    assert run(project, "test")[0] == 0
    assert log(project)[-1].startswith("ran <-m> <pytest>")


def test_training_works_without_compiled_kernels(project: Path) -> None:
    """llvmlite has no wheel everywhere; the main job must not need it."""
    tools = project.parent / "bin"
    failing = PYTHON.replace('exit "${FAKE_PIP:-0}"', "case $last in *jit]) exit 1 ;; esac")
    executable(tools / "python3", failing)
    status, said = run(project, "train")
    assert status == 0 and "NumPy kernels" in said


def test_no_python_is_one_clear_line(project: Path) -> None:
    (project.parent / "bin" / "python3").unlink()
    status, said = run(project, "train")
    assert status == 2 and said.startswith("run: no python3 found. Install Python 3.11 or newer")
    assert not (project / ".venv").exists() and not (project / ".venv.lock").exists()


def test_an_old_python_is_one_clear_line(project: Path) -> None:
    status, said = run(project, "train", FAKE_MINOR="9")
    assert status == 2 and said.startswith(
        "run: Python 3.11 or newer is needed; python3 here is Python 3.9.0"
    )


def test_a_newer_python_beside_an_old_one_is_found(project: Path) -> None:
    tools = project.parent / "bin"
    executable(tools / "python3.12", PYTHON)
    executable(tools / "python3", PYTHON.replace("${FAKE_MINOR:-12}", "9"))
    assert run(project, "train")[0] == 0


def test_a_wrong_interpreter_named_by_the_user_is_refused(project: Path) -> None:
    status, said = run(project, "train", ADJOINT_PYTHON="/no/such/python")
    assert status == 2 and "ADJOINT_PYTHON=/no/such/python is not a Python >= 3.11" in said


def test_the_lock_of_a_dead_process_is_taken_over(project: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait(60)
    (project / ".venv.lock").mkdir()
    (project / ".venv.lock" / "pid").write_text(str(dead.pid), encoding="utf-8")
    assert run(project, "test")[0] == 0
    assert not (project / ".venv.lock").exists()


@pytest.mark.parametrize(("words", "status"), [(["help"], 0), ([], 0), (["tarin"], 2)])
def test_usage(project: Path, words: list[str], status: int) -> None:
    assert run(project, *words)[0] == status
    assert log(project) == []
