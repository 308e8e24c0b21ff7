"use strict";
(() => {
const W = JSON.parse(document.getElementById("walk").textContent);
const $ = id => document.getElementById(id);
const N = W.events.length, KIND = W.kinds;
const MARK = "\u0001", END = "\u0002", TOKEN = "\u0298";

// ---------------------------------------------------------------- the recording
const E = W.events.map((e, i) => ({ i, kind: KIND[e[0]], node: e[1], ins: e[2], outs: e[3], place: e[4], group: e[5],
  card: e[6], inplace: e[7], live: e[8], saved: e[9], cts: e[10], text: e[11], attrs: e[12] }));
const T = W.tensors.map((t, id) => ({ id, name: t[0] || "v" + id, shape: t[1], dtype: t[2], storage: t[3], rg: !!t[4], leaf: !!t[5],
  born: t[6], died: t[7], group: t[8], nodes: t[9], data: t[10], grad: t[11], flags: t[12] }));
const NODES = W.nodes.map((n, id) => ({ id, name: n[0], op: n[1], event: n[2], place: n[3], group: n[4], card: n[5], edges: n[6],
  saved: n[7].map(s => ({ name: s[0], shape: s[1], dtype: s[2], bytes: s[3], storage: s[4], tensor: s[5], parameter: !!s[6] })),
  released: n[8], dropped: !!n[9], back: [], ins: [], outs: [] }));
const savers = new Map();       // storage -> [[node, residual], ...]
for (const n of NODES) n.saved.forEach((s, k) => { if (!savers.has(s.storage)) savers.set(s.storage, []); savers.get(s.storage).push([n, k]); });
for (const e of E) {
  if (e.node < 0) continue;
  const n = NODES[e.node];
  if (e.kind === "node") n.back.push(e.i);
  if (e.kind === "op") { n.ins = e.ins; n.outs = e.outs; }
}
const PEAKS = []; { let p = 0; for (const e of E) PEAKS.push(p = Math.max(p, e.live)); }
const PEAK = N ? PEAKS[N - 1] : 0;
const isBack = new Array(N).fill(false); { let d = 0; for (const e of E) { if (e.kind === "begin") d++; isBack[e.i] = d > 0; if (e.kind === "end") d = Math.max(0, d - 1); } }

function at(history, i, missing) {
  let lo = 0, hi = history.length;
  while (lo < hi) { const m = (lo + hi) >> 1; if (history[m][0] <= i) lo = m + 1; else hi = m; }
  return lo ? history[lo - 1][1] : missing;
}
function units(n) {
  for (const [u, k] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (n >= k) return Number((n / k).toPrecision(4)) + " " + u;
  return n + " B";
}
function num(x) {
  if (typeof x !== "number") return String(x);
  const r = Number(x.toPrecision(5));
  return r && Math.abs(r) < 1e-4 ? String(Number(r.toPrecision(5)).toExponential()) : String(r);
}
function lists(v) { return Array.isArray(v) ? "[" + v.map(lists).join(", ") + "]" : num(v); }
function rows(v) { return Array.isArray(v) && Array.isArray(v[0]) ? "[" + v.map(rows).join(",\n ") + "]" : lists(v); }
function valueText(k, wide) {
  if (k === undefined || k < 0) return "None";
  const s = W.values[k];
  if ("v" in s) return wide ? rows(s.v) : lists(s.v);
  if (!s.r) return "[" + s.s.join(", ") + "] without storage";
  return "[" + s.s.join(", ") + "] " + (s.a ? "about " : "") + "mean " + num(s.r[2]) + ", std " + num(s.r[3]) + ", min " + num(s.r[0]) +
    ", max " + num(s.r[1]) + (s.b ? ", " + s.b + " not finite" : "");
}
const shapeText = s => "[" + s.join(", ") + "]";
function placeText(p) {
  if (p < 0) return "";
  const [f, line, fn] = W.places[p];
  return f < 0 ? "" : W.files[f].name + ":" + line + (fn && fn !== "<module>" ? " in " + fn : "");
}
function nodeAt(t, i) { return at(t.nodes, i, -1); }
function operand(a) { return typeof a === "number" ? T[a].name : String(a); }

// ---------------------------------------------------------------- small DOM helpers (text nodes only)
function el(tag, props, ...kids) {
  const x = document.createElement(tag);
  for (const [k, v] of Object.entries(props || {})) if (k === "on") x.onclick = v; else if (k === "cls") x.className = v; else x.setAttribute(k, v);
  for (const k of kids) if (k !== null && k !== undefined) x.append(k);
  return x;
}
const SVG = "http://www.w3.org/2000/svg";
function sv(tag, props, ...kids) {
  const x = document.createElementNS(SVG, tag);
  for (const [k, v] of Object.entries(props || {})) x.setAttribute(k, v);
  for (const k of kids) x.append(k);
  return x;
}
function clear(x) { x.replaceChildren(); return x; }

// ---------------------------------------------------------------- state of the page
// Sizes and scroll positions are kept here: asking the browser for them between writes would make it
// lay out the page several times a step. `settle` hands new positions over when all is written.
const view = {}, moved = new Set();
function watch(id, f) {
  const box = $(id), v = view[id] = { box, x: 0, y: 0, w: 0, h: 0 };
  const measure = () => { v.w = box.clientWidth; v.h = box.clientHeight; };
  measure();
  new ResizeObserver(() => { measure(); f(); }).observe(box);
  box.addEventListener("scroll", () => { if (Math.abs(box.scrollLeft - v.x) < 1 && Math.abs(box.scrollTop - v.y) < 1) return; v.x = box.scrollLeft; v.y = box.scrollTop; f(); }, { passive: true });
}
function scrollTo(id, x, y, width, height) {
  const v = view[id];
  v.x = Math.round(Math.max(0, Math.min(x, width - v.w))); v.y = Math.round(Math.max(0, Math.min(y, height - v.h)));
  moved.add(id);
}
function settle() { for (const id of moved) { const v = view[id]; v.box.scrollLeft = v.x; v.box.scrollTop = v.y; } moved.clear(); }

let now = 0, picked = T.length ? 0 : -1, playing = 0, quiz = false, asked = new Set(), score = [0, 0];

function involved(e) {
  const list = [];
  const add = a => { if (typeof a === "number" && a >= 0 && !list.includes(a)) list.push(a); };
  e.outs.forEach(add); e.ins.forEach(add);
  if (e.kind === "node") { NODES[e.node].outs.forEach(add); NODES[e.node].ins.forEach(add); }
  return list.slice(0, 24);
}
function chooseTensor(e) {
  const list = involved(e);
  if (list.length && (e.kind !== "node" || !list.includes(picked))) picked = e.kind === "node" ? (NODES[e.node].outs[0] ?? list[0]) : list[0];
}

function go(i, quietly) {
  if (!N) return;
  i = Math.max(0, Math.min(N - 1, i));
  if (quiz && !quietly && i > now) { const g = firstQuestion(now + 1, i); if (g >= 0) { show(g - 1); return ask(g); } }
  closeQuestion();
  show(i);
}
function show(i) {
  now = Math.max(0, Math.min(N - 1, i));
  const e = E[now];
  chooseTensor(e);
  $("slider").value = now;
  $("slider").setAttribute("aria-valuetext", "event " + (now + 1) + " of " + N + ": " + W.lines[now]);
  $("counter").textContent = (now + 1) + " / " + N;
  $("line").textContent = W.lines[now];
  $("phase").textContent = e.kind === "enter" || e.kind === "leave" ? "module" : isBack[now] ? "backward" : "forward";
  $("phase").className = isBack[now] ? "back" : "";
  for (const id of ["first", "prev"]) $(id).disabled = now === 0;
  for (const id of ["next", "last"]) $(id).disabled = now === N - 1;
  memory(); listEvents(true); source(); formula(); state(); graphFollow(); settle();
  clearTimeout(address);
  address = setTimeout(() => { try { history.replaceState(null, "", "#" + (now + 1)); } catch (error) { /* a page inside of a frame */ } }, 200);
}
let address = 0;

// ---------------------------------------------------------------- memory
const TOP = Math.max(1, PEAK, W.budget || 0);
function memory() {
  const e = E[now], pc = x => (100 * x / TOP) + "%";
  $("barlive").style.width = pc(e.live);
  $("barsaved").style.width = pc(e.saved);
  $("barpeak").style.left = "calc(" + pc(PEAKS[now]) + " - 2px)";
  $("barbudget").hidden = !W.budget;
  if (W.budget) $("barbudget").style.left = "calc(" + pc(W.budget) + " - 3px)";
  const over = W.budget && PEAKS[now] > W.budget;
  const box = clear($("bytes"));
  box.append("live ", el("b", {}, units(e.live)), " · ", el("span", { cls: "s" }, "saved "), el("b", {}, units(e.saved)), " · peak so far ", el("b", {}, units(PEAKS[now])));
  if (W.budget) box.append(" · budget ", over ? el("span", { cls: "over" }, units(W.budget) + ", exceeded by " + units(PEAKS[now] - W.budget)) : el("b", {}, units(W.budget)));
  $("bar").setAttribute("aria-label", box.textContent);
  const x = N > 1 ? 1000 * now / (N - 1) : 0;
  cursor.setAttribute("x1", x); cursor.setAttribute("x2", x);
}
const cursor = sv("line", { class: "cursor", y1: 0, y2: 100 });
function drawCurve() {
  const svg = $("curve"), cells = Math.min(N, 1000);
  svg.setAttribute("viewBox", "0 0 1000 100");
  const path = key => {
    let d = "M0,100";
    for (let c = 0; c < cells; c++) {                 // of many events in one column the largest
      const a = Math.floor(c * N / cells), b = Math.max(a + 1, Math.floor((c + 1) * N / cells));
      let m = 0; for (let k = a; k < b; k++) m = Math.max(m, E[k][key]);
      const x = cells > 1 ? 1000 * c / (cells - 1) : 0;
      d += "L" + x.toFixed(1) + "," + (100 - 96 * m / TOP).toFixed(1);
    }
    return d + "L1000,100Z";
  };
  svg.append(sv("path", { class: "live", d: path("live") }), sv("path", { class: "saved", d: path("saved") }));
  if (W.budget) { const y = 100 - 96 * W.budget / TOP; svg.append(sv("line", { class: "budget", x1: 0, x2: 1000, y1: y, y2: y })); }
  svg.append(cursor);
  svg.onclick = ev => { const r = svg.getBoundingClientRect(); go(Math.round((ev.clientX - r.left) / r.width * (N - 1))); };
}

// ---------------------------------------------------------------- list of events (only what is visible exists)
const ROW = 26, CLASS = { op: "", enter: "m", leave: "m", begin: "b", node: "b", end: "b", grad: "g", zero: "w", write: "w", error: "x" };
function listEvents(jump) {
  const v = view.events, top = now * ROW;
  if (jump && (top < v.y + ROW || top > v.y + v.h - 2 * ROW)) scrollTo("events", 0, top - v.h / 2, 0, N * ROW);
  const a = Math.max(0, Math.floor(v.y / ROW) - 4), b = Math.min(N, Math.ceil((v.y + v.h) / ROW) + 4);
  const made = [];
  for (let i = a; i < b; i++) {
    const row = el("div", { cls: "ev " + CLASS[E[i].kind] + (i > now ? " later" : ""), role: "option", id: "ev" + i, "aria-selected": i === now, "aria-posinset": i + 1, "aria-setsize": N, title: lineOf(i) },
      el("small", {}, String(i + 1)), lineOf(i));
    row.style.top = i * ROW + "px";
    row.onclick = () => go(i);
    made.push(row);
  }
  $("eventsroom").replaceChildren(...made);
  v.box.setAttribute("aria-activedescendant", "ev" + now);
}

// ---------------------------------------------------------------- source
const LINE = 19;
let shownFile = -2, current = null, rowOf = new Map();
function source() {
  const e = E[now];
  let p = e.place;
  if (p < 0 && e.kind === "grad") for (let i = now; i >= 0 && p < 0; i--) p = E[i].kind === "begin" ? E[i].place : -1;
  const [f, line] = p < 0 ? [-1, 0] : W.places[p];
  $("file").textContent = p < 0 || f < 0 ? "no line of the program" : placeText(p) + (e.kind === "node" ? " (made this node)" : "");
  const box = $("source");
  if (f !== shownFile) {
    clear(box); shownFile = f; rowOf = new Map();
    if (f >= 0) W.files[f].lines.forEach(([n, text], k) => { const row = el("div", {}, el("b", {}, String(n)), text || " "); rowOf.set(n, [row, k]); box.append(row); });
  }
  if (current) { current.classList.remove("at"); current.removeAttribute("aria-current"); }
  const [row, k] = (f >= 0 && rowOf.get(line)) || [null, 0];
  current = row;
  if (row) { row.classList.add("at"); row.setAttribute("aria-current", "true"); scrollTo("source", 0, k * LINE - view.source.h / 2, 0, rowOf.size * LINE); }
}

// ---------------------------------------------------------------- formulas
function rename(text, card, ins, outs) {
  const names = new Map(card[0].map((o, k) => [o, k < ins.length ? operand(ins[k]) : o]));
  if (outs.length) { names.set("out", T[outs[0]].name); outs.forEach((o, k) => names.set("out" + k, T[o].name)); }
  return { text: text.replace(new RegExp(TOKEN + "([^" + TOKEN + "]+)" + TOKEN, "g"), (m, o) => names.get(o) ?? o),
           name: o => names.get(o) ?? o };
}
function marked(text, card, ins, outs) {
  const { text: said, name } = rename(text, card, ins, outs), out = document.createDocumentFragment();
  said.split(MARK).forEach((piece, k) => {
    if (!k) return out.append(piece);
    const [kept, ...rest] = piece.split(END);
    out.append(el("mark", { title: "saved by forward" }, name(kept)), rest.join(END));
  });
  return out;
}
function reason(card, name, ins, outs) {     // which cotangents read it; what the record says where that is prose
  const why = card[3][name], spelled = new RegExp(MARK + TOKEN + "?" + name.replace(/\W/g, "\\$&") + TOKEN + "?" + END);
  const readers = Object.entries(card[2]).filter(([, text]) => spelled.test(text)).map(([o]) => "dL/d" + rename(TOKEN + o + TOKEN, card, ins, outs).text);
  const prose = why && !/^d\w+ = /.test(why) ? why : "";
  return readers.length ? readers.join(" and ") + (readers.length > 1 ? " read it" : " reads it") + (prose ? "; " + prose : "") : why;
}
function formula() {
  const e = E[now], box = clear($("formula")), n = e.node >= 0 ? NODES[e.node] : null;
  const k = e.card >= 0 ? e.card : n ? n.card : -1;
  if (k < 0 || e.kind === "begin") { box.append(el("p", { cls: "soft" }, e.kind === "grad" ? ".grad ← .grad + what arrived (None counts as 0)" : e.kind === "zero" ? ".grad ← None" : n ? n.name : "no operation at this event")); return; }
  const card = W.cards[k], ins = n && n.ins.length ? n.ins : e.kind === "op" ? e.ins : [], outs = n && n.outs.length ? n.outs : e.kind === "op" ? e.outs : [];
  const made = outs.length ? outs.map(o => T[o].name).join(", ") : "out";
  box.append(el("p", {}, made + " = ", marked(card[1], card, ins, outs)));
  const back = Object.entries(card[2]);
  if (!n) { box.append(el("p", { cls: "soft" }, "recorded nothing: no operand wants a gradient here")); return; }
  if (back.length) box.append(el("p", { cls: "soft" }, "backward, from ct = dL/d" + made + ":"));
  back.forEach(([o, text]) => {
    const index = card[0].indexOf(o), who = rename(TOKEN + o + TOKEN, card, ins, outs).text;
    const p = el("p", { cls: e.kind === "node" ? "back" : "" }, "dL/d" + who + " = ", marked(text, card, ins, outs));
    if (e.kind === "node" && e.cts && index >= 0 && e.cts[1][index] >= 0) p.append(" = " + (willBeAsked(e.outs[index]) ? "?" : valueText(e.cts[1][index])));
    box.append(p);
  });
  if (e.kind === "node" && e.cts) box.append(el("p", { cls: "soft" }, "ct = " + e.cts[0].map(v => valueText(v)).join("; ")));
  for (const name of Object.keys(card[3])) {
    const shown = rename(name, card, ins, outs).name(name);
    if (shown !== "None") box.append(el("p", { cls: "soft" }, el("mark", {}, shown), " is saved: " + reason(card, name, ins, outs)));
  }
  if (!n.saved.length) box.append(el("p", { cls: "soft" }, Object.keys(card[3]).length ? "a number takes no memory of a tensor" : "nothing has to be saved"));
}

// ---------------------------------------------------------------- the tensor and its six fields
function exists(t, i) { return t.born <= i && !(t.died >= 0 && t.died <= i); }
function fieldsOf(t, i) {
  const nid = nodeAt(t, i), n = nid >= 0 ? NODES[nid] : null;
  const first = t.flags.length ? !t.flags[0][1] : t.rg;
  const edge = x => x === null ? "None" : x[0] ? "AccumulateGrad of " + T[x[1]].name : NODES[x[1]].name + " (" + x[2] + ")";
  const kept = s => (s.tensor >= 0 ? T[s.tensor].name : s.name) + " " + shapeText(s.shape) + " " + units(s.bytes);
  return [
    [".data", valueText(at(t.data, i), true), ""],
    [".grad", valueText(at(t.grad, i), true), at(t.grad, i, -1) < 0 ? "none" : ""],
    [".grad_fn", n ? n.name : "None" + (t.leaf || !t.nodes.length ? " (a leaf)" : ""), n ? "" : "none"],
    [".saved_tensors", !n ? "no node, nothing saved" : n.released >= 0 && n.released <= i ? (n.saved.length ? "released at event " + (n.released + 1) : "nothing") :
      n.saved.length ? n.saved.map(kept).join("\n") : "nothing", n && n.saved.length && !(n.released >= 0 && n.released <= i) ? "savedv" : "none"],
    [".requires_grad", at(t.flags, i, first) ? "True" : "False", ""],
    [".next_functions", n ? n.edges.map(edge).join("\n") || "()" : "no node, no edges", n ? "" : "none"],
  ];
}
function state() {
  const e = E[now], chips = clear($("chips"));
  for (const id of involved(e)) {
    const b = el("button", { type: "button", "aria-pressed": id === picked }, T[id].name);
    b.onclick = () => pick(id);
    chips.append(b);
  }
  picker();
  const list = clear($("fields"));
  if (picked < 0) return;
  const t = T[picked];
  if (!exists(t, now)) {
    list.append(el("dt", {}, t.name), el("dd", { cls: "none" }, t.born > now ? "not made yet: event " + (t.born + 1) + " makes it" : "gone since event " + (t.died + 1)));
  } else {
    list.append(el("dt", {}, t.name), el("dd", { cls: "none" }, shapeText(t.shape) + " " + t.dtype));
    const before = now > 0 && exists(t, now - 1) ? fieldsOf(t, now - 1) : null;
    fieldsOf(t, now).forEach(([name, text, cls], k) => {
      const changed = before && before[k][1] !== text;
      list.append(el("dt", {}, name), el("dd", { cls: cls + (changed ? " changed" : ""), "data-field": name }, text + (changed ? "" : "")));
    });
  }
  whySaved(t); whoHolds(t);
}
// The list has all tensors only while it is used: two thousand options would be laid out at every step.
const option = id => el("option", { value: id }, T[id].name + "  " + shapeText(T[id].shape));
function picker() { if (document.activeElement !== $("pick")) $("pick").replaceChildren(...(picked < 0 ? [] : [option(picked)])); else $("pick").value = picked; }
function fillPicker() {
  const named = id => W.tensors[id][0] ? 0 : 1;
  if ($("pick").children.length > 1) return;
  $("pick").replaceChildren(...T.map(t => t.id).sort((a, b) => named(a) - named(b) || a - b).slice(0, 2000).map(option));
  $("pick").value = picked;
}
function pick(id) { picked = id; state(); draw(); }
function keepers(t, i) {
  return (savers.get(t.storage) || []).filter(([n]) => made(n) <= i && !(n.released >= 0 && n.released <= i));
}
const made = n => n.event;
function whySaved(t) {
  const box = clear($("why")), now_ = keepers(t, now), all = savers.get(t.storage) || [];
  if (!all.length) { box.append(el("p", { cls: "soft" }, "It is not: no backward formula of this run reads " + t.name + ".")); return; }
  const list = now_.length ? now_ : all;
  if (!now_.length) box.append(el("p", { cls: "soft" }, all.every(([n]) => made(n) > now) ? "Not yet. Later:" : "No longer; it was:"));
  const same = new Map();                      // what reads alike is said once, and how often
  for (const [n, k] of list) {
    const alike = [n.name, n.card, n.saved[k].name, n.saved[k].bytes, n.saved[k].tensor].join();
    if (same.has(alike)) same.get(alike)[2]++; else same.set(alike, [n, k, 0]);
  }
  const kinds = [...same.values()];
  for (const [n, k, more] of kinds.slice(0, 6)) {
    const s = n.saved[k], card = n.card >= 0 ? W.cards[n.card] : null, base = s.name.replace(/\[\d+\]$/, "");
    const view = s.tensor >= 0 && s.tensor !== t.id ? T[s.tensor].name : "";
    const p = el("p", {}, el("mark", {}, view || t.name), view ? " (in the same storage as " + t.name + ")" : "", " by " + n.name + " (" + units(s.bytes) + (s.parameter ? ", a parameter: held anyway" : "") + ")");
    if (card && card[3][base]) p.append(": " + reason(card, base, n.ins, n.outs));
    if (more) p.append(", and " + (more === 1 ? "once more" : more + " times more"));
    box.append(p);
    if (card) for (const [o, text] of Object.entries(card[2])) if (text.includes(MARK)) box.append(el("p", { cls: "soft" }, "dL/d" + rename(TOKEN + o + TOKEN, card, n.ins, n.outs).text + " = ", marked(text, card, n.ins, n.outs)));
  }
  if (kinds.length > 6) box.append(el("p", { cls: "soft" }, "and " + kinds.slice(6).reduce((sum, [, , more]) => sum + 1 + more, 0) + " more nodes"));
}
function whoHolds(t) {
  const box = clear($("who")), s = t.storage >= 0 ? W.storages[t.storage] : null;
  const say = text => box.append(el("li", {}, text));
  if (!s) return say("nothing: it has no storage");
  if (s[2] >= 0 && s[2] <= now) return say("nobody: its " + units(s[0]) + " were given back at event " + (s[2] + 1));
  if (s[1] > now) return say("nobody yet");
  for (const o of showing(t.storage)) if (exists(o, now)) say((W.tensors[o.id][0] ? "variable or parameter " : "an unnamed tensor ") + o.name + (o.id !== t.id ? " (shares its memory)" : ""));
  for (const [n, k] of keepers(t, now).slice(0, 8)) say(n.name + " as " + n.saved[k].name + (n.place >= 0 ? ", made at " + placeText(n.place) : ""));
  if (!box.children.length) say("something outside of the recorded tensors");
}
const showers = new Map();
for (const t of T) { if (!showers.has(t.storage)) showers.set(t.storage, []); showers.get(t.storage).push(t); }
function showing(storage) { return (showers.get(storage) || []).slice(0, 12); }

// ---------------------------------------------------------------- graph: model, collapse, layout
const V = [], edges = [];                    // vertices: nodes and leaf tensors; edges between them
const ofNode = NODES.map(n => null), ofLeaf = new Map(), leaves = new Map();
function leafVertex(t, group, when) {             // a parameter stands in every module call that reads it
  const key = "t" + t.id + (t.rg && group > 0 ? "/" + group : "");
  let v = leaves.get(key);
  if (!v) { v = { key, leaf: t, born: t.rg && group > 0 ? when : t.born, first: when, group: t.rg ? group : -1 }; leaves.set(key, v); V.push(v); }
  if (v.group < 0) v.group = group;
  else if (!t.rg) v.group = common(v.group, group);
  if (!ofLeaf.has(t.id)) ofLeaf.set(t.id, []);
  if (!ofLeaf.get(t.id).includes(v)) ofLeaf.get(t.id).push(v);
  return v;
}
function chain(g) { const c = [g]; while (g > 0) c.push(g = W.groups[g][0]); return c; }
function common(a, b) { const up = new Set(chain(a)); return chain(b).find(g => up.has(g)); }
const order = NODES.filter(n => n.event >= 0 || n.back.length).sort((a, b) => a.event - b.event || b.id - a.id);
for (const n of order) {
  const v = ofNode[n.id] = { key: "n" + n.id, node: n, born: Math.max(0, n.event), group: n.group };
  const from = [];
  if (n.event >= 0) {
    n.ins.forEach((a, k) => {
      if (typeof a !== "number") return;
      const src = nodeAt(T[a], n.event - 1), grad = n.edges[k] !== null && n.edges[k] !== undefined;
      from.push([src >= 0 && src !== n.id ? ofNode[src] || null : leafVertex(T[a], n.group, n.event), grad]);
    });
  } else for (const x of n.edges) if (x) from.push([x[0] ? leafVertex(T[x[1]], n.group, 0) : ofNode[x[1]] || { pending: x[1] }, true]);
  V.push(v);
  for (const [u, grad] of from) if (u) edges.push({ u, v, grad });
}
for (const x of edges) if (x.u.pending !== undefined) x.u = ofNode[x.u.pending];

const G = W.groups.map((g, id) => ({ id, parent: g[0], name: g[1], kind: g[2], kids: [] }));
for (const g of G) if (g.parent >= 0) G[g.parent].kids.push(g.id);
const open = new Set([0]);
function rep(group) {                       // the outermost closed module around a group, or -1
  let found = -1;
  for (let g = group; g > 0; g = G[g].parent) if (!open.has(g)) found = g;
  return found;
}
const inside = G.map(() => 0); for (const v of V) for (let g = v.group; g > 0; g = G[g].parent) inside[g]++;
function openSome(limit) {                  // open modules from the outside in while it stays readable
  let count = V.filter(v => rep(v.group) < 0).length + G.filter(g => g.id && inside[g.id] && !G[g.parent].parent + 1).length, queue = [...G[0].kids];
  while (queue.length) {
    const g = queue.shift();
    if (!inside[g]) { open.add(g); queue.push(...G[g].kids); continue; }
    const direct = inside[g] - G[g].kids.reduce((s, k) => s + inside[k], 0) + G[g].kids.length;
    if (count + direct > limit) continue;
    open.add(g); count += direct; queue.push(...G[g].kids);
  }
}

const RW = 150, BW = 120, BH = 40, GAP = 52, PAD = 14;
let L = null, zoom = 1;
function layout() {
  const boxes = new Map(), list = [];
  const boxOf = v => {
    const g = rep(v.group);
    if (g < 0) { if (!boxes.has(v.key)) { const b = { key: v.key, v, leaf: v.leaf, node: v.node, born: v.born, nodes: v.node ? [v.node] : [], back: v.node ? v.node.back : [] }; boxes.set(v.key, b); list.push(b); } return boxes.get(v.key); }
    const key = "g" + g;
    if (!boxes.has(key)) { const b = { key, group: g, born: Infinity, count: 0, nodes: [], back: [] }; boxes.set(key, b); list.push(b); }
    const b = boxes.get(key);
    return b;
  };
  for (const v of V) { const b = boxOf(v); if (b.group !== undefined) { if (v.node) { b.born = Math.min(b.born, v.born); b.count++; b.nodes.push(v.node); } } }
  const bySrc = new Map();
  let links = [];
  for (const x of edges) {
    if (!x.u || !x.v) continue;
    const a = boxOf(x.u), b = boxOf(x.v);
    if (a === b) continue;
    const k = a.key + ">" + b.key;
    if (bySrc.has(k)) { const l = bySrc.get(k); l.grad = l.grad || x.grad; l.nodes.push(x.v.node); continue; }
    const l = { a, b, grad: x.grad, nodes: [x.v.node] };
    bySrc.set(k, l); links.push(l);
  }
  for (const b of list) if (b.group !== undefined) b.back = b.nodes.flatMap(n => n.back).sort((x, y) => x - y);
  list.sort((p, q) => (p.leaf ? 1 : 0) - (q.leaf ? 1 : 0) || p.born - q.born);
  const into = new Map(list.map(b => [b, []])), outof = new Map(list.map(b => [b, []]));
  for (const l of links) { into.get(l.b).push(l); outof.get(l.a).push(l); }
  for (const b of list) if (!b.leaf) {
    b.rank = 1;
    for (const l of into.get(b)) if (!l.a.leaf && l.a.rank !== undefined && l.a !== b) b.rank = Math.max(b.rank, l.a.rank + 1);
  }
  const ghosts = [];                        // a leaf stands beside each of its far-apart users
  for (const b of list.slice()) if (b.leaf) {
    const users = outof.get(b).slice().sort((x, y) => x.b.rank - y.b.rank);
    let at_ = b, first = true;
    for (const l of users) {
      if (first) { at_.rank = l.b.rank - 1; first = false; }
      else if (l.b.rank - at_.rank > 2) { at_ = { key: b.key + "@" + l.b.rank, leaf: b.leaf, v: b.v, born: b.born, nodes: [], back: [], rank: l.b.rank - 1 }; ghosts.push(at_); }
      l.a = at_;
    }
    if (first) b.rank = 0;
  }
  list.push(...ghosts);
  const ranks = [];
  for (const b of list) (ranks[b.rank] ||= []).push(b);
  const pred = new Map(list.map(b => [b, []])), succ = new Map(list.map(b => [b, []]));
  for (const l of links) { pred.get(l.b).push(l.a); succ.get(l.a).push(l.b); }
  for (let r = 0; r < ranks.length; r++) (ranks[r] ||= []).forEach((b, k) => { b.y = k; });
  const mean = (xs, own) => xs.length ? xs.reduce((s, x) => s + x.y, 0) / xs.length : own;
  for (let sweep = 0; sweep < 3; sweep++) {
    const forth = sweep !== 1, R = forth ? ranks : ranks.slice().reverse();
    for (const row of R) {
      const near = forth ? pred : succ;
      for (const b of row) b.want = b.leaf ? mean(succ.get(b), b.y) + 0.3 : mean(near.get(b), b.y);
      row.sort((p, q) => p.want - q.want || p.born - q.born);
      let y = -Infinity; const shift = [];
      for (const b of row) { b.y = Math.max(b.want, y + 1); y = b.y; shift.push(b.y - b.want); }
      const back = shift.length ? shift.reduce((s, x) => s + x, 0) / shift.length : 0;
      for (const b of row) b.y -= back;
    }
  }
  let low = Infinity, high = -Infinity;
  for (const b of list) { low = Math.min(low, b.y); high = Math.max(high, b.y); }
  for (const b of list) { b.x = PAD + b.rank * RW; b.py = PAD + (b.y - low) * GAP; }
  const short = ranks.map(() => []), long = [];
  for (const l of links) { l.back = l.grad ? l.nodes.flatMap(n => n.back).sort((x, y) => x - y) : []; if (Math.abs(l.b.rank - l.a.rank) <= 1) short[l.a.rank].push(l); else long.push(l); }
  L = { boxes: list, ranks, short, long, width: 2 * PAD + ranks.length * RW, height: 2 * PAD + (Math.max(0, high - low)) * GAP + BH, where: new Map(list.map(b => [b.key, b])) };
}
function doneBy(back) { return back.length && back[0] <= now; }
function boxOfEvent(e) {
  const find = v => { if (!v) return null; const g = rep(v.group); return L.where.get(g < 0 ? v.key : "g" + g); };
  if (e.node >= 0 && ofNode[e.node]) return find(ofNode[e.node]);
  if (e.kind === "enter" || e.kind === "leave") { const g = rep(e.group); return g < 0 ? null : L.where.get("g" + g); }
  if (e.outs.length && ofLeaf.has(e.outs[0])) {       // of several places the one used last before
    const all = ofLeaf.get(e.outs[0]), before = all.filter(v => v.first <= e.i);
    return find(before[before.length - 1] || all[0]);
  }
  return null;
}
function label(b) {
  if (b.group !== undefined) return [G[b.group].name, b.count + (b.count === 1 ? " operation" : " operations") + (G[b.group].kind !== G[b.group].name ? ", " + G[b.group].kind : "")];
  if (b.leaf) return [b.leaf.name, shapeText(b.leaf.shape) + (b.leaf.rg ? " leaf" : "")];
  const out = b.node.outs.length ? T[b.node.outs[0]] : null;
  return [b.node.op, out ? "→ " + out.name + " " + shapeText(out.shape) : b.node.name];
}
const tail_ = (s, n) => s.length > n && s.includes(".") ? "…" + s.slice(1 - n) : cut(s, n);
const cut = (s, n) => s.length > n ? s.slice(0, n - 1) + "…" : s;
function draw() {
  const { w, h } = view.graph;
  const x0 = view.graph.x / zoom, y0 = view.graph.y / zoom, x1 = x0 + w / zoom, y1 = y0 + h / zoom;
  $("scene").setAttribute("transform", "scale(" + zoom + ") translate(" + -x0 + " " + -y0 + ")");
  const r0 = Math.max(0, Math.floor((x0 - PAD) / RW) - 1), r1 = Math.min(L.ranks.length - 1, Math.ceil((x1 - PAD) / RW) + 1);
  const parts = [], current = N ? boxOfEvent(E[now]) : null, focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : null;
  const line = l => {
    if (Math.max(l.a.py, l.b.py) + GAP < y0 || Math.min(l.a.py, l.b.py) - GAP > y1) return;
    const sx = l.a.x + BW, sy = l.a.py + BH / 2, tx = l.b.x, ty = l.b.py + BH / 2, far = l.b.rank - l.a.rank > 1;
    const lift = far && Math.abs(sy - ty) < GAP / 2 ? -GAP * 0.75 : 0, m = Math.max(24, (tx - sx) / (far ? 5 : 2));
    const d = "M" + sx + "," + sy + "C" + (sx + m) + "," + (sy + lift) + " " + (tx - m) + "," + (ty + lift) + " " + tx + "," + ty;
    parts.push(sv("path", { class: "e" + (doneBy(l.back) ? " done" : l.nodes.every(n => n.event > now) ? " later" : ""), d }));
  };
  for (let r = r0; r <= r1; r++) L.short[r].forEach(line);
  for (const l of L.long) if (l.a.x < x1 && l.b.x + BW > x0) line(l);
  let again = null;
  for (let r = r0; r <= r1; r++) for (const b of L.ranks[r]) {
    if (b.py + BH < y0 - GAP || b.py > y1 + GAP) continue;
    const g = vertex(b, b === current);
    if (b.key === focused) again = g;
    parts.push(g);
  }
  $("scene").replaceChildren(...parts);
  if (again) again.focus({ preventScroll: true });
}
function vertex(b, current) {
  const [name, sub] = label(b), later = b.born > now;
  const done = b.leaf ? at(b.leaf.grad, now, -1) >= 0 : doneBy(b.back);
  const kept = b.nodes.some(n => n.saved.length && n.event <= now), free = kept && b.nodes.every(n => !n.saved.length || n.event > now || (n.released >= 0 && n.released <= now));
  const chosen = picked >= 0 && (b.leaf ? b.leaf.id === picked : b.group === undefined && b.node.outs.includes(picked));
  const cls = "v" + (b.leaf ? " leaf" : "") + (b.group !== undefined ? " group" : "") + (later ? " later" : "") + (done && !later ? " done" : "") + (current ? " now" : "") + (chosen ? " picked" : "");
  const told = b.group !== undefined ? "module " + name + ", closed, " + sub : (b.leaf ? "tensor " : "operation ") + name + " " + sub;
  const g = sv("g", { class: cls, transform: "translate(" + b.x + "," + b.py + ")", tabindex: "0", role: "button", "data-key": b.key,
    "aria-label": told + (later ? ", not yet" : done ? (b.leaf ? ", has a gradient" : ", backward has passed") : ", recorded") + (current ? ", now" : "") },
    sv("rect", { class: "f", width: BW, height: BH, rx: 7 }));
  const head = sv("text", { x: 9, y: 17 }), tail = sv("text", { x: 9, y: 32, class: "sub" }), tip = sv("title", {});
  head.textContent = (b.group !== undefined ? "▸ " : "") + tail_(name, (kept ? 12 : 14) - (b.group !== undefined ? 2 : 0)); tail.textContent = cut(sub, 17); tip.textContent = name + " " + sub;
  g.append(head, tail, tip);
  if (kept) g.append(sv("circle", { cx: BW - 10, cy: 12, r: 4, class: free ? "free" : "" }));
  g.onmouseenter = () => {                  // the six fields, on hover
    const t = b.leaf || (b.group === undefined && b.node.outs.length ? T[b.node.outs[0]] : null);
    if (t) tip.textContent = t.name + " " + shapeText(t.shape) + (exists(t, now) ? fieldsOf(t, now).map(([f, v]) => "\n" + f + "  " + cut(v, 160)).join("") : "\nnot there at this event");
  };
  g.onclick = () => act(b);
  g.onkeydown = ev => { if (ev.key === "Enter") { ev.preventDefault(); act(b); } };
  return g;
}
function act(b) {
  if (b.group !== undefined) { open.add(b.group); let g = b.group; while (G[g].kids.length === 1 && inside[G[g].kids[0]] === inside[g]) { g = G[g].kids[0]; open.add(g); } relayout(); }
  else if (b.leaf) pick(b.leaf.id);
  else { if (b.node.outs.length) picked = b.node.outs[0]; if (b.node.event >= 0) { const keep = picked; show(b.node.event); picked = keep; state(); draw(); } else pick(picked); }
}
function relayout() { layout(); room(); graphFollow(true); settle(); }
function graphFollow(force) {
  const v = view.graph, b = N ? boxOfEvent(E[now]) : null;
  let { x, y } = v;
  if (b) {
    const bx = b.x * zoom, by = b.py * zoom;
    if (bx < x + 10 || bx + BW * zoom > x + v.w - 4) x = bx - v.w * (bx < x + 10 ? 0.35 : 0.6);
    if (by < y + 4 || by + BH * zoom > y + v.h - 4) y = by - v.h / 2;
  }
  if (force || x !== v.x || y !== v.y) scrollTo("graph", x, y, L.width * zoom, L.height * zoom);
  draw();
}
function room() {
  const { w, h } = view.graph, svg = $("svg");
  $("graphroom").style.width = L.width * zoom + "px"; $("graphroom").style.height = L.height * zoom + "px";
  svg.setAttribute("width", w); svg.setAttribute("height", h);
}
function setZoom(z) { zoom = Math.max(0.35, Math.min(2, z)); room(); graphFollow(true); settle(); }

// ---------------------------------------------------------------- search
let hits = [], hit = -1;
function search() {
  const words = $("search").value.trim().toLowerCase().split(/\s+/).filter(Boolean), box = clear($("found"));
  hits = []; hit = -1;
  $("search").removeAttribute("aria-activedescendant");
  if (!words.length) { box.hidden = true; $("search").setAttribute("aria-expanded", "false"); return; }
  const has = text => words.every(w => text.includes(w));
  for (const t of T) if (W.tensors[t.id][0] && has(t.name.toLowerCase())) hits.push(["tensor " + t.name + " " + shapeText(t.shape), () => { const b = t.born; go(Math.min(b, N - 1), true); pick(t.id); }]);
  for (let i = 0; i < N; i++) if (has((lineOf(i) + " " + placeText(E[i].place) + " " + G[E[i].group].name).toLowerCase())) hits.push([(i + 1) + "  " + lineOf(i), () => go(i, true)]);
  const shown = hits.slice(0, 60);
  shown.forEach(([text, act_], k) => { const li = el("li", { role: "option", id: "hit" + k, "aria-selected": "false" }, text); li.onmousedown = ev => { ev.preventDefault(); take(k); }; box.append(li); });
  box.append(el("li", { cls: "none", role: "status" }, hits.length ? hits.length + (hits.length > 60 ? " found; the first 60 are shown" : " found") : "nothing found"));
  box.hidden = false; $("search").setAttribute("aria-expanded", "true");
}
function move(by) {
  const most = Math.min(hits.length, 60); if (!most) return;
  if (hit >= 0) $("hit" + hit).setAttribute("aria-selected", "false");
  hit = (hit + by + most) % most;
  const li = $("hit" + hit); li.setAttribute("aria-selected", "true"); li.scrollIntoView({ block: "nearest" });
  $("search").setAttribute("aria-activedescendant", "hit" + hit);
}
function take(k) { if (k < 0 || k >= hits.length) return; hits[k][1](); $("found").hidden = true; $("search").setAttribute("aria-expanded", "false"); }

// ---------------------------------------------------------------- quiz: predict the next .grad
function firstQuestion(a, b) { for (let i = a; i <= b; i++) if (E[i].kind === "grad" && !asked.has(i)) return i; return -1; }
function hidden(i) { return quiz && i > now && E[i].kind === "grad" && !asked.has(i); }      // the answer to a question that is still to come
function lineOf(i) { return hidden(i) ? T[E[i].outs[0]].name + ".grad = ?" : W.lines[i]; }
function willBeAsked(leaf) { for (let i = now + 1; i < N && isBack[i]; i++) if (E[i].kind === "grad" && E[i].outs[0] === leaf) return hidden(i); return false; }
function flat(v) { return Array.isArray(v) ? v.flatMap(flat) : [v]; }
function zip(a, b, f) { return Array.isArray(a) ? a.map((x, k) => zip(x, b === null ? null : b[k], f)) : f(a, b); }
function choicesOf(t, i) {
  const after = at(t.grad, i, -1), before = at(t.grad, i - 1, -1), data = at(t.data, i, -1);
  const A = after >= 0 ? W.values[after] : {}, B = before >= 0 ? W.values[before] : null, D = data >= 0 ? W.values[data] : {};
  if (!("v" in A)) {                         // a large one: what shape will it have?
    const s = t.shape, other = [shapeText(s.slice().reverse()), "[]", shapeText([...s, ...s]), shapeText(s.slice(1))];
    return ["a tensor of shape " + shapeText(s), "None: backward has not ended", ...other.map(x => "a tensor of shape " + x)];
  }
  const say = v => lists(v), list = [say(A.v), "None"];
  if (B && "v" in B) { list.push(say(B.v)); list.push(say(zip(A.v, B.v, (x, y) => Number((x - y).toPrecision(5))))); }
  list.push(say(zip(A.v, null, x => typeof x === "number" ? -x || 0 : x)));
  if ("v" in D) list.push(say(D.v));
  list.push(say(zip(A.v, null, x => typeof x === "number" ? Number((2 * x).toPrecision(5)) : x)), say(zip(A.v, null, x => 1)), say(zip(A.v, null, x => 0)));
  return list;
}
function ask(i) {
  const t = T[E[i].outs[0]], all = [...new Set(choicesOf(t, i))].slice(0, 4), right = all[0];
  const before = at(t.grad, i - 1, -1);
  const turn = all.map((c, k) => [(k * 7 + i * 3 + 1) % all.length, k]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(x => all[x[1]]);
  stop();
  $("quizbox").hidden = false;
  $("question").textContent = "The next event writes " + t.name + ".grad (now " + cut(valueText(before), 60) + "). What will it be?";
  $("verdict").textContent = "Score " + score[0] + " / " + score[1];
  $("choices").replaceChildren(...turn.map(c => {
    const b = el("button", { type: "button" }, c);
    b.onclick = () => answer(i, b, c === right, right);
    return b;
  }));
  $("question").focus();
}
function answer(i, button, good, right) {
  if (asked.has(i)) return;
  asked.add(i); score[1]++; if (good) score[0]++;
  for (const b of $("choices").children) { if (b.textContent === right) b.className = "right"; else if (b === button) b.className = "wrong"; b.disabled = true; }
  const t = T[E[i].outs[0]], had = at(t.grad, i - 1, -1) >= 0;
  show(i);
  $("verdict").textContent = (good ? "Right. " : "No: it is " + cut(right, 80) + ". ") + (had ? "What arrives is added to what was there. " : "It was None until this event. ") + "Score " + score[0] + " / " + score[1];
  const on = el("button", { type: "button" }, "Go on"); on.onclick = () => go(now + 1); $("choices").append(on); on.focus();
}
function closeQuestion() { if (!$("quizbox").hidden) { $("quizbox").hidden = true; if ($("quizbox").contains(document.activeElement)) $("next").focus(); } }
function setQuiz(on) { quiz = on; $("quiz").setAttribute("aria-pressed", String(on)); listEvents(false); formula(); if (!on) closeQuestion(); else { $("line").textContent = firstQuestion(now + 1, N - 1) >= 0 ? "Quiz: step on; before each gradient you are asked what it will be." : "Quiz: no gradient is written after this event; go back."; } }

// ---------------------------------------------------------------- controls
function stop() { if (playing) { clearInterval(playing); playing = 0; $("play").setAttribute("aria-pressed", "false"); $("play").setAttribute("aria-label", "Play"); $("play").textContent = "Play"; } }
function play() {
  if (playing) return stop();
  if (now === N - 1) go(0, true);
  playing = setInterval(() => { if (now >= N - 1) stop(); else go(now + 1); }, 500);
  $("play").setAttribute("aria-pressed", "true"); $("play").setAttribute("aria-label", "Pause"); $("play").textContent = "Pause";
}
function nextBackward() { for (let k = 1; k <= N; k++) { const i = (now + k) % N; if (E[i].kind === "begin") return go(i, true); } }
function theme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(dark ? "light" : "dark");
}
function setTheme(name) { document.documentElement.dataset.theme = name; $("theme").setAttribute("aria-label", "Light or dark, now " + name); try { localStorage.setItem("adjoint-theme", name); } catch (error) { /* no storage for this page */ } }

const KEYS = {
  ArrowLeft: () => go(now - 1), ArrowRight: () => go(now + 1), PageUp: () => go(now - 10, true), PageDown: () => go(now + 10, true),
  Home: () => go(0, true), End: () => go(N - 1, true), " ": play, b: nextBackward, q: () => setQuiz(!quiz), t: theme,
  "/": () => { $("search").focus(); $("search").select(); }, "?": () => $("keys").showModal(),
};
document.addEventListener("keydown", ev => {
  const x = ev.target, typing = x.matches("input[type=search], select, textarea") || $("keys").open;
  if (ev.ctrlKey || ev.metaKey || ev.altKey || typing) return;
  if (ev.key === " " && x.matches("button")) return;
  if (x.id === "slider" && !["b", "q", "t", "/", "?", " "].includes(ev.key)) return;
  if ((x.id === "source" || x.id === "graph") && (ev.key === "PageUp" || ev.key === "PageDown")) return;
  if (x.id === "events" && (ev.key === "ArrowUp" || ev.key === "ArrowDown")) { ev.preventDefault(); go(now + (ev.key === "ArrowUp" ? -1 : 1)); return; }
  const f = KEYS[ev.key];
  if (f) { ev.preventDefault(); f(); }
});
$("first").onclick = () => go(0, true); $("prev").onclick = () => go(now - 1); $("next").onclick = () => go(now + 1); $("last").onclick = () => go(N - 1, true);
$("play").onclick = play; $("tobackward").onclick = nextBackward; $("theme").onclick = theme; $("quiz").onclick = () => setQuiz(!quiz); $("help").onclick = () => $("keys").showModal();
$("slider").oninput = () => { stop(); go(Number($("slider").value), true); };
$("expandall").onclick = () => { for (const g of G) open.add(g.id); relayout(); };
$("collapseall").onclick = () => { open.clear(); open.add(0); relayout(); };
$("zoomin").onclick = () => setZoom(zoom * 1.25); $("zoomout").onclick = () => setZoom(zoom / 1.25);
$("pick").onfocus = fillPicker; $("pick").onmousedown = fillPicker; $("pick").onblur = picker; $("pick").onchange = () => pick(Number($("pick").value));
$("search").oninput = search;
$("search").onkeydown = ev => {
  if (ev.key === "ArrowDown" || ev.key === "ArrowUp") { ev.preventDefault(); move(ev.key === "ArrowDown" ? 1 : -1); }
  else if (ev.key === "Enter") { ev.preventDefault(); take(Math.max(0, hit)); }
  else if (ev.key === "Escape") { $("search").value = ""; search(); $("next").focus(); }
};
$("search").onblur = () => { $("found").hidden = true; $("search").setAttribute("aria-expanded", "false"); };
$("search").onfocus = () => { if ($("search").value) search(); };
$("searchform").onsubmit = ev => ev.preventDefault();
function later(f) { let waiting = false; return () => { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; f(); }); } }; }
watch("events", later(() => listEvents(false)));
watch("source", () => {});
watch("graph", later(() => { if (L) { room(); draw(); } }));
window.addEventListener("hashchange", () => { const i = parseInt(location.hash.slice(1), 10); if (i && i - 1 !== now) go(i - 1, true); });

try { const saved = localStorage.getItem("adjoint-theme"); if (saved === "dark" || saved === "light") setTheme(saved); } catch (error) { /* no storage for this page */ }
$("title").textContent = W.title;
if (!N) { $("line").textContent = "Nothing was recorded: no operation ran inside of the block."; $("slider").disabled = true; layout(); room(); draw(); return; }
$("slider").max = N - 1;
openSome(70); layout(); room(); drawCurve();
$("eventsroom").style.height = N * ROW + "px";
if (W.dropped) { $("bytes").title = W.dropped + " later events were left out"; $("title").textContent += " (" + W.dropped + " later events left out)"; }
const start = parseInt(location.hash.slice(1), 10);
go(start ? start - 1 : 0, true);
window.stepper = { go: i => go(i, true), get now() { return now; }, count: N, fields: (t, i) => exists(T[t], i) ? fieldsOf(T[t], i).map(f => f[1]) : null };
})();
