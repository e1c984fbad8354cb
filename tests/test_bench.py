"""``python -m minisitch bench``: results survive interruptions, and reports say what the records hold.

The suites are in the repository, not in the package; nothing here is about how long something takes.
"""

from __future__ import annotations

import itertools
import json
import sys
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import minisitch as ms  # noqa: E402
from benchmarks import (  # noqa: E402
    cpu,
    cpu_peer,
    cpu_programs,
    cpu_report,
    irregular,
    papers,
    results,
)
from benchmarks.kernelwise import wrong_kernels  # noqa: E402
from minisitch import __main__ as cli  # noqa: E402
from minisitch.explain.compare import take_turns  # noqa: E402
from minisitch.runtime import Executable, assemble, choose_device, lower_program  # noqa: E402
from minisitch.trace import trace  # noqa: E402


@pytest.fixture(autouse=True)
def in_the_clone(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", list(sys.path))


def bench(*words):
    return cli.main(["bench", "--seconds", "0", "--target", "python", *map(str, words)])


# ---------------------------------------------------------------- the smallest case of each suite, end to end
def test_a_workload_of_the_papers(tmp_path, capsys):
    out = tmp_path / "deep" / "raw.json"
    assert bench("--workload", "lr", "--strategy", "none,xla", "--out", out) == 0
    shown, record = capsys.readouterr().out, json.loads(out.read_text())["lr"]
    assert "## lr (small)" in shown and "paper, fs18: mode train" in shown and str(out) in shown
    assert list(record["strategies"]) == ["none", "xla"] and record["paper"]["fs18"]["kernel_ratio"] == 0.43
    for name, row in record["strategies"].items():
        assert len(row["call_us"]) == len(row["in_kernels_us"]) == papers.FEWEST_ROUNDS and papers.agrees(row)
        assert row["v100"]["kernels"] >= 1 and row["here"]["library_calls"] == row["v100"]["library_calls"] > 0
        assert f"| {name} " in shown
    assert record["strategies"]["none"]["v100"]["kernels"] > record["strategies"]["xla"]["v100"]["kernels"]
    assert set(record["where"]) >= {"date", "machine", "python", "numpy", "numba", "load", "load_after"}


@pytest.mark.parametrize("suite, workload, strategies", [("papers", "lr", "none,auto"), ("irregular", "64x30000-sum", ""),
                                                         ("kitsune", "dlrm", "none,auto"), ("cpu", "colsum-512x768", "")])
def test_each_suite_on_this_cpu(suite, workload, strategies, tmp_path, capsys):
    """With the default target, whose kernels are compiled, and timed while they are."""
    out = tmp_path / "raw.json"
    words = ["--strategy", strategies] if strategies else []
    assert cli.main(["bench", "--suite", suite, "--workload", workload, "--seconds", "0", "--out", str(out), *words]) == 0
    assert workload in json.loads(out.read_text()) and f"raw results: {out}" in capsys.readouterr().out


def test_a_kernel_that_computes_something_else_is_named():
    """Also where the program hardly shows it, as here, and where a later kernel is right on what it was given."""
    def twice(x, w):
        return np.tanh(np.sum(np.exp(x), axis=0) * 1e-6 @ w)

    x, w = np.ones((7, 33), np.float32), np.ones((33, 5), np.float32)
    run = assemble(lower_program(trace(twice, (x, w), {}), "xla", "python", choose_device("python")), "python")
    assert dict(wrong_kernels(run, (x, w))) == {}
    first, *rest = run.steps

    def off_by_a_little(*buffers):
        first.launch(*buffers)
        buffers[-1][:] *= np.float32(1.001)

    broken = replace(run, steps=(replace(first, launch=off_by_a_little), *rest))
    (name, why), = wrong_kernels(broken, (x, w))
    assert name == first.name and why.startswith("33 of 33 elements are wrong")
    assert np.allclose(broken.outputs((x, w)), run.outputs((x, w)), atol=1e-3)


def test_an_irregular_shape(tmp_path, capsys):
    out = tmp_path / "raw.json"
    assert bench("--suite", "irregular", "--workload", "64x30000-sum", "--out", out) == 0
    shown, record = capsys.readouterr().out, json.loads(out.read_text())["64x30000-sum"]
    mapped = record["strategies"]["adaptive"]
    assert (mapped["rule"], mapped["splits"], mapped["grid"]) == ("task-splitting", 2, 128)
    assert (record["strategies"]["fixed"]["grid"], record["strategies"]["fixed"]["splits"]) == (64, 1)
    assert record["measured_shape"] == [2, 30000] and "adaptive is " in shown and "kernel " in mapped["text"]
    assert all(row["max_error"] < 1e-5 for row in record["strategies"].values())


@pytest.mark.parametrize("shape, adaptive, fixed", [  # rows a block, in turn, pieces a row, blocks x threads
    ("750000x32", (32, 147, 1, "160 x 1024"), (1, 1, 1, "750000 x 32")),
    ("64x30000", (1, 1, 2, "128 x 512"), (1, 1, 1, "64 x 1024")),
    ("8704x17", (32, 2, 1, "136 x 1024"), (1, 1, 1, "8704 x 32")),
    ("4096x1024", (2, 7, 1, "293 x 256"), (1, 1, 1, "4096 x 128")),
    ("11000x123", (8, 5, 1, "275 x 256"), (1, 1, 1, "11000 x 32")),
    ("11000x12345", (1, 69, 1, "160 x 1024"), (1, 1, 1, "11000 x 1024")),
    ("1x128x768", (1, 1, 1, "128 x 128"), (1, 1, 1, "128 x 128"))])
def test_irregular_shapes_are_cut_as_the_paper_says(shape, adaptive, fixed):
    """Packed, in turn or split as AStitch has it; a row gets fewer threads than in the paper, each takes 16 bytes at once."""
    for variant, expected in (("adaptive", adaptive), ("fixed", fixed)):
        m = irregular.mapping(irregular.kernels_of(irregular.softmax, irregular.sizes(shape), variant, ms.get_device("v100")))
        assert (m["rows_per_block"], m["steps"], m["splits"], f"{m['grid']} x {m['block']}") == expected and m["kernels"] == 1
        assert m["grid"] <= m["wave"] or variant == "fixed"
    assert not {"adaptive", "fixed"} & set(ms.STRATEGIES)  # known to the measuring process only


# ---------------------------------------------------------------- this CPU beside other libraries
def test_a_case_of_the_cpu_suite(tmp_path, capsys):
    """A peer that is not installed is skipped and said so; a file of kernels is one more peer."""
    kernels = tmp_path / "mine.py"
    kernels.write_text("import numpy as np\n\n\ndef jit(fn):\n    return {'colsum': lambda x: np.add.reduce(x)}[fn.workload]\n")
    out = tmp_path / "raw.json"
    assert bench("--peers", f"{kernels},jax", "--peer-python", sys.executable, "--case", "colsum-512x768", "--out", out) == 0
    shown, records = capsys.readouterr(), json.loads(out.read_text())
    assert "jax is skipped: ModuleNotFoundError: No module named 'jax'" in shown.err and "| over mine.py |" in shown.out
    peers = records["colsum-512x768"]["peers"]
    assert list(peers) == ["minisitch", "numpy", "mine.py"] and str(tmp_path) not in out.read_text()
    for row in peers.values():
        assert len(row["call_us"]) == cpu.FEWEST_ROUNDS and row["of_numpys"] <= cpu_report.EXACT and row["first_s"] >= 0
    assert peers["minisitch"]["warm_s"] and records["colsum-512x768"]["bytes"] == 513 * 768 * 4
    assert len(records["colsum-512x768"]["spin_us"]) == cpu.FEWEST_ROUNDS and out.with_suffix(".svg").read_text().startswith("<svg")


def peer_row(us, distance=1e-7, **more):
    return {"version": "1", "import_s": 0.5, "first_s": 2.0, "call_us": [us, us, 100 * us], "distances": [distance], "dtypes": ["float32"],
            "of_numpys": distance / 1e-7} | more


def cpu_record(spin, **peers):
    where = {"date": "2026-01-02", "machine": "2-core", "system": "S", "python": "3"}
    return {"where": where, "cpu": {"model": "C", "vector_bits": 256, "last_cache": "1K"}, "bytes": 1 << 26, "spin_us": [1.0, spin, spin],
            "copy_us": [4000.0] * 3, "peers": peers}


CPU_RECORDS = {
    "softmax-1x768": cpu_record(1.0, minisitch=peer_row(2.0), numpy=peer_row(8.0), jax=peer_row(4.0)),
    "rope-9": cpu_record(1.0, minisitch=peer_row(2000.0, 3e-7), numpy=peer_row(4000.0), jax=peer_row(1000.0)),
    "adam-9": cpu_record(1.2, minisitch=peer_row(10.0), numpy=peer_row(20.0), jax=peer_row(1.0, 0.5)),
    "lamb-9": cpu_record(1.0, minisitch=peer_row(10.0), numpy=peer_row(20.0), jax={"skipped": "no form"}),
}


def test_the_cpu_report_says_what_the_records_hold():
    shown = dict(part.partition("\n\n")[::2] for part in cpu_report.report(CPU_RECORDS).split("## "))
    assert "in 1 of 4 cases a spin on all cores took more than 1.15 times its best (at worst 1.20)" in cpu_report.report(CPU_RECORDS)
    assert "moves 33.6 GB/s" in cpu_report.report(CPU_RECORDS) and "Medians of 3 rounds" in cpu_report.report(CPU_RECORDS)
    means = shown["Geometric means, and over how many cases"]
    assert "| all cases         |   2.38 (4) | 1.00 (2) |" in means  # jax: 2 and 1/2; wrong results do not count
    assert "| all, best samples |" in means
    assert "Over the 1 cases of a millisecond and more: 100%" in shown["Share of the copy's speed"]
    assert shown["Where the best peer is more than 10% faster"].strip() == "- rope-9: 2.00 ms, jax 1.00 ms"
    assert shown["Where the error is more than 2 times NumPy's own"].startswith("- rope-9: 3.00 times")
    assert shown["What does not count"] == "- adam-9, jax: wrong by 5.0e-01 of the largest magnitude\n- jax has no form of 1 cases"
    assert cpu_report.picture(CPU_RECORDS).count("<circle") == 2 + 4 + 2  # the legend, then the ratios there are


def test_errors_are_counted_in_numpys_own():
    own = {"distances": [1e-6, 0.0, 0.0], "dtypes": ["float32", "float32", "int32"]}
    assert cpu.in_units_of(own, [2e-6, 0.0, 0.0]) == 2.0
    assert cpu.in_units_of(own, [0.0, 2.0 ** -23, 0.0]) == 2.0  # NumPy was exact: one rounding is the unit
    assert cpu.in_units_of(own, [0.0, 0.0, float("inf")]) == float("inf")


def test_errors_of_several_draws():
    assert cpu_peer.middle([3e-9], 2.0 ** -24) == 3e-9
    assert cpu_peer.middle([1e-6, 4e-6], 2.0 ** -24) == pytest.approx(2e-6)
    assert cpu_peer.middle([0.0, 2.0 ** -20], 2.0 ** -24) == pytest.approx(2.0 ** -22)  # exact counts as one rounding
    assert cpu_peer.middle([0.0] * 9, 0.0) == 0.0 and cpu_peer.middle([0.0] * 8 + [float("inf")], 0.0) == float("inf")
    assert cpu_peer.middle([1e-7] * 8 + [1.0], 2.0 ** -24) > 4e-7  # a draw that is wrong shows


def test_cases_of_few_numbers_are_drawn_several_times_and_an_error_of_each_draw_is_found():
    def twelve_roundings_off(seed=0):
        fn, args = cpu_programs.load("model_speech-small", seed)
        seeds.append(seed)
        return lambda: cpu_peer.walk(cpu_peer.on_arrays(lambda x: x * np.float32(1 + 12 * 2.0 ** -24)), fn(*args))
    seeds = []
    numpys = cpu_peer.check(cpu_peer.with_numpy("model_speech-small", "cpu")[1], "model_speech-small")
    found = cpu_peer.check(twelve_roundings_off, "model_speech-small")
    assert seeds == list(range(cpu_peer.DRAWS)) and found["draws"] == numpys["draws"] == cpu_peer.DRAWS
    assert cpu.in_units_of(numpys, found["distances"]) > cpu_report.EXACT > 1 == cpu.in_units_of(numpys, numpys["distances"])
    assert cpu_peer.check(cpu_peer.with_numpy("softmax-512x768", "cpu")[1], "softmax-512x768")["draws"] == 1


def test_an_output_that_is_nothing_but_rounding_is_left_out_for_everybody():
    rows = {"numpy": {"distances": [1e-7, 1.0, 2e-7], "dtypes": ["float32", "float32", "float64"]},
            "minisitch": {"distances": [1e-7, 1e17, 3e-7], "dtypes": ["float32", "float32", "float64"]}, "jax": {"failed": "no"}}
    assert cpu.leave_out_noise(rows) == 1
    assert rows["minisitch"] == {"distances": [1e-7, 3e-7], "dtypes": ["float32", "float64"]} and rows["jax"] == {"failed": "no"}
    assert cpu.leave_out_noise({"numpy": {}, "minisitch": {"distances": [1.0]}}) == 0


def test_a_peer_that_dies_says_why(tmp_path):
    kernels = tmp_path / "mine.py"
    kernels.write_text("import os\n\n\ndef jit(fn):\n    os._exit(3)\n")
    with cpu.Peer("mine.py", "softmax-1x8", cpu.Setting("cpu", sys.executable, {"mine.py": str(kernels)}), str(tmp_path)) as peer:
        assert peer.ask("first") == {"error": "the process ended with code 3"} == peer.ask("sample")


def test_distances_of_results():
    exact = np.array([1.0, np.nan, 4.0])
    assert cpu_peer.distance(np.float32([1.0, np.nan, 3.0]), exact) == 0.25
    for wrong in (np.float32([1.0, 2.0, 3.0]), np.float32([1.0]), np.array([1, 2, 3])):
        assert cpu_peer.distance(wrong, exact) == float("inf")


def test_a_program_names_all_its_shapes():
    assert cpu.choose(["rope", "rope-1x128x16x64"], "small") == ["rope-8x1024x16x64", "rope-1x128x16x64"]
    assert set(cpu.choose([], "small")) < set(cpu.choose([], "full")) and "model_lr-small" in cpu.choose([], "full")


@pytest.mark.parametrize("name", cpu_programs.WORKLOADS)
def test_programs_of_the_cpu_suite_trace(name):
    """Their last and smallest shape; what they compute is compared whenever they are measured."""
    smallest = min(cpu_programs.WORKLOADS[name].shapes, key=lambda shape: np.prod([int(n) for n in shape.split("x")]))
    fn, args = cpu_programs.load(f"{name}-{smallest}")
    program = ms.trace(fn, args)
    assert [program.graph[o].type.shape for o in program.graph.outputs] == [np.shape(x) for x in cpu_peer.leaves(fn(*args))]


# ---------------------------------------------------------------- interrupted and run again
@pytest.fixture
def fakes(monkeypatch):
    """Workloads that cost nothing: which were measured, and what happens to each."""
    measured, fails = [], {}
    monkeypatch.delenv("MINISITCH_CACHE", raising=False)

    def run_one(command, environment, doing):
        settings = json.loads(command[-1])
        name = settings["workload"]
        measured.append(name)
        doing("something")
        rows = {s: {} for s in settings["strategies"]}
        return ({}, fails[name]) if name in fails else ({"strategies": rows, "cache": environment.get("MINISITCH_CACHE")}, "")

    monkeypatch.setattr(results, "run_one", run_one)
    return measured, fails


def options(path, **changed):
    return Namespace(**{"workload": [], "preset": "small", "target": "cpu", "seconds": 1.0, "out": path, "fresh": False,
                        "registering": []} | changed)


FILES = dict.fromkeys("abc", Path(__file__))


def test_a_second_run_measures_what_the_first_did_not(fakes, tmp_path):
    measured, fails = fakes
    path = tmp_path / "raw.json"
    fails["b"] = "MemoryError: no more"
    _, records, failed = results.run_suite("papers", FILES, ["xla"], options(path))
    assert measured == ["a", "b", "c"] and list(records) == ["a", "c"] and failed == {"b": "MemoryError: no more"}
    fails.clear()
    _, records, failed = results.run_suite("papers", FILES, ["xla"], options(path))
    assert measured == ["a", "b", "c", "b"] and sorted(records) == ["a", "b", "c"] and not failed


@pytest.mark.parametrize("change", [{"strategies": ["xla", "auto"]}, {"preset": "full"}, {"target": "python"}, {"fresh": True}, {"code": 1},
                                    {"calibration": 1}],
                         ids=lambda change: next(iter(change)))
def test_what_has_changed_is_measured_again(fakes, tmp_path, monkeypatch, change):
    measured, _ = fakes
    path = tmp_path / "raw.json"
    results.run_suite("papers", FILES, ["xla"], options(path))
    measured.clear()
    if "code" in change:
        monkeypatch.setattr(results, "code_digest", lambda workload: "other")
    if "calibration" in change:
        monkeypatch.setattr(results, "get_device", lambda name: "another CPU")
    asked = options(path, **{k: v for k, v in change.items() if k in ("preset", "target", "fresh")}, workload=["b"])
    _, records, _ = results.run_suite("papers", FILES, change.get("strategies", ["xla"]), asked)
    assert measured == ["b"] and list(records) == ["b"]
    assert bool(records["b"]["cache"]) == ("fresh" in change)


@pytest.mark.parametrize("changed", ["minisitch/fuse.py", "minisitch/runtime/call.py", "minisitch/kernel/index.py", "benchmarks/papers.py",
                                     "benchmarks/models/layers.py", "benchmarks/models/lr.py"])
def test_the_code_of_a_record_is_all_that_makes_it(tmp_path, monkeypatch, changed):
    """A model's parts too."""
    def digest():
        return results.code_digest(tmp_path / "benchmarks" / "models" / "lr.py")

    monkeypatch.setattr(results, "ROOT", tmp_path)
    for name in ("minisitch/fuse.py", "minisitch/runtime/call.py", "minisitch/kernel/index.py", "benchmarks/papers.py", "benchmarks/models/layers.py",
                 "benchmarks/models/lr.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    before = digest()
    assert before == digest()
    (tmp_path / changed).write_text("x = 2\n")
    assert digest() != before


def test_fewer_strategies_than_the_file_has_are_not_measured_again(fakes, tmp_path):
    measured, _ = fakes
    path = tmp_path / "raw.json"
    results.run_suite("papers", FILES, ["xla", "auto"], options(path))
    results.run_suite("papers", FILES, ["auto"], options(path))
    assert measured == ["a", "b", "c"]


def test_a_write_that_is_cut_short_leaves_the_file_of_before(tmp_path, monkeypatch):
    path = tmp_path / "raw.json"
    found = results.Results(path)
    found.add("a", {"x": 1})
    monkeypatch.setattr(results, "one_line_each", lambda records: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        found.add("b", {"x": 2})
    assert results.Results(path).records == {"a": {"x": 1}}


def test_a_damaged_file_is_not_thrown_away(tmp_path, capsys):
    path = tmp_path / "raw.json"
    path.write_text('{"lr": {')
    assert bench("--workload", "lr", "--out", path) == 1
    assert "cannot read the results" in capsys.readouterr().err and path.read_text() == '{"lr": {'


values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=20)


@given(st.dictionaries(st.text(), st.dictionaries(st.text(), values, max_size=4), max_size=3))
def test_the_file_means_what_was_written(records):
    assert json.loads(results.one_line_each(records)) == records


def test_a_strategy_has_a_line_of_the_file():
    text = results.one_line_each({"lr": {"nodes": 3, "strategies": {"xla": {"us": [1, 2], "here": {"k": 3}}, "none": {}}}})
    assert text.splitlines()[2:6] == ['  "nodes": 3,', '  "strategies": {', '   "xla": {"us": [1, 2], "here": {"k": 3}},', '   "none": {}']


# ---------------------------------------------------------------- a process for each workload
def run(program):
    said = []
    return *results.run_one([sys.executable, "-c", program], {}, said.append), said


def test_a_process_says_what_it_does_and_then_its_record():
    program = "import json; print(json.dumps({'doing': 'planning'})); print(json.dumps({'nodes': 3}))"
    assert run(program) == ({"nodes": 3}, "", ["planning"])


@pytest.mark.parametrize("program, error", [("raise ValueError('too large')", "ValueError: too large"),
                                            ("import os; os._exit(9)", "the process ended with code 9"),
                                            ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "the process ended with code -9"),
                                            ("print('{\"nodes\": 1}', flush=True); 1 / 0", "ZeroDivisionError: division by zero"),
                                            ("pass", "the process ended with code 0")])
def test_a_process_that_fails_says_why(program, error):
    assert run(program) == ({}, error, [])


def test_a_busy_machine_is_said(fakes, tmp_path, monkeypatch, capsys):
    for load, warned in ((0.0, False), (results.cores() * 2.0, True)):
        monkeypatch.setattr(results, "load", lambda load=load: load)
        results.run_suite("papers", {"a": Path(__file__)}, ["xla"], options(tmp_path / f"{load}.json"))
        assert ("This machine is busy" in capsys.readouterr().err) == warned


# ---------------------------------------------------------------- measuring
def test_time_in_kernels_is_all_but_the_library_calls(monkeypatch):
    program = ms.trace(lambda x, w: np.exp(x @ w) @ w, (np.ones((3, 3), np.float32),) * 2, {})
    ready = assemble(lower_program(program, "none", "python", choose_device("cpu")), "python")
    calls = []
    monkeypatch.setattr(papers, "microseconds", lambda call: calls.append(call()) or 1.0)
    assert [step.name for step in ready.steps].count("matmul") == 2
    assert papers.in_kernels(ready, [np.ones((3, 3), np.float32)] * 2) == [1.0] * (len(ready.steps) - 2) == [1.0] * (len(calls) - 2)


def test_a_profile_has_each_kernel_with_its_launches_bytes_and_times():
    program = ms.trace(lambda x, w: np.exp(np.exp(np.exp(x) @ w) @ w) @ w, (np.ones((3, 3), np.float32),) * 2, {})
    stages = lower_program(program, "none", "python", choose_device("cpu"))
    found = papers.profile(stages, [1.0, 2.0, 4.0, 100.0])
    assert [(row["launches"], row["us"], row["bytes"]) for row in found] == [(3, 7.0, 3 * 72), (1, 100.0, 0)]
    assert found[0]["kernel"] == stages.kernels[0].name and found[0]["modelled_us"] > 0 and found[1]["kernel"] == "other"


def test_a_speedup_is_fewer_bytes_times_a_faster_rate():
    rows = {"xla": {"here": {"read": 600, "written": 200}, "in_kernels_us": [4.0, 5.0, 4.0]},
            "auto": {"here": {"read": 300, "written": 100}, "in_kernels_us": [1.0], "profile": [
                {"kernel": "small", "launches": 1, "bytes": 100, "modelled_us": 0.2, "us": 0.25},
                {"kernel": "large", "launches": 2, "bytes": 300, "modelled_us": 0.4, "us": 0.75}]}}
    text = papers.profiles({"one": {"strategies": rows}, "other": {"strategies": {"auto": rows["auto"]}}})
    assert "large x2 75%, 0.4 GB/s; small x1 25%, 0.4 GB/s" in text and "other" not in text
    assert [cell.strip() for cell in text.splitlines()[-1].split("|")][1:7] == ["geometric mean", "", "", "4.00", "2.00", "2.00"]


def test_strategies_take_turns_in_changing_order_and_short_calls_are_repeated(monkeypatch):
    turns = []
    clock = {"short": 500.0, "long": 1e6, "numpy": 3000.0}

    def microseconds(call):
        turns.append(call())
        return clock[turns[-1]] + len(turns) * 1e-9

    monkeypatch.setattr(papers, "microseconds", microseconds)
    monkeypatch.setattr(papers, "in_kernels", lambda run, leaves: [0.25, 0.25])
    monkeypatch.setattr(papers, "profile", lambda stages, us: us)
    monkeypatch.setattr(papers, "FEWEST_ROUNDS", 20)

    class Ready:
        def __init__(self, name):
            self.name, self.stages = name, None

        def __call__(self, leaves):
            return self.name

    found = papers.rounds({name: Ready(name) for name in ("short", "long")}, lambda: "numpy", [], 0.0)
    assert found["short"] == {"call_us": [500.0] * 20, "in_kernels_us": [0.5] * 20, "profile": [0.25, 0.25]}
    assert found["numpy"] == {"call_us": [3000.0] * 20}
    warm = len(clock)
    assert [turns[warm:].count(name) for name in clock] == [20 * 3, 20, 20]  # 2 ms hold three calls of 500 us
    each = [turns[warm + 5 * n:warm + 5 * (n + 1)] for n in range(20)]
    assert all(set(turn) == set(clock) for turn in each) and len({turn[-1] for turn in each}) == 3


def test_numpys_turn_begins_with_a_call_that_does_not_count_too(monkeypatch):
    """What another strategy leaves behind is no part of NumPy's time."""
    done = []
    monkeypatch.setattr(papers, "microseconds", lambda call: (call(), done.append("timed"), 1e6)[-1])
    papers.rounds({}, lambda: done.append("call"), [], 0.0)
    assert done == ["call", "call", "timed"] * (1 + papers.FEWEST_ROUNDS)  # before the rounds and in each


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 8])
def test_turns_are_fair(count):
    """Each has each place equally often, and each comes after each other equally often."""
    orders = list(itertools.islice(take_turns("abcdefgh"[:count]), 2 * count))
    assert all(sorted(column) == sorted("abcdefgh"[:count] * 2) for column in zip(*orders, strict=True))
    pairs = Counter(pair for order in orders for pair in itertools.pairwise(order))
    assert set(pairs.values()) <= {2} and len(pairs) == count * (count - 1)


