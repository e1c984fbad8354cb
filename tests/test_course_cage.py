"""The cage and the stepper of the course: what a submission answers, and what it cannot reach."""

from __future__ import annotations

import contextlib
import json
import os
import re

import numpy as np
import pytest
from course_help import A2, A5, CAGED, solution

from minisitch.course import (
    Cage,
    CourseError,
    KernelLaunch,
    NoAnswer,
    Refusal,
    Sitting,
)
from minisitch.course.assignment import HOME, read_submission
from minisitch.course.child import decode, encode
from minisitch.course.hostile import grade_attacks
from minisitch.course.items import conforms, seeded
from minisitch.course.kernels import Bench, kernel_text


# ---------------------------------------------------------------- values and seeds
@pytest.mark.parametrize("value", [None, True, 3, 0.1, float("inf"), "a", [1, [2]], (1, (2,)), {1: [2], "a": (3,)}, {1, 2}, {(1, 2): {}}])
def test_plain_values_survive_the_pipe(value):
    found = decode(json.loads(json.dumps(encode(value))))
    assert found == value and type(found) is type(value)


def test_what_is_not_plain_is_refused_in_words():
    with pytest.raises(TypeError, match=r"numpy\.int64 .* write x\.tolist\(\)"):
        encode([np.int64(3)])
    with pytest.raises(TypeError, match=r"numpy\.ndarray .* write x\.tolist\(\)"):
        encode(np.zeros(3))


def test_types_are_exact():
    assert conforms({1: [2]}, dict[int, list[int]]) and conforms(([1], [2]), tuple[list[int], list[int]])
    assert not conforms({1: True}, dict[int, int]) and not conforms([1, 2], tuple[int, int]) and not conforms((1,), tuple[int, int])


def test_seeds_depend_on_the_key_and_on_all_that_they_are_for():
    draws = {seeded(key, *what).random() for key in ("a", "b") for what in (("A5", "above"), ("A5", "tight"), ("A5above",))}
    assert len(draws) == 6 and seeded("a", "A5").random() == seeded("a", "A5").random()


# ---------------------------------------------------------------- the cage
def test_a_cage_answers():
    with Cage("def twice(x):\n    return x * 2\nN = 3\n", "file.py", trusted=True) as cage:
        assert cage.ask("twice", [1]) == [1, 1] and cage.value("N") == 3


def test_a_submission_may_call_a_function_of_the_parent():
    calls = []
    with Cage("def f(ask):\n    return [ask(n, (n,)) for n in range(3)]\n", "file.py", trusted=True) as cage:
        assert cage.ask("f", lambda n, pair: calls.append((n, pair)) or n * 10) == [0, 10, 20]
    assert calls == [(0, (0,)), (1, (1,)), (2, (2,))]


@pytest.mark.parametrize(("body", "kind", "text"), [
    ("raise NotImplementedError('f')", "not tried", "line 2"),
    ("return 1 / 0", "error", "ZeroDivisionError in line 2"),
    ("raise SystemExit(0)", "error", "SystemExit"),
    ("import os; os._exit(0)", "died", "ended before it answered"),
    ("return object()", "error", "a object is in what you return"),
    ("while True: pass", "time", "within 0.5 s"),
    ("__import__('sys').modules['__main__'].json.dumps = lambda value: 'forged'", "forged", "no answer"),
    ("return bytearray(4 << 30)", "died", "memory"),
    ("import minisitch", "error", "ModuleNotFoundError"),
])
def test_what_is_no_answer_has_a_kind(body, kind, text):
    with Cage(f"def f():\n    {body}\n", "file.py", trusted=True) as cage, pytest.raises(NoAnswer, match=text) as caught:
        cage.ask("f", seconds=0.5 if kind == "time" else 20)
    assert caught.value.kind == kind


def test_no_process_survives_its_cage():
    with Cage("def f():\n    while True:\n        pass\n", "file.py", trusted=True) as cage:
        number = cage.process.pid
        with pytest.raises(NoAnswer):
            cage.ask("f", seconds=0.2)
        assert not cage.alive
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


@CAGED
def test_a_submission_changes_no_process_and_no_rights_of_files():
    """Each of these is refused although it may do them to itself: so also to a grader that runs as the same user."""
    body = """
import ctypes, os
library = ctypes.CDLL(None)
def f():
    memory = os.memfd_create("mine")
    limits = (ctypes.c_ulong * 2)(1, 1)
    changes = {
        "limits": lambda: library.prlimit(0, 4, limits, None) and os.close(-1),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, 19),
        "processors": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
        "signals": lambda: library.fcntl(memory, 8, os.getpid()) and os.close(-1),
        "rights": lambda: os.fchmod(memory, 0),
        "times": lambda: os.utime(memory),
        "attributes": lambda: os.setxattr(memory, "user.x", b"1"),
        "nothing": lambda: os.write(memory, b"x"),
    }
    done = []
    for name, change in changes.items():
        try:
            change()
            done.append(name)
        except OSError:
            pass
    return done
"""
    with Cage(body, "file.py") as cage:
        assert not cage.protections["seccomp"] or cage.ask("f") == ["nothing"]


