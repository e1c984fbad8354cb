# %% [markdown]
# # Everything at once: a barrier for the whole grid
#
# 15 minutes. **New words**: grid barrier, dominant, level.
#
# A softmax of 4 rows with 100,000 columns: with a block a row, 4 blocks run, on a GPU that has room for 160.
# To use them all, many blocks must share a row. Then they have to add up what they found, and blocks cannot
# see each other's shared memory. They meet in global memory.
#
# That needs a barrier for *all* threads of a launch, a **grid barrier**. `grid.sync()` is one.

# %%
import numpy as np
import minisitch as ms
from minisitch import simt

share = """
def share(x, part, y):
    grid = cuda.cg.this_grid()
    lane, block = cuda.threadIdx.x, cuda.blockIdx.x
    mine = x[block * 32 + lane]
    acc = mine
    for offset in (16, 8, 4, 2, 1):
        acc += cuda.shfl_xor_sync(0xffffffff, acc, offset)
    if lane == 0:
        part[block] = acc
    grid.sync()
    acc = np.float32(0)
    for other in range(4):
        acc += part[other]
    y[block * 32 + lane] = mine / acc
"""
x = np.random.default_rng(0).random(128, dtype=np.float32)
part, y = np.zeros(4, np.float32), np.zeros(128, np.float32)
traffic = simt.step(share, [x, part, y], 4, 32)
print("the row adds up to", y.sum(), "with", traffic.grid_barriers, "grid barrier")

# %% [markdown]
# Four blocks divide one row by its sum, in one kernel. Each block leaves its part of the sum in `part`. After
# the barrier everybody reads all parts.
#
# Without it a block may read a part that was not written yet.

# %%
import textwrap

try:
    simt.step(share.replace("grid.sync()", "cuda.syncthreads()"), [x, np.zeros(4, np.float32), y], 4, 32)
except ms.KernelBug as bug:
    missing = bug
    print(textwrap.fill(str(bug).splitlines()[0], 100))

# %% [markdown]
# ## The price
#
# A block waits at the barrier until all blocks have come. So all blocks must be *running* at once. If the GPU
# is full, a block that has not started waits for a place. No place becomes free, because the running blocks
# wait at the barrier for the one that has not started. Say that the GPU has room for 3 blocks:

# %%
try:
    simt.step(share, [x, np.zeros(4, np.float32), y], 4, 32, wave=3)
except ms.KernelBug as bug:
    full = bug
    print(textwrap.fill(str(bug).splitlines()[0], 100))

# %% [markdown]
# A kernel with a grid barrier has at most one wave of blocks, and its blocks take their tasks in turn. That
# is why AStitch, the paper of 2022, made the thread maps of tutorial 08. A grid barrier costs a few
# microseconds. The end of a kernel and the launch of the next cost more.
#
# ## What the compiler does with it
#
# This program weighs each row by the squares of its features, and adds up the columns. The two sums want
# different thread maps: one goes along rows, the other along columns.

# %%
from minisitch.explain import draw
from minisitch.explain.page import body_picture


def weigh(features, values):
    weight = np.sum(features * features, axis=1, keepdims=True)
    return np.sum(values * weight, axis=0)


arguments = "f32[64,128]", "f32[64,1024]"
how = dict(strategy="astitch", target="cuda", device="v100")
(stitched,) = ms.lower(weigh, *arguments, stop_after="stitch", **how)
for line in str(stitched).splitlines():
    print(textwrap.fill(line, 100, subsequent_indent="    "))

# %% [markdown]
# Read it from the top.
#
# - The operations fall into two groups. Each has a **dominant**, the operation that chooses the thread map.
#   The others of the group adopt it, so that between them values stay in registers. A reduction dominates if
#   there is one, since threads must meet for it. Where are the groups cut? Behind each reduction, behind a
#   costly value that many elements read, and behind results.
# - A **level** is what lies between two grid barriers. The row sums are level 0. A column is added up by
#   threads of other blocks than those that made the row sums, so they come behind a barrier, in level 1.
# - `x 64 serial`: each of the 1024 column sums has 64 rows, and one thread adds them up in turn.
# - The row sums have the scheme *global*. In tutorial 07 a value was global because shared memory was full. Here
#   the reason is that other blocks read it.
#
# In the picture a value that travels has the colour of its scheme, and so have the ways to its readers.

# %%
body_picture(stitched)

# %% [markdown]
# Here are the same two levels as a loop program.

# %%
(kernel,) = ms.lower(weigh, *arguments, passes=(), stop_after="schedule", **how)
for line in str(kernel).splitlines():
    if "launch" in line or line.startswith("  segment") or "barrier: grid" in line:
        print(line)

# %% [markdown]
# Only values that *must* cross blocks pay. The softmax of tutorial 06 has two reductions and no grid barrier,
# because each block reads only the sums of its own rows.
#
# ## The whole program
#
# With grid barriers any two operations can share a kernel, as long as no circle arises. So `astitch` puts all
# that lies between two matrix products into one. Here is attention, with one colour a kernel.

# %%
def attention(q, k, v):
    s = q @ k.T / np.float32(8)
    e = np.exp(s - np.max(s, axis=-1, keepdims=True))
    return (e / np.sum(e, axis=-1, keepdims=True)) @ v


draw.graph(ms.lower(attention, *["f32[256,64]"] * 3, stop_after="fuse", **how))

# %% [markdown]
# ## Which strategy?
#
# `astitch` fuses all it can, `fs20` what its guess likes, `fs18` what its schedules allow. None is always
# best. The strategy `auto` lets the others plan, times their kernels by a model, and takes the best.

# %%
programs = {"4 long rows": (lambda x: np.exp(x) / np.sum(np.exp(x), axis=-1, keepdims=True), ["f32[4,50000]"]),
            "weigh": (weigh, arguments)}
times = {}
print(f"{'modelled for a V100':20} {'none':>9} {'xla':>9} {'fs18':>9} {'fs20':>9} {'astitch':>9} {'auto':>9}")
for name, (function, shapes) in programs.items():
    rows = ms.compare(function, *shapes, target="reference", device="v100").rows
    times[name] = {row.strategy: row.modelled_us for row in rows}
    shown = [f"{times[name][strategy]:6.1f} us" for strategy in ("none", "xla", "fs18", "fs20", "astitch", "auto")]
    print(f"{name:20}", *shown)

# %%
assert np.allclose(y, x / x.sum(), rtol=1e-5) and traffic.grid_barriers == 1
assert missing.rule == "race" and full.rule == "one-wave"
assert [group.dominant for group in stitched.groups] == [2, 6] and kernel.grid_barriers == 1
assert all(row["auto"] <= min(row.values()) * 1.001 for row in times.values())

# %% [markdown]
# **Try.** Give the columns of `values` a maximum instead of a sum. Does anything change? Then let `weigh`
# return `values * weight` instead. Why is no grid barrier left? Last, make `features` 4 rows of 100,000
# columns. How many levels are there now, and what is handed from one to the next?
