"""The course tool: a submission runs caged, items are properties, and the grader is graded."""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import json
import os
import random
import re
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_origin

import pytest
from course_help import A5, CAGED, KNOWN, solution

from minisitch.course import (
    Assignment,
    Cage,
    CourseError,
    KernelRun,
    NoAnswer,
    Sitting,
    find_assignments,
)
from minisitch.course import __main__ as course
from minisitch.course.assignment import HOME
from minisitch.course.items import plain
from minisitch.course.release import student_files
from minisitch.course.report import after_passing
from minisitch.course.unearned import trivial
from minisitch.course.verify import attempt, problems_of_form, trials

SCHEMA = json.loads(Path(__file__).with_name("gradescope.schema.json").read_text(encoding="utf-8"))


def grade(tmp_path: Path, text: str, *more: str) -> tuple[int, dict]:
    """Run the command ``grade`` on a text, and read results.json."""
    file, results = tmp_path / "spans.py", tmp_path / "results.json"
    file.write_text(text, encoding="utf-8")
    status = course.main(["grade", "A5", str(file), "--assignments", str(HOME), "--secret", "of the tests", "--gradescope", str(results), *more])
    return status, json.loads(results.read_text(encoding="utf-8"))


def fits_schema(value: object, schema: dict) -> bool:
    """The parts of JSON Schema that the committed schema uses."""
    kinds = {"object": dict, "array": list, "string": str, "number": (int, float)}
    if "enum" in schema:
        return value in schema["enum"]
    if not isinstance(value, kinds[schema["type"]]) or isinstance(value, bool):
        return False
    if isinstance(value, dict):
        properties = schema["properties"]
        return set(schema["required"]) <= set(value) <= set(properties) and all(fits_schema(each, properties[key]) for key, each in value.items())
    if isinstance(value, list):
        return all(fits_schema(each, schema["items"]) for each in value)
    return not isinstance(value, int | float) or value >= schema.get("minimum", value)


# ---------------------------------------------------------------- the grader is graded
@pytest.mark.parametrize("name", KNOWN)
def test_the_form_of_every_assignment(name):
    assert problems_of_form(KNOWN[name]) == []


def sampled(assignment):
    """The solution, the starter and the first misconception. `course verify`, which ends `make test`, tries all of all assignments."""
    found = list(trials(assignment))
    return [next(t for t in found if t.kind == kind) for kind in ("solution.py", "starter", "wrong")]


SAMPLED = [trial for name in ("A2", "A5", "A10") for trial in sampled(KNOWN[name])]  # kernels; plain values; both


@pytest.mark.parametrize("trial", SAMPLED, ids=lambda trial: f"{trial.folder.name[:2]}: {trial.name}")
def test_a_sample_of_verify(trial):
    assert attempt(trial).problem == ""


def test_a_misconception_that_nothing_refuses_is_a_problem():
    right = next(t for t in trials(A5) if t.kind == "solution.py")
    assert "does not refuse it" in attempt(replace(right, kind="wrong", refused_by=("above",))).problem
    assert "there is none" in attempt(replace(right, kind="wrong", refused_by=("no such",))).problem
    assert attempt(replace(right, text=right.text.replace("default=0", "default=1"))).problem


@pytest.mark.parametrize("name", KNOWN)
def test_a_release_has_its_cases_as_data_and_no_oracle(name, tmp_path):
    each = KNOWN[name]
    for file, text in student_files(each, each.variant, "k", ["Ada@x.org"]):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    released = Assignment(tmp_path)
    assert released.oracle is None and [one.name for one in released.predictions] == [one.name for one in each.predictions]
    for item in each.items:
        ours, theirs = ([plain(case) for case in one.cases(item, "visible", each.variant)] for one in (each, released))
        assert json.dumps(ours) == json.dumps(theirs) and (ours or not item.has(False))
        with pytest.raises(CourseError, match="visible cases alone"):
            released.cases(item, "k", each.variant)
    texts = [text for text, _ in each.asked("ada@x.org", each.variant, "k")]
    assert released.questions(" ada@x.org ", each.variant) == texts != each.questions("ada@x.org", each.variant)
    with pytest.raises(CourseError, match="no questions for 'bob'"):
        released.questions("bob", each.variant)


