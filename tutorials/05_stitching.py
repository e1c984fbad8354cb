# %% [markdown]
# # Stitching: keep a row where the other threads can read it
#
# A softmax needs two numbers a row, its maximum and its sum, before it can write a single element. Each is made
# by many threads together and then read by all of them. That is where ordinary fusion stops and stitching
# begins.

# %%
import numpy as np
import minisitch as ms


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


x = np.random.default_rng(0).standard_normal((8, 200)).astype(np.float32)

# %% [markdown]
# ## Cut, or stitch
#
# Under the rules called `xla` a thread may only use what it made itself, so the kernel ends at each reduction
# and the next one reads everything back from memory. `astitch` stays in one kernel: the row of exponentials is
# kept in **shared memory**, which all threads of a block can read, and a **block barrier** makes sure they read
# it after it was written.
#
# Let us count, by executing the CUDA text of every kernel thread by thread (the target called `step`).

# %%
rows = {row.strategy: row for row in ms.compare(softmax, x, target="step").rows}
print(f"{'strategy':10} {'kernels':>8} {'bytes read':>11} {'written':>8} {'block barriers':>15}")
for name, row in rows.items():
    print(f"{name:10} {row.kernels:8} {row.bytes_read:11} {row.bytes_written:8} {row.block_barriers:15}")

# %% [markdown]
# The array has 6,400 bytes. One kernel that reads it once and writes it once cannot move fewer than 12,800, and
# that is what the stitched kernel moves. The price is barriers, which cost tens of nanoseconds where a kernel
# costs microseconds.
#
# ## Where each value lives
#
# The plan says what became of each value: `regional` means *the block that makes it is the block that reads
# it*, so shared memory will do.

# %%
(kernel,) = ms.lower(softmax, x, strategy="astitch", target="cuda", stop_after="schedule")
for node, scheme, where, why in kernel.placements:
    print(f"%{node} {kernel.graph[node].op:4} {scheme:9} {where:24} {why}")

# %% [markdown]
# And this is the kernel, in Python that Numba compiles for a GPU. Find the array in shared memory, the store
# into it, and the barrier between the store and the load.

# %%
(source,) = ms.lower(softmax, x, strategy="astitch", target="cuda", stop_after="emit")
print(source.text)

# %% [markdown]
# ## Take a barrier out
#
# What does the barrier do? Remove it and see. A real GPU would often give the right answer without it, on your
# machine, today. The **stepper** does not look for wrong numbers: it watches every cell, and if one thread
# reads what another wrote with no barrier in between, it refuses the kernel, whatever order the threads
# happened to run in.

# %%
from minisitch import simt
from minisitch.errors import KernelBug


def step(text, seed=0):
    """Run a kernel's text on fresh arrays; return what it wrote and what it cost."""
    arrays = [x.ravel() if b.scope == "input" else np.zeros(b.size, b.dtype) for b in kernel.parameters]
    traffic = simt.step(text, arrays, kernel.grid, kernel.block, seed)
    return arrays[-1].reshape(x.shape), traffic


y, traffic = step(source.text)
print("right to", np.abs(y - softmax(x)).max(), "with", traffic.block_barriers_each, "barriers a block")

# %%
lines = source.text.splitlines()
barriers = [number for number, line in enumerate(lines) if line.strip().startswith("cuda.syncthreads()")]
refusals = {}
for number in barriers:
    broken = [line.replace("cuda.syncthreads()", "pass") if i == number else line for i, line in enumerate(lines)]
    try:
        step("\n".join(broken))
    except KernelBug as bug:
        refusals[number] = bug
        print(f"without the barrier of line {number + 1}:", str(bug).splitlines()[0])

# %% [markdown]
# Every barrier is there for a reason, and the refusal says which: two threads, one cell, one of them writes.
# Here is one in full.

# %%
print(next(iter(refusals.values())))

# %%
assert np.allclose(y, softmax(x), rtol=1e-5)
assert rows["astitch"].kernels == 1 < rows["xla"].kernels < rows["none"].kernels
assert rows["astitch"].bytes_read == rows["astitch"].bytes_written == x.nbytes
assert rows["xla"].bytes_read > rows["astitch"].bytes_read
assert set(refusals) == set(barriers), "no barrier is superfluous"

# %% [markdown]
# **Try.** Put the barrier back, but under `if thread < 32:`. Which rule refuses it now? Then write a layernorm,
# and predict before you run: how many barriers does a block pass, and which values live in shared memory?
