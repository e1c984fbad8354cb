"""Reports and comparisons: what they say is in the plan, pictures are valid, pages are whole and offline."""

from __future__ import annotations

import itertools
import re
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import softmax

import minisitch as ms
from minisitch.errors import MinisitchError, PlanError
from minisitch.explain import picture
from minisitch.explain.compare import HEADINGS, Comparison, error_of, interleaved, sample
from minisitch.explain.demo import gpt, make_batch, make_weights
from minisitch.explain.page import page
from minisitch.fuse import STRATEGIES, count
from minisitch.graph import TensorType
from minisitch.runtime.this_machine import get_device
from minisitch.stitch.mapping import map_columns, map_rows
from minisitch.strategies.ask import fuse


def attention(q, k, v):
    return softmax(q @ k.T) @ v


@pytest.fixture(scope="module")
def report():
    return ms.explain(attention, "f32[16,8]", "f32[16,8]", "f32[16,8]", target="step", device="v100")


def tags(svg):
    return [e.tag.rpartition("}")[2] for e in ET.fromstring(svg).iter()]


# ---------------------------------------------------------------- reports
def test_text_holds_every_stage(report):
    text = str(report)
    for part in ("# after simplify", "# after fuse (auto)", "# after stitch", "kernel softmax", "# memory",
                 "# decisions", str(report.stages.plan), str(report.cards[0].kernel)):
        assert part in text


def test_launches_are_explained_where_they_are_named():
    def memory(found):
        lines = str(found).splitlines()
        start, = (n for n, line in enumerate(lines) if line.startswith("# memory"))
        return lines[start:lines.index("", start)]

    assert memory(ms.explain(softmax, "f32[64,64]", device="v100")) == ["# memory: 0 bytes of workspace"]
    total = memory(ms.explain(np.sum, "f32[115000]", device="v100", strategy="astitch"))
    assert total[0].endswith(" bytes of workspace; launches and library calls are counted from 0")
    assert [line.rpartition(", ")[2] for line in total[1:]] == ["launch 0"]
    assert memory(ms.explain(attention, *3 * ["f32[16,8]"]))[1].endswith(", launches 0 to 1")


def test_a_block_composition_has_no_groups():
    assert "\n# after stitch: block composition: no groups, " in str(ms.explain(softmax, "f32[64,64]", device="v100", strategy="fs18"))


def test_the_report_counts_what_the_plan_holds(report):
    assert len(report.cards) == len({k.name for k in report.stages.kernels}) == 1
    assert len(report.stages.plan.library_calls) == 2
    placed = {node for node, *_ in report.cards[0].kernel.placements}
    assert {report.stages.bodies[0].graph[n].op for n in placed} >= {"max", "sum"}


def test_why_two_values_share_a_kernel_or_do_not(report):
    graph = report.stages.graph
    product, top, total = (next(n.id for n in graph.nodes if n.op == op) for op in ("matmul", "max", "sum"))
    assert "share step" in report.why(top, total)
    apart = report.why(product, total)
    assert "kept apart" in apart and "library call" in apart
    cut = ms.explain(softmax, "f32[4,8]", strategy="xla", target="step")
    top, power = (next(n.id for n in cut.stages.graph.nodes if n.op == op) for op in ("max", "exp"))
    assert f"a kernel ends between %{top} max and " in cut.why(power, top) and "[reduce-ends-kernel]" in cut.why(power, top)
    assert "what would have to be different: The kernel needs a place that all these threads see" in cut.why(power, top)
    assert cut.why(0, top).splitlines() == [f"%0 input and %{top} max are kept apart"]
    with pytest.raises(MinisitchError, match="node %999 does not exist"):
        report.why(0, 999)


def test_decisions_name_nodes_of_the_whole_graph(report):
    assert report.decisions and all(0 <= i < len(report.stages.graph) for d in report.decisions for i in d.at)
    regional = [d for d in report.decisions if d.verdict == "regional"]
    assert {report.stages.graph[d.at[0]].op for d in regional} >= {"max", "sum"}


