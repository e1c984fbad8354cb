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


def problems(page: str, not_yet: set[int]) -> list[str]:
    """What is wrong with the table."""
    table = [(int(row), *(cell.strip() for cell in cells.split("|")[:4]))
             for row, cells in re.findall(r"^\| (\d+) \|(.*)$", page, re.M)]
    if [row for row, *_ in table] != list(ROWS):
        return [f"rows {[row for row, *_ in table]}, not 1 to 70 in order"]
    found = []
    for row, _, _, built, shown in table:
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
    ("astitch.py::levels", "astitch.py::floors", "has no 'floors'"),
    ("`tests/test_astitch.py::test_a_pair_is", "`tests/test_strategies.py::test_kernel_counts`, `tests/test_astitch.py::test_a_pair_is",
     "carries no row"),
    ("| left out |", "| not yet |", "not expected to be missing"),
    ("| left out | ", "| left out | no |", "does not say why"),
    ("`minisitch/runtime/__init__.py::Jitted`", "the runtime", "names no"),
])
def test_a_wrong_table_is_seen(wrong, right, message):
    assert wrong in PAGE
    assert any(message in problem for problem in problems(PAGE.replace(wrong, right, 1), NOT_YET))


def test_every_mark_has_a_row():
    """A test that claims to show a row is named there, or shows it beside the ones that are."""
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        for test, rows in rows_of(str(path.relative_to(ROOT))).items():
            assert rows <= set(ROWS), f"{path.name}::{test} carries {rows - set(ROWS)}"
