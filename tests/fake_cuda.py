"""A GPU without one: the driver's calls on host memory, with the stepper for its multiprocessors. It records every call.

``Gpu`` has the functions of ``cuda.bindings.driver`` that the runtime calls, under the same names, with the same parameters
and results (a test holds them against the real module). Where the real bindings are installed, ``as_library`` puts the same
``Gpu`` below them, in place of libcuda: then what is tested includes what the bindings make of our arguments.

Work is done as late as it may be: a kernel runs when somebody waits for its stream, in the order of that stream alone. So a
buffer that is reused too early, or a stream that is not waited for, gives wrong numbers here too.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import itertools
import re
import subprocess
import threading
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from minisitch import simt
from minisitch.runtime.cuda import link as cuda_link

WORDS = 7
ATTRIBUTES = {"COMPUTE_CAPABILITY_MAJOR": (75, 9), "COMPUTE_CAPABILITY_MINOR": (76, 0), "MULTIPROCESSOR_COUNT": (16, 132),
              "MAX_THREADS_PER_MULTIPROCESSOR": (39, 2048), "MAX_BLOCKS_PER_MULTIPROCESSOR": (106, 32),
              "MAX_REGISTERS_PER_MULTIPROCESSOR": (82, 65536), "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": (81, 233472),
              "CLOCK_RATE": (13, 1_500_000), "MEMORY_CLOCK_RATE": (36, 2_000_000), "GLOBAL_MEMORY_BUS_WIDTH": (37, 5120)}
OK, INVALID_VALUE, OUT_OF_MEMORY, NO_DEVICE, INVALID_CONTEXT, NOT_FOUND = 0, 1, 2, 100, 201, 500
LAUNCH_FAILED, LAUNCH_TOO_LARGE = 719, 720
WITHOUT_CONTEXT = {"cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute",
                   "cuCtxGetDevice", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"}


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = OK
    CUDA_ERROR_INVALID_VALUE = INVALID_VALUE
    CUDA_ERROR_OUT_OF_MEMORY = OUT_OF_MEMORY
    CUDA_ERROR_NO_DEVICE = NO_DEVICE
    CUDA_ERROR_INVALID_CONTEXT = INVALID_CONTEXT
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222
    CUDA_ERROR_NOT_FOUND = NOT_FOUND
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_FAILED = LAUNCH_FAILED
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = LAUNCH_TOO_LARGE


def recorded(function):
    """Note the call; what a test has put into ``fails`` is answered instead."""
    @functools.wraps(function)
    def call(self, *arguments):
        self.calls.append((function.__name__, *arguments))
        code = self.fails.get(function.__name__)
        if not code and function.__name__ not in WITHOUT_CONTEXT and not self.context:
            code = INVALID_CONTEXT
        answer = (code, 0) if code else function(self, *arguments)
        return CUresult(answer[0]), *answer[1:]
    return call


class Gpu:
    """The state of the device, and the driver's functions. ``memory`` limits the bytes that can be taken."""

    CUresult = CUresult
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
    CUdevice_attribute = SimpleNamespace(**{f"CU_DEVICE_ATTRIBUTE_{name}": code for name, (code, _) in ATTRIBUTES.items()})

    def __init__(self, memory=1 << 30):
        self.calls, self.fails = [], {}
        self.memory, self.blocks = memory, {}
        self.attributes = {code: value for code, value in ATTRIBUTES.values()}
        self.name = b"Fake GPU"
        self.current = threading.local()  # each thread's context
        self.handles = itertools.count(1000)
        self.programs = {}  # image -> (text, name, dtypes)
        self.modules, self.functions = {}, {}
        self.queues = defaultdict(list)  # stream -> work not done yet
        self.done = defaultdict(int)  # stream -> pieces of work done
        self.events = {}
        self.launched = []  # names of kernels in the order they ran

    @property
    def context(self):
        """What is current in the thread that asks; 0 is nothing, and most functions refuse it."""
        return getattr(self.current, "context", 0)

    def named(self, *names):
        """The calls of these functions, in order, without their arguments."""
        return [call[0] for call in self.calls if call[0] in names]

    # ------------------------------------------------------------ compiling
    def cubin(self, text, name, dtypes, architecture, registers=None, exact=True):
        """Stands in for ``cuda_link.cubin`` where there is no compiler: the image is the text."""
        image = f"{architecture} {registers}\n{text}".encode()
        self.programs[image] = text, name, tuple(dtypes)
        return cuda_link.Cubin(image, name)

    def watching(self, cubin):
        """The real ``cuda_link.cubin``, of whose images this GPU knows the texts."""
        def call(text, name, dtypes, architecture, registers=None, exact=True):
            made = cubin(text, name, dtypes, architecture, registers, exact)
            self.programs[made.image] = text, name, tuple(dtypes)
            return made
        return call

    # ------------------------------------------------------------ work, in the order of its stream
    def work(self, stream, what):
        stream = int(stream)
        self.queues[0 if stream == 1 else stream].append(what)
        return (OK,)

    def drain(self, stream, until=None):
        stream = 0 if int(stream) == 1 else int(stream)
        while self.queues[stream] and (until is None or self.done[stream] < until):
            what = self.queues[stream].pop(0)
            self.done[stream] += 1
            what()

    def array(self, address, size, dtype):
        """Device memory as an array; refuses what is not inside a block."""
        dtype = np.dtype(dtype)
        if not size:
            return np.empty(0, dtype)
        inside = any(first <= address and address + size * dtype.itemsize <= first + len(raw) for first, raw in self.blocks.items())
        assert inside, f"{size} {dtype} at {address:#x} are not in memory that was taken"
        return np.frombuffer((ctypes.c_char * (size * dtype.itemsize)).from_address(address), dtype)

    def move(self, to, of, nbytes):
        ctypes.memmove(int(to), int(of), nbytes)

    # ------------------------------------------------------------ the driver's functions
    @recorded
    def cuInit(self, Flags):
        return (OK,)

    @recorded
    def cuDriverGetVersion(self):
        return OK, 13000

    @recorded
    def cuGetErrorName(self, error):
        return OK, CUresult(int(error)).name.encode()

    @recorded
    def cuDeviceGet(self, ordinal):
        return OK, ordinal

    @recorded
    def cuDeviceGetName(self, length, dev):
        return OK, self.name

    @recorded
    def cuDeviceGetAttribute(self, attrib, dev):
        return OK, self.attributes[int(attrib)]

    @recorded
    def cuCtxGetDevice(self):
        return (OK, 0) if self.context else (INVALID_CONTEXT, 0)

    @recorded
    def cuDevicePrimaryCtxRetain(self, dev):
        return OK, 77

    @recorded
    def cuCtxSetCurrent(self, ctx):
        self.current.context = int(ctx)
        return (OK,)

    @recorded
    def cuModuleLoadData(self, image):
        handle = next(self.handles)
        self.modules[handle] = self.programs[bytes(image)]
        return OK, handle

    @recorded
    def cuModuleGetFunction(self, hmod, name):
        handle = next(self.handles)
        self.functions[handle] = self.modules[int(hmod)]
        return OK, handle

    @recorded
    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, func, blockSize, dynamicSMemSize):
        return OK, self._blocks_at_once(blockSize)

    @staticmethod
    def _blocks_at_once(block):
        """On one multiprocessor, by its threads."""
        return 2048 // block

    @recorded
    def cuLaunchKernel(self, f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
                       kernelParams, extra):
        return self._launch(f, gridDimX, blockDimX, hStream, kernelParams, together=False)

    @recorded
    def cuLaunchCooperativeKernel(self, f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
                                  kernelParams):
        return self._launch(f, gridDimX, blockDimX, hStream, kernelParams, together=True)

    def _launch(self, function, grid, block, stream, parameters, together):
        text, name, dtypes = self.functions[int(function)]
        if ("grid.sync()" in text) != together:
            return (LAUNCH_FAILED,)
        if together and grid > self.attributes[ATTRIBUTES["MULTIPROCESSOR_COUNT"][0]] * self._blocks_at_once(block):
            return (LAUNCH_TOO_LARGE,)
        count = WORDS * len(dtypes)
        pointers = (ctypes.c_uint64 * count).from_address(int(parameters))
        words = [ctypes.c_int64.from_address(p).value for p in pointers]  # copied here and now, as the driver does
        return self.work(stream, lambda: self._run(text, name, dtypes, words, grid, block))

    def _run(self, text, name, dtypes, words, grid, block):
        """In the stepper, which refuses races and reads of what nobody wrote: what the text writes anywhere holds nothing before.

        A launch does not say which arrays are queues, and need not: their bytes are only counted elsewhere. That all blocks of a
        cooperative launch are resident was asked at the launch.
        """
        arrays = []
        names = re.search(rf"def {name}\((.*)\):", text)[1].split(", ")
        wide = set(re.findall(r"store_wide\((\w+),|load_wide\(\w+, \w+, (\w+),", text)) if "_wide(" in text else set()
        for buffer, dtype, first in zip(names, dtypes, range(0, len(words), WORDS), strict=True):
            meminfo, parent, size, itemsize, address, shape, stride = words[first:first + WORDS]
            assert (meminfo, parent, itemsize, shape, stride) == (0, 0, np.dtype(dtype).itemsize, size, itemsize), words
            assert address % 16 == 0 or not any(buffer in pair for pair in wide), "wide accesses want addresses of 16 bytes"
            arrays.append(self.array(address, size, dtype))
        self.launched.append(name)
        same = {a.__array_interface__["data"][0]: a for a in arrays}  # one memory given twice is one array
        simt.step(text, [same[a.__array_interface__["data"][0]] for a in arrays], grid, block, name=name)

    @recorded
    def cuMemAlloc(self, bytesize):
        if sum(map(len, self.blocks.values())) + bytesize > self.memory:
            return OUT_OF_MEMORY, 0
        raw = np.full(bytesize + 256, 0xAB, np.uint8)  # what new memory holds is anybody's guess
        raw = raw[-raw.ctypes.data % 256:][:bytesize]
        self.blocks[raw.ctypes.data] = raw
        return OK, raw.ctypes.data

    @recorded
    def cuMemFree(self, dptr):
        for stream in list(self.queues):
            self.drain(stream)
        del self.blocks[int(dptr)]
        return (OK,)

    @recorded
    def cuMemcpyHtoDAsync(self, dstDevice, srcHost, ByteCount, hStream):
        staged = np.frombuffer((ctypes.c_char * ByteCount).from_address(int(srcHost)), np.uint8).copy()  # read before this returns
        self.array(int(dstDevice), ByteCount, np.uint8)
        return self.work(hStream, lambda: self.move(dstDevice, staged.ctypes.data, ByteCount))

    @recorded
    def cuMemcpyDtoHAsync(self, dstHost, srcDevice, ByteCount, hStream):
        self.drain(hStream)
        self.array(int(srcDevice), ByteCount, np.uint8)
        self.move(dstHost, srcDevice, ByteCount)
        return (OK,)

    @recorded
    def cuMemcpyDtoDAsync(self, dstDevice, srcDevice, ByteCount, hStream):
        self.array(int(dstDevice), ByteCount, np.uint8), self.array(int(srcDevice), ByteCount, np.uint8)
        return self.work(hStream, lambda: self.move(dstDevice, srcDevice, ByteCount))

    @recorded
    def cuStreamCreate(self, Flags):
        return OK, next(self.handles)

    @recorded
    def cuStreamSynchronize(self, hStream):
        self.drain(hStream)
        return (OK,)

    @recorded
    def cuEventCreate(self, Flags):
        return OK, next(self.handles)

    @recorded
    def cuEventRecord(self, hEvent, hStream):
        stream = 0 if int(hStream) == 1 else int(hStream)
        self.events[int(hEvent)] = stream, self.done[stream] + len(self.queues[stream])
        return (OK,)

    @recorded
    def cuStreamWaitEvent(self, hStream, hEvent, Flags):
        other, until = self.events[int(hEvent)]
        return self.work(hStream, lambda: self.drain(other, until))

    @recorded
    def cuEventDestroy(self, hEvent):
        return (OK,)


