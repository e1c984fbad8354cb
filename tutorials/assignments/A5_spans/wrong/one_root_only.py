# refused by: every value
# Only what leads to the first root has a span.


def spans(readers, cost):
    root = next(value for value in readers if not readers[value])
    found, layer = {root: 0}, [root]
    while layer:
        user = layer.pop()
        for value in readers:
            if user in readers[value] and found.get(value, -1) < found[user] + cost[user]:
                found[value] = found[user] + cost[user]
                layer.append(value)
    return found
