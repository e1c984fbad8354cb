# refused by: maximal
# Only the maker of the first operand joins; the second is not looked at.


right = fuse_maps


def fuse_maps(ops, returned):
    second = {operands[1] for _, operands in ops.values() if len(set(operands)) > 1}
    return right(ops, [*returned, *second])
