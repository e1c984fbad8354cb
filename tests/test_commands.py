"""Every command that a handout, page, tutorial or README shows runs as it is written, where its reader stands.

Long commands get the smallest options that they document (``SMALLEST``); ``make`` is asked what it would do, and ``pip`` only whether
what it would install exists.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import minisitch
from minisitch import __main__ as cli
from minisitch.course import __main__ as course
from minisitch.course import find_assignments
from minisitch.course.assignment import HOME

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
KNOWN = find_assignments(HOME)
OURS = r"(?:python|pip|make|bash|minisitch|pytest) "
SMALLEST = {
    "bench": "--preset small --seconds 0 --target python", "explore": "--save page.html", "benchmarks.correlation": "--seconds 1",
    "benchmarks.judgement": "--workload lr", "benchmarks.optimum": "--programs 1", "verify": "A9 --jobs 1",
}
LONG = ("calibrate", "demo", "tools/measure.py", "tools/gradient_programs.py", "benchmarks.correlation", "verify")
# These take 15 s to minutes: run with -m slow. ``make test`` runs verify itself.
FIRST = {"papers": "lr", "irregular": "64x30000-sum", "kitsune": "dlrm", "cpu": "colsum-512x768"}  # a workload of each suite
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.stem != "instructors"),
         *sorted((ROOT / "tutorials").glob("[0-9]*.py")), ROOT / "minisitch" / "course" / "__init__.py"]


def commands(text: str, program: bool = False) -> list[str]:
    """The commands of a page, in fences, indented, or in a sentence; of a program, those of its comments and docstrings."""
    if program:
        text = re.sub(r"(?m)^# ?", "", text)
    fenced = "\n".join(re.findall(r"(?ms)^ *```(?:console|bash|sh)\n(.*?)^ *```", text))
    prose = re.sub(r"(?ms)^ *```.*?^ *```", "", text)
    rows = re.findall(rf"(?m)^ *(?:\$ )?({OURS}.*)$", fenced) + re.findall(rf"(?m)^    (?:\$ )?({OURS}.*)$", prose)
    inline = [" ".join(each.split()) for each in re.findall(rf"(?<!`)`({OURS}[^`]+)`(?!`)", prose)]
    return list(dict.fromkeys([row.partition("  #")[0].strip() for row in rows] + inline))


def run(command: str, folder: Path, monkeypatch, capsys) -> tuple[int, str]:
    """Run one command of ours in a folder. Returns its status and what it said."""
    tool, *words = shlex.split(command)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setenv("MINISITCH_DEVICE", str(folder / "cpu.json"))
    capsys.readouterr()
    if tool == "pip":
        return installable(words), command
    if "pytest" in (tool, *words[:2]):
        return selects_nothing(words[words.index("pytest") + 1:] if tool == "python" else words), command
    if tool in ("make", "bash"):
        done = subprocess.run([tool, "-n", *words], capture_output=True, text=True)
    elif words[:2] == ["-m", "minisitch.course"]:
        return course.main(smallest(words[2:])) if words[2:] else help_of(course), "".join(capsys.readouterr())
    elif words[:2] == ["-m", "minisitch"]:
        return cli.main(smallest(words[2:])), "".join(capsys.readouterr())
    else:
        words += smallest(words[1:])[len(words) - 1:] if words[0] == "-m" else []
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    return done.returncode, done.stdout + done.stderr


def help_of(tool) -> int:
    with pytest.raises(SystemExit) as ended:
        tool.main([])
    return 0 if ended.value.code == 2 else 1  # it lists the commands


def smallest(words: list[str]) -> list[str]:
    """A command with the smallest options that it documents, where it would take long, or not end."""
    more = SMALLEST.get(words[0], "").split()
    if words[0] == "bench":
        suite = words[words.index("--suite") + 1] if "--suite" in words else "cpu" if "--peers" in words else "papers"
        if "--workload" in words:  # known, and too long here
            at = words.index("--workload")
            assert all((ROOT / "benchmarks" / "models" / f"{name}.py").exists() for name in words[at + 1].split(","))
            words = words[:at] + words[at + 2:]
        return [*words, *more, "--workload", FIRST[suite], "--out", "raw.json"]
    return words if "--save" in words else words + more


def selects_nothing(words: list[str]) -> int:
    """0 if pytest knows the marks, and some test has each of the words."""
    options = dict(zip(words[::2], words[1::2], strict=False))
    marks = [each.partition(":")[0] for each in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]["markers"]]
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    wanted = [word for word in options.get("-k", "").split() if word not in ("or", "and", "not")]
    return int(options.get("-m", marks[0]) not in marks or not all(re.search(rf"def test_\w*{word}", tests) for word in wanted))


def installable(words: list[str]) -> int:
    """0 if what pip would install exists: this project, an extra of it, its wheel, or somebody else's package."""
    wheel = f"minisitch-{minisitch.__version__}-py3-none-any.whl"
    extras = {f"{of}[{extra}]" for extra in PROJECT["optional-dependencies"] for of in ("minisitch", ".")}
    fine = {".", wheel, *extras, "nvidia-cublas"}
    return int(words[0] not in ("install", "wheel") or not {each for each in words[1:] if not each.startswith("-")} & fine)


