# refused by: form
# Lists the members of a pattern in the order in which they joined.


right = best_patterns


def best_patterns(consumers, gain, k):
    return [[each[::-1] for each in patterns] for patterns in right(consumers, gain, k)]
