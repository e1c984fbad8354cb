# refused by: this term
# A heavy operation is taken for something else than a map: it shares no kernel.


right = fuse_maps


def fuse_maps(ops, returned):
    return right(
        {
            value: ("reduce" if kind == "heavy" else kind, operands)
            for value, (kind, operands) in ops.items()
        },
        returned,
    )
