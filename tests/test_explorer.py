"""The explorer: its films, what it says about changed kernels and why not. ``test_explorer_page`` tests its page."""

from __future__ import annotations

import ast
import json
import re
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from explorer_help import NUMBERS, TOTAL, without
from programs import softmax
from sources import executed

import minisitch as ms
from minisitch import simt
from minisitch.explain.explore import explored, explored_kernel, links, maps, plans, small
from minisitch.explain.explore.frames import MOST_EVENTS, MOST_STEPS, Reel, film
from minisitch.explain.explore.trial import changes
from minisitch.fuse import STRATEGIES
from minisitch.stitch.mapping import map_rows


# ---------------------------------------------------------------- small programs
def test_a_program_is_shortened_and_says_so():
    found = small.shortened(softmax, (NUMBERS,), {})
    assert [x.shape for x in found.inputs] == [(4, 40)]
    assert found.notes == ("columns shortened from 1,024 to 40", "rows shortened from 64 to 4")
    assert np.array_equal(found.inputs[0], NUMBERS[:4, :40])


def test_equal_sizes_stay_equal_and_numbers_stay():
    found = small.shortened(lambda a, b, k: a @ b * k, (np.ones((50, 300), np.float32), np.ones((300, 50), np.float32), 2.0), {})
    assert [x.shape for x in found.inputs] == [(40, 40), (40, 40), ()]


def test_arrays_of_many_axes_are_shortened_until_a_film_is_short():
    found = small.shortened(lambda q: q @ np.swapaxes(q, -1, -2), (np.ones((2, 4, 64, 64), np.float32),), {})
    assert found.inputs[0].shape == (2, 4, 16, 16)


def test_a_function_that_names_a_size_keeps_its_arrays():
    found = small.shortened(lambda x: x.reshape(8, 128), (np.ones(1024, np.float32),), {})
    assert found.inputs[0].shape == (1024,) and "keep their sizes" in found.notes[0]


def test_an_index_that_is_no_longer_there_needs_more_rows():
    table, index = np.ones((100, 16), np.float32), np.array([0, 7, 3])
    found = small.shortened(lambda table, index: table[index], (table, index), {})
    assert found.inputs[0].shape == (8, 16)


# ---------------------------------------------------------------- the film
def test_a_step_is_one_line_of_all_threads_and_loops_come_again():
    text = ("def twice(x, y):\n    t = cuda.threadIdx.x\n    for k in range(2):\n        y[t + 4 * k] = x[t] + x[t + 4 * k]\n"
            "    cuda.syncthreads()\n    if t == 0:\n        y[0] = y[7]\n")
    events = Reel()
    simt.step(text, [np.arange(8, dtype=np.float32), np.zeros(8, np.float32)], 1, 4, seed=3, record=events)
    steps = film(events, text, {})["steps"]
    assert [(step["barriers"], step["line"]) for step in steps] == [(0, 4), (0, 4), (0, 5), (1, 7)]
    read, write = steps[1]["does"]
    assert (read["what"], read["array"], read["threads"]) == ("read", "x", [0, 0, 1, 1, 2, 2, 3, 3])
    assert write == {"what": "write", "array": "y", "threads": [0, 1, 2, 3], "cells": [4, 5, 6, 7], "values": ["4", "6", "8", "10"]}
    assert steps[2]["does"] == [{"what": "syncthreads", "array": "", "threads": [0, 1, 2, 3], "cells": [], "values": [""] * 4}]


def test_a_line_that_few_threads_come_to_stands_where_they_come_to_it():
    text = ("def some(y):\n    t = cuda.threadIdx.x\n    y[t] = t\n    if t == 2:\n        y[4] = t\n    y[t + 5] = t\n")
    for seed in range(6):
        events = Reel()
        simt.step(text, [np.zeros(9, np.int32)], 1, 4, seed=seed, record=events)
        assert [step["line"] for step in film(events, text, {})["steps"]] == [3, 5, 6]


