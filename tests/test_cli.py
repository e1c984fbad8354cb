"""The command line: what it prints, where it stops, and that every wrong word is answered with the next step."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minisitch
from minisitch import __main__ as cli
from minisitch.course import __main__ as course
from minisitch.errors import MinisitchError
from minisitch.explain import demo

PROGRAM = '''"""A program for the command line."""
import numpy as np

def softmax(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)

def only(x, /, k):
    return x * k

def first(x):
    return (x[0] if isinstance(x, (list, tuple)) else x) * 2, np.float64(3), "text"

def branches(x):
    return x if x.sum() > 0 else -x

def wrong_shape(x):
    return x + np.ones(7)

def wrong_name(x):
    return undefined

def wrong_index(x):
    return x[0, 0, 0, 0]

def wrong_attribute(x):
    return x.nothing

def wrong_callee(x):
    return wrong_shape(x.T)

def too_large(x):
    raise np._core._exceptions._ArrayMemoryError((2, 2), np.dtype("f4"))

def takes(x, i, target=2, *, seconds=1):
    return x[i] * target

def inplace(x, y):
    y += x

import minisitch
@minisitch.strategy("registered")
def registered(graph, device):
    return minisitch.STRATEGIES["none"](graph, device)

NOT_A_FUNCTION = 3
'''


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def test_arguments_are_files_and_values(program, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.ones((3, 2), np.float32))
    words = ["explain", f"{program}:softmax", "--arg", f"x={tmp_path / 'x.npy'}", "--arg", "axis=0"]
    assert cli.main([*words, "--target", "reference"]) == 0
    assert "f32[3,2] = input" in (out := capsys.readouterr().out) and "axes=(0,)" in out
    assert cli.main(["compare", f"{program}:only", "--arg", "x=f32[2]", "--arg", "k=2.5", "--target", "python"]) == 0


def test_explain_prints_text_or_a_page(program, tmp_path, capsys):
    words = ["explain", f"{program}:softmax", "--arg", "x=f32[4,8]", "--target", "step"]
    assert cli.main(words) == 0
    assert "# after fuse (auto)" in capsys.readouterr().out
    assert cli.main([*words, "--html", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_compare_prints_a_table(program, capsys):
    assert cli.main(["compare", f"{program}:softmax", "--arg", "x=f32[4,8]", "--target", "python"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("strategy") and "astitch" in out


@pytest.fixture(autouse=True)
def forget_registered_strategies():
    yield
    cli.STRATEGIES.pop("registered", None)


def test_strategies_that_the_file_registers(program, capsys):
    words = [f"{program}:takes", "--arg", "x=f32[4,8]", "--arg", "i=2", "--arg", "target=3.0", "--target", "python"]
    assert cli.main(["explain", *words, "--strategy", "registered", "--device", "v100", "--target", "step"]) == 0
    assert "scheduled for v100" in capsys.readouterr().out
    assert cli.main(["compare", *words, "--strategy", "registered,xla", "--strategy", "none", "--device", "a100",
                     "--target", "step"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in out[2:5]] == ["registered", "xla", "none"] and "modelled for a100" in out[5]
    assert cli.main(["compare", *words[:-1], "reference", "--strategy", "none", "--device", "v100"]) == 0
    assert "No kernel was run" in (out := capsys.readouterr().out) and "modelled for v100" in out


STRATEGY = """import minisitch
@minisitch.strategy("registered")
def registered(graph, device):
    return minisitch.STRATEGIES["none"](graph, device)
