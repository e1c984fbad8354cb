# refused by: returned
# Only the last returned value is kept.


right = fuse_maps


def fuse_maps(ops, returned):
    return right(ops, returned[-1:])
