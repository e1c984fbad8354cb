# %% [markdown]
# # Threads: one program, run by many
#
# 10 minutes. **New words**: thread, block, grid, launch, guard, stepper.
#
# A GPU runs a kernel in another way than a loop. Nobody counts `i` from 0 to `n`. Instead the *same* short
# text is run by thousands of **threads**. Each has a number, and takes the element of that number.
#
# Threads come in **blocks**. All blocks of one call are the **grid**, and the call is a **launch**. To launch
# a kernel is to say how many blocks there are, and how many threads each has. Thread `t` of block `b` is
# number `b * threads + t` in the grid.
#
# Here is a kernel. It is Python text, as the Numba library compiles it for NVIDIA's GPUs.

# %%
import numpy as np
import minisitch as ms
from minisitch import simt

double = """
def double(x, y):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < 70:
        y[i] = np.float32(2) * x[i]
"""

# %% [markdown]
# `cuda` knows who runs the text: `blockIdx.x` is the number of the block, `threadIdx.x` the number of the
# thread in its block, and `blockDim.x` the number of threads in a block.
#
# No GPU is needed to try it. The **stepper** runs the text for one thread after another, here for 3 blocks of
# 32 threads. It changes `y`, and it counts.

# %%
x = np.arange(70, dtype=np.float32)
y = np.zeros(70, np.float32)
traffic = simt.step(double, [x, y], 3, 32)
print(y[:5], "...", y[-3:])
print(traffic.loads, "elements loaded,", traffic.stores, "stored; at most", traffic.thread_loads, "by one thread")

# %% [markdown]
# Every thread loads one element. But 3 blocks of 32 are 96 threads, and there are 70 elements. What do the
# other 26 do? Nothing: that is the line `if i < 70`, the **guard**.
#
# To see who makes which element, let each thread write its own number.

# %%
who = """
def who(y):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < 70:
        y[i] = i
"""
makers = np.zeros(70, np.int32)
simt.step(who, [makers], 3, 32)

from minisitch.explain import draw
draw.threads(makers, 32)

# %% [markdown]
# ## Without the guard
#
# Take the guard away, and the last threads reach for elements that do not exist. A GPU may read what lies
# behind the array, and say nothing. The stepper refuses the kernel. It names the rule, the line, and the
# thread.

# %%
careless = """
def careless(x, y):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y[i] = np.float32(2) * x[i]
"""
try:
    simt.step(careless, [x, np.zeros(70, np.float32)], 3, 32)
except ms.KernelBug as bug:
    refusal = bug
    print(bug)

# %% [markdown]
# ## Neighbours read neighbours
#
# Threads do not run one by one on a GPU. Neighbouring threads run together, and their loads are made
# together, in pieces of 32 bytes. So it matters *which* element a thread takes. Here each thread takes two,
# once side by side and once far apart.

# %%
text = """
def double(x, y):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    for k in range(2):
        y[PLACE] = np.float32(2) * x[PLACE]
"""
pieces = {}
for name, place in {"2 * i + k": "2 * i + k", "i + 64 * k": "i + 64 * k"}.items():
    x2, y2 = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    pieces[name] = simt.step(text.replace("PLACE", place), [x2, y2], 2, 32).sectors_loaded
    print(f"x[{name}]: {pieces[name]} pieces of 32 bytes fetched for {x2.nbytes} bytes")

# %%
assert np.array_equal(y, 2 * x)
assert traffic.loads == traffic.stores == 70 and traffic.thread_loads == 1
assert np.array_equal(makers, np.arange(70))
assert refusal.rule == "out-of-bounds" and refusal.line == 4
assert pieces["i + 64 * k"] == 128 * 4 // 32 < pieces["2 * i + k"]

# %% [markdown]
# **Try.** Write a kernel that reverses an array of 70 elements, with blocks of 32. Then launch `double` with
# 2 blocks instead of 3: which elements of `y` stay as they were? Last, write a kernel for which 2 blocks of
# 32 are enough for any length: let each thread take element `i`, then `i + 64`, then `i + 128`, and so on.
