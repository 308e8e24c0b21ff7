"""explain and draw: the walk through a tape in symbols and numbers, and pictures of graphs."""
from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adjoint as ad
from adjoint.core.op import OPS
from adjoint.core.tensor import Port
from adjoint.inspect.formulas import card_of, plain
from adjoint.inspect.graph import graph_of
from adjoint.inspect.layers import layout
from adjoint.testing.samples import table


def leaf(*values: Any) -> Any:
    return ad.tensor(values[0] if len(values) == 1 else values, requires_grad=True)


def backward_lines(e: Any) -> list[str]:
    return [f"d{e.root}/d{s.target} {'=' if s.first else '+='} {plain(s.formula, '{}')}"
            for m in e.moves for s in m.shares]


@pytest.mark.row("F8", "F9")
def test_adjoint_trace_of_the_sources() -> None:
    x1, x2 = leaf(3.0), leaf(4.0)
    a = x1 + x2
    f = a * x1
    e = ad.explain(f)
    assert e.trace() == [("f", "1"), ("a", "3"), ("x1", "7"), ("x1", "10"), ("x2", "3")]
    assert [(s.out, plain(s.formula), s.value) for s in e.steps] == [
        ("a", "x1 + x2", "7"), ("f", "a·x1", "21")]
    assert a.is_leaf is False and x1.grad is None and x2.grad is None
    f.backward()                                    # the graph is still there
    assert (x1.grad.item(), x2.grad.item()) == (10.0, 3.0)


@pytest.mark.row("F30")
def test_four_lines_of_the_chain_rule() -> None:
    W1, W2, x = leaf([0.5], [1.0]), leaf([[1.0, -1.0]]), leaf([[2.0]])
    a = W1 @ x
    h = a.sigmoid()
    y = W2 @ h
    L = (y**2).sum()
    lines = backward_lines(ad.explain(L))
    assert "dL/dy = 2·y" in lines
    assert "dL/dh = W2ᵀ @ (2·y)" in lines
    assert "dL/da = dL/dh·(h·(1 - h))" in lines
    assert "dL/dx = W1ᵀ @ dL/da" in lines


@pytest.mark.row("F5")
def test_relu_of_linear_tells_what_is_saved_and_why() -> None:
    x, W, b = (leaf(np.ones(s, np.float32).tolist()) for s in ((2, 3), (3, 4), (4,)))
    y = (x @ W + b).relu()
    e = ad.explain(y)
    assert [s.node for s in e.steps] == ["MmBackward0", "AddBackward0", "ReluBackward0"]
    assert [m.node for m in e.moves] == ["ReluBackward0", "AddBackward0", "MmBackward0"]
    mm, add, relu = e.steps
    assert {s.name for s in mm.saved} == {"x", "W"} and add.saved == []
    assert relu.saved[0].name == "y" and "out <= 0" in relu.saved[0].why
    assert relu.nbytes == 2 * 4 * 4 and mm.nbytes == 0 and e.nbytes == 32
    assert all(s.shared == "a leaf that requires grad" for s in mm.saved)


def test_shared_memory_is_counted_once() -> None:
    x = leaf([1.0] * 1000)
    h = x.exp()
    e = ad.explain((h * h).sum())
    assert e.nbytes == 4000
    assert [s.shared for s in e.steps[1].saved] == ["step 1", "step 1"]


def test_forms_of_output() -> None:
    x = leaf([1.0, 2.0])
    y = (x * 3).tanh().sum()
    e = y.explain()
    text = str(e)
    assert "saves" in text and "x̄ = " in text and "test_inspect_explain.py" in text
    assert "[v" in text                              # a saved term in brackets
    table_ = e.markdown()
    assert table_.count("\n| ") >= 6 and "**" in table_
    found = json.loads(e.json())
    assert found["nbytes"] == 8 and found["steps"][1]["saved"][0]["residual"] == "out"
    page = e._repr_html_()
    ElementTree.fromstring(page)
    assert "MulBackward0" in page


