# refused by: inside
# The total is the sum of all sizes, not where the last buffer ends.


def share(buffers, slot):
    offsets = {}
    for name in sorted(buffers, key=lambda each: (-buffers[each][0], buffers[each][1], each)):
        size, first, last = buffers[name]
        blocked = []
        for other, offset in offsets.items():
            nbytes, begins, ends = buffers[other]
            if first <= ends and begins <= last:
                blocked.append((offset, offset + nbytes))
        place = 0
        for low, high in sorted(blocked):
            if place + size <= low:
                break
            place = max(place, -(-high // slot) * slot)
        offsets[name] = place
    return offsets, sum(size for size, _, _ in buffers.values())
