"""Raw results of a suite of workloads: a file that survives interruptions, a process for each workload, tables.

In:  names of workloads, and a module that measures one of them as ``python -m benchmarks.MODULE --one SETTINGS``.
Out: a JSON file ``{workload: record}``, written anew, as a whole, after each workload. What is in the file already is not
measured again, unless the package, the models, the device file or what was asked for have changed since.

A workload has a process of its own: the memory of a large one is given back, and one that fails stops no other. The
process writes a line of JSON for each thing it begins, ``{"doing": "xla: planning"}``, and last its record.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numba
import numpy as np

from minisitch.__main__ import strategies
from minisitch.errors import MinisitchError
from minisitch.runtime.this_machine import get_device

ROOT = Path(__file__).resolve().parent.parent
BUSY = 0.5  # processes waiting for a core, for each core there is, from which times are not to be trusted

Record = dict[str, Any]


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> float:
    """Processes that ran or waited for a core during the last minute; 0 where the system does not say."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def surroundings() -> Record:
    """What times depend on besides the program. No name of a machine or a user."""
    return {"date": date.today().isoformat(), "machine": f"{cores()}-core-{platform.machine()}", "system": platform.system(),
            "python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__, "load": load()}


def origin(*workload: Path) -> Record:
    """What results depend on besides their settings: the code, and what is known of this machine, which plans are made by."""
    return {"code": code_digest(*workload), "calibration": digest_of(repr(get_device("cpu")).encode())}


def code_digest(*workload: Path) -> str:
    """Changes with the package, with the models and with what measures them."""
    package, benchmarks = ROOT / "minisitch", ROOT / "benchmarks"
    files = {*package.rglob("*.py"), *package.rglob("*.ll"), *benchmarks.glob("*.py"), *benchmarks.glob("models/*.py"), *workload}
    return digest_of(b"".join(f.read_bytes() for f in sorted(files)))


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


# ---------------------------------------------------------------- the file
class Results:
    """The records of one file, by workload."""

    def __init__(self, path: Path, fresh: bool = False) -> None:
        self.path, self.records = path, {}
        if path.exists() and not fresh:
            try:
                self.records: dict[str, Record] = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as problem:
                raise MinisitchError(f"cannot read the results in {path}: {problem}; move the file away, or name "
                                     "another with --out") from None

    def has(self, workload: str, wanted: Record) -> bool:
        """Whether there is a record for what is ``wanted``: the same code and settings, at least these strategies or peers."""
        found = self.records.get(workload, {})
        return all(set(v) <= set(found.get(k, ())) if isinstance(v, list) else found.get(k) == v for k, v in wanted.items())

    def add(self, workload: str, record: Record) -> None:
        """Keep a record; readers, and a process killed right now, see the file of before or the file of after."""
        self.records[workload] = record
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=self.path.parent, suffix=".tmp", delete=False, encoding="utf-8") as fresh:
            fresh.write(one_line_each(self.records))
        os.replace(fresh.name, self.path)


def one_line_each(records: dict[str, Record]) -> str:
    """JSON with a line for each entry of a record, and one for each strategy: a difference can be read."""
    text = json.dumps(records, indent=1)
    lines: list[str] = []
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip())
        if depth > 3 or (depth == 3 and line.strip()[0] in "]}"):
            lines[-1] += " " * (lines[-1][-1] == ",") + line.strip()
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def path_of(suite: str, preset: str) -> Path:
    """Where a suite's results of today go."""
    here = surroundings()
    return ROOT / "benchmarks" / "results" / f"{here['date']}-{suite}-{preset}-{here['machine']}.json"


def complain(failed: dict[str, str], wrong: Sequence[str]) -> None:
    """How a suite ends. Raises MinisitchError where a workload failed, or something is ``wrong``, a sentence each."""
    if failed or wrong:
        raise MinisitchError("; ".join([*(f"{name} failed: {error}" for name, error in failed.items()), *wrong]))


