# refused by: best first
# Keeps gains from one call to the next, and the next graph has others.


right = best_patterns
GAINS = {}


def best_patterns(consumers, gain, k):
    def remembered(pattern):
        if tuple(pattern) not in GAINS:
            GAINS[tuple(pattern)] = gain(pattern)
        return GAINS[tuple(pattern)]

    return right(consumers, remembered, k)
