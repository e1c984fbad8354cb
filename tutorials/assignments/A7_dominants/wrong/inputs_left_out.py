# refused by: partition
# Inputs are no operations: they are in no group.


right = groups


def groups(ops, candidates):
    return [
        (dominant, [value for value in members if ops[value][0] != "input"])
        for dominant, members in right(ops, candidates)
    ]
