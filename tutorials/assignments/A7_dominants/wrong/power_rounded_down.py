# refused by: busy
# Takes the largest power of two that is not more than the columns: threads are missing.


right = thread_map


def thread_map(rows, cols, device):
    if rows < device["wave"] and cols > device["most_threads"]:
        return right(rows, cols, device)
    return right(rows, 1 << max(0, cols.bit_length() - 1), device) | {"chunk": cols}
