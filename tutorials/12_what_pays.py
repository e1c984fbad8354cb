# %% [markdown]
# # What pays: gain, search, and the best plan there is
#
# 15 minutes. **New words**: gain, search, candidate, beam, optimum.
#
# Does it always pay to fuse? Here is a softmax, once with many short rows and once with 40 long ones. On its
# way to fused kernels the strategy `fs20` begins with those of `xla`, and asks for each set of them what
# fusing it would save. It is named after the second FusionStitching paper, of 2020.

# %%
import numpy as np
import minisitch as ms
from minisitch.explain import draw
from minisitch.strategies.fs20.explore import bits
from minisitch.strategies.fs20.delta import Evaluator

v100 = ms.DEVICES["v100"]


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def evaluator_for(function, shape):
    """Rates sets of the kernels that xla makes. A set is an integer: bit k stands for kernel k."""
    plan = ms.lower(function, shape, strategy="xla", target="cuda", device=v100, stop_after="fuse")
    return Evaluator(plan, v100)


short, long = evaluator_for(softmax, "f32[4000,1000]"), evaluator_for(softmax, "f32[40,100000]")
names = [short.graph[pattern.outputs[0]].op for pattern in short.plan.patterns]
print("kernels of xla:", names)
print(f"{'fused':18} {'4000 rows of 1000':>20} {'40 rows of 100000':>20}")
for kernels in (0b0110, 0b1100, 0b1110, 0b1111):
    gains = [f"{each.gain(kernels).us:.1f} us" for each in (short, long)]
    print(f"{' '.join(names[k] for k in bits(kernels)):18} {gains[0]:>20} {gains[1]:>20}")

# %% [markdown]
# The **gain** of a set is what its fusion saves, in microseconds. It has three terms.

# %%
print("4000 rows:", short.gain(0b1111))
print("40 rows:  ", long.gain(0b1111))

# %% [markdown]
# Memory and launches are saved in both cases. The third term is the penalty. A block that makes the maximum
# of a row has to stay with that row, and there are only 40 rows: 40 blocks on a GPU that runs 160 at once.
# Each kernel alone could use them all. So with long rows the best set is `exp`, `sum`, `div`, without `max`.
#
# The gain is a guess from shapes alone. That makes it fast: it is asked for thousands of sets.
#
# ## Which sets?
#
# Of `n` kernels there are `2 ** n` sets. A **search** that looks at all of them takes hours from about 30 kernels
# on. The paper looks at few sets. It goes from the last kernel to the first. The good sets that begin at a
# kernel are that kernel, joined with good sets that begin at its readers. Of these it keeps the best three,
# the **candidates** of the kernel.

# %%
from minisitch.strategies.fs20.explore import pattern_reduction

found = pattern_reduction(long.dag, long.score, long.allowed, best=3)
for k, candidates in enumerate(found):
    print(f"begin at {names[k]:4}:", "; ".join(f"{' '.join(names[v] for v in c.ids)} {c.score:.1f}" for c in candidates))

# %% [markdown]
# ## Which candidates together?
#
# Candidates overlap, and a kernel can be in one of them only. Taking the best first is not always right. Here
# are three kernels in a row. Fusing the first two gains 5, the last two 8, and all three do not fit.

# %%
from minisitch.strategies.fs20.beam import plans, search
from minisitch.strategies.fs20.explore import Dag

row = Dag([[1], [2], []])
worth = {0b011: 5.0, 0b110: 8.0}
three = pattern_reduction(row, lambda s: worth.get(s, 0.0), lambda s: s != 0b111)
for width in (1, 3):
    print("width", width, [(c.ids, c.score) for c in search(row, three, width)[0]])

# %% [markdown]
# A **beam** keeps the best few unfinished plans at each step, and not only the best one. With a beam of one
# plan, the gain of 5 comes first and blocks the gain of 8. The paper keeps three plans.
#
# ## Against the optimum
#
# Is that enough? For small programs all plans can be tried. Two softmaxes, one after the other, are eight
# kernels of `xla`. There are 4,140 ways to put eight things into heaps, and those with a circle do not count.
# What is best of all is the **optimum**.

# %%
from minisitch.strategies.fs18.spans import spans