@pytest.fixture
def clone(tmp_path):
    """The files of the repository, without its history."""
    left_out = shutil.ignore_patterns(".*", "__pycache__", "build", "site", "golden", "results")
    made = shutil.copytree(ROOT, tmp_path / "minisitch", ignore=left_out)
    shutil.copytree(ROOT / "benchmarks" / "results", made / "benchmarks" / "results")
    return made


ON_PAGES = dict.fromkeys(command for page in PAGES for command in commands(page.read_text(encoding="utf-8"), page.suffix == ".py"))


@pytest.mark.parametrize("command", [pytest.param(each, marks=pytest.mark.slow) if set(each.split()) & set(LONG) else each for each in ON_PAGES])
def test_a_command_of_a_page_runs_in_a_clone(command, clone, monkeypatch, capsys):
    """A check of an empty starter, and a doctor of a machine that lacks something, end with 1; what needs a GPU says so."""
    asks = any(word in command for word in (" check ", " show ", " doctor"))
    for each in ON_PAGES:  # the reader has made a starter before
        if " starter " in each and " starter " not in command and KNOWN.keys() & set(each.split()) & set(command.split()):
            run(each, clone, monkeypatch, capsys)
    status, said = run(command, clone, monkeypatch, capsys)
    assert status in ((0, 1) if asks else (0,)) or "DeviceError" in said, said
    assert "Traceback" not in said or "DeviceError" in said, said


# ---------------------------------------------------------------- handouts
@pytest.mark.parametrize("each", KNOWN.values(), ids=lambda each: each.name)
@pytest.mark.parametrize("place", ["release", "clone"])
def test_the_commands_of_a_handout_run_where_the_student_stands(each, place, tmp_path, clone, monkeypatch, capsys):
    """In the folder from the instructor, whatever its name is by then, and in a clone; and so do those that the tool prints."""
    folder = clone
    for name in (each.file, f"{each.name}-handout.md"):
        (clone / name).unlink(missing_ok=True)
    if place == "release":
        (tmp_path / "roster.csv").write_text("id,address,file\n1,NAME,name\n")  # the handout calls the student so
        words = ["release", each.name, "--secret", "k", "--to", str(tmp_path), "--roster", str(tmp_path / "roster.csv")]
        assert course.main([*words, "--assignments", str(HOME)]) == 0
        folder = (tmp_path / each.folder.name).rename(tmp_path / "hw1")
    left = [command for name in ("handout.md", "hints.md") for command in commands(each.text(name, each.variant))]
    left += commands(each.starter(each.variant), program=True)
    assert len(left) >= 4
    done: list[str] = []
    while left:
        command = left.pop(0)
        status, said = run(command, folder, monkeypatch, capsys)
        expected = 1 if " check " in command or " show " in command else 0  # nothing is written yet
        assert status == expected and "course:" not in said and "Traceback" not in said, said
        done.append(command)
        left += [new for new in re.findall(rf"(?m)({OURS}-m minisitch.*)$", said) if new not in done + left]
    assert any(" check " in command for command in done)


def test_an_installed_wheel_and_a_folder_from_the_instructor_are_enough(tmp_path, clone):
    """What a wheel has is the package. The tool says where assignments come from, if there are none."""
    shutil.copytree(clone / "minisitch", tmp_path / "installed" / "minisitch")
    assert course.main(["release", "A1", "--secret", "k", "--to", str(tmp_path), "--assignments", str(HOME)]) == 0
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    for folder, status, says in (("A1_maps", 1, "0 of 12 visible items"), ("installed", 2, "the folder that your instructor gave you")):
        words = [sys.executable, *"-m minisitch.course check A1 fuse_maps.py".split()]
        done = subprocess.run(words, cwd=tmp_path / folder, env=environment, capture_output=True, text=True)
        assert done.returncode == status and says in done.stdout + done.stderr


def test_every_handout_says_how_to_install_this_version():
    for each in KNOWN.values():
        wheel, in_a_clone, *_ = commands(each.text("handout.md", each.variant))[3:]
        assert (wheel, in_a_clone) == (f"pip install minisitch-{minisitch.__version__}-py3-none-any.whl", "pip install -e .")
