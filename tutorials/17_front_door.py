# %% [markdown]
# # The front door is a list of operators
#
# 15 minutes. **New words**: decomposition, fall back.
#
# You have a model in PyTorch, with classes, hooks, a cache and a configuration. Must a compiler understand all
# that Python? No. PyTorch runs the model once on tensors without values, as `trace` does here, and writes down
# what it calls. The names it writes are those of one library, ATen. Here is what it writes for an RMSNorm
# (`x / sqrt(mean(x ** 2) + eps) * w`): a name, the operator, its arguments.

# %%
import numpy as np
import minisitch as ms

CALLS = [
    ("square", "pow", ("x", 2)),
    ("mean", "mean", ("square", (-1,), True)),
    ("more", "add", ("mean", 1e-6)),
    ("scale", "rsqrt", ("more",)),
    ("normal", "mul", ("x", "scale")),
    ("result", "mul", ("normal", "w")),
]

# %% [markdown]
# Whoever wrote the model, and however: a list like this arrives. So a front door is a table with one line for
# each operator. The line says what the operator means, in NumPy.

# %%
TABLE = {
    "pow": lambda x, n: x ** n,
    "mean": lambda x, axes, keep: np.mean(x, axis=axes, keepdims=keep),
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


def run(calls, values):
    """Call the operators in order. ``values`` holds what each name stands for."""
    for name, operator, arguments in calls:
        given = [values[a] if isinstance(a, str) else a for a in arguments]
        values[name] = TABLE[operator](*given)
    return values[calls[-1][0]]


def rmsnorm(x, w):
    return run(CALLS, {"x": x, "w": w})


random = np.random.default_rng(0)
x, w = random.normal(size=(64, 256)).astype(np.float32), random.normal(size=256).astype(np.float32)
print(ms.lower(rmsnorm, x, w, stop_after="simplify"))
print(len(ms.lower(rmsnorm, x, w, stop_after="fuse").kernels), "kernel")

# %% [markdown]
# The list became a graph, and the graph one kernel. Everything behind the door is what you know already.
#
# ## How many lines?
#
# PyTorch has about 1,500 operators. Most of them are made of others: `gelu` is a few products and an
# `erf`, `layer_norm` is two means and a square root. PyTorch knows these **decompositions**, and applies them
# before the list is handed over. About 160 remain. The table of `minisitch.torch_backend` has a hundred of
# them, and BERT, GPT-2, Llama, T5 and Qwen3 need no others, forward and backward.
#
# A decomposition is more than a saving. An operator that arrives whole is a call: nothing can be fused into it.
# One that comes apart can be stitched.

# %%
GELU = [
    ("half", "mul", ("x", 0.5)),
    ("small", "mul", ("x", 0.70710678)),
    ("bell", "erf", ("small",)),
    ("one", "add", ("bell", 1.0)),
    ("result", "mul", ("half", "one")),
]
TABLE["erf"] = ms.erf


def gelu(x):
    return run(GELU, {"x": x})


print(len(ms.lower(gelu, x, stop_after="fuse").kernels), "kernel")

# %% [markdown]
# ## What has no line
#
# Some operators will never have one: random numbers, a convolution, a sort. The model must run all the same. So
# the list is cut there. PyTorch runs that operator itself (we **fall back**), and our kernels run what is before
# and behind it. Here `topk` has no line.

# %%
SAMPLED = [
    ("sharp", "mul", ("x", 4.0)),
    ("best", "topk", ("sharp", 3)),
    ("less", "add", ("best", -1.0)),
    ("result", "mul", ("less", "less")),
]
PYTORCH = {"topk": lambda x, k: -np.sort(-x, axis=-1)[..., :k]}  # stands for PyTorch here


def parts(calls):
    """Runs of operators that have a line, and those between that have none."""
    found = []
    for call in calls:
        ours = call[1] in TABLE
        if not found or found[-1][0] != ours:
            found.append((ours, []))
        found[-1][1].append(call)
    return found


values = {"x": x}
for ours, calls in parts(SAMPLED):
    for name, operator, arguments in calls:
        print("kernel " if ours else "PyTorch", name, "=", operator, arguments)

# %% [markdown]
# Two programs of ours, and a call between. What a program reads of the others becomes its input.

# %%
for ours, calls in parts(SAMPLED):
    made = {name for name, _, _ in calls}
    read = sorted({a for _, _, arguments in calls for a in arguments if isinstance(a, str)} - made)
    if ours:
        def program(*given, calls=tuple(calls), read=tuple(read)):
            return run(calls, dict(zip(read, given, strict=True)))
        values[calls[-1][0]] = ms.jit(program)(*(values[name] for name in read))
    else:
        (name, operator, arguments), = calls
        values[name] = PYTORCH[operator](*(values.get(a, a) for a in arguments))

best = -np.sort(-x * 4, axis=-1)[:, :3] - 1
print("largest difference:", np.abs(values["result"] - best ** 2).max())

# %% [markdown]
# ## The real door
#
# It is `torch.compile(model, backend="minisitch")`, one file of 400 lines, and a third of them is the table.
# The rest is what this tutorial left out: each result gets the dtype that PyTorch says, backward graphs arrive
# the same way, tensors are shared and not copied, and a shape that changes makes another program.

# %%
try:
    import torch
except ImportError:
    print("PyTorch is not installed here: pip install 'minisitch[torch]'")
else:
    from minisitch import torch_backend
    print(torch_backend.explain(torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.GELU()), torch.randn(4, 8)))

got = ms.jit(rmsnorm)(x, w)
want = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(1e-6)) * w
assert np.allclose(got, want, rtol=1e-5)
assert len(ms.lower(rmsnorm, x, w, stop_after="fuse").kernels) == 1
assert np.array_equal(values["result"], best ** 2)

# %% [markdown]
# **Try.** `silu(x)` is `x * sigmoid(x)`. Write its list of calls without a new line in the table. One operator
# is missing: which, and what is the shortest line for it?
