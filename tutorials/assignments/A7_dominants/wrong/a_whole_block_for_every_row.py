# refused by: busy
# Every row has a whole block, even if it has 32 columns.


def thread_map(rows, cols, device):
    most, wave = device["most_threads"], device["wave"]
    steps = max(1, -(-rows // wave))
    return {
        "blocks": max(1, -(-rows // steps)),
        "threads": most,
        "rows_per_block": 1,
        "threads_per_row": most,
        "steps": steps,
        "splits": 1,
        "chunk": cols,
    }