def test_a_film_has_an_end():
    text = "def one(y):\n    y[0] = 1\n"
    events = Reel()
    simt.step(text, [np.zeros(1, np.int32)], 1, 1, record=events)
    for _ in range(MOST_EVENTS):
        events.append(events[0])
    found = film(events, text, {})
    assert len(events) == MOST_EVENTS and found["full"] and len(found["steps"]) == MOST_STEPS


def test_films_of_equal_launches_are_equal(centred):
    trial = centred.trials[0]
    assert trial.step(trial.text) == trial.step(trial.text)
    found = trial.verdict(trial.text)["film"]
    assert found["steps"] and not found["full"]
    assert {deed["array"] for step in found["steps"] for deed in step["does"]} >= {"x0", "y0", "w00_f32"}


# ---------------------------------------------------------------- break it
def test_every_barrier_and_guard_can_be_taken_out():
    text = ("def k(x, y):\n    t = cuda.threadIdx.x\n    v = x[t] if t < 4 else np.float32(0)\n    if t == 0:\n        y[t] = v\n"
            "    cuda.syncthreads()\n    cuda.syncwarp()\n    v = cuda.shfl_xor_sync(0xffffffff, v, 1)\n")
    assert [(c.line, c.what, c.text.strip()) for c in changes(text)] == [
        (3, "guard", "v = x[t]"), (4, "guard", "if True:"), (6, "barrier", "pass"), (7, "barrier", "pass")]


def test_a_removed_barrier_is_a_race_that_names_both_lines(centred):
    trial = centred.trials[0]
    text = trial.text
    *_, last = (change for change in changes(text) if change.what == "barrier")
    verdict = trial.verdict(without(text, last))
    lines = [line for line, _ in verdict["places"]]
    assert verdict["rule"] == "race" and len(set(lines)) == 2 and "no barrier orders the two" in verdict["message"]
    refused = verdict["film"]["steps"][-1]
    assert [line for line, _ in refused["refused"]] == lines and len(refused["threads"]) == 2
    whole = trial.verdict(text)
    assert whole["ok"] and whole["right"] and "block barriers" in whole["counts"]


def test_a_right_looking_text_that_computes_something_else_is_told_apart(centred):
    trial = centred.trials[0]
    verdict = trial.verdict(trial.text.replace(" - ", " + "))
    assert verdict["ok"] and not verdict["right"] and "elements are wrong" in verdict["message"]


@pytest.mark.parametrize("hostile, rule", [
    ("import os\ndef k(x0, y0):\n    os.system('true')\n", "outside-dialect"),
    ("def k(x0, y0):\n    __import__('os').system('true')\n", "outside-dialect"),
    ("def k(x0, y0):\n    x0.__class__\n", "outside-dialect"),
    ("def k(x0, y0):\n    v = 0\n    for i in range(10 ** 9):\n        v += 1\n", "endless"),
    ("def k(x0, y0):\n    s = cuda.shared.array(100000000, np.float32)\n", "memory-limit"),
    ("def k(x0, y0):\n    i = 9 ** 9 ** 9\n", "unwritten-output"),
    ("def k(x0, y0)\n", "outside-dialect"), ("", "outside-dialect"), ("def k(a):\n    a[0] = 1\n", "launch"),
    ("def k(x0, y0):\n    pass\n", "unwritten-output"),
])
def test_a_changed_text_is_data(centred, hostile, rule):
    began = time.process_time()
    verdict = centred.trials[0].verdict(hostile)
    assert not verdict["ok"] and verdict["rule"] == rule and verdict["message"]
    assert time.process_time() - began < 5
    json.dumps(verdict, allow_nan=False)


# ---------------------------------------------------------------- a kernel that somebody wrote
SCAN = TOTAL.replace("total", "scan").replace("(32, 16, 8, 4, 2, 1)", "(1, 2, 4, 8, 16, 32)").replace("t < step", "t >= step").replace(
    "t + step", "t - step").replace("    if t == 0:\n        y[0] = s[0]", "    y[t] = s[t]")
BLOCKS = "def blocks(x, y):\n    b = cuda.blockIdx.x\n    y[0] = x[b]\n"


def wrong_sum(arrays):
    return "" if np.isclose(arrays["y"][0], arrays["x"].sum(), rtol=1e-4) else "the sum is wrong"