def test_reports_are_the_same_every_time(report):
    again = ms.explain(attention, "f32[16,8]", "f32[16,8]", "f32[16,8]", target="step", device="v100")
    assert again.html == report.html and again.svg == report.svg


def test_the_page_is_whole_offline(report):
    html = report.html
    assert html.startswith("<!doctype html>") and html.rstrip().endswith("</html>")
    assert "<script" not in html and "<link" not in html and "@import" not in html
    assert set(re.findall(r"https?://[^\"' <]+", html)) == {"http://www.w3.org/2000/svg"}
    assert html.count('<section class="kernel"') == len(report.cards) and 'id="' not in html
    assert "url(" not in html
    for svg in re.findall(r"<svg.*?</svg>", html, re.S):
        ET.fromstring(svg)


def test_names_are_escaped():
    assert "<b>" not in page("<b>", ["x"]).replace("<body>", "")
    assert "&lt;lambda&gt;" in ms.explain(lambda x: x + 1, "f32[3]", target="step").html


def test_a_jitted_function_explains_itself():
    f = ms.jit(softmax, strategy="xla", target="step")
    report = f.explain("f32[4,8]")
    assert report.stages.plan.strategy == "xla" and len(report.stages.plan.kernels) > 1


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_whole_block_is_reported(strategy):
    tokens, targets = make_batch(b"abc", 1, 8)
    report = ms.explain(gpt, tokens, targets, make_weights(16, 8), target="cpu", strategy=strategy)
    assert len(ET.fromstring(report.svg)) > len(report.stages.plan.patterns)
    assert str(report) and report.memory.workspace > 0


def test_a_program_without_kernels_is_reported():
    report = ms.explain(lambda a, b: a @ b, "f32[2,3]", "f32[3,4]", target="step")
    assert not report.cards and "# memory: 0 bytes of workspace" in report.html and "matmul" in report.svg


def test_the_page_draws_what_a_block_keeps_in_shared_memory():
    """The quotient takes the place of the exponentials, in the loop that reads them last."""
    def spread(x):
        p = softmax(x)
        return (p - np.mean(p, axis=-1, keepdims=True)) / np.max(p, axis=-1, keepdims=True)

    html = ms.explain(spread, "f32[200,3000]", strategy="astitch", target="step", device="v100", passes=("share_memory",)).html
    assert "k4 of %4: 12,000 bytes at 0, loop 1 to 2" in html and "k7 of %7: 12,000 bytes at 0, loop 2 to 3" in html


def test_the_page_has_the_roofline_of_a_gpu_and_all_of_the_text(report):
    assert "roofline of softmax on v100" in ms.explain(softmax, "f32[2,40]", target="step", device="v100").html
    assert "roofline" not in ms.explain(softmax, "f32[2,40]", target="cpu").html
    folded = report.html.partition("<h2>Every stage as text</h2>")[2].partition("</main>")[0]
    text = re.sub(r"<[^>]+>", "", folded.replace("<summary>", "\n\n").replace("</summary>", "\n"))
    assert unescape(text).split("\n") == str(report).split("\n"), "all of it, in its order"


def test_a_notebook_folds_stages_and_colours_kernels(report):
    html = report._repr_html_()
    headings = [line for line in str(report).split("\n") if line.startswith("# ")]
    assert [unescape(each) for each in re.findall("<summary>(# .*?)</summary>", html)] == headings and "<details open" not in html
    kernel = html.partition("# after emit, for cuda</summary>")[2].partition("</details>")[0]
    assert kernel.count('<i class="keyword">def</i>') == 1 and '<i class="comment"># %' in kernel
    assert '<i class="keyword">for</i> col <i class="keyword">in</i>' in kernel
    sources = ms.lower(softmax, "f32[4,8]", target="cuda")
    assert sources._repr_markdown_() == f"```python\n{sources}\n```"


