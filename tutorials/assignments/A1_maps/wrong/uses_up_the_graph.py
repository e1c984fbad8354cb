# refused by: pure
# Operations that are done are taken out of the graph that it was given.


right = fuse_maps


def fuse_maps(ops, returned):
    kernels = right(ops, returned)
    for kernel in kernels:
        for value in kernel:
            if len(kernel) > 1:
                del ops[value]
                for other, (kind, operands) in ops.items():
                    ops[other] = kind, [each for each in operands if each != value]
    return kernels
