"""GraphCast, forward, in plain NumPy: from a grid over the earth to a mesh, on the mesh, and back: the weather in six hours.

Kitsune (2025): 35 operators, 29 fused (vertical fusion 21); traffic cut by 57.20% (23.98%).

Faithful: the graph networks of DeepMind's model as NVIDIA's Modulus writes them: every MLP is a hidden layer with swish, a
linear layer and a layernorm (the last has none), 512 wide; edges see both ends, nodes the sum of their edges, with residuals.
Full: the published 1-degree model, 65,160 points of the grid, 10,242 mesh nodes with 81,900 edges, 195,480 edges back to the grid
(three a point), about 1.56 a point from it.
Cut: 1 of 16 steps on the mesh; the MLPs that embed nodes and edges. Operators: 42, or 37 without the five residual
additions; the paper has 35, and which it leaves out it does not say.
"""

from __future__ import annotations

from operators import Arguments, add, edge_inputs, layernorm, linear, node_inputs, silu

PRESETS = {  # grid, mesh nodes, edges grid to mesh, on the mesh, mesh to grid, width, results
    "full": (65160, 10242, 101650, 81900, 195480, 512, 83),  # counted, not run: its arguments are shapes
    "small": (9, 5, 11, 8, 13, 8, 3),
    "medium": (4050, 642, 6318, 5120, 12150, 128, 83),
}
PAPER = {"kitsune": {"operators": 35, "fused": {"vertical": 21, "kitsune": 29},
                     "traffic_cut": {"vertical": 23.98, "kitsune": 57.20}}}


def mlp(x, weights, name, normalise=True):
    """A hidden layer with swish, a linear layer and a layernorm."""
    x = silu(linear(x, weights, f"{name}/0"))
    x = linear(x, weights, f"{name}/1")
    return layernorm(x, weights, f"{name}/norm") if normalise else x


def graphcast(grid, mesh, out_edges, mesh_edges, back_edges, ends, weights):
    """The change of each variable at each point of the grid. ``ends``: senders and receivers of the three sets of edges."""
    out_from, out_to, mesh_from, mesh_to, back_from, back_to = ends
    messages = mlp(edge_inputs(out_edges, grid, mesh, out_from, out_to), weights, "out/edges")
    mesh = add(mesh, mlp(node_inputs(messages, out_to, mesh), weights, "out/mesh"))
    grid = add(grid, mlp(grid, weights, "out/grid"))

    messages = add(mesh_edges, mlp(edge_inputs(mesh_edges, mesh, mesh, mesh_from, mesh_to), weights, "mesh/edges"))
    mesh = add(mesh, mlp(node_inputs(messages, mesh_to, mesh), weights, "mesh/nodes"))

    messages = mlp(edge_inputs(back_edges, mesh, grid, back_from, back_to), weights, "back/edges")
    grid = add(grid, mlp(node_inputs(messages, back_to, grid), weights, "back/grid"))
    return mlp(grid, weights, "result", normalise=False)


def make(preset="small", seed=0):
    """The program and its arguments ``(grid, mesh, out_edges, mesh_edges, back_edges, ends, weights)``."""
    points, nodes, out, around, back, width, results = PRESETS[preset]
    give, weights = Arguments(preset == "full", seed), {}
    inputs = {"out/edges": 3, "out/mesh": 2, "out/grid": 1, "mesh/edges": 3, "mesh/nodes": 2, "back/edges": 3, "back/grid": 2,
              "result": 1}
    for name, count in inputs.items():
        give.linear(weights, f"{name}/0", count * width, width)
        give.linear(weights, f"{name}/1", width, results if name == "result" else width)
        if name != "result":
            give.layernorm(weights, f"{name}/norm", width)
    ends = [give.integers(below, count) for below, count in
            ((points, out), (nodes, out), (nodes, around), (nodes, around), (nodes, back), (points, back))]
    return graphcast, (*(give.normal(rows, width) for rows in (points, nodes, out, around, back)), ends, weights)
