# refused by: legal
# A row has exactly as many threads as columns: 48 threads for 48 columns.


right = thread_map


def thread_map(rows, cols, device):
    found = right(rows, cols, device)
    per_row = max(1, min(cols, device["most_threads"]))
    together = max(1, device["most_threads"] // per_row)
    if found["splits"] > 1:
        return found
    return found | {
        "threads": together * per_row,
        "rows_per_block": together,
        "threads_per_row": per_row,
    }
