# %% [markdown]
# # Hello: run one kernel, and ask what was decided
#
# This is a softmax as everybody writes it. Run line by line, NumPy makes five trips through memory: a maximum,
# a difference, an exponential, a sum and a quotient, each reading what the one before it wrote.

# %%
import numpy as np


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


x = np.random.default_rng(0).standard_normal((64, 1000)).astype(np.float32)
print("three rows add up to", softmax(x).sum(axis=-1)[:3])

# %% [markdown]
# `jit` leaves the function as it is. At the first call with arrays of some shape it records what the function
# does with them, plans kernels, prints them as Python text, compiles that text for this CPU, and runs it. Later
# calls with the same shapes only run.

# %%
import minisitch as ms

fast_softmax = ms.jit(softmax, target="cpu")
y = fast_softmax(x)
print("furthest from NumPy:", np.abs(y - softmax(x)).max())

# %% [markdown]
# Now the question this project exists for: *what happened in there?* `explain` answers stage by stage: the
# graph, which operations share a kernel, where each value lives, how rows are dealt out to threads, and the
# kernel's text. A notebook also draws it, from the last line of the cell.

# %%
report = ms.explain(fast_softmax, x)
print(report)
report

# %% [markdown]
# Everything you see is data, so it can be counted. One kernel does the work of five trips.
# A *strategy* decides which operations share a kernel: `none` fuses nothing, `xla` stops at each reduction, `astitch` goes on.
# Skip words of the report that you do not know; `docs/words.md` defines them.

# %%
print("kernels:", len(ms.lower(softmax, x, strategy="astitch", stop_after="fuse").kernels))
print("without fusion:", len(ms.lower(softmax, x, strategy="none", stop_after="fuse").kernels))

# %%
assert np.allclose(y, softmax(x), rtol=1e-5, atol=1e-7)
assert len(ms.lower(softmax, x, strategy="astitch", stop_after="fuse").kernels) == 1
assert len(ms.lower(softmax, x, strategy="none", stop_after="fuse").kernels) == 5

# %% [markdown]
# **Try.** Write a layernorm the same way and ask for its kernels under `none`, `xla` and `astitch`. Guess
# before you run.
