"""The doctor itself: report, JSON, re-entry, the command; gradients in words."""
from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers_loading import load

import adjoint as ad
from adjoint import nn
from adjoint.base.errors import ArgumentError, AutogradError
from adjoint.cli import main
from adjoint.inspect.doctor import codes
from adjoint.nn import functional as F

ROOT = Path(__file__).resolve().parent.parent
LABS = ROOT / "examples" / "labs"


def without_zero_grad(steps: int = 4, lr: float = 0.1) -> Any:
    w = ad.tensor([1.0], requires_grad=True)
    optimizer = ad.optim.SGD([w], lr=lr)
    with ad.doctor(quiet=True) as doctor:
        for _ in range(steps):
            (w * w).sum().backward()
            optimizer.step()
    return doctor


@pytest.mark.row("F88", "F93")
def test_missing_zero_grad_fires_at_step_two() -> None:
    assert without_zero_grad(1).findings == []
    assert [f.code for f in without_zero_grad(2).findings] == ["AD001"]


def test_evidence_separates_this_steps_share() -> None:
    """lr 0: a fixed graph, so the sum is k times the gradient (linear, not exponential)."""
    w = ad.tensor([3.0], requires_grad=True)
    optimizer = ad.optim.SGD([w], lr=0.0)
    with ad.doctor(quiet=True) as doctor:
        for _ in range(5):
            (w * w).sum().backward()
            optimizer.step()
    evidence = doctor.findings[0].evidence
    assert "|grad| = 30, of which 6 belongs to the latest step" in evidence
    assert "5 gradients are summed" in evidence


def test_accumulation_without_an_update_is_not_a_mistake() -> None:
    w = ad.tensor([3.0], requires_grad=True)
    with ad.doctor(quiet=True) as doctor:
        for _ in range(5):
            (w * w).sum().backward()
    assert doctor.findings == []


def test_report_table_and_json_agree() -> None:
    doctor = without_zero_grad()
    finding = doctor.findings[0]
    assert finding.source == "(w * w).sum().backward()" and finding.file == __file__
    assert finding.where in doctor.report() and finding.fix in doctor.report()
    assert doctor.table() == f"AD001  {finding.where}  {finding.title}"
    data = json.loads(doctor.to_json())
    assert data["findings"] == [finding.to_json()] and data["steps"] == 4
    assert finding.one_line().startswith(f"AD001 {finding.where}: ")


def test_it_prints_at_the_end_unless_told_not_to(capsys: pytest.CaptureFixture[str]) -> None:
    with ad.doctor():
        pass
    assert capsys.readouterr().err == "doctor: no findings (0 steps, 0 backward passes, 0 " \
        "parameters)\n"
    with ad.doctor(quiet=True) as doctor:
        pass
    assert capsys.readouterr().err == "" and doctor.table() == "no findings"


def test_codes_can_be_left_out() -> None:
    w = ad.tensor([1.0], requires_grad=True)
    optimizer = ad.optim.SGD([w], lr=0.1)
    with ad.doctor(ignore=["AD001"], quiet=True) as doctor:
        for _ in range(3):
            (w * w).sum().backward()
            optimizer.step()
    assert doctor.findings == []
    with pytest.raises(ArgumentError, match="AD999.*AD001 to AD025"):
        ad.doctor(ignore=["AD999"])


def test_entered_again_it_goes_on() -> None:
    w = ad.tensor([1.0], requires_grad=True)
    optimizer = ad.optim.SGD([w], lr=0.1)
    doctor = ad.doctor(quiet=True)
    for _ in range(3):
        with doctor:
            (w * w).sum().backward()
            optimizer.step()
    assert [f.code for f in doctor.findings] == ["AD001"]
    assert doctor.case.steps == 3


def test_an_exception_is_explained_and_not_held_back() -> None:
    x = ad.ones(3, requires_grad=True)
    doctor = ad.doctor(quiet=True)
    with pytest.raises(AutogradError, match="scalar outputs"), doctor:
        (x * 2).backward()
    assert [f.code for f in doctor.findings] == ["AD006"]
    assert "shape [3], 3 elements" in doctor.findings[0].evidence


def test_nothing_stays_behind() -> None:
    with ad.doctor(quiet=True) as doctor:
        pass
    w = ad.tensor([1.0], requires_grad=True)
    optimizer = ad.optim.SGD([w], lr=0.1)
    (w * w).sum().backward()
    optimizer.step()
    assert doctor.case.steps == 0 and doctor.case.walks == 0


def test_numbers_in_findings() -> None:
    """AD017's bound: log(1 + 9/e) = 1.4612 for ten classes."""
    x = ad.randn(8, 10, requires_grad=True)
    with ad.doctor(quiet=True) as doctor:
        F.cross_entropy(F.softmax(x, 1), ad.arange(8)).backward()
    assert "1.4612" in doctor.findings[0].evidence
    with ad.doctor(quiet=True) as doctor:
        F.nll_loss(F.softmax(x, 1), ad.arange(8)).backward()
    assert "use log_softmax" in doctor.findings[0].evidence