def unearned(assignment, kind: str) -> list:
    return [trial for trial in trials(assignment) if trial.kind == kind]


@pytest.mark.parametrize("name", ["A5", "A8", "A9"])
def test_trivial_answers_have_no_points_at_all(name):
    each = KNOWN[name]
    for way in ("nothing", "zeros", "each alone", "first argument"):
        with Sitting(each, trivial(each, way, each.variant), secret="k", trusted=True, shrink=False) as sitting:
            assert not [found.name for found in sitting.run() if found.passed], way


def test_what_passes_no_item_that_builds_waits_for_one():
    with Sitting(A5, trivial(A5, "zeros", "reader"), secret="k", trusted=True, shrink=False) as sitting:
        found = {each.name: each for each in sitting.run()}
    assert found["roots"].status == "waits for above (hidden) or tight (hidden)" and found["above"].status == "FAIL"


def test_an_oracle_in_a_release_is_found(tmp_path):
    """The method that A5 had: handed in as ``spans`` it is right."""
    folder = shutil.copytree(HOME / "A5_spans", tmp_path / "A5_spans")
    oracle = (folder / "oracle.py").read_text(encoding="utf-8")
    function = oracle[oracle.index("def longest("):].partition("\n\n\n")[0]
    with (folder / "items.py").open("a", encoding="utf-8") as file:
        file.write("\n\n" + function.replace("longest(case: Values)", "best(case)"))
    method = function.replace("longest(case: Values)", "longest(self)").replace("case.", "self.").replace("\n", "\n    ")
    text = (folder / "items.py").read_text(encoding="utf-8")
    (folder / "items.py").write_text(text.replace("    def step(self", f"    {method}\n\n    def step(self", 1), encoding="utf-8")
    assignment = Assignment(folder)
    found = next(trial for trial in unearned(assignment, "free") if trial.name == "taken: Values.longest")
    assert "it has points: it passes above (hidden), tight (hidden)" in attempt(found).problem


def test_the_answers_of_the_visible_cases_alone_have_no_points():
    names: dict = {}
    exec(A5.text("solution.py", "reader"), names)
    cases = [case for item in A5.items for case in A5.cases(item, "visible", "reader") if hasattr(case, "cost")]
    known = {repr((case.readers, case.cost)): names["spans"](case.readers, case.cost) for case in cases}
    text = f"KNOWN = {known}\n\n\ndef spans(readers, cost):\n    return KNOWN.get(repr((readers, cost)), {{}})\n"
    with Sitting(A5, text, trusted=True) as sitting:
        assert "above" in [each.name for each in sitting.run() if each.passed]
    with Sitting(A5, text, secret="k", trusted=True) as sitting:
        assert not [each.name for each in sitting.run() if each.passed]


SERIAL = {"A2": ("right", "half_the_threads", "one_lean_warp", "thread_0_by_atomics", "threads_take_turns"),
          "A10": ("relay", "a_grid_barrier_for_each_tile", "thread_0_stores_by_atomics", "turned_by_thread_0")}  # all are tried by `course verify`


@pytest.mark.parametrize(("name", "kernel"), [(name, kernel) for name, (_, *kernels) in SERIAL.items() for kernel in kernels])
def test_a_serial_kernel_is_right_and_a_count_refuses_it(name, kernel):
    trial = next(each for each in unearned(KNOWN[name], "serial") if each.name == f"serial/{kernel}.py")
    assert attempt(trial).problem == ""
    with Sitting(KNOWN[name], trial.text, secret="k", trusted=True) as sitting:
        assert all(each.passed for each in sitting.run([SERIAL[name][0]]))
        kernels = [each.name for each in sitting.run() if each.passed and each.functions <= {"softmax", "relay"}]
    assert not kernels