def test_an_output_that_is_only_rounding_is_compared_with_numpys_own():
    numpys = [1e-7, 1e16, 1e-7]  # of the second the exact value is all but zero
    assert papers.errors([2e-7, 5e16, 1e-8], numpys) == {"max_error": 2e-7, "of_numpys": 5.0}
    assert papers.errors(numpys, numpys) == {"max_error": 1e-7, "of_numpys": 1.0}
    inf = float("inf")
    for wrong in ([1e-4, 1e16, 1e-7], [1e-7, 2e17, 1e-7], [1e-7, inf, 1e-7], [inf, 1e16, 1e-7]):
        assert not papers.agrees(papers.errors(wrong, numpys))
    assert papers.agrees(papers.errors([inf], [inf]))  # too large for float32 either way


def test_a_strategy_that_fails_is_a_row_and_costs_no_other_its_own(monkeypatch):
    def broken(graph, device):
        raise KeyError("slot")

    monkeypatch.setitem(ms.STRATEGIES, "broken", broken)
    record = papers.measure("lr", "small", ["broken", "xla"], "python", 0.0)
    assert record["strategies"]["broken"]["error"] == "KeyError: 'slot'" and record["strategies"]["xla"]["call_us"]
    assert "KeyError: 'slot'" in papers.one_table(record | {"preset": "small"})


