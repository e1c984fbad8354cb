"""A sitting: one submission is asked every item, and each gets an outcome.

    with Sitting(assignment, text) as sitting:
        for outcome in sitting.run():
            print(outcome.item.name, outcome.status)

A submission whose process has ended goes on in a new one with the next item. After three answers that
did not come, the items that are left fail at once.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from .assignment import Assignment, CourseError, own_files
from .cage import Cage, NoAnswer
from .items import PUBLIC, GradedItem, conforms, describe
from .kernels import Bench, KernelRun, Refusal

MOST_LATE = 3  # answers that may fail to come
MOST_SHRINKS, SHRINK_SECONDS = 300, 20.0  # cases tried in the search for the smallest, and its time
JUDGE_SECONDS = 5.0  # of this process, for one case: an answer of a million numbers could take hours
MOST_SECONDS = 60.0  # of all cases of a sitting
DOUBT = {
    "error": "it raised an error", "file": "the file cannot be run", "time": "it did not answer in time",
    "died": "its process ended before it answered", "forged": "what it sent is no answer",
    "refused": "the stepper refuses the kernel, and another item says why",
    "course": "the course's own file is broken, so your file is not to blame; tell your instructor",
}


@dataclass(frozen=True)
class Outcome:
    """What an item found. ``status`` is "pass" or "FAIL", or "not tried" where the starter's error was raised.
    It is "not run" where the file cannot be run, "refused" where the stepper refuses a kernel by a rule
    that another item is about, "waits for" the names of items that must pass first, and "ungraded" where
    the assignment's own files are broken.

    ``why`` says what is wrong, ``case`` is the smallest failing case and ``value`` the submission's answer.
    ``kind`` is "broken" for a wrong answer, "needs" where another item failed that this one needs,
    "refused" for a kernel that breaks a rule of another item, "course" for a broken item, or the kind
    of ``NoAnswer``.
    """

    item: GradedItem
    hidden: bool
    status: str
    kind: str = ""
    why: str = ""
    case: Any = None
    value: Any = None
    functions: frozenset[str] = frozenset()  # that it asked about

    @property
    def name(self) -> str:
        return title(self.item, self.hidden)

    @property
    def passed(self) -> bool:
        return self.status == "pass"


class Sitting(AbstractContextManager["Sitting"]):
    """Runs the items of an assignment against one submission.

    ``secret`` adds the hidden items. ``trusted`` accepts a machine without Landlock. ``shrink`` looks for
    the smallest case that fails.
    """

    def __init__(
        self, assignment: Assignment, source: str, variant: str = "", secret: str = "",
        trusted: bool = False, shrink: bool = True,
    ) -> None:
        self.assignment, self.source, self.secret = assignment, source, secret
        self.trusted, self.shrink = trusted, shrink
        self.variant = variant or assignment.variant
        self.late, self.spent = 0, 0.0
        self.examinees: dict[bool, Cage | Bench] = {}  # whether it is for kernels -> who answers
        self.unloadable: NoAnswer | None = None
        self.broken: list[str] = []  # what an instructor must mend
        self.last: Any = None
        self.functions: set[str] = set()  # that the item asked about

    def __exit__(self, *_: object) -> None:
        for each in self.examinees.values():
            each.close()

    def run(self, only: Collection[str] = ()) -> Iterator[Outcome]:
        """The outcome of each visible item, then of each hidden one; or of those that are named, and then they wait for none.

        An item waits for those that it needs. It also waits for one that builds, of each function that it
        asks about. With a secret those are the hidden ones: what answers the visible cases alone has no points.
        """
        failed: set[str] = set()
        built = [] if only else list(self.built())
        known = {each.name: each for each in built}
        for hidden in (False, True) if self.secret else (False,):
            for item in self.assignment.items:
                if not item.has(hidden) or (only and title(item, hidden) not in only):
                    continue
                found = known.get(title(item, hidden)) or self.outcome(item, hidden)
                missing = [name for name in item.needs if name in failed]
                for function in () if only else sorted(found.functions):
                    builders = [each for each in built if function in each.functions]
                    if not any(each.passed for each in builders):
                        missing.append(" or ".join(each.name for each in builders) or f"an item that builds {function}")
                if found.passed and missing:
                    names = " and ".join(dict.fromkeys(missing))
                    found = Outcome(item, hidden, f"waits for {names}", "needs", f"it passes only together with {names}")
                if not found.passed and not hidden:
                    failed.add(item.name)
                yield found

    def built(self) -> Iterator[Outcome]:
        """The outcomes of the items that build: the hidden ones, or the visible ones where there is no secret."""
        for item in self.assignment.items:
            if item.builds and item.has(bool(self.secret)):
                yield self.outcome(item, bool(self.secret))

    def outcome(self, item: GradedItem, hidden: bool) -> Outcome:
        """Ask about every case until one fails, then look for a smaller one that fails the same way."""
        try:
            with own_files(self.assignment.folder, f"the item {title(item, hidden)!r} of {self.assignment.name}"):
                return self._outcome(item, hidden)
        except CourseError as problem:
            self.broken.append(str(problem))
            return Outcome(item, hidden, "ungraded", "course", str(problem))

    def _outcome(self, item: GradedItem, hidden: bool) -> Outcome:
        self.functions = set()
        for case in self.assignment.cases(item, self.secret if hidden else PUBLIC, self.variant):
            kind, why = self._judge(item, case)
            if kind in ("not tried", "refused", "file"):
                status = "not run" if kind == "file" else kind
                return Outcome(item, hidden, status, kind, why, case, functions=frozenset(self.functions))
            if kind:
                if self.shrink and not hidden and item.smaller and kind in ("broken", "error"):
                    kind, why, case = self._smallest(item, case, kind, why)
                return Outcome(item, hidden, "FAIL", kind, why, case, self.last, frozenset(self.functions))
        return Outcome(item, hidden, "pass", functions=frozenset(self.functions))

    def _judge(self, item: GradedItem, case: Any) -> tuple[str, str]:
        """The kind of failure and a sentence about it; two empty strings if the property holds."""
        self.last, began = None, time.monotonic()
        if self.late >= MOST_LATE:
            return "time", f"{MOST_LATE} questions had no answer, so no more are asked"
        if self.spent > MOST_SECONDS:
            return "time", f"its answers took {MOST_SECONDS:g} s in all, so no more are asked"

        def ask(name: str, *arguments: Any, times: int = 1, seconds: float = item.seconds) -> Any:
            self.last = None
            self.functions.add(name)
            found = self._process(name).ask(name, *arguments, times=times, seconds=seconds)
            if isinstance(found, KernelRun) and found.refusal and {found.refusal.rule, "*"} & {*item.rules}:
                raise found.refusal
            if times > 1 and not (type(found) is list and len(found) == times):
                raise NoAnswer("forged", f"it was asked {times} times, and this is no list of {times} answers")
            self.last = found if times == 1 else found[0]
            kind = self.assignment.returns.get(name)
            for each in found if times > 1 else [found]:
                if kind is not None and not conforms(each, kind):
                    raise NoAnswer("broken", f"{name} returns {describe(kind)}; this is {cut(repr(each), 120)}")
            return found

        try:
            with at_most(JUDGE_SECONDS):
                why = item.judge(case, ask)
        except Refusal as problem:
            own = problem.rule in item.rules or "*" in item.rules
            return "broken" if own else "refused", problem.text
        except NoAnswer as problem:
            self.late += problem.kind in ("time", "died", "forged")
            for each in self.examinees.values():
                if problem.kind == "time" and isinstance(each, Cage) and each.alive:
                    each.close()  # it was not its time that ran out, so a part of an answer may be left
            return problem.kind, problem.text
        finally:
            self.spent += time.monotonic() - began
        return ("broken", why) if why else ("", "")

    def _process(self, name: str) -> Cage | Bench:
        """Who answers for a function: a kernel is stepped, and other functions run in a cage."""
        is_kernel = self.assignment.returns.get(name) is KernelRun
        found = self.examinees.get(is_kernel)
        if found is None or not found.alive:
            if found is not None:
                found.close()
            if self.unloadable is not None and not is_kernel:
                raise self.unloadable
            try:
                if is_kernel:
                    found = Bench(self.source, self.assignment.functions)
                else:
                    found = Cage(self.source, self.assignment.file, self.trusted)
            except NoAnswer as problem:
                self.unloadable = problem  # no other question would find more than this
                raise
            self.examinees[is_kernel] = found
        return found

    def _smallest(self, item: GradedItem, case: Any, kind: str, why: str) -> tuple[str, str, Any]:
        """Take the first smaller case that fails the same way, and go on from there."""
        assert item.smaller is not None
        left, value, end = MOST_SHRINKS, self.last, time.monotonic() + SHRINK_SECONDS
        better = True
        while better and left:
            better = False
            for smaller in item.smaller(case):
                left -= 1
                found = self._judge(item, smaller)
                if found[0] == kind:
                    case, why, value, better = smaller, found[1], self.last, True
                    break
                if not left or found[0] == "time" or time.monotonic() > end:
                    left = 0
                    break
        self.last = value
        return kind, why, case

    # ------------------------------------------------------------ predictions
    def answers(self, student: str) -> list[Any]:
        """What the predictions of a student should be. At home alone."""
        return [answer for _, answer in self.assignment.asked(student, self.variant, self.secret or PUBLIC)]

    def predicted(self) -> list[Any]:
        """What the submission's PREDICTIONS say. An empty list if it has none, or cannot be asked."""
        try:
            found = self._process((self.assignment.functions or list(self.assignment.returns))[0]).value("PREDICTIONS")
        except NoAnswer:
            return []
        return list(found) if isinstance(found, list | tuple) else []

    def ask(self, name: str, *arguments: Any) -> Any:
        """What the submission's function or kernel answers. Raises NoAnswer."""
        return self._process(name).ask(name, *arguments)

    def output(self) -> str:
        """The end of what the submission printed."""
        return "".join(each.output() for each in self.examinees.values())


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Judges an answer within a time, which counts while this process computes. Raises NoAnswer."""
    if not hasattr(signal, "setitimer"):  # Windows
        yield
        return

    def stop(*_: object) -> None:
        raise NoAnswer("time", f"to judge its answer takes more than {seconds:g} s; is the answer too long?")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def title(item: GradedItem, hidden: bool) -> str:
    """What an item is called where its hidden twin may stand beside it."""
    return f"{item.name} (hidden)" if hidden else item.name


def without(values: Iterable[Any], left_out: Any) -> list[Any]:
    """The values but one. Helps to write ``smaller``."""
    return [value for value in values if value != left_out]


def cut(text: str, most: int) -> str:
    """The beginning of a text, and how long it is if that is not all."""
    return text if len(text) <= most else f"{text[:most]} ... ({len(text):,} characters in all)"