FUNCTIONS = sorted(name for name in vars(Gpu) if name.startswith("cu") and name != "cubin")

# ---------------------------------------------------------------- below the real bindings
# The C functions: P, I and U are arguments of 8, 4 and 8 bytes; p and i are where 8 or 4 bytes of result go.
PROTOTYPES = {
    "cuInit": "I", "cuDriverGetVersion": "i", "cuDeviceGet": "iI", "cuDeviceGetAttribute": "iII", "cuCtxGetDevice": "i",
    "cuDevicePrimaryCtxRetain": "pI", "cuCtxSetCurrent": "P", "cuModuleLoadData": "pP", "cuModuleGetFunction": "pPP",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": "iPIU", "cuLaunchKernel": "PIIIIIIIPPP", "cuLaunchCooperativeKernel": "PIIIIIIIPP",
    "cuMemAlloc": "pU", "cuMemFree": "P", "cuMemcpyHtoDAsync": "PPUP", "cuMemcpyDtoHAsync": "PPUP", "cuMemcpyDtoDAsync": "PPUP",
    "cuStreamCreate": "pI", "cuStreamSynchronize": "P", "cuEventCreate": "pI", "cuEventRecord": "PP", "cuStreamWaitEvent": "PPI",
    "cuEventDestroy": "P",
}
KINDS = {"P": ctypes.c_size_t, "U": ctypes.c_size_t, "I": ctypes.c_uint32, "p": ctypes.c_void_p, "i": ctypes.c_void_p}
RESULTS = {"p": ctypes.c_uint64, "i": ctypes.c_int32}


