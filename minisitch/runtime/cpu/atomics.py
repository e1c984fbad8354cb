"""Operations on memory that threads share, which Python has no words for, as Numba intrinsics.

In:  addresses, as integers. Out: intrinsics, for functions that Numba compiles: atomic operations
on words of 8 bytes, calls by address, system calls. ``thread_pool`` explains the board and a job.
This module imports Numba, so it is imported only when something is compiled.
"""

import time
from typing import Any

from llvmlite import ir
from numba import extending
from numba import types as nb
from numba.core import cgutils

intrinsic: Any = extending.intrinsic  # the functions take fewer arguments than mypy sees
CLOCK = getattr(time, "CLOCK_MONOTONIC", 0)
WORD, SHORT = ir.IntType(64), ir.IntType(32)


def _at(builder, base, position):
    address = builder.add(base, builder.mul(position, WORD(8)))
    return builder.inttoptr(address, WORD.as_pointer())


@intrinsic
def load(typing, base, position):
    def emit(context, builder, signature, values):
        return builder.load_atomic(_at(builder, *values), "seq_cst", 8)
    return nb.int64(nb.int64, nb.int64), emit


@intrinsic
def store(typing, base, position, value):
    def emit(context, builder, signature, values):
        builder.store_atomic(values[2], _at(builder, *values[:2]), "seq_cst", 8)
        return context.get_dummy_value()
    return nb.void(nb.int64, nb.int64, nb.int64), emit


@intrinsic
def add(typing, base, position, value):
    """Add to a word in one step. Returns the old value."""
    def emit(context, builder, signature, values):
        return builder.atomic_rmw("add", _at(builder, *values[:2]), values[2], "seq_cst")
    return nb.int64(nb.int64, nb.int64, nb.int64), emit


@intrinsic
def replace(typing, base, position, old, new):
    """Replace ``old`` by ``new`` in one step. Returns whether the word held ``old``."""
    def emit(context, builder, signature, values):
        pair = builder.cmpxchg(_at(builder, *values[:2]), values[2], values[3], "seq_cst")
        return builder.extract_value(pair, 1)
    return nb.boolean(*[nb.int64] * 4), emit


def _system_call(builder, name, *arguments):
    kind = ir.FunctionType(SHORT, [a.type for a in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, arguments)


@intrinsic
def call(typing, address, arguments):
    """Call a C function that takes integers and returns an integer."""
    def emit(context, builder, signature, values):
        given = cgutils.unpack_tuple(builder, values[1])
        kind = ir.FunctionType(WORD, [WORD] * len(given))
        return builder.call(builder.inttoptr(values[0], kind.as_pointer()), given)
    return nb.int64(nb.int64, nb.UniTuple(nb.int64, len(arguments))), emit


@intrinsic
def now(typing):
    """The time in nanoseconds."""
    def emit(context, builder, signature, values):
        time = cgutils.alloca_once(builder, ir.ArrayType(WORD, 2))
        _system_call(builder, "clock_gettime", SHORT(CLOCK), time)
        seconds, rest = (builder.load(cgutils.gep(builder, time, 0, k)) for k in (0, 1))
        return builder.add(builder.mul(seconds, WORD(1_000_000_000)), rest)
    return nb.int64(), emit


@intrinsic
def yield_core(typing):
    """Let another thread have the core, if one wants it."""
    def emit(context, builder, signature, values):
        _system_call(builder, "sched_yield")
        return context.get_dummy_value()
    return nb.void(), emit


@intrinsic
def nap(typing, microseconds):
    def emit(context, builder, signature, values):
        _system_call(builder, "usleep", builder.trunc(values[0], SHORT))
        return context.get_dummy_value()
    return nb.void(nb.int64), emit


@intrinsic
def addresses(typing, arrays):
    """The address of the elements of each array of a tuple."""
    def emit(context, builder, signature, values):
        pairs = zip(arrays.types, cgutils.unpack_tuple(builder, values[0]), strict=True)
        made = [context.make_array(kind)(context, builder, value) for kind, value in pairs]
        words = [builder.ptrtoint(array.data, WORD) for array in made]
        return context.make_tuple(builder, signature.return_type, words)
    return nb.UniTuple(nb.int64, len(arrays))(arrays), emit


@intrinsic
def job(typing, spread, first, last, kernel, arrays):
    """Make a job in the caller's own memory, valid until the caller returns.

    Returns its address.
    """
    def emit(context, builder, signature, values):
        spread, first, last, kernel, arrays = values
        given = cgutils.unpack_tuple(builder, arrays)
        held = [spread, first, last, WORD(0), kernel, *given]
        memory = cgutils.alloca_once(builder, ir.ArrayType(WORD, len(held)))
        for position, value in enumerate(held):
            builder.store(value, cgutils.gep(builder, memory, 0, position))
        return builder.ptrtoint(memory, WORD)
    return nb.int64(nb.int64, nb.int64, nb.int64, nb.int64, arrays), emit
