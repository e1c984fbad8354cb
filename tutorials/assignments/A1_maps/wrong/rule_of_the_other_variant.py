# refused by: this term
# The rule of the other variant: a heavy map does not join its reader.


right = fuse_maps


def fuse_maps(ops, returned):
    heavy = [value for value, (kind, _) in ops.items() if kind == "heavy"]
    return right(ops, [*returned, *heavy])
