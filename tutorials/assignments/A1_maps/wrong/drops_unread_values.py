# refused by: partition
# Operations that nobody reads are left out, though the program returns them.


right = fuse_maps


def fuse_maps(ops, returned):
    read = {operand for _, operands in ops.values() for operand in operands}
    kernels = [[value for value in kernel if value in read] for kernel in right(ops, returned)]
    return [kernel for kernel in kernels if kernel]