def answer(kind: object, known: list[int], at: random.Random) -> object:
    """Any value of a type that an assignment declares. Most of its numbers are ``known`` from the question."""
    origin, inner, count = get_origin(kind), get_args(kind), at.choice((0, 1, 2, 5))
    if origin is None:
        return {int: at.choice([*known, *known, -1, 0, 10**6, 1 - 2**63]), bool: at.random() < 0.5, str: at.choice(("", "a", "holds")),
                float: at.choice((-0.0, 0.1, float("nan"), float("inf"), 1e308))}[kind]
    if origin is dict:
        return {answer(inner[0], known, at): answer(inner[1], known, at) for _ in range(count)}
    if origin is tuple and inner[-1] is not ...:
        return tuple(answer(each, known, at) for each in inner)
    return origin([answer(inner[0], known, at) for _ in range(count)])


def numbers_in(value: object) -> list[int]:
    inside = [*value.items()] if isinstance(value, dict) else value
    return [value] if isinstance(value, int) else [n for each in inside for n in numbers_in(each)] if isinstance(inside, list | tuple) else []


@pytest.mark.parametrize("name", KNOWN)
def test_no_judge_raises_whatever_is_answered(name):
    """A judge that raises is reported as the course's fault. None of ours may, whatever a submission returns or asks."""
    assignment, at = KNOWN[name], random.Random(5)

    def ask(function, *arguments, times=1, seconds=0.0):
        kind, known = assignment.returns[function], numbers_in([each for each in arguments if not callable(each)])[:40] or [0]
        if kind is KernelRun:
            raise NoAnswer("died", "kernels are stepped elsewhere")
        for called in filter(callable, arguments):
            with contextlib.suppress(TypeError):
                called(*(at.choice([[known[0]], known[-1], None, [[1]]]) for _ in inspect.signature(called).parameters))
        found = [answer(kind, known, at) for _ in range(times)]
        return found if times > 1 else found[0]

    for item in assignment.items:
        for key in ("visible", "k") if item.has(True) else ("visible",):
            for case in itertools.islice(assignment.cases(item, key, assignment.variant), 3):
                for _ in range(6):
                    with contextlib.suppress(NoAnswer):
                        assert isinstance(item.judge(case, ask), str | None)


# ---------------------------------------------------------------- what students read
def test_check_shows_the_smallest_case_and_what_is_wrong(tmp_path, capsys):
    (tmp_path / "spans.py").write_text(solution().replace("found[user] + cost[user]", "found[user] + 1"), encoding="utf-8")
    status = course.main(["check", "A5", str(tmp_path / "spans.py"), "--assignments", str(HOME), "--item", "above"])
    said = capsys.readouterr().out
    assert status == 1
    readers = ast.literal_eval(re.search(r"readers = (\{.*?\}), cost", said)[1])
    assert len(readers) == 2  # one value, one reader: nothing smaller can fail
    assert "the step costs 2, so value" in said and said.rstrip().endswith("\n0 of 1 asked; hidden items exist and count 40%")


@pytest.mark.parametrize(("name", "text", "status", "says"), [
    ("A5", "def spans(:\n", "not run", "mend that line"),
    ("A5", "import pandas\n", "not run", "Python's library and NumPy"),
    ("A5", "def span(readers, cost):\n    return {}\n", "FAIL", "compare your names and parameters with the starter's"),
    ("A5", "def spans(readers, cost):\n    return [1]\n", "FAIL", "spans returns a dict from ints to ints; this is [1]"),
    ("A2", "def softmax(x, y):\n    cuda.syncthreads\n", "FAIL", "mend that line\n  see it drawn    python -m minisitch.course show A2 'dialect'"),
])
def test_check_says_what_to_do_next(tmp_path, capsys, name, text, status, says):
    each = KNOWN[name]
    (tmp_path / each.file).write_text(text, encoding="utf-8")
    assert course.main(["check", name, str(tmp_path / each.file), "--assignments", str(HOME)]) == 1
    said = capsys.readouterr().out
    assert f"  {status}" in said and says in said


