# %% [markdown]
# # Bytes before seconds: what a kernel must cost
#
# 15 minutes. **New words**: bandwidth, roofline, calibrate.
#
# A clock says how long a program took, on one machine, on one day. It does not say why. And you may have no GPU
# to ask. So this compiler counts first. The bytes that a kernel moves follow from its text. Two ways lead to
# them, and they must agree.

# %%
import time

import numpy as np
import minisitch as ms
from minisitch import simt
from minisitch.explain import draw
from minisitch.strategies import cost


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def stepped(source):
    """Step a kernel on random numbers, and count. Bytes do not depend on the numbers."""
    random = np.random.default_rng(0)
    arrays = [random.random(b.size, dtype=np.float32) if b.scope == "input" else np.zeros(b.size, b.dtype)
              for b in source.kernel.parameters]
    return simt.step(source.text, arrays, source.kernel.grid, source.kernel.block)


print(f"{'strategy':10}{'kernel':>8}{'modelled bytes':>16}{'stepped bytes':>15}")
counted = []
for strategy in ("xla", "astitch"):
    for number, source in enumerate(ms.lower(softmax, "f32[16,200]", strategy=strategy, target="step", device="v100")):
        traffic, modelled = stepped(source), cost.traffic(source.kernel)
        counted.append((modelled.read, modelled.written, traffic.bytes_read, traffic.bytes_written))
        print(f"{strategy:10}{number:8}{modelled.total:16}{traffic.bytes_read + traffic.bytes_written:15}")

# %% [markdown]
# The model reads the bytes off the loop program: each element of an array once, in and out. The stepper runs
# the text, and notes every element that some thread touches. A test of this project holds them equal for
# random programs.
#
# ## From bytes to seconds
#
# The **bandwidth** of a memory is the bytes that it moves in a second. A V100's datasheet says 900 GB. So a
# kernel takes at least its bytes divided by that, and the time of its launch. This is a *lower bound*: it is
# never faster.

# %%
v100 = ms.DEVICES["v100"]
shape, nbytes = "f32[4096,1024]", 4096 * 1024 * 4
least = 2 * nbytes / v100.bandwidth * 1e6 + v100.launch_us
found = ms.compare(softmax, shape, target="reference", device="v100", strategies=("none", "xla", "astitch"))
print(f"softmax of {shape}: no kernel can do it in less than {least:.1f} us")
for row in found.rows:
    print(f"{row.strategy:8} {(row.bytes_read + row.bytes_written) / 1e6:6.1f} MB, modelled {row.modelled_us:6.1f} us")

# %% [markdown]
# ## The roofline
#
# Arithmetic can be the slow part too. A V100 does 15.7 million million operations a second, and not more. That
# is one roof over every program. Memory is another: it brings the bytes that the operations need. This second
# roof is higher for a program that does more operations with each byte. Drawn together they are a
# **roofline**.

# %%
draw.roofline(found)

# %% [markdown]
# Each dot is a strategy. All of them do the same operations. Fusion moves fewer bytes, so a dot goes to the
# *right*, and the roof over it is higher. The stitched softmax is close below the roof. It is still left of
# the corner: memory is what it waits for. No fusion of a softmax will change that. Beside a matrix product,
# which is far to the right, it can.
#
# ## Where stitching loses
#
# Is it always right to stitch as much as one can? Two shapes, three strategies:

# %%
print(f"{'modelled for a V100':20}" + "".join(f"{name:>27}" for name in ("xla", "fs20", "astitch")))
few = {}
for shape in ("f32[4,100000]", "f32[40,12000]"):
    few[shape] = ms.compare(softmax, shape, target="reference", device="v100", strategies=("xla", "fs20", "astitch"))
    cells = [f"{row.kernels} kernel{'s' * (row.kernels > 1):1} {(row.bytes_read + row.bytes_written) / 1e6:4.1f} MB "
             f"{row.modelled_us:4.1f} us" for row in few[shape].rows]
    print(f"{shape:20}" + "".join(f"{cell:>27}" for cell in cells))
draw.roofline(few["f32[40,12000]"])

# %% [markdown]
# With 4 long rows `astitch` wins. It spreads a row over 40 blocks. `fs20` must keep a row in a block to reduce
# it, so its first kernel has 4 blocks. Its second kernel only divides. That needs no reduction, so it may
# spread the rows over 160 blocks, but it reads the exponentials again from global memory.
#
# With 40 shorter rows `astitch` loses, although it has one kernel as well. It spreads the rows again, to fill
# the GPU. So its exponentials cross blocks: they go to global memory and come back behind a grid barrier. For
# `fs20` a row fits into the shared memory of a block. It moves less than half the bytes, and 40 blocks are
# enough. In the picture its dot is farthest to the right, and it is below the roof, because 40 blocks do not
# use the whole bandwidth.
#
# The lesson: *first count bytes, then ask whether enough threads are there to move them.* The strategy `auto`
# asks both for each kernel.
#
# The model says "enough threads" with one factor. A kernel that fills a part of the GPU is slower by the
# square root of that part: with 40 of 160 blocks, twice as slow. That is a guess. What can be checked on a GPU
# will be, when this project has one.
#
# ## Your machine
#
# Of a GPU the model knows the datasheet. Of *your* CPU it can know more: to **calibrate** is to measure what
# the machine really does. Here is the first of these measurements, the bandwidth of a copy.

# %%
source_array, copy = np.ones(2_000_000, np.float32), np.empty(2_000_000, np.float32)
times = []
for _ in range(20):
    began = time.perf_counter()
    np.copyto(copy, source_array)
    times.append(time.perf_counter() - began)
rate = 2 * copy.nbytes / min(times)
print(f"a copy of {copy.nbytes / 1e6:.0f} MB: {rate / 1e9:.1f} GB a second")

# %% [markdown]
# The least of twenty times is taken, not their mean: other programs can make a copy slower, and never faster.
#
# `python -m minisitch calibrate` measures many such figures, in about a minute, and keeps them in a file.
# From then on `device="cpu"` means your machine.

# %%
assert all((read, written) == (steps_read, steps_written) for read, written, steps_read, steps_written in counted)
assert all(row.modelled_us >= least for row in found.rows)
assert found["astitch"].modelled_us < 1.5 * least < found["xla"].modelled_us
long_rows, short_rows = few.values()
assert long_rows["astitch"].modelled_us < long_rows["fs20"].modelled_us < long_rows["xla"].modelled_us
assert short_rows["fs20"].modelled_us < short_rows["astitch"].modelled_us
assert 2 * short_rows["fs20"].bytes_read < short_rows["astitch"].bytes_read
assert rate > 0

# %% [markdown]
# **Try.** With few rows of 12,000 `fs20` wins, also with a single one. From how many rows on is `astitch` as
# fast? Guess, and then ask for 1, 80, 160 and 640 rows. Then look for a program that lies to the *right* of
# the corner of the roofline, without a matrix product. How many operations does it need for each element?
