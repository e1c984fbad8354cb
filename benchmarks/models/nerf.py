"""NeRF (neural radiance fields), forward, in plain NumPy: the network that gives a colour and a density for each point.

Kitsune (2025) fuses all of its 24 operators into one pipeline: 98.58% of the traffic goes, vertical fusion cuts 40.19%.

Faithful: the network of the paper and of ``nerf-pytorch``: eight layers of 256 with relu, the encoded position once more
beside the fifth's input, density from a layer of one, colour from the viewing direction through a layer of 128; positions
encoded in 63 numbers, directions in 27. As there, colours leave the network before their sigmoid.
Cut: the encoding and the volume rendering, which are outside that network. Operators: 24, as the paper counts.
"""

from __future__ import annotations

from operators import Arguments, concatenate, linear, relu

PRESETS = {  # points, layers, width
    "full": (1 << 16, 8, 256),  # counted, not run; 1,024 rays of 64 samples
    "small": (12, 3, 8),
    "medium": (1 << 13, 8, 256),
}
POSITION, DIRECTION = 63, 27  # numbers that encode three coordinates: 10 and 4 frequencies, sine and cosine, and themselves
PAPER = {"kitsune": {"operators": 24, "fused": {"vertical": 18, "kitsune": 24},
                     "traffic_cut": {"vertical": 40.19, "kitsune": 98.58}}}


def nerf(positions, directions, weights, layers):
    """Colour and density [points, 4] of encoded positions [points, 63] seen from encoded directions [points, 27]."""
    x = positions
    for i in range(layers):
        x = relu(linear(x, weights, f"points/{i}"))
        if i == layers // 2:
            x = concatenate(positions, x)
    density = linear(x, weights, "density")
    features = linear(x, weights, "features")
    x = relu(linear(concatenate(features, directions), weights, "views"))
    return concatenate(linear(x, weights, "colour"), density)


def make(preset="small", seed=0):
    """The program and its arguments ``(positions, directions, weights, layers)``."""
    points, layers, width = PRESETS[preset]
    give, weights = Arguments(preset == "full", seed), {}
    for i in range(layers):
        rows = POSITION if i == 0 else width + POSITION * (i == layers // 2 + 1)
        give.linear(weights, f"points/{i}", rows, width)
    give.linear(weights, "density", width, 1)
    give.linear(weights, "features", width, width)
    give.linear(weights, "views", width + DIRECTION, width // 2)
    give.linear(weights, "colour", width // 2, 3)
    return nerf, (give.uniform(points, POSITION), give.uniform(points, DIRECTION), weights, layers)