def test_check_passes_a_solution_and_shows_what_it_printed(tmp_path, capsys):
    (tmp_path / "spans.py").write_text(solution() + "\nprint('hello')\n", encoding="utf-8")
    assert course.main(["check", "A5", str(tmp_path / "spans.py"), "--assignments", str(HOME)]) == 0
    said = capsys.readouterr().out
    assert "hello" in said and "14 of 14 visible items; hidden items exist and count 40%\n\nPREDICTIONS" in said and said.endswith("next: A6 PatternReduction\n")


@pytest.mark.parametrize(("name", "item", "old", "new", "drawn"), [
    ("A5", "above", "found[user] + cost[user]", "found[user] + 1", "yours: 0"),
    ("A2", "no race", "cuda.syncthreads()  # C", "pass  # C", "film of block"),
    ("A4", "same warp", "", "\n\ndef ordered(before, after):\n    return True\n", "seen 0 but for"),
    ("A6", "closed", "", "\n\ndef best_patterns(consumers, gain, k):\n    return [[sorted({v, *r[-1:]})] for v, r in enumerate(consumers)]\n", "goes through it and back"),
    ("A8", "apart", "", "\n\ndef share(buffers, slot):\n    return dict.fromkeys(buffers, 0), 1 << 20\n", "as you put them"),
    ("A10", "ends", "", "\n\ndef depths(stages, queues, tiles):\n    return [1] * len(queues)\n", "yours: 1"),
    ("A1", "", "", "", ""),
])
def test_show_draws_the_smallest_case(tmp_path, capsys, name, item, old, new, drawn):
    each = KNOWN[name]
    text = each.text("solution.py", each.variant)
    assert text.count(old) == 1 or not old
    (tmp_path / each.file).write_text(text.replace(old, new) if old else text + new, encoding="utf-8")
    words = ["show", name, item or each.items[0].name, str(tmp_path / each.file), "--to", str(tmp_path / "case.svg")]
    assert course.main([*words, "--assignments", str(HOME)]) == (1 if new else 0)
    said = capsys.readouterr().out
    if new:
        assert drawn in (tmp_path / "case.svg").read_text(encoding="utf-8") and "what is wrong" in said
    else:
        assert "passes" in said and not (tmp_path / "case.svg").exists()


@CAGED
def test_a_folder_of_submissions_becomes_a_table(tmp_path, capsys):
    folder = tmp_path / "all"
    (folder / "bob").mkdir(parents=True)
    (folder / "ada.py").write_text(")(", encoding="utf-8")
    os.symlink("ada.py", os.fsencode(folder) + b"/\xe9.py")  # a name that is no UTF-8
    table = tmp_path / "grades.csv"
    status = course.main(["grade", "A5", str(folder), "--assignments", str(HOME), "--secret", "k", "--csv", str(table), "--jobs", "1"])
    head, ada, bob, other = table.read_text(encoding="utf-8").splitlines()
    assert status == 0 and head.startswith("student,address,submission,late,score,example,") and head.endswith(",problem,digest")
    assert ada.startswith("ada,ada,ada.py,0,0.00") and other.startswith("\\udce9,") and "cannot read spans.py" in bob and "bob" in capsys.readouterr().out


def test_a_starter_is_cut_from_the_solution_and_is_not_tried(tmp_path, capsys):
    assert course.main(["starter", "A5", str(tmp_path), "--assignments", str(HOME)]) == 0
    assert 'raise NotImplementedError("spans")' in (tmp_path / "spans.py").read_text()
    handout = tmp_path / "A5-handout.md"
    assert "**This term:** a step costs what the *reader* costs" in handout.read_text() and str(handout) in capsys.readouterr().out
    assert "what the *value* costs" not in handout.read_text() and "variant:" not in handout.read_text()  # one term's rule alone
    assert course.main(["starter", "A5", str(tmp_path), "--assignments", str(HOME)]) == 2  # never over a student's work
    assert course.main(["check", "A5", str(tmp_path / "spans.py"), "--assignments", str(HOME)]) == 1
    said = capsys.readouterr()
    assert "not tried  example" in said.out and "FAIL" not in said.out and "may hold your work" in said.err


