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


x = np.random.default_rng(0).standard_normal((8, 500)).astype(np.float32)

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
# The array has 16,000 bytes. A kernel that reads it and writes a result of the same size moves at least 32,000,
# and that is what the stitched kernel moves. The price is barriers, and a barrier costs tens of nanoseconds
# where a launch costs microseconds.
#
# ## Where each value lives
#
# The plan says what became of each value: `regional` means *the block that makes it is the block that reads
# it*, so registers or shared memory will do. `local` means that no other thread reads it.

# %%
(kernel,) = ms.lower(softmax, x, strategy="astitch", target="cuda", device=toy, stop_after="schedule")
for node, scheme, where, why in kernel.placements:
    print(f"%{node} {kernel.graph[node].op:4} {scheme:9} {where:24} {why}")

# %% [markdown]
# And this is the kernel, in Python that Numba compiles for a GPU. A row of 500 columns is dealt out to 64
# threads, which are two warps. Each warp folds its part with shuffles, from register to register, and leaves
# one partial result in shared memory (`w00_f32`); behind a barrier every thread reads both and knows the
# maximum. The same happens for the sum. The exponentials wait in shared memory (`k4`) until the sum is known, so they
# do not go back to global memory in between.
#
# `passes=()` leaves the kernel plain. What a GPU runs by default has been rewritten for speed: print it without
# `passes=()`, and `ms.explain` shows what each pass changed.

# %%
(source,) = ms.lower(softmax, x, strategy="astitch", target="cuda", device=toy, passes=(), stop_after="emit")
print(source.text)

# %% [markdown]
# ## Take a barrier out
#
# What does a barrier do? Remove it and see. A real GPU would often give the right answer without it, on your
# machine, today. The **stepper** does not look for wrong numbers. It watches every cell, and if one thread may
# read what another writes with no barrier between them, or reads memory that nothing was written to, it refuses the
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
def barriers_of(text):
    """The lines that hold a block barrier."""
    return [n for n, line in enumerate(text.splitlines()) if line.strip() == "cuda.syncthreads()"]


def without(text, number):
    """The kernel with that line's barrier taken out."""
    lines = text.splitlines()
    lines[number] = lines[number].replace("cuda.syncthreads()", "pass")
    return "\n".join(lines)


barriers = barriers_of(source.text)
refusals = []
for number in barriers:
    try:
        step(without(source.text, number))
        print(f"without the barrier of line {number + 1}: accepted")
    except KernelBug as bug:
        refusals.append(str(bug))
        print(f"without the barrier of line {number + 1}:", refusals[-1].splitlines()[0])

# %% [markdown]
# Neither barrier can go: a thread must not read a partial result before the other warp has written it. Here is one
# refusal in full, with the line and the thread.

# %%
print(refusals[0])

# %% [markdown]
# ## The barrier that is not there
#
# Look at the end of the loop over tasks. A fast warp begins the next row while a slow one still divides this one,
# and no barrier keeps them apart. Why may it?
#
# The next row begins by writing `w00_f32`, where the warps exchange their maxima. No thread can still be reading it:
# this row read it before its *second* barrier, and the fast warp is past that one. Two places for an exchange,
# taken in turn, protect each other. With one exchange a row there is only one place, and the next row would
# write what this one still reads. So the compiler counts: after an odd number of exchanges it ends a task with a
# barrier, after an even number it does not. Here is a program with one.

# %%
def share(x):
    return x / np.sum(x, axis=-1, keepdims=True)


(one,) = ms.lower(share, x, strategy="astitch", target="cuda", device=toy, passes=(), stop_after="emit")
print(one.text)
step(one.text)
try:
    step(without(one.text, barriers_of(one.text)[-1]))
except KernelBug as bug:
    overtaken = str(bug)
    print("without the last barrier:", overtaken)

# %% [markdown]
# ## A barrier for some
#
# All threads of a block must reach a barrier. Under an `if` that only some of them take, some wait for others
# that never come: on a GPU the kernel may hang, or may not. The stepper says which thread stands where.

# %%
shy = """\
def shy(y):
    thread = cuda.threadIdx.x
    if thread < 32:
        cuda.syncthreads()
    y[thread] = thread
"""
try:
    simt.step(shy, [np.zeros(64, np.int32)], 1, 64)
except KernelBug as bug:
    divergent = str(bug)
    print(divergent)

# %%
assert np.allclose(y, softmax(x), rtol=1e-5)
assert rows["astitch"].kernels == 1 < rows["xla"].kernels < rows["none"].kernels
assert rows["astitch"].bytes_read == rows["astitch"].bytes_written == x.nbytes
assert (traffic.bytes_read, traffic.bytes_written) == (x.nbytes, x.nbytes), "the stepper counts what the model says"
assert rows["xla"].bytes_read > rows["astitch"].bytes_read
assert len(barriers) == len(refusals) == 2, "two barriers a row, and neither is superfluous"
assert len(barriers_of(one.text)) == 2 and overtaken.startswith("race: w00_f32"), "one exchange, one barrier at the end"
assert divergent.startswith("divergent-barrier")

# %% [markdown]
# **Try.** Take `shy` and give the other threads a barrier of their own, under `else:`. All threads of the block wait
# now: is the kernel accepted? Then put the first barrier of the softmax under `if thread < 32:`. The stepper names
# another rule than for `shy`; what do the other threads do before they could be missed at a barrier? Last, write a
# layernorm, and predict before you run: how many barriers does a block pass for each row, and which values live in
# shared memory?
