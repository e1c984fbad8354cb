# refused by: maximal
# A returned value shares a kernel with nothing, not even with what it is made of.


right = fuse_maps


def fuse_maps(ops, returned):
    above = [operand for value in returned for operand in ops[value][1]]
    return right(ops, [*returned, *above])
