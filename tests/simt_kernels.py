"""Correct kernels, and the mutants that the stepper must reject: a checker is as good as what it refuses.

A ``Case`` is a kernel's text, its launch, and its meaning in NumPy. A ``Mutant`` is one text substitution
in a case, or one changed launch, and the rule that must refuse it under every seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from textwrap import dedent

import numpy as np
from programs import softmax


@dataclass(frozen=True)
class Case:
    """``make(rng)`` gives the arrays by name; ``want`` computes, from copies of them, those to compare."""

    name: str
    text: str
    grid: int
    block: int
    make: Callable[[np.random.Generator], dict[str, np.ndarray]]
    want: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
    inputs: tuple[str, ...] | None = None
    wave: int | None = None


@dataclass(frozen=True)
class Mutant:
    """``rules`` are all that are true of it: a read that no barrier orders after the write it needs is an
    unwritten read where it comes first, and a race where it comes second."""

    case: str
    name: str
    rules: tuple[str, ...]
    old: str = ""
    new: str = ""
    launch: dict = field(default_factory=dict)  # changed grid, block, inputs or wave


CASES: dict[str, Case] = {}
MUTANTS: list[Mutant] = []


def case(name, text, grid, block, make, want, **options):
    CASES[name] = Case(name, dedent(text), grid, block, make, want, **options)


def mutant(name, rule, old="", new="", **launch):
    """A mutant of the case above."""
    MUTANTS.append(Mutant(list(CASES)[-1], name, (rule,) if isinstance(rule, str) else rule, old, new, launch))


TOO_EARLY = ("race", "unwritten-read")


def floats(rng, *shape):
    """Small whole numbers as float32: sums of them are exact in any order."""
    return rng.integers(-8, 9, shape).astype(np.float32)


def unwritten(*shape, dtype=np.float32):
    return np.full(shape, 99, dtype)


# ---------------------------------------------------------------- element-wise with a guard
case("guarded", """
    HALF = np.float32(0.5)
    def guarded(x, y):
        i = cuda.grid(1)
        if i < 70:
            y[i] = x[i] * HALF
    """, 3, 32, lambda rng: {"x": floats(rng, 70), "y": unwritten(70)}, lambda a: {"y": a["x"] * np.float32(0.5)})
mutant("no guard", "out-of-bounds", "if i < 70:", "if True:")
mutant("guard one too far", "out-of-bounds", "i < 70", "i <= 70")
mutant("one left of the first", "out-of-bounds", "x[i]", "x[i - 1]")
mutant("index is a float", "out-of-bounds", "x[i]", "x[i / 1]")
mutant("reads its output", "unwritten-read", "x[i] *", "y[i] *")
mutant("two threads, one cell", "race", "y[i] =", "y[i // 2] =")
mutant("two blocks, one cell", "race", "y[i] =", "y[cuda.threadIdx.x] =")
mutant("input not given", "unwritten-read", inputs=())
mutant("double literal", "float64-literal", "* HALF", "* 0.5")
mutant("double constant", "float64-literal", "np.float32(0.5)", "0.5")
mutant("unknown intrinsic", "outside-dialect", "cuda.grid(1)", "cuda.magic(1)")
mutant("name without a value", "outside-dialect", "i < 70", "j < 70")

# ---------------------------------------------------------------- a block per row, vertically packed
case("block_softmax", """
    ZERO = np.float32(0.0)
    LOWEST = np.float32(-np.inf)
    def block_softmax(x, y):
        thread = cuda.threadIdx.x
        lane, warp = thread % 32, thread // 32
        part = cuda.shared.array(2, np.float32)
        e = cuda.shared.array(100, np.float32)
        for row in range(cuda.blockIdx.x, 5, 2):
            v1 = LOWEST
            for col in range(thread, 100, 64):
                v1 = maximum(v1, x[row * 100 + col])
            for offset in (16, 8, 4, 2, 1):
                v1 = maximum(v1, cuda.shfl_xor_sync(0xffffffff, v1, offset))
            if lane == 0:
                part[warp] = v1
            cuda.syncthreads()                                      # 1
            v1 = maximum(part[0], part[1])
            cuda.syncthreads()                                      # 2
            acc = ZERO
            for col in range(thread, 100, 64):
                v2 = math.exp(x[row * 100 + col] - v1)
                e[col] = v2
                acc += v2
            for offset in (16, 8, 4, 2, 1):
                acc += cuda.shfl_xor_sync(0xffffffff, acc, offset)
            if lane == 0:
                part[warp] = acc
            cuda.syncthreads()                                      # 3
            v3 = part[0] + part[1]
            for col in range(thread, 100, 64):
                y[row * 100 + col] = e[col] / v3
            cuda.syncthreads()                                      # 4
    """, 2, 64, lambda rng: {"x": floats(rng, 500), "y": unwritten(500)},
     lambda a: {"y": softmax(a["x"].reshape(5, 100)).ravel()})
mutant("no barrier before the first total", TOO_EARLY,
       "cuda.syncthreads()                                      # 1", "pass")
mutant("one buffer for two totals", "race",
       "cuda.syncthreads()                                      # 2", "pass")
mutant("no barrier before the second total", "race",
       "cuda.syncthreads()                                      # 3", "pass")
mutant("scratch of the last row not protected", "race",
       "cuda.syncthreads()                                      # 4", "pass")
mutant("warp barrier for a block barrier", "race",
       "cuda.syncthreads()                                      # 3", "cuda.syncwarp()")
mutant("barrier in a loop of uneven length", "divergent-barrier", "e[col] = v2",
       "e[col] = v2; cuda.syncthreads()")
mutant("barrier under a condition", "divergent-barrier",
       "cuda.syncthreads()                                      # 4", "if thread < 36: cuda.syncthreads()")
mutant("early return", "divergent-barrier", "    for row in range(cuda.blockIdx.x, 5, 2):",
       "    if thread >= 40: return\n    for row in range(cuda.blockIdx.x, 5, 2):")
mutant("shuffle inside a ragged loop", "divergent-barrier", "acc += v2",
       "acc += cuda.shfl_xor_sync(0xffffffff, v2, 1)")
mutant("overwrites its neighbour's share", "race", "= e[col] / v3",
       "= e[col] / v3\n            e[(col + 1) % 100] = v3")
mutant("row after the last", "out-of-bounds", "range(cuda.blockIdx.x, 5, 2)",
       "range(cuda.blockIdx.x + 1, 6, 2)")
mutant("rows overlap between blocks", "race", "y[row * 100 + col]", "y[(row // 2) * 100 + col]")
mutant("shared array too small", "out-of-bounds", "shared.array(100", "shared.array(99")
mutant("masks that leave out the partner", "lane-mask", "cuda.shfl_xor_sync(0xffffffff, acc, offset)",
       "cuda.shfl_xor_sync(0xffff if lane < 16 else 0xffff0000, acc, offset)")
mutant("masks that overlap and differ", "divergent-barrier", "cuda.shfl_xor_sync(0xffffffff, acc, offset)",
       "cuda.shfl_xor_sync(0xffffffff if lane else 0x7fffffff, acc, offset)")

# ---------------------------------------------------------------- a warp per row, rows packed into blocks
case("warp_softmax", """
    ZERO = np.float32(0.0)
    LOWEST = np.float32(-np.inf)
    def warp_softmax(x, y):
        lane, warp = cuda.laneid, cuda.threadIdx.x // 32
        row = cuda.blockIdx.x * 2 + warp
        if row < 5:
            value = x[row, lane] if lane < 20 else LOWEST
            top = value
            for offset in (16, 8, 4, 2, 1):
                top = max(top, cuda.shfl_xor_sync(0xffffffff, top, offset))
            value = math.exp(value - top)
            total = value
            for offset in (16, 8, 4, 2, 1):
                total += cuda.shfl_down_sync(0xffffffff, total, offset)
            total = cuda.shfl_sync(0xffffffff, total, 0)
            if lane < 20:
                y[row, lane] = value / total
    """, 3, 64, lambda rng: {"x": floats(rng, 5, 20), "y": unwritten(5, 20)}, lambda a: {"y": softmax(a["x"])})
mutant("no row guard", "out-of-bounds", "if row < 5:", "if True:")
mutant("no column guard", "out-of-bounds", " if lane < 20 else LOWEST", "")
mutant("lanes guarded instead of values", "divergent-barrier", "if row < 5:", "if row < 5 and lane < 20:")
mutant("mask of half the lanes", "lane-mask", "0xffffffff, top", "0xffff, top")
mutant("value from a lane out of the mask", "lane-mask", "total = cuda.shfl_sync(0xffffffff, total, 0)",
       "total = cuda.shfl_sync(0xfffffffe, total, 0) if lane else total")
mutant("one index for two axes", "out-of-bounds", "x[row, lane]", "x[row * 20 + lane]")

# ---------------------------------------------------------------- tree reduction in shared memory
case("tree_sum", """
    def tree_sum(x, y):
        thread = cuda.threadIdx.x
        s = cuda.shared.array(128, np.float32)
        s[thread] = x[cuda.grid(1)]
        cuda.syncthreads()
        step = 64
        while step > 0:
            if thread < step:
                s[thread] += s[thread + step]
            cuda.syncthreads()  # end of step
            step //= 2
        if thread == 0:
            y[cuda.blockIdx.x] = s[0]
    """, 2, 128, lambda rng: {"x": floats(rng, 256), "y": unwritten(2)},
     lambda a: {"y": a["x"].reshape(2, 128).sum(axis=1)})
mutant("no barrier in the loop", "race", "cuda.syncthreads()  # end of step", "pass")
mutant("no barrier before the loop", TOO_EARLY, "    cuda.syncthreads()\n    step", "    step")
mutant("barrier under if", "divergent-barrier", "    cuda.syncthreads()  # end of step",
       "        cuda.syncthreads()")
mutant("warp barrier for a block barrier", "race", "cuda.syncthreads()  # end of step", "cuda.syncwarp()")
mutant("the last warp runs in step by itself", "race", "cuda.syncthreads()  # end of step",
       "if step > 16: cuda.syncthreads()")
mutant("step subtracted", "out-of-bounds", "s[thread + step]", "s[thread - step]")
mutant("every thread adds to one cell", "race", "s[thread] += ", "s[0] += ")
mutant("global sum without atomics", "race", "y[cuda.blockIdx.x] = s[0]", "y[0] += s[0]", inputs=("x", "y"))

# ---------------------------------------------------------------- the same within one warp, by warp barriers
case("warp_tree_sum", """
    def warp_tree_sum(x, y):
        lane, warp = cuda.threadIdx.x % 32, cuda.threadIdx.x // 32
        s = cuda.shared.array((2, 32), np.float32)
        s[warp, lane] = x[cuda.threadIdx.x]
        cuda.syncwarp()
        for step in (16, 8, 4, 2, 1):
            if lane < step:
                s[warp, lane] += s[warp, lane + step]
            cuda.syncwarp()  # end of step
        if lane == 0:
            y[warp] = s[warp, 0]
    """, 1, 64, lambda rng: {"x": floats(rng, 64), "y": unwritten(2)},
     lambda a: {"y": a["x"].reshape(2, 32).sum(axis=1)})
mutant("no warp barrier: lanes run in step", "race", "cuda.syncwarp()  # end of step", "pass")
mutant("shuffle for a warp barrier", "race", "cuda.syncwarp()  # end of step",
       "cuda.shfl_sync(0xffffffff, lane, 0)")
mutant("vote for a warp barrier", "race", "cuda.syncwarp()  # end of step",
       "cuda.any_sync(0xffffffff, True)")
mutant("fence for a warp barrier", "race", "cuda.syncwarp()  # end of step", "cuda.threadfence_block()")
mutant("warp barrier of half the lanes", TOO_EARLY, "    cuda.syncwarp()\n    for",
       "    cuda.syncwarp(0xffff if lane < 16 else 0xffff0000)\n    for")
mutant("warp barrier under if", "divergent-barrier", "    cuda.syncwarp()  # end of step",
       "        cuda.syncwarp()")
mutant("wrong warp's bytes", TOO_EARLY, "y[warp] = s[warp, 0]", "y[warp] = s[0, 0]")

# ---------------------------------------------------------------- two rows a warp: each half meets on its own
case("half_warps", """
    def half_warps(x, y):
        lane = cuda.laneid
        mask = 0xffff if lane < 16 else 0xffff0000
        s = cuda.shared.array(32, np.float32)
        s[lane] = x[lane]
        cuda.syncwarp(mask)
        total = s[lane] + s[lane ^ 1]
        for offset in (2, 4, 8):
            total += cuda.shfl_xor_sync(mask, total, offset)
        positive = cuda.ballot_sync(mask, x[lane] > np.float32(0))
        y[lane] = total if positive & 1 << lane else -total
    """, 1, 32, lambda rng: {"x": floats(rng, 32), "y": unwritten(32)},
     lambda a: {"y": np.where(a["x"] > 0, 1, -1).astype(np.float32) * np.repeat(a["x"].reshape(2, 16).sum(axis=1), 16)})
mutant("reads the other half", TOO_EARLY, "s[lane ^ 1]", "s[lane ^ 16]")
mutant("shuffles from the other half", "lane-mask", "(2, 4, 8)", "(2, 4, 16)")
mutant("calls with the other half's mask", "lane-mask", "if lane < 16", "if lane >= 16")
mutant("names lanes that went elsewhere", "divergent-barrier", "cuda.syncwarp(mask)",
       "cuda.syncwarp(mask if lane else 0xffffffff)")

# ---------------------------------------------------------------- two stages and a grid barrier
case("grid_sum", """
    ZERO = np.float32(0.0)
    def grid_sum(x, part, y):
        thread, block = cuda.threadIdx.x, cuda.blockIdx.x
        grid = cuda.cg.this_grid()
        acc = ZERO
        for i in range(block * 32 + thread, 1000, 128):
            acc += x[i]
        for offset in (16, 8, 4, 2, 1):
            acc += cuda.shfl_xor_sync(0xffffffff, acc, offset)
        if thread == 0:
            part[block] = acc
        grid.sync()
        total = ZERO
        for b in range(4):
            total += part[b]
        for i in range(block * 32 + thread, 1000, 128):
            y[i] = x[i] - total
    """, 4, 32, lambda rng: {"x": floats(rng, 1000), "part": unwritten(4), "y": unwritten(1000)},
     lambda a: {"y": a["x"] - a["x"].sum(), "part": np.bincount(np.arange(1000) // 32 % 4, a["x"]).astype(np.float32)},
     wave=4)
mutant("no grid barrier", "unwritten-read", "grid.sync()", "pass")
mutant("no grid barrier, stale scratch", "race", "grid.sync()", "pass", inputs=("x", "part"))
mutant("block barrier for a grid barrier", "race", "grid.sync()", "cuda.syncthreads()", inputs=("x", "part"))
mutant("fence for a grid barrier", "race", "grid.sync()", "cuda.threadfence()", inputs=("x", "part"))
mutant("more blocks than a wave", "one-wave", wave=3)
mutant("a block that skips a grid barrier", "divergent-barrier", "x[i] - total",
       "x[i] - total\n    if block: grid.sync()")
mutant("a thread that skips a grid barrier", "divergent-barrier", "x[i] - total",
       "x[i] - total\n    if thread: grid.sync()")
mutant("a grid barrier in a loop of uneven length", "divergent-barrier", "y[i] = x[i] - total",
       "grid.sync(); y[i] = x[i] - total")
mutant("scratch one block short", "out-of-bounds", "part[block]", "part[block + 1]")
mutant("all blocks own one scratch cell", "race", "part[block] = acc", "part[0] = acc")
mutant("scratch of a block that does not run", "unwritten-read", grid=3)

# ---------------------------------------------------------------- column sums
case("column_sum", """
    ZERO = np.float32(0.0)
    def column_sum(x, y):
        col = cuda.grid(1)
        if col < 50:
            acc = ZERO
            for row in range(7):
                acc += x[row * 50 + col]
            y[col] = acc
    """, 2, 32, lambda rng: {"x": floats(rng, 350), "y": unwritten(50)},
     lambda a: {"y": a["x"].reshape(7, 50).sum(axis=0)})
mutant("one row too many", "out-of-bounds", "range(7)", "range(8)")
mutant("accumulates in the output", "unwritten-read", "acc += x", "y[col] += x")

# ---------------------------------------------------------------- histogram by atomics
case("histogram", """
    def histogram(x, bins):
        thread = cuda.threadIdx.x
        mine = cuda.shared.array(8, np.int32)
        if thread < 8:
            mine[thread] = 0
        cuda.syncthreads()  # zeroed
        for i in range(cuda.grid(1), 300, cuda.gridsize(1)):
            cuda.atomic.add(mine, x[i], 1)
        cuda.syncthreads()  # counted
        if thread < 8:
            cuda.atomic.add(bins, thread, mine[thread])
    """, 3, 40, lambda rng: {"x": rng.integers(0, 8, 300).astype(np.int8), "bins": np.zeros(8, np.int32)},
     lambda a: {"bins": np.bincount(a["x"], minlength=8).astype(np.int32)}, inputs=("x", "bins"))
mutant("plain add in shared memory", "race", "cuda.atomic.add(mine, x[i], 1)", "mine[x[i]] += 1")
mutant("plain add in global memory", "race", "cuda.atomic.add(bins, thread, mine[thread])",
       "bins[thread] += mine[thread]")
mutant("bins not zeroed", "unwritten-read", "mine[thread] = 0", "pass")
mutant("no barrier after zeroing", TOO_EARLY, "cuda.syncthreads()  # zeroed", "pass")
mutant("no barrier after counting", "race", "cuda.syncthreads()  # counted", "pass")
mutant("global bins not zeroed", "unwritten-read", inputs=("x",))
mutant("bin outside", "out-of-bounds", "cuda.atomic.add(mine, x[i], 1)", "cuda.atomic.add(mine, x[i] + 1, 1)")

# ---------------------------------------------------------------- transpose in place, through shared memory
case("transpose", """
    def transpose(x):
        thread = cuda.threadIdx.x
        tile = cuda.shared.array((16, 17), np.float32)
        for i in range(thread, 256, 64):
            tile[i // 16, i % 16] = x[i]
        cuda.syncthreads()
        for i in range(thread, 256, 64):
            x[i] = tile[i % 16, i // 16]
    """, 1, 64, lambda rng: {"x": floats(rng, 256)}, lambda a: {"x": a["x"].reshape(16, 16).T.ravel().copy()},
     inputs=("x",))
mutant("no barrier", TOO_EARLY, "    cuda.syncthreads()", "    pass")
mutant("without the tile", "race", "x[i] = tile[i % 16, i // 16]", "x[i] = x[i % 16 * 16 + i // 16]")
mutant("all blocks, one matrix", "race", grid=2)
mutant("ragged tile", "unwritten-read", "256, 64):\n        tile", "255, 64):\n        tile")

# ---------------------------------------------------------------- argmax by shuffles of two values
case("argmax", """
    def argmax(x, y):
        lane, row = cuda.threadIdx.x, cuda.blockIdx.x
        best, where = x[row * 32 + lane], lane
        for offset in (16, 8, 4, 2, 1):
            other = cuda.shfl_xor_sync(0xffffffff, best, offset)
            there = cuda.shfl_xor_sync(0xffffffff, where, offset)
            if other > best or (other == best and there < where):
                best, where = other, there
        if lane == 0:
            y[row] = where
    """, 3, 32, lambda rng: {"x": floats(rng, 96), "y": unwritten(3, dtype=np.int64)},
     lambda a: {"y": a["x"].reshape(3, 32).argmax(axis=1)})
mutant("shuffle in one branch", "divergent-barrier", "there = cuda.shfl_xor_sync(0xffffffff, where, offset)",
       "there = cuda.shfl_xor_sync(0xffffffff, where, offset) if lane < 16 else where")
mutant("short circuit around a shuffle", "divergent-barrier", "if other > best or (other == best and there < where):",
       "if lane < 5 or other > cuda.shfl_sync(0xffffffff, best, lane):")
mutant("every lane stores", "race", "if lane == 0:", "if True:")

# ---------------------------------------------------------------- a value takes over the bytes of a dead one
case("take_over", """
    def take_over(x, y):
        thread = cuda.threadIdx.x
        first = cuda.shared.array(64, np.float32)
        second = first
        first[thread] = x[thread]
        cuda.syncthreads()  # first written
        v = first[63 - thread]
        cuda.syncthreads()  # first dead
        second[thread] = v * v
        cuda.syncthreads()  # second written
        y[thread] = v + second[(thread + 1) % 64]
    """, 1, 64, lambda rng: {"x": floats(rng, 64), "y": unwritten(64)},
     lambda a: {"y": a["x"][::-1] + np.roll(a["x"][::-1] ** 2, -1)})
mutant("first is not dead", "wrong-owner", "y[thread] = v +", "y[thread] = first[thread] +")
mutant("second is not yet there", "wrong-owner", "v = first[63 - thread]", "v = second[63 - thread]")
mutant("no barrier between the owners", "race", "cuda.syncthreads()  # first dead", "pass")
mutant("second sooner than first", "wrong-owner", "first[thread] = x[thread]",
       "first[thread] = x[thread]; second[thread] = x[thread]")

# ---------------------------------------------------------------- two buffers swap names at each step
case("ping_pong", """
    def ping_pong(x, y):
        thread = cuda.threadIdx.x
        old = cuda.shared.array(64, np.float32)
        new = cuda.shared.array(64, np.float32)
        old[thread] = x[thread]
        cuda.syncthreads()
        for step in (1, 2, 4, 8, 16, 32):
            new[thread] = old[thread] + (old[thread - step] if thread >= step else np.float32(0))
            cuda.syncthreads()  # end of step
            old, new = new, old
        y[thread] = old[thread]
    """, 1, 64, lambda rng: {"x": floats(rng, 64), "y": unwritten(64)},
     lambda a: {"y": np.cumsum(a["x"], dtype=np.float32)})
mutant("no barrier between steps", TOO_EARLY, "cuda.syncthreads()  # end of step", "pass")
mutant("one buffer, no swap", "race", "old, new = new, old", "new = old")

# ---------------------------------------------------------------- two values take turns in one buffer
case("shared_bytes", """
    def shared_bytes(x, y):
        thread = cuda.threadIdx.x
        buffer = cuda.shared.array(64, np.float32)
        buffer[thread] = x[thread]
        cuda.syncthreads()  # first value
        left = buffer[63 - thread]
        cuda.syncthreads()  # the bytes change owner
        buffer[thread] = left * left
        cuda.syncthreads()  # second value
        y[thread] = left + buffer[(thread + 1) % 64]
    """, 1, 64, lambda rng: {"x": floats(rng, 64), "y": unwritten(64)},
     lambda a: {"y": a["x"][::-1] + np.roll(a["x"][::-1] ** 2, -1)})
mutant("bytes change owner too early", "race", "cuda.syncthreads()  # the bytes change owner", "pass")
mutant("both values live", "race", "    cuda.syncthreads()  # second value\n    y[thread] = left +",
       "    y[thread] = buffer[63 - thread] +")
mutant("second owner writes elsewhere", "race", "buffer[thread] = left", "buffer[thread // 2] = left")
mutant("barriers at different lines", "divergent-barrier", "    cuda.syncthreads()  # second value",
       "    if thread < 32:\n        cuda.syncthreads()\n    else:\n        cuda.syncthreads()")

# ---------------------------------------------------------------- blocks in a chain: each waits for the last
case("chain", """
    def chain(x, turn, total, start):
        block, thread = cuda.blockIdx.x, cuda.threadIdx.x
        if thread == 0:
            while cuda.atomic.add(turn, 0, 0) != block:
                pass
            start[block] = cuda.atomic.add(total, 0, x[block])
            cuda.threadfence()
            cuda.atomic.add(turn, 0, 1)
        cuda.syncthreads()
    """, 4, 32, lambda rng: {"x": floats(rng, 4), "turn": np.zeros(1, np.int32), "total": np.zeros(1, np.float32),
                             "start": unwritten(4)},
     lambda a: {"start": np.concatenate([[0], np.cumsum(a["x"])[:-1]]).astype(np.float32)},
     inputs=("x", "turn", "total"))
mutant("the turn is never passed on", "deadlock", "cuda.atomic.add(turn, 0, 1)", "pass")
mutant("the first waits for the last", "deadlock", "!= block:", "!= 3 - block + 1:")
mutant("waits by plain loads", "race", "cuda.atomic.add(turn, 0, 0) != block", "turn[0] != block")

# A lane that waits for another lane of its own warp, which waits for it in a shuffle.
case("handover", """
    def handover(x, flag, y):
        lane = cuda.threadIdx.x
        if lane == 0:
            cuda.atomic.exch(flag, 0, 1)
        if lane == 1:
            while cuda.atomic.cas(flag, 0, 1, 2) == 0:
                pass
        value = cuda.shfl_sync(0xffffffff, x[lane], 1)
        y[lane] = value
    """, 1, 32, lambda rng: {"x": floats(rng, 32), "flag": np.zeros(1, np.int32), "y": unwritten(32)},
     lambda a: {"y": np.full(32, a["x"][1]), "flag": np.array([2], np.int32)}, inputs=("x", "flag"))
mutant("flag never raised", "deadlock", "    if lane == 0:\n        cuda.atomic.exch(flag, 0, 1)\n",
       "")
