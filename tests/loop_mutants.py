"""Mutants of a kernel's loops, guards, lets and folds: every field of each, to its neighbouring values.

In:  a ``Kernel``. Out: mutants of one field each, with what was changed.
"""

from dataclasses import replace

from minisitch.kernel import ir
from minisitch.kernel.turns import DEALT
from minisitch.stitch.index import Index

OTHER_OPS = {"sum": "max", "max": "min", "min": "max", "prod": "sum", "any": "all", "all": "any"}


def _numbers(value):
    return [n for n in (value - 1, value + 1, 2 * value, value // 2) if n != value]


def _indices(index):
    """Neighbours of an index: another constant, another factor of a term, a term less."""
    yield index + 1
    yield index + -1
    for k, (factor, atom) in enumerate(index.terms):
        others = [*index.terms[:k], *index.terms[k + 1:]]
        yield Index(index.const, tuple(others))
        yield from (Index(index.const, (*index.terms[:k], (n, atom), *index.terms[k + 1:])) for n in _numbers(factor) if n)


def _guards(guard):
    """Neighbours of a guard: a condition less, or one with other ends."""
    for k, c in enumerate(guard):
        yield (*guard[:k], *guard[k + 1:])
        for changed in (replace(c, low=c.low + 1), *(replace(c, high=n) for n in _numbers(c.high))):
            yield (*guard[:k], changed, *guard[k + 1:])


def _names(name, names):
    return [n for n in names if n != name][:3]


def _folds(fold, names, buffers):
    for value in _names(fold.value, names):
        yield "value", replace(fold, value=value)
    for result in _names(fold.result, names):
        yield "result", replace(fold, result=result)
    yield "op", replace(fold, op=OTHER_OPS[fold.op])
    yield "dtype", replace(fold, dtype="float64" if fold.dtype == "float32" else "float32")
    for along in {"row", "column", "warp", "carry"} - {fold.along}:
        yield "along", replace(fold, along=along)
    for lanes in _numbers(fold.lanes):
        yield "lanes", replace(fold, lanes=lanes)
    for node in (fold.node - 1, fold.node + 1):
        yield "node", replace(fold, node=max(0, node))
    for exchange in {"", *buffers} - {fold.exchange}:
        yield "exchange", replace(fold, exchange=exchange)
    yield "lost", replace(fold, lost="" if fold.lost else f"{fold.result}_lost")
    if fold.buffer:
        yield "buffer", replace(fold, buffer="")
        yield from (("cell", replace(fold, cell=cell)) for cell in _indices(fold.cell))


def _changed(stmt, names, buffers):
    """(field, mutant) of one statement."""
    match stmt:
        case ir.Loop():
            yield from (("var", replace(stmt, var=name)) for name in ("col", "row", "ser", "other") if name != stmt.var)
            yield from (("first", replace(stmt, first=first)) for first in _indices(stmt.first))
            yield from (("turns", replace(stmt, turns=turns)) for turns in _numbers(stmt.turns))
            yield from (("step", replace(stmt, step=step)) for step in _numbers(stmt.step) if step)
            yield from (("by", replace(stmt, by=by)) for by in ("one", *DEALT, "vector", "nobody") if by != stmt.by)
            yield from (("within", replace(stmt, within=guard)) for guard in _guards(stmt.within))
        case ir.If():
            yield from (("guard", replace(stmt, guard=guard)) for guard in _guards(stmt.guard))
        case ir.Let():
            yield from (("value", replace(stmt, value=value)) for value in _indices(stmt.value))
            yield from (("name", replace(stmt, name=name)) for name in ("col", "row", "other") if name != stmt.name)
        case ir.Start(fold) | ir.Accumulate(fold):
            yield from ((field, replace(stmt, fold=changed)) for field, changed in _folds(fold, names, buffers)
                        if field != "value" or isinstance(stmt, ir.Accumulate))
        case ir.Combine(folds):
            for k, fold in enumerate(folds):
                yield from ((field, replace(stmt, folds=(*folds[:k], changed, *folds[k + 1:])))
                            for field, changed in _folds(fold, names, buffers) if field != "value")


def _in_nest(nest, names, buffers):
    for k, stmt in enumerate(nest):
        for field, changed in _changed(stmt, names, buffers):
            yield f"{type(stmt).__name__}.{field}", stmt, changed, (*nest[:k], changed, *nest[k + 1:])
        if isinstance(stmt, ir.Loop | ir.If):
            for field, old, new, body in _in_nest(stmt.body, names, buffers):
                yield field, old, new, (*nest[:k], replace(stmt, body=body), *nest[k + 1:])


def mutants(kernel):
    """(field, statement before, statement after, kernel) of every mutant."""
    exchanges = [b.name for b in kernel.buffers if b.role == "exchange"]
    for s, segment in enumerate(kernel.segments):
        names = [x.target for x, _ in ir.walk(segment.nest) if isinstance(x, ir.Value)]
        names += [f.result for x in ir.each(segment.nest, ir.Combine) for f in x.folds]
        nests = [("opening", segment.opening), ("closing", segment.closing), *enumerate(p.nest for p in segment.phases)]
        for place, nest in nests:
            for field, old, new, made in _in_nest(nest, names, exchanges):
                if isinstance(place, str):
                    changed = replace(segment, **{place: made})
                else:
                    phases = (*segment.phases[:place], replace(segment.phases[place], nest=made), *segment.phases[place + 1:])
                    changed = replace(segment, phases=phases)
                yield field, old, new, replace(kernel, segments=(*kernel.segments[:s], changed, *kernel.segments[s + 1:]))
