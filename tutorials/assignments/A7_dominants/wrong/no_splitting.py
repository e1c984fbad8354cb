# refused by: split
# Long rows are never split, even if most of the device has nothing to do.


right = thread_map


def thread_map(rows, cols, device):
    found = right(rows, cols, device)
    return found | {"blocks": max(1, min(rows, found["blocks"])), "splits": 1, "chunk": cols}
