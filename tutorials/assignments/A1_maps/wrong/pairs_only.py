# refused by: maximal
# A kernel has two operations at most.


right = fuse_maps


def fuse_maps(ops, returned):
    return [
        kernel[at : at + 2] for kernel in right(ops, returned) for at in range(0, len(kernel), 2)
    ]
