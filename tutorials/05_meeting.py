# %% [markdown]
# # Meeting: a sum is made by many
#
# 10 minutes. **New words**: shared memory, barrier, race, warp, reduction.
#
# A thread cannot see another thread's registers. So how do 64 threads add up 64 numbers? They need a place
# where they can meet. Each block has one: **shared memory**, a small and fast memory that all threads of the
# block read and write.

# %%
import minisitch as ms
from minisitch.explain import draw

draw.machine(ms.DEVICES["v100"])

# %% [markdown]
# A GPU runs the threads of a block in groups of 32, called **warps**. Block 0 of the picture is the whole
# block of this tutorial: two warps.
#
# The sum is made like a knockout tournament. 64 numbers lie in shared memory. Thread 0 adds number 32 to
# number 0, thread 1 adds number 33 to number 1, and so on: 32 numbers are left. Then 16, 8, 4, 2, 1. An
# operation that makes few numbers out of many is a **reduction**.

# %%
import numpy as np
from minisitch import simt

total = """
def total(x, y):
    t = cuda.threadIdx.x
    s = cuda.shared.array(64, np.float32)
    s[t] = x[t]
    cuda.syncthreads()  # A
    for step in (32, 16, 8, 4, 2, 1):
        if t < step:
            s[t] += s[t + step]
        cuda.syncthreads()  # B
    if t == 0:
        y[0] = s[0]
"""
x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
y = np.zeros(1, np.float32)
traffic = simt.step(total, [x, y], 1, 64)
print("sum:", y[0], "NumPy:", x.sum(), "barriers:", traffic.block_barriers_each)

# %% [markdown]
# `cuda.syncthreads()` is a **barrier**: no thread goes past it before all threads of the block have come to
# it. What was written before the barrier can be read after it, by everybody.
#
# Why is it needed? One warp may be far ahead of the other. Take barrier A away. Then thread 0 may add `s[32]`
# to its own number before thread 32, of the other warp, has written it. That is a **race**: two threads use
# one place, one of them writes, and nothing says who comes first.
#
# A GPU would run the kernel, and often give the right answer: today, on your machine. The stepper does not
# look for wrong numbers. It looks at every place that two threads use, and asks for the barrier between them.

# %%
import textwrap


def show(bug):
    """Print a refusal in lines of 100 letters."""
    print(*(textwrap.fill(line, 100, subsequent_indent="    ") for line in str(bug).splitlines()), sep="\n")


refusals = {}
for barrier in ("A", "B"):
    broken = total.replace(f"cuda.syncthreads()  # {barrier}", "pass")
    try:
        simt.step(broken, [x, np.zeros(1, np.float32)], 1, 64)
    except ms.KernelBug as bug:
        refusals[barrier] = bug
        print(f"without barrier {barrier}:")
        show(bug)

# %% [markdown]
# Without B it is a race, and both lines are named. Without A the stepper found something worse first: a thread
# read a place where nothing had been written yet.
#
# ## The film
#
# Between two barriers threads run in any order. So a kernel is a film, and a frame is what happens between
# two barriers. The stepper can record each access. Here are the frames of the right kernel. In the row of
# threads each warp has a colour, and a thread that touches nothing is grey.

# %%
from minisitch.explain import film

events = []
simt.step(total, [x, np.zeros(1, np.float32)], 1, 64, record=events)
film.film(events, total)

# %% [markdown]
# Look at frame 1. The first warp reads cells 32 to 63, which the second warp wrote in frame 0. That is what
# barrier A is for.

# %% [markdown]
# ## Play it, and break it
#
# Here is the kernel without barrier B as a film that plays. The stepper stops at the race. Below its verdict
# stand two orders of the threads that nothing forbids. They compute two sums, and one is wrong. Take out
# another barrier or a guard, and see what happens. In a notebook this page stands below its cell.

# %%
from minisitch.explain.explore import explored_kernel


def wrong(arrays):
    """What is wrong with the arrays that a launch leaves."""
    return "" if np.isclose(arrays["y"][0], x.sum(), atol=1e-4) else "the sum is wrong"


arrays = {"x": x, "y": np.zeros(1, np.float32)}
film_of_total = explored_kernel(total.replace("cuda.syncthreads()  # B", "pass"), arrays, 1, 64, wrong=wrong)
film_of_total

# %% [markdown]
# ## A barrier for some
#
# All threads of the block must come to a barrier. Here it stands under an `if`, and only half of them come.
# They wait for the other half, which never comes. On a GPU the kernel may hang, or may not.

# %%
shy = """
def shy(y):
    t = cuda.threadIdx.x
    if t < 32:
        cuda.syncthreads()
    y[t] = t
"""
try:
    simt.step(shy, [np.zeros(64, np.int32)], 1, 64)
except ms.KernelBug as bug:
    divergent = bug
    show(bug)

# %%
assert np.isclose(y[0], x.sum(), atol=1e-5)
assert traffic.block_barriers_each == 7, "one after the first writes, one after each of six steps"
assert set(refusals) == {"A", "B"}
assert refusals["B"].rule == "race" and "line 9" in str(refusals["B"])
assert divergent.rule == "divergent-barrier"
right_order, wrong_order = film_of_total.trials[0].verdict(film_of_total.trials[0].text)["orders"]
assert right_order["right"] and not wrong_order["right"] and right_order["number"] != wrong_order["number"]

# %% [markdown]
# **Try.** Give the other threads of `shy` a barrier of their own, under `else:`. All threads of the block
# wait now. Is it accepted? Then make `total` work for 50 numbers and 64 threads. What must threads 50 to 63
# write into shared memory?
