"""Pipelines by hand, as Kitsune's queues are meant, and the mutants that the stepper must reject.

Read ``handoff`` first: it is the protocol. A stage is a range of blocks; each takes its tiles in increasing order. Entry
``tile % DEPTH`` of a queue has two counters, each on a line of 128 bytes: how many tiles were written into it, and how many
of those were read (one a reading stage). Tile t is the entry's (t // DEPTH)-th.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent

import numpy as np
from simt_kernels import floats, unwritten


@dataclass(frozen=True)
class Pipeline:
    """``make(rng)`` gives the arrays by name; ``want`` computes, from copies of them, those to compare."""

    text: str
    grid: int
    block: int
    make: Callable[[np.random.Generator], dict[str, np.ndarray]]
    want: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
    inputs: tuple[str, ...]
    queues: tuple[str, ...]


@dataclass(frozen=True)
class Mutant:
    """One change of a pipeline's text; ``always``: refused under every seed, else under some: it takes bad luck."""

    pipeline: str
    name: str
    rules: tuple[str, ...]
    changes: tuple[tuple[str, str], ...]
    always: bool = True


PIPELINES: dict[str, Pipeline] = {}
MUTANTS: list[Mutant] = []
TOO_EARLY = ("race", "unwritten-read")


def pipeline(name, text, grid, block, make, want, inputs, queues):
    PIPELINES[name] = Pipeline(dedent(text), grid, block, make, want, inputs, queues)


def mutant(name, rules, *changes, always=True):
    """A mutant of the pipeline above."""
    MUTANTS.append(Mutant(list(PIPELINES)[-1], name, (rules,) if isinstance(rules, str) else rules, changes, always))


# ---------------------------------------------------------------- the protocol: one queue, two blocks on each side
pipeline("handoff", """
    TILES, DEPTH = 9, 2
    WRITTEN, READ = 0, 64                                   # DEPTH counters of each, 32 words apart
    TWO = np.float32(2.0)
    def handoff(x, y, queue, counters):
        thread, block = cuda.threadIdx.x, cuda.blockIdx.x
        grid = cuda.cg.this_grid()
        for k in range(block * 32 + thread, 128, 128):
            counters[k] = 0
        grid.sync()                                         # every block is resident, every counter is zero
        if block < 2:
            for tile in range(block, TILES, 2):
                if thread == 0:
                    while load_acquire(counters, READ + tile % DEPTH * 32) < tile // DEPTH:
                        pass
                cuda.syncthreads()                          # all may write
                queue[tile % DEPTH * 32 + thread] = x[tile * 32 + thread] * TWO
                cuda.syncthreads()                          # all have written
                if thread == 0:
                    add_release(counters, WRITTEN + tile % DEPTH * 32, 1)
        else:
            for tile in range(block - 2, TILES, 2):
                if thread == 0:
                    while load_acquire(counters, WRITTEN + tile % DEPTH * 32) <= tile // DEPTH:
                        pass
                cuda.syncthreads()                          # all may read
                y[tile * 32 + thread] = queue[tile % DEPTH * 32 + 31 - thread]
                cuda.syncthreads()                          # all have read
                if thread == 0:
                    add_release(counters, READ + tile % DEPTH * 32, 1)
    """, 4, 32, lambda rng: {"x": floats(rng, 288), "y": unwritten(288), "queue": unwritten(64),
                             "counters": unwritten(128, dtype=np.int32)},
    lambda a: {"y": 2 * a["x"].reshape(9, 32)[:, ::-1].ravel()}, ("x",), ("queue", "counters"))
