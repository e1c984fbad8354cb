"""Items of A3. None of them holds the answer: each says what must be true of the launches of a kernel."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import numpy as np

from minisitch.course import KernelLaunch, KernelRun, item
from minisitch.course.kernels import plain_text, too_much

NAMES = ("turns", "tree_sum", "warp_sum", "histogram", "scan", "grid_sum")
RETURNS = dict.fromkeys(NAMES, KernelRun)
MOST_LINES = 3


def meaning(name, x):
    """What a kernel computes."""
    width = {"turns": 64, "tree_sum": 128, "warp_sum": 32, "scan": 64}.get(name, x.size)
    rows = x.reshape(-1, width)
    if name == "turns":
        back = rows[:, ::-1]
        return (back + np.roll(back**2, -1, axis=1)).ravel()
    if name in ("tree_sum", "warp_sum"):
        return rows.sum(axis=1)
    if name == "histogram":
        return np.bincount(x, minlength=8)
    return np.cumsum(rows, axis=1).ravel() if name == "scan" else x - x.sum()


def kernel_item(name, rule):
    """The item of one kernel: the stepper accepts it, and the result is right."""

    def judge(launch, ask):
        run = ask(name, launch)
        arrays = run.arrays
        found, right = (
            arrays["bins" if name == "histogram" else "y"],
            meaning(name, launch.arrays["x"]),
        )
        if (found == right).all():
            return too_much(run, launch)
        cell = int(np.argmax(found != right))
        return f"the stepper accepts it, but cell {cell} of the result is wrong: it holds {found[cell]:g}"

    return item(name, rule, draw=f"draw_{name}", visible=2, hidden=4, builds=True, rules=("*",))(judge)


turns = kernel_item("turns", "turns has no race, is right, and its threads share the work.")
tree_sum = kernel_item("tree_sum", "tree_sum has no race, is right, and its threads share the work.")
warp_sum = kernel_item("warp_sum", "warp_sum has no race, is right, and its threads share the work.")
histogram = kernel_item("histogram", "histogram has no race, is right, and its threads share the work.")
scan = kernel_item("scan", "scan has no race, is right, and its threads share the work.")
grid_sum = kernel_item("grid_sum", "grid_sum has no race, is right, and its threads share the work.")


@dataclass(frozen=True)
class Six:
    """A launch of each kernel."""

    cases: dict[str, KernelLaunch]

    def __str__(self):
        return "one launch of each kernel"

    def drawn(self, outcome):
        """The launch of the kernel that the sentence is about."""
        return next(launch for name, launch in self.cases.items() if name in outcome.why.replace(":", "").split())


ALL = {"draw": "draw_all", "visible": 1, "hidden": 2, "cases_of": "all"}


@item("barriers", "No kernel passes more barriers than a good repair needs.", **ALL)
def barriers(six, ask):
    for name, launch in six.cases.items():
        problem = too_much(ask(name, launch), launch, ("block_barriers_each", "warp_barriers", "grid_barriers"))
        if problem:
            return f"{name}: {problem}"
    return None


@item(
    "edit",
    f"Each kernel is repaired and not written anew: at most {MOST_LINES} lines differ.",
    **ALL,
)
def edit(six, ask):
    for name, launch in six.cases.items():
        before = plain_text(launch.given, name).splitlines()
        after = ask(name, launch).text.splitlines()
        codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        lines = sum(max(b - a, d - c) for kind, a, b, c, d in codes if kind != "equal")
        if lines > MOST_LINES:
            return f"{lines} lines of {name} differ; {MOST_LINES} are the most"
    return None
