# refused by: legal
# The rule of the other variant: a row shorter than a warp has fewer threads.


right = thread_map


def thread_map(rows, cols, device):
    return right(rows, cols, device | {"warp": 1})
