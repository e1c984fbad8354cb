"""The commands of the course: ``python -m minisitch.course COMMAND``.

    for students      list, starter, check, show, hint, questions
    for instructors   grade, statistics, export, copies, release, verify, cage

``check`` exits with 0 only if all visible items pass. ``grade`` exits with 0 if it could grade.
"""

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import MinisitchError
from ..errors.nearest import refuse_unknown_command
from . import classroom, hostile
from .assignment import Assignment, CourseError, find_assignment, find_assignments, in_variant, read_submission
from .cage import Cage
from .items import PUBLIC
from .release import copy_starter, release
from .report import TOOL, Mark, after_passing, blank_marks, detail, line, marks, summary, write_results
from .show import drawable, explored, picture
from .sitting import Sitting
from .verify import verify


def main(words: list[str] | None = None) -> int:
    """Run one command. Errors of the course and of minisitch become one line and exit status 2."""
    parser, commands = _parser()
    refuse_unknown_command(parser, sys.argv[1:] if words is None else words, commands)
    options = parser.parse_args(words)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # a file may have any name
    try:
        return int(options.run(options, *(_chosen(options) if "assignment" in options else ())) or 0)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the program that read our lines has ended: `... | head`
        return 1
    except (MinisitchError, OSError) as problem:
        print(f"course: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> tuple[argparse.ArgumentParser, Iterable[str]]:
    """The parser, and its commands."""
    parser = argparse.ArgumentParser(
        prog=TOOL,
        description="Assignments on operator fusion, and their grader.",
    )
    parser.set_defaults(assignments=None, variant="")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(run: Any, text: str, one: bool = True) -> argparse.ArgumentParser:
        made = commands.add_parser(run.__name__.strip("_"), help=text, description=text)
        made.set_defaults(run=run)
        places = "the folder of an assignment, or of all of them"
        made.add_argument("--assignments", type=Path, help=places)
        chosen = "this term's variant; the first one, if not given"
        made.add_argument("--variant", default="", help=chosen)
        if one:
            made.add_argument("assignment", help="for example A5")
        return made

    _commands_for_students(command)
    _commands_for_instructors(command)
    return parser, commands.choices


def _commands_for_students(command: Callable[..., argparse.ArgumentParser]) -> None:
    command(_list, "list the assignments", one=False)
    starter = command(_starter, "write the file to fill in, and the handout")
    starter.add_argument("folder", type=Path, nargs="?", default=Path("."), help="where to write them (default: here)")
    check = command(_check, "run the visible items on your file")
    mine = "your file, if it is not in this folder"
    check.add_argument("file", type=Path, nargs="?", help=mine)
    check.add_argument("--item", default="", help="only this item")
    show = command(_show, "draw the smallest case that an item fails on")
    show.add_argument("item")
    show.add_argument("file", type=Path, nargs="?", help=mine)
    show.add_argument("--to", type=Path, help="the picture's file; else it is named after the item")
    hint = command(_hint, "say what each hint gives away, or print one")
    hint.add_argument("number", type=int, nargs="?", default=0)
    ask = command(_questions, "print your three predictions")
    ask.add_argument("--student", required=True, help="the address that you hand in with")
    ask.add_argument("--secret-file", type=Path, help="for instructors: the key that grades them")


def _commands_for_instructors(command: Callable[..., argparse.ArgumentParser]) -> None:
    grade = command(_grade, "run all items on a submission, in a cage")
    grade.add_argument("file", type=Path, help="the file, or the folder that holds it")
    grade.add_argument("--secret", default="", help="the key of the hidden items")
    grade.add_argument("--secret-file", type=Path, help="a file that holds it")
    grade.add_argument("--student", default="", help="the address of the student, for the predictions")
    grade.add_argument("--metadata", type=Path, help="Gradescope's submission_metadata.json, which names the student")
    grade.add_argument("--gradescope", type=Path, help="write results.json")
    grade.add_argument("--csv", type=Path, help="grade a folder of submissions, and write a table")
    grade.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="with --csv")
    roster = "CSV with the columns id, address, file, and late_days if wanted"
    grade.add_argument("--roster", type=Path, help=f"with --csv: {roster}")
    grade.add_argument("--due", type=datetime.fromisoformat, help="with --csv: for example 2026-10-01T23:59")
    grade.add_argument("--late-cost", type=float, default=0, help="percent of the points, for a day after --due")
    grade.add_argument("--feedback", type=Path, help="with --csv: a folder for a page a student")
    grade.add_argument("--resume", action="store_true", help="with --csv: keep the table's rows of unchanged submissions")
    grade.add_argument("--before", type=Path, help="with --csv: an older table; say what has changed")
    grade.add_argument("--trust", action="store_true", help="grade without Landlock; the submission may then read files")
    command(_statistics, "say what a class got wrong").add_argument("table", type=Path, help="that grade --csv wrote")
    export_all = command(_export, "write the points for Canvas or Moodle")
    export_all.add_argument("table", type=Path, help="that grade --csv wrote")
    export_all.add_argument("--canvas", type=Path)
    export_all.add_argument("--moodle", type=Path)
    copy = command(_copies, "write the folders that MOSS and JPlag compare")
    copy.add_argument("file", type=Path, help="the folder of submissions")
    copy.add_argument("--roster", type=Path, help=roster)
    copy.add_argument("--to", type=Path, required=True)
    out = command(_release, "write the student's folder and autograder.zip")
    out.add_argument("--secret", default="", help="the key of the hidden items and of the questions")
    out.add_argument("--secret-file", type=Path, help="a file that holds it")
    out.add_argument("--roster", type=Path, help=f"{roster}: the students who get questions")
    out.add_argument("--to", type=Path, required=True)
    check_all = command(_verify, "grade the grader: right, empty and wrong submissions", one=False)
    check_all.add_argument("names", nargs="*", metavar="assignment")
    check_all.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    check_all.add_argument("--hostile", action="store_true", help="attack the cage instead")
    command(_cage, "say what this machine keeps a submission from", one=False)


