"""A class: the submissions of a folder are graded, and their marks leave as plain files.

In:  a folder of submissions; a roster, which is a CSV file with the columns ``id`` (of the LMS), ``address`` and
``file`` (how the names of the student's submissions begin), and, if wanted, ``late_days`` (how many of them are free).
Out: a table with a row a student, one page a student, and tables that Canvas and Moodle import.

The table is written row by row. So a run that was interrupted goes on where it stopped, and two tables can be compared.
"""

import csv
import hashlib
import itertools
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

from ..fuse import count
from .assignment import Assignment, CourseError, Misconception, read_submission
from .report import Mark, blank_marks
from .sitting import Sitting

FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute
DAY = 86_400.0
NOTHING = "nothing was handed in"
FACTS = ("student", "address", "submission", "late", "score")  # a row's first columns
LOOKS_LIKE = 0.5  # the least share of failed items that a submission has in common with a misconception


@dataclass(frozen=True)
class Student:
    """One row of a roster. ``late_days`` of lateness cost nothing."""

    id: str
    address: str
    file: str
    late_days: int = 0


TableRow = dict[str, str]
Grader = Callable[[Path, str], tuple[list[Mark], str]]  # a submission and an address: the marks, and a problem
Worker = Callable[[Student, list[Path]], TableRow]


def read_roster(path: Path) -> list[Student]:
    """The students of a roster. Raises CourseError for a missing column, or an id that stands there twice."""
    try:
        found = [Student(row["id"], row["address"], row["file"], int(row.get("late_days") or 0)) for row in read_table(path)]
    except (KeyError, ValueError) as problem:
        raise CourseError(f"{path}: {problem}; it has the columns id, address, file, and late_days if wanted") from None
    for what in ("id", "file"):
        for known, times in Counter(getattr(each, what) for each in found).items():
            if times > 1:
                raise CourseError(f"{path}: {times} students have the {what} {known!r}")
    return found


def found_in(folder: Path, roster: Sequence[Student] | None) -> dict[Student, list[Path]]:
    """Each student's submissions. Without a roster, each file or folder is named after its student.

    With one, a name belongs to the longest ``file`` that it begins with, if no letter or digit follows: ``ada``,
    ``ada.py``, ``ada-2.zip`` and ``ada_LATE_1234_spans.py`` are all of ``ada``.
    """
    found: dict[Student, list[Path]] = {each: [] for each in roster or ()}
    for path in sorted(path for path in folder.iterdir() if not path.name.startswith(".")):
        name = printable(path.name if path.is_dir() else path.stem)
        fits = [Student(name, name, name)]
        if roster is not None:
            fits = [each for each in roster if path.name.startswith(each.file) and not path.name[len(each.file):][:1].isalnum()]
        for each in sorted(fits, key=lambda each: len(each.file))[-1:]:
            found.setdefault(each, []).append(path)
    return found


def printable(name: str) -> str:
    """A file's name as text that can be written: what is no UTF-8 is spelled out."""
    return name.encode("utf-8", "backslashreplace").decode()


# ---------------------------------------------------------------- grading
def best_of(
    grader: Grader, assignment: Assignment, due: datetime | None, late_cost: float, pages: Path | None,
    student: Student, paths: Sequence[Path],
) -> TableRow:
    """Grade all submissions of a student. Returns the row of the best, after what lateness costs, and writes its page.

    A day after ``due`` costs ``late_cost`` percent. When a submission came is the time of its file.
    """
    rows: list[tuple[float, int, Path, list[Mark], str]] = []
    for path in paths:
        files = [each for each in path.rglob("*") if each.is_file()] or [path]  # a folder's own time is when it was unpacked
        late = max(each.lstat().st_mtime for each in files) - due.timestamp() if due else 0
        days = max(0, math.ceil(late / DAY))
        marks, problem = grader(path, student.address)
        share = max(0.0, 1 - late_cost / 100 * max(0, days - student.late_days))
        rows.append((share * sum(mark.score for mark in marks), days, path, marks, problem))
    if not rows:
        rows = [(0.0, 0, Path(), blank_marks(assignment, NOTHING), NOTHING)]
    score, days, path, marks, problem = max(rows, key=lambda row: row[0])
    facts = (student.id, student.address, printable(path.name), str(days), f"{score:.2f}")
    scores = {mark.name: f"{mark.score:g}" for mark in marks}
    if pages:
        text = page(assignment, student, marks, score, days)
        (pages / f"{quote(student.id, safe='')}.html").write_text(text, encoding="utf-8")
    return {**dict(zip(FACTS, facts, strict=True)), **scores, "problem": printable(problem), "digest": digest(paths)}


