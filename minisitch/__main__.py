"""The command line: ``python -m minisitch``.

Commands: demo, explain, compare, explore, bench, calibrate, doctor.

In:  the words after the command. Out: text on stdout, and the exit code: 0 for success, 1 if the
program cannot be compiled, 2 if the words are wrong.
"""

import argparse
import ast
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__
from .course.kernels import kernel_text
from .course.show import explored_file
from .device import DEVICES
from .errors import DeviceError, MinisitchError
from .errors.nearest import UsageError, near, refuse_unknown_command
from .errors.progress import working
from .explain import compare, explain
from .explain.calibrate import calibrate
from .explain.compare import sample
from .explain.demo import demo
from .explain.explore import KernelExploration, Page, explored, explored_kernel
from .explain.explore.server import ExplorerServer
from .explain.explore.small import GPUS
from .explain.train import train
from .fuse import STRATEGIES
from .runtime import TARGETS, choose_device, parse_type
from .runtime.doctor import BROKEN, examine, report
from .runtime.this_machine import device_file

WHERE = "FILE.py:FUNCTION"


def main(words: Sequence[str] | None = None) -> int:
    """Run one command, and return the exit code."""
    parser, commands = _parser()
    words = sys.argv[1:] if words is None else words
    refuse_unknown_command(parser, words, commands)
    options, others = parser.parse_known_args(words)
    if options.command is _bench:
        options.words = others
    elif others:
        asked = next(word for word in words if word in commands)
        commands[asked].error(f"unrecognized arguments: {' '.join(others)}")
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
        line = _user_line(problem, getattr(options, "program", ""))
        debugged = os.environ.get("MINISITCH_DEBUG", "off") not in ("", "0", "off")
        if debugged or (isinstance(problem, SystemExit) and not line):
            raise
        # Without a line of the user's file, these may still be the user's mistake, or a full disk.
        ours = not line and not isinstance(problem, IndexError | MemoryError | OSError)
        name = f"{_public_name(type(problem))}: "
        if isinstance(problem, IndexError) and not line:
            name = ""
        said = f"{line}{name}{' '.join(str(problem).split())}"
        said += ours * " (a bug of minisitch: MINISITCH_DEBUG=1 shows where)"
        print(f"minisitch: {said}", file=sys.stderr)
        return 1


def _public_name(error: type) -> str:
    """The first public class of an error: ``MemoryError`` for NumPy's ``_ArrayMemoryError``."""
    return next(each.__name__ for each in error.__mro__ if not each.__name__.startswith("_"))


def _user_line(problem: BaseException, program: str) -> str:
    """``FILE.py:12: `` for the innermost line of the user's file in an error, or nothing."""
    path = os.path.abspath(program.rpartition(":")[0] if ".py:" in program else program)
    places = traceback.extract_tb(problem.__traceback__)
    lines = [f"{os.path.basename(path)}:{at.lineno}: " for at in places
             if os.path.abspath(at.filename) == path]
    return lines[-1] if lines else ""


