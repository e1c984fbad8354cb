"""Attacks on the grader: each is a submission that tries to score without an answer.

They are in ``tutorials/assignments/hostile/``, and those that are kernels in its folder ``kernels``.
Every one is graded by the real command, in a process of its own. Each must score 0, leave a valid
results.json, no process and no file, and end in time. What ``hostile/made/rules.py`` and ``odd/rules.py``
make is graded as one class: the attacks score 0, and what only looks odd has all points. As root, all
are tried a second time as an unprivileged user.
"""

import ctypes
import itertools
import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from .assignment import Assignment, CourseError
from .child import NOBODY
from .classroom import printable, read_table
from .verify import TrialResult

# the attacks, and the assignment that they are handed in for; some texts break other programs that read Python
TARGETS = {"hostile/*.py": "A5", "hostile/kernels/*.txt": "A2"}
LIMIT_SECONDS = 120.0  # of one grading: three missed deadlines of 10 s, and room for a busy machine
LIMIT_OF_CLASS = 300.0
RULES = ("hostile/made/rules.py", "odd/rules.py")  # what scores 0; what has all points
MARK = "minisitch-attack"  # begins the name of every file that an attack writes
PR_SET_CHILD_SUBREAPER = 36


def verify(known: Mapping[str, Assignment], say: Callable[[str], None]) -> int:
    """Try every attack. Says a line each, and what could not be tried. Returns how many got something.

    Raises CourseError if there are none, or no assignment to hand them in for.
    """
    if missing := TARGETS.values() - known.keys():
        raise CourseError(f"the attacks are handed in for {', '.join(missing)}, which is not here")
    home = next(iter(known.values())).folder.parent
    attacks = [(path, name) for place, name in TARGETS.items() for path in home.glob(place)]
    if not attacks:
        raise CourseError(f"there are no attacks in {home / 'hostile'}")
    if os.geteuid() != 0:
        return _try_all(sorted(attacks), known, None, say)
    say("as root, who becomes nobody:")
    problems = _try_all(sorted(attacks), known, None, say)
    say("as an unprivileged user:")
    try:
        command = [sys.executable, "-c", "import minisitch"]
        subprocess.run(command, user=NOBODY, group=NOBODY, extra_groups=[], check=True)
    except (PermissionError, subprocess.CalledProcessError) as problem:
        say(
            f"  NOT TRIED, and not counted: user {NOBODY} may not run {sys.executable} ({problem}). "
            "Install Python and minisitch where every user may read them, such as /usr and /opt"
        )
        return problems
    return problems + _try_all(sorted(attacks), known, NOBODY, say)


def _try_all(
    attacks: list[tuple[Path, str]], known: Mapping[str, Assignment], user: int | None,
    say: Callable[[str], None],
) -> int:
    problems = 0
    for name in TARGETS.values():  # a grader that gives nobody a point would stand against all attacks
        if "it scored" not in attempt(known[name].folder / "solution.py", known[name], user).problem:
            say(f"  even the solution of {name} scores nothing, so its attacks say nothing")
            problems += 1
    found = (attempt(path, known[name], user) for path, name in attacks)
    for each in itertools.chain(found, class_of_rules(known["A5"], user)):
        say(f"  {each.name:<24} {each.problem or 'as it should be'}, {each.seconds:.1f} s")
        problems += bool(each.problem)
    return problems


def attempt(path: Path, assignment: Assignment, user: int | None = None) -> TrialResult:
    """Grade one attack with the command, as this user or another."""
    return _command(
        path.stem, assignment, [path, "--student", "nobody", "--gradescope", "results.json"], user, LIMIT_SECONDS,
        lambda place: _gained(place / "results.json"),
    )


