"""The stepper driven as a person would: in a headless Chromium, by mouse and by keyboard alone."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_walks import EVIL, chromium, five_thousand, relu_of_linear, screenshot, training

import adjoint as ad
from adjoint.inspect.serve import Server
from adjoint.inspect.walk_text import fields

pytestmark = pytest.mark.row("F104")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a page from disk; any error of its script fails the test."""
    errors: list[str] = []
    contexts = []

    def show(html: str, **options: Any) -> Any:
        path = tmp_path / "walk.html"
        path.write_text(html, encoding="utf-8", errors="replace")
        options = {"viewport": {"width": 1360, "height": 860}, "color_scheme": "light", **options}
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        page.on("request", lambda r: errors.append(f"asked for {r.url}")
                if not r.url.startswith("file:") else None)
        page.goto(path.as_uri())
        return page

    yield show
    for context in contexts:
        context.close()
    assert not errors, errors


def text(page: Any, selector: str) -> str:
    return page.inner_text(selector)


def field(page: Any, name: str) -> str:
    return page.inner_text(f"[data-field='{name}']")


def test_steps_forward_and_back_with_the_state_of_a_tensor(opened: Any, tmp_path: Path) -> None:
    page = opened(relu_of_linear(budget=100).html())
    assert text(page, "#line") == "z1 = mm(x, W); saves x (16 B)"
    page.click("#next")
    page.click("#next")
    assert text(page, "#line") == "y = relu(z2); saves y (16 B)"
    assert [field(page, f) for f in (".data", ".grad", ".grad_fn", ".saved_tensors",
                                     ".requires_grad", ".next_functions")] == [
        "[[2.1, 3.2],\n [1.1, 0]]", "None", "ReluBackward0", "y [2, 2] 16 B", "True",
        "AddBackward0 (0)"]
    assert text(page, "#formula mark") == "y" and "dL/dz2" in text(page, "#formula")
    assert "y = z2.relu()" in text(page, "#source .at")
    assert "ReluBackward0" in text(page, "#why") and "ReluBackward0 as out" in text(page, "#who")
    screenshot(page, "step-forward", tmp_path)
    page.click("#prev")
    assert text(page, "#line").startswith("z2 = add(z1, b)")
    assert "It is not" in text(page, "#why")


def test_grad_stays_none_until_its_event_and_saved_is_released(opened: Any, tmp_path: Path) -> None:
    page = opened(relu_of_linear(budget=100).html())
    for i in range(12):
        page.evaluate(f"stepper.go({i})")
        page.focus("#pick")
        page.select_option("#pick", label="W  [2, 2]")
        assert field(page, ".grad") == ("None" if i < 10 else "[[4, 1],\n [-2, 2]]"), i
        page.evaluate("document.activeElement.blur()")
    page.evaluate("stepper.go(9)")
    assert "exceeded by" in text(page, "#bytes")
    assert page.locator("#graph .e.done").count() >= 3       # backward has passed these edges
    assert "dL/dW" in text(page, "#formula") and "[[4, 1], [-2, 2]]" in text(page, "#formula")
    screenshot(page, "step-backward", tmp_path)


def test_keyboard_alone(opened: Any) -> None:
    page = opened(relu_of_linear().html())
    press = page.keyboard.press
    press("ArrowRight")
    assert text(page, "#counter") == "2 / 12"
    press("End")
    assert text(page, "#counter") == "12 / 12" and page.is_disabled("#next")
    press("ArrowLeft")
    press("Home")
    assert text(page, "#counter") == "1 / 12"
    press("b")
    assert text(page, "#line").startswith("backward begins")
    press("PageDown")
    assert text(page, "#counter") == "12 / 12"
    press("?")
    assert page.evaluate("document.getElementById('keys').open")
    press("Escape")
    press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("relu(z2)")
    press("ArrowDown")
    press("Enter")
    assert "relu(z2)" in text(page, "#line")
    press("Escape")
    page.focus("#slider")
    press("ArrowRight")
    assert text(page, "#counter") == "4 / 12"


def test_tab_reaches_every_control_in_the_order_of_the_page(opened: Any) -> None:
    page = opened(relu_of_linear().html())
    page.evaluate("stepper.go(3)")
    order = []
    for _ in range(40):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.className"
                                   ".baseVal || document.activeElement.textContent"))
    wanted = ["search", "quiz", "help", "theme", "prev", "play", "slider", "tobackward", "events",
              "expandall", "graph", "source", "pick"]
    places = [order.index(name) for name in wanted]
    assert places == sorted(places)