def test_a_kernel_is_explored_with_its_launch():
    page = explored_kernel(TOTAL, {"x": NUMBERS[0, :64], "y": np.zeros(1, np.float32)}, wrong=wrong_sum)
    data = page.data()
    (kernel,) = data["kernels"]
    assert (data["title"], kernel["grid"], kernel["block"]) == ("total", 1, 64) and "sides" not in data
    assert kernel["verdict"]["ok"] and kernel["verdict"]["right"] and [each["line"] for each in kernel["changes"]] == [6, 8, 10, 11]
    assert [(each["name"], each["shape"]) for each in kernel["arrays"]] == [("x", [64]), ("y", [1])]
    assert kernel["verdict"]["film"]["arrays"] == {"s": [64]}
    assert [line["text"] for line in kernel["lines"]] == TOTAL.splitlines(), "with the numbers of its file"

    def twice(x, y):
        y[cuda.threadIdx.x] = x[cuda.threadIdx.x] + x[cuda.threadIdx.x]  # noqa: F821

    found = explored_kernel(twice, {"x": NUMBERS[0, :8], "y": np.zeros(8, np.float32)}, block=8).data()["kernels"][0]["verdict"]
    assert found["ok"] and found["right"] is None, "nobody said what is right"
    few = explored_kernel(TOTAL, {"x": NUMBERS[0]}).data()["kernels"][0]["verdict"]
    assert few["rule"] == "launch" and "total takes ('x', 'y'), got ('x',)" in few["message"]
    refused = explored_kernel("import os\nos.system('true')\n", {"x": NUMBERS[0]}).data()["kernels"][0]
    assert refused["verdict"]["rule"] == "outside-dialect" and refused["changes"] == []


@pytest.mark.parametrize("text, without, array, right", [
    (TOTAL, "cuda.syncthreads()  # A", "s", lambda x: x[:64].sum()), (TOTAL, "cuda.syncthreads()  # B", "s", lambda x: x[:64].sum()),
    (SCAN, "cuda.syncthreads()  # B", "s", None)])
def test_a_race_is_shown_in_two_orders_with_the_right_and_the_wrong_number(text, without, array, right):
    x, y = NUMBERS[0, :64], np.zeros(64 if text is SCAN else 1, np.float32)
    truth = np.cumsum(x) if text is SCAN else [x.sum()]
    text = text.replace(without, "pass")
    page = explored_kernel(text, {"x": x, "y": y}, wrong=lambda arrays: "" if np.allclose(arrays["y"], truth, rtol=1e-3, atol=1e-4) else "no")
    verdict = page.trials[0].verdict(text)
    good, bad = verdict["orders"]
    assert verdict["rule"] == "race" and good["right"] is True and bad["right"] is False
    cell = int(re.fullmatch(r"y\[(\d+)\] = (\S+)", good["number"])[1])
    assert good["number"] == f"y[{cell}] = {truth[cell]:.4g}" and bad["number"].startswith(f"y[{cell}] = ") and good["number"] != bad["number"]
    assert good["did"] != bad["did"] and all(len(order["did"]) == 2 for order in (good, bad))
    places = {(line, who.rpartition(" ")[2]) for line, who in verdict["places"]}
    for order in (good, bad):
        assert {tuple(re.match(r"line (\d+): thread (\d+) (?:read|write)s s\[", did).groups()) for did in order["did"]} == {
            (str(line), who) for line, who in places}


def test_orders_say_what_they_do_not_know():
    x, y = np.arange(2, dtype=np.float32), np.zeros(1, np.float32)
    orders = explored_kernel(BLOCKS, {"x": x, "y": y}, grid=2, block=1).trials[0].verdict(BLOCKS)["orders"]
    assert sorted(order["number"] for order in orders) == ["y[0] = 0", "y[0] = 1"] and {order["right"] for order in orders} == {None}
    same = TOTAL.replace("if t == 0:", "if True:")
    (order,) = explored_kernel(same, {"x": NUMBERS[0, :64], "y": y}, wrong=wrong_sum).trials[0].verdict(same)["orders"]
    assert order["number"] == "" and order["right"], "all threads write the same number"
    assert explored_kernel(TOTAL, {"x": NUMBERS[0, :64], "y": y}).trials[0].verdict(TOTAL.replace("s[t + step]", "s[t + 64]"))["orders"] == []


