"""A plan decided once is not decided again, and only a plan that this user's own package decided is trusted."""

import os
import pickle
from dataclasses import replace

import numpy as np
import pytest
from children import run
from full_disk import no_file_may_grow
from hypothesis import given
from hypothesis import strategies as st
from programs import softmax
from stitch_help import V100, program, traced

import minisitch as ms
from minisitch.fuse import STRATEGIES, FusionPlan, make_plan, strategy
from minisitch.runtime import plans, store
from minisitch.runtime.plans import plan_of
from minisitch.runtime.this_machine import this_cpu
from minisitch.simplify import simplify
from minisitch.strategies.ask import fuse
from minisitch.testing import random_graph

GRAPH = simplify(traced(softmax, (64, 128)))


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """A cache folder of the test's own, where every plan is worth keeping."""
    monkeypatch.setenv("MINISITCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MINISITCH_PLANS")
    monkeypatch.setattr(plans, "WORTH_KEEPING_S", 0.0)
    return tmp_path / "cache"


@pytest.fixture
def asked(monkeypatch):
    """The graphs that ``auto`` and ``xla`` were asked to plan, in order; each still answers as it does."""
    found = []
    for name in ("auto", "xla"):
        real = STRATEGIES[name]

        def count(graph, device, name=name, real=real):
            found.append(name)
            return real(graph, device)
        count.__module__ = real.__module__
        monkeypatch.setitem(STRATEGIES, name, count)
    return found


def kept(folder):
    return list(folder.glob("*.plan"))


# ---------------------------------------------------------------- what is found again
def test_a_plan_is_decided_once_and_reads_the_same(asked, folder):
    first, again = (plan_of(GRAPH, "auto", V100) for _ in range(2))
    assert asked.count("auto") == 1 and len(kept(folder)) == 1
    assert again == first == fuse(GRAPH, "auto", V100) and again.decisions and str(again) == str(first)


@given(seed=st.integers(0, 10_000), name=st.sampled_from(["astitch", "auto", "fs18", "fs20", "xla"]))
def test_what_is_read_is_what_was_planned(seed, name):
    """Compositions of every kind survive the disk."""
    graph = simplify(random_graph(np.random.default_rng(seed), max_nodes=14))
    assert plan_of(graph, name, V100) == plan_of(graph, name, V100) == fuse(graph, name, V100)


PROCESS = """
import sys
import numpy as np, minisitch as ms
from minisitch.fuse import STRATEGIES
from minisitch.runtime import plans
plans.WORTH_KEEPING_S = 0.0
asked, real = [], STRATEGIES["auto"]
def counting(graph, device):
    asked.append(1)
    return real(graph, device)
counting.__module__ = real.__module__
STRATEGIES["auto"] = counting
def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)
report = ms.explain(softmax, np.ones((8, 32), np.float32), strategy="auto", target="cpu")
print(len(asked))
print(report)
"""


def test_the_next_process_finds_the_plan_and_explains_it_alike(folder):
    first, second = (run(PROCESS, folder.parent, check=True, MINISITCH_CACHE=str(folder), MINISITCH_PLANS="1")
                     .stdout.partition("\n") for _ in range(2))
    assert (first[0], second[0]) == ("1", "0")
    assert first[2] == second[2] and "cheapest-plan" in first[2]


def test_jit_runs_a_plan_from_the_disk(asked):
    x = np.random.default_rng(0).normal(size=(4, 32)).astype(np.float32)
    results = [ms.jit(softmax, strategy="auto", target="python")(x) for _ in range(2)]
    assert asked.count("auto") == 1 and np.array_equal(*results) and np.allclose(results[0].sum(-1), 1)