def test_a_student_checks_the_starters_file_of_the_folder_by_its_assignment_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert course.main(["starter", "A1", "--assignments", str(HOME)]) == 0
    assert course.main(["check", "A1", "--assignments", str(HOME)]) == 1
    assert "variant any: fuse_maps.py\n" in capsys.readouterr().out


@pytest.mark.parametrize("each", find_assignments(HOME).values(), ids=lambda each: each.name)
def test_a_handout_gives_the_lines_that_list_gives_and_names_known_items(each):
    for variant in each.variants:
        handout = each.text("handout.md", variant)
        assert set(re.findall(r"about (\d+) lines", handout)) <= {str(each.lines)}
        assert not re.search(r"about \w*(ty|teen|ten|five) lines", handout)
        assert set(re.findall(r"[Ii]tem `([^`]+)`", handout)) <= {item.name for item in each.items}


def test_a_released_folder_says_by_itself_which_variant_it_is(tmp_path, capsys):
    assert course.main(["release", "A1", "--variant", "light", "--secret", "k", "--to", str(tmp_path), "--assignments", str(HOME)]) == 0
    file = tmp_path / "A1_maps" / "fuse_maps.py"
    assert course.main(["check", "A1", str(file)]) == 1 and "A1 Fuse maps, variant light: " in capsys.readouterr().out
    words = ["starter", "A1", str(tmp_path / "other"), "--assignments", str(file.parent)]
    assert course.main(words) == 2 and f"its starter is {file}" in capsys.readouterr().err
    assert course.main(["show", "A1", str(file), "--assignments", str(HOME)]) == 2
    assert "A1 has no item" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "says"), [
    ("A2", r"loads +1,920 +\d"), ("A4", r"without the second it is refused: race: s\[\d+\]"), ("A6", "kernels: 1 with your patterns, 1 with the"), ("A5", "kernels: 1 with your spans, 1 with its own"),
    ("A7", r"8192 rows of +128: +(\d+ x \d+), the compiler's own \1\n"),
])
def test_who_has_passed_sees_the_compiler_with_the_own_function(name, says):
    with Sitting(KNOWN[name], KNOWN[name].text("solution.py", KNOWN[name].variant), trusted=True) as sitting:
        empty, compiled, following = after_passing(sitting)
    points = KNOWN[name].points / 10
    assert empty == f"PREDICTIONS 1, 2, 3 of 3 are empty, and worth {points:g} of {KNOWN[name].points:g} points" and following == f"next: {KNOWN[name].next}"
    assert re.search(says, compiled) and ("ms.swapped" in compiled or name == "A2")


def test_the_compiler_may_refuse_what_passed_the_items():
    with Sitting(A5, "PREDICTIONS = [1, None]\ndef spans(readers, cost):\n    return {}\n", trusted=True) as sitting:
        said = list(after_passing(sitting))
    assert said[0].startswith("PREDICTIONS 2, 3 of 3") and "still says: your spans: " in said[1]


def test_each_assignment_names_the_next_of_the_eight_weeks():
    order = sorted(KNOWN.values(), key=lambda each: (each.week, int(each.name[1:])))
    assert [each.next for each in order] == [*(f"{each.name} {each.title}" for each in order[1:]), ""]


def test_hints_say_first_what_they_give_away(capsys):
    assert course.main(["hint", "A5", "--assignments", str(HOME)]) == 0
    assert capsys.readouterr().out.count("gives away") == 3
    assert course.main(["hint", "A5", "9", "--assignments", str(HOME)]) == 2


def test_the_list_has_a_line_an_assignment(capsys):
    assert course.main(["list", "--assignments", str(HOME)]) == 0
    rows = capsys.readouterr().out.splitlines()
    (row,) = (row for row in rows if row.startswith("A5 "))
    assert len(rows) == len(KNOWN) and f"about {A5.lines} lines: spans.py, variants reader, own" in row


def test_the_guide_has_the_points_and_minutes_of_every_assignment():
    guide = (HOME.parent.parent / "docs" / "instructors.md").read_text(encoding="utf-8")
    rows = [f"| {each.name} {each.title} | {each.points:g} | {each.minutes} | {each.week} |" for each in KNOWN.values()]
    assert [row for row in rows if row not in guide] == []


