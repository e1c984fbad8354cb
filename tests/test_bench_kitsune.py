"""``bench --suite kitsune``: counts are those of the steppers and of the program's own sizes, the report says what records hold."""

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
for folder in (ROOT, ROOT / "benchmarks" / "models"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from stitch_help import stepped, traced  # noqa: E402
from test_cuda_pipeline import DEVICE, TINY, launch  # noqa: E402

from benchmarks import counting, kitsune, papers, results  # noqa: E402
from minisitch import __main__ as cli  # noqa: E402
from minisitch.cuda_emit import emit  # noqa: E402
from minisitch.device import DEVICES  # noqa: E402
from minisitch.graph import TensorType  # noqa: E402
from minisitch.reference import evaluate  # noqa: E402
from minisitch.simplify import simplify  # noqa: E402
from minisitch.stitch.body import extract  # noqa: E402
from minisitch.stitch.windows import body_of  # noqa: E402
from minisitch.strategies.ask import fuse  # noqa: E402
from minisitch.strategies.cost import Bytes  # noqa: E402
from minisitch.strategies.kitsune import pipeline, predict  # noqa: E402
from minisitch.strategies.kitsune.emit import emit_pipeline  # noqa: E402
from minisitch.strategies.prices import built, digest  # noqa: E402
from minisitch.trace import flatten, trace  # noqa: E402

A100 = DEVICES["a100"]


def program_of(name, preset):
    function, arguments = importlib.import_module(name).make(preset)
    return trace(function, arguments), flatten(arguments)[0]


def test_a_workload_end_to_end(tmp_path, capsys, monkeypatch):
    """The command line, a process, the file, the report; asked again, nothing is measured anew."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", list(sys.path))
    out = tmp_path / "raw.json"
    words = ["bench", "--suite", "kitsune", "--seconds", "0", "--target", "python", "--workload", "llama_token",
             "--strategy", "none,kitsune", "--out", str(out)]
    assert cli.main(words) == 0
    shown, record = capsys.readouterr().out, json.loads(out.read_text())["llama_token"]
    assert record["operators"] == 27 and set(record["strategies"]) == {"none", "kitsune"}
    assert all(row["of_numpys"] <= 10 and len(row["call_us"]) == papers.FEWEST_ROUNDS for row in record["strategies"].values())
    assert set(record["models"]) == {"a100", "h100", "h200"}
    for title in ("Operators fused (small)", "Off-chip traffic cut (small)", "Modelled", "Measured on this CPU (small)"):
        assert f"## {title}" in shown
    before = out.read_text()
    assert cli.main(words) == 0 and out.read_text() == before


# ---------------------------------------------------------------- counts
@pytest.mark.parametrize("name", ["dlrm", "nerf", "meshgraphnets"])
def test_counted_bytes_are_the_steppers(name):
    """Every kernel of the plans that are compared, run in the stepper: it touches what was counted."""
    program, leaves = program_of(name, "small")
    graph = simplify(program.graph)
    inputs = [np.asarray(x) for x in (*leaves, *program.captured)]
    known = set()
    for plan in (fuse(graph, "none", A100), fuse(graph, "astitch", A100), kitsune.operator_plan(graph)):
        values = evaluate(graph_with_everything(plan.graph), inputs)  # a plan may make a value twice, in a graph of its own
        for pattern in plan.kernels:
            body = body_of(plan.graph, pattern)
            meaning = digest(body.graph, pattern.composition)
            if meaning in known:  # equal layers are equal kernels
                continue
            known.add(meaning)
            seen = [np.roll(values[v].reshape(-1), -offset)[:body.graph[i].type.size].reshape(body.graph[i].type.shape)
                    for v, offset, i in zip(body.inputs, body.offsets, body.graph.inputs, strict=True)]
            _, found = stepped(emit(built(body.graph, A100, pattern.composition)), seen)
            counted, moved = kitsune.pattern_bytes(plan.graph, pattern, A100), found.bytes_read + found.bytes_written
            gathers = any(plan.graph[n].op == "gather" for n in pattern.members)  # two edges may read one node: counted twice
            assert moved == counted or (gathers and moved < counted)


@pytest.mark.parametrize(("name", "payload"), [("dlrm", 256), ("llama_token", 64), *(
    pytest.param(name, 64, marks=pytest.mark.slow) for name in ("graphcast", "meshgraphnets", "nerf", "llama_context"))])
def test_counted_bytes_of_pipelines_are_the_steppers(name, payload):
    """The small workloads with tiles so small that they are pipelines: each moves what was counted, and computes what NumPy does."""
    program, leaves = program_of(name, "small")
    graph, device = simplify(program.graph), replace(DEVICE, sms=20, queue_entry=payload, least_queue_entry=payload)
    values = evaluate(graph_with_everything(graph), [np.asarray(x) for x in (*leaves, *program.captured)])
    patterns = fuse(graph, "kitsune", device).pipelines
    assert patterns
    for pattern in patterns:
        body = extract(graph, pattern)
        seen = [values[v] for v in body.inputs]
        source = emit_pipeline(body.graph, pattern.composition, device, tile=TINY)
        found = launch(body.graph, source, inputs=seen)
        assert found.bytes_read + found.bytes_written == kitsune.pattern_bytes(graph, pattern, device)


QUICK = (("llama_context", "medium"), ("nerf", "full"))
OTHER = [(name, preset) for name in kitsune.WORKLOADS for preset in ("medium", "full") if (name, preset) not in QUICK]


@pytest.mark.parametrize(("name", "preset"), [*QUICK, *(pytest.param(*each, marks=pytest.mark.slow) for each in OTHER)])
def test_every_pipeline_of_a_workload_can_be_written(name, preset):
    graph = simplify(program_of(name, preset)[0].graph)
    for pattern in fuse(graph, "kitsune", A100).pipelines:
        body = extract(graph, pattern).graph
        source = emit_pipeline(body, pattern.composition, A100)
        assert source.grid <= A100.wave(source.block, source.shared_bytes, source.registers)


def graph_with_everything(graph):
    """The same program, returning every value."""
    return type(graph)(graph.nodes, tuple(range(len(graph))))


def test_a_pipeline_moves_what_goes_in_and_what_comes_out():
    """The paper's MLP: the hidden values never travel."""
    graph = simplify(traced(lambda x, u, v: np.maximum(x @ u, 0.0) @ v, (4096, 256), (256, 1024), (1024, 256)))
    moved = {name: kitsune.plan_bytes(fuse(graph, name, A100), A100) for name in ("none", "astitch", "kitsune")}
    outer, hidden = 4 * (2 * 4096 * 256 + 2 * 256 * 1024), 4 * 4096 * 1024
    assert moved == {"none": outer + 4 * hidden, "astitch": outer + 4 * hidden, "kitsune": outer}


def test_a_queue_that_does_not_fit_in_l2_travels():
    """As above, with entries of 32 MB in a cache of 40: the hidden values are written and read again."""
    graph = simplify(traced(lambda x, u, v: np.maximum(x @ u, 0.0) @ v, (4096, 256), (256, 1024), (1024, 256)))
    pattern, = kitsune.pipelines(fuse(graph, "kitsune", A100))
    wide = replace(pattern.composition, queues=tuple(replace(q, tile_bytes=1 << 25) for q in pattern.composition.queues))
    body, hidden = extract(graph, pattern).graph, 4 * 4096 * 1024
    less, more = (predict.pipeline_traffic(body, each, A100) for each in (pattern.composition, wide))
    assert (more.read - less.read, more.written - less.written) == (hidden * len(wide.queues),) * 2


def test_of_what_is_sliced_only_the_slices_are_read():
    graph = traced(lambda x, w: np.tanh(x[:16] @ w) @ w, (4096, 8), (8, 8))
    assert predict.pipeline_traffic(graph, pipeline.Pipeline(), A100) == Bytes(16 * 8 * 4 + 8 * 8 * 4, 16 * 8 * 4)


def test_a_linear_layers_bias_is_added_inside_its_product():
    """What the baseline of operators moves: x, weight and bias in, the result out; of the relu both ways."""
    from operators import linear, relu

    def layer(x, weights):
        return relu(linear(x, weights, "w"))
    weights = {"w": TensorType((8, 16)), "w/bias": TensorType((16,))}
    graph = simplify(trace(layer, [TensorType((64, 8)), weights]).graph)
    assert kitsune.operator_bytes(graph, A100) == 4 * (64 * 8 + 8 * 16 + 16 + 64 * 16 + 2 * 64 * 16)


@pytest.mark.parametrize("name", kitsune.WORKLOADS)
def test_no_less_is_fused_and_cut_than_in_the_paper(name):
    """Full sizes, on the paper's machine, against operators as PyTorch launches them; but for one token (docs/benchmarks.md)."""
    graph = simplify(program_of(name, "full")[0].graph)
    paper, found = importlib.import_module(name).PAPER["kitsune"], kitsune.counts(graph, A100)
    share, cut = found["fused"]["kitsune"] / found["operators"], 1 - found["bytes"]["kitsune"] / found["bytes"]["operators"]
    assert 100 * cut >= paper["traffic_cut"]["kitsune"]
    assert share >= paper["fused"]["kitsune"] / paper["operators"] or name == "llama_token"
    assert found["bytes"]["kitsune"] < found["bytes"]["vertical"] < found["bytes"]["none"]


def test_the_model_counts_every_operator_once():
    """Baseline stages of a pipeline: each operator that it holds, and no node twice."""
    graph = simplify(program_of("nerf", "full")[0].graph)
    pattern, = kitsune.pipelines(fuse(graph, "kitsune", A100))
    body = extract(graph, pattern)
    stages = kitsune.launches(counting.operators(graph), body, pattern.composition)
    nodes = [n for stage in stages for n in stage.nodes]
    assert len(stages) == 24 and len(set(nodes)) == len(nodes)
    times = kitsune.modelled(graph, A100)
    assert times["pipelines_us"] == times["whole_us"]  # nothing lies outside
    as_it_is, more_of_all = (times["scaled_us"][str(kitsune.MACHINES[k])] for k in (0, -1))
    assert as_it_is["dataflow"] == times["pipelines_us"]["kitsune"] and all(more_of_all[way] < us for way, us in as_it_is.items())
    assert times["whole_us"]["kitsune"] < times["whole_us"]["vertical"] < times["whole_us"]["operators"]


# ---------------------------------------------------------------- the report
def row(us, **more):
    return {"call_us": [us, us, 9 * us], "max_error": 1e-7, "of_numpys": 1.0, "pipelines": 1, **more}


RECORD = {
    "preset": "full", "counted_preset": "full", "measured_preset": "medium", "operators": 20, "left": ["embedding", "embedding"],
    "fused": {"vertical": 5, "kitsune": 18}, "pipelines": [{"stages": 4}, {"stages": 2}],
    "bytes": {"none": 1000, "operators": 800, "vertical": 500, "kitsune": 200},
    "models": {d: {"pipelines_us": {"operators": 8.0, "vertical": 4.0, "kitsune": 2.0},
                   "whole_us": {"operators": 9.0, "vertical": 6.0, "kitsune": 3.0},
                   "scaled_us": {str(s): {"bulk-synchronous": 8.0 / s.dram, "vertical": 4.0 / s.dram, "dataflow": 2.0 / s.sms}
                                 for s in kitsune.MACHINES}} for d in kitsune.DEVICES},
    "paper": {"kitsune": {"operators": 10, "fused": {"vertical": 4, "kitsune": 8}, "traffic_cut": {"vertical": 12.34, "kitsune": 56.78}}},
    "numpy": row(400.0), "strategies": {"none": row(300.0), "kitsune": row(100.0)},
    "where": {"date": "2026-01-02", "machine": "2-core", "system": "S", "python": "3", "numpy": "2", "numba": "0", "load": 0.1, "load_after": 0.2},
}


def test_the_report_says_what_the_records_hold():
    shown = kitsune.report({"net": RECORD})
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in shown.splitlines() if line.startswith("| net")]
    assert cells[0] == ["net", "20", "10", "5 (25%)", "4 (40%)", "18 (90%)", "8 (80%)", "2", "4+2", "embedding"]
    assert cells[1] == ["net", "1.0 kB", "50.0%", "80.0%", "800 B", "37.5%", "75.0%", "12.3%", "56.8%"]
    assert cells[2] == ["net", *["2.00", "4.00", "3.00"] * 3]
    assert cells[3] == ["net", "1.00 / 1.00 / 2.00", "1.00 / 1.00 / 1.00", "2.00 / 2.00 / 1.00", "1.00 / 1.00 / 2.00", "2.00 / 2.00 / 2.00"]
    assert cells[4][-4:] == ["4.00", "3.00", "1", "1.0e-07"]


@pytest.mark.parametrize(("words", "said"), [([], "error"), (["nowhere.json"], "there is no file nowhere.json")])
def test_a_suites_module_says_how_it_is_called(words, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kitsune.py", *words])
    with pytest.raises(SystemExit) as ended:
        results.as_a_program("kitsune", kitsune.measure, print)
    shown = capsys.readouterr().err
    assert ended.value.code == 2 and "usage: python -m benchmarks.kitsune" in shown and said in shown


def test_a_strategy_that_failed_is_a_row():
    broken = RECORD | {"strategies": {"none": row(300.0), "kitsune": {"error": "PlanError: no"}}}
    assert "PlanError: no" in kitsune.report({"net": broken})