# ---------------------------------------------------------------- what must be decided anew
def test_anything_that_a_plan_depends_on_is_a_miss(asked, folder, tmp_path, monkeypatch):
    plan_of(GRAPH, "auto", V100)
    others = [(simplify(traced(softmax, (64, 256))), "auto", V100), (GRAPH, "xla", V100), (GRAPH, "auto", this_cpu()),
              (GRAPH, "auto", replace(V100, launch_us=V100.launch_us + 1))]
    for number, arguments in enumerate(others):
        asked.clear()
        assert plan_of(*arguments) == fuse(*arguments) and asked.count(arguments[1]) == 2
        assert len(kept(folder)) == number + 2
    (tmp_path / "fuse.py").write_text("another text of this package")
    monkeypatch.setattr(plans, "PACKAGE", tmp_path)
    plans._version.cache_clear()
    asked.clear()
    plan_of(GRAPH, "auto", V100)
    plans._version.cache_clear()
    assert asked.count("auto") == 1


def test_a_moved_line_plans_nothing_anew(asked):
    """Where a program came from is no part of what it means, and no decision quotes it."""
    moved = replace(GRAPH, nodes=tuple(replace(n, where="elsewhere.py:7") for n in GRAPH.nodes))
    assert moved.structure == GRAPH.structure and moved != GRAPH
    plan_of(GRAPH, "auto", V100)
    assert plan_of(moved, "auto", V100) == fuse(moved, "auto", V100) and asked.count("auto") == 2


def test_zero_and_minus_zero_are_two_graphs(folder):
    for value in ("0.0", "-0.0"):
        plan_of(program("f32[4] = input name='x'", f"f32[4] = constant value={value}", "f32[4] = add %0 %1"), "astitch", V100)
    assert len(kept(folder)) == 2


