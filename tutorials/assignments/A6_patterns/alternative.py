"""A6 another way: sets are the bits of an integer, and consumers join one after the other."""

PREDICTIONS = [None, None, None]


def vertices(mask):
    return [vertex for vertex in range(mask.bit_length()) if mask >> vertex & 1]


def best_patterns(consumers, gain, k):
    count = len(consumers)
    below, above, producers = [0] * count, [0] * count, [[] for _ in consumers]
    for vertex in reversed(range(count)):
        for each in consumers[vertex]:
            below[vertex] |= below[each] | 1 << each
            producers[each].append(vertex)
    for vertex in range(count):
        for each in producers[vertex]:
            above[vertex] |= above[each] | 1 << each
    known, found = {}, {}

    def circles(mask):
        up = down = 0
        for vertex in vertices(mask):
            up, down = up | above[vertex], down | below[vertex]
        return bool(up & down & ~mask)

    def shortened(masks):
        for mask in masks - known.keys():
            known[mask] = gain(vertices(mask))
        ranked = sorted(masks, key=lambda mask: (-known[mask], -mask.bit_count(), vertices(mask)))
        good = [mask for mask in ranked if not circles(mask)][:k]
        return good, [mask for mask in ranked if circles(mask)][:k]

    # variant: begin
    steps = [(vertex, consumers[vertex]) for vertex in range(count - 1, -1, -1)]
    # end variant
    # variant: end
    steps = list(enumerate(producers))
    # end variant
    for vertex, others in steps:
        good, open_ones = shortened({1 << vertex})
        for other in others:
            joined = {one | each for one in good + open_ones for each in found[other]}
            good, open_ones = shortened(joined | set(good) | set(open_ones))
        found[vertex] = good
    return [[vertices(mask) for mask in found[vertex]] for vertex in range(count)]
