"""The primitives of ``runtime.cpu.math`` for LLVM: each is one machine instruction, or a few.

In:  nothing. Out: Numba intrinsics. The Python bodies in ``runtime.cpu.math`` say what each one
means, under the same names. ``compile`` replaces these bodies by the intrinsics.

This module imports Numba, so it is imported only when something is compiled: a process that finds
its kernels on disk needs none.
"""

import operator
from typing import Any

from llvmlite import ir
from numba import extending
from numba import types as nb
from numba.core.imputils import impl_ret_borrowed
from numba.core.registry import cpu_target
from numba.core.typing.npydecl import parse_dtype
from numba.np.arrayobj import make_array, populate_array

intrinsic: Any = extending.intrinsic  # the functions take fewer arguments than mypy sees


def _cast_all(context, builder, signature, values, start=0):
    """The operands from ``start`` on, in the type of the result."""
    pairs = zip(values[start:], signature.args[start:], strict=True)
    return [context.cast(builder, v, t, signature.return_type) for v, t in pairs]


def _one_type(typing, *operands):
    """The operands' common type; a literal takes the type of the others."""
    real = [t for t in operands if not isinstance(t, nb.Literal)]
    real = real or [nb.unliteral(t) for t in operands]
    return typing.unify_types(*real) if len(real) > 1 else real[0]


def _call(builder, llvm_name, values, **flags):
    t = values[0].type
    type_ = ir.FunctionType(t, [t] * len(values))
    declared = builder.module.declare_intrinsic(llvm_name, [t], type_)
    return builder.call(declared, values, **flags)


# ---------------------------------------------------------------- choices
@intrinsic(prefer_literal=True)
def select(typing, c, a, b):
    def emit(context, builder, signature, values):
        chosen = _cast_all(context, builder, signature, values, 1)
        test = context.cast(builder, values[0], signature.args[0], nb.boolean)
        return builder.select(test, *chosen)
    return _one_type(typing, a, b)(c, a, b), emit


@intrinsic(prefer_literal=True)
def like(typing, value, x):
    def emit(context, builder, signature, values):
        return context.cast(builder, values[0], signature.args[0], signature.return_type)
    return nb.unliteral(x)(value, x), emit


def _extremum(float_name, sign, *flags):
    @intrinsic(prefer_literal=True)
    def choose(typing, a, b):
        def emit(context, builder, signature, values):
            a, b = _cast_all(context, builder, signature, values)
            if isinstance(signature.return_type, nb.Float):
                return _call(builder, float_name, [a, b], fastmath=flags)
            signed = getattr(signature.return_type, "signed", False)
            compare = builder.icmp_signed if signed else builder.icmp_unsigned
            return builder.select(compare(sign, a, b), a, b)
        return _one_type(typing, a, b)(a, b), emit
    return choose


maximum, minimum = _extremum("llvm.maximum", ">"), _extremum("llvm.minimum", "<")
maximum_any_order = _extremum("llvm.maximum", ">", "nsz")
minimum_any_order = _extremum("llvm.minimum", "<", "nsz")


# ---------------------------------------------------------------- functions of floats
def _emit_call(llvm_name):
    def emit(context, builder, signature, values):
        return _call(builder, llvm_name, _cast_all(context, builder, signature, values))
    return emit


def _rounding(name):
    @intrinsic
    def round_one(typing, x):
        return (x(x), _emit_call(f"llvm.{name}")) if isinstance(x, nb.Float) else None
    return round_one


floor, ceil, trunc, rint = map(_rounding, ("floor", "ceil", "trunc", "rint"))


@intrinsic
def copysign(typing, a, b):
    return a(a, b), _emit_call("llvm.copysign")


@intrinsic
def multiply_add(typing, a, b, c):
    return _one_type(typing, a, b, c)(a, b, c), _emit_call("llvm.fmuladd")


@intrinsic
def half_to_float(typing, bits):
    def emit(context, builder, signature, values):
        return builder.fpext(builder.bitcast(values[0], ir.HalfType()), ir.FloatType())
    return nb.float32(nb.uint16), emit


