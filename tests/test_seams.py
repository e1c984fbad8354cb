"""Seams: another function in the place of a pass. A wrong one is refused in words, and nothing of it stays behind."""

import contextlib
import gc
import sys
import time
import types
from dataclasses import replace

import numpy as np
import pytest
from programs import layernorm, layernorm_backward, softmax, two_rows
from simt_kernels import CASES, MUTANTS
from stitch_help import CPU, TOY, TOY128, V100

import minisitch as ms
from minisitch import simt
from minisitch.strategies.fs20.explore import Candidate, Explorer
from minisitch.testing import random_graph
from minisitch.testing.seams import SEAMS

SHAPE = (70, 50)
X = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32)


def reference(name):
    return SEAMS[name].reference


def stepped(strategy="astitch", device=TOY, function=softmax, x=X):
    return ms.jit(function, strategy=strategy, target="step", device=device)(x)


def text(strategy="astitch", device=TOY):
    return str(ms.lower(softmax, X, strategy=strategy, target="step", device=device))


def unchecked(monkeypatch, name):
    """The pass without its properties: a wrong function gets through to the kernel."""
    monkeypatch.setitem(SEAMS, name, replace(SEAMS[name], check=lambda run, *args, **kwargs: run(*args, **kwargs)))


# ---------------------------------------------------------------- the mechanism
def test_the_references_in_their_own_places_change_no_text():
    def all_texts():
        return [str(ms.lower(function, X, strategy=strategy, target=target, passes="default"))
                for function in (softmax, normalised) for strategy in ("xla", "fs18", "fs20", "astitch", "auto")
                for target in ("step", "python")]
    before = all_texts()
    with contextlib.ExitStack() as all_open:
        for name, seam in SEAMS.items():
            all_open.enter_context(ms.swapped(name, seam.reference))
        assert all_texts() == before
    assert all_texts() == before


def normalised(x):
    return layernorm(x, np.float32(2), np.float32(1))


@pytest.mark.parametrize("name", SEAMS)
def test_every_module_that_knows_a_pass_calls_the_other_function(name):
    """Nothing but the table of seams keeps the reference. A module that stored it elsewhere would go on calling it."""
    def mine(*args, **kwargs):
        return reference(name)(*args, **kwargs)

    def modules():
        return {module.__name__ for module in sys.modules.values() if f"{module.__name__}.".startswith("minisitch.")
                and any(value is reference(name) for value in vars(module).values())}

    known = modules()
    assert known
    with ms.swapped(name, mine):
        assert not modules()
        gc.collect()  # what earlier tests left in circles holds no place of the pass
        holders = [each for each in gc.get_referrers(reference(name)) if not isinstance(each, types.FrameType | types.GeneratorType)]
        tests = [vars(module) for module in list(sys.modules.values()) if not f"{module.__name__}.".startswith("minisitch.")]
        allowed = {id(each) for each in (SEAMS[name], SEAMS[name].__dict__, *tests)}
        assert [each for each in holders if id(each) not in allowed and type(each).__name__ != "Run"] == []
    assert modules() == known