def test_cells_of_two_axes_are_counted_in_their_array():
    text = "def row(x, y):\n    t = cuda.threadIdx.x\n    y[1, t] = x[1, t]\n"
    page = explored_kernel(text, {"x": np.ones((3, 8), np.float32), "y": np.zeros((3, 8), np.float32)}, block=4)
    (step,) = page.trials[0].verdict(text)["film"]["steps"]
    assert [deed["cells"] for deed in step["does"]] == [[8, 9, 10, 11]] * 2


# ---------------------------------------------------------------- lines
def test_each_line_of_the_kernel_is_about_nodes(centred):
    data = centred.data()
    kernel, nodes = data["kernels"][0], {line["nodes"][0]: line["text"] for line in data["graph"]}
    by_text = {line["text"].strip().partition("  #")[0].strip(): line["nodes"] for line in kernel["lines"]}
    ops = {text: [nodes[n].split(" = ")[1].split()[0] for n in found] for text, found in by_text.items()}
    assert ops["v0 = x0[col + row * 40]"] == ["input"] and ops["cuda.syncthreads()"] and ops["w00_f32[thread // 32] = r1"] == ["max"]
    assert set(ops["for col in range(lane, 40, 64):"]) >= {"input", "sub"}
    source = [line for line in data["source"] if "np.max" in line["text"]]
    assert {nodes[n].split(" = ")[1].split()[0] for n in source[0]["nodes"]} >= {"max", "sub"}
    assert by_text["def " + kernel["name"] + "(x0, y0):"] == by_text["row = task"] == []
    loop = {line["text"].strip(): line["nodes"] for line in kernel["loop"]}
    assert all(loop[text] for text in loop if text.startswith(("for", "combine", "place", "max", "v")))


def test_lines_of_a_function_without_source_are_none():
    made = {}
    executed("def f(x): return x + 1", made)
    found = explored(made["f"], (NUMBERS,), {}, "none")
    assert found.data()["source"] == [] and links.graph_lines(found.stages.graph)


# ---------------------------------------------------------------- programs of several kernels
def test_each_kernel_has_the_inputs_that_the_reference_computes():
    data = explored(softmax, (NUMBERS,), {}, "none").data()
    assert len(data["kernels"]) == 5 and all(kernel["verdict"]["right"] for kernel in data["kernels"])


@pytest.mark.parametrize("strategy", ["xla", "fs18", "fs20", "kitsune", "auto"])
def test_every_strategy_has_a_film(strategy):
    def layer(x, w, b):
        h = np.tanh(x @ w + b)
        return (h - np.mean(h, axis=-1, keepdims=True)) / np.std(h, axis=-1, keepdims=True)

    found = explored(layer, (NUMBERS[:8, :16], NUMBERS[:16, :16], NUMBERS[0, :16]), {}, strategy)
    data = found.data()
    assert len(data["kernels"]) == len(found.stages.sources) and all(k["verdict"]["right"] for k in data["kernels"])
    assert any("without a film" in note for note in data["notes"])


def test_too_large_a_kernel_has_no_film():
    data = explored(lambda x: x.reshape(32, 1024) * 2, (np.ones((32, 1024), np.float32).reshape(-1),), {}, "astitch").data()
    assert data["kernels"][0]["verdict"] is None


def test_a_jitted_function_is_explored_too():
    assert explored(ms.jit(softmax), (NUMBERS,), {}, "astitch").data()["name"] == "softmax"


# ---------------------------------------------------------------- why not, and two strategies
def kept_apart() -> set[str]:
    """The rules of all "keep apart" decisions in the package: those that stand in its text as strings of that form."""
    found = set()
    for path in (Path(ms.__file__).parent / "strategies").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(args=[_, ast.Constant("keep apart"), ast.Constant(rule), *_]):
                    found.add(rule)
    return found


