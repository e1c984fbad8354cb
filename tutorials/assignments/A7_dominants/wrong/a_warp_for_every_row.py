# refused by: busy
# Every row has one warp, even if it has a thousand columns.


right = thread_map


def thread_map(rows, cols, device):
    return right(rows, min(cols, device["warp"]), device) | {"chunk": cols}
