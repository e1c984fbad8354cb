# refused by: covers
# Divides the columns by the chunks and rounds down: the last columns are lost.


right = thread_map


def thread_map(rows, cols, device):
    found = right(rows, cols, device)
    return found | {"chunk": cols // found["splits"]}