def _parser() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser, and its commands."""
    parser = argparse.ArgumentParser(
        prog="python -m minisitch", description="NumPy programs to stitched kernels.",
        epilog="example: python -m minisitch compare tutorials/00_hello.py:softmax "
               "--arg \"x=f32[64,1024]\"\ncourse:  python -m minisitch.course",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"minisitch {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    # Options that several commands share.
    program, machine, strategy = (argparse.ArgumentParser(add_help=False) for _ in range(3))
    program.add_argument("program", help=WHERE)
    program.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE",
                         help="x=f32[128,768] (random numbers), x=array.npy, "
                              "or a Python value: axis=-1")
    machine.add_argument("--target", default="auto", choices=("auto", *TARGETS), help="what runs it")
    machine.add_argument("--device", help=f"the machine to plan for: cpu, {', '.join(DEVICES)} "
                                          "(default: the target's)")
    registered = f"{', '.join(STRATEGIES)}, or FILE.py for what that file registers"
    strategy.add_argument("--strategy", default="auto", help=f"one of {registered}")

    def command(name: str, run: Callable[[argparse.Namespace], Any], said: str,
                *shared: argparse.ArgumentParser, about: str | None = None, **defaults: Any) -> Any:
        made = commands.add_parser(name, help=said, description=about, parents=shared,
                                   add_help=name != "bench")
        made.set_defaults(command=run, **defaults)
        return made.add_argument

    add = command("demo", lambda o: train(o.file, o.report) if o.train else demo(o.file, o.report, o.target),
                  "a GPT block over a text file, under every strategy")
    add("file", nargs="?", help="whose bytes to read (default: the licence)")
    add("--report", metavar="PATH",
        help="where to write the page (default: minisitch-demo.html or minisitch-train.html here)")
    add("--train", action="store_true", help="train the block on the text with Adam, and let it write")
    add("--target", choices=("auto", "cpu", "cuda"), default="cpu", help="what runs the kernels")
    add = command("explain", _explain, "what was decided and why, kernel by kernel",
                  program, machine, strategy)
    add("--html", metavar="PATH", help="write the page there instead of printing text")
    add = command("compare", _compare, "all strategies: kernels, bytes, barriers, time, error",
                  program, machine)
    add("--strategy", action="append", metavar="NAME[,NAME]",
        help=f"some of {registered} (default: all)")
    add("--optimum", action="store_true", help="add the best plan there is (small programs)")
    add = command("explore", _explore, "a page that shows how the compiler treats a function, or what "
                  "a kernel's threads do, step by step", program, strategy, device=None)
    add("--launch", type=_launch, default=(1, 64), metavar="BLOCKS,THREADS",
        help="of a kernel of yours (default: 1,64)")
    add("--gpu", default="toy", choices=GPUS,
        help="the GPU to plan for (default: toy, two blocks of 64 threads)")
    add("--save", metavar="PATH", help="write the page there, as one file that needs no server")
    add("--port", type=int, default=0, help="of the address (default: a free one)")
    command("bench", _bench,
            "a suite of workloads under every strategy, in a clone of the repository")
    command("calibrate", _calibrate,
            "measure this CPU for the cost model (the figures of GPUs come from datasheets)",
            about="Measures this CPU for about a minute (leave the machine alone meanwhile), and "
                  "writes the figures to ~/.config/minisitch/cpu.json, or to the file that "
                  "MINISITCH_DEVICE names. `cpu` is priced with them from then on: modelled times "
                  "change, and so may the plans of auto. Delete the file to undo it.")
    command("doctor", _doctor,
            "what this machine has, what will run on it, and how to get the rest")
    return parser, commands.choices


# ---------------------------------------------------------------- the commands
def _explain(options: argparse.Namespace) -> None:
    fn, args, kwargs = _program(options)
    # The reference has no kernels to show.
    target = "auto" if options.target == "reference" else options.target
    report = explain(fn, *args, strategy=options.strategy, target=target, device=options.device,
                     **kwargs)
    if options.html:
        _write(options.html, report.html)
    else:
        print(report)


def _compare(options: argparse.Namespace) -> None:
    fn, args, kwargs = _program(options)
    print(compare(fn, *args, strategies=options.strategy or None, target=options.target,
                  device=options.device, optimum=options.optimum, **kwargs))


def _explore(options: argparse.Namespace) -> None:
    """Write the page, or serve it on this machine until Ctrl-C."""
    found: Page | None = _kernel(options)
    if found is None:
        fn, args, kwargs = _program(options)
        found = explored(fn, args, kwargs, options.strategy, options.gpu)
    if options.save:
        _write(options.save, found.page(saved=True))
        return
    try:
        server = ExplorerServer(found, options.port)
    except (OSError, OverflowError) as problem:
        raise UsageError(f"cannot listen on port {options.port}: {problem}; "
                         "leave --port out") from None
    with server:
        print(f"{server.url}\nOpen this address in a browser on this machine. "
              "Ctrl-C ends the explorer.", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _kernel(options: argparse.Namespace) -> KernelExploration | None:
    """The explorer of a kernel, whose file is read and never run. None if the function is no kernel.

    A function whose text names ``cuda`` is one. A file without a function is a submission.
    """
    path, colon, name = options.program.partition(".py:")
    file = Path(path + ".py" if colon else path)
    if not file.is_file():
        raise UsageError(f"there is no file {file}; write {WHERE}, or the file of an assignment's kernel")
    text, functions = file.read_text(encoding="utf-8"), dict[str, ast.AST]()
    with suppress(SyntaxError):
        functions = {f.name: f for f in ast.parse(text).body if isinstance(f, ast.FunctionDef)}
    if colon and not any(isinstance(n, ast.Name) and n.id == "cuda" for n in ast.walk(functions.get(name, ast.Pass()))):
        return None
    if options.arg and functions:
        arrays = dict(_argument(word, i) for i, word in enumerate(options.arg))
        name = name or [*functions][-1]
        return explored_kernel(kernel_text(text, name, [name]), arrays, *options.launch, name=name)
    if found := explored_file(file, name):
        return found
    raise UsageError(f"{file.name} is no assignment's; write --arg NAME=f32[64] for each array of the kernel, "
                     "and --launch BLOCKS,THREADS")


def _launch(word: str) -> tuple[int, int]:
    """``2,64``: two blocks of 64 threads."""
    grid, _, block = word.partition(",")
    return int(grid), int(block)


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"cannot write {path}: {problem.strerror}; choose another path") from None
    print(f"wrote {Path(path).absolute()}")


def _bench(options: argparse.Namespace) -> None:
    """Hand the words to the repository's ``benchmarks``, which are not in the package."""
    if not Path("benchmarks", "__main__.py").is_file():
        raise UsageError("there is no folder benchmarks here; the workloads are in minisitch's "
                         "repository: clone it, and run this command in the clone")
    sys.path.insert(0, os.getcwd())
    importlib.import_module("benchmarks.__main__").main(options.words)


