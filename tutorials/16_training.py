# %% [markdown]
# # Training: the backward pass is one more graph
#
# 15 minutes. **New words**: gradient, backward pass.
#
# A network learns by small steps. Each step asks of every weight: if I grow a little, how much does the loss
# grow? The answers are the **gradient** of the loss, an array as large as the weights. Nobody writes them by
# hand. `ms.grad` makes them from the program.

# %%
import numpy as np
import minisitch as ms


def loss(x):
    return np.sum(np.sin(x) * x)


x = np.array([0.5, 1.0, 2.0])
slopes = ms.grad(loss)(x)
h = 1e-6
measured = [(loss(x + h * e) - loss(x - h * e)) / (2 * h) for e in np.eye(3)]
print(slopes)
print(np.array(measured))

# %% [markdown]
# Both say the same. The second way calls the program twice for each number. The first way makes a new
# program, whatever the number of weights. Look at it:

# %%
print(ms.lower(ms.grad(loss), x, stop_after="trace"))

# %% [markdown]
# The first lines are the program itself. Then comes a constant 1: the loss grows by 1 where it
# grows by 1. Then the program is read from its last node to its first. Each node has a gradient, and hands
# a part to each operand by the rule of its operation:
#
# | node | what its operands get |
# |---|---|
# | `y = sin x` | `g * cos x` |
# | `y = mul a b` | `g * b` and `g * a` |
# | `y = sum x` | `g`, repeated for each element |
# | `y = broadcast x` | the sum of `g` over the copies |
#
# `x` has two readers, so what it gets from both is added up. This second half is the **backward pass**. It
# is a list of the same operations as before, so every strategy fuses it, and nothing of the compiler knows
# that it is a backward pass. Here are two rules, as the compiler has them:

# %%
from minisitch.grad import rules

g, y, x0 = 1.0, np.exp(2.0), 2.0
print("exp:", rules.ELEMENTWISE["exp"](g, y, x0), "which is exp(2) =", np.exp(2.0))
print("mul:", rules.ELEMENTWISE["mul"](g, 6.0, 2.0, 3.0))

# %% [markdown]
# ## What it must keep
#
# The rule of `exp` needs `y`, and the rule of `sin` needs `x`. The forward half has computed both, long ago.
# Between the halves stand the products of the network, which are library calls. So the values wait in memory,
# for the whole way there and back. For large networks they are most of the memory.
#
# A kernel can also make a value again from what it reads anyway. That costs arithmetic, and saves two trips:

# %%
def layer(x, w, v):
    h = x @ w
    a = 0.5 * h * (1 + np.tanh(0.8 * (h + 0.045 * h * h * h)))  # GELU: six values, one after another
    return np.sum((a @ v) ** 2)


shapes = "f32[512,256]", "f32[256,256]", "f32[256,256]"
report = ms.explain(ms.grad(layer, argnums=(1, 2)), *shapes, strategy="astitch", target="cuda", device="a100")
again = [d for d in report.decisions if d.verdict == "recompute"]
print(next(line for line in str(report).splitlines() if "stored between" in line))
for decision in again[:3]:
    print(decision.why)

# %% [markdown]
# `h` must be kept: only a product could make it again. All that follows from `h` is cheap beside a trip to
# memory, so the kernel of the backward pass makes it a second time. Each such choice is a decision, with
# its bytes and its microseconds.
#
# ## What need not be differentiated
#
# A softmax subtracts the row's maximum, so that `exp` does not overflow. The maximum cancels out: whatever is
# subtracted, the result is the same, so its part of the gradient adds up to 0. The compiler cannot know that. It
# builds a mask of where the maximum is, counts ties, and adds up two more rows. `ms.stop_gradient` says that a
# value is a constant:

# %%
def softmax(x, top):
    e = np.exp(x - top(np.max(x, axis=-1, keepdims=True)))
    return e / np.sum(e, axis=-1, keepdims=True)


def backward(top):
    return ms.grad(lambda x: np.sum(softmax(x, top) ** 2))


rows = np.random.default_rng(0).normal(size=(64, 128)).astype(np.float32)
sizes = {}
for name, top in (("differentiated", lambda m: m), ("stopped", ms.stop_gradient)):
    graph = ms.lower(backward(top), rows, stop_after="simplify")
    sums = sum(n.kind == "reduce" for n in graph.nodes)
    sizes[name] = len(graph), backward(top)(rows)
    print(f"the maximum {name}: {len(graph)} operations, {sums} reductions")

# %% [markdown]
# ## A step
#
# Forward, backward and the change of the weights are one function, compiled as a whole. The weights are
# written in place.

# %%
def error(weights, x, y):
    guess = np.tanh(x @ weights["w"]) @ weights["v"]
    return np.mean((guess - y) ** 2)


@ms.jit
def step(weights, x, y):
    value, slope = ms.value_and_grad(error)(weights, x, y)
    for name in weights:
        weights[name] -= 0.1 * slope[name]
    return value


random = np.random.default_rng(1)
weights = {"w": random.normal(size=(2, 16)), "v": random.normal(size=(16, 1)) * 0.1}
points = random.normal(size=(64, 2))
target = np.sin(2 * points[:, :1])
losses = [float(step(weights, points, target)) for _ in range(300)]
for i in range(0, 300, 60):
    print(f"step {i:3}: {losses[i]:.4f} {'#' * int(40 * losses[i] / losses[0])}")

# %%
assert np.allclose(slopes, np.cos(x) * x + np.sin(x)) and np.allclose(slopes, measured)
assert again and "stored between kernels" in str(report)
assert sizes["stopped"][0] < sizes["differentiated"][0]
assert np.allclose(sizes["stopped"][1], sizes["differentiated"][1], atol=1e-6)
assert losses[-1] < losses[0] / 3

# %% [markdown]
# **Try.** Differentiate twice: `ms.grad(ms.grad(lambda a: a ** 4))(2.0)`. Then look for the operation without
# a rule that `ms.grad(lambda x: np.sum(np.cbrt(x)))(x)` names, and give `cbrt` its own with `ms.custom_vjp`. Why is the
# gradient of `np.max` at two equal elements half for each?
