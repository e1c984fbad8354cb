# refused by: roots
# Spans are counted from the inputs down, not from the roots up.


def spans(readers, cost):
    found = {value: 0 for value in readers}
    for _ in range(60):
        for value, users in readers.items():
            for user in users:
                found[user] = max(found[user], found[value] + cost[user])
    return found
