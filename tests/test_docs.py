"""The documentation is a set of programs: what a page shows was run, what it names exists."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from textwrap import indent

import pytest
from children import run as run_program

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from draw_pictures import PICTURES  # noqa: E402
from render_docs import (  # noqa: E402
    CODE,
    ROOM,
    answers,
    cells,
    find_assignments,
    modules,
    render_handout,
    render_page,
    render_room,
    render_tutorial,
    symbol_source,
)

PAGES = sorted((ROOT / "docs").rglob("*.md"))
TUTORIALS = sorted((ROOT / "tutorials").glob("[0-9]*.py"))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_python_blocks_run(name, tmp_path):
    """All ``python`` fences of the file, one after the other, as one program."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / name).read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    done = run_program("\n".join(blocks), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_page_renders(page):
    """Each named symbol exists and each fence marked ``run`` runs; no mark is left in the output."""
    text = render_page(page.read_text(encoding="utf-8"), f"docs/{page.name}")
    assert "{{" not in re.sub(r"```.*?```", "", text, flags=re.S)
    assert "```python run" not in text


def test_the_reference_has_a_page_for_each_room_with_every_module():
    package = ROOT / "minisitch"
    there = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()} - {"__init__"}
    rooms = ROOM.findall((ROOT / "docs" / "reference.md").read_text(encoding="utf-8"))
    assert {room for room, *_ in rooms} == there and len(rooms) == len(there)
    known = modules(package)
    named = [name for room, _, what in rooms for name in re.findall(r"^::: (\S+)$", render_room(room, what, known), re.M)]
    assert sorted([*named, "minisitch"]) == known


def test_an_assignment_is_a_page_with_its_hints_folded():
    for each in find_assignments(ROOT / "tutorials" / "assignments").values():
        page = render_handout(each, each.variant)
        assert page.startswith(f"# {each.name}: {each.title}\n") and page.count('\n??? tip "Hint ') == 3 and "variant:" not in page
        assert all(indent(hint.text, "    ") in page for hint in each.hints)


@pytest.mark.parametrize("program", TUTORIALS, ids=lambda p: p.stem)
def test_an_answer_to_try_runs_after_its_tutorial_and_is_folded(program, capsys):
    answer = answers((ROOT / "tutorials" / "answers.md").read_text(encoding="utf-8"))[program.stem]
    page = render_tutorial(program.read_text(encoding="utf-8"), f"tutorials/{program.name}", answer)
    assert '??? tip "An answer to *Try*"\n\n    ' in page and "python run" not in page
    assert page.index("**Try.**") < page.index("??? tip")


@pytest.mark.parametrize("name", ["performance.md", "benchmarks.md"])
def test_pages_of_figures_stay_short(name):
    """Method, a table, what was learned. Single runs are in the history."""
    words = re.findall(r"\S*\w\S*", (ROOT / "docs" / name).read_text(encoding="utf-8"))
    assert len(words) <= 1500


def test_the_course_of_eight_weeks_has_every_assignment_in_its_week():
    """With the points and the minutes of all of them."""
    guide = (ROOT / "docs" / "instructors.md").read_text(encoding="utf-8")
    files = (ROOT / "tutorials" / "assignments").glob("A*/assignment.toml")
    facts = {each.parent.name.split("_")[0]: tomllib.loads(each.read_text(encoding="utf-8")) for each in files}
    points, minutes = (sum(each[key] for each in facts.values()) for key in ("points", "minutes"))
    weeks = guide.split(f"**Eight weeks**, {points} points, {minutes:,} minutes")[1].split("**Four weeks**")[0]
    due = {name: int(week) for week, names in re.findall(r"^\| (\d) \|.*\| ([A-Z\d, ]+) \|$", weeks, re.M) for name in names.split(", ")}
    assert due == {name: each["week"] for name, each in facts.items()}


