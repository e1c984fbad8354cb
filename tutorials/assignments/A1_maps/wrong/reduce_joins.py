# refused by: kinds
# A reduce joins its reader as a map does.


right = fuse_maps


def fuse_maps(ops, returned):
    return right(
        {
            value: ("map" if kind == "reduce" else kind, operands)
            for value, (kind, operands) in ops.items()
        },
        returned,
    )