@pytest.mark.parametrize("stage", ["simplify", "fuse", "stitch", "schedule", "emit", "explain", "compare"])
def test_the_prompt_shows_what_print_shows_shortened(stage):
    def long(x):
        for _ in range(80):
            x = np.tanh(x) + x
        return softmax(x)

    def made(function):
        if stage == "explain":
            return ms.explain(function, "f32[4,8]", target="step")
        if stage == "compare":
            return ms.compare(function, "f32[4,8]", target="reference", device="v100", strategies=("none", "xla"))
        return ms.lower(function, "f32[4,8]", target="cuda", stop_after=stage, strategy="none" if stage == "fuse" else "xla")

    short, full = made(lambda x: x + x), made(long)
    assert repr(short) == str(short) or len(str(short).splitlines()) > 60
    lines, shown = str(full).splitlines(), repr(full).splitlines()
    if len(lines) > 60:
        assert shown[:59] == lines[:59] and shown[59] == f"... {len(lines) - 59:,} more lines: print(_) shows all of them"
    else:
        assert shown == lines


# ---------------------------------------------------------------- pictures
@given(st.data())
def test_boxes_do_not_overlap_and_edges_run_down(data):
    number = data.draw(st.integers(1, 12))
    boxes = [picture.Box((f"node {i}" * data.draw(st.integers(1, 3)), "f32[4]")) for i in range(number)]
    pairs = st.tuples(st.integers(0, number - 1), st.integers(0, number - 1)).filter(lambda p: p[0] < p[1])
    edges = [picture.Arrow(a, b) for a, b in data.draw(st.lists(pairs, unique=True, max_size=20))] if number > 1 else []
    svg = ET.fromstring(picture.layered(boxes, edges, "test"))
    width, height = map(float, svg.attrib["viewBox"].split()[2:])
    drawn = [tuple(float(r.attrib[k]) for k in ("x", "y", "width", "height"))
             for r in svg.iter() if r.tag.endswith("rect") and "x" in r.attrib]
    assert len(drawn) == number
    for x, y, w, h in drawn:
        assert x >= 0 and y >= 0 and x + w <= width + 1 and y + h <= height + 1
    for (x, y, w, h), (x2, y2, w2, h2) in itertools.combinations(drawn, 2):
        assert x + w <= x2 + 0.2 or x2 + w2 <= x + 0.2 or y + h <= y2 + 0.2 or y2 + h2 <= y + 0.2
    for a, b, *_ in edges:
        assert drawn[a][1] + drawn[a][3] < drawn[b][1]


@pytest.mark.parametrize("rows, cols", [(750000, 32), (64, 30000), (8192, 1024), (1, 1), (3, 7), (5000, 2), (0, 4),
                                        (4, 0)])
@pytest.mark.parametrize("device", ["v100", "cpu"])
def test_thread_maps_are_drawn_for_any_shape(rows, cols, device):
    found = map_rows(rows, cols, get_device(device))
    svg = picture.thread_map(found)
    assert f"{count(found.blocks, 'block')} x {count(found.threads, 'thread')}" in svg and len(svg) < 60_000
    words = [e.text or "" for e in ET.fromstring(svg).iter() if e.tag.endswith("text")]
    for block in range(min(2, found.tasks, found.blocks)):
        assert any(w.startswith(f"block {block}") for w in words)


def test_the_papers_two_shapes_show_packing_and_splitting():
    packed = picture.thread_map(map_rows(750000, 32, get_device("v100")))
    assert "block 0: rows 0-31" in packed and "(turn 2)" in packed
    assert "part 2 of 2" in picture.thread_map(map_rows(64, 30000, get_device("v100")))
    assert "columns" in picture.thread_map(map_columns(1, 4096, 768, get_device("v100"))[0])


def test_memory_maps_show_who_shares():
    svg = picture.memory_map([("%3 exp", 0, 100, 0, 1), ("%5 sum", 128, 64, 1, 2)], 192, "workspace")
    assert "%3 exp: 100 bytes at 0, launch 0 to 1" in svg and tags(svg).count("rect") == 4


# ---------------------------------------------------------------- comparing
@pytest.fixture(scope="module")
def compared():
    return ms.compare(attention, *("f32[16,8]",) * 3, target="python")


