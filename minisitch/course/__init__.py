"""The course tool: assignments, and a grader that a submission cannot fool.

    python -m minisitch.course list
    python -m minisitch.course starter A5 .
    python -m minisitch.course check A5 spans.py
    python -m minisitch.course show A5 above
    python -m minisitch.course grade A5 spans.py --secret KEY --gradescope results.json
    python -m minisitch.course verify

In:  an assignment's folder and a submission. Out: an outcome an item. The assignments are in the
repository's ``tutorials/assignments/``, and not in the package. A new one is one more folder.

Reading order: ``items`` (what an item is), ``graphs`` (what several assignments draw), ``assignment``
(the folder), ``child`` and ``cage`` (how a submission runs), ``kernels`` (how a kernel is stepped),
``sitting`` (who asks what), ``report``, ``show``, ``release``, ``verify`` and ``hostile`` (the grader
is graded), ``__main__`` (the commands).
"""

from .assignment import Assignment, CourseError, find_assignment, find_assignments
from .cage import Cage, CageError, NoAnswer
from .items import Drawing, GradedItem, Prediction, item, prediction, second_call
from .kernels import KernelLaunch, KernelRun, Refusal
from .sitting import Outcome, Sitting, without

__all__ = [
    "Assignment", "Cage", "CageError", "CourseError", "Drawing", "GradedItem", "KernelLaunch",
    "KernelRun", "NoAnswer", "Outcome", "Prediction", "Refusal", "Sitting", "find_assignment",
    "find_assignments", "item", "prediction", "second_call", "without",
]
