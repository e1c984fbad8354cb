# refused by: wide
# Every path is walked, and there are more paths than anyone can walk.


def spans(readers, cost):
    found = {}
    for value in readers:
        best, stack = 0, [(value, 0)]
        while stack:
            at, far = stack.pop()
            best = max(best, far)
            stack += [(user, far + cost[user]) for user in readers[at]]
        found[value] = best
    return found
