"""The command line: ``python -m minisitch``.

Commands: demo, run, explain, compare, explore, bench, calibrate, doctor.

In:  the words after the command. Out: text on stdout, and the exit code: 0 for success, 1 if the
program cannot be compiled, 2 if the words are wrong.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib.util
import inspect
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__
from .device import DEVICES
from .errors import DeviceError, MinisitchError
from .errors.nearest import near
from .errors.progress import working
from .explain import compare, explain
from .explain.calibrate import Samples, calibrate
from .explain.compare import error_of, sample
from .explain.demo import demo, gpt, make_batch, make_weights
from .explain.explore import explored
from .explain.explore.server import ExplorerServer
from .explain.explore.small import GPUS
from .fuse import STRATEGIES
from .reference import evaluate
from .runtime import TARGETS, choose_device, choose_target, jit, parse_type
from .runtime.doctor import BROKEN, examine, report
from .runtime.this_machine import device_file
from .trace import trace
from .trace.tree import Branch, Leaf, Tree, flatten

SUITES = ("papers", "irregular", "kitsune", "cpu")
WHERE = "FILE.py:FUNCTION, or FILE.py that defines make(preset)"


class UsageError(MinisitchError):
    """The words on the command line are wrong. The message says what to write."""


def main(words: Sequence[str] | None = None) -> int:
    """Run one command, and return the exit code."""
    options = _parser().parse_args(words)
    try:
        found = options.command(options)
        if sys.stdout is not None:  # None if it is closed
            sys.stdout.flush()
        return found if isinstance(found, int) else 0  # the demo returns its page's path
    except UsageError as problem:
        print(f"minisitch: {problem}", file=sys.stderr)
        return 2
    except MinisitchError as problem:
        print(f"minisitch: {problem}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `| head` has read enough, so Python's last flush must go nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("minisitch: interrupted", file=sys.stderr)
        return 130
    except (Exception, SystemExit) as problem:
        if os.environ.get("MINISITCH_DEBUG", "off") not in ("", "0", "off"):
            raise
        line = _user_line(problem, getattr(options, "program", ""))
        # Without a line of the user's file, these may still be the user's mistake, or a full disk.
        ours = not line and not isinstance(problem, IndexError | MemoryError | OSError | SystemExit)
        name = "" if isinstance(problem, IndexError) and not line else f"{_public_name(type(problem))}: "
        said = f"{line}{name}{' '.join(str(problem).split())}" + ours * " (a bug of minisitch: MINISITCH_DEBUG=1 shows where)"
        print(f"minisitch: {said}", file=sys.stderr)
        return 1


def _public_name(error: type) -> str:
    """The first public class of an error: ``MemoryError`` for NumPy's ``_ArrayMemoryError``."""
    return next(each.__name__ for each in error.__mro__ if not each.__name__.startswith("_"))


