"""Ordered memory operations, by which blocks that run side by side hand data to each other.

In:  an int32 array of counters in global memory, and a position. Out: Numba intrinsics, each one
PTX instruction. Numba has none of its own.

    load_acquire(counters, i)    ld.acquire.gpu.global.s32    the count; data released before it
                                                              may be read now
    add_release(counters, i, n)  red.release.gpu.global.add   data written before it may be read
                                                              by threads that acquire the count

Both work at the scope of the GPU, so in its L2. An acquiring load also empties the multiprocessor's
first-level cache: the plain loads of a queue's data after it cannot find older data there. Both are
marked as touching memory, so the compiler moves no memory access across them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

ORDERED = ("load_acquire", "add_release")


@functools.cache
def ordered_operations() -> dict[str, Any]:
    """The two operations by name, for Numba to compile."""
    from llvmlite import ir
    from numba import types
    from numba.cuda.extending import intrinsic

    word = ir.IntType(32)

    def instruction(result: ir.Type, *operands: ir.Type, text: str, constraints: str) -> ir.InlineAsm:
        return ir.InlineAsm(ir.FunctionType(result, operands), text, f"{constraints},~{{memory}}", side_effect=True)

    @intrinsic
    def load_acquire(typing: Any, counters: Any, index: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address = _address(context, builder, signature, arguments)
            load = instruction(word, address.type, text="ld.acquire.gpu.global.s32 $0, [$1];", constraints="=r,l")
            return builder.call(load, [address])

        return types.int32(counters, index), generate

    @intrinsic
    def add_release(typing: Any, counters: Any, index: Any, value: Any) -> tuple[Any, Callable[..., Any]]:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address = _address(context, builder, signature, arguments)
            add = instruction(ir.VoidType(), address.type, word, text="red.release.gpu.global.add.s32 [$0], $1;", constraints="l,r")
            builder.call(add, [address, context.cast(builder, arguments[2], signature.args[2], types.int32)])
            return context.get_dummy_value()

        return types.void(counters, index, value), generate

    return {"load_acquire": load_acquire, "add_release": add_release}


def _address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The address of a counter, in the address space of global memory."""
    array = context.make_array(signature.args[0])(context, builder, value=arguments[0])
    return builder.addrspacecast(builder.gep(array.data, [arguments[1]]), array.data.type.pointee.as_pointer(1))