def test_one_record_a_strategy(compared):
    assert {r.strategy for r in compared.rows} == set(STRATEGIES) and compared.rows[0].strategy == "none"
    none, astitch = compared["none"], compared["astitch"]
    assert (astitch.kernels, astitch.library_calls, none.library_calls) == (1, 2, 2) and none.kernels > astitch.kernels
    assert astitch.bytes_read < none.bytes_read and astitch.modelled_us < none.modelled_us
    assert all(0 <= r.max_error < 1e-5 for r in compared.rows)


def test_the_table_is_aligned(compared):
    head, rule, *rows = str(compared).splitlines()[:2 + len(STRATEGIES)]
    assert len({len(line) for line in (head, rule, *rows)}) == 1 and all(h in head for h in HEADINGS)
    assert ET.fromstring("<d>" + compared._repr_html_() + "</d>") is not None


def test_measured_times_and_machine_code():
    found = ms.compare(softmax, "f32[32,16]", target="cpu", strategies=("astitch",), seconds=0.05)
    assert isinstance(found, Comparison) and found["astitch"].measured_us > 0 and found.numpy_us > 0
    assert found["astitch"].max_error < 1e-6 and "NumPy itself" in str(found)
    assert 0 < found.kernel_us["astitch"]


def test_a_comparison_on_a_busy_machine_says_so():
    """Library calls are the same under every strategy; where they took several times as long, a neighbour is to blame."""
    found = ms.compare(lambda x, w: np.tanh(x @ w), *["f32[16,16]"] * 2, target="python", strategies=("none", "xla"))

    def note(*times, **more):
        return replace(found, rows=tuple(replace(r, measured_us=us, **more) for r, us in zip(found.rows, times, strict=True))).note

    assert "The same library calls took 90.00 ms to 430.00 ms: something else keeps this machine busy." in note(90e3, 430e3)
    assert "busy" not in note(300e3, 430e3), "that is noise"
    assert "busy" not in note(20.0, 900.0), "so short a time says nothing"
    assert "busy" not in note(0.0, 0.0), "nothing was measured"
    assert "busy" not in note(90e3, 430e3, library_calls=0), "kernels alone may differ as they like"


def test_comparing_leaves_the_arguments_alone():
    def step(x):
        x += 1
        return x * 2

    x = np.zeros(4, np.float32)
    ms.compare(step, x, target="python", strategies=("none", "astitch"))
    assert not x.any()


def test_a_strategys_error_costs_no_other_its_row(monkeypatch):
    """A plan that loses an operation is refused by the verifier: its row is missing, and the table says why."""
    monkeypatch.setitem(STRATEGIES, "forgetful", lambda graph, device: replace(fuse(graph, "none", device), patterns=()))
    found = ms.compare(softmax, "f32[4,8]", target="reference", strategies=("forgetful", "none"))
    assert [r.strategy for r in found.rows] == ["none"] == list(found.graphs)
    assert "No row for forgetful: PlanError: " in str(found) and "No row for forgetful" in found._repr_html_()
    with pytest.raises(PlanError):
        ms.compare(softmax, "f32[4,8]", target="reference", strategies=("forgetful",))


@pytest.mark.parametrize(("target", "device", "instead"), [("cpu", "v100", "step"), ("python", "v100", "step"), ("step", "cpu", "cpu")])
def test_a_machine_that_the_target_does_not_run_is_refused(target, device, instead):
    with pytest.raises(MinisitchError, match=f"scheduled for {device}.*take target '{instead}'"):
        ms.compare(softmax, "f32[4,8]", target=target, device=device, strategies=("none",))
    assert ms.compare(softmax, "f32[4,8]", target="reference", device=device, strategies=("none",)).rows