def _chosen(options: argparse.Namespace) -> tuple[Assignment, str]:
    """The assignment and the variant that the words name. A student's file that lies in a release has that one."""
    where = options.assignments
    if where is None and options.run in (_check, _show) and options.file:
        beside = options.file if options.file.is_dir() else options.file.parent
        where = beside if (beside / "assignment.toml").is_file() else None
    assignment = find_assignment(options.assignment, where)
    variant = options.variant or assignment.variant
    if variant not in assignment.variants:
        raise CourseError(
            f"{assignment.name} has no variant {variant!r}; it has {', '.join(assignment.variants)}"
        )
    return assignment, variant


# ---------------------------------------------------------------- for students
def _list(options: argparse.Namespace) -> None:
    for each in find_assignments(options.assignments).values():
        lines = f", about {each.lines} lines" if (each.folder / "solution.py").exists() else ""
        of = f"{each.name:<4} {each.title:<28} {each.points:g} points, {each.minutes} minutes{lines}: {each.file}"
        print(f"{of}, variants {', '.join(each.variants)}")


def _starter(options: argparse.Namespace, assignment: Assignment, variant: str) -> None:
    here = options.folder / assignment.file
    if here.exists() and options.folder.resolve() == assignment.folder.resolve():
        print(f"{here} is here already; read handout.md, then try\n  {TOOL} check {assignment.name} {here}")
        return
    file, handout = copy_starter(assignment, variant, options.folder)
    print(f"wrote {file} and {handout}, variant {variant}; read the handout, then try\n  {TOOL} check {assignment.name} {file}")


def _mine(options: argparse.Namespace, assignment: Assignment, variant: str) -> tuple[Path, str]:
    """The student's file and its text. Raises CourseError if there is no such file, or no such item."""
    names = [each.name for each in assignment.items]
    if options.item and options.item not in names:
        raise CourseError(f"{assignment.name} has no item {options.item!r}; it has {', '.join(names)}")
    file = options.file or Path(assignment.file)
    return file, in_variant(read_submission(file, assignment), variant)  # a solution of ours has all variants


