# refused by: tight
# The farthest reader and the dearest step are chosen independently of each other.


def spans(readers, cost):
    found = {}
    producers = {value: [] for value in readers}
    for value, users in readers.items():
        for user in users:
            producers[user].append(value)
    waiting = {value: len(users) for value, users in readers.items()}
    ready = [value for value in readers if not readers[value]]
    for value in ready:
        found[value] = max((found[user] for user in readers[value]), default=0) + max(
            (cost[user] for user in readers[value]), default=0
        )
        for producer in producers[value]:
            waiting[producer] -= 1
            if waiting[producer] == 0:
                ready.append(producer)
    return found
