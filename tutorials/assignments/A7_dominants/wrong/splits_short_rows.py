# refused by: split
# Splits every row of a small number of rows, also those that a block holds at once.


right = thread_map


def thread_map(rows, cols, device):
    most, wave = device["most_threads"], device["wave"]
    if rows >= wave or cols < 2:
        return right(rows, cols, device)
    splits = max(1, min(wave // max(1, rows), cols))
    chunk = -(-cols // splits)
    splits = -(-cols // chunk)
    return right(rows, cols, device) | {
        "blocks": max(1, rows * splits),
        "threads": most,
        "rows_per_block": 1,
        "threads_per_row": most,
        "steps": 1,
        "splits": splits,
        "chunk": chunk,
    }
