# refused by: together
# An input is put to its first reader and connects no others.


def groups(ops, candidates):
    near, used = {value: set() for value in ops}, set()
    for value, (_, operands, _) in ops.items():
        for operand in operands:
            if operand not in candidates and operand not in used:
                near[operand].add(value)
                near[value].add(operand)
            if ops[operand][0] == "input":
                used.add(operand)
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
