"""The explorer: its films, what it says about changed kernels, who may ask it, and the page in a real browser.

The tests of the page need Chromium. They have the mark ``browser``: run them with ``pytest -m browser``, or ``make test-browser``.
"""

from __future__ import annotations

import ast
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from browser import Browser
from programs import softmax
from sources import executed

import minisitch as ms
from minisitch import __main__ as cli
from minisitch import simt
from minisitch.course import __main__ as course
from minisitch.course.assignment import find_assignment, in_variant
from minisitch.explain.explore import explored, explored_kernel, links, maps, plans, small
from minisitch.explain.explore.frames import MOST_EVENTS, MOST_STEPS, Reel, film
from minisitch.explain.explore.server import MOST_BYTES, ExplorerServer
from minisitch.explain.explore.trial import changes
from minisitch.fuse import STRATEGIES
from minisitch.stitch.mapping import map_rows

NUMBERS = np.random.default_rng(0).normal(size=(64, 1024)).astype(np.float32)


def centre(x):
    """A block takes two rows in turn, so a barrier at the end keeps the second row's maximum from the first row's readers."""
    return x - np.max(x, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def centred():
    return explored(centre, (NUMBERS,), {}, "astitch")


@pytest.fixture(scope="module")
def server(centred):
    with ExplorerServer(centred) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def without(text, change):
    lines = text.splitlines()
    lines[change.line - 1] = change.text
    return "\n".join(lines)


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
TOTAL = """
def total(x, y):
    t = cuda.threadIdx.x
    s = cuda.shared.array(64, np.float32)
    s[t] = x[t]
    cuda.syncthreads()  # A
    for step in (32, 16, 8, 4, 2, 1):
        if t < step:
            s[t] += s[t + step]
        cuda.syncthreads()  # B
    if t == 0:
        y[0] = s[0]
"""
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


@pytest.fixture(scope="module")
def cut_up():
    return explored(softmax, (NUMBERS,), {}, "xla")


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


# ---------------------------------------------------------------- the page as a file
def test_the_page_holds_everything_and_its_data_cannot_leave_their_place():
    def hostile(x):
        return x + 1.0  # </script><script>alert(1)</script>

    page = explored(hostile, (NUMBERS,), {}, "none").page(saved=True)
    assert page.count("<script") == page.count("</script>") == 2 and "alert(1)" in page
    assert "http:" not in page and "https:" not in page and "{DATA}" not in page
    held = page.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(held)["name"] == "hostile"


def test_an_installed_package_has_what_the_page_is_made_of():
    root = Path(ms.__file__).parent
    listed = tomllib.loads((root.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]["minisitch"]
    there = {str(path.relative_to(root)) for path in (root / "explain" / "explore").iterdir() if path.suffix not in (".py", "")}
    assert there == {name for name in listed if name.startswith("explain/explore/")} and len(there) == 4


# ---------------------------------------------------------------- who may ask
def ask(server, method="GET", path=None, body=None, **changed):
    """The status and the body of an answer, with headers as the page sends them but for ``changed``."""
    headers = {"Host": f"127.0.0.1:{server.server_port}"}
    if method == "POST":
        headers |= {"Origin": server.origin, "X-Token": server.token}
    for name, value in changed.items():
        headers[name.replace("_", "-")] = value
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.putrequest(method, path or f"/?token={server.token}", skip_host=True)
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    for name, value in ({"Content-Length": str(len(data))} | headers).items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders()
    connection.send(data)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_the_page_is_served_to_who_has_the_address(server):
    status, page = ask(server)
    assert status == 200 and b"<title>centre, as astitch compiles it</title>" in page
    assert server.server_address[0] == "127.0.0.1" and len(server.token) >= 16


@pytest.mark.parametrize("changed", [
    {"Host": "localnet.example"}, {"Host": "127.0.0.1"}, {"Host": "127.0.0.1:1"}, {"Host": None},
    {"path": "/"}, {"path": "/?token="}, {"path": "/?token=wrong"}, {"path": "/?token=%FF"}, {"path": "/x?token=wrong"}])
def test_the_page_is_refused_to_others(server, changed):
    assert ask(server, **changed) == (403, b"wrong host or token")


@pytest.mark.parametrize("changed", [
    {"Host": "evil.example"}, {"Origin": None}, {"Origin": "null"}, {"Origin": "http://evil.example"},
    {"Origin": "http://localnet.example"}, {"X_Token": None}, {"X_Token": "wrong"}, {"X_Token": ""}, {"X_Token": "\u00e9"}])
def test_a_verdict_is_refused_to_others(server, centred, changed):
    asked = {"kernel": 0, "text": centred.trials[0].text}
    assert ask(server, "POST", "/verdict", asked, **changed) == (403, b"wrong host, origin or token")


def test_a_verdict_is_given_to_the_page(server, centred):
    status, body = ask(server, "POST", "/verdict", {"kernel": 0, "text": centred.trials[0].text})
    assert status == 200 and json.loads(body)["right"]


@pytest.mark.parametrize("body", [b"", b"[", b"[]", b'"x"', b"{}", b"[" * 50_000, {"kernel": 1, "text": ""}, {"kernel": -1, "text": ""},
                                  {"kernel": "0", "text": ""}, {"kernel": 0, "text": 3}, b"\xff\xfe"])
def test_a_request_that_is_none_is_answered_in_words(server, body):
    status, said = ask(server, "POST", "/verdict", body)
    assert status == 400 and said


def test_a_request_is_bounded(server):
    assert ask(server, "POST", "/verdict", b"", Content_Length=str(MOST_BYTES + 1))[0] == 413
    assert ask(server, "POST", "/verdict", b"", Content_Length="-1")[0] == 413
    assert ask(server, "POST", "/verdict", b"", Content_Length=None)[0] == 413
    assert ask(server, path=f"/other?token={server.token}")[0] == 404
    assert ask(server, "POST", "/other")[0] == 404


# ---------------------------------------------------------------- the command
PROGRAM = "import numpy as np\n\ndef twice(x):\n    return x + x\n"


def test_the_command_saves_a_page(tmp_path, capsys):
    (tmp_path / "f.py").write_text(PROGRAM, encoding="utf-8")
    page = tmp_path / "page.html"
    assert cli.main(["explore", f"{tmp_path}/f.py:twice", "--arg", "x=f32[64,64]", "--save", str(page)]) == 0
    assert "wrote" in capsys.readouterr().out and "columns shortened from 64 to 40" in page.read_text(encoding="utf-8")


def test_the_command_serves_until_it_is_interrupted(tmp_path):
    (tmp_path / "f.py").write_text(PROGRAM, encoding="utf-8")
    words = [sys.executable, "-m", "minisitch", "explore", f"{tmp_path}/f.py:twice", "--arg", "x=f32[8,8]"]
    def listen():  # a shell tells what it starts in the background to ignore an interrupt, and its children inherit that
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=listen) as process:
        try:
            address = process.stdout.readline().strip()
            with urllib.request.urlopen(address) as answer:
                assert answer.status == 200 and b"<title>twice, as auto compiles it</title>" in answer.read()
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(address[:-1])
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()


def held(page):
    """The data that a saved page holds."""
    return json.loads(Path(page).read_text(encoding="utf-8").partition('id="data">')[2].partition("</script>")[0])


def test_the_command_opens_a_kernel_and_never_runs_its_file(tmp_path, capsys):
    kernel, page = tmp_path / "kernel.py", tmp_path / "page.html"
    kernel.write_text("raise SystemExit('the file ran')\n" + PROGRAM.partition("\n")[2] + TOTAL, encoding="utf-8")
    words = ["explore", f"{kernel}:total", "--save", str(page)]
    assert cli.main([*words, "--arg", "x=f32[64]", "--arg", "y=f32[1]", "--launch", "1,64"]) == 0
    data = held(page)
    assert data["title"] == "total" and data["kernels"][0]["verdict"]["ok"] and data["notes"] == ["1 block of 64 threads"]
    assert cli.main([*words, "--arg", "x=f32[64]", "--arg", "y=f32[1]", "--launch", "1,32"]) == 0
    assert held(page)["kernels"][0]["verdict"]["rule"] == "unwritten-read"
    capsys.readouterr()
    assert cli.main(words) == 2
    assert "write --arg NAME=f32[64] for each array of the kernel, and --launch BLOCKS,THREADS" in capsys.readouterr().err
    assert cli.main(["explore", f"{tmp_path}/nothing.py"]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_the_command_finds_the_launch_of_an_assignment(tmp_path, monkeypatch, capsys):
    assignment = find_assignment("A2")
    monkeypatch.chdir(tmp_path)
    submission = tmp_path / "softmax.py"
    submission.write_text(assignment.starter("weights"), encoding="utf-8")
    assert cli.main(["explore", "softmax.py"]) == 1
    assert "softmax is as the starter has it: write the kernel softmax first" in capsys.readouterr().err
    submission.write_text(assignment.text("solution.py", "weights"), encoding="utf-8")
    assert cli.main(["explore", "softmax.py", "--save", "page.html"]) == 0
    (kernel,) = held("page.html")["kernels"]
    assert kernel["verdict"]["ok"] and kernel["verdict"]["right"] and kernel["block"] == 64
    taken = kernel["tried"][str(next(each["line"] for each in kernel["changes"] if each["what"] == "barrier"))]
    assert taken["rule"] == "race" and "syncthreads()" not in taken["message"], "what to write is for the student to find"
    repair = tmp_path / "repair.py"
    repair.write_text(find_assignment("A3").text("given.py", find_assignment("A3").variant), encoding="utf-8")
    assert cli.main(["explore", "repair.py:turns", "--save", "page.html"]) == 0
    (kernel,) = held("page.html")["kernels"]
    assert kernel["name"] == "turns" and [order["right"] for order in kernel["verdict"]["orders"]] == [True, False]
    assert cli.main(["explore", str(Path(assignment.folder, "..", "A5_spans", "solution.py"))]) == 1
    assert "A5 launches no kernel" in capsys.readouterr().err


def test_show_writes_the_explorer_of_the_launch_that_failed(tmp_path, monkeypatch, capsys):
    wrong = {each.name: each.text for each in find_assignment("A2").misconceptions()}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "softmax.py").write_text(in_variant(wrong["no_barrier_before_the_second_tree"], "weights"), encoding="utf-8")
    assert course.main(["show", "A2", "no race", "softmax.py"]) == 1
    assert "wrote A2-no-race.html: the same launch as a film; to edit it: python -m minisitch explore softmax.py" in capsys.readouterr().out
    verdict = held("A2-no-race.html")["kernels"][0]["verdict"]
    assert verdict["rule"] == "race" and [order["right"] for order in verdict["orders"]] == [True, False]


@pytest.mark.parametrize("words, says", [
    (["--port", "99999"], "leave --port out"), (["--save", "/nowhere/page.html"], "choose another path"),
    (["--strategy", "none2"], "unknown strategy")])
def test_wrong_words_are_answered(tmp_path, capsys, words, says):
    (tmp_path / "f.py").write_text(PROGRAM, encoding="utf-8")
    assert cli.main(["explore", f"{tmp_path}/f.py:twice", "--arg", "x=f32[8,8]", *words]) == 2
    assert says in capsys.readouterr().err


# ---------------------------------------------------------------- in a browser
STATE = "document.querySelector('main').outerHTML + location.hash"
REMOVE = "[...document.querySelectorAll('#text button')].filter(b => b.textContent === 'take out the {}').at({}).click()"


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        found.screen()
        yield found
        assert found.errors == []


@pytest.fixture(scope="module")
def saved(centred, tmp_path_factory) -> str:
    path = Path(tmp_path_factory.mktemp("explorer"), "page.html")
    path.write_text(centred.page(saved=True), encoding="utf-8")
    return path.as_uri()


@pytest.mark.browser
def test_twenty_steps_forward_and_twenty_back_give_the_same_page(browser, server):
    browser.open(f"{server.url}#step=5")
    before = browser.run(STATE)
    seen = []
    for _ in range(20):
        browser.run("document.getElementById('forward').click()")
        seen.append(browser.run(STATE))
    assert len({*seen, before}) == 21 and browser.run("location.hash") == "#step=25"
    browser.press("ArrowLeft", 20)
    assert browser.run(STATE) == before


@pytest.mark.browser
def test_the_address_names_the_step(browser, server):
    browser.open(f"{server.url}#step=17")
    assert browser.run("document.getElementById('place').textContent").startswith("step 17 of ")
    browser.run("location.hash = '#step=3'")
    browser.until("document.getElementById('place').textContent.startsWith('step 3 of ')")
    browser.press("End")
    last = browser.run("Number(document.getElementById('slider').max)")
    assert browser.run("location.hash") == f"#step={last}"
    browser.press("PageUp")
    assert 3 < browser.run("Number(document.getElementById('slider').value)") < last


@pytest.mark.browser
@pytest.mark.parametrize("where", ["served", "saved"])
def test_a_removed_barrier_shows_the_race_with_both_lines(browser, server, saved, where):
    browser.open(server.url if where == "served" else saved)
    browser.run(REMOVE.format("barrier", -1))
    browser.until("document.getElementById('verdict').textContent.startsWith('refused: race')")
    lit = browser.run("[...document.querySelectorAll('#text li.bad .number')].map(n => Number(n.textContent))")
    assert len(lit) == 2
    assert browser.run("document.getElementById('slider').value === document.getElementById('slider').max")
    said = browser.run("document.getElementById('happens').textContent")
    assert all(f"Line {line}: block" in said for line in lit)
    assert browser.run("document.querySelectorAll('#threads i.refused').length") == 2
    assert browser.run("document.querySelectorAll('#arrays i.refused').length") == 1
    browser.run("document.getElementById('restore').click()")
    browser.until("document.getElementById('verdict').textContent.startsWith('accepted: no race')")


@pytest.mark.browser
def test_a_line_is_edited_by_keyboard_and_judged_at_once(browser, server):
    browser.open(server.url)
    browser.run("[...document.querySelectorAll('#text li')].find(l => l.textContent.includes(' = v0_1 - r1')).focus()")
    browser.press("Enter")
    browser.run("document.activeElement.value = document.activeElement.value.replace(' - ', ' + ')")
    browser.press("Enter")
    browser.until("document.getElementById('verdict').textContent.startsWith('accepted, but the result is wrong')")
    browser.press("Delete")  # the line is still in focus: put it back
    browser.until("document.getElementById('verdict').textContent.startsWith('accepted: no race')")


@pytest.mark.browser
def test_lines_are_linked_by_mouse_and_by_keyboard(browser, server):
    browser.open(server.url)
    count = "[...document.querySelectorAll('{} li.linked')].map(l => l.textContent).join('|')"
    browser.run("[...document.querySelectorAll('#graph li')].find(l => l.textContent.includes('max'))"
                ".dispatchEvent(new MouseEvent('mouseenter'))")
    assert "np.max" in browser.run(count.format("#source"))
    assert "syncthreads" in browser.run(count.format("#text")) and "max" in browser.run(count.format("#loop"))
    browser.run("[...document.querySelectorAll('#graph li')].find(l => l.textContent.includes('sub')).focus()")
    browser.press("ArrowRight")
    assert browser.run("document.activeElement.closest('ol').id") == "loop"
    assert "sub" in browser.run("document.activeElement.textContent")
    browser.press("ArrowRight")
    assert browser.run("document.activeElement.closest('ol').id + document.activeElement.textContent").startswith("text")
    browser.press("ArrowLeft", 2)
    assert "sub" in browser.run("document.activeElement.textContent")
    browser.press("ArrowUp")
    assert browser.run("document.activeElement === document.querySelectorAll('#graph li')[document.querySelectorAll('#graph li').length - 2]")


@pytest.mark.browser
def test_a_thread_is_chosen_by_keyboard(browser, saved):
    browser.open(f"{saved}#step=1")
    browser.run("document.getElementById('threads').focus()")
    browser.press("ArrowRight", 2)
    assert browser.run("document.getElementById('thread').textContent").startswith("thread 1: read x0[1]")
    assert browser.run("location.hash") == "#step=1"


@pytest.mark.browser
def test_two_chosen_nodes_show_the_rule_and_what_would_have_to_be_different(browser, cut_up, tmp_path):
    (tmp_path / "page.html").write_text(cut_up.page(saved=True), encoding="utf-8")
    browser.open((tmp_path / "page.html").as_uri())
    for op in ("max", "exp"):
        browser.run(f"[...document.querySelectorAll('#why-nodes button')].find(b => b.textContent.includes('{op}')).click()")
    said = browser.run("document.getElementById('why').textContent")
    assert "xla keeps %1 max and %4 exp apart" in said and "reduce-ends-kernel" in said and "What would have to be different" in said
    told = browser.run("[...document.querySelectorAll('#why li')].map(b => b.textContent)")
    assert len(told) == len(STRATEGIES) - 1 and "astitch fuses them." in " ".join(told)
    assert told[-1] == "none keeps them apart. This strategy fuses nothing. It is the baseline that the others are counted against."


@pytest.mark.browser
def test_two_strategies_stand_side_by_side_with_marks_where_they_differ(browser, saved):
    browser.open(saved)
    table = "[...document.querySelectorAll('#figures tr')].map(r => [...r.children].map(c => c.textContent).join(' '))"
    assert browser.run(table)[:2] == [" none astitch", "kernels 2 1"]
    assert browser.run("document.querySelectorAll('#groups tr.differs').length") == 2
    heights = browser.run("['left-text', 'right-text'].map(id => document.getElementById(id).children.length)")
    assert heights[0] == heights[1] > 20 and browser.run("document.querySelectorAll('#right-text li.only').length") > 0
    browser.run("document.getElementById('left').value = 'astitch'; document.getElementById('left').dispatchEvent(new Event('change'))")
    assert browser.run("document.querySelectorAll('.lines li.only, #groups tr.differs').length") == 0


@pytest.mark.browser
def test_sliders_draw_the_thread_map(browser, saved):
    browser.open(saved)
    for slider, value in (("map-rows", maps.ROWS.index(64)), ("map-columns", maps.COLUMNS.index(32))):
        browser.run(f"document.getElementById('{slider}').value = {value}; "
                    f"document.getElementById('{slider}').dispatchEvent(new Event('input'))")
    truth = map_rows(64, 32, small.TOY)
    assert truth.why in browser.run("document.getElementById('map-said').textContent")
    said = browser.run("[...document.querySelectorAll('#map i')].map(i => i.dataset.said)")
    assert len(said) == 12 * 32
    assert said[32 * truth.rows_per_block] == f"row {truth.rows_per_block}, column 0: block 1, turn 1, from thread 0 on"


@pytest.mark.browser
def test_a_barrier_of_shared_memory_leads_to_the_step_behind_it(browser, saved):
    browser.open(f"{saved}#step=1")
    browser.run("document.querySelectorAll('#lives button')[1].click()")
    assert "after 1 barrier " in browser.run("document.getElementById('place').textContent")
    assert browser.run("document.querySelectorAll('#lives td.here').length") == 1


@pytest.mark.browser
@pytest.mark.parametrize("function, shape, says", [
    (lambda x: x, (4, 4), "The program has no kernel."), (lambda x: x * 2, (0, 4), "No thread touches memory."),
    (lambda x: x.reshape(32, 1024) * 2, (32 * 1024,), "The kernel's arrays are too large for a film: give --arg smaller shapes.")])
def test_a_page_without_a_film_says_why(browser, tmp_path, function, shape, says):
    (tmp_path / "page.html").write_text(explored(function, (np.ones(shape, np.float32),), {}, "astitch").page(True), encoding="utf-8")
    browser.open((tmp_path / "page.html").as_uri())
    browser.press("ArrowRight")
    assert browser.run("document.getElementById('happens').textContent") == says
    assert browser.run("document.getElementById('forward').disabled") and browser.errors == []


@pytest.mark.browser
def test_a_saved_page_works_without_a_network(browser, saved):
    browser.offline()
    browser.open(f"{saved}#step=2")
    assert browser.run("document.getElementById('place').textContent").startswith("step 2 of ")
    assert browser.run("performance.getEntriesByType('resource').length") == 0
    browser.run(REMOVE.format("guard", 0))
    browser.until("document.getElementById('verdict').textContent.startsWith('refused')")
    browser.run(REMOVE.format("barrier", 0))
    browser.until("document.getElementById('verdict').textContent.includes('run python -m minisitch explore')")


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_a_telephone(browser, saved, dark):
    browser.screen(400, 900, dark)
    browser.open(saved)
    assert browser.run("document.documentElement.scrollWidth") <= 400
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") != dark
    browser.screen()
