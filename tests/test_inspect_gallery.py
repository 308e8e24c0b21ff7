"""The gallery: examples from real runs with the right numbers, questions, practice with checks."""
from __future__ import annotations

import html as markup
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers_walks import chromium, screenshot

import adjoint as ad
from adjoint.inspect import gallery_text as said
from adjoint.inspect.gallery import at_the_loss, gallery, write_gallery
from adjoint.inspect.gallery_examples import EXAMPLES, Run, run_all
from adjoint.inspect.practice import check, check_engine, problems

ROOT = Path(__file__).resolve().parent.parent
ENGINE = ROOT / "examples" / "scratch_engine.py"


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return run_all()


@pytest.fixture(scope="module")
def page(runs: dict[str, Run]) -> str:
    return gallery(runs)


def visible(page: str) -> str:
    body = page[page.index("<main>"):page.index("</main>")]
    return " ".join(markup.unescape(re.sub(r"<[^>]+>", " ", body)).split())


@pytest.mark.row("F5", "F8", "F9", "F10", "F29", "F30")
def test_examples_are_run_and_their_numbers_are_right(runs: dict[str, Run]) -> None:
    fan = runs["fan_out"].scope
    assert [fan[k].item() for k in ("a", "f")] == [7.0, 21.0]
    assert (fan["x1"].grad.item(), fan["x2"].grad.item()) == (10.0, 3.0)
    forward = runs["forward_mode"]
    assert [forward.scope[k].item() for k in ("value", "along_x1", "along_x2")] == [21.0, 10.0, 3.0]
    assert all(e.node < 0 and e.saved == 0 for e in forward.walk)
    hand = runs["chain_rule"].scope
    x, w1, w2 = 0.5, np.array([1.0, -2.0]), np.array([3.0, 1.0])
    h = 1 / (1 + np.exp(-w1 * x))
    y = (w2 * h).sum()
    lines = {"y": 2 * y, "h": 2 * y * w2, "a": 2 * y * w2 * h * (1 - h),
             "x": (2 * y * w2 * h * (1 - h) * w1).sum()}
    for name, want in lines.items():
        np.testing.assert_allclose(hand[name].grad.numpy(), want, rtol=1e-5)
    assert len({t.name for t in runs["two_layers"].walk.tensors}
               & {"x", "W1", "b1", "z", "h", "W2", "b2", "y", "target", "loss"}) == 10
    soft = runs["softmax"].scope
    assert np.abs(soft["x"].grad.numpy()).max() < 1e-7
    p = np.exp([1.0, 2.0, 3.0]) / np.exp([1.0, 2.0, 3.0]).sum()
    np.testing.assert_allclose(soft["z"].grad.numpy()[0], p - [0, 0, 1], rtol=1e-5)


@pytest.mark.row("F70", "F71")
def test_checkpointing_holds_less_and_runs_forward_again(runs: dict[str, Run]) -> None:
    deep, short = runs["deep"], runs["checkpoint"]
    for a, b in zip(deep.scope["layers"], short.scope["layers"], strict=True):
        assert a.grad.numpy().tobytes() == b.grad.numpy().tobytes()
    one = 8 * 16 * 4                                         # an activation
    assert at_the_loss(deep.walk) == one + 6 * 2 * one + 4   # x, mm becomes tanh and sin, the loss
    assert at_the_loss(short.walk) == one + 6 * one + 4
    assert [sum(e.text == "sin" for e in r.walk if e.kind == "op") for r in (deep, short)] == [6, 6]
    assert [sum(e.text == "tanh" for e in r.walk if e.kind == "op")
            for r in (deep, short)] == [6, 12]


def test_the_random_state_is_left_as_it_was() -> None:
    ad.manual_seed(3)
    want = ad.randn(2)
    ad.manual_seed(3)
    run_all()
    assert (ad.randn(2) == want).all()


@pytest.mark.row("F103", "F104", "F105", "F106")
def test_the_page_says_what_the_runs_did(page: str) -> None:
    text = visible(page)
    assert "0 rules had run , 0 of 9 tensors had a gradient, and the tape held 32 B" in text
    assert "x1.grad = 10 (was None)" in text and "x2.grad = 3 (was None)" in text
    for name in ("data", "grad_fn", "saved_tensors", "grad", "requires_grad", "next_functions"):
        assert f"<code>.{name}</code>" in page
    cards = page[page.index('id="formulas"'):page.index('id="adjoints"')]
    assert re.search(r"dL/dW = <mark>x</mark>ᵀ @ ct", cards)
    assert re.search(r"dL/dx = <mark>p</mark>·\(ct - Σ ct·<mark>p</mark>\)", cards)
    assert "keeps nothing" in cards                          # the addition


@pytest.mark.row("F65", "F111", "F112", "F113", "F114", "F115", "F133")
def test_tables_pictures_and_lists(page: str) -> None:
    text = visible(page)
    for number in ("6.3 M", "18.9 M", "201.3 M", "25.2 M"):
        assert number in text
    assert "f = a·x1 ├─ a = x1 + x2" in text
    assert page.count("<img alt=") == 1 and "data:image/svg+xml;base64," in page
    assert len(said.COMPARISON) == 7                         # six rows under a heading
    assert [len(lines) for _, lines in said.TAKEAWAYS] == [8, 5, 7, 5]
    for words in ("v̄ᵢ = ∂L/∂vᵢ", "1970 Linnainmaa", "1986 Rumelhart", "micrograd"):
        assert words in text