@pytest.mark.row("F94")
def test_the_symptom_table_has_live_values() -> None:
    model = nn.Linear(4, 1)
    optimizer = ad.optim.SGD(model.parameters(), lr=0.01)
    with ad.doctor(quiet=True) as doctor:
        for _ in range(4):
            optimizer.zero_grad()
            F.mse_loss(model(ad.ones(8, 4)), ad.zeros(8, 1)).backward()
            optimizer.step()
    rows = {r["symptom"]: r["seen"] for r in doctor.symptoms.rows()}
    assert len(rows) == 6
    assert rows["the loss is NaN"].endswith("0 of 4 not finite")
    assert rows["accuracy collapses though the loss falls"].startswith("1 of 1 models in training")
    assert re.search(r"changes them by \d\.\d\de[-+]\d\d of", rows["the weights do not change"])
    assert "resident" in rows["memory grows"] or "fewer" in rows["memory grows"]
    assert rows["all gradients are zero"] == "at the last step 0 zero, 0 None of 2"


@pytest.mark.row("F126")
def test_shares_of_dead_and_saturated_units() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.Sigmoid())
    with ad.no_grad():
        model[0].bias.copy_(ad.tensor([-99.0] * 6 + [99.0] * 2))
        model[2].bias.copy_(ad.tensor([50.0] * 3 + [0.0] * 3))
        model[2].weight.fill_(0.0)
    with ad.doctor(quiet=True) as doctor:
        model(ad.randn(32, 4)).sum().backward()
    rows = {(kind, module): share for kind, module, _, share in doctor.activations()}
    assert rows == {("dead", "1"): 0.75, ("saturated", "3"): 0.5}
    assert json.loads(doctor.to_json())["activations"][0][:2] == ["dead", "1"]


@pytest.mark.row("F98")
def test_underflow_is_counted_per_node() -> None:
    w = ad.randn(8, 8, requires_grad=True)
    for scale, low, high in ((1e-6, 0.9, 1.0), (1.0, 0.0, 0.1)):
        with ad.doctor(quiet=True) as doctor:
            ((ad.randn(4, 8).half() @ w.half()).float() * scale).sum().backward()
        shares = [share for kind, _, _, share in doctor.activations() if kind == "underflow"]
        assert shares and all(low <= s <= high for s in shares)


def test_the_page_has_the_codes_of_the_checks() -> None:
    script = load("scripts/doctor_codes.py")
    text = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert script.page(text) == text, "run scripts/doctor_codes.py"
    for c in codes():
        assert c.code in text and c.title and c.cause and c.fix


@pytest.mark.row("F95")
def test_the_five_common_mistakes_have_codes() -> None:
    named = {c.code: c.title for c in codes()}
    for code, word in (("AD001", "cleared"), ("AD005", "overwritten"), ("AD002", "losses"),
                       ("AD004", "no_grad"), ("AD006", "scalar")):
        assert word in named[code]


# ------------------------------------------------------------------ the command
def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    script = str(LABS / "missing_zero_grad.py")
    assert main(["doctor", script]) == 1
    out = capsys.readouterr().out
    assert "AD001" in out and "missing_zero_grad.py:" in out and "symptom" in out
    assert main(["doctor", script, "--healthy"]) == 0
    assert "no findings" in capsys.readouterr().out


def test_command_shows_an_exception_and_its_finding(capsys: pytest.CaptureFixture[str],
                                                    tmp_path: Path) -> None:
    target = tmp_path / "found.json"
    assert main(["doctor", "--json", str(target), str(LABS / "backward_of_a_vector.py")]) == 1
    captured = capsys.readouterr()
    assert "Traceback" in captured.err and "AD006" in captured.out
    assert json.loads(target.read_text())["findings"][0]["code"] == "AD006"
    assert main(["doctor", "--ignore", "AD001", "--json", "-",
                 str(LABS / "missing_zero_grad.py")]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


def test_command_refuses_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "no/such.py"]) == 2
    assert "no file no/such.py" in capsys.readouterr().err
    assert main(["doctor", "--ignore", "AD999", str(LABS / "missing_zero_grad.py")]) == 2
    assert "known are AD001 to AD025" in capsys.readouterr().err
    assert main(["doctor", "codes"]) == 0
    assert "AD025" in capsys.readouterr().out


def test_command_in_a_process_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-m", "adjoint", "doctor",
                           str(LABS / "softmax_twice.py")], cwd=ROOT, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 1 and "AD017" in done.stdout


