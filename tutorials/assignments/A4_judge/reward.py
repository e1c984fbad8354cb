"""After passing: the stepper refuses a race by your verdicts."""

import numpy as np

import minisitch as ms
from minisitch import simt
from minisitch.errors import KernelBug

KERNEL = """
def shift(x, y):
    t = cuda.threadIdx.x
    s = cuda.shared.array(40, np.float32)
    s[t] = x[t]
    cuda.syncthreads()
    mine = s[(t + 1) % 40]
    cuda.syncthreads()  # all have read
    s[t] = mine
    y[t] = s[t]
"""


def reward(ask, variant):
    """Step a kernel with and without its second barrier, with your function in the stepper."""
    if variant != "apart":
        return "The stepper's lanes do not run in step, so this term's function has no place in it."

    def plain(stamp):
        known = {block: (past.epoch, dict(past.moments)) for block, past in stamp.known.items()}
        names = ("block", "thread", "grid_epoch", "block_epoch", "moment")
        return {name: getattr(stamp, name) for name in names} | {"seen": list(stamp.seen), "known": known}

    said = []
    with ms.swapped("ordered", lambda before, after: ask("ordered", plain(before), plain(after))):
        for text in (KERNEL, KERNEL.replace("cuda.syncthreads()  # all have read", "pass")):
            try:
                simt.step(text, [np.ones(40, np.float32), np.zeros(40, np.float32)], 1, 40)
                said.append("a kernel with both barriers is accepted")
            except KernelBug as bug:
                said.append(f"without the second it is refused: {bug.rule}: {bug.seen}")
    return 'ms.swapped("ordered", yours): the stepper runs by your verdicts:\n  ' + "\n  ".join(said)
