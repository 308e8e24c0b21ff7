"""`adjoint train` as a user runs it: kill -9, Ctrl-C, full disks, bad input, terminal and log."""
from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from adjoint.cli import commands, main
from adjoint.io.safetensors import load_numpy, read_header
from adjoint.kernels import alloc

ROOT = Path(__file__).parents[1]
TINY = ["--batch", "2", "--context", "12", "--layers", "1", "--heads", "2", "--dim", "8",
        "--sample", "20", "--warmup", "5", "--dropout", "0.1", "--lr", "1e-2"]
CHECKPOINT = "checkpoint.safetensors"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_bytes(b"the quick brown fox jumps over the lazy dog. " * 12)
    return str(path)


def start(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120",
                   "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-m", "adjoint", "train", *arguments],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment, **options)


def finish(*arguments, **options):
    process = start(*arguments, **options)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def fails(*arguments, **options):
    """The one line on stderr of a run that must end with exit code 2.

    Without options for the process it runs in this one, which is quicker.
    """
    if options:
        code, out, err = finish(*arguments, **options)
    else:
        shown, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(errors):
            code = main(["train", *arguments])
        out, err = shown.getvalue(), errors.getvalue()
    assert code == 2, (out, err)
    assert err.count("\n") == 1 and err.startswith("adjoint train: ") and "Traceback" not in err
    return err


