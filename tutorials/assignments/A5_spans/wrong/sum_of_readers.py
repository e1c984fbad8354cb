# refused by: tight
# The spans of all readers are added up.


def spans(readers, cost):
    found = {}
    producers = {value: [] for value in readers}
    for value, users in readers.items():
        for user in users:
            producers[user].append(value)
    waiting = {value: len(users) for value, users in readers.items()}
    ready = [value for value in readers if not readers[value]]
    for value in ready:
        found[value] = sum(found[user] + cost[user] for user in readers[value])
        for producer in producers[value]:
            waiting[producer] -= 1
            if waiting[producer] == 0:
                ready.append(producer)
    return found
