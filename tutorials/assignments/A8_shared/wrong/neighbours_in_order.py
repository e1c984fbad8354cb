# refused by: apart
# A buffer is compared only with the one placed just before it.


def share(buffers, slot):
    offsets, before = {}, None
    for name in sorted(buffers, key=lambda each: (buffers[each][1], each)):
        offsets[name] = 0
        if before is not None and buffers[before][2] >= buffers[name][1]:
            offsets[name] = (
                -(-(offsets[before] + buffers[before][0]) // slot) * slot
                if offsets[before] == 0
                else 0
            )
        before = name
    return offsets, max((offsets[each] + buffers[each][0] for each in buffers), default=0)