def heaps(things):
    """Every way to put things into heaps; a heap is an integer, as above."""
    if not things:
        yield []
        return
    first, *rest = things
    for rest_of in heaps(rest):
        yield [1 << first, *rest_of]
        for k, heap in enumerate(rest_of):
            yield [*rest_of[:k], heap | 1 << first, *rest_of[k + 1:]]


def has_circle(dag, plan):
    """Whether heaps wait for each other: then spans leaves some of them out, as the last tutorial showed."""
    heap_of = {v: heap for heap in plan for v in bits(heap)}
    readers = {heap: {heap_of[c] for v in bits(heap) for c in dag.consumers[v]} - {heap} for heap in plan}
    return len(spans(readers)) < len(plan)


def total(rates, plan):
    return sum(rates.score(heap) for heap in plan)


reached = {}
for shape in ("f32[4000,1000]", "f32[40,100000]"):
    rates = evaluator_for(lambda x: softmax(softmax(x)), shape)
    legal = [plan for plan in heaps(range(len(rates.dag)))
             if all(map(rates.allowed, plan)) and not has_circle(rates.dag, plan)]
    best = max(legal, key=lambda plan: total(rates, plan))
    print(f"{shape}: the best of {len(legal)} legal plans gains {total(rates, best):.1f} us")
    for width in (3, 4):
        reached[shape, width] = total(rates, plans(rates, width)[0])
        print(f"    a beam of {width} finds one of {reached[shape, width]:.1f} us")

# %% [markdown]
# With short rows the beam finds the best plan, and rates a few dozen sets for it. With long rows it misses.
# The best plan leaves the first maximum alone. When the search has looked at that maximum, this plan has
# gained nothing yet. Three plans that begin with the maximum have gained a little, and push it off the beam.
# A beam of four keeps it.
#
# But best by what measure? By the guess above, and among kernels as `fs20` knows them. The compiler also has
# a search over *all* plans, with every kernel built and timed by a model. It takes at most 11 operations, and
# it is there to grade strategies. (`target="reference"` runs no kernel, so this works without a GPU.)

# %%
def centre(x):
    d = x - np.mean(x, axis=-1, keepdims=True)
    return d / np.sqrt(np.mean(d * d, axis=-1, keepdims=True) + 1e-5)


over = {}
print(f"{'program':24} {'xla':>6} {'fs20':>6}   times the optimum's time")
for function, shape in ((centre, "f32[512,768]"), (softmax, "f32[4,100000]")):
    graded = ms.compare(function, shape, target="reference", device="v100", strategies=("xla", "fs20"), optimum=True)
    over[function.__name__] = graded["fs20"].over_optimum
    ratios = [f"{graded[name].over_optimum:6.2f}" for name in ("xla", "fs20")]
    print(f"{function.__name__ + ' ' + shape:24}", *ratios, "  kernels of the optimum:", graded["optimum"].kernels)

# %% [markdown]
# On a normalisation `fs20` is within a few percent of the best. On a softmax with 4 long rows it takes twice
# the time. Its two kernels are the best that can be had without one thing that `fs20` does not have. The
# optimum is *one* kernel, which uses the whole GPU although there are only 4 rows. The next tutorial shows
# how.
#
# Here is the plan of `fs20`. The red arrows are trips through memory.

# %%
draw.graph(ms.lower(softmax, "f32[4,100000]", strategy="fs20", target="cuda", device=v100, stop_after="fuse"))

# %%
assert short.score(0b1111) > short.score(0b1110) > 0 and long.score(0b1110) > long.score(0b1111)
assert found[1][0].ids == (1, 2, 3)
assert search(row, three, 1)[0][0].score == 5 and search(row, three, 3)[0][0].score == 8
assert np.isclose(reached["f32[4000,1000]", 3], reached["f32[4000,1000]", 4])
assert reached["f32[40,100000]", 3] < reached["f32[40,100000]", 4] and np.isclose(reached["f32[40,100000]", 4], total(rates, best))
assert over["centre"] < 1.1 and over["softmax"] > 1.5

# %% [markdown]
# **Try.** Change the worths of `row` so that a beam of three also misses the best. How many kernels do you
# need? Then look for the number of rows, with 100,000 columns each, from which it pays to fuse all four
# kernels of a softmax. Compare it with the number of blocks that a V100 runs at once.
