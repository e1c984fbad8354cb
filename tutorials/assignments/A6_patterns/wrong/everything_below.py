# refused by: good
# The only pattern of a vertex is all that it reaches.


def best_patterns(consumers, gain, k):
    reached = [{vertex} for vertex in range(len(consumers))]
    for vertex in reversed(range(len(consumers))):
        reached[vertex].update(*(reached[each] for each in consumers[vertex]))
    return [[sorted(each)] for each in reached]