WRITE_ACQUIRE = """            if thread == 0:
                while load_acquire(counters, READ + tile % DEPTH * 32) < tile // DEPTH:
                    pass
"""
READ_ACQUIRE = """            if thread == 0:
                while load_acquire(counters, WRITTEN + tile % DEPTH * 32) <= tile // DEPTH:
                    pass
"""
WRITE = "queue[tile % DEPTH * 32 + thread] = x[tile * 32 + thread] * TWO"
PUBLISH = "add_release(counters, WRITTEN + tile % DEPTH * 32, 1)"
RELAXED_PUBLISH = "cuda.atomic.add(counters, WRITTEN + tile % DEPTH * 32, 1)"
CONSUME = "add_release(counters, READ + tile % DEPTH * 32, 1)"
LOOK = "load_acquire(counters, WRITTEN + tile % DEPTH * 32)"
RELAXED_LOOK = "cuda.atomic.add(counters, WRITTEN + tile % DEPTH * 32, 0)"
mutant("published without a fence", "race", (PUBLISH, RELAXED_PUBLISH))
mutant("the fence is of another thread", "race", (PUBLISH, f"{RELAXED_PUBLISH}\n            else:\n                cuda.threadfence()"))
mutant("each thread's fence before the barrier", "race", (PUBLISH, RELAXED_PUBLISH), (WRITE, f"{WRITE}; cuda.threadfence()"))
mutant("the fence after the count", "race", (PUBLISH, f"{RELAXED_PUBLISH}; cuda.threadfence()"))
mutant("looked at without a fence", "race", (LOOK, RELAXED_LOOK))
mutant("looked at by a plain load", "race", (LOOK, "counters[WRITTEN + tile % DEPTH * 32]"))
mutant("given back without a fence", "race", (CONSUME, CONSUME.replace("add_release", "cuda.atomic.add")))
mutant("published before it is written", TOO_EARLY, (WRITE_ACQUIRE, WRITE_ACQUIRE + f"                {PUBLISH}\n"),
       (f"            if thread == 0:\n                {PUBLISH}\n", ""))
mutant("given back before it is read", "race", (READ_ACQUIRE, READ_ACQUIRE + f"                {CONSUME}\n"),
       (f"            if thread == 0:\n                {CONSUME}\n", ""))
mutant("read before it is there", TOO_EARLY, (READ_ACQUIRE, ""))
mutant("waits for the tile before", TOO_EARLY, ("<= tile // DEPTH", "< tile // DEPTH"))
mutant("written into an entry that is in use", "race", (WRITE_ACQUIRE, ""))
mutant("credit for one tile more than there is room", "race", ("< tile // DEPTH:\n                    pass\n            cuda.syncthreads()                          # all may write",
       "< tile // DEPTH - 1:\n                    pass\n            cuda.syncthreads()                          # all may write"), always=False)
mutant("no barrier behind the wait of thread 0, writing", "race",
       ("cuda.syncthreads()                          # all may write", "pass"))
mutant("no barrier behind the wait of thread 0, reading", TOO_EARLY,
       ("cuda.syncthreads()                          # all may read", "pass"))
mutant("no barrier before the tile is published", "race",
       ("cuda.syncthreads()                          # all have written", "pass"))
mutant("no barrier before the entry is given back", "race",
       ("cuda.syncthreads()                          # all have read", "pass"))
mutant("never gives an entry back", "deadlock", (CONSUME, "pass"))
mutant("never publishes", "deadlock", (PUBLISH, "pass"))
mutant("one tile is left out", "deadlock", ("range(block, TILES, 2)", "range(block, TILES - 1, 2)"))
mutant("every thread publishes", ("race", "deadlock", "unwritten-read"), (f"            if thread == 0:\n                {PUBLISH}", f"            {PUBLISH}"))
mutant("an entry for each tile", "out-of-bounds", (WRITE, WRITE.replace("tile % DEPTH", "tile")))
mutant("a ring of one more entry than is kept", "out-of-bounds", ("TILES, DEPTH = 9, 2", "TILES, DEPTH = 9, 3"))
mutant("counters are not reset", "unwritten-read", ("counters[k] = 0", "pass"))
mutant("nobody waits for the reset", TOO_EARLY, ("grid.sync()", "pass"))

