# %% [markdown]
# # A graph: what the compiler sees of your program
#
# A compiler cannot read a Python function line by line and know what it computes. So it *runs* the function
# once, with a stand-in for the array that computes nothing and writes down every operation instead. That is
# called tracing, and what is written down is a **graph**: a flat list of operations, each with a number, a type
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
# Read it from the top. `%0` is the argument: `f32[4,8]`, a float32 array of 4 rows and 8 columns. `%1` folds
# axis 1 away and keeps it as an axis of length 1. NumPy would stretch that axis silently when it subtracts;
# here the stretching is an operation of its own, `broadcast`, because for a GPU it is the whole point: **one
# element made by one thread is about to be read by eight.** Each line ends with the line of your program it
# came from.
#
# ## A value used twice
#
# `e` is used twice: by the sum and by the quotient. In the graph that is nothing special, it is one line whose
# number appears in two others. But it is the reason this compiler exists. A compiler that pastes `exp` into
# each place that uses it computes every exponential twice; one that cuts the program there writes `e` to memory
# and reads it back.

# %%
exp = next(node for node in graph.nodes if node.op == "exp")
readers = [graph[user].op for user in graph.users[exp.id]]
print(f"%{exp.id} is read by", readers)

# %% [markdown]
# ## The text is the graph
#
# What is printed can be read back. Nothing is hidden in the objects that the text does not show, so you can
# write a program by hand, or change one, and hand it to any later stage.

# %%
from minisitch.trace.parser import parse

again = parse(str(graph))
print("equal to what was printed:", again == graph)

doubled = parse("""\
%0: f32[4,8] = input name='x'
%1: f32[4,8] = add %0 %0
return %1""")

# %% [markdown]
# Types are worked out in one place and checked, so a program that makes no sense is refused with the reason.

# %%
from minisitch.errors import GraphError

try:
    parse("""\
%0: f32[4,8] = input name='x'
%1: f32[4,1] = sum %0 axes=(1,) keepdims=True
%2: f32[4,8] = add %0 %1
return %2""")
except GraphError as refusal:
    message = str(refusal)
    print(message)

# %% [markdown]
# ## What it means
#
# The meaning of a graph is one NumPy call per line, in order. It is slow and obvious, and everything faster is
# judged by it.

# %%
from minisitch.reference import evaluate

values = np.arange(32, dtype=np.float32).reshape(4, 8)
(meaning,) = evaluate(graph, [values])
print(meaning[0].round(3))

# %%
assert again == graph
assert len(readers) == 2, "a value used twice"
assert "broadcast first" in message
assert np.allclose(meaning, softmax(values))
assert np.array_equal(evaluate(doubled, [values])[0], 2 * values)

# %% [markdown]
# **Try.** Take the `broadcast` lines out of the softmax by hand, number the rest anew, and `parse` the result. Which line is
# refused, and why is it right to refuse it?