def test_the_version_is_the_packages_text(tmp_path, monkeypatch):
    monkeypatch.setattr(plans, "PACKAGE", tmp_path)
    assert plans._version.__wrapped__() == "", "where the text cannot be read nothing is kept"
    found = []
    for second, text in enumerate(("x = 1\n", "x = 2\n", "x = 10\n")):  # another time, another size
        (tmp_path / "fuse.py").write_text(text)
        os.utime(tmp_path / "fuse.py", (second // 2, second // 2))
        found.append(plans._version.__wrapped__())
    (tmp_path / "fuse.py").rename(tmp_path / "build.py")
    found.append(plans._version.__wrapped__())
    assert found[-1] == plans._version.__wrapped__()
    os.utime(tmp_path / "build.py", (7, 7))
    found.append(plans._version.__wrapped__())
    assert found[0] == found[1] != found[2] and len(set(found)) == 4, "Python would not see the second change either"


EXPLOSIONS = []


class Bomb:
    def __reduce__(self):
        return EXPLOSIONS.append, ("unpickled",)


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped", "forged", "swapped", "unreadable"])
def test_a_damaged_entry_is_a_miss_and_never_unpickled(damage, asked, folder):
    plan_of(GRAPH, "xla", V100)
    (path,) = kept(folder)
    content = path.read_bytes()
    if damage == "unreadable":
        path.unlink()
        path.mkdir()
    elif damage == "swapped":  # whole and signed, but another graph's
        plan_of(simplify(traced(softmax, (32, 16))), "xla", V100)
        path.write_bytes(next(p for p in kept(folder) if p != path).read_bytes())
    else:
        path.write_bytes({"empty": b"", "truncated": content[:-10], "forged": content[:32] + pickle.dumps(Bomb()),
                          "flipped": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]}[damage])
    asked.clear()
    assert plan_of(GRAPH, "xla", V100) == fuse(GRAPH, "xla", V100) and asked == ["xla", "xla"] and not EXPLOSIONS
    if damage != "unreadable":
        assert path.read_bytes() == content, "and the entry is whole again"


def test_a_signed_plan_that_is_wrong_is_a_miss(asked, folder):
    """What is read is verified like any plan: here no pattern writes the result."""
    plan = plan_of(GRAPH, "xla", V100)
    (path,) = kept(folder)
    store.write(folder, path.name, pickle.dumps(replace(plan, patterns=plan.patterns[:-1])))
    assert plan_of(GRAPH, "xla", V100) == plan and asked == ["xla", "xla"]


# ---------------------------------------------------------------- what is not kept
def test_strategies_from_outside_are_always_asked(folder):
    calls = []

    @strategy("mine")
    def mine(graph, device):
        calls.append(1)
        return make_plan(graph, "mine", [[n.id] for n in graph.nodes if n.kind in ("map", "reduce", "move")])
    try:
        assert plan_of(GRAPH, "mine", V100) == plan_of(GRAPH, "mine", V100)
    finally:
        del STRATEGIES["mine"]
    assert len(calls) == 2 and not kept(folder)


def test_a_strategy_that_is_not_there_is_still_an_error():
    with pytest.raises(ms.PlanError, match="unknown strategy 'nobody'"):
        plan_of(GRAPH, "nobody", V100)


def test_quick_plans_are_not_kept(folder, monkeypatch):
    monkeypatch.setattr(plans, "WORTH_KEEPING_S", 3600.0)
    plan_of(GRAPH, "auto", V100)
    assert not kept(folder)


def test_a_plan_that_recomputes_is_kept_with_the_lines_of_the_program_that_reads_it(folder):
    """The structure is the key: another program may have it, and other lines."""
    def steps(x, w):
        y = x * 2
        return np.exp(y) @ w + y

    def other_steps(x, w):
        y = x * 2
        return np.exp(y) @ w + y
    plans_ = []
    for fn in (steps, other_steps, other_steps):
        graph = simplify(traced(fn, (64, 64), (64, 64)))
        plans_.append(plan_of(graph, "astitch", V100))
        lines = {n.where for n in plans_[-1].graph.nodes} - {n.where for n in graph.nodes}
        assert not lines and plans_[-1].patterns == plans_[0].patterns
        assert any(d.verdict == "recompute" for d in plans_[-1].decisions)


def test_a_plan_of_a_rewritten_graph_is_not_kept(asked, folder, monkeypatch):
    """fs18-dot takes products apart: the plan's ids are not the graph's."""
    other = simplify(traced(softmax, (32, 128)))
    monkeypatch.setitem(STRATEGIES, "xla", lambda graph, device: FusionPlan(other, "xla", ()))
    STRATEGIES["xla"].__module__ = "minisitch.strategies.xla"
    assert plan_of(GRAPH, "xla", V100).graph is other and not kept(folder)


@pytest.mark.parametrize("setting", ["MINISITCH_CACHE", "MINISITCH_PLANS"])
def test_switched_off(setting, asked, folder, monkeypatch):
    monkeypatch.setenv(setting, "0")
    assert plan_of(GRAPH, "xla", V100) == plan_of(GRAPH, "xla", V100)
    assert asked == ["xla", "xla"] and not kept(folder)


def test_measured_prices_are_asked_again(asked, folder, monkeypatch):
    monkeypatch.setattr(plans, "MEASURING", [object()])
    assert plan_of(GRAPH, "xla", V100) == plan_of(GRAPH, "xla", V100)
    assert asked == ["xla", "xla"] and not kept(folder)


def test_a_disk_that_is_full_is_no_error(asked, folder):
    plan_of(simplify(traced(softmax, (8, 8))), "xla", V100)
    with no_file_may_grow():
        assert plan_of(GRAPH, "xla", V100) == plan_of(GRAPH, "xla", V100) and asked == ["xla", "xla", "xla"]
    assert len(kept(folder)) == 1


def test_plans_age_with_kernels(folder, monkeypatch):
    """Of too many entries the half goes that was not used for longest, whatever it holds."""
    monkeypatch.setattr(store, "KEEP", 3)
    for width in (8, 16, 32, 64):
        plan_of(simplify(traced(softmax, (8, width))), "xla", V100)
    for age, path in enumerate(sorted(kept(folder))):
        os.utime(path, (1_000_000 + age,) * 2)
    (folder / "kernel.bin").write_bytes(b"the oldest")
    os.utime(folder / "kernel.bin", (1, 1))
    wanted = sorted(kept(folder))[1:]
    store._forget_old.cache_clear()
    store._forget_old(folder)
    assert not (folder / "kernel.bin").exists() and sorted(kept(folder)) == wanted
