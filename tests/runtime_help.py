"""What the tests of the runtime share."""

from __future__ import annotations

import numpy as np

from minisitch.runtime import Executable, pool


def array(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def executable(jitted, *args):
    found = jitted.compile(*args)
    assert isinstance(found, Executable)
    return found


def kept():
    return sum(size * len(queue) for size, queue in pool._kept.items())