@pytest.mark.row("F105")
def test_the_page_and_python_tell_the_same_state(opened: Any) -> None:
    walk = training(blocks=1, events=220)
    page = opened(walk.html())
    asked = [(t.id, i) for t in walk.tensors for i in range(t.id % 5, len(walk), 5)]
    told = page.evaluate("asked => asked.map(([t, i]) => stepper.fields(t, i))", asked)
    for (k, i), shown in zip(asked, told, strict=True):
        want = fields(walk, walk.tensors[k], i)
        assert (shown is None) == (not want), (k, i)
        if shown is None:
            continue
        _, grad, node, saved, flag, edges = shown
        assert (grad == "None") == (want["grad"] == "None")
        assert node.split(" (")[0] == want["grad_fn"] and flag == want["requires_grad"]
        assert saved.startswith("released") == (want["saved_tensors"] == "released") or (
            saved == "nothing")
        if want["next_functions"] != "-":
            assert len(edges.splitlines()) == len(want["next_functions"].split(", "))


def test_a_notebook_shows_it_in_a_frame_of_its_own(opened: Any) -> None:
    page = opened(f"<!DOCTYPE html><meta charset=utf-8>{relu_of_linear()._repr_html_()}")
    frame = page.frame_locator("iframe")
    frame.locator("#next").click()
    assert frame.locator("#counter").inner_text() == "2 / 12"
    frame.locator("#theme").click()
    assert page.evaluate("localStorage.length") == 0


@pytest.mark.row("F105")
def test_hovering_shows_the_six_fields(opened: Any) -> None:
    page = opened(relu_of_linear().html())
    page.evaluate("stepper.go(2)")
    box = page.locator(".v[aria-label^='operation relu']")
    box.hover()
    tip = box.locator("title").text_content()
    assert [line.split("  ")[0] for line in tip.splitlines()[1:] if line.startswith(".")] == [
        ".data", ".grad", ".grad_fn", ".saved_tensors", ".requires_grad", ".next_functions"]
    assert ".grad  None" in tip and ".grad_fn  ReluBackward0" in tip


def test_graph_boxes_answer_enter(opened: Any) -> None:
    page = opened(training(blocks=2, events=100).html())
    page.click("#collapseall")
    assert page.locator(".v.group").count() == 1
    page.focus(".v.group")
    page.keyboard.press("Enter")
    assert page.locator(".v.group").count() == 3             # two blocks and the head


@pytest.mark.row("F29")
def test_modules_open_and_close(opened: Any, tmp_path: Path) -> None:
    page = opened(training(blocks=3, events=300, budget=40_000).html())
    page.click("#collapseall")
    closed = page.locator("#graph .v").count()
    page.click(".v.group >> nth=0")
    assert page.locator("#graph .v").count() > closed
    names = page.locator(".v.group text").all_text_contents()
    assert "▸ blocks.0" in names and "▸ blocks.2" in names
    page.keyboard.press("b")
    screenshot(page, "graph-collapsed", tmp_path)
    page.click("#expandall")
    assert page.locator(".v.group").count() == 0
    page.click("#zoomout")
    screenshot(page, "graph-expanded", tmp_path)


def test_search_finds_tensors_operations_and_lines(opened: Any) -> None:
    page = opened(training(blocks=2, events=150).html())
    page.fill("#search", "softmax")
    hits = page.locator("#found [role=option]")
    assert hits.count() == 4 and "4 found" in text(page, "#found")    # forward and backward
    hits.nth(0).click()
    assert "softmax(scores" in text(page, "#line")
    page.fill("#search", "blocks.1.qkv.weight")
    page.keyboard.press("Enter")
    assert page.input_value("#pick") != "" and "blocks.1.qkv.weight" in text(page, "#fields")
    page.fill("#search", "there is no such thing")
    assert "nothing found" in text(page, "#found")


