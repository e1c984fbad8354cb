"""After passing: your thread maps in the compiler."""

import numpy as np

import minisitch as ms
from minisitch.stitch.mapping import ThreadMap


def softmax(x):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def reward(ask, variant):
    """Compile a softmax of three shapes with your function where the compiler has its own."""
    if variant != "reads":
        return "The compiler's rows have whole warps, so this term's function has no place in it."
    rows = []

    def mine(rows, cols, device, **choices):
        if choices.get("threads") or choices.get("threads_per_row") or choices.get("whole") or not choices.get("adaptive", True):
            return ms.SEAMS["map_rows"].reference(rows, cols, device, **choices)
        given = {"warp": 32, "most_threads": device.max_block, "wave": device.wave(device.max_block)}
        found = ask("thread_map", rows, cols, given)
        return ThreadMap(rows, cols, **found, rule="yours", why="from your file")

    def shape(rows, cols):
        (stitched,) = ms.lower(softmax, f"f32[{rows},{cols}]", strategy="astitch", target="cuda", device="v100", passes=())
        return f"{stitched.kernel.grid} x {stitched.kernel.block}"

    for size in ((8192, 128), (160, 1024), (3, 500)):
        own = shape(*size)
        with ms.swapped("map_rows", mine):
            rows.append(f"  {size[0]:>6} rows of {size[1]:>6}: {shape(*size):>12}, the compiler's own {own}")
    return 'ms.swapped("map_rows", yours): blocks x threads of a softmax with your thread maps:\n' + "\n".join(rows)