def _check(options: argparse.Namespace, assignment: Assignment, variant: str) -> int:
    item, (file, text) = options.item, _mine(options, assignment, variant)
    print(f"{assignment.name} {assignment.title}, variant {variant}: {file}")
    outcomes = []
    with Sitting(assignment, text, variant, trusted=True) as sitting:
        for outcome in sitting.run([item] if item else ()):
            print(line(outcome), flush=True)
            outcomes.append(outcome)
        printed = sitting.output().strip()
        more = [] if item or not all(each.passed for each in outcomes) else list(after_passing(sitting))
    failed = [each for each in outcomes if not each.passed]
    if failed:
        first = next((each for each in failed if each.status == "FAIL"), failed[0])
        print("\n" + detail(first, assignment.name, file, drawable(first)))
    if printed:
        print("\nyour program printed, at the end:", *printed.splitlines()[-10:], sep="\n  ")
    print("\n" + summary(outcomes, "1 asked" if item else f"{sum(i.has(False) for i in assignment.items)} visible items"))
    for said in more:
        print(f"\n{said}")
    return 1 if failed else 0


def _hint(options: argparse.Namespace, assignment: Assignment, _: str) -> None:
    if not options.number:
        for number, hint in enumerate(assignment.hints, 1):
            print(f"hint {number} gives away: {hint.gives_away}")
        print(f"the first: {TOOL} hint {assignment.name} 1")
    elif not 1 <= options.number <= len(assignment.hints):
        raise CourseError(f"{assignment.name} has hints 1 to {len(assignment.hints)}; take one of them")
    else:
        print(assignment.hints[options.number - 1].text)


def _questions(options: argparse.Namespace, assignment: Assignment, variant: str) -> None:
    key = _secret(options) if options.secret_file else PUBLIC
    for number, text in enumerate(assignment.questions(options.student, variant, key), 1):
        print(f"{number}. {text}\n")
    print(f"Write your answers into PREDICTIONS in {assignment.file}.")


# ---------------------------------------------------------------- for instructors
def _grade(options: argparse.Namespace, assignment: Assignment, variant: str) -> None:
    secret = _secret(options)
    one = functools.partial(_graded, assignment.folder, variant, secret, options.trust)
    if options.csv:
        return _grade_all(one, assignment, options)
    student = options.student or _student(options.metadata)
    found, problem = one(options.file, student, options.gradescope)
    for mark in found:
        print(f"  {mark.score:5.2f} of {mark.max_score:5.2f}  {mark.name}")
    score, most = sum(mark.score for mark in found), sum(mark.max_score for mark in found)
    print(f"{score:.2f} of {most:.2f} points; {assignment.points - most:.2f} more are for the paragraph")
    if problem:
        raise CourseError(problem)


def _secret(options: argparse.Namespace) -> str:
    secret = getattr(options, "secret", "") or (
        options.secret_file.read_text(encoding="utf-8").strip() if options.secret_file else ""
    )
    if not secret or secret == PUBLIC:
        raise CourseError("hidden items need a key: give --secret or --secret-file, the same for every student of a term")
    return secret


def _graded(
    folder: Path, variant: str, secret: str, trust: bool, file: Path, student: str, results: Path | None = None
) -> tuple[list[Mark], str]:
    """The marks of one submission, and why it could not be graded. ``results`` is a file for them, or None."""
    began, assignment = time.monotonic(), Assignment(folder)

    def keep(now: list[Mark]) -> list[Mark]:
        if results:
            write_results(results, now, time.monotonic() - began)
        return now

    found = keep(blank_marks(assignment))  # zeros, in case that nothing else is ever written
    try:
        text = in_variant(read_submission(file, assignment), variant)
        with Sitting(assignment, text, variant, secret, trust) as sitting:
            for found in marks(sitting, student):
                keep(found)
        return found, "; ".join(sitting.broken)
    except MinisitchError as problem:
        return keep(blank_marks(assignment, f"not graded: {problem}")), str(problem)
    except Exception as problem:  # no submission ends the grading of the others
        said = f"not graded, and the grader is to blame: {problem!r:.300}"
        return keep(blank_marks(assignment, said)), said


