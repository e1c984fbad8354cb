# refused by: legal
# Divides by the number of rows, which may be 0.


right = thread_map


def thread_map(rows, cols, device):
    share = device["wave"] // rows
    return right(rows, cols, device) if share >= 0 else {}