@pytest.mark.row("F107")
def test_quiz_asks_before_each_gradient_and_keeps_score(opened: Any, tmp_path: Path) -> None:
    page = opened(relu_of_linear().html())
    page.keyboard.press("q")
    page.evaluate("stepper.go(7)")
    page.keyboard.press("ArrowRight")
    assert "b.grad" in text(page, "#question") and text(page, "#counter") == "8 / 12"
    rows = page.locator("#eventsroom .ev").all_inner_texts()         # answers are not given away
    assert rows[8].endswith("b.grad = ?") and rows[10].endswith("W.grad = ?")
    assert "dL/db = ct = ?" in text(page, "#formula") and "[2, 1]" not in text(page, "#formula")
    choices = page.locator("#choices button").all_inner_texts()
    assert {"[2, 1]", "None", "[0.1, 0.2]"} <= set(choices)
    screenshot(page, "quiz", tmp_path)
    page.click("#choices button:text-is('[2, 1]')")
    assert "Right" in text(page, "#verdict") and "1 / 1" in text(page, "#verdict")
    assert text(page, "#counter") == "9 / 12"
    assert "b.grad = [2, 1]" in text(page, "#eventsroom")
    page.keyboard.press("Enter")                             # go on has the focus
    page.keyboard.press("ArrowRight")
    assert "W.grad" in text(page, "#question")
    page.click("#choices button:text-is('None')")
    assert "it is [[4, 1], [-2, 2]]" in text(page, "#verdict")
    assert "1 / 2" in text(page, "#verdict")


def test_accumulation_in_the_quiz(opened: Any) -> None:
    x = ad.ones(2, requires_grad=True)
    with ad.record() as walk:
        for _ in range(2):
            (x * 3).sum().backward()
    page = opened(walk.html())
    page.click("#quiz")
    second = [e.index for e in walk if e.kind == "grad"][1]
    page.evaluate(f"stepper.go({second - 1})")
    page.click("#next")
    choices = page.locator("#choices button").all_inner_texts()
    assert {"[6, 6]", "[3, 3]", "None"} <= set(choices)
    page.click("#choices button:text-is('[6, 6]')")
    assert "added to what was there" in text(page, "#verdict")


def luminance(page: Any) -> float:
    return page.evaluate("""() => { const c = getComputedStyle(document.body).backgroundColor
        .match(/\\d+/g).map(Number); return (c[0] + c[1] + c[2]) / 3; }""")


def test_light_and_dark(opened: Any, tmp_path: Path) -> None:
    page = opened(relu_of_linear().html(), color_scheme="dark")
    assert luminance(page) < 60
    page.evaluate("stepper.go(6)")
    screenshot(page, "dark", tmp_path)
    page.click("#theme")
    assert luminance(page) > 200
    page.keyboard.press("t")
    assert luminance(page) < 60


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_text_is_enough_to_read(opened: Any, scheme: str) -> None:
    """Every text against the first opaque background behind it: at least 4.5 to 1 (WCAG AA)."""
    page = opened(relu_of_linear().html(), color_scheme=scheme)
    page.evaluate("stepper.go(6)")
    low = page.evaluate("""() => {
      const rgb = s => s.match(/[\\d.]+/g).map(Number);
      const lum = c => { const [r, g, b] = c.map(v => { v /= 255;
        return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const out = [];
      for (const x of document.querySelectorAll('main *, header *, nav *, #now *, #memory *')) {
        if (![...x.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
        if (x.closest('svg, .later, :disabled, [hidden]') || !x.getClientRects().length) continue;
        let b = x, back = null;
        while (b && !back) { const c = rgb(getComputedStyle(b).backgroundColor);
          if (c.length < 4 || c[3] === 1) back = c.slice(0, 3); b = b.parentElement; }
        const a = lum(rgb(getComputedStyle(x).color).slice(0, 3)), z = lum(back);
        const ratio = (Math.max(a, z) + 0.05) / (Math.min(a, z) + 0.05);
        if (ratio < 4.5) out.push(x.textContent.slice(0, 30) + ' ' + ratio.toFixed(2));
      }
      return out; }""")
    assert low == []


def test_screen_readers_find_names_roles_and_the_present_event(opened: Any) -> None:
    page = opened(relu_of_linear().html())
    page.evaluate("stepper.go(3)")
    nameless = page.evaluate("""() => [...document.querySelectorAll(
        'button, input, select, [role], section')].filter(x => !x.closest('[hidden]') &&
        !(x.getAttribute('aria-label') || x.getAttribute('aria-labelledby') || x.title
          || x.textContent.trim() || (x.labels && x.labels.length)
          || ['form', 'search'].includes(x.getAttribute('role')))).map(x => x.id || x.outerHTML
          .slice(0, 80))""")
    assert nameless == []
    assert page.get_attribute("#line", "aria-live") == "polite"
    chosen = page.get_attribute("#events", "aria-activedescendant")
    assert page.get_attribute(f"#{chosen}", "aria-selected") == "true"
    assert page.get_attribute(f"#{chosen}", "aria-setsize") == "12"
    assert "event 4 of 12" in page.get_attribute("#slider", "aria-valuetext")
    labels = page.locator("#graph .v").evaluate_all("l => l.map(x => x.getAttribute('aria-label'))")
    assert any(v.startswith("operation relu → y [2, 2], recorded") for v in labels)
    assert page.locator(".v[aria-label$=', now']").count() == 1


