"""Machine code from the disk to a function, without Numba, whose import takes longer than all the rest of a first call.

In:  an ``Image``: object code that Numba made in an earlier process, and the names of what is in it. Out: a function.

    Image --> LLVM's linker (llvmlite) --> address of Numba's wrapper, which takes arrays from Python --> built-in function

What the code calls elsewhere is little. CPython's C functions and the C library's are in the process; exceptions and None
are given by address; Numba's C functions, which look into an array or raise, are in two extension modules that are loaded
without the package around them, under their own names, so that Numba finds them loaded.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import importlib.util
import json
import os
import platform
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import Any

ARRAYS, EXCEPTIONS = "numba.core.runtime._nrt_python", "numba._helperlib"
VARIABLES = ("OPT", "LOOP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO", "DISABLE_JIT", "CPU_NAME", "CPU_FEATURES", "ENABLE_AVX")
VARARGS_AND_KEYWORDS = 3  # how CPython is to call a wrapper of Numba's


@dataclass(frozen=True)
class Image:
    """Object code, the symbols in it of the function and of its wrapper, and those of cells that have to be set (``load``)."""

    name: str
    function: str
    wrapper: str
    cells: tuple[str, ...]
    code: bytes

    def pack(self) -> bytes:
        """As one string of bytes: a line of names, then the code."""
        return json.dumps([self.name, self.function, self.wrapper, self.cells]).encode() + b"\n" + self.code

    @staticmethod
    def unpack(content: bytes) -> Image:
        names, _, code = content.partition(b"\n")
        name, function, wrapper, cells = json.loads(names)
        return Image(name, function, wrapper, tuple(cells), code)


class _Method(ctypes.Structure):
    """CPython's ``PyMethodDef``."""

    _fields_ = (("name", ctypes.c_char_p), ("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


IN_ONE_ENGINE = 16  # pieces of machine code: an engine takes 2 ms and 50 kB, and goes with the last of them
_kept: list[_Engine] = []  # they live as long as the process


class _Engine:
    """LLVM's engine for some pieces of machine code, whose memory is freed with it."""

    def __init__(self) -> None:
        from llvmlite import binding as llvm

        _introduce()
        self.context = llvm.create_context()  # its own: an engine may go while another thread compiles
        machine = llvm.Target.from_default_triple().create_target_machine()
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly("", self.context), machine)
        self.pieces = 0
        weakref.finalize(self, _close, self.engine, self.context).atexit = False


def _close(*owners: Any) -> None:
    for owner in owners:
        owner.close()


_engines: list[_Engine] = []  # the one that has room


class Loaded:
    """Machine code in this process: a ``function`` for Python, which has this object, and the ``address`` of the code.

    Numba keeps Python objects that a function refers to in a cell that its wrapper refuses to find empty. Kernels refer to
    none, so that anything will do.
    """

    def __init__(self, image: Image) -> None:
        from llvmlite import binding as llvm

        if not _engines or _engines[0].pieces == IN_ONE_ENGINE:
            _engines[:] = [_Engine()]
        self.home = _engines[0]
        self.home.pieces += 1
        engine = self.home.engine
        engine.add_object_file(llvm.ObjectFileRef.from_data(image.code))
        engine.finalize_object()
        for cell in image.cells:
            ctypes.c_void_p.from_address(engine.get_global_value_address(cell)).value = id(None)
        self.address = engine.get_function_address(image.function)
        self.method = _Method(image.name.encode(), engine.get_function_address(image.wrapper), VARARGS_AND_KEYWORDS, None)
        self.made: Callable[[], Callable[..., None] | None] = lambda: None

    @property
    def function(self) -> Callable[..., None]:
        """A built-in function, the same as long as somebody has it."""
        known = self.made()
        if known is None:
            make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p)
            known = make(("PyCFunction_NewEx", ctypes.pythonapi))(ctypes.byref(self.method), self, None)
            self.made = weakref.ref(known)
        return known


def load(image: Image) -> Loaded:
    """Link the code into this process."""
    return Loaded(image)


