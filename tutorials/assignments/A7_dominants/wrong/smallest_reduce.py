# refused by: preference
# Of several reduces the one that reads the fewest elements.


right = groups


def groups(ops, candidates):
    found = []
    for dominant, members in right(ops, candidates):
        reduces = [value for value in members if ops[value][0] == "reduce"]
        found.append(
            (min(reduces, key=lambda v: (ops[ops[v][1][0]][2], v), default=dominant), members)
        )
    return found