def _user_line(problem: BaseException, program: str) -> str:
    """``FILE.py:12: `` for the innermost line of the user's file in an error, or nothing."""
    path = os.path.abspath(program.rpartition(":")[0] if ".py:" in program else program)
    lines = [f"{os.path.basename(path)}:{at.lineno}: " for at in traceback.extract_tb(problem.__traceback__)
             if os.path.abspath(at.filename) == path]
    return lines[-1] if lines else ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m minisitch", description="NumPy programs to stitched kernels.",
                                     epilog="example: compare softmax.py:softmax --arg x=f32[4096,1024]")
    parser.add_argument("--version", action="version", version=f"minisitch {__version__}")
    commands = parser.add_subparsers(required=True, metavar="demo | run | explain | compare | explore | bench | calibrate | doctor")
    one = commands.add_parser("demo", help="a GPT block over a text file, under every strategy")
    one.add_argument("file", nargs="?", help="whose bytes to read (default: the README)")
    one.add_argument("--report", metavar="PATH", help="where to write the page (default: minisitch-demo.html here)")
    one.add_argument("--target", choices=("auto", "cpu", "cuda"), default="cpu")
    one.set_defaults(command=lambda o: demo(o.file, o.report, o.target))
    for name, command, help_text in (("run", _run, "run once and check against the reference"),
                                     ("explain", _explain, "what was decided and why, kernel by kernel"),
                                     ("compare", _compare, "all strategies: kernels, bytes, barriers, time, error")):
        one = commands.add_parser(name, help=help_text)
        _program_options(one)
        one.add_argument("--target", default="auto", choices=("auto", *TARGETS))
        one.add_argument("--device", help=f"the machine to plan for: cpu, {', '.join(DEVICES)} (default: the target's)")
        registered = f"{', '.join(STRATEGIES)}, or what FILE.py registers"
        if name == "compare":
            one.add_argument("--strategy", action="append", metavar="NAME[,NAME]", help=f"some of {registered} (default: all)")
            one.add_argument("--optimum", action="store_true", help="add the best plan there is (small programs)")
        else:
            one.add_argument("--strategy", default="auto", help=f"one of {registered}")
        if name == "explain":
            one.add_argument("--html", metavar="PATH", help="write the page there instead of printing text")
            one.add_argument("--architecture", default="", metavar="SM",
                             help="assemble the kernels for sm_75, sm_80, sm_90 or sm_100, and show registers, spills, barriers")
        one.set_defaults(command=command)
    _explore_options(commands.add_parser("explore", help="a page that shows how the compiler treats a function, step by step"))
    _bench_options(commands.add_parser("bench", help="a suite of workloads under every strategy, in a clone of the repository"))
    _calibrate_options(commands.add_parser("calibrate", help="measure this machine, and how well the cost model knows it"))
    doctor = commands.add_parser("doctor", help="what this machine has, what will run on it, and how to get the rest")
    doctor.set_defaults(command=_doctor)
    return parser


def _natural(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number, 0 or more")
    return int(word)


def _seconds(word: str) -> float:
    try:
        if 0 <= (number := float(word)) < float("inf"):
            return number
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{word!r} is not a number of seconds, 0 or more")


def _program_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("program", help=WHERE)
    one.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE",
                     help="x=f32[128,768] (random numbers), x=array.npy, or a Python value: axis=-1")
    one.add_argument("--preset", default="", help="which of make's programs, where no FUNCTION is named")
    one.add_argument("--seed", type=_natural, default=0, help="of the random numbers")


def _explore_options(one: argparse.ArgumentParser) -> None:
    _program_options(one)
    one.add_argument("--strategy", default="auto", help=f"one of {', '.join(STRATEGIES)}, or what FILE.py registers")
    one.add_argument("--gpu", default="toy", choices=GPUS, help="the GPU to plan for (default: toy, two blocks of 64 threads)")
    one.add_argument("--save", metavar="PATH", help="write the page there, as one file that needs no server")
    one.add_argument("--port", type=_natural, default=0, help="of the address (default: a free one)")
    one.set_defaults(command=_explore, device=None)


def _bench_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--suite", choices=SUITES, help="the papers' workloads (the default), their irregular shapes, "
                     "Kitsune's workloads, or common programs on this CPU beside other libraries")
    one.add_argument("--preset", default="small", choices=("small", "full"), help="full: the papers' shapes, many minutes")
    one.add_argument("--workload", "--case", action="append", metavar="NAME[,NAME]", help="some of the suite (default: all)")
    one.add_argument("--strategy", action="append", metavar="NAME[,NAME]", help="some strategies (default: the suite's)")
    one.add_argument("--target", default="cpu", choices=("cpu", "cuda", "python"), help="where to run (default: cpu)")
    one.add_argument("--seconds", type=_seconds, default=20.0, help="how long to measure each workload (default: 20)")
    one.add_argument("--out", type=Path, metavar="FILE", help="the raw results (default: benchmarks/results/ by date)")
    one.add_argument("--fresh", action="store_true", help="measure what is in the file too, and compile everything anew")
    one.add_argument("--peers", action="append", metavar="NAME[,NAME]", help="of the suite cpu, which this implies: "
                     "numexpr, jax, torch, inductor, or a Python file whose jit(fn) has kernels for fn.workload")
    one.add_argument("--peer-python", metavar="PATH", help="the Python that has them (default: this one)")
    one.set_defaults(command=_bench)


