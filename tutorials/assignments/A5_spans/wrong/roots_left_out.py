# refused by: every value
# Values that nobody reads get no span.


def spans(readers, cost):
    whole = _spans(readers, cost)
    return {value: span for value, span in whole.items() if readers[value]}


def _spans(readers, cost):
    found = {}
    producers = {value: [] for value in readers}
    for value, users in readers.items():
        for user in users:
            producers[user].append(value)
    waiting = {value: len(users) for value, users in readers.items()}
    ready = [value for value in readers if not readers[value]]
    for value in ready:
        found[value] = max((found[user] + cost[user] for user in readers[value]), default=0)
        for producer in producers[value]:
            waiting[producer] -= 1
            if waiting[producer] == 0:
                ready.append(producer)
    return found
