# refused by: other block
# A barrier of one block orders threads of other blocks.


def ordered(before, after):
    """Whether `before` is surely over when `after` happens. In this run it came first.

    Both are dicts with the keys block, thread, grid_epoch, block_epoch, moment, seen and known.
    Returns True or False.
    """
    if before["grid_epoch"] < after["grid_epoch"]:
        return True
    if before["block_epoch"] < after["block_epoch"]:
        return True
    if before["block"] == after["block"]:
        if before["thread"] == after["thread"] or before["block_epoch"] < after["block_epoch"]:
            return True
        one_warp = before["thread"] // 32 == after["thread"] // 32
        if one_warp and before["moment"] < after["seen"][before["thread"] % 32]:
            return True
    if before["block"] not in after["known"]:
        return False
    epoch, moments = after["known"][before["block"]]
    return before["block_epoch"] < epoch or before["moment"] < moments.get(before["thread"], 0)
