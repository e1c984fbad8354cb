# %% [markdown]
# # Placement: where a value waits
#
# 12 minutes. **New words**: placement, scheme, local, regional, demoted, scratch.
#
# In a stitched kernel a value is made at one time and read at another. In between it waits somewhere: in a
# register, in shared memory, or in global memory. Each of these places is larger than the one before, and
# slower. Which one a value gets is its **placement**.
#
# A softmax makes `exp` for the sum, and needs it again for the quotient, when the sum is known. Where do the
# exponentials of a row wait? That depends on how long the row is. Here are 400 rows of 8,000 columns on a
# V100.

# %%
import minisitch as ms
import numpy as np


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def kernel_for(columns, passes=()):
    (kernel,) = ms.lower(softmax, f"f32[400,{columns}]", strategy="astitch", target="cuda", device="v100", passes=passes)
    return kernel.kernel


def show(kernel):
    for node, scheme, where, why in kernel.placements:
        print(f"%{node} {kernel.graph[node].op:4} {scheme:9} {where:42} {why}")
    print(f"shared memory of a block: {kernel.shared_bytes} bytes")


medium = kernel_for(8000)
show(medium)

# %% [markdown]
# Read a line from the left: the value, its **scheme**, its place. The scheme says who reads the value, and
# where. **Local**: the thread that makes it. A register will do, or the result itself. **Regional**: the
# threads of the block that makes it, in a place of the block. There is a third scheme, *global*: the value
# goes through global memory.
#
# The maximum and the sum are one number for each row. After the reduction every thread has a copy in a
# register. The exponentials are 8,000 numbers, and lie in shared memory: 32,000 bytes. A block may have
# 49,152.
#
# ## Too long a row
#
# A row of 20,000 needs 80,000 bytes. They do not fit.

# %%
long = kernel_for(20_000)
show(long)
print(f"wanted: {long.wanted_bytes} bytes")
for decision in long.decisions:
    if decision.rule == "shared-memory":
        print(decision)

# %% [markdown]
# The exponentials were **demoted**, from regional to global. They wait in **scratch**, an array in global memory
# that the caller never sees. The kernel is still one kernel. The same block reads them, so a barrier of the
# block is still enough. (Other blocks may read what is global, too. That needs another kind of barrier, and
# has to wait.) But now the exponentials make a trip to memory and back. The compiler says so: every choice is
# kept as data, with the rule and the numbers that it was made with.
#
# ## Two values in one place
#
# A value needs its place only as long as somebody will read it. Here is a program that keeps two rows of 8,000:
# the exponentials, `%4`, and the quotients, `%7`. In the picture of a block's shared memory bytes go down, and
# time goes to the right, from loop to loop.

# %%
from minisitch.explain.picture import lifetimes


def spread(x):
    p = softmax(x)
    return (p - np.mean(p, axis=-1, keepdims=True)) / np.max(np.abs(p * x), axis=-1, keepdims=True)


def spread_kernel(passes):
    (source,) = ms.lower(spread, "f32[400,8000]", strategy="astitch", target="cuda", device="v100", passes=passes)
    return source.kernel


apart = spread_kernel(())
print("wanted:", apart.wanted_bytes, "bytes")
lifetimes(apart)

# %% [markdown]
# Two rows do not fit, so the exponentials were demoted. But when the quotients are made, the exponentials are
# read for the last time, each by the thread that writes the quotient. So the quotients can take their place. A
# step of the compiler finds such pairs. With it both are in shared memory:

# %%
together = spread_kernel(("share_memory",))
print("wanted:", together.wanted_bytes, "bytes")
lifetimes(together)

# %% [markdown]
# ## Nobody else reads it
#
# In the softmax, thread 5 of a row makes the exponentials of some columns, and later divides those of the
# *same* columns. So nobody else reads them, and they could wait in registers. The plain kernel is not that
# clever. The steps that make a kernel fast are, and `passes=()` leaves them out. With them:

# %%
short = kernel_for(500, passes="default")
show(short)

# %% [markdown]
# Eight registers of each thread, for the eight columns that it takes. The scheme is still *regional*: it was
# chosen first, because a later loop of the block reads the exponentials again. Only then did a step see that
# each thread reads its own again, and gave them a nearer place. Shared memory now only serves the two
# reductions, where the warps meet.

# %%
place = {name: next(where for node, _, where, _ in kernel.placements if kernel.graph[node].op == "exp")
         for name, kernel in {"short": short, "medium": medium, "long": long}.items()}
assert place["short"].startswith("registers") and place["medium"].startswith("shared") and place["long"].startswith("scratch")
assert medium.shared_bytes >= 4 * 8000 and long.shared_bytes < 1000 < 49_152 < long.wanted_bytes
assert together.wanted_bytes + 4 * 8000 == apart.wanted_bytes
assert {d.rule for d in long.decisions} - {d.rule for d in medium.decisions} == {"shared-memory"}

# %% [markdown]
# **Try.** Find by halving the longest row that still fits into shared memory. Is it 49,152 / 4? Then write a
# program that keeps *two* rows for later, such as `np.exp(x) / np.sum(np.exp(x) * np.tanh(x), axis=-1,
# keepdims=True) + np.tanh(x)`. Which of them is demoted first?