def test_hostile_names_are_shown_not_run(opened: Any) -> None:
    scope: dict[str, Any] = {}
    source = f"""
import adjoint as ad
class Net(ad.nn.Module):
    def forward(self, x): return (x * 2).sum()
Net.__name__ = {EVIL!r}
data = {{{EVIL!r}: ad.ones(2, requires_grad=True)}}
with ad.record({EVIL!r}) as walk:
    Net()(data[{EVIL!r}]).backward()
"""
    exec(compile(source, f"{EVIL}.py", "exec"), scope)
    page = opened(scope["walk"].html())
    for i in range(len(scope["walk"])):
        page.evaluate(f"stepper.go({i})")
    page.fill("#search", "script")
    assert page.locator("#found [role=option]").count() > 2
    assert page.evaluate("window.evil") is None
    assert page.locator("img").count() == 0 and page.locator("body script").count() == 2
    assert EVIL in text(page, "#title") and page.title() == EVIL


def test_the_policy_stops_a_script_that_got_in(browser: Any) -> None:
    html = relu_of_linear().html().replace("</body>", "<script>window.evil = 1</script></body>")
    page = browser.new_page()
    with Server(html) as server:
        import threading
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.goto(server.url)
        assert page.evaluate("window.evil") is None
        assert page.inner_text("#counter") == "1 / 12"
        server.shutdown()
    page.close()


def test_released_tensors_are_no_longer_held(opened: Any) -> None:
    page = opened(relu_of_linear().html())
    page.evaluate("stepper.go(6)")
    assert field(page, ".saved_tensors") == "released at event 7"
    assert "No longer" in text(page, "#why")
    assert text(page, "#who").strip() == "variable or parameter y"


def test_an_empty_walk_says_so(opened: Any) -> None:
    with ad.record("nothing") as walk:
        pass
    assert "Nothing was recorded" in text(opened(walk.html()), "#line")


def test_small_windows(opened: Any) -> None:
    page = opened(relu_of_linear().html(), viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


STEPS = """async n => { const out = [];
  for (let k = 0; k < n; k++) {
    const i = k % 2 ? (k * 997) % stepper.count : 2000 + k;
    const t = performance.now();
    stepper.go(i); document.body.offsetHeight;
    out.push(performance.now() - t);
    if (k % 10 === 9) await new Promise(done => setTimeout(done, 0));
  }
  return out; }"""


@pytest.mark.parametrize("expanded", [False, True])
def test_a_step_among_five_thousand_takes_at_most_50_ms(opened: Any, expanded: bool,
                                                         tmp_path: Path) -> None:
    """Processor time of the page's thread, so that other work on the machine does not count."""
    page = opened(five_thousand())
    assert page.evaluate("stepper.count") >= 5000
    if expanded:
        page.click("#expandall")
    page.evaluate(STEPS, 10)
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds() -> float:
        found = metrics.send("Performance.getMetrics")["metrics"]
        return {m["name"]: m["value"] for m in found}["TaskDuration"]

    begin = seconds()
    page.evaluate(STEPS, 30)
    assert (seconds() - begin) / 30 <= 0.050
    assert page.locator(".ev").count() < 80 and page.locator("#scene > *").count() < 600
    screenshot(page, f"events-5000-{'expanded' if expanded else 'collapsed'}", tmp_path)


def test_an_operand_that_was_not_given_is_not_called_saved(opened: Any) -> None:
    """cross_entropy without weights of the classes."""
    x = ad.randn(3, 4, requires_grad=True)
    with ad.record() as walk:
        ad.nn.functional.cross_entropy(x, ad.tensor([0, 1, 2])).backward()
    told = text(opened(walk.html()), "#formula")
    assert "lse is saved" in told and "None is saved" not in told


def test_what_reads_alike_is_said_once(opened: Any) -> None:
    """Twelve steps read the same input in the same way: one sentence, and how often."""
    w = ad.ones(3, requires_grad=True)
    x = ad.ones(3)
    with ad.record() as walk:
        kept = [(w * x).sum() for _ in range(12)]
    assert len(kept) == 12
    page = opened(walk.html())
    page.click("#last")
    page.focus("#pick")
    page.select_option("#pick", label=page.evaluate(
        "[...document.querySelectorAll('#pick option')].map(o => o.textContent)"
        ".find(t => t.startsWith('x '))"))
    why = text(page, "#why")
    assert why.count("MulBackward0") == 1 and "11 times more" in why, why
