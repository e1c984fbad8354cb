"""Assemble CUDA kernels without a GPU.

In:  a ``KernelSource`` and an architecture. Out: ``Assembled``: registers, spills, shared memory,
barriers, widths of memory accesses, PTX and SASS. ``tests/machine_promises.py`` compares them with
the schedule's assumptions.

    text --numba-cuda--> PTX --ptxas--> machine code --nvdisasm--> SASS

As for a launch, the assembler gets the kernel's limit of registers and allows linking.
"""

import functools
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ...errors import DeviceError
from ...errors.forks import imported
from ...kernel.text import KernelSource
from . import compile as cuda_compile

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")  # Turing, Ampere, Hopper, Blackwell
PACKAGES = {"ptxas": "nvidia-cuda-nvcc", "nvdisasm": "nvidia-cuda-nvdisasm"}
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
        return (f"{self.architecture}: {self.registers} registers, {spills}, "
                f"{self.shared_bytes} B shared, {self.block_barriers} block and "
                f"{self.grid_barriers} grid barriers; {accesses}")


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
        found = imported("cuda.pathfinder").find_nvidia_binary_utility(name)
        if found:
            return str(found)
    return shutil.which(name) or ""


def _run(tool: str, *arguments: str) -> tuple[str, str]:
    """What a tool prints to stdout and stderr. Raises DeviceError with its message."""
    done = subprocess.run([_tool(tool), *arguments], capture_output=True, text=True)
    if done.returncode:
        hint = ""
        if "version" in done.stderr:
            hint = ("; the assembler is older than the compiler: "
                    f"upgrade {PACKAGES[tool]} to nvidia-nvvm's release")
        raise DeviceError(f"{tool} refuses the kernel: {done.stderr.strip()}{hint}")
    return done.stdout, done.stderr


# ---------------------------------------------------------------- text to figures
def assemble(source: KernelSource, architecture: str) -> Assembled:
    """The kernel's machine code and its figures.

    Raises DeviceError for an unknown architecture, a missing tool, or text that is not CUDA.
    """
    if source.target != "cuda":
        raise DeviceError(f"{source.kernel.name} is text for {source.target}; "
                          "lower with target='cuda' to see machine code")
    dtypes = tuple(b.dtype for b in source.kernel.parameters)
    return assemble_text(source.text, source.kernel.name, dtypes, source.kernel.registers,
                         architecture, source.exact)


@functools.lru_cache(maxsize=256)
def assemble_text(text: str, name: str, dtypes: tuple[str, ...], registers: int,
                  architecture: str, exact: bool) -> Assembled:
    """The same for a kernel's text, with the most registers that a thread may have."""
    if not re.fullmatch(r"sm_\d{2,3}", architecture):
        raise DeviceError(f"unknown architecture {architecture!r}; "
                          f"take one of {', '.join(ARCHITECTURES)}")
    if problem := missing():
        raise DeviceError(problem)
    ptx = cuda_compile.ptx(text, name, dtypes, architecture, exact)
    return read_back(name, ptx, registers, architecture)


def read_back(name: str, ptx: str, registers: int, architecture: str) -> Assembled:
    """Assemble and disassemble PTX, and read the figures from the output of both tools."""
    with tempfile.TemporaryDirectory() as folder:
        text, machine = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        text.write_text(ptx, encoding="utf-8")
        said = _run("ptxas", "--verbose", "--compile-only", f"--maxrregcount={registers}",
                    f"--gpu-name={architecture}", f"--output-file={machine}", str(text))[1]
        sass = _tidy(_run("nvdisasm", "--print-code", str(machine))[0], name)
    spilled = re.findall(r"(\d+) bytes spill stores", said)
    used = re.findall(r"Used (\d+) registers", said)
    declared = re.findall(r"^\s*(?:\.visible )?\.shared .*\[(\d+)\];", ptx, re.MULTILINE)
    return Assembled(
        name, architecture, max(map(int, used)), sum(map(int, spilled)), sum(map(int, declared)),
        len(re.findall(r"\b(?:bar|barrier)\.sync", ptx)),
        len(re.findall(r"\bbar\.warp\.sync", ptx)),
        len(re.findall(r"\bcudaCGSynchronize,", ptx)), len(DOUBLE.findall(sass)),
        len(re.findall(r"\bld\.global\.nc", ptx)), _widths(sass), ptx, sass)


def _widths(sass: str) -> tuple[tuple[str, int, int], ...]:
    """Loads and stores by width: ``LDG.E.128`` moves 128 bits a thread."""
    found = Counter((what, next((BITS[p] for p in kind.split(".") if p in BITS), 32))
                    for what, kind in ACCESS.findall(sass))
    return tuple((what, bits, count) for (what, bits), count in sorted(found.items()))


def _tidy(listing: str, name: str) -> str:
    """The instructions and labels of a listing, with Numba's mangled names shortened."""
    code = listing.partition("//--------------------- SYMBOLS")[0]
    mangled = set(re.findall(r"\b_ZN\w+", code))
    for symbol in sorted(mangled, key=len, reverse=True):
        code = code.replace(symbol, name if name in symbol else symbol[:24])
    lines = [re.sub(r"^\s*/\*(\w+)\*/\s+", r"    \1  ", each).rstrip(" ;") for each in code.splitlines()
             if re.match(r"\s*/\*\w+\*/", each) or re.match(r"[.\w$]+:$", each)]
    kept = (line for line in lines if not re.fullmatch(r" +\w+  NOP", line))
    return "\n".join(line for line in kept if not line.startswith(".text.")) + "\n"
