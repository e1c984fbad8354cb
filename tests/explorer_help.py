"""What tests of the explorer share: two explored programs, and a server."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from programs import softmax

from minisitch.explain.explore import explored
from minisitch.explain.explore.server import ExplorerServer

NUMBERS = np.random.default_rng(0).normal(size=(64, 1024)).astype(np.float32)
TOTAL = """
def total(x, y):
    t = cuda.threadIdx.x
    s = cuda.shared.array(64, np.float32)
    s[t] = x[t]
    cuda.syncthreads()  # A
    for step in (32, 16, 8, 4, 2, 1):
        if t < step:
            s[t] += s[t + step]
        cuda.syncthreads()  # B
    if t == 0:
        y[0] = s[0]
"""


def centre(x):
    """A block takes two rows in turn, so a barrier at the end keeps the second row's maximum from the first row's readers."""
    return x - np.max(x, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def centred():
    return explored(centre, (NUMBERS,), {}, "astitch")


@pytest.fixture(scope="module")
def server(centred):
    with ExplorerServer(centred) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def cut_up():
    return explored(softmax, (NUMBERS,), {}, "xla")


def without(text, change):
    lines = text.splitlines()
    lines[change.line - 1] = change.text
    return "\n".join(lines)
