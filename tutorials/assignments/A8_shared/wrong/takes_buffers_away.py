# refused by: pure
# Removes the buffers from the dict that it was given.


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
    return offsets, max((offsets[each] + buffers.pop(each)[0] for each in list(buffers)), default=0)
