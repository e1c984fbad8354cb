"""A6: PatternReduction of FusionStitching (2020): the best patterns of each vertex.

Write the function. The handout says what it returns.
Then answer the three questions that `python -m minisitch.course questions A6 --student NAME` prints.
"""

PREDICTIONS = [None, None, None]


def best_patterns(consumers, gain, k):
    """For each vertex a list of its `k` best patterns, best first.

    `consumers` is a list: at place v the list of the vertices that read v, which have larger numbers.
    `gain(pattern)` says what it is worth to make one kernel of a pattern, an int. A pattern is a sorted list of
    vertices. Returns a list: at place v a list of patterns.
    """
    # solution: best_patterns
    # variant: begin
    near, order = consumers, list(reversed(range(len(consumers))))
    # end variant
    # variant: end
    near, order = [[] for _ in consumers], list(range(len(consumers)))
    for producer in order:
        for consumer in consumers[producer]:
            near[consumer].append(producer)
    # end variant
    reached = [set() for _ in consumers]
    for vertex in order:
        reached[vertex].update(near[vertex], *(reached[each] for each in near[vertex]))
    found = [[] for _ in consumers]
    gains = {}

    def convex(pattern):
        between = set().union(*(reached[each] for each in pattern)) - pattern
        return not any(reached[each] & pattern for each in between)

    def best(pool):
        for pattern in pool:
            if pattern not in gains:
                gains[pattern] = gain(sorted(pattern))
        ranked = sorted(set(pool), key=lambda each: (-gains[each], -len(each), sorted(each)))
        closed = [each for each in ranked if convex(each)]
        return closed[:k] + [each for each in ranked if each not in closed][:k]

    def combine(vertex, group):
        if len(group) > 2:
            half = len(group) // 2
            left, right = combine(vertex, group[:half]), combine(vertex, group[half:])
            return best([*left, *right, *(one | other for one in left for other in right)])
        pool = [frozenset([vertex])]
        for each in group:
            pool += [one | other for one in pool for other in found[each]]
        return best(pool)

    for vertex in order:
        found[vertex] = [each for each in combine(vertex, near[vertex]) if convex(each)][:k]
    return [[sorted(each) for each in patterns] for patterns in found]
    # end solution
