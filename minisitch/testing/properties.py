"""The properties of each pass that may be swapped. ``testing/seams.py`` checks results by them.

In:  a ``Run``, which calls the function under test, and the arguments of one call. Out: its result.
Raises ``Broken`` with the name of the property and what was seen.

Where the paper fixes a result, so do its properties: a span is the longest path. Where it leaves a
choice, they leave it too: rows may be packed in several ways.
"""

import copy
import inspect
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..device import Device
from ..fuse import count, is_heavy, stretches
from ..graph import Graph
from ..kernel.ir import Buffer
from ..ops import itemsize
from ..simt.memory import Stamp
from ..stitch.dominants import Group, candidates, is_row_reduce, upstream
from ..stitch.mapping import LONG_ROW, WARP, ThreadMap
from ..strategies.fs20.explore import BEST, Candidate, Dag, bits

PACKAGE = Path(__file__).parent.parent
MOST_WASTED = 1.05  # memory that a plan may take, as a multiple of what best fit takes


class Broken(Exception):
    """A result lacks the property ``rule``."""

    def __init__(self, rule: str, seen: str):
        super().__init__(rule, seen)
        self.rule, self.seen = rule, seen


def require(holds: object, rule: str, seen: str) -> None:
    """Raise Broken unless a property holds."""
    if not holds:
        raise Broken(rule, seen)


@dataclass(frozen=True)
class Run:
    """Calls the function under test. ``reference`` is the compiler's own pass."""

    function: Callable[..., Any]
    reference: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result. Raises Broken if it raises anything, or changes its arguments."""
        given = [copy.deepcopy(a) if isinstance(a, dict | list | set) else a for a in args]
        try:
            answer = self.function(*given, **kwargs)
        except Broken:
            raise  # by a function among the arguments
        except (Exception, SystemExit) as error:
            seen = f"{type(error).__name__}: {error}, in {_line(self.function, error)}"
            raise Broken("raises", seen) from error
        require(given == list(args), "pure", "it changes its arguments: work on copies")
        return answer


def _line(function: Callable[..., Any], error: BaseException) -> str:
    """The line of the function that raised, or its first line if it was not called at all."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    frames = [f for f in traceback.extract_tb(error.__traceback__)
              if not Path(f.filename).is_relative_to(PACKAGE)]
    own = [f for f in frames if code and f.filename == code.co_filename] or frames
    if own:
        return f"{Path(own[-1].filename).name}:{own[-1].lineno}: {own[-1].line}"
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else repr(function)


# ---------------------------------------------------------------- words that several share
def _is(answer: Any, kind: type) -> None:
    seen = type(answer).__name__
    require(isinstance(answer, kind), "type", f"it returns {seen} where {kind.__name__} is expected")


def _are_numbers(found: Iterable[Any], what: str, least: int = 0) -> None:
    for n in found:
        known = type(n) is int and n >= least
        require(known, "type", f"{what} {n!r}; expected a whole number from {least} on")


def _ids(nodes: Iterable[int]) -> str:
    return "{" + " ".join(f"%{n}" for n in nodes) + "}"


def _take(n: int, word: str) -> str:
    """``1 block takes``, ``2 blocks take``."""
    return f"{count(n, word)} take{'s' if n == 1 else ''}"


# ---------------------------------------------------------------- stitch/mapping.py
def check_map_rows(run: Run, rows: int, cols: int, device: Device, *, adaptive: bool = True,
                   whole: bool = False, threads_per_row: int = 0, threads: int = 0) -> ThreadMap:
    """The threads are legal, and cover all rows and columns in one wave. The device is busy."""
    m = run(rows, cols, device, adaptive=adaptive, whole=whole, threads_per_row=threads_per_row,
            threads=threads)
    _is(m, ThreadMap)
    for name in ("blocks", "threads", "rows_per_block", "threads_per_row", "steps", "splits"):
        _are_numbers([getattr(m, name)], name, 1)
    _are_numbers([m.chunk], "chunk")
    block = min(threads or device.max_block, device.max_block)
    _check_legal(m, device, block, threads_per_row)
    require((m.rows, m.cols) == (rows, cols), "covers", f"it maps <{m.rows}, {m.cols}> instead")
    _check_covers(m)
    if not adaptive:
        seen = f"{count(m.blocks, 'block')} of {count(m.rows_per_block, 'row')}"
        alone = m.blocks == max(1, rows) and m.rows_per_block == m.splits == 1
        require(alone, "block a row", f"{seen}; adaptive=False asks for a block a row")
        return m
    wave, may_split = device.wave(m.threads), not (whole or threads_per_row)
    require(m.blocks <= wave, "one wave", f"{count(m.blocks, 'block')}; only {wave} are "
            "resident at once: let each take several tasks in turn")
    require(m.splits == 1 or may_split, "whole", f"{count(m.splits, 'chunk')} of a whole row")
    _check_busy(m, device.wave(block), may_split, chosen=threads_per_row > 0)
    return m


