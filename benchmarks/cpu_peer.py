"""One peer of ``benchmarks/cpu.py`` in a process of its own: runs one case whenever it is told to, and sleeps otherwise.

    python -m benchmarks.cpu_peer '{"peer": "jax", "case": "softmax-1x768", "target": "cpu"}'

In:  a word a line on stdin. Out: a line of JSON each on stdout.
    (at the start)  the library's version and how long its import took; or that it is missing
    first           seconds of the first call: tracing, planning, compiling and running; or the error
    sample          microseconds a call
    check           each output's distance from a wider type, relative to its largest magnitude; the bytes in and out.
                    Where these are few, distances of several draws of arguments, their geometric mean

Other libraries' Pythons run this file: it imports nothing but NumPy before a peer is chosen.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import math
import os
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy

from . import cpu_forms, cpu_programs

ROOT = Path(__file__).resolve().parent.parent
WARM_S, SAMPLE_S = 2e-3, 1.5e-3  # calls before a sample, and calls that make one
WIDER = {"float32": numpy.float64, "float64": numpy.longdouble}
ROUNDING = {"float16": 2.0 ** -11, "float32": 2.0 ** -24, "float64": 2.0 ** -53}
DRAWS = 9  # of the arguments of a case of less than SMALL_BYTES. One rounding more or less is a factor of two in a few numbers, and
SMALL_BYTES = 1 << 20  # the worst of a hundred outputs of one draw was 4 times NumPy's error where NumPy's worst was 4 times ours
Call = Callable[[], Any]
Ready = Callable[..., Call]  # of a seed, 0 unless given: the same program on arguments drawn anew


def walk(change: Callable[[Any], Any], tree: Any) -> Any:
    """The same tuples, lists and dictionaries with each leaf changed; dictionaries by their keys' order, as JAX gives them back."""
    if isinstance(tree, dict):
        return {k: walk(change, v) for k, v in sorted(tree.items())}
    return type(tree)(walk(change, v) for v in tree) if isinstance(tree, tuple | list) else change(tree)


def leaves(tree: Any) -> list[Any]:
    """What is in tuples, lists and dictionaries, in order."""
    found: list[Any] = []
    walk(found.append, tree)
    return found


