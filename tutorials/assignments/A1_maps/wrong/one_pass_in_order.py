# refused by: maximal
# One pass in the order of the dict: only a maker that was seen before can join.


def fuse_maps(ops, returned):
    kernels, place = [], {}
    for value, (kind, operands) in ops.items():
        if kind == "input":
            continue
        place[value] = [value]
        kernels.append(place[value])
        for maker in set(operands) - set(returned):
            readers = [each for each in ops if maker in ops[each][1]]
            maps = kind != "reduce" and ops[maker][0] in ("map", "heavy")
            if maker in place and maps and len(readers) == 1:
                kernels.remove(place[maker])
                place[value] += place[maker]
                place.update(dict.fromkeys(place[maker], place[value]))
    return kernels
