"""docs/papers.md is held to the code: each of the 70 rows is built and shown by a test that carries its number, or says why not."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from render_docs import symbol_source  # noqa: E402

PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
ROWS = range(1, 71)
NOT_YET: set[int] = set()
PLACE = re.compile(r"`([\w/.]+\.py)::([\w.]+)`")


@cache
def rows_of(path: str) -> dict[str, set[int]]:
    """The tests of a file with the rows that each one carries, by mark or by name."""
    found = {}
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found[node.name] = {int(row) for row in re.findall(r"_row(\d+)", node.name)}
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.paper":
                    found[node.name] |= {ast.literal_eval(row) for row in mark.args}
    return found


def table(page: str) -> list[tuple[int, str, str]]:
    """The number of each row, where it is built and what shows it."""
    found = []
    for row, cells in re.findall(r"^\| (\d+) \|(.*)$", page, re.M):
        _, _, built, shown = (cell.strip() for cell in cells.split("|")[:4])
        found.append((int(row), built, shown))
    return found


def problems(page: str, not_yet: set[int]) -> list[str]:
    """What is wrong with the table."""
    rows = table(page)
    if [row for row, *_ in rows] != list(ROWS):
        return [f"rows {[row for row, *_ in rows]}, not 1 to 70 in order"]
    found = []
    for row, built, shown in rows:
        if built == "left out":
            found += [f"row {row} is left out and does not say why"] * (len(shown.split()) < 5)
        elif built == "not yet":
            found += [f"row {row} is not built, and not expected to be missing"] * (row not in not_yet)
        else:
            found += _missing(row, built, shown) + [f"row {row} is built: take it out of NOT_YET"] * (row in not_yet)
    return found


def _missing(row: int, built: str, shown: str) -> list[str]:
    places, tests, found = PLACE.findall(built), PLACE.findall(shown), []
    if not places or not tests:
        return [f"row {row} names no `file::symbol` or no `file::test`"]
    for path, symbol in places:
        try:
            symbol_source(path, symbol)
        except (OSError, LookupError) as problem:
            found.append(f"row {row}: {problem}")
    for path, test in tests:
        carried = rows_of(path).get(test) if (ROOT / path).is_file() else None
        if carried is None:
            found.append(f"row {row}: there is no {path}::{test}")
        elif row not in carried:
            found.append(f"row {row}: {path}::{test} carries {sorted(carried) or 'no row'}")
    return found


def test_every_row_is_built_and_shown_or_says_why_not():
    assert not problems(PAGE, NOT_YET), "\n".join(problems(PAGE, NOT_YET))


@pytest.mark.parametrize(("wrong", "right", "message"), [
    ("| 44 |", "| 45 |", "not 1 to 70 in order"),
    ("tests/test_strategies.py::test_attention", "tests/test_strategies.py::test_inattention", "there is no"),
    ("astitch.py::call_depths", "astitch.py::floors", "has no 'floors'"),
    ("`tests/test_astitch.py::test_a_pair_is", "`tests/test_strategies.py::test_kernel_counts`, `tests/test_astitch.py::test_a_pair_is",
     "carries no row"),
    ("| left out |", "| not yet |", "not expected to be missing"),
    ("| left out | ", "| left out | no |", "does not say why"),
    ("`minisitch/runtime/__init__.py::Jitted`", "the runtime", "names no"),
])
def test_a_wrong_table_is_seen(wrong, right, message):
    assert wrong in PAGE
    assert any(message in problem for problem in problems(PAGE.replace(wrong, right, 1), NOT_YET))


def strays(page: str) -> list[str]:
    """Tests that carry a row of which the page does not say where it is built."""
    built = {row for row, built, _ in table(page) if PLACE.search(built)}
    return [f"{path.name}::{test} carries {sorted(rows - built)}" for path in sorted((ROOT / "tests").glob("test_*.py"))
            for test, rows in rows_of(str(path.relative_to(ROOT))).items() if rows - built]


def test_every_mark_is_of_a_row_that_is_built():
    """A test may show a row beside those that the page names for it; what is left out, or is no row, is shown by none."""
    assert not strays(PAGE), "\n".join(strays(PAGE))


@pytest.mark.parametrize(("wrong", "right"), [
    ("`minisitch/schedule.py::schedule`", "left out"), ("`minisitch/schedule.py::schedule`", "not yet"), ("\n| 53 |", "\n| 71 |")])
def test_a_mark_of_a_row_that_is_not_built_is_seen(wrong, right):
    """Row 53 alone is built there."""
    assert PAGE.count(wrong) == 1
    assert strays(PAGE.replace(wrong, right)) == ["test_stitch.py::test_shared_memory_is_demoted_row_by_row carries [53]"]
