"""What a student reads after ``check``, and what Gradescope reads after ``grade``.

A visible item is reported with its smallest failing case. A hidden item is reported with its rule and
the kind of failure alone, so that a submission cannot send itself the hidden cases in its errors.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import MinisitchError
from .assignment import Assignment, own_files
from .items import PREDICTED_SHARE, VISIBLE_SHARE, WRITTEN_SHARE
from .sitting import DOUBT, Outcome, Sitting, cut, title

MOST_SHOWN = 700  # characters of a case or a value
TOOL = "python -m minisitch.course"
LATER = "after_published"  # when students see hidden items


def line(outcome: Outcome) -> str:
    """One line: the status, the item, its rule."""
    return f"  {outcome.status:<9}  {outcome.name:<13}  {outcome.item.rule}"


def detail(outcome: Outcome, assignment: str, file: Path, drawable: bool = False) -> str:
    """The first failure: its rule, what is wrong, the smallest input, the value, the next step, the commands for it."""
    rows = [("what is wrong", cut(outcome.why, MOST_SHOWN))]
    if outcome.kind in ("broken", "error", "time", "refused"):
        rows.append(("smallest input", cut(str(outcome.case), MOST_SHOWN)))
    if outcome.kind == "broken" and outcome.value is not None:
        rows.append(("your value", cut(repr(outcome.value), MOST_SHOWN)))
    rows.append(("next step", _next_step(outcome)))
    if drawable:
        rows.append(("see it drawn", f"{TOOL} show {assignment} '{outcome.name}' {file}"))
    if outcome.kind != "course":
        rows.append(("check again", f"{TOOL} check {assignment} {file} --item '{outcome.name}'"))
    return "\n".join([f"{outcome.name}: {outcome.item.rule}", *(f"  {name:<14}  {text}" for name, text in rows)])


def _next_step(outcome: Outcome) -> str:
    if outcome.kind == "error":
        known = " in line " in outcome.why
        return "look at that line with this input" if known else "compare your names and parameters with the starter's"
    if outcome.kind in ("broken", "refused"):
        quoted = outcome.why.count("\n  line ")  # by the stepper
        return ("follow this input by hand", "mend that line", "read those lines from the top, with this input")[min(quoted, 2)]
    return {
        "not tried": "change this function: it is still as the starter has it",
        "file": "mend that line; a submission may import Python's library and NumPy, and opens no file",
        "time": "look for a loop that does not end on this input",
        "needs": "mend that item first",
        "course": "tell your instructor",
    }.get(outcome.kind, "look for what ends the process")


def summary(outcomes: Sequence[Outcome], of: str) -> str:
    """The last line of ``check``. ``of``: how many were asked for, in words."""
    hidden = round(100 * (1 - VISIBLE_SHARE))
    return f"{sum(each.passed for each in outcomes)} of {of}; hidden items exist and count {hidden}%"


def after_passing(sitting: Sitting) -> Iterator[str]:
    """What a student reads who has passed: what is left to do, what the compiler does, and what comes next."""
    assignment, given = sitting.assignment, sitting.predicted()
    asked = assignment.predictions
    empty = [n for n in range(1, len(asked) + 1) if given[n - 1 : n] in ([], [None])]
    if empty:
        worth = f"{assignment.points * PREDICTED_SHARE * len(empty) / len(asked):g} of {assignment.points:g} points"
        yield f"PREDICTIONS {', '.join(map(str, empty))} of {len(asked)} are empty, and worth {worth}"
    if (assignment.folder / "reward.py").exists():
        with own_files(assignment.folder, f"reward.py of {assignment.name}"):
            try:
                yield assignment.run("reward.py").reward(sitting.ask, sitting.variant)
            except MinisitchError as problem:  # the compiler asks more than the items do
                yield f"All visible items pass, and the compiler still says: {problem}"
    if assignment.next:
        yield f"next: {assignment.next}"


# ---------------------------------------------------------------- Gradescope
@dataclass(frozen=True)
class Mark:
    """One line of a result: what it is worth, and what it got. The names are Gradescope's."""

    name: str
    number: str
    max_score: float
    score: float
    output: str
    visibility: str

    def record(self) -> dict[str, Any]:
        """As Gradescope's ``tests`` has it."""
        status = "passed" if self.score == self.max_score else "failed"
        return {**vars(self), "status": status, "output_format": "text"}


def blank_marks(assignment: Assignment, output: str = "not run") -> list[Mark]:
    """Every line of a result, with no points: what stands there before anything runs."""
    marks = []
    graded = assignment.points * (1 - PREDICTED_SHARE - WRITTEN_SHARE)
    for hidden, share in ((False, VISIBLE_SHARE), (True, 1 - VISIBLE_SHARE)):
        items = [item for item in assignment.items if item.has(hidden)]
        for at, item in enumerate(items, 1):
            most = round(graded * share * item.weight / sum(each.weight for each in items), 4)
            seen = LATER if hidden else "visible"
            marks.append(Mark(title(item, hidden), f"{1 + hidden}.{at}", most, 0.0, output, seen))
    for at, each in enumerate(assignment.predictions, 1):
        most = round(assignment.points * PREDICTED_SHARE / len(assignment.predictions), 4)
        name = f"prediction {at}: {each.name.replace('_', ' ')}"
        marks.append(Mark(name, f"3.{at}", most, 0.0, output, LATER))
    return marks


def marks(sitting: Sitting, student: str) -> Iterator[list[Mark]]:
    """The marks after each item, then after the predictions: each list has every line."""
    found = blank_marks(sitting.assignment)
    places = {mark.name: at for at, mark in enumerate(found)}
    yield found
    for outcome in sitting.run():
        blank = found[places[outcome.name]]
        score = blank.max_score if outcome.passed else 0.0
        found[places[outcome.name]] = replace(blank, score=score, output=_told(outcome))
        yield found
    predicted = sitting.predicted() if student else []
    for at, truth in enumerate(sitting.answers(student)):
        place = len(found) - len(sitting.assignment.predictions) + at
        blank = found[place]
        said = predicted[at] if len(predicted) > at else None
        right = type(said) is type(truth) and said == truth
        told = "right" if right else "not answered" if said is None else "wrong"
        if not student:
            told = "no student is known, so there was no question"
        found[place] = replace(blank, score=blank.max_score if right else 0.0, output=told)
    yield found


def _told(outcome: Outcome) -> str:
    if outcome.passed:
        return outcome.item.rule
    if outcome.hidden:
        return f"{outcome.item.rule} {DOUBT.get(outcome.kind, 'It does not hold').capitalize()}. This case is hidden."
    case = "" if outcome.case is None else cut(str(outcome.case), MOST_SHOWN) + "\n"
    return f"{outcome.item.rule}\n{case}{cut(outcome.why, MOST_SHOWN)}"


def results(found: Sequence[Mark], seconds: float) -> dict[str, Any]:
    """The whole of Gradescope's ``results.json``."""
    return {
        "score": round(sum(mark.score for mark in found), 4), "execution_time": round(seconds, 2),
        "visibility": "visible", "stdout_visibility": "hidden",
        "tests": [mark.record() for mark in found],
    }


def write_results(path: Path, found: Sequence[Mark], seconds: float) -> None:
    """Write the file whole or not at all: a reader never sees a part of it."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(results(found, seconds), indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)
