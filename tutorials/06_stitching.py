# %% [markdown]
# # Stitching: go on behind a reduction
#
# 10 minutes. **New words**: stitching, block barrier.
#
# What comes after a sum? In a softmax every element of the row is divided by it. The sum is made by all
# threads of a block, and read by all of them. An ordinary fusing compiler ends the kernel there. The next
# kernel reads everything back.
#
# But in the last tutorial the sum was in shared memory, where all threads of the block can read it. So the
# kernel can go on. That is **stitching**: a value that many threads make gets a place where many threads read
# it, and a barrier before the reading.

# %%
import numpy as np
from minisitch import simt

share = """
def share(x, y):
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    s = cuda.shared.array(64, np.float32)
    mine = x[row, t]
    s[t] = mine
    cuda.syncthreads()
    for step in (32, 16, 8, 4, 2, 1):
        if t < step:
            s[t] += s[t + step]
        cuda.syncthreads()
    y[row, t] = mine / s[0]
"""
x = np.random.default_rng(0).random((8, 64), dtype=np.float32)
y = np.zeros_like(x)
traffic = simt.step(share, [x, y], 8, 64)
print("three rows add up to", y.sum(axis=1)[:3])
print(traffic.bytes_read, "bytes read,", traffic.bytes_written, "written, for an array of", x.nbytes)

# %% [markdown]
# Only two lines are new. `mine` waits in a register until the sum is known, and the last line reads the sum.
# Each row has a block of its own. The array is read once and written once, as if the reduction were not
# there.
#
# ## The compiler does it to a softmax
#
# A softmax has two reductions a row, the maximum and the sum. The strategy `xla` cuts at each of them.
# `astitch` goes on. `compare` runs the program under several strategies, here with the stepper, and says how
# many bytes their kernels move.

# %%
import minisitch as ms
from minisitch.explain import draw


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


x = np.random.default_rng(0).standard_normal((8, 100)).astype(np.float32)
rows = {row.strategy: row for row in ms.compare(softmax, x, target="step", strategies=("none", "xla", "astitch")).rows}
print(f"{'strategy':10} {'kernels':>8} {'bytes read':>11} {'written':>8}")
for name, row in rows.items():
    print(f"{name:10} {row.kernels:8} {row.bytes_read:11} {row.bytes_written:8}")

# %%
plans = [ms.lower(softmax, x, strategy=name, target="step", stop_after="fuse") for name in ("xla", "astitch")]
draw.trips(*plans)

# %% [markdown]
# The array has 3,200 bytes. The stitched kernel reads 3,200 and writes 3,200. It cannot be less. The price is
# barriers. A **block barrier** costs some 20 nanoseconds, a launch some microseconds.

# %% [markdown]
# ## The film of the stitched kernel
#
# Play it. In `k4` lie the exponentials of a row, from the sum's loop to the division. Then choose two operations
# under *Why not in one kernel?*: `xla` ends its kernels at the reductions.

# %%
from minisitch.explain.explore import explored

film_of_softmax = explored(softmax, (x,), {}, "astitch")
film_of_softmax

# %%
(kernel,) = film_of_softmax.data()["kernels"]
assert kernel["verdict"]["right"] and any(array["name"] == "k4" for array in kernel["arrays"])
assert np.allclose(y.sum(axis=1), 1)
assert (traffic.bytes_read, traffic.bytes_written) == (8 * 64 * 4, 8 * 64 * 4)
assert (rows["none"].kernels, rows["xla"].kernels, rows["astitch"].kernels) == (5, 4, 1)
assert rows["astitch"].bytes_read == rows["astitch"].bytes_written == x.nbytes
assert np.allclose(ms.jit(softmax, strategy="astitch", target="step")(x), softmax(x), rtol=1e-5)

# %% [markdown]
# **Try.** Make the kernel `share` into a softmax: the maximum of the row first, then the sum of the
# exponentials. The array `s` can be used for both. How many barriers does a block pass, and which one is
# needed only because `s` is used twice?