def _calibrate_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    one.add_argument("--seconds", type=_seconds, default=120.0, help="about how long to measure (default: 120)")
    one.add_argument("--models", metavar="FOLDER", default="benchmarks/models",
                     help="of files that define make(preset), to check the model on (default: benchmarks/models)")
    one.add_argument("--out", metavar="PATH", help="where to write all results as JSON, besides the device file")
    one.set_defaults(command=_calibrate)


# ---------------------------------------------------------------- the commands
def _run(options: argparse.Namespace) -> None:
    """Run once under one strategy. Print the results' shapes and their errors."""
    fn, args, kwargs = _program(options)
    program = trace(fn, args, kwargs)
    leaves = [np.array(x) for x in flatten((args, kwargs))[0]]
    exact = evaluate(program.graph, [*leaves, *program.outside(leaves)], float64=True)
    exact = exact[:len(exact) - len(program.guards)]
    target = choose_target(options.target)
    compiled = jit(fn, strategy=options.strategy, target=target, device=options.device)
    began = time.perf_counter()
    run = compiled.compile(*args, **kwargs)
    ready = time.perf_counter()
    given = flatten((args, kwargs))[0]
    results = _computed(program.outputs, run(given))
    ran = time.perf_counter()
    for i, (got, want) in enumerate(zip([*results, *(given[k] for k, _ in program.mutated)], exact, strict=True)):
        got = np.asarray(got)
        what = f"result {i}" if i < len(results) else f"changed in place, argument {program.mutated[i - len(results)][0]}"
        print(f"{what}: {got.dtype.name}{list(got.shape)}, "
              f"error {error_of(got, want):.1e} of the largest magnitude, against the reference in float64")
    if not exact:
        print("no result depends on an array: give one, as --arg x=f32[128,768]")
    done = "reference: traced" if target == "reference" else f"{options.strategy} on {target}: compiled"
    print(f"{done} in {ready - began:.2f} s, first run {(ran - ready) * 1e3:.2f} ms")


def _computed(tree: Tree, result: Any) -> list[Any]:
    """The arrays of a result that the graph computes, in order, without constants."""
    if isinstance(tree, Branch):
        parts = result.values() if isinstance(result, dict) else result
        return [each for child, part in zip(tree.children, parts, strict=True) for each in _computed(child, part)]
    return [result] if isinstance(tree, Leaf) else []


def _explain(options: argparse.Namespace) -> None:
    fn, args, kwargs = _program(options)
    report = explain(fn, *args, strategy=options.strategy, target=_with_text(options.target),
                     device=options.device, architecture=options.architecture, **kwargs)
    if options.html:
        _write(options.html, report.html)
    else:
        print(report)


def _compare(options: argparse.Namespace) -> None:
    fn, args, kwargs = _program(options)
    print(compare(fn, *args, strategies=_names(options.strategy) or None, target=options.target,
                  device=options.device, optimum=options.optimum, **kwargs))


def _explore(options: argparse.Namespace) -> None:
    """Write the page, or serve it on this machine until Ctrl-C."""
    fn, args, kwargs = _program(options)
    found = explored(fn, args, kwargs, options.strategy, options.gpu)
    if options.save:
        _write(options.save, found.page(saved=True))
        return
    try:
        server = ExplorerServer(found, options.port)
    except (OSError, OverflowError) as problem:
        raise UsageError(f"cannot listen on port {options.port}: {problem}; leave --port out") from None
    with server:
        print(f"{server.url}\nOpen this address in a browser on this machine. Ctrl-C ends the explorer.", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"cannot write {path}: {problem.strerror}; choose another path") from None
    print(f"wrote {Path(path).absolute()}")


