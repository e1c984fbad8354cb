# refused by: good
# Every vertex is a pattern of its own.


def best_patterns(consumers, gain, k):
    return [[[vertex]] for vertex in range(len(consumers))]
