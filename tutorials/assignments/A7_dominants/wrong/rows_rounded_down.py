# refused by: covers
# Divides the rows by the rows of a block and rounds down: the last rows are lost.


right = thread_map


def thread_map(rows, cols, device):
    found = right(rows, cols, device)
    together = found["rows_per_block"]
    return right(max(1, rows // together) * together, cols, device) if together > 1 else found
