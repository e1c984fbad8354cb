# refused by: legal
# A warp has 32 threads, whatever the device says.


right = thread_map


def thread_map(rows, cols, device):
    return right(rows, cols, device | {"warp": 32})