def _calibrate(_: argparse.Namespace) -> None:
    """Measure this CPU, print the figures, and write the device file."""
    path = device_file()
    if path is None:
        raise UsageError("MINISITCH_DEVICE=0 says that no device file is wanted; unset it, "
                         "or set it to a path")
    with working("calibrate"):
        found = calibrate()
    print(found)
    found.write(path)
    print(f"\nwrote {path}: `cpu` is priced with it from now on, which may change auto's plans; "
          "delete it to undo this")


def _doctor(options: argparse.Namespace) -> int:
    found = examine()
    print(report(found))
    return int(any(f.state == BROKEN for f in found))


# ---------------------------------------------------------------- reading words
def _program(options: argparse.Namespace) -> tuple[Callable[..., Any], tuple, dict[str, Any]]:
    """The function and its arguments. Raises UsageError that says what to write."""
    try:
        choose_device(getattr(options, "target", "auto"), options.device)
    except DeviceError as problem:
        raise UsageError(str(problem)) from None
    path, colon, name = options.program.partition(".py:")
    module = _load(Path(path + ".py" if colon else path))
    asked = strategies(options.strategy)  # after loading, which may register one
    for strategy in asked:
        if strategy not in STRATEGIES:
            raise UsageError(f"unknown strategy {strategy!r}{near(strategy, STRATEGIES)}; "
                             f"take one of {', '.join(STRATEGIES)}, or a file that registers one")
    if isinstance(options.strategy, str) and len(asked) > 1:
        raise UsageError(f"{options.strategy} registers {', '.join(asked)}; name one of them after "
                         f"{WHERE} of that file")
    options.strategy = asked[0] if isinstance(options.strategy, str) else asked
    if not colon:
        raise UsageError(f"{path} names no function; write {WHERE}")
    fn = getattr(module, name, None)
    if not callable(fn):
        functions = [(n, f) for n, f in vars(module).items() if inspect.isfunction(f)]
        known = [n for n, f in functions if f.__module__ == module.__name__]
        raise UsageError(f"{path}.py has no function {name!r}{near(name, known)}; "
                         f"it has {', '.join(known) or 'none'}")
    given = [_argument(word, i) for i, word in enumerate(options.arg)]
    kwargs = dict(given)
    if len(kwargs) < len(given):
        raise UsageError(f"--arg gives an argument twice: {', '.join(name for name, _ in given)}")
    try:
        signature = inspect.signature(fn)
    except ValueError:
        raise UsageError(f"{name} does not say its arguments; write a function around it") from None
    args = [kwargs.pop(name) for name, p in signature.parameters.items()
            if p.kind is p.POSITIONAL_ONLY and name in kwargs]
    try:
        # By position if possible, because an argument may be called target.
        bound = signature.bind(*args, **kwargs)
    except TypeError as problem:
        raise UsageError(f"cannot call {name}{signature}: {problem}; write --arg NAME="
                         "f32[128,768] for each argument without a default, or a function of named "
                         "arguments around it") from None
    return fn, bound.args, bound.kwargs


def names(value: str | list[str] | None) -> list[str]:
    """The name in an option, or the names in a repeatable one, which may also hold commas."""
    if isinstance(value, str):
        return [value]
    return [name.strip() for word in value or () for name in word.split(",") if name.strip()]


def strategies(value: str | list[str] | None) -> list[str]:
    """The names in an option. ``mine.py`` stands for the strategies that the file registers."""
    return [each for name in names(value) for each in (_registered(name) if name.endswith(".py") else [name])]


def _registered(path: str) -> list[str]:
    before = dict(STRATEGIES)
    _load(Path(path))
    if found := [each for each in STRATEGIES if before.get(each) is not STRATEGIES[each]]:
        return found
    raise UsageError(f"{path} registers no strategy: write @minisitch.strategy('mine') above a "
                     "function of a graph and a device")


def _load(path: Path) -> Any:
    if not path.is_file():
        raise UsageError(f"there is no file {path}; write {WHERE}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file; write {WHERE}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.absolute()))
    try:
        with redirect_stdout(sys.stderr):  # what the file prints is no part of our report
            spec.loader.exec_module(module)
    except SyntaxError as problem:
        line = f"{os.path.basename(problem.filename or str(path))}:{problem.lineno or 1}"
        raise UsageError(f"cannot import {path}: {line}: SyntaxError: {problem.msg}") from None
    except (Exception, SystemExit) as problem:
        line = _user_line(problem, str(path))
        raise UsageError(f"cannot import {path}: {line}{type(problem).__name__}: {problem}; "
                         "it must run on its own") from None
    return module


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


if __name__ == "__main__":
    sys.exit(main())
