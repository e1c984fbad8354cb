"""A class is graded: whatever one submission is, the others have their marks, and the tables can be read again."""

from __future__ import annotations

import csv
import os
import runpy
import time
from pathlib import Path

import pytest

from minisitch.course import CourseError, find_assignments
from minisitch.course import __main__ as course
from minisitch.course.assignment import HOME, in_variant, read_submission
from minisitch.course.child import landlock_version
from minisitch.course.classroom import Student, grade_class, read_table

KNOWN = find_assignments(HOME)
A5, A9 = KNOWN["A5"], KNOWN["A9"]
CAGED = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock, so grade refuses here")
MADE, ODD = (runpy.run_path(str(HOME / place / "rules.py"))["FILES"] for place in ("hostile/made", "odd"))
SOLUTION = A5.text("solution.py", A5.variant)


def put(folder: Path, files: dict[bytes, bytes]) -> list[Path]:
    paths = [folder / os.fsdecode(name) for name in files]
    for path, data in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return paths


# ---------------------------------------------------------------- submissions are read
@pytest.mark.parametrize("name", [name for name in ODD if b"/" in name or b".zip" in name or b"order" in name], ids=os.fsdecode)
def test_the_one_file_of_a_folder_or_zip_is_read(name, tmp_path):
    put(tmp_path, {name: ODD[name](SOLUTION)})
    (top,) = tmp_path.iterdir()
    assert read_submission(top, A5) == SOLUTION


@pytest.mark.parametrize(("name", "says"), [
    (b"two/a/spans.py", "2 files could be it in two"), (b"folder/spans.py/spans.txt", "there is none in folder"), (b"many.zip", "2000 files could be it"),
    (b"bomb.zip", "longer than 1 MB"), (b"lzma.zip", "its compression is unusual"), (b"cut.zip", "cannot unzip cut.zip: File is not a zip"),
    (b"utf16.py", "not UTF-8 text"),
])
def test_what_is_no_submission_is_refused_in_words(name, says, tmp_path):
    put(tmp_path, {each: data for each, data in MADE.items() if each.split(b"/")[0] == name.split(b"/")[0]})
    (top,) = tmp_path.iterdir()
    with pytest.raises(CourseError, match=says):
        read_submission(top, A5)


@pytest.mark.parametrize("row", ["# variant: own\n", "# end variant\n", "#\n", "    # solution: a\n", "#" * 100_000 + "\n", " " * 100_000 + "\n"])
def test_marks_are_looked_for_in_linear_time(row):
    text = row * (900_000 // len(row))
    began = time.process_time()
    assert in_variant(text, "own") in (text, text.replace("# end variant\n", ""))
    assert time.process_time() - began < 2  # 40,000 lines once took three minutes


def test_a_mark_without_an_end_is_the_student_s_own_comment():
    assert in_variant("# variant: mine\nx = 1\n", "own") == "# variant: mine\nx = 1\n"
    assert in_variant("a\n# variant: own, mine\nx\n# end variant\nb\n", "own") == "a\nx\nb\n"
    assert in_variant("a\n<!-- variant: mine -->\nx\n<!-- end variant -->\nb\n", "own") == "a\nb\n"


# ---------------------------------------------------------------- a batch always ends
@CAGED
def test_no_submission_ends_the_grading_of_the_others(tmp_path, capsys):
    names = [b"no \xff utf-8 \xe9.py", b"=cmd|'calc'!A0.py", b"@SUM(1+1).py", b"-2+3.py", b"new\nline,\"comma\".py", b"40000 marks.py", b"cut.zip"]
    put(tmp_path / "all", {**{name: MADE[name] for name in names}, b"right.py": SOLUTION.encode(), b"Stra\xdfe.py": SOLUTION.encode()})
    table = tmp_path / "grades.csv"
    words = ["--assignments", str(HOME), "--secret", "k", "--jobs", "1", "--csv", str(table)]
    assert course.main(["grade", "A5", str(tmp_path / "all"), *words]) == 0
    rows = {row["student"]: row["score"] for row in read_table(table)}
    assert rows.pop("right") == rows.pop("Stra\\udcdfe") == "12.00" and len(rows) == len(names) and set(rows.values()) == {"0.00"}
    assert not [cell for row in csv.reader(table.open(encoding="utf-8")) for cell in row if cell.startswith(("=", "+", "-", "@"))]
    assert "=cmd|'calc'!A0" in rows and "utf-8" in capsys.readouterr().out


def dies(student: Student, paths: list[Path]) -> dict[str, str]:
    if student.id == "3":
        os._exit(9)
    return {"student": student.id, "digest": "", "problem": ""}


def has_died(student: Student, paths: list[Path]) -> dict[str, str]:
    return {"student": student.id, "digest": "", "problem": "died"}


def test_a_grader_s_process_that_dies_costs_one_student_a_row(tmp_path):
    submissions = {Student(str(n), "", str(n)): [] for n in range(6)}
    rows = list(grade_class(dies, has_died, submissions, tmp_path / "table.csv", 2, []))
    assert {row["student"]: row["problem"] for row in rows} == {str(n): "died" * (n == 3) for n in range(6)}
    assert read_table(tmp_path / "table.csv") == rows


def test_an_error_of_the_grader_is_a_problem_of_one_submission(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(course, "Sitting", lambda *_: [][1])
    put(tmp_path / "all", {b"ada.py": b"x = 1\n"})
    words = ["--assignments", str(HOME), "--secret", "k", "--jobs", "1", "--csv", str(tmp_path / "grades.csv")]
    assert course.main(["grade", "A5", str(tmp_path / "all"), *words]) == 0
    assert "the grader is to blame: IndexError" in capsys.readouterr().out