# ---------------------------------------------------------------- the same with fences, as CUDA had them before sm_70
HANDOFF = PIPELINES["handoff"]
pipeline("fences", HANDOFF.text
         .replace("add_release(", "cuda.threadfence(); cuda.atomic.add(")
         .replace("load_acquire(counters, READ + tile % DEPTH * 32)", "cuda.atomic.add(counters, READ + tile % DEPTH * 32, 0)")
         .replace(LOOK, RELAXED_LOOK)
         .replace("    pass\n", "    pass\n                cuda.threadfence()\n"),
         4, 32, HANDOFF.make, HANDOFF.want, HANDOFF.inputs, HANDOFF.queues)
mutant("no fence after the reader's wait", "race",
       ("<= tile // DEPTH:\n                    pass\n                cuda.threadfence()\n", "<= tile // DEPTH:\n                    pass\n"))
mutant("no fence after the writer's wait", "race",
       ("< tile // DEPTH:\n                    pass\n                cuda.threadfence()\n", "< tile // DEPTH:\n                    pass\n"))

# ---------------------------------------------------------------- multicast: one queue, two stages read each tile
pipeline("multicast", """
    TILES, DEPTH = 7, 2
    WRITTEN, READ_A, READ_B = 0, 64, 128
    def multicast(x, a, b, queue, counters):
        thread, block = cuda.threadIdx.x, cuda.blockIdx.x
        grid = cuda.cg.this_grid()
        for k in range(block * 32 + thread, 192, 128):
            counters[k] = 0
        grid.sync()
        if block < 1:
            for tile in range(TILES):
                if thread == 0:
                    while load_acquire(counters, READ_A + tile % DEPTH * 32) < tile // DEPTH:
                        pass
                    while load_acquire(counters, READ_B + tile % DEPTH * 32) < tile // DEPTH:
                        pass
                cuda.syncthreads()
                queue[tile % DEPTH * 32 + thread] = x[tile * 32 + thread]
                cuda.syncthreads()
                if thread == 0:
                    add_release(counters, WRITTEN + tile % DEPTH * 32, 1)
        elif block < 2:                                     # stage a: each tile's running sum
            for tile in range(TILES):
                if thread == 0:
                    while load_acquire(counters, WRITTEN + tile % DEPTH * 32) <= tile // DEPTH:
                        pass
                cuda.syncthreads()
                total = np.float32(0)
                for k in range(thread + 1):
                    total += queue[tile % DEPTH * 32 + k]
                a[tile * 32 + thread] = total
                cuda.syncthreads()
                if thread == 0:
                    add_release(counters, READ_A + tile % DEPTH * 32, 1)
        else:                                               # stage b: its reverse
            for tile in range(block - 2, TILES, 2):
                if thread == 0:
                    while load_acquire(counters, WRITTEN + tile % DEPTH * 32) <= tile // DEPTH:
                        pass
                cuda.syncthreads()
                b[tile * 32 + thread] = queue[tile % DEPTH * 32 + 31 - thread]
                cuda.syncthreads()
                if thread == 0:
                    add_release(counters, READ_B + tile % DEPTH * 32, 1)
    """, 4, 32, lambda rng: {"x": floats(rng, 224), "a": unwritten(224), "b": unwritten(224), "queue": unwritten(64),
                             "counters": unwritten(192, dtype=np.int32)},
    lambda a: {"a": np.cumsum(a["x"].reshape(7, 32), axis=1).ravel(), "b": a["x"].reshape(7, 32)[:, ::-1].ravel()},
    ("x",), ("queue", "counters"))
mutant("waits for one of two readers", "race",
       ("                while load_acquire(counters, READ_B + tile % DEPTH * 32) < tile // DEPTH:\n                    pass\n", ""),
       always=False)
mutant("one reader gives back what is the other's", ("race", "deadlock"), ("add_release(counters, READ_B", "add_release(counters, READ_A"), always=False)
mutant("a reader never gives back", "deadlock", ("add_release(counters, READ_A + tile % DEPTH * 32, 1)", "pass"))

