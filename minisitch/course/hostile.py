"""Attacks on the grader: each is a submission that tries to score without an answer.

They are in ``tutorials/assignments/hostile/``: programs, kernels in its folder ``kernels``, and what the rules in
``made`` make. The real command grades them all as one class, beside the solution, and beside honest submissions that
only look odd (``odd/rules.py``). Every attack must score 0, and every honest one all points. The grader must end in time,
with 0, and leave no process and no file. As root, all are tried a second time as an unprivileged user.
"""

import contextlib
import ctypes
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from .assignment import Assignment, CourseError
from .child import NOBODY
from .classroom import printable, read_table
from .verify import TrialResult

ASSIGNMENTS = ("A5", "A2")  # programs are handed in for the first; kernels, and other texts, for the second
LIMIT_SECONDS = 480.0  # of grading a class
MARK = "minisitch-attack"  # begins the name of every file that an attack writes
PR_SET_CHILD_SUBREAPER = 36


def verify(known: Mapping[str, Assignment], say: Callable[[str], None]) -> int:
    """Try every attack. Says a line each, and what could not be tried. Returns how many got something.

    Raises CourseError if there are none, or no assignment to hand them in for.
    """
    if missing := set(ASSIGNMENTS) - known.keys():
        raise CourseError(f"the attacks are handed in for {', '.join(missing)}, which is not here")
    if os.geteuid() != 0:
        return _try_all(known, None, say)
    say("as root, who becomes nobody:")
    problems = _try_all(known, None, say)
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
    return problems + _try_all(known, NOBODY, say)


def _try_all(known: Mapping[str, Assignment], user: int | None, say: Callable[[str], None]) -> int:
    problems = 0
    for name in ASSIGNMENTS:
        for found in grade_attacks(known[name], *submissions(known[name]), user):
            say(f"  {found.name:<32} {found.problem or 'as it should be'}" + f", {found.seconds:.1f} s" * bool(found.seconds))
            problems += bool(found.problem)
    return problems


def submissions(assignment: Assignment) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Attacks for an assignment, then honest submissions: paths in a folder, as bytes, and what is in the files.

    Raises CourseError if there are no attacks.
    """
    home, solution = assignment.folder.parent, assignment.text("solution.py", assignment.variant)
    programs = assignment.name == ASSIGNMENTS[0]
    found = home.glob("hostile/*.py" if programs else "hostile/kernels/*.txt")
    attacks = {f"{path.stem}.py".encode(): path.read_bytes() for path in found}
    if not attacks:
        raise CourseError(f"there are no attacks in {home / 'hostile'}")
    honest = {b"solution.py": solution.encode()}
    if programs:
        attacks |= runpy.run_path(str(home / "hostile" / "made" / "rules.py"))["FILES"]
        odd = runpy.run_path(str(home / "odd" / "rules.py"))["FILES"]
        honest |= {name: change(solution) for name, change in odd.items()}
    return attacks, honest


def grade_attacks(
    assignment: Assignment, attacks: dict[bytes, bytes], honest: dict[bytes, bytes], user: int | None = None
) -> Iterator[TrialResult]:
    """Grade all as one class, as this user or another. What came of the grader, then of each submission.

    The honest ones have the solution's points, and these are not 0: a grader that gives nobody a point would stand
    against all attacks.
    """
    if sys.platform == "linux":  # orphans become children of this process, so none can hide
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before, began, problems = _children(), time.monotonic(), []
    rows: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as place:
        os.chmod(folder, 0o755)
        for name, data in {**attacks, **honest}.items():
            path = Path(folder, os.fsdecode(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        if user is not None:
            os.chown(place, user, user)
        command = [sys.executable, *"-m minisitch.course grade".split(), assignment.name, folder]
        command += ["--secret", "of hostile alone", "--csv", "table.csv", "--jobs", "2"]
        command += ["--assignments", str(assignment.folder)]
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "LANG")}
        try:
            process = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=place,
                env=kept | {"TMPDIR": place}, user=user, group=user,
                extra_groups=[] if user is not None else None, timeout=LIMIT_SECONDS,
            )
            if process.returncode:
                problems.append(f"the grader ended with {process.returncode}: {process.stdout.strip()[-300:]}")
            rows = {row["student"]: row for row in read_table(Path(place, "table.csv"))}
        except subprocess.TimeoutExpired:
            problems.append(f"the grader ran longer than {LIMIT_SECONDS:g} s")
        except OSError as problem:
            problems.append(f"there is no table: {problem}")
        problems += [f"there was left the process {each}" for each in _orphans(before)]
        problems += [f"there was left the file {each}" for each in _files_left(Path(place))]
    yield TrialResult(f"the class of {assignment.name}", "; ".join(problems), time.monotonic() - began)
    for name in [*attacks, *honest]:
        top = Path(os.fsdecode(name).partition("/")[0])
        row = rows.get(printable(top.name if b"/" in name else top.stem), {"score": "none", "problem": "it has no row"})
        most = "0.00" if name in attacks else rows.get("solution", row)["score"]
        fine = row["score"] == most != ("none" if name in attacks else "0.00")
        yield TrialResult(printable(top.name), "" if fine else f"it scored {row['score']}, not {most}: {row['problem']}", 0.0)


def _children() -> set[int]:
    """The processes that are children of this one now."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(map(int, listed.read_text().split())) if listed.exists() else set()


def _orphans(before: set[int]) -> list[int]:
    """Processes that attacks left: children that were not there ``before``. They are ended."""
    found = []
    for number in sorted(_children() - before):
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            if os.waitpid(number, os.WNOHANG)[0]:
                continue  # it had ended: the steppers of the grader's processes end with them
            os.kill(number, 9)
            os.waitpid(number, 0)
            found.append(number)
    return found


def _files_left(place: Path) -> list[str]:
    """Files that an attack wrote, where anyone may write, and in the grader's own folder."""
    found = [path for folder in ("/tmp", "/dev/shm", "/var/tmp", ".") for path in Path(folder).glob(f"{MARK}*")]
    return [str(path) for path in (*found, *place.iterdir()) if path.name != "table.csv"]
