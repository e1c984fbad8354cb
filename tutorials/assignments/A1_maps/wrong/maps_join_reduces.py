# refused by: kinds
# A map joins a reduce that reads it: the reader's kind is not looked at.


right = fuse_maps


def fuse_maps(ops, returned):
    kernels = right(ops, returned)
    for value, (kind, operands) in ops.items():
        readers = [each for each in ops if operands and operands[0] in ops[each][1]]
        if kind == "reduce" and len(readers) == 1 and operands[0] not in returned:
            makers = [kernel for kernel in kernels if operands[0] in kernel]
            own = next(kernel for kernel in kernels if value in kernel)
            for each in makers:
                if ops[operands[0]][0] != "reduce":
                    kernels.remove(each)
                    own += each
    return kernels
