"""The page as a file, the server and the command: sizes, safety, exit codes; no browser."""
from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers_walks import EVIL, five_thousand, relu_of_linear

import adjoint as ad
from adjoint.cli import main
from adjoint.inspect.page import assemble, asset, embedded, fingerprint
from adjoint.inspect.serve import Server

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 5_000_000
Step = Callable[..., tuple[int, str, str]]

SCRIPT = '''\
import sys
import adjoint as ad
w = ad.tensor(3.0, requires_grad=True)
loss = (w * 2) ** 2
loss.backward()
print("arguments", sys.argv[1:])
'''


def data_of(html: str) -> Any:
    found = re.search(r'<script type="application/json" id="walk">(.*?)</script>', html, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_one_file_with_everything_and_nothing_from_outside() -> None:
    html = relu_of_linear().html()
    assert html.startswith("<!DOCTYPE html>")
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)""", html)
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in html and "@import" not in html and "url(#" in html
    assert data_of(html)["lines"][0] == "z1 = mm(x, W); saves x (16 B)"


def test_the_policy_names_exactly_this_script_and_style() -> None:
    html = relu_of_linear().html()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    assert "default-src 'none'" in policy[1] and "unsafe" not in policy[1]
    script = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    style = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    assert len(script) == len(style) == 1
    assert fingerprint(script[0]) in policy[1] and fingerprint(style[0]) in policy[1]


def test_the_script_never_writes_markup() -> None:
    for name in ("walk.js", "gallery.js"):
        code = asset(name)
        for bad in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
                    "new Function", "fetch(", "XMLHttpRequest", "import("):
            assert bad not in code, f"{name} uses {bad}"


@pytest.mark.parametrize("text", [EVIL, "<!--<script>", "\u2028\u2029", "a & b", "\ud800", "]]>"])
def test_any_text_survives_embedding(text: str) -> None:
    inside = embedded({"t": text})
    assert not re.search("[<>&\u2028\u2029]", inside)
    assert json.loads(inside) == {"t": text}
    html = assemble("walk.html", text, "", "", {"t": text})
    assert "<script>window" not in html and "<!--" not in html


def test_evil_names_titles_and_lines_stay_data(tmp_path: Path) -> None:
    source = tmp_path / "evil.py"
    source.write_text(f"import adjoint as ad\nd = {{{EVIL!r}: ad.ones(2, requires_grad=True)}}\n"
                      f"(d[{EVIL!r}] * 2).sum().backward()  # {EVIL}\n", encoding="utf-8")
    with ad.record(EVIL) as walk:
        exec(compile(source.read_text(encoding="utf-8"), str(source), "exec"), {})
    html = walk.html()
    assert html.count("<script>") == 1 and "<img" not in html and "</script><script>w" not in html
    data = data_of(html)
    assert data["title"] == EVIL and any(EVIL in line for line in data["lines"])
    assert any(EVIL in text for _, text in data["files"][0]["lines"])


def test_five_thousand_events_fit_in_five_megabytes() -> None:
    html = five_thousand()
    assert len(data_of(html)["events"]) >= 5000
    assert len(html.encode()) <= LIMIT


def test_save_is_atomic_and_json_is_plain(tmp_path: Path) -> None:
    walk = relu_of_linear()
    target = walk.save(tmp_path / "walk.json")
    assert json.loads(target.read_text(encoding="utf-8"))["title"] == "relu(x @ W + b)"
    page = walk.save(str(tmp_path / "walk.html"))
    assert page.read_text(encoding="utf-8") == walk.html()
    with pytest.raises(FileNotFoundError):
        walk.save(tmp_path / "no folder" / "walk.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["walk.html", "walk.json"]


def test_an_empty_walk_has_a_page() -> None:
    with ad.record() as walk:
        pass
    assert data_of(walk.html())["events"] == []


# ---------------------------------------------------------------- server
def ask(server: Server, path: str = "/", host: str | None = None, method: str = "GET") -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), dict(answer.getheaders())


def test_the_server_listens_on_this_machine_only_and_serves_one_page() -> None:
    with Server("<!DOCTYPE html>é") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert server.server_address[0] == "127.0.0.1"
        status, body, headers = ask(server)
        assert (status, body) == (200, "<!DOCTYPE html>é")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert ask(server, method="HEAD")[:2] == (200, "")
        assert ask(server, "/etc/passwd")[0] == 404
        assert ask(server, "/../page.py")[0] == 404
        assert ask(server, host="evil.example")[0] == 403
        assert ask(server, method="POST")[0] == 501
        others = {a[4][0] for a in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
        for other in others - {"127.0.0.1"}:
            with pytest.raises(OSError):
                socket.create_connection((other, server.server_port), timeout=2)
        server.shutdown()


# ---------------------------------------------------------------- command
@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
         capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run `adjoint step ...` in `tmp_path`: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", list(sys.argv))
        monkeypatch.setattr(sys, "path", list(sys.path))
        return (main(["step", *words]), *capsys.readouterr())
    return run


@pytest.mark.row("F104")
def test_the_command_runs_a_script_with_its_arguments_and_writes_the_page(
        tmp_path: Path, step: Step) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    code, out, errors = step("train.py", "-o", "out.html", "--budget", "1kB", "--lr", "0.1", "--",
                             "-o", "x")
    assert code == 0, errors
    assert "arguments ['--lr', '0.1', '-o', 'x']" in out
    assert "7 events, peak" in out and "wrote out.html" in out
    data = data_of((tmp_path / "out.html").read_text(encoding="utf-8"))
    assert data["budget"] == 1000 and data["title"] == "train.py"
    assert data["files"][0]["name"] == "train.py"
    assert step("train.py")[0] == 0 and (tmp_path / "train.walk.html").is_file()


def test_the_example_of_sixty_lines(tmp_path: Path, step: Step) -> None:
    example = ROOT / "examples" / "walk_through.py"
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 60
    code, out, errors = step(str(example))
    assert code == 0, errors
    assert "step 1: loss" in out and "wrote walk_through.walk.html" in out
    data = data_of((tmp_path / "walk_through.walk.html").read_text(encoding="utf-8"))
    kinds = {data["kinds"][e[0]] for e in data["events"]}
    assert kinds == {"enter", "leave", "op", "begin", "node", "grad", "end", "zero", "write"}
    assert [g[1] for g in data["groups"][1:4]] == ["Classifier", "first", "body"]


def test_a_program_that_imports_torch(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("""\
import torch
net = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Tanh())
net(torch.ones(3, 2)).sum().backward()
""", encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "adjoint", "step", "--as-torch", "--text",
                           "a.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "linear(" in done.stdout and "net.0.weight.grad = " in done.stdout


def test_a_failing_script_keeps_its_walk_and_its_exit_code(tmp_path: Path, step: Step) -> None:
    (tmp_path / "a.py").write_text(SCRIPT + "raise ValueError('late')\n", encoding="utf-8")
    code, out, errors = step("a.py", "--text")
    assert code == 1 and "ValueError: late" in errors
    assert "w.grad = 24 (was None)" in out and "ValueError: late" in out
    (tmp_path / "b.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    code, out, errors = step("b.py", "--text")
    assert (code, out) == (3, "\n") and "ran no operation" in errors


def test_misuse_is_said_in_one_line(tmp_path: Path, step: Step) -> None:
    (tmp_path / "a.py").write_text(SCRIPT, encoding="utf-8")
    for words, said in (((), "give a script"), (("gone.py",), "no file gone.py"),
                        (("--budget", "many", "a.py"), "write 500kB or 2GB"),
                        (("a.py", "-o", "no/such/page.html"), "no folder no/such"),
                        (("a.py", "--limit", "0"), "limit = 0")):
        code, _, errors = step(*words)
        assert code == 2 and said in errors and "Traceback" not in errors


def test_the_command_serves_until_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SCRIPT, encoding="utf-8")
    code = (f"import sys; sys.path.insert(0, {str(ROOT)!r}); from adjoint.cli import main; "
            "raise SystemExit(main(sys.argv[1:]))")
    process = subprocess.Popen([sys.executable, "-c", code, "step", "a.py", "--serve"],
                               cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", lines[1])
        assert found, lines
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=20)
        connection.request("GET", "/")
        assert "w.grad = 24" in connection.getresponse().read().decode()
    finally:
        process.terminate()
        process.communicate(timeout=30)