def _bench(options: argparse.Namespace) -> None:
    """Run a suite of the repository's ``benchmarks``, which are not in the package."""
    options.suite = options.suite or ("cpu" if options.peers else "papers")
    if not Path("benchmarks", f"{options.suite}.py").is_file():
        raise UsageError(f"there is no benchmarks/{options.suite}.py in this folder; the workloads are in minisitch's "
                         "repository: clone it, and run this command in the clone")
    options.strategy, options.workload, options.peers = map(_names, (options.strategy, options.workload, options.peers))
    sys.path.insert(0, os.getcwd())
    importlib.import_module(f"benchmarks.{options.suite}").main(options)


def _calibrate(options: argparse.Namespace) -> None:
    """Measure this CPU, print the figures, and write the device file."""
    if options.target == "cuda":
        there = choose_target("auto") == "cuda"
        raise UsageError(("GPUs are not measured yet" if there else "there is no GPU here") +
                         "; the figures of GPUs come from datasheets: give --device for one of "
                         f"{', '.join(DEVICES)}, and --target cpu to measure this CPU")
    path = device_file()
    if path is None:
        raise UsageError("MINISITCH_DEVICE=0 says that no device file is wanted; unset it, or set it to a path")
    if options.out and not Path(options.out).absolute().parent.is_dir():
        raise UsageError(f"the folder of {options.out} does not exist; choose another path")
    with working("calibrate"):
        found = calibrate(options.seconds, _models(Path(options.models)))
    print(found)
    found.write(path)
    print(f"\nwrote {path}: `cpu` is priced with it from now on; delete it to have the built-in figures back")
    if options.out:
        try:
            Path(options.out).write_text(json.dumps(found.record(), indent=1) + "\n", encoding="utf-8")
        except OSError as problem:
            raise UsageError(f"cannot write {options.out}: {problem.strerror}; choose another path") from None


def _doctor(options: argparse.Namespace) -> int:
    found = examine()
    print(report(found))
    return int(any(f.state == BROKEN for f in found))


def _models(folder: Path) -> Samples:
    """The programs of a folder's files, with their last and largest preset; else the demo's."""
    found: Samples = {}
    for path in sorted(folder.glob("*.py")):
        module = _load(path)
        if hasattr(module, "make"):
            preset = list(getattr(module, "PRESETS", None) or [""])[-1]
            found[f"{path.stem} {preset}".strip()] = functools.partial(module.make, preset)
    return found or {"demo": lambda: (gpt, (*make_batch(b"minisitch" * 200), make_weights()))}


def _with_text(target: str) -> str:
    """The target to show text for: the CPU if it is the reference, which has no kernels."""
    return "cpu" if target == "reference" else target


# ---------------------------------------------------------------- reading words
def _program(options: argparse.Namespace) -> tuple[Callable[..., Any], tuple, dict[str, Any]]:
    """The function and its arguments. Raises UsageError that says what to write."""
    try:
        choose_device("cpu", options.device)
    except DeviceError as problem:
        raise UsageError(str(problem)) from None
    path, colon, name = options.program.partition(".py:")
    module = _load(Path(path + ".py" if colon else path))
    for strategy in _names(options.strategy):  # after loading, which may register one
        if strategy not in STRATEGIES:
            raise UsageError(f"unknown strategy {strategy!r}{near(strategy, STRATEGIES)}; take one of {', '.join(STRATEGIES)}")
    if not colon:
        return *_made(module, options), {}
    fn = getattr(module, name, None)
    if not callable(fn):
        known = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
        raise UsageError(f"{path}.py has no function {name!r}{near(name, known)}; it has {', '.join(known) or 'none'}")
    given = [_argument(word, options.seed + i) for i, word in enumerate(options.arg)]
    kwargs = dict(given)
    if len(kwargs) < len(given):
        raise UsageError(f"--arg gives an argument twice: {', '.join(name for name, _ in given)}")
    args = _check_arguments(fn, name, kwargs)
    try:
        # By position if possible, because an argument may be called target.
        bound = inspect.signature(fn).bind(*args, **kwargs)
    except TypeError as problem:  # *args have no names
        raise UsageError(f"cannot call {name}: {problem}; write a function of named arguments around it") from None
    return fn, bound.args, bound.kwargs


