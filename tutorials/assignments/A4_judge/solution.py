"""A4: whether one moment of a kernel is over before another begins.

Write `ordered`. The handout says what a moment is.
Then answer the three questions that `python -m minisitch.course questions A4 --student NAME` prints.
"""

PREDICTIONS = [None, None, None]


def ordered(before, after):
    """Whether `before` is surely over when `after` happens. In this run it came first.

    Both are dicts with the keys block, thread, grid_epoch, block_epoch, moment, seen and known.
    Returns True or False.
    """
    # solution: ordered
    if before["grid_epoch"] < after["grid_epoch"]:
        return True
    if before["block"] == after["block"]:
        if before["thread"] == after["thread"] or before["block_epoch"] < after["block_epoch"]:
            return True
        one_warp = before["thread"] // 32 == after["thread"] // 32
        # variant: apart
        if one_warp and before["moment"] < after["seen"][before["thread"] % 32]:
            return True
        # end variant
        # variant: in_step
        if one_warp:
            return True
        # end variant
    if before["block"] not in after["known"]:
        return False
    epoch, moments = after["known"][before["block"]]
    return before["block_epoch"] < epoch or before["moment"] < moments.get(before["thread"], 0)
    # end solution


def verdicts(moments, pairs):
    """What `ordered` says of many pairs, each two positions in a list of moments. Leave it as it is."""
    return [ordered(moments[first], moments[second]) for first, second in pairs]
