"""How long a step in the page of 5,000 events takes, by the wall clock of a headless Chromium.

    ./run bench stepping               200 steps on end, and 200 jumps to anywhere
    ./run bench stepping --events 500  a shorter record; --steps, --strict

Needs playwright and a Chromium (`chromium` on the PATH, or named in ADJOINT_CHROMIUM). "shown"
counts until the browser has drawn the frame, so the wait for the screen's next refresh is in it.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import _peers
import recording

TARGET_MS = 50.0
RUN = """async ([events, shown]) => {
  const times = [];
  for (const i of events) {
    const begin = performance.now();
    stepper.go(i);
    document.body.offsetHeight;
    if (shown) await new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)));
    times.push(performance.now() - begin);
  }
  return times;
}"""


def page_of(ad: Any, events: int, path: Path) -> int:
    """Write the page of steps of tiny operations; returns how many events there are."""
    step = recording.tiny(ad)
    with ad.record("stepping") as walk:
        while len(walk) < events:
            step()
    path.write_text(walk.html(), encoding="utf-8")
    return len(walk)


def main() -> int:
    """Exit status 1 if the target is missed and --strict was given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--strict", action="store_true", help="fail if the target is missed")
    args = parser.parse_args()
    chromium = os.environ.get("ADJOINT_CHROMIUM") or shutil.which("chromium")
    try:
        sync = importlib.import_module("playwright.sync_api")
    except ImportError:
        sync = None
    if sync is None or chromium is None:
        print("stepping needs the package playwright and a Chromium", file=sys.stderr)
        return 0
    print(_peers.about())
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder, sync.sync_playwright() as p:
        path = Path(folder) / "walk.html"
        count = page_of(_peers.load(("adjoint",))["adjoint"], args.events, path)
        print(f"page of {count} events, {path.stat().st_size / 1e6:.2f} MB")
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1360, "height": 860})
        page.goto(path.as_uri())
        start = count // 2
        draw = random.Random(0)
        ways = {"steps": [(start + i) % count for i in range(args.steps)],
                "jumps": [draw.randrange(count) for _ in range(args.steps)]}
        for name, events in ways.items():
            page.evaluate(RUN, [events[:5], True])
            for shown in (False, True):
                times = page.evaluate(RUN, [events, shown])
                middle = statistics.median(times)
                worst = max(worst, middle)
                print(f"{name} {'shown' if shown else 'laid out':8}  median {middle:5.1f} ms, "
                      f"worst {max(times):5.1f} ms")
        browser.close()
    print(f"target: a median of {TARGET_MS:g} ms: {'met' if worst <= TARGET_MS else 'MISSED'}")
    return int(args.strict and worst > TARGET_MS)


if __name__ == "__main__":
    raise SystemExit(main())
