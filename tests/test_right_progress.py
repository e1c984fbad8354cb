"""A first call that takes long says so: a line on stderr, a warning of a loop that is unrolled, an error where it would never end."""

import contextlib
import functools
import os
import pty
import subprocess
import sys
import warnings
from pathlib import Path

import children
import numpy as np
import pytest
from growth import calls_of

import minisitch as ms
from minisitch.errors import progress
from minisitch.trace import recorder

SLOW = """
import os, sys, threading, numpy as np, minisitch as ms
def slow(x):
    for i in range(4):
        x = np.tanh(x * 2.0 + i) @ np.ones((8, 8))
    return x
{how}
"""
CALL = "ms.jit(slow)(np.ones((8, 8)))"
ROOT = Path(__file__).parent.parent
SETTINGS = {"MINISITCH_CACHE": "off", "MINISITCH_PROGRESS": "0.05"}


def run(how=CALL):
    return children.run(SLOW.format(how=how), ROOT, check=True, **SETTINGS)


def test_a_slow_call_says_what_it_does_and_how_far_it_is():
    done = run()
    first, *_, last = lines = done.stderr.splitlines()
    assert done.stdout == "" and all(line.startswith("minisitch: slow: ") and line.endswith(" s") for line in lines)
    assert any(stage in first for stage in ("tracing, ", "planning ", "writing ", "compiling kernel 1 of 4"))
    assert any("compiling kernel " in line and " of " in line for line in lines) and ": finished, " in last


def test_a_fast_call_says_nothing_and_it_can_be_turned_off():
    call = "os.environ['MINISITCH_PROGRESS'] = '{}'; ms.jit(slow, target='python')(np.ones((8, 8)))"
    calls = [*(call.format(after) for after in ("60", "0", "off")), "print('now it speaks', file=sys.stderr)", call.format("0.001")]
    silent, spoken = run("\n".join(calls)).stderr.split("now it speaks\n")
    assert silent == "" and spoken


def test_compare_says_which_strategy_is_stepped(monkeypatch):
    """A slow comparison is not blamed on the stage before: stepping takes all the time."""
    said, module = [], sys.modules["minisitch.explain.compare"]
    monkeypatch.setattr(module, "now", said.append)
    for target, doing in (("step", "stepping"), ("python", "running")):
        ms.compare(np.exp, "f32[4]", target=target, strategies=("astitch", "xla"))
        assert [words for words in said if doing in words] == [f"{doing} astitch", f"{doing} xla"]


def test_a_terminal_has_one_line_which_is_erased():
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", SLOW.format(how=CALL)], env=os.environ | SETTINGS, check=True, timeout=120, stderr=theirs)
    os.close(theirs)
    written = ""
    with contextlib.suppress(OSError):  # Linux: the other side is closed
        while part := os.read(ours, 1 << 16):
            written += part.decode()
    os.close(ours)
    assert "\n" not in written and written.startswith("\r\x1b[Kminisitch: slow: ") and written.endswith("\r\x1b[K")
    assert written.count("\r\x1b[K") > 2


def test_threads_share_one_line():
    threads = f"work = [threading.Thread(target=lambda: {CALL}) for _ in range(3)]\nfor w in work: w.start()\nfor w in work: w.join()"
    lines = run(threads).stderr.splitlines()
    assert lines and all(line.startswith("minisitch: slow: ") for line in lines)
    assert sum("finished" in line for line in lines) <= 3


def test_an_error_ends_the_line_and_the_setting_is_checked(monkeypatch, capsys):
    monkeypatch.setenv("MINISITCH_PROGRESS", "0.001")
    with pytest.raises(ZeroDivisionError), progress.working("f"):
        while not progress._shown:
            pass
        raise ZeroDivisionError
    assert capsys.readouterr().err.endswith(": finished, 0 s\n") and not progress._shown
    monkeypatch.setenv("MINISITCH_PROGRESS", "soon")
    with pytest.raises(ms.MinisitchError, match="MINISITCH_PROGRESS='soon' is not a number; set it to the seconds"):
        ms.jit(np.sin)(np.ones(3))


# ---------------------------------------------------------------- loops
def one_line(x, n):
    for _ in range(n):
        x = x + 1
    return x


def step(x):
    x = x * 2
    return x - 1


def body(x, n):
    for _ in range(n // 100):
        for _ in range(50):
            x = step(x)
    return x


def reduced(x, n):
    return functools.reduce(lambda total, _: total + 1, range(n), x)


def three_loops(x, n):
    for _ in range(n // 4):
        x = x + 1
    for _ in range(n // 4):
        x = x - 1
    for _ in range(n // 4):
        x = x * 3
    return x


def warned(function, n):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        ms.trace(function, (np.ones(3), n))
    return [w for w in seen if issubclass(w.category, ms.LoopWarning)]


def line_of(function, offset):
    return function.__code__.co_firstlineno + offset


@pytest.mark.parametrize(("function", "at", "said"), [
    (one_line, 2, f"the loop at line {line_of(one_line, 1)}"), (body, 3, f"the loop at line {line_of(body, 2)}"),
    (reduced, 1, "this line")])
def test_a_loop_is_warned_of_once_with_its_line(function, at, said):
    (warning,) = warned(function, 4_100)
    assert (warning.filename, warning.lineno) == (__file__, line_of(function, at))
    assert f"test_right_progress.py:{line_of(function, at)}: {said} has recorded 2,000 operations" in str(warning.message)
    assert issubclass(ms.LoopWarning, ms.MinisitchError)


def test_no_loop_of_2000_operations_is_no_warning():
    assert not warned(one_line, 1_900) and not warned(three_loops, 6_000)


def test_a_loop_around_the_traced_function_is_none_of_its_loops():
    for _ in range(3):
        assert not warned(one_line, 600)


def test_200000_operations_are_an_error(monkeypatch):
    assert (recorder.MANY, recorder.MOST) == (2_000, 200_000)
    monkeypatch.setattr(recorder, "MOST", 3_000)
    with pytest.warns(ms.LoopWarning), pytest.raises(ms.TraceError, match=rf"test_right_progress.py:{line_of(one_line, 2)}: 3,000 op"):
        ms.trace(one_line, (np.ones(3), 10_000))


def test_what_is_known_is_not_worked_out_again():
    """A table of plain numbers that is filled and asked in a loop; the work is counted in calls."""
    def asked(x, n):
        w = np.zeros(n)
        for i in range(1, n):
            w[i] = w[i - 1] * 0.5 + 1
            if float(w[i]) > 1.9:
                x = x + w[i]
        return x

    few, many = (calls_of(functools.partial(ms.trace, asked, (np.ones(3), n))) for n in (20, 40))
    assert many < 2.5 * few