def object_code(text: str) -> bytes:
    """LLVM's text as object code for any processor of this kind. Raises RuntimeError where the text is wrong."""
    from llvmlite import binding as llvm

    _introduce()
    module = llvm.parse_assembly(text)
    module.verify()
    return llvm.Target.from_default_triple().create_target_machine(opt=2).emit_object(module)


def link(code: bytes, names: Sequence[str], symbols: Mapping[str, int]) -> list[int]:
    """The addresses of functions of some object code; the ``symbols`` it looks for elsewhere are at these addresses."""
    from llvmlite import binding as llvm

    for name, address in symbols.items():
        llvm.add_symbol(name, address)
    _kept.append(_Engine())
    engine = _kept[-1].engine
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return [engine.get_function_address(name) for name in names]


@functools.cache
def _introduce() -> None:
    """Tell LLVM of this processor, and where to find what machine code calls."""
    from llvmlite import binding as llvm

    for name, address in _addresses().items():
        llvm.add_symbol(name, address)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def _addresses() -> dict[str, int]:
    """What machine code may refer to beside the functions of CPython and of the C library."""
    found = {name if name.startswith("_") else f"NRT_{name}": at for name, at in _extension(ARRAYS).c_helpers.items()}
    found |= {f"numba_{name}": at for name, at in _extension(EXCEPTIONS).c_helpers.items()}
    found |= {f"PyExc_{name}": id(value) for name, value in vars(builtins).items()
              if isinstance(value, type) and issubclass(value, BaseException)}
    return found | {"_Py_NoneStruct": id(None)}


def can_link(names: Iterable[str]) -> bool:
    """Whether code that refers to these symbols can be loaded; LLVM ends the process where it meets one that it cannot find."""
    return all(n.startswith("llvm.") or n in _addresses() or hasattr(ctypes.pythonapi, n) for n in names)


def _extension(name: str) -> types.ModuleType:
    """An extension module of Numba's, without the package around it; of a Numba that keeps it elsewhere, by importing that."""
    if name not in sys.modules:
        folder = os.path.join(_numba_folder(), *name.split(".")[1:-1])
        found = PathFinder.find_spec(name, [folder])
        if found is None or found.loader is None:
            return importlib.import_module(name)
        sys.modules[name] = importlib.util.module_from_spec(found)
        found.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def _numba_folder() -> str:
    found = importlib.util.find_spec("numba")
    return (found.submodule_search_locations or [""])[0] if found else ""


# ---------------------------------------------------------------- what machine code depends on, outside this package
@functools.cache
def surroundings() -> tuple[str, ...]:
    """The versions, the processor, and Numba's settings: the same whether Numba is imported or not."""
    import llvmlite
    import numpy as np
    from llvmlite import binding as llvm

    try:
        with open(os.path.join(_numba_folder(), "_version.py"), encoding="utf-8") as text:
            version = text.read()
    except OSError:
        version = importlib.import_module("numba").__version__
    processor = (llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    return (sys.version, platform.machine(), np.__version__, version, llvmlite.__version__, repr(processor), repr(settings()))


def settings() -> dict[str, Any]:
    """What Numba is told in its environment variables, and what a program has told it otherwise."""
    told: dict[str, Any] = {f"NUMBA_{n}": os.environ[f"NUMBA_{n}"] for n in VARIABLES if os.environ.get(f"NUMBA_{n}")}
    if "numba" in sys.modules or os.path.exists(".numba_config.yaml"):
        config = importlib.import_module("numba").config
        usual = {"OPT": 3, "LOOP_VECTORIZE": 1, "BOUNDSCHECK": None, "DEBUGINFO_DEFAULT": 0, "DISABLE_JIT": 0}
        told |= {n: getattr(config, n, value) for n, value in usual.items() if getattr(config, n, value) != value}
    return told


def is_switched_off() -> bool:
    """Whether Numba is told to compile nothing."""
    if "numba" in sys.modules:
        return bool(importlib.import_module("numba").config.DISABLE_JIT)
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
