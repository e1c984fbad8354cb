# refused by: count
# Tries every set of what a vertex reaches.


right = best_patterns


def best_patterns(consumers, gain, k):
    for choice in range(1, 1 << min(11, len(consumers))):
        gain([vertex for vertex in range(len(consumers)) if choice >> vertex & 1])
    return right(consumers, gain, k)