def test_every_rule_that_keeps_apart_has_a_card_and_every_card_a_rule():
    cards = plans.cards()
    assert kept_apart() > {"no-fusion", "contiguity", "give-up-user"} and not kept_apart() - cards.keys()
    text = "".join(path.read_text(encoding="utf-8") for path in (Path(ms.__file__).parent / "strategies").rglob("*.py"))
    assert [rule for rule in cards if f'"{rule}"' not in text] == []
    assert all(len(card) == 2 and all(line.endswith(".") for line in card) for card in cards.values())


def test_two_nodes_that_are_apart_have_a_cut_a_rule_and_the_strategies_that_join_them(cut_up):
    found, graph = plans.why(cut_up.all_stages, "xla"), cut_up.stages.graph
    node = {n.op: n.id for n in graph.nodes}
    pair = found["pairs"][f"{node['max']} {node['exp']}"]
    assert pair["together"] == [] and pair["cut"] == (node["max"], node["sub"]) and pair["rules"] == ["reduce-ends-kernel"]
    assert "reduce-ends-kernel" in found["decisions"][pair["said"][0]] and "wait for the others" in found["cards"]["reduce-ends-kernel"][0]
    others = pair["others"]
    assert others.keys() == STRATEGIES.keys() - {"xla"}, "every strategy, whether it fuses the two or not"
    assert {name for name, other in others.items() if other["fuses"]} >= {"astitch", "fs18", "fs20", "auto"}
    assert not others["none"]["fuses"] and others["none"]["rules"] == ["no-fusion"] and "no-fusion" in found["cards"]
    joined = found["pairs"][f"{node['sub']} {node['exp']}"]
    assert joined["together"] and not joined["rules"] and "thread-composition" in found["decisions"][joined["said"][0]]


@cache
def two_products():
    """Products and what is between and beside them. An exploration has the stages of every strategy."""
    def layers(x, w):
        h = np.tanh(x @ w)
        return softmax(h) @ w, h * 2

    return explored(layers, (NUMBERS[:8, :16], NUMBERS[:16, :16]), {}, "auto")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_pair_that_is_apart_is_explained(strategy):
    found = two_products()
    answer = plans.why(found.all_stages, strategy)
    apart = [pair for pair in answer["pairs"].values() if not pair["together"]]
    ways = [pair for pair in apart if pair["cut"]]
    product = next(n for n in found.stages.graph.nodes if n.op == "matmul").id
    assert all(pair["rules"] != ["no-fusion"] for pair in ways if product in pair["cut"])
    assert ways and [pair for pair in ways if not set(pair["rules"]) & answer["cards"].keys()] == []


def test_what_kitsune_saw_is_told_in_words():
    """It reads a program as a line of letters, such as preerep."""
    told = [text for text in plans.why(two_products().all_stages, "kitsune")["decisions"] if "fuse [" in text]
    assert told and not [text for text in told if re.search(r"\b[emrpsax]{4,}\b:", text)]
    assert any(re.search(r"product, .*reduction, .*element-wise", text) for text in told)


def test_figures_of_the_sides_are_those_of_compare(cut_up):
    said = plans.sides(cut_up.all_stages)
    rows = ms.compare(softmax, "f32[4,40]", strategies=["none", "astitch"], target="step", device=small.TOY, passes=())
    for name in ("none", "astitch"):
        figures, row = said["strategies"][name]["figures"], rows[name]
        assert (figures["kernels"], figures["bytes read"], figures["bytes written"], figures["block barriers"]) == (
            row.kernels, row.bytes_read, row.bytes_written, row.block_barriers)
    kind, *_ = said["differences"]["xla none"][0]
    assert kind == "equal"


def test_the_maps_are_those_of_the_compiler():
    found = maps.thread_maps()
    record = found["gpus"]["v100"][found["rows"].index(750_000) * len(found["columns"]) + found["columns"].index(32)]
    truth = map_rows(750_000, 32, ms.get_device("v100"))
    assert (record["blocks"], record["rows_per_block"], record["threads_per_row"], record["why"]) == (
        truth.blocks, truth.rows_per_block, truth.threads_per_row, truth.why)
    assert all(len(each) == len(found["rows"]) * len(found["columns"]) for each in found["gpus"].values())
