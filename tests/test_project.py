"""Rules of the project itself: nothing of one machine is committed, everything public says what it does."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from size import AFTERNOON, BUDGETS, ROAD, closure, code_lines, figures, tokens  # noqa: E402

FIGURES = cache(figures)  # two seconds, which every worker would take at its start
PACKAGE = sorted((ROOT / "minisitch").rglob("*.py"))
CUDA_WORDS = (  # docs/words.md begins with these, in this order
    "kernel", "launch", "thread", "block", "grid", "warp", "lane", "multiprocessor", "occupancy", "register", "shared memory",
    "global memory", "barrier", "shuffle", "race", "atomic operation", "acquire and release",
)
WORDS = (  # and defines these of the papers, and ours
    "beam search", "body", "column-reduce", "composition", "decision", "delta-evaluator", "demotion", "dominant", "entry", "epilogue",
    "fan-in and final", "fold", "give-up set", "group", "horizontal packing", "latency-evaluator", "layer", "library call", "load balance",
    "memory-intensive", "merge", "multicast", "one-to-many", "pass", "pattern", "patternreduction", "payload", "phase", "pipeline",
    "placement", "queue", "reduction tree", "remote fusion", "root", "row-reduce", "scheme", "segment", "span", "stage", "stepper",
    "stitching", "strategy", "sub-dominant", "sub-root", "subgraph", "task", "task splitting", "template", "thread mapping", "tile",
    "traffic", "vertex", "vertical packing", "wave",
)
MOST_WORDS, MOST_OF_OURS = 75, 10
BOLD_WORDS = ("packing", "thread", "warp", "block", "independent", "local", "regional", "global", "light", "heavy")


def tracked_files() -> list[Path]:
    """The files of the commit, or of the folder where there is no git (a source distribution)."""
    try:
        listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return [*PACKAGE, *ROOT.glob("*.*"), *(ROOT / "docs").rglob("*.md")]
    return [ROOT / name for name in listing.splitlines() if (ROOT / name).is_file()]


def test_no_file_knows_one_machine():
    """No home folder, no package index, no private host: a clone behaves the same everywhere."""
    machine = re.compile(r"/(home|Users|root|work|mnt|opt)/\w|index[-]url|find[-]links|trusted-host"
                         r"|https?://(localhost|127\.|10\.|192\.168\.)", re.I)
    found = []
    for path in tracked_files():
        if path == Path(__file__) or path.suffix in (".png", ".typed"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if machine.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", PACKAGE, ids=lambda p: str(p.relative_to(ROOT / "minisitch")))
def test_everything_public_has_a_docstring(path):
    """A reader never meets a public function, class or module that does not say what it is for.

    A function of up to four lines may speak for itself, as does one that a decorator registers under NumPy's name;
    a class's docstring speaks for its methods.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    missing = [] if ast.get_docstring(tree) else ["the module"]
    for node in tree.body:
        public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        registered = isinstance(node, ast.FunctionDef) and node.decorator_list
        short = (node.end_lineno or 0) - node.lineno <= 3
        if public and not short and not registered and ast.get_docstring(node) is None:
            missing.append(node.name)
    assert not missing, f"no docstring: {', '.join(missing)}"


def test_every_word_is_defined_once_and_in_order():
    """CUDA's words first, as a reader needs them; then the papers', then ours, each by the alphabet."""
    _, cuda, papers, ours = re.split(r"^# .+$", (ROOT / "docs" / "words.md").read_text(encoding="utf-8"), flags=re.M)[1:]
    lists = [[heading.split(",")[0].lower() for heading in re.findall(r"^## (.+)$", part, re.M)] for part in (cuda, papers, ours)]
    assert tuple(lists[0]) == CUDA_WORDS
    for names in lists[1:]:
        assert names == sorted(names, key=lambda name: name.replace("-", " "))
    names = [name for part in lists for name in part]
    assert len(set(names)) == len(names) <= MOST_WORDS and len(lists[2]) <= MOST_OF_OURS
    assert not set(WORDS) - set(names), f"words.md lacks {sorted(set(WORDS) - set(names))}"


def test_the_kinds_of_scheme_and_composition_are_defined():
    text = (ROOT / "docs" / "words.md").read_text(encoding="utf-8")
    bold = {word.lower() for word in re.findall(r"\*\*([\w-]+)\*\*", text)}
    assert not set(BOLD_WORDS) - bold


@pytest.mark.parametrize("what", BUDGETS)
def test_the_package_stays_within_its_budgets(what):
    """Comments and docstrings are free; what outgrows the budget becomes two files, never denser lines."""
    assert FIGURES()[what] <= BUDGETS[what]


def test_the_road_is_what_is_imported():
    """The number in the README is the budget, and nothing that the road needs is left out."""
    road = closure(ROAD)
    assert {"ops", "graph", "device", "fuse", "stitch.index", "kernel.ir", "kernel.text", "errors"} <= set(road)
    assert not {"runtime", "lower", "strategies.auto", "strategies.prices"} & set(road)
    assert f"{BUDGETS['road, code lines']:,} code lines" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_the_files_to_read():
    """All files of the afternoon path, and no file that is gone."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    order = text[text.index("To read the road"):text.index("`docs/words.md` defines the terms")]
    named = {name.rstrip("/").removesuffix("/__init__").rsplit("/")[-1] for name in re.findall(r"`([\w/]+)`", order)} - {"minisitch", "stitch"}
    last = {module: module.rsplit(".")[-1] for module in (*AFTERNOON, *closure(ROAD), "stitch.compose", "passes.registry")}
    assert {last[module] for module in AFTERNOON} <= named <= set(last.values())


def test_tokens_are_names_numbers_strings_and_operators():
    assert tokens('"""Doc."""\nx = f(1, "a")  # no\n') == 8


def test_code_lines_do_not_count_what_explains():
    text = '"""A module.\n\nThree lines."""\n\n# why\ndef f(x):\n    """Say what."""\n    return [x,\n            x]\n'
    assert code_lines(text) == 3


def test_extras_of_the_constraints_file_are_exact_and_carry_no_address():
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert line.startswith("#") or re.fullmatch(r"[\w.-]+==[\w.]+( ;.*)?", line), line
