# refused by: partition
# A value with several readers is computed again in the kernel of each.


right = fuse_maps


def fuse_maps(ops, returned):
    kernels = right(ops, returned)
    for kernel in kernels:
        for member in list(kernel):
            if ops[member][0] != "reduce":
                kernel += [
                    maker
                    for maker in set(ops[member][1])
                    if ops[maker][0] in ("map", "heavy") and maker not in kernel
                ]
    return kernels
