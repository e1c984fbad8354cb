"""Modelled time and traffic of a pipeline.

In:  the body of a pattern, its ``Pipeline``, a ``Device``. Out: microseconds; bytes of main memory.

Before:  (x @ w) then tanh then (@ v) as one pipeline
After:   its makespan; the bytes of x, w, v and of the result
"""

from __future__ import annotations

from ...device import Device
from ...graph import Graph
from ..cost import Bytes
from .models.balance import Channel, in_dram
from .models.simulate import dataflow
from .pipeline import Pipeline
from .predict import workload


def pipeline_us(graph: Graph, pipeline: Pipeline, device: Device) -> float:
    """Modelled microseconds of the one kernel."""
    return dataflow(*workload(graph, pipeline, device), device).makespan_us


def pipeline_traffic(graph: Graph, pipeline: Pipeline, device: Device) -> Bytes:
    """Bytes of main memory. Inputs (or only the slices that are read) and outputs count once.

    Queues that do not fit into L2 are written once, and read by each consumer.
    """
    queues = [Channel(str(q.producer), tuple(map(str, q.consumers)), q.tile_bytes, q.depth) for q in pipeline.queues]
    spilled = [(graph[pipeline.queues[i].node].type.nbytes, len(queues[i].consumers)) for i in in_dram(queues, device)]
    return Bytes(sum(_read(graph, v) for v in graph.inputs) + sum(size * readers for size, readers in spilled),
                 sum(graph[v].type.nbytes for v in graph.outputs) + sum(size for size, _ in spilled))


def _read(graph: Graph, value: int) -> int:
    """Bytes of an input that are read."""
    users, whole = [graph[u] for u in graph.users[value]], graph[value].type.nbytes
    return min(whole, sum(u.type.nbytes for u in users)) if all(u.op == "slice" for u in users) else whole
