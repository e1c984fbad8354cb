"""MeshGraphNets, forward, in plain NumPy: one step of a simulation on a mesh, encode, process, decode.

Kitsune (2025): 51 operators, 41 fused (vertical fusion 36); traffic cut by 57.76% (56.54%).

Faithful: DeepMind's network: every MLP has two hidden layers of 128 with relu and a layernorm behind it (the decoder has none);
an edge sees its own features and its two nodes', a node its own and the sum over its edges; both add a residual. Eleven numbers a
node and three an edge, as for the cylinder flow.
Cut: 2 of 15 steps of message passing, with which the paper's count is met: 51 operators without the residual additions, 41 of
them in the MLPs. Operators here: 54; nobody reads the last of the four additions.
"""

from __future__ import annotations

from operators import Arguments, add, aggregate, concatenate, gather, layernorm, linear, relu

PRESETS = {  # nodes, edges, width, steps
    "full": (18850, 108480, 128, 2),  # counted, not run; ten meshes of the cylinder flow
    "small": (7, 12, 8, 1),
    "medium": (1885, 10848, 128, 2),
}
NODE, EDGE, RESULT = 11, 3, 2
PAPER = {"kitsune": {"operators": 51, "fused": {"vertical": 36, "kitsune": 41},
                     "traffic_cut": {"vertical": 56.54, "kitsune": 57.76}}}


def mlp(x, weights, name, normalise=True):
    """Three linear layers with relu between them, and a layernorm."""
    x = relu(linear(x, weights, f"{name}/0"))
    x = relu(linear(x, weights, f"{name}/1"))
    x = linear(x, weights, f"{name}/2")
    return layernorm(x, weights, f"{name}/norm") if normalise else x


def meshgraphnets(nodes, edges, senders, receivers, weights, steps):
    """What changes at each node, [nodes, 2]."""
    nodes, edges = mlp(nodes, weights, "encode/nodes"), mlp(edges, weights, "encode/edges")
    for i in range(steps):
        inputs = concatenate(gather(nodes, senders), gather(nodes, receivers), edges)
        changed = mlp(inputs, weights, f"process/{i}/edges")
        edges = add(edges, changed)
        inputs = concatenate(nodes, aggregate(changed, receivers, nodes.shape[0]))
        nodes = add(nodes, mlp(inputs, weights, f"process/{i}/nodes"))
    return mlp(nodes, weights, "decode", normalise=False)


def make(preset="small", seed=0):
    """The program and its arguments ``(nodes, edges, senders, receivers, weights, steps)``."""
    nodes, edges, width, steps = PRESETS[preset]
    give, weights = Arguments(preset == "full", seed), {}
    sizes = {"encode/nodes": (NODE, width), "encode/edges": (EDGE, width), "decode": (width, RESULT)}
    for i in range(steps):
        sizes |= {f"process/{i}/edges": (3 * width, width), f"process/{i}/nodes": (2 * width, width)}
    for name, (before, after) in sizes.items():
        for i, (rows, columns) in enumerate(((before, width), (width, width), (width, after))):
            give.linear(weights, f"{name}/{i}", rows, columns)
        if name != "decode":
            give.layernorm(weights, f"{name}/norm", after)
    ends = [give.integers(nodes, edges) for _ in range(2)]
    return meshgraphnets, (give.normal(nodes, NODE), give.normal(edges, EDGE), *ends, weights, steps)
