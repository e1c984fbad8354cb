# refused by: together
# Cuts the edges that lead to a candidate, not those that leave it.


def groups(ops, candidates):
    near = {value: set() for value in ops}
    for value, (_, operands, _) in ops.items():
        for operand in operands:
            if value not in candidates:
                near[operand].add(value)
                near[value].add(operand)
    found, seen = [], set()
    for start in ops:
        if start not in seen:
            members = [start]
            seen.add(start)
            for member in members:
                fresh = near[member] - seen
                seen |= fresh
                members += fresh
            inside = [value for value in members if value in candidates]
            found.append((min(inside or members), members))
    return found
