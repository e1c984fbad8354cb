# %% [markdown]
# # Hello: trips to memory are the cost
#
# 5 minutes. You need Python and NumPy, no GPU. **New words**: kernel, fusion, strategy.
#
# Run this file as a program, `python tutorials/00_hello.py`, or cell by cell: VS Code, PyCharm and Spyder
# open the `# %%` cells of the file. The site that `make docs` builds has each tutorial as a notebook to
# download. Notebooks and the site show the pictures. A terminal cannot: there, write
# `draw.trips(unfused, fused).save("trips.svg")` and open the file in a browser, and likewise for every picture.
#
# This is a softmax as everybody writes it.

# %%
import numpy as np


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


x = np.random.default_rng(0).standard_normal((64, 1000)).astype(np.float32)
print("three rows add up to", softmax(x).sum(axis=-1)[:3])

# %% [markdown]
# NumPy runs it in five steps: a maximum, a difference, an exponential, a sum, a quotient. Each step reads an
# array from memory, computes, and writes its result to memory, where the next step reads it. Computing takes
# little. **The trips to memory take the time**, on a CPU and even more on a GPU.
#
# A **kernel** is one such step: a compiled loop that reads arrays, computes, and writes arrays. **Fusion**
# puts several operations into one kernel. Then a value goes from one operation to the next without a trip.
#
# `jit` does that to a NumPy function. The function stays as it is. `target="cpu"` says that this computer's
# processor runs the kernels.

# %%
import minisitch as ms

fast_softmax = ms.jit(softmax, target="cpu")
y = fast_softmax(x)
print("largest difference from NumPy:", np.abs(y - softmax(x)).max())

# %% [markdown]
# The first call recorded what the function does with arrays of this shape, decided what to fuse, and compiled
# it. Later calls only run. To be sure, ask for a check: each call then runs NumPy, too, and compares.

# %%
assert np.allclose(ms.jit(softmax, target="cpu", check=True)(x), y)

# %% [markdown]
# A **strategy** is a rule for what to fuse. The strategy `none` gives each operation a kernel of its own, as
# NumPy does. `astitch`, named after a paper, fuses all it can. `lower` stops the compiler on its way, here
# when the strategy has made its plan. Nothing runs.

# %%
from minisitch.explain import draw

unfused = ms.lower(softmax, x, strategy="none", stop_after="fuse")
fused = ms.lower(softmax, x, strategy="astitch", stop_after="fuse")
print("kernels:", len(unfused.kernels), "without fusion,", len(fused.kernels), "with it")
print("x alone has", x.nbytes, "bytes")
print("bytes through memory:", draw.moved(unfused), "without fusion,", draw.moved(fused), "with it")
print("The fused kernel reads x once and writes the result once. All that is between stays inside.")
draw.trips(unfused, fused)

# %% [markdown]
# In the picture time goes down. Blue arrows are what a kernel reads from memory, orange arrows what it
# writes. Count them.
#
# Everything you see is data, so it can be checked.

# %%
assert np.allclose(y, softmax(x), rtol=1e-5, atol=1e-7)
assert (len(unfused.kernels), len(fused.kernels)) == (5, 1)
assert draw.moved(fused) == 2 * x.nbytes < draw.moved(unfused)

# %% [markdown]
# **Try.** Write a layernorm the same way: rows with mean 0 and variance 1. Guess its kernels under `none`,
# and its bytes under `astitch`. Then ask.
#
# **If you are curious**, `print(ms.explain(fast_softmax, x))` prints all that was decided, in about 150
# lines. It uses words of later tutorials; `docs/words.md` defines them.
