# refused by: one wave
# XLA's map: a block for each row, however many rows there are.


right = thread_map


def thread_map(rows, cols, device):
    found = right(rows, cols, device)
    per_row = found["threads_per_row"]
    return found | {"blocks": max(1, rows), "threads": per_row, "rows_per_block": 1, "steps": 1}