SAMPLE = ("strange_questions", "exit_in_answer", "fork_and_leave", "fork_many", "flood", "forge_on_all_files", "parent_memory",
          "read_from_grader_path", "write_results", "tell_in_errors")  # all are graded by `course verify --hostile`



@CAGED
def test_attacks_gain_nothing_beside_a_solution():
    files = {f"{name}.py".encode(): (HOME / "hostile" / f"{name}.py").read_bytes() for name in SAMPLE}
    found = list(grade_attacks(A5, files, {b"solution.py": solution().encode()}))
    assert len(found) == 2 + len(SAMPLE) and not [each for each in found if each.problem]


@CAGED
def test_points_that_an_attack_or_an_odd_file_should_not_have_are_found():
    text = solution().encode()
    found = {each.name: each.problem for each in grade_attacks(A5, {b"cheat.py": text}, {b"solution.py": text, b"odd.py": b"x = 1"})}
    assert "scored 12.00, not 0.00" in found["cheat.py"] and "scored 0.00, not 12.00" in found["odd.py"] and not found["solution.py"]


@CAGED
@pytest.mark.parametrize("name", ["ignore_sigterm", "import_compiler", "kill_grader", "tcp", "udp"])
def test_an_attack_gets_no_right_answer_out_of_its_cage(name):
    """The same attacks without the rest of the grader, which starts a process for each of its items."""
    cages = []
    with contextlib.suppress(NoAnswer):
        cages.append(Cage((HOME / "hostile" / f"{name}.py").read_text(encoding="utf-8"), "spans.py"))
        assert cages[0].ask("spans", {0: [1], 1: []}, {0: 1, 1: 1}, seconds=0.5) == {}  # what is no answer to this question
    for cage in cages:
        cage.close()
        assert not cage.alive


def test_a_symbolic_link_is_not_read(tmp_path):
    (tmp_path / "spans.py").symlink_to(HOME / "A5_spans" / "solution.py")
    for path in (tmp_path, tmp_path / "spans.py"):
        with pytest.raises(CourseError, match="symbolic link"):
            read_submission(path, A5)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "spans.py")
    with pytest.raises(CourseError, match="not a plain file"):
        read_submission(tmp_path / "pipe", A5)


# ---------------------------------------------------------------- kernels
REVERSE = """
import numpy as np
PREDICTIONS = [3, (1, None)]
SIZE = 32

def reverse(x, y):
    s, t = 1, 2  # a later one replaces it

def depths(n):
    return [n for _ in range(n)]

def reverse(x, y):
    s = cuda.shared.array(SIZE, np.float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    y[t] = s[31 - t]
"""
X = np.arange(32, dtype=np.float32)


def launch(**changed) -> KernelLaunch:
    return KernelLaunch(**{"arrays": {"x": X, "y": 0 * X}, "grid": 1, "block": 32, "outputs": ("y",), **changed})


def test_a_kernel_is_stepped_and_not_run():
    bench = Bench(REVERSE, ["depths"])
    run = bench.ask("reverse", launch())
    assert run.arrays["y"].tolist() == X[::-1].tolist() and run.arrays["y"].dtype == np.float32
    assert run.traffic.loads == 32 and run.traffic.block_barriers_each == 1 and "loads" in repr(run)
    assert bench.value("PREDICTIONS") == [3, (1, None)]


@pytest.mark.parametrize(("change", "rule", "line"), [
    (("    y[t] =", "    if t: y[t] ="), "unwritten-output", 17),
    (("    cuda.syncthreads()", "    while True: cuda.syncthreads()"), "endless", 16),
    (("SIZE = 32", "SIZE = 32000"), "memory-limit", 13),
    (("    cuda.syncthreads()", "    open('/etc/passwd')"), "outside-dialect", 16),
    (("def reverse(x, y):\n    s = cuda", "def reverse(x, y, n):\n    s = cuda"), "parameters", 0),
    (("SIZE = 32", "SIZE = 32" + " " * 40_000), "too long", 0),
])
def test_a_kernel_is_refused_by_rule_and_line_of_the_file(change, rule, line):
    assert REVERSE.count(change[0]) == 1
    with pytest.raises(Refusal) as caught:
        Bench(REVERSE.replace(*change), ["depths"]).ask("reverse", launch())
    assert (caught.value.rule, caught.value.line) == (rule, line)


def test_a_kernel_that_is_not_there_or_not_tried():
    for text, kind in (("def reverse(x, y):\n    raise NotImplementedError('reverse')\n", "not tried"), ("X = 1\n", "error"),
                       ("reverse = 3\n", "error")):
        with pytest.raises(NoAnswer) as caught:
            Bench(text, ()).ask("reverse", launch())
        assert caught.value.kind == kind