def test_a_strategy_whose_results_cannot_be_compared_is_a_row_too_and_is_not_timed(monkeypatch):
    """Its call fails, its result has another shape, or a kernel cannot be judged."""
    outputs, judged = Executable.outputs, papers.wrong_kernels

    def outputs_of(run, leaves):
        if run.stages.plan.strategy == "none":
            raise IndexError("slot 7")
        return [x[None] for x in outputs(run, leaves)] if run.stages.plan.strategy == "fs18" else outputs(run, leaves)

    def wrong_kernels_of(run, leaves):
        if run.stages.plan.strategy == "astitch":
            raise KeyError("bound")
        return judged(run, leaves)

    monkeypatch.setattr(Executable, "outputs", outputs_of)
    monkeypatch.setattr(papers, "wrong_kernels", wrong_kernels_of)
    rows = papers.measure("lr", "small", ["none", "fs18", "astitch", "xla"], "python", 0.0)["strategies"]
    assert rows["none"] == {"error": "IndexError: slot 7"} and rows["astitch"] == {"error": "KeyError: 'bound'"}
    assert list(rows["fs18"]) == ["error"] and "an output has shape (1, " in rows["fs18"]["error"]
    assert rows["xla"]["call_us"] and papers.agrees(rows["xla"])


# ---------------------------------------------------------------- what the report says
def record(times, kernels, paper, error=1e-7):
    """A record with these times in kernels and these kernels on a V100, by strategy."""
    counted = {"read": 100, "written": 50, "library_calls": 2, "shared_average": 8.0, "shared_largest": 16, "kernels_us": 1.0,
               "library_us": 2.0}
    rows = {name: {"here": {**counted, "kernels": kernels[name]}, "v100": {**counted, "kernels": kernels[name]}, "plan_s": 0.5,
                   "compile_s": 1.5, "functions": 4, "from_disk": 0, "max_error": error, "of_numpys": error / 1e-7, "call_us": [t + 100.0] * 3,
                   "in_kernels_us": [t, t, 1000 * t]} for name, t in times.items()}
    where = {"date": "2026-01-02", "machine": "2-core", "system": "S", "python": "3", "numpy": "2", "numba": "1", "load": 0.1, "load_after": 0.2}
    return {"preset": "small", "where": where, "nodes": 9, "paper": paper, "strategies": rows,
            "numpy": {"call_us": [300.0] * 3, "max_error": 1e-7, "of_numpys": 1.0}}


