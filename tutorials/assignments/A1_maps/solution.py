"""A1: which element-wise operations share a kernel.

Write the function. The handout says what it returns.
Then answer the three questions that `python -m minisitch.course questions A1 --student NAME` prints.
"""

PREDICTIONS = [None, None, None]


def fuse_maps(ops, returned):
    """The kernels of a graph: lists of the operations that share one.

    `ops` is a dict: each operation's number, and a tuple (kind, operands). The kind is "input", "map",
    "heavy" or "reduce". The operands are a list of numbers. `returned` is a list of numbers.
    Returns a list of kernels. A kernel is a list of numbers.
    """
    # solution: fuse_maps
    readers = {value: set() for value in ops}
    for reader, (_, operands) in ops.items():
        for operand in operands:
            readers[operand].add(reader)

    def joins(value):
        maps = ("map", "heavy")
        # variant: any
        may = ops[value][0] in maps
        # end variant
        # variant: light
        may = ops[value][0] == "map"
        # end variant
        may = may and value not in returned and len(readers[value]) == 1
        return may and all(ops[reader][0] in maps for reader in readers[value])

    kernels = []
    for value, (kind, _) in ops.items():
        if kind != "input" and not joins(value):
            kernel = [value]
            for member in kernel:
                kernel += [maker for maker in set(ops[member][1]) if joins(maker)]
            kernels.append(kernel)
    return kernels
    # end solution