"""


def test_a_file_stands_for_the_strategies_that_it_registers(program, tmp_path, monkeypatch, capsys):
    mine = tmp_path / "mine.py"
    mine.write_text(STRATEGY)
    words = [f"{program}:softmax", "--arg", "x=f32[4,8]", "--target", "reference"]
    assert cli.main(["compare", *words, "--strategy", f"xla,{mine}"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:4]] == ["xla", "registered"]
    assert cli.main(["explain", *words, "--strategy", str(mine)]) == 0
    assert "# after fuse" in capsys.readouterr().out  # it hands on the plan of another strategy
    monkeypatch.chdir(Path(__file__).resolve().parent.parent)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert cli.main(["bench", "--workload", "lr", "--strategy", str(mine), "--seconds", "0", "--target", "python",
                     "--out", str(tmp_path / "raw.json")]) == 0
    assert "| registered " in capsys.readouterr().out
    mine.write_text("x = 1\n")
    for command in (["compare", *words], ["bench", "--workload", "lr"]):
        assert cli.main([*command, "--strategy", str(mine)]) == 2
        assert "registers no strategy: write @minisitch.strategy('mine')" in capsys.readouterr().err
    mine.write_text(STRATEGY + STRATEGY.split("\n", 1)[1].replace("registered", "second"))
    try:
        assert cli.main(["explain", *words, "--strategy", str(mine)]) == 2
        assert "registers registered, second; name one of them" in capsys.readouterr().err
    finally:
        cli.STRATEGIES.pop("second", None)


@pytest.mark.parametrize("command", ["explain", "compare"])
@pytest.mark.parametrize("name, message", [
    ("wrong_shape", r"program.py:18: ValueError: operands could not be broadcast together .*\n"),
    ("wrong_name", r"program.py:21: NameError: name 'undefined' is not defined\n"),
    ("wrong_index", r"program.py:24: IndexError: too many indices for array: .*\n"),
    ("wrong_attribute", r"program.py:27: AttributeError: 'numpy.ndarray' object has no attribute 'nothing'\n"),
    ("wrong_callee", r"program.py:18: ValueError: .*\n"),
    ("too_large", r"program.py:33: MemoryError: Unable to allocate .*\n"),
])
def test_errors_of_the_users_program_are_one_line(program, command, name, message, capsys):
    assert cli.main([command, f"{program}:{name}", "--arg", "x=f32[4,8]", "--target", "python"]) == 1
    assert re.fullmatch("minisitch: " + message, capsys.readouterr().err)


def test_errors_while_running_are_one_line(program, capsys):
    words = [f"{program}:takes", "--arg", "x=f32[2]", "--arg", "i=i64[40]", "--target", "python"]
    assert cli.main(["compare", *words]) == 1
    assert re.fullmatch(r"minisitch: index \d is out of bounds .*program.py:36\)\n", capsys.readouterr().err)


def test_errors_of_our_own_are_one_line_and_say_how_to_see_more(program, monkeypatch, capsys):
    monkeypatch.setattr(cli, "compare", lambda *_, **__: {}["a bug"])
    words = ["compare", f"{program}:softmax", "--arg", "x=f32[4,8]"]
    assert cli.main(words) == 1
    assert capsys.readouterr().err == "minisitch: KeyError: 'a bug' (a bug of minisitch: MINISITCH_DEBUG=1 shows where)\n"
    monkeypatch.setenv("MINISITCH_DEBUG", "1")
    with pytest.raises(KeyError, match="a bug"):
        cli.main(words)


@pytest.mark.parametrize("value", ["3.5", "[1, 2]", "(1.0, 'a')"])
@pytest.mark.parametrize("command", ["explain", "compare"])
def test_a_program_may_have_no_array(program, command, value):
    assert cli.main([command, f"{program}:first", "--arg", f"x={value}", "--target", "python"]) == 0


@pytest.mark.parametrize("text, message", [
    ("def f(x:\n", "broken.py:1: SyntaxError: '(' was never closed"), ("x = 1\n1 / 0\n", "broken.py:2: ZeroDivisionError: division by zero"),
    ("import sys\nsys.exit(3)\n", "SystemExit: 3; it must run on its own"), ("def f(x): return x\n", "names no function; write FILE.py:FUNCTION"),
    ("x = '\0'\n", "SyntaxError"),
])
def test_a_file_that_is_no_program_is_answered_with_its_line(tmp_path, text, message, capsys):
    path = tmp_path / "broken.py"
    path.write_text(text)
    assert cli.main(["compare", str(path)]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


@pytest.mark.parametrize("words", [["bench", "--seconds", word] for word in ("-1", "nan", "x", "inf")])
def test_numbers_that_are_none_are_refused(words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 2 and "0 or more" in capsys.readouterr().err


def test_version_and_interrupts_and_broken_pipes(program, capsys, monkeypatch):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0 and capsys.readouterr().out == f"minisitch {minisitch.__version__}\n"

    def interrupted(*_, **__):
        raise KeyboardInterrupt
    monkeypatch.setattr(cli, "compare", interrupted)
    assert cli.main(["compare", f"{program}:softmax", "--arg", "x=f32[4,8]"]) == 130
    assert capsys.readouterr().err == "minisitch: interrupted\n"
    words = f"{sys.executable} -m minisitch explain {program}:softmax --arg 'x=f32[4,8]' --target python | true"
    done = subprocess.run(words, shell=True, capture_output=True, text=True, cwd=Path(__file__).parent.parent, timeout=60)
    assert done.returncode == 0 and not done.stderr


@pytest.mark.parametrize("words, message", [
    (["compare", "{program}:softmax", "--arg", "x=f32[2000000,2000000,100]"], "cannot read the type 'f32[2000000,2000000,100]'; "),
    (["compare", "{program}:softmax", "--arg", "x=f32[9000000000,9000000000]"], "with at most 2**44 elements, which no machine's memory holds"),
    (["compare", "{program}:softmax", "--arg", "x=float32[4,8]"], "cannot read the type 'float32[4,8]'; write for example f32[128,768], with one of bool i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64\n"),
    (["compare", "{program}:softmax", "--arg", "x=f32[2]", "--strategy", "xla,magic"], "unknown strategy 'magic'"),
    (["explain", "{program}:softmax", "--arg", "x=f32[2]", "--strategy", "xla,auto"], "unknown strategy 'xla,auto'"),
    (["explain", "{program}:softmax", "--arg", "x=f32[2]", "--strategy", ""], "unknown strategy ''"),
    (["explain", "{program}:softmax", "--arg", "x=f32[2]", "--device", "abacus"], "unknown device 'abacus'; known: cpu, "),
    (["compare", "missing.py:f"], "there is no file missing.py; write FILE.py:FUNCTION"),
    (["compare", "{program}:nothing"], "has no function 'nothing'; it has softmax, only, first, branches, wrong_shape"),
    (["compare", "{program}:NOT_A_FUNCTION"], "has no function 'NOT_A_FUNCTION'"),
    (["compare", "{program}:softmx"], "has no function 'softmx' (is 'softmax' meant?); it has softmax, "),
    (["compare", "{program}:softmax", "--arg", "x=f32[2]", "--arg", "axes=0"], "cannot call softmax(x, axis=-1): got an unexpected keyword argument 'axes'"),
    (["compare", "{program}:softmax", "--arg", "x=f32[2]", "--arg", "x=f32[3]"], "--arg gives an argument twice: x, x"),
    (["compare", "{program}:softmax", "--arg", "x=f32[2]", "--strategy", "astich"], "'astich' (is 'astitch' meant?); take one of"),
    (["compare", "{program}:softmax"], "cannot call softmax(x, axis=-1): missing a required argument: 'x'; write --arg NAME=f32[128,768]"),
    (["compare", "{program}:softmax", "--arg", "y=f32[2]"], "cannot call softmax(x, axis=-1): missing a required argument: 'x'"),
    (["compare", "{program}:softmax", "--arg", "x=f32(2)"], "cannot read the type 'f32(2)'"),
    (["compare", "{program}:softmax", "--arg", "x=f32[64 1024]"], "cannot read the type 'f32[64 1024]'"),
    (["compare", "{program}:softmax", "--arg", "x=f31[2]"], "cannot read the type 'f31[2]'"),
    (["compare", "{program}:softmax", "--arg", "x"], "cannot read --arg 'x'; write --arg x=f32[128,768]"),
    (["compare", "{program}:softmax", "--arg", "x=gone.npy"], "cannot load gone.npy"),
    (["compare", "{program}:softmax", "--arg", "x=f32[2]", "--strategy", "magic"], "unknown strategy 'magic'"),
    (["explain", "{program}:softmax", "--arg", "x=f32[2]", "--html", "/nowhere/x.html"], "cannot write /nowhere/x"),
])
def test_wrong_words_are_answered_in_one_line(program, words, message, capsys):
    assert cli.main([w.format(program=program) for w in words]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and err.startswith("minisitch: ")


def test_a_file_that_does_not_import_is_named(tmp_path, capsys):
    path = tmp_path / "broken.py"
    path.write_text("import nowhere_to_be_found\n")
    assert cli.main(["compare", f"{path}:f"]) == 2
    assert "cannot import" in (err := capsys.readouterr().err) and "nowhere_to_be_found" in err


def test_a_program_that_cannot_be_traced_is_not_a_usage_error(program, capsys):
    assert cli.main(["compare", f"{program}:branches", "--arg", "x=f32[4]"]) == 1
    assert "program.py:15" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["fly"], ["compare"], ["compare", "x.py:f", "--target", "tpu"]])
def test_argparse_answers_unknown_words(words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 2 and "usage" in capsys.readouterr().err


@pytest.mark.parametrize("main, words, said", [
    (cli.main, ["explian", "x.py:f"], "no command 'explian' (is 'explain' meant?); take one of demo, explain, "),
    (cli.main, ["compare", "x.py:f", "--stratgy", "xla"], "minisitch compare: error: unrecognized arguments: --stratgy xla"),
    (cli.main, [], "the command is missing; take one of demo, explain, "), (course.main, [], "the command is missing; take one of list, "),
    (cli.main, ["course"], "no command 'course'; "), (course.main, ["chekc", "A1"], "no command 'chekc' (is 'check' meant?); "),
])
def test_a_mistyped_command_is_answered_with_the_near_one(main, words, said, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2 and said in capsys.readouterr().err


def test_help_says_where_the_course_is_and_what_calibrate_does(capsys):
    for words, parts in ((["-h"], ["\ncourse:  python -m minisitch.course\n", "example: python -m minisitch compare tutorials/00_hello.py:softmax --arg ", " COMMAND ..."]),
                         (["calibrate", "-h"], ["about a minute", "cpu.json", "plans of auto", "Delete the file"])):
        with pytest.raises(SystemExit):
            cli.main(words)
        out = capsys.readouterr().out
        assert all(part in out or part in " ".join(out.split()) for part in parts)


@pytest.mark.parametrize("command", ["explain", "explore"])
def test_what_a_file_prints_is_no_part_of_the_report(tmp_path, command, capsys):
    path = tmp_path / "loud.py"
    path.write_text("print('the file speaks')\ndef f(x):\n    return x + 1\n")
    saved = ["--save", str(tmp_path / "page.html")] if command == "explore" else ["--target", "python"]
    assert cli.main([command, f"{path}:f", "--arg", "x=f32[4]", *saved]) == 0
    said = capsys.readouterr()
    assert "the file speaks" in said.err and "the file speaks" not in said.out


def test_python_dash_m_works_in_a_process(program):
    words = ["compare", f"{program}:softmax", "--arg", "x=f32[2,3]", "--target", "reference"]
    done = subprocess.run([sys.executable, "-m", "minisitch", *words], capture_output=True, text=True,
                          cwd=Path(__file__).parent.parent, timeout=60)
    assert done.returncode == 0 and "No kernel was run" in done.stdout and not done.stderr


def test_importing_the_package_does_not_import_numba():
    check = "import sys, minisitch; print({m.split('.')[0] for m in sys.modules} & {'numba', 'llvmlite', 'hypothesis'})"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True,
                          cwd=Path(__file__).parent.parent)
    assert done.stdout.strip() == "set()"


# ---------------------------------------------------------------- the demo
SMALL = (1, 8, 16)  # texts, bytes, hidden


def test_the_command_ends_well(tmp_path, capsys, monkeypatch):
    """``make demo`` failed for a day: what the command gave back, the page's path, was taken for an exit code."""
    monkeypatch.setattr(cli, "demo", lambda file, report, target: demo.demo(file, report, "python", size=SMALL, strategies=("xla",)))
    text = tmp_path / "text.txt"
    text.write_bytes(b"a small text, again and again")
    assert cli.main(["demo", str(text), "--report", str(tmp_path / "page.html")]) == 0
    assert "max error" in capsys.readouterr().out and (tmp_path / "page.html").exists()


