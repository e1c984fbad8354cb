"""A5: spans, and Algorithm 1 of FusionStitching (2018).

Write the two functions. The handout says what they return.
Then answer the three questions that `python -m minisitch.course questions A5 --student NAME` prints.
"""

PREDICTIONS = [None, None, None]


def spans(readers, cost):
    """The span of every value: 0 for a root, else the dearest path to a root.

    `readers` is a dict: each value, and a list of the values that read it.
    `cost` is a dict: each value, and a positive integer.
    Returns a dict: each value, and its span.
    """
    # solution: spans
    producers = {value: [] for value in readers}
    for value, users in readers.items():
        for user in users:
            producers[user].append(value)
    waiting = {value: len(users) for value, users in readers.items()}
    ready = [value for value, count in waiting.items() if count == 0]
    found = {}
    for value in ready:
        # variant: reader
        found[value] = max((found[user] + cost[user] for user in readers[value]), default=0)
        # end variant
        # variant: own
        found[value] = max((found[user] + cost[value] for user in readers[value]), default=0)
        # end variant
        for producer in producers[value]:
            waiting[producer] -= 1
            if waiting[producer] == 0:
                ready.append(producer)
    return found
    # end solution


def grow(root, readers, spans, fits):
    """Algorithm 1: the kernel that ends at `root`, and the producers that it gives up.

    `spans` is a dict: each value, and its span. `fits(taken, producer)` says whether the kernel
    still has a schedule when `producer` joins the values of the list `taken`.
    Returns a pair of lists, in the order in which the values were visited: those taken, the root
    first, and those given up.
    """
    # solution: grow
    producers = {value: [] for value in readers}
    for value, users in readers.items():
        for user in users:
            producers[user].append(value)
    taken, given_up = [root], []
    frontier = set(producers[root])
    visited = {root}
    while frontier:
        producer = min(frontier, key=lambda value: (spans[value], value))
        frontier.remove(producer)
        visited.add(producer)
        outside = [
            user for user in readers[producer] if user not in taken and spans[user] > spans[root]
        ]
        if outside or not fits(taken, producer):
            given_up.append(producer)
            continue
        taken.append(producer)
        frontier.update(value for value in producers[producer] if value not in visited)
    return taken, given_up
    # end solution