def test_user_text_is_not_interpreted() -> None:
    x = leaf([1.0])
    e = ad.explain(x.exp(), names={"<script>alert(1)</script>": x})
    assert "<script>" not in e._repr_html_()
    picture = ad.draw(x.exp().sin(), names={"<b>&": x})
    ElementTree.fromstring(picture.svg())
    assert "<b>" not in picture.svg()


def test_plain_in_a_pipe() -> None:
    program = ("import adjoint as ad; x = ad.tensor([1.0], requires_grad=True); "
               "ad.explain((x * 2).sum()).show()")
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                         check=True).stdout
    assert "\x1b[" not in out and "MulBackward0" in out


def test_freed_graph_is_explained_without_numbers() -> None:
    x = leaf([1.0, 2.0])
    y = x.tanh().sum()
    y.backward()
    e = ad.explain(y)
    assert "freed" in e.note and "test_inspect_explain.py" in e.note
    assert all(not s.value for m in e.moves for s in m.shares)
    assert any("1 - " in line for line in backward_lines(e))
    assert x.grad.tolist() == pytest.approx((1 - np.tanh([1, 2]) ** 2).tolist())


def test_gradient_of_a_vector_and_custom_functions() -> None:
    class Double(ad.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2
    x = leaf([1.0, 2.0])
    y = Double.apply(x)
    e = ad.explain(y, ad.tensor([1.0, 10.0]))
    assert e.trace()[-1] == ("x", "[2, 20]")
    assert e.steps[0].node == "DoubleBackward" and e.steps[0].saved[0].name == "x"


def test_refusals_name_the_reason() -> None:
    with pytest.raises(RuntimeError, match="leaf"):
        ad.explain(leaf([1.0]))
    with pytest.raises(RuntimeError, match="no_grad"):
        ad.explain(ad.ones(2) * 2)
    with pytest.raises(ValueError, match="tensor"):
        ad.explain(3)
    with pytest.raises(RuntimeError, match="no graph"):
        ad.draw(ad.ones(2))
    with pytest.raises(ValueError, match=r"\.svg"):
        ad.draw(leaf([1.0]).exp()).save("x.png")


# Rules that are no expression: a sparse result; a derivative that is refused in words; a loop over
# the steps of time.
BY_REASON = {"scatter_into", "embedding_sparse", "zeta", "linalg_ldl_solve", "ctc_loss",
             "cosine_embedding", "fused_moving_avg_obs_fq_helper",
             *(f"fake_quantize_per_{what}_affine_cachemask{how}" for what, how in (
                 ("tensor", ""), ("tensor", "_tensor_qparams"), ("channel", "")))}


def test_every_record_has_formulas() -> None:
    """Each differentiable op's card names a formula for every operand, from its own rule."""
    bare = []
    for name, rows in table().items():
        if name in BY_REASON or not OPS[name].vjp:
            continue
        for args, attrs in rows[:1]:
            operands = [ad.from_numpy(np.array(a)).requires_grad_()
                        if isinstance(a, np.ndarray) and a.dtype.kind in "fc" else a for a in args]
            operands = [ad.from_numpy(np.array(a)) if isinstance(a, np.ndarray) else a
                        for a in operands]
            made = OPS[name].call(*operands, **attrs)
            made = made if isinstance(made, tuple) else (made,)
            edge = next((t._edge for t in made if t.requires_grad), None)
            if edge is None:
                continue
            node = edge.node if type(edge) is Port else edge
            card = card_of(node)
            assert card.forward
            bare += [f"{name}.{o}" for o, text in card.backward.items() if "_vjp(" in text]
            bare += [f"{name}: why {r}" for r, why in card.saved.items() if not why]
    assert not bare


def test_forms_name_operands() -> None:
    for name, record in OPS.items():
        assert set(re.findall(r"{(\w*)}", record.show)) <= set(record.operands), name


def test_forms() -> None:
    x, w, b = (leaf(np.ones(s, np.float32).tolist()) for s in ((2, 3), (4, 3), (4,)))
    linear = ad.nn.functional.linear
    assert plain(ad.explain(linear(x, w)).steps[-1].formula) == "x @ wᵀ"
    assert plain(ad.explain(linear(x, w, b)).steps[-1].formula) == "x @ wᵀ + b"
    assert plain(ad.explain((x @ w.T).sum()).steps[-1].formula).startswith("Σ ")
    assert plain(card_of(x.cumsum(0).grad_fn).forward) == "cumsum(x, dim=0)"


# ---------------------------------------------------------------------- pictures
@pytest.mark.row("F29", "F113")
def test_picture_of_the_two_layer_program() -> None:
    W1, b1, W2, b2 = (ad.randn(*s, requires_grad=True) for s in ((4, 3), (4,), (2, 4), (2,)))
    x, target = ad.randn(3), ad.randn(2)

    def program(x: Any, target: Any) -> Any:
        z = W1 @ x + b1
        h = ad.relu(z)
        y = W2 @ h + b2
        return ((y - target) ** 2).mean()
    picture = ad.draw(program, x, target)
    labels = {v.label for v in picture.graph.vertices.values()}
    assert {"x", "W1", "b1", "W2", "b2", "target"} <= labels
    root = ElementTree.fromstring(picture.svg())
    accent = [p for p in root.iter("{http://www.w3.org/2000/svg}path") if p.get("class") == "b"]
    assert len(accent) == sum(picture.graph.edges.values()) > 8
    assert "style=dashed" in picture.dot() and picture.dot().count("->") > 15
    z = W1 @ x + b1
    h = ad.relu(z)
    y = W2 @ h + b2
    loss = ((y - target) ** 2).mean()
    assert {"z", "h", "y", "loss", "W1", "b1", "W2", "b2"} <= {
        v.label for v in ad.draw(loss).graph.vertices.values()}


def test_tree_shows_sharing() -> None:
    x1, x2 = leaf(3.0), leaf(4.0)
    a = x1 + x2
    f = a * x1
    assert str(ad.draw(f)).splitlines() == ["f = a·x1", "├─ a = x1 + x2", "│  ├─ x1", "│  └─ x2",
                                            "└─ x1 ↑"]


def test_a_long_chain_goes_on_below_itself() -> None:
    """A chain is no nesting: what does not fit beside it stands in the next line, not deeper."""
    net = ad.nn.Sequential(*[ad.nn.Linear(4, 4) for _ in range(70)])
    lines = str(ad.draw(net, ad.ones(1, 4))).splitlines()
    assert len(lines) > 5 and max(map(len, lines)) <= 100
    assert all(line.startswith("← ") for line in lines[1:])


def blocks(n: int) -> Any:
    class Block(ad.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = ad.nn.Linear(4, 8), ad.nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            return x + self.down(self.up(x).relu())

    class Net(ad.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = ad.nn.ModuleList([Block() for _ in range(n)])

        def forward(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return x
    return Net()


def test_collapse_and_expand() -> None:
    net = blocks(30)
    picture = ad.draw(net, ad.ones(1, 4))
    assert {v.kind for v in picture.graph.vertices.values()} >= {"module"}
    assert len(picture.graph.vertices) <= 60
    opened = ad.draw(net, ad.ones(1, 4), expand=["blocks.3"])
    labels = {v.label for v in opened.graph.vertices.values()}
    assert {"blocks.3.up", "blocks.3.down", "blocks.4"} <= labels
    loss = net(ad.ones(1, 4)).sum()
    by_tape = ad.draw(loss, expand=["net.blocks.3"])
    assert "net.blocks.3.up" in {v.label for v in by_tape.graph.vertices.values()}


def test_readable_at_three_thousand_nodes() -> None:
    net = blocks(750)
    y = net(ad.ones(1, 4)).sum()
    full = graph_of(y, (), sys._getframe())
    assert sum(v.kind == "op" for v in full.vertices.values()) > 2900
    picture = ad.draw(y)
    assert len(picture.graph.vertices) <= 60
    assert len(str(picture).splitlines()) <= 80
    ElementTree.fromstring(picture.svg())
    x = leaf([1.0])
    for _ in range(3000):
        x = x.sin()
    assert len(ad.draw(x).graph.vertices) <= 60


def test_collapsed_graphs_stay_acyclic_and_complete() -> None:
    net = blocks(5)
    y = net(ad.ones(1, 4)).sum()
    full = graph_of(y, (), sys._getframe())
    ops = sum(v.kind == "op" for v in full.vertices.values())
    for depth in (0, 1, 2, 3):
        g = full.collapsed(depth)
        order = {k: i for i, k in enumerate(g.vertices)}
        assert all(order[a] < order[b] for a, b in g.edges)
        assert sum(v.count for v in g.vertices.values() if v.kind in ("op", "module")) == ops


def test_layout_has_no_overlap() -> None:
    rng = np.random.default_rng(0)
    keys = list(range(60))
    operands = {k: sorted(set(rng.integers(0, k, min(k, 3)).tolist())) if k else [] for k in keys}
    width = {k: float(rng.integers(30, 120)) for k in keys}
    x, rank, routes = layout(keys, operands, width, 10.0)
    for row in set(rank[k] for k in keys):
        members = sorted((x[k], width[k]) for k in keys if rank[k] == row)
        for (a, wa), (b, wb) in zip(members, members[1:], strict=False):
            assert b - a >= (wa + wb) / 2 + 9.99
    assert all(rank[a] < rank[k] for k in keys for a in operands[k])
    assert all(len(route) == rank[b] - rank[a] - 1 for (a, b), route in routes.items())


def test_a_long_chain_with_parameters_stands_straight() -> None:
    """Sources make room; they do not push the chain aside row by row."""
    keys, operands = [], {}
    for i in range(25):
        operands[f"c{i}"] = [f"c{i - 1}"] if i else []
        if i > 18:
            operands[f"c{i}"] += [f"w{i}", f"b{i}"]
            operands[f"w{i}"] = operands[f"b{i}"] = []
            keys += [f"w{i}", f"b{i}"]
        keys.append(f"c{i}")
    width = dict.fromkeys(keys, 100.0)
    x, _, _ = layout(keys, operands, width, 10.0)
    chain = [x[f"c{i}"] for i in range(25)]
    assert max(abs(a - b) for a, b in zip(chain, chain[1:], strict=False)) < 30
    assert max(x.values()) + 50 < 4 * 100


def test_one_line_stands_in_the_middle_of_its_box() -> None:
    x = ad.tensor(3.0, requires_grad=True)
    svg = ad.draw(x * ad.ones(2)).svg()
    boxes = re.findall(r'<rect x="[\d.]+" y="([\d.]+)" [^>]*height="40"[^>]*/>'
                       r'((?:<text .*?</text>)+)', svg)
    for y, texts in boxes:
        lines = [float(at) - float(y) for at in re.findall(r'<text x="[\d.]+" y="([\d.]+)"', texts)]
        assert lines[0] == (24 if len(lines) == 1 else 17) and lines[-1] < 36
    assert {texts.count("<text") for _, texts in boxes} == {1, 2}


def test_tables_in_notebooks_scroll_in_themselves() -> None:
    x = leaf([1.0])
    html = ad.explain(x.exp())._repr_html_()
    assert html.count('<div style="overflow:auto;max-height:') == html.count("<table") == 2
    assert "<th>" not in html and "<td>" not in html and html.count("text-align:left") > 10


def test_a_graph_without_leaves_is_explained_without_numbers() -> None:
    """Its formulas are there; what the gradients would be of is not."""
    found = ad.explain(leaf([1.0]).exp())
    assert found.steps[0].formula.startswith("exp(")
    assert "leaves of this graph are gone" in found.note


def test_permutations_are_said_with_their_order() -> None:
    """A superscript T is the last two axes' alone."""
    x = leaf(np.ones((2, 3, 4)))
    y = x.permute(2, 0, 1)
    assert ad.explain(y, ad.ones(4, 2, 3)).steps[0].formula == "permute(x, dims=(2, 0, 1))"


def test_save(tmp_path: Path) -> None:
    picture = ad.draw(leaf([1.0]).exp())
    for name in ("g.svg", "g.dot", "g.txt"):
        picture.save(tmp_path / name)
        assert (tmp_path / name).read_text().strip()
