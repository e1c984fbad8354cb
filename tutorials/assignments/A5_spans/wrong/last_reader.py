# refused by: above
# Only the last reader counts: each overwrites what the one before it said.


def spans(readers, cost):
    found = {value: 0 for value in readers}
    for _ in range(60):
        for value, users in readers.items():
            for user in users:
                found[value] = found[user] + cost[user]
    return found