# ------------------------------------------------------------------ gradients in words
@pytest.mark.row("F86", "F132")
def test_grad_report_has_three_states() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    with ad.no_grad():
        model[0].bias.fill_(-50.0)
        model[2].bias.fill_(1.0)
    model[2].weight.requires_grad_(False)
    model(ad.ones(1, 2)).sum().backward()
    report = ad.grad_report(model)
    assert str(report).splitlines() == ["0.weight  zero", "0.bias    zero", "2.weight  NO GRAD",
                                        "2.bias    1"]
    assert report.zero == ["0.weight", "0.bias"] and report.missing == ["2.weight"]
    assert report.norm == 1.0
    assert report.line(10, ad.tensor(0.9873)) == "Step  10: loss=0.9873, grad_norm=1.0000"
    with pytest.raises(ArgumentError, match="expected a module"):
        ad.grad_report([3])


@pytest.mark.row("F87")
def test_why_none() -> None:
    w = ad.ones(3, requires_grad=True)
    v = ad.ones(3)

    def under_no_grad() -> Any:
        with ad.no_grad():
            return (w * 2).sum()

    def through_numpy() -> Any:
        return (ad.tensor(w.detach().numpy()) * 2).sum()

    def not_added() -> Any:
        w * 2
        return (v * 2).sum()

    assert ad.why_none(v).cause == "requires_grad is False"
    assert ad.why_none(w, under_no_grad).cause == "no_grad"
    assert "with ad.no_grad():" in ad.why_none(w, under_no_grad).where
    assert ad.why_none(w, through_numpy).cause == "detached"
    assert "numpy()" in ad.why_none(w, through_numpy).where
    assert ad.why_none(w, lambda: (w.data * 2).sum()).cause == "detached"
    assert ad.why_none(w, not_added).cause == "not part of the loss"
    assert ad.why_none(w, lambda: v.sum()).cause == "not used"
    assert ad.why_none(w, lambda: (w * 2).sum()).cause == "no backward"
    assert ad.why_none(ad.ones(1, requires_grad=True)).cause == "not used"
    assert ad.why_none(w * 2).cause == "not a leaf"
    assert ad.why_none(w, w.sum()).cause == "no backward"
    assert ad.why_none(w, v.sum()).cause == "not part of the loss"
    assert ad.why_none(w, lambda: (w > 0).float().sum()).cause == "gt has no derivative"
    (w * 2).sum().backward()
    assert ad.why_none(w) is None


@pytest.mark.row("F87", "F126")
def test_why_zero() -> None:
    w = ad.ones(2, 3, requires_grad=True)

    def cause(loss: Any) -> str:
        return ad.why_zero(w, loss).cause

    assert cause(lambda: ad.relu(w - 10).sum()) == "dead relu"
    assert cause(lambda: ad.sigmoid(w * 1e4).sum()) == "saturated"
    assert cause(lambda: (w * ad.zeros(3)).sum()) == "zero weights"
    assert cause(lambda: F.linear(w, ad.zeros(4, 3)).sum()) == "zero weights"
    assert cause(lambda: ad.round(w * 3).sum()) == "step function"
    assert cause(lambda: ad.where(w > 5, w, 0.0).sum()) == "not selected"
    assert cause(lambda: F.softmax(w, 1)[:, :3].sum()) == "constant output"
    assert cause(lambda: (w - w).sum()) == "zero cotangent"
    assert ad.why_zero(w, lambda: (w * 2).sum()) is None
    assert ad.why_zero(w).cause == "no backward"
    w.grad = ad.ones_like(w)
    assert ad.why_zero(w) is None
    w.grad = ad.zeros_like(w)
    with pytest.raises(ValueError, match=r"gone; pass the loss before backward"):
        ad.why_zero(w)
    w.grad = None
    assert ad.why_zero(w, lambda: (w.detach() * 2).sum()).cause == "detached"
    assert w.grad is None
    reason = ad.why_zero(w, lambda: ad.relu(w - 10).sum())
    assert __file__ in reason.where and "relu" in reason.where and "fix:" in str(reason)


def test_why_zero_of_a_freed_graph_says_what_to_pass() -> None:
    w = ad.ones(3, requires_grad=True)
    loss = ad.relu(w - 10).sum()
    loss.backward()
    with pytest.raises(ArgumentError, match="pass a function"):
        ad.why_zero(w, loss)


def test_a_constructor_is_no_place_where_gradients_were_switched_off() -> None:
    """Layers fill their weights under no_grad; that is nothing the user opened."""
    with ad.no_grad():                                  # the user's, the latest
        ad.ones(1)
    model = nn.Linear(3, 2)
    with pytest.raises(AutogradError, match="does not require grad") as caught:
        ad.ones(3).sum().backward()
    code = test_a_constructor_is_no_place_where_gradients_were_switched_off.__code__
    assert f"test_doctor.py:{code.co_firstlineno + 2} in" in str(caught.value)
    assert "with ad.no_grad():" in ad.why_none(model.weight).where
    for look in (ad.why_none, ad.why_zero):
        with pytest.raises(TypeError, match="param is a Linear, expected a tensor"):
            look(model)