def grade_class(
    work: Worker, dead: Worker, submissions: dict[Student, list[Path]], table: Path, jobs: int, before: Sequence[TableRow],
) -> Iterator[TableRow]:
    """Grade every student, whatever the submissions do, and write the table. The rows as they come.

    Rows of ``before`` whose submissions have not changed are taken over. ``dead`` makes the row of a student whose
    submission ends the grader's process.
    """
    known = {row["student"]: row for row in before}
    old = [known[each.id] for each, paths in submissions.items() if known.get(each.id, {}).get("digest") == digest(paths)]
    kept = {row["student"] for row in old}
    left = {each: paths for each, paths in submissions.items() if each.id not in kept}
    with table.open("w", newline="", encoding="utf-8") as file:
        for row in itertools.chain(old, _each(work, dead, left, jobs)):
            if not file.tell():
                write_row(file, row)
            write_row(file, row.values())
            yield row


def _each(work: Worker, dead: Worker, left: dict[Student, list[Path]], jobs: int) -> Iterator[TableRow]:
    """The rows, one after the other. A process that dies ends those beside it, too, so these are tried again, each alone."""
    again = []
    with ProcessPoolExecutor(jobs) as pool:
        futures = {pool.submit(work, *each): each for each in left.items()}
        for future, each in futures.items():
            try:
                yield future.result()
            except BrokenProcessPool:
                again.append(each)
    for student, paths in again:
        with ProcessPoolExecutor(1) as pool:
            try:
                yield pool.submit(work, student, paths).result()
            except BrokenProcessPool:
                yield dead(student, paths)


