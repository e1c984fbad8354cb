# refused by: root first
# The root is not among the values taken.


def grow(root, readers, spans, fits):
    producers = {
        value: [other for other, users in readers.items() if value in users] for value in readers
    }
    taken, given_up, frontier, visited = [root], [], set(producers[root]), {root}
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
    return taken[1:], given_up