def test_a_file_of_kernels_alone_is_read_as_a_whole():
    assert "depths" in kernel_text(REVERSE, "reverse", ()) and "PREDICTIONS" not in kernel_text(REVERSE, "reverse", ())
    with pytest.raises(Refusal, match="import os"):
        Bench("import os\n" + REVERSE, ()).ask("reverse", launch())
    used = kernel_text(REVERSE, "reverse", ["depths"])
    assert "depths" not in used and used.count("def reverse") == 1 and len(used.splitlines()) == len(REVERSE.splitlines())


HOSTILE_KERNELS = ("attribute_walk", "clear_the_counts", "deep_minus", "deep_nesting", "default_argument", "giant_number", "giant_text",
                   "huge_exponent", "huge_shared_memory", "import_at_the_top", "leaves_at_once", "long_tuple", "names_of_the_judge",
                   "replaces_the_kernel", "thousand_million_rounds", "walrus", "wide_letters")
# all are graded by `course verify --hostile`


@pytest.mark.parametrize("name", HOSTILE_KERNELS)
def test_a_hostile_kernel_is_refused(name):
    case = next(A2.cases(A2.items[0], "visible", "weights"))
    with pytest.raises(NoAnswer) as caught:
        Bench((HOME / "hostile" / "kernels" / f"{name}.txt").read_text(encoding="utf-8"), ()).ask("softmax", case)
    assert caught.value.kind in ("refused", "error")


@pytest.mark.parametrize("name", ["writes_its_input", "not_a_number", "predictions"])
def test_a_hostile_kernel_that_is_stepped_passes_nothing(name):
    with Sitting(A2, (HOME / "hostile" / "kernels" / f"{name}.txt").read_text(encoding="utf-8"), trusted=True) as sitting:
        assert not [each.name for each in sitting.run() if each.passed] and sitting.predicted() in ([], [None] * 3)


def test_predictions_in_a_file_of_kernels_are_read_and_not_run():
    text = A2.text("solution.py", "weights").replace("(None, None, None)", "(4, None, [True, 'a'])")
    with Sitting(A2, text, trusted=True) as sitting:
        assert sitting.predicted() == [4, None, [True, "a"]]
    with Sitting(A2, text.replace("(4,", "(open('x'),"), trusted=True) as sitting:
        assert sitting.predicted() == []


@pytest.mark.parametrize("barrier", "ABCDE")
def test_a_missing_barrier_costs_the_points_of_the_race_alone(barrier):
    """The kernel is stepped again in lockstep, where it is right: so every other rule was kept."""
    text = A2.text("solution.py", "weights").replace(f"cuda.syncthreads()  # {barrier}", f"pass  # {barrier}")
    with Sitting(A2, text, secret="k", trusted=True) as sitting:
        found = {each.name: each.status for each in sitting.run()}
    assert (found.pop("no race"), found.pop("no race (hidden)")) == ("FAIL", "FAIL") and set(found.values()) == {"pass"}


def test_a_wrong_kernel_with_a_race_is_wrong():
    text = A2.text("solution.py", "weights").replace("cuda.syncthreads()  # C", "pass  # C").replace("total += kept", "total += 2 * kept")
    with Sitting(A2, text, trusted=True) as sitting:
        assert {each.name: each.status for each in sitting.run(["right", "no race"])} == {"right": "FAIL", "no race": "FAIL"}


def test_a_kernel_in_which_another_rule_is_broken_is_refused():
    text = A2.text("solution.py", "weights").replace("total = ZERO\n    for col in range(thread, x.shape[1]", "total = ZERO\n    for col in range(thread, 1 + x.shape[1]")
    with Sitting(A2, text, trusted=True) as sitting:
        found = {each.name: each.status for each in sitting.run()}
    assert [found.pop(name) for name in ("inside", "extremes", "shared bytes")] == ["FAIL", "FAIL", "waits for work"]
    assert set(found.values()) == {"refused"}


def refusal(old: str, new: str) -> str:
    """What the item about races says of the solution of A2, changed."""
    text = A2.text("solution.py", "weights")
    assert old in text
    with Sitting(A2, text.replace(old, new, 1), trusted=True) as sitting:
        return next(each.why for each in sitting.run() if each.status == "FAIL")


def test_a_race_is_told_by_rule_cell_lines_and_one_order_without_its_cure():
    said = refusal("cuda.syncthreads()  # C", "top = top  # C")
    assert re.match(r"race: part\[\d+\]: a (store|load) by block \d thread \d+ and a (store|load) by", said) and said.count("\n  line ") == 2
    assert re.search(r"one order: (block \d thread \d+) does line \d+, then (block \d thread \d+) does line \d+; in another order \2 is first", said)
    assert "syncthreads() " not in said and "put " not in said and "barrier between" not in said


def test_a_barrier_under_an_if_is_named_with_the_condition():
    said = refusal("    cuda.syncthreads()  # B", "        cuda.syncthreads()  # B")
    assert re.search(r"line \d+ is a barrier, but only threads with thread < step pass it", said)