def _check_legal(m: ThreadMap, device: Device, most: int, threads_per_row: int) -> None:
    block, row = f"a block of {count(m.threads, 'thread')}", count(m.threads_per_row, "thread")
    require(m.threads <= most, "legal", f"{block}; at most {most} are allowed")
    fits = m.threads == m.rows_per_block * m.threads_per_row
    require(fits, "legal", f"{block} for {count(m.rows_per_block, 'row')} of {row}")
    if device.kind == "cpu":
        require(m.threads == 1, "legal", f"{block}; a CPU has one thread a task")
        return
    require(m.threads % WARP == 0, "legal", f"{block}, which are not whole warps of {WARP}")
    wanted = min(most, threads_per_row) or m.threads_per_row
    require(m.threads_per_row == wanted, "legal", f"{row} a row; {wanted} are asked for")
    power = m.threads_per_row & (m.threads_per_row - 1) == 0
    require(power, "legal", f"{row} a row meet in pairs: expected a power of two")


def _check_covers(m: ThreadMap) -> None:
    cols, tasks = count(m.cols, "column"), count(m.tasks, "task")
    chunks = f"{_take(m.splits, 'chunk')} {m.splits * m.chunk} of {cols}"
    require(m.splits * m.chunk >= m.cols, "covers", chunks)
    require((m.splits - 1) * m.chunk < max(m.cols, 1), "covers", f"{chunks}: the last has none")
    turns = f"{_take(m.blocks, 'block')} {m.blocks * m.steps} of {tasks}"
    require(m.blocks * m.steps >= m.tasks, "covers", turns)
    require((m.steps - 1) * m.blocks < max(m.tasks, 1), "covers", f"{turns}: the last turn has none")


def _check_busy(m: ThreadMap, wave: int, may_split: bool, chosen: bool) -> None:
    """``chosen``: the caller has chosen the threads of a row."""
    seen, most = count(m.blocks, "block"), min(m.tasks, wave)
    require(2 * m.blocks >= most, "busy", f"{seen}, where {most} of {wave} resident ones have work")
    idle = may_split and 0 < 2 * m.tasks <= wave and m.chunk >= 2 * LONG_ROW
    columns = count(m.chunk, "column")
    require(not idle, "busy", f"{seen} of {wave} resident ones, each with {columns}: split the rows")
    require(chosen or m.threads_per_row <= max(WARP, 2 * m.chunk), "busy",
            f"{count(m.threads_per_row, 'thread')} for {columns}: more than half have no work")


# ---------------------------------------------------------------- stitch/dominants.py
CONSTANTS = ("constant", "iota")


def _are_ids(found: Collection[Any], graph: Graph) -> None:
    for node in found:
        known = type(node) is int and 0 <= node < len(graph)
        require(known, "type", f"{node!r} is no operation; ids are 0 to {len(graph) - 1}")


def check_candidates(run: Run, graph: Graph) -> tuple[int, ...]:
    """Reduces, outputs, and heavy element-wise values that are broadcast. No others."""
    found = run(graph)
    _is(found, tuple)
    _are_ids(found, graph)
    require(list(found) == sorted(set(found)), "order", "expected ascending ids, each once")
    for node in graph.nodes:
        heavy = node.kind == "map" and is_heavy(graph, node) and stretches(graph, node)
        reasons = {"a reduce": node.kind == "reduce", "an output": node.id in graph.outputs,
                   "heavy and broadcast": heavy}
        reason = next((words for words, holds in reasons.items() if holds), "")
        named = f"%{node.id} {node.op}"
        require(node.id in found or not reason, "complete", f"{named} is {reason}: expected it too")
        require(node.id not in found or reason, "only", f"{named} is none of {', '.join(reasons)}")
    return found


