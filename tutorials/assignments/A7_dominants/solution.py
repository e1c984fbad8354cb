"""A7: groups and their dominants, and which block and thread computes which element (AStitch, 2022).

Write the two functions. The handout says what they return.
Then answer the three questions that `python -m minisitch.course questions A7 --student NAME` prints.
"""

PREDICTIONS = [None, None, None]


def groups(ops, candidates):
    """The groups of a graph, each with its dominant.

    `ops` is a dict: each operation's number, and a tuple (kind, operands, size). The kind is "input", "map",
    "heavy" or "reduce", and the size is the number of elements of the result. `candidates` is a list of numbers.
    Returns a list of tuples (dominant, members). The members are a list of numbers.
    """
    # solution: groups
    near = {value: [] for value in ops}
    for value, (_, operands, _) in ops.items():
        for operand in operands:
            if operand not in candidates:
                near[operand].append(value)
                near[value].append(operand)

    def rank(value):
        kind, operands, size = ops[value]
        if kind != "reduce":
            return (1 if kind == "heavy" else 2), 0, value
        # variant: reads
        weight = ops[operands[0]][2]
        # end variant
        # variant: rows
        weight = size
        # end variant
        return 0, -weight, value

    found, seen = [], set()
    for start in ops:
        if start not in seen:
            members = [start]
            seen.add(start)
            for member in members:
                fresh = [each for each in dict.fromkeys(near[member]) if each not in seen]
                seen.update(fresh)
                members += fresh
            found.append((min(set(members) & set(candidates), key=rank), members))
    return found
    # end solution


def thread_map(rows, cols, device):
    """Who computes what: a dict with the seven numbers of the handout.

    `rows` and `cols` may be 0. `device` is a dict: "warp" and "most_threads" count threads, both powers of two,
    and "wave" counts the blocks that run at once. Returns a dict from name to int.
    """
    # solution: thread_map
    most, wave = device["most_threads"], device["wave"]
    if rows < wave and cols > most:
        splits = max(1, min(wave // max(1, rows), -(-cols // most)))
        chunk = -(-cols // splits)
        splits = -(-cols // chunk)
        per_row, together, steps = most, 1, 1
        blocks = max(1, rows * splits)
    else:
        per_row = 1 << max(0, cols - 1).bit_length()
        # variant: reads
        per_row = max(device["warp"], per_row)
        # end variant
        per_row = min(most, per_row)
        together = most // per_row
        tasks = max(1, -(-rows // together))
        steps = -(-tasks // wave)
        blocks = -(-tasks // steps)
        splits, chunk = 1, cols
    return {
        "blocks": blocks,
        "threads": together * per_row,
        "rows_per_block": together,
        "threads_per_row": per_row,
        "steps": steps,
        "splits": splits,
        "chunk": chunk,
    }
    # end solution
