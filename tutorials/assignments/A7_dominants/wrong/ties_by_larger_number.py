# refused by: preference (hidden)
# Of equal reduces the one with the larger number.


right = groups


def groups(ops, candidates):
    found = []
    for dominant, members in right(ops, candidates):
        reduces = [value for value in members if ops[value][0] == "reduce"]
        found.append(
            (max(reduces, key=lambda v: (ops[ops[v][1][0]][2], v), default=dominant), members)
        )
    return found