def check_groups(run: Run, graph: Graph, merge: bool = True) -> tuple[Group, ...]:
    """What stays connected when edges out of candidates are cut, each with its dominant."""
    found, cut = run(graph, merge), set(candidates(graph))
    _is(found, tuple)
    for group in found:
        _is(group, Group)
        _are_ids((*group.members, group.dominant, *group.subdominants), graph)
        inside = [c for c in group.members if c in cut]
        wanted = _preferred(graph, inside if merge else inside and [group.dominant])
        require(group.dominant in inside and group.dominant in wanted, "dominant",
                f"%{group.dominant} of {_ids(group.members)}; expected one of {_ids(wanted)}")
        others = sorted(c for c in inside if merge and c != group.dominant)
        seen = _ids(group.subdominants)
        require(sorted(group.subdominants) == others, "sub-dominants",
                f"{seen}; expected {_ids(others)}")
    if merge:
        _check_partition(found, graph, cut)
    else:
        _check_alone(found, graph, cut)
    return found


def _preferred(graph: Graph, inside: Sequence[int]) -> list[int]:
    """Which of these candidates may dominate.

    Reduces with the largest input, of these row-reduces. Without a reduce heavy values, else any.
    """
    sizes = {c: graph[graph[c].args[0]].type.size for c in inside if graph[c].kind == "reduce"}
    largest = [c for c, size in sizes.items() if size == max(sizes.values())]
    by_rows = [c for c in largest if is_row_reduce(graph, graph[c])]
    return by_rows or largest or [c for c in inside if is_heavy(graph, graph[c])] or list(inside)


def _check_alone(found: Sequence[Group], graph: Graph, cut: set[int]) -> None:
    rest = {n.id for n in graph.nodes if n.op not in CONSTANTS} - cut
    dominants = sorted(g.dominant for g in found)
    require(dominants == sorted(cut), "complete", "expected a group for each candidate")
    for group in found:
        wanted = upstream(graph, (group.dominant,), rest)
        seen = _ids(group.members)
        require(tuple(sorted(group.members)) == wanted, "members", f"{seen}; expected {_ids(wanted)}")


def _check_partition(found: Sequence[Group], graph: Graph, cut: set[int]) -> None:
    home: dict[int, Group] = {}
    for group in found:
        for member in group.members:
            require(member not in home, "partition", f"%{member} is in two groups")
            require(graph[member].op not in CONSTANTS, "partition", f"%{member} is a constant")
            home[member] = group
    for node in cut:
        constant = graph[node].op in CONSTANTS
        require(node in home or constant, "complete", f"%{node} {graph[node].op} is in no group")
    edges: dict[int, set[int]] = {member: set() for member in home}
    for reader in graph.nodes:
        for arg in [a for a in reader.args if a not in cut and graph[a].op not in CONSTANTS]:
            require(home.get(arg) is home.get(reader.id), "connected", f"%{reader.id} reads "
                    f"%{arg}, which is no candidate: expected both in one group")
            if arg in home:
                edges[arg].add(reader.id)
                edges[reader.id].add(arg)
    for group in found:
        reached, pending = {group.dominant}, [group.dominant]
        while pending:
            fresh = edges[pending.pop()] - reached
            reached |= fresh
            pending += fresh
        apart = sorted(set(group.members) - reached)
        require(not apart, "cut", f"only candidates lead from {_ids(apart)} to %{group.dominant}: "
                "expected two groups")


# ---------------------------------------------------------------- strategies/fs18/spans.py
def check_spans(run: Run, readers: Mapping[int, Collection[int]]) -> dict[int, int]:
    """Every operation stands right above its highest reader. One that waits for itself has none."""
    found = run(readers)
    _is(found, dict)
    _are_numbers(found.values(), "a span of")
    require(found.keys() <= readers.keys(), "complete", f"{_ids(found.keys() - readers)} too many")
    for node, users in readers.items():
        circling = [user for user in users if user not in found]
        if node not in found:
            require(circling, "complete", f"%{node} has no span, although all its readers have one")
            continue
        require(not circling, "complete",
                f"%{node} has a span; of its readers {_ids(circling)} have none")
        highest = max(users, key=found.__getitem__, default=None)
        seen, wanted = f"%{node} has span {found[node]}", 0
        if highest is not None:
            wanted = found[highest] + 1
            seen += f", its highest reader %{highest} has {found[highest]}"
        rule = "root" if highest is None else "above" if found[node] < wanted else "tight"
        require(found[node] == wanted, rule, f"{seen}: expected {wanted}")
    return found


