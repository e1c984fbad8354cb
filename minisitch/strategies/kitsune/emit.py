"""Emit a Kitsune pipeline as CUDA text: one kernel, whose ranges of blocks are the stages.

In:  a body, its ``Pipeline``, a ``Device``. Out: a ``PipelineSource``: text, grid and arrays.

    if block < 2:                                   # stage 0 product_0: tensor map, %2, 2 blocks
        mine = block
        for tile in range(mine, 16, 2):
            entry2 = tile % 2
            turn2 = tile // 2
            if thread == 0:                         # acquire: wait until readers free the entry
                while load_acquire(counters, Q2_0_READ_1 + entry2 * 32) < turn2:
                    pass
            cuda.syncthreads()
            ...                                     # the stage's own kernel, for one tile
            cuda.syncthreads()
            if thread == 0:                         # release: readers of the count see the data
                add_release(counters, Q2_0_WRITTEN + entry2 * 32, 1)
    elif block < 3:                                 # stage 1 ...

Each stage's operations are scheduled as an ordinary kernel for a device with one block, at the
shape of a tile. Its grid barriers become block barriers. ``_Place`` changes its indices to where a
buffer lies in the whole: a tile of an input, an entry of a queue, a block's own scratch.

A product goes through shared memory (``product.py``). An operand that is not a matrix in memory is
copied element by element. The kernel itself sets the counters to zero. The grid barrier after that
makes the launch cooperative: either all blocks are resident, or none starts.

A queue that holds all entries it ever gets has no credits, so its writer never waits for room. Such
are queues of parts from a combining stage.

If the last tile is smaller, each stage has text for it: ``if tile < 12: ... else: ...``. Left out:
tensor cores, and product tiles of other sizes. A tile of 64 x 64 wastes half of its sums if a
pipeline's tile has 32 rows.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from ...cuda_emit import emit_segments
from ...device import Device
from ...errors import KernelError
from ...fuse import VIEWS, Stitching, behind_views, count
from ...graph import Graph, Node
from ...kernel import Kernel
from ...kernel.ir import Buffer, Fold, Load, Nest, Scalar, Segment, Stmt, Store
from ...kernel.nests import rewritten, with_folds, with_operands
from ...kernel.text import Writer, fold_step, literal, literals, numpy_name
from ...ops import SHORT, compute_dtype, itemsize
from ...passes.registry import DEFAULTS, kernel_of
from ...stitch.body import Body
from ...stitch.compose import compose
from ...stitch.dominants import upstream
from ...stitch.index import ZERO, Digit, Index, digits, linear, show, unravel, variable
from ...stitch.pull import operands_at
from ...trace.builder import label
from .pipeline import Pipeline, Queue, Stage
from .product import Elements, Matrix, Product, Tile
from .tiles import COMBINE, resized

SPACING = 32  # words between counters, so that each has 128 bytes of L2 for itself
REGISTERS = 64  # of a thread; assumed, because the grid barrier is a call


@dataclass(frozen=True)
class PipelineArray:
    """One parameter of the kernel.

    ``kind`` is "input", "output", "queue", "scratch" or "counters". The session or the step
    allocates the last three, which should stay in L2.
    """

    name: str
    dtype: str
    size: int
    kind: str


@dataclass(frozen=True)
class PipelineSource:
    """A pipeline as text, launched cooperatively with ``grid`` blocks of ``block`` threads."""

    pipeline: Pipeline
    name: str
    text: str
    grid: int
    block: int
    registers: int
    shared_bytes: int
    arrays: tuple[PipelineArray, ...]
    exact: bool = True  # as in a KernelSource

    @property
    def resident(self) -> tuple[str, ...]:
        """Names of the arrays that should stay in L2."""
        return tuple(a.name for a in self.arrays if a.kind not in ("input", "output"))


@dataclass(frozen=True)
class Flow:
    """A pipeline: its body, and the text of its one kernel."""

    body: Body
    source: PipelineSource

    @property
    def own(self) -> tuple[tuple[str, int], ...]:
        """What each session allocates besides the workspace: queues, scratch, counters."""
        found = (a for a in self.source.arrays if a.name in self.source.resident)
        return tuple((a.name, a.size * itemsize(a.dtype)) for a in found)

    @property
    def own_bytes(self) -> int:
        return sum(nbytes for _, nbytes in self.own)

    def __str__(self) -> str:
        """The body, the stages with their ranges of blocks and queues, the parameters, the text."""
        source, first = self.source, 0
        lines = [f"# pipeline {source.name}: a program of its own, with ids of its own",
                 str(self.body), "", str(source.pipeline), "",
                 f"{source.name}: {source.grid} blocks of {source.block} threads, all resident; "
                 f"{source.registers} registers a thread, {source.shared_bytes} B of shared "
                 "memory a block"]
        for stage in source.pipeline.stages:
            lines.append(f"  {stage.name}: {count(stage.blocks, 'block')} from {first} on")
            first += stage.blocks
        lines += [f"  {a.kind} {a.name}: {a.size} x {a.dtype}, {a.size * itemsize(a.dtype)} B"
                  for a in source.arrays]
        return "\n".join([*lines, "", "# after emit, for cuda", source.text.rstrip()])


@dataclass(frozen=True)
class _Place:
    """Where a buffer of a stage's kernel lies: in array ``name`` at ``offset``.

    If ``shape`` is given, it is a part along ``axis`` of an array of this shape.
    """

    name: str
    size: int
    offset: Index = ZERO
    part: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    axis: int = 0

    def at(self, index: Index) -> Index:
        """An index in the array, from an index in the stage's own buffer."""
        if not self.shape:
            return index + self.offset
        position = list(unravel(index, self.part))
        position[self.axis] = position[self.axis] + self.offset
        return linear(position, self.shape)