# ---------------------------------------------------------------- reduction: partials, a tree of pairs, a final stage
pipeline("tree", """
    TILES, GROUPS, DEPTH = 8, 4, 2
    WRITTEN, READ, PAIR_WRITTEN, PAIR_READ = 0, 64, 128, 192
    ZERO = np.float32(0.0)
    def tree(x, y, part, pair, counters):
        thread, block = cuda.threadIdx.x, cuda.blockIdx.x
        grid = cuda.cg.this_grid()
        for k in range(block * 32 + thread, 256, 192):
            counters[k] = 0
        grid.sync()
        if block < 3:                                       # fan-in: one partial of 32 columns for each tile of 4 rows
            for tile in range(block, TILES, 3):
                acc = ZERO
                for row in range(4):
                    acc += x[(tile * 4 + row) * 32 + thread]
                if thread == 0:
                    while load_acquire(counters, READ + tile % DEPTH * 32) < tile // DEPTH:
                        pass
                cuda.syncthreads()
                part[tile % DEPTH * 32 + thread] = acc
                cuda.syncthreads()
                if thread == 0:
                    add_release(counters, WRITTEN + tile % DEPTH * 32, 1)
        elif block < 5:                                     # the tree's inner node: two partials become one
            for group in range(block - 3, GROUPS, 2):
                acc = ZERO
                for tile in range(group * 2, group * 2 + 2):
                    if thread == 0:
                        while load_acquire(counters, WRITTEN + tile % DEPTH * 32) <= tile // DEPTH:
                            pass
                    cuda.syncthreads()
                    acc += part[tile % DEPTH * 32 + thread]
                    cuda.syncthreads()
                    if thread == 0:
                        add_release(counters, READ + tile % DEPTH * 32, 1)
                if thread == 0:
                    while load_acquire(counters, PAIR_READ + group % DEPTH * 32) < group // DEPTH:
                        pass
                cuda.syncthreads()
                pair[group % DEPTH * 32 + thread] = acc
                cuda.syncthreads()
                if thread == 0:
                    add_release(counters, PAIR_WRITTEN + group % DEPTH * 32, 1)
        else:                                               # final: all in order, one store
            acc = ZERO
            for group in range(GROUPS):
                if thread == 0:
                    while load_acquire(counters, PAIR_WRITTEN + group % DEPTH * 32) <= group // DEPTH:
                        pass
                cuda.syncthreads()
                acc += pair[group % DEPTH * 32 + thread]
                cuda.syncthreads()
                if thread == 0:
                    add_release(counters, PAIR_READ + group % DEPTH * 32, 1)
            y[thread] = acc
    """, 6, 32, lambda rng: {"x": rng.standard_normal(1024).astype(np.float32), "y": unwritten(32), "part": unwritten(64),
                             "pair": unwritten(64), "counters": unwritten(256, dtype=np.int32)},
    lambda a: {"y": a["x"].reshape(32, 32).sum(axis=0)}, ("x",), ("part", "pair", "counters"))
mutant("the inner nodes share one group", ("race", "deadlock", "unwritten-read"), ("range(block - 3, GROUPS, 2)", "range(0, GROUPS, 1)"), always=False)
mutant("the final stage takes a group too many", "deadlock", ("for group in range(GROUPS):", "for group in range(GROUPS + 1):"))

# ---------------------------------------------------------------- reconverging paths: softmax over all tiles
SOFTMAX_TILES = 6


