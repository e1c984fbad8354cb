# refused by: pure
# Takes readers out of the lists that it was given, and leaves them empty.


def spans(readers, cost):
    original = {value: list(users) for value, users in readers.items()}
    found, ready = {}, [value for value in readers if not readers[value]]
    for value in ready:
        found[value] = max((found[user] + cost[user] for user in original[value]), default=0)
        for producer, users in readers.items():
            if value in users:
                users.remove(value)
                if not users:
                    ready.append(producer)
    return found