def class_of_rules(assignment: Assignment, user: int | None = None) -> Iterator[TrialResult]:
    """Grade what the rules make as one class, then say of each submission whether it has the points it should."""
    home, solution = assignment.folder.parent, assignment.text("solution.py", assignment.variant)
    made, odd = (runpy.run_path(str(home / each))["FILES"] for each in RULES)
    files = {**made, b"solution.py": solution.encode(), **{name: change(solution) for name, change in odd.items()}}
    rows: dict[str, dict[str, str]] = {}

    def read(place: Path) -> Iterator[str]:
        rows.update((row["student"], row) for row in read_table(place / "table.csv"))
        yield from ()

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for name, data in files.items():
            path = Path(folder, os.fsdecode(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        words = [folder, "--csv", "table.csv", "--jobs", "2"]
        yield _command("the class of the rules", assignment, words, user, LIMIT_OF_CLASS, read)
    for name in files:
        top = Path(os.fsdecode(name).partition("/")[0])
        row = rows.get(printable(top.stem if b"/" not in name else top.name), {"score": "none", "problem": "no row"})
        most = "0.00" if name in made else rows.get("solution", row)["score"]
        wrong = f"it scored {row['score']}, not {most}: {row['problem']}"
        yield TrialResult(printable(top.name), wrong if row["score"] != most or most == "none" else "", 0.0)


def _command(
    name: str, assignment: Assignment, words: Sequence[Path | str], user: int | None, limit: float,
    judge: Callable[[Path], Iterator[str]],
) -> TrialResult:
    """Run ``grade`` as this user or another. ``judge`` reads what it wrote, and says what is wrong."""
    if sys.platform == "linux":  # orphans become children of this process, so none can hide
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before, began = _children(), time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        if user is not None:
            os.chown(place, user, user)
        command = [sys.executable, *"-m minisitch.course grade".split(), assignment.name, *words]
        command += ["--secret", "of hostile alone", "--assignments", assignment.folder]
        kept = [each for each in ("PATH", "PYTHONPATH", "LANG") if each in os.environ]
        environment = {each: os.environ[each] for each in kept} | {"TMPDIR": place}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=place,
            env=environment, user=user, group=user, extra_groups=[] if user is not None else None,
        )
        try:
            said, _ = process.communicate(timeout=limit)
            problems = [f"the grader ended with {process.returncode}: {said.strip()[-300:]}"] * bool(process.returncode)
            problems += judge(Path(place))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            problems = [f"the grader ran longer than {limit:g} s"]
        except OSError as problem:
            problems.append(f"nothing can be read: {problem}")
        problems += [f"it left the process {each}" for each in _orphans(before)]
        problems += [f"it left the file {each}" for each in _files_left(Path(place))]
    return TrialResult(name, "; ".join(problems), time.monotonic() - began)


def _gained(results: Path) -> Iterator[str]:
    """What an attack got out of the results."""
    try:
        record = json.loads(results.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        yield f"results.json is not whole: {problem}"
        return
    if record["score"] != 0 or any(test["score"] for test in record["tests"]):
        yield f"it scored {record['score']}: {', '.join(test['name'] for test in record['tests'] if test['score'])}"


def _children() -> set[int]:
    """The processes that are children of this one now."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(map(int, listed.read_text().split())) if listed.exists() else set()


def _orphans(before: set[int]) -> list[int]:
    """Processes that an attack left: children that were not there ``before``. They are ended."""
    found = []
    for number in sorted(_children() - before):
        try:
            os.kill(number, 9)
            os.waitpid(number, 0)
            found.append(number)
        except (ProcessLookupError, ChildProcessError):
            continue
    return found


def _files_left(place: Path) -> list[str]:
    """Files that an attack wrote, where anyone may write, and in the grader's own folder."""
    found = [
        path
        for folder in (Path("/tmp"), Path("/dev/shm"), Path("/var/tmp"), Path.cwd())
        if folder.is_dir()
        for path in folder.glob(f"{MARK}*")
    ]
    found += [path for path in place.iterdir() if path.name not in ("results.json", "table.csv")]
    return [str(path) for path in found]
