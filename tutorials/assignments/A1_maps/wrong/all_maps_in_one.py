# refused by: circle
# All maps share one kernel, also those before and behind a reduce.


def fuse_maps(ops, returned):
    maps = [value for value, (kind, _) in ops.items() if kind in ("map", "heavy")]
    reduces = [[value] for value, (kind, _) in ops.items() if kind == "reduce"]
    return ([maps] if maps else []) + reduces