# ---------------------------------------------------------------- what instructors read
@CAGED
def test_two_gradings_are_the_same_bytes_but_for_times(tmp_path):
    wrong = solution().replace("spans[value], value)", "spans[value], -value)")
    found = [grade(tmp_path, wrong, "--student", "ada")[1] for _ in range(2)]
    for each in found:
        assert fits_schema(each, SCHEMA)
        each.pop("execution_time")
    assert found[0] == found[1] and 0 < found[0]["score"] < 13.5


@CAGED
def test_a_solution_with_its_predictions_has_all_points(tmp_path):
    with Sitting(A5, solution()) as sitting:
        sitting.secret = "of the tests"
        truths = sitting.answers("Ada")
    text = solution().replace("[None, None, None]", str(truths))
    assert grade(tmp_path, text, "--student", " ada")[1]["score"] == pytest.approx(13.5, abs=0.01)
    without = grade(tmp_path, text)[1]
    assert without["score"] == pytest.approx(12, abs=0.01) and "no student is known" in without["tests"][-1]["output"]


@CAGED
def test_gradescope_says_what_an_item_waits_for(tmp_path):
    _, found = grade(tmp_path, solution() + "\n\ndef spans(readers, cost):\n    return dict.fromkeys(readers, 0)\n")
    outputs = {test["name"]: test["output"] for test in found["tests"]}
    assert "it passes only together with above (hidden) or tight (hidden)" in outputs["roots"] and "None" not in "".join(outputs.values())
    assert "it passes only together with tight" in outputs["pure"]


@CAGED
def test_hidden_items_tell_no_case(tmp_path):
    text = solution() + "\n\ndef grow(root, readers, spans, fits):\n    raise KeyError(repr(readers))\n"
    _, found = grade(tmp_path, text)
    hidden = [test for test in found["tests"] if test["name"].endswith("(hidden)")]
    assert hidden and any(test["status"] == "failed" for test in hidden)
    assert not any(re.search(r"[{\[]|\d+: ", test["output"]) for test in hidden)
    assert all(test["visibility"] == "after_published" for test in hidden)


def broken_course(tmp_path: Path, old: str, new: str) -> list[str]:
    """A course whose A5 has a broken ``items.py``, as words for the command."""
    folder = shutil.copytree(HOME / "A5_spans", tmp_path / "course" / "A5_spans")
    with (folder / "oracle.py").open("a") as file:
        file.write("\n\ndef broken(at):\n    return [][0]\n")
    text = (folder / "items.py").read_text(encoding="utf-8")
    assert old in text
    (folder / "items.py").write_text(text.replace(old, new), encoding="utf-8")
    return ["--assignments", str(folder.parent)]


@CAGED
@pytest.mark.parametrize(("old", "new"), [
    ("        for user in users:\n            least = found", "        for user in [][1:2] or [][0]:\n            least = found"),  # its judge
    ('"above",\n    "A value\'s span is higher than each reader\'s, by at least what the step costs.",\n    draw="draw_values"',
     '"above",\n    "A value\'s span is higher than each reader\'s, by at least what the step costs.",\n    draw="broken"'),
])
def test_a_broken_item_is_the_course_s_fault_and_the_others_are_graded(tmp_path, capsys, old, new):
    found = grade(tmp_path, solution(), *broken_course(tmp_path, old, new))
    said = capsys.readouterr()
    outputs = {test["name"]: test["output"] for test in found[1]["tests"]}
    assert found[0] == 2 and re.search(r"the item 'above \(hidden\)' of A5 is broken, .* no student's: .*(items|oracle)\.py:\d+: IndexError", said.err)
    assert "no student's" in outputs["above"] and "your file is not to blame" in outputs["above (hidden)"].lower()
    assert [test["name"] for test in found[1]["tests"] if not test["score"]][:2] == ["above", "above (hidden)"]


