"""A7 another way: groups by a table of leaders; a thread map that begins small and doubles."""

PREDICTIONS = [None, None, None]


def groups(ops, candidates):
    leader = {value: value for value in ops}

    def find(value):
        while leader[value] != value:
            leader[value] = leader[leader[value]]
            value = leader[value]
        return value

    for value, (_, operands, _) in ops.items():
        for operand in operands:
            if operand not in candidates:
                leader[find(operand)] = find(value)
    members = {}
    for value in ops:
        members.setdefault(find(value), []).append(value)
    return [
        (dominant(ops, [each for each in ids if each in candidates]), ids)
        for ids in members.values()
    ]


def dominant(ops, inside):
    for kind in ("reduce", "heavy"):
        of_kind = [value for value in inside if ops[value][0] == kind]
        if of_kind:
            break
    else:
        return min(inside)
    # variant: reads
    weight = {value: ops[ops[value][1][0]][2] for value in of_kind}
    # end variant
    # variant: rows
    weight = {value: ops[value][2] for value in of_kind}
    # end variant
    if kind == "heavy":
        return min(of_kind)
    most = max(weight.values())
    return min(value for value in of_kind if weight[value] == most)


def thread_map(rows, cols, device):
    most, wave = device["most_threads"], device["wave"]
    splits = 1
    while rows * (splits + 1) <= wave and rows < wave and cols > most * splits:
        splits += 1
    chunk = (cols + splits - 1) // splits
    while splits > 1 and chunk * (splits - 1) >= cols:
        splits -= 1
    # variant: reads
    per_row = device["warp"]
    # end variant
    # variant: rows
    per_row = 1
    # end variant
    while per_row < min(cols, most):
        per_row *= 2
    if splits > 1:
        per_row = most
    together = most // per_row
    tasks = splits * ((rows + together - 1) // together)
    steps = 1
    while steps * wave < tasks:
        steps += 1
    names = "blocks threads rows_per_block threads_per_row steps splits chunk".split()
    blocks = max(1, (tasks + steps - 1) // steps)
    return dict(zip(names, (blocks, most, together, per_row, steps, splits, chunk), strict=True))
