# %% [markdown]
# # What it means: two honest answers differ
#
# 8 minutes. **New words**: reference, rounding, error bound.
#
# A fused program must mean what the NumPy program means. The **reference** is the meaning: one NumPy call for
# each node of the graph, in order. It is slow and obvious.

# %%
import numpy as np
import minisitch as ms
from minisitch.reference import evaluate


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


x = np.random.default_rng(0).standard_normal((4, 1000)).astype(np.float32)
graph = ms.lower(softmax, x, stop_after="trace").graph
(meaning,) = evaluate(graph, [x])
ours = ms.jit(softmax, target="cpu")(x)
print("equal to NumPy in", np.count_nonzero(ours == meaning), "of", meaning.size, "elements")

# %% [markdown]
# Not in all! Is the fused program wrong? No. A float32 has 24 binary digits, so every operation rounds its
# result: that is **rounding**. NumPy and a kernel add up a row in different orders, and round differently on
# the way. Here is the plainest case: the same ten numbers, added from the left and from the right.

# %%
tenths = np.array([1.0] + [1e-8] * 9, np.float32)
left, right = np.float32(0), np.float32(0)
for number in tenths:
    left += number
for number in tenths[::-1]:
    right += number
print(f"from the left {left:.9f}, from the right {right:.9f}, in float64 {tenths.astype(np.float64).sum():.9f}")

# %% [markdown]
# From the left each tiny number is lost beside the 1. From the right the tiny numbers are added up first, and
# their sum is large enough to count. Both answers are honest. So "equal to NumPy" is the wrong question. The
# right one is: *how far from the true result may an honest program be?*
#
# The function `judge` answers it. It runs the graph in float64 and takes that for the truth. Then it follows
# the rounding of each operation through the graph. What comes out is an **error bound** for every element: an
# honest program is never farther away. It is worked out from the program, not guessed, so nobody has to
# choose a tolerance.

# %%
import textwrap

from minisitch.testing import judge
from minisitch.testing.judge import error_bounds

((exact, bound),) = error_bounds(graph, [x])
(verdict,) = judge(graph, [x], [ours])
(refused,) = judge(graph, [x], [ours + np.float32(1e-4)])
print("ours:", "accepted" if verdict.ok else "refused")
print("ours + 0.0001:", "accepted" if refused.ok else "refused")
print(textwrap.fill(refused.why, 100))

# %% [markdown]
# Here is one element on a ruler. To the right is farther from the truth, and each step is ten times as far.

# %%
from minisitch.explain import draw

answers = {"NumPy": meaning, "ours": ours, "ours + 0.0001": ours + np.float32(1e-4)}
far = {name: float(abs(answer[0, 0] - exact[0, 0])) for name, answer in answers.items()}
draw.ruler(far, float(bound[0, 0]))

# %% [markdown]
# ## No law of school
#
# Rounding has a consequence for compilers. In school `(x - y) + y` is `x`. With rounding it is not, so a
# compiler that "simplifies" it changes the program. This compiler only makes changes that change no bit.

# %%
def there_and_back(x, y):
    return (x - y) + y


one, large = np.float32(1), np.float32(1e9)
print("1 - 1e9 + 1e9 =", there_and_back(one, large))
print(ms.lower(there_and_back, np.ones(3, np.float32), np.ones(3, np.float32), stop_after="simplify"))
print(ms.lower(lambda x: (x * 1) + (x * 1), np.ones(3, np.float32), stop_after="simplify"))

# %% [markdown]
# The first program stays as it is, a difference and a sum. In the second, `x * 1` is `x`, to the last bit and
# for every float32. So both products are gone.

# %%
assert verdict.ok and not refused.ok
assert left != right
assert there_and_back(one, large) != one
kept = ms.lower(there_and_back, "f32[3]", "f32[3]", stop_after="simplify")
assert [node.op for node in kept.nodes] == ["input", "input", "sub", "add"]

# %% [markdown]
# **Try.** Which of these may a compiler replace: `x * 0` by `0`, `x + 0` by `x`, `x / 2` by `x * 0.5`, `x /
# 3` by `x * (1 / 3)`? Look for a float32 that tells the two apart (`nan`, `-0.0` and `inf` count), then ask
# `stop_after="simplify"` what this compiler does.