@intrinsic
def float_to_half(typing, x):
    def emit(context, builder, signature, values):
        return builder.bitcast(builder.fptrunc(values[0], ir.HalfType()), ir.IntType(16))
    return nb.uint16(nb.float32), emit


if "+f16c" not in cpu_target.target_context.codegen().magic_tuple()[2]:
    del half_to_float, float_to_half  # this processor has no instructions for them


# ---------------------------------------------------------------- sums in any order
def _any_order(operation, instruction):
    @intrinsic
    def combine(typing, a, b):
        plain = typing.resolve_function_type(operation, (a, b), {})

        def emit(context, builder, signature, values):
            if not isinstance(signature.return_type, nb.Float):
                types = zip(values, signature.args, plain.args, strict=True)
                values = [context.cast(builder, v, t, p) for v, t, p in types]
                return context.get_function(operation, plain)(builder, values)
            # Without nsz: with it, LLVM would also simplify the terms, (x + big) - big to x.
            values = _cast_all(context, builder, signature, values)
            # Without contract: a product is rounded before it is added, as in NumPy.
            return getattr(builder, instruction)(*values, flags=("reassoc",))
        return plain.return_type(a, b), emit
    return combine


add_any_order, mul_any_order = _any_order(operator.add, "fadd"), _any_order(operator.mul, "fmul")


# ---------------------------------------------------------------- what a function says about itself
def _mark(act):
    """An intrinsic without arguments, which computes nothing."""
    @intrinsic
    def marked(typing):
        def emit(context, builder, signature, values):
            act(context, builder)
            return context.get_dummy_value()
        return nb.void(), emit
    return marked


@_mark
def widest_vectors(context, builder):
    # On Intel LLVM uses 256 bits, because older processors slowed down with 512. Since Ice Lake
    # (the first with vbmi2) they do not. llvmlite does not know the attribute, so we bypass its
    # check.
    if "+avx512vbmi2" in context.codegen().magic_tuple()[2]:
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')


@_mark
def arguments_do_not_overlap(context, builder):
    for argument in builder.function.args:
        if isinstance(argument.type, ir.PointerType):
            argument.add_attribute("noalias")


@_mark
def a_part(context, builder):
    builder.function.attributes.add("noinline")


# ---------------------------------------------------------------- arrays
@intrinsic
def window(typing, array, start, length):
    def emit(context, builder, signature, values):
        whole = make_array(signature.args[0])(context, builder, values[0])
        given = zip(values[1:], signature.args[1:], strict=True)
        first, size = (context.cast(builder, v, t, nb.intp) for v, t in given)
        view = make_array(signature.return_type)(context, builder)
        data = builder.gep(whole.data, [first], inbounds=True)
        populate_array(view, data=data, shape=[size], strides=[whole.itemsize],
                       itemsize=whole.itemsize, meminfo=whole.meminfo, parent=whole.parent)
        return impl_ret_borrowed(context, builder, signature.return_type, view._getvalue())
    return array(array, start, length), emit


@intrinsic(prefer_literal=True)
def on_the_stack(typing, size, dtype):
    row = nb.Array(parse_dtype(dtype), 1, "C")

    def emit(context, builder, signature, values):
        item = context.get_data_type(row.dtype)
        # If a thread's stack is too small, it must stop at the guard page and not write past it.
        set.add(builder.function.attributes, '"probe-stack"="inline-asm"')
        with builder.goto_entry_block():
            memory = builder.alloca(ir.ArrayType(item, size.literal_value))
            memory.align = 64
        number = context.get_constant(nb.intp, size.literal_value)
        nbytes = context.get_abi_sizeof(item)
        made = make_array(row)(context, builder)
        populate_array(made, data=builder.bitcast(memory, item.as_pointer()), shape=[number],
                       itemsize=nbytes, meminfo=None,
                       strides=[context.get_constant(nb.intp, nbytes)])
        return made._getvalue()
    return row(size, dtype), emit
