# refused by: form
# Leaves out patterns that gain nothing, also the vertex alone.


def best_patterns(consumers, gain, k):
    near, order = consumers, list(reversed(range(len(consumers))))
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
        found[vertex] = [
            each for each in combine(vertex, near[vertex]) if convex(each) and gains[each] > 0
        ][:k]
    return [[sorted(each) for each in patterns] for patterns in found]
