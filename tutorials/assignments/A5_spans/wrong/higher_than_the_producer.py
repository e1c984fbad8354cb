# refused by: circle
# A reader outside counts if it is above the producer. None ever is: only the root's layer matters.


def grow(root, readers, spans, fits):
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
            user for user in readers[producer] if user not in taken and spans[user] > spans[producer]
        ]
        if outside or not fits(taken, producer):
            given_up.append(producer)
            continue
        taken.append(producer)
        frontier.update(value for value in producers[producer] if value not in visited)
    return taken, given_up
