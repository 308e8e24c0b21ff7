"use strict";
(() => {
const DATA = JSON.parse(document.getElementById("data").textContent);
const store = {                        // a page without storage works, it only forgets
  get: key => { try { return JSON.parse(localStorage.getItem("adjoint-gallery-" + key)); } catch (error) { return null; } },
  set: (key, value) => { try { localStorage.setItem("adjoint-gallery-" + key, JSON.stringify(value)); } catch (error) { /* no storage */ } },
};

function turned(list, by) {            // the same order for everyone, the right one not always first
  const n = list.length, at = list.map((x, k) => k).sort((a, b) => ((a * 7 + by * 5) % 11) - ((b * 7 + by * 5) % 11) || a - b);
  return at.map(k => [k, list[k]]);
}
const answers = store.get("answers") || {};
function score() {
  document.getElementById("score").textContent = DATA.quiz.filter(q => answers[q.key] === 0).length + " / " + DATA.quiz.length;
}
function draw(box, q, number) {
  const choices = box.querySelector(".choices"), verdict = box.querySelector("[role=status]"), given = answers[q.key];
  choices.replaceChildren(...turned(q.choices, number).map(([k, text]) => {
    const b = document.createElement("button");
    b.type = "button"; b.textContent = text;
    if (given !== undefined) { b.disabled = true; if (k === 0) b.className = "right"; else if (k === given) b.className = "wrong"; }
    b.onclick = () => { answers[q.key] = k; store.set("answers", answers); draw(box, q, number); score(); };
    return b;
  }));
  verdict.textContent = given === undefined ? "" : (given === 0 ? "Right. " : "No. ") + q.why;
}
const boxes = [...document.querySelectorAll(".quiz")].map((box, number) => [box, DATA.quiz.find(q => q.key === box.dataset.key), number]);
boxes.forEach(x => draw(...x));
score();
document.getElementById("again").onclick = () => { for (const k of Object.keys(answers)) delete answers[k]; store.set("answers", answers); boxes.forEach(x => draw(...x)); score(); };

function numberOf(text) {              // 3, -1.5, 1/4, 2e-3; anything else is NaN
  const t = text.trim().replace(",", ".").replace("\u2212", "-"), parts = t.split("/");
  if (!t || parts.length > 2 || parts.some(p => !/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(p.trim()))) return NaN;
  return parts.length === 2 ? Number(parts[0]) / Number(parts[1]) : Number(t);
}
for (const form of document.querySelectorAll("form.practice")) {
  const p = DATA.practice.find(x => x.key === form.dataset.key), inputs = [...form.querySelectorAll("input")], out = form.querySelector("[role=status]");
  form.onsubmit = ev => {
    ev.preventDefault();
    for (let k = 0; k < inputs.length; k++) {
      const got = numberOf(inputs[k].value), want = p.answer[k];
      if (Number.isNaN(got)) { out.className = "bad"; out.textContent = p.parts[k] + ": write a number, such as 3, -0.25 or 1/4."; inputs[k].focus(); return; }
      if (!(Math.abs(got - want) <= p.tolerance * Math.max(1, Math.abs(want)))) { out.className = "bad"; out.textContent = p.parts[k] + ": " + inputs[k].value + " is not it. " + p.why; inputs[k].focus(); return; }
    }
    out.className = "good"; out.textContent = "Right. " + p.why;
  };
}
document.getElementById("theme").onclick = () => {
  const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
};
})();
