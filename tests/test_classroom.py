"""A class is graded: whatever one submission is, the others have their marks, and the tables can be read again."""

from __future__ import annotations

import csv
import os
import pickle
import runpy
import time
from pathlib import Path

import pytest

from minisitch.course import CourseError, find_assignments
from minisitch.course import __main__ as course
from minisitch.course.assignment import HOME, in_variant, read_submission
from minisitch.course.child import landlock_version
from minisitch.course.classroom import Student, found_in, grade_class, looks_like, read_roster, read_table

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


def test_an_assignment_goes_to_another_process_as_its_folder():
    """Also when its programs have been run: modules cannot be sent."""
    assert A9.items and A9.oracle and pickle.loads(pickle.dumps(A9)).name == "A9"


def test_an_error_of_the_grader_is_a_problem_of_one_submission(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(course, "Sitting", lambda *_: [][1])
    put(tmp_path / "all", {b"ada.py": b"x = 1\n"})
    words = ["--assignments", str(HOME), "--secret", "k", "--jobs", "1", "--csv", str(tmp_path / "grades.csv")]
    assert course.main(["grade", "A5", str(tmp_path / "all"), *words]) == 0
    assert "the grader is to blame: IndexError" in capsys.readouterr().out


# ---------------------------------------------------------------- a class of a hundred
def test_a_roster_is_read_and_its_mistakes_are_named(tmp_path):
    roster = tmp_path / "roster.csv"
    roster.write_text("\ufeffid,address,file,late_days\n1,a@b.c,ada,2\n2,b@b.c,bob,\n")  # as Excel writes it
    assert read_roster(roster) == [Student("1", "a@b.c", "ada", 2), Student("2", "b@b.c", "bob")]
    for text, says in (("id,address\n1,a\n", "'file'"), ("id,address,file\n1,a,x\n1,b,y\n", "2 students have the id '1'"),
                       ("id,address,file\n1,a,x\n2,b,x\n", "2 students have the file 'x'"), ("id,address,file,late_days\n1,a,x,two\n", "'two'")):
        roster.write_text(text)
        with pytest.raises(CourseError, match=says):
            read_roster(roster)


def test_a_submission_belongs_to_the_longest_name_of_the_roster(tmp_path):
    names = ("ada.py", "ada-2.zip", "ada_LATE_1234_refute.py", "ada_smith.py", "adam.py", "carl.py")
    put(tmp_path, {name.encode(): b"" for name in names} | {b"adam/refute.py": b""})
    found = found_in(tmp_path, [Student(name, "", name) for name in ("ada", "ada_smith", "adam", "zoe")])
    assert {each.id: [path.name for path in paths] for each, paths in found.items()} == {
        "ada": ["ada-2.zip", "ada.py", "ada_LATE_1234_refute.py"], "ada_smith": ["ada_smith.py"], "adam": ["adam", "adam.py"], "zoe": []}


def test_a_wrong_answer_looks_like_its_misconception():
    some = list(A9.misconceptions())[:3]
    known = {some[0]: {"a", "b"}, some[1]: {"c"}, some[2]: {"a", "b"}}
    assert looks_like({"a", "b"}, known) == f"{some[0].name} ({some[0].what}) or {some[2].name} ({some[2].what})"
    assert looks_like({"x", "c", "y"}, known) == "nothing that is known: c, x, y"


def made_class(folder: Path, students: int) -> None:
    """A roster, and submissions of every kind: right, wrong in a known way, empty, late, several, zipped, or none."""
    wrong = [each.text for each in A9.misconceptions()]
    right = A9.text("solution.py", A9.variant)
    kinds = [right, wrong[0], wrong[1], right, A9.starter(A9.variant), ")"]
    rows, due = ["id,address,file,late_days"], time.mktime((2026, 10, 1, 23, 59, 0, 0, 0, -1))
    for number in range(students):
        rows.append(f"{1000 + number},student{number}@example.org,student{number},{2 if number % 12 == 3 else ''}")
        if number % 6 == 5:
            continue  # nothing
        files = {f"student{number}.py".encode(): kinds[number % 6].encode()}
        if number % 6 == 1:
            files[f"student{number}-2.zip".encode()] = ODD[b"zipped.zip"](right).replace(b"spans.py", b"refute.x")  # no such file in it
        for path in put(folder / "submissions", files):
            os.utime(path, (due, due + (86_400 * 1.5 if number % 6 == 3 else -60)))
    (folder / "roster.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


@CAGED
@pytest.mark.parametrize("students", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_every_command_of_the_page_for_instructors_runs_on_a_class(students, tmp_path, monkeypatch, capsys):
    from test_commands import ROOT, commands, installable

    made_class(tmp_path, students)
    monkeypatch.chdir(tmp_path)
    said = {}
    for command in commands((ROOT / "docs" / "instructors.md").read_text(encoding="utf-8")):
        tool, *words = command.split()
        if tool == "pip":
            assert installable(words) == 0
            continue
        words = words[2:] + (["A9", "--jobs", "1"] if words[2:] == ["verify"] else [])
        if not words or "--hostile" in words:
            continue  # it takes minutes: `make test` and the note on a release run it
        if "--resume" in words:  # the run was interrupted in the middle of a row
            whole = Path("grades.csv").read_text(encoding="utf-8")
            Path("grades.csv").write_text(whole[:len(whole) // 2], encoding="utf-8")
        status = course.main(words)
        said[words[0]] = capsys.readouterr()
        assert status in ((0, 1) if words[0] == "show" else (0,)), said[words[0]]
        if "--resume" in words:
            assert sorted(Path("grades.csv").read_text(encoding="utf-8").splitlines()) == sorted(whole.splitlines())
    rows = {row["student"]: row for row in read_table(tmp_path / "grades.csv")}
    assert len(rows) == students and {path.stem for path in (tmp_path / "pages").iterdir()} == set(rows)
    best = float(rows["1000"]["score"])
    assert best == pytest.approx(A9.points * 0.8, abs=0.01)  # all but predictions and paragraph
    late, free = rows["1009"], rows["1003"]
    assert (late["late"], free["late"], float(free["score"])) == ("2", "2", best) and float(late["score"]) == pytest.approx(0.8 * best, abs=0.01)
    assert rows["1005"]["problem"] == "nothing was handed in" and 0 < float(rows["1001"]["score"]) < best
    assert rows["1001"]["submission"] == "student1.py"  # the other one is no submission
    page = (tmp_path / "pages" / "1001.html").read_text(encoding="utf-8")
    assert "student1@example.org" in page and "This case is hidden." in page
    wrong = list(A9.misconceptions())
    assert f"of {sum(row['problem'] != 'nothing was handed in' for row in rows.values())}  " in said["statistics"].out
    assert wrong[0].what in said["statistics"].out and wrong[1].what in said["statistics"].out
    canvas, moodle = (list(csv.reader((tmp_path / name).open(encoding="utf-8"))) for name in ("canvas.csv", "moodle.csv"))
    assert canvas[1][-1] == f"{A9.points:g}" and canvas[2][1:2] + canvas[2][-1:] == ["1000", f"{best:.2f}"] and len(canvas) == students + 2
    assert moodle[1] == ["1000", "student0@example.org", f"{best:.2f}"] and len(moodle) == students + 1
    copies = list((tmp_path / "copies" / "submissions").glob("*/refute.py"))
    assert len(copies) == sum(row["submission"] != "" for row in rows.values()) and (tmp_path / "copies" / "starter" / "refute.py").exists()


@CAGED
def test_a_regrade_says_who_is_concerned(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "all", {b"ada.py": A9.text("solution.py", A9.variant).encode(), b"bob.py": b")"})
    words = ["grade", "A9", "all", "--assignments", str(HOME), "--secret", "k", "--jobs", "1", "--csv"]
    assert course.main([*words, "one.csv"]) == 0
    put(tmp_path / "all", {b"bob.py": A9.text("solution.py", A9.variant).encode()})
    (tmp_path / "roster.csv").write_text("id,address,file\n1,a@b.c,ada\n")
    assert course.main([*words, "three.csv", "--roster", "roster.csv"]) == 0
    assert "all/bob.py belongs to nobody in roster.csv" in capsys.readouterr().out
    assert course.main([*words, "two.csv", "--before", "one.csv"]) == 0
    assert "changed:\n  bob: 0.00 -> 6.40: " in (out := capsys.readouterr().out) and "ada: 6" not in out


def test_the_workflow_for_github_classroom_runs_our_commands():
    text = (HOME / "classroom.yml").read_text(encoding="utf-8")
    import minisitch
    assert f"minisitch-{minisitch.__version__}-py3-none-any.whl" in text and f"ASSIGNMENT: {A9.name}" in text
    assert text.count("- run: python -m minisitch.course ") == 2 and 'check "$ASSIGNMENT"' in text
