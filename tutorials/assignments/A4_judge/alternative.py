"""One sentence a way in which a moment can be over, and `any` of them."""

PREDICTIONS = [None, None, None]


def ordered(before, after):
    same_block = before["block"] == after["block"]
    epoch, moments = after["known"].get(before["block"], (-1, {}))
    return any(
        (
            before["grid_epoch"] != after["grid_epoch"],
            same_block and before["thread"] == after["thread"],
            same_block and before["block_epoch"] != after["block_epoch"],
            # variant: apart
            same_block
            and 32 * (after["thread"] // 32) <= before["thread"] < 32 * (after["thread"] // 32) + 32
            and after["seen"][before["thread"] - 32 * (after["thread"] // 32)] > before["moment"],
            # end variant
            # variant: in_step
            same_block and before["thread"] // 32 == after["thread"] // 32,
            # end variant
            (epoch, moments.get(before["thread"], 0)) > (before["block_epoch"], before["moment"]),
        )
    )


def verdicts(moments, pairs):
    return [ordered(moments[first], moments[second]) for first, second in pairs]
