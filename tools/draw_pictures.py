"""Draw the pictures of docs/img from the plans that the compiler makes.

    python tools/draw_pictures.py docs/img
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import minisitch as ms
from minisitch.explain import draw
from minisitch.explain.svg import Picture


def softmax(x):
    """The program in the first picture."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def trips() -> Picture:
    """A softmax as XLA's rules cut it, and as one stitched kernel."""
    return draw.trips(*(ms.lower(softmax, "f32[8192,1024]", strategy=name, target="cuda", device="v100", stop_after="fuse")
                        for name in ("xla", "astitch")))


PICTURES: dict[str, Callable[[], Picture]] = {
    "softmax.svg": trips,
    "machine.svg": lambda: draw.machine(ms.DEVICES["v100"]),
}


if __name__ == "__main__":
    for name, make in PICTURES.items():
        make().save(str(Path(sys.argv[1]) / name))
