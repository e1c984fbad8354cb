# refused by: readers
# A map joins a reader even if others read it too: the first reader that comes along.


right = fuse_maps


def fuse_maps(ops, returned):
    first = {}
    for value, (kind, operands) in ops.items():
        for operand in operands:
            if kind != "reduce" and ops[operand][0] in ("map", "heavy"):
                first.setdefault(operand, value)
    kernels = [[value] for value in ops if ops[value][0] != "input"]
    for maker, reader in first.items():
        if maker not in returned:
            one = next(kernel for kernel in kernels if maker in kernel)
            other = next(kernel for kernel in kernels if reader in kernel)
            if one is not other:
                one += other
                kernels.remove(other)
    return kernels
