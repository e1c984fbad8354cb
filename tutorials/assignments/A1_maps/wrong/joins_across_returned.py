# refused by: returned
# Returned values are forgotten: a kernel keeps one in a register.


right = fuse_maps


def fuse_maps(ops, returned):
    return right(ops, [])
