# refused by: cut
# Edges that leave a candidate are not cut: everything connected is one group.


right = groups


def groups(ops, candidates):
    roots = [value for value in ops if not any(value in op[1] for op in ops.values())]
    return right(ops, roots)
