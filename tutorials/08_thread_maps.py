# %% [markdown]
# # Thread maps: who computes what
#
# 12 minutes. **New words**: thread map, multiprocessor, wave, packing, splitting, chunk.
#
# So far a row had a block of its own. That is simple, and for many shapes bad. A V100 has 80
# **multiprocessors**. Each runs two blocks of 1024 threads at a time, so 160 blocks run at once. That is a
# **wave**. Blocks that do not fit wait until others end.

# %%
import minisitch as ms
from minisitch.explain.picture import thread_map
from minisitch.stitch.mapping import map_rows

v100 = ms.DEVICES["v100"]
print("one wave:", v100.wave(1024), "blocks of 1024 threads")
for rows, columns in ((750_000, 32), (64, 30_000)):
    print(f"{rows} rows of {columns}, a block a row:", map_rows(rows, columns, v100, adaptive=False).why)

# %% [markdown]
# - 750,000 rows of 32 columns: 750,000 blocks with one warp each. Each does next to nothing.
# - 64 rows of 30,000 columns: 64 blocks. 96 of 160 places are empty. More than half of the GPU has nothing to do.
#
# A **thread map** says which block and which thread computes which element. AStitch, the paper, makes it from
# the shape.
#
# ## Many short rows: packing
#
# **Packing** gives a block of 1024 threads 32 rows at once, and then the next 32, in turn. In the picture a
# cell is a thread and a colour is a block.

# %%
packed = map_rows(750_000, 32, v100)
print(f"{packed.rule}: {packed.blocks} blocks, {packed.rows_per_block} rows at once, {packed.steps} times in turn")
thread_map(packed)

# %% [markdown]
# ## Few long rows: splitting
#
# **Splitting** cuts a row into **chunks**, and each chunk has a block. A sum then has a part from each chunk,
# and somebody must add up the parts.

# %%
split = map_rows(64, 30_000, v100)
print(f"{split.rule}: {split.blocks} blocks, {split.splits} for each row, {split.chunk} columns each")
thread_map(split)

# %% [markdown]
# ## Your map
#
# A step of the compiler is a function, and yours can take its place. The compiler checks what comes back.
# Here is a map that forgets that blocks have to come again: each of 160 blocks takes 32 rows, once.

# %%
from dataclasses import replace


def once(rows, cols, device, **wishes):
    right = map_rows(rows, cols, device, **wishes)
    return replace(right, steps=1)


def row_sums(x):
    return x.sum(axis=-1)


try:
    with ms.swapped("map_rows", once):
        ms.lower(row_sums, "f32[750000,32]", strategy="astitch", target="cuda", device="v100")
except ms.PassError as refusal:
    forgotten = refusal
    print(refusal)

# %%
assert v100.wave(1024) == 160
assert (packed.blocks, packed.rows_per_block, packed.steps) == (160, 32, 147)
assert packed.blocks * packed.rows_per_block * packed.steps >= 750_000
assert split.blocks == 128 and split.splits * split.chunk >= 30_000
assert forgotten.name == "map_rows"

# %% [markdown]
# **Try.** Ask for the maps of 1 row of 10,000,000 columns, and of 160 rows of 30,000. Why is the second one
# not split? Then write a map of your own for short rows that gives each block 16 rows instead of 32. Is it
# accepted? How many threads does a block have then?
