# refused by: above
# One pass from the largest id to the smallest, as if ids were an order.


def spans(readers, cost):
    found = {value: 0 for value in readers}
    for value in sorted(readers, reverse=True):
        found[value] = max((found[user] + cost[user] for user in readers[value]), default=0)
    return found
