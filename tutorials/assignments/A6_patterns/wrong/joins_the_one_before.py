# refused by: hangs together
# Joins a vertex with the vertex before it in the list, which it may not reach.

right = best_patterns


def best_patterns(consumers, gain, k):
    found = right(consumers, gain, k)
    return [
        [sorted({max(0, vertex - 1), vertex}), *patterns][:k]
        for vertex, patterns in enumerate(found)
    ]
