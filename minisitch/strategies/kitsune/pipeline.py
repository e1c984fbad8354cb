"""A pipeline: stages that run at the same time, joined by queues (*Kitsune*, B6, Algorithm 1).

In:  the body of a pattern with matrix products, and a ``Device``. Out: a ``Pipeline``, or the nodes
that prevent one, each with its reason.

1. Tiles: one axis of one product, from which the axes of all other values follow (``tiles.py``).
2. Stages: each product is a stage of kind ``tensor``. Light element-wise operations that read only
   its result are its *epilogue*. All else between two products is a stage of kind ``simt``. A
   reduction over the tiles is split: each tile adds a part (*fan-in*), and a *final* stage combines
   the parts. A tree of stages may stand before it, if that is faster (``predict.balanced``).
   What is made of sums alone is part of the final stage.
3. Queues: one for each value that another stage reads. Several readers share it (*multicast*). Its
   payload is the bytes of a tile.
4. Depth: a queue past other stages has an entry more for each of them (``least_depths``).

Before:  %2 = matmul x w1; %3 = gelu %2; %4 = matmul %3 w2
After:   stage 0 tensor {%2} -queue %2-> stage 1 simt {%3} -queue %3-> stage 2 tensor {%4}
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...device import Device
from ...errors import PlanError
from ...fuse import VIEWS, Composition, Decision, is_heavy
from ...graph import Graph, Node
from ..ask import reads_of
from .models.balance import Channel, Kind, StageLoad
from .models.rates import depths
from .select import connected
from .tiles import FINAL, FOLD, Tiling, best_cut

# What a stage makes: a tile of each tile; a part of a fold; a sum of some parts; the sum of all.
Role = Literal["map", "fan_in", "combine", "final"]


@dataclass(frozen=True)
class Stage:
    """One operator of the pipeline. ``nodes`` are ids of the body, ``blocks`` its thread blocks."""

    name: str
    nodes: tuple[int, ...]
    kind: Kind  # the unit that it keeps busy
    role: Role = "map"
    blocks: int = 1

    @property
    def joins(self) -> bool:
        """Whether it takes parts of folds instead of tiles."""
        return self.role in ("combine", "final")

    def entries(self, tiles: int) -> int:
        """Entries that it puts in a queue: one a tile, or one a block of a combining stage."""
        return self.blocks if self.role == "combine" else tiles

    def __str__(self) -> str:
        nodes = " ".join(f"%{n}" for n in self.nodes)
        blocks = f", {self.blocks} blocks" if self.blocks > 1 else ""
        return f"{self.name}: {self.kind} {self.role}, {nodes}{blocks}"


@dataclass(frozen=True)
class Queue:
    """A ring of ``depth`` entries of ``tile_bytes`` each, for tiles of the value ``node``."""

    node: int
    producer: int  # position of a stage
    consumers: tuple[int, ...]
    tile_bytes: int
    depth: int = 2  # one entry is written while another is read

    @property
    def name(self) -> str:
        """The name of its array. A value may have two queues, with different producers."""
        return f"q{self.node}_{self.producer}"

    def __str__(self) -> str:
        to = ", ".join(map(str, self.consumers))
        return f"queue %{self.node}: {self.producer} -> {to}, {self.depth} x {self.tile_bytes} B"


@dataclass(frozen=True)
class Pipeline(Composition):
    """Stages and queues over tiles of ``tile`` units. ``axes`` and ``units`` are a ``Tiling``'s."""

    axes: tuple[int | None, ...] = ()
    units: int = 1
    tile: int = 1
    stages: tuple[Stage, ...] = ()
    queues: tuple[Queue, ...] = ()

    @property
    def tiles(self) -> int:
        """The number of tiles. The last one may be smaller."""
        return -(-self.units // self.tile)

    @property
    def sizes(self) -> str:
        """``256 tiles of 32, the last of 31``."""
        rest = self.units % self.tile
        return f"{self.tiles} tiles of {self.tile}" + (f", the last of {rest}" if rest else "")

    @property
    def taken(self) -> list[int]:
        """How often each stage runs: once for each tile, or each part of a fold."""
        return firings(self.stages, self.queues, self.tiles)

    def cut(self, graph: Graph) -> Tiling:
        """The cut of a body that this pipeline was designed for."""
        return Tiling(graph, self.axes, self.units, ())

    def __str__(self) -> str:
        lines = [f"{self.units} units in {self.sizes}"]
        lines += (f"  stage {i} {s}" for i, s in enumerate(self.stages))
        return "\n".join([*lines, *(f"  {q}" for q in self.queues)])


@dataclass(frozen=True)
class PipelineRefusal:
    """Why a body is not a pipeline. Without ``nodes``, the rest may be one."""

    nodes: tuple[int, ...]
    decisions: tuple[Decision, ...]


def refusal(nodes: Iterable[int], rule: str, why: str) -> PipelineRefusal:
    """These nodes are what prevents a pipeline, for one reason."""
    apart = tuple(nodes)
    return PipelineRefusal(apart, (Decision(apart, "keep apart", rule, why),))
# ---------------------------------------------------------------- from a body to a pipeline
def design(graph: Graph, device: Device) -> Pipeline | PipelineRefusal:
    """Make a body a pipeline (Algorithm 1), or return what prevents it.

    A tile that needs a complete fold prevents one: until the last tile all others would wait.
    """
    found = best_cut(graph)
    everything = range(len(graph))
    if found is None:
        return refusal(everything, "no-tiles",
                       "no axis of a product can be cut in two along with what it is made of")
    if not all(n.type.size for n in graph.nodes):
        return refusal(everything, "no-tiles", "a value of it is empty")
    if found.refused:
        said = tuple(Decision((n,), "keep apart", "not-tile-by-tile", f"%{n} {graph[n].op}: {why}")
                     for n, why in found.refused)
        return PipelineRefusal(tuple(n for n, _ in found.refused), said)
    free = VIEWS | {"input", "constant"}
    lost = [n.id for n in graph.nodes if found.axes[n.id] is None and n.op not in free]
    if lost:
        return refusal(lost, "unconnected", "no tile of the rest is made of it, or from it")
    late = [n.id for n in graph.nodes if n.op == "matmul" and found.axes[n.id] == FINAL]
    if late:
        return refusal(late, "late-product", "a product of what is complete only after the last "
                       "tile has all tiles to wait for: it is a launch of its own")
    stages = _Stages(found).stages()
    if len(stages) < 2:
        return refusal(everything, "one-stage", "one stage has no queue")
    tile = _tile(found, stages, device)
    if tile >= found.units:
        return refusal(everything, "one-tile", "all its tiles together are one tile for "
                       f"{device.name}: {found.units} of {tile} units")
    return assemble(found, stages, tile)


def assemble(found: Tiling, stages: Sequence[Stage], tile: int, room: int = 0) -> Pipeline:
    """The pipeline of these stages: name the stages, and make the queues between them.

    ``tile`` is a number of units. Each queue has enough entries for one block a stage. If ``room``
    bytes allow, it has more, up to enough for every block. Raises PlanError as ``verify_pipeline``.
    """
    parts = ((s.name.rpartition("_")[0] or s.name, s) for s in stages)
    named = [replace(s, name=f"{name}_{number}") for number, (name, s) in enumerate(parts)]
    queues = _queues(found, named, tile, room)
    return verify_pipeline(Pipeline(found.axes, found.units, tile, tuple(named), queues))


class _Stages:
    """Deals the nodes of a body out to stages."""

    def __init__(self, found: Tiling) -> None:
        self.found, self.graph = found, found.graph
        computes = [n for n in self.graph.nodes if n.kind != "source" and n.op not in VIEWS]
        self.computes = [n for n in computes if found.axes[n.id] is not None]
        self.level = [0] * len(self.graph)  # node -> products on the longest path to it
        for node in self.graph.nodes:
            above = max((self.level[a] for a in node.args), default=0)
            self.level[node.id] = above + (node.op == "matmul")

    def stages(self) -> tuple[Stage, ...]:
        """The stages. Each comes after the stages that it reads."""
        axes, groups = self.found.axes, [[n] for n in self.computes if n.op == "matmul"]
        others = [n for n in self.computes if n.op != "matmul"]
        for part in self._components([n for n in others if axes[n.id] not in (FOLD, FINAL)]):
            self._place(part, groups)
        groups += [[n] for n in others if axes[n.id] == FOLD]
        made = [self._stage(sorted(g, key=lambda n: n.id)) for g in groups]
        made.sort(key=lambda s: (self.level[s.nodes[0]], s.kind == "simt", s.nodes[0]))
        after = tuple(n.id for n in self.computes if axes[n.id] in (FOLD, FINAL))
        made += [Stage("final", after, "simt", "final")] * bool(after)
        return tuple(replace(s, name=f"{s.name}_{number}") for number, s in enumerate(made))

    def _components(self, nodes: Sequence[Node]) -> list[list[Node]]:
        """Groups of nodes on the same level that read each other, directly or through views."""
        levels: dict[int, list[int]] = {}
        for node in nodes:
            levels.setdefault(self.level[node.id], []).append(node.id)
        return [[self.graph[n] for n in group if n in members] for members in levels.values()
                for group in connected(self.graph, members)]

    def _place(self, part: list[Node], groups: list[list[Node]]) -> None:
        """Add light operations on one product's result to its stage. Others are a stage."""
        outside = {s for n in part for s in reads_of(self.graph, n)} - {n.id for n in part}
        tiled = {s for s in outside if self.found.tiled(s) and self.graph[s].op != "input"}
        light = all(n.kind == "map" and not is_heavy(self.graph, n) for n in part)
        made_by = [g for g in groups if tiled == {g[0].id} and g[0].op == "matmul"]
        home = made_by[0] if light and made_by else None
        if home is None:
            groups.append(part)
        else:
            home += part

    def _stage(self, nodes: Sequence[Node]) -> Stage:
        product = next((n for n in nodes if n.op == "matmul"), None)
        role: Role = "fan_in" if any(self.found.axes[n.id] == FOLD for n in nodes) else "map"
        last = nodes[-1]
        name = "product" if product else last.via or last.op
        return Stage(name, tuple(n.id for n in nodes), "tensor" if product else "simt", role)


def crossing(graph: Graph, stages: Sequence[Stage]) -> list[Queue]:
    """Queues for values that another stage reads, still without bytes.

    Several stages make a fold: parts, sums of some, all. A reader takes the last ones before it.
    """
    readers: dict[tuple[int, int], list[int]] = {}
    for number, stage in enumerate(stages):
        earlier = {n for s in stages[:number] for n in s.nodes} if stage.joins else set()
        parts = earlier.intersection(stage.nodes)
        made = [graph[n] for n in stage.nodes if n not in parts]
        read = {s for n in made for s in reads_of(graph, n)} - set(stage.nodes)
        for node in parts | read:
            producers = [k for k in range(number) if node in stages[k].nodes]
            if producers:
                readers.setdefault((node, producers[-1]), []).append(number)
    return [Queue(*key, tuple(who), 0) for key, who in sorted(readers.items())]


def firings(stages: Sequence[Stage], queues: Sequence[Queue], tiles: int) -> list[int]:
    """How often each stage runs: once for each tile or part."""
    found = [tiles] * len(stages)
    for q in queues:
        for number in q.consumers:
            if stages[number].joins and q.node in stages[number].nodes:
                found[number] = stages[q.producer].entries(tiles)
    return found


def _entry_bytes(found: Tiling, node: int, tile: int) -> int:
    nbytes = found.graph[node].type.nbytes
    return nbytes // found.units * tile if found.tiled(node) else nbytes


def _queues(found: Tiling, stages: Sequence[Stage], tile: int, room: int) -> tuple[Queue, ...]:
    made, tiles = crossing(found.graph, stages), -(-found.units // tile)
    payload = [_entry_bytes(found, q.node, tile) for q in made]
    enough = least_depths(stages, made, tiles, full_rate=True)
    made = [replace(q, tile_bytes=size, depth=n)
            for q, size, n in zip(made, payload, enough, strict=True)]
    more = []
    for q in made:
        blocks = max(stages[k].blocks for k in (q.producer, *q.consumers))
        more.append(min(q.depth * blocks, stages[q.producer].entries(tiles)) - q.depth)
    wanted = sum(n * q.tile_bytes for q, n in zip(made, more, strict=True))
    left = min(wanted, max(0, room - sum(q.depth * q.tile_bytes for q in made)))
    shares = [n * left // max(1, wanted) for n in more]
    return tuple(replace(q, depth=q.depth + n) for q, n in zip(made, shares, strict=True))


def _tile(found: Tiling, stages: Sequence[Stage], device: Device) -> int:
    """Units of a tile.

    The widest queue's entry has about ``device.queue_entry`` bytes. A smaller tile that
    divides all units is preferred, because a smaller last tile needs text of its own. It has at
    least half the bytes, and at least ``device.least_queue_entry``.
    """
    tiled = [q.node for q in crossing(found.graph, stages) if found.tiled(q.node)]
    most = max([1, *(_entry_bytes(found, node, 1) for node in tiled)])
    enough = device.least_queue_entry // most
    wanted = max(1, min(device.queue_entry // most, max(found.units // device.sms, enough)))
    least = max((wanted + 1) // 2, min(wanted, enough))
    return next((tile for tile in range(wanted, least - 1, -1) if found.units % tile == 0), wanted)


# ---------------------------------------------------------------- depth
def least_depths(stages: Sequence[Stage], queues: Sequence[Queue], tiles: int,
                 full_rate: bool = False) -> list[int]:
    """The depth of each queue that avoids deadlock; with ``full_rate`` also avoids waiting.

    The paper does not discuss this. A queue past stages that pass tile after tile needs one more
    entry for each of them. Blocks of a combining stage each need an entry to add up in.
    """
    fired = firings(stages, queues, tiles)
    loads = [StageLoad(str(k), "simt", 1.0, tiles=n) for k, n in enumerate(fired)]
    given = [stages[q.producer].entries(tiles) for q in queues]
    channels = [Channel(str(q.producer), tuple(map(str, q.consumers)), 0, entries=n)
                for q, n in zip(queues, given, strict=True)]
    found = depths(loads, channels, full_rate)
    return [most if stages[q.producer].role == "combine" else n
            for q, most, n in zip(queues, given, found, strict=True)]


def verify_pipeline(pipeline: Pipeline) -> Pipeline:
    """Check stages and queues, and return the pipeline unchanged.

    Raises PlanError for a queue without a stage at one end, one that goes backwards, and one that
    would wait forever.
    """
    count = len(pipeline.stages)
    for q in pipeline.queues:
        if not q.consumers or not all(0 <= s < count for s in (q.producer, *q.consumers)):
            raise PlanError(f"{q} has no reader, or names a stage that does not exist: "
                            f"stages are 0 to {count - 1}")
        if min(q.consumers) <= q.producer:
            raise PlanError(f"{q} goes back to an earlier stage: "
                            "put the stages in the order of their data")
    least = least_depths(pipeline.stages, pipeline.queues, pipeline.tiles)
    for q, needed in zip(pipeline.queues, least, strict=True):
        if q.depth < needed:
            raise PlanError(f"{q} has fewer than the {needed} entries that its stages need: "
                            "they would wait for ever")
    return pipeline