# ---------------------------------------------------------------- strategies/fs20/explore.py
def check_pattern_reduction(run: Run, dag: Dag, score: Callable[[int], float],
                            allowed: Callable[[int], bool], best: int = BEST) -> list[list[Candidate]]:
    """At each vertex at most ``best`` different legal patterns that begin there, best first."""
    found = run(dag, score, allowed, best)
    _is(found, list)
    require(len(found) == len(dag), "complete", f"{len(found)} lists for {len(dag)} vertices")
    for vertex, patterns in enumerate(found):
        _is(patterns, list)
        require(patterns or not allowed(1 << vertex), "complete", f"no pattern begins at {vertex}, "
                "which is one by itself")
        said = f"patterns begin at {vertex}"
        require(len(patterns) <= best, "most", f"{len(patterns)} {said}; at most {best}")
        masks = {p.mask for p in patterns}
        require(len(masks) == len(patterns), "distinct", f"two equal {said}")
        for p in patterns:
            _is(p, Candidate)
            _check_pattern(p, vertex, dag, score, allowed)
        scores = [p.score for p in patterns]
        require(scores == sorted(scores, reverse=True), "best first", f"scores at {vertex}: {scores}")
    return found


def _check_pattern(p: Candidate, vertex: int, dag: Dag, score: Callable[[int], float],
                   allowed: Callable[[int], bool]) -> None:
    seen = f"{{{' '.join(map(str, bits(p.mask)))}}} at {vertex}"
    require(p.mask and bits(p.mask)[0] == vertex, "begins", f"{seen} begins elsewhere")
    require(bits(p.mask)[-1] < len(dag), "begins", f"{seen} holds a vertex that does not exist")
    below = above = 0
    for v in bits(p.mask):
        below, above = below | dag.below[v], above | dag.above[v]
    between = below & above & ~p.mask
    require(not between, "convex", f"{seen}: a path leaves it through {bits(between)} and returns")
    require((p.below, p.above) == (below, above), "reach",
            f"{seen} reaches other vertices than it says")
    require(allowed(p.mask), "allowed", f"{seen} is not allowed")
    require(p.score == score(p.mask), "score", f"{seen} says {p.score}; its score is {score(p.mask)}")


# ---------------------------------------------------------------- passes/share_memory.py
def check_share(run: Run, buffers: Sequence[Buffer],
                take_turns: Callable[[Buffer, Buffer], bool]) -> list[int]:
    """Buffers of one owner take turns, and lie inside it. They need hardly more than best fit."""
    found = run(buffers, take_turns)
    _is(found, list)
    _are_numbers(found, "an owner of")
    require(len(found) == len(buffers), "complete", f"{len(found)} owners for {len(buffers)} buffers")
    held: dict[int, Buffer] = {}
    for i, (b, owner) in enumerate(zip(buffers, found, strict=True)):
        known = owner == i or owner in held
        require(known, "owner", f"{b.name} is given to {owner}, which owns nothing so far")
        if owner != i:
            first, last = buffers[owner], held[owner]
            inside = first.dtype == b.dtype and first.size >= b.size > 0
            small, large = (f"{x.name}, {x.size} x {x.dtype}" for x in (b, first))
            require(inside, "inside", f"{small}, in {large}")
            require(take_turns(last, b), "apart", f"{b.name} is written while {last.name} is needed")
        held[owner] = b
    taken, most = _owned(buffers, found), _owned(buffers, run.reference(buffers, take_turns))
    require(taken <= MOST_WASTED * most, "small", f"{taken} bytes; best fit takes {most}")
    return found


def _owned(buffers: Sequence[Buffer], owners: Sequence[int]) -> int:
    """Bytes of all owners."""
    return sum(buffers[i].size * itemsize(buffers[i].dtype) for i in set(owners))


# ---------------------------------------------------------------- simt/memory.py
def check_ordered(run: Run, before: Stamp, after: Stamp) -> bool:
    """Whether a barrier, or a release and an acquire, lies between two moments."""
    found, right = run(before, after), run.reference(before, after)
    require(type(found) is bool, "type", f"it returns {found!r} where True or False is expected")
    relation = ("grid barrier" if before.grid_epoch < after.grid_epoch else
                "other block" if before.block != after.block else
                "same thread" if before.thread == after.thread else
                "block barrier" if before.block_epoch < after.block_epoch else
                "same warp" if before.thread // WARP == after.thread // WARP else "same block")
    require(found == right, relation, f"{found}; expected {right}")
    return found
