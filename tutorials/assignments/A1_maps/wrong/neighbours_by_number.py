# refused by: maximal
# Only operations with neighbouring numbers join, as if numbers were an order.


right = fuse_maps


def fuse_maps(ops, returned):
    far = [
        operand
        for value, (_, operands) in ops.items()
        for operand in operands
        if operand != value - 1
    ]
    return right(ops, [*returned, *far])