def softmax_text(depth: int) -> str:
    """exp, total and division as three stages; the division's tiles wait in the queue until all have been added up."""
    return dedent(f"""
    TILES, DEPTH = {SOFTMAX_TILES}, {depth}
    WRITTEN, READ_TOTAL, READ_DIVIDE, TOTAL_WRITTEN = 0, DEPTH * 32, DEPTH * 64, DEPTH * 96
    ZERO = np.float32(0.0)
    def softmax(x, y, e, total, counters):
        thread, block = cuda.threadIdx.x, cuda.blockIdx.x
        grid = cuda.cg.this_grid()
        for k in range(block * 32 + thread, DEPTH * 96 + 32, 160):
            counters[k] = 0
        grid.sync()
        if block < 2:                                       # stage exp
            for tile in range(block, TILES, 2):
                if thread == 0:
                    while load_acquire(counters, READ_TOTAL + tile % DEPTH * 32) < tile // DEPTH:
                        pass
                    while load_acquire(counters, READ_DIVIDE + tile % DEPTH * 32) < tile // DEPTH:
                        pass
                cuda.syncthreads()
                e[tile % DEPTH * 32 + thread] = math.exp(x[tile * 32 + thread])
                cuda.syncthreads()
                if thread == 0:
                    add_release(counters, WRITTEN + tile % DEPTH * 32, 1)
        elif block < 3:                                     # stage total
            acc = ZERO
            for tile in range(TILES):
                if thread == 0:
                    while load_acquire(counters, WRITTEN + tile % DEPTH * 32) <= tile // DEPTH:
                        pass
                cuda.syncthreads()
                acc += e[tile % DEPTH * 32 + thread]
                cuda.syncthreads()
                if thread == 0:
                    add_release(counters, READ_TOTAL + tile % DEPTH * 32, 1)
            for offset in (16, 8, 4, 2, 1):
                acc += cuda.shfl_xor_sync(0xffffffff, acc, offset)
            if thread == 0:
                total[0] = acc
                add_release(counters, TOTAL_WRITTEN, 1)
        else:                                               # stage divide
            if thread == 0:
                while load_acquire(counters, TOTAL_WRITTEN) < 1:
                    pass
            cuda.syncthreads()
            for tile in range(block - 3, TILES, 2):
                if thread == 0:
                    while load_acquire(counters, WRITTEN + tile % DEPTH * 32) <= tile // DEPTH:
                        pass
                cuda.syncthreads()
                y[tile * 32 + thread] = e[tile % DEPTH * 32 + thread] / total[0]
                cuda.syncthreads()
                if thread == 0:
                    add_release(counters, READ_DIVIDE + tile % DEPTH * 32, 1)
    """)


def softmax_arrays(depth: int) -> Callable[[np.random.Generator], dict[str, np.ndarray]]:
    return lambda rng: {"x": rng.standard_normal(32 * SOFTMAX_TILES).astype(np.float32), "y": unwritten(32 * SOFTMAX_TILES),
                        "e": unwritten(32 * depth), "total": unwritten(1), "counters": unwritten(96 * depth + 32, dtype=np.int32)}


pipeline("softmax", softmax_text(SOFTMAX_TILES), 5, 32, softmax_arrays(SOFTMAX_TILES),
         lambda a: {"y": np.exp(a["x"]) / np.exp(a["x"]).sum()}, ("x",), ("e", "total", "counters"))
mutant("a depth of one tile less than there are", "deadlock", (f"TILES, DEPTH = {SOFTMAX_TILES}, {SOFTMAX_TILES}",
                                                               f"TILES, DEPTH = {SOFTMAX_TILES}, {SOFTMAX_TILES - 1}"))

# ---------------------------------------------------------------- the three-stage MLP: product, activation, product
ROWS, WIDTH = 1, 2  # of a tile, and of the arrays around the hidden layer


