# refused by: split
# Cuts into as many chunks as the wave has blocks for, though a chunk has hardly any columns.

right = thread_map


def thread_map(rows, cols, device):
    found = right(rows, cols, device)
    if found["splits"] == 1:
        return found
    splits = min(cols, device["wave"] // rows)
    chunk = -(-cols // splits)
    splits = -(-cols // chunk)
    return found | {"blocks": rows * splits, "splits": splits, "chunk": chunk}