def test_the_demo_prints_a_table_and_writes_a_page(tmp_path):
    text, out = tmp_path / "text.txt", io.StringIO()
    text.write_text("the quick brown fox")
    page = demo.demo(str(text), str(tmp_path / "page.html"), "python", out, SMALL, ["xla", "astitch"])
    said = out.getvalue()
    assert "8 bytes of text.txt" in said and "counted at each of its launches" in said
    assert f"The whole story of astitch, kernel by kernel: {page}" in said
    html = page.read_text()
    assert "every strategy" in html and "matmul" in html and "<script" not in html
    assert "This page shows a GPT block" in html and "bytes read and written by each strategy" in html
    links, places = re.findall(r'<a href="#([^"]+)"', html), re.findall(r'<h2 id="([^"]+)"', html)
    assert links == places and len(set(places)) == len(places) >= 4


def test_the_demo_has_a_text_of_its_own():
    name, text = demo.default_text()
    assert name and len(text) > 100


@pytest.mark.parametrize("content, message", [(None, "cannot use"), ("", "the text is empty")])
def test_the_demo_refuses_what_it_cannot_read(content, message, tmp_path):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_text(content)
    with pytest.raises(MinisitchError, match=message):
        demo.demo(str(path))
    assert cli.main(["demo", str(path)]) == 2, "the words are wrong"
    assert cli.main(["demo", "--report", str(tmp_path / "none" / "page.html")]) == 2


def test_a_short_text_is_repeated():
    tokens, targets = demo.make_batch(b"ab", 2, 5)
    assert tokens.shape == (2, 5) and (tokens[:, 1:] == targets[:, :-1]).all() and set(tokens.ravel()) == {97, 98}


def test_a_program_that_exits_is_named_with_its_line(tmp_path, capsys):
    path = tmp_path / "leaves.py"
    path.write_text("def f(x):\n    raise SystemExit(3)\n")
    assert cli.main(["compare", f"{path}:f", "--arg", "x=f32[2]", "--target", "python"]) == 1
    assert capsys.readouterr().err == "minisitch: leaves.py:2: SystemExit: 3\n"


def test_a_closed_output_and_a_full_disk_are_no_bugs_of_ours(monkeypatch, capsys, program):
    words = ["explain", f"{program}:softmax", "--arg", "x=f32[2]", "--target", "python"]
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.main(words) == 0
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert cli.main(words) == 1
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()
    assert "No space left on device" in (err := capsys.readouterr().err) and "a bug of minisitch" not in err
