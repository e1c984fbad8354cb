# refused by: partition
# Inputs are operations as well, and have kernels.


right = fuse_maps


def fuse_maps(ops, returned):
    return right(ops, returned) + [[value] for value in ops if ops[value][0] == "input"]
