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


x = np.random.default_rng(0).standard_normal((8, 100)).astype(np.float32)

# %% [markdown]
# A real GPU would give each of these eight rows a block of its own and be done. To see a block work, we
# schedule for a toy: one multiprocessor that holds 128 threads, in blocks of at most 64. Two blocks, four rows
# each.

# %%
from dataclasses import replace

toy = replace(ms.get_device("h100"), name="toy", sms=1, threads_per_sm=128, max_block=64)

# %% [markdown]
# ## Cut, or stitch
#
# Under the rules called `xla` a thread may only use what it made itself, so the kernel ends at each reduction and
# the next one reads everything back from memory. `astitch` stays in one kernel: what threads have to tell each
# other goes through **shared memory**, which all threads of a block can read, and a **block barrier** makes sure
# that it is read after it was written.
#
# Let us count.

# %%
rows = {row.strategy: row for row in ms.compare(softmax, x, target="step", device=toy).rows}
print(f"{'strategy':10} {'kernels':>8} {'bytes read':>11} {'written':>8}")
for name in ("none", "xla", "astitch"):
    row = rows[name]
    print(f"{name:10} {row.kernels:8} {row.bytes_read:11} {row.bytes_written:8}")

# %% [markdown]
# The array has 3,200 bytes. A kernel that reads it and writes a result of the same size moves at least 6,400,
# and that is what the stitched kernel moves. The price is barriers, and a barrier costs tens of nanoseconds
# where a launch costs microseconds.
#
# ## Where each value lives
#
# The plan says what became of each value: `regional` means *the block that makes it is the block that reads
# it*, so shared memory will do.

# %%
(kernel,) = ms.lower(softmax, x, strategy="astitch", target="cuda", device=toy, stop_after="schedule")
for node, scheme, where, why in kernel.placements:
    print(f"%{node} {kernel.graph[node].op:4} {scheme:9} {where:24} {why}")

# %% [markdown]
# And this is the kernel, in Python that Numba compiles for a GPU. A row of 100 columns is dealt out to 64
# threads, which are two warps. Each warp folds its part with shuffles, from register to register, and leaves
# one partial result in shared memory (`w00_f32`); behind a barrier every thread reads both and knows the
# maximum. The same happens for the sum. The exponentials stay in shared memory (`k4`) until the sum is known,
# so nothing goes back to global memory in between.

# %%
(source,) = ms.lower(softmax, x, strategy="astitch", target="cuda", device=toy, stop_after="emit")
print(source.text)

# %% [markdown]
# ## Take a barrier out
#
# What does a barrier do? Remove it and see. A real GPU would often give the right answer without it, on your
# machine, today. The **stepper** does not look for wrong numbers. It watches every cell, and if one thread may
# read what another writes with no barrier between them, or reads what nobody has written yet, it refuses the
# kernel.

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
        print(f"without the barrier of line {number + 1}: accepted")
    except KernelBug as bug:
        refusals[number] = bug
        print(f"without the barrier of line {number + 1}:", str(bug).splitlines()[0])

# %% [markdown]
# Inside a row no barrier can go: a thread must not read a partial result before the other warp has written it.
# Here is one refusal in full, with the line and the thread.
#
# If a removal was accepted, that barrier is one this kernel could do without. Look which cells it stands
# between before you read on: at the end of the loop, a fast warp may begin the next row while a slow one still
# divides. Whether that is safe depends on whether the next row writes a cell that this row still reads.

# %%
print(refusals[barriers[0]])

# %%
assert np.allclose(y, softmax(x), rtol=1e-5)
assert rows["astitch"].kernels == 1 < rows["xla"].kernels < rows["none"].kernels
assert rows["astitch"].bytes_read == rows["astitch"].bytes_written == x.nbytes
assert (traffic.bytes_read, traffic.bytes_written) == (x.nbytes, x.nbytes), "the stepper counts what the model says"
assert rows["xla"].bytes_read > rows["astitch"].bytes_read
assert set(barriers[:2]) <= set(refusals), "inside a row no barrier is superfluous"

# %% [markdown]
# **Try.** Put the first barrier back, but under `if thread < 32:`. Which rule refuses it now? Do the same to the last
# one: is it the same rule? Then write a layernorm, and predict before you run: how many barriers does a block pass
# for each row, and which values live in shared memory?
