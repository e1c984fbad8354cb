# refused by: legal
# A block has up to 1024 threads, whatever the device says.


right = thread_map


def thread_map(rows, cols, device):
    return right(rows, cols, device | {"most_threads": 1024})