@dataclass(frozen=True)
class _Tiles:
    """Tiles of one size: the program for one, its number, and a prefix for names it declares."""

    graph: Graph
    number: Index
    label: str = ""


def emit_pipeline(graph: Graph, pipeline: Pipeline, device: Device, exact: bool = True, *,
                  tile: Tile | None = None,
                  passes: tuple[str, ...] = DEFAULTS["gpu"]) -> PipelineSource:
    """The pipeline's text.

    ``tile`` is a product's tile, and its threads are those of a block. Raises KernelError for more
    blocks than can be resident, for more shared memory than a block has, and for blocks that a
    stage cannot use.
    """
    return _Emitter(graph, pipeline, device, tile or Tile(), exact, passes).emit()


class _Emitter:
    """Writes the text of one pipeline. Declarations are added in front at the end."""

    def __init__(self, graph: Graph, pipeline: Pipeline, device: Device, tile: Tile, exact: bool,
                 passes: tuple[str, ...]) -> None:
        threads = tile.threads
        if threads & (threads - 1):
            raise KernelError(f"blocks of {threads} threads: shuffles between the warps of a row "
                              "need a power of two, such as 256")
        self.graph, self.pipeline, self.threads, self.product_tile = graph, pipeline, threads, tile
        self.device, self.passes = device, passes
        self.one_block = replace(device, sms=1, blocks_per_sm=1, max_block=threads)
        self.found = pipeline.cut(graph)
        rest = pipeline.units % pipeline.tile
        self.even = _Tiles(self._at(pipeline.tile), variable("tile", pipeline.tiles - bool(rest)))
        self.last = _Tiles(self._at(rest), Index(pipeline.tiles - 1), "last_") if rest else None
        self.now = self.even  # the tiles whose text is being written
        self.home = {n: k for k, s in reversed([*enumerate(pipeline.stages)]) for n in s.nodes}
        self.number = 0  # the stage whose text is being written
        self.arrays: dict[str, PipelineArray] = {}
        # Shared arrays by dtype. Stages use the same, because no block runs two stages.
        self.pool: dict[str, list[int]] = {}
        self.shared = self._left_by_products()
        self.constants: dict[str, str] = {}
        self.products: dict[str, Product] = {}
        self.w = Writer(exact=exact)

    def _at(self, units: int) -> Graph:
        nodes = (resized(n, self.found, units) for n in self.graph.nodes)
        return Graph(tuple(nodes), self.graph.outputs)

    @property
    def small(self) -> Graph:
        """The program for one of the tiles whose text is being written."""
        return self.now.graph

    # ------------------------------------------------------------ the whole
    def emit(self) -> PipelineSource:
        for k, node in enumerate(self.graph.inputs):
            self._array(f"x{k}", node, "input")
        for k, node in enumerate(self.graph.outputs):
            self._array(f"y{k}", node, "output")
        for q in self.pipeline.queues:
            t = self.small[q.node].type
            self.arrays[q.name] = PipelineArray(q.name, t.dtype, t.size * q.depth, "queue")
        grid = sum(s.blocks for s in self.pipeline.stages)
        stages = self._stages()
        counted = sum(q.depth * (1 + len(self._credits(q))) for q in self.pipeline.queues)
        counters = counted * SPACING
        self.arrays["counters"] = PipelineArray("counters", "int32", counters, "counters")
        shared = _bytes(self.pool) + sum(p.shared_bytes for p in self.products.values())
        wave = self.device.wave(self.threads, shared, REGISTERS)
        nodes = (n for s in self.pipeline.stages for n in s.nodes)
        first = next((label(self.graph[n]) for n in nodes), "the pipeline")
        if shared > self.device.shared_per_block:
            raise KernelError(f"the pipeline from {first} on needs {shared} B of shared memory a "
                              f"block, but {self.device.name} has {self.device.shared_per_block}: "
                              'take strategy="astitch", or smaller tiles of products')
        if grid > wave:
            raise KernelError(f"the stages of the pipeline from {first} on have {grid} blocks of "
                              f"{self.threads} threads, but {self.device.name} holds {wave} at "
                              'once: give them fewer, or take strategy="astitch"')
        meaning = f"({self.graph.structure}, {self.pipeline}, {self.threads}, {self.product_tile})"
        name = f"pipeline_{hashlib.sha256(meaning.encode()).hexdigest()[:6]}"
        text = "\n".join([*self._head(name, grid, counters), *stages]) + "\n"
        registers = self.device.relaxed_registers(self.threads, shared, grid, REGISTERS)
        return PipelineSource(self.pipeline, name, text, grid, self.threads, registers, shared,
                              tuple(self.arrays.values()), self.w.exact)

    def _array(self, name: str, node: int, kind: str) -> None:
        t = self.graph[node].type
        self.arrays[name] = PipelineArray(name, t.dtype, t.size, kind)

    def _head(self, name: str, grid: int, counters: int) -> Iterator[str]:
        """Constants, the function's first line, shared memory, and zeroing of the counters."""
        yield from (f"{constant} = {value}" for constant, value in self.constants.items())
        first = 0
        for q in self.pipeline.queues:
            for what in ("WRITTEN", *(f"READ_{c}" for c in self._credits(q))):
                comment = f"  # {q}" if what == "WRITTEN" else ""
                yield f"{q.name.upper()}_{what} = {first}{comment}"
                first += q.depth * SPACING
        yield from ("", "", f"def {name}({', '.join(self.arrays)}):")
        yield "    thread = cuda.threadIdx.x"
        yield "    block = cuda.blockIdx.x"
        yield "    grid = cuda.cg.this_grid()"
        for dtype, sizes in self.pool.items():
            for k, size in enumerate(sizes):
                yield f"    {_pooled(dtype, k)} = cuda.shared.array({size}, {numpy_name(dtype)})"
        for product in self.products.values():
            yield from (f"    {line}" for line in product.declare())
        start = f"block * {self.threads} + thread"
        yield f"    for k in range({start}, {counters}, {grid * self.threads}):"
        yield "        counters[k] = 0"
        yield "    grid.sync()  # all blocks are resident, and all counters zero"

    def _stages(self) -> list[str]:
        first = 0
        for number, stage in enumerate(self.pipeline.stages):
            last = first + stage.blocks
            test = f"{'elif' if number else 'if'} block < {last}:"
            if number == len(self.pipeline.stages) - 1:
                test = "else:"
            self.w.depth = 1
            self.w.line(test, f"stage {number} {stage}")
            self.w.depth, self.number = 2, number
            self.w.line(f"mine = block - {first}" if first else "mine = block")
            if stage.joins:
                self._join(number, stage)
            else:
                self._tiles(number, stage)
            first = last
        return self.w.lines

    # ------------------------------------------------------------ the protocol
    def _tiles(self, number: int, stage: Stage) -> None:
        reads, writes = self._touching(number)
        self.w.line(f"for tile in range(mine, {self.pipeline.tiles}, {stage.blocks}):")
        self.w.depth += 1
        self._acquire(reads, writes)
        if self.last:
            self.w.line(f"if tile < {self.pipeline.tiles - 1}:")
            self.w.depth += 1
            self._body(number, stage)
            self.w.depth -= 1
            units, tile = self.pipeline.units, self.pipeline.tile
            self.w.line("else:", f"{units % tile} of {tile} units are left")
            self.w.depth += 1
            self.now = self.last
        self._body(number, stage)
        if self.last:
            self.now = self.even
            self.w.depth -= 1
        self.w.line("cuda.syncthreads()")
        self._release(number, reads, writes)
        self.w.depth -= 1

    def _touching(self, number: int) -> tuple[list[Queue], list[Queue]]:
        """The queues that a stage reads, and those that it writes."""
        queues = self.pipeline.queues
        reads = [q for q in queues if number in q.consumers]
        return reads, [q for q in queues if q.producer == number]

    def _credits(self, q: Queue) -> tuple[int, ...]:
        """The stages whose reads are counted: none if every entry is used once."""
        entries = self.pipeline.stages[q.producer].entries(self.pipeline.tiles)
        return q.consumers if q.depth < entries else ()

    def _acquire(self, reads: Sequence[Queue], writes: Sequence[Queue] = ()) -> None:
        for depth in sorted({q.depth for q in (*reads, *writes)}):
            self.w.line(f"entry{depth} = tile % {depth}")
            self.w.line(f"turn{depth} = tile // {depth}")
        waits = [(f"{_counter(q, 'WRITTEN')}) <= turn{q.depth}",
                  f"until the tile of %{q.node} is there") for q in reads]
        for q in writes:
            waits += [(f"{_counter(q, f'READ_{c}')}) < turn{q.depth}",
                       f"until stage {c} has read what the entry of %{q.node} held")
                      for c in self._credits(q)]
        if waits:
            self.w.line("if thread == 0:")
            for until, why in waits:
                self.w.line(f"    while load_acquire(counters, {until}:", why)
                self.w.line("        pass")
            self.w.line("cuda.syncthreads()")

    def _release(self, number: int, reads: Sequence[Queue], writes: Sequence[Queue] = (),
                 entry: str = "") -> None:
        """Count what was written and read, after a barrier. ``entry`` is the tile's by default."""
        counts = [_counter(q, "WRITTEN", entry) for q in writes]
        counts += [_counter(q, f"READ_{number}") for q in reads if self._credits(q)]
        if counts:
            self.w.line("if thread == 0:")
        for counter in counts:
            self.w.line(f"    add_release(counters, {counter}, 1)")

    # ------------------------------------------------------------ where values lie
    def _place(self, node: int, name: str = "") -> _Place:
        """Where a value lies: in a queue that this stage reads, or as a tile of an array."""
        queues = [q for q in self.pipeline.queues if q.node == node and self.number in q.consumers]
        if queues and not name:
            q = queues[0]
            return self._entry(q, variable(f"entry{q.depth}", q.depth))
        whole, part, axis = self.graph[node].type, self.small[node].type, self.found.axes[node]
        name = name or f"x{self.graph.inputs.index(node)}"
        if axis is None or axis < 0:
            return _Place(name, whole.size)
        each = self.even.graph[node].type.shape[axis]
        return _Place(name, whole.size, self.now.number * each, part.shape, whole.shape, axis)

    def _entry(self, q: Queue, entry: Index) -> _Place:
        size = self.even.graph[q.node].type.size
        return _Place(q.name, size * q.depth, entry * size)

    def _results(self, number: int) -> list[tuple[int, _Place]]:
        """The values that a stage gives out, and their places: queues, and outputs (or views)."""
        _, writes = self._touching(number)
        found = [(q.node, self._entry(q, variable(f"entry{q.depth}", q.depth))) for q in writes]
        for k, o in enumerate(self.graph.outputs):
            if self.found.tiled(o) and self.home.get(behind_views(self.graph, o)) == number:
                found.append((o, self._place(o, f"y{k}")))
        return found

    def _scratch(self, name: str, dtype: str, size: int, blocks: int) -> _Place:
        """Global memory for each block of a stage."""
        name = f"{self.now.label}{name}"
        self.arrays[name] = PipelineArray(name, dtype, size * blocks, "scratch")
        return _Place(name, size * blocks, variable("mine", blocks) * size)

    # ------------------------------------------------------------ a stage's body
    def _body(self, number: int, stage: Stage) -> None:
        results, known = self._results(number), dict[int, _Place]()
        if stage.kind == "tensor":
            product = next(n for n in stage.nodes if self.graph[n].op == "matmul")
            direct = [place for node, place in results if node == product]
            results = [(node, place) for node, place in results if node != product]
            t = self.small[product].type
            name = f"s{number}_m{product}"
            direct = direct or [self._scratch(name, t.dtype, t.size, stage.blocks)]
            self._product(self.small[product], direct)
            known = {product: direct[0]}
            if results:
                self.w.line("cuda.syncthreads()")
        self._kernel(number, stage, results, known)

    def _cut_out(self, stage: Stage, results: Sequence[int],
                 known: Mapping[int, _Place]) -> tuple[Graph, list[int]]:
        """A stage's operations as a graph whose inputs are others' values, and the nodes' ids."""
        def leaf(node: Node) -> bool:
            made_elsewhere = node.id in self.home and node.id not in stage.nodes
            return node.op == "input" or node.id in known or made_elsewhere

        inside = {n.id for n in self.small.nodes if not leaf(n)}
        made = upstream(self.small, [*inside.intersection(results)], inside)
        ids = sorted({*results, *made, *(a for n in made for a in self.small[n].args)})
        renumbered = {n: k for k, n in enumerate(ids)}
        nodes = []
        for k, n in enumerate(self.small[n] for n in ids):
            nodes.append(Node(k, "input", (), n.type) if leaf(n) else
                         replace(n, id=k, args=tuple(renumbered[a] for a in n.args)))
        return Graph(tuple(nodes), tuple(renumbered[r] for r in results)), ids

    def _kernel(self, number: int, stage: Stage, results: Sequence[tuple[int, _Place]],
                known: Mapping[int, _Place]) -> None:
        """Write an ordinary kernel that makes ``results`` from ``known``, run by this block."""
        if not results:
            return
        body, ids = self._cut_out(stage, [node for node, _ in results], known)
        kernel = self._scheduled(body)
        self.pool = _joined(self.pool, kernel)
        inputs = enumerate(ids[n] for n in body.inputs)
        places = {f"x{k}": known.get(n) or self._place(n) for k, n in inputs}
        places |= {f"y{k}": place for k, (_, place) in enumerate(results)}
        pooled = _shared(kernel)
        for b in kernel.buffers:
            owner = kernel.owners[b.name]
            if owner != b.name:
                places[b.name] = places[owner]
            elif b.scope == "scratch":
                places[b.name] = self._scratch(f"s{number}_{b.name}", b.dtype, b.size, stage.blocks)
            elif b.scope == "shared":
                places[b.name] = _Place(_pooled(b.dtype, pooled[b.dtype].index(b)), b.size)
        prefix = f"{self.now.label.upper()}S{number}_"
        renamed = {name: prefix + name for name, _, _ in kernel.constants}
        plan = replace(kernel.plan, graph=self.small)
        moved = replace(_moved(kernel, places, renamed, ids), plan=plan, block=self.threads, grid=1)
        self.constants |= literals(moved)
        emit_segments(moved, self.w, "0", "cuda.syncthreads()")

    def _left_by_products(self) -> int:
        """Bytes of shared memory for a stage's kernel, so that all blocks can be resident."""
        blocks_per_sm = -(-sum(s.blocks for s in self.pipeline.stages) // self.device.sms)
        left = min(self.device.shared_per_block, self.device.shared_per_sm // blocks_per_sm)
        operands = set[str]()
        for node in self.graph.nodes:
            if node.op == "matmul":
                operands.add(compute_dtype(self.graph[node.args[0]].type.dtype))
        for any_of in (Elements(dtype, "") for dtype in operands):
            left -= Product(1, 1, 1, any_of, any_of, self.product_tile).shared_bytes
        return max(0, left)

    def _scheduled(self, body: Graph) -> Kernel:
        """The body's kernel. It reuses other stages' shared arrays, and gets what is left."""
        for left in (self.shared, self.shared - _bytes(self.pool)):
            block = replace(self.one_block, shared_per_block=left)
            kernel = kernel_of(compose(body, block, Stitching(threads=self.threads)), self.passes)
            if _bytes(_joined(self.pool, kernel)) <= self.shared:
                break
        return kernel

    # ------------------------------------------------------------ products
    def _product(self, node: Node, places: Sequence[_Place]) -> None:
        """Write one tile's product, matrix by matrix of a batch, to all ``places``."""
        *batch, rows, cols = node.type.shape
        inner = self.small[node.args[0]].type.shape[-1]
        count, matrix = math.prod(batch), digits("matrix", tuple(batch))
        a = self._operand(node.args[0], matrix, rows, inner)
        b = self._operand(node.args[1], matrix, inner, cols)
        position = (*matrix, variable("row", rows), variable("col", cols))
        product = Product(rows, cols, inner, a, b, self.product_tile)
        # Products of one dtype share their declarations.
        product = replace(product, prefix=f"{SHORT[product.held]}_")
        self.products.setdefault(product.prefix, product)
        mark = self.w.depth
        if count > 1:
            self.w.line(f"for matrix in range({count}):")
            self.w.depth += 1
        tile = self.product_tile
        self.w.line(f"for first_row in range(0, {rows}, {tile.rows}):", f"%{node.id} matmul")
        self.w.line(f"    for first_col in range(0, {cols}, {tile.cols}):")
        self.w.depth += 2
        lines = [*product.sums("first_row", "first_col")]
        for place in places:
            at = place.at(linear(position, node.type.shape))
            c = self._flat(at, place.name, node.type.dtype, rows, cols)
            assert c is not None, "a tile of a result is a matrix wherever it lies"
            lines += product.stores(c, "first_row", "first_col")
        for line in lines:
            self.w.line(line)
        self.w.depth = mark

    def _operand(self, value: int, matrix: Sequence[Index], rows: int,
                 cols: int) -> Matrix | Elements:
        """A product's operand behind views: a matrix if it lies as one, else single elements."""
        shape = self.small[value].type.shape
        batch = matrix[len(matrix) - len(shape) + 2:]
        lead = [i if n > 1 else ZERO for i, n in zip(batch, shape, strict=False)]
        node, position = self.small[value], (*lead, variable("row", rows), variable("col", cols))
        while node.op in VIEWS:
            read, = operands_at(self.small, node, position, lambda *_: ZERO)
            assert read is not None
            node, position = self.small[read.node], read.position
        dtype, extents = compute_dtype(node.type.dtype), {"row": rows, "col": cols}
        if node.op == "constant":
            return Elements(dtype, literal(node.type.dtype, node.attr("value")))
        if node.op == "iota":
            index = show(position[node.attr("axis")], extents)
            return Elements(dtype, f"{numpy_name(dtype)}({index})")
        place = self._place(node.id)
        at, dtype = place.at(linear(position, node.type.shape)), self.arrays[place.name].dtype
        found = self._flat(at, place.name, dtype, rows, cols)
        return found or Elements(dtype, f"{place.name}[{show(at, extents)}]")

    def _flat(self, index: Index, name: str, dtype: str, rows: int, cols: int) -> Matrix | None:
        """A matrix, if the index is affine in row and column; else None."""
        sizes, steps, rest = {"row": rows, "col": cols}, {"row": 0, "col": 0}, Index(index.const)
        for c, atom in index.terms:
            if (isinstance(atom, Digit) and atom.stride == 1 and atom.var in steps
                    and atom.size >= sizes[atom.var]):
                steps[atom.var] += c
            elif sizes.keys() & Index(0, ((c, atom),)).variables:
                return None
            else:
                rest = rest + Index(0, ((c, atom),))
        row_step, col_step = (steps[name] if size > 1 else 1 for name, size in sizes.items())
        return Matrix(name, dtype, row_step, col_step, "" if rest == ZERO else show(rest))

    # ------------------------------------------------------------ reductions over the tiles
    def _join(self, number: int, stage: Stage) -> None:
        """Add up each block's share of the parts in order. A final stage then uses the sums."""
        named = f"stage {number} {stage.name} of {label(self.graph[stage.nodes[0]])}"
        if stage.role == "final" and stage.blocks != 1:
            raise KernelError(f"{named} is final and has {stage.blocks} blocks: "
                              "give it one block, so that it adds in order")
        reads, writes = self._touching(number)
        taken, w, sums = self.pipeline.taken[number], self.w, dict[int, _Place]()
        if taken < stage.blocks:
            raise KernelError(f"{named} has {stage.blocks} blocks for {taken} parts: "
                              f"give it {taken} at most")
        for q in reads:
            t, on = self.graph[q.node].type, next((to for to in writes if to.node == q.node), None)
            sums[q.node] = self._entry(on, variable("mine", stage.blocks)) if on else self._scratch(
                f"s{number}_a{q.node}", compute_dtype(t.dtype), t.size, 1)
        w.line(f"for tile in range(mine, {taken}, {stage.blocks}):", "parts, in order")
        w.depth += 1
        self._acquire(reads)
        for q in reads:
            t, place = self.graph[q.node].type, sums[q.node]
            total = f"{place.name}[{show(place.at(variable('k', t.size)))}]"
            part = f"{q.name}[{show(self._place(q.node).at(variable('k', t.size)))}]"
            op = self.graph[q.node].op
            joined = fold_step(COMBINE[op], compute_dtype(t.dtype), total, part, "cuda")
            by_threads = f"for k in range(thread, {t.size}, {self.threads}):"
            w.line(by_threads, f"%{q.node} {op} over the tiles")
            w.line("    if tile == mine:")
            w.line(f"        {total} = {part}")
            w.line("    else:")
            w.line(f"        {total} = {joined}")
        again = any(map(self._credits, reads))
        if again:
            w.line("cuda.syncthreads()")
            self._release(number, reads)
        w.depth -= 1
        if not again:
            w.line("cuda.syncthreads()")
        if stage.role == "final":
            self._complete(number, stage, sums)
        self._release(number, (), writes, entry="mine")

    def _complete(self, number: int, stage: Stage, sums: Mapping[int, _Place]) -> None:
        """Write what a final stage makes of its sums."""
        made = [(o, self._place(o, f"y{k}")) for k, o in enumerate(self.graph.outputs)
                if not self.found.tiled(o) and behind_views(self.graph, o) in stage.nodes]
        for o, place in made:
            if o in sums:
                self.w.line(f"for k in range(thread, {place.size}, {self.threads}):", f"%{o}")
                self.w.line(f"    {place.name}[k] = {sums[o].name}[k]")
        self._kernel(number, stage, [(o, place) for o, place in made if o not in sums], sums)

def _counter(q: Queue, what: str, entry: str = "") -> str:
    """Where a queue's counter of what was written or read lies, for one of its entries."""
    return f"{q.name.upper()}_{what} + {entry or f'entry{q.depth}'} * {SPACING}"
def _pooled(dtype: str, k: int) -> str:
    return f"shared{k}_{SHORT[dtype]}"


def _shared(kernel: Kernel) -> dict[str, list[Buffer]]:
    """The kernel's shared arrays by dtype."""
    found: dict[str, list[Buffer]] = {}
    for b in kernel.buffers:
        if b.scope == "shared" and kernel.owners[b.name] == b.name:
            found.setdefault(b.dtype, []).append(b)
    return found


def _joined(pool: Mapping[str, Sequence[int]], kernel: Kernel) -> dict[str, list[int]]:
    """The sizes of shared arrays by dtype, enlarged so that this kernel can use them too."""
    mine = {dtype: [max(b.size, 1) for b in buffers] for dtype, buffers in _shared(kernel).items()}
    return {d: [max(sizes) for sizes in zip_longest(pool.get(d, ()), mine.get(d, ()), fillvalue=0)]
            for d in {**pool, **mine}}


def _bytes(pool: Mapping[str, Sequence[int]]) -> int:
    return sum(itemsize(dtype) * sum(sizes) for dtype, sizes in pool.items())


def _moved(kernel: Kernel, places: Mapping[str, _Place], renamed: Mapping[str, str],
           ids: Sequence[int]) -> Kernel:
    """The kernel with its buffers, constants and nodes renamed for the whole pipeline."""
    def buffer(b: Buffer) -> Buffer:
        place = places[b.name]
        return replace(b, name=place.name, size=b.size if b.scope == "shared" else place.size)

    def moved(stmt: Stmt) -> Nest:
        if not isinstance(stmt, Scalar):
            return (stmt,)
        names: dict[str, Any] = {"node": ids[stmt.node]}
        if isinstance(stmt, Load | Store):
            place = places[stmt.buffer]
            names |= {"buffer": place.name, "index": place.at(stmt.index)}
        return (replace(with_operands(stmt, renamed), **names),)

    def fold(f: Fold) -> Fold:
        buffer, exchange = (places[name].name if name else "" for name in (f.buffer, f.exchange))
        value = renamed.get(f.value, f.value)
        return replace(f, node=ids[f.node], value=value, buffer=buffer, exchange=exchange)

    def nest(found: Nest) -> Nest:
        return with_folds(rewritten(found, moved), fold)

    last_carries = sorted(kernel.buffers, key=lambda b: b.role == "carry")
    buffers = {b.name: b for b in map(buffer, last_carries)}
    def segment(s: Segment) -> Segment:
        phases = tuple(replace(p, nest=nest(p.nest)) for p in s.phases)
        return replace(s, phases=phases, opening=nest(s.opening), closing=nest(s.closing))

    segments = tuple(map(segment, kernel.segments))
    constants = tuple((renamed[name], dtype, value) for name, dtype, value in kernel.constants)
    return replace(kernel, buffers=tuple(buffers.values()), segments=segments, constants=constants)