@pytest.mark.row("F107", "F109", "F110")
def test_questions_have_one_right_choice_and_a_reason(page: str) -> None:
    quizzes = (*said.CONCEPTS, said.MEMORY)
    assert len(said.CONCEPTS) == 4 and len(said.INTERVIEW) == 5 and len(said.FAQ) == 5
    for q in quizzes:
        assert len(set(q.choices)) == len(q.choices) == 4 and q.why
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert data
    assert [q["key"] for q in json.loads(data[1])["quiz"]] == [q.key for q in quizzes]
    assert said.MEMORY.choices[0].startswith("Gradient checkpointing")


@pytest.mark.row("F68", "F108")
def test_practice_answers_are_computed_and_checked() -> None:
    found = problems()
    assert list(found) == ["p1", "p2", "p3", "p4", "p5", "p6"]
    assert found["p1"].answer == (8.0, -8.0, 16.0) and found["p3"].answer == (6.0,)
    assert max(map(abs, found["p2"].answer)) < 1e-12
    assert found["p4"].answer[0] == pytest.approx(1 - np.tanh(0.5) ** 2)
    assert found["p5"].answer[0] == pytest.approx(5.13, abs=0.01)
    for key, problem in found.items():
        assert check(key, problem.answer)
        wrong = check(key, [v + 1 for v in problem.answer])
        assert not wrong and problem.parts[0] in wrong.text and problem.why in wrong.text
    assert not check("p1", [8.0, -8.0]) and "3 number(s)" in check("p1", 1).text
    assert not check("p3", float("nan"))
    with pytest.raises(ValueError, match="no practice problem 'p9'"):
        check("p9", 1)


@pytest.mark.row("F27", "F108")
def test_an_engine_is_judged_by_its_gradients(tmp_path: Path) -> None:
    good = check_engine(ENGINE)
    assert good, good.text
    source = ENGINE.read_text(encoding="utf-8")

    def broken(old: str, new: str) -> str:
        assert old in source
        path = tmp_path / "engine.py"
        path.write_text(source.replace(old, new), encoding="utf-8")
        verdict = check_engine(path)
        assert not verdict
        return verdict.text

    assert "used twice" in broken("share if known is None else known + share", "share")
    assert broken("ct @ b.data.T", "ct @ b.data.T * 2").startswith("a @ m")
    assert broken("mask = x.data > 0", "mask = x.data > -99").startswith("training")
    assert "no class Tensor" in broken("class Tensor:", "class Other:")
    assert "no Python file" in check_engine(tmp_path / "gone.py").text


def test_the_gallery_is_small_and_links_to_its_pages(tmp_path: Path) -> None:
    written = write_gallery(tmp_path / "gallery")
    assert [p.name for p in written] == ["index.html", *(f"{e.name}.html" for e in EXAMPLES)]
    assert sum(p.stat().st_size for p in written) < 1_500_000
    index = written[0].read_text(encoding="utf-8")
    links = re.findall(r'href="([^"#]+)"', index)
    for link in links:
        assert link.startswith("https://") or (tmp_path / "gallery" / link).is_file()
    anchors = re.findall(r'href="#([^"]+)"', index)
    assert anchors and all(f'id="{a}"' in index for a in anchors)


# ---------------------------------------------------------------- in the browser
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.mark.row("F107", "F108")
def test_quiz_and_practice_in_the_browser(browser: Any, page: str, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    path.write_text(page, encoding="utf-8")
    errors: list[str] = []
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    tab = context.new_page()
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    tab.goto(path.as_uri())
    assert tab.inner_text("#score") == "0 / 5"
    screenshot(tab, "gallery", tmp_path)
    first = tab.locator(".quiz").nth(0)
    first.get_by_text(said.CONCEPTS[0].choices[0]).click()
    assert first.locator("[role=status]").inner_text().startswith("Right.")
    second = tab.locator(".quiz").nth(1)
    second.get_by_text(said.CONCEPTS[1].choices[2]).click()
    assert second.locator("[role=status]").inner_text().startswith("No.")
    assert second.locator(".right").inner_text() == said.CONCEPTS[1].choices[0]
    tab.reload()
    assert tab.inner_text("#score") == "1 / 5"               # kept in the browser
    tab.click("#again")
    assert tab.inner_text("#score") == "0 / 5"

    form = tab.locator("form.practice[data-key=p1]")
    for box, value in zip(form.locator("input").all(), ("8", "-8", "15"), strict=True):
        box.fill(value)
    form.locator("button").click()
    assert "15 is not it" in form.locator("[role=status]").inner_text()
    form.locator("input").nth(2).fill("32/2")
    form.locator("input").nth(2).press("Enter")
    assert form.locator("[role=status]").inner_text().startswith("Right.")
    form.locator("input").nth(0).fill("alert(1)")
    form.locator("button").click()
    assert "write a number" in form.locator("[role=status]").inner_text()
    context.close()
    assert not errors, errors
