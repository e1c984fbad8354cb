# refused by: again
# Breaks ties by chance.


import random

right = best_patterns


def best_patterns(consumers, gain, k):
    found = right(consumers, gain, k)
    for patterns in found:
        random.shuffle(patterns)
    return found
