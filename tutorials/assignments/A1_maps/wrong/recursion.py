# refused by: deep
# Recursion once per operation: a long chain is too deep for Python's stack.


def fuse_maps(ops, returned):
    readers = {value: set() for value in ops}
    for reader, (_, operands) in ops.items():
        for operand in operands:
            readers[operand].add(reader)
    kernels, place = [], {}

    def visit(value):
        if value in place:
            return place[value]
        (reader,) = readers[value] if len(readers[value]) == 1 else (None,)
        maps = ("map", "heavy")
        joins = reader is not None and value not in returned and ops[value][0] in maps
        if joins and ops[reader][0] in maps:
            place[value] = visit(reader)
        else:
            kernels.append([])
            place[value] = len(kernels) - 1
        kernels[place[value]].append(value)
        return place[value]

    for value, (kind, _) in ops.items():
        if kind != "input":
            visit(value)
    return kernels
