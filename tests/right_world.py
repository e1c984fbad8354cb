"""A world outside of programs, which the tests of state change: arrays, numbers, containers and objects."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np

X = np.ones(3)


@dataclasses.dataclass
class Point:
    w: np.ndarray
    n: float = 1.0


class Slotted:
    __slots__ = ("n", "w")

    def __init__(self):
        self.w, self.n = np.ones(3), 1.0


class Dense:
    taps = np.array([1.0, 2.0, 3.0])
    calls = 0

    def __init__(self, scale=1.0):
        self.w, self.b, self.act = np.full(3, scale), np.zeros(3), np.tanh

    def __call__(self, x):
        return self.act(x * self.w + self.b)

    @property
    def doubled(self):
        return self.w * 2

    def hidden(self, x):
        return x * SCALES[0]


class Net:
    def __init__(self):
        self.layers, self.training, self.params, self.deep = [Dense(), Dense(2)], True, {"w": np.ones(3)}, Point(np.ones(3))
        self.seen, self.queue, self.n = set(), collections.deque([1.0]), 0.0

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x * 2 if self.training else x


def fresh_world(space):
    """Give a test's module, and this one, the state that it had at first."""
    table = np.zeros((4, 3))
    state = {"SCALES": [np.full(3, 2.0), np.full(3, 3.0)], "TAPS": [1.0, 2.0, 3.0], "W": np.arange(3.0), "BIG": np.zeros(5000),
             "TABLE": table, "VIEW": table[1], "COUNT": 0.0, "RATE": 0.5, "NET": Net(), "POINT": Point(np.ones(3)),
             "SLOTTED": Slotted(), "CONFIG": {"rate": 0.5, "names": ["a"], "nested": {"scale": 2.0}}}
    Dense.taps, Dense.calls = np.array([1.0, 2.0, 3.0]), 0
    globals().update(state)
    space.update(state)


SCALES, TAPS, W, BIG, TABLE, VIEW, COUNT, RATE, NET, POINT, SLOTTED, CONFIG = [None] * 12  # ``fresh_world`` fills them
fresh_world({})
