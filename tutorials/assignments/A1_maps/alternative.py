"""A1 another way: every operation begins alone, and a table of leaders joins sets along the edges that may be fused."""

PREDICTIONS = [None, None, None]


def fuse_maps(ops, returned):
    leader = {value: value for value, (kind, _) in ops.items() if kind != "input"}

    def find(value):
        while leader[value] != value:
            leader[value] = leader[leader[value]]
            value = leader[value]
        return value

    only_reader = {}
    for value in ops:
        for operand in ops[value][1]:
            # None says that there are several readers
            only_reader[operand] = value if only_reader.get(operand, value) == value else None
    for maker, reader in only_reader.items():
        if reader is None or maker in returned or ops[reader][0] == "reduce":
            continue
        # variant: any
        if ops[maker][0] in ("map", "heavy"):
            leader[find(maker)] = find(reader)
        # end variant
        # variant: light
        if ops[maker][0] == "map":
            leader[find(maker)] = find(reader)
        # end variant
    kernels = {}
    for value in leader:
        kernels.setdefault(find(value), []).append(value)
    return list(kernels.values())