def digest(paths: Iterable[Path]) -> str:
    """What tells one set of submissions from another: names, sizes and times of all files."""
    files = [each for path in paths for each in sorted([path, *path.rglob("*")])]
    facts = [(os.fsencode(each), each.lstat().st_size, each.lstat().st_mtime_ns) for each in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


# ---------------------------------------------------------------- tables and pages
def read_table(path: Path) -> list[TableRow]:
    """The rows of a CSV file by their column's name. A row that was written in part is left out."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    return [{name: cell.removeprefix("'") for name, cell in zip(rows[0], row, strict=True)}
            for row in rows[1:] if len(row) == len(rows[0])]


def write_row(file: TextIO, cells: Iterable[str]) -> None:
    """One row of a CSV file. A cell that a spreadsheet would take for a formula begins with an apostrophe."""
    csv.writer(file).writerow([f"'{cell}" if cell.startswith(FORMULAS) else cell for cell in cells])
    file.flush()  # an interrupted run has all rows that were graded


def page(assignment: Assignment, student: Student, marks: Sequence[Mark], score: float, days: int) -> str:
    """What a student sees of a grading, as HTML."""
    late = f", {count(days, 'day')} late" * bool(days)
    cells = [(mark.name, f"{mark.score:g} of {mark.max_score:g}", printable(mark.output)) for mark in marks]
    rows = "".join(f"<tr><td>{escape(name)}<td>{points}<td><pre>{escape(said)}</pre>" for name, points, said in cells)
    head = f"{assignment.name} {assignment.title}: {score:.2f} of {assignment.points:g} points{late}"
    return (
        f"<!doctype html><meta charset=utf-8><title>{escape(head)}</title><h1>{escape(head)}</h1>"
        f"<p>{escape(student.address)}</p><table>{rows}</table>\n"
    )


def export(assignment: Assignment, rows: Sequence[TableRow], path: Path, canvas: bool) -> None:
    """The points as a table that Canvas imports by its own ids, or Moodle by the ID number or the address."""
    title = f"{assignment.name} {assignment.title}"
    lines = [["ID number", "Email address", title], *([row["student"], row["address"], row["score"]] for row in rows)]
    if canvas:
        lines = [["Student", "ID", "SIS User ID", "SIS Login ID", "Section", title]]
        lines += [["    Points Possible", *[""] * 4, f"{assignment.points:g}"]]
        lines += [[row["address"], row["student"], "", row["address"], "", row["score"]] for row in rows]
    with path.open("w", newline="", encoding="utf-8") as file:
        for line in lines:
            write_row(file, line)


def differences(before: Sequence[TableRow], after: Sequence[TableRow]) -> Iterator[str]:
    """A line for each student whose score or items have changed."""
    old = {row["student"]: row for row in before}
    for row in after:
        was = old.get(row["student"])
        if was is None:
            yield f"{row['student']}: new, {row['score']}"
        elif changed := [name for name in row if name not in (*FACTS, "problem", "digest") and was.get(name) != row[name]]:
            yield f"{row['student']}: {was['score']} -> {row['score']}: " + ", ".join(
                f"{name} {was.get(name)} -> {row[name]}" for name in changed)


# ---------------------------------------------------------------- what a class got wrong
def statistics(assignment: Assignment, rows: Sequence[TableRow]) -> Iterator[str]:
    """For each item how many passed it, then which misconceptions the wrong submissions look like."""
    handed_in = [row for row in rows if row["problem"] != NOTHING]
    for mark in blank_marks(assignment):
        passed = sum(float(row[mark.name]) > 0 for row in handed_in)
        yield f"  {passed:4} of {len(handed_in)}  {mark.name}"
    like: dict[str, list[str]] = {}
    known = {wrong: failed_by(assignment, wrong) for wrong in assignment.misconceptions()}
    visible = [item.name for item in assignment.items if item.has(False)]
    for row in handed_in:
        failed = {name for name in visible if not float(row[name])}
        if failed:
            like.setdefault(looks_like(failed, known), []).append(row["student"])
    for name, students in sorted(like.items(), key=lambda each: -len(each[1])):
        yield f"  {len(students):4} like {name}: {', '.join(students[:5])}{' ...' * (len(students) > 5)}"


def failed_by(assignment: Assignment, wrong: Misconception) -> set[str]:
    """The visible items that refuse a misconception."""
    with Sitting(assignment, wrong.text, trusted=True, shrink=False) as sitting:
        return {each.item.name for each in sitting.run() if not each.passed}


def looks_like(failed: set[str], known: dict[Misconception, set[str]]) -> str:
    """The misconceptions whose failed items have most in common with these."""
    near = {wrong: len(failed & its) / len(failed | its) for wrong, its in known.items()}
    best = max(near.values(), default=0.0)
    found = [f"{wrong.name} ({wrong.what})" for wrong, share in near.items() if share == best >= LOOKS_LIKE]
    return " or ".join(found[:3]) or "nothing that is known: " + ", ".join(sorted(failed))


def copies(assignment: Assignment, submissions: dict[Student, list[Path]], to: Path) -> int:
    """A folder for MOSS and JPlag: a folder a student, with the newest submission that can be read. Returns their number."""
    texts = {"starter": assignment.starter(assignment.variant)}
    for student, paths in submissions.items():
        for path in sorted(paths, key=lambda each: each.lstat().st_mtime):
            with suppress(CourseError):
                texts[f"submissions/{quote(student.id, safe='')}"] = read_submission(path, assignment)
    for folder, text in texts.items():
        (to / folder).mkdir(parents=True, exist_ok=True)
        (to / folder / assignment.file).write_text(text, encoding="utf-8")
    return len(texts) - 1
