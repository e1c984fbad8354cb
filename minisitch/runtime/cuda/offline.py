"""Assemble CUDA kernels without a GPU, and compare the result with the schedule's assumptions.

In:  a ``KernelSource`` or a ``PipelineSource``, and an architecture. Out: ``Assembled``: registers,
spills, shared memory, barriers, widths of memory accesses, PTX and SASS. ``broken`` lists the
assumptions that the machine code does not meet.

    text --numba-cuda--> PTX --ptxas--> machine code --nvdisasm--> SASS

As for a launch, the assembler gets the kernel's limit of registers and allows linking.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ...errors import DeviceError
from ...kernel.ir import Kernel, Scalar, walk
from ...kernel.text import KernelSource
from ...strategies.kitsune.emit import PipelineSource
from . import compile as cuda_compile

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")  # Turing, Ampere, Hopper, Blackwell
PACKAGES = {"ptxas": "nvidia-cuda-nvcc", "nvdisasm": "nvidia-cuda-nvdisasm"}
# Device functions that use float64 inside: sine and cosine of huge angles need 2/pi in float64.
REDUCE_IN_DOUBLE = {"sin", "cos", "tan"}
DOUBLE = re.compile(r"\b(?:DADD|DMUL|DFMA|DSETP|DMNMX)\b|\.F64\b|\.RCP64H\b|\.RSQ64H\b")
ACCESS = re.compile(r"\b(LDG|STG|LDS|STS)((?:\.\w+)*)")
BITS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}


@dataclass(frozen=True)
class Assembled:
    """One kernel in machine code. Registers are of a thread, shared memory is of a block.

    ``widths`` counts accesses: ``("LDG", 32, 4)`` means four loads of 32 bits from global memory.
    ``unordered`` counts loads through the read-only path, which no barrier orders after stores.
    """

    name: str
    architecture: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    block_barriers: int
    warp_barriers: int
    grid_barriers: int
    doubles: int
    unordered: int
    widths: tuple[tuple[str, int, int], ...]
    ptx: str
    sass: str

    def __str__(self) -> str:
        spills = f"{self.spill_bytes} B spilled" if self.spill_bytes else "no spills"
        accesses = ", ".join(f"{count} {what} of {bits} bits" for what, bits, count in self.widths)
        return f"{self.architecture}: {self.registers} registers, {spills}, {self.shared_bytes} B shared, " \
               f"{self.block_barriers} block and {self.grid_barriers} grid barriers; {accesses}"


# ---------------------------------------------------------------- the tools
def missing() -> str:
    """What prevents assembling here, with the next step; empty if nothing does."""
    if importlib.util.find_spec("numba_cuda") is None:
        return f"numba-cuda is not installed: {cuda_compile.INSTALL}"
    gone = [f"{tool} (package {PACKAGES[tool]})" for tool in PACKAGES if not _tool(tool)]
    return f"{' and '.join(gone)} not found: {cuda_compile.INSTALL}" if gone else ""


@functools.cache
def _tool(name: str) -> str:
    """The path of a tool, from a package, a CUDA toolkit or PATH; empty if there is none."""
    if importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.pathfinder"):
        found = importlib.import_module("cuda.pathfinder").find_nvidia_binary_utility(name)
        if found:
            return str(found)
    return shutil.which(name) or ""


def _run(tool: str, *arguments: str) -> tuple[str, str]:
    """What a tool prints to stdout and stderr. Raises DeviceError with its message."""
    done = subprocess.run([_tool(tool), *arguments], capture_output=True, text=True)
    if done.returncode:
        hint = ""
        if "version" in done.stderr:
            hint = f"; the assembler is older than the compiler: upgrade {PACKAGES[tool]} to nvidia-nvvm's release"
        raise DeviceError(f"{tool} refuses the kernel: {done.stderr.strip()}{hint}")
    return done.stdout, done.stderr


# ---------------------------------------------------------------- text to figures
def assemble(source: KernelSource, architecture: str) -> Assembled:
    """The kernel's machine code and its figures.

    Raises DeviceError for an unknown architecture, a missing tool, or text that is not CUDA.
    """
    if source.target != "cuda":
        raise DeviceError(f"{source.kernel.name} is text for {source.target}; lower with target='cuda' to see machine code")
    dtypes = tuple(b.dtype for b in source.kernel.parameters)
    return _assemble(source.text, source.kernel.name, dtypes, source.kernel.registers, architecture, source.exact)


def assemble_pipeline(source: PipelineSource, architecture: str) -> Assembled:
    """The same for the kernel of a pipeline."""
    return _assemble(source.text, source.name, tuple(a.dtype for a in source.arrays), source.registers, architecture,
                     source.exact)


@functools.lru_cache(maxsize=256)
def _assemble(text: str, name: str, dtypes: tuple[str, ...], registers: int, architecture: str, exact: bool) -> Assembled:
    if not re.fullmatch(r"sm_\d{2,3}", architecture):
        raise DeviceError(f"unknown architecture {architecture!r}; take one of {', '.join(ARCHITECTURES)}")
    if problem := missing():
        raise DeviceError(problem)
    return read_back(name, cuda_compile.ptx(text, name, dtypes, architecture, exact), registers, architecture)


def read_back(name: str, ptx: str, registers: int, architecture: str) -> Assembled:
    """Assemble and disassemble PTX, and read the figures from the output of both tools."""
    with tempfile.TemporaryDirectory() as folder:
        text, machine = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        text.write_text(ptx, encoding="utf-8")
        said = _run("ptxas", "--verbose", "--compile-only", f"--maxrregcount={registers}", f"--gpu-name={architecture}",
                    f"--output-file={machine}", str(text))[1]
        sass = _tidy(_run("nvdisasm", "--print-code", str(machine))[0], name)
    spilled = re.findall(r"(\d+) bytes spill stores", said)
    used = re.findall(r"Used (\d+) registers", said)
    return Assembled(
        name, architecture, max(map(int, used)), sum(map(int, spilled)), _shared_bytes(ptx),
        len(re.findall(r"\b(?:bar|barrier)\.sync", ptx)), len(re.findall(r"\bbar\.warp\.sync", ptx)),
        len(re.findall(r"\bcudaCGSynchronize,", ptx)), len(DOUBLE.findall(sass)), len(re.findall(r"\bld\.global\.nc", ptx)),
        _widths(sass), ptx, sass)


def _shared_bytes(ptx: str) -> int:
    """Bytes of shared memory that the kernel declares, without the system's own."""
    return sum(int(size) for size in re.findall(r"^\s*(?:\.visible )?\.shared .*\[(\d+)\];", ptx, re.MULTILINE))