class Library:
    """A libcuda whose functions are those of ``gpu``, which a test may change."""

    def __init__(self, folder: Path):
        path = folder / "libcuda.so.1"
        source = Path(__file__).with_name("fake_libcuda.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o", path, source], check=True)
        self.gpu, self.made = Gpu(), {}
        self.loaded = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)  # who asks for libcuda.so.1 from now on gets this one
        self.resolver = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)(self.resolve)
        self.loaded.minisitch_set_resolver(self.resolver)

    def resolve(self, name):
        """The address of a function, by the driver's name for it."""
        name = name.decode().removesuffix("_ptsz").removesuffix("_v2").removesuffix("WithFlags")
        if name in ("cuGetErrorName", "cuDeviceGetName"):
            kinds = (ctypes.c_uint32, ctypes.c_void_p) if name == "cuGetErrorName" else (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
            answer = self.error_name if name == "cuGetErrorName" else self.device_name
        elif name in PROTOTYPES:
            kinds, answer = [KINDS[k] for k in PROTOTYPES[name]], functools.partial(self.answer, name)
        else:
            return None
        if name not in self.made:
            self.made[name] = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(answer)
        return ctypes.cast(self.made[name], ctypes.c_void_p).value

    def answer(self, name, *arguments):
        """Call the GPU's function with the arguments, and write its results where the others point."""
        kinds = PROTOTYPES[name]
        given = [a for a, kind in zip(arguments, kinds, strict=True) if kind not in RESULTS]
        if name == "cuModuleLoadData":
            given[0] = next(i for i in self.gpu.programs if ctypes.string_at(given[0], len(i)) == i)
        if name == "cuModuleGetFunction":
            given[1] = ctypes.string_at(given[1])
        code, *values = getattr(self.gpu, name)(*given)
        for value, (where, kind) in zip(values, [p for p in zip(arguments, kinds, strict=True) if p[1] in RESULTS], strict=False):
            RESULTS[kind].from_address(where).value = int(value)
        return int(code)

    def error_name(self, error, where):
        self.kept = ctypes.c_char_p(CUresult(error).name.encode())
        ctypes.c_void_p.from_address(where).value = ctypes.cast(self.kept, ctypes.c_void_p).value
        return OK

    def device_name(self, where, length, dev):
        ctypes.memmove(where, self.gpu.name + b"\0", len(self.gpu.name) + 1)
        return OK


# ---------------------------------------------------------------- other libraries' arrays
class Array:
    """An array on the fake device, as any library with ``__cuda_array_interface__`` has them."""

    def __init__(self, gpu, values, stream=None, offset=0, strides=None):
        values = np.asarray(values)
        self.gpu, self.shape, self.dtype, self.stream, self.strides = gpu, values.shape, values.dtype, stream, strides
        gpu.cuCtxSetCurrent(gpu.context or 77)  # as every library does that makes an array
        self.address = int(gpu.cuMemAlloc(max(1, values.nbytes + offset))[1]) + offset
        if values.nbytes:
            gpu.array(self.address, values.size, values.dtype)[:] = values.reshape(-1)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False), "strides": self.strides,
                "stream": self.stream, "version": 3}


def values_of(gpu, array):
    """What a device array holds, once everything is done."""
    for stream in list(gpu.queues):
        gpu.drain(stream)
    interface = array.__cuda_array_interface__
    shape = tuple(interface["shape"])
    return gpu.array(interface["data"][0], int(np.prod(shape)), interface["typestr"]).reshape(shape).copy()
