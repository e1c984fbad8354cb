"""Short rows together: a core takes some rows through each loop before the next loop.

In:  a kernel for a CPU. Out: the same kernel, short rows a few at a time, and the rows of memory
that they then need.

Max, exponential, sum and quotient of one row wait for each other. In a long row the loops hide
this. Loops of 32 columns end before the first result is there, and the core waits. Loops of
different rows do not wait for each other:

Before:  row: max -> r1; exp, sum -> r5; divide
After:   8 rows: max -> r1, kept in b1[lane_row];
         8 rows: r1 = b1[lane_row], exp, sum -> r5, kept in b5[lane_row]; ...

A scratch row that keeps a whole row of values becomes one for each of the rows. Not for split rows.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count

from ..kernel import Kernel, ir
from ..kernel.nests import accesses, parts, rewritten, with_accesses
from ..ops import compute_dtype
from ..stitch.index import Index, variable
from .axes import over_rows
from .registry import kernel_pass

SHORT_ROW = 256  # columns; the loops of a longer row are long enough to hide the wait
# Of the rows taken together: 4 kB of each float32 array, so that all stay in the nearest cache.
ELEMENTS = 1024
MOST_ROWS, FEWEST_ROWS = 32, 4


@kernel_pass("batch_rows", "cpu")
def batch_rows(kernel: Kernel) -> Kernel:
    """Take the short rows of each segment together."""
    segments, buffers = [], dict(kernel.by_name)
    for segment in kernel.segments:
        alone = segment.step > 1 or segment.windows
        made, rows = (segment, ()) if alone else take_together(segment, buffers)
        segments.append(made)
        buffers |= {b.name: b for b in rows}
    if len(buffers) == len(kernel.buffers):
        return kernel
    return replace(kernel, segments=tuple(segments), buffers=tuple(buffers.values()))


def take_together(segment: ir.Segment,
                  buffers: Mapping[str, ir.Buffer]) -> tuple[ir.Segment, tuple[ir.Buffer, ...]]:
    """The segment with short rows taken together, and the buffers for what crosses its loops.

    The segment itself, without buffers, if its rows are long, few or split, or if nothing crosses.
    """
    cols = max((p.cols * p.serial for p in segment.phases), default=0)
    crossing = _crossing(segment.phases)
    if (segment.space.kind != "row" or segment.chunks != 1 or segment.slices != 1
            or not 1 < cols <= SHORT_ROW or not crossing or "" in crossing.values()):
        return segment, ()
    rows = min(MOST_ROWS, max(FEWEST_ROWS, ELEMENTS // cols))
    if segment.rows < 2 * rows:
        return segment, ()
    made: dict[str, ir.Buffer] = {}
    for (name, node), dtype in crossing.items():
        own = _unused(f"b_{name}", {*buffers, *made})
        made[own] = ir.Buffer(own, dtype, rows, "shared", node, why="of the rows taken together",
                              role="together")
    here = variable("lane_row", rows)
    places = {name: ir.Load(name, b.name, here, (), False, b.dtype, b.node)
              for (name, _), b in zip(crossing, made.values(), strict=True)}
    kept = {a.buffer: buffers[a.buffer] for a in accesses(segment, segment.nest)}
    kept = {name: b for name, b in kept.items() if b.role == "kept"}
    starts = {name: here * b.size for name, b in sorted(kept.items())}
    phases = tuple(_over_rows(_apart(p, starts), rows, segment.rows, places) for p in segment.phases)
    longer = (replace(kept[name], size=kept[name].size * rows) for name in starts)
    return replace(segment, phases=phases, step=rows), (*longer, *made.values())


def _unused(name: str, buffers: Collection[str]) -> str:
    """A name that no buffer has. Two segments may give values of different sizes the same name."""
    return next(n for n in chain([name], (f"{name}_{k}" for k in count(1))) if n not in buffers)


def _made(phase: ir.Phase) -> Iterator[tuple[str, int, str]]:
    """What a loop leaves for later ones of its row: name, node, dtype.

    The dtype is "" for a position, which is no value.
    """
    alone = parts(phase).body if phase.cols * phase.serial == 1 else ()
    for stmt in (*parts(phase).before, *alone):
        if not isinstance(stmt, ir.Store):
            dtype = "" if isinstance(stmt, ir.Clamp) else compute_dtype(stmt.dtype)
            yield stmt.target, stmt.node, dtype
    for fold in parts(phase).folds:
        if fold.along == "row" and not fold.buffer:
            yield fold.result, fold.node, compute_dtype(fold.dtype)


def _read(phase: ir.Phase) -> set[str]:
    values = {s.fold.value for s in ir.each(phase.nest, ir.Accumulate)}
    scalars = (s for s, _ in ir.walk(phase.nest) if isinstance(s, ir.Scalar))
    return values.union(*map(ir.operands, scalars))


def _crossing(phases: Sequence[ir.Phase]) -> dict[tuple[str, int], str]:
    """What one loop of a row makes and a later one reads: (name, node) -> dtype."""
    found: dict[tuple[str, int], str] = {}
    for k, phase in enumerate(phases):
        later = set().union(*(_read(p) for p in phases[k + 1:]))
        found |= {(name, node): dtype for name, node, dtype in _made(phase) if name in later}
    return found


def _apart(phase: ir.Phase, starts: Mapping[str, Index]) -> ir.Phase:
    """Each row keeps its values in a place of its own."""
    return with_accesses(
        phase, lambda s: replace(s, index=s.index + starts[s.buffer]) if s.buffer in starts else s)


def _over_rows(phase: ir.Phase, rows: int, of: int, places: Mapping[str, ir.Load]) -> ir.Phase:
    """The phase in a loop over rows.

    It first fetches what it reads of earlier phases, and puts away what it makes for later ones.
    """
    own = {name for name, _, _ in _made(phase)}
    alone = parts(phase).body if phase.cols * phase.serial == 1 else ()
    once = {id(s) for s in (*parts(phase).before, *alone)}

    def put_away(stmt: ir.Stmt) -> ir.Nest:
        folds = stmt.folds if isinstance(stmt, ir.Combine) else ()
        names = [f.result for f in folds if f.along == "row"]
        if id(stmt) in once and isinstance(stmt, ir.Scalar) and not isinstance(stmt, ir.Store):
            names.append(stmt.target)
        kept = [places[name] for name in names if name in places]
        return (stmt, *(ir.Store(p.buffer, p.index, p.target, (), p.node) for p in kept))

    read = _read(phase) - own
    loads = (load for name, load in places.items() if name in read)
    return replace(phase, nest=over_rows(rows, of, (*loads, *rewritten(phase.nest, put_away))))
