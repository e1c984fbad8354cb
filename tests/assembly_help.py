"""The assembly of a kernel, for tests of how it is compiled."""

from __future__ import annotations

from llvmlite import binding as llvm

from minisitch.runtime.cpu import compile as compiler
from minisitch.runtime.cpu import object_code


def assembly_of_cfunc(made):
    """The assembly of a ``numba.cfunc``."""
    module = llvm.parse_assembly(made.inspect_llvm(), llvm.create_context())
    return object_code._machine().emit_assembly(module)


def inspect_assembly(request):
    """The assembly of a kernel, which is compiled for it."""
    compiler._start(compiler._array_types(request))  # first: it tells LLVM where Numba's allocator is
    return assembly_of_cfunc(compiler._build(request, f"<minisitch {request.name}>"))
