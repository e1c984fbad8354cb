"""Seams: another function in the place of a pass. A wrong one is refused in words, and nothing of it stays behind."""

import contextlib
import gc
import sys
import time
import types
from dataclasses import replace

import numpy as np
import pytest
from programs import layernorm, softmax
from stitch_help import TOY, TOY128

import minisitch as ms
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
                for function in (softmax, layernorm_without_weights) for strategy in ("xla", "fs18", "fs20", "astitch", "auto")
                for target in ("step", "python")]
    before = all_texts()
    with contextlib.ExitStack() as all_open:
        for name, seam in SEAMS.items():
            all_open.enter_context(ms.swapped(name, seam.reference))
        assert all_texts() == before
    assert all_texts() == before


def layernorm_without_weights(x):
    return layernorm(x, np.float32(2), np.float32(1))


@pytest.mark.parametrize("name", SEAMS)
def test_every_module_that_knows_a_pass_calls_the_other_function(name):
    """Nothing but the table of seams keeps the reference. A module that stored it elsewhere would go on calling it."""
    def mine(*args, **kwargs):
        return reference(name)(*args, **kwargs)

    def modules():
        return {module.__name__ for module in sys.modules.values() if module.__name__.startswith("minisitch")
                and any(value is reference(name) for value in vars(module).values())}

    known = modules()
    assert known
    with ms.swapped(name, mine):
        assert not modules()
        holders = [each for each in gc.get_referrers(reference(name)) if not isinstance(each, types.FrameType | types.GeneratorType)]
        tests = [vars(module) for module in list(sys.modules.values()) if not module.__name__.startswith("minisitch")]
        allowed = {id(each) for each in (SEAMS[name], SEAMS[name].__dict__, *tests)}
        assert [each for each in holders if id(each) not in allowed] == []
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
    for mine in (reference("map_rows"), loses_columns, reference("map_rows"), loses_columns):
        with ms.swapped("map_rows", mine):
            right = mine is not loses_columns
            assert [np.allclose(each(LONG), want, rtol=1e-5) for each in (jitted, other)] == [right, right]
        assert [np.allclose(each(LONG), want, rtol=1e-5) for each in (jitted, other)] == [True, True]


def test_what_background_threads_compile_with_a_wrong_pass_is_forgotten_too(monkeypatch):
    unchecked(monkeypatch, "map_rows")
    jitted = ms.jit(softmax, strategy="astitch", target="python", background=True)
    with ms.swapped("map_rows", loses_columns):
        jitted(LONG)
    jitted.wait(LONG)
    assert np.allclose(jitted(LONG), softmax(LONG), rtol=1e-5)


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
    with pytest.raises(ms.MinisitchError, match="no pass 'stitch' can be swapped; take one of map_rows, spans"), ms.swapped("stitch", print):
        pass
    with pytest.raises(ms.MinisitchError, match="takes a function, not 3"), ms.swapped("spans", 3):
        pass


# ---------------------------------------------------------------- wrong passes
def changed(**fields):
    """A map of rows with other fields, each computed from the reference's map."""
    def mine(rows, cols, device, **choices):
        found = reference("map_rows")(rows, cols, device, **choices)
        return replace(found, **{name: field(found) for name, field in fields.items()})
    return mine


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
    operands = {node: [other for other in readers if node in readers[other]] for node in readers}
    return reference("spans")(operands)


def last_reader(readers):
    found = {}
    for node in reference("spans")(readers):
        found[node] = found[max(readers[node])] + 1 if readers[node] else 0
    return found


def recursive(readers):
    def span(node):
        return max((span(user) + 1 for user in readers[node]), default=0)
    return {node: span(node) for node in readers}


WRONG = {
    "a block of 48 threads": ("map_rows", changed(threads=lambda m: 48, threads_per_row=lambda m: 48, rows_per_block=lambda m: 1), "legal"),
    "a block of 2,048 threads": ("map_rows", changed(threads=lambda m: 2048, threads_per_row=lambda m: 2048), "legal"),
    "three rows where two fit": ("map_rows", changed(rows_per_block=lambda m: m.rows_per_block + 1), "legal"),
    "a third of the blocks": ("map_rows", changed(blocks=lambda m: max(1, m.blocks // 3), steps=lambda m: 1), "covers"),
    "a block a row, and no turns": ("map_rows", row_per_block, "one wave"),
    "columns are lost": ("map_rows", loses_columns, "covers"),
    "49 columns of 50": ("map_rows", changed(chunk=lambda m: m.chunk - 1), "covers"),
    "one row too few": ("map_rows", changed(rows=lambda m: m.rows - 1), "covers"),
    "rows are never split": ("map_rows", never_splits, "busy"),
    "all threads on each row": ("map_rows", changed(rows_per_block=lambda m: 1, threads_per_row=lambda m: m.threads,
                                                    steps=lambda m: -(-m.rows // m.blocks)), "busy"),
    "half a block": ("map_rows", changed(blocks=lambda m: m.blocks / 2), "type"),
    "spans by the shortest path": ("spans", shortest, "above"),
    "spans from the inputs": ("spans", from_inputs, "above"),
    "spans of the last reader": ("spans", last_reader, "above"),
    "all spans zero": ("spans", lambda readers: dict.fromkeys(readers, 0), "above"),
    "roots have span 1": ("spans", lambda readers: {n: s + 1 for n, s in reference("spans")(readers).items()}, "root"),
    "spans twice as high": ("spans", lambda readers: {n: 2 * s for n, s in reference("spans")(readers).items()}, "tight"),
    "no spans": ("spans", lambda readers: {}, "complete"),
}
PROGRAMS = {  # name of a seam -> the strategy that calls it, and programs on which a wrong pass has to show
    "map_rows": ("astitch", TOY128, [(softmax, LONG), (softmax, X), (softmax, ONE_ROW)]),
    "spans": ("fs18", TOY, [(layernorm_without_weights, X)]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_pass_is_named_at_once(wrong):
    name, mine, rule = WRONG[wrong]
    strategy, device, programs = PROGRAMS[name]
    began = time.perf_counter()
    with pytest.raises(ms.PassError, match=f"^your {name}: ") as refused, ms.swapped(name, mine):
        for function, x in programs:
            stepped(strategy, device, function, x)
    assert refused.value.rule == rule, refused.value
    assert time.perf_counter() - began < 2
    for function, x in programs:
        assert np.allclose(stepped(strategy, device, function, x), function(x), rtol=1e-5, atol=1e-6)