def _names(value: str | list[str] | None) -> list[str]:
    """The names in a repeatable option, which may also hold commas."""
    words = [value] if isinstance(value, str) else value or []
    return [name.strip() for word in words for name in word.split(",") if name.strip()]


def _load(path: Path) -> Any:
    if not path.is_file():
        raise UsageError(f"the file {path} does not exist; write {WHERE}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file; write {WHERE}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as problem:
        line = f"{os.path.basename(problem.filename or str(path))}:{problem.lineno or 1}"
        raise UsageError(f"cannot import {path}: {line}: SyntaxError: {problem.msg}") from None
    except (Exception, SystemExit) as problem:
        line = _user_line(problem, str(path))
        raise UsageError(f"cannot import {path}: {line}{type(problem).__name__}: {problem}; it must run on its own") from None
    return module


def _made(module: Any, options: argparse.Namespace) -> tuple[Callable[..., Any], tuple]:
    """The function and the arguments that a model file's ``make(preset)`` returns."""
    make, presets = getattr(module, "make", None), getattr(module, "PRESETS", {})
    if not callable(make):
        raise UsageError(f"{options.program} does not define make(preset); write {WHERE}")
    if not isinstance(presets, list | tuple | dict | set):
        raise UsageError(f"PRESETS of {options.program} is {presets!r}; write a list or dict of names")
    preset = options.preset or next(iter(presets), "")
    if presets and preset not in presets:
        raise UsageError(f"no preset {preset!r}{near(preset, map(str, presets))}; take one of {', '.join(map(str, presets))}")
    try:
        inspect.signature(make).bind(preset)
    except (TypeError, ValueError):
        raise UsageError(f"make of {options.program} takes no preset; write def make(preset):") from None
    made = make(preset)
    if not (isinstance(made, tuple | list) and len(made) == 2 and callable(made[0]) and isinstance(made[1], tuple | list)):
        raise UsageError(f"make of {options.program} returns {_kinds(made)}; write return function, (argument, ...)")
    return made[0], tuple(made[1])


def _kinds(made: object) -> str:
    return f"({', '.join(type(each).__name__ for each in made)})" if isinstance(made, tuple) else type(made).__name__


def _argument(word: str, seed: int) -> tuple[str, Any]:
    """``x=f32[4,8]``, ``x=data.npy`` or ``x=3`` as a name and a value."""
    name, equals, value = word.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"cannot read --arg {word!r}; write --arg x=f32[128,768]")
    if value.endswith(".npy"):
        try:
            return name, np.load(value, allow_pickle=False)
        except (OSError, ValueError) as problem:
            raise UsageError(f"cannot load {value}: {problem}") from None
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        pass
    try:
        return name, sample(parse_type(value), seed)
    except MinisitchError as problem:
        raise UsageError(str(problem)) from None
    except (MemoryError, ValueError, OverflowError) as problem:
        raise UsageError(f"cannot make {value}: {problem}; take a smaller shape") from None


def _check_arguments(fn: Callable[..., Any], name: str, kwargs: dict[str, Any]) -> tuple:
    """Take positional-only arguments out of ``kwargs``, and return them.

    Raises UsageError for missing and unknown arguments.
    """
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:
        raise UsageError(f"{name} does not say its arguments; write a function around it") from None
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    unknown = [k for k in kwargs if k not in [p.name for p in parameters] and not takes_all]
    if unknown:
        known = [p.name for p in parameters]
        raise UsageError(f"{name} has no argument {unknown[0]!r}{near(unknown[0], known)}; it has {', '.join(known) or 'none'}")
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    missing = [n for n in needed if n not in kwargs]
    if missing:
        raise UsageError(f"{name} needs the argument {missing[0]!r}; add --arg {missing[0]}=f32[128,768]")
    return tuple(kwargs.pop(p.name) for p in parameters if p.kind is p.POSITIONAL_ONLY and p.name in kwargs)


if __name__ == "__main__":
    sys.exit(main())
