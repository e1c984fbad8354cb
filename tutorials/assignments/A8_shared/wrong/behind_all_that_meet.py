# refused by: close
# A buffer goes behind everything that it is live with; gaps stay empty.


def share(buffers, slot):
    offsets = {}
    for name in sorted(buffers, key=lambda each: (buffers[each][1], each)):
        size, first, last = buffers[name]
        blocked = []
        for other, offset in offsets.items():
            nbytes, begins, ends = buffers[other]
            if first <= ends and begins <= last:
                blocked.append((offset, offset + nbytes))
        place = 0
        for _, high in sorted(blocked):
            place = max(place, -(-high // slot) * slot)
        offsets[name] = place
    return offsets, max((offsets[each] + buffers[each][0] for each in buffers), default=0)
