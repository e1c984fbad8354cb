"""300 mutants of hand-written and emitted kernels: each is refused, or wrong, or listed below with why it is the same kernel."""

import inspect
import re

import numpy as np
import pytest
import test_textbook_kernels as textbook
from kernel_mutants import drawn
from programs import softmax
from stitch_help import TOY, lowered, traced

from minisitch.errors import MinisitchError
from minisitch.simt import step

NAMES = ("tree_sum", "grid_wide_sum", "double_buffered_scan", "shuffle_scan", "histogram", "transpose_with_padding", "softmax_by_hand",
         "stencil_with_halo", "last_block_adds", "row_sums_in_registers")
SEEDS = range(3)
EACH = {"emitted 3 x 40": 60, "emitted 5 x 70": 60}  # of the others: 32, or all there are


def hand_written(name):
    kernel = getattr(textbook, name)
    arrays, grid, block, inputs, want = textbook.CASES[kernel]
    source = inspect.getsource(kernel)
    return ("N = 64\n" if "N" in re.findall(r"\w+", source) else "") + source, arrays, grid, block, inputs, want


def emitted(shape):
    source, = lowered(traced(softmax, shape), "astitch", "step", TOY).sources
    x = textbook.floats(*shape)
    e = np.exp(x - x.max(1, keepdims=True))
    text = re.sub(r"def \w+\(", "def k(", source.text)
    return text, [x.ravel(), textbook.zeros(x.size)], source.kernel.grid, source.kernel.block, [0], (e / e.sum(1, keepdims=True)).ravel()


CASES = {**{name: hand_written(name) for name in NAMES}, "emitted 3 x 40": emitted((3, 40)), "emitted 5 x 70": emitted((5, 70))}


def verdict(text, arrays, grid, block, inputs, want):
    """``refused`` under some seed, else ``wrong`` or ``the same``."""
    for seed in SEEDS:
        given = [np.ascontiguousarray(a).copy() if isinstance(a, np.ndarray) else a for a in arrays]
        try:
            step(text, given, grid, block, seed, inputs=inputs, rounds=60_000, outputs=[len(given) - 1])
        except MinisitchError:
            return "refused"
        if not np.allclose(given[-1], want, rtol=1e-5):
            return "wrong"
    return "the same"

THE_SAME = {  # why a survivor computes the same: the survivors
    "the statement that the barrier now precedes touches only this thread's own cells, or the barrier now begins each round": [
        ("tree_sum", "line 11: cuda.syncthreads(): a statement earlier"),
        ("double_buffered_scan", "line 11: cuda.syncthreads(): a statement earlier"),
        ("stencil_with_halo", "line 10: cuda.syncthreads(): a statement earlier"),
    ],
    "an array is larger than the kernel needs": [
        ("tree_sum", "line 1: 64: 65"),
        ("histogram", "line 2: 9: 10"),
        ("transpose_with_padding", "line 2: 8: 9"),
        ("transpose_with_padding", "line 2: 9: 10"),
        ("stencil_with_halo", "line 2: 34: 35"),
        ("last_block_adds", "line 2: 1: 2"),
        ("row_sums_in_registers", "line 2: 4: 5"),
        ("emitted 3 x 40", "line 9: 2: 3"),
        ("emitted 3 x 40", "line 8: 2: 3"),
        ("emitted 5 x 70", "line 7: 4: 5"),
        ("emitted 5 x 70", "line 8: 4: 5"),
        ("emitted 5 x 70", "line 9: 2: 3"),
    ],
    "any one thread may do it, not only thread 0": [
        ("tree_sum", "line 13: 0: 1"),
        ("grid_wide_sum", "line 8: 0: 1"),
        ("last_block_adds", "line 9: 0: 1"),
        ("last_block_adds", "line 3: 0: 1"),
    ],
    "the further round only copies each cell": [
        ("double_buffered_scan", "line 1: 64: 65"),
        ("double_buffered_scan", "line 9: offset < N: offset <= N"),
    ],
    "a maximum may take a value twice, and no thread writes what another reads": [
        ("softmax_by_hand", "line 11: 16: 17"),
        ("softmax_by_hand", "line 11: 4: 5"),
    ],
    "a softmax is the same whatever is subtracted from a row, as long as exp does not overflow": [
        ("softmax_by_hand", "line 15: 0: 1"),
        ("emitted 3 x 40", "line 32: v0_1 - r1: v0_1 + r1"),
        ("emitted 5 x 70", "line 32: v0_1 - r1: v0_1 + r1"),
    ],
    "it differs only where a block ends at the end of the array, and 100 is no multiple of 32": [
        ("stencil_with_halo", "line 9: i + 1 < n: i + 1 <= n"),
        ("stencil_with_halo", "line 9: 0: 1"),
        ("stencil_with_halo", "line 9: 1: 2"),
        ("stencil_with_halo", "line 9: i + 1: i - 1"),
    ],
    "the five offsets still reach all 32 lanes from any lane, each once": [
        ("emitted 3 x 40", "line 24: 2: 3"),
        ("emitted 3 x 40", "line 24: 8: 9"),
        ("emitted 3 x 40", "line 36: 16: 17"),
        ("emitted 3 x 40", "line 24: 16: 17"),
        ("emitted 3 x 40", "line 36: 8: 9"),
        ("emitted 3 x 40", "line 24: 4: 5"),
        ("emitted 3 x 40", "line 36: 2: 3"),
        ("emitted 5 x 70", "line 24: 4: 5"),
        ("emitted 5 x 70", "line 24: 2: 3"),
        ("emitted 5 x 70", "line 24: 16: 17"),
        ("emitted 5 x 70", "line 36: 16: 17"),
        ("emitted 5 x 70", "line 36: 2: 3"),
    ],
    "there is one turn, number 0, so its stride does not matter": [
        ("emitted 3 x 40", "line 18: lane * 2 + turn * 64: lane * 2 - turn * 64"),
        ("emitted 3 x 40", "line 39: lane * 2 + turn * 64: lane * 2 - turn * 64"),
        ("emitted 3 x 40", "line 28: 64: 65"),
        ("emitted 3 x 40", "line 18: 64: 65"),
        ("emitted 3 x 40", "line 39: 64: 65"),
    ],
    "the further task has no live row, or the step has one more to skip": [
        ("emitted 3 x 40", "line 13: 2: 3"),
    ],
    "the further turn begins behind the last column": [
        ("emitted 3 x 40", "line 38: 1: 2"),
        ("emitted 3 x 40", "line 27: 1: 2"),
        ("emitted 5 x 70", "line 38: 2: 3"),
        ("emitted 5 x 70", "line 27: 2: 3"),
    ],
    "only lanes 0 to 19 have columns, and each is still there once in either row": [
        ("emitted 3 x 40", "line 11: 32: 33"),
    ],
}
SURVIVORS = {survivor for each in THE_SAME.values() for survivor in each}


@pytest.mark.parametrize("name", CASES)
def test_mutants_are_refused_or_wrong_or_the_same(name):
    text, *launch = CASES[name]
    assert verdict(text, *launch) == "the same"
    found = {said: verdict(mutant, *launch) for said, mutant in drawn(text, EACH.get(name, 32), seed=0)}
    assert {(name, said) for said, each in found.items() if each == "the same"} == {each for each in SURVIVORS if each[0] == name}
    assert 2 * sum(each == "refused" for each in found.values()) >= len(found) - 10, "most are refused, not only wrong"


def test_there_are_300_mutants():
    assert sum(len(drawn(text, EACH.get(name, 32), seed=0)) for name, (text, *_) in CASES.items()) >= 300
