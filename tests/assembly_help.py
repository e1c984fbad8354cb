"""The assembly of a kernel, for tests of how it is compiled."""

from __future__ import annotations

from minisitch.runtime.cpu import compile as compiler
from minisitch.runtime.cpu import object_code


def assembly_of_cfunc(made):
    """The assembly of a ``numba.cfunc``."""
    return object_code._machine().emit_assembly(object_code._module(made))


def inspect_assembly(request):
    """The assembly of a kernel, which is compiled for it."""
    compiler._start(compiler._array_types(request))  # first: it tells LLVM where Numba's allocator is
    return assembly_of_cfunc(compiler._build(request, f"<minisitch {request.name}>"))
