# %% [markdown]
# # Fusing maps: a value in a register costs nothing
#
# 8 minutes. **New words**: register, global memory, element-wise.
#
# The arrays of the last tutorial lie in **global memory**: the large memory of the GPU, which all threads
# reach. It is slow. A variable of a thread, such as `i`, lies in a **register**. That is the fastest place
# there is, and no other thread can see it.
#
# Here is `y = exp(2 * x)` as two kernels. The first leaves `t` in global memory, the second fetches it from
# there.

# %%
import numpy as np
from minisitch import simt

first = """
def first(x, t):
    i = cuda.grid(1)
    if i < 1000:
        t[i] = np.float32(2) * x[i]
"""
second = """
def second(t, y):
    i = cuda.grid(1)
    if i < 1000:
        y[i] = math.exp(t[i])
"""
x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
t, y = np.zeros_like(x), np.zeros_like(x)
launches = [simt.step(first, [x, t], 4, 256), simt.step(second, [t, y], 4, 256)]
apart = sum(each.bytes_read for each in launches), sum(each.bytes_written for each in launches)
print("two kernels:", apart[0], "bytes read,", apart[1], "written")

# %% [markdown]
# `cuda.grid(1)` is short for block number times threads in a block plus thread number.
#
# Thread 5 of the second kernel reads `t[5]`, and nothing else of `t`. Thread 5 of the first kernel made it.
# So one thread can do both, and `t` becomes a variable:

# %%
both = """
def both(x, y):
    i = cuda.grid(1)
    if i < 1000:
        t = np.float32(2) * x[i]
        y[i] = math.exp(t)
"""
z = np.zeros_like(x)
fused = simt.step(both, [x, z], 4, 256)
print("one kernel: ", fused.bytes_read, "bytes read,", fused.bytes_written, "written")

# %% [markdown]
# Half the bytes, one launch less, and `t` costs nothing. The two operations could be fused because they are
# **element-wise**: an element of the result needs the same element of the operands, and no other.
#
# ## The compiler does it
#
# A GELU is a chain of nine element-wise operations. NumPy runs each by itself. (`target="step"` plans kernels
# for the stepper: a GPU's kernels, without a GPU.)

# %%
import minisitch as ms
from minisitch.explain import draw


def gelu(x):
    return 0.5 * x * (1.0 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


plans = {name: ms.lower(gelu, x, strategy=name, target="step", stop_after="fuse") for name in ("none", "astitch")}
for name, plan in plans.items():
    print(f"{name:8} kernels: {len(plan.kernels)}, bytes through memory: {draw.moved(plan):,}")

# %% [markdown]
# The same graph twice, with one colour a kernel. A red arrow is a trip through global memory. First without
# fusion:

# %%
draw.graph(plans["none"])

# %% [markdown]
# Then fused. Every arrow that is not red has become a register.

# %%
draw.graph(plans["astitch"])

# %% [markdown]
# And this is the heart of the kernel that the compiler writes. `x0` is the argument, `y0` the result, and `col`
# the number of the element. `v1`, `v2` and so on are registers. `C0` to `C3` are the four constants of GELU.
# (`passes=()` leaves out the steps that make a kernel faster and harder to read.)

# %%
(source,) = ms.lower(gelu, x, strategy="astitch", target="step", passes=(), stop_after="emit")
lines = source.text.splitlines()
print("\n".join(line.strip() for line in lines[-11:]))

# %%
assert np.array_equal(y, z), "the same operations in the same order: not one bit differs"
assert apart == (2 * x.nbytes, 2 * x.nbytes)
assert (fused.bytes_read, fused.bytes_written) == (x.nbytes, x.nbytes)
assert len(plans["none"].kernels) == 9 and len(plans["astitch"].kernels) == 1
assert draw.moved(plans["none"]) == 88_000 and draw.moved(plans["astitch"]) == 8_000
assert np.allclose(ms.jit(gelu, target="step")(x), gelu(x), atol=1e-6)

# %% [markdown]
# **Try.** Write the nine operations of GELU as one kernel of your own and step it. Its bytes must be those of
# the compiler's. Then try to fuse `y = x - mean(x)` in the same way. What is it that thread 5 needs now?
