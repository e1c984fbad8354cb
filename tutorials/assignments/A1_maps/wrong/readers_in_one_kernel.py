# refused by: readers
# A value may have several readers if they share one kernel themselves.


right = fuse_maps


def fuse_maps(ops, returned):
    kernels = right(ops, returned)
    maps = ("map", "heavy")
    for value, (kind, _) in ops.items():
        own = next((kernel for kernel in kernels if value in kernel), None)
        users = {each for each in ops if value in ops[each][1]}
        for kernel in kernels:
            inside = users and users <= set(kernel) and all(ops[each][0] in maps for each in users)
            if inside and own is not kernel and kind in maps and value not in returned:
                kernels.remove(own)
                kernel += own
                break
    return kernels