RECORDS = {
    "one": record({"xla": 80.0, "fs18": 40.0, "auto": 42.0}, {"xla": 20, "fs18": 8, "auto": 5}, {"fs18": {"kernel_ratio": 0.5}}),
    "two": record({"xla": 90.0, "fs18": 10.0, "auto": 11.0}, {"xla": 10, "fs18": 9, "auto": 5},
                  {"fs18": {"kernel_ratio": 0.18}, "astitch": {"kernels": {"xla": 64, "astitch": 26}}}),
}


def test_ratios_and_geometric_means():
    one, two = RECORDS.values()
    assert papers.kernel_ratio(one, "fs18") == 0.4 and papers.kernel_ratio(one, "none") is None
    assert papers.speedup(one, "fs18", "in_kernels_us") == 2.0  # medians: the disturbed round does not count
    assert papers.paper_ratio(two["paper"], "astitch") == 26 / 64 and papers.paper_ratio(two["paper"], "fs20") is None
    shown = papers.means(RECORDS)
    kernels, in_kernels, _ = shown.split("## ")[1:]
    assert "| fs18      |    0.60 |       - |       0.90 |   0.60 |" in kernels  # sqrt(0.4 * 0.9)
    assert "| the paper |    0.30 |       - |       0.41 |      - |" in kernels and "fs18: 2 | fs20: 0 | astitch: 1 | all: 2" in kernels
    assert "| fs18 |    4.24 |       - |       9.00 |   4.24 |" in in_kernels