@pytest.mark.parametrize("device", ["v100", "cpu"])
def test_the_reference_compares_every_strategy_for_any_device(device):
    """A student without a GPU asks what a GPU would do: counts and modelled times, which are those of the stepper's text."""
    attended = dict.fromkeys(("q", "k", "v"), "f32[16,8]")
    found = ms.compare(attention, **attended, target="reference", device=device)
    assert {r.strategy for r in found.rows} == set(STRATEGIES) and not found.remark, str(found)
    assert all(r.modelled_us > 0 == r.measured_us and r.max_error < 1e-5 for r in found.rows)
    assert "No kernel was run" in str(found)
    ran = ms.compare(attention, **attended, target={"v100": "step", "cpu": "python"}[device], device=device,
                     strategies=("xla", "astitch"), passes=())
    same = ms.compare(attention, **attended, target="reference", device=device, strategies=("xla", "astitch"), passes=())
    assert [replace(r, max_error=0.0) for r in same.rows] == [replace(r, max_error=0.0) for r in ran.rows]
    assert same.graphs == ran.graphs


def test_samples_fill_a_nest():
    a, (b, c), d = sample((TensorType((2, 3)), [TensorType((4,), "int32"), TensorType((3,), "bool")], "text"), seed=1)
    assert a.dtype == np.float32 and b.dtype == np.int32 and set(b) <= set(range(8)) and c.dtype == bool and d == "text"


def test_arguments_by_name_are_other_numbers_than_those_by_position(monkeypatch):
    """Equal ones would hide what is wrong with x - y."""
    drawn, module = [], sys.modules["minisitch.explain.compare"]
    evaluate = module.evaluate
    monkeypatch.setattr(module, "evaluate", lambda graph, values, **how: (drawn.extend(values), evaluate(graph, values, **how))[1])
    ms.compare(lambda x, y: x - y, "f32[8,8]", y="f32[8,8]", target="python", strategies=("none",))
    x, y = drawn
    assert not np.isclose(x, y).any() and np.array_equal(x, sample(TensorType((8, 8))))


def test_errors_are_relative_to_the_largest_magnitude():
    exact = np.array([0.0, 10.0])
    assert error_of(np.array([0.1, 10.0]), exact) == pytest.approx(0.01)
    assert error_of(np.array([np.nan, 10.0]), exact) == np.inf
    assert error_of(np.array([np.nan]), np.array([np.nan])) == 0
    assert error_of(np.zeros(0), np.zeros(0)) == 0
    with pytest.raises(MinisitchError, match="shape"):
        error_of(np.zeros(2), np.zeros(3))


def test_calls_take_turns():
    order = []
    times = interleaved({name: lambda name=name: (order.append(name), time.sleep(0.0001)) for name in "abc"}, 0.05)
    assert set(times) == {*"abc"} and all(t >= 0 for t in times.values())
    rounds = ["".join(order[at:at + 3]) for at in range(3, len(order), 3)]
    assert all(sorted(each) == [*"abc"] for each in rounds) and len({*rounds}) > 2, "not always in the same order"


def normalise(x, scale, shift):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * scale + shift


def test_a_report_goes_down_to_the_text_and_keeps_its_ids_apart():
    """Decisions speak of the whole graph; a kernel's part of the report of its own program, which it shows first if that has other ids."""
    report = ms.explain(normalise, "f32[8,40]", "f32[40]", "f32[40]", target="cpu", strategy="astitch")
    text = str(report)
    assert f"def {report.cards[0].kernel.name}(" in text
    same = report.cards[0].body.origin == tuple(range(len(report.stages.graph)))
    assert (str(report.cards[0].body) in text) == ("of the whole\n" in text) == (not same)
    apart = ms.explain(normalise, "f32[8,40]", "f32[40]", "f32[40]", target="cpu", strategy="none")
    twice = next(card for card in apart.cards if card.launches == 2)
    assert f"# kernel {twice.kernel.name}, launched 2 times: a program of its own" in str(apart)
    alone = ms.explain(softmax, "f32[8,40]", target="cpu", strategy="astitch")
    assert f"# kernel {alone.cards[0].kernel.name}: the whole program, with its ids\n" in str(alone) and " of the whole\n" not in str(alone)
    graph = report.stages.graph
    rows = next(d for d in report.decisions if d.rule == "proactive-adaptation")
    named = int(rows.why.rpartition("%")[2])
    assert graph[named].kind in ("reduce", "map") and graph[named].op != "input", rows
