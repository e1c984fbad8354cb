# refused by: together
# An input is put to its first reader and connects no others.


right = groups


def groups(ops, candidates):
    first = {}
    for value, (_, operands, _) in ops.items():
        for operand in operands:
            first.setdefault(operand, value)
    apart = {
        value: (
            kind,
            [each for each in operands if ops[each][0] != "input" or first[each] == value],
            size,
        )
        for value, (kind, operands, size) in ops.items()
    }
    found = []
    for _, members in right({**apart}, list(ops)[:0] or candidates_of(apart, candidates)):
        inside = [value for value in members if value in candidates]
        found.append((min(inside or members), members))
    return found


def candidates_of(ops, candidates):
    read = {operand for op in ops.values() for operand in op[1]}
    return [*candidates, *(value for value in ops if value not in read)]
