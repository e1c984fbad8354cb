"""What emitted CUDA text calls and Numba lacks, as Numba intrinsics.

In:  calls in emitted CUDA text. Out: LLVM's vector loads and stores with their alignment, and
PTX instructions.

    load_wide(v0s, 0, x0, first, 4)        v0s[0:4] = x0[first : first + 4]
    store_wide(y0, first, y0s, 0, 4)       y0[first : first + 4] = y0s[0:4]
    rounded_product(a, b)                  a * b, which NVIDIA's compiler never fuses with a sum
    load_acquire(counters, i)              the count; data released before it may be read now
    add_release(counters, i, n)            data written before it may be read by threads that
                                           acquire the count

A wide access moves several elements between an array and registers, up to 16 bytes at once. Its
address must be a multiple of its size. ``simt`` has its own versions, which check it.

By the ordered operations on int32 counters in global memory, blocks that run side by side hand data
to each other: ``ld.acquire.gpu.global.s32`` and ``red.release.gpu.global.add``. Both work at the
scope of the GPU, so in its L2. An acquiring load also empties the multiprocessor's first-level
cache: the plain loads of a queue's data after it cannot find older data there. Both are marked as
touching memory, so the compiler moves no memory access across them.

This module imports Numba, so it is imported only when a kernel is compiled.
"""

import operator
from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.extending import intrinsic

from ...passes.vectorize import ACCESS


@intrinsic(prefer_literal=True)
def load_wide(typing: Any, registers: Any, at: Any, array: Any, index: Any, count: Any) -> Any:
    """``registers[at : at + count] = array[index : index + count]``."""
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held = _Cells(context, builder, signature.args[0], arguments[0], arguments[1])
        memory = _Cells(context, builder, signature.args[2], arguments[2], arguments[3])
        for first, vector, lanes in memory.pieces(count.literal_value):
            value = builder.load(memory.pointer(first, vector))
            value.align = memory.bytes(vector)
            for k, element in enumerate(_elements(builder, value, vector, lanes)):
                builder.store(element, held.pointer(first + k, element.type))
        return context.get_dummy_value()

    return types.void(registers, at, array, index, count), build


@intrinsic(prefer_literal=True)
def store_wide(typing: Any, array: Any, index: Any, registers: Any, at: Any, count: Any) -> Any:
    """``array[index : index + count] = registers[at : at + count]``."""
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        memory = _Cells(context, builder, signature.args[0], arguments[0], arguments[1])
        held = _Cells(context, builder, signature.args[2], arguments[2], arguments[3])
        for first, vector, lanes in memory.pieces(count.literal_value):
            elements = [builder.load(held.pointer(first + k, held.bits)) for k in range(lanes)]
            value = _joined(builder, elements, vector)
            stored = builder.store(value, memory.pointer(first, vector))
            stored.align = memory.bytes(vector)
        return context.get_dummy_value()

    return types.void(array, index, registers, at, count), build


@intrinsic
def rounded_product(typing: Any, a: Any, b: Any) -> Any:
    """``a * b`` rounded on its own. For integers the plain product."""
    plain = typing.resolve_function_type(operator.mul, (a, b), {})

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        result = context.get_data_type(signature.return_type)
        if not isinstance(result, ir.FloatType | ir.DoubleType):
            return context.get_function(operator.mul, plain)(builder, arguments)
        name = f"llvm.nvvm.mul.rn.{'f' if isinstance(result, ir.FloatType) else 'd'}"
        kind = ir.FunctionType(result, [result, result])
        product = builder.module.declare_intrinsic(name, (), kind)
        factors = zip(arguments, signature.args, strict=True)
        given = [context.cast(builder, v, t, signature.return_type) for v, t in factors]
        return builder.call(product, given)
    return plain.return_type(a, b), build


@intrinsic
def load_acquire(typing: Any, counters: Any, index: Any) -> Any:
    """``ld.acquire.gpu.global.s32`` of a counter."""
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature, arguments)
        text = "ld.acquire.gpu.global.s32 $0, [$1];"
        return _instruction(builder, ir.IntType(32), text, "=r,l", address)

    return types.int32(counters, index), build


@intrinsic
def add_release(typing: Any, counters: Any, index: Any, value: Any) -> Any:
    """``red.release.gpu.global.add.s32`` to a counter."""
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature, arguments)
        added = context.cast(builder, arguments[2], signature.args[2], types.int32)
        text = "red.release.gpu.global.add.s32 [$0], $1;"
        _instruction(builder, ir.VoidType(), text, "l,r", address, added)
        return context.get_dummy_value()

    return types.void(counters, index, value), build


def _instruction(builder: Any, result: Any, text: str, constraints: str, *operands: Any) -> Any:
    kind = ir.FunctionType(result, [operand.type for operand in operands])
    clobbers = f"{constraints},~{{memory}}"
    return builder.call(ir.InlineAsm(kind, text, clobbers, side_effect=True), operands)


def _address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """The address of a counter, in the address space of global memory."""
    array = context.make_array(signature.args[0])(context, builder, value=arguments[0])
    counter = builder.gep(array.data, [arguments[1]])
    return builder.addrspacecast(counter, array.data.type.pointee.as_pointer(1))


class _Cells:
    """Neighbouring elements of an array. They move as integers of their size."""

    def __init__(self, context: Any, builder: Any, type_: Any, array: Any, index: Any) -> None:
        self.builder, self.index = builder, index
        self.data = context.make_array(type_)(context, builder, array).data
        self.size = context.get_abi_sizeof(context.get_data_type(type_.dtype))
        self.bits = ir.IntType(8 * self.size)

    def pointer(self, offset: int, to: Any) -> Any:
        where = self.builder.add(self.index, ir.Constant(self.index.type, offset))
        return self.builder.bitcast(self.builder.gep(self.data, [where]), to.as_pointer())

    def pieces(self, count: int) -> Iterator[tuple[int, Any, int]]:
        """For each access: first element, vector type (words of 32 or 64 bits), elements."""
        lanes = min(count, ACCESS // self.size)
        word = min(max(4, self.size), lanes * self.size)  # bytes
        for first in range(0, count, lanes):
            yield first, ir.VectorType(ir.IntType(8 * word), lanes * self.size // word), lanes

    def bytes(self, vector: Any) -> int:
        return int(vector.count * vector.element.width // 8)


def _elements(builder: Any, value: Any, vector: Any, lanes: int) -> Iterator[Any]:
    """Split a vector of words into its elements."""
    each = lanes // vector.count
    for w in range(vector.count):
        word = builder.extract_element(value, ir.Constant(ir.IntType(32), w))
        if each == 1:
            yield word
            continue
        parts = builder.bitcast(word, ir.VectorType(ir.IntType(vector.element.width // each), each))
        for k in range(each):
            yield builder.extract_element(parts, ir.Constant(ir.IntType(32), k))


def _joined(builder: Any, elements: list[Any], vector: Any) -> Any:
    """Join elements to a vector of words."""
    each = len(elements) // vector.count
    total = ir.Constant(vector, ir.Undefined)
    for w in range(vector.count):
        word = elements[w * each]
        if each > 1:
            parts = ir.Constant(ir.VectorType(elements[0].type, each), ir.Undefined)
            for k in range(each):
                place = ir.Constant(ir.IntType(32), k)
                parts = builder.insert_element(parts, elements[w * each + k], place)
            word = builder.bitcast(parts, vector.element)
        total = builder.insert_element(total, word, ir.Constant(ir.IntType(32), w))
    return total