def as_a_program(suite: str, measure: Callable[..., Record], show: Callable[[Path], None]) -> None:
    """``python -m benchmarks.SUITE FILE``: show the report on results that are there. With ``--one`` it is the process that
    measures one workload for ``measure_all``."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{suite}", description="Print the report on raw results that are "
                                     f"there. To measure: python -m minisitch bench --suite {suite}.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("file", nargs="?", type=Path, help="raw results, as in benchmarks/results/")
    what.add_argument("--one", metavar="SETTINGS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        settings = json.loads(options.one)
        strategies(settings.pop("registering", None))  # files that register some
        say(measure(**settings))
    elif not options.file.is_file():
        parser.error(f"there is no file {options.file}")
    else:
        show(options.file)


# ---------------------------------------------------------------- a process for each workload
def run_suite(suite: str, workloads: dict[str, Path], asked: Sequence[str],
              options: argparse.Namespace) -> tuple[Results, dict[str, Record], dict[str, str]]:
    """Measure what the results lack. Gives the results, the records asked for, and the errors of workloads that failed.

    ``workloads``: the file of each workload. Its changes make old results useless, as do those of the files that
    register strategies. Raises MinisitchError for an
    unknown name.
    """
    chosen = options.workload or list(workloads)
    if unknown := [name for name in chosen if name not in workloads]:
        raise MinisitchError(f"unknown workload {unknown[0]!r}; take one of {', '.join(workloads)}")
    wanted = {name: {"preset": options.preset, "target": options.target, "seconds": options.seconds,
                     "strategies": list(asked), **origin(workloads[name], *map(Path, options.registering))} for name in chosen}
    results = Results(options.out or path_of(suite, options.preset), options.fresh)
    also = {"registering": options.registering} if options.registering else None
    failed = measure_all(suite, results, wanted, options.fresh, also)
    return results, {name: results.records[name] for name in chosen if name not in failed}, failed


def measure_all(suite: str, results: Results, wanted: dict[str, Record], fresh: bool, also: Record | None = None) -> dict[str, str]:
    """Measure what the file lacks; ``wanted`` has a workload's settings. Gives the errors of those that failed.

    ``also``: settings that make no difference to the results, and are not kept with them.
    """
    todo = [name for name in wanted if not results.has(name, wanted[name])]
    if todo and load() > BUSY * cores():
        print(f"This machine is busy (load {load()} on {cores()} cores): times will be too long, counts are right.",
              file=sys.stderr)
    failed = {}
    with Bar(len(todo)) as bar, tempfile.TemporaryDirectory() as cache:
        for number, name in enumerate(todo):
            environment = {**os.environ, "MINISITCH_PLANS": "0",  # how long planning takes is measured
                           **({"MINISITCH_CACHE": str(Path(cache) / name)} if fresh else {})}
            before = surroundings()
            settings = json.dumps({"workload": name, **wanted[name], **(also or {})})
            record, error = run_one([sys.executable, "-m", f"benchmarks.{suite}", "--one", settings], environment,
                                    lambda doing, at=number, what=name: bar.show(at, f"{what}: {doing}"))
            if error:
                failed[name] = error
            else:
                results.add(name, {**wanted[name], "where": {**before, "load_after": load()}, **record})
            bar.finished(name, error)
    return failed


def run_one(command: Sequence[str], environment: dict[str, str], doing: Callable[[str], None]) -> tuple[Record, str]:
    """The record that a process printed, or the last line of its complaint."""
    record: Record = {}
    with (tempfile.TemporaryFile("w+", encoding="utf-8") as complaint,
          subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=complaint, text=True) as process):
        assert process.stdout
        for line in process.stdout:
            message = json.loads(line)
            if "doing" in message:
                doing(message["doing"])
            else:
                record = message
        code = process.wait()
        complaint.seek(0)
        last = complaint.read().strip().splitlines()[-1:]
    return (record, "") if not code and record else ({}, "".join(last) or f"the process ended with code {code}")


def say(message: Record | str) -> None:
    """From the process of a workload: what it begins, or its record."""
    print(json.dumps({"doing": message} if isinstance(message, str) else message), flush=True)


class Bar:
    """One line on stderr that says what is under way; where nobody watches, a line for each finished workload."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.began = total, 0, time.perf_counter()
        self.watched = sys.stderr.isatty()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self._write("")

    def show(self, done: int, text: str) -> None:
        """What is being done."""
        self._write(f"[{('#' * (20 * done // max(1, self.total))).ljust(20, '.')}] {done}/{self.total}  "
                    f"{time.perf_counter() - self.began:4.0f} s  {text[:70]}")

    def finished(self, name: str, error: str) -> None:
        """One more is done."""
        self.done += 1
        self._write("")
        if error or not self.watched:
            print(f"{self.done}/{self.total} {name}: {error or f'{time.perf_counter() - self.began:.0f} s so far'}",
                  file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        if self.watched:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()


# ---------------------------------------------------------------- printing
def tell(text: str, out: Path | None) -> None:
    """Print a report, and keep it in a file if one is named."""
    print(text)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text.rstrip() + "\n", encoding="utf-8")


def table(rows: Iterable[Sequence[str]]) -> str:
    """Lines of columns as Markdown has them, the first to the left, the others to the right."""
    cells = [list(row) for row in rows]
    wide = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = ["| " + " | ".join([row[0].ljust(wide[0]), *(c.rjust(w) for c, w in zip(row[1:], wide[1:], strict=True))]) + " |"
             for row in cells]
    lines.insert(1, "|" + "|".join(["-" * (wide[0] + 2), *("-" * (w + 1) + ":" for w in wide[1:])]) + "|")
    return "\n".join(lines)


def where_and_when(records: dict[str, Record]) -> str:
    """One sentence about the machine, whether it was quiet, and how many rounds each median is of; one more where the records were
    planned by different figures of it."""
    where = [r["where"] for r in records.values()]
    last, calibrations = where[-1], {r.get("calibration") for r in records.values()}
    mixed = f" Planned by {len(calibrations)} different calibrations." if len(calibrations) > 1 else ""
    return (f"Measured {' and '.join(sorted({w['date'] for w in where}))} on a {last['machine']} machine, {last['system']}, Python "
            f"{last['python']}, NumPy {last['numpy']}, Numba {last['numba']}; "
            f"load {span(n for w in where for n in (w['load'], w['load_after']))}, "
            "the measured process included; "
            f"medians of {span(len(r['numpy']['call_us']) for r in records.values())} rounds.{mixed}")


def span(numbers: Iterable[float]) -> str:
    """``3 to 41``, or the one number that all are."""
    found = sorted(set(numbers))
    return " to ".join(map(str, (found[0], found[-1])[:len(found)]))


def geometric_mean(numbers: Iterable[float]) -> float:
    """Of positive numbers; 0 of none."""
    found = list(numbers)
    return float(np.exp(np.mean(np.log(found)))) if found else 0.0
