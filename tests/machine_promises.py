"""What the schedule assumed of a kernel, compared with its machine code."""

from minisitch.kernel import Kernel
from minisitch.kernel.ir import Scalar, walk
from minisitch.kernel.text import KernelSource
from minisitch.runtime.cuda.offline import Assembled, assemble_text
from minisitch.strategies.kitsune.emit import PipelineSource

# Device functions that use float64 inside: sine and cosine of huge angles need 2/pi in float64.
REDUCE_IN_DOUBLE = {"sin", "cos", "tan"}


def assemble_pipeline(source: PipelineSource, architecture: str) -> Assembled:
    """The machine code of a pipeline's kernel, and its figures."""
    return assemble_text(source.text, source.name, tuple(a.dtype for a in source.arrays), source.registers, architecture,
                         source.exact)


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
