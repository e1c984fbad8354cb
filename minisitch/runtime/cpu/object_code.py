"""Functions as object code: bytes for a later process to link, and an address to call.

In:  a function that Numba compiled for callers in C (``numba.cfunc``). Out: an ``Image``, which can
be kept on disk, and a ``Code``, the function in this process.

    cfunc --LLVM text--> llvmlite --> Image (bytes, for the disk) --llvmlite's linker--> Code

All of this is documented interface: Numba gives the LLVM text and the name of a C function,
llvmlite compiles and links it. Numba never frees what it links itself. Here the memory of a
function is freed with its ``Code``.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import platform
import sys
from dataclasses import dataclass
from typing import Any
from weakref import finalize

import numpy as np

from ...errors.forks import forks_wait

SETTINGS = ("OPT", "LOOP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "DISABLE_JIT", "CPU_NAME",
            "CPU_FEATURES", "ENABLE_AVX")


@dataclass(frozen=True)
class Image:
    """Object code, the name of its function, and the names of functions outside that it calls."""

    name: str
    calls: tuple[str, ...]
    code: bytes

    def pack(self) -> bytes:
        """All of it as bytes: a line of names, then the code."""
        return json.dumps([self.name, self.calls]).encode() + b"\n" + self.code

    @staticmethod
    def unpack(content: bytes) -> Image:
        names, _, code = content.partition(b"\n")
        name, calls = json.loads(names)
        return Image(name, tuple(calls), code)


class Code:
    """A function in the memory of this process, as long as this object lives."""

    def __init__(self, image: Image) -> None:
        from llvmlite import binding as llvm

        library = llvm.JITLibraryBuilder().add_object_img(image.code).export_symbol(image.name)
        for name in image.calls:
            address = llvm.address_of_symbol(name)
            if address is None:
                raise RuntimeError(f"{image.name} calls {name}, which this process does not have")
            library.import_symbol(name, address)
        linked = [library.link(_linker(), f"library {next(_numbers)}")]
        self.address: int = linked[0][image.name]
        finalize(self, _free, linked).atexit = False


_numbers = itertools.count()
_unused: list[Any] = []  # libraries whose ``Code`` is gone


def _free(linked: list[Any]) -> None:
    """Free a library. If another thread compiles, it is freed with the next one.

    LLVM has a lock of its own, so this holds ``forks_wait``. It does not wait for it: any thread
    may drop a program, at any time.
    """
    _unused.append(linked.pop())
    if forks_wait.enter(wait=False):
        _unused.clear()
        forks_wait.__exit__()


@functools.cache
def _linker() -> Any:
    from llvmlite import binding as llvm

    return llvm.create_lljit_compiler(_machine())


def _machine() -> Any:
    """LLVM's compiler for this processor."""
    from llvmlite import binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name, features = processor()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=name, features=features, opt=3, jit=True)


def image_of(compiled: Any) -> Image:
    """The object code of a ``numba.cfunc``."""
    from llvmlite import binding as llvm

    module = llvm.parse_assembly(compiled.inspect_llvm(), llvm.create_context())
    parts = (*module.functions, *module.global_variables)
    calls = tuple(p.name for p in parts if p.is_declaration and not p.name.startswith("llvm."))
    return Image(compiled.native_name, calls, _machine().emit_object(module))


# ---------------------------------------------------------------- what else object code depends on
def processor() -> tuple[str, str]:
    """The processor's name and features as LLVM names them, or those that Numba is told to use."""
    from llvmlite import binding as llvm

    features = os.environ.get("NUMBA_CPU_FEATURES")
    return (os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name(),
            llvm.get_host_cpu_features().flatten() if features is None else features)


@functools.cache
def surroundings() -> tuple[str, ...]:
    """The versions and the processor. This is the first to import Numba."""
    with forks_wait:
        import llvmlite
        import numba

        return (sys.version, platform.machine(), np.__version__, numba.__version__,
                llvmlite.__version__, repr(processor()))


def settings() -> tuple[str, ...]:
    """Numba's settings, from environment variables or from the program."""
    from numba import config

    return tuple(f"{name}={getattr(config, name, None)}" for name in SETTINGS)


def is_switched_off() -> bool:
    """Whether Numba is told to compile nothing."""
    from numba import config

    return bool(getattr(config, "DISABLE_JIT", False))