def test_where_auto_is_slower_is_said():
    shown = papers.slower(RECORDS)
    assert shown.splitlines()[2:] == ["two: in kernels 11.0 us, fs18 10.0 us, 1.10 times in the same round"]  # one is exactly 5% slower
    assert papers.slower({"one": RECORDS["one"]}).endswith("nowhere")
    without = {"one": record({"xla": 1.0}, {"xla": 1}, {})}
    assert papers.slower(without).endswith("auto was not measured")


def test_what_equal_kernels_differ_by_is_said_apart():
    """Of 1.4 us 1.5 are of two kernels that both strategies have, equally often; a third one is launched once more under ``auto``."""
    found = record({"fs20": 10.0, "auto": 11.4}, {"fs20": 4, "auto": 4}, {})
    for name, kernels in {"fs20": [("a_1", 1, 4.0), ("b_2", 2, 1.0), ("c_3", 1, 2.0), ("d_4", 1, 3.0)],
                          "auto": [("a_1", 1, 5.0), ("b_2", 2, 1.5), ("c_3", 2, 3.0), ("e_5", 1, 1.9), ("other", 0, 7.0)]}.items():
        found["strategies"][name]["profile"] = [{"kernel": k, "launches": n, "us": us} for k, n, us in kernels]
    (line,) = papers.slower({"lr": found}).splitlines()[2:]
    assert line.startswith("lr: in kernels 11.4 us, fs20 10.0 us, 1.14 times in the same round; ")
    assert line.endswith("; 2 of 4 kernels are the same under both: they +1.5 us, the others -0.1")


