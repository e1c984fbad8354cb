# refused by: covers
# Rounds the columns of a chunk up and keeps the number of chunks: the last one is empty.


right = thread_map


def thread_map(rows, cols, device):
    found = right(rows, cols, device)
    if found["splits"] == 1:
        return found
    chunk = -(-found["chunk"] // 1024) * 1024
    return found | {"chunk": chunk}
