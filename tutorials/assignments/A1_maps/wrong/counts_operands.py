# refused by: maximal
# A square reads its operand twice, and is counted as two readers.


def fuse_maps(ops, returned):
    reads = [operand for _, operands in ops.values() for operand in operands]
    reader = {operand: value for value, (_, operands) in ops.items() for operand in operands}

    def joins(value):
        maps = ("map", "heavy")
        once = reads.count(value) == 1 and value not in returned
        return once and ops[value][0] in maps and ops[reader[value]][0] in maps

    kernels = []
    for value, (kind, _) in ops.items():
        if kind != "input" and not joins(value):
            kernel = [value]
            for member in kernel:
                kernel += [maker for maker in set(ops[member][1]) if joins(maker)]
            kernels.append(kernel)
    return kernels
