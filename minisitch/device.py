"""Devices as data: the numbers that schedules and cost models are computed from.

GPU figures come from the vendor's datasheets and architecture papers (V100, A100, H100, H200; SXM
boards, tensor cores without sparsity). AStitch measured the V100's launch and barrier costs. Those
of the others are assumed. The bandwidth of an L2 cache is Kitsune's "about three times HBM's",
since no datasheet prints it. A CPU's figures are in ``runtime.this_machine``.
"""

from dataclasses import dataclass, replace

from .errors import DeviceError

# Below this work one core is faster than several. It counts scalar operations, loads and stores. A
# heavy operation counts as eight. At 0.03 ns each the bound is 30 us of one core.
SERIAL_BELOW = 1_000_000
LINE, SECTOR = 64, 32  # bytes that a CPU's cache and a GPU's memory move at least


@dataclass(frozen=True)
class Cache:
    """A cache, or main memory: its size in bytes, and its bandwidth in bytes per second.

    It serves working sets of up to ``size`` bytes. A nearer cache is never slower than a farther
    one: the lower bounds in ``strategies.optimum`` rely on this.
    """

    size: int
    one_core: float
    all_cores: float


@dataclass(frozen=True)
class Device:
    """One machine, in bytes, bytes per second and microseconds. A CPU's "SM" is a core.

    ``shared_per_block`` bounds the static shared memory of a block. On a CPU it is the memory that
    should stay in L2. Raises DeviceError if ``max_block`` is not a power of two.
    """

    name: str
    kind: str  # "gpu" | "cpu"
    sms: int
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    bandwidth: float  # bytes per second from main memory
    flops: float  # float32 operations a second; on a CPU: of a matrix product, on all cores
    launch_us: float
    grid_barrier_us: float
    block_barrier_us: float
    max_block: int = 1024
    source: str = ""
    # a CPU's caches, nearest first; larger sets move at the last one's rate
    caches: tuple[Cache, ...] = ()
    # a CPU's: nanoseconds of one core, by kind of work (``runtime.this_machine.LOOP_NS``)
    core_ns: tuple[tuple[str, float], ...] = ()
    serial_below: int = SERIAL_BELOW  # a CPU's: a segment with less work than this runs on one core
    l2_size: int = 0  # a GPU's, like the next two: bytes of the cache that all SMs share
    l2_bandwidth: float = 0.0  # bytes per second from it
    tensor_flops: float = 0.0  # operations a second of tensor cores: float16 operands, float32 sums
    # Pipelines: bytes of a queue's entry (from 64 to 256 kB, counting is cheap and queues stay
    # in L2, Kitsune B3), and bytes below which tiles are not made smaller to occupy more SMs.
    queue_entry: int = 128 << 10
    least_queue_entry: int = 16 << 10

    def __post_init__(self) -> None:
        if self.max_block < 1 or self.max_block & (self.max_block - 1):
            raise DeviceError(f"{self.name}: max_block is {self.max_block}, not a power of two: take the next smaller one")

    def wave(self, block: int, shared: int = 0, registers: int = 32) -> int:
        """How many blocks are resident at once on the whole device (AStitch B8, "assume").

        ``shared`` is in bytes a block, ``registers`` a thread's. A kernel with a grid barrier
        launches at most this many blocks, since the barrier needs all of them resident.
        """
        resident = min(self.threads_per_sm // block, self.blocks_per_sm,
                       self.registers_per_sm // (max(1, registers) * block),
                       self.shared_per_sm // max(1, shared))
        return max(1, resident) * self.sms

    def relaxed_registers(self, block: int, shared: int, grid: int = 1 << 31, assumed: int = 32) -> int:
        """The most registers a thread may use without losing a resident block.

        AStitch B8, "relax". ``grid`` is the number of blocks launched. Registers are given out in
        eights, so the result is rounded down to a multiple of eight.
        """
        resident = min(self.wave(block, shared, assumed) // self.sms,
                       -(-grid // self.sms))
        most = self.registers_per_sm // (max(1, resident) * block)
        return 255 if most > 255 else most // 8 * 8


L2_OVER_HBM = 3.0  # Kitsune's background section

_L2 = "; L2 bandwidth three times HBM's, as Kitsune has it"
_ASSUMED = "datasheet; launch and barrier costs assumed below the V100's, not measured" + _L2
_MEASURED = "datasheet; launch and barrier costs as AStitch measured them (table in section 4.4)" + _L2
_V100 = Device("v100", "gpu", sms=80, threads_per_sm=2048, blocks_per_sm=32, registers_per_sm=65536,
               shared_per_sm=98304, shared_per_block=49152, bandwidth=900e9, flops=15.7e12,
               launch_us=10.0, grid_barrier_us=2.7, block_barrier_us=0.02, source=_MEASURED,
               l2_size=6 << 20, tensor_flops=125e12)
_A100 = replace(_V100, name="a100", sms=108, shared_per_sm=167936, bandwidth=1555e9, flops=19.5e12,
                launch_us=6.0, grid_barrier_us=2.5, source=_ASSUMED, l2_size=40 << 20,
                tensor_flops=312e12)
_H100 = replace(_A100, name="h100", sms=132, shared_per_sm=233472, bandwidth=3350e9, flops=67e12,
                launch_us=5.0, l2_size=50 << 20, tensor_flops=989e12)
_H200 = replace(_H100, name="h200", bandwidth=4800e9)
DEVICES = {device.name: replace(device, l2_bandwidth=L2_OVER_HBM * device.bandwidth)
           for device in (_V100, _A100, _H100, _H200)}
