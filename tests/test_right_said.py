"""What is said is true: every stage prints as text, float64 by accident is a note, one thing is no plural, the demo's story is the same."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from programs import softmax
from sources import executed

import minisitch as ms
from minisitch.errors.printed import shortened
from minisitch.explain import demo
from minisitch.explain.compare import widened

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("target", ["cpu", "cuda", "step"])
@pytest.mark.parametrize("strategy", ["none", "astitch", "kitsune"])
@pytest.mark.parametrize("stage", ["trace", "simplify", "fuse", "stitch", "schedule", "emit"])
def test_every_stage_prints_as_text(stage, strategy, target):
    made = ms.lower(softmax, X, target=target, strategy=strategy, stop_after=stage)
    said = str(made)
    assert said and "KernelSource(" not in said and "Graph(nodes" not in said and "Kernel(name" not in said and len(said) < 12_000
    if isinstance(made, tuple):
        assert repr(made) == shortened(said), "a notebook shows a tuple's repr"
        assert all(str(each).strip("\n") in said for each in made)


def test_mutant_a_plain_tuple_prints_reprs():
    made = ms.lower(softmax, X, target="cuda", strategy="none")
    assert repr(tuple(made)) != repr(made) == shortened(str(made)), "brackets around them, and each shortened alone"


WIDE = {  # line -> whether float32 becomes float64 there
    "x * np.linspace(0, 1, 4)": True, "x + np.zeros(4)": True, "x * np.float64(2)": True, "x + np.array([1.0, 2, 3, 4])": True,
    "x + np.arange(4)": True, "x * 2.0 + 1": False, "x + np.zeros(4, np.float32)": False, "x.mean() * x": False, "np.exp(x) / x.sum()": False,
}


@pytest.mark.parametrize("line", WIDE)
def test_float64_by_accident_is_a_note_with_its_line(line):
    space = {"np": np}
    executed(f"def f(x):\n    y = np.tanh(x)\n    return {line}\n", space, "model.py")
    f = space["f"]
    assert (f(X).dtype == np.float64) == WIDE[line]
    said, table = str(ms.explain(f, X)), ms.compare(f, X, target="python", strategies=("none",), seconds=0.01)
    for text in (said, ms.explain(f, X).html, table.note, str(table), table._repr_html_()):
        assert ("float64 from model.py:3 on" in text) == WIDE[line]
    assert not widened(ms.trace(f, (X.astype(np.float64),)).graph)


def test_one_thing_is_no_plural():
    one = re.compile(r"(?<![\d.,:])\b1 (kernels|bytes|nodes|operations|library calls|steps|barriers|launches)\b")
    for f in (lambda x: x + 1, softmax, lambda x: x @ x.T, lambda x: x):
        for target in ("cpu", "step"):
            report = ms.explain(f, X, target=target)
            for text in (str(report), report.html, str(ms.compare(f, X, target="python", strategies=("none", "auto"), seconds=0.01))):
                assert not one.findall(text), one.findall(text)


def test_the_demo_tells_auto_against_none_and_xla(tmp_path):
    out = io.StringIO()
    page = demo.demo(None, str(tmp_path / "page.html"), "python", out, (1, 8, 16), ("none", "xla", "astitch", "auto"))
    told = re.findall(r"^(\w+) against (\w+): (\d+) kernels? instead of (\d+), .* instead of .* through memory", out.getvalue(), re.M)
    assert [each[:2] for each in told] == [("auto", "none"), ("auto", "xla")]
    rows = {line.split()[0]: line.split()[1] for line in out.getvalue().splitlines() if line.startswith(("none ", "xla ", "auto "))
            and " against " not in line}
    assert all(rows["auto"] == mine and rows[other] == theirs for _, other, mine, theirs in told), "counted as in the table"
    assert "counted at each of its launches" in out.getvalue() and "auto against xla: " in page.read_text()


def test_the_measured_table_is_the_demos(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    measure = __import__("measure")
    name, (fn, args) = next(iter(measure.programs().items()))
    assert fn is demo.gpt and name.startswith("GPT block")
    tokens, targets = demo.make_batch(demo.default_text()[1])
    assert (args[0] == tokens).all() and (args[1] == targets).all()
    found = ms.compare(softmax, X, target="python", strategies=measure.SHOWN, seconds=0.01)
    headings, _, *rows = measure.table(found).splitlines()
    assert [h.strip() for h in headings.strip("|").split("|")] == re.split(r"  +", str(found).splitlines()[0])
    assert [row.split("|")[1].strip() for row in rows[:4]] == list(measure.SHOWN) and sys.modules["measure"]


def test_a_kernel_bug_says_rule_line_and_thread():
    from minisitch import simt

    text = "def k(x, y):\n    thread = cuda.threadIdx.x\n    y[thread + 1] = x[thread]\n"
    with pytest.raises(ms.KernelBug) as caught:
        simt.step(text, {"x": np.zeros(4, np.float32), "y": np.zeros(4, np.float32)}, 1, 4, inputs=["x"])
    bug = caught.value
    assert bug.rule and bug.rule in str(bug) and bug.line == 3 and bug.thread


def test_one_of_a_thing_is_a_singular_in_what_stages_print():
    """One row, one column: thread maps, loops, launches and pictures say "1 row", not "1 rows"."""
    plural = re.compile(r"(?<![\d.])1 (?:rows|columns|cols|blocks|threads|chunks|tiles|slices|ranges|cores|reduced rows)\b")

    def f(x):
        return x - x.max(-1, keepdims=True), x.sum(0)

    for shape in ((1, 1), (1, 5000), (5000, 1), (1, 64), (3, 1)):
        for device in ("cpu", "v100", "h100"):
            for stage in ("stitch", "schedule"):
                text = str(ms.lower(f, np.zeros(shape, np.float32), target="step" if device != "cpu" else "python",
                                    device=None if device == "cpu" else device, stop_after=stage))
                assert not plural.search(text), text
    page = ms.explain(f, np.zeros((1, 5), np.float32), target="step")._repr_html_()
    assert "1 row x 5 columns on 1 block x " in page and not plural.search(page)


def test_the_measuring_tool_says_how_to_call_it():
    def run(*words):
        return subprocess.run([sys.executable, str(ROOT / "tools" / "measure.py"), *words], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)

    told = run("--help")
    assert told.returncode == 0 and "--seconds" in told.stdout and not told.stderr
    for wrong in (("--runs", "0"), ("three",), ("--seconds", "-1")):
        refused = run(*wrong)
        assert refused.returncode == 2 and "Traceback" not in refused.stderr


def test_no_strategy_says_one_things():
    """Every word that ends in s behind a 1, whatever it counts."""
    one = re.compile(r"(?<![\d.,:%=*+/^x-])\b1 ((?:[a-z-]+ )?[a-z-]+s)\b")
    right = {"block owns", "us"}
    for strategy in ms.STRATEGIES:
        for device in (None, "v100"):
            for f, x in ((lambda x: x + 1, "f32[1]"), (softmax, "f32[33,1]"), (lambda x: (np.exp(x), x.sum()), "f32[7]")):
                report = ms.explain(f, x, strategy=strategy, device=device)
                assert {*one.findall(f"{report}\n{report.html}")} <= right