def test_auto_is_compared_round_by_round():
    """The clock slowed down while ``auto`` had its turn in the third round: 1.48 times by medians, 1.06 in all other rounds."""
    found = record({"fs20": 5.0, "fs18": 5.0, "auto": 5.0}, {"fs20": 1, "fs18": 1, "auto": 1}, {})
    for name, us in {"fs20": [5.0, 5.0, 5.0, 7.0, 7.0], "fs18": [4.0, 6.0, 5.2, 7.2, 8.0], "auto": [5.3, 5.3, 7.42, 7.42, 7.42]}.items():
        found["strategies"][name] |= {"in_kernels_us": us, "call_us": [100 + t for t in us]}
    assert papers.best_single(found, "in_kernels_us") == ("fs20", pytest.approx(1.06))
    assert papers.slower({"lr": found}).splitlines()[2:] == ["lr: in kernels 7.4 us, fs20 5.0 us, 1.06 times in the same round"]
    line = papers.beside_the_best({"lr": found, "w2v": {"strategies": {"auto": {"error": "no"}}}}).splitlines()[-1]
    assert [cell.strip() for cell in line.split("|")][1:-1] == ["lr", "5", "7.4 us", "fs20", "5.0 us", "1.06", "fs20", "1.00"]


def test_a_wrong_result_is_marked_and_fails_the_command(monkeypatch, tmp_path, capsys):
    wrong = record({"xla": 1.0}, {"xla": 1}, {}, error=1e-3)
    assert "1.0e-03 WRONG" in papers.one_table(wrong) and "WRONG" not in papers.one_table(RECORDS["one"])
    monkeypatch.setattr(papers, "run_suite", lambda *_: (results.Results(tmp_path / "x.json"), {"one": wrong}, {}))
    assert bench("--workload", "one") == 1
    assert "one under xla: an error, or results that are wrong" in capsys.readouterr().err


