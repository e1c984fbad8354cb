# refused by: busy
# A block takes one row at once, so most of its threads are not there.


right = thread_map


def thread_map(rows, cols, device):
    found = right(rows, cols, device)
    per_row, wave = found["threads_per_row"], device["wave"]
    steps = max(1, -(-rows // wave))
    if found["splits"] > 1:
        return found
    return found | {
        "blocks": max(1, -(-rows // steps)),
        "threads": per_row,
        "rows_per_block": 1,
        "steps": steps,
    }
