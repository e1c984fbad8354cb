# %% [markdown]
# # Who may share a kernel: no circles
#
# 15 minutes. **New words**: circle, root, span, layer, contract.
#
# So far the compiler fused all it could. From here on the question is *which* operations may share a kernel,
# and which should. First: which may.
#
# Here is a program with a matrix product in its middle. A library does products better than a fused kernel
# would, so the product runs by itself.

# %%
import numpy as np
import minisitch as ms


def gated(x, w):
    a = np.exp(x)
    return a + np.tanh(a @ w)


graph = ms.lower(gated, "f32[64,64]", "f32[64,64]", stop_after="simplify")
print(graph)

# %% [markdown]
# The sum reads `exp`. So let both share a kernel, with `tanh`. A plan can be written by hand: the numbers of
# the operations that share a kernel.

# %%
try:
    ms.make_plan(graph, "by hand", [[2, 4, 5]])
except ms.PlanError as refusal:
    waits = str(refusal)
    print(waits)

# %% [markdown]
# The kernel needs the product, and the product needs `exp`, which the kernel makes. Each waits for the other.
# That is a **circle**, and no order of launches solves it. So the one rule of fusion is: *no way may lead out
# of a kernel and back into it.*
#
# ## Spans
#
# How does one see a circle before it closes? FusionStitching, a paper of 2018, numbers the operations. The
# last one is the **root**. The **span** of an operation is the longest way from it to a root. All operations
# of one span are a **layer**. Here are the spans of a softmax. They only depend on who reads whom.

# %%
from minisitch.explain.picture import Arrow, Box, layered
from minisitch.explain.svg import PALETTE
from minisitch.strategies.fs18.spans import spans


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


program = ms.lower(softmax, "f32[64,100]", stop_after="simplify")
span = spans({node.id: program.users[node.id] for node in program.nodes})
boxes = [Box((f"%{node.id} {node.op}", f"span {span[node.id]}"), PALETTE[span[node.id]]) for node in program.nodes]
layered(boxes, [Arrow(a, node.id) for node in program.nodes for a in node.args], "the spans of a softmax")

# %% [markdown]
# Every arrow goes from a higher span to a lower one. Why the *longest* way? The quotient reads `exp` directly,
# and also through the sum and its broadcast. By the shortest way `exp` would have span 1, like the broadcast,
# which waits for it.
#
# Two things follow. Operations of one layer never wait for each other, so any of them may share a kernel. And
# a way from an operation to the root passes only layers between theirs. So a kernel that grows from its root
# layer by layer sees every way before it could come back.
#
# ## Right alone, wrong together
#
# To **contract** operations is to make one of them, as a kernel does. Here `a` feeds `b`, and `c` feeds `d`.
# Which pairs may be contracted?

# %%
def contracted(readers, *pairs):
    """Who reads whom when each pair has become one operation."""
    name = {v: pair for pair in pairs for v in pair}
    found = {}
    for v, users in readers.items():
        one = name.get(v, v)
        found[one] = found.get(one, set()) | {name.get(u, u) for u in users} - {one}
    return found


two_chains = {"a": {"b"}, "b": set(), "c": {"d"}, "d": set()}
for pairs in (["ad"], ["bc"], ["ad", "bc"], ["ac", "bd"]):
    after = contracted(two_chains, *pairs)
    numbered = spans(after)
    print(f"{' and '.join(pairs):10}", dict(sorted(numbered.items())) if len(numbered) == len(after) else "a circle")

# %% [markdown]
# `a` and `d` may share a kernel, and so may `b` and `c`. Not both! Each choice is right alone. So after each
# contraction the spans have to be computed again. They then say it: when `ad` is one, `c` has span 2 and `b`
# has span 0, and the way from one to the other leads through `ad`. The pairs `ac` and `bd` are each of one
# layer, and both are fine.
#
# ## Growing a kernel
#
# The paper's Algorithm 1 starts at a root, and asks for producers, nearest layer first. One of them may not
# fit: it is too large, or it is a library call. Then all that is read by it is given up too. Here is the
# program of the beginning. The kernel's root is the sum, and the product does not fit.

# %%
from minisitch.strategies.fs18.layers import grow

readers = {node.id: graph.users[node.id] for node in graph.nodes}
asked = []


def fits(producer):
    asked.append(f"%{producer} {graph[producer].op}")
    return graph[producer].op not in ("matmul", "input")


taken, given_up = grow(5, lambda v: graph[v].args, lambda v: readers[v], spans(readers), fits)
print("asked:   ", ", ".join(asked))
print("taken:   ", [f"%{v} {graph[v].op}" for v in taken])
print("given up:", {f"%{v} {graph[v].op}": f"because of %{user} {graph[user].op}" for v, user in given_up.items()})

# %% [markdown]
# `exp` was never asked, although the root reads it. The product reads it too, and was refused: what goes
# through the product could come back. That is the circle of the beginning, seen before it closed.
#
# ## The strategy
#
# The strategy `fs18` does this for whole programs. It also packs: operations of one layer share a launch.
# The updates of twenty weights need nothing of each other.

# %%
def step(weights, slopes):
    return [w - 0.1 * g for w, g in zip(weights, slopes, strict=True)]


arguments = ["f32[100]"] * 20, ["f32[100]"] * 20
plans = {name: ms.lower(step, *arguments, strategy=name, target="cuda", device="v100", stop_after="fuse")
         for name in ("xla", "fs18")}
for name, plan in plans.items():
    print(f"{name:5} kernels: {len(plan.kernels)}")
print(plans["fs18"].decisions[0].why)

# %%
assert "circle" in waits
assert all(span[a] > span[node.id] for node in program.nodes for a in node.args)
assert len(spans(contracted(two_chains, "ad"))) == 3 and spans(contracted(two_chains, "ad", "bc")) == {}
assert taken == [4] and given_up == {2: 3}
assert (len(plans["xla"].kernels), len(plans["fs18"].kernels)) == (20, 1)

# %% [markdown]
# **Try.** Replace the longest way by the shortest in a `spans` of your own, and look for a program in which
# two operations of one layer wait for each other. Then give `grow` a function `fits` that refuses nothing.
# Which kernel comes out, and why is it right now to take `exp`? In assignment A5 you write both functions.