def mlp(hidden: int, tiles: int, depth: int = 2) -> Pipeline:
    """``relu(x @ w1) @ w2``; tiles of ``ROWS`` rows travel through queues h and r, both ``hidden`` wide."""
    text = dedent(f"""
    TILES, DEPTH, TILE = {tiles}, {depth}, {ROWS * hidden}
    H_WRITTEN, H_READ, R_WRITTEN, R_READ = 0, DEPTH * 32, DEPTH * 64, DEPTH * 96
    ZERO = np.float32(0.0)
    def mlp(x, w1, w2, y, h, r, counters):
        thread, block = cuda.threadIdx.x, cuda.blockIdx.x
        grid = cuda.cg.this_grid()
        part = cuda.shared.array({ROWS * WIDTH * 32}, np.float32)
        for k in range(block * 32 + thread, DEPTH * 128, 160):
            counters[k] = 0
        grid.sync()
        if block < 2:                                       # stage 0, tensor: h = x @ w1
            for tile in range(block, TILES, 2):
                if thread == 0:
                    while load_acquire(counters, H_READ + tile % DEPTH * 32) < tile // DEPTH:
                        pass
                cuda.syncthreads()
                for k in range(thread, TILE, 32):
                    acc = ZERO
                    for inner in range({WIDTH}):
                        acc += x[(tile * {ROWS} + k // {hidden}) * {WIDTH} + inner] * w1[inner * {hidden} + k % {hidden}]
                    h[tile % DEPTH * TILE + k] = acc
                cuda.syncthreads()
                if thread == 0:
                    add_release(counters, H_WRITTEN + tile % DEPTH * 32, 1)
        elif block < 3:                                     # stage 1, simt: r = relu(h)
            for tile in range(TILES):
                if thread == 0:
                    while load_acquire(counters, H_WRITTEN + tile % DEPTH * 32) <= tile // DEPTH:
                        pass
                    while load_acquire(counters, R_READ + tile % DEPTH * 32) < tile // DEPTH:
                        pass
                cuda.syncthreads()
                for k in range(thread, TILE, 32):
                    r[tile % DEPTH * TILE + k] = maximum(h[tile % DEPTH * TILE + k], ZERO)
                cuda.syncthreads()
                if thread == 0:
                    add_release(counters, H_READ + tile % DEPTH * 32, 1)
                    add_release(counters, R_WRITTEN + tile % DEPTH * 32, 1)
        else:                                               # stage 2, tensor: y = r @ w2, the hidden dimension over the threads
            for tile in range(block - 3, TILES, 2):
                if thread == 0:
                    while load_acquire(counters, R_WRITTEN + tile % DEPTH * 32) <= tile // DEPTH:
                        pass
                cuda.syncthreads()
                for out in range({ROWS * WIDTH}):
                    acc = ZERO
                    for k in range(thread, {hidden}, 32):
                        acc += r[tile % DEPTH * TILE + out // {WIDTH} * {hidden} + k] * w2[k * {WIDTH} + out % {WIDTH}]
                    part[out * 32 + thread] = acc
                cuda.syncthreads()
                if thread < {ROWS * WIDTH}:
                    acc = ZERO
                    for k in range(32):
                        acc += part[thread * 32 + k]
                    y[tile * {ROWS * WIDTH} + thread] = acc
                cuda.syncthreads()
                if thread == 0:
                    add_release(counters, R_READ + tile % DEPTH * 32, 1)
    """)
    rows = tiles * ROWS

    def make(rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": floats(rng, rows * WIDTH), "w1": floats(rng, WIDTH * hidden), "w2": floats(rng, hidden * WIDTH),
                "y": unwritten(rows * WIDTH), "h": unwritten(depth * ROWS * hidden), "r": unwritten(depth * ROWS * hidden),
                "counters": unwritten(depth * 128, dtype=np.int32)}

    def want(a: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        wide = np.maximum(a["x"].reshape(rows, WIDTH) @ a["w1"].reshape(WIDTH, hidden), 0)
        return {"y": (wide @ a["w2"].reshape(hidden, WIDTH)).ravel()}

    return Pipeline(text, 5, 32, make, want, ("x", "w1", "w2"), ("h", "r", "counters"))


PIPELINES["mlp"] = mlp(hidden=40, tiles=5)
mutant("stage 1 gives the wrong queue back", ("race", "deadlock"), ("add_release(counters, H_READ", "add_release(counters, R_READ"), always=False)
mutant("stage 2 starts one tile early", TOO_EARLY, ("load_acquire(counters, R_WRITTEN + tile % DEPTH * 32) <=", "load_acquire(counters, R_WRITTEN + tile % DEPTH * 32) <"))