def state_of(folder):
    return json.loads(read_header(folder / CHECKPOINT).metadata["state"])


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory):
    """An uninterrupted run: the folder."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    code, out, err = finish("--text", text, *TINY, "--steps", "160", "--save-every", "4",
                            "--every", "1", "--out", str(folder))
    assert code == 0, err
    return folder, out


def assert_same_end(folder, whole):
    assert (folder / "model.safetensors").read_bytes() == (
        whole / "model.safetensors").read_bytes()
    ours, theirs = (load_numpy(f / CHECKPOINT) for f in (folder, whole))
    assert set(ours) == set(theirs)
    for name, array in ours.items():
        assert array.tobytes() == theirs[name].tobytes(), name
    assert state_of(folder) == state_of(whole)


def test_what_a_run_shows_and_writes(text, whole):
    folder, out = whole
    assert sorted(os.listdir(folder)) == [".lock", CHECKPOINT, "loss.svg", "model.safetensors",
                                          "report.html", "sample.txt"]
    assert re.search(r"model: [\d,]+ parameters", out)
    assert re.search(r"memory: the tensors of a step .* take [\d.]+ \w+ at their peak", out)
    parts = re.search(r"at their peak: ([^;\n]*)", out)[1].split(", ")
    names = [p.rsplit(" ", 2)[0] for p in parts]
    assert [n for n in names if n != "gradients"] == ["parameters", "optimizer",
                                                      "kept for backward", "at work"]
    later = re.search(r"; gradients take \S+ kB after it\n", out)   # where the peak has none yet
    assert ("gradients" in names) is (later is None)
    said = re.search(r"a step's tensors took (.*) at their peak \(announced: (.*)\); the process "
                     r"took [\d.]+ MB", out)
    assert said[1] == said[2] or not alloc.available()
    line = re.search(r"Step +1/160: loss=(\S+), grad_norm=(\S+), [\d,]+ tokens/s, peak .*B", out)
    assert line and 5.3 < float(line[1]) < 6.0  # ln 256 = 5.545, and what 8 random features add
    losses = load_numpy(folder / CHECKPOINT)["losses"][:, 1]
    assert len(losses) == 160 and np.mean(losses[-20:]) < losses[0] - 1.5
    assert "validation loss" in out and "--- sample ---" in out and "\x1b" not in out
    held_out = Path(text).read_bytes()[-54:][:12].decode()
    sample = (folder / "sample.txt").read_bytes().decode()
    assert sample.startswith(held_out) and held_out in out.split("--- sample ---")[1]
    assert (folder / "loss.svg").read_text().startswith("<svg")


def test_kill_9_at_random_moments_and_resume_is_bit_for_bit(text, whole, tmp_path):
    folder = tmp_path / "run"
    draw = np.random.default_rng()
    kills = resumed_from_zero = 0
    base = ["--text", text, "--out", str(folder), "--every", "1", "--save-every", "4",
            "--sample", "20"]
    while kills < 12:
        resume = (folder / CHECKPOINT).exists()
        process = start(*base, *(["--resume"] if resume else [*TINY, "--steps", "160"]))
        left = int(draw.integers(0, 10))
        for line in process.stdout:
            left -= line.startswith("Step")
            if left < 0:
                break
        select.select([], [], [], float(draw.uniform(0, 0.006)))
        process.kill()
        _, err = process.communicate()
        assert process.returncode == -signal.SIGKILL, err
        kills += 1
        resumed_from_zero += resume and state_of(folder)["step"] == 0
    code, out, err = finish(*base, "--resume")
    assert code == 0, err
    assert "resumed" in out and resumed_from_zero < kills
    assert [n for n in os.listdir(folder) if n.endswith(".partial")] == []
    assert_same_end(folder, whole[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_after_the_step_and_save(number, text, whole, tmp_path):
    folder = tmp_path / "run"
    process = start("--text", text, *TINY, "--steps", "160", "--save-every", "100",
                    "--every", "1", "--out", str(folder))
    for line in process.stdout:
        if line.startswith("Step  21/"):
            process.send_signal(number)
            break
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number and err == ""
    step = state_of(folder)["step"]
    assert step >= 21 and f"stopped by {number.name} after step {step}" in out
    code, out, err = finish("--resume", "--out", str(folder), "--save-every", "4")
    assert code == 0 and f"resumed {folder} at step {step} of 160" in out
    ours, theirs = (load_numpy(f / "model.safetensors") for f in (folder, whole[0]))
    assert all(ours[k].tobytes() == theirs[k].tobytes() for k in theirs)


def test_bad_text_and_sizes(text, tmp_path):
    empty, short = tmp_path / "empty", tmp_path / "short"
    empty.write_bytes(b"")
    short.write_bytes(b"abc")
    out = ["--out", str(tmp_path / "run")]
    assert "No such file" in fails("--text", str(tmp_path / "none"), *out)
    assert "empty" in fails("--text", str(empty), *out)
    assert "too short" in fails("--text", str(short), *out)
    assert "holds no text" in fails("--text", str((tmp_path / "d").mkdir() or tmp_path / "d"), *out)
    assert "not divisible" in fails("--text", text, "--dim", "10", "--heads", "3", *out)
    assert "--layers must be at least 1" in fails("--text", text, "--layers", "0", *out)
    assert "--every" in fails("--text", text, "--every", "0", *out)
    huge = fails("--text", text, "--context", "64", "--dim", "400000", *out)
    assert "the step needs" in huge and "available" in huge
    deep = fails("--text", text, "--layers", "100000000", *out)     # (said before it is built)
    assert "the step needs more than" in deep and "available" in deep
    assert "more than 1024 threads" in fails("--text", text, "--threads", "99999", *out)
    assert "--threads" in fails("--text", text, "--threads", "0", *out)
    assert not (tmp_path / "run").exists()


def test_options_that_do_not_parse(text):
    code, _, err = finish("--steps", "many")
    assert code == 2 and "invalid int value: 'many'" in err
    assert finish("--no-such-option")[0] == 2
    code, out, _ = finish("--help")
    assert code == 0 and "--resume" in out


@pytest.mark.parametrize("arguments", [
    ["--steps", "many"], ["--bogus"], ["--dtype", "float16"], ["--lr"], ["--text", ""]])
def test_a_wrong_option_is_one_line(arguments):
    """Not the list of all options."""
    line = fails(*arguments)
    assert "--help" in line or "--text is empty" in line
    if arguments[0] != "--bogus":
        assert arguments[0] in line


def test_resuming_to_fewer_steps_than_are_done(text, whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole[0], folder)
    assert "is at step" in fails("--resume", "--out", str(folder), "--steps", "1", "--text", text)


def test_generated_text_cannot_steer_the_terminal(capsys, monkeypatch, text, tmp_path):
    """The sample on the screen has no control characters; the file has the text as it is."""
    from adjoint.cli.train_loop import Run
    monkeypatch.setattr(Run, "sample", lambda self, count: "a\x1b[2J\x07b\n")
    assert main(["train", "--text", text, *TINY, "--steps", "1", "--out", str(tmp_path / "r")]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out and "a\ufffd[2J\ufffdb" in out
    assert (tmp_path / "r" / "sample.txt").read_text() == "a\x1b[2J\x07b\n"


def test_bad_folders(text, whole, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    assert "--out" in fails("--text", text, *TINY, "--out", str(blocked))
    assert "--out" in fails("--text", text, *TINY, "--out", str(blocked / "below"))
    assert "already holds a run" in fails("--text", text, *TINY, "--out", str(whole[0]))
    assert "there is no" in fails("--resume", "--out", str(tmp_path / "none"))


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a folder nobody can write to")
def test_a_folder_without_permission(text):
    assert "--out /proc/run" in fails("--text", text, *TINY, "--out", "/proc/run")


def test_resuming_with_other_sizes_or_text(text, whole, tmp_path):
    folder = ["--resume", "--out", str(whole[0])]
    assert "--dim 16 differs from the 8" in fails(*folder, "--dim", "16")
    other = tmp_path / "other"
    other.write_bytes(b"something else entirely " * 40)
    assert "is not the one this run began with" in fails(*folder, "--text", str(other))


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text"])
def test_a_damaged_checkpoint(damage, whole, tmp_path):
    data = bytearray((whole[0] / CHECKPOINT).read_bytes())
    if damage == "cut":
        del data[len(data) // 2:]
    elif damage == "flip":
        data[-100] ^= 4
    else:
        data = bytearray(b"" if damage == "empty" else b"not a checkpoint at all")
    (tmp_path / CHECKPOINT).write_bytes(data)
    assert "damaged checkpoint" in fails("--resume", "--out", str(tmp_path))


def limited(nbytes):
    import resource
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))


def test_a_full_disk_ends_the_run_and_keeps_the_checkpoint(text, whole, tmp_path):
    folder = tmp_path / "run"
    arguments = ["--text", text, *TINY, "--save-every", "5", "--out", str(folder)]
    assert "what was saved before is unharmed" in fails(
        *arguments, "--steps", "160", preexec_fn=limited(4000))
    assert CHECKPOINT not in os.listdir(folder)
    size = (whole[0] / CHECKPOINT).stat().st_size
    half = size - 80 * 24  # the history grows by 24 bytes a step: full about half-way
    fails(*arguments, "--steps", "160", preexec_fn=limited(half))
    assert [n for n in os.listdir(folder) if n.endswith(".partial")] == []
    kept = state_of(folder)["step"]
    assert 0 < kept < 160
    code, _, err = finish("--resume", "--out", str(folder), "--save-every", "4")
    assert code == 0, err
    ours, theirs = (load_numpy(f / "model.safetensors") for f in (folder, whole[0]))
    assert all(ours[k].tobytes() == theirs[k].tobytes() for k in theirs)


def test_two_runs_in_one_folder(text, tmp_path):
    folder = str(tmp_path / "run")
    process = start("--text", text, *TINY, "--steps", "100000", "--every", "1", "--out", folder)
    for line in process.stdout:
        if line.startswith("Step"):
            break
    assert "in use by another run" in fails("--resume", "--out", folder)
    process.kill()
    process.communicate()


def test_a_diverging_run_says_so(text, tmp_path):
    code, out, err = finish("--text", text, *TINY, "--lr", "1e30", "--clip", "1e30", "--steps",
                            "160", "--out", str(tmp_path / "run"))
    assert code == 1 and "the loss is" in err and "smaller --lr" in err and err.count("\n") == 1


def on_terminal(*arguments):
    """Run with a terminal as standard output; returns the exit code and what it showed."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color",
                   "COLUMNS": "120"}
    process = subprocess.Popen([sys.executable, "-m", "adjoint", "train", *arguments],
                               stdout=theirs, stderr=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not data:
            break
        shown += data
    os.close(ours)
    return process.wait(timeout=60), shown.decode()


def test_a_terminal_gets_a_live_bar(text, tmp_path):
    pytest.importorskip("rich")
    code, shown = on_terminal("--text", text, *TINY, "--steps", "40", "--out", str(tmp_path / "r"))
    assert code == 0, shown
    assert "\x1b[" in shown and "40/40" in shown and "tok/s" in shown and "loss" in shown
    assert "grad_norm=" not in shown
    assert "\x1b[?25l" in shown and "\x1b[?25h" in shown  # the cursor was hidden and came back
    code, shown = on_terminal("--text", text, *TINY, "--steps", "40", "--plain", "--out",
                              str(tmp_path / "p"))
    assert code == 0 and "grad_norm=" in shown and "\x1b[" not in shown


def test_a_closed_pipe_is_no_traceback(text, tmp_path):
    process = start("--text", text, *TINY, "--steps", "2000", "--every", "1", "--out",
                    str(tmp_path / "r"))
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 141 and "Traceback" not in err


def test_the_command_lists_what_exists(capsys):
    assert "train" in commands()
    assert main([]) == 2 and main(["--help"]) == 0
    shown = capsys.readouterr()
    assert all(name in shown.out for name in commands())
    assert main(["nonsense"]) == 2
    assert "unknown command 'nonsense'" in capsys.readouterr().err
    absent = {"memory", "step", "doctor", "bench", "run"} - set(commands())
    for name in absent:
        assert main([name]) == 2
        assert "is not part of this version" in capsys.readouterr().err
