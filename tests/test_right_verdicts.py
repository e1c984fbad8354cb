"""The stepper's verdicts on kernels as students write them: right ones pass under every seed, of wrong ones none does."""

import re

import numpy as np
import pytest
from verdict_kernels import RIGHT
from wrong_kernels import WRONG

import minisitch as ms
from minisitch.simt import step


def outcome(case, seed):
    """``right``, ``wrong``, or the refusal."""
    text, grid, block, arrays, want, options = case
    given, before = arrays(), arrays()
    try:
        step(text, given, grid, block, seed, **options)
    except ms.KernelBug as bug:
        return bug
    return "right" if all(np.array_equal(given[name], value) for name, value in want(before).items()) else "wrong"


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_is_accepted(name):
    assert [outcome(RIGHT[name], seed) for seed in range(5)] == ["right"] * 5


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_not(name):
    found = next((each for each in (outcome(WRONG[name], seed) for seed in range(24)) if each != "right"), "right")
    assert found != "right"
    if found != "wrong":
        text = WRONG[name][0].splitlines()
        assert 1 <= found.line <= len(text) and f"line {found.line}: {text[found.line - 1].strip()}" in str(found)


FOLLOWED = {  # a wrong kernel -> what is said, and the text after following it
    "ticket without fence": ("cuda.threadfence(): before the atomic operation that tells", "        s[0] =", "        cuda.threadfence()\n        s[0] ="),
    "ticket no acquire fence": ("and after the one that asks", "        if t == 0:\n            w", "        cuda.threadfence()\n        if t == 0:\n            w"),
    "lock released by store": ("Write cuda.atomic.exch(x, i, value) on line 9", "        lock[0] = 0", "        cuda.atomic.exch(lock, 0, 0)"),
    "ticket lock read plainly": ("Write cuda.atomic.add(x, i, 0) on line 4", "s[0] != mine", "cuda.atomic.add(s, 0, 0) != mine"),
    "flag plain store": ("Write add_release(x, i, value) on line 5", "flag[0] = 1", "add_release(flag, 0, 1)"),
    "flag plain read": ("Write load_acquire(x, i) on line 7", "flag[0] == 0", "load_acquire(flag, 0) == 0"),
    "histogram barrier 2": ("or a barrier between the two", "    if t < 8:\n        cuda", "    cuda.syncthreads()\n    if t < 8:\n        cuda"),
    "no grid sync": ("cuda.cg.this_grid().sync() if another block writes it", "    n = ", "    cuda.cg.this_grid().sync()\n    n = "),
    "column sums without grid": ("cuda.cg.this_grid().sync()", "    if b == 0:", "    cuda.cg.this_grid().sync()\n    if b == 0:"),
    "histogram no atomic": ("To add up in one cell, use cuda.atomic.add", "s[x[i]] += 1", "cuda.atomic.add(s, x[i], 1)"),
    "tree no barrier": ("before the next round of a loop", "        n = h", "        cuda.syncthreads()\n        n = h"),
    "shuffle mask too small": ("the mask has bit k for lane k", "0xffff,", "0xffffffff,"),
    "ballot in if": ("call it where all come", "    b = 0\n    if v > 0:\n        b =", "    b ="),
    "ticket lock forgets serving": ("one must change what they wait for", "* 2 + 1\n    cuda.threadfence()\n", "* 2 + 1\n    cuda.threadfence()\n    cuda.atomic.add(s, 0, 1)\n"),
    "reads next in place": ("reading (into a variable) and storing", "    if i + 1 < x.shape[0]:\n        x[i] = x[i + 1]",
                            "    v = x[min(i + 1, 63)]\n    cuda.cg.this_grid().sync()\n    x[i] = v"),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_remedy_works_when_followed(name):
    said, old, new = FOLLOWED[name]
    text, *rest = WRONG[name]
    found = next(bug for bug in (outcome(WRONG[name], seed) for seed in range(24)) if isinstance(bug, ms.KernelBug))
    assert said in str(found)
    assert len(re.findall(re.escape(old), text)) == 1
    assert [outcome((text.replace(old, new), *rest), seed) for seed in range(5)] == ["right"] * 5