def test_raw_results_stay_few():
    raw = list((ROOT / "benchmarks" / "results").iterdir())
    assert sum(path.stat().st_size for path in raw) <= 1_500_000


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    named = set(re.findall(r"[\w/-]+\.md", navigation))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES}
    tutorials = {f"tutorials/{program.stem}.md" for program in TUTORIALS}
    assignments = {f"assignments/{path.name.split('_')[0]}.md" for path in (ROOT / "tutorials" / "assignments").glob("A*")}
    rooms = {page for _, page, _ in ROOM.findall((ROOT / "docs" / "reference.md").read_text(encoding="utf-8"))}
    assert named == pages | tutorials | assignments | rooms


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.stem)
def test_files_and_symbols_that_a_page_names_exist(page):
    """A path in backquotes is a fact, and so is the symbol after it: `minisitch/fuse.py::make_plan`."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    named = re.compile(r"`((?:minisitch|tests|tools|tutorials|docs|benchmarks)/[\w/.-]+\w/?)(?:::([\w.]+))?`")
    for path, symbol in named.findall(text):
        assert (ROOT / path).exists(), f"{page.name} names {path}"
        if symbol:
            symbol_source(path, symbol)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_the_plans_of_today(name, request):
    """Drawn from real plans; ``pytest --update-golden`` draws it anew, then look at it."""
    path = ROOT / "docs" / "img" / name
    drawn = PICTURES[name]()
    if request.config.getoption("--update-golden"):
        drawn.save(str(path))
    assert path.read_text(encoding="utf-8") == drawn + "\n", "plans have changed: pytest --update-golden"


# ---------------------------------------------------------------- the renderer itself
def test_code_is_pasted_by_name():
    assert symbol_source("minisitch/graph.py", "Graph.users").startswith("    @lazy\n    def users")
    assert symbol_source("minisitch/fuse.py", "VIEWS").startswith("VIEWS = frozenset(")
    page = render_page("before\n\n{{ code minisitch/trace/builder.py verify }}\n", "page.md")
    assert CODE.search(page) is None and "def verify(graph: Graph) -> Graph:" in page


@pytest.mark.parametrize("mark", ["minisitch/graph.py no_such_function", "minisitch/graph.py Graph.nothing"])
def test_an_unknown_symbol_stops_the_build(mark):
    with pytest.raises(LookupError, match="has no"):
        render_page(f"{{{{ code {mark} }}}}", "page.md")


def test_run_fences_share_names_and_show_what_they_print():
    page = render_page("```python run\nx = 20\nprint(x)\n```\n\ntext\n\n```python run quiet\nx + 1\n```\n", "page.md")
    shown = "```text { .output }\n"
    assert page == f"```python\nx = 20\nprint(x)\n```\n\n{shown}20\n```\n\n\ntext\n\n{shown}21\n```\n"


def test_a_printed_kernel_is_coloured_as_a_program():
    page = render_page("```python run quiet\nprint('def f(x):\\n    return x')\n```\n", "page.md")
    assert page == "```python { .output }\ndef f(x):\n    return x\n```\n"


def test_an_exception_in_a_page_stops_the_build_and_names_the_line():
    with pytest.raises(ZeroDivisionError) as caught:
        render_page("one\n\n```python run\nx = 0\n1 / x\n```\n", "docs/page.md")
    frame = caught.traceback[-1]
    assert (str(frame.path), frame.lineno + 1) == ("docs/page.md", 5)


PROGRAM = """# %% [markdown]
# # A title
#
# Prose.

# %%
x = 2
print("printed")
x + 1

# %%
class Picture:
    def _repr_svg_(self):
        return "<svg>\\n\\n</svg>"
Picture()
"""


def test_a_tutorial_shows_text_and_pictures():
    page = render_tutorial(PROGRAM, "tutorials/99_test.py")
    assert page.startswith("# A title\n\nProse.")
    assert "\nprinted\n```" in page and "\n3\n```" in page
    assert '<div class="picture">\n<svg>\n</svg>\n</div>' in page
    assert [(kind, line) for kind, _, line in cells(PROGRAM)] == [("markdown", 2), ("code", 7), ("code", 12)]
