# refused by: partition
# Only maps are put into kernels: a reduce has none.


right = fuse_maps


def fuse_maps(ops, returned):
    return [kernel for kernel in right(ops, returned) if ops[kernel[0]][0] != "reduce"]
