# refused by: preference
# The rule of the other variant: of several reduces the one with the largest result.


right = groups


def groups(ops, candidates):
    found = []
    for dominant, members in right(ops, candidates):
        reduces = [value for value in members if ops[value][0] == "reduce"]
        found.append((min(reduces, key=lambda v: (-ops[v][2], v), default=dominant), members))
    return found