def test_a_legal_map_of_mine_is_in_the_kernel_and_leaves_with_its_context():
    def two_rows(rows, cols, device, **choices):
        found = reference("map_rows")(rows, cols, device, **choices)
        blocks = min(device.wave(64), -(-rows // 2))
        return replace(found, blocks=blocks, threads=64, rows_per_block=2, threads_per_row=32,
                       steps=-(-rows // 2 // blocks), why="mine")

    jitted = ms.jit(softmax, strategy="astitch", target="step", device=TOY128)
    before, want = text(device=TOY128), jitted(X)
    with ms.swapped("map_rows", two_rows):
        assert text(device=TOY128) != before
        assert np.allclose(jitted(X), want)
        assert jitted.compile(X).stages.kernels[0].block == 64
        with ms.swapped("map_rows", reference("map_rows")):
            assert text(device=TOY128) == before
        assert text(device=TOY128) != before
    assert text(device=TOY128) == before and jitted.compile(X).stages.kernels[0].block == 128


LONG = np.random.default_rng(1).standard_normal((2, 1100), dtype=np.float32)  # two chunks a row on TOY

ONE_ROW = np.random.default_rng(2).standard_normal((1, 4200), dtype=np.float32)


def loses_columns(rows, cols, device, **choices):
    """A long row's chunks are rounded down, so its last columns have no thread."""
    found = reference("map_rows")(rows, cols, device, **choices)
    return replace(found, chunk=cols // found.splits - 1)


@pytest.mark.parametrize("target", ["step", "python"])
def test_a_right_pass_never_gets_the_kernel_of_a_wrong_one(monkeypatch, target):
    """Finding 2 of the course: a map that loses columns, then the right one, in one process; and the other way round."""
    unchecked(monkeypatch, "map_rows")
    jitted = ms.jit(softmax, strategy="astitch", target=target, **({"device": TOY} if target == "step" else {}))
    other = ms.jit(lambda x: softmax(x), strategy="astitch", target=target, **({"device": TOY} if target == "step" else {}))
    want = softmax(LONG)

    def is_right(function):
        try:
            return np.allclose(function(LONG), want, rtol=1e-5)
        except ms.KernelError as error:  # the checker says which columns nobody takes
            assert "columns 0 to" in str(error)
            return False

    for mine in (reference("map_rows"), loses_columns, reference("map_rows"), loses_columns):
        with ms.swapped("map_rows", mine):
            right = mine is not loses_columns
            assert [is_right(jitted), is_right(other)] == [right, right]
        assert is_right(jitted) and is_right(other)


def test_the_disk_holds_nothing_of_a_swapped_pass(monkeypatch, tmp_path):
    monkeypatch.setenv("MINISITCH_CACHE", str(tmp_path))
    monkeypatch.delenv("MINISITCH_PLANS", raising=False)
    monkeypatch.setattr("minisitch.runtime.plans.WORTH_KEEPING_S", 0)

    def entries():
        return sorted(each.name for each in tmp_path.iterdir() if each.name != "secret")

    jitted = ms.jit(softmax, strategy="astitch", target="cpu")
    with ms.swapped("map_rows", lambda *args, **choices: replace(reference("map_rows")(*args, **choices), why="mine")):
        jitted(X)
    assert entries() == []
    jitted(X)
    kept = entries()
    assert any(each.endswith(".plan") for each in kept) and any(each.endswith(".bin") for each in kept)
    with ms.swapped("map_rows", reference("map_rows")):
        assert np.allclose(jitted(X), softmax(X))
    assert entries() == kept


# ---------------------------------------------------------------- what is refused
def raises(rows, cols, device, **choices):
    return rows // 0


def ends(*args, **choices):
    raise SystemExit(0)


@pytest.mark.parametrize(("mine", "seen"), [
    (raises, r"ZeroDivisionError: .*, in test_seams.py:\d+: return rows // 0 \[raises\]"),
    (ends, r"SystemExit: 0, in test_seams.py:\d+: raise SystemExit\(0\) \[raises\]"),
    (lambda rows: None, r"TypeError: .*, in test_seams.py:\d+ \[raises\]"),
    (lambda *args, **choices: None, r"it returns NoneType where ThreadMap is expected \[type\]"),
], ids=["raises", "ends the process", "other arguments", "returns nothing"])
def test_whatever_a_function_raises_is_said_with_its_line(mine, seen):
    with pytest.raises(ms.PassError, match=r"your map_rows: <\d+, 50> on toy: " + seen) as refused, ms.swapped("map_rows", mine):
        stepped()
    assert refused.value.name == "map_rows" and refused.value.rule in ("raises", "type")
    assert np.allclose(stepped(), softmax(X))


def test_a_function_that_changes_its_arguments_is_refused():
    def mine(readers):
        found = reference("spans")(dict(readers))
        readers.clear()
        return found

    with pytest.raises(ms.PassError, match=r"your spans: \{.*\}: it changes its arguments: work on copies \[pure\]"), \
            ms.swapped("spans", mine):
        stepped("fs18")


def test_what_cannot_be_swapped_is_refused():
    with pytest.raises(ms.MinisitchError, match="no pass 'stitch' can be swapped; take one of map_rows, candidates, groups, spans"), ms.swapped("stitch", print):
        pass
    with pytest.raises(ms.MinisitchError, match="takes a function, not 3"), ms.swapped("spans", 3):
        pass


# ---------------------------------------------------------------- the properties hold of the passes themselves
def backward(x):
    return layernorm_backward(x, x + 1, x[0])


def all_at_once():
    """A context in which every pass stands in its own place, and is checked."""
    stack = contextlib.ExitStack()
    for name, seam in SEAMS.items():
        stack.enter_context(ms.swapped(name, seam.reference))
    return stack


@pytest.mark.parametrize("strategy", ["none", "xla", "fs18", "fs20", "astitch", "kitsune", "auto"])
def test_random_programs_pass_all_checks(strategy):
    with all_at_once():
        for seed in range(4 if strategy == "auto" else 8):  # auto asks the others
            graph = random_graph(np.random.default_rng(seed), max_nodes=18)
            for device, target in ((V100, "step"), (TOY, "step"), (CPU, "python")):
                ms.runtime.compile_graph(graph, strategy, target, device)


def test_every_seam_is_called():
    """Each entry of RUNS makes the compiler call its pass, so a wrong one has a chance to show."""
    for name, run in RUNS.items():
        called = []

        def counting(*args, name=name, called=called, **kwargs):
            called.append(name)
            return reference(name)(*args, **kwargs)

        with ms.swapped(name, counting):
            run()
        assert called, name
    assert set(RUNS) == set(SEAMS)


# ---------------------------------------------------------------- wrong passes
def kernel_text(strategy, device, *programs):
    return [str(ms.lower(function, *arrays, strategy=strategy, target="step", device=device)) for function, *arrays in programs]


def judged():
    """The stepper's verdicts about a right kernel and its mutants."""
    case = CASES["tree_sum"]
    found = [verdict(case, case.text)]
    return found + [verdict(case, case.text.replace(m.old, m.new)) for m in MUTANTS if m.case == case.name and m.old]


def verdict(case, text):
    try:
        simt.step(text, case.make(np.random.default_rng(0)), case.grid, case.block, inputs=case.inputs, wave=case.wave)
    except ms.KernelBug as bug:
        return bug.rule
    return "accepted"


RUNS = {  # name of a seam -> something that makes the compiler call it, and gives what it leads to
    "map_rows": lambda: kernel_text("astitch", TOY128, (softmax, LONG), (softmax, X), (softmax, ONE_ROW)),
    "candidates": lambda: kernel_text("astitch", TOY, (normalised, X), (backward, X), (scaled, X)),
    "groups": lambda: kernel_text("astitch", TOY, (normalised, X), (backward, X), (scaled, X)),
    "spans": lambda: kernel_text("fs18", TOY, (normalised, X)),
    "pattern_reduction": lambda: kernel_text("fs20", TOY, (normalised, X)),
    "share": lambda: [str(ms.lower(two_rows, X[:4], strategy="astitch", target="step", device=TOY, passes="default")),
                      str(ms.lower(two_rows, np.ones((4, 300), np.float32), strategy="astitch", target="step", device=TOY,
                                   passes="default"))],
    "ordered": judged,
}


def scaled(x):
    """A heavy value that is broadcast, besides a reduce."""
    return np.sqrt(np.abs(np.sum(x, axis=-1, keepdims=True)) + 1) * x


def of(name, change):
    """The pass with its result changed."""
    return lambda *args, **kwargs: change(reference(name)(*args, **kwargs))


def map_with(**fields):
    """A map of rows with other fields, each computed from the reference's map."""
    return of("map_rows", lambda m: replace(m, **{name: field(m) for name, field in fields.items()}))


def row_per_block(rows, cols, device, **choices):
    return reference("map_rows")(rows, cols, device, **{**choices, "adaptive": False})


def never_splits(rows, cols, device, **choices):
    return reference("map_rows")(rows, cols, device, **{**choices, "whole": True})


def shortest(readers):
    """Spans by the shortest path to a root."""
    found = {}
    for node in reference("spans")(readers):
        found[node] = min((found[user] + 1 for user in readers[node]), default=0)
    return found


def from_inputs(readers):
    return reference("spans")({node: [other for other in readers if node in readers[other]] for node in readers})


def last_reader(readers):
    found = {}
    for node in reference("spans")(readers):
        found[node] = found[max(readers[node])] + 1 if readers[node] else 0
    return found


def each_spans(change):
    return lambda readers: {node: change(span) for node, span in reference("spans")(readers).items()}


def other_dominant(groups):
    return tuple(replace(g, dominant=g.subdominants[-1], subdominants=(g.dominant, *g.subdominants[:-1])) if g.subdominants else g
                 for g in groups)


def in_one(groups):
    """All groups joined to one."""
    members = tuple(sorted(m for g in groups for m in g.members))
    subdominants = tuple(c for g in groups for c in (g.dominant, *g.subdominants) if c != groups[0].dominant)
    return (replace(groups[0], members=members, subdominants=subdominants),)


def each_pattern(change):
    return of("pattern_reduction", lambda found: [change(patterns) for patterns in found])


def first_consumers(dag, score, allowed, best):
    """Patterns by a vertex and all that it reaches, whatever lies between."""
    return [[Candidate(1 << v | dag.below[v], 0, 0, score(1 << v))] for v in range(len(dag))]


WRONG = {
    "map_rows": [
        ("a block of 48 threads", map_with(threads=lambda m: 48, threads_per_row=lambda m: 48, rows_per_block=lambda m: 1), "legal"),
        ("a block of 2,048 threads", map_with(threads=lambda m: 2048, threads_per_row=lambda m: 2048), "legal"),
        ("three rows where two fit", map_with(rows_per_block=lambda m: m.rows_per_block + 1), "legal"),
        ("a third of the blocks", map_with(blocks=lambda m: max(1, m.blocks // 3), steps=lambda m: 1), "covers"),
        ("one turn where four are needed", map_with(steps=lambda m: -(-m.steps // 4)), "covers"),
        ("a block a row, and no turns", row_per_block, "one wave"),
        ("columns are lost", loses_columns, "covers"),
        ("49 columns of 50", map_with(chunk=lambda m: m.chunk - 1), "covers"),
        ("one row too few", map_with(rows=lambda m: m.rows - 1), "covers"),
        ("rows are never split", never_splits, "busy"),
        ("all threads on each row", map_with(rows_per_block=lambda m: 1, threads_per_row=lambda m: m.threads,
                                             steps=lambda m: -(-m.rows * m.splits // m.blocks)), "busy"),
        ("half a block", map_with(blocks=lambda m: m.blocks / 2), "type"),
    ],
    "candidates": [
        ("no candidates", lambda graph: (), "complete"),
        ("reduces alone", lambda graph: tuple(n.id for n in graph.nodes if n.kind == "reduce"), "complete"),
        ("everything", lambda graph: tuple(n.id for n in graph.nodes), "only"),
        ("the last one first", of("candidates", lambda found: found[::-1]), "order"),
        ("ids that do not exist", of("candidates", lambda found: (*found, 1000)), "type"),
    ],
    "groups": [
        ("no groups", lambda graph, merge=True: (), "complete"),
        ("the wrong dominant", of("groups", other_dominant), "dominant"),
        ("all in one group", of("groups", in_one), "cut"),
        ("the last operation forgotten", of("groups", lambda gs: tuple(replace(g, members=g.members[1:]) for g in gs)), "connected"),
        ("every group twice", of("groups", lambda groups: groups * 2), "partition"),
        ("no sub-dominants", of("groups", lambda groups: tuple(replace(g, subdominants=()) for g in groups)), "sub-dominants"),
        ("a list", of("groups", list), "type"),
    ],
    "spans": [
        ("the shortest path", shortest, "above"),
        ("from the inputs", from_inputs, "above"),
        ("the last reader", last_reader, "above"),
        ("all zero", each_spans(lambda span: 0), "above"),
        ("roots have 1", each_spans(lambda span: span + 1), "root"),
        ("twice as high", each_spans(lambda span: 2 * span), "tight"),
        ("none", lambda readers: {}, "complete"),
        ("the root's forgotten", lambda readers: {n: s for n, s in reference("spans")(readers).items() if s}, "complete"),
        ("as text", each_spans(str), "type"),
    ],
    "pattern_reduction": [
        ("finds nothing", lambda dag, score, allowed, best: [[] for _ in dag.consumers], "complete"),
        ("one list", lambda dag, score, allowed, best: [], "complete"),
        ("the worst first", each_pattern(lambda patterns: patterns[::-1]), "best first"),
        ("each twice", each_pattern(lambda patterns: patterns[:1] * 2), "distinct"),
        ("as many as it finds", lambda dag, score, allowed, best: Explorer(dag, score, allowed, best + 1).explore(), "most"),
        ("all that is reached", first_consumers, "reach"),
        ("of the wrong vertex", of("pattern_reduction", lambda found: found[::-1]), "begins"),
        ("a better score than it has", each_pattern(lambda ps: [replace(p, score=p.score + 1) for p in ps]), "score"),
    ],
    "share": [
        ("all in one slot", lambda buffers, take_turns: [0 for _ in buffers], "apart"),
        ("no sharing", lambda buffers, take_turns: list(range(len(buffers))), "small"),
        ("given to the next one", lambda buffers, take_turns: [i + 1 for i in range(len(buffers))], "owner"),
        ("one forgotten", of("share", lambda found: found[1:]), "complete"),
        ("names", of("share", lambda found: [str(i) for i in found]), "type"),
    ],
    "ordered": [
        ("always", lambda before, after: True, "same block"),
        ("never", lambda before, after: False, "same thread"),
        ("nothing said", lambda before, after: None, "type"),
    ],
}
EACH = [pytest.param(name, mine, rule, id=f"{name}: {what}") for name, cases in WRONG.items() for what, mine, rule in cases]


@pytest.mark.parametrize(("name", "mine", "rule"), EACH)
def test_a_wrong_pass_is_named_at_once(name, mine, rule):
    began = time.process_time()
    with pytest.raises(ms.PassError, match=f"^your {name}: ") as refused, ms.swapped(name, mine):
        RUNS[name]()
    assert time.process_time() - began < 2
    assert refused.value.rule == rule and str(refused.value).endswith(f" [{rule}]"), refused.value


def test_a_wrong_pass_leaves_nothing_behind():
    before = {name: run() for name, run in RUNS.items()}
    for name, mine, _ in (each.values for each in EACH):
        with pytest.raises(ms.PassError), ms.swapped(name, mine):
            RUNS[name]()
    assert {name: run() for name, run in RUNS.items()} == before