def test_the_report_names_machine_papers_and_kernels_from_the_disk():
    shown = papers.report(RECORDS)
    assert shown.startswith("Measured 2026-01-02 on a 2-core machine, S, Python 3, NumPy 2, Numba 1; load 0.1 to 0.2")
    assert "medians of 3 rounds" in shown and "paper, astitch: kernels (xla 64; astitch 26)" in shown and "1.50 s" in shown
    assert "calibrations" not in shown
    other = {"three": RECORDS["one"] | {"calibration": "a"}, "four": RECORDS["one"] | {"calibration": "b"}}
    assert "Planned by 2 different calibrations." in results.where_and_when(other)
    cached = json.loads(json.dumps(RECORDS["one"]))
    cached["strategies"]["xla"]["from_disk"] = 1
    assert "cached" in papers.one_table(cached) and "cached" not in shown


# ---------------------------------------------------------------- wrong words
def test_outside_a_clone_the_next_step_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert bench() == 2
    assert "no folder benchmarks here" in capsys.readouterr().err


@pytest.mark.parametrize("words, message", [(["--workload", "lr,resnet"], "unknown workload 'resnet'; take one of lr, "),
                                            (["--strategy", "magic"], "unknown strategy 'magic'; take one of "),
                                            (["--suite", "irregular", "--workload", "2x2-sum"], "unknown workload '2x2-sum'"),
                                            (["--suite", "irregular", "--strategy", "xla"], "take one of adaptive, fixed"),
                                            (["--suite", "cpu", "--case", "conv"], "unknown workload 'conv'; take one of softmax"),
                                            (["--peers", "tvm"], "unknown peer 'tvm'; take some of numpy, ")])
def test_wrong_words_are_answered(words, message, capsys, tmp_path):
    assert bench(*words, "--out", tmp_path / "raw.json") == 1
    assert message in capsys.readouterr().err and not (tmp_path / "raw.json").exists()
