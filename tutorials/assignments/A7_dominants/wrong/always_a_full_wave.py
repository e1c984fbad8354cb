# refused by: busy
# Launches a whole wave, even if there are fewer tasks.


right = thread_map


def thread_map(rows, cols, device):
    return right(rows, cols, device) | {"blocks": device["wave"]}
