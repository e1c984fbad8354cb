# %% [markdown]
# # Queues: kernels that run at the same time
#
# 15 minutes. **New words**: queue, tile, acquire, release, deadlock, depth, pipeline.
#
# So far one thing came after another: kernels, and inside a kernel the parts between two barriers. A matrix
# product keeps the arithmetic units busy, and what follows it keeps the memory busy. If both ran *at the same
# time*, neither would have to wait. The paper Kitsune, of 2025, does that.
#
# Some blocks make pieces of an array, called **tiles**. Other blocks take them. Between them is a **queue**:
# a few places in global memory. The tiles go round in it like the cups of a water wheel, so a small queue
# serves for a large array. A small array that is read soon stays in the GPU's cache, and costs no trip to
# memory.
#
# ## How one block tells another
#
# There is no barrier between just two blocks. They count. Each place of the queue has two counters: how often
# it was written, and how often it was read.

# %%
import textwrap

import numpy as np
import minisitch as ms
from minisitch import simt

handoff = """
TILES, DEPTH = 9, 2
def handoff(x, y, queue, written, read):
    thread, block = cuda.threadIdx.x, cuda.blockIdx.x
    grid = cuda.cg.this_grid()
    if block == 0 and thread < DEPTH:
        written[thread] = 0
        read[thread] = 0
    grid.sync()
    for tile in range(TILES):
        place, turn = tile % DEPTH, tile // DEPTH
        if block == 0:
            if thread == 0:
                while load_acquire(read, place) < turn:
                    pass
            cuda.syncthreads()  # all may write
            queue[place * 32 + thread] = math.exp(x[tile * 32 + thread])
            cuda.syncthreads()  # all have written
            if thread == 0:
                add_release(written, place, 1)
        else:
            if thread == 0:
                while load_acquire(written, place) <= turn:
                    pass
            cuda.syncthreads()  # all may read
            y[tile * 32 + thread] = np.float32(2) * queue[place * 32 + thread]
            cuda.syncthreads()  # all have read
            if thread == 0:
                add_release(read, place, 1)
"""


def run(text, tiles, depth, seed=0):
    """Step two blocks with a queue between them."""
    x = np.random.default_rng(seed).standard_normal(32 * tiles).astype(np.float32)
    y, queue = np.zeros_like(x), np.zeros(32 * depth, np.float32)
    counters = [np.zeros(depth, np.int32) for _ in range(2)]
    traffic = simt.step(text, [x, y, queue, *counters], 2, 32, seed, wave=2, queues=["queue", "written", "read"])
    return x, y, traffic


x, y, traffic = run(handoff, tiles=9, depth=2)
print("equal to NumPy:", np.allclose(y, 2 * np.exp(x), rtol=1e-6))
print(f"{traffic.bytes_read} bytes read from memory, {traffic.bytes_written} written, for arrays of {x.nbytes}")
print(f"{traffic.queues['queue'].written} bytes went through a queue of {2 * 32 * 4}")

# %% [markdown]
# Block 0 makes tiles, block 1 takes them. Nine tiles go through two places.
#
# - `add_release(written, place, 1)` counts, and **releases** what this thread knows to be written. A thread that
#   sees the new count may also see the tile.
# - `load_acquire(written, place)` looks at the count, and **acquires** what was released with it.
# - The maker waits too. It may write a place again only when the tile before has been read from it.
#
# An ordinary load and store would not do. A GPU may make another block's count visible *before* its data.

# %%
refusals = {}
for name, (old, new) in {
    "no release": ("add_release(written, place, 1)", "cuda.atomic.add(written, place, 1)"),
    "the maker does not wait": ("while load_acquire(read, place) < turn:", "while False:"),
    "a place is never given back": ("add_release(read, place, 1)", "pass"),
}.items():
    try:
        run(handoff.replace(old, new), tiles=9, depth=2)
    except ms.KernelBug as bug:
        refusals[name] = bug
        print(textwrap.fill(f"{name}: {str(bug).splitlines()[0]}", 100))

# %% [markdown]
# The last one is a **deadlock**: the maker waits for a place, the taker waits for a tile, and nothing will
# ever happen again. On a GPU you would look at a program that does not end. The stepper sees that no thread
# can go on.
#
# ## How deep?
#
# The number of places is the **depth** of a queue. Two are enough for the kernel above: one tile is written
# while another is read. They are not always enough. Here the taker is the rest of a softmax. It reads all
# tiles to add them up, and then reads them *again* to divide.

