# refused by: deep
# Recursion once per operation: a long chain is too deep for Python's stack.


def groups(ops, candidates):
    near = {value: [] for value in ops}
    for value, (_, operands, _) in ops.items():
        for operand in operands:
            if operand not in candidates:
                near[operand].append(value)
                near[value].append(operand)
    seen, found = set(), []

    def collect(value):
        seen.add(value)
        return [value] + [
            other for each in near[value] if each not in seen for other in collect(each)
        ]

    for start in ops:
        if start not in seen:
            members = collect(start)
            found.append((min(set(members) & set(candidates)), members))
    return found
