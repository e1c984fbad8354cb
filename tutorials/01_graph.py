# %% [markdown]
# # A graph: a program is a list
#
# 8 minutes. **New words**: graph, trace, node, broadcast.
#
# A compiler cannot guess from a Python function what it computes. So it *runs* the function once, with a
# stand-in for the array. The stand-in computes nothing and writes down every operation. That is called to
# **trace** the function. What is written down is a **graph**: a list of operations. Each has a number, a type
# and its operands.

# %%
import numpy as np
import minisitch as ms


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


x = np.zeros((4, 8), np.float32)
graph = ms.lower(softmax, x, stop_after="trace").graph
print(graph)

# %% [markdown]
# Read it from the top. Each line is a **node**. `%0` is the argument: `f32[4,8]` is a float32 array of 4 rows
# and 8 columns. `%1` is `np.max` over axis 1, with NumPy's `keepdims`: 4 rows and 1 column. The words behind
# `#` say which line of your program a node comes from.
#
# `%2` is something that you did not write. To subtract `%1` from `%0`, NumPy repeats its one column 8 times,
# silently. Here that is an operation of its own, **broadcast**: each element of `%1` is about to be read 8
# times.
#
# ## A value used twice
#
# `e` is used twice, by the sum and by the quotient. In the graph it is one node, and two other nodes name its
# number.

# %%
from minisitch.explain import draw

exp = next(node for node in graph.nodes if node.op == "exp")
readers = [graph[user].op for user in graph.users[exp.id]]
print(f"%{exp.id} exp is read by", readers)
draw.graph(graph)

# %% [markdown]
# The picture is the same graph, with the values that are used twice in colour. They are the reason this
# compiler exists. A compiler that puts `exp` into both of its readers computes every exponential twice. A
# compiler that ends a kernel there writes `e` to memory and reads it back.
#
# ## The text is the graph
#
# What was printed can be read back, and nothing is missing. So you can write a program by hand, or change
# one, and compile it.

# %%
again = ms.parse(str(graph))
print("equal to what was printed:", again == graph)

doubled = ms.parse("""\
%0: f32[4,8] = input name='x'
%1: f32[4,8] = add %0 %0
return %1""")
print("written by hand:", [node.op for node in doubled.nodes])

# %% [markdown]
# The compiler works out the type of every node, and compares. A program that makes no sense is refused, with
# the reason.

# %%
try:
    ms.parse("""\
%0: f32[4,8] = input name='x'
%1: f32[4,1] = sum %0 axes=(1,) keepdims=True
%2: f32[4,8] = add %0 %1
return %2""")
except ms.GraphError as refusal:
    message = str(refusal)
    print(message)

# %%
assert again == graph
assert readers == ["sum", "div"], "a value used twice"
assert "broadcast first" in message

# %% [markdown]
# **Try.** Copy the printed softmax, take out the two `broadcast` lines, and number the rest anew. Which line
# does `ms.parse` refuse? Why is it right to refuse it?