# %%
maker = handoff.split("        else:\n")[0]  # all but the taker
softmax = maker.replace("TILES, DEPTH = 9, 2", "TILES, DEPTH = 6, PLACES") + """
    if block == 1:
        acc = np.float32(0)
        for tile in range(TILES):
            if thread == 0:
                while load_acquire(written, tile % DEPTH) <= tile // DEPTH:
                    pass
            cuda.syncthreads()
            acc += queue[tile % DEPTH * 32 + thread]
        for offset in (16, 8, 4, 2, 1):
            acc += cuda.shfl_xor_sync(0xffffffff, acc, offset)
        for tile in range(TILES):
            y[tile * 32 + thread] = queue[tile % DEPTH * 32 + thread] / acc
            cuda.syncthreads()
            if thread == 0:
                add_release(read, tile % DEPTH, 1)
"""
ends = {}
for depth in (6, 5):
    try:
        x, y, _ = run(softmax.replace("PLACES", str(depth)), tiles=6, depth=depth)
        ends[depth] = "right" if np.allclose(y, np.exp(x) / np.exp(x).sum(), rtol=1e-5) else "wrong"
    except ms.KernelBug as bug:
        ends[depth] = bug.rule
    print("depth", depth, "->", ends[depth])

# %% [markdown]
# The taker gives no place back before it has seen all six tiles. With five places the sixth tile never comes.
#
# How deep a queue must be follows from how far its reader is behind. The compiler computes it. Here is the
# same softmax with three parts: `exp`, the sum, and the division. The compiler itself would not build it: it
# ends a pipeline where a value has to wait for all tiles.

# %%
from dataclasses import replace
from minisitch.strategies.kitsune.models.balance import Channel, StageLoad
from minisitch.strategies.kitsune.models.rates import depths
from minisitch.strategies.kitsune.models.simulate import dataflow

makers = [StageLoad(name, "simt", us=1.0, tiles=6) for name in ("exp", "sum", "divide")]
queues = [Channel("exp", ("sum", "divide"), 128), Channel("sum", ("divide",), 4, entries=1)]
least = depths(makers, queues)
for queue, depth in zip(queues, least, strict=True):
    print(f"{queue.name}: depth {depth}")
try:
    dataflow(makers, [replace(queues[0], depth=5), replace(queues[1], depth=1)], ms.DEVICES["a100"])
except ms.MinisitchError as refusal:
    shallow = str(refusal)
    print(textwrap.fill(shallow, 100))

# %% [markdown]
# ## What it buys
#
# Parts that run at the same time, joined by queues, are a **pipeline**. The strategy `kitsune` makes one of
# two matrix products and what is between them. Each is given a number of blocks, so that all take about
# equally long.

# %%
from minisitch.explain.timeline import timeline
from minisitch.stitch.body import extract
from minisitch.strategies.kitsune.predict import workload

a100 = ms.DEVICES["a100"]


def mlp(x, w, v):
    return np.tanh(x @ w) @ v


shapes = "f32[2048,64]", "f32[64,1024]", "f32[1024,64]"
plan = ms.lower(mlp, *shapes, strategy="kitsune", target="cuda", device=a100, stop_after="fuse")
(pattern,) = plan.pipelines
print(pattern.composition)
timeline(dataflow(*workload(extract(plan.graph, pattern).graph, pattern.composition, a100), a100), width=600)

# %% [markdown]
# Time goes to the right. While the last product works on its first tile, the first product works on its
# third. Below are the queues, and how busy the parts of the GPU are. All of it is computed from a model of the
# GPU: none has run this pipeline yet.

# %%
rows = ms.compare(mlp, *shapes, target="reference", device="a100", strategies=("astitch", "kitsune"))
for row in rows.rows:
    print(f"{row.strategy:8} {row.kernels + row.library_calls} launches, {(row.bytes_read + row.bytes_written) / 1e6:4.1f} MB "
          f"of its kernels, modelled {row.modelled_us:.1f} us")

# %%
assert ends == {6: "right", 5: "deadlock"}
assert traffic.bytes_read == traffic.bytes_written == 9 * 32 * 4
assert [bug.rule for bug in refusals.values()] == ["race", "race", "deadlock"]
assert least == [6, 1] and "deadlock" in shallow
assert rows["kitsune"].modelled_us < rows["astitch"].modelled_us

# %% [markdown]
# **Try.** Remove each of the four barriers of `handoff` in turn. Which thread runs ahead, and of what? Then
# let `handoff` have two takers, one for even tiles and one for odd ones. Must the counters change? In
# assignment A10 you write such a kernel, and the function that says how deep its queue must be.
