# refused by: preference
# A heavy operation is preferred to a reduce, because it takes longer.


right = groups


def groups(ops, candidates):
    found = []
    for dominant, members in right(ops, candidates):
        heavy = [value for value in members if value in candidates and ops[value][0] == "heavy"]
        found.append((min(heavy, default=dominant), members))
    return found
