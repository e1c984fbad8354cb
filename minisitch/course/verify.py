"""The grader is graded: every assignment is tried with what is right, what is empty, and what is wrong.

For each assignment, in each of its variants: the solution and the alternative pass every item, visible
and hidden. The starter is "not tried" at every item. Each misconception is refused by the items that
its header names. A count refuses each kernel that is right and shares no work. A trivial answer has no points. Each
function and method of a release, handed in as each function that is asked for, has none. A release
holds no line of the solution.
"""

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .assignment import Assignment, CourseError
from .items import PUBLIC
from .release import leaked_lines
from .sitting import Outcome, Sitting
from .unearned import WAYS, taken, trivial

SECRET = "of verify alone"
COUNTED = (" are the most", "; x has ")  # in the sentence of an item that counts
HINTS = PREDICTIONS = 3


@dataclass(frozen=True)
class Trial:
    """One submission of the assignment's own, and what must come of it."""

    folder: Path
    kind: str  # "solution.py", "alternative.py", "starter", "wrong", "serial" or "free"
    name: str
    variant: str
    text: str
    refused_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrialResult:
    """What came of a trial or an attack: a problem, or nothing."""

    name: str
    problem: str
    seconds: float


def trials(assignment: Assignment) -> Iterator[Trial]:
    """Every submission that an assignment brings along."""
    folder = assignment.folder
    for variant in assignment.variants:
        for name in ("solution.py", "alternative.py"):
            text = assignment.text(name, variant)
            yield Trial(folder, name, f"{name} in variant {variant}", variant, text)
        text = assignment.starter(variant)
        yield Trial(folder, "starter", f"starter in variant {variant}", variant, text)
        for way in WAYS:
            yield Trial(folder, "free", f"{way} in variant {variant}", variant, trivial(assignment, way, variant))
    for name, text in taken(assignment):
        yield Trial(folder, "free", f"taken: {name}", assignment.variant, text)
    for kind in ("wrong", "serial"):
        for wrong in assignment.misconceptions(kind):
            yield Trial(folder, kind, f"{kind}/{wrong.name}.py", assignment.variant, wrong.text, wrong.refused_by)


_read = functools.cache(Assignment)  # one process runs its ``items.py`` once


def attempt(trial: Trial) -> TrialResult:
    """Grade one submission, and compare with what must come of it."""
    began = time.monotonic()
    assignment = _read(trial.folder)
    with Sitting(
        assignment, trial.text, trial.variant, SECRET, trusted=True, shrink=False
    ) as sitting:
        if trial.kind == "free":
            problem = _free(sitting)
        else:
            judge = {"wrong": _wrong, "serial": _serial, "starter": _starter}.get(trial.kind, _right)
            problem = judge(trial, list(sitting.run(trial.refused_by)))
    return TrialResult(trial.name, problem, time.monotonic() - began)


def _right(trial: Trial, outcomes: list[Outcome]) -> str:
    for each in outcomes:
        if not each.passed:
            return f"{each.name} refuses it: {each.why} (on {str(each.case)[:300]})"
    return ""


def _starter(trial: Trial, outcomes: list[Outcome]) -> str:
    for each in outcomes:
        if each.status != "not tried":
            return f"{each.name} is {each.status!r} for it: {each.why}"
    return ""


def _wrong(trial: Trial, outcomes: list[Outcome]) -> str:
    refused = {each.name: each.kind in ("broken", "error", "time") for each in outcomes}
    for name in trial.refused_by:
        if name not in refused:
            return f"its header names the item {name}, and there is none"
        if not refused[name]:
            return f"{name} does not refuse it"
    return ""


def _serial(trial: Trial, outcomes: list[Outcome]) -> str:
    counted = any(each.kind == "broken" and any(words in each.why for words in COUNTED) for each in outcomes)
    return _wrong(trial, outcomes) or ("" if counted else f"no count refuses it: {outcomes[0].why}")


def _free(sitting: Sitting) -> str:
    """No item passes without one that builds."""
    passed = [each.name for each in sitting.built() if each.passed]
    return f"it has points: it passes {', '.join(passed)}" if passed else ""


def problems_of_form(assignment: Assignment) -> list[str]:
    """What is missing in the folder, or said twice."""
    names = [item.name for item in assignment.items]
    hints, asked = assignment.hints, assignment.predictions
    handout = (assignment.folder / "handout.md").read_text(encoding="utf-8")
    wrong = {
        f"it has {len(hints)} hints, not {HINTS}": len(hints) != HINTS,
        "a hint is empty": not all(hint.text and hint.gives_away for hint in hints),
        f"it has {len(asked)} predictions, not {PREDICTIONS}": len(asked) != PREDICTIONS,
        "two items have one name": len(set(names)) < len(names),
        "no item is hidden": not any(item.has(True) for item in assignment.items),
        "the handout says nothing": len(handout) < 400,
        "there are no lines to write": assignment.lines < 1,
    }
    found = [what for what, is_so in wrong.items() if is_so]
    for item in assignment.items:
        if unknown := set(item.needs) - set(names[: names.index(item.name)]):
            found.append(f"{item.name} needs {', '.join(sorted(unknown))}, which is no item before it")
        if item.has(False) and not list(assignment.cases(item, PUBLIC, assignment.variant)):
            found.append(f"{item.name} has no visible case")
    return found + [
        f"a student gets a line of the solution: {line}"
        for variant in assignment.variants
        for line in leaked_lines(assignment, variant)
    ]


def verify(assignments: list[Assignment], jobs: int, say: Callable[[str], None]) -> int:
    """Try everything that the assignments bring along. Says a line an assignment, and each problem. Returns their number."""
    problems = 0
    with ProcessPoolExecutor(jobs) as pool:
        for assignment in assignments:
            try:
                found = problems_of_form(assignment)
                trials_of = list(trials(assignment))
                findings = list(pool.map(attempt, trials_of))
            except (OSError, CourseError) as problem:
                trials_of = []
                found, findings = [str(problem)], []
            found += [f"{each.name}: {each.problem}" for each in findings if each.problem]
            tried = Counter(each.kind for each in trials_of)
            right = sum(tried.values()) - tried["wrong"] - tried["serial"] - tried["free"]
            say(
                f"{assignment.name:<4} {assignment.title:<28} {right} right or empty, {tried['wrong']:2} wrong, "
                f"{tried['serial']:2} serial, {tried['free']:3} for nothing, "
                f"{len(found):2} problems, {sum(each.seconds for each in findings):5.1f} s"
            )
            for text in found:
                say(f"     {assignment.name}: {text}")
            problems += len(found)
    return problems
