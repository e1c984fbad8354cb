"""A8 another way: buffers are packed in the order of their first phases are tried too, and the smaller packing wins."""

PREDICTIONS = [None, None, None]


def share(buffers, slot):
    orders = [
        sorted(buffers, key=lambda each: (buffers[each][0], each), reverse=True),
        sorted(buffers, key=lambda each: (buffers[each][1], -buffers[each][0], each)),
    ]
    return min((packed(buffers, slot, order) for order in orders), key=lambda found: found[1])


def packed(buffers, slot, order):
    offsets = {}
    for name in order:
        candidates = [0] + [
            slot * ((offsets[each] + buffers[each][0] + slot - 1) // slot) for each in offsets
        ]
        offsets[name] = min(
            place
            for place in candidates
            if all(apart(buffers, name, place, other, offsets[other]) for other in offsets)
        )
    return offsets, max([offsets[each] + buffers[each][0] for each in buffers] + [0])


def apart(buffers, one, place, other, offset):
    (size, first, last), (nbytes, begins, ends) = buffers[one], buffers[other]
    # variant: exclusive
    if last < begins or ends < first:
        return True
    # end variant
    # variant: handover
    if last <= begins or ends <= first:
        return True
    # end variant
    return place + size <= offset or offset + nbytes <= place


def give_up(wishes, limit):
    gone, kept = [], dict(wishes)
    while sum(size for size, _ in kept.values()) > limit:
        worst = None
        for name, (size, reads) in kept.items():
            if worst is None:
                worst = name
                continue
            other_size, other_reads = kept[worst]
            ours, theirs = reads * other_size, other_reads * size
            if (ours, -size, name) < (theirs, -other_size, worst):
                worst = name
        gone.append(worst)
        del kept[worst]
    return gone
