# refused by: together
# Cuts the edges that lead to a candidate, not those that leave it.


right = groups


def groups(ops, candidates):
    apart = {
        value: (kind, [] if value in candidates else operands, size)
        for value, (kind, operands, size) in ops.items()
    }
    found = []
    for _, members in right(apart, list(ops)):
        inside = [value for value in members if value in candidates]
        found.append((min(inside or members), members))
    return found