def _grade_all(one: Callable[..., tuple[list[Mark], str]], assignment: Assignment, options: argparse.Namespace) -> None:
    """Grade a folder of submissions, and write a table and pages."""
    before = classroom.read_table(options.before) if options.before else []
    kept = classroom.read_table(options.csv) if options.resume and options.csv.exists() else []
    if options.feedback:
        options.feedback.mkdir(parents=True, exist_ok=True)
    rules = options.due, options.late_cost, options.feedback
    work = functools.partial(classroom.best_of, one, assignment, *rules)
    dead = functools.partial(classroom.best_of, functools.partial(_died, assignment), assignment, *rules)
    rows = []
    for row in classroom.grade_class(work, dead, _submissions(options), options.csv, options.jobs, kept):
        print(f"  {row['score']:>6}  {row['student']}  {row['problem']}", flush=True)
        rows.append(row)
    if options.before:
        print("changed:", *classroom.differences(before, rows), sep="\n  ")


def _died(assignment: Assignment, *_: Any) -> tuple[list[Mark], str]:
    said = "not graded, and the grader is to blame: its process ended"
    return blank_marks(assignment, said), said


def _submissions(options: argparse.Namespace) -> dict[classroom.Student, list[Path]]:
    found = classroom.found_in(options.file, classroom.read_roster(options.roster) if options.roster else None)
    theirs = {path for paths in found.values() for path in paths}
    for path in sorted(path for path in options.file.iterdir() if path not in theirs and not path.name.startswith(".")):
        print(f"{path} belongs to nobody in {options.roster}")
    return found


def _statistics(options: argparse.Namespace, assignment: Assignment, _: str) -> None:
    for said in classroom.statistics(assignment, classroom.read_table(options.table)):
        print(said)


def _export(options: argparse.Namespace, assignment: Assignment, _: str) -> None:
    for path in filter(None, (options.canvas, options.moodle)):
        classroom.export(assignment, classroom.read_table(options.table), path, path is options.canvas)
        print(f"wrote {path}")


def _copies(options: argparse.Namespace, assignment: Assignment, _: str) -> None:
    print(f"wrote {classroom.copies(assignment, _submissions(options), options.to)} submissions and the starter into {options.to}")


def _show(options: argparse.Namespace, assignment: Assignment, variant: str) -> int:
    file, text = _mine(options, assignment, variant)
    with Sitting(assignment, text, variant, trusted=True) as sitting:
        found = next(sitting.run([options.item]), None)
    if found is None or found.passed:
        print(f"nothing to show: {options.item} " + ("passes" if found else "has no visible case"))
        return int(found is None)
    print(detail(found, assignment.name, file))
    drawn = picture(found, text, assignment)
    if drawn is None:
        print("There is no picture of such a case.")
        return 1
    out = options.to or Path(f"{assignment.name}-{options.item.replace(' ', '-')}.svg")
    out.write_text(str(drawn), encoding="utf-8")
    print(f"wrote {out}: open it in a browser")
    if shown := explored(assignment, found, text):
        out.with_suffix(".html").write_text(shown.page(saved=True), encoding="utf-8")
        print(f"wrote {out.with_suffix('.html')}: the same launch as a film; to edit it: python -m minisitch explore {file}")
    return 1


def _student(metadata: Path | None) -> str:
    """The student's address, from Gradescope's file."""
    try:
        return str(json.loads(metadata.read_text(encoding="utf-8"))["users"][0]["email"]) if metadata else ""
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _release(options: argparse.Namespace, assignment: Assignment, variant: str) -> None:
    roster = [each.address for each in classroom.read_roster(options.roster)] if options.roster else []
    for path in release(assignment, variant, _secret(options), options.to, roster):
        print(f"wrote {path}")


def _verify(options: argparse.Namespace) -> int:
    known = find_assignments(options.assignments)
    chosen = [find_assignment(name, options.assignments) for name in options.names] or list(known.values())
    began = time.monotonic()
    problems = (hostile.verify(known, print) if options.hostile else verify(chosen, options.jobs, print))
    print(f"{problems} problems in {time.monotonic() - began:.0f} s")
    return 1 if problems else 0


def _cage(_: argparse.Namespace) -> int:
    with Cage("", "empty.py", trusted=True) as cage:
        found = cage.protections
    print(
        f"Landlock {found['landlock'] or 'is missing'}, seccomp {'on' if found['seccomp'] else 'is missing'}, "
        f"{'root becomes nobody' if hasattr(os, 'geteuid') and os.geteuid() == 0 else 'not root'}"
    )
    if not found["landlock"]:
        print("grade refuses here without --trust; check works")
    return 0 if found["landlock"] else 1


if __name__ == "__main__":
    sys.exit(main())
