# refused by: again
# Takes edges out of the graph that it was given.


right = best_patterns


def best_patterns(consumers, gain, k):
    found = right(consumers, gain, k)
    for readers in consumers:
        del readers[:1]
    return found