def on_arrays(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A change of arrays that leaves Python's own values alone."""
    return lambda x: change(x) if isinstance(x, numpy.ndarray) else x


def in_place_of(old: Any, new: Any) -> None:
    """Let the programs of this folder see another ``np``."""
    for module in list(sys.modules.values()):
        if getattr(module, "np", None) is old and str(getattr(module, "__file__", "")).startswith(str(Path(__file__).parent)):
            module.np = new  # type: ignore[attr-defined]


class NoForm(Exception):
    """A library has no way to write this program."""


# ---------------------------------------------------------------- libraries: a version, and what runs a case
def with_numpy(case: str, target: str) -> tuple[str, Ready]:
    def ready(seed: int = 0) -> Call:
        fn, args = cpu_programs.load(case, seed)
        return lambda: fn(*args)
    return numpy.__version__, ready


def with_minisitch(case: str, target: str) -> tuple[str, Ready]:
    ms = importlib.import_module("minisitch")
    jit = functools.cache(functools.partial(ms.jit, target=target))  # one compilation for all draws

    def ready(seed: int = 0) -> Call:
        fn, args = cpu_programs.load(case, seed)
        compiled = jit(fn)
        return lambda: compiled(*args)
    return ms.__version__, ready


def with_kernels(case: str, path: str) -> tuple[str, Ready]:
    """A file of hand-written kernels: its ``jit(fn)`` finds one by ``fn.workload``, the program's name."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise ImportError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def ready(seed: int = 0) -> Call:
        fn, args = cpu_programs.load(case, seed)
        fn.workload = case.rpartition("-")[0]
        try:
            compiled = module.jit(fn)
        except KeyError:
            raise NoForm(f"{Path(path).name} has no kernel for it") from None
        return lambda: compiled(*args)
    return "of its own", ready


def with_numexpr(case: str, target: str) -> tuple[str, Ready]:
    numexpr = importlib.import_module("numexpr")

    def ready(seed: int = 0) -> Call:
        _, args = cpu_programs.load(case, seed)
        form = form_of(cpu_forms.numexpr_forms(numexpr), case)
        return lambda: form(*args)
    return numexpr.__version__, ready


def with_jax(case: str, target: str) -> tuple[str, Ready]:
    """The NumPy text itself, with ``jax.numpy`` for ``np``; what is no array in the arguments is part of the program."""
    jax = importlib.import_module("jax")
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", "f64" in case or case.startswith(("int", "model")))
    jax.config.update("jax_compilation_cache_dir", os.environ["MINISITCH_CACHE"])  # its disk cache is off unless asked for
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

    def ready(seed: int = 0) -> Call:
        fn, args = cpu_programs.load(case, seed)
        there = [jax.numpy.asarray(x) for x in leaves(args) if isinstance(x, numpy.ndarray)]

        def run(arrays: list[Any]) -> Any:  # by Python while JAX traces, not afterwards
            given = iter(arrays)
            in_place_of(numpy, jax.numpy)
            try:
                return fn(*walk(on_arrays(lambda _: next(given)), args))
            finally:
                in_place_of(jax.numpy, numpy)
        compiled = jax.jit(run)
        return lambda: jax.block_until_ready(compiled(there))
    return jax.__version__, ready


def with_torch(case: str, target: str, compiled: bool = False) -> tuple[str, Ready]:
    torch = importlib.import_module("torch")

    def ready(seed: int = 0) -> Call:
        _, args = cpu_programs.load(case, seed)
        form = form_of(cpu_forms.torch_forms(torch), case)
        there = [torch.from_numpy(x) for x in args]
        if case.startswith("xent"):
            there[1] = there[1].long()  # what its losses take
        run = torch.compile(form) if compiled else form
        torch.set_grad_enabled(False)
        return lambda: run(*there)
    return torch.__version__, ready


def with_inductor(case: str, target: str) -> tuple[str, Ready]:
    return with_torch(case, target, compiled=True)


def form_of(forms: cpu_forms.Forms, case: str) -> Callable[..., Any]:
    """The form of a program; of a float64 case that of the float32 one."""
    name = case.rpartition("-")[0].removesuffix("_f64")
    if name not in forms:
        raise NoForm("it has no form of this program")
    return forms[name]


# ---------------------------------------------------------------- what else is measured: the machine
def with_gauge(case: str, target: str) -> tuple[str, Ready]:
    """Not a library but the machine: a spin and a copy on all cores at once. A call gives their seconds."""
    places = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    cores, free = len(places), iter(places)

    def ready(seed: int = 0) -> Call:
        pool = ThreadPoolExecutor(cores, initializer=lambda: stay_on(next(free)))
        source = numpy.ones(GAUGE_BYTES // 8, numpy.float32)
        to = numpy.ones_like(source)
        parts = list(zip(numpy.array_split(source, cores), numpy.array_split(to, cores), strict=True))
        work = bytes(1 << 21)

        def call() -> tuple[float, float]:
            began = time.perf_counter()
            list(pool.map(lambda _: zlib.crc32(work), range(cores)))  # this, as what follows, lets other threads run
            between = time.perf_counter()
            list(pool.map(lambda part: numpy.multiply(part[0], SCALE, out=part[1]), parts))
            return between - began, time.perf_counter() - between
        return call
    return numpy.__version__, ready


def stay_on(core: int) -> None:
    """Keep the thread that calls on one core: Linux had both of the gauge's on the same one in half of all rounds."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


SCALE = numpy.float32(1.5)  # a plain copy would be a library's, which streams past the cache
GAUGE_BYTES = 1 << 27  # that a copy reads and writes: past every cache of a core's own
LIBRARIES: dict[str, Callable[[str, str], tuple[str, Ready]]] = {
    "numpy": with_numpy, "minisitch": with_minisitch, "numexpr": with_numexpr, "jax": with_jax, "torch": with_torch,
    "inductor": with_inductor, "gauge": with_gauge}
COMPILE = ("minisitch", "jax", "inductor")  # their first call fills a cache on the disk


# ---------------------------------------------------------------- commands
def first(ready: Ready) -> tuple[dict[str, Any], Call | None]:
    """Make the case ready, and call it for the first time."""
    try:
        call = ready()
        began = time.perf_counter()
        call()
        return {"first_s": round(time.perf_counter() - began, 4)}, call
    except NoForm as problem:
        return {"skipped": str(problem)}, None
    except Exception as problem:  # whatever a library throws is its row of the table
        text = " ".join(str(problem).split()).replace(str(ROOT), "").replace(sys.prefix, "")[:200]
        return {"error": f"{type(problem).__name__}: {text}"}, None


def sample(call: Call) -> float:
    """Microseconds a call, after calls that fill the caches and wake the threads."""
    began = time.perf_counter()
    warm = 0
    while warm == 0 or time.perf_counter() - began < WARM_S:
        call()
        warm += 1
    repeats = max(1, math.ceil(SAMPLE_S / (time.perf_counter() - began) * warm))
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    return round((time.perf_counter() - began) / repeats * 1e6, 3)


def check(ready: Ready, case: str) -> dict[str, Any]:
    """How far each output is from the same program in a wider type; the least traffic: all that goes in or comes out, once."""
    dtypes, distances, traffic = distances_of(ready, case, 0)
    draws = [distances] + [distances_of(ready, case, seed)[1] for seed in range(1, DRAWS if traffic < SMALL_BYTES else 1)]
    of_outputs = zip(zip(*draws, strict=True), dtypes, strict=True)
    return {"distances": [middle(of_draws, ROUNDING.get(dtype, 0.0)) for of_draws, dtype in of_outputs],
            "dtypes": dtypes, "draws": len(draws), "bytes": traffic}


def distances_of(ready: Ready, case: str, seed: int) -> tuple[list[str], list[float], int]:
    """Of one draw of the arguments: the outputs' types, their distances, and the bytes in and out."""
    results = [numpy.asarray(x) for x in leaves(ready(seed)())]
    fn, args = cpu_programs.load(case, seed)
    given = [x for x in leaves(args) if isinstance(x, numpy.ndarray)]
    with numpy.errstate(all="ignore"):
        exact = leaves(fn(*walk(on_arrays(lambda x: x.astype(WIDER.get(x.dtype.name, x.dtype))), args)))
        return ([x.dtype.name for x in results],
                [distance(got, numpy.asarray(want)) for got, want in zip(results, exact, strict=True)],
                sum(x.nbytes for x in [*given, *results]))


def middle(distances: Sequence[float], rounding: float) -> float:
    """Their geometric mean, each at least one rounding where it is the mean of several."""
    if len(distances) == 1:
        return distances[0]
    if max(distances) in (0.0, math.inf):  # one draw that is wrong is enough
        return max(distances)
    return math.exp(math.fsum(math.log(max(d, rounding)) for d in distances) / len(distances))


def distance(got: Any, exact: Any) -> float:
    """Largest distance relative to the largest finite magnitude; infinite where shape, integers, NaN or infinity differ."""
    if got.shape != exact.shape or (got.dtype.kind in "iub" and not numpy.array_equal(got, exact)):
        return math.inf
    finite = numpy.isfinite(exact)
    if not numpy.array_equal(numpy.isfinite(got), finite):
        return math.inf
    size = numpy.max(numpy.abs(exact), where=finite, initial=0) or 1
    return float(numpy.max(numpy.abs(got - exact), where=finite, initial=0) / size)


def serve(peer: str, case: str, target: str, file: str = "") -> None:
    """Answer until stdin ends; ``file``: of kernels. What libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    began = time.perf_counter()
    try:
        version, ready = with_kernels(case, file) if file else LIBRARIES[peer](case, target)
    except ImportError as problem:
        say({"missing": f"{type(problem).__name__}: {problem}"})
        return
    say({"version": version, "import_s": round(time.perf_counter() - began, 3)})
    call: Call | None = None
    for word in map(str.strip, sys.stdin):
        if word == "first":
            answer, call = first(ready)
            say(answer)
        elif call is None:
            say({"error": "there was no first call"})
        elif word == "sample":
            say(dict(zip(("spin_us", "copy_us"), (round(s * 1e6, 1) for s in call()), strict=True)) if peer == "gauge"
                else {"us": sample(call)})
        else:
            say(check(ready, case))


if __name__ == "__main__":
    serve(**json.loads(sys.argv[1]))