def test_a_broken_file_of_the_course_is_named_by_line_in_every_command(tmp_path, capsys):
    words = broken_course(tmp_path, "def fewer_values(", "def fewer_values((")
    (tmp_path / "spans.py").write_text(solution(), encoding="utf-8")
    for command in (["check", "A5", str(tmp_path / "spans.py")], ["grade", "A5", str(tmp_path / "spans.py"), "--secret", "k"],
                    ["questions", "A5", "--student", "ada"]):
        assert course.main([*command, *words]) == 2
        assert re.search(r"items\.py of A5 is broken, .*items\.py:\d+: SyntaxError", capsys.readouterr().err)
    assert course.main(["verify", "A5", "--jobs", "1", *words]) == 1 and "items.py of A5 is broken" in capsys.readouterr().out
    (tmp_path / "course" / "A5_spans" / "hints.md").unlink()
    assert course.main(["hint", "A5", *words]) == 2 and "hints.md" in capsys.readouterr().err


def test_an_answer_that_takes_for_ever_to_judge_is_ended(monkeypatch):
    monkeypatch.setattr("minisitch.course.sitting.JUDGE_SECONDS", 0.1)
    with Sitting(A5, (HOME / "hostile" / "long_list.py").read_text(encoding="utf-8"), trusted=True) as sitting:
        (found,) = sitting.run(["root first"])
    assert found.kind == "time" and "to judge its answer takes more than" in found.why


def test_a_call_that_the_grader_s_function_cannot_take_is_the_submission_s_error():
    with Cage("def f(ask):\n    return ask(3)\n", "file.py", trusted=True) as cage, pytest.raises(NoAnswer, match="TypeError: 'int'") as caught:
        cage.ask("f", lambda value: list(value))
    assert caught.value.kind == "error"


@CAGED
def test_a_text_that_is_no_program_has_no_points(tmp_path):
    status, found = grade(tmp_path, ")]} no program")
    assert status == 0 and found["score"] == 0 and "SyntaxError in line 1" in found["tests"][0]["output"]


def test_zeros_are_written_even_if_nothing_can_be_graded(tmp_path):
    results = tmp_path / "results.json"
    status = course.main(["grade", "A5", str(tmp_path / "missing.py"), "--assignments", str(HOME), "--secret", "k", "--gradescope", str(results)])
    found = json.loads(results.read_text())
    assert status == 2 and fits_schema(found, SCHEMA) and found["score"] == 0 and "cannot read missing.py" in found["tests"][0]["output"]


def test_a_release_has_no_solution_and_its_zip_is_gradescopes(tmp_path):
    for name in ("one", "two"):
        assert course.main(["release", "A5", "--secret", "KEY", "--to", str(tmp_path / name), "--variant", "own", "--assignments", str(HOME)]) == 0
    files = sorted(path.name for path in (tmp_path / "one" / "A5_spans").iterdir())
    assert files == ["assignment.toml", "cases.json", "handout.md", "hints.md", "items.py", "reward.py", "spans.py"]
    texts = "".join(path.read_text() for path in (tmp_path / "one" / "A5_spans").iterdir())
    assert "KEY" not in texts and "def grow" in texts and "waiting[producer]" not in texts and "reader =" not in texts and "def longest" not in texts
    with zipfile.ZipFile(tmp_path / "one" / "A5-autograder.zip") as packed:
        names = packed.namelist()
        assert {"setup.sh", "run_autograder", "secret", "minisitch/course/child.py", "A5_spans/items.py", "A5_spans/oracle.py"} <= set(names)
        assert not [name for name in names if "wrong" in name]
        assert packed.getinfo("run_autograder").external_attr >> 16 & 0o111
    assert (tmp_path / "one" / "A5-autograder.zip").read_bytes() == (tmp_path / "two" / "A5-autograder.zip").read_bytes()


def test_without_landlock_grade_refuses_and_check_works(monkeypatch):
    from minisitch.course import cage
    monkeypatch.setattr(cage, "landlock_version", lambda: 0)
    with pytest.raises(cage.CageError, match="no Landlock"):
        Cage("", "file.py")
    Cage("", "file.py", trusted=True).close()