def _widths(sass: str) -> tuple[tuple[str, int, int], ...]:
    """Loads and stores by width: ``LDG.E.128`` moves 128 bits a thread."""
    found = Counter((what, next((BITS[p] for p in kind.split(".") if p in BITS), 32)) for what, kind in ACCESS.findall(sass))
    return tuple((what, bits, count) for (what, bits), count in sorted(found.items()))


def _tidy(listing: str, name: str) -> str:
    """The instructions and labels of a listing, with Numba's mangled names shortened."""
    code = listing.partition("//--------------------- SYMBOLS")[0]
    mangled = set(re.findall(r"\b_ZN\w+", code))
    for symbol in sorted(mangled, key=len, reverse=True):
        code = code.replace(symbol, name if name in symbol else symbol[:24])
    lines = [re.sub(r"^\s*/\*(\w+)\*/\s+", r"    \1  ", line).rstrip(" ;") for line in code.splitlines()
             if re.match(r"\s*/\*\w+\*/", line) or re.match(r"[.\w$]+:$", line)]
    return "\n".join(line for line in lines if not re.fullmatch(r" +\w+  NOP", line) and not line.startswith(".text.")) + "\n"


# ---------------------------------------------------------------- assumptions
def broken(source: KernelSource, made: Assembled) -> tuple[str, ...]:
    """Assumptions of the schedule that the machine code does not meet, a sentence each."""
    kernel, text = source.kernel, source.text
    found = _registers(made, kernel.registers)
    if made.shared_bytes > kernel.device.shared_per_block or made.shared_bytes < kernel.shared_bytes:
        found.append(f"{made.shared_bytes} B of shared memory a block, where the schedule says {kernel.shared_bytes}")
    if made.doubles and computes_in_single(kernel):
        found.append(f"{made.doubles} float64 instructions in a kernel without float64 values")
    for what, count, written in (("block", made.block_barriers, text.count("cuda.syncthreads()")),
                                 ("warp", made.warp_barriers, text.count("cuda.syncwarp()"))):
        if count < written or (count and not written):  # unrolled loops repeat barriers
            found.append(f"{count} {what} barriers, where the text has {written}")
    if made.grid_barriers != kernel.grid_barriers:
        found.append(f"{made.grid_barriers} grid barriers, where the schedule has {kernel.grid_barriers}")
    if made.unordered and kernel.grid_barriers:
        found.append(f"{made.unordered} loads by the read-only path, which may miss what another block wrote before a barrier")
    return tuple(found)


def broken_pipeline(source: PipelineSource, made: Assembled) -> tuple[str, ...]:
    """The same for a pipeline, whose queues must never be read through the read-only path."""
    found, text = _registers(made, source.registers), source.text
    if made.shared_bytes != source.shared_bytes:
        found.append(f"{made.shared_bytes} B of shared memory a block, where the text declares {source.shared_bytes}")
    if made.doubles and all(a.dtype != "float64" for a in source.arrays):
        found.append(f"{made.doubles} float64 instructions in a pipeline without float64 values")
    if made.grid_barriers != 1 or made.block_barriers < text.count("cuda.syncthreads()"):
        found.append(f"{made.grid_barriers} grid and {made.block_barriers} block barriers, where the text has one and "
                     f"{text.count('cuda.syncthreads()')}")
    if made.unordered:
        found.append(f"{made.unordered} loads by the read-only path, which may miss what another stage wrote")
    for call, instruction in (("load_acquire(", "ld.acquire.gpu.global"), ("add_release(", "red.release.gpu.global")):
        if made.ptx.count(instruction) < text.count(call):
            found.append(f"{made.ptx.count(instruction)} times {instruction}, where the text has {text.count(call)}")
    return tuple(found)


def _registers(made: Assembled, most: int) -> list[str]:
    """What is wrong with a kernel's registers, if a thread may have ``most``."""
    found = []
    if made.spill_bytes:
        found.append(f"{made.spill_bytes} bytes of registers are spilled to memory: {most} do not suffice")
    if made.registers > most:
        found.append(f"{made.registers} registers a thread, where the wave was counted with at most {most}")
    return found


def computes_in_single(kernel: Kernel) -> bool:
    """Whether a kernel has no float64: neither its values nor its device functions."""
    stmts = [s for segment in kernel.segments for s, _ in walk(segment.nest) if isinstance(s, Scalar)]
    dtypes = {b.dtype for b in kernel.buffers} | {dtype for _, dtype, _ in kernel.constants}
    dtypes |= {getattr(s, name) for s in stmts for name in ("dtype", "operand_dtype") if hasattr(s, name)}
    return "float64" not in dtypes and not REDUCE_IN_DOUBLE & {getattr(s, "op", "") for s in stmts}
