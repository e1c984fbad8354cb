# refused by: connected
# Maps that read the same value share a kernel, to read it once.


right = fuse_maps


def fuse_maps(ops, returned):
    kernels = right(ops, returned)
    for value in ops:
        siblings = [
            kernel
            for kernel in kernels
            if len(kernel) == 1 and ops[kernel[0]][0] == "map" and ops[kernel[0]][1] == [value]
        ]
        for sibling in siblings[1:]:
            siblings[0] += sibling
            kernels.remove(sibling)
    return kernels
