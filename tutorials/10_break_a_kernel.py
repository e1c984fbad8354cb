# %% [markdown]
# # Break a kernel: six rules
#
# 15 minutes. **New words**: divergent barrier, exchange.
#
# The stepper holds a kernel to rules. You met some of them. Here are six, each with a kernel that breaks it.
# None of these kernels need give a wrong answer on a GPU today. That is what makes such mistakes hard to find
# there.

# %%
import textwrap

import numpy as np
import minisitch as ms
from minisitch import simt


def show(bug):
    """Print a refusal in lines of 100 letters."""
    print(*(textwrap.fill(line, 100, subsequent_indent="    ") for line in str(bug).splitlines()), sep="\n")


good = """
def total(x, y):
    t = cuda.threadIdx.x
    s = cuda.shared.array(64, np.float32)
    s[t] = x[t]
    cuda.syncthreads()
    acc = s[t] + s[t ^ 32]
    for offset in (16, 8, 4, 2, 1):
        acc += cuda.shfl_xor_sync(0xffffffff, acc, offset)
    if t == 0:
        y[0] = acc
"""
x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
y = np.zeros(1, np.float32)
simt.step(good, [x, y], 1, 64)
print("sum:", y[0], "NumPy:", x.sum())

# %% [markdown]
# This kernel adds up 64 numbers with one barrier. `t ^ 32` is the number of the thread's partner in the other
# warp. The shuffles do the rest within each warp. Now six changes of one place each.

# %%
changes = {
    "out-of-bounds": ("s[t ^ 32]", "s[t + 32]"),
    "unwritten-read": ("cuda.syncthreads()", "pass"),
    "race": ("if t == 0:", "if True:"),
    "divergent-barrier": ("y[0] = acc", "y[0] = acc; cuda.syncthreads()"),
    "lane-mask": ("0xffffffff, acc", "0xffff, acc"),
    "float64-literal": ("y[0] = acc", "y[0] = acc * 1.0"),
}
refusals = {}
for rule, (old, new) in changes.items():
    try:
        simt.step(good.replace(old, new), [x, np.zeros(1, np.float32)], 1, 64)
    except ms.KernelBug as bug:
        refusals[rule] = bug
        print(f"{old:20} -> {new:32}", bug.rule)

# %% [markdown]
# Two of them in full. With half a mask, lanes 16 to 31 call a shuffle that leaves them out:

# %%
show(refusals["lane-mask"])

# %% [markdown]
# And `1.0` is a float64 in Numba, so the whole product is computed in float64, at a small part of the speed:

# %%
show(refusals["float64-literal"])

# %% [markdown]
# ## The barrier that is not there
#
# A compiler that puts in every barrier that could be of use is safe and slow. One that leaves out too many is
# wrong. Here is the softmax kernel of the compiler, for a toy GPU with two blocks of 64 threads, two warps
# each. A block takes four rows in turn.

# %%
from dataclasses import replace


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


toy = replace(ms.get_device("h100"), name="toy", sms=1, threads_per_sm=128, max_block=64)
rows = np.random.default_rng(0).standard_normal((8, 500)).astype(np.float32)


def emitted(function):
    (source,) = ms.lower(function, rows, strategy="astitch", target="cuda", device=toy, passes=(), stop_after="emit")
    return source


def step(source, text):
    """Step a kernel's text; return what it wrote, and its traffic."""
    kernel = source.kernel
    arrays = [rows.ravel() if b.scope == "input" else np.zeros(b.size, b.dtype) for b in kernel.parameters]
    traffic = simt.step(text, arrays, kernel.grid, kernel.block)
    return arrays[-1].reshape(rows.shape), traffic


def barriers_of(text):
    """The lines that hold a block barrier."""
    return [n for n, line in enumerate(text.splitlines()) if line.strip() == "cuda.syncthreads()"]


def without(text, number):
    """The kernel with that line's barrier taken out."""
    lines = text.splitlines()
    lines[number] = lines[number].replace("cuda.syncthreads()", "pass")
    return "\n".join(lines)


source = emitted(softmax)
barriers, needed = barriers_of(source.text), []
out, traffic = step(source, source.text)
for number in barriers:
    try:
        step(source, without(source.text, number))
    except ms.KernelBug as bug:
        needed.append(number)
        print(f"without the barrier of line {number + 1}:")
        show(bug)

# %% [markdown]
# There are two barriers a row, and neither can go. Each belongs to an **exchange**: the warps leave their
# partial results in shared memory, wait at the barrier, and read all of them.
#
# Here are both warps of a block in time, which goes down. The second warp is late. What stands at one height
# may happen at the same time. The two places of the exchanges, and the row of exponentials, have colours.

# %%
from minisitch.explain import film

events = []
simt.step(source.text, [rows.ravel(), np.zeros(rows.size, np.float32)], source.kernel.grid, source.kernel.block, record=events)
film.turns(events, most=4)

# %% [markdown]
# Now look for the barrier that is *not* there. When a fast warp has divided its part of a row, it begins the
# next row, while a slow one still divides this one. No barrier keeps them apart. Why is that right?
#
# The next row begins by writing the place where the warps exchange their maxima. Nobody can still be reading
# it: this row read it before its *second* barrier, and the fast warp is past that one. Two places for an
# exchange, taken in turn, protect each other.
#
# With one exchange a row there is only one place, and the next row would write what this one still reads. So
# the compiler counts. After an odd number of exchanges a row ends with a barrier. Here is a program with one.

# %%
def share(x):
    return x / np.sum(x, axis=-1, keepdims=True)


one = emitted(share)
step(one, one.text)
try:
    step(one, without(one.text, barriers_of(one.text)[-1]))
except ms.KernelBug as bug:
    overtaken = bug
    print("without the last barrier:")
    show(bug)

# %% [markdown]
# ## Break it yourself
#
# The kernel `share` on a page: a click takes a barrier away, and the film ends at the two lines of the race. Each
# order of the threads that the page shows is one that a GPU may take.

# %%
from minisitch.explain.explore import explored

film_of_share = explored(share, (rows,), {}, "astitch")
film_of_share

# %%
trial = film_of_share.trials[0]
one_less = without(trial.text, barriers_of(trial.text)[-1])
assert [order["right"] for order in trial.verdict(one_less)["orders"]] == [True, False]
assert [refusals[rule].rule for rule in changes] == list(changes)
assert np.allclose(out, softmax(rows), rtol=1e-5)
assert traffic.block_barriers_each == 2 * 4, "two a row, four rows a block"
assert len(barriers) == len(needed) == 2
assert len(barriers_of(one.text)) == 2 and overtaken.rule == "race"

# %% [markdown]
# **Try.** Put the first barrier of the softmax under `if thread < 32:`. The stepper names another rule than
# *divergent-barrier*. What do the other threads do before they could be missed? Then write a layernorm, and
# predict: how many barriers does a block pass for each row?
#
# `python -m minisitch explore tutorials/00_hello.py:softmax --arg "x=f32[64,1024]"` opens such a page, where you can
# also edit a line. It opens the kernels of assignments, too, as those of A3:
# `python -m minisitch explore tutorials/assignments/A3_repair/given.py`.
