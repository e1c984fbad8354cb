# %% [markdown]
# # Read a kernel: from a line of NumPy to a line of CUDA
#
# 15 minutes. **New words**: lane, shuffle, segment, phase, wide access.
#
# The compiler writes a kernel twice. First as a *loop program*, in its own short notation. Then as Python
# text for Numba. Here you read both, and follow one line of NumPy to its end. To keep the text short the
# device is a toy with two warps a block.

# %%
from dataclasses import replace
import numpy as np
import minisitch as ms

toy = replace(ms.get_device("h100"), name="toy", sms=1, threads_per_sm=128, max_block=64)


def share(x):
    return x / np.sum(x, axis=-1, keepdims=True)


how = dict(strategy="astitch", target="cuda", device=toy)
(source,) = ms.lower(share, "f32[8,512]", passes=(), **how)
print(source.kernel)

# %% [markdown]
# From the outside in:
#
# - A **segment** is a loop over rows, which the blocks share. `map` says how.
# - A **phase** is a loop over the columns of a row, which the threads of a block share. `combine r1` at its end
#   joins the threads' sums, because the next phase needs the sum of the whole row.
# - A statement is one operation of one thread on one column. `%2` at its end is the number of the graph's node.
#
# `sum v0 -> r1  along row` is the whole reduction in one line. Here is what becomes of it.

# %%
print(source.text)

# %% [markdown]
# `x0[col + row * 512]` is `x[row, col]`: arrays are handed over flat. The variable `lane` is the number of
# the thread among those of its row.
#
# The reduction has four steps.
#
# 1. `r1 += v0`: each thread adds up its own columns, `thread`, `thread + 64`, `thread + 128` and so on.
#    Neighbours read neighbours.
# 2. `shfl_xor_sync`: a **shuffle**. A thread's place in its warp, from 0 to 31, is its **lane**. A shuffle
#    hands each lane the register of another lane of its warp. With offset 16, lanes 0 and 16 swap values, and
#    so do 1 and 17. After five shuffles each lane has the sum of all 32, without shared memory or a barrier.
#    The number `0xffffffff` has 32 binary ones: all 32 lanes take part.
# 3. `if thread % 32 == 0`: one lane of each warp writes the warp's sum to shared memory. Then a barrier.
# 4. Each thread reads one of the two sums, and one more shuffle adds them.
#
# ## Wide accesses
#
# That was the plain kernel. The passes make it faster. One of them lets a thread fetch 16 bytes at once, four
# neighbouring columns: a **wide access**.

# %%
(fast,) = ms.lower(share, "f32[8,512]", **how)
for line in fast.text.splitlines():
    if "_wide" in line or "local.array" in line:
        print(line.strip())

# %%
from minisitch import simt

x = np.random.default_rng(0).random((8, 512), dtype=np.float32)
loads = {}
for name, each in {"plain": source, "wide": fast}.items():
    y = np.zeros(x.size, np.float32)
    traffic = simt.step(each.text, [x.ravel(), y], each.kernel.grid, each.kernel.block)
    loads[name] = traffic.loads
    print(f"{name}: {traffic.loads} accesses, {traffic.bytes_read} bytes, {traffic.shuffles} shuffles")

# %% [markdown]
# An eighth of the accesses. An access moves four columns at once. And a thread keeps its part of the row in
# registers, `x0s`, so the second phase loads nothing. The bytes are the same: an element that is read twice
# counts once.
#
# ## Follow the quotient
#
# `x / ...` is one line of NumPy. Follow its node through all the stages.

# %%
(node,) = [n for n in source.kernel.graph.nodes if n.op == "div"]
print("graph:       ", node)
print("loop program:", next(l.strip() for l in str(source.kernel).splitlines() if "div" in l and "=" in l))
print("CUDA:        ", next(l.strip() for l in source.text.splitlines() if f"%{node.id} div" in l))

# %%
assert np.allclose(y.reshape(x.shape), share(x), rtol=1e-5)
assert source.text.count("cuda.syncthreads()") == 2
assert loads["plain"] == 8 * loads["wide"]

# %% [markdown]
# **Try.** In the text of `share` there is a second barrier, at the end of the loop over rows. What is it for?
# (The next tutorial takes it away.) Then print the kernel of `x / np.max(x, axis=-1, keepdims=True)`. Which
# lines differ?
